"""The state of a replayed controller as text: names and units instead of its own fields and fixed-point numbers."""

from typing import Any

import numpy as np

from cctrace.cc.base import Controller
from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.units import format_counted, format_number, format_rate, format_size, format_time

UNBOUNDED = 0x3FFFFFFF  # Linux writes ~0U or 0x7fffffff where there is no bound yet


def in_words(controller: type[Controller], state: dict[str, Any], mss: int | None) -> list[tuple[str, str]]:
    """Return a controller's state as text, a list of (name, value with unit).

    `state`: its fields, as `Run.state`. `mss`: payload of a full segment, bytes; None unknown.

    >>> from cctrace.cc import controller
    >>> in_words(controller("cubic")[0], {"snd_cwnd": 26, "snd_ssthresh": 0x7FFFFFFF, "pacing_rate": -1}, 1448)
    [('congestion window', '26 segments (37.6 kB)'), ('ssthresh', 'none yet')]
    """
    outputs = _quic(state) if controller.view == "quic" else _linux(state, mss)
    return [*outputs, *_model(controller, state, mss)]


def time_in_words(time_ns: int, first_ns: int) -> str:
    """Return a time as text: seconds since the first, and of the day (UTC)."""
    day = str(np.datetime64(int(time_ns) // 1000, "us")).replace("T", " ")
    return f"{(int(time_ns) - int(first_ns)) / 1e9:.6f} s after the first call ({day} UTC)"


def _segments(count: float, mss: int | None) -> str:
    size = "" if mss is None else f" ({format_size(count * mss)})"
    return "none yet" if count >= UNBOUNDED else f"{format_counted(round(count), 'segment', 'segments')}{size}"


def _linux(state: dict[str, Any], mss: int | None) -> list[tuple[str, str]]:
    lines = [("congestion window", _segments(state["snd_cwnd"], mss))]
    if "snd_ssthresh" in state:
        lines.append(("ssthresh", _segments(state["snd_ssthresh"], mss)))
    if state.get("pacing_rate", -1) > 0:
        lines.append(("pacing rate", format_rate(state["pacing_rate"] * 8)))
    return lines


def _quic(state: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("congestion window", format_size(state["cwnd"]))]
    if "ssthresh" in state:
        lines.append(("ssthresh", "none yet" if state["ssthresh"] < 0 else format_size(state["ssthresh"])))
    if state.get("pacing_rate", 0) > 0:
        lines.append(("pacing rate", format_rate(state["pacing_rate"] * 8)))
    return lines


def _model(controller: type[Controller], state: dict[str, Any], mss: int | None) -> list[tuple[str, str]]:
    lines = []
    if "mode" in state:
        lines.append(("mode", _mode(controller, state)))
    bandwidth = _bandwidth(controller, state)
    if bandwidth is not None:
        is_bytes = controller.view == "quic" or "bw_shortterm" in state
        in_bytes = is_bytes or mss is not None
        rate = format_rate(bandwidth * 8 * (1 if is_bytes else mss or 1))
        text = rate if in_bytes else f"{format_number(bandwidth)} segments/s"
        lines.append(("bandwidth estimate", text if bandwidth else "none yet"))
    for name, factor in (("min_rtt_us", 1e3), ("min_rtt_ms", 1e6)):
        if name in state:
            known = 0 < state[name] < UNBOUNDED
            lines.append(("min_rtt", format_time(state[name] * factor) if known else "none yet"))
    unit = _gain_unit(controller, state)
    lines += [
        (name.replace("_", " "), format_number(state[name] / unit, 4))
        for name in ("pacing_gain", "cwnd_gain")
        if name in state
    ]
    lines += [
        (name, _segments(state[name], mss))
        for name in ("inflight_hi", "inflight_lo", "inflight_longterm", "inflight_shortterm")
        if name in state and controller.view == "linux"
    ]
    return lines


def _mode(controller: type[Controller], state: dict[str, Any]) -> str:
    """Return the name of the mode; within PROBE_BW also what it is probing for."""
    states, mode = controller.states, int(state["mode"])
    name = states[mode] if 0 <= mode < len(states) else str(mode)
    if name != "PROBE_BW":
        return name
    if len(states) > 4 and 0 <= 4 + int(state.get("cycle_idx", -1)) < len(states):
        return f"{name}, {states[4 + int(state['cycle_idx'])]}"
    unit = _gain_unit(controller, state)
    gain = state.get("pacing_gain", unit) / unit
    return f"{name}, {'probing for more' if gain > 1 else 'draining' if gain < 1 else 'cruising'}"


def _gain_unit(controller: type[Controller], state: dict[str, Any]) -> int:
    """Return what a gain of 1 is: 256 in released Linux controllers, else 1."""
    return 1 if controller.view == "quic" or isinstance(state.get("pacing_gain"), float) else 256


def _bandwidth(controller: type[Controller], state: dict[str, Any]) -> float | None:
    """Return the bandwidth estimate, bytes (released Linux: segments) per second; None if the controller has none."""
    if controller.view == "quic" or "bw_shortterm" in state:
        return state.get("bw")
    if "bw_hi0" in state:
        bandwidth = min(max(state["bw_hi0"], state["bw_hi1"]), state["bw_lo"])
    elif "bw_v" in state:
        bandwidth = state["lt_bw"] if state.get("lt_use_bw") else state["bw_v"][0]
    else:
        return None
    return bandwidth / BW_UNIT * 1e6
