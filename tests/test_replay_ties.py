"""A microsecond decides whether an RTT sample renews BBR's minimum, and through fq a capture does not show it."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.columns import runs_of_true
from cctrace.flows.capture import read
from cctrace.replaying.engine import midflow

PARAMS = {"min_rtt_win_sec": 10}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Capture of a BBR v1 whose least RTT is the handshake's, 0.6 ms less than many others; PROBE_RTT comes at 10 s."""
    return captured("bbr2022", tmp_path_factory)


def captured(sender, tmp_path_factory):
    path = cct.Path(rate="20Mbit", rtt="60ms", buffer="1bdp")
    sim = cct.simulate(path, [cct.Sender(sender, fq=True)], "12s", seed=3, packets=True)
    file = tmp_path_factory.mktemp("ties") / "sender.pcap"
    sim.to_pcap(file)
    return file


def replayed(file, early_ns=0, sender="bbr2022", after_s=1):
    """Return when the replay is in PROBE_RTT (s), and its events, after an ACK came earlier by `early_ns`."""
    capture = read(file)
    if early_ns:
        samples = read(file).flow(0).rtt_samples
        least = (samples["rtt_us"] == samples["rtt_us"].min()) & (samples["time_s"] > after_s)
        capture.packets["time_ns"][capture.packets["time_ns"] == samples["time_ns"][least.argmax()]] -= early_ns
    run = cct.replay(capture.flow(0), sender)
    assert run.source.through_fq
    begins, ends = runs_of_true(run.decisions["mode"] == run.controller.states.index("PROBE_RTT"))
    now_s = run.source.seconds(run.source.events.rows["time_ns"])
    return [(now_s[begin], now_s[end - 1]) for begin, end in zip(begins, ends, strict=True)], run.source.events


def test_the_minimum_rtt_expires_when_the_sends_show_it(recorded):
    (there,), _ = replayed(recorded)
    assert there[0] == pytest.approx(10.1, abs=0.1)
    (here,), _ = replayed(recorded, early_ns=606_000)  # of its own, this replay comes to PROBE_RTT at 11.5 s
    assert here == pytest.approx(there, abs=0.02)


def test_the_minimum_rtt_of_bbr3_expires_when_the_sends_show_it(tmp_path_factory):
    """The ACK renews the minimum of the replay, which of its own comes to PROBE_RTT at 7 s (seed 338456)."""
    file = captured("bbr3", tmp_path_factory)
    there, _ = replayed(file, sender="bbr3")
    here, _ = replayed(file, 620_000, "bbr3", after_s=2)
    assert len(there) == 2
    assert np.array(here) == pytest.approx(np.array(there), abs=0.02)


def test_only_a_probe_rtt_that_a_tie_explains_is_taken_from_the_sends(recorded):
    _, events = replayed(recorded)
    ((begin, end),) = midflow.floors(events)
    assert midflow.unexpected(events, [end], PARAMS) == -1  # the replay has it
    assert midflow.unexpected(events, [], PARAMS) == begin
    assert midflow.unexpected(events, [], {"min_rtt_win_sec": 5}) == -1  # no sample was as short 5 s before
