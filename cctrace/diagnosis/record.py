"""A captured flow as the diagnosis reads it: fate of every packet, bottleneck rate and queue, windows, rounds.

    record = Record(flow)
    record.path             its `PathEvidence`: losses, RTTs, the bottleneck and the flow's own queue
    record.acks             the rows that end an ACK

Everything is computed on first use. The bottleneck's properties come from packets merged with their neighbours, and its
rate is exact to half a per cent; for the path itself, use `cctrace.fit.path`.
"""

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cctrace.cc import controller as resolve
from cctrace.cc import is_model_based
from cctrace.columns import Bools, Floats, Ints, last_true, runs_of_true
from cctrace.diagnosis import constants as const
from cctrace.errors import ArgumentError
from cctrace.flows.cut_options import cut_options
from cctrace.flows.events import AckRows
from cctrace.flows.flow import Flow
from cctrace.flows.missing_sacks import restored
from cctrace.flows.seqspace import unwrapped
from cctrace.flows.state import TIMEOUT
from cctrace.io.captures.packets import OPT_COPY, OPT_SACK
from cctrace.path.buckets import Bucket, dropper_of
from cctrace.path.constants import MIN_ACKS, MIN_POLICED
from cctrace.path.evidence import evidence_of
from cctrace.path.losses import decided_ns
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.replaying.run import Run, replay
from cctrace.tcp.flags import FIN, RST, SYN
from cctrace.tcp.pacing import TSO_WIN_DIVISOR


class Bursts(NamedTuple):
    """Bursts of a sender: time (s), delay after the previous ACK (s), segments, rows of that ACK and of the last one
    before the burst's end.
    """

    time_s: np.ndarray
    since_s: np.ndarray
    segments: np.ndarray
    place: np.ndarray
    last: np.ndarray


def runs_of(times: Floats, held: Bools, end_s: float = 0.0) -> Floats:
    """Return the intervals [time of a row, time of the next) in which `held`, merged; the last row lasts to `end_s`."""
    if not len(times):
        return np.zeros((0, 2))
    after = np.append(times[1:], max(end_s, times[-1]))
    begin, behind = runs_of_true(held)
    return np.column_stack([times[begin], after[behind - 1]])


class Record:
    """A captured flow as the diagnosis reads it.

    `controller`: the kernel's name of the sender's congestion control. `run`: its replay over this flow. `cut`: what
    the capture lacks of its options; `flow` has reconstructed SACK blocks if it lacks all of them. Raises `StreamError`
    if the capture lacks the data or the acknowledgements.
    """

    def __init__(self, flow: Flow, controller: str | None = None, run: Run | None = None) -> None:
        self.cut = cut_options(flow)
        if self.cut.lacks_all_blocks and flow.taken_at == "sender" and len(flow.capture.connections) == 1:
            flow = restored(flow)  # a restored flow is alone in its capture
        self.flow, self.controller, self.run, self.events = flow, controller, run, flow.events
        self.path = evidence_of(flow)
        self.table = self.path.transmissions
        self.start_ns = self.table.start_ns
        self.duration_s = float(flow.row["duration_s"])

    @functools.cached_property
    def through_fq(self) -> bool | None:
        """Whether its packets passed fq before the capture point; None if that does not show."""
        return at_hand_over(self.flow).through_fq

    # --- rows of the event stream ------------------------------------------------------------------------------------
    @functools.cached_property
    def acks(self) -> AckRows:
        """The rows that end an ACK."""
        return AckRows(self.events)

    @functools.cached_property
    def ack_s(self) -> Floats:
        """Times of `acks`, seconds since the first packet."""
        return self.seconds(self.acks["time_ns"])

    def seconds(self, time_ns: ArrayLike) -> Floats:
        """Return times of the capture in seconds since the flow's first packet."""
        return (np.asarray(time_ns, np.int64) - self.start_ns) / 1e9

    @functools.cached_property
    def bursts(self) -> Bursts:
        """New data sent, in bursts: arrays of a `Bursts`. A FIN alone is not data."""
        new = (self.events.sent["retransmitted"] == 0) & (self.events.sent["payload"] > 0)
        if not new.any() or not len(self.ack_s):
            return Bursts(*(np.zeros(0),) * 3, *(np.zeros(0, np.int64),) * 2)
        time = self.seconds(self.events.sent["time_ns"][new])
        first = np.flatnonzero(np.diff(time, prepend=-np.inf) > const.PROMPT_S)
        size = np.add.reduceat(self.events.sent["segments"][new].astype(np.int64), first)
        end, time = time[np.append(first[1:], len(time)) - 1], time[first]
        # Half the stack's latency was subtracted at either side: an answer may seem early.
        place, last = (np.searchsorted(self.ack_s, at + self.took_s, side="right") - 1 for at in (time, end))
        since = np.maximum(time - self.ack_s[np.maximum(place, 0)], 0.0)
        return Bursts(time, np.where(place >= 0, since, np.inf), size, place, last)

    @functools.cached_property
    def took_s(self) -> float:
        """Time that the sender's stack takes to answer an ACK, seconds (`flows.reaction`)."""
        return float(self.flow.capture.reactions(np.array([self.flow.index]))[0][0]) / 1e9

    @functools.cached_property
    def late_s(self) -> float:
        """Time within which the sender answers an ACK, seconds: `LATE_S`, or more if its answers are consistently
        later.

        A slow host, or a link between it and the capture point, adds a constant delay between an ACK and the data
        that it releases. The delay is not a timer's if it is short compared with the ACK interval while data are
        outstanding: an application's writes fall anywhere between two ACKs.
        """
        acks, sent = self.acks, self.seconds(self.events.sent["time_ns"])
        got = np.diff(acks["delivered"].astype(np.int64), prepend=0) > 0
        time = self.ack_s[got & (acks["packets_out"] > 0)]
        if len(time) < MIN_ACKS or not len(sent):
            return const.LATE_S
        after = np.append(sent, np.inf)[np.searchsorted(sent, time)] - time
        apart = np.diff(time, append=np.inf)
        answered = after < apart
        if answered.mean() < const.PREDOMINANT_SHARE:
            return const.LATE_S
        low, middle, high = np.quantile(after[answered], [0.1, 0.5, 0.9])
        alike = high < const.ANSWERS_ALIKE * low and middle < min(
            const.WRITE_S, float(np.median(apart)) / const.CHANCE_TIMES
        )
        return max(const.LATE_S, const.ANSWERS_ALIKE * float(high)) if alike else const.LATE_S

    @functools.cached_property
    def empty_s(self) -> Floats:
        """Intervals from an ACK that left nothing outstanding to the next data (or the end), seconds.

        A keep-alive does not count as data. After its FIN a sender has none to send, however long the other end takes.
        """
        begin = self.ack_s[(self.acks["packets_out"] == 0) & (self.ack_s <= self.closed_s)]
        sent = self.seconds(self.events.sent["time_ns"][self.events.sent["retransmitted"] == 0])
        stop = np.append(sent, self.duration_s)[np.searchsorted(sent, begin)]
        return np.column_stack([begin, np.maximum(stop, begin)])

    @functools.cached_property
    def closed_s(self) -> float:
        """When the sender's FIN first left, seconds; infinite if it did not."""
        packets, table, index = self.flow.capture.packets, self.flow.capture.connections, self.flow.index
        rows = table.rows_of(index)
        rows = rows[packets["flags"][rows] & FIN > 0]
        rows = rows[packets["direction"][rows] == table.sender[index]]
        return float(self.seconds(table.clock[rows[0]] - table.sender_side_ns[index] // 2)) if len(rows) else np.inf

    @functools.cached_property
    def released(self) -> Bools:
        """Whether an ACK just before released each of `bursts`.

        A host that has slept takes longer to answer. A timer's sends fall anywhere between two ACKs, and thus one
        time in ten within the tenth of the interval (or of the previous one) that counts as an answer.
        """
        since, place = self.bursts.since_s, self.bursts.place
        gap = np.diff(self.ack_s, prepend=-np.inf, append=np.inf)
        apart = np.maximum(gap[:-1], gap[1:])[np.maximum(place, 0)]
        always = self.late_s if self.late_s > const.LATE_S else 0.0
        return since <= np.maximum(max(3 * self.took_s, const.PROMPT_S, always), np.minimum(const.LATE_S, apart / 10))

    @functools.cached_property
    def goodput_bps(self) -> float:
        """Goodput, bit/s of payload."""
        return float(self.flow.row["goodput_bps"])

    @property
    def is_loss_based(self) -> bool:
        """Whether the controller is known to treat losses as congestion and not to model the path."""
        return self.controller is not None and not self.is_model_based

    @property
    def is_model_based(self) -> bool:
        """Whether the controller is known to model the path, as BBR does."""
        return is_model_based(self.controller)

    @property
    def paced(self) -> bool:
        """Whether the socket is known to pace although its controller sets no rate."""
        return self.run is not None and self.run.params.get("paced", 0) == 1

    @functools.cached_property
    def heeds_marks(self) -> bool:
        """Whether marks reduce the window; of a BBR that can, if this makes the replayed sends likelier.

        A replay infers it (`replaying.inference.infer`), where the path is short enough for it to matter.
        """
        if not self.is_model_based or self.controller is None:
            return True
        try:
            params = resolve(self.controller)[0].params
        except ArgumentError:  # a kernel's name for a module that is not registered here
            return False
        if "ecn_enable" not in params or self.path.least_rtt_us > params["ecn_max_rtt_us"].default:
            return False
        run = self.run or replay(self.flow, self.controller)
        return bool(run.params.get("ecn_enable"))

    @property
    def captured(self) -> tuple[Ints, Ints, Bools]:
        """The connection's packets in order: when the sender's TCP handled them (ns), rows, and which it sent."""
        return self.flow.capture.seen_by_sender(self.flow.index)

    def _windows(self) -> tuple[Floats, Ints, Ints, Ints]:
        """Return, after every packet in order, its time (s), free bytes of the receive window, those that were free
        after the latest own packet, and the window; none if its scale is unknown.
        """
        capture, index = self.flow.capture, self.flow.index
        if "wscale" in self.flow.facts["inferred"]:
            nothing = np.zeros(0, np.int64)
            return np.zeros(0), nothing, nothing, nothing
        (time_ns, rows, mine), packets = self.captured, capture.packets
        base = int(capture.connections.sides[index, int(capture.connections.sender[index])]["origin"])
        end = unwrapped(packets["seq"][rows], mine, base)
        end = np.maximum.accumulate(np.where(mine, end + packets["payload"][rows], 0))
        offset = (packets["ack"][rows].astype(np.int64) - base - end) & 0xFFFFFFFF
        ack = end + offset - ((offset >> 31) << 32)
        del offset  # here and below: of a million packets each has 8 MB
        from_receiver = ~mine & ((packets["flags"][rows] & SYN) == 0)
        window = np.where(from_receiver, packets["window"][rows].astype(np.int64) << int(self.flow.facts["wscale"]), 0)
        del rows
        edge = np.maximum.accumulate(np.where(from_receiver, ack + window, 0))
        del ack
        known, free = edge > 0, edge - end
        del edge, end

        def latest(which: Bools) -> Ints:
            return last_true(which, before=0)[known]

        return self.seconds(time_ns[known]), free[known], free[latest(mine)], window[latest(from_receiver)]

    @functools.cached_property
    def _window_limits(self) -> tuple[Floats, float]:
        """`window_shut_s` and `window_full_share`: the windows themselves have half the memory of the packets."""
        (time_s, free, left, window), mss = self._windows(), self.table.mss
        shut_s = runs_of(time_s, (free < mss) | ((left < mss) & (free < window / TSO_WIN_DIVISOR)))
        full_s = np.diff(time_s)[(free < (1 - const.NEARLY_ALL_SHARE) * window)[:-1]].sum()
        return shut_s, float(full_s) / max(self.duration_s, 1e-9)

    @property
    def window_shut_s(self) -> Floats:
        """Intervals in which the receive window was the limit, seconds: less than a segment of it was free, or had been
        after the latest send, and a sender still waits for room for a super-packet [Linux] tcp_tso_should_defer.
        """
        return self._window_limits[0]

    @property
    def largest_window_bytes(self) -> int:
        """The largest advertised receive window; 0 if unknown."""
        if "wscale" in self.flow.facts["inferred"]:
            return 0
        (_, rows, mine), packets = self.captured, self.flow.capture.packets
        theirs = rows[~mine & ((packets["flags"][rows] & SYN) == 0)]
        return int(np.max(packets["window"][theirs], initial=0)) << int(self.flow.facts["wscale"])

    @property
    def window_full_share(self) -> float:
        """Share of the time in which nine tenths of the receive window were in flight; 0 if unknown."""
        return self._window_limits[1]

    @property
    def unread_share(self) -> float:
        """Share of the time in which the receiver held data that its application had yet to read.

        A Linux receiver's buffer never shrinks: a smaller window than before has data in it [Linux] tcp_select_window.
        Those that arrived out of order, which SACK blocks report, wait for others, not for the application.
        """
        (time_ns, rows, mine), packets = self.captured, self.flow.capture.packets
        theirs = ~mine & ((packets["flags"][rows] & (SYN | RST)) == 0)
        time_ns, rows = time_ns[theirs], rows[theirs]
        window = packets["window"][rows]
        unread = window < const.NEARLY_ALL_SHARE * np.maximum.accumulate(window)
        unread &= (packets["options"][rows] & OPT_SACK) == 0
        return float(np.diff(time_ns)[unread[:-1]].sum()) / 1e9 / max(self.duration_s, 1e-9)

    @functools.cached_property
    def zero_window_s(self) -> Floats:
        """When the receiver advertised a zero window, seconds."""
        (time_ns, rows, mine), packets = self.captured, self.flow.capture.packets
        is_zero = (packets["window"][rows] == 0) & ((packets["flags"][rows] & (SYN | RST)) == 0)
        return self.seconds(time_ns[~mine & is_zero])

    @functools.cached_property
    def closed_windows_s(self) -> list[tuple[float, float]]:
        """Those of `window_shut_s` in which the receiver advertised a zero window."""
        zero = self.zero_window_s
        shut = self.window_shut_s.tolist() if len(zero) else []
        return [(begin, end) for begin, end in shut if np.any((zero >= begin - 1e-3) & (zero <= end))]

    @functools.cached_property
    def timeouts_s(self) -> Floats:
        """When the retransmission timer fired, seconds; also for a SYN."""
        again = self.flow.retransmission_log
        return np.append(self.opened_again_s, self.seconds(again["time_ns"][again["why"] == TIMEOUT]))

    @functools.cached_property
    def opened_again_s(self) -> Floats:
        """When a host sent its SYN again because the connection was not open yet, seconds."""
        packets, table, index = self.flow.capture.packets, self.flow.capture.connections, self.flow.index
        rows = table.rows_of(index)
        rows = rows[(packets["flags"][rows] & SYN > 0) & (packets["options"][rows] & OPT_COPY == 0)]
        mine = packets["direction"][rows] == table.sender[index]
        again = np.sort(self.seconds(table.clock[np.append(rows[mine][1:], rows[~mine][1:])]))
        return again[again < self.path.sent_s[0]]

    # --- losses ------------------------------------------------------------------------------------------------------
    @functools.cached_property
    def dropper(self) -> Bucket | None:
        """The token bucket that explains the losses of this flow and its companions; of a policer, or a short queue."""
        if self.path.lost.sum() < MIN_POLICED:
            return None
        few, many = const.POLICED_SENDS
        most = few if self.path.lost[:few].sum() >= const.MIN_PACKETS else many
        # The fate of the last packets, and hence the deficit that they met, is unknown.
        end_ns = min(self.table.sent_ns[min(most, len(self.table)) - 1], decided_ns(self.table))
        whole = (self.table, *self.path.companions.values())
        tables = [other.first(int(np.searchsorted(other.sent_ns, end_ns, "right"))) for other in whole]
        rtt = self.path.rtt_us[np.isfinite(self.path.rtt_us)]
        if self.path.lost[: len(tables[0])].sum() < MIN_POLICED:
            return None
        return dropper_of([table for table in tables if len(table)], self.start_ns, float(np.quantile(rtt, 0.05)))

    # --- rounds --------------------------------------------------------------------------------------------------
    @functools.cached_property
    def rounds(self) -> tuple[Floats, Ints, Ints]:
        """Return (start_s, segments delivered, largest in flight) of every round trip, arrays."""
        acks = self.acks
        if not len(acks):
            return np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
        found, place, delivered = [], 0, acks["delivered"]
        prior = np.maximum.accumulate(acks["rs_prior_delivered"])
        while place < len(acks):  # the next round starts when the data sent after this one's start are acknowledged
            found.append(place)
            place = max(int(np.searchsorted(prior, delivered[place])), place + 1)
        ends = np.array(found)
        begun = np.append(delivered[ends], delivered[-1]).astype(np.int64)
        got = begun[1:] - begun[:-1]
        most = np.maximum.reduceat(acks["rs_prior_in_flight"].astype(np.int64), ends)
        return self.ack_s[ends], got, most

    @functools.cached_property
    def use(self) -> float:
        """Share of the bottleneck's rate that was delivered in windows with data to send (median)."""
        middle, rate, _ = self.path.delivered
        start = min(1.0, 0.2 * self.duration_s)
        busy = rate[(rate > 0) & (middle > start)]
        return float(np.median(busy) / self.path.require_bottleneck.rate) if len(busy) else np.nan
