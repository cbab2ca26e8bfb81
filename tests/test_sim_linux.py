"""Profile linux: when its receiver acknowledges disorder, and what its sender makes of it."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc.linux import CA_OPEN, CA_RECOVERY
from cctrace.lang.memory import words
from cctrace.schema import LINUX_EVENTS
from cctrace.sim.core.calls import in_flight
from cctrace.sim.core.linux_sender import linux_ack, send_loss_probe
from cctrace.sim.core.output import defers, push_new
from cctrace.sim.core.receiver import receive, send_ack
from cctrace.sim.core.sendmsg import sendmsg
from cctrace.sim.core.structs import ECHO, LOST, NEVER, SACKED, acks, segments, told, transmissions
from cctrace.sim.core.view import CWND
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.core.write_queue import discard_unsent
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.tcp.rate import WRITE_BYTES

MS = 1_000_000
START = FIRST_NS + 1000 * MS


class Receiver:
    """A receiver whose arrivals are given, ms after START; `acks` are its ACKs' times, `reports` what they tell."""

    def __init__(self, rtt_ms=20, **flow):
        flow = Sender("reno", rwnd="1MB", **flow)  # a window that does not open: that is told at once
        self.world = World(Path(rate="100Mbit", rtt="40ms", buffer="1bdp"), [flow], 1, False, True)
        self.f = self.world.flows[0]
        self.f.syn_ack_ns, self.f.rcv_last_ns = START - rtt_ms * MS, START  # no pause: no quick ACKs
        self.f.ato = self.f.hz // 25
        self.rtt_ms, self.sent = rtt_ms, 0
        self.sent_at_ms = None  # half an RTT before the arrival

    def arrive(self, at_ms, *numbers):
        for segment in numbers:
            now, f = START + round(at_ms * MS), self.f
            self.wait(at_ms)
            order = self.sent
            self.sent += 1
            transmissions(f.tx)[order].seg = segment
            sent_at_ms = at_ms - self.rtt_ms / 2 if self.sent_at_ms is None else self.sent_at_ms
            transmissions(f.tx)[order].ns = START + round(sent_at_ms * MS)
            transmissions(f.tx)[order].marks = now // MS - self.rtt_ms << ECHO
            receive(self.world.record, f, order, now)
        return self

    def wait(self, until_ms):
        if self.f.delack_at <= START + round(until_ms * MS):
            send_ack(self.world.record, self.f, self.f.delack_at)
        return self

    @property
    def acks(self):
        return [float(t - self.f.rev_ns - START) / MS for t in acks(self.f.ack)[: self.f.ack_tail]["ns"]]

    @property
    def reports(self):
        ends = acks(self.f.ack)[: self.f.ack_tail]["log"].tolist()
        arrived = words(self.f.log)[: self.f.log_next].tolist()
        return [arrived[a:b] for a, b in zip([0, *ends], ends, strict=False)]


# The rules are those of __tcp_ack_snd_check: three at once since the left edge moved, then a timer of 5 % of the RTT
# (1 ms at most) and 0.1 ms of slack.
@pytest.mark.parametrize(("rtt_ms", "delay_ms"), [(4, 0.3), (10, 0.6), (20, 1.1), (200, 1.1)])
def test_a_linux_receiver_acknowledges_disorder_thrice_at_once_then_by_its_timer(rtt_ms, delay_ms):
    receiver = Receiver(rtt_ms, ack_every=2).arrive(0, 1).arrive(0.01, 2).arrive(0.02, 3)
    assert receiver.acks == [0, 0.01, 0.02]
    receiver.arrive(0.03, 4).arrive(0.04, 5).arrive(0.05, 6).wait(10)
    assert receiver.acks[3:] == pytest.approx([0.03 + delay_ms])
    assert receiver.reports[3] == [4, 5, 6]


def test_the_left_edge_of_the_window_is_reported_at_once_and_three_more_after_it():
    receiver = Receiver(ack_every=2).arrive(0, 2, 3, 4, 5)
    assert len(receiver.acks) == 3
    receiver.arrive(0.1, 0)  # a hole is left: 1
    assert receiver.acks[3:] == [0.1]
    assert receiver.reports[3] == [5, 0]
    receiver.arrive(0.2, 6, 7, 8)
    assert receiver.acks[4:] == [0.2, 0.2]  # the edge's own ACK was the first of three
    receiver.arrive(0.3, 1)
    assert receiver.acks[6:] == [0.3]  # the last hole
    receiver.arrive(0.4, 9).arrive(0.5, 10)
    assert receiver.acks[7:] == [0.5]  # in order: every second


def test_a_compressed_report_is_sent_before_it_outgrows_the_blocks_of_an_ack():
    receiver = Receiver(ack_every=2).arrive(0, 2, 4, 6)
    assert len(receiver.acks) == 3
    receiver.arrive(0.1, 7)  # extends the newest block: waits
    receiver.arrive(0.2, 9)  # a block too many: what waits is reported, this one with the next occasion
    assert receiver.acks[3:] == [0.2]
    assert receiver.reports[3] == [7]
    receiver.arrive(0.3, 10).wait(10)
    assert receiver.acks[4:] == pytest.approx([0.3 + 1.1])
    assert receiver.reports[4] == [9, 10]


def test_sixteen_acks_go_at_once_after_a_duplicate():
    receiver = Receiver(ack_every=2).arrive(0, 0, 1)
    receiver.arrive(0.1, 0)  # says so at once
    assert receiver.acks == [0, 0.1]
    assert told(receiver.f.told)[1].dup == 1
    receiver.arrive(0.2, *range(2, 17))
    assert len(receiver.acks) == 2 + 15
    receiver.arrive(0.3, 17, 18, 19)
    assert len(receiver.acks) == 2 + 15 + 1


def test_the_ack_that_ends_quick_acks_begins_the_delay_of_acks_so_that_data_in_order_are_not_the_first():
    """[Linux612] tcp_dec_quickack_mode sets `ato`, by which tcp_event_data_recv knows the first data of a connection.

    An ACK that reading alone sends does not count.
    """
    receiver = Receiver(ack_every=2)
    f = receiver.f
    f.ato, f.quick_acks = 0, 1  # the first arrival has opened the window
    send_ack(receiver.world.record, f, START)
    assert (f.ato, f.quick_acks) == (0, 1)
    receiver.arrive(0, 1, 2, 3)
    assert (f.ato, f.quick_acks) == (f.hz // 25, 0)
    receiver.arrive(1, 0).arrive(2, 4, 5, 6, 7, 8)
    assert receiver.acks[4:] == [1, 2, 2]


@pytest.mark.parametrize("flow", [{"ack_every": 2, "comp_sack_nr": 0}, {"ack_every": 1}])
def test_a_receiver_told_not_to_compress_acknowledges_each_arrival_out_of_order(flow):
    receiver = Receiver(**flow).arrive(0, *range(1, 30))
    assert receiver.acks == [0] * 29


def test_what_a_retransmission_has_overtaken_is_refused_by_its_time_stamp():
    receiver = Receiver(ack_every=2)
    f = receiver.f
    receiver.arrive(0, 0, 2).arrive(30, 1)  # 1 was sent again: 30 ms later than the others
    receiver.sent_at_ms = -8
    receiver.arrive(32, 3)  # sent with 0 and 2, still new
    assert (f.n_discarded, f.rcv_nxt) == (1, 3)
    assert len(receiver.reports[-1]) == 0
    receiver.sent_at_ms = 19  # one millisecond behind 1 is taken, that is what clocks may differ by
    receiver.arrive(33, 3)
    assert (f.n_discarded, f.rcv_nxt) == (1, 4)


def test_no_more_acks_are_held_back_than_the_sysctl_allows():
    receiver = Receiver(ack_every=2, comp_sack_nr=5).arrive(0, *range(1, 4 + 5 + 1))
    assert len(receiver.acks) == 4
    assert len(receiver.reports[3]) == 6


class AckedByHand:
    """A sender in congestion avoidance whose ACKs are given; a millisecond lies between two segments of its window."""

    def __init__(self, window=18, cc="reno"):
        self.world = World(Path(rate="1Gbit", rtt="20ms", buffer="1bdp"), [Sender(cc, rwnd="1MB")], 1, False, True)
        self.w, self.f = self.world.record, self.world.flows[0]
        f = self.f
        f.srtt, f.min_rtt, f.rto_us, f.sndbuf = 20_000 << 3, 20_000, 220_000, 1 << 40
        words(f.state)[CWND] = 0
        sendmsg(self.w, f, 1000 * f.mss, START)
        for k in range(window):
            words(f.state)[CWND] = k + 1
            f.now_us = (START + k * MS) // 1000
            push_new(self.w, f, 0, START + k * MS)
        self.marks = lambda n: int(segments(f.seg)[n & f.mask].marks)

    def ack(self, at_ms, *segments_, echo_ms=None, duplicate=None):
        """An ACK that is the first to report `segments_`."""
        f, now = self.f, START + round(at_ms * MS)
        f.now_us = now // 1000
        for n in segments_:
            words(f.log)[f.log_next] = n
            f.log_next += 1
        place = f.ack_tail & f.mask
        acks(f.ack)[place].ns, acks(f.ack)[place].log = now, f.log_next
        told(f.told)[place].echo = (now // MS - 20) if echo_ms is None else START // MS + echo_ms
        told(f.told)[place].dup = 0 if duplicate is None else duplicate + 1
        told(f.told)[place].right = NEVER
        f.ack_tail += 1
        linux_ack(self.w, f, now)
        return self

    def lose_the_first(self):
        """Three later ones arrive, and RACK takes segments 0 to 4 for lost; two of them are sent again."""
        return self.ack(27, 5, 6, 7, echo_ms=-1)


def test_what_an_ack_reports_is_taken_up_in_the_order_of_the_segments_sacks_first():
    sender = AckedByHand().ack(30, 7, 0, 5, 1)
    f = sender.f
    assert (f.una, f.sacked_out, f.delivered) == (2, 2, 1 + 4)
    assert sender.marks(5) & SACKED
    assert sender.marks(7) & SACKED
    assert f.rack_rtt == 30_000 - 1_000  # of segment 1, the last taken up,
    assert f.rack_ns == START + 7 * MS  # though 7 was sent later
    assert f.reord_seen == 0  # nothing is known to have been overtaken yet
    sender.ack(31, 3)
    assert f.reord_seen == 1
    assert f.reordering == 8 - 3


def test_what_a_process_sends_after_it_read_the_clock_is_stamped_with_the_time_that_took():
    sender = AckedByHand(window=1)
    sender.w.clock_read_ns = 5000
    words(sender.f.state)[CWND] = 2
    sendmsg(sender.w, sender.f, sender.f.mss, START + MS)
    assert sender.f.nxt == 2
    assert sender.f.lsndtime_us == (START + MS + 5000) // 1000  # tcp_write_xmit: tcp_mstamp_refresh


def test_a_late_original_keeps_retransmissions_back_and_undoes_the_recovery_once_they_are_in():
    sender = AckedByHand()
    cwnd = int(words(sender.f.state)[CWND])
    f = sender.lose_the_first().f
    assert (f.ca_state, f.lost_out, f.retrans_out, f.n_retx) == (CA_RECOVERY, 5, 2, 2)
    assert words(f.state)[CWND] < cwnd
    sender.ack(28, 0, echo_ms=0)  # its time stamp is older than the retransmission
    assert (f.ca_state, f.lost_out, f.retrans_out, f.n_retx) == (CA_RECOVERY, 4, 1, 2)
    sender.ack(29, 2, 3, 4)
    assert f.n_undo == 0
    sender.ack(30, 1, echo_ms=1)
    assert f.n_undo == 1
    assert f.ca_state < CA_RECOVERY
    assert (f.lost_out, f.retrans_out, f.n_retx) == (0, 0, 2)
    assert words(f.state)[CWND] >= cwnd


def test_a_recovery_that_was_undone_begins_again_for_what_is_lost_all_the_same():
    sender = AckedByHand().lose_the_first()
    sender.ack(28, 0, echo_ms=0).ack(29, 1, echo_ms=1)
    assert sender.f.n_undo == 1
    assert sender.f.ca_state == CA_RECOVERY
    assert [n for n in range(2, 5) if sender.marks(n) & LOST] == [2, 3, 4]


def test_a_duplicate_for_every_retransmission_undoes_the_recovery():
    sender = AckedByHand().lose_the_first()
    cwnd = int(words(sender.f.state)[CWND])
    f = sender.ack(28, 2, 3, 4, *range(8, 18), echo_ms=-1).ack(47, 0, 1).f
    assert (f.ca_state, f.n_undo, f.n_retx) == (CA_OPEN, 0, 2)
    before = int(f.delivered)
    sender.ack(48, duplicate=0)
    assert f.n_undo == 0
    sender.ack(49, duplicate=1)
    assert f.n_undo == 1
    assert f.delivered - before == 2  # a duplicate was delivered, too
    assert f.dsacks == 2
    assert words(f.state)[CWND] > cwnd


def test_a_tail_loss_probe_is_not_counted_among_the_retransmissions():
    sender = AckedByHand(window=2)
    discard_unsent(sender.f)
    sender.f.now_us = (START + 60 * MS) // 1000
    send_loss_probe(sender.w, sender.f, START + 60 * MS)
    assert sender.f.n_retx == 1
    assert sender.f.retrans_out == 0
    assert in_flight(sender.f) == 2


def test_a_sender_waits_for_a_third_of_its_window_if_an_ack_is_near():
    sender = AckedByHand(window=12)
    w, f, now = sender.w, sender.f, START + 19 * MS  # the first ACK is due in a millisecond
    f.wstamp_ns = now
    assert defers(w, f, 3, 45, 45 * 1448, now)
    assert not defers(w, f, 4, 45, 45 * 1448, now)  # a third
    assert not defers(w, f, 3, 3, 45 * 1448, now)  # a full burst
    assert not defers(w, f, 3, 45, 45 * 1448, now - MS)  # the ACK is too far
    assert not defers(w, f, 3, 45, 45 * 1448, now + 2 * MS)  # it was quiet for a millisecond
    f.ca_state = CA_RECOVERY
    assert not defers(w, f, 3, 45, 45 * 1448, now)


def test_the_rate_sample_is_that_of_the_segment_sent_last():
    sender = AckedByHand().lose_the_first().ack(28, 2, 3, 4, echo_ms=-1)
    delivered = int(sender.f.delivered)
    sender.ack(47, 1, 8, 0)  # 0 and 1 were sent again, after 8
    assert sender.f.rs_prior_delivered == segments(sender.f.seg)[1].tx_delivered
    assert sender.f.rs_delivered == delivered + 3 - sender.f.rs_prior_delivered


@pytest.fixture(scope="module")
def compressed():
    path = Path(rate="40Mbit", rtt="40ms", buffer="8bdp", jitter="normal:sd=10ms,reorder")
    return cct.simulate(path, "cubic6", "8s", trace=True, packets=True, ack_every=2)


def test_under_reordering_two_thirds_of_the_segments_are_acknowledged(compressed, tmp_path):
    compressed.to_pcap(tmp_path / "receiver.pcap", "receiver")
    packets = cct.read(tmp_path / "receiver.pcap").packets
    data = np.count_nonzero(packets["payload"] > 0)
    acks = np.count_nonzero(packets["direction"] == 1)
    assert 0.6 < acks / data < 0.9  # recordings of Linux 6.18 under such jitter: 0.68 to 0.86; without compression 1


def test_a_reenactment_of_the_senders_capture_finds_the_same_losses_and_undos(compressed, tmp_path):
    compressed.to_pcap(tmp_path / "sender.pcap")
    events = cct.read(tmp_path / "sender.pcap").flow(0).events
    trace = compressed.flow(0)
    for name in ("ssthresh", "undo_cwnd"):
        mine = np.count_nonzero(trace.event == LINUX_EVENTS[name])
        assert mine > 20
        # the capture does not show when RACK's timer fires
        assert len(events.of(name)) == pytest.approx(mine, rel=0.1), name


def test_bad_limits_of_compression_are_refused():
    with pytest.raises(cct.errors.ArgumentError, match="comp_sack_nr=256 must be an integer from 0 to 255"):
        Sender("reno", comp_sack_nr=256)


def test_a_write_that_empties_a_small_buffer_ends_in_a_short_segment(tmp_path):
    path = cct.Path(rate="38.7Mbit", rtt="61ms", buffer="2bdp")
    sim = cct.simulate(path, "cubic6", "3s", packets=True, ack_every=2, send_buffer="16kB")
    sim.to_pcap(tmp_path / "sender.pcap", "sender")
    packets = cct.read(tmp_path / "sender.pcap").packets
    sizes = packets["payload"][packets["payload"] > 0]
    assert set(sizes.tolist()) == {1448, WRITE_BYTES % 1448}  # as a recording of Linux 6.12 has them
    assert packets["seq"].max() + sizes[-1] == 1 + sizes.sum()  # none is missing, none was sent again
