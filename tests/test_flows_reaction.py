"""How long the stack takes between a capture and TCP is measured on how fast it answers ACKs."""

import numpy as np
import pytest

from cctrace.flows.reaction import ENOUGH, SLOWEST_NS, TYPICAL_NS, reaction_ns
from tests.conversation import MSS, Conversation

ROUNDS = 2 * ENOUGH


def answers(took_ns, first_is_syn=False):
    """Return (time_ns, sent, data, syn) of an ACK per millisecond, each answered after one of `took_ns`."""
    time_ns = np.repeat(np.arange(len(took_ns)) * 1_000_000, 2)
    time_ns[1::2] += took_ns
    packet = np.arange(len(time_ns))
    sent, syn = packet % 2 == 1, (packet == 0) & first_is_syn
    return time_ns, sent, sent & ~np.roll(syn, 1), syn


def test_the_quickest_tenth_of_the_answers_is_what_the_stack_takes():
    took_ns = np.random.default_rng(1).permutation(np.linspace(4_000, 14_000, ROUNDS).astype(np.int64))
    assert reaction_ns(*answers(took_ns)) == pytest.approx(5_000, abs=100)


def test_what_the_pacing_timer_or_the_application_released_is_no_answer():
    took_ns = np.where(np.arange(ROUNDS) % 2, 400_000, 4_000)
    assert reaction_ns(*answers(took_ns)) == 4_000
    assert reaction_ns(*answers(np.full(ROUNDS, 400_000))) == TYPICAL_NS


def test_few_answers_tell_nothing_and_slow_ones_are_not_the_stacks():
    assert reaction_ns(*answers(np.full(ENOUGH - 1, 4_000))) == TYPICAL_NS
    assert reaction_ns(*answers(np.full(ROUNDS, 40_000))) == SLOWEST_NS
    assert reaction_ns(*answers(np.zeros(0, np.int64))) == TYPICAL_NS


@pytest.mark.parametrize("took_us", [3, 5, 10])
def test_rtts_include_what_the_senders_own_stack_took(took_us):
    talk = Conversation().data(1, 1, 2)
    for k in range(ROUNDS):
        talk.ack(41 + 40 * k, 1 + (2 * k + 2) * MSS).data(41 + 40 * k + took_us / 1000, 1 + (2 * k + 2) * MSS, 2)
    # From the first segment's departure, 40 ms less its own reaction before the ACK arrived.
    rtts = talk.flow().rtt["rtt_us"].to_numpy()
    second_segment_us = 1
    assert np.median(rtts) == pytest.approx(40_000 - took_us - second_segment_us + took_us, abs=1.5)


def test_a_capture_that_stands_still_between_ack_and_answer_has_no_reaction_and_a_few_equal_stamps_mean_nothing():
    paced = np.resize(np.array([2_000, 2_500, 40_000]), ROUNDS)
    assert reaction_ns(*answers(np.append(paced, np.zeros(ROUNDS // 2, np.int64)))) == 0
    assert reaction_ns(*answers(np.append(np.full(ROUNDS, 4_000), np.zeros(5, np.int64)))) > 0


def test_paced_segments_that_follow_an_ack_by_chance_are_no_reaction_however_long_the_flow():
    at_once = np.zeros(ROUNDS, np.int64)  # while ACKs clock the start
    by_chance = np.resize(np.arange(500, 60_000, 700), 100 * ROUNDS)
    assert reaction_ns(*answers(np.append(at_once, by_chance))) == 0


def test_where_most_answers_take_no_time_the_clock_stands_still_and_a_few_that_cross_mean_nothing():
    assert reaction_ns(*answers(np.full(ENOUGH // 2, 512))) == 0
    assert reaction_ns(*answers(np.append(np.full(ROUNDS, 4_000), np.full(ROUNDS // 3, 512)))) > 0


def test_a_handshake_answered_at_once_tells_of_a_paced_sender_that_the_clock_stands_still():
    by_timer = np.append(0, np.full(ROUNDS, 20_000))
    assert reaction_ns(*answers(by_timer)) == SLOWEST_NS
    assert reaction_ns(*answers(by_timer, first_is_syn=True)) == 0
    slow = np.append(30_000, np.full(ROUNDS, 4_000))
    assert reaction_ns(*answers(slow, first_is_syn=True)) == 4_000


@pytest.mark.parametrize(("took_us", "limited"), [(4, 0), (400, 1)])
def test_what_leaves_at_once_with_the_ack_that_empties_the_pipe_had_waited_for_cwnd(took_us, limited):
    """A delayed ACK for both of a cwnd of two; an application does not write within microseconds (335507)."""
    talk = Conversation().data(1, 1, 2).ack(41, 1 + 2 * MSS).data(41 + took_us / 1000, 1 + 2 * MSS, 2)
    assert talk.flow().events.sends["app_limited"].tolist() == [1, 0, limited, 0]
