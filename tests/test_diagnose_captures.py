"""Captures that mislead: a queue before the capture, a clock that is set, copies, packets that were not captured."""

import gc
import weakref

import numpy as np
import pytest

import cctrace as cct
from cctrace.explain.diagnose import diagnose
from cctrace.explain.record import Record
from cctrace.explain.stamps import clock_set, held_us, stamps_of
from cctrace.fit.transmissions import transmissions
from cctrace.flows.capture import Capture
from cctrace.flows.state import OPT_COPY

UNSURE = 0.4


def packets(seconds=5, **path):
    path = {"rate": "20Mbit", "rtt": "40ms", "buffer": "1.5bdp"} | path
    sim = cct.simulate(cct.Path(**path), cct.Sender(cc="cubic"), f"{seconds}s", seed=2, packets=True)
    return sim.capture().packets


def changed(found, time_ns):
    found.columns["time_ns"] = time_ns
    return Capture(found)


def shaped(found, rate_bps):
    """Time what was sent when the bottleneck has let it go, as behind a shaper on the captured interface."""
    time, data = found.columns["time_ns"].astype(np.int64), found["payload"] > 0
    service = ((found["payload"][data] + 66) * 8e9 / rate_bps).astype(np.int64)
    total = np.cumsum(service)
    left = time.copy()
    left[data] = total + np.maximum.accumulate(time[data] - (total - service)) - service
    found.columns["time_ns"] = left
    return Capture(found.sorted_by_time())


def test_a_shaper_before_the_capture_is_told_and_nothing_else_is_sure():
    flow = shaped(packets(rtt="0.3ms", buffer="200000B"), 20e6).flow(0)
    found = diagnose(flow)
    assert found.cause == "capture_artefact"
    assert found.verdicts[0].evidence["held_us"] > 5_000
    assert "before the capture" in found.verdict
    assert all(verdict.confidence <= UNSURE for verdict in found.verdicts[1:])


def test_a_queue_on_the_path_is_no_queue_before_the_capture():
    flow = Capture(packets()).flow(0)
    assert held_us(stamps_of(flow)) < 2000
    assert "capture_artefact" not in [verdict.name for verdict in diagnose(flow).verdicts]


def test_clocks_that_drift_apart_hold_nothing_back():
    found = packets()
    time = found.columns["time_ns"].astype(np.int64)
    flow = changed(found, time[0] + ((time - time[0]) * 1.0005).astype(np.int64)).flow(0)
    assert held_us(stamps_of(flow)) < 2000
    assert clock_set(flow) is None


@pytest.mark.parametrize("by_ms", [-300, -20, 50, 2000])
def test_a_clock_that_is_set_is_told_with_its_time(by_ms):
    found = packets()
    time = found.columns["time_ns"].astype(np.int64)
    at = int(time[0] + 2_200_000_000)
    flow = changed(found, time + np.where(time > at, by_ms * 1_000_000, 0)).flow(0)
    found = diagnose(flow)
    assert found.cause == "capture_artefact"
    assert found.verdicts[0].evidence["clock_set_us"] == pytest.approx(by_ms * 1000, abs=4000)
    assert found.verdicts[0].evidence["at_s"] == pytest.approx(2.2, abs=0.1)
    assert all(verdict.confidence <= UNSURE for verdict in found.verdicts[1:])


def test_a_pause_of_the_application_does_not_set_the_clock():
    sim = cct.simulate(
        cct.Path(rate="20Mbit", rtt="40ms"),
        cct.Sender(cc="cubic", app="chunks:size=200kB,every=500ms"),
        "5s",
        seed=2,
        packets=True,
    )
    assert clock_set(sim.capture().flow(0)) is None


def test_packets_that_were_captured_twice_lead_to_the_verdict_of_the_single_ones():
    found = packets()
    once = diagnose(Capture(packets()).flow(0))
    row = np.repeat(np.arange(len(found)), 2)
    copy = np.arange(len(row)) % 2 == 1
    found.columns = {name: column[row] for name, column in found.columns.items()}
    found.columns["options"] = found.columns["options"] | np.where(copy, OPT_COPY, 0).astype(
        found.columns["options"].dtype
    )
    found.columns["time_ns"] = found.columns["time_ns"].astype(np.int64) + np.where(copy, 1000, 0)
    twice = diagnose(Capture(found).flow(0))
    assert [v.name for v in twice.verdicts] == [v.name for v in once.verdicts]
    assert twice.figures == pytest.approx(once.figures, rel=0.02)


def test_a_capture_that_lacks_packets_is_sure_of_nothing_else():
    found = packets()
    rng = np.random.default_rng(3)
    keep = np.flatnonzero(rng.random(len(found)) > 0.04)
    found.columns = {name: column[keep] for name, column in found.columns.items()}
    verdicts = diagnose(Capture(found).flow(0)).verdicts
    assert verdicts[0].name == "capture_artefact"
    assert verdicts[0].evidence["unseen_share"] == pytest.approx(0.04, abs=0.015)
    assert all(verdict.confidence <= UNSURE for verdict in verdicts[1:])


def test_a_base_rtt_is_never_less_than_nothing():
    """A LAN of microseconds behind a token bucket: a queue of its rate alone would have let packets come too late."""
    found = packets(rtt="0.2ms", buffer="80000B", shaper=("10Mbit", "60000B"), rate="200Mbit")
    record = Record(Capture(found).flow(0))
    assert record.bottleneck.base_us >= record.least_rtt_us / 2
    assert record.uncongested[0] >= record.least_rtt_us / 2
    assert diagnose(Capture(found).flow(0)).cause != "shallow_buffer"


def test_transmissions_are_computed_once_per_flow_and_go_with_their_capture():
    capture = Capture(packets(2))
    table = transmissions(capture.flow(0))
    assert transmissions(capture.flow(0)) is table
    assert transmissions(Capture(packets(2)).flow(0)) is not table
    gone = weakref.ref(capture)
    del capture
    gc.collect()
    assert gone() is None
