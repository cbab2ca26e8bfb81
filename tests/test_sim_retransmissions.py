"""What is sent again: the first lost segment that has not been, found without looking at the window each time."""

import numpy as np
import pytest

from cctrace import Path, Sender
from cctrace.lang.memory import words
from cctrace.sim.core import output
from cctrace.sim.core.fq import free_left, truesize
from cctrace.sim.core.positions import note_length
from cctrace.sim.core.structs import LOST, PUSHED, RETRANS, SACKED, SKB_END, TAP_SENT, segments
from cctrace.sim.core.view import CWND, PACING
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.core.write_queue import account_sacked, overhead
from cctrace.sim.runner import Runner

LOSSY = Path(rate="40Mbit", rtt="60ms", buffer="0.5bdp", loss="3%")


@pytest.mark.parametrize("profile", ["reference", "linux"])
def test_lost_retransmissions_are_found_without_another_look_at_what_lies_behind_them(monkeypatch, profile):
    find = output.next_lost
    passed, distance = [], []

    def checked(w, f):
        begin, end = int(f.retrans_scan), int(f.nxt)
        lost = (k for k in range(begin, end) if segments(f.seg)[k & f.mask].marks & (LOST | RETRANS) == LOST)
        first = next(lost, -1)
        leaps = f.retrans_again == 0 and f.retrans_seen > begin
        assert find(w, f) == first
        passed.append(int(f.retrans_scan) - max(begin, int(f.retrans_seen) if leaps else 0))
        distance.append(int(f.retrans_scan) - begin)
        return first

    monkeypatch.setattr(output, "next_lost", checked)
    built = World(LOSSY, [Sender("bbr2022", profile=profile)], 1, False, True)
    try:
        Runner(built, "interpreted", trace=False, packets=False).to(FIRST_NS + 2_000_000_000)
        assert built.flows[0].n_retx > 200
        assert sum(passed) < sum(distance) / 2
    finally:
        built.close()


def test_where_no_time_passes_what_has_left_still_counts_as_the_same_interrupt_sends_more():
    """[Linux612] tcp_small_queue_check stops after four retransmissions of one segment; tcp_wfree lets TCP go on."""
    built = World(LOSSY, [Sender("cubic6")], 1, False, True)
    w, f = built.record, built.flows[0]
    for index in range(10):
        seg = segments(f.seg)[index & f.mask]
        seg.skb_end, seg.order, seg.marks = index + 1, index, LOST | SKB_END
    f.una, f.nxt, f.tx_next, f.lost_out = 0, 10, 10, 10
    words(f.state)[CWND] = 100
    w.one_host = 1
    with np.errstate(over="ignore"):
        assert output.retransmit(w, f, FIRST_NS) == 4
        free_left(w, f, FIRST_NS)
        assert (f.wmem_alloc, f.tsq_at) == (0, FIRST_NS + 1)
        assert output.retransmit(w, f, FIRST_NS + 1) == 4
        f.in_process = 1
        free_left(w, f, FIRST_NS + 1)
        assert output.retransmit(w, f, FIRST_NS + 2) == 2
        assert f.wmem_alloc == 0  # a process frees it at once
    built.close()


def test_small_queues_judge_a_retransmission_by_the_whole_skb_that_it_will_be_cut_from():
    """[Linux612] tcp_xmit_retransmit_queue asks tcp_small_queue_check before tcp_fragment."""
    built = World(LOSSY, [Sender("bbr2022", fq=True)], 1, False, True)
    w, f = built.record, built.flows[0]
    for index, end in enumerate((4, 4, 4, 4, 5, 6)):
        seg = segments(f.seg)[index & f.mask]
        seg.skb_end, seg.order = end, index
        seg.marks = (LOST if index < 4 else 0) | (SKB_END if index >= 3 else 0)
    f.una, f.nxt, f.tx_next, f.lost_out = 0, 6, 6, 4
    words(f.state)[CWND], words(f.state)[PACING] = 100, 1_000_000  # bursts of two segments
    f.wmem_alloc = 4 * truesize(f, 2 * f.mss) + 1
    with np.errstate(over="ignore"):
        assert output.retransmit(w, f, FIRST_NS) == 2  # the memory of all four allows more to wait than that of two
    built.close()


def sent(sender, lost=(), seconds=3):
    """Return (segment, marks) of each transmission of a sender whose transmissions `lost` do not arrive."""
    built = World(Path(rate="40Mbit", rtt="10ms", buffer="2bdp"), [sender], 1, False, True)
    try:
        built.lose(0, lost)
        runner = Runner(built, "interpreted", trace=False, packets=True)
        runner.to(FIRST_NS + int(seconds * 1e9))
        rows = np.concatenate(runner.packets[0])
    finally:
        built.close()
    of_data = rows[(rows[:, 1] & 7) == TAP_SENT]
    return [(int(row[2]), int(row[1]) >> 3 & 255) for row in of_data]


def test_a_probe_and_a_timeout_send_the_last_segment_of_a_write_again_with_psh():
    assert sent(Sender("reno", app="bulk:size=1kB"), lost=[0, 1]) == 3 * [(0, PUSHED)]


def test_a_segment_that_waits_in_fq_is_not_sent_again_by_a_probe():
    """[Linux612] skb_still_in_host_queue: ten segments leave at once, two every 116 ms, a probe is due after 39."""
    slow = Sender("reno", app="bulk:size=20kB", fq=True, max_pacing_rate="200kbit")
    assert [segment for segment, _ in sent(slow)] == list(range(14))


@pytest.mark.parametrize(("lacks", "merged"), [(0, 2), (1000, 0)])
def test_sacked_neighbours_become_one_skb_if_they_are_as_long(lacks, merged):
    """[Linux612] tcp_shift_skb_data: mss != tcp_skb_seglen(prev)."""
    built = World(LOSSY, [Sender("cubic6")], 1, False, True)
    f = built.flows[0]
    for index in range(3):
        segments(f.seg)[index & f.mask].marks = SKB_END
        note_length(f, lacks if index == 1 else 0)
        f.nxt += 1
    for index in range(3):
        segments(f.seg)[index & f.mask].marks |= SACKED
        account_sacked(f, index)
    assert f.wmem_queued == -merged * overhead(f)
    built.close()
