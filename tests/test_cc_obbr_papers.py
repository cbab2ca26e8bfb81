"""oBBR, BBR-S and B3R as the oBBR paper describes them, on Linux BBR, behave as it says."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.cc.b3r_paper import B3RPaper
from cctrace.cc.bbr1_model import BW_UNIT, GAIN_UNIT, PROBE_BW, STARTUP
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.bbr_s_paper import BBRSPaper
from cctrace.cc.obbr_law import FIRST_INTERVAL, WATCHING
from cctrace.cc.obbr_paper import OBBRPaper
from cctrace.cc.percentile_bw import MAX_SAMPLES
from cctrace.sim.path import Path
from cctrace.sim.simulate import simulate
from tests.build_stack import SteadyFlow

PER_MS = 2


def one_by_one(cls, **params):
    """Return a flow whose every segment is ACKed on its own, two a ms."""
    return SteadyFlow(cls, segments=1, in_flight=40 * PER_MS, **params)


def probing(cls, **params):
    """Return a flow that has filled the pipe and probes for bandwidth."""
    flow = one_by_one(cls, **params).deliver(40 * 50)
    assert flow.cc.mode == PROBE_BW
    return flow


# ---------------------------------------------------------------------------------------------------------------------
def test_obbr_paper_decides_as_its_parent_without_loss_and_bandwidth_drop():
    ours, parent = one_by_one(OBBRPaper), one_by_one(BBR2016)
    for _ in range(60):
        ours.deliver(50)
        parent.deliver(50)
        # The cap may only differ while probing: 2 >= 1.25 keeps it at 2 as well.
        assert (ours.cc.snd_cwnd, ours.cc.pacing_rate) == (parent.cc.snd_cwnd, parent.cc.pacing_rate)
        assert ours.cc.cwnd_gain == parent.cc.cwnd_gain


@pytest.mark.parametrize("mu", [0.5, 0.75, 1.0])
def test_a_loss_with_a_shallow_buffer_sets_the_cap_to_mu_of_it(mu):
    flow = probing(OBBRPaper, mu=mu)
    flow.deliver(1, losses=1, rs_rtt_us=60_000)  # a buffer of half a BDP
    assert flow.cc.g == pytest.approx(1 + mu / 2)
    while flow.cc.pacing_gain > GAIN_UNIT:
        flow.deliver(1, losses=1, rs_rtt_us=60_000)
    assert flow.cc.cwnd_gain == int((1 + mu / 2) * GAIN_UNIT)


def test_while_probing_the_cap_is_at_least_a_quarter_above_the_bdp():
    flow = probing(OBBRPaper, mu=0.5)
    while flow.cc.pacing_gain <= GAIN_UNIT:
        flow.deliver(1)
    flow.cc.g = 1.05
    flow.deliver(1)
    assert flow.cc.cwnd_gain == GAIN_UNIT * 5 // 4
    flow.deliver(1, losses=1)  # ends the probe; no buffer at all
    assert flow.cc.cwnd_gain == GAIN_UNIT


def test_a_loss_with_a_deep_buffer_leaves_the_cap():
    flow = probing(OBBRPaper, mu=0.5)
    flow.deliver(1, losses=1, rs_rtt_us=80_000)
    assert flow.cc.g == 2.0
    flow.deliver(1, losses=1, rs_rtt_us=50_000)
    low = flow.cc.g
    flow.deliver(1, losses=1, rs_rtt_us=70_000)  # 1.75 is above the cap: not shallow, though 1 + 0.375 would be more
    assert flow.cc.g == low < 1.2


def test_the_cap_recovers_by_alpha_for_each_bdp_acknowledged():
    flow = probing(OBBRPaper, mu=0.5)
    flow.deliver(1, losses=1)  # RTT at its minimum: no buffer at all
    assert flow.cc.g == 1.0
    flow.deliver(80)  # one BDP
    assert flow.cc.g == pytest.approx(1.01)
    flow.deliver(80 * 100)
    assert flow.cc.g == 2.0


def test_thirty_low_samples_in_a_row_lower_the_estimate_to_their_mean():
    flow = probing(OBBRPaper)
    assert flow.cc.max_bw() == 2 * BW_UNIT // 1000
    flow.deliver(29, rs_delivered=40)
    flow.deliver(1)  # the row is broken
    flow.deliver(29, rs_delivered=40)
    assert flow.cc.max_bw() == 2 * BW_UNIT // 1000
    flow.deliver(1, rs_delivered=40)
    assert flow.cc.max_bw() == pytest.approx(BW_UNIT / 1000, rel=1e-4)


def test_app_limited_samples_do_not_count_as_low():
    flow = probing(OBBRPaper)
    flow.deliver(60, rs_delivered=40, rs_is_app_limited=1)
    assert flow.cc.max_bw() == 2 * BW_UNIT // 1000


def test_thirty_rtts_above_g_max_and_a_half_lower_the_estimate_too():
    flow = probing(OBBRPaper, k=20)
    flow.deliver(19, rs_rtt_us=101_000, rs_delivered=70)
    assert flow.cc.max_bw() == 2 * BW_UNIT // 1000
    flow.deliver(1, rs_rtt_us=101_000, rs_delivered=70)
    assert flow.cc.max_bw() == pytest.approx(70 / 40_000 * BW_UNIT, rel=1e-4)


def after_drop(losses_afterwards):
    flow = probing(OBBRPaper)
    flow.deliver(30, rs_delivered=40)
    assert flow.cc.trial == FIRST_INTERVAL
    acks = 0
    while flow.cc.trial != WATCHING:
        flow.deliver(1, losses=losses_afterwards, rs_delivered=40)
        acks += 1
    assert acks == pytest.approx(2 * 200 * PER_MS, abs=3)  # two intervals
    return flow.cc


def test_the_lower_estimate_stays_if_delivery_does_not_get_worse():
    assert after_drop(losses_afterwards=0).max_bw() == pytest.approx(BW_UNIT / 1000, rel=1e-4)


def test_the_old_estimate_returns_if_delivery_gets_worse():
    cc = after_drop(losses_afterwards=1)
    assert cc.score_before_update > cc.score + cc.previous_score
    assert cc.bw_v[0] == 2 * BW_UNIT // 1000


def test_samples_of_startup_do_not_count():
    flow = one_by_one(OBBRPaper).deliver(1)
    flow.deliver(40, rs_delivered=20)
    assert (flow.cc.mode, flow.cc.recent_count) == (STARTUP, 0)


# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("percentile", [1, 50, 85, 100])
def test_bbr_s_paper_estimates_the_percentile_of_the_last_ten_rounds(percentile):
    rng = np.random.default_rng(percentile)
    cc = BBRSPaper(percentile=percentile)
    history = []
    for round_number in range(60):
        cc.rtt_cnt = round_number
        for bw in rng.integers(1, rng.choice([5, 10**6]), rng.integers(0, 40)).tolist():
            cc.take_sample(bw, cc.rtt_cnt, cc.bw_rtts)
            history.append((round_number, bw))
            window = [b for r, b in history if round_number - r <= 10][-MAX_SAMPLES:]
            assert cc.percentile_bw == np.percentile(window, percentile, method="inverted_cdf")


def test_one_burst_moves_the_maximum_but_not_the_percentile():
    ours, parent = probing(BBRSPaper), probing(BBR2016)
    for flow in (ours, parent):
        flow.deliver(1, rs_delivered=400)
    assert parent.cc.max_bw() == 10 * BW_UNIT // 1000
    assert ours.cc.max_bw() == 2 * BW_UNIT // 1000
    ours.deliver(50, rs_delivered=40, rs_is_app_limited=1)  # nor do samples that show the application
    assert ours.cc.max_bw() == 2 * BW_UNIT // 1000
    ours.deliver(1, rs_interval_us=-1, rs_delivered=-1)
    assert ours.cc.max_bw() == 2 * BW_UNIT // 1000


# ---------------------------------------------------------------------------------------------------------------------
def test_b3r_paper_takes_one_step_down_per_round_with_loss_and_one_up_per_min_rtt_without():
    flow = probing(B3RPaper)
    assert flow.cc.probe_gain() == GAIN_UNIT * 5 // 4
    flow.cc.rtt_cnt += 1
    for _ in range(5):
        flow.cc.update_cycle_phase(SimpleNamespace(**(vars(flow.ack) | {"rs_losses": 3})))
    assert flow.cc.probe_gain() == int(1.2 * GAIN_UNIT)
    flow.deliver(80)  # 40 ms: not yet more than min_rtt
    assert flow.cc.probe_gain() == int(1.2 * GAIN_UNIT)
    flow.deliver(1)
    assert flow.cc.probe_gain() == GAIN_UNIT * 5 // 4


def test_b3r_paper_probes_with_the_adapted_gain_and_drains_as_ever():
    flow = probing(B3RPaper)
    gains = []
    for i in range(4000):
        flow.deliver(1, losses=int(i % 20 == 0))  # 5 %, too few to be taken for a policer
        gains.append(flow.cc.pacing_gain)
    assert set(gains[2000:]) == {int(1.05 * GAIN_UNIT), GAIN_UNIT * 3 // 4, GAIN_UNIT}


# -- on the QUIC stack -------------------------------------------------------------------------------------------------
QUIC_FORMS = ("quic_obbr_paper", "quic_bbr_s_paper", "quic_b3r_paper")
SHALLOW = Path(rate="20Mbit", rtt="40ms", buffer="0.3bdp")


@pytest.mark.parametrize("name", QUIC_FORMS)
def test_the_quic_forms_lose_less_than_their_parent_in_a_shallow_buffer(name):
    lost = {cc: simulate(SHALLOW, [cc, cc], "15s").flows.retransmit_ratio.mean() for cc in (name, "quic_bbr")}
    assert lost[name] < 0.9 * lost["quic_bbr"]


@pytest.mark.parametrize("name", QUIC_FORMS)
def test_the_quic_forms_decide_alike_compiled_and_interpreted(name):
    compiled, interpreted = (simulate(SHALLOW, name, "700ms", mode=mode).flows for mode in ("compiled", "interpreted"))
    assert compiled.equals(interpreted)


def test_the_quic_b3r_without_loss_is_its_parent_packet_by_packet():
    deep = Path(rate="20Mbit", rtt="40ms", buffer="8bdp")
    ours, parent = (simulate(deep, cc, "12s").flows for cc in ("quic_b3r_paper", "quic_bbr"))
    assert parent.retransmit_ratio[0] == 0
    assert ours.drop(columns="cc").equals(parent.drop(columns="cc"))


def test_the_quic_obbr_lets_its_bandwidth_fall_where_its_parent_keeps_the_maximum():
    path = Path(rate=[(0, "40Mbit"), (8, "8Mbit")], rtt="40ms", buffer="8bdp")
    ours, parent = (simulate(path, cc, "12s").flows for cc in ("quic_obbr_paper", "quic_bbr"))
    assert ours.queue_delay_p95_us[0] < parent.queue_delay_p95_us[0]


def test_the_cap_of_the_quic_form_is_read_and_mu_1_fills_the_buffer_more_than_half():
    lost = [simulate(SHALLOW, f"quic_obbr_paper:mu={mu}", "15s").flows.retransmit_ratio[0] for mu in (0.1, 1.0)]
    assert lost[0] < lost[1]
