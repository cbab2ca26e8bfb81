"""Profile linux sends what recorded kernels sent, segment by segment, and the rules that this rests on."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.kernel_equality import LAB, compare, in_order, occurrences
from benchmarks.kernel_instants import BOOT_NS, full_blocks, woken_with
from benchmarks.kernel_lab import Recording, delays_of, kept, lost, segmented
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.linux import CA_RECOVERY
from cctrace.errors import ArgumentError
from cctrace.lang.memory import forget, place
from cctrace.sim.core import linux_sender, reduction, sack, structs, world, write_queue
from cctrace.sim.core.bottleneck import reach, step_up
from cctrace.sim.core.fq import watch
from cctrace.sim.core.output import must_wait
from cctrace.sim.core.receiver import read
from cctrace.sim.core.structs import (
    ACKS,
    ARRIVALS,
    LINUX_6_1,
    LINUX_6_12,
    LOST,
    PUSHED,
    RETRANS,
    SACKED,
    SENDS,
    TAP_ACK,
    TAP_SENT,
    transmissions,
)
from cctrace.sim.core.world import World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.tcp.wheel import fires_ns, wheel_tick
from tests.places import RECORDINGS

MS = 1_000_000
RECORDED = kept(LAB)


# What the project asks for: every transmission of the kernel, in order and within 100 us, but for one in a hundred of
# window-based controllers and one in twenty of BBR, whose rates follow from single microseconds.
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("cubic_plain_nofq", 0.99),
        ("cubic_loss", 0.99),
        ("reno_plain_nofq", 0.99),
        ("v1_plain_nofq", 0.95),
        ("v2_plain_fq", 0.95),
        ("v3_plain_nofq", 0.95),
        ("v1_steps_nofq", 0.95),  # a token bucket, which the handshake's ACK has taken from
        ("v1_steps_fq", 0.95),  # ACKs come with the packets that leave fq
        ("v2_steps_fq", 0.95),  # an ACK of 3.32 s ends the wait for a probe; ksoftirqd is woken at 150 ms
        ("reno_steps_fq", 0.99),  # after the change an arriving packet asks the token bucket
        ("v3_eq_317004", 0.95),  # what left fq in the ACK that sent it holds back what follows; a tick wakes ksoftirqd
        ("v2_eq_302106", 0.95),  # its memory has grown, because software cut it into segments
        ("v2_eq_317023", 0.95),  # an ACK reports the segment that extends the third of its SACK blocks
        ("cubic_eq_323513", 0.99),  # a process that has woken finds no room, and writes with the next ACK
        ("reno_eq_fq_325459", 0.99),  # an ACK comes before the memory of what left with it is freed
        ("v2_eq_fq_323526", 0.95),  # at .717 s tcpdump wakes
        ("v2_jitter_fq_325436", 0.95),  # told what jitter delayed each packet by, those of the handshake too
        ("reno_jitter_fq_325429", 0.99),
        ("v2_eq_fq_325456", 0.95),  # an skb shorter than a segment leaves if the receive window holds it
        ("v1_app_fq_336814", 0.95),  # writes of 7.4 segments, every 20 ms
        ("cubic_app_335732", 0.99),  # of two segments and 75 bytes, for which Nagle's rule decides
        ("reno_app_fq_335768", 0.99),  # with nothing left to write it does not wait for room: no buffer grows for it
        ("v3_loss_327637", 0.95),  # at .09 s a filled hole has been read, and twice the window is told at once
    ],
)
def test_each_segment_leaves_when_it_left_the_recorded_kernel(name, least):
    recording, seconds = RECORDED[name]
    share, _ = compare(recording.simulated(seconds), recording.until(seconds), MS // 10)
    assert share >= least


def test_tcpdump_wakes_when_a_block_of_its_ring_is_full_unless_a_second_has_passed():
    count = 3000
    for step_us, expected in ((100, [1365, 2730]), (1000, [])):  # each packet takes 192 of 262,144 bytes
        times = BOOT_NS + 2_050_000_000 + step_us * 1000 * np.arange(count)  # the block's second ends at 3.072 s
        full = full_blocks({"time_ns": times, "ip_len": np.full(count, 1500)}, 100, 250)
        assert np.searchsorted(times, full).tolist() == expected


def test_of_two_processes_that_one_interrupt_woke_the_second_waited_for_the_first_and_no_packet_woke_it():
    noted, woken = np.array([10_000, 20_000]), np.array([9_700, 19_232])  # a packet came at 9,700, as the other ran
    others = np.array([8_208, 30_768]), np.array([7_440, 30_000])
    assert woken_with(noted, woken, *others).tolist() == [7_440, 19_232]
    assert woken_with(*others, noted, woken).tolist() == [7_440, 30_000]
    assert woken_with(noted, woken, others[0][:0], others[1][:0]).tolist() == woken.tolist()


def test_a_sender_with_a_small_send_buffer_sends_what_the_recorded_kernel_sent():
    recording = Recording.read(RECORDINGS / "lab_v1_sndbuf")
    assert recording.sender().send_buffer == "24000B"
    share, _ = compare(recording.simulated(recording.seconds), recording.until(recording.seconds), MS // 10)
    assert share >= 0.95
    recording.parameters["flows"][0]["sndbuf"] = 0  # the buffer grows: another flow
    share, _ = compare(recording.simulated(recording.seconds), recording.until(recording.seconds), MS // 10)
    assert share < 0.5


class AskedByWritesOnly(BBR2):
    """BBRv2 on a kernel that asks only an application that writes whether it limits the sender."""

    app_limited_by_acks = False


@pytest.mark.parametrize(("cc", "least", "most"), [(BBR2, 0.12, 0.2), (AskedByWritesOnly, 0, 0.05)])
def test_bbr2_stays_in_startup_while_acks_find_the_application_idle(cc, least, most):
    path = Path(rate="8.1Mbit", rtt="30ms", buffer="36450B")  # the kernel sent 943 of 6046 again, in STARTUP
    flow = simulate(path, Sender(cc, send_buffer="26546B", kernel="6.1"), "6s").flows.iloc[0]
    assert least < flow["retransmit_ratio"] < most


def test_a_send_buffer_holds_half_its_bytes_and_needs_a_stack_that_has_one():
    path = Path(rate="40Mbit", rtt="60ms", buffer="2bdp")
    small, large = (simulate(path, Sender("reno", send_buffer=size), "5s").flows.iloc[0] for size in ("64kB", "4MB"))
    # 128 kB in the kernel's books, of which the overhead of skbs takes a part; some bytes more are let in (sendmsg).
    assert 64e3 < small.goodput_bps / 8 * 0.06 < 200e3
    assert large.goodput_bps > 1.5 * small.goodput_bps
    for cc, options in (("quic_bbr", {}), ("reno", {"profile": "reference"})):
        with pytest.raises(ArgumentError, match=r"send_buffer=.* has none"):
            Sender(cc, send_buffer="64kB", **options)
    with pytest.raises(ArgumentError, match="send_buffer='0kB' must be from 1 byte"):
        Sender("reno", send_buffer="0kB")


def test_a_comparison_counts_what_is_late_out_of_order_or_sent_by_one_side_only():
    theirs = np.array([0, 1, 2, 3, 1]), np.arange(5) * MS
    assert compare(theirs, theirs, 0)[0] == 1
    late = theirs[0], theirs[1] + np.array([0, 0, 2, 0, 0])
    assert compare(late, theirs, 1)[0] == 0.8
    assert compare(late, theirs, 1)[1].tolist() == [2]
    more = np.append(theirs[0], 4), np.append(theirs[1], 5 * MS)
    assert compare(more, theirs, 0)[0] == 5 / 6
    assert in_order(np.array([0, 2, 1, 3])).sum() == 3
    assert occurrences(np.array([7, 8, 7, 7])).tolist() == [0, 0, 1, 2]


def test_a_timer_fires_with_the_tick_after_its_last_and_coarser_if_it_is_long():
    assert wheel_tick(100, 110) == 111
    assert wheel_tick(100, 162) == 163
    assert wheel_tick(100, 163) == 168  # 63 ticks and more: the next multiple of 8
    assert wheel_tick(100, 168) == 176
    assert wheel_tick(0, 504) == 512  # of 64
    assert fires_ns(5 * MS, 10, 250) == (1 + 10 + 1) * 4 * MS


def test_an_skb_is_filled_with_half_the_largest_window_seen_and_64_kb_at_most():
    sender = SimpleNamespace(mss=1448, max_window=65_160, kernel=LINUX_6_12)
    assert write_queue.size_goal(sender) == 22 * 1448
    sender.max_window = 1 << 20
    assert write_queue.size_goal(sender) == 45 * 1448
    assert write_queue.overhead(sender) < write_queue.overhead(SimpleNamespace(kernel=LINUX_6_1))


def test_an_skb_that_is_held_back_keeps_what_it_got_and_is_filled_again_before_it_leaves():
    """[Linux612] tcp_grow_skb moves data of the next skb alone, whenever a send is tried."""
    ends = np.array([1448 << 1, 2700 << 1 | 1, 9000 << 1, 0], np.int64)
    sender = SimpleNamespace(kernel=LINUX_6_12, nxt=0, mss=1448, snd_lack=0, small_sent=0, mask=3, wq_head=0)
    sender.wq_ends, sender.wq_tail, sender.wmem_queued = place(ends), 3, 20_000
    assert write_queue.grow_skb(sender, 2 * 1448) == 2700
    assert (sender.wq_head, sender.wmem_queued) == (1, 20_000 - write_queue.overhead(sender))
    assert write_queue.grow_skb(sender, 2 * 1448) == 2 * 1448
    assert (write_queue.write_end(sender, 1), write_queue.write_end(sender, 2)) == (2 * 1448, 9000)
    assert ends[1] & 1 == 1  # a part of it ends a write
    forget([sender.wq_ends])


def test_fq_paces_a_window_based_controller_and_only_profile_linux_has_it():
    path = Path(rate="10Mbit", rtt="40ms", buffer="1bdp")
    flows = [Sender("cubic6", fq=fq, ack_every=2, kernel="6.12") for fq in (False, True)]
    rows = [simulate(path, flow, "1s", packets=True).ends[0].rows for flow in flows]
    sent = [np.unique(noted[(noted[:, 1] & 7) == 2, 0], return_counts=True)[1] for noted in rows]
    assert sent[1][1:].max() < sent[0][1:].max()  # in one instant; the first ten are not paced
    with pytest.raises(ArgumentError, match=r"fq=True .* reference has none"):
        Sender("cubic", profile="reference", fq=True)
    with pytest.raises(ArgumentError, match=r"kernel='2.6'.*6.18"):
        Sender("cubic", kernel="2.6")


def test_a_receive_window_may_exceed_what_the_rings_of_a_small_path_hold():
    # 2048 segments here. A window that stops growing ends the quick ACKs of its growth, and BBR's rounds move.
    path = Path(rate="11Mbit", rtt="47ms", buffer="0.8bdp")
    rows = simulate(path, Sender("bbr3", ack_every=2), "6s", packets=True).ends[0].rows
    assert rows[(rows[:, 1] & 7) == TAP_ACK, 2].max() > 2500


def test_a_recorded_instant_that_is_a_step_too_early_is_not_waited_for_again():
    path, at = Path(rate="10Mbit", rtt="40ms", buffer="1bdp"), 2_000 * MS
    for fq in (False, True):
        made = world.World(path, [Sender("bbr2022", fq=fq)], 1, False, exact=True)
        w, f = made.record, made.flows[0]
        w.one_host, w.timer_step_ns = 1, 256
        made.prescribe_instants([[], [], [at], []])
        if fq:
            f.fq_next, f.tx_next = 0, 1
            transmissions(f.tx)[0].ns = at + 100
            watch(w, f)
            assert f.fq_at == at + 100
        else:
            f.wstamp_ns = at + 100
            assert must_wait(w, f, at)
            assert f.pace_at == at + 100
        made.close()


def test_a_loss_behind_the_bottleneck_has_taken_its_time_on_the_link():
    goodput_bps = {}
    for behind in (False, True):
        path = Path(rate="10Mbit", rtt="20ms", buffer="2bdp", loss="5%", loss_behind=behind)
        goodput_bps[behind] = simulate(path, "bbr2022", "20s").flows.goodput_bps[0]
    most_bps = 0.95 * 10e6 * 1448 / 1514  # of a link that carries what gets lost, too
    assert 0.95 * most_bps < goodput_bps[True] < 1.005 * most_bps < goodput_bps[False]


def test_where_a_packet_got_lost_follows_from_the_distance_of_its_neighbours():
    def capture(times_ms, numbers):
        zeros = np.zeros(len(numbers), np.int64)
        columns = dict.fromkeys(("direction", "tsval", "ip_id"), zeros) | {"payload": zeros + 1448}
        return columns | {"time_ns": np.array(times_ms) * MS, "seq": np.array(numbers) * 1448}

    sender = capture(range(9), range(9))
    # Packets take 10 ms: 2 left a gap of its own time, 4 did not; of 6 and 7 one was served.
    receiver = capture([20, 30, 50, 60, 80], [0, 1, 3, 5, 8])
    assert lost(sender, receiver, 10 * MS) == ([2, 4, 6, 7], [2, 6])


def test_a_gap_before_a_packet_that_found_the_bottleneck_idle_is_no_time_that_lost_packets_took():
    zeros = np.zeros(5, np.int64)
    same = dict.fromkeys(("direction", "tsval", "ip_id"), zeros) | {"payload": zeros + 1448}
    sender = same | {"time_ns": np.array([0, 0, 0, 0, 26]) * MS, "seq": np.arange(5) * 1448}
    receiver = {name: values[[0, 1, 4]] for name, values in sender.items()} | {"time_ns": np.array([15, 25, 41]) * MS}
    # 2 and 3 left at once after 1, or never: then 4, which came 1 ms later, would have waited for the second.
    assert lost(sender, receiver, 10 * MS) == ([2, 3], [])


def test_a_super_packet_of_a_capture_is_compared_by_its_segments():
    row = {"time_ns": 5, "payload": 3000, "ip_len": 3052, "seq": 2**32 - 1448, "ip_id": 2**16 - 1, "tsval": 9}
    ack = row | {"payload": 0, "ip_len": 52}
    cut = segmented({name: np.array([value, ack[name]]) for name, value in row.items()})
    assert cut["seq"].tolist() == [2**32 - 1448, 0, 1448, 2**32 - 1448]
    assert cut["payload"].tolist() == [1448, 1448, 104, 0]
    assert cut["ip_len"].tolist() == [1500, 1500, 156, 52]
    assert cut["ip_id"].tolist() == [2**16 - 1, 0, 1, 2**16 - 1]
    assert set(cut["time_ns"]) == {5}


def test_what_the_polling_process_delays_is_prescribed_if_anything_is():
    recording, _ = RECORDED["cubic_loss"]
    w = recording.world(seed=1)  # with the lab's clock, of which nothing is prescribed
    w.record.poll_ns, due = 10 * MS, 30 * MS + 20_000
    assert step_up(w.record, due, ACKS) - due >= w.record.poll_lasts_ns
    w.record.polled = 0
    w.prescribe_instants([[5 * MS], [5 * MS], [5 * MS], []])
    assert step_up(w.record, due, ACKS) - due < w.record.poll_lasts_ns
    w.close()


def test_an_ack_that_the_application_sends_by_reading_has_the_time_of_the_reading():
    recording, _ = RECORDED["cubic_loss"]
    w = recording.world()
    f = w.flows[0]
    f.rcv_nxt, f.rcv_acked, f.rcv_read, f.rcv_held = 3, 1, 3, 0
    read(w.record, f, 5 * MS - 100)
    assert f.delack_at == f.rcv_mstamp == 5 * MS + 156  # it reads the clock, which takes 256 ns
    w.prescribe_instants([[], [], [], []], busy=([5 * MS - 100, 6 * MS], [5 * MS + 2000, 7 * MS]))
    read(w.record, f, 5 * MS - 100)
    assert f.delack_at == f.rcv_mstamp == 5 * MS + 2256  # another process has the CPU
    w.close()


def test_packets_behind_jitter_come_as_far_apart_as_the_link_that_keeps_their_order_sends_them():
    recording, _ = RECORDED["v2_jitter_fq_325436"]
    w = recording.world(seed=1)
    leg = structs.legs(w.flows[0].behind)[0]
    arrivals = [reach(w.record, leg, at) for at in (5 * MS, 4 * MS, 3 * MS, 6 * MS)]  # two wait for their predecessor
    apart = np.diff(arrivals)
    assert np.all((apart[:2] > 900) & (apart[:2] < 1600))  # 1211 ns, in steps of the lab's clock
    assert apart[2] > MS / 2


def test_a_recording_with_jitter_tells_how_long_each_packet_took_from_the_bottleneck():
    def capture(times_us, numbers):
        zeros = np.zeros(len(numbers), np.int64)
        payload = np.where(np.array(numbers) < 2, 0, 1448)
        columns = dict.fromkeys(("direction", "tsval", "ip_id"), zeros) | {"payload": payload, "ip_len": payload + 52}
        return columns | {"time_ns": np.array(times_us) * 1000, "seq": np.array(numbers) * 1448}

    sender = capture([0, 100, 200, 200, 200], range(5))  # SYN, ACK, three segments; a full packet takes 150 us
    receiver = capture([65, 175, 500, 900], [0, 1, 2, 4])
    # The bottleneck dropped one, and sent the next after the first.
    assert (delays_of(sender, receiver, 0, 150_000) // 1000).tolist() == [59, 69, 150, 0, 400]


def test_a_timer_is_served_when_a_packet_of_its_kind_was_recorded_if_one_was_next_to_it():
    simulated = next(iter(RECORDED.values()))[0].world()
    times = np.array([5 * MS, 7 * MS])
    simulated.prescribe_instants([times, times[:0], times[:0], times[:0]])
    assert step_up(simulated.record, 5 * MS - 3000, ARRIVALS) == 5 * MS
    for at, kind in ((6 * MS, ARRIVALS), (5 * MS - 3000, ACKS)):  # none near, none of the kind: the lab's clock
        assert at <= step_up(simulated.record, at, kind) < at + 1000


def test_what_an_ack_let_go_does_not_tell_when_the_timer_of_pacing_fired():
    simulated = next(iter(RECORDED.values()))[0].world()
    sent = np.array([8 * MS, 16 * MS + 1])  # the second follows an ACK of the same instant
    simulated.prescribe_instants([sent[:1], sent[:0], sent, sent[:0]])
    assert step_up(simulated.record, 8 * MS - 3000, SENDS) == 8 * MS
    assert step_up(simulated.record, 16 * MS - 3000, SENDS) < 16 * MS - 2000
    simulated.close()


def test_a_segment_sent_again_alone_does_not_carry_the_psh_of_its_super_packet():
    path = Path(rate="40Mbit", rtt="40ms", buffer="2bdp", loss="1%")
    rows = simulate(path, Sender("bbr2022", ack_every=2), "10s", packets=True).ends[0].rows
    sent = rows[(rows[:, 1] & 7) == TAP_SENT]
    alone = np.append(True, np.diff(sent[:, 0]) > 0) & np.append(np.diff(sent[:, 0]) > 0, True)
    again = sent[:, 2] < np.maximum.accumulate(sent[:, 2])
    pushed = sent[alone & again, 1] >> 3 & PUSHED > 0
    assert len(pushed) > 50
    assert pushed.mean() < 0.1  # the rest ended what the application had written


def test_after_the_reordering_timer_new_data_follow_when_pacing_allows(monkeypatch):
    w = World(Path(rate="10Mbit", rtt="40ms", buffer="1bdp"), [Sender("bbr2022")], 1, False, exact=True)
    f, now = w.flows[0], 50 * MS
    f.paced, f.wstamp_ns, f.pace_at, f.ca_state = 1, now + 1000, structs.NEVER, CA_RECOVERY
    f.nxt = f.lost_out = 1
    monkeypatch.setattr(linux_sender, "rack_detect_loss", lambda w, f, now: setattr(f, "lost_out", 0))
    monkeypatch.setattr(linux_sender, "retransmit", lambda w, f, now: None)  # all that is lost
    linux_sender.rack_reo_timeout(w.record, f, now)
    assert f.pace_at == now + 1000
    w.close()


def test_a_compressed_ack_has_the_time_stamp_of_the_last_arrival():
    path = Path(rate="10Mbit", rtt="40ms", buffer="2bdp", loss="1%")
    rows = simulate(path, Sender("cubic6", ack_every=2), "5s", packets=True).ends[0].rows
    ages_ms = rows[(rows[:, 1] & 7) == TAP_ACK, 1] >> 6  # beside the feedback of ECN
    assert set(ages_ms) == {0, 1, 2}  # 1.1 ms after it; others at once


def test_where_nothing_is_compiled_a_simulation_is_interpreted(monkeypatch):
    def goodput_bps():
        return simulate(Path(rate="10Mbit", rtt="20ms", buffer="1bdp"), "reno", "0.3s").flows.goodput_bps[0]

    compiled = goodput_bps()
    monkeypatch.setattr(world, "INTERPRETED", True)
    assert goodput_bps() == compiled


def overtaken(random):
    """A list of random transmissions: times that rise with ties, segments acknowledged, SACKed, lost, sent again."""
    count = int(random.integers(2, 24))
    log = np.zeros(64, structs.TRANSMISSION).view(np.recarray)
    board = np.zeros(64, structs.SEGMENT).view(np.recarray)
    log["seg"][:count] = random.integers(0, 24, count)
    times = np.cumsum(random.integers(0, 2, count)) * 1000
    for order in range(count):  # the latest transmission of a segment counts
        index = log["seg"][order]
        board["order"][index], board["sent_ns"][index] = order, times[order]
        board["skb_end"][index] = index + random.integers(1, 3)
        board["marks"][index] = random.choice([0, 0, SACKED, LOST, RETRANS, LOST | RETRANS])
    newest = int(random.integers(0, count))
    sender = SimpleNamespace(mask=63, una=int(random.integers(0, 8)), tx_head=0, tx_next=count)
    sender.rack_order, sender.rack_ns, sender.rack_index = newest, times[newest], log["seg"][newest]
    sender.rack_seen = -1
    return sender, log, board


def waiting_for(sender, log, board):
    """What RACK waits for, found as by tcp_rack_detect_loss: along the whole list."""
    found = []
    for order in range(sender.tx_next):
        segment = board[log["seg"][order]]
        if sack.is_settled(sender, order):
            continue
        if (segment["sent_ns"], segment["skb_end"]) > (sender.rack_ns, sender.rack_index):
            break
        found.append(order)
    return found


def goes_on(random, sender, log, board):
    """Some of the list settles, more is sent, or something newer arrives."""
    change = random.integers(0, 4)
    if change == 0:
        board["marks"][random.integers(0, 24)] |= SACKED
    elif change == 1:
        sender.una += 1
    elif change == 2:
        order, index = sender.tx_next, int(random.integers(24, 32))
        now = max(board["sent_ns"]) + random.integers(0, 2) * 1000
        log["seg"][order], board["order"][index], board["sent_ns"][index] = index, order, now
        board["skb_end"][index], board["marks"][index] = index + 1, 0
        sender.tx_next += 1
    else:
        newer = int(random.integers(sender.rack_order, sender.tx_next))
        index = log["seg"][newer]
        if board["order"][index] == newer:
            sender.rack_order, sender.rack_ns, sender.rack_index = newer, board["sent_ns"][index], index


def test_the_last_transmission_that_rack_waits_for_is_the_one_that_a_scan_of_all_finds():
    """[Linux618] tcp_rack_detect_loss goes along the list up to what was sent after the newest arrival."""
    found = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        sender, log, board = overtaken(random)
        sender.tx, sender.seg = place(log), place(board)
        for _ in range(8):
            if waiting := waiting_for(sender, log, board):
                found += len(waiting) > 1
                last_ns = board["sent_ns"][log["seg"][waiting[-1]]]
                assert sack.last_overtaken_ns(sender, waiting[0]) == last_ns, seed
            goes_on(random, sender, log, board)
        forget([sender.tx, sender.seg])
    assert found > 50


def test_rack_looks_anew_for_what_it_waits_for_after_an_undo_puts_segments_back_on_its_list():
    board = np.zeros(8, structs.SEGMENT).view(np.recarray)
    board["marks"][:3] = LOST
    sender = SimpleNamespace(mask=7, una=0, nxt=4, profile=structs.LINUX, n_undo=0, lost_out=3, prior_ssthresh=0)
    sender.rack_seen, sender.undo_marker, sender.seg = 3, 0, place(board)
    reduction.undo_cwnd_reduction(None, sender, True, 0)
    forget([sender.seg])
    assert (sender.lost_out, sender.rack_seen) == (0, -1)
