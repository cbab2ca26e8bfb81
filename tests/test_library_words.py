"""The library, too, says of a wrong argument what it is and what is allowed; numbers of numpy are numbers."""

import threading

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.errors import ArgumentError

FILE = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
PATH = cct.Path(rate="10Mbit")


@pytest.fixture(scope="module")
def flow():
    return cct.read(FILE).flow(0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda flow: cct.read(None), "cannot read 'NoneType': give a path"),
        (lambda flow: cct.read(b"pcap"), "cannot read 'bytes': give a path"),
        (lambda flow: cct.diagnose(flow.capture), "cannot diagnose 'Capture': use a flow"),
        (lambda flow: cct.identify(FILE), "cannot identify 'PosixPath': use a flow"),
        (lambda flow: cct.replay(flow.capture, "cubic"), "cannot replay 'Capture'; give a flow"),
        (lambda flow: flow.attach(FILE), "cannot attach 'PosixPath': use counters"),
        (lambda flow: flow.attach(flow.capture), "cannot attach 'Capture': use counters"),
        (lambda flow: cct.simulate("40Mbit", "bbr", "1s"), "path='40Mbit' must be a cctrace.Path"),
        (lambda flow: cct.whatif(flow, "cubik"), "'cubik'.*did you mean 'cubic'"),
        (lambda flow: cct.whatif(flow, ["cubic"], draws=np.int64(2)), "draws=.*2.* must be an integer from 3"),
        (lambda flow: cct.Path(rate=np.int64(-1)), "rate=.*-1.*: use 0 or a rate"),
        (lambda flow: cct.analyze(None), "files=None must be a path, or a list of paths"),
        (lambda flow: cct.analyze(FILE, tcpinfo=3), "tcpinfo=3 must be a path, or a list of paths"),
        (lambda flow: cct.analyze(FILE, limit="20GB"), "limit='20GB' must be an integer from 1"),
        (lambda flow: cct.read([]), "source=.. must be a path, or a list with at least one"),
        (lambda flow: cct.read(FILE, decapsulate=None), "decapsulate=None is not one of ipip"),
        (lambda flow: cct.diagnose(flow, run="bbr"), "run='bbr' must be what cctrace.replay returned"),
        (lambda flow: cct.identify(flow, check=1), "check=1 must be a name"),
        (lambda flow: cct.replay(flow, "cubic", record=5), "record=5 must be 'all', or a list of names of fields"),
        (lambda flow: cct.replay(flow, "cubic", mode=None), "mode=None is not one of compiled"),
        (lambda flow: cct.simulate(PATH, None, "1s"), "a controller is a name or a subclass.*not None"),
        (lambda flow: cct.whatif(flow, None), "a controller is a name or a subclass.*not None"),
        (lambda flow: cct.whatif(flow, ["cubic"], seed=-1), "seed=-1 must be an integer from 0"),
        (lambda flow: cct.sweep("10Mbit", "reno"), "path='10Mbit' must be a cctrace.Path"),
        (lambda flow: cct.sweep(PATH, "reno", workers=0), "workers=0 must be an integer from 1"),
        (lambda flow: cct.Sender("reno", start="x"), "start='x' is not a duration"),
        (lambda flow: cct.Sender("quic_bbr", push_late="x"), "push_late='x' is not a duration"),
        (lambda flow: cct.Sender("reno", fq="no"), "fq='no' must be True or False"),
        (lambda flow: cct.Path(rate="1Mbit", shared="no"), "shared='no' must be True or False"),
        (lambda flow: cct.Jitter("normal", sd="1ms", mean="5ms"), "mean='5ms': normal jitter has a mean of zero"),
        (lambda flow: cct.Jitter("normal", sd="1ms", rho="0.5"), "rho='0.5' must be a number"),
        (lambda flow: cct.fit.Jitter(families="normal", seed=None), "seed=None must be an integer from 0"),
        (lambda flow: cct.fit.Parameters("cubic6", None), "None"),
        (lambda flow: cct.streaming.Settings(buffer_s=float("inf")), "buffer_s=inf must be positive and finite"),
        (lambda flow: cct.presets.path_fields("5g_car1", seconds=10**30), "seconds=.* must be an integer from 1"),
        (lambda flow: cct.corpus.run(None, "out", workers=1), "inputs=None must be a path, or a list of paths"),
        (lambda flow: cct.read(FILE, chunk=0), "chunk=0 must be an integer from 1"),
        (lambda flow: flow.capture.bulk("1MB"), "at_least='1MB' must be a number of bytes"),
        (lambda flow: cct.analyze(FILE, what_if="bbr"), "what_if='bbr' must be True, False or a function"),
        (lambda flow: cct.check(FILE, 3), "expectations=3 must be a TOML file, a dict, or a list of dicts"),
        (lambda flow: cct.stress("reno", "floor"), "setting='reno' must be a cctrace.stressing.trial.Setting"),
        (lambda flow: cct.corpus.open(None), "where=None must be a path, or a URL"),
        (lambda flow: cct.streaming.play("5Mbit", "reno"), "path='5Mbit' must be a cctrace.Path"),
        (lambda flow: cct.streaming.play(PATH, "reno", seed=None), "seed=None must be an integer from 0"),
        (lambda flow: cct.papers.find([], "2"), "paper .. is not one of kumar"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_argument_is_named_with_what_is_allowed(flow, call, said):
    with pytest.raises(ArgumentError, match=said):
        call(flow)


def test_numbers_of_numpy_are_numbers():
    path = cct.Path(rate=np.int64(10_000_000), rtt="20ms")
    same = cct.Path(rate="10Mbit", rtt="20ms")
    for seed in (np.int64(2), np.uint8(2)):
        got = cct.simulate(path, "bbr", "1s", seed).flows
        assert got.equals(cct.simulate(same, "bbr", "1s", 2).flows)


def test_one_file_may_be_given_to_analyze_as_it_is():
    assert [analysis.file for analysis in cct.analyze(str(FILE))] == [str(FILE)]


def test_two_threads_that_look_at_one_capture_see_what_one_sees():
    capture, found = cct.read(FILE), {}

    def look(number):
        flow = capture.flow(0)
        found[number] = (cct.diagnose(flow).verdict, cct.identify(flow).candidates[:3], len(flow.events))

    threads = [threading.Thread(target=look, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert found[0][0].startswith("Random losses")
