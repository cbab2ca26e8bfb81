"""Limits at the hosts: application, SO_MAX_PACING_RATE, send buffer, receive window, and whether fq paces.

    limits = host_limits_of(record, diagnosis)   from the time accounting and the verdicts of a diagnosis
    limits.sender_options(changes)               as options of a `cctrace.Sender`

Such a limit would hold any controller back, so simulations of other controllers keep it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cctrace.counterfactual import constants as const
from cctrace.diagnosis.constants import DOUBTFUL_CONFIDENCE
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.packets.writes import Clock, paused_writes
from cctrace.diagnosis.record import Record
from cctrace.errors import FitError
from cctrace.sim.sender import Sender
from cctrace.units import format_rate, format_share, format_size, format_time, parse_factor

OPTIONS = ("rwnd", "app", "pacing", "send_buffer", "fq")  # changes that `cctrace.whatif` accepts of the hosts


@dataclass(frozen=True)
class HostLimits:
    """Host limits; None for each that does not apply."""

    app: str | None = None  # the application's writes, as `cctrace.Sender` takes them
    pacing_bps: float | None = None  # SO_MAX_PACING_RATE, bits/s
    send_buffer_bytes: float | None = None  # SO_SNDBUF, approximately: the mean data in flight
    window_bytes: float | None = None  # the largest receive window, if it closed at times or stopped growing
    largest_window_bytes: float = 0.0  # the largest receive window, whether or not it limited; 0 if unknown
    fq: bool | None = None  # whether packets left through fq; None if unknown
    not_excluded: tuple[str, ...] = ()  # in words: what the flow might have done without these limits
    # whether the application paused without a pattern that a simulation could follow; other limits may hide how long it
    # would have paused
    may_lack_data: bool = False

    def sender_options(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of a `cctrace.Sender`: the flow's limits, unless `changes` override them."""
        options = {
            "app": changes.get("app", self.app),
            "max_pacing_rate": _limit_text(changes.get("pacing"), self.pacing_bps, "bit"),
            "send_buffer": _limit_text(changes.get("send_buffer"), self.send_buffer_bytes, "B"),
            "rwnd": _limit_text(changes.get("rwnd"), self.window_bytes, "B", self.largest_window_bytes),
            "fq": changes.get("fq", self.fq),
        }
        return {name: value for name, value in options.items() if value}


def _limit_text(change: str | None, value: float | None, unit: str, multiplied: float = 0.0) -> str | None:
    """Return a limit as `cctrace.Sender` takes it; None for none.

    `change`: "none", another limit, or a factor such as "x2"; None for no change. `multiplied`: the value that a factor
    applies to if there is no limit.
    """
    if change == "none":
        return None
    if change is not None:
        if (factor := parse_factor(change)) is None:
            return change
        value = factor * (value or multiplied)
    return f"{value:.0f}{unit}" if value else None


def host_limits_of(record: Record, diagnosis: Diagnosis) -> HostLimits:
    """Return a flow's host limits; `FitError` if the application was the main one, and its writes show no pattern."""
    names, not_excluded = diagnosis.causes, []
    time_shares = shares(diagnosis.limits)
    idle, full, closed = (time_shares.get(name, 0.0) for name in ("application", "send_buffer", "receive_window"))
    paced = next((verdict for verdict in diagnosis.verdicts if verdict.name == "pacing_limited"), None)
    app, buffered = None, "send_buffer_limited" in names[:1] or full > const.APPLICATION_SHARE
    if not buffered and (paced is None or paced.is_there < DOUBTFUL_CONFIDENCE) and idle > 0:
        app, buffered = _application(record, diagnosis, idle, closed)
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
    in_flight_bytes = record.goodput_bps / 8e6 * record.path.median_rtt_us
    if buffered:
        size = format_size(in_flight_bytes)
        not_excluded.append(f"more than {size} in flight, which the send buffer kept to (send_buffer changes it)")
    did_close = closed > const.WINDOW_SHUT or "receiver_limited" in names
    window_bytes, how = _receive_window(record, diagnosis, did_close, in_flight_bytes)
    if window_bytes is not None:
        size = f"{window_bytes / 1e3:.0f} kB"
        not_excluded.append(f"a receive window above the {size} seen, which {how} and is kept (rwnd changes it)")
    return HostLimits(
        app=app,
        pacing_bps=pacing_bps,
        send_buffer_bytes=in_flight_bytes if buffered else None,
        window_bytes=window_bytes,
        largest_window_bytes=float(record.largest_window_bytes),
        fq=record.through_fq,
        not_excluded=tuple(not_excluded),
        may_lack_data=app is None
        and not buffered
        and (idle > const.APPLICATION_SHARE or "app_limited_samples" in names),
    )


def _receive_window(
    record: Record, diagnosis: Diagnosis, did_close: bool, in_flight_bytes: float
) -> tuple[float | None, str]:
    """Return the window (bytes) that limited a flow, and in words how; None if none did."""
    largest_bytes = float(record.largest_window_bytes)
    if largest_bytes and did_close:
        return largest_bytes, "held back"
    if 0 < largest_bytes < const.GROWN_WINDOW * in_flight_bytes and not did_close:
        return largest_bytes, "did not grow with what arrived"
    # Something else may act like a receive window.
    return _evidence(diagnosis, "window_limited").get("window_bytes"), "held back"


def _evidence(diagnosis: Diagnosis, cause: str) -> Mapping[str, Any]:
    """Return the evidence of a verdict; empty if no verdict names the cause."""
    return next((verdict.evidence for verdict in diagnosis.verdicts if verdict.name == cause), {})


def _application(record: Record, diagnosis: Diagnosis, idle: float, closed: float) -> tuple[str | None, bool]:
    """Return an application's writes, as `cctrace.Sender` takes them, and whether it waited for the send buffer.

    `idle`, `closed`: shares of the time without data, and with a closed receive window. Raises `FitError` if it was the
    main limit, and its writes show no pattern.
    """
    writes = _evidence(diagnosis, "application_limited")
    app = Clock(writes["write_bytes"], writes["every_us"]).app if "every_us" in writes else paused_writes(record)
    # Data written while data were in flight waited for buffer space; or a closed window caused longer pauses.
    buffered = app is None and idle > max(const.WRITTEN_EARLY_SHARE, closed)
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
    """Return a flow's largest receive window if it was closed at times, else None."""
    shut_s = record.window_shut_s
    share = float(np.diff(shut_s)[:, 0].sum()) / max(record.duration_s, 1e-9) if len(shut_s) else 0.0
    return float(record.largest_window_bytes) if share > const.WINDOW_SHUT and record.largest_window_bytes else None
