"""TCP Prague makes the decisions of its released module, call by call."""

from pathlib import Path

import pytest
from build_stack import Stack

from cctrace.cc import linux
from cctrace.cc.prague import MAX_ALPHA, ONE_CWND, SHIFT_G, Prague, product_shr
from cctrace.replaying import vectors

GOLDEN = sorted((Path(__file__).parent / "golden" / "prague").glob("*.parquet"))


def test_the_vectors_reach_what_they_are_for():
    found = {path.stem: vectors.load(path) for path in GOLDEN}
    assert found["slow_s4"].expected["s_cwnd_mode"].sum() > 1000
    assert not found["step_s1"].expected["s_cwnd_mode"].any()
    assert 0 < found["short_s2"].expected["s_ai_ack_increase"].min() < ONE_CWND // 20
    assert (found["loss_s5"].view.event == 5).any()  # undo_cwnd
    assert found["fuzz_s4"].expected["s_upscaled_alpha"].max() > 0.7 * (MAX_ALPHA << SHIFT_G)


def test_products_of_64_bits_do_not_overflow():
    assert product_shr(3 * 10**9, 5 * 10**13, 20) == 3 * 10**9 * 5 * 10**13 >> 20


def started(**params):
    stack = Stack(Prague, **params)
    stack.set(ecn_ok=1, mss=1448, snd_nxt=1000, now_us=1_000_000, srtt_us8=160_000)
    stack.call("init")
    return stack


def test_the_first_mark_halves_the_window():
    stack = started()
    stack.call("on_ack", rs_acked_sacked=2, delivered_ce=2, is_cwnd_limited=1)
    assert stack.cc.frac_cwnd == 5 * ONE_CWND
    assert stack.cc.snd_cwnd == 9  # a segment an ACK


def test_alpha_may_begin_at_one_instead():
    stack = started(alpha_mode=1)
    assert stack.cc.upscaled_alpha == MAX_ALPHA << SHIFT_G
    stack.call("on_ack", rs_acked_sacked=2, delivered_ce=2, is_cwnd_limited=1)
    assert stack.cc.frac_cwnd == 10 * ONE_CWND


def test_a_round_counter_that_wraps_stays_past_the_transition():
    stack = started()
    stack.cc.round, stack.cc.snd_ssthresh = 0xFFFFFFFF, 5
    stack.call("on_ack", snd_una=1000, now_us=2_000_000, rs_acked_sacked=0)
    assert stack.cc.round == 4


def test_a_spurious_loss_gives_the_rate_back():
    stack = started()
    stack.call("cwnd_event", arg=linux.EVENT_LOSS)
    assert (stack.cc.in_loss, stack.cc.frac_cwnd) == (1, 5 * ONE_CWND)
    assert stack.call("undo_cwnd") == 10
    assert stack.cc.in_loss == 0
    assert stack.cc.frac_cwnd == pytest.approx(10 * ONE_CWND, rel=0.05)  # 1500 of 1514 bytes
