"""The timeline of a simulation has what the controllers held, as a trace of every call has it."""

import tracemalloc

import numpy as np
import pytest

import cctrace as cct
from cctrace.sim.state import COLUMNS

PATH = cct.Path(rate="4Mbit", rtt="40ms", buffer="1bdp", loss="0.2%")
BBR = ["bw_Bps", "min_rtt_us", "pacing_gain", "cwnd_gain"]
BOUNDS = ["bw_hi_Bps", "bw_lo_Bps", "inflight_hi_segments", "inflight_lo_segments"]


@pytest.mark.parametrize(
    ("controller", "known"),
    [
        ("bbr2022", BBR),
        ("bbr2", BBR + BOUNDS),
        ("quic_bbr", BBR),
        ("quic_bbr2", BBR + BOUNDS),
        ("cubic6", ["ssthresh_segments"]),
        ("quic_cubic", ["ssthresh_segments", "min_rtt_us"]),
    ],
)
def test_every_controller_shows_its_state_without_a_trace(controller, known):
    last = cct.simulate(PATH, controller, "6s", sample="500ms").timeline.iloc[-1]
    assert [name for name in COLUMNS[1:] if not np.isnan(last[name])] == [n for n in COLUMNS[1:] if n in known]
    assert last["mode"]
    if "bw_Bps" in known:
        assert 0.85 < last["bw_Bps"] / (4e6 / 8) < 1.4  # a maximum, of the QUIC stack on a millisecond clock
        assert last["min_rtt_us"] == pytest.approx(40_000, rel=0.05)


@pytest.mark.parametrize("controller", ["bbr2022", "bbr2"])
def test_the_state_is_that_of_a_replay_of_the_trace(controller):
    sim = cct.simulate(PATH, controller, "5s", sample="100ms", trace=True)
    record = ["mode", "min_rtt_us", "pacing_gain", "cwnd_gain"]
    run = cct.replay(sim.flow(0), controller, record=record).decisions
    first = run["time_ns"].iloc[0] / 1e9 - 0.04  # the handshake takes a round trip
    assert len(sim.timeline) > 40
    for row in sim.timeline.iloc[5:].itertuples():
        then = run[run["time_ns"] / 1e9 - first <= row.time_s].iloc[-1]
        around = run[(run["time_ns"] / 1e9 - first - row.time_s).abs() < 0.003]
        held = [then, *around.itertuples()]
        assert any(abs(row.pacing_gain - h.pacing_gain / 256) < 1e-3 for h in held)
        assert any(row.min_rtt_us == h.min_rtt_us for h in held)


def test_phases_of_probe_bw_have_names():
    modes = set(cct.simulate(PATH, "bbr2022", "8s", sample="10ms").timeline["mode"])
    assert {"STARTUP", "DRAIN", "PROBE_BW up", "PROBE_BW down", "PROBE_BW cruise"} <= modes
    modes = set(cct.simulate(PATH, "bbr2", "8s", sample="10ms").timeline["mode"])
    assert {"PROBE_BW cruise", "PROBE_BW refill", "PROBE_BW down"} <= modes


def test_interpreted_and_compiled_show_the_same():
    one, other = (cct.simulate(PATH, "bbr2", "1s", sample="100ms", mode=mode) for mode in ("compiled", "interpreted"))
    assert one.timeline.equals(other.timeline)


def test_a_trace_that_samples_interrupt_often_takes_little_more_memory_than_its_rows():
    path = cct.Path(rate="20Mbit", rtt="20ms", buffer="2bdp")
    cct.simulate(path, "cubic6", "100ms", trace=True)  # compiled by now
    tracemalloc.start()
    try:
        sim = cct.simulate(path, "cubic6", "10s", trace=True, sample="20ms")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    rows = sum(column.nbytes for column in sim.flow(0).columns.values())
    assert rows > 1e6
    assert most < 6 * rows
