"""The simulated receive window grows as that of the Linux 6.18 receivers that the lab recorded."""

from types import SimpleNamespace

import pytest

from cctrace.sim.core import receive_window
from cctrace.sim.core.loop import run
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

MS = 1_000_000


@pytest.fixture
def receiver():
    """A receiver of segments of 1448 bytes that has just been connected, 40 ms away."""
    names = ("rcv_nxt", "rcv_high", "goodput_segs", "rcv_copied_to", "rcv_copied_at", "quick_acks")
    state = {
        "rcv_ssthresh": 45,
        "rcv_clamp": 56,
        "rcv_copied": 10,
        "rcv_right": 45,
        "srtt": 40_000 << 3,
        "rwnd": 40_000,
    }
    return SimpleNamespace(**dict.fromkeys(names, 0) | state)


def arrive(f, segments, now):
    for _ in range(segments):
        f.rcv_nxt += 1
        f.rcv_high = max(f.rcv_high, f.rcv_nxt)
        f.goodput_segs += 1
        receive_window.grow_window(f, now)


def test_the_window_grows_by_two_segments_for_each_that_arrives_up_to_its_clamp(receiver):
    arrive(receiver, 3, MS)
    assert receive_window.advertise(receiver) == 3 + 45 + 2 * 3
    arrive(receiver, 7, MS)
    assert receive_window.advertise(receiver) == 10 + 56


def test_a_window_that_opens_is_told_at_once(receiver):
    arrive(receiver, 1, MS)
    assert receiver.quick_acks == 1
    receiver.quick_acks = 0
    arrive(receiver, 10, 2 * MS)  # the clamp is reached after six
    receiver.quick_acks = 0
    arrive(receiver, 1, 3 * MS)
    assert receiver.quick_acks == 0


def test_the_clamp_follows_what_was_read_in_a_round_trip(receiver):
    arrive(receiver, 19, MS)
    arrive(receiver, 1, 41 * MS)  # 40 ms are over
    assert receiver.rcv_copied == 20
    assert receiver.rcv_clamp == 2 * 20 + 2 * 40 * (20 - 10) // 10  # twice that, and as much again as it grew


def test_segments_behind_a_hole_narrow_the_window_and_the_right_edge_stays(receiver):
    arrive(receiver, 10, MS)
    edge = receive_window.advertise(receiver)
    receiver.rcv_high += 31
    for _ in range(30):  # segment 10 is missing
        receiver.goodput_segs += 1
        receive_window.grow_window(receiver, MS)
    assert receive_window.advertise(receiver) == edge
    assert receiver.rcv_clamp - 30 < 45


# The window that single_bbr_1bdp's receiver advertised (Linux 6.18, 40 Mbit/s, 40 ms, 1 BDP), bytes, by ms since start.
# A quarter: the receiver's own RTT estimate, which times the growth, is not the sender's.
@pytest.mark.parametrize(("at_ms", "recorded"), [(100, 81_920), (220, 200_704), (340, 909_312), (580, 1_570_816)])
def test_the_window_opens_as_recorded(at_ms, recorded):
    path = Path(rate="40.373Mbit", rtt="40ms", reverse="20ms", buffer="1bdp")
    world = World(path, [Sender("bbr2022", ack_every=2, hz=250)], 1, compiled=False, exact=True)
    run(world.record, FIRST_NS + at_ms * MS)
    f = world.flows[0]
    advertised = (f.snd_right - f.una) * f.mss
    world.close()
    assert advertised == pytest.approx(recorded, rel=0.25)


def test_a_given_window_is_fixed_and_the_reference_has_none():
    path = Path(rate="40Mbit", rtt="40ms", buffer="1bdp")
    fixed = simulate(path, "cubic6", "1s", mode="interpreted", trace=True, ack_every=2, rwnd="28960B").flow(0)
    assert 20 - 2 <= fixed.columns["packets_out"].max() <= 20  # seen while an ACK of at most 2 is taken in
    reference = World(path, [Sender("cubic", profile="reference")], 1, compiled=False, exact=True)
    assert reference.flows[0].snd_right > 1 << 60
    reference.close()
