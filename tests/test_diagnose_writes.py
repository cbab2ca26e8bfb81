"""Writes of one size on a clock, from the partly filled segments that end them; no limit where something else is."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.facts import Facts
from cctrace.diagnosis.groups import EvenSends, SocketLimit
from cctrace.diagnosis.packets.writes import clocked_writes
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.rules import judge
from cctrace.flows.periodic_writes import clocks
from tests.places import RECORDINGS


@pytest.mark.parametrize(
    ("name", "size", "every_s"),
    [("lab_cubic_app", 843_336, 0.89), ("lab_v3_app", 200_000, 0.4), ("lab_v3_pauses", 848_272, 0.7)],
)
def test_the_kernels_partly_filled_segments_tell_the_writes_to_the_byte(name, size, every_s):
    flow = cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0)
    found = clocked_writes(Record(flow), diagnose(flow).limits)
    assert found.write_bytes == size
    assert found.every_us == pytest.approx(every_s * 1e6, rel=1e-6)


@pytest.mark.parametrize("name", ["lab_cubic", "lab_v1_sndbuf", "fq_cubic_sndbuf", "lab_v2_window", "pacing_limit"])
def test_bulk_data_are_written_on_no_clock(name):
    flow = cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0)
    assert clocked_writes(Record(flow), diagnose(flow).limits) is None


def test_a_window_that_shrank_pauses_without_the_application():
    """Each time BBR's estimate of a rate that dropped expires, ACKs release nothing for a while: once per RTT."""
    path = cct.Path(rate=[(0, "60Mbit"), (3, "15Mbit")], rtt="25ms", buffer="600kB")
    flow = cct.simulate(path, cct.Sender("bbr2022", ack_every=2, fq=True), "7s", packets=True).capture().flow(0)
    found = diagnose(flow, "bbr2022")
    assert found.cause == "stale_bandwidth"
    assert not {"application_limited", "app_limited_samples"} & set(found.causes)
    assert "application" not in {limit.name for limit in found.limits}


SIZE, EVERY_S = 345_733, 0.5


def sent(rate, starts_s=0.1):
    """Times and bytes of segments sent at a rate, bytes/s, but none before it is written."""
    total = np.append(np.arange(1448, 20 * SIZE, 1448), 20 * SIZE)
    due = (np.ceil(total / SIZE) - 1) * EVERY_S
    return np.maximum.accumulate(np.maximum(starts_s + total / rate, due)), total


def test_two_pauses_between_many_writes_tell_the_clock():
    """Most of the time earlier data were left: only the second and the fifth write met none."""
    (found,) = clocks(SIZE, SIZE * np.array([1, 4]), np.array([0.5, 2.0]), *sent(1.05 * SIZE / EVERY_S, 0.0))
    assert found[:2] == (SIZE, EVERY_S)


def test_what_was_sent_before_a_clock_would_have_written_it_refutes_the_clock():
    """The third write was sent at once after the second: blocks of one size, but not on a clock of half a second."""
    time, total = sent(4 * SIZE / EVERY_S)
    at_once = np.where((total > 2 * SIZE) & (total <= 3 * SIZE), 0.62, time)
    ends, begins = SIZE * np.array([1, 4]), np.array([0.5, 2.0])
    assert clocks(SIZE, ends, begins, time, total)
    assert not clocks(SIZE, ends, begins, np.sort(at_once), total)


def test_a_pause_after_the_next_write_was_due_refutes_the_clock():
    """Three writes are done .1 s before the next; of the fourth, the last data leave after the fifth was due."""
    _, total = sent(4 * SIZE / EVERY_S)
    starts = np.array([0.0, 0.5, 1.0, 1.5, 2.2, 2.9])
    ends, begins = SIZE * np.arange(1, 6), starts[1:]
    turn, _ = np.divmod(total - 1, SIZE)
    until = starts[1:] - 0.1  # when each write has been sent
    until[3] = 2.1  # 0.1 s after the fifth was due
    few = turn < 5
    place = (total[few] - turn[few] * SIZE) / SIZE
    at = starts[turn[few]] + place * (until - starts[:-1])[turn[few]]
    assert not clocks(SIZE, ends[:4], begins[:4], at, total[few])
    assert clocks(SIZE, ends[:3], begins[:3], at[turn[few] < 4], total[few][turn[few] < 4])


def test_two_pauses_far_from_any_clock_of_the_flows_start_are_too_few():
    time, total = sent(1.05 * SIZE / EVERY_S, starts_s=9.0)
    assert not clocks(SIZE, SIZE * np.array([1, 4]), np.array([10.3, 11.8]), time, total)


EVEN = EvenSends(15.9e6, 15.2e6, 0.6, 0.0, 12e6, 0.8, carried_bps=36e6)


def names(**facts):
    return {one.name for one in judge(Facts("packets", 12.0, 12e6, **facts))}


def test_an_even_rate_below_the_paths_is_a_pacing_limit():
    assert "pacing_limited" in names(even_sends=EVEN)


def test_counters_that_name_no_limit_are_believed():
    assert "pacing_limited" not in names(even_sends=EVEN, socket_limit=SocketLimit(np.nan, 0.0, 12e6, False))
