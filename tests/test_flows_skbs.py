"""Super-packets are parted, shifted and marked lost as by the kernels of BBRv3 and BBRv2."""

from types import SimpleNamespace

import pytest

from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender import skbs
from cctrace.flows.state import CALL, LOST, RETRANS, RS, SACKED, SEG, STATE, STEADY, TP

MSS = 1000


class Records(list):
    """So many records of a type, all 0, with fields as attributes: what the compiled functions get, interpreted."""

    def __init__(self, dtype, size):
        super().__init__(SimpleNamespace(**dict.fromkeys(dtype.names, 0)) for _ in range(size))
        self.size = size


class Queue:
    """Outstanding super-packets of so many segments each, in order; each was sent with all before it in flight."""

    def __init__(self, *sizes):
        (self.tp,), (self.rs,) = Records(TP, 1), Records(RS, 1)
        self.seg, self.out = Records(SEG, 64), tuple(Records(dtype, 64) for dtype in (CALL, STATE, STEADY))
        total = sum(sizes)
        tp = self.tp
        tp.mss, tp.tail, tp.packets_out, tp.snd_nxt, tp.list_head, tp.list_tail = MSS, total, total, total * MSS, -1, -1
        k = 0
        for size in sizes:
            end = k + size
            for i in range(k, end):
                s = self.seg[i]
                s.seq, s.end_seq, s.skb_end, s.tx_us, s.skip = i * MSS, (i + 1) * MSS, end * MSS, 1 + k, i + 1
                s.tx_in_flight = s.tx_in_flight_v2 = end
                s.tx_delivered_us = 1
                sb.list_append(tp, self.seg, i)
            k = end

    def sack(self, first, end):
        sb.tag_block(self.tp, self.seg, self.rs, first * MSS, end * MSS, 0, 0)

    def skbs(self):
        """Return (first, end, in flight by v3, by v2) of each super-packet."""
        found, i = [], 0
        while i < self.tp.tail:
            first, end = skbs.skb_of(self.tp, self.seg, i)
            assert len({self.seg[k].tx_in_flight for k in range(first, end)}) == 1
            found.append((first, end, self.seg[i].tx_in_flight, self.seg[i].tx_in_flight_v2))
            i = end
        return found


def test_a_fragment_counts_what_was_in_flight_as_its_kernel_does():
    queue = Queue(2, 5)
    skbs.fragment(queue.tp, queue.seg, 4)
    # before it 2: v3 counts the first part (2) alone, and the second after it; v2 leaves the first, the second alone
    assert queue.skbs() == [(0, 2, 2, 2), (2, 4, 4, 7), (4, 7, 7, 5)]


def test_what_is_one_super_packet_already_is_not_parted():
    queue = Queue(2, 3)
    skbs.fragment(queue.tp, queue.seg, 2)
    assert queue.skbs() == [(0, 2, 2, 2), (2, 5, 5, 5)]


def test_what_an_ack_has_covered_belongs_to_no_super_packet_any_more():
    queue = Queue(4)
    queue.tp.head = 1
    skbs.fragment(queue.tp, queue.seg, 2)
    assert [(s.tx_in_flight, s.tx_in_flight_v2) for s in queue.seg[1:4]] == [(2, 4), (4, 3), (4, 3)]


def test_a_sack_of_the_front_alone_fragments():
    queue = Queue(1, 4)
    queue.sack(1, 3)
    assert queue.skbs() == [(0, 1, 1, 1), (1, 3, 3, 5), (3, 5, 5, 3)]
    assert queue.tp.sacked_out == 2


def test_a_sack_of_the_front_behind_sacked_data_shifts_it_away():
    queue = Queue(1, 1, 4)
    queue.sack(1, 4)
    assert queue.skbs()[2:] == [(2, 4, 6, 6), (4, 6, 4, 4)]  # the rest counts as sent without what was shifted


def test_nothing_is_shifted_to_a_short_segment():
    queue = Queue(1, 1, 4)
    queue.seg[1].end_seq -= 1
    queue.sack(1, 2)
    queue.sack(2, 4)
    assert queue.skbs()[2:] == [(2, 4, 4, 6), (4, 6, 6, 4)]


def test_what_was_sent_again_and_not_lost_since_is_not_shifted():
    queue = Queue(1, 1, 4)
    for s in queue.seg[2:6]:
        s.flags |= RETRANS
    queue.tp.retrans_out = 4
    queue.sack(1, 4)
    assert queue.skbs()[2:] == [(2, 4, 4, 6), (4, 6, 6, 4)]


@pytest.mark.parametrize("sacked", [(2, 3), (2, 5)])
def test_sacks_in_the_middle_leave_three_parts(sacked):
    queue = Queue(6)
    queue.sack(*sacked)
    assert [part[:2] for part in queue.skbs()] == [(0, 2), sacked, (sacked[1], 6)]


def test_a_super_packet_is_lost_as_one():
    queue = Queue(2, 3)
    sb.mark_skb_lost(queue.tp, queue.seg, 3, queue.rs, queue.out)
    assert (queue.tp.lost, queue.tp.lost_out, queue.tp.rows) == (3, 3, 1)
    row = queue.out[2][0]
    assert (row.skb_segments, row.skb_tx_in_flight, row.lost) == (3, 5, 3)
    assert [bool(s.flags & LOST) for s in queue.seg[:5]] == [False, False, True, True, True]
    assert queue.tp.list_tail == 1  # it is off RACK's list


def test_what_is_sacked_of_it_is_not_lost():
    queue = Queue(4)
    queue.sack(2, 4)
    sb.mark_skb_lost(queue.tp, queue.seg, 0, queue.rs, queue.out)
    assert queue.out[2][0].skb_segments == 2
    assert queue.seg[2].flags & (SACKED | LOST) == SACKED
