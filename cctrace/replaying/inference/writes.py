"""Which packets were sent application-limited, from the application's writes: periodic, or limited by the send buffer.

Periodic writes are known to the byte (`flows.periodic_writes`). For a send buffer, its size is inferred, and the writes
follow from it (`writer`): it is the smallest one that the sends do not refute, as with a smaller one some data would
have been sent before they were written. It must also explain what the replay saw: ACKs after which nothing was sent,
although cwnd and pacing allowed it. If it does, the computed marks replace those of the replay, because they include
packets that were application-limited without such a silence.

Without SO_SNDBUF the buffer grows with cwnd, but only once it has run empty where cwnd had room (tcp_check_space), so
slow start empties it again and again: whatever its size is, it makes samples application-limited that no silence shows.
What an application that always has data writes then follows from the buffer's first size. Where it runs empty, the
super-packet that an ACK releases is cut short, and another one follows at once, which tells some sizes from others.

Few sizes need to be tried: each comparison with the size gives the next one with which it would turn out otherwise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.linux import GSO_MAX_SIZE, MAX_TCP_HEADER, TCP_INIT_CWND
from cctrace.columns import Bools, Ints, Values
from cctrace.flows.events import first_ack
from cctrace.flows.flow import Flow
from cctrace.flows.periodic_writes import NOTHING_DUE
from cctrace.lang.machine import Machine, Prepared
from cctrace.lang.memory import with_fields
from cctrace.replaying.engine.context import APP_LIMITED
from cctrace.replaying.inference import writer as wr
from cctrace.tcp.flags import SYN
from cctrace.tcp.sequence import unwrap, unwrapped
from cctrace.tcp.small_queue import LEAST_TCP_HEADER, SKB_OVERHEAD_BYTES, SKB_OVERHEAD_BYTES_6_1, reserved_bytes

if TYPE_CHECKING:
    from cctrace.replaying.run import Run

EXPLAINED = 0.9  # share of the packets that the replay marked, at least; 0.17 at most for ten applications that paused
RARE = 1e-4  # share of packets marked by the replay with which the search is not worthwhile
MAX_SENDS = 400_000  # of a flow, as the tables take some 200 bytes a packet
# Super-packets processed, in multiples of the flow's: until a size is not refuted (6 at most for right ones), and in
# all (27).
FIRST_WORK, MAX_WORK = 10, 60
MIN_BYTES = 4_608  # SOCK_MIN_SNDBUF
NEAR = 1.03  # times the smallest size that is not refuted; up to there, one with fewer errors may be the right one
NEVER = 1 << 40  # bytes, or super-packets: more than there are
BEYOND = 1.04, 1.2, 12  # larger sizes, in multiples of the best (first, last, number), which must explain less
SELDOM = 0.01  # chance that a super-packet seems to leave before it was written into the right buffer
WORTHWHILE = 0.01  # share of packets whose marks must be others before the replay is repeated
MAX_FLIGHTS = 4  # times the most that was in flight; a larger buffer never runs dry

_run = Machine(wr.run)


class Growing(NamedTuple):
    """A send buffer that grows with cwnd, or a fixed one (0 bytes a segment)."""

    first_bytes: int  # tcp_wmem[1]
    header_bytes: int = 0  # MAX_TCP_HEADER, which depends on the kernel's configuration

    def per_segment(self, mss: int) -> int:
        """Return the bytes that the kernel reserves for a segment; 0 if the buffer does not grow."""
        return reserved_bytes(mss, self.header_bytes) if self.header_bytes else 0


# Linux's default of tcp_wmem[1], and what hosts set it to. First the header size of distributions' kernels: the first
# buffer is taken where the sends do not tell.
GROWING = (
    Growing(16_384, MAX_TCP_HEADER),
    *(Growing(first, LEAST_TCP_HEADER) for first in (16_384, 65_536, 87_380)),
)


def marks_of_writes(run: Run, least: float = WORTHWHILE) -> NDArray[np.uint8] | None:
    """Return `marks` of packets as in `engine.context`, computed from the application's writes.

    None if neither periodic writes nor a send buffer explain the sends, if one that grows changes the marks of fewer
    packets than `least`, a share, or if the capture was not taken at the sender, so that the order of ACKs and sends is
    uncertain.
    """
    flow = run.source
    if not isinstance(flow, Flow) or run.marked is None or not 0 < len(run.marked) <= MAX_SENDS:
        return None
    decides = {"snd_cwnd", "pacing_rate"} | ({"mode"} if "PROBE_RTT" in run.controller.states else set())
    if flow.taken_at != "sender" or not flow.events.meta["complete"] or not decides <= set(run.held):
        return None
    due, is_silent = flow.events.due, np.mean(silent(run, flow)) > RARE
    if len(due) == 0 and not is_silent and 2 * int(flow.events["packets_out"].max()) < least * len(run.marked):
        return None  # a buffer that grows runs empty in slow start, for less than twice the largest flight
    writer = Writer(run, flow)
    if len(due) == 0 and is_silent:  # as a sender is again and again whose fixed buffer limits it
        marks = writer.marks()
        if marks is not None:
            return marks
    return writer.growing(due, run.marked, least)


def silent(run: Run, flow: Flow) -> Bools:
    """Return which packets the replay marked because nothing was sent after ACKs.

    Not those of the first flight, before which nothing had been written, nor those that BBR itself marks in PROBE_RTT.
    """
    marked, row = run.marked != 0, flow.events.sends["row"]
    begins, states = np.diff(marked, prepend=False) & marked, run.controller.states
    probing = np.zeros(np.count_nonzero(begins), np.bool_)
    if "PROBE_RTT" in states:
        before = np.clip(row[begins] - 1, 0, run.held.count - 1)
        probing = run.recorded("mode").at("mode", before) == states.index("PROBE_RTT")
    since = np.cumsum(begins)  # number of the run of marked packets
    return marked & ~np.append(False, probing)[since] & (row > first_ack(flow.events))


class Writer:
    """A flow's sends and ACKs in the tables that `writer` takes."""

    def __init__(self, run: Run, flow: Flow) -> None:
        self.flow = flow
        self.silent = silent(run, flow)
        events = flow.events
        self.mss, self.start_ns, self.isn = (int(events.meta[name]) for name in ("mss", "start_ns", "isn"))
        capture, k = flow.capture, flow.index
        mine = capture.connections.order[capture.connections.first[k] : capture.connections.first[k + 1]]
        sent = capture.packets["direction"][mine] == capture.connections.sender[k]
        self._data, self._acks = mine[sent & (capture.packets["payload"][mine] > 0)], mine[~sent]
        self.skbs, at, timed = self._super_packets()
        rows = self._last_rows()
        at = np.minimum(np.searchsorted(rows, at), len(rows) - 1)
        self._order(run, rows, at, timed)
        self._windows_and_blocks(int(events.meta["wscale"]))
        parts_as_v2 = bool(getattr(run.controller, "parts_as_v2", False))
        self._new = with_fields(np.zeros(1, wr.SOCKET))  # of a connection that has sent only its SYN
        sk = self._new[0]
        sk.write_seq = sk.snd_nxt = sk.snd_una = sk.pushed_seq = 1
        sk.mss, sk.next_sndbuf = self.mss, np.iinfo(np.int64).max
        sk.skb_overhead = SKB_OVERHEAD_BYTES_6_1 if parts_as_v2 else SKB_OVERHEAD_BYTES
        sk.checks_at_acks = bool(getattr(run.controller, "app_limited_by_acks", False))
        self.has_on_ack, self._end_seq = run.controller.has_on_ack, int(self.skbs["end_seq"].max())
        self._most_out = int(events["packets_out"].max())
        outstanding = 4 * self._most_out + 1024
        room = np.zeros(outstanding, np.int64), np.zeros((outstanding, 2), np.int64)
        self._happened, self._room = Prepared((self.events, self.skbs, self.blocks)), Prepared(room)

    def _super_packets(self) -> tuple[Values, Ints, Bools]:
        """Return the super-packets, the rows of the stream after which they left, and whether a timer sent them."""
        sends, packets = self.flow.events.sends, self.flow.capture.packets
        end, row = sends["snd_nxt"], sends["row"]
        is_new = np.diff(end, prepend=np.int64(1)) > 0
        begins = (sends["begins"] != 0) | np.append(True, (row[1:] != row[:-1]) | (is_new[1:] != is_new[:-1]))
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(end))
        begin, stop = np.zeros(len(end), np.int64), end.astype(np.int64)
        known = min(len(self._data), len(end))
        begin[:known] = unwrapped(packets["seq"][self._data], self.isn)[:known]
        stop[:known] = begin[:known] + packets["payload"][self._data][:known]
        skbs = np.zeros(len(first), wr.SKB)
        skbs["end_seq"], skbs["seq"] = np.where(is_new[first], end[last - 1], stop[last - 1]), begin[first]
        skbs["is_new"], skbs["first_packet"], skbs["end_packet"] = is_new[first], first, last
        skbs["segments"] = np.add.reduceat(sends["segments"].astype(np.int64), first)
        through_fq = bool(self.flow.through_fq)
        skbs["sent_ns"] = sends["time_ns"][first]
        skbs["left_fq_ns"] = sends["time_ns"][last - 1] if through_fq else 0
        after = row[first].astype(np.int64) - 1
        since = np.maximum(
            self.flow.events["time_ns"][np.maximum(after, 0)], np.append(0, sends["time_ns"][first][:-1])
        )
        return skbs, after, (sends["time_ns"][first] - since > wr.SOON_NS) & (not through_fq)

    def _last_rows(self) -> Ints:
        """Return the last row of each ACK; its rows have one time, and nothing leaves between them."""
        time_ns, snd_nxt = self.flow.events["time_ns"], self.flow.events["snd_nxt"]
        return np.flatnonzero(np.append((time_ns[1:] != time_ns[:-1]) | (snd_nxt[1:] != snd_nxt[:-1]), True))

    def _order(self, run: Run, rows: Ints, at: Ints, timed: Bools) -> None:
        """Fill the table of events: ACKs, and super-packets that left at a timer; `at`: the ACK before each."""
        stream, timers = self.flow.events, np.flatnonzero(timed)
        kinds = np.append(np.full(len(rows), -1), timers)
        order = np.lexsort((kinds, np.append(2 * np.arange(len(rows)), 2 * at[timers] + 1)))
        row = np.append(rows, rows[at[timers]])[order]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        event = place[at]  # of each super-packet: its ACK, or the last timer since
        event[timers] = place[len(rows) :]
        event = np.maximum.accumulate(event)
        events = np.zeros(len(order), wr.EVENT)
        events["is_ack"] = kinds[order] < 0
        for name in ("snd_una", "delivered"):
            events[name] = stream.at(name, row)
        counts = ("packets_out", "sacked_out", "lost_out", "retrans_out")
        out, sacked, lost, again = (stream.at(name, row).astype(np.int64) for name in counts)
        events["packets_in_flight"], events["lost_not_resent"] = out - sacked - lost + again, lost - again
        events["pacing_rate_Bps"], events["snd_cwnd"], events["in_probe_rtt"] = run.decided[row, 1:4].T
        events["in_probe_rtt"][1:] |= events["in_probe_rtt"][:-1]  # the ACK that ends PROBE_RTT marks, too
        sent_ns = self.flow.events.sends["time_ns"][self.skbs["first_packet"][timers]]
        events["time_ns"] = np.append(stream["time_ns"][rows], sent_ns)[order]
        events["first_skb"] = np.searchsorted(event, np.arange(len(order)))
        events["end_skb"] = np.searchsorted(event, np.arange(len(order)), side="right")
        self.events = events

    def _windows_and_blocks(self, wscale: int) -> None:
        """Fill in the largest window before each event, and the SACK blocks of each ACK."""
        packets, acks, events = self.flow.capture.packets, self._acks, self.events
        window = packets["window"][acks].astype(np.int64)
        window = np.maximum.accumulate(np.where(packets["flags"][acks] & SYN != 0, window, window << wscale))
        seen = np.searchsorted(self.flow.capture.connections.clock[acks], events["time_ns"], side="right")
        events["half_max_window"] = window[np.maximum(seen - 1, 0)] >> 1
        most = GSO_MAX_SIZE - (MAX_TCP_HEADER + 1)
        events["size_goal"] = np.maximum(np.minimum(most, events["half_max_window"]) // self.mss, 1) * self.mss
        counts = packets["sack_count"][acks].astype(np.int64)
        total = np.append(0, np.cumsum(counts))
        blocks = np.repeat(packets["sack_row"][acks].astype(np.int64) - total[:-1], counts) + np.arange(total[-1])
        near = np.repeat(unwrapped(packets["ack"][acks], self.isn), counts)
        sides = [unwrap(packets.sacks[side][blocks], self.isn, near) for side in ("left", "right")]
        self.blocks = np.ascontiguousarray(np.column_stack(sides))
        acked = events["is_ack"] != 0
        before = np.append(0, np.maximum.accumulate(np.where(acked, seen, 0))[:-1])
        events["first_block"] = np.where(acked, total[np.minimum(before, seen)], 0)
        events["end_block"] = np.where(acked, total[seen], 0)

    # ---- sizes of the buffer ---------------------------------------------------------------------------------------
    def marks(self) -> NDArray[np.uint8] | None:
        """Return the marks of the smallest buffer not refuted, if it explains the replay's and larger ones do not.

        A slightly larger one (NEAR) is preferred if it has fewer errors.
        """
        size, work, found, least, best = MIN_BYTES, 0, 0, 1 + len(self.skbs), None
        most = 2 * MAX_FLIGHTS * self._most_out * self.mss
        while size <= most and work < (FIRST_WORK if best is None else MAX_WORK) * len(self.skbs):
            socket, marks = self.write(size, least)
            work += int(socket.sent_skbs)
            if socket.sent_skbs == len(self.skbs) and socket.late_skbs < least:
                found, least, best, most = size, int(socket.late_skbs), marks, int(NEAR * size)
            size = max(int(socket.next_sndbuf), size + 1)
        if best is None or np.mean(best[self.silent] & APP_LIMITED) < EXPLAINED:
            return None
        return best if self._is_worse_beyond(found, least) else None

    def _is_worse_beyond(self, size: int, least: int) -> bool:
        """Return whether larger buffers explain the sends less well; they do not if no buffer limits the sender."""
        others = [self.write(int(size * times), least + 1)[0] for times in np.linspace(*BEYOND)]
        worse = [socket.sent_skbs < len(self.skbs) or socket.late_skbs > least for socket in others]
        return bool(np.mean(worse) > 1 / 2)

    def growing(self, due: Ints, marked: NDArray[np.uint8], least: float) -> NDArray[np.uint8] | None:
        """Return the marks of a buffer that grows, if they explain the replay's, and others are as many as `least`.

        `due`: as for `write`. The likeliest buffer is taken: where it runs empty a super-packet is cut short for sure,
        elsewhere as often as the others are (`_cut`).
        """
        by_chance, best, found = math.log(max(self._cut(), RARE)), -math.inf, None
        for buffer in (*GROWING, Growing(NEVER)) if len(due) else GROWING:
            socket, marks = self.write(buffer.first_bytes, due=due, segment_bytes=buffer.per_segment(self.mss))
            score = int(socket.late_skbs) * math.log(SELDOM) - int(socket.dry_writes) * by_chance
            if socket.sent_skbs == len(self.skbs) and score > best:
                best, found = score, marks
        if found is None or len(due):
            return found
        limited = (found & APP_LIMITED) != 0
        unexplained = np.mean(self.silent & ~limited)
        if unexplained > max(WORTHWHILE, (1 - EXPLAINED) * float(np.mean(self.silent))):
            return None
        return found if np.mean(limited != marked) >= least else None

    def _cut(self) -> float:
        """Return the share of the segments that follow others at once, but begin a super-packet of their own."""
        first, is_new = np.zeros(len(self.skbs), np.bool_), self.skbs["is_new"] != 0
        begins = self.events["first_skb"]
        first[begins[self.events["end_skb"] > begins]] = True
        segments = int(self.skbs["segments"][is_new].sum()) - int(np.sum(first & is_new))
        return int(np.sum(~first & is_new)) / max(segments, 1)

    def write(
        self, size: int, too_late: int = NEVER, due: Ints = NOTHING_DUE, segment_bytes: int = 0
    ) -> tuple[Any, NDArray[np.uint8]]:
        """Re-enact the writes into a buffer of `size` bytes; return the socket at the end, and each packet's mark.

        `due`: when the application has data to write, and up to which position; empty: always. `segment_bytes`: of a
        `Growing` one. It stops where the size is refuted, or where `too_late` super-packets left before they were
        written.
        """
        per_cwnd = (3 if self.has_on_ack else 2) * segment_bytes  # bbr_sndbuf_expand; tcp_sndbuf_expand
        size = max(size, TCP_INIT_CWND * per_cwnd)
        sockets = self._new.copy()
        socket = sockets[0]
        socket.sndbuf, socket.max_late_skbs, socket.sndbuf_per_cwnd = size, too_late, per_cwnd
        socket.app_end_seq = 1 if len(due) else self._end_seq if per_cwnd else NEVER
        marks = np.zeros(self.silent.size, np.uint8)
        most = NEVER if per_cwnd else size
        queue = np.zeros(min(most // self.mss, len(self.skbs)) + 256, np.int64)
        _run(sockets, due, self._happened, queue, self._room, marks)
        return socket, marks
