"""A simulated Linux receiver acknowledges, and a simulated sender bursts, as the lab's Linux 6.18 hosts do.

Recorded shares are those of the lab's `jitter_bbr_sd0ms` (20 ms) and `single_cubic_1bdp` (40 ms) at 40 Mbit/s.
"""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.lang.memory import place, words
from cctrace.sim.core import output
from cctrace.sim.core.receiver import cleanup_rbuf, note_block, quick
from cctrace.sim.core.structs import LINUX, NEVER, acks
from cctrace.sim.core.world import World

PSH = 8
MS = 1_000_000


@pytest.fixture
def seen(tmp_path):
    def run(cc, duration, rtt="20ms", buffer="8bdp", **options):
        """Return what the receiver's capture shows: [(ns, is data, PSH)], handshake left out."""
        path = cct.Path(rate="40.373Mbit", rtt=rtt, buffer=buffer)
        sim = cct.simulate(path, cc, duration, packets=True, ack_every=2, **options)
        sim.to_pcap(tmp_path / "receiver.pcap", "receiver")
        packets = cct.read(tmp_path / "receiver.pcap").packets
        columns = (packets["time_ns"], packets["payload"] > 0, packets["flags"] & PSH > 0)
        return list(zip(*(column.tolist() for column in columns), strict=True))[3:]

    return run


def segments_per_ack(packets):
    """Count ACKs by (segments since the last one, whether the last of them carried PSH)."""
    counts, waiting, last = Counter(), 0, False
    for _, data, pushed in packets:
        if data:
            waiting, last = waiting + 1, pushed
        else:
            counts[waiting, last] += 1
            waiting = 0
    return counts


def test_the_end_of_each_burst_is_acknowledged(seen):
    packets = seen("bbr2022", "20s")
    counts = segments_per_ack(packets)
    data = sum(data for _, data, _ in packets)
    # 0.2397, 0.2861 and 0.0916 per segment are recorded; a burst is of 3 segments, sometimes of 2 or 4
    for kind, recorded in (((1, True), 0.24), ((2, False), 0.286), ((2, True), 0.092)):
        assert counts[kind] / data == pytest.approx(recorded, abs=0.02)


def test_the_first_sixteen_acks_of_a_connection_wait_for_no_second_segment(seen):
    packets = seen("reno", "100ms", app="bulk:size=40kB", rwnd="1MB")
    assert [data for _, data, _ in packets[:32]] == [True, False] * 16
    assert [data for _, data, _ in packets[32:34]] == [True, True]


def test_a_pause_longer_than_a_timeout_brings_quick_acks_again(seen):
    packets = seen("reno", "2s", app="chunks:size=29kB,every=500ms")
    first = [k for k in range(1, len(packets)) if packets[k][0] - packets[k - 1][0] > 300 * MS]
    assert len(first) == 3
    for k in first:
        assert [data for _, data, _ in packets[k : k + 32]] == [True, False] * 16


def test_a_segment_that_ends_a_write_carries_psh_and_is_acknowledged_once_it_was_read(seen):
    packets = seen("reno", "3s", app="chunks:size=1448B,every=60ms", rwnd="1MB")[2 * 16 :]  # after the quick ACKs
    times = [ns for ns, _, _ in packets]
    waits = {round((after - before) / MS) for before, after in zip(times[::2], times[1::2], strict=False)}
    assert waits == {0}  # [Linux612] tcp_measure_rcv_mss, tcp_cleanup_rbuf: not held back for 40 ms


def test_a_window_based_sender_waits_for_acks_that_fill_its_bursts(seen):
    packets = seen("cubic6", "20s", rtt="40ms", buffer="1bdp")
    data = [pushed for _, data, pushed in packets if data][200:]
    ends = [k for k, pushed in enumerate(data) if pushed]
    spans = Counter(after - before for before, after in pairwise(ends))
    assert spans[3] / len(data) == pytest.approx(0.311, abs=0.03)  # recorded; 0.08 of them if it never waited


def test_duplicates_bring_quick_acks():
    names = ("quick_acks", "rcv_acked", "fwd_ns", "rev_ns", "snd_lack", "small_sent")
    state = {"rcv_nxt": 8, "rcv_duplicate": 8, "rcv_right": 9 * 1448, "mss": 1448, "rwnd": 100, "mask": 7, "hz": 250}
    flow = SimpleNamespace(**dict.fromkeys(names, 0) | state, lacks=place(np.zeros(8, np.int64)))
    assert quick(flow, 7)
    assert flow.quick_acks == 4  # half the window


def test_a_flow_counts_as_limited_by_its_window_until_what_it_then_sent_is_acknowledged():
    flow = SimpleNamespace(profile=LINUX, una=0, nxt=10, is_cwnd_limited=0, max_packets_out=0, max_packets_seq=0)
    output.validate_cwnd(flow, True)
    flow.una, flow.nxt = 5, 12
    output.validate_cwnd(flow, False)
    assert flow.is_cwnd_limited == 1
    flow.una = 10
    output.validate_cwnd(flow, False)
    assert flow.is_cwnd_limited == 0
    assert flow.max_packets_out == 2


@pytest.fixture
def world():
    """A flow that has just been connected, and its path."""
    made = World(cct.Path(rate="10Mbit", rtt="40ms", buffer="1bdp"), [cct.Sender("reno", ack_every=2)], 1, False, True)
    yield made
    made.close()


@pytest.mark.parametrize(("left", "told"), [(10_000, True), (30_000, True), (36_000, False)])
def test_a_window_that_doubles_when_data_are_read_is_told_although_all_was_acknowledged(world, left, told):
    w, f = world.record, world.flows[0]
    f.rcv_nxt = f.rcv_acked = f.rcv_read = f.rcv_high = 30  # a hole was filled: acknowledged before it was read
    f.rcv_right = 30 * 1448 + left  # of the 65160 bytes of an empty buffer; [Linux612] tcp_cleanup_rbuf
    cleanup_rbuf(w, f, 5 * MS)
    assert f.delack_at == (5 * MS if told else NEVER)


def arrives(runs, segment):
    """Return (runs of segments, latest first, as four are remembered; what an ACK before that order carries)."""
    met = [run for run in runs if min(run) - 1 <= segment <= max(run) + 1]
    carried = [run | {segment} if run in met[:1] else run for run in runs][:3]  # beside a time stamp [RFC7323]
    rest = [run for run in runs if run not in met]
    return [{segment}.union(*met), *rest][:4], set().union(*carried), runs.index(met[0]) if met else len(runs)


def test_an_ack_forced_by_too_many_blocks_reports_what_its_three_blocks_say(world):
    """[Linux612] tcp_sack_new_ofo_skb; segment 0 is missing."""
    w, f = world.record, world.flows[0]
    random, runs, seen = np.random.default_rng(5), [], Counter()
    for segment in (1 + 2 * random.permutation(20)).tolist() + (2 + 2 * random.permutation(19)).tolist():
        f.compressed = 1
        before = f.n_acks
        runs, carried, place_of = arrives(runs, segment)
        forced = note_block(w, f, 0, segment, MS)
        f.rcv_high = max(f.rcv_high, segment + 1)
        assert forced == (f.n_acks > before) == (place_of >= 2)
        if forced:
            ack = acks(f.ack)[(f.ack_tail - 1) & f.mask]
            reported = words(f.log)[(ack.log - 1) & f.mask] == segment
            assert reported == (segment in carried)
            seen[place_of, reported] += 1
    assert seen.keys() == {(2, True), (2, False), (3, False), (4, False)}
