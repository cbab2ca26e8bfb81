"""Time in which a shut receive window kept data back: waiting is busy time, and probes of the window prove it."""

import pytest
from conversation import ACK, ISN, MSS, PEER_ISN, PSH, Conversation

SHUT_MS, OPEN_MS = 41.0, 5_041.0
END = 1 + 4 * MSS


def shut_after_four_segments(psh=True):
    """Four segments of 40 ms, all acknowledged at `SHUT_MS` by an ACK that shuts the window."""
    return Conversation().data(0.0, 1, segments=4, psh=psh).ack(SHUT_MS, END, window=0)


def probe(talk, ms, seq, payload):
    talk._row(ms, 0, ACK | (PSH if payload else 0), ISN + seq, PEER_ISN + 1, payload)
    return talk


def reopened(talk, ms=OPEN_MS):
    """The window opens, and data leave at once; acknowledged an RTT later."""
    talk.ack(ms, END, window=512).data(ms + 0.01, END, segments=2)
    return talk.ack(ms + 40.0, END + 2 * MSS)


def shares(talk):
    busy_us, kept_back_us = talk.flow().account
    return busy_us, kept_back_us, kept_back_us / busy_us


@pytest.mark.parametrize(
    ("seq", "payload"), [(END, 1), (END - 1, 0), (END - 1, 1)], ids=["next byte", "linux", "garbage byte"]
)
def test_a_probed_window_is_the_receivers_time_and_busy_time(seq, payload):
    talk = shut_after_four_segments()
    for ms in (250, 650, 1450, 3050):
        probe(talk, ms, seq, payload)
        talk.ack(ms + 40.0, END, window=0)
    busy_us, kept_back_us, share = shares(reopened(talk))
    assert kept_back_us == pytest.approx((OPEN_MS - SHUT_MS) * 1e3, rel=0.01)
    assert busy_us == pytest.approx(OPEN_MS * 1e3 + 40e3, rel=0.01)
    assert share <= 1
    flow = talk.flow()
    assert not len(flow.retransmissions)  # a probe is none
    assert flow.quality()["uncaptured_segments"] == 0


def test_a_probe_that_the_receiver_takes_is_a_byte_sent():
    talk = shut_after_four_segments()
    probe(talk, 250, END, 1)
    talk.ack(290.0, END + 1, window=512).data(290.01, END + 1, segments=1).ack(330.0, END + 1 + MSS)
    flow = talk.flow()
    assert flow.quality()["uncaptured_segments"] == 0
    assert not len(flow.retransmissions)
    assert flow.events.rows["snd_una"][-1] == END + 1 + MSS


def test_data_that_leave_as_the_window_opens_had_waited_for_it():
    busy_us, kept_back_us, _ = shares(reopened(shut_after_four_segments(), ms=141.0))
    assert kept_back_us == pytest.approx(100e3, rel=0.01)
    assert busy_us == pytest.approx(181e3, rel=0.01)


def test_a_shut_window_with_nothing_to_send_is_the_applications_time():
    talk = Conversation().data(0.0, 1, segments=4).data(0.02, END, size=100).ack(SHUT_MS, END + 100, window=0)
    talk.ack(OPEN_MS, END + 100, window=512).data(OPEN_MS + 500, END + 100, segments=2)
    busy_us, kept_back_us, _ = shares(talk.ack(OPEN_MS + 540, END + 100 + 2 * MSS))
    assert kept_back_us == 0
    assert busy_us == pytest.approx(81e3, rel=0.02)


def test_the_window_that_is_still_shut_at_the_end_counts_to_the_end():
    talk = shut_after_four_segments()
    for ms in (250, 650, 1450):
        probe(talk, ms, END - 1, 0)
        talk.ack(ms + 40.0, END, window=0)
    _, kept_back_us, share = shares(talk)
    assert kept_back_us == pytest.approx((1490 - SHUT_MS) * 1e3, rel=0.01)
    assert share == pytest.approx(kept_back_us / 1490e3, rel=0.01)
