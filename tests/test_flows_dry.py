"""Unanswered ACKs: where an unpaced sender ran out of data, which no short segment shows."""

import pytest

from tests.conversation import MSS, Conversation

ROUNDS, FLIGHT = 4, 20  # of ACK-clocked sends, two segments upon each ACK of two


def marks(silent_acks, burst, pushed=2, after_ms=0.0, window=512, short=0):
    """Return which sends are application-limited.

    `silent_acks` ACKs of two segments go unanswered; a burst of super-packets of `pushed` segments, or a segment of
    `short` bytes, follows the last one by `after_ms`.
    """
    talk, sent, acked, ms = Conversation(), 1, 1, 0.0
    for _ in range(FLIGHT // 2):
        talk.data(ms, sent, segments=2)
        sent += 2 * MSS
    for _ in range(ROUNDS * FLIGHT // 2):
        ms += 4.0
        acked += 2 * MSS
        talk.ack(40.0 + ms, acked, window=window).data(40.0 + ms + 0.01, sent, segments=2)
        sent += 2 * MSS
    for _ in range(silent_acks):
        ms += 4.0
        acked += 2 * MSS
        talk.ack(40.0 + ms, acked, window=window)
    for k in range(0, burst, pushed):
        talk.data(40.0 + ms + after_ms + 0.01 + k / 1000, sent, segments=pushed)
        sent += pushed * MSS
    if short:
        talk.data(40.0 + ms + after_ms + 0.01, sent, size=short)
        sent += short
    talk.ack(90.0 + ms, sent, window=window)
    return talk.flow().events.sends["app_limited"].tolist()


def test_what_leaves_at_once_upon_an_ack_after_unanswered_ones_had_not_been_written():
    limited = marks(silent_acks=6, burst=12)
    assert [k for k, mark in enumerate(limited) if mark] == [0, FLIGHT * (ROUNDS + 1)]  # 0: the connection's first


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("an ACK each", {"silent_acks": 1, "burst": 2}),
        ("one super-packet, which a timer may have let out", {"silent_acks": 6, "burst": 12, "pushed": 12}),
        ("not upon an ACK", {"silent_acks": 6, "burst": 12, "after_ms": 2.0}),
        ("a closed receive window", {"silent_acks": 6, "burst": 12, "window": FLIGHT * MSS // 128}),
    ],
)
def test_what_something_else_explains_is_not_the_applications(what, values):
    limited = marks(**values)
    assert not any(limited[1:]), what  # the first send of all is


@pytest.mark.parametrize(("short", "limited"), [(56, True), (MSS, False)])
def test_a_short_segment_that_leaves_late_waited_for_an_ack_not_for_cwnd(short, limited):
    """Reno behind a send buffer, seed 334747: Nagle holds 56 bytes, and its cwnd was taken to limit it all the time."""
    assert marks(silent_acks=6, burst=0, short=short)[-1] == limited
