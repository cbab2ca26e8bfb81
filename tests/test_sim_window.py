"""The simulated receive window grows as that of the Linux 6.18 receivers that the lab recorded."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.receiver import LAB, compare
from cctrace.lang.memory import place
from cctrace.sim.core import receive_window
from cctrace.sim.core.loop import run
from cctrace.sim.core.structs import LINUX_6_18
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

MS = 1_000_000


@pytest.fixture
def receiver():
    """A receiver of segments of 1448 bytes that has just been connected, 40 ms away by its own estimate."""
    names = (
        "rcv_nxt",
        "rcv_high",
        "rcv_copied_to",
        "rcv_copied_us",
        "quick_acks",
        "rcv_acked",
        "rcv_held",
    )
    names += ("rcv_clock_ns", "rcv_echo_ms", "rcv_rtt_edge", "rcv_rtt_at")
    state = {"rcv_ssthresh": 65_160, "rcvbuf": 131_072, "rcv_copied": 10 * 1448, "rcv_right": 65_160, "mss": 1448}
    state |= {"kernel": LINUX_6_18, "rcv_truesize": 2304, "rcv_ratio": 160}
    state |= {"lacks": place(np.zeros(64, np.int64)), "snd_lack": 0, "small_sent": 0, "mask": 63}
    return SimpleNamespace(**dict.fromkeys(names, 0) | state, rcv_rtt8=40_000 << 3, rwnd=40_000)


def arrive(f, segments, now):
    for _ in range(segments):
        receive_window.grow_window(f, 2304)  # unread
        f.rcv_nxt += 1
        f.rcv_high = max(f.rcv_high, f.rcv_nxt)
        receive_window.adjust_space(f, f.rcv_nxt, now)


def test_the_window_grows_by_two_segments_for_each_that_arrives_as_far_as_the_buffer_has_room(receiver):
    arrive(receiver, 3, MS)
    assert receive_window.advertise(receiver) == 3 * 1448 + 37 * 2048  # 65160 + 6 * 1448, rounded up
    arrive(receiver, 7, MS)
    assert receiver.rcv_ssthresh == 81_920 - 1440  # 160 / 256 of the buffer, but for the segment not yet read
    assert receive_window.advertise(receiver) == 10 * 1448 + 81_920


def test_a_window_that_opens_is_told_at_once(receiver):
    arrive(receiver, 1, MS)
    assert receiver.quick_acks == 1
    arrive(receiver, 10, 2 * MS)  # the buffer is full after five
    receiver.quick_acks = 0
    arrive(receiver, 1, 3 * MS)
    assert receiver.quick_acks == 0


def test_the_buffer_follows_what_was_read_in_a_round_trip(receiver):
    arrive(receiver, 39, MS)
    assert receiver.rcvbuf == 131_072
    arrive(receiver, 1, 41 * MS)  # 40 ms are over
    assert receiver.rcv_copied == 40 * 1448
    window = 2 * 40 + 2 * 80 * (40 - 10) // 10  # twice that, and twice as much again as it grew
    assert receiver.rcvbuf == window * 1448 * 256 // 160


def test_a_hole_that_is_filled_ends_the_measurement_without_what_waited(receiver):
    arrive(receiver, 12, MS)
    receiver.rcv_nxt = receiver.rcv_high = 52  # 12 was missing: 39 waited behind it
    receive_window.adjust_space(receiver, 13, 41 * MS)
    assert receiver.rcv_copied == 10 * 1448
    arrive(receiver, 1, 82 * MS)
    assert receiver.rcv_copied == 40 * 1448


def test_segments_behind_a_hole_narrow_the_window_and_the_right_edge_stays(receiver):
    arrive(receiver, 10, MS)
    edge = receive_window.advertise(receiver)
    for k in range(30):  # segment 10 is missing
        receive_window.grow_window(receiver, 0)
        receiver.rcv_held += 2304
        receiver.rcv_high = 12 + k
    assert receive_window.free_window(receiver) == (81_920 - 30 * 1440) // 2048 * 2048
    assert receiver.quick_acks == 0  # the buffer is more than half full
    assert receive_window.advertise(receiver) == edge


def test_a_short_segment_does_not_measure_the_round_trip(receiver):
    lacks = np.zeros(64, np.int64)
    lacks[2:] = 376  # segment 1 is short
    receiver.lacks, receiver.snd_lack, receiver.small_sent = place(lacks), 376, 2
    receive_window.measure_rtt(receiver, 150 * MS, 130, 1)
    assert receiver.rcv_rtt8 == 40_000 << 3
    receive_window.measure_rtt(receiver, 151 * MS, 130, 2)  # its stamp counts as seen
    assert receiver.rcv_rtt8 == 40_000 << 3
    receive_window.measure_rtt(receiver, 151 * MS, 131, 2)
    assert receiver.rcv_rtt8 == 20_000 << 3


def test_the_round_trip_is_the_least_of_stamps_and_windows_or_smoothed(receiver):
    receiver.rcv_rtt8 = 0
    receive_window.measure_rtt(receiver, 141 * MS, 100, 0)
    assert receiver.rcv_rtt8 == 41_000 << 3
    receive_window.measure_rtt(receiver, 143 * MS, 100, 1)  # the same stamp again says nothing
    receive_window.measure_rtt(receiver, 150 * MS, 101, 2)
    assert receiver.rcv_rtt8 == (41_000 << 3) + 8_000
    receive_window.measure_rtt(receiver, 160 * MS, 120, 3)
    assert receiver.rcv_rtt8 == 40_000 << 3
    receive_window.measure_window_rtt(receiver, 160 * MS)
    receiver.rcv_nxt = 44
    receive_window.measure_window_rtt(receiver, 170 * MS)  # a segment less than the window
    assert receiver.rcv_rtt8 == 40_000 << 3
    receiver.rcv_nxt = 45
    receive_window.measure_window_rtt(receiver, 190 * MS)
    assert receiver.rcv_rtt8 == 30_000 << 3


RECORDED = json.loads(LAB.read_text())["recordings"]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_windows_of_recorded_receivers_are_met(name):
    acks, alike, same, apart = compare(RECORDED[name])
    assert alike >= 0.98 * acks
    assert same >= 0.98 * alike
    assert np.median(apart) == 0


# The window that single_bbr_1bdp's receiver advertised (Linux 6.18, 40 Mbit/s, 40 ms, 1 BDP), bytes, by ms since start.
# A fifth: tens of microseconds of an emulator decide which segment ends a round trip; see above for the rule itself.
@pytest.mark.parametrize(("at_ms", "recorded"), [(100, 81_920), (220, 200_704), (340, 909_312), (580, 1_570_816)])
def test_the_window_opens_as_recorded(at_ms, recorded):
    path = Path(rate="40.373Mbit", rtt="40ms", reverse="20ms", buffer="1bdp")
    world = World(path, [Sender("bbr2022", ack_every=2, hz=250)], 1, compiled=False, exact=True)
    run(world.record, FIRST_NS + at_ms * MS)
    f = world.flows[0]
    advertised = f.snd_right - f.una * f.mss
    world.close()
    assert advertised == pytest.approx(recorded, rel=0.2)


def test_a_given_window_is_fixed_and_the_reference_has_none():
    path = Path(rate="40Mbit", rtt="40ms", buffer="1bdp")
    fixed = simulate(path, "cubic6", "1s", mode="interpreted", trace=True, ack_every=2, rwnd="28960B").flow(0)
    assert 20 - 2 <= fixed.columns["packets_out"].max() <= 20  # seen while an ACK of at most 2 is taken in
    reference = World(path, [Sender("cubic", profile="reference")], 1, compiled=False, exact=True)
    assert reference.flows[0].snd_right > 1 << 60
    reference.close()
