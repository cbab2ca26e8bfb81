"""Reno and the CUBICs keep the rules of RFC 5681, RFC 9438 and their sources, where the vectors do not reach."""

import math
import random

import numpy as np
import pytest
from build_stack import Stack

from cctrace.cc import cubic as cubic_module
from cctrace.cc import linux
from cctrace.cc.cubic import Cubic
from cctrace.cc.cubic6 import Cubic6
from cctrace.cc.cubic_paced import CubicPaced
from cctrace.cc.reno import Reno

CUBICS = (Cubic, Cubic6)


# -- Reno --------------------------------------------------------------------------------------------------------------
def acked_window(stack, segments_per_ack=1, **columns):
    """One round in which everything is acked and cwnd is the limit."""
    left = stack.cc.snd_cwnd
    while left > 0:
        stack.call("cong_avoid", arg=min(segments_per_ack, left), **columns)
        left -= segments_per_ack


@pytest.mark.parametrize("segments_per_ack", [1, 2, 7])
def test_reno_doubles_per_round_up_to_ssthresh_then_adds_one(segments_per_ack):
    stack = Stack(Reno)
    stack.cc.snd_ssthresh = 40
    windows = []
    for _ in range(5):
        acked_window(stack, segments_per_ack)
        windows.append(stack.cc.snd_cwnd)
    assert windows == [20, 40, 41, 42, 43]


def test_reno_halves_on_loss_never_below_two_and_takes_a_spurious_loss_back():
    stack = Stack(Reno)
    stack.cc.snd_cwnd = 101
    assert stack.call("ssthresh") == 50
    stack.cc.snd_cwnd = 3
    assert stack.call("ssthresh") == 2
    assert stack.call("undo_cwnd", prior_cwnd_tp=101) == 101
    assert stack.call("undo_cwnd", prior_cwnd_tp=5) == 101


def test_reno_does_not_grow_a_window_that_is_not_the_limit():
    stack = Stack(Reno)
    stack.cc.snd_cwnd, stack.cc.snd_ssthresh = 20, 10
    acked_window(stack, is_cwnd_limited=0, max_packets_out=20)
    assert stack.cc.snd_cwnd == 20
    stack.cc.snd_ssthresh = 100
    stack.call("cong_avoid", arg=1, is_cwnd_limited=0, max_packets_out=10)
    assert stack.cc.snd_cwnd == 20
    stack.call("cong_avoid", arg=1, is_cwnd_limited=0, max_packets_out=11)  # slow start: up to twice what was used
    assert stack.cc.snd_cwnd == 21


def test_credit_from_a_dearer_increment_counts_once():
    stack = Stack(Reno)
    stack.cc.snd_cwnd, stack.cc.snd_ssthresh, stack.cc.snd_cwnd_cnt = 10, 5, 95
    stack.call("cong_avoid", arg=1)
    assert (stack.cc.snd_cwnd, stack.cc.snd_cwnd_cnt) == (11, 1)


# -- CUBIC -------------------------------------------------------------------------------------------------------------
def after_loss(cls, cwnd, rtt_us, **params):
    """A CUBIC connection that has just left a recovery: cwnd = ssthresh."""
    stack = Stack(cls, **params)
    stack.call("init")
    stack.cc.snd_cwnd, stack.cc.snd_ssthresh = cwnd, 10
    stack.call("pkts_acked", rs_rtt_us=rtt_us)
    stack.call("ssthresh")
    stack.cc.snd_cwnd = stack.cc.snd_ssthresh
    return stack


def run_rounds(stack, seconds, rtt_us, acks_per_round=50):
    """Yield (time since the loss, cwnd) per round; ACKs evenly spread over it."""
    start = stack.ack.now_us
    while stack.ack.now_us - start < seconds * 1e6:
        window = stack.cc.snd_cwnd
        for i in range(acks_per_round):
            segments = (i + 1) * window // acks_per_round - i * window // acks_per_round
            stack.advance(rtt_us // acks_per_round)
            stack.call("cong_avoid", arg=segments)
        yield (stack.ack.now_us - start) / 1e6, stack.cc.snd_cwnd


@pytest.mark.parametrize("hz", [250, 1000])
@pytest.mark.parametrize("cls", CUBICS)
def test_the_window_follows_rfc_9438s_curve_through_its_plateau(cls, hz):
    w_max, rtt_us = 1000, 100_000
    stack = after_loss(cls, w_max, rtt_us, hz=hz)
    assert stack.cc.snd_cwnd == 700
    k = math.cbrt(0.3 * w_max / 0.4)  # Eq. 2, 9.1 s
    for t, cwnd in run_rounds(stack, 16, rtt_us):
        # Heading for where the curve will be a minimum RTT later, reached within a round, in whole increments.
        assert cwnd == pytest.approx(0.4 * (t - k) ** 3 + w_max, abs=0.02 * w_max)
    assert cwnd > 1.1 * w_max  # convex again


@pytest.mark.parametrize("cls", CUBICS)
def test_a_small_window_grows_as_fast_as_reno_with_the_same_backoff(cls):
    rtt_us, rounds = 20_000, 200
    stack = after_loss(cls, 20, rtt_us)
    for _ in run_rounds(stack, rounds * rtt_us / 1e6, rtt_us, acks_per_round=10):
        pass
    alpha = 3 * (1 - 0.7) / (1 + 0.7)  # RFC 9438 §4.3: segments per round
    assert stack.cc.snd_cwnd == pytest.approx(14 + alpha * rounds, rel=0.05)


@pytest.mark.parametrize("cls", CUBICS)
def test_before_any_loss_the_window_grows_by_a_twentieth_per_round_and_never_by_more_than_half(cls):
    stack = Stack(cls)
    stack.call("init")
    stack.cc.snd_cwnd, stack.cc.snd_ssthresh = 200, 200
    stack.call("pkts_acked", rs_rtt_us=10_000)
    windows = [cwnd for _, cwnd in run_rounds(stack, 0.1, 10_000)]
    growth = np.diff(windows) / windows[:-1]
    assert growth.min() >= 0.045
    stack.cc.cnt = 0
    stack.advance(100_000_000)
    stack.call("cong_avoid", arg=1)
    assert stack.cc.cnt == 2


@pytest.mark.parametrize("cls", CUBICS)
def test_the_second_loss_below_the_plateau_lowers_it_further(cls):
    stack = after_loss(cls, 1000, 100_000)
    assert stack.cc.last_max_cwnd == 1000
    stack.call("ssthresh")
    assert stack.cc.last_max_cwnd == 700 * (1024 + 717) // 2048  # 0.85 of where it happened
    assert stack.cc.snd_ssthresh == 700 * 717 // 1024


@pytest.mark.parametrize("cls", CUBICS)
def test_idle_time_does_not_count_on_the_curve(cls):
    stack = after_loss(cls, 1000, 100_000)
    stack.call("cong_avoid", arg=1)
    epoch = stack.cc.epoch_start
    last_sent = stack.ack.jiffies
    stack.advance(3_000_000)
    stack.call("cwnd_event", arg=linux.EVENT_CWND_RESTART, lsndtime=last_sent)
    assert stack.cc.epoch_start == epoch
    stack.call("cwnd_event", arg=linux.EVENT_TX_START)
    assert stack.cc.epoch_start == epoch + 3000
    stack.call("cwnd_event", arg=linux.EVENT_TX_START)  # never into the future
    assert stack.cc.epoch_start == stack.ack.jiffies


@pytest.mark.parametrize("cls", CUBICS)
def test_a_timeout_forgets_the_curve_and_other_states_do_not(cls):
    stack = after_loss(cls, 1000, 100_000)
    stack.call("set_state", arg=linux.CA_RECOVERY)
    assert stack.cc.last_max_cwnd == 1000
    stack.call("set_state", arg=linux.CA_LOSS)
    assert (stack.cc.last_max_cwnd, stack.cc.delay_min, stack.cc.found) == (0, 0, 0)


@pytest.mark.parametrize("cls", CUBICS)
def test_rtt_samples_count_from_a_second_after_a_recovery_on(cls):
    stack = after_loss(cls, 1000, 100_000)
    stack.call("cong_avoid", arg=1)
    delay = stack.cc.delay_min
    stack.call("pkts_acked", rs_rtt_us=-1)
    stack.call("pkts_acked", rs_rtt_us=50_000)
    assert stack.cc.delay_min == delay
    stack.advance(1_000_000)
    stack.call("pkts_acked", rs_rtt_us=50_000)
    assert stack.cc.delay_min == delay // 2


def test_the_cube_root_is_within_its_stated_error():
    rng = random.Random(1)
    exponents = [rng.uniform(6, 60) for _ in range(2000)]
    errors = [abs(cubic_module.cubic_root(round(2**e)) / 2 ** (e / 3) - 1) for e in exponents if e > 20]
    assert np.mean(errors) < 0.002  # [Linux415]: average error 0.195 %
    assert [cubic_module.cubic_root(n) for n in (0, 1, 8, 27, 63)] == [0, 1, 2, 3, 4]


def test_cubic_judges_slow_start_by_packets_out_alone_and_later_kernels_remember_the_limit():
    for cls, grows in ((Cubic, False), (Cubic6, True)):
        stack = Stack(cls)
        stack.call("init")
        stack.cc.snd_cwnd = 20
        stack.call("cong_avoid", arg=1, is_cwnd_limited=1, max_packets_out=10)
        assert (stack.cc.snd_cwnd == 21) == grows
        stack.call("cong_avoid", arg=1, is_cwnd_limited=0, max_packets_out=30)
        assert stack.cc.snd_cwnd == 21 + grows
        stack.cc.snd_ssthresh = 1
        stack.call("cong_avoid", arg=50, is_cwnd_limited=0)
        assert stack.cc.snd_cwnd == 21 + grows


# -- HyStart -----------------------------------------------------------------------------------------------------------
def in_slow_start(cls, cwnd=100, rtt_us=40_000, **params):
    """Slow start whose present round ends far away; minimum RTT known."""
    stack = Stack(cls, **params)
    stack.call("init")
    stack.cc.snd_cwnd = cwnd
    stack.cc.delay_min = stack.cc.delay_of(rtt_us)
    stack.call("set_state", arg=linux.CA_OPEN, snd_nxt=10**6)
    stack.cc.start_hystart_round(stack.ack)
    return stack


def train_length_ms(stack, spacing_us, rtt_us=40_000):
    """Time into the round at which closely spaced ACKs end slow start; None if they do not within 200 ms."""
    start = stack.ack.now_us
    while stack.ack.now_us - start < 200_000:
        stack.advance(spacing_us)
        stack.call("pkts_acked", rs_rtt_us=rtt_us)
        if not stack.cc.in_slow_start():
            return (stack.ack.now_us - start) / 1000
    return None


@pytest.mark.parametrize(
    ("cls", "params", "expected_ms"),
    [
        (Cubic, {}, 20),
        (Cubic, {"hz": 250}, 20),  # its clock is ms even where jiffies are not
        (Cubic6, {}, 20.5),  # half of 40 ms and a burst of 1 ms
        (Cubic6, {"paced": 1}, 41),
    ],
)
def test_a_train_of_acks_of_half_the_minimum_rtt_ends_slow_start(cls, params, expected_ms):
    stack = in_slow_start(cls, **params)
    stack.cc.pacing_rate = 1_000_000
    assert train_length_ms(stack, 500) == pytest.approx(expected_ms, abs=1.5)
    assert stack.cc.found == 1
    assert stack.cc.snd_ssthresh == 100


@pytest.mark.parametrize("cls", CUBICS)
def test_acks_further_apart_than_2_ms_are_no_train_and_windows_below_16_are_left_alone(cls):
    assert train_length_ms(in_slow_start(cls), 3500) is None
    assert train_length_ms(in_slow_start(cls, cwnd=15), 500) is None


def test_a_burst_takes_its_time_at_the_pacing_rate_or_at_the_one_the_stack_would_note():
    stack = in_slow_start(Cubic6)
    stack.cc.pacing_rate = 0
    assert stack.cc.burst_us(stack.ack) == 0
    stack.cc.pacing_rate = 65536 * 4 * 5000
    assert stack.cc.burst_us(stack.ack) == 200
    stack.cc.pacing_rate = -1
    assert stack.cc.burst_us(stack.ack) == 0  # no RTT yet
    stack.cc.snd_cwnd, stack.ack.srtt_us8 = 1000, 8 * 1_000
    assert stack.cc.burst_us(stack.ack) == 0  # the rate is still that of the ACK before
    stack.cc.pkts_acked(stack.ack)
    stack.ack.srtt_us8 = 8 * 2_000
    assert stack.cc.burst_us(stack.ack) == 65536 * 4 * 1_000 // (1000 * 1448 * 2)  # 200 % of cwnd / srtt
    stack.cc.snd_ssthresh, stack.ack.packets_out = 1999, 1500
    assert stack.cc.burst_us(stack.ack) == 65536 * 4 * 1_000 * 10 // (1500 * 1448 * 12)  # 120 % of what is out


@pytest.mark.parametrize("cls", CUBICS)
@pytest.mark.parametrize(
    ("minimum_ms", "margin_ms"), [(16, 4), (40, 5), (400, 16)], ids=["at least 4 ms", "an eighth", "at most 16 ms"]
)
def test_the_ninth_sample_of_a_round_ends_slow_start_if_all_exceed_the_minimum_by_the_margin(
    cls, minimum_ms, margin_ms
):
    for extra_us, ends in ((-125, False), (125, True)):
        stack = in_slow_start(cls, rtt_us=minimum_ms * 1000)
        for _ in range(9):
            assert stack.cc.in_slow_start()
            stack.advance(5_000)  # no train
            stack.call("pkts_acked", rs_rtt_us=(minimum_ms + margin_ms) * 1000 + extra_us)
        assert stack.cc.in_slow_start() != ends


def test_a_late_small_sample_keeps_slow_start_going_since_the_rework():
    for cls, ends in ((Cubic, True), (Cubic6, False)):
        stack = in_slow_start(cls)
        for rtt_us in [60_000] * 8 + [41_000]:
            stack.advance(5_000)
            stack.call("pkts_acked", rs_rtt_us=rtt_us)
        assert stack.cc.in_slow_start() != ends


def test_a_round_ends_with_the_ack_that_passes_its_end():
    stack = in_slow_start(Cubic)
    stack.advance(10_000)
    stack.call("cong_avoid", arg=1, ack=10**6, max_packets_out=100)
    assert stack.cc.round_start < stack.ack.jiffies
    stack.call("cong_avoid", arg=1, ack=10**6 + 1, snd_nxt=3 * 10**6)
    assert (stack.cc.round_start, stack.cc.end_seq) == (stack.ack.jiffies, 3 * 10**6)
    stack = in_slow_start(Cubic6, cwnd=4)
    stack.advance(10_000)
    stack.call("pkts_acked", rs_rtt_us=40_000, snd_una=10**6 + 1)
    assert stack.cc.round_start == stack.ack.now_us


# -- CUBIC with pacing -------------------------------------------------------------------------------------------------
def test_paced_cubic_paces_at_twice_cwnd_per_srtt_in_slow_start_and_at_1_2_after():
    stack = Stack(CubicPaced)
    stack.call("init")
    stack.call("pkts_acked", rs_rtt_us=40_000)
    assert stack.cc.pacing_rate == -1  # no smoothed RTT yet: unpaced
    stack.call("pkts_acked", srtt_us8=8 * 40_000)
    assert stack.cc.pacing_rate == 2 * 10 * 1448 * 25
    stack.call("cong_avoid", arg=10)
    assert stack.cc.pacing_rate == 2 * 20 * 1448 * 25
    stack.call("ssthresh")
    stack.call("pkts_acked")
    assert stack.cc.pacing_rate == pytest.approx(1.2 * 20 * 1448 * 25, abs=1)
    assert stack.cc.paced == 1
