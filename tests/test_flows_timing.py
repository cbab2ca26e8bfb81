"""When the sender did what the capture shows: order and times that the stack decides, not the capture."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.cc.bbr2022 import BBR2022
from cctrace.diagnosis.limits import counted
from cctrace.diagnosis.record import Record
from tests.conversation import MSS, Conversation

SEGMENTS = 4  # of a burst
WIDE = 60_000  # a window that limits nobody


def at(segments):
    return 1 + segments * MSS


def acks(flow):
    return flow.events.rows[flow.events.of("on_ack")]


def paced(bursts=40, answered=None, wscale=7):
    """A burst per millisecond by timer; each that is answered is acknowledged 40.4 ms later, in two halves."""
    talk = Conversation(wscale=wscale).ack(50, at(0), window=WIDE)
    for k in range(bursts):
        talk.data(100.0 + k, at(SEGMENTS * k), SEGMENTS)
        if answered is None or k < answered:
            talk.ack(140.4 + k, at(SEGMENTS * k + 2), window=WIDE).ack(140.7 + k, at(SEGMENTS * k + 4), window=WIDE)
    return talk


def prior_delivered(flow, segments):
    """What had been delivered when the last of the first `segments` was sent."""
    rows = acks(flow)
    return int(rows["rs_prior_delivered"][rows["delivered"] == 1 + segments][0])


@pytest.mark.parametrize(("after_us", "handled"), [(1.5, False), (12.0, True)])
def test_a_paced_burst_that_leaves_before_an_ack_can_have_been_handled_does_not_know_it(after_us, handled):
    talk = paced(41).data(141.0 - 0.3 + after_us / 1000, at(SEGMENTS * 41), SEGMENTS)
    talk.ack(182, at(SEGMENTS * 42), window=WIDE)
    # The ACK of 140.7 ms completes the first burst.
    assert prior_delivered(talk.flow(), SEGMENTS * 42) == 1 + (SEGMENTS if handled else SEGMENTS - 2)


def test_an_ack_that_is_captured_amid_a_super_packet_waits_for_its_end():
    talk = paced(41).data(140.6985, at(SEGMENTS * 41), SEGMENTS)  # segments at -1.5, -0.5, 0.5 and 1.5 us of the ACK
    flow = talk.ack(182, at(SEGMENTS * 42), window=WIDE).flow()
    assert prior_delivered(flow, SEGMENTS * 42) == 1 + SEGMENTS - 2


def test_a_sender_that_acks_release_sends_after_them_however_fast_it_is():
    talk = Conversation().data(1, at(0), 2)
    for k in range(30):
        talk.ack(41 + 40 * k, at(2 * k + 2), window=WIDE).data(41.002 + 40 * k, at(2 * k + 2), 2)
    rows = acks(talk.ack(2000, at(62), window=WIDE).flow())
    assert (np.diff(rows["rs_prior_delivered"]) == 2).all()


def test_a_super_packet_that_was_held_up_has_the_time_of_its_time_stamp():
    held = paced(40).data(145.5, at(SEGMENTS * 40), SEGMENTS, stamped_ms=142.2).ack(183, at(SEGMENTS * 41), window=WIDE)
    rtt_us = int(acks(held.flow())["rs_rtt_us"][-1])
    # Stamped within the millisecond from 142 on, it is taken for the end of it, not for 145.5.
    assert 40_000 <= rtt_us <= 40_020


def test_a_super_packet_held_up_in_its_middle_was_stamped_once():
    talk = paced(40)
    talk.data(142.2, at(SEGMENTS * 40), 1, psh=False)
    talk.data(143.6, at(SEGMENTS * 40 + 1), SEGMENTS - 1, stamped_ms=142.2)
    flow = talk.ack(183, at(SEGMENTS * 41), window=WIDE).flow()
    assert int(acks(flow)["rs_rtt_us"][-1]) == pytest.approx(183_000 - 142_200, abs=20)
    assert prior_delivered(flow, SEGMENTS * 41) == 1 + 2 * SEGMENTS  # the ACKs from 142.4 on came during it


def test_a_clock_that_runs_away_from_the_captures_is_not_believed():
    true, slow = paced(200), Conversation().ack(50, at(0), window=WIDE)
    for k in range(200):  # one tick in ten is lost: a clock of another machine
        slow.data(100.0 + k, at(SEGMENTS * k), SEGMENTS, stamped_ms=100.0 + 0.9 * k)
        slow.ack(140.4 + k, at(SEGMENTS * k + 2), window=WIDE).ack(140.7 + k, at(SEGMENTS * k + 4), window=WIDE)
    want, got = acks(true.flow())["rs_rtt_us"], acks(slow.flow())["rs_rtt_us"]
    assert np.mean(np.abs(got - want) <= 10) > 0.9


def rwnd_limited_us(flow, ms):
    """What TCP_INFO would say of the receive window's limit at each time."""
    at_ns = np.array([flow.facts["start_ns"] + round((40 + t) * 1e6) for t in ms])
    return flow.answers(np.column_stack([at_ns, at_ns + 1]))["rwnd_limited_us"]


def test_a_burst_that_cwnd_cut_short_does_not_wait_for_the_receive_window():
    # After the short burst, 1.3 segments of window are left: one that the window had cut would have used them.
    talk = paced(40, answered=38, wscale=3)
    talk.ack(190, at(SEGMENTS * 39), window=round((3 * SEGMENTS + 3 + 1.3) * MSS) >> 3)
    talk.data(200, at(SEGMENTS * 40), SEGMENTS).data(201, at(SEGMENTS * 41), SEGMENTS).data(202, at(SEGMENTS * 42), 3)
    flow = talk.ack(239, at(SEGMENTS * 42 + 3), window=WIDE).flow()
    assert rwnd_limited_us(flow, [238])[0] == 0


def test_a_burst_that_reaches_the_windows_edge_waits_until_an_ack_opens_it():
    talk = paced(40, answered=38, wscale=3)
    talk.ack(190, at(SEGMENTS * 39), window=(3 * SEGMENTS + 3) * MSS >> 3)
    talk.data(200, at(SEGMENTS * 40), SEGMENTS).data(201, at(SEGMENTS * 41), SEGMENTS).data(202, at(SEGMENTS * 42), 3)
    flow = talk.ack(239, at(SEGMENTS * 42 + 3), window=WIDE).ack(300, at(SEGMENTS * 42 + 3), window=WIDE).flow()
    # From when the timer would have let the next one go, 1 ms after the last, until the ACK; not until the next send.
    assert rwnd_limited_us(flow, [238, 260]) == pytest.approx([35_000, 36_000], abs=100)


HALF_RATE_BPS = round(SEGMENTS * MSS / 2e-3)  # a burst would take 2 ms


@pytest.mark.parametrize(
    ("rate_Bps", "cwnd", "limited_us"),
    [
        (HALF_RATE_BPS, 100, 34_500),  # three segments take 1.5 ms from 202 on; then the window waits for 238
        (HALF_RATE_BPS, 3 * SEGMENTS + 4, 34_500),
        (HALF_RATE_BPS, 3 * SEGMENTS + 3, 0),  # all that cwnd allows is out: the kernel does not ask for the window
        # Twice as fast, each burst is half a millisecond late and gets that back: from 201.5, and from 202.375 on.
        (2 * HALF_RATE_BPS, 100, 500 + 35_625),
    ],
)
def test_pacing_and_cwnd_of_a_replay_tell_since_when_the_window_waits(rate_Bps, cwnd, limited_us):
    talk = paced(40, answered=38, wscale=3)
    talk.ack(190, at(SEGMENTS * 39), window=(3 * SEGMENTS + 3) * MSS >> 3)
    talk.data(200, at(SEGMENTS * 40), SEGMENTS).data(201, at(SEGMENTS * 41), SEGMENTS).data(202, at(SEGMENTS * 42), 3)
    flow = talk.ack(239, at(SEGMENTS * 42 + 3), window=WIDE).flow()
    at_ns = flow.facts["start_ns"] + 278_000_000
    decided = [(flow.facts["start_ns"], rate_Bps, cwnd, 0)]
    assert flow.answers([(at_ns, at_ns + 1)], decided)["rwnd_limited_us"][0] == pytest.approx(limited_us, abs=30)
    record = Record(flow, run=SimpleNamespace(decided=np.array(decided), marked=None, controller=BBR2022))
    held = counted(record, np.arange(0.0, 0.2781, 5e-4)).get("receive_window", np.zeros((0, 2)))
    assert np.diff(held).sum() * 1e6 == pytest.approx(limited_us, abs=500)  # a slice


@pytest.mark.parametrize(("after_us", "limited"), [(4, 1), (50, 0)])
def test_data_that_an_ack_lets_go_at_once_had_waited_for_cwnd(after_us, limited):
    # The short last segment empties the queue. What the next ACK lets go sooner than an application can write was
    # written before, and deferred because cwnd left too little for it.
    talk = Conversation()
    for k in range(10):
        talk.data(50.0 * k, at(4 * k), 4).ack(50.0 * k + 40, at(4 * k + 4), window=WIDE)
    talk.data(500, at(40), 4).data(500.01, at(44), 1, size=1000)
    end = at(44) + 1000
    talk.ack(540, at(42), window=WIDE).data(540 + after_us / 1000, end, 4).ack(600, end + 4 * MSS, window=WIDE)
    rows = acks(talk.flow())
    assert rows["is_cwnd_limited"][rows["ack"] == at(42)].tolist() == [limited]
