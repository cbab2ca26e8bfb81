"""The QUIC controllers are the same compiled and interpreted, and RFC 9002's NewReno keeps the RFC's rules."""

from types import SimpleNamespace

import pytest

import cctrace as cct
from cctrace import schema
from cctrace.cc import b3r, bbr_s, controller, obbr, quic_bbr, quic_bbr2, quic_reno
from cctrace.cc.cmath import f32
from cctrace.errors import ArgumentError
from cctrace.replaying.run import replay
from tests.places import GOLDEN

RELEASED = ("quic_bbr", "obbr_mu0.5", "obbr_mu0.75", "obbr_mu1", "bbr_s", "b3r", "quic_bbr2", "quic_cubic")


def ack(**columns):
    """Return a call's inputs, 0 where not given."""
    return SimpleNamespace(**(dict.fromkeys(schema.names(schema.QUIC_VIEW), 0) | columns))


@pytest.mark.slow  # compiles ten classes
@pytest.mark.parametrize(
    ("variant", "stream"),
    [(v.replace("_mu", ":mu="), v) for v in RELEASED if v not in ("obbr_mu0.75", "obbr_mu1")]
    + [("quic_reno", "quic_cubic"), ("obbr_paper", "bbr2016"), ("bbr_s_paper", "bbr2016"), ("b3r_paper", "bbr2016")],
)
def test_compiled_and_interpreted_every_field_is_the_same_after_every_call(variant, stream):
    paths = sorted((GOLDEN / stream).glob("*.parquet"))
    assert paths
    for path in paths:
        compiled, interpreted = (replay(path, variant, mode=m, record="all") for m in ("compiled", "interpreted"))
        for name, values in interpreted.decisions.items():
            assert values.equals(compiled.decisions[name]), f"{path.name}: {name}"


# ---------------------------------------------------------------------------------------------------------------------
def test_quic_bbr_paces_the_first_window_over_one_ms_while_no_rtt_is_known():
    cc = quic_bbr.QuicBBR()
    cc.init(ack(now_ms=1000))
    assert cc.cwnd == 32 * 1252
    assert cc.pacing_rate == int(f32(cc.cwnd * 1000) * f32(2.885))


def test_quic_bbr_paces_at_the_first_windows_rate_when_idle_ends_without_any_estimate():
    cc = quic_bbr.QuicBBR()
    cc.init(ack(now_ms=1000, smp_srtt_ms=40))
    cc.mode, cc.full_bw_reached, cc.pacing_gain = quic_bbr.PROBE_BW, True, f32(1.0)
    cc.restart_from_idle(ack(now_ms=2000))
    assert cc.pacing_rate == cc.cwnd * 1000  # the RTT is not passed on: 1 ms


def test_quic_bbr_returns_to_startup_from_probe_rtt_when_the_pipe_was_never_full():
    cc = quic_bbr.QuicBBR()
    cc.mode, cc.probe_rtt_round_done_stamp = quic_bbr.PROBE_RTT, 1500
    cc.restart_from_idle(ack(now_ms=1499))
    assert cc.mode == quic_bbr.PROBE_RTT
    cc.restart_from_idle(ack(now_ms=1500))
    assert (cc.mode, cc.cwnd_gain) == (quic_bbr.STARTUP, f32(2.885))


@pytest.mark.parametrize(("rate", "burst"), [(157_286, 1252), (157_287, 2504), (3_145_728, 3145), (10**9, 65536)])
def test_quic_bbr_bursts_are_one_two_packets_or_a_millisecond(rate, burst):
    cc = quic_bbr.QuicBBR()
    cc.pacing_rate = rate
    assert cc.burst() == burst


# ---------------------------------------------------------------------------------------------------------------------
def gain_after_loss(rtt_ms, min_rtt_ms, mu):
    cc = obbr.OBBR(mu=mu)
    cc.min_rtt_ms = min_rtt_ms
    cc.adapt_gain(ack(smp_rtt_ms=rtt_ms, smp_loss=1252, smp_acked=1252))
    return float(cc.cwnd_gain)


def test_obbr_scales_the_cap_to_mu_times_the_buffer_on_loss():
    assert gain_after_loss(60, 40, mu=0.5) == 1.25
    assert gain_after_loss(60, 40, mu=1.0) == 1.5
    assert gain_after_loss(400, 40, mu=1.0) == f32(2.05)


def test_an_rtt_below_min_rtt_gives_obbr_the_largest_cap():
    # The difference is unsigned in the source, hence huge, not negative.
    assert gain_after_loss(39, 40, mu=0.5) == f32(2.05)
    assert gain_after_loss(39, 40, mu=0.0) == 1.0


def test_obbr_clamps_the_window_even_at_its_largest_cap():
    cc = obbr.OBBR()
    cc.min_rtt_ms, cc.bw_v[0], cc.cwnd = 40, 1_000_000, 200_000
    cc.cwnd_gain = f32(cc.g_max)  # as a float slightly below the double it is compared with
    cc.bound_cwnd(ack())
    assert cc.cwnd == int(f32(2.05) * f32(40_000))


def test_obbr_adapts_nothing_in_startup_below_ten_percent_loss():
    cc = obbr.OBBR()
    assert cc.is_clean_startup(ack(smp_total_loss=99, smp_total_acked=1000))
    assert not cc.is_clean_startup(ack(smp_total_loss=100, smp_total_acked=1000))
    assert not cc.is_clean_startup(ack(smp_total_loss=0, smp_total_acked=0))  # 0/0 is not below 10 in C


def test_obbr_returns_to_the_old_bandwidth_when_the_new_one_scores_worse():
    cc = obbr.OBBR()
    cc.cc, cc.bw_back, cc.min_rtt_ms, cc.score1, cc.score2, cc.score4 = 3, 5000, 40, 900, 900, 800
    cc.end_interval(ack(now_ms=2000, cg_po_sent=800, cg_delivered=800))
    assert (cc.cc, cc.score3, cc.score4, cc.bw_v[0], cc.re_timer) == (obbr.IDLE, 800, 800, 5000, 2000)
    cc.cc, cc.bw_back, cc.score4 = 3, 9000, 800
    cc.end_interval(ack(now_ms=2400, cg_po_sent=800, cg_delivered=800))  # not again within 10 min_rtt
    assert cc.bw_v[0] == 5000


@pytest.mark.parametrize("mu", [-0.1, 1.1])
def test_obbr_refuses_mu_outside_its_range(mu):
    with pytest.raises(ArgumentError, match=r"mu=.* is outside \[0.0, 1.001\]"):
        controller(f"obbr:mu={mu}")


# ---------------------------------------------------------------------------------------------------------------------
def naive_15th_largest(ring):
    """As the source does it: 15 times over all samples."""
    taken, largest = set(), 0
    for _ in range(15):
        largest, place = 0, -1
        for i, bw in enumerate(ring):
            if bw > largest and i not in taken:
                largest, place = bw, i
        taken.add(place)
    return largest


@pytest.mark.parametrize("top", [3, 50, 10**9])  # many equal samples, few, none
def test_bbr_s_keeps_the_15th_largest_of_its_ring(top):
    import random

    random.seed(top)
    cc = bbr_s.BBRS()
    for _ in range(400):
        cc.replace_sample(random.choice((0, random.randrange(top), -random.randrange(top))))
        assert cc.sorted_bw == sorted(cc.recent_bw)
        assert max(cc.sorted_bw[bbr_s.SAMPLES - bbr_s.RANK], 0) == naive_15th_largest(cc.recent_bw)


def test_b3r_changes_its_probing_gain_on_losses_only():
    cc = b3r.B3R()
    cc.min_rtt_ms = 40
    for now, expected in zip((1000, 1001, 1002, 1003, 1004), (1.2, 1.15, 1.1, 1.05, 1.05), strict=True):
        cc.adapt_probe(ack(now_ms=now, smp_loss=1252))
        assert cc.cycle_gain() == f32(expected)
    for now in range(1045, 1060):
        cc.adapt_probe(ack(now_ms=now))
    assert cc.b3r_gum == 50  # restored ...
    assert cc.cycle_gain() == f32(1.05)  # ... without effect
    cc.adapt_probe(ack(now_ms=1100, smp_loss=1252))
    assert cc.cycle_gain() == f32(1.2)
    cc.cycle_idx = 1
    assert cc.cycle_gain() == f32(0.75)


# ---------------------------------------------------------------------------------------------------------------------
def probing_bbr2(**state):
    cc = quic_bbr2.QuicBBR2()
    cc.init(ack(now_ms=1000, smp_srtt_ms=40))
    cc.mode, cc.cycle_idx, cc.full_bw_reached, cc.bw_hi[0] = quic_bbr2.PROBE_BW, quic_bbr2.UP, True, 1_000_000
    for name, value in state.items():
        setattr(cc, name, value)
    return cc


def test_quic_bbr2_tolerates_a_loss_of_two_percent_of_the_bytes_in_flight():
    cc = probing_bbr2()
    assert not cc.is_inflight_too_high(ack(smp_lost_pkts=2000, smp_tx_in_flight=100_000))
    assert cc.is_inflight_too_high(ack(smp_lost_pkts=2001, smp_tx_in_flight=100_000))


def test_quic_bbr2_ends_a_probe_that_put_too_much_in_flight():
    cc = probing_bbr2(bw_probe_samples=True)
    cc.adapt_upper_bounds(ack(smp_now=2000, smp_lost_pkts=1252, smp_tx_in_flight=12_520, rand0=1, rand1=7))
    assert (cc.cycle_idx, cc.probe_wait_ms, cc.rounds_since_probe) == (quic_bbr2.DOWN, 2007, 1)
    assert cc.inflight_hi == int(40_000 * (1.0 - float(f32(0.3))))  # what was in flight is less than 0.7 BDP


def test_quic_bbr2_ends_startup_after_eight_lossy_acks_in_a_round():
    cc = quic_bbr2.QuicBBR2()
    cc.init(ack(now_ms=1000, smp_srtt_ms=40))
    cc.recovery_mode, cc.bw_hi[1] = quic_bbr2.IN_RECOVERY, 1_000_000
    lossy = ack(smp_loss=1252, smp_lost_pkts=1252, smp_tx_in_flight=12_520)
    for _ in range(7):
        cc.check_loss_too_high_in_startup(lossy)
    cc.loss_round_start = True
    cc.check_loss_too_high_in_startup(lossy)
    assert cc.full_bw_reached
    assert cc.inflight_hi == 40_000


def test_quic_bbr2_probes_again_after_stopping_at_a_bound_that_proved_safe():
    cc = probing_bbr2(stopped_risky_probe=True, ack_phase=quic_bbr2.ACKS_PROBE_STOPPING, round_start=True)
    assert cc.adapt_upper_bounds(ack(smp_total_acked=77))
    assert (cc.cycle_idx, cc.next_round_delivered) == (quic_bbr2.REFILL, 77)


def test_quic_bbr2_stops_a_probe_at_a_bound_that_was_too_high_before():
    cc = probing_bbr2(prev_probe_too_high=True, inflight_hi=50_000)
    cc.check_probe_up_done(ack(smp_prior_inflight=49_999))
    assert cc.cycle_idx == quic_bbr2.UP
    cc.check_probe_up_done(ack(smp_prior_inflight=50_000))
    assert cc.cycle_idx == quic_bbr2.DOWN
    assert cc.stopped_risky_probe


def test_quic_bbr2_raises_inflight_hi_faster_each_round_while_the_window_limits():
    cc = probing_bbr2(inflight_hi=40 * 1252, cwnd=40 * 1252)
    growth = []
    for _ in range(4):
        before = cc.inflight_hi
        cc.cwnd, cc.round_start = cc.inflight_hi, True
        cc.raise_inflight_hi_slope()
        cc.round_start = False
        for _ in range(40):
            cc.cwnd = cc.inflight_hi
            cc.probe_inflight_hi_upward(ack(smp_prior_inflight=cc.cwnd, smp_acked=1252))
        growth.append((cc.inflight_hi - before) // 1252)
    assert growth == [1, 2, 4, 8]
    cc.probe_inflight_hi_upward(ack(smp_prior_inflight=0, smp_acked=1252))
    assert cc.bw_probe_up_acks == 0


def test_quic_bbr2_restart_from_idle_needs_an_estimate_or_paces_the_window_over_a_second():
    cc = probing_bbr2(pacing_gain=f32(1.0))
    cc.bw_hi[0] = 0
    cc.restart_from_idle(ack(now_ms=2000))
    assert cc.pacing_rate == cc.cwnd
    cc.mode, cc.probe_rtt_round_done_stamp, cc.full_bw_reached = quic_bbr2.PROBE_RTT, 1, False
    cc.restart_from_idle(ack(now_ms=2000, arg=5))
    assert cc.mode == quic_bbr2.STARTUP


# ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def reno():
    cc = quic_reno.QuicReno(max_datagram_size=1200)
    cc.init(ack(now_ms=1000))
    return cc


def test_newreno_starts_with_ten_packets(reno):
    assert reno.cwnd == 12_000
    large = quic_reno.QuicReno(max_datagram_size=9000)
    large.init(ack(now_ms=1000))
    assert large.cwnd == 18_000  # two packets where ten would exceed 14720 bytes


def test_newreno_doubles_each_round_in_slow_start_and_paces_a_quarter_faster(reno):
    reno.on_ack(ack(now_ms=1040, smp_acked=12_000, smp_po_sent_time=1000, smp_srtt_ms=40))
    assert reno.cwnd == 24_000
    assert reno.pacing_rate == 24_000 * 1000 // 40 * 5 // 4


def test_newreno_fills_a_simulated_path():
    path = cct.Path(rate="4Mbit", rtt="40ms", buffer="1bdp")
    assert cct.simulate(path, "quic_reno", "5s").flows.goodput_bps[0] > 3e6  # paced from kInitialRtt on, before any RTT


def test_newreno_does_not_grow_a_window_that_the_application_left_unused(reno):
    reno.on_ack(ack(now_ms=1040, smp_acked=1200, smp_po_sent_time=1000, smp_is_app_limited=1))
    assert reno.cwnd == 12_000


def test_newreno_halves_once_per_recovery_period(reno):
    reno.on_lost(ack(now_ms=1050, arg=1010))
    reno.on_lost(ack(now_ms=1060, arg=1020))  # sent before recovery began
    assert (reno.cwnd, reno.ssthresh, reno.mode) == (6000, 6000, quic_reno.RECOVERY)
    reno.on_ack(ack(now_ms=1061, smp_acked=1200, smp_po_sent_time=1050))
    assert reno.cwnd == 6000
    reno.on_lost(ack(now_ms=1100, arg=1051))
    assert reno.cwnd == 3000


def test_newreno_adds_a_packet_per_round_after_recovery(reno):
    reno.on_lost(ack(now_ms=1050, arg=1010))
    for _ in range(5):  # a round: 6000 bytes
        reno.on_ack(ack(now_ms=1100, smp_acked=1200, smp_po_sent_time=1060))
    assert reno.mode == quic_reno.AVOIDANCE
    assert reno.cwnd == pytest.approx(7200, abs=150)  # each ACK sees an already larger window


def test_newreno_never_goes_below_two_packets_and_restarts_there_on_persistent_congestion(reno):
    for now in (1100, 1200, 1300, 1400):
        reno.on_lost(ack(now_ms=now, arg=now - 1))
    assert reno.cwnd == 2400
    reno.reset_cwnd(ack(now_ms=1500))
    assert (reno.cwnd, reno.mode) == (2400, quic_reno.SLOW_START)
    reno.on_lost(ack(now_ms=1501, arg=1400))  # recovery was forgotten
    assert reno.recovery_start_time == 1501
