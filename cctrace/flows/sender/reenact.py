"""Compiled pass over the packets of connections that re-enacts their senders (`sender`), in growing tables.

The compiled part allocates nothing: if a table lacks room for the consequences of the next packet, it stops and
says so.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Ints, Values, give_back
from cctrace.flows import state
from cctrace.flows.packed import EventColumns
from cctrace.flows.sender import tcp_sender
from cctrace.flows.sender.continuing import BEFORE, HANDED_SEGMENTS, continue_sending, decide, mark, precede
from cctrace.flows.sender.dry import runs_dry
from cctrace.flows.sender.handover import TASKLET_NS, handled_ns, is_ack_first, leave, super_packet
from cctrace.flows.sender.sends import is_window_probe, note_window_probe, send_syn
from cctrace.io.captures.packets import OPT_ACCURATE_ECN, OPT_TIMESTAMPS
from cctrace.io.layout import NO_COUNTER
from cctrace.lang.machine import Machine
from cctrace.tcp.flags import ACK, FIN, RST, SYN
from cctrace.tcp.sequence import is_newer, unwrap

FIRST_RING = 512
FIRST_LOG = 4096  # for three times the segments under way: memory that is not written to is not used
PART = 1 << 16  # rows of a stream that is taken in parts
MARGIN = 64  # rows that one packet can cause besides those for each outstanding segment
# Most bytes that may be missing between two packets. A sequence number further ahead cannot belong to the connection;
# and a file of a kilobyte must not produce a gigabyte of segments, however small it claims they are.
BELIEVABLE_GAP = 1 << 28  # bytes
MAX_UNCAPTURED = 1 << 18  # segments, outstanding and missing together; of 1448 bytes they are 380 MB
UNCAPTURED_PER_PACKET = 64  # more missing segments for each captured packet: a super-packet of 64 kB
# What a step ended with; from OUT to RING the tables that lack room.
IGNORED, NOTHING, OUT, RETRANSMISSIONS, SENDS, ANSWERS, RING, UNDECIDED = range(-2, 6)
PAUSED = UNDECIDED + 1
FINALS, SCRATCH = 6, 8  # of the tables, besides those


def reenact(packets, sacks, order, first, params, polls, decided, hints, place, tables):
    """Re-enact the connections from where `place`, a PASS record, is; see `Pass.run`.

    `hints`: which sends a replay marks as application-limited, and when writes were due (`Capture.reenactment`).

    Returns the number of the table that lacks room, NOTHING if all is done. The packet at which it stops has not been
    processed, so it continues there once the table is larger. If `place.awaits_decisions`, the pass
    also stops, with UNDECIDED, where rows were added and TCP may hand over next: it goes on once a controller has
    decided on them. It stops, with PAUSED, before the packet at place `place.until`.
    """
    out, log, sent, snap, seg, ends, finals, _, scratch = tables
    time_ns, direction, _, _, _, _, payload, tsval, _, _, _, _, _ = packets
    rs = scratch[0]
    at = place[0]
    while at.connection < params.size:
        c = at.connection
        p = params[c]
        tp = finals[c]
        if at.packet < 0:
            if c:
                tp.rows, tp.logged, tp.sent = ends[c - 1, 0], ends[c - 1, 1], ends[c - 1, 2]
                tp.states, tp.steady = ends[c - 1, 3], ends[c - 1, 4]
            tcp_sender.start(tp, p)
            at.packet = 0
        sequence = order[first[c] : first[c + 1]]
        for k in range(at.packet, min(sequence.size, at.until)):
            lacks = NOTHING
            if at.may_hand_over == 0:
                if p.fq != state.THROUGH_FQ and tp.paced > state.PACED and direction[sequence[k]] != p.sender:
                    tcp_sender.bring_forward(tp, p, sequence, k, time_ns, direction, payload, tsval)
                lacks = lacking(tp, p, at, sequence, k, packets, polls, out, log, sent, snap, seg)
                if lacks >= OUT:
                    return lacks
                if lacks == NOTHING:
                    precede(tp, seg, rs, out, snap, p, at, sequence, k, packets, polls, hints)
                if at.may_hand_over == BEFORE and at.awaits_decisions != 0 and tp.rows > at.decided_rows:
                    at.packet = k
                    return UNDECIDED
            if at.may_hand_over == BEFORE:
                continue_sending(tp, seg, rs, out, log, sent, p, at, sequence, k - 1, packets, decided, hints)
                lacks = lacking(tp, p, at, sequence, k, packets, polls, out, log, sent, snap, seg)
                if lacks >= OUT:
                    return lacks
            if at.may_hand_over == 0:
                if lacks == NOTHING:
                    process(tp, p, at, sequence, k, packets, sacks, polls, decided, hints, tables)
                if at.may_hand_over != 0 and at.awaits_decisions != 0 and tp.rows > at.decided_rows:
                    at.packet = k
                    return UNDECIDED
            if at.may_hand_over != 0:
                continue_sending(tp, seg, rs, out, log, sent, p, at, sequence, k, packets, decided, hints)
        if at.until < sequence.size:
            at.packet = at.until
            return PAUSED
        ends[c, 0], ends[c, 1], ends[c, 2] = tp.rows, tp.logged, tp.sent
        ends[c, 3], ends[c, 4] = tp.states, tp.steady
        at.connection += 1
        at.packet = -1
    return NOTHING


def lacking(tp, p, at, sequence, k, packets, polls, out, log, sent, snap, seg):
    """Return the table that lacks room for the consequences of the packet at place `k`, where the pass then stops.

    NOTHING if none does, IGNORED if the packet cannot belong to the connection.
    """
    time_ns, direction, flags, seq, ack, _, payload, _, _, _, _, _, _ = packets
    q = sequence[k]
    is_sent = direction[q] == p.sender
    size = np.int64(payload[q])
    if is_sent:
        ahead = unwrap(seq[q], p.isn, tp.snd_nxt) + size - tp.snd_nxt
    elif not flags[q] & ACK:
        ahead = 0
    else:
        ahead = unwrap(ack[q], p.isn, tp.snd_una) - tp.snd_nxt
    if not is_believable(tp, p.mss, ahead, ahead - size if is_sent else ahead, k):
        return IGNORED
    event_ns = handled_ns(p, time_ns[q], is_sent)
    new = max(0, ahead) // max(1, p.mss) + 3 + (HANDED_SEGMENTS if p.fq == state.THROUGH_FQ else 0)
    rows = MARGIN + 3 * (tp.packets_out + new)
    answers = 3 * tcp_sender.most_answers(polls, at.poll, event_ns + TASKLET_NS)
    lacks = NOTHING
    calls, _, _ = out
    used = max(tp.rows - tp.taken_rows, tp.states - tp.taken_states)  # there are no more steady parts than states
    if used + rows > calls.size:
        lacks, at.needed = OUT, used + rows
    elif tp.logged + rows > log.size:
        lacks, at.needed = RETRANSMISSIONS, tp.logged + rows
    elif tp.sent - tp.taken_sends + new > sent.size:
        lacks, at.needed = SENDS, tp.sent - tp.taken_sends + new
    elif tp.tail - tp.head + new > seg.size:
        lacks, at.needed = RING, tp.tail - tp.head + new
    elif at.answered + answers > snap.size:
        lacks, at.needed = ANSWERS, at.answered + answers
    if lacks != NOTHING:
        at.packet = k
    return lacks


def process(tp, p, at, sequence, k, packets, sacks, polls, decided, hints, tables):
    """Process the packet at place `k`; `at.may_hand_over` says whether TCP may hand over data to fq next."""
    out, log, sent, snap, seg, _, _, blocks, scratch = tables
    rs = scratch[0]
    time_ns, direction, flags, seq, _, _, payload, _, _, _, _, _, _ = packets
    q = sequence[k]
    fl = flags[q]
    is_sent = direction[q] == p.sender
    event_ns = handled_ns(p, time_ns[q], is_sent)
    tcp_sender.answer(tp, snap, at, polls, event_ns, p.start_ns)
    tcp_sender.set_clock(tp, event_ns, p.start_ns)
    while at.decision < decided.shape[0] and decided[at.decision, 0] <= event_ns:
        decide(tp, decided, at.decision)
        at.decision += 1
    if fl & RST:
        return
    if is_sent and k < tp.next_to_hand_over and payload[q] > 0:
        last, _ = super_packet(p, sequence, k, time_ns, direction, flags, seq, payload)
        if leave(tp, np.int64(payload[q]), last == k):
            tcp_sender.answer(tp, snap, at, polls, event_ns + TASKLET_NS, p.start_ns)
            at.may_hand_over = 0 if is_ack_first(p, sequence, k, time_ns, direction) else 1
    elif is_sent:
        process_sent(tp, seg, rs, out, log, sent, p, at, sequence, k, packets, hints)
    elif fl & ACK:
        process_ack(tp, seg, rs, out, log, blocks, p, sequence, k, packets, sacks)
        at.may_hand_over = 1 if p.fq == state.THROUGH_FQ else 0


def process_sent(tp, seg, rs, out, log, sent, p, at, sequence, k, packets, hints):
    """The sender transmits the packet at place `k`, which TCP had not handed over before."""
    time_ns, direction, flags, seq, _, _, payload, tsval, _, _, _, _, _ = packets
    q = sequence[k]
    fl, size = flags[q], np.int64(payload[q])
    if fl & SYN:
        if not p.has_syn:
            return
        send_syn(tp, seg, tcp_sender.clock_us(time_ns[q] - p.tx_delay_ns, p.start_ns), tsval[q], fl & ACK != 0)
        return
    a = unwrap(seq[q], p.isn, tp.snd_nxt)
    if not fl & FIN and tp.established and is_window_probe(tp, a, size):
        note_window_probe(tp, a + size)
        return
    end = a + size + (1 if fl & FIN else 0)
    if end == a or (p.has_syn and not tp.established):
        return
    if not tp.established:
        tcp_sender.establish(tp, rs, out, 1)
    mark(tp, hints)
    prior = tp.snd_nxt
    tcp_sender.send(tp, seg, rs, out, log, sent, p, time_ns[q], a, end, size, fl, tsval[q])
    if not tp.queue_empty and runs_dry(tp, p, sequence, k, packets):
        tp.queue_empty = 1
    if p.fq == state.THROUGH_FQ:
        last, _ = super_packet(p, sequence, k, time_ns, direction, flags, seq, payload)
        at.may_hand_over = 1 if last == k and (a < prior or not tp.queue_empty) else 0


def process_ack(tp, seg, rs, out, log, blocks, p, sequence, k, packets, sacks):
    """The sender receives the packet at place `k`, an ACK."""
    time_ns, direction, flags, seq, ack, window, payload, tsval, tsecr, options, sack_row, sack_count, ce_bytes = (
        packets
    )
    left, right = sacks
    q = sequence[k]
    fl = flags[q]
    a = unwrap(ack[q], p.isn, tp.snd_una)
    tp.tsecr, tp.ts_newer, tp.ce_reported = 0, 0, np.int64(NO_COUNTER)
    if options[q] & OPT_ACCURATE_ECN:
        tp.ce_reported = np.int64(ce_bytes[q])
    if options[q] & OPT_TIMESTAMPS:
        tp.tsecr = tsecr[q]
        if tp.ts_recent == 0 or is_newer(np.int64(tsval[q]), tp.ts_recent):
            tp.ts_recent, tp.ts_newer = tsval[q], 1
    count = min(np.int64(sack_count[q]), 4)
    for i in range(count):
        blocks[i, 0] = unwrap(left[sack_row[q] + i], p.isn, tp.snd_una)
        blocks[i, 1] = unwrap(right[sack_row[q] + i], p.isn, tp.snd_una)
    ack_seq = unwrap(seq[q], p.peer_isn, tp.snd_wl1)
    window_bytes = np.int64(window[q]) << (0 if fl & SYN else p.wscale)
    waiting = tcp_sender.is_answered(p, sequence, k, time_ns, direction, payload)
    tcp_sender.receive(tp, seg, rs, out, log, p, blocks, count, a, ack_seq, window_bytes, payload[q] > 0, fl, waiting)


def is_believable(tp, mss, ahead, missing, packets):
    """Whether a number so many bytes ahead, with so many missing, can belong to a connection of this many packets."""
    if ahead > BELIEVABLE_GAP:
        return False
    segments = missing // max(1, mss)
    if segments <= 0:
        return True
    most = MAX_UNCAPTURED + UNCAPTURED_PER_PACKET * packets
    return tp.packets_out + segments <= MAX_UNCAPTURED and tp.uncaptured + segments <= most


_reenact = Machine(reenact)


class Pass:
    """Working data of a pass; see `Capture.reenactment`. `given`: the arguments of `reenact` before its `tables`."""

    def __init__(
        self,
        packets: tuple[Values, ...],
        sacks: tuple[Values, ...],
        order: Ints,
        first: Ints,
        params: Values,
        polls: Ints,
        decided: Ints,
        hints: tuple[NDArray[np.uint8], Ints],
    ) -> None:
        self._growing = [
            # Three calls for each second packet, an ACK, and some room: to enlarge a table writes to all of it.
            np.empty(order.size * 8 // 5 + FIRST_LOG, state.CALL),
            np.empty(max(FIRST_LOG, order.size // 4), state.LOG),
            np.empty(max(256, order.size), state.SENT),
            np.zeros(polls.shape[0] * 2 + 16, state.SNAP),
            np.zeros(FIRST_RING, state.SEG),  # the next connection's segments overwrite the last one's
        ]
        self._states, self._steady = self._shared(len(self._growing[OUT]))
        self._ends, self.finals = np.zeros((params.size, 5), np.int64), np.zeros(params.size, state.TP)
        self._rest = self._ends, self.finals, np.zeros((4, 2), np.int64), np.zeros(1, state.RS)
        self.at = np.zeros(1, state.PASS)
        self.at["packet"], self.at["until"] = -1, state.NEVER
        # `order` changes: packets are brought forward in it.
        self.given = packets, sacks, order, first, params, polls, decided, hints, self.at

    @property
    def tables(self) -> tuple[Any, ...]:
        """The tables as they are now; the first one is those of an `EventColumns`."""
        return ((self._growing[OUT], self._states, self._steady), *self._growing[OUT + 1 :], *self._rest)

    @staticmethod
    def _shared(rows: int) -> tuple[Values, Values]:
        """Return tables for what rows share; memory that is not written to is not used."""
        return np.empty(rows, state.STATE), np.empty(rows, state.STEADY)

    @property
    def room(self) -> int:
        """How many rows of the stream there is room for."""
        return len(self._growing[OUT])

    def grow(self, lacks: int) -> None:
        """Enlarge the table that lacks room."""
        needed, tp = int(self.at["needed"][0]), self.finals[self.at["connection"][0]]
        table = self._growing[lacks]
        if lacks == RING:
            self._growing[RING] = larger_ring(table, int(tp["head"]), int(tp["tail"]), needed)
        else:
            enlarge(table, max(needed, table.size * 5 // 4))
        if lacks == OUT:
            enlarge(self._states, len(table))
            enlarge(self._steady, len(table))

    def run(self) -> tuple[Any, ...]:
        """Re-enact the connections in one compiled pass, and return its `results`."""
        give_back(len(self.given[2]))  # what measuring the sender's reactions took
        while (lacks := _reenact(*self.given, self.tables)) != NOTHING:
            self.grow(lacks)
        return self.results()

    def is_like(self, stream: EventColumns, log: Values, sent: Values) -> Values | None:
        """Return the final state if re-enacting the only connection gives these tables, None otherwise.

        Stream and sends are compared in parts: others as long would be most of the memory of a flow's analysis.
        """
        give_back(len(self.given[2]))
        self._growing[OUT], self._growing[SENDS] = np.empty(PART, state.CALL), np.empty(PART, state.SENT)
        self._states, self._steady = self._shared(PART)
        given, tp = (*stream.tables, sent), self.finals[0]
        for part in self._parts():
            firsts = tp["taken_rows"], tp["taken_states"], tp["taken_steady"], tp["taken_sends"]
            pairs = zip(part, given, firsts, strict=True)
            if not all(are_equal(table, other[first : first + len(table)]) for table, other, first in pairs):
                return None
        ends = (tp["rows"], tp["states"], tp["steady"], tp["sent"]) == tuple(map(len, given))
        return self.finals if ends and are_equal(self.results()[1], log) else None

    def _parts(self) -> Iterator[tuple[Values, ...]]:
        """Yield the tables of the stream, and sends, as one is full, to be overwritten by the next ones.

        The last state stays, since the next row may share it, and bring its rate sample.
        """
        tp = self.finals[0]
        while (lacks := _reenact(*self.given, self.tables)) != NOTHING:
            if lacks not in (OUT, SENDS) or tp["rows"] == tp["taken_rows"]:
                self.grow(lacks)
                continue
            calls, states, steady, sent = self._part()
            yield calls, states[:-1], steady, sent
            self._states[0], self._steady[0] = states[-1], steady[-1]
            tp["taken_rows"], tp["taken_sends"] = tp["rows"], tp["sent"]
            tp["taken_states"], tp["taken_steady"] = tp["states"] - 1, tp["steady"] - 1
        yield self._part()

    def _part(self) -> tuple[Values, ...]:
        tp = self.finals[0]
        return (
            self._growing[OUT][: tp["rows"] - tp["taken_rows"]],
            self._states[: tp["states"] - tp["taken_states"]],
            self._steady[: tp["steady"] - tp["taken_steady"]],
            self._growing[SENDS][: tp["sent"] - tp["taken_sends"]],
        )

    def results(self) -> tuple[Any, ...]:
        """Return the tables: rows, log, sends, ends, snapshots, finals.

        These are event rows (an `EventColumns`), retransmission log (`state.LOG`) and sends (`state.SENT`) of all
        connections; where each connection's end in these and in the stream's other tables, shape (connections, 5);
        `state.SNAP` records; final `state.TP` records.
        """
        out, log, sent, snap, _ = self._growing
        rows, logged, departed, states, steady = self._ends[-1] if len(self._ends) else (0, 0, 0, 0, 0)
        stream = EventColumns(out[:rows], self._states[:states], self._steady[:steady])
        return stream, log[:logged], sent[:departed], self._ends, snap[: self.at["answered"][0]], self.finals


def are_equal(one: Values, other: Values) -> bool:
    """Whether records without padding are the same; compared by words, which is faster than by field."""
    one, other = one.view(np.uint8), other.view(np.uint8)
    whole = min(len(one), len(other)) // 8 * 8
    words, others = one[:whole].view(np.uint64), other[:whole].view(np.uint64)
    parts = range(0, len(words), PART)  # without comparing all of them, which would take as much memory again
    same = (np.array_equal(words[k : k + PART], others[k : k + PART]) for k in parts)
    return len(one) == len(other) and np.array_equal(one[whole:], other[whole:]) and all(same)


def enlarge(table: Values, rows: int) -> None:
    """Add empty rows to a table, in place: the system extends large ones without a copy beside them.

    Views of it, and the addresses that a compiled function was given, must not be used any more.
    """
    table.resize((rows, *table.shape[1:]), refcheck=False)


def larger_ring(ring: Values, head: int, tail: int, needed: int) -> Values:
    """Return a ring of at least `needed` records with those from `head` to `tail`."""
    size = ring.size
    while size < needed:
        size *= 2
    found, places = np.zeros(size, ring.dtype), np.arange(head, tail)
    found[places & (size - 1)] = ring[places & (ring.size - 1)]
    return found
