"""BBRv2, BBRv2+ and BBRv3: rules that the golden vectors do not reach, on ECN and in the paper's variant."""

import pytest

import cctrace as cct
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.bbr2_model import CRUISE, PROBE_BW, REFILL, ilog2, in_8_bits, in_256ths
from cctrace.cc.bbr2plus import BBR2Plus
from cctrace.cc.bbr2plus_paper import BBR2PlusPaper
from cctrace.cc.bbr3 import BBR3
from cctrace.cc.cmath import U32_MAX
from cctrace.cc.compensation import BBR2Comp, BBR2019Comp
from cctrace.cc.linux import EVENT_ECN_IS_CE, EVENT_ECN_NO_CE, EVENT_TLP_RECOVERY
from tests.build_stack import SteadyFlow


def cruising(cls, **settings):
    """A flow in CRUISE."""
    flow = SteadyFlow(cls, **settings)
    flow.until("DRAIN", "DOWN")
    flow.set(packets_out=20, rs_prior_in_flight=20)
    return flow.until("CRUISE")


V2_AND_V3 = pytest.mark.parametrize("cls", [BBR2, BBR2Plus, BBR3])
SHORT_RTT_US = 4000  # below ecn_max_rtt_us


# --- parameters: BBRv2(alpha, beta) [Yang22] section 3.4 --------------------------------------------------------------
def lose_while_probing(flow, lost):
    """Lose `lost` segments of a flight of 100 that was sent while probing."""
    flow.cc.bw_probe_samples = True
    flow.call("skb_marked_lost", lost=lost, skb_tx_lost=0, skb_tx_in_flight=100, skb_tx_has_mstamp=1)
    return flow.cc


@V2_AND_V3
def test_a_probe_that_loses_more_than_alpha_bounds_the_flight(cls):
    assert lose_while_probing(cruising(cls), lost=1).inflight_hi == U32_MAX
    assert lose_while_probing(cruising(cls), lost=3).inflight_hi < U32_MAX


def test_a_higher_alpha_tolerates_the_loss_rate_that_alpha_names():
    assert lose_while_probing(cruising(BBR2, loss_thresh=0.2), lost=19).inflight_hi == U32_MAX
    assert lose_while_probing(cruising(BBR2, loss_thresh=0.2), lost=25).inflight_hi < U32_MAX


def test_the_bound_is_the_flight_at_which_the_loss_rate_crossed_alpha():
    flow = cruising(BBR2, beta=1.0)  # so that the flight target does not matter
    flow.set(snd_cwnd=4)
    cc = lose_while_probing(flow, lost=3)
    thresh = in_8_bits(0.02) / 256
    # 99 before the lost one, 2 of them lost: (2 + x) / (99 + x) = alpha has no x > 0, so the flight before it.
    assert thresh < (3 - 1) / 99
    assert cc.inflight_hi == 99


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7])
def test_beta_is_the_share_cut_from_the_short_term_bounds(beta):
    flow = cruising(BBR2, beta=beta)
    flow.cc.reset_lower_bounds()
    flow.cc.snd_cwnd = 1000
    flow.cc.bw_hi0, flow.cc.bw_hi1 = 1_000_000, 0
    flow.cc.loss_in_round, flow.cc.bw_latest, flow.cc.inflight_latest = True, 0, 0
    flow.cc.adapt_lower_bounds()
    kept = (256 - in_8_bits(beta)) / 256
    assert flow.cc.inflight_lo == int(1000 * kept)
    assert flow.cc.bw_lo == int(1_000_000 * kept)


def test_alpha_of_one_hundred_percent_is_the_largest_that_eight_bits_hold():
    assert in_8_bits(1.0) == 255


# --- ECN, from the rules of the sources -------------------------------------------------------------------------------
@V2_AND_V3
def test_ecn_is_off_unless_enabled(cls):
    flow = cruising(cls, rtt_us=SHORT_RTT_US)
    flow.rounds(5, ce=10)
    assert not flow.cc.ecn_eligible
    assert flow.cc.inflight_lo == U32_MAX


@V2_AND_V3
def test_ecn_is_used_on_short_paths_only(cls):
    assert not SteadyFlow(cls, rtt_us=5001, ecn_enable=1).rounds(3).cc.ecn_eligible
    assert SteadyFlow(cls, rtt_us=5000, ecn_enable=1).rounds(3).cc.ecn_eligible
    assert SteadyFlow(cls, rtt_us=80_000, ecn_enable=1, ecn_max_rtt_us=0).rounds(3).cc.ecn_eligible


def test_only_bbr3_asks_whether_ecn_was_negotiated():
    for cls, eligible in ((BBR2, True), (BBR2Plus, True), (BBR3, False)):
        flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
        flow.set(ecn_ok=0)
        assert flow.rounds(3).cc.ecn_eligible == eligible


@V2_AND_V3
def test_alpha_starts_at_one_and_decays_by_a_sixteenth_per_unmarked_round(cls):
    flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    assert flow.cc.ecn_alpha == 256
    seen = []
    while len(seen) < 4:
        flow.deliver()
        if flow.cc.round_start:
            seen.append(flow.cc.ecn_alpha)
    assert seen == [240, 225, 210, 196]  # each (240 * alpha) >> 8


@V2_AND_V3
def test_alpha_follows_the_marked_share(cls):
    flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1).rounds(100, ce=2)
    # A fifth of all marked: 51 of 256; fixed-point truncation of both terms loses up to 16.
    assert 51 - 16 <= flow.cc.ecn_alpha <= 51


@V2_AND_V3
def test_two_rounds_half_marked_end_startup(cls):
    flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    flow.rounds(1, rs_is_app_limited=1)  # app-limited: no plateau can end it
    rounds = 0
    while not flow.cc.full_bw_reached:
        flow.deliver(ce=5)
        rounds += flow.cc.round_start
        assert rounds <= 3  # of the first round only a part is marked
    assert flow.cc.inflight_hi < U32_MAX


@V2_AND_V3
def test_rounds_less_than_half_marked_do_not_end_startup(cls):
    flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1).rounds(10, ce=4, rs_is_app_limited=1)
    assert flow.state == "STARTUP"


@V2_AND_V3
def test_a_marked_round_while_cruising_cuts_the_flight_by_a_third_of_alpha(cls):
    flow = cruising(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    cc = flow.cc
    cc.reset_lower_bounds()
    cc.ecn_in_round, cc.ecn_alpha, cc.snd_cwnd = True, 256, 1000
    cc.adapt_lower_bounds()
    assert cc.inflight_lo == 1000 * (256 - 85) >> 8  # 256 // 3 = 85
    assert cc.bw_lo == U32_MAX  # marks do not cut the rate


@V2_AND_V3
def test_marks_while_probing_cut_nothing(cls):
    flow = SteadyFlow(cls, rtt_us=SHORT_RTT_US, ecn_enable=1).rounds(2, ce=4)
    assert flow.state == "STARTUP"
    assert flow.cc.inflight_lo == U32_MAX


@V2_AND_V3
def test_an_ack_with_marks_is_seen_by_what_it_delivers_with_ce(cls):
    flow = cruising(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    assert not flow.deliver(ce=0).cc.ecn_in_round
    flow.cc.loss_round_delivered = flow.ack.delivered + 1000  # so that the loss round does not end at once
    assert flow.deliver(ce=1).cc.ecn_in_round
    assert flow.deliver(ce=0).cc.ecn_in_round  # for the rest of the round


@pytest.mark.parametrize(("cls", "marked", "too_high"), [(BBR2, 50, True), (BBR3, 50, False), (BBR3, 51, True)])
def test_a_probe_ends_with_half_of_a_sample_marked_in_v2_and_with_more_in_v3(cls, marked, too_high):
    flow = cruising(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    assert flow.cc.is_inflight_too_high(0, 100, 100, marked) == too_high


def test_bbr3_probes_at_once_when_marks_cease_without_loss():
    flow = cruising(BBR3, rtt_us=SHORT_RTT_US, ecn_enable=1)
    flow.cc.inflight_hi = 100
    flow.cc.ecn_in_cycle = True
    flow.deliver()
    assert flow.state == "REFILL"
    assert flow.cc.bw_probe_up_rounds == 5  # ilog2(100 / 2): the first round of UP grows by about half of inflight_hi


@pytest.mark.parametrize(
    ("cls", "change"),
    [(BBR3, {"loss_in_cycle": True}), (BBR3, {"ecn_reprobe_gain": 0.0}), (BBR2, {}), (BBR3, {"ecn_in_cycle": False})],
)
def test_no_such_probe_after_losses_without_marks_or_when_off_as_in_bbr2(cls, change):
    flow = cruising(cls, rtt_us=SHORT_RTT_US, ecn_enable=1)
    flow.cc.inflight_hi = 100
    flow.cc.ecn_in_cycle = True
    for name, value in change.items():
        setattr(flow.cc, name, value)
    assert flow.deliver().state == "CRUISE"


def test_the_first_growth_of_a_tiny_bound_is_as_in_the_source_which_takes_the_logarithm_of_zero():
    assert [ilog2(x) for x in (0, 1, 2, 3, 4, 2**31)] == [-1, 0, 1, 1, 2, 31]


@pytest.mark.parametrize(("enabled", "state"), [(1, 1), (0, 0)])
def test_ce_state_of_received_data_follows_the_events_when_enabled(enabled, state):
    flow = SteadyFlow(BBR2, ecn_enable=enabled)
    flow.call("cwnd_event", arg=EVENT_ECN_IS_CE)
    assert flow.cc.ce_state == state
    flow.call("cwnd_event", arg=EVENT_ECN_NO_CE)
    assert flow.cc.ce_state == 0


# --- what else BBRv3 changed ------------------------------------------------------------------------------------------
def test_on_a_path_of_constant_rtt_bbr3_dips_for_min_rtt_and_bbr2_does_not():
    for cls, dips in ((BBR2, False), (BBR3, True)):
        flow = cruising(cls)
        modes = {flow.deliver().state for _ in range(2500)}  # 10 s
        assert ("PROBE_RTT" in modes) == dips


def test_a_loss_repaired_by_a_tail_loss_probe_bounds_a_small_probe():
    flow = cruising(BBR3)
    flow.cc.bw_probe_samples, flow.cc.inflight_latest = True, 9
    flow.call("cwnd_event", arg=EVENT_TLP_RECOVERY, tlp_orig_data_app_limited=0)
    assert flow.cc.loss_in_round
    assert flow.cc.inflight_hi < U32_MAX


def probing_up_against_its_bound(cls):
    """A flow in UP whose window is inflight_hi."""
    flow = cruising(cls)
    flow.cc.start_bw_probe_refill(flow.ack, 0)
    flow.until("UP")
    flow.cc.inflight_hi = flow.cc.snd_cwnd = 200
    return flow


def test_a_bound_that_limits_up_grows_faster_every_round_and_restarts_the_plateau_detector_of_bbr3():
    flow = probing_up_against_its_bound(BBR3)
    flow.cc.full_bw_cnt = 2
    growth = []
    for _ in range(5):
        before = flow.cc.inflight_hi
        for _ in range(10):
            flow.cc.snd_cwnd = flow.cc.inflight_hi
            flow.deliver()
        growth.append(flow.cc.inflight_hi - before)
    assert flow.state == "UP"
    assert flow.cc.full_bw_cnt <= 1  # of the last round: three rounds without growth would have ended UP
    assert growth[-3:] == [2, 4, 8]


def test_credit_for_growth_is_lost_in_bbr2_and_kept_in_bbr3_while_the_bound_does_not_limit():
    for cls, kept in ((BBR2, 0), (BBR3, 7)):
        flow = probing_up_against_its_bound(cls)
        flow.cc.bw_probe_up_acks = 7
        flow.call("probe_inflight_hi_upward", is_cwnd_limited=0)
        assert flow.cc.bw_probe_up_acks == kept


def test_a_lost_segment_sent_with_nothing_in_flight_sets_no_bound():
    cc = cruising(BBR2).cc
    assert cc.inflight_hi_from_lost_skb(1, 0, 1) == U32_MAX
    assert cc.inflight_hi_from_lost_skb(0, 5, 1) == U32_MAX


# --- BBRv2+ by its paper ----------------------------------------------------------------------------------------------
def test_a_try_fails_when_the_least_rtt_of_its_round_grew_by_more_than_gamma():
    cc = cruising(BBR2PlusPaper).cc
    cc.last_round_min_rtt_us = 200_000
    cc.curr_round_min_rtt_us = 204_000
    assert cc.is_try_ok()  # by 2 %, not capped at the module's 2000 us
    cc.curr_round_min_rtt_us = 204_001
    assert not cc.is_try_ok()


def test_a_try_may_compare_smoothed_rtts_of_both_rounds_instead():
    cc = cruising(BBR2PlusPaper).cc
    cc.smoothed_tries = 1
    cc.round_start = True
    cc.curr_round_srtt_us = 40_000
    cc.update_round_rtts(90_000)  # the first of a round: what was smoothed until here belongs to the round before
    assert (cc.last_round_srtt_us, cc.curr_round_srtt_us) == (40_000, 40_000)
    cc.round_start = False
    cc.update_round_rtts(46_400)
    assert cc.curr_round_srtt_us == 40_800
    assert cc.is_try_ok()
    cc.update_round_rtts(46_400)
    assert not cc.is_try_ok()


@pytest.mark.parametrize(("rtt_us", "phase"), [(40_700, "UP"), (41_000, "DOWN_SLIGHTLY")])
def test_probe_try_is_a_round_at_1_1_and_one_at_1_0_that_judges_it(rtt_us, phase):
    flow = cruising(BBR2PlusPaper).until("PRE_UP")
    assert flow.cc.pacing_gain == in_256ths(1.1)
    flow.until("GUARD")
    assert flow.cc.pacing_gain == 256
    flow.cc.last_round_min_rtt_us, flow.cc.curr_round_min_rtt_us = 40_000, rtt_us
    acks = 0
    while flow.state == "GUARD":
        flow.deliver(rtt_us=rtt_us)
        acks += 1
    assert flow.state == phase
    assert acks == 10  # one round


def test_up_is_entered_again_while_the_least_rtt_stays():
    cc = cruising(BBR2PlusPaper).cc
    cc.mrtt_before_probe = 40_000
    cc.curr_round_min_rtt_us = 40_800
    assert cc.is_probe_ok()
    cc.curr_round_min_rtt_us = 40_801
    assert not cc.is_probe_ok()


def test_the_rtts_judged_after_up_are_those_that_came_after_it():
    flow = cruising(BBR2PlusPaper).until("UP")
    flow.set(rs_prior_in_flight=1000)
    flow.until("POST_UP")
    flow.deliver(rtt_us=60_000)
    assert flow.cc.curr_round_min_rtt_us == 40_000  # of the ACK that ended UP
    flow.cc.start_bw_probe_post_up(flow.ack)
    flow.deliver(rtt_us=60_000)
    assert flow.cc.curr_round_min_rtt_us == 60_000


@pytest.mark.parametrize(("rtt_us", "expires"), [(43_900, False), (44_100, True)])
def test_algorithm_1_expires_the_old_bandwidth_when_a_round_exceeds_theta_times_rtprop(rtt_us, expires):
    flow = cruising(BBR2PlusPaper).rounds(2)  # past the end of the cycle, which moves the filter as in BBRv2
    cc = flow.cc
    cc.bw_hi0, cc.bw_hi1 = 4_000_000, 1_000
    flow.rounds(3, rtt_us=rtt_us)
    assert flow.state == "CRUISE"
    assert (cc.max_bw() < 4_000_000) == expires


def end_cruises(flow, count, mrtt_us):
    """End `count` cruises in which the least RTT was `mrtt_us`."""
    for _ in range(count):
        flow.cc.set_cycle_idx(CRUISE)
        flow.cc.mode = PROBE_BW
        flow.cc.mrtt_in_cruise = mrtt_us
        flow.cc.start_bw_probe_refill(flow.ack, 0)
    return flow


def test_algorithm_2_falls_back_after_two_cruises_with_a_queue_and_restarts_from_startup():
    flow = cruising(BBR2PlusPaper)
    assert end_cruises(flow, 1, 45_000).state == "REFILL"
    assert end_cruises(flow, 1, 43_000).cc.fast_conv_on  # one without a queue in between: from the beginning
    assert end_cruises(flow, 1, 45_000).cc.fast_conv_on
    assert end_cruises(flow, 1, 45_000).state == "STARTUP"
    assert not flow.cc.fast_conv_on
    assert not flow.cc.full_bw_reached


def test_algorithm_2_returns_after_four_cruises_without_a_queue():
    flow = end_cruises(cruising(BBR2PlusPaper), 2, 45_000)
    assert not end_cruises(flow, 3, 42_000).cc.fast_conv_on
    assert end_cruises(flow, 1, 42_000).cc.fast_conv_on


def test_without_the_dual_mode_it_never_falls_back():
    assert end_cruises(cruising(BBR2PlusPaper, eta1=0), 10, 80_000).cc.fast_conv_on


def test_fallen_back_it_probes_as_bbr2():
    flow = end_cruises(cruising(BBR2PlusPaper), 2, 45_000)
    flow.cc.mode, flow.cc.full_bw_reached = PROBE_BW, True
    flow.cc.set_cycle_idx(REFILL)
    assert flow.rounds(2).state == "UP"  # no try


@pytest.mark.parametrize("cls", [BBR2019Comp, BBR2Comp, BBR2PlusPaper])
def test_algorithm_3_adds_jitter_above_half_of_rtprop_to_the_delay_of_the_bdp(cls):
    bw = 1 << 24 - 4  # a segment per 16 us
    plain = SteadyFlow(cls).rounds(5, mdev_us4=4 * 20_000)
    assert plain.cc.bdp(bw, 256) == 40_000 // 16
    jittery = SteadyFlow(cls).rounds(5, mdev_us4=4 * 20_016)
    assert jittery.cc.bdp(bw, 256) == 60_016 // 16


def test_compensation_forgets_jitter_after_four_rounds():
    flow = SteadyFlow(BBR2Comp).rounds(5, mdev_us4=4 * 30_000)
    assert flow.rounds(3, mdev_us4=0).cc.bdp_rtt_us() == 70_000
    assert flow.rounds(5, mdev_us4=0).cc.bdp_rtt_us() == 40_000


@pytest.mark.parametrize("parent", ["bbr2", "bbr3"])
def test_in_order_either_estimate_given_keeps_what_jitter_takes_from_both(parent):
    path = cct.Path(rate="40Mbit", rtt="40ms", buffer="4bdp", jitter="normal:sd=32ms")
    given = (f"{parent}_cmrt:true_rtt_us=40000", f"{parent}_cbe:true_bw_Bps=4782034")
    plain, *oracles = (cct.simulate(path, cc, "30s", 1).flows.goodput_bps[0] / 1e6 for cc in (parent, *given))
    assert plain < 20 < min(oracles)
