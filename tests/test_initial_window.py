"""With which window a recorded sender began, and whether idle times let it fall."""

import pytest

from cctrace.replaying.run import replay
from tests.test_stack_rules import Calls


def windows(calls, **facts):
    """Return cwnd after each call of a Reno replayed over a stream with more facts about the connection."""
    flow = calls.flow()
    flow.events.meta |= facts
    return replay(flow, "reno", record=["snd_cwnd"]).decisions["snd_cwnd"].tolist()


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        ({}, 10),
        ({"initial_cwnd": 4}, 10),  # the application had no more
        ({"initial_cwnd": 32}, 32),  # ip route ... initcwnd 32
        ({"lost_syns": 1}, 10),
        ({"lost_syns": 2, "initial_cwnd": 1}, 1),  # a CUBIC's ssthresh was 9 instead of 6 segments (seed 338766)
        ({"initial_cwnd": 32, "complete": False}, 10),
    ],
)
def test_a_connection_begins_with_ten_segments_with_its_routes_or_with_one_after_two_lost_syns(facts, first):
    assert windows(Calls().call("init"), **facts) == [first]


def with_pauses(bursts):
    """Return bursts of so many segments, 1.8 s after the ACK of the one before."""
    calls = Calls(delivered=1).call("init")
    for k, segments in enumerate(bursts):
        calls.at(2_000_000 * (k + 1))
        if k:
            calls.cwnd_event("CWND_RESTART", packets_out=0, lsndtime_us=2_000_000 * k + 200_000)
        calls.send(segments=segments, in_flight=segments, packets_out=segments)
        calls.at(2_000_000 * (k + 1) + 200_000).call("on_ack", packets_out=0)
    return calls


@pytest.mark.parametrize(
    ("bursts", "cwnd"),
    [
        ((40, 40, 40), 40),  # sysctl tcp_slow_start_after_idle=0 (seed 338589: cwnd agreed at 12 % of the polls)
        ((40, 10, 10), 10),
        ((40, 8, 8), 10),  # nothing shows it, and it usually falls
        ((40, 8, 40), 40),
    ],
)
def test_idle_times_do_not_lower_a_window_that_more_leaves_after_them_than_they_would_allow(bursts, cwnd):
    assert with_pauses(bursts).run("reno", snd_cwnd=40)["cwnd"].iloc[-1] == cwnd
