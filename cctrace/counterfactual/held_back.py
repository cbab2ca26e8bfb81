"""Limits at the two hosts that held a flow back, for simulated senders to share.

    held = held_back(flow, diagnosis)       application, pacing limit, send buffer, receive window, fq
    held.options(changes)                   the same as options of a `cctrace.Sender`

An application that writes a chunk a second, SO_MAX_PACING_RATE or a small buffer limits every controller alike. The
application's writes are inferred from what was sent between idle times: everything acknowledged, and nothing left
to send.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.counterfactual import constants as const
from cctrace.diagnosis.constants import MOSTLY
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import Limit
from cctrace.diagnosis.limits import outside, written
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.socket_limit import socket_limit
from cctrace.errors import FitError
from cctrace.replaying.through_fq import at_hand_over
from cctrace.sim.sender import Sender
from cctrace.units import format_rate, format_share, format_size, format_time, parse_factor

OPTIONS = ("rwnd", "app", "pacing", "send_buffer", "fq")  # what-if changes at the hosts


@dataclass(frozen=True)
class HeldBack:
    """Host limits; None for each that does not apply."""

    app: str | None = None  # the application's writes, as `cctrace.Sender` takes them
    pacing_bps: float | None = None  # SO_MAX_PACING_RATE, bits/s
    paced_share: float = 0.0  # share of the polls in which the socket paced at that limit; 0 without counters
    send_buffer_bytes: float | None = None  # SO_SNDBUF, approximately: the mean data in flight
    window_bytes: float | None = None  # the largest receive window, if it closed at times or stopped growing
    largest_window_bytes: float = 0.0  # the same regardless of that; 0 if unknown
    fq: bool | None = None  # whether packets left through fq; None if unknown
    not_excluded: tuple[str, ...] = ()  # what that leaves open, in words
    # whether the application paused without a pattern that a simulation could follow; other limits may hide how long it
    # would have paused
    may_lack_data: bool = False

    def options(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of a `cctrace.Sender`: the flow's limits, unless `changes` override them."""
        options = {
            "app": changes.get("app", self.app),
            "max_pacing_rate": self._changed("pacing", self.pacing_bps, "bit", changes),
            "send_buffer": self._changed("send_buffer", self.send_buffer_bytes, "B", changes),
            "rwnd": self._changed("rwnd", self.window_bytes, "B", changes, self.largest_window_bytes),
            "fq": changes.get("fq", self.fq),
        }
        return {name: value for name, value in options.items() if value}

    @staticmethod
    def _changed(name: str, value: float | None, unit: str, changes: Mapping[str, Any], base: float = 0) -> str | None:
        """Return a limit as `cctrace.Sender` takes it, the flow's own or a changed one; None for none."""
        text = changes.get(name)
        if text == "none":
            return None
        if text is not None:
            if (factor := parse_factor(text)) is None:
                return text
            value = factor * (value or base)
        return f"{value:.0f}{unit}" if value else None


def held_back(record: Record, diagnosis: Diagnosis) -> HeldBack:
    """Return the host limits of a flow.

    Raises `FitError` if the application was the main limit, and its writes show no pattern.
    """
    names = diagnosis.causes
    total_s = sum(limit.end_s - limit.start_s for limit in diagnosis.limits) or 1.0
    spans = dict.fromkeys(("application", "send_buffer", "receive_window"), 0.0)
    for limit in diagnosis.limits:
        if limit.name in spans:
            spans[limit.name] += (limit.end_s - limit.start_s) / total_s
    buffered = "send_buffer_limited" in names[:1] or spans["send_buffer"] > const.APPLICATION
    pacing_bps, paced_share = _pacing_limit(record, diagnosis)
    app, idle, not_excluded = None, spans["application"], []
    if not buffered and "pacing_limited" not in names and idle > 0:
        app = clocked_writes(record, diagnosis.limits) or writes_of(record)
        # Data written while data were in flight waited for buffer space; or a closed window caused longer pauses.
        buffered = app is None and idle > max(const.WRITTEN_EARLY, spans["receive_window"])
        if buffered and names[:1] == ["application_limited"]:
            raise FitError(
                f"the application held the flow back (for {format_share(idle)} of the time), and its writes show no "
                "pattern: what it would have sent over another path is not in the capture; a bulk transfer is needed"
            )
    if app is not None:
        not_excluded.append(
            f"that the application would have written other than {_in_words(app)}, which is kept (app changes it)"
        )
    elif idle > 0 and not buffered:
        not_excluded.append(f"that the application had less to send for up to {format_share(idle)} of the time")
    if pacing_bps is not None:
        not_excluded.append(
            f"a pacing rate above {format_rate(pacing_bps)}, which held back and is kept (pacing changes it), or a "
            "policer of more than that, whose tokens it never used up"
        )
    in_flight = record.goodput_bps / 8e6 * record.median_rtt_us
    outstanding = in_flight if buffered else None
    if outstanding is not None:
        size = format_size(outstanding)
        not_excluded.append(f"more than {size} in flight, which the send buffer kept to (send_buffer changes it)")
    largest = float(record.largest_window_bytes)
    shut = spans["receive_window"] > const.WINDOW_SHUT or "receiver_limited" in names
    hidden = not shut and 0 < largest < const.GROWN_WINDOW * in_flight
    window = largest if largest and (shut or hidden) else None
    for verdict in diagnosis.verdicts:
        if verdict.name == "window_limited" and window is None:  # limited by something that acts like a receive window
            window = verdict.evidence["window_bytes"]
    if window is not None:
        did = "did not grow with what arrived" if hidden else "held back"
        shown = f"{window / 1e3:.0f} kB"
        not_excluded.append(f"a receive window above the {shown} seen, which {did} and is kept (rwnd changes it)")
    fq = at_hand_over(record.flow).through_fq
    lacks = app is None and not buffered and (idle > const.APPLICATION or "app_limited_samples" in names)
    return HeldBack(app, pacing_bps, paced_share, outstanding, window, largest, fq, tuple(not_excluded), lacks)


def _in_words(app: str) -> str:
    """Return an application's writes in words.

    >>> _in_words("chunks:size=1934528B,every=1000000us")
    '1.93 MB every 1 s'
    """
    sender = Sender("reno", app=app)
    size, period_ns = (sender.application(1))[1:3]
    when = "every" if app.startswith("chunks") else "each time, after pauses of"
    return f"{format_size(size)} {when} {format_time(period_ns)}"


def _pacing_limit(record: Record, diagnosis: Diagnosis) -> tuple[float | None, float]:
    """Return the pacing limit, bits/s of payload, and the share of polls at it.

    The limit comes from the counters or, if a verdict says so, from the rate of departures; None if unknown.
    """
    polls = record.flow.tcpinfo
    if polls is not None and "max_pacing_rate" in polls.columns | polls.extra:
        limit, share = socket_limit(polls["pacing_rate_Bps"].astype(float), polls["max_pacing_rate"].astype(float))
        if share > 0:
            return 8 * limit, share
    return next((one.evidence["limit_bps"] for one in diagnosis.verdicts if one.name == "pacing_limited"), None), 0.0


def shut_window_bytes(record: Record) -> float | None:
    """Return the largest receive window of a flow that it limited at times, else None."""
    shut = record.window_shut_s
    share = float(np.diff(shut)[:, 0].sum()) / max(record.duration_s, 1e-9) if len(shut) else 0.0
    return float(record.largest_window_bytes) if share > const.WINDOW_SHUT and record.largest_window_bytes else None


def writes_of(record: Record) -> str | None:
    """Return the application's writes as `cctrace.Sender` takes them; None if they show no pattern.

    A write starts with the first data after a pause with nothing outstanding. The first one may be another
    protocol's handshake, and the last may be truncated: neither counts.
    """
    idle = record.empty_s
    pauses = idle[np.diff(idle)[:, 0] > const.IDLE_RTTS * record.least_rtt_us / 1e6]
    pauses = pauses[pauses[:, 1] < record.duration_s]
    if len(pauses) < const.FEWEST_WRITES:
        return None
    begins, ends = pauses[:, 1], pauses[:, 0]
    apart, sizes = np.diff(begins), _sent_between(record, begins)
    paused = begins[1:] - ends[1:]
    turns = np.maximum(np.rint(apart / apart.min()), 1)  # a write not finished when the next one came leaves no pause
    every = float(apart.sum() / turns.sum())
    if np.std(paused) < const.EVEN * np.std(apart - turns * every):
        return f"requests:size={np.median(sizes):.0f}B,think={np.median(paused) * 1e6:.0f}us"
    return f"chunks:size={sizes.sum() / turns.sum():.0f}B,every={every * 1e6:.0f}us"


def clocked_writes(record: Record, limits: Sequence[Limit]) -> str | None:
    """Return writes on a clock, as `writes_of`, although earlier ones were still in flight; None if there are none.

    Data that wait for room in a send buffer are written when ACKs free it, several times per RTT. Requests follow
    pauses of one length.
    """
    busy = np.array([(one.start_s, one.end_s) for one in limits if one.name != "application"]).reshape(-1, 2)
    pauses = outside(written(record), busy)
    begins, apart = pauses[:, 1], np.diff(pauses[:, 1])
    long = np.flatnonzero(apart > const.CLOCK_RTTS * record.median_rtt_us / 1e6)
    periods = long[np.unique(np.rint(np.log(apart[long]) / const.ON_CLOCK), return_index=True)[1]]
    ticks = [np.array(_on_clock(begins, int(place), float(apart[place]))) for place in periods]
    most = max(map(len, ticks), default=0)
    kept = next((one for one in reversed(ticks) if len(one) >= MOSTLY * most), np.zeros(0, int))  # no fraction of it
    if len(kept) < max(const.FEWEST_WRITES, MOSTLY * len(begins)):
        return None
    turns, sizes = np.rint(np.diff(begins[kept]) / np.diff(begins[kept]).min()), _sent_between(record, begins[kept])
    size, every = sizes.sum() / turns.sum(), float(np.ptp(begins[kept]) / turns.sum())
    uneven = np.std(np.diff(begins[kept]) - turns * every)
    alike = np.mean(np.abs(sizes / (turns * size) - 1) < const.ON_CLOCK) >= MOSTLY
    if not alike or np.std(np.diff(pauses[kept])) < const.EVEN * uneven:
        return None
    return f"chunks:size={size:.0f}B,every={every * 1e6:.0f}us"


def _on_clock(begins: NDArray[np.float64], first: int, every: float) -> list[int]:
    """Return which of the times follow, or precede, that of a row by whole periods, each within its neighbour's."""
    kept = [first]
    for step in (1, -1):
        last = first
        for place in range(first + step, len(begins) if step > 0 else -1, step):
            apart = abs(begins[place] - begins[last])
            if apart > every / 2 and abs(apart - round(apart / every) * every) < const.ON_CLOCK * every:
                kept.append(last := place)
    return sorted(kept)


def _sent_between(record: Record, times_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bytes first sent between successive times."""
    sends = record.events.sends
    new = sends[sends["retransmitted"] == 0]
    total = np.concatenate([[0], np.cumsum(new["segments"].astype(np.int64) * record.table.mss)])
    return np.diff(total[np.searchsorted(record.seconds(new["time_ns"]), times_s - 1e-9)])
