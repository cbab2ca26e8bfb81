"""Prague of L4STeam's kernels of 2020, which falls back behind a classic AQM."""

from pathlib import Path

import numpy as np
import pytest
from build_stack import Stack

import cctrace as cct
from cctrace.cc import linux
from cctrace.cc.prague import ONE_CWND, SHIFT_G
from cctrace.cc.prague2020 import CLASSIC, L4S, MAX_ALPHA, MAX_CLASSIC, Prague2020
from cctrace.replaying import vectors

GOLDEN = sorted((Path(__file__).parent / "golden").glob("prague2020*/*.parquet"))


def test_the_vectors_reach_what_they_are_for():
    found = {path.stem: vectors.load(path) for path in GOLDEN}
    assert len(found) == 7
    assert found["pie_s2"].expected["s_classic_ecn"].max() == MAX_CLASSIC
    assert found["dualpi2_s1"].expected["s_classic_ecn"].max() < L4S
    assert (found["loss_s3"].view.event == 5).any()  # undo_cwnd
    assert found["fuzz_s4"].expected["s_ai_ack_increase"].min() < ONE_CWND // 10


def started(**params):
    stack = Stack(Prague2020, **params)
    stack.set(ecn_ok=1, mss=1448, snd_nxt=1000, now_us=1_000_000, srtt_us8=160_000)
    stack.call("init")
    stack.cc.snd_ssthresh = 5
    return stack


def test_the_first_marks_take_half_of_the_window_a_segment_an_ack():
    stack = started()
    stack.call("set_state", arg=linux.CA_CWR)
    assert stack.cc.credit == -5 * ONE_CWND
    stack.call("on_ack", rs_acked_sacked=2, delivered_ce=2)
    assert (stack.cc.snd_cwnd, stack.cc.credit) == (9, -4 * ONE_CWND)


@pytest.mark.parametrize(
    ("fallback", "evidence", "taken"),
    [(1, L4S, 0), (1, CLASSIC, 5 * 10 / 16), (1, MAX_CLASSIC, 5 * 10 / 16), (2, CLASSIC, 0), (0, CLASSIC, 0)],
    ids=["an AQM for L4S", "a classic one", "surely classic", "detected only", "not asked"],
)
def test_it_falls_back_as_far_as_the_aqm_looks_classic(fallback, evidence, taken):
    stack = started(ecn_fallback=fallback)
    stack.cc.upscaled_alpha, stack.cc.classic_ecn = 0, evidence
    stack.call("set_state", arg=linux.CA_CWR)
    assert -stack.cc.credit / ONE_CWND == pytest.approx(taken)


@pytest.mark.parametrize(
    ("queue_us", "mean_us", "a_round"),
    [(8_000, 3_000, (1 + 2) / 2), (0, 188, -2 / 2), (1_000, 1_500, 1 / 2)],
    ids=["long and unsteady", "none", "short but unsteady"],
)
def test_the_evidence_of_a_round_is_two_logarithms(queue_us, mean_us, a_round):
    """4 times 2 ms, and twice (or a quarter of) 750 us of deviation."""
    stack = started()
    cc = stack.cc
    cc.srtt_shift, cc.saw_ce, cc.min_rtt_us = 10, 1, 20_000
    cc.rest_of_deviation, cc.rest_of_queue = 1449, 724  # 2**10.5, 2**9.5
    cc.classic_ecn = L4S
    for _ in range(6):
        cc.smoothed_rtt, cc.deviation = (20_000 + queue_us) << 10, mean_us << 11
        cc.detect_classic_aqm()
    found = (cc.classic_ecn - L4S) / MAX_ALPHA / 6
    assert found == pytest.approx(a_round, abs=1 / 6)  # of a logarithm's sum less than 1 is still carried


@pytest.mark.parametrize(
    ("internal_pacing", "limited", "app_limited", "grows"),
    [(1, 0, 0, True), (1, 0, 30, False), (1, 1, 30, True), (0, 0, 0, False), (0, 1, 0, True)],
    ids=["the stack's pacing", "no data", "cwnd", "fq", "cwnd, with fq"],
)
def test_it_grows_while_the_stacks_own_pacing_holds_it_back(internal_pacing, limited, app_limited, grows):
    stack = started(internal_pacing=internal_pacing)
    stack.cc.app_limited = app_limited
    stack.call("on_ack", rs_acked_sacked=2, is_cwnd_limited=limited)
    assert (stack.cc.credit > 0) == grows


def test_a_spurious_loss_gives_the_window_back():
    stack = started()
    stack.call("cwnd_event", arg=linux.EVENT_LOSS)
    assert (stack.cc.in_loss, stack.cc.credit) == (1, -5 * ONE_CWND)
    stack.cc.snd_cwnd = 7
    assert stack.call("undo_cwnd") == 10


def test_alpha_starts_at_one_and_waits_for_a_mark():
    stack = started()
    for _ in range(3):
        stack.call("on_ack", snd_una=1000, now_us=2_000_000, rs_acked_sacked=2)
    assert stack.cc.upscaled_alpha == MAX_ALPHA << SHIFT_G
    stack.call("on_ack", snd_una=1000, delivered=20, delivered_ce=1, rs_acked_sacked=2)
    assert stack.cc.upscaled_alpha < MAX_ALPHA << SHIFT_G


def test_behind_pie_its_window_falls_like_a_classic_one():
    """PIE's marks are rare: without the fallback alpha is small, and so is what a mark takes."""
    path = cct.Path(rate="20Mbit", rtt="20ms", buffer="1000packets", aqm="pie")

    def lowest_share(spec):
        """Return how much of its largest window the smallest one typically is: which packets are marked is chance."""
        shares = []
        for seed in range(1, 10):
            run = cct.simulate(path, spec, "15s", ecn="accurate", ack_every=2, sample="50ms", seed=seed)
            cwnd = run.timeline.query("time_s > 8").cwnd_segments
            shares.append(cwnd.min() / cwnd.max())
        return np.median(shares)

    assert lowest_share("prague2020") < 0.6
    assert lowest_share("prague2020:ecn_fallback=0") > 0.8


def test_it_runs_the_same_way_interpreted():
    path = cct.Path(rate="5Mbit", rtt="20ms", buffer="100packets", aqm="dualpi2")
    seen = [
        cct.simulate(path, "prague2020", "4s", ecn="accurate", mode=mode, sample="50ms").timeline.cwnd_segments.tolist()
        for mode in ("compiled", "interpreted")
    ]
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("fq", "internal_pacing"), [(True, 0), (False, 1)])
def test_whether_its_own_timer_paced_follows_from_the_sends(fq, internal_pacing):
    path = cct.Path(rate="20Mbit", rtt="30ms", buffer="200packets", aqm="dualpi2")
    sender = cct.Sender("prague2020", ecn="accurate", ack_every=2, fq=fq)
    flow = cct.simulate(path, sender, "6s", seed=3, packets=True).capture().flow(0)
    run = cct.replay(flow, "prague2020")
    assert run.source.through_fq is fq
    assert run.params["internal_pacing"] == internal_pacing
    assert cct.identify(flow).name == "prague2020"
    assert cct.replay(flow, "prague2020:internal_pacing=1").params["internal_pacing"] == 1  # as asked for
