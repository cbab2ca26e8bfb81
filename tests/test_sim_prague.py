"""TCP Prague in closed loop: at a step of marks, beside CUBIC at DualPI2, and read back from its own packets."""

import math

import numpy as np
import pytest

import cctrace as cct
from cctrace import Path, Sender, simulate
from cctrace.cc.prague import MAX_ALPHA, ONE_CWND, SHIFT_G
from cctrace.replaying.inference.through_fq import passage
from cctrace.schema import LINUX_EVENTS


@pytest.mark.parametrize("rtt_ms", [10, 20, 40])
def test_its_share_of_marks_at_a_step_is_the_square_root_law(rtt_ms):
    """[Alizadeh10] Eq. 6: alpha = sqrt(2 i / W), if the window grows by i segments a round and one round is marked."""
    path = Path(rate="40Mbit", rtt=f"{rtt_ms}ms", buffer="1MB", ecn_threshold="15kB")
    sim = simulate(path, "prague", "40s", sample="10ms", watch=("upscaled_alpha", "frac_cwnd", "ai_ack_increase"))
    late = sim.timeline[sim.timeline.time_s > 15]
    window, increase = late.frac_cwnd.mean() / ONE_CWND, late.ai_ack_increase.mean() / ONE_CWND
    alpha = late.upscaled_alpha.mean() / (MAX_ALPHA << SHIFT_G)
    assert alpha == pytest.approx(math.sqrt(2 * increase / window), rel=0.25)


@pytest.fixture(scope="module")
def shared():
    path = Path(rate="40Mbit", rtt="20ms", buffer="10bdp", aqm="dualpi2")
    return simulate(path, ["prague", Sender("cubic", ecn=True)], "40s", ack_every=2, packets=True)


def test_dualpi2_keeps_its_queue_below_a_millisecond_and_the_classic_one_at_its_target(shared):
    """[RFC9332] §1: sub-millisecond for scalable flows, 15 ms for the others, and no flow starves."""
    low, classic = shared.flows.tail_queue_delay_mean_us / 1000
    assert low < 1
    assert classic == pytest.approx(15, rel=0.2)
    assert 1 / 3 < shared.flows.tail_goodput_bps[0] / shared.flows.tail_goodput_bps[1] < 3
    assert shared.link["utilisation"] > 0.97
    assert shared.flows.dropped.sum() == 0


def test_its_packets_are_ect1_and_their_marks_are_counted(shared):
    for side in ("sender", "receiver"):
        found = shared.capture(side=side, flow=0).flow(0).ecn
        assert found.feedback == "accurate"
        assert found.sent["ect0"] == found.sent["not_ect"] == 0
        assert found.delivered_ce == pytest.approx(shared.flows.marked[0], rel=0.01)
        assert not found.tampering


def test_its_window_is_replayed_from_its_packets():
    path = Path(rate="20Mbit", rtt="40ms", buffer="4bdp", ecn_threshold="30kB")
    sim = simulate(path, "prague", "6s", ack_every=2, packets=True, sample="100ms")
    flow = sim.capture().flow(0)
    decisions = cct.replay(flow, "prague", record=["snd_cwnd"]).decisions
    at = np.searchsorted(decisions.time_ns, decisions.time_ns[0] + sim.timeline.time_s.to_numpy()[20:] * 1e9) - 1
    assert np.abs(decisions.snd_cwnd.to_numpy()[at] - sim.timeline.cwnd_segments.to_numpy()[20:]).max() <= 3


def test_without_marks_the_link_fills_and_nothing_is_divided_by_zero():
    sim = simulate(Path(rate="5Mbit", rtt="20ms", buffer="2bdp"), "prague", "5s", mode="compiled")
    assert sim.link["utilisation"] > 0.9
    assert np.isfinite(sim.flows.tail_rtt_mean_us[0])


@pytest.mark.parametrize("controller", ["prague", "dctcp"])
def test_who_heeds_marks_is_named_from_the_senders_packets(controller):
    path = Path(rate="20Mbit", rtt="40ms", buffer="4bdp", ecn_threshold="30kB")
    sim = simulate(path, Sender(controller, ecn=True), "10s", ack_every=2, packets=True)
    assert cct.identify(sim.capture().flow(0)).name == controller


def test_only_what_sends_ect1_is_asked_whether_its_packets_went_through_fq():
    """Others explain none of its sends, and fq, which smooths them, would seem to."""
    sim = simulate(Path(rate="10Mbit", rtt="20ms", buffer="100packets", aqm="dualpi2"), "prague", "6s", packets=True)
    passed = passage(sim.capture().flow(0))
    assert passed.controller == "prague"
    assert not passed.through_fq


@pytest.mark.parametrize(("given", "least", "most"), [("", 1.0, 2.4), (":min_qlen_step=2", 2.5, 7.0)])
def test_the_step_applies_to_packets_that_find_so_many_in_the_queue(given, least, most):
    """At 5 Mbit/s each of these takes 2.4 ms, so that any wait exceeds the threshold of 1 ms."""
    sim = simulate(Path(rate="5Mbit", rtt="20ms", buffer="100packets", aqm=f"dualpi2{given}"), "prague2020", "8s",
                   ecn="accurate", packets=True)  # fmt: skip
    rows = sim.capture(flow=0).flow(0).events.rows
    rows = rows[(rows["event"] == LINUX_EVENTS["on_ack"]) & (rows["rs_rtt_us"] > 0)]
    wait_ms = (rows["rs_rtt_us"] - rows["rs_rtt_us"].min()) / 1e3
    marked = wait_ms[np.diff(rows["delivered_ce"].astype(int), prepend=0) > 0]
    assert least < marked.min() < most
