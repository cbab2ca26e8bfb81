"""Replays do not depend on the number of cores."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.lang import threads
from cctrace.replaying import recorded_flow
from cctrace.replaying.inference import ticks


@pytest.fixture(
    scope="module",
    params=[
        ("cubic", False, 250),
        ("cubic", False, 1000),
        ("bbr2022", False, 1000),
        ("bbr3", False, 250),
        ("bbr3", True, 250),
    ],
)
def sent(request, tmp_path_factory):
    """Return the file of a flow, and its controller."""
    name, fq, hz = request.param
    path = cct.Path(rate="20Mbit", rtt="23ms", buffer="1.3bdp")
    sim = cct.simulate(path, [cct.Sender(name, fq=fq, hz=hz, ack_every=2)], "14s", seed=7, packets=True)
    file = tmp_path_factory.mktemp("threads") / "sender.pcap"
    sim.to_pcap(file)
    return file, name


def test_a_replay_is_the_same_with_any_number_of_cores(sent, monkeypatch):
    runs, begun = [], []
    for cores in (1, 2, 5):

        class Counted(threads.Guess):
            def begin(self):
                super().begin()
                if self._function.func is not recorded_flow._prepared:  # which is needed through fq, too, in part
                    begun.append(self._thread is not None)

        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        for module in (recorded_flow, ticks):
            monkeypatch.setattr(module, "Guess", Counted)
        runs.append(cct.replay(cct.read(sent[0]).flow(0), sent[1]))
        assert any(begun) == (cores > 1 and not runs[0].source.through_fq)
    one, *others = runs
    for other in others:
        assert other.state == one.state
        assert repr(other.inferred) == repr(one.inferred)
        assert other.source.through_fq == one.source.through_fq
        for column, values in one.columns.items():
            np.testing.assert_array_equal(other.columns[column], values)
