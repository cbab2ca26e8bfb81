"""The packets that a bottleneck serves, and when they were delivered: their delays behind a queue, and their rate.

    flow = sent_packets(table)       departures, sizes and acknowledgements of a table of transmissions
    flow.departures(steps)           when each packet leaves a queue served at these rates (Lindley's recursion)
    flow.unexplained(steps)          residual delays: constant, but for jitter, if the rates are right

Searches for the rate evaluate the residual delays hundreds of times; `lindley` has the compiled loops.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, fields

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.lang.machine import Prepared
from cctrace.path import constants as const
from cctrace.path import lindley
from cctrace.path.arrays import last_of_each
from cctrace.path.queue import Steps, backlog, departures
from cctrace.path.transmissions import DELIVERED, LOST, Transmissions


@dataclass(frozen=True)
class SentPackets:
    """Packets that pass the bottleneck, and when they were acknowledged; times in us since the flow's first packet."""

    sent_us: np.ndarray  # of packets that were not dropped before or in the queue, ascending
    wire_bytes: np.ndarray
    acked_us: np.ndarray  # when an ACK reported the delivery; NaN: unknown
    row: np.ndarray  # packet number of that ACK
    first: np.ndarray  # bool: first transmission
    prompt: np.ndarray  # bool: reported without delay

    def behind(self, wire_bytes: float) -> SentPackets:
        """Return the packets behind so many bytes that were in the queue before the first."""
        ahead = SentPackets(
            self.sent_us[:1],
            np.array([wire_bytes]),
            np.array([np.nan]),
            np.array([-1]),
            np.zeros(1, bool),
            np.zeros(1, bool),
        )
        names = [each.name for each in fields(self)]
        return SentPackets(*(np.concatenate([getattr(ahead, name), getattr(self, name)]) for name in names))

    @property
    def lasts(self) -> bool:
        """Whether packets were sent at different times: one time stamp for all shows no rate."""
        return len(self.sent_us) > 0 and bool(self.sent_us[-1] > self.sent_us[0])

    @functools.cached_property
    def acked(self) -> Ints:
        """Rows whose delivery time is known."""
        return np.flatnonzero(np.isfinite(self.acked_us))

    @functools.cached_property
    def timed(self) -> Ints:
        """Rows whose delivery time is exact: the last packet reported by each prompt ACK."""
        rows = self.acked[last_of_each(self.row[self.acked])]
        rows = rows[self.prompt[rows]]
        return rows if len(rows) >= const.LEAST_RTTS else self.acked

    @property
    def rtt_us(self) -> Floats:
        """RTTs, NaN where unknown."""
        return self.acked_us - self.sent_us

    @functools.cached_property
    def least_rtt_us(self) -> float:
        """2 % quantile of the RTTs, us."""
        return float(np.nanquantile(self.rtt_us, 0.02))

    @functools.cached_property
    def _work(self) -> tuple[Floats, Floats, Floats, Ints | None]:
        """Times of arrivals and bytes before them; bytes up to each packet, and its arrival (None: its own row).

        The packets of a burst that has one time stamp are one arrival.
        """
        total = np.concatenate(([0.0], np.cumsum(self.wire_bytes)))
        first = np.diff(self.sent_us, prepend=np.nan) != 0
        if first.all():
            return self.sent_us, total[:-1], total[1:], None
        return self.sent_us[first], total[:-1][first], total[1:], np.cumsum(first) - 1

    def _work_at(self, rows: Ints) -> tuple[Prepared, ...]:
        """Return what compiled code needs for the residual delays of some rows, see `lindley.residuals`."""
        sent_us, before, after, place = self._work
        last = rows if place is None else place[rows]
        return tuple(map(Prepared, (sent_us, before, last, after, self.acked_us, rows)))

    def put_away(self) -> None:
        """Drop what searches cached, seven columns as long as the packets; it is computed again on demand."""
        for name in ("_work", "_timed_work", "_acked_work", "_kept"):
            vars(self).pop(name, None)

    @functools.cached_property
    def _timed_work(self) -> tuple[Prepared, ...]:
        return self._work_at(self.timed)

    @functools.cached_property
    def _acked_work(self) -> tuple[Prepared, ...]:
        return self._work_at(self.acked)

    def part(self, begin_us: float, end_us: float) -> SentPackets:
        """Return the packets sent from `begin_us` to `end_us`."""
        rows = (self.sent_us >= begin_us) & (self.sent_us < end_us)
        return SentPackets(*(getattr(self, each.name)[rows] for each in fields(SentPackets)))

    @functools.cached_property
    def window_rows(self) -> int:
        """The number of `timed` rows in a second or ten RTTs."""
        window_us, span_us = max(1e6, 10 * self.least_rtt_us), self.sent_us[-1] - self.sent_us[0] + 1
        return min(max(int(len(self.timed) * window_us / span_us), 20), len(self.timed))

    def departures(self, steps: Steps, bucket_bytes: float = 0.0) -> Floats:
        """Return when each packet leaves a queue served at `steps`; see `queue.departures`."""
        return departures(self.sent_us, self.wire_bytes, steps, bucket_bytes)

    def unexplained(self, steps: Steps) -> Floats:
        """Return the residual delays of `timed` rows, acknowledgement less `departures`, us; compiled for searches."""
        found = np.empty(len(self.timed))
        delays = self._timed_work
        if len(steps.rate) == 1:
            lindley.residual_delays(*delays, float(steps.rate[0]), found, 0, len(found), lindley.IDLE)
        else:
            spans_us, served = np.diff(steps.start_us), steps.served_at_starts
            sizes = np.diff(served)
            lindley.residual_delays_by_steps(*delays, *steps, served, sizes / spans_us, spans_us / sizes, found)
        return found

    def deviation_at(self, rate: float, most: float, all_rows: bool = False) -> float:
        """Return `deviation` at one rate, up to rounding, or infinity where it exceeds `most`."""
        size = len(self.timed) if all_rows else self.window_rows
        scratch = self._scratch(size)
        return lindley.deviation_by_queue(*self._timed_work, float(rate), size, const.SMALL_US, float(most), *scratch)

    def deviation_with_bucket(self, rate: float, most: float, share: float, least_us: float) -> float:
        """Return the cost that `shapers.refilled_shaper` minimises, or infinity where it exceeds `most`."""
        scratch = self._scratch(len(self.acked))
        limits = least_us, const.SMALL_US, float(most)
        return lindley.deviation_by_bucket(*self._acked_work, float(rate), share, *limits, *scratch)

    def deviation_behind(
        self, rate: float, bucket_bytes: float, least_us: float, scale_us: float, most: float
    ) -> float:
        """Return the cost that `shapers.shaper_of` minimises, or infinity where it exceeds `most`."""
        shaped = float(rate), float(bucket_bytes / rate), least_us, scale_us, float(most)
        return lindley.deviation_of_shaped(*self._acked_work, *shaped, self._scratch(len(self.acked))[0])

    @functools.cached_property
    def _scratch_of_thread(self) -> dict[int, tuple[Floats, Floats]]:
        return {}

    def _scratch(self, size: int) -> tuple[Floats, Floats]:
        """Return scratch arrays for compiled code, of this thread."""
        thread = threading.get_ident()
        if thread not in self._scratch_of_thread or len(self._scratch_of_thread[thread][0]) < size:
            self._scratch_of_thread[thread] = np.empty(size), np.empty(size)
        return self._scratch_of_thread[thread]


def sent_packets(table: Transmissions, passed: Bools | None = None) -> SentPackets:
    """Return the packets of a table that reached their receiver, and those that were lost after they had `passed`."""
    which = (table.state != LOST) | (False if passed is None else passed)
    rows = slice(None) if which.all() else np.flatnonzero(which)  # without losses, columns need no copy
    known = (table.state[rows] == DELIVERED) & table.exact[rows]
    return SentPackets(
        (table.sent_ns[rows] - table.start_ns) / 1e3,
        table.wire_bytes[rows],
        np.where(known, (table.acked_ns[rows] - table.start_ns) / 1e3, np.nan),
        table.ack_row[rows],
        ~table.retransmitted[rows],
        table.prompt[rows],
    )


def backlog_at(flow: SentPackets, steps: Steps, time_us: Floats) -> Floats:
    """Return the bytes in the queue at the given times, with what arrived at that instant."""
    last = np.searchsorted(flow.sent_us, time_us, "right") - 1  # packet that arrived by then
    is_first = last < 0
    last[is_first] = 0
    backlog_bytes = backlog(flow.sent_us, flow.wire_bytes, steps)[last]
    served = steps.served(time_us)  # in place here and below, as of a million packets each column has 8 MB
    served -= steps.served(flow.sent_us[last])
    backlog_bytes -= served
    np.maximum(backlog_bytes, 0.0, out=backlog_bytes)
    backlog_bytes[is_first] = 0.0
    return backlog_bytes


def delivered_rate(flow: SentPackets, window_us: float, every: bool = True) -> tuple[Floats, Floats, Floats]:
    """Return the centres, rates and mean RTTs of the windows up to the last delivery.

    Not `every`: of those with deliveries only, of which there are no more than packets, however narrow a window is.
    """
    known = np.flatnonzero(np.isfinite(flow.acked_us))
    order = known[np.argsort(flow.acked_us[known], kind="stable")]
    del known  # here and below: of a million packets each has 8 MB
    acked_us = flow.acked_us[order]
    window = (acked_us / window_us).astype(np.int64)
    edges = np.arange(window[-1] + 2) if every else np.append(window[np.diff(window, prepend=-1) > 0], window[-1] + 1)
    begin = np.searchsorted(window, edges)
    del window
    total = np.concatenate([[0.0], np.cumsum(flow.wire_bytes[order])])
    rate = (total[begin[1:]] - total[begin[:-1]]) / window_us
    del total
    many = np.diff(begin)
    rtts_us = np.concatenate([[0.0], np.cumsum(acked_us - flow.sent_us[order])])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_rtt_us = (rtts_us[begin[1:]] - rtts_us[begin[:-1]]) / many
    return (edges[:-1] + 0.5) * window_us, rate, mean_rtt_us
