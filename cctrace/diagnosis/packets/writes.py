"""An application's writes, from packets: each begins with the first data after a pause that no ACK ended."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Limit
from cctrace.diagnosis.limits import outside, written
from cctrace.diagnosis.record import Record
from cctrace.flows.periodic_writes import LATE


class Clock(NamedTuple):
    """Writes of a size, one every `every_us`."""

    write_bytes: float
    every_us: float

    @property
    def app(self) -> str:
        """The application as `cctrace.Sender` takes it."""
        return f"chunks:size={self.write_bytes:.0f}B,every={self.every_us:.0f}us"


def paused_writes(record: Record) -> str | None:
    """Return the application's writes as `cctrace.Sender` takes them; None if they show no pattern.

    A write starts with the first data after a pause with nothing outstanding. The first one may be another
    protocol's handshake, and the last may be truncated: neither counts.
    """
    idle = record.empty_s
    pauses = idle[np.diff(idle)[:, 0] > record.path.least_rtt_us / 1e6]
    pauses = pauses[(pauses[:, 1] < record.duration_s) & (np.diff(pauses[:, 1], prepend=-1.0) > 0)]
    if len(pauses) < const.MIN_OBSERVATIONS:
        return None
    begins, ends = pauses[:, 1], pauses[:, 0]
    apart, sizes = np.diff(begins), _sent_between(record, begins)
    paused = begins[1:] - ends[1:]
    turns = np.maximum(np.rint(apart / apart.min()), 1)  # a write not finished when the next one came leaves no pause
    every = float(apart.sum() / turns.sum())
    if np.std(paused) < np.std(apart - turns * every):
        return f"requests:size={np.median(sizes):.0f}B,think={np.median(paused) * 1e6:.0f}us"
    return Clock(float(sizes.sum() / turns.sum()), 1e6 * every).app


def clocked_writes(record: Record, limits: Sequence[Limit]) -> Clock | None:
    """Return the clock of writes, even if earlier ones were still in flight when the next one came; None without.

    Data that wait for room in a send buffer are written when ACKs free it, several times per RTT. Requests follow
    pauses of one length.
    """
    if (exact := record.events.writes) is not None:
        return Clock(float(exact.size), exact.every_ns / 1e3)
    busy = np.array([(one.start_s, one.end_s) for one in limits if one.name != "application"]).reshape(-1, 2)
    pauses = outside(written(record), busy)
    begins, apart = pauses[:, 1], np.diff(pauses[:, 1])
    long = np.flatnonzero(apart > const.CLOCK_RTTS * record.path.median_rtt_us / 1e6)
    periods = long[np.unique(np.rint(np.log(apart[long]) / const.EQUAL_WITHIN), return_index=True)[1]]
    ticks = [np.array(_on_clock(begins, int(place), float(apart[place]))) for place in periods]
    most = max(map(len, ticks), default=0)
    # The longest period that fits, as fractions of it do, too.
    on_clock = next((one for one in reversed(ticks) if len(one) >= const.PREDOMINANT_SHARE * most), np.zeros(0, int))
    if len(on_clock) < max(const.MIN_OBSERVATIONS, const.PREDOMINANT_SHARE * len(begins)):
        return None
    begins_s = begins[on_clock]
    turns, sizes = np.rint(np.diff(begins_s) / np.diff(begins_s).min()), _sent_between(record, begins_s)
    size, every = sizes.sum() / turns.sum(), float(np.ptp(begins_s) / turns.sum())
    uneven = np.std(np.diff(begins_s) - turns * every)
    alike = np.mean(np.abs(sizes / (turns * size) - 1) < const.EQUAL_WITHIN) >= const.PREDOMINANT_SHARE
    if not alike or np.std(np.diff(pauses[on_clock])) < uneven:
        return None
    return Clock(float(size), 1e6 * every)


def _on_clock(begins: Floats, first: int, every: float) -> list[int]:
    """Return the rows of the times that whole periods of `every` separate from that of row `first`, ascending."""
    rows = [first]
    for step in (1, -1):
        last = first
        for place in range(first + step, len(begins) if step > 0 else -1, step):
            apart = abs(begins[place] - begins[last])
            if apart > every / 2 and abs(apart - round(apart / every) * every) < LATE * every:
                last = place
                rows.append(place)
    return sorted(rows)


def _sent_between(record: Record, times_s: Floats) -> Ints:
    """Return the bytes first sent between successive times."""
    sent = record.events.sent
    new = sent["retransmitted"] == 0
    total = np.concatenate([[0], np.cumsum(sent["segments"][new].astype(np.int64) * record.table.mss)])
    return np.diff(total[np.searchsorted(record.seconds(sent["time_ns"][new]), times_s - 1e-9)])
