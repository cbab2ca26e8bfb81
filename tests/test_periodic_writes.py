"""Small writes of one size on a clock, whose short ends Nagle's rule holds, and what found nothing unsent before."""

import numpy as np
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.flows.events import Events
from cctrace.flows.periodic_writes import Writes, found_nothing, shared_sizes
from cctrace.flows.state import EVENT
from cctrace.identification import sends as identification_sends
from cctrace.identification.sends import RecordedFlow

MSS, EVERY_NS, ACKED_NS = 1448, 20_000_000, 29_300_011


def small_writes(size, count, apart_ns=lambda number: number * EVERY_NS):
    """Return the events of writes into an empty pipe with room: full segments leave at once, a short one when no other
    short one is in flight (tcp_nagle_check).
    """
    rows, waiting, small_until = [], 0, -1

    def leave(at_ns, payload, begins):
        rows.append((at_ns, payload, begins))
        return waiting - payload

    for number in range(count):
        now_ns = apart_ns(number)
        if waiting > 0 and small_until <= now_ns:
            waiting = leave(max(small_until, 0), waiting, 1)
            small_until = rows[-1][0] + ACKED_NS
        waiting += size
        begins = 1
        while waiting >= MSS:
            waiting, begins = leave(now_ns, MSS, begins), 0
        if waiting and small_until <= now_ns:
            waiting = leave(now_ns, waiting, begins)
            small_until = now_ns + ACKED_NS
    sends = np.zeros(len(rows), [(column.name, column.dtype) for column in schema.SENDS])
    sends["time_ns"], sends["payload"], sends["begins"] = np.array(rows).T
    sends["snd_nxt"] = 1 + np.cumsum(sends["payload"])
    return Events(np.zeros(0, EVENT), {"mss": MSS}, sends)


@pytest.mark.parametrize("size", [2_971, 4_187, 20_473])
def test_short_ends_tell_small_writes_to_the_byte_although_nagle_holds_most(size):
    found = small_writes(size, 200).writes
    assert (found.size, found.every_ns) == (size, pytest.approx(EVERY_NS, abs=1))


def test_the_clock_is_that_of_most_of_what_left_upon_its_ticks():
    """A few writes come a little early, and through fq, or behind other data, many leave late."""
    late_ns = np.random.default_rng(2).integers(0, EVERY_NS // 50, 300) * (np.arange(300) % 4 == 0)
    late_ns[[40, 140]] = -30_000
    events = small_writes(4_187, 300, lambda number: number * EVERY_NS + int(late_ns[number]))
    clock = events.writes
    assert clock.every_ns == pytest.approx(EVERY_NS, abs=1)
    number = np.arange(299)  # the end of the last one was not sent
    came_ns, ends = clock.due(events.sends)[:-1].T
    assert np.array_equal(ends, 1 + 4_187 * (number + 1))
    off_ns = came_ns - number * EVERY_NS - np.minimum(late_ns[:-1], 0)
    assert np.abs(off_ns[1:]).max() < 1_000


def test_writes_that_come_whenever_the_last_is_done_are_on_no_clock():
    gaps = np.cumsum(np.random.default_rng(1).exponential(EVERY_NS, 200)).astype(int)
    assert small_writes(4_187, 200, lambda number: int(gaps[number])).writes is None


def test_what_leaves_first_of_each_write_found_less_than_a_segment_unsent():
    """Only the first two segments of a write of 2971 bytes were not there before; its short end had been written."""
    events = small_writes(2_971, 200)
    sends = events.sends
    clock = events.writes
    marked = found_nothing(sends, MSS, clock)
    on_time = sends["time_ns"] % EVERY_NS == 0
    assert np.array_equal(marked, on_time & (sends["begins"] != 0))
    sends["retransmitted"][on_time] = 1
    assert not found_nothing(sends, MSS, clock).any()


def test_sends_that_a_clock_of_writes_timed_are_the_applications(monkeypatch, tmp_path):
    sender = cct.Sender("reno", ack_every=2, app=f"chunks:size={2 * MSS}B,every=20ms")
    path = cct.Path(rate="10Mbit", rtt="39ms", buffer="2bdp")
    cct.simulate(path, sender, "4s", packets=True).to_pcap(tmp_path / "a.pcap")
    flow = cct.read(tmp_path / "a.pcap").flow(0)
    sends = flow.events.sends
    late = np.append(False, np.diff(sends["time_ns"]) > EVERY_NS // 4)
    assert not sends["app_limited"][late].all()  # ACKs come meanwhile: whole segments do not show that none waited
    monkeypatch.setattr(Events, "writes", "the clock")
    monkeypatch.setattr(identification_sends, "found_nothing", lambda sends, mss, clock: late)
    assert RecordedFlow(flow).record.events.sends["app_limited"][late].all()
    found = cct.identify(flow)
    assert "reno" in found.group
    assert found.reason.startswith("its application timed nearly all that it sent")


def test_a_paced_socket_shows_although_its_application_wrote_little_at_a_time(tmp_path):
    sender = cct.Sender("reno:paced=1", ack_every=2, app="chunks:size=7695B,every=20ms")
    path = cct.Path(rate="9.8Mbit", rtt="6ms", buffer="2bdp")
    cct.simulate(path, sender, "12s", seed=3, packets=True).to_pcap(tmp_path / "a.pcap")
    found = cct.identify(cct.read(tmp_path / "a.pcap").flow(0))
    assert "reno" in found.group
    assert found.paced


def test_of_a_file_in_which_all_ends_share_other_sizes_the_commonest_are_tried():
    steps = np.repeat(MSS + 2 * np.arange(2_000), 2)  # each size twice in a row
    steps[1_000:1_030] = 20_473
    sizes = dict(shared_sizes(np.cumsum(steps), MSS))
    assert len(sizes) == 100
    assert next(iter(sizes)) == 20_473


@pytest.mark.parametrize(("packet_bytes", "writes"), [(2 * MSS, 400), (64 * MSS, 0)])
def test_more_writes_than_packets_date_none(packet_bytes, writes):
    sends = np.zeros(1_000, [(column.name, column.dtype) for column in schema.SENDS])
    sends["time_ns"], sends["payload"] = np.arange(1_000) * EVERY_NS, packet_bytes
    sends["snd_nxt"] = 1 + np.cumsum(sends["payload"])
    assert len(Writes(5 * MSS, EVERY_NS, 0.0, 0).due(sends)) == writes
