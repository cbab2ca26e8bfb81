"""What a replay makes of the sends: departure times, application-limited marks, idle restart, cwnd limitation."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace import datasets, schema
from cctrace.cc.base import LinuxController
from cctrace.flows.capture import read
from cctrace.flows.events import Events
from cctrace.flows.packed import EventColumns
from cctrace.flows.state import EVENT
from cctrace.identification.sends import _untimed_sends
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import loop
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.likelihood import (
    ALMOST_FULL,
    AS_LONG,
    SHORTER,
    any_send,
    is_by_timer,
    paced_send,
    send_time,
)
from cctrace.replaying.inference.probes import Probes
from cctrace.replaying.run import replay
from cctrace.schema import CLOCK_START_US
from tests.build_stack import NEUTRAL, tcp_record
from tests.test_stack_rules import Calls


class Watching(LinuxController):
    """Paces at a fixed rate and keeps what it reads."""

    held_us: int = 0
    limited: int = 0
    lost_limited: int = 0
    cwnd_limited: int = 0
    most_out: int = 0
    probing: int = 0
    restarts: int = 0

    def init(self, ack):
        self.pacing_rate = 1_448_000  # bytes/s: a segment of 1448 bytes takes a millisecond

    def on_ack(self, ack):
        self.held_us = (ack.wstamp_ns - ack.clock_ns) // 1000
        self.limited = ack.rs_is_app_limited
        self.cwnd_limited = ack.is_cwnd_limited
        self.most_out = ack.max_packets_out
        if self.probing != 0:  # as bbr_update_min_rtt does in PROBE_RTT
            self.app_limited = ack.delivered + self.packets_in_flight(ack)

    def skb_marked_lost(self, ack):
        self.lost_limited = ack.skb_tx_app_limited

    def ssthresh(self, ack):
        return self.snd_ssthresh

    def cwnd_event(self, ack):
        if ack.arg == 0 and self.app_limited != 0:
            self.restarts += 1


def watch(calls, name, **state):
    """Return what `Watching` held in a field after each call."""
    return calls.run(Watching, record=[name], **state)[name].tolist()


def test_a_segment_departs_its_length_after_its_predecessor_once_ten_are_out():
    calls = Calls().call("init")
    for k in range(12):
        calls.at(1_010_000 + 2_000 * k).send(in_flight=k + 1).call("on_ack")
    # The first nine are not paced; each later one left more than 1 ms late, and gets half of its length back.
    assert watch(calls, "held_us") == [0] * 10 + [500] * 3


def test_segments_of_a_super_packet_are_paced_as_one():
    calls = Calls().call("init")
    calls.at(1_010_000).send(segments=10, in_flight=10)
    calls.at(1_030_000).send(segments=2, in_flight=12).send(segments=2, in_flight=14, begins=0).call("on_ack")
    assert watch(calls, "held_us")[-1] == 4 * 1000 - 2 * 1000  # 10 ms late: half of it is credit


@pytest.mark.parametrize(("asked_ns", "late_ns"), [(900, 0), (1200, 200), (1300, 300), (1500, 300)])
def test_a_super_packet_is_late_by_what_tcp_asked_late_not_by_what_it_waited_in_fq_beyond_the_estimate(
    asked_ns, late_ns
):
    tcp = tcp_record()
    tcp.wstamp_ns = 1000
    sk.begin_skb(1300, asked_ns, tcp)
    assert 1300 - tcp.prior_wstamp_ns == late_ns


def test_an_application_with_nothing_to_send_marks_what_it_sends_next():
    calls = Calls(packets_out=3, delivered=100).call("init").at(1_020_000)
    calls.send(in_flight=4, app_limited=1).call("on_ack", rs_send=0)
    calls.at(1_030_000).send(in_flight=5).call("on_ack", delivered=103, rs_send=1)  # the bubble ends at 100 + 3
    calls.at(1_040_000).call("on_ack", delivered=104, rs_send=1)
    calls.at(1_050_000).send(in_flight=5).call("on_ack", delivered=105, rs_send=2)
    assert watch(calls, "app_limited") == [0, 103, 103, 0, 0]
    assert watch(calls, "limited") == [0, 1, 1, 1, 0]  # whatever was delivered meanwhile: the send was marked


@pytest.mark.parametrize(
    ("paced", "snd_wnd", "silence_ms", "marked"),
    [(1, 99_999, 40, 1), (1, 10_000, 40, 0), (1, 99_999, 4, 0), (0, 99_999, 40, 0)],
)
def test_a_long_silence_of_a_paced_sender_that_no_window_explains_is_the_applications(
    paced, snd_wnd, silence_ms, marked
):
    calls = (
        Calls(packets_out=3, delivered=100, snd_wnd=snd_wnd)
        .at(1_000_000 if paced else 1_020_000)
        .call("init")
        .at(1_020_000)
    )
    calls.send(in_flight=4, snd_nxt=10_000)  # 20 ms after a call, or with it
    calls.at(1_020_000 + silence_ms * 1000).call("on_ack", delivered=101, is_cwnd_limited=1)
    calls.send(in_flight=4).call("on_ack", delivered=102, rs_send=1, is_cwnd_limited=1)
    assert watch(calls, "limited")[-1] == marked


def test_a_mark_ends_with_what_it_marked():
    # It stayed for good once: a mark of 100 was still set when 5000 were delivered.
    calls = Calls(packets_out=1, delivered=99).call("init").at(1_020_000).send(in_flight=2, app_limited=1)
    calls.call("on_ack", delivered=100).at(1_900_000).call("on_ack", delivered=5000)
    assert watch(calls, "app_limited") == [0, 100, 0]


def test_what_is_sent_in_probe_rtt_is_marked_and_what_is_sent_later_is_not():
    calls = Calls(packets_out=4, delivered=100).call("init").at(1_010_000)
    calls.call("on_ack").send(in_flight=4)  # marked: 100 + 4
    calls.at(1_020_000).call("on_ack", delivered=104, rs_send=0)
    assert watch(calls, "limited", probing=1) == [0, 0, 1]
    assert watch(calls, "limited") == [0, 0, 0]


def test_the_samples_of_lost_segments_are_marked_too():
    calls = Calls(packets_out=3, delivered=100).call("init").at(1_020_000).send(in_flight=4, app_limited=1)
    calls.at(1_030_000).call("skb_marked_lost", rs_send=0)
    assert watch(calls, "lost_limited") == [0, 1]


@pytest.mark.parametrize("limited", [0, 1])
def test_a_start_after_silence_restarts_from_idle_only_if_the_application_was_silent(limited):
    # TX_START comes before the send that it announces, tcp_rate_check_app_limited before both.
    calls = Calls(delivered=500).call("init").at(4_000_000)
    calls.cwnd_event("TX_START", packets_out=0).send(in_flight=1, app_limited=limited).call("on_ack", packets_out=1)
    assert watch(calls, "restarts") == [0, limited, limited]


@pytest.mark.parametrize("name", ["bbr2016", "bbr2022", "bbr2", "bbr3"])
def test_every_bbr_restarts_from_idle_before_its_first_probe_rtt(name):
    calls = Calls(delivered=500, srtt_us8=8 * 40_000).call("init").at(4_000_000)
    calls.cwnd_event("TX_START", packets_out=0).send(in_flight=1, app_limited=1)
    assert calls.run(name, record=["idle_restart"])["idle_restart"].tolist()[-1] == 1


def test_a_paced_sender_is_limited_by_its_own_window_not_by_the_recorded_ones():
    calls = Calls(is_cwnd_limited=1, max_packets_out=99).call("init").at(1_020_000)
    calls.send(in_flight=7, packets_out=7, snd_nxt=9_000).at(1_030_000).call("on_ack", packets_out=7)
    calls.send(in_flight=10, packets_out=10, snd_nxt=10_000).at(1_040_000).call("on_ack", packets_out=10)
    assert watch(calls, "cwnd_limited", snd_cwnd=10) == [0, 0, 1]
    assert watch(calls, "most_out", snd_cwnd=10) == [0, 7, 10]
    assert watch(calls, "cwnd_limited", snd_cwnd=20) == [0, 0, 0]


@pytest.mark.parametrize(("cwnd", "grown"), [(20, 20), (10, 11)])
def test_an_unpaced_window_grows_while_it_is_the_limit_and_not_while_a_send_buffer_is(cwnd, grown):
    calls = Calls(is_cwnd_limited=1, max_packets_out=99).call("init").at(1_020_000).call("on_ack")
    calls.send(segments=10, in_flight=10, packets_out=10).at(1_030_000).call("cong_avoid", arg=10, packets_out=10)
    assert calls.run("reno", snd_cwnd=cwnd, snd_ssthresh=5)["cwnd"].tolist() == [cwnd, cwnd, grown]


@pytest.mark.parametrize(("later", "limited"), [(8, 1), (3, 0)])
def test_what_leaves_as_soon_as_there_is_room_for_a_super_packet_had_waited_for_it(later, limited):
    """9 of 10 segments are in flight; super-packets have two, so nobody waits for more room than that."""
    calls = Calls(is_cwnd_limited=1, rs_acked_sacked=1).call("init").at(1_020_000).call("on_ack")
    calls.send(in_flight=9, packets_out=9, snd_nxt=10_000).at(1_030_000).call("on_ack", packets_out=later)
    calls.send(in_flight=later + 1, snd_nxt=11_000)
    calls.at(1_040_000).call("cong_avoid", arg=10)
    assert calls.run("reno", snd_cwnd=10, snd_ssthresh=5)["cwnd"].iloc[-1] == 10 + limited


@pytest.mark.parametrize(("snd_wnd", "limited"), [(9_000 + 1449, 1), (9_000 + 1448, 0)])
def test_what_the_receive_window_holds_back_as_cwnd_does_is_not_held_back_by_cwnd(snd_wnd, limited):
    """Both have room for a segment, and super-packets have two; a CUBIC's slow start ended at 349 instead of 340."""
    calls = Calls(is_cwnd_limited=1, snd_wnd=snd_wnd).call("init").at(1_020_000)
    calls.send(in_flight=9, packets_out=9, snd_nxt=9_000).at(1_030_000).call("on_ack", packets_out=9, snd_nxt=9_000)
    assert watch(calls, "cwnd_limited", snd_cwnd=10)[-1] == limited


@pytest.mark.parametrize(("cwnd", "app_limited", "grown"), [(10, 1, 11), (30, 1, 30), (30, 0, 31)])
def test_a_window_with_room_does_not_limit_what_an_application_writes_whatever_the_sends_look_like(
    cwnd, app_limited, grown
):
    """8 segments leave between ACKs; Nagle lets the end of a write go upon an ACK, as cwnd would (seed 335732)."""
    calls = Calls(is_cwnd_limited=1, max_packets_out=99, rs_is_app_limited=app_limited).call("init").at(1_010_000)
    calls.call("on_ack").at(1_020_000).send(segments=8, in_flight=8, packets_out=8).at(1_030_000)
    calls.call("cong_avoid", arg=cwnd, packets_out=8)
    assert calls.run("reno", snd_cwnd=cwnd, snd_ssthresh=5)["cwnd"].iloc[-1] == grown


@pytest.mark.parametrize(("cwnd", "grown"), [(15, 16), (16, 16), (17, 17)])
def test_in_slow_start_an_application_lets_a_window_grow_to_twice_what_it_had_in_flight(cwnd, grown):
    """tcp_is_cwnd_limited, which the recorded count exceeds: 263 in flight of a full send buffer, 526 (seed 334747)."""
    calls = Calls(is_cwnd_limited=1, max_packets_out=99, rs_is_app_limited=1).call("init").at(1_010_000)
    calls.call("on_ack").at(1_020_000).send(segments=8, in_flight=8, packets_out=8).at(1_030_000)
    calls.call("cong_avoid", arg=1, packets_out=8)
    assert calls.run("reno", snd_cwnd=cwnd)["cwnd"].iloc[-1] == grown


@pytest.fixture(scope="module")
def beginning():
    """The first seconds of a recorded BBR flow: STARTUP, DRAIN, a gain cycle whose phase is inferred."""
    flow = read(datasets.path("single_bbr_1bdp") / "sender.pcap.zst").flow(0)
    rows = int(np.searchsorted(flow.events["time_ns"], flow.events["time_ns"][0] + 1_500_000_000))
    events = type(flow.events)(flow.events.rows[:rows], flow.facts, flow.events.sends)
    return type("Beginning", (), {"events": events, "hz": flow.hz})()


@pytest.mark.parametrize("name", ["bbr2022", "bbr2plus", "cubic6"])
def test_compiled_and_interpreted_replays_agree_in_all_state_draws_included(beginning, name):
    compiled, interpreted = (replay(beginning, name, mode=mode, record="all") for mode in ("compiled", "interpreted"))
    assert repr(compiled.inferred) == repr(interpreted.inferred)  # without a cycle, `in_step` is NaN
    assert compiled.state == interpreted.state
    assert compiled.decisions.equals(interpreted.decisions)


def test_a_replay_changes_nothing_of_what_was_recorded(beginning):
    before = beginning.events.rows.copy(), beginning.events.sends.copy()
    first = replay(beginning, "bbr2").decisions
    assert (beginning.events.rows == before[0]).all()
    assert (beginning.events.sends == before[1]).all()
    assert replay(beginning, "bbr2").decisions.equals(first)


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_numbers_that_nothing_infers_are_warned_of(beginning, mode):
    class Gambler(LinuxController):
        """Draws, and does not say what a replay could infer."""

        drawn: int = 0

        def on_ack(self, ack):
            self.drawn = self.random_below(ack, 100)

        def ssthresh(self, ack):
            return self.snd_ssthresh

    assert any("Gambler draws random numbers" in text for text in replay(beginning, Gambler, mode=mode).warnings)
    assert not replay(beginning, "reno", mode=mode).warnings


@pytest.mark.parametrize(
    ("likelihood", "refined"),
    [
        # A long flight, seed 264003: at half-RTT steps every wait explains less than never probing; 3.34 s is right.
        ({0: -4787.0, 1: -4526.0, 2: -4247.0, 3: -5501.0, 4: -2907.0}, {2, 4}),
        ({0: 217.0, 1: 835.0, 2: -4581.0, 3: 400.0, 4: -2874.0}, {1}),
        ({0: 217.0, 1: 835.0, 2: -4581.0, 3: 600.0, 4: -2874.0}, {1, 3}),
    ],
)
def test_which_peaks_of_the_wait_for_a_probe_are_refined(likelihood, refined):
    acks = np.arange(5 * 250)
    follower = SimpleNamespace(passed=list, save=tuple, restore=lambda before: None)
    searched = SimpleNamespace(
        saved=[],
        return_to=lambda row: 0.0,
        now_us=acks * 200,
        acks=acks,
        ack_rows=lambda times_us: None,
        scan=lambda rows, rtt_us, lower: {250 * row: one for row, one in likelihood.items()},
        around=lambda peak, rtt_us: np.array(peak),
        follower=follower,
    )
    assert Probes.search(searched, 0, len(acks) - 1, 95_000) == {250 * row for row in refined}


def test_a_sharp_peak_beside_many_equal_instants_is_found():
    """Before a pause all instants are equal but those around 1.17 s, between two of the search's (seed 322108)."""
    fits = np.where(np.arange(2000) < 1160, 0.0, 191.0)
    fits[1165:1175] = 210.0
    fits[1900:] = -50.0
    run = SimpleNamespace(passed=list, save=tuple, restore=lambda before: None, srtt_us=lambda rows: 120_000)
    searched = Probes.__new__(Probes)
    searched.saved, searched.return_to = [], lambda row: 0.0
    searched.follower, searched.now_us, searched.acks = run, np.arange(2000) * 1000, np.arange(2000)
    searched.acks_us = searched.now_us
    searched.scan = lambda rows, rtt_us, lower: {row: float(fits[row]) for row in rows}
    tried = searched.search(0, 1999, 120_000)
    assert max(fits[row] for row in tried) == 210.0


@pytest.mark.parametrize(
    ("ca_state", "cwnd", "flight", "full"),
    [
        *((0, 300, 296, 0), (0, 300, 297, 1), (1, 300, 297, 1), (3, 300, 297, 0), (3, 300, 299, 0), (3, 300, 300, 1)),
        *((0, 2, 2, 1), (0, 2, 1, 0)),  # a third of which is less than a segment
    ],
)
def test_an_ack_finds_a_window_full_that_has_no_room_for_a_super_packet_however_short_the_last_one_was(
    ca_state, cwnd, flight, full
):
    ctx, slots, tcp = np.zeros(cx.CONTEXT_SIZE, np.int64), np.zeros(8, np.int64), tcp_record()
    ctx[cx.SCORE], ctx[cx.OWN_MIN_RTT] = cx.PACED_SENDS, -1
    slots[sk.CWND], slots[sk.PACING] = cwnd, 4 * 1448 * 1024  # super-packets of four segments
    tcp.mss, tcp.min_rtt_us = 1448, 50_000
    ack = SimpleNamespace(**NEUTRAL)
    ack.ca_state, ack.rs_prior_in_flight = ca_state, flight
    assert loop.was_full(ctx, SimpleNamespace(is_cwnd_limited=1), ack, slots, tcp) == full


@pytest.mark.parametrize(
    "scored",
    [
        lambda send, slots, tcp: any_send(send, 0, slots, tcp, 1000, 0, -1, 0),
        lambda send, slots, tcp: paced_send(send, 0, slots, tcp, -1, 0, 1),
    ],
)
def test_a_super_packet_that_cwnd_cuts_is_as_long_as_its_sender_could_make_it(scored):
    """Else a window-limited probe, which paces faster, would seem to make all super-packets too short (seed 327107)."""
    send = np.zeros(1, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins, send.segments, send.in_flight = 1, 8, 20
    slots, tcp = np.zeros(64, np.int64), tcp_record()
    slots[sk.PACING], tcp.mss = 100_000_000, 1448  # bytes/s: 45 segments, all that a device takes
    tcp.wstamp_ns = 1_000_000
    fits = []
    for cwnd in (20, 30):  # eight segments are all that the first leaves room for; the second, eighteen
        slots[sk.CWND] = cwnd
        fits.append(scored(send, slots, tcp))
    assert fits[0] - fits[1] == pytest.approx(np.log(AS_LONG * 18 / SHORTER))


@pytest.mark.parametrize(
    "scored",
    [
        lambda send, slots, tcp: any_send(send, 0, slots, tcp, 1000, 80_000, -1, 0),
        lambda send, slots, tcp: paced_send(send, 0, slots, tcp, -1, 0, 1),
    ],
)
def test_a_retransmission_is_not_late_before_the_ack_that_shows_the_loss(scored):
    """Without other data it waits for that ACK; a smaller window would seem to explain it better (seed 331037)."""
    send = np.zeros(1, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins, send.segments, send.in_flight, send.tx_ns = 1, 1, 20, 9_000_000
    slots, tcp = np.zeros(64, np.int64), tcp_record()
    slots[sk.PACING], slots[sk.CWND], tcp.mss = 10_000_000, 60, 1448
    tcp.wstamp_ns, tcp.acked_ns = 1_000_000, 9_000_000
    send.retransmitted = 1
    free = scored(send, slots, tcp)
    tcp.cwnd_was_full = 1
    assert scored(send, slots, tcp) == free


@pytest.mark.parametrize(
    ("cwnd", "in_flight", "segments", "oldest_us", "likelihood"),
    [
        (12, 10, 2, 0, AS_LONG),
        (13, 10, 3, 0, AS_LONG),  # two and one, which leave together
        (13, 10, 2, 0, ALMOST_FULL),
        (15, 10, 4, 10_000, AS_LONG),  # twice two; the next ACK is near, and makes room for more than one
        (4, 1, 2, 10_000, AS_LONG),  # of four, a third is more than the last one
        (3, 1, 1, 10_000, ALMOST_FULL),  # of three, it is a third, which does not wait
    ],
)
def test_an_ack_lets_out_all_that_cwnd_allows_in_however_many_super_packets(
    cwnd, in_flight, segments, oldest_us, likelihood
):
    """Else a window of two segments seems to explain better that three left at once (seed 335304)."""
    send = np.zeros(2, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.tx_ns = 20_000_000 - 1000 * oldest_us, 20_000_000
    send.begins, send.segments, send.in_flight, send.snd_nxt = 1, (1, segments), (1, in_flight + segments), (1, 2)
    slots, tcp = np.zeros(64, np.int64), tcp_record()
    slots[sk.CWND], tcp.mss, tcp.min_rtt_us = cwnd, 1448, 50_000  # unpaced, super-packets of two
    tcp.cwnd_was_full, tcp.acked_ns = 1, 20_000_000
    at_once = send_time(20_000_000, True, slots, tcp, 1000)
    found = any_send(send, 1, slots, tcp, 1000, 80_000, -1, 0)
    assert found - at_once == pytest.approx(np.log(likelihood))


@pytest.mark.parametrize(
    ("again", "segments", "in_flight", "silent_us", "by_timer"),
    [
        (1, 1, 3, 11_000, True),
        (1, 1, 3, 9_000, False),
        (0, 1, 3, 21_000, True),  # a tail-loss probe of one new segment, which cwnd does not hold back
        (0, 1, 3, 19_000, False),
        (0, 2, 4, 21_000, False),
        (0, 1, 1, 21_000, False),  # nothing is outstanding, so no timer runs
    ],
)
def test_what_a_timer_sends_is_a_retransmission_or_one_new_segment(again, segments, in_flight, silent_us, by_timer):
    send = np.zeros(2, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins, send.segments, send.in_flight, send.retransmitted = 1, segments, in_flight, again
    send.tx_ns = CLOCK_START_US * 1000, CLOCK_START_US * 1000 + 1000 * silent_us
    assert is_by_timer(send, 1, send.tx_ns[0], 80_000) == by_timer
    rows = np.zeros(2, EVENT)
    rows["srtt_us8"] = 80_000
    send.row = 1, 2
    meta = {"mss": 1448, "start_ns": 0}
    own = _untimed_sends(Events(EventColumns.of(rows), meta, send), np.array([2, 3]))
    assert own.tolist() == [1, 0 if by_timer else 1]


@pytest.mark.parametrize(
    ("ends_write", "lost", "hands_over", "left_ns", "marked"),
    [
        (1, 0, False, 0, True),
        (0, 0, False, 0, False),  # more may be waiting
        (1, 1, False, 0, False),  # what is lost has not been sent again
        (1, 0, True, 900, True),
        (1, 0, True, 1_000, False),  # fq still holds it
    ],
)
def test_an_ack_that_finds_nothing_to_send_marks_what_is_sent_again_after_it(
    ends_write, lost, hands_over, left_ns, marked
):
    send = np.zeros(1, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins, send.segments, send.packets_out, send.ends_write, send.time_ns = 1, 1, 20, ends_write, left_ns
    rows = np.zeros(2, EVENT)
    rows["time_ns"], rows["packets_out"], rows["sacked_out"] = (0, 1_000), 20, 4
    tables = tuple(table.view(np.recarray) for table in EventColumns.of(rows).tables)
    ack = SimpleNamespace(**NEUTRAL)
    ack.rs_prior_in_flight, ack.delivered, ack.lost_out = 16 - lost, 100, 3  # three lost by this ACK
    slots, tcp = np.zeros(8, np.int64), tcp_record()
    slots[sk.CWND], tcp.next_send, tcp.new_data_end = 30, 1, 1
    sk.mark_app_limited_by_ack(tables, 1, send, hands_over, ack, slots, tcp)
    assert slots[sk.APP_LIMITED] == (116 if marked else 0)


@pytest.mark.parametrize("hands_over", [False, True])
@pytest.mark.parametrize(("again", "payload", "marked"), [(0, 105, True), (2, 105, True), (2, 1448, False)])
def test_an_ack_that_finds_only_the_short_end_of_a_write_marks_it_also_if_more_is_sent_again_first(
    again, payload, marked, hands_over
):
    """Nagle holds 105 bytes back; what the ACK shows to be lost leaves before them (seeds 335720, 335721)."""
    send = np.zeros(2 + again, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins, send.segments, send.packets_out, send.payload = 1, 1, 16, 1448
    send.retransmitted[1 : 1 + again] = 1
    send.ends_write[-1], send.payload[-1], send.row[1:] = 1, payload, 2
    rows = np.zeros(2, EVENT)
    rows["time_ns"], rows["packets_out"] = (0, 1_000), 16
    tables = tuple(table.view(np.recarray) for table in EventColumns.of(rows).tables)
    ack = SimpleNamespace(**NEUTRAL)
    ack.rs_prior_in_flight, ack.delivered, ack.mss = 16, 100, 1448
    slots, tcp = np.zeros(8, np.int64), tcp_record()
    slots[sk.CWND], tcp.next_send, tcp.new_data_end = 30, 1, 1
    sk.mark_app_limited_by_ack(tables, 1, send, hands_over, ack, slots, tcp)
    assert slots[sk.APP_LIMITED] == (116 if marked else 0)


def test_a_long_run_of_retransmissions_is_passed_once_and_not_with_every_ack():
    """Else a file of retransmissions, each acknowledged alone, would take time by the square of their number."""
    count, reads = 200, []
    found = np.zeros(count, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    found.retransmitted[1:-1] = 1
    found.begins[-1] = found.ends_write[-1] = 1  # an empty write's end: less than a segment waits

    class Sends:
        size = count

        def __getitem__(self, k):
            reads.append(k)
            return found[k]

    tables = tuple(table.view(np.recarray) for table in EventColumns.of(np.zeros(2, EVENT)).tables)
    ack = SimpleNamespace(**NEUTRAL)
    ack.delivered, ack.mss = 100, 1448
    slots, tcp = np.zeros(8, np.int64), tcp_record()
    slots[sk.CWND], tcp.new_data_end = 30, 1
    for k in range(1, count):
        slots[sk.APP_LIMITED], tcp.next_send = 0, k
        sk.mark_app_limited_by_ack(tables, 1, Sends(), False, ack, slots, tcp)
        assert slots[sk.APP_LIMITED] > 0
    assert len(reads) < 10 * count


def test_acks_of_one_instant_are_not_read_again_with_every_one_of_them():
    """Else a file whose ACKs all have one time stamp would take time by the square of their number."""
    count, reads = 200, []
    send = np.zeros(1, [(column.name, column.dtype) for column in schema.SENDS]).view(np.recarray)
    send.begins = send.ends_write = send.segments = 1
    calls, *others = (table.view(np.recarray) for table in EventColumns.of(np.zeros(count, EVENT)).tables)

    class Calls:
        def __getitem__(self, i):
            reads.append(i)
            return calls[i]

    ack = SimpleNamespace(**NEUTRAL)
    ack.delivered, ack.mss = 100, 1448
    slots, tcp = np.zeros(8, np.int64), tcp_record()
    slots[sk.CWND], tcp.next_send, tcp.new_data_end = 30, 1, 1
    for i in range(1, count):
        slots[sk.APP_LIMITED] = 0
        sk.mark_app_limited_by_ack((Calls(), *others), i, send, False, ack, slots, tcp)
        assert slots[sk.APP_LIMITED] > 0
    assert len(reads) < 10 * count
