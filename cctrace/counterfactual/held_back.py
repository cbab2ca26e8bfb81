"""Limits at the two hosts that held a flow back, for simulated senders to share.

    held = held_back(flow, diagnosis)       application, pacing limit, send buffer, receive window, fq
    held.options(changes)                   the same as options of a `cctrace.Sender`

An application that writes a chunk a second, SO_MAX_PACING_RATE or a small buffer limits every controller alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cctrace.counterfactual import constants as const
from cctrace.diagnosis.constants import DOUBTFUL
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.packets.writes import Clock, paused_writes
from cctrace.diagnosis.record import Record
from cctrace.errors import FitError
from cctrace.sim.sender import Sender
from cctrace.units import format_rate, format_share, format_size, format_time, parse_factor

OPTIONS = ("rwnd", "app", "pacing", "send_buffer", "fq")  # what-if changes at the hosts


@dataclass(frozen=True)
class HeldBack:
    """Host limits; None for each that does not apply."""

    app: str | None = None  # the application's writes, as `cctrace.Sender` takes them
    pacing_bps: float | None = None  # SO_MAX_PACING_RATE, bits/s
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
    """Return a flow's host limits; `FitError` if the application was the main one, and its writes show no pattern."""
    names, not_excluded = diagnosis.causes, []
    idle, full, closed_share = (
        shares(diagnosis.limits).get(name, 0.0) for name in ("application", "send_buffer", "receive_window")
    )
    paced = next((one for one in diagnosis.verdicts if one.name == "pacing_limited"), None)
    app, buffered = None, "send_buffer_limited" in names[:1] or full > const.APPLICATION
    if not buffered and (paced is None or paced.is_there < DOUBTFUL) and idle > 0:
        app, buffered = _application(record, diagnosis, idle, closed_share)
    if app is not None:
        not_excluded.append(
            f"that the application would have written otherwise than {_in_words(app)}, which is kept (app changes it)"
        )
    elif idle > 0 and not buffered:
        not_excluded.append(f"that the application had less to send for up to {format_share(idle)} of the time")
    pacing_bps = None if paced is None else paced.evidence["limit_bps"]
    if pacing_bps is not None:
        not_excluded.append(
            f"a pacing rate above {format_rate(pacing_bps)}, which held back and is kept (pacing changes it), or a "
            "policer of more than that, whose tokens it never used up"
        )
    in_flight = record.goodput_bps / 8e6 * record.path.median_rtt_us
    if buffered:
        size = format_size(in_flight)
        not_excluded.append(f"more than {size} in flight, which the send buffer kept to (send_buffer changes it)")
    largest = float(record.largest_window_bytes)
    closed = closed_share > const.WINDOW_SHUT or "receiver_limited" in names
    never_grew = not closed and 0 < largest < const.GROWN_WINDOW * in_flight
    window: float | None = largest
    if not largest or not (closed or never_grew):  # something else may act like a receive window
        window = _evidence(diagnosis, "window_limited").get("window_bytes")
    if window is not None:
        did = "did not grow with what arrived" if never_grew else "held back"
        shown = f"{window / 1e3:.0f} kB"
        not_excluded.append(f"a receive window above the {shown} seen, which {did} and is kept (rwnd changes it)")
    lacks = app is None and not buffered and (idle > const.APPLICATION or "app_limited_samples" in names)
    send_buffer = in_flight if buffered else None
    return HeldBack(app, pacing_bps, send_buffer, window, largest, record.through_fq, tuple(not_excluded), lacks)


def _evidence(diagnosis: Diagnosis, name: str) -> Mapping[str, Any]:
    return next((one.evidence for one in diagnosis.verdicts if one.name == name), {})


def _application(record: Record, diagnosis: Diagnosis, idle: float, closed: float) -> tuple[str | None, bool]:
    """Return an application's writes, as `cctrace.Sender` takes them, and whether it waited for the send buffer.

    `idle`, `closed`: shares of the time without data, and with a closed receive window. Raises `FitError` if it was the
    main limit, and its writes show no pattern.
    """
    said = _evidence(diagnosis, "application_limited")
    app = Clock(said["write_bytes"], said["every_us"]).app if "every_us" in said else paused_writes(record)
    # Data written while data were in flight waited for buffer space; or a closed window caused longer pauses.
    buffered = app is None and idle > max(const.WRITTEN_EARLY, closed)
    if buffered and diagnosis.causes[:1] == ["application_limited"]:
        raise FitError(
            f"the application held the flow back (for {format_share(idle)} of the time), and its "
            "writes show no pattern: what it would have sent over another path is not in the capture; a bulk transfer "
            "is needed"
        )
    return app, buffered


def _in_words(app: str) -> str:
    """Return an application's writes in words.

    >>> _in_words("chunks:size=1934528B,every=1000000us")
    '1.93 MB every 1 s'
    """
    sender = Sender("reno", app=app)
    size, period_ns = sender.application[1:3]
    when = "every" if app.startswith("chunks") else "each time, after pauses of"
    return f"{format_size(size)} {when} {format_time(period_ns)}"


def shut_window_bytes(record: Record) -> float | None:
    """Return the largest receive window of a flow that it limited at times, else None."""
    shut = record.window_shut_s
    share = float(np.diff(shut)[:, 0].sum()) / max(record.duration_s, 1e-9) if len(shut) else 0.0
    return float(record.largest_window_bytes) if share > const.WINDOW_SHUT and record.largest_window_bytes else None
