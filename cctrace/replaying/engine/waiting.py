"""What limited a sender when it did not send: cwnd, or the application.

A recorded sender was limited by its own controller's cwnd. A replayed one is limited by its own cwnd and the data
in flight: plain functions of the row loop (`loop`).

Sources: [Linux618] net/ipv4/tcp_output.c tcp_write_xmit, tcp_tso_should_defer, tcp_cwnd_validate.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from cctrace.cc.linux import CA_DISORDER, CA_RECOVERY
from cctrace.columns import Bools, Values
from cctrace.flows.events import Events
from cctrace.flows.packed import Records
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.likelihood import segments_of
from cctrace.schema import CLOCK_START_US, ON_ACK
from cctrace.tcp.pacing import TSO_WIN_DIVISOR, waits_for_ack

SOON_NS = 1_000_000  # after the pacing timer, until packets without another limit have left
SILENT_NS = 10_000_000  # beyond a timer's lateness and most stalls: nothing was there to be sent
ANSWERED_NS = 60_000  # after an ACK, until the stack has sent what it releases
_answers: weakref.WeakKeyDictionary[Records, _Answers] = weakref.WeakKeyDictionary()  # flows as captured share sends


class _Answers(NamedTuple):
    """Which super-packets left just after an ACK, or with one that did; how many; whether all new data did."""

    answered: Bools
    number: int
    all_new: bool


def answers_acks(events: Events, sends: Values) -> Bools:
    """Return which super-packets left just after an ACK, or with one that did."""
    return _answers_to(events, sends).answered


def _answers_to(events: Events, sends: Values) -> _Answers:
    """Return which super-packets answer ACKs; of new data, those count that the application did not time."""
    known = events.sent is not None
    if known and events.sent in _answers:
        return _answers[events.sent]
    answered = np.zeros(np.count_nonzero(sends["begins"]), np.bool_)
    number, timed = 0, 0
    if len(answered) and len(events):
        start_ns = events.meta["start_ns"] - CLOCK_START_US * 1000
        first, gaps, short = _gaps(events.stream.tables)
        soon_ns = ANSWERED_NS
        if gaps and 2 * short >= gaps:  # a timer, too, fires sooner after an ACK than others come
            acks = np.flatnonzero(events["event"] == ON_ACK)
            soon_ns = int(min(float(np.median(np.diff(events.at("time_ns", acks)))) / 4, ANSWERED_NS))
        first = 0 if events.meta["complete"] else max(first, 0)
        number, timed = _find_answers(events.stream.tables, sends, start_ns, first, soon_ns, answered)
    found = _Answers(answered, number, timed == 0)
    if known:
        _answers[events.sent] = found
    return found


def gaps_between_acks(rows):
    """Return the row of the first ACK (-1: none), how many gaps are between ACKs, and how many of them are short."""
    calls, states, _ = rows
    first, number, short = -1, 0, 0
    before_ns = states[0].time_ns
    for i in range(calls.size):
        if calls[i].event == ON_ACK:
            now_ns = states[calls[i].of].time_ns
            if first < 0:
                first = i
            else:
                number += 1
                short += 1 if now_ns - before_ns < 4 * ANSWERED_NS else 0
            before_ns = now_ns
    return first, number, short


def find_answers(rows, sends, start_ns, first, soon_ns, answered):
    """Fill in which super-packets answer an ACK; return how many, and of how many new ones this is not so.

    `first`: row of the first ACK of a capture from mid-connection, before which it does not show what was answered.
    `soon_ns`: after an ACK, within which a timer rarely fires.
    """
    calls, states, _ = rows
    number, timed, k, before_ns = 0, 0, 0, -ANSWERED_NS
    for j in range(sends.size):
        send = sends[j]
        if send.begins != 0:
            row = min(max(send.row - 1, 0), calls.size - 1)
            acked_ns = states[calls[row].of].time_ns - start_ns
            late_ns = send.tx_ns - max(acked_ns, before_ns)
            if late_ns <= ANSWERED_NS:
                answered[k] = True
                number += 1
            if late_ns > soon_ns and send.retransmitted == 0 and send.app_limited == 0 and send.row > first:
                timed += 1
            before_ns = np.int64(send.tx_ns)
            k += 1
    return number, timed


_gaps, _find_answers = Machine(gaps_between_acks), Machine(find_answers)


def own_sends(events: Events, sends: Values) -> Bools:
    """Return which sends begin a super-packet that the application did not time, see `likelihood.is_written`."""
    short = (sends["ends_write"] != 0) & (sends["payload"] < events.meta["mss"])
    return np.asarray((sends["begins"] != 0) & (sends["app_limited"] == 0) & ~short)


def is_ack_clocked(events: Events, sends: Values) -> bool:
    """Return whether most super-packets answer an ACK: ACK clocking, no pacing."""
    found = _answers_to(events, sends)
    return 2 * found.number > len(found.answered)


def shows_no_timer(events: Events, sends: Values) -> bool:
    """Return whether all new data that the application did not time answers an ACK, as no pacing timer lets it."""
    return _answers_to(events, sends).all_new


def is_limit_replayed(ctx, sends, slots):
    """Whether the replayed cwnd, not the recorded one, determines what limited the sender.

    It does for a controller without pacing if sends were ACK-clocked: a paced sender may have been limited by its
    timer. It does not if such controllers are compared: a cwnd that stops growing just above the data in flight
    would make any sends look ACK-clocked.
    """
    if ctx[cx.PACED] != 0 or (sends.size > 0 and is_paced(ctx, slots)):
        return True
    return ctx[cx.ACK_CLOCKED] != 0 and ctx[cx.SCORE] < cx.ALL_SENDS


def is_flag_doubted(row):
    """Whether samples are application-limited, so that the recorded is_cwnd_limited may be wrong.

    What leaves upon an ACK may then have waited for the ACK of a small segment [Linux618] tcp_nagle_test. The flag
    counts if the replayed cwnd had less room than a third: with more, nothing waits for cwnd (tcp_tso_should_defer).
    """
    return row.app_limited != 0 or row.rs_is_app_limited != 0


def is_paced(ctx, slots):
    """Whether the socket paces independently of its controller."""
    return ctx[cx.PACED_SLOT] >= 0 and slots[ctx[cx.PACED_SLOT]] != 0


def is_deferred(rows, sends, room, burst, slots, tcp):
    """Whether data for which cwnd has `room` wait for a super-packet of `burst` segments [Linux618]
    tcp_tso_should_defer.

    They would fill the room, and the ACK that enlarges it releases them; data written later find more room.
    """
    calls, states, _ = rows
    k = tcp.next_send
    if k == sends.size or not 0 < sends[k].row <= calls.size or segments_of(sends, k) < room:
        return False
    later = slots[sk.CWND] - (np.int64(sends[k].in_flight) - np.int64(sends[k].segments))
    call = calls[sends[k].row - 1]
    return later - (np.int64(states[call.of].rs_acked_sacked) if call.sampled else 0) < burst


def awaits_more(ctx, row, sends, room, clock_ns, slots, tcp):
    """Whether TCP, which hands over to fq, waits after `row` for the next ACK, as cwnd has too little `room`.

    Not for what is left of an skb, which may grow into the room but no further [Linux618] tcp_grow_skb. It decides
    with the ACK and, if TCP Small Queues hold it back then, when a packet leaves, last before `clock_ns`: it may leave
    up to fq's slack after its time.
    """
    last = tcp.next_send - 1
    k = sk.oldest_outstanding(sends, last, tcp)
    if k > last or 0 < sends[last].skb_left <= room:
        return False
    start_ns = ctx[cx.START_NS] - CLOCK_START_US * 1000
    while last > k and sends[last].time_ns - start_ns >= clock_ns:
        last -= 1
    now_ns, mss = max(tcp.acked_ns, sends[last].time_ns - start_ns), tcp.mss
    longest = sk.usual_burst(slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST]) * mss
    third = slots[sk.CWND] * mss // TSO_WIN_DIVISOR
    idle_ns, age_ns = now_ns - tcp.wstamp_ns, now_ns - sends[k].tx_ns
    return waits_for_ack(room * mss, longest, third, idle_ns, age_ns, np.int64(row.srtt_us8) * 125)


def is_more_waiting(waiting, room):
    """Whether more waits than `room` segments, so that TCP may defer. It counts up to MANY; one never waits."""
    return waiting > 1 and waiting >= min(room, cx.MANY)


def window_left(row, snd_nxt):
    """Bytes for which the receive window has room after a row, or after the sends since then, up to `snd_nxt`."""
    return row.snd_una + np.int64(row.snd_wnd) - snd_nxt


def take_held(ctx, rows, i, sends, marks, clock_ns, slots, tcp):
    """The pacing timer expired before `clock_ns` and nothing was sent: because of cwnd, if it has no room for a
    super-packet.

    Row `i` is the last one before. Data that cwnd allows may wait for the next ACK, because of cwnd if the receive
    window leaves more room: [Linux618] tcp_tso_should_defer. With fq, TCP has no pacing timer, and cwnd is checked with
    every ACK. It is not while nothing waits ([Linux618] __tcp_push_pending_frames), nor does it limit what has room:
    one segment, or all that waits.
    """
    row = sk.state_of(rows, i)
    if (tcp.wstamp_ns > clock_ns and ctx[cx.HANDS_OVER] == 0) or tcp.next_send == 0:
        return
    waiting = marks[tcp.next_send - 1] >> cx.WAITS if ctx[cx.MARKED] != 0 else cx.MANY
    if waiting == 0:
        return
    if tcp.silent_since_ack != 0:
        packets_out, snd_nxt, in_flight = np.int64(row.packets_out), row.snd_nxt, sk.flight_of(row)
    else:
        send = sends[tcp.next_send - 1]
        packets_out, snd_nxt, in_flight = np.int64(send.packets_out), send.snd_nxt, np.int64(send.in_flight)
    room = slots[sk.CWND] - in_flight
    if ctx[cx.HANDS_OVER] != 0:
        short = awaits_more(ctx, row, sends, room, clock_ns, slots, tcp)
    else:
        burst = sk.least_burst(slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST])
        paced = ctx[cx.PACED] != 0 or is_paced(ctx, slots)
        short = room < burst and (paced or is_deferred(rows, sends, room, burst, slots, tcp))
    short = short and is_more_waiting(waiting, room) and room * tcp.mss < window_left(row, snd_nxt)
    if room <= 0 or (tcp.ca_state < CA_RECOVERY and short):
        sk.validate_cwnd(True, packets_out, snd_nxt, tcp.snd_una, tcp)


def note_unanswered(ctx, prior, last, clock_ns, slots, tcp):
    """Nothing was sent after `last` by `clock_ns`: count it if neither pacing nor a window explains that.

    The ACK before may just cross what it releases, unless the silence lasts. Sends that are ACK-clocked were not paced,
    so another controller sent them, and its cwnd may explain the silence. While losses are repaired only the kernels of
    BBRv2 and v3 mark it, which ask with every ACK.
    """
    late_ns = clock_ns - max(tcp.wstamp_ns, tcp.acked_ns)
    silent = late_ns > SILENT_NS and ctx[cx.ACK_CLOCKED] == 0
    unanswered = tcp.silent_since_ack != 0 and clock_ns >= tcp.wstamp_ns + SOON_NS
    if not (silent or unanswered):
        return
    needed = sk.least_burst(slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST])
    if tcp.ca_state > CA_DISORDER:
        if ctx[cx.BY_ACKS] == 0:
            return
        if tcp.ca_state >= CA_RECOVERY:  # in which nothing waits for more room [Linux618] tcp_tso_should_defer
            needed = np.int64(1)
    if room_after(prior, last, slots, tcp) >= needed:
        tcp.unanswered_acks += sk.FEW_UNANSWERED if silent else 1


def room_after(prior, last, slots, tcp):
    """Segments for which both windows have room after row `prior`, or after the send `last` if that follows it."""
    if tcp.silent_since_ack != 0:
        in_flight, snd_nxt = sk.flight_of(prior), prior.snd_nxt
    else:
        in_flight, snd_nxt = np.int64(last.in_flight), last.snd_nxt
    return min(slots[sk.CWND] - in_flight, window_left(prior, snd_nxt) // tcp.mss)


def note_unanswered_unpaced(prior, last, clock_ns, slots, tcp):
    """The same without pacing: a sender does not wait for more room than a third of the smaller window.

    It responds at once, and many receivers acknowledge two segments at a time, so the second such ACK is decisive.
    """
    window = min(slots[sk.CWND], np.int64(prior.snd_wnd) // tcp.mss)
    room, late = room_after(prior, last, slots, tcp), clock_ns - tcp.acked_ns > ANSWERED_NS
    if late and tcp.ca_state <= CA_DISORDER and room * TSO_WIN_DIVISOR > window:
        tcp.unanswered_acks += 2


def take_waiting(ctx, rows, i, sends, marks, slots, tcp):
    """Time passes before row `i`: attribute the absence of sends to cwnd or the application."""
    prior, row = sk.state_of(rows, i - 1), sk.state_of(rows, i)
    clock_ns = row.time_ns - ctx[cx.START_NS] + CLOCK_START_US * 1000
    paced = is_paced(ctx, slots)
    if is_limit_replayed(ctx, sends, slots) and row.is_cwnd_limited != 0:
        take_held(ctx, rows, i - 1, sends, marks, clock_ns, slots, tcp)
    if row.is_cwnd_limited != 0 and tcp.next_send > 0:
        last = sends[tcp.next_send - 1]
        if ctx[cx.PACED] != 0 or paced:
            note_unanswered(ctx, prior, last, clock_ns, slots, tcp)
        elif ctx[cx.HANDS_OVER] == 0 and tcp.silent_since_ack != 0:
            note_unanswered_unpaced(prior, last, clock_ns, slots, tcp)
    tcp.silent_since_ack = 0
