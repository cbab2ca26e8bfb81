"""The closed-loop simulation: closed forms, conservation, modes that agree, clear errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cctrace import schema
from cctrace.cc.base import LinuxController
from cctrace.engine.path import Jitter, Path
from cctrace.engine.replay import replay
from cctrace.engine.sim import build
from cctrace.engine.sim.flow import Flow
from cctrace.engine.simulate import simulate
from cctrace.errors import ArgumentError

MSS, WIRE = 1448, 1514
QUIET = Path(rate="10Mbit", rtt="20ms", buffer="1bdp", loss="1%")


@pytest.mark.parametrize("profile", ["reference", "linux"])
@pytest.mark.parametrize("cc", ["bbr2022", "cubic", "bbr2", "quic_bbr"])
def test_compiled_and_interpreted_runs_give_the_same_numbers(cc, profile):
    runs = [
        simulate(QUIET, cc, "600ms", mode=mode, sample="100ms", trace=True, profile=profile)
        for mode in ("compiled", "debug")
    ]
    assert runs[0].flows.equals(runs[1].flows)
    assert runs[0].link == runs[1].link
    assert runs[0].timeline.equals(runs[1].timeline)
    first, second = (run.flow(0) for run in runs)
    assert np.array_equal(first.event, second.event)
    assert all(np.array_equal(first.columns[name], second.columns[name]) for name in first.columns)


def test_a_simulation_compiled_for_another_order_of_columns_is_not_loaded(monkeypatch):
    before = build._source()
    monkeypatch.setattr(schema, "LINUX_VIEW", schema.LINUX_VIEW[::-1])
    assert build._source() != before


@pytest.mark.parametrize(("cc", "out"), [("bbr2022", "snd_cwnd"), ("cubic", "snd_cwnd"), ("quic_bbr", "pacing_rate")])
def test_replaying_a_simulated_flow_gives_the_decisions_of_the_simulation(cc, out):
    sim = simulate(QUIET, cc, "2s", trace=True, profile="reference")
    run = replay(sim.flow(0), cc, record=[out, "app_limited"])
    assert not run.warnings
    if cc == "bbr2022":  # nobody else writes BBR's cwnd between two ACKs, outside a timeout
        trace = sim.flow(0)
        same = trace.carried["snd_cwnd"][1:] == run.decisions.snd_cwnd.to_numpy()[:-1]
        assert same.mean() > 0.99


@st.composite
def settings_of_a_run(draw):
    path = Path(
        rate=f"{draw(st.integers(1, 20))}Mbit",
        rtt=f"{draw(st.integers(2, 60))}ms",
        buffer=f"{draw(st.integers(2, 60))}kB",
        loss=f"{draw(st.sampled_from([0, 1, 10, 40]))}%",
        ack_loss=f"{draw(st.sampled_from([0, 20]))}%",
        jitter=draw(st.sampled_from([None, "normal:sd=3ms", "normal:sd=9ms,reorder", "gamma:mean=5ms,sd=5ms,reorder"])),
        aqm=draw(st.sampled_from(["droptail", "codel"])),
        policer=draw(st.sampled_from([None, ("2Mbit", "20kB")])),
    )
    flows = draw(
        st.lists(
            st.sampled_from(["bbr2022", "cubic", "bbr2", "reno", "quic_bbr", "quic_cubic"]), min_size=1, max_size=3
        )
    )
    common = {
        "profile": draw(st.sampled_from(["reference", "linux"])),
        "ack_every": draw(st.integers(1, 3)),
        "app": draw(
            st.sampled_from(
                ["bulk", "chunks:size=20kB,every=50ms", "onoff:on=100ms,off=200ms", "requests:size=50kB,think=30ms"]
            )
        ),
    }
    return path, flows, common, draw(st.integers(0, 99))


@settings(max_examples=15, deadline=None)
@given(settings_of_a_run())
def test_what_was_sent_is_delivered_lost_or_on_its_way_at_every_event(run):
    path, flows, common, seed = run
    simulate(path, flows, "500ms", seed, mode="debug", **common)  # raises where the books do not balance


def test_a_timeout_after_an_undo_counts_a_retransmission_that_is_still_out_once():
    path = Path(
        rate="2Mbit", rtt="2ms", buffer="5kB", jitter="gamma:mean=5ms,sd=5ms,reorder", policer=("2Mbit", "20kB")
    )
    simulate(path, "bbr2", "500ms", 83, mode="debug", profile="reference", app="chunks:size=20kB,every=50ms")


class FixedWindow(LinuxController):
    """A window of 20 segments, whatever happens."""

    sets_pacing_rate = False

    def on_ack(self, ack):
        self.snd_cwnd = 20


def test_a_window_limited_flow_gets_its_window_per_round_trip():
    sim = simulate(Path(rate="100Mbit", rtt="50ms", buffer="1bdp"), FixedWindow, "10s", profile="reference")
    serialisation_s = WIRE * 8 / 100e6
    assert sim.flows.tail_goodput_bps[0] == pytest.approx(20 * MSS * 8 / (0.05 + serialisation_s), rel=0.01)
    assert sim.flows.retransmitted[0] == 0


def test_a_receive_window_limits_like_a_congestion_window():
    sim = simulate(Path(rate="100Mbit", rtt="50ms", buffer="1bdp"), "cubic", "10s", rwnd="28960B")
    assert sim.flows.tail_goodput_bps[0] == pytest.approx(20 * MSS * 8 / (0.05 + WIRE * 8 / 100e6), rel=0.01)


def test_a_saturated_bottleneck_delivers_its_rate():
    sim = simulate(Path(rate="20Mbit", rtt="20ms", buffer="4bdp"), "cubic", "20s", profile="reference")
    assert sim.flows.tail_goodput_bps[0] == pytest.approx(20e6 * MSS / WIRE, rel=0.005)
    assert sim.link["utilisation"] > 0.98


def test_a_policer_lets_its_rate_through():
    sim = simulate(Path(rate="100Mbit", rtt="20ms", buffer="1bdp", policer=("10Mbit", "30kB")), "bbr2022", "30s")
    assert sim.flows.tail_goodput_bps[0] == pytest.approx(10e6 * MSS / WIRE, rel=0.1)
    assert sim.flows.tail_goodput_bps[0] < 10e6 * MSS / WIRE * 1.001  # the burst is spent in the first third


def test_random_loss_loses_its_share():
    sim = simulate(Path(rate="50Mbit", rtt="20ms", buffer="8bdp", loss="5%"), "bbr2022", "20s")
    sent = sim.flows.sent[0]
    assert sim.flows.lost[0] == pytest.approx(0.05 * sent, abs=4 * np.sqrt(0.05 * sent))


def test_mean_and_percentile_of_a_standing_queue_are_what_the_window_says():
    # 40 segments outstanding, 20 fill the pipe: the rest waits.
    class Window(FixedWindow):
        def on_ack(self, ack):
            self.snd_cwnd = 40

    service_us = WIRE * 8 / 10e6 * 1e6
    path = Path(rate="10Mbit", rtt=f"{round(20 * service_us)}us", buffer="1MB")
    flow = simulate(path, Window, "20s", profile="reference").flows.iloc[0]
    assert flow.tail_queue_delay_mean_us == pytest.approx(19 * service_us, rel=0.02)
    assert flow.tail_queue_delay_p95_us == pytest.approx(19 * service_us, rel=0.02)
    assert flow.tail_rtt_mean_us == pytest.approx(40 * service_us, rel=0.01)


def test_two_equal_flows_are_fair_once_a_little_jitter_breaks_the_phase_lock():
    path = Path(rate="20Mbit", rtt="40ms", buffer="2bdp", jitter="normal:sd=0.1ms")
    sim = simulate(path, ["cubic", Flow("cubic", start="0.5s")], "180s", profile="reference")
    tails = sim.flows.tail_goodput_bps
    assert 0.7 < tails[0] / tails[1] < 1.4


def test_a_flow_stops_when_told_and_a_fixed_size_arrives_whole():
    path = Path(rate="10Mbit", rtt="20ms", buffer="1bdp", loss="2%")
    flows = [Flow("bbr2022", app="bulk:size=500kB"), Flow("cubic", stop="2s")]
    sim = simulate(path, flows, "20s")
    assert sim.flows.goodput_bps[0] * 20 / 8 == pytest.approx(-(-500_000 // MSS) * MSS)
    assert sim.flows.goodput_bps[1] * 20 / 8 < 2.2 * 10e6 / 8


def test_applications_write_what_they_say():
    path = Path(rate="100Mbit", rtt="20ms", buffer="1bdp")
    chunks = simulate(path, "bbr2022", "10s", app="chunks:size=14480B,every=50ms").flows.goodput_bps[0]
    assert chunks == pytest.approx(14480 * 8 / 0.05, rel=0.02)
    asks = simulate(path, "bbr2022", "10s", app="requests:size=14480B,think=80ms").flows.goodput_bps[0]
    assert asks == pytest.approx(14480 * 8 / 0.1, rel=0.05)  # 80 ms to think, 20 ms to arrive
    half = simulate(path, "bbr2022", "10s", app="onoff:on=500ms,off=500ms").flows.goodput_bps[0]
    assert 0.35 < half / (100e6 * MSS / WIRE) < 0.51


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Path(rate="0Mbit"), "nothing would ever be delivered"),
        (lambda: Path(rate="40Mbit", rtt="0ms"), "must be positive"),
        (lambda: Path(rate="40Mbit", rtt="40ms", buffer="100B"), "less than one packet"),
        (lambda: Path(rate="40Mbit", rtt="40"), "40"),
        (lambda: Path(), "either rate or trace_ms"),
        (lambda: Jitter("cauchy", sd="1ms"), "jitter kind 'cauchy'"),
        (lambda: Jitter.parse("normal:sd=1ms,per=hour"), "per='hour'"),
        (lambda: simulate(Path(rate="90Tbit", rtt="90s"), "cubic"), "more than the 262144 packets"),
        (lambda: simulate(QUIET, "bbr2023"), "no controller is called 'bbr2023'"),
        (lambda: simulate(QUIET, "obbr:nu=1"), "has no parameter 'nu'"),
        (lambda: simulate(QUIET, []), "at least one controller"),
        (lambda: simulate(QUIET, "cubic", "0s"), "must be positive"),
        (lambda: simulate(QUIET, "cubic", profile="bsd"), "profile='bsd'"),
        (lambda: simulate(QUIET, "cubic", app="chunks:size=1kB"), "chunks takes size, every"),
        (lambda: simulate(QUIET, "cubic", "1s", mode="interpreted").flow(0), "kept no events"),
    ],
)
def test_bad_input_is_one_clear_line(wrong, message):
    with pytest.raises(ArgumentError, match=message):
        wrong()


@pytest.mark.parametrize("cc", ["quic_cubic", "quic_bbr", "bbr2022", "cubic"])
def test_a_round_trip_shorter_than_a_clock_tick_is_simulated(cc):
    sim = simulate(Path(rate="50Mbit", rtt="100us", buffer="30kB"), cc, "2s")
    assert sim.flows.goodput_bps[0] > 1e6


def test_a_path_that_stops_delivering_ends_the_run_all_the_same():
    sim = simulate(Path(rate=[(0, "10Mbit"), (1, "0Mbit")], rtt="20ms", buffer="2bdp"), "bbr2022", "20s")
    assert sim.flows.timeouts[0] > 3
    assert sim.flows.tail_goodput_bps[0] == 0
