"""Changes of a path: properties replaced or multiplied."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from cctrace.arguments import check_argument
from cctrace.counterfactual.host_limits import OPTIONS
from cctrace.errors import ArgumentError
from cctrace.sim.jitter import Jitter
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import parse_factor, parse_rate_bps, parse_share, parse_size_bytes, parse_time_ns

CHANGES = ("rate", "rtt", "buffer", "jitter", "loss", "aqm", *OPTIONS)


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` for an unknown change of a path, or an invalid value."""
    for name, value in changes.items():
        if name not in CHANGES:
            raise ArgumentError(f"{name}={value!r}: what can be changed is {', '.join(CHANGES)}")
        if name not in ("aqm", "app", "fq") and parse_factor(value, name) is not None:
            continue
        if name == "fq":
            check_argument(isinstance(value, bool), "fq", value, "True or False")
        elif name == "app":
            Sender("reno", app=value)
        elif name in OPTIONS:
            parse = parse_rate_bps if name == "pacing" else parse_size_bytes
            if value != "none":
                parse(value, name=name)
        else:
            Path(**({"rate": "1Mbit", "buffer": "1MB"} | {name: value}))


def changed(path: Path, changes: Mapping[str, Any]) -> Path:
    """Return a path with properties replaced, or multiplied if the value is a text like ``"x2"``.

    Less jitter leaves the mean delay as it was: what it adds less becomes part of the RTT. So does all that it added if
    there is none (None, ``"x0"``), or normal jitter, whose mean is zero. More jitter has a longer mean, too.

    >>> from cctrace.sim.path import Path
    >>> changed(Path(rate="10Mbit", rtt="40ms", buffer="100kB"), {"buffer": "x2", "loss": "1%"}).buffer_bytes
    200000
    """
    fields = {f.name: getattr(path, f.name) for f in dataclasses.fields(Path) if f.init}
    for name, value in changes.items():
        factor = parse_factor(value)
        field = "jitter_before" if name == "jitter" and path.jitters_before else name  # on its side of the queue
        fields[field] = value if factor is None else _times(path, name, factor)
        if name == "rate" and path.has_only_shaper and path.shaper is not None:
            fields["rate"], fields["shaper"] = None, (fields["rate"], *path.shaper[1:])
        if name == "loss" and factor is None:
            fields["burst_loss"] = None
        if name == "aqm":  # replaces a step threshold, too
            fields["ecn_threshold"] = changes.get("ecn_threshold")
    if "jitter" in changes and "rtt" not in changes and (share := _constant_share(changes["jitter"])):
        fields["rtt"] = _at_mean(path, share)
    if "rtt" in changes and path.reverse_ns:  # the ACKs' delay keeps its share of the RTT
        before, after = (min(version.rtt_steps()[1]) for version in (path, Path(**fields | {"reverse": "0ms"})))
        fields["reverse"] = f"{path.reverse_ns * after / before / 1e3:.3f}us"
    if fields["rtt"] != path.rtt or "rate" in changes:
        fields["buffer"] = fields["buffer"] if "buffer" in changes else f"{path.buffer_bytes}B"
    return Path(**fields)


def alike(path: Path, other: Path) -> bool:
    """Return whether a simulation treats two paths alike."""
    return _simulated_properties(path) == _simulated_properties(other)


def _simulated_properties(path: Path) -> str:
    """Return all that a simulation uses of a path, as text to compare."""
    jitters = (path.jitter_steps(), path.jitter_steps(before=True))
    steps = (path.rate_steps(), path.rtt_steps(), *jitters, path.loss_steps())
    texts = [[str(value) for value in values] for _, values in steps]
    names = ("delay_before", "buffer_bytes", "burst_loss", "aqm", "ecn_threshold", "policer", "shaper")
    return str([texts, *(getattr(path, name) for name in names)])


def _times(path: Path, name: str, factor: float) -> Any:
    """Return a property of a path times a factor, as `Path` takes it."""
    if name == "buffer":
        return f"{max(_scaled(path.buffer_bytes, factor), PACKET_BYTES):.0f}B"
    if name == "jitter":
        steps = zip(*path.jitter_steps(path.jitters_before), strict=True)
        louder = [(t / 1e9, None if j is None or factor == 0 else _louder(j, factor)) for t, j in steps]
        return louder if len(louder) > 1 else louder[0][1]
    if name == "loss":
        return f"{min(100 * factor * parse_share(path.loss, 'loss'), 100):.6f}%"
    times_ns, values = path.rate_steps() if name == "rate" else path.rtt_steps()
    scaled = [
        (t / 1e9, float(v * factor) if name == "rate" else f"{v * factor / 1e3:.1f}us")
        for t, v in zip(times_ns, values, strict=True)
    ]
    return scaled if len(scaled) > 1 else scaled[0][1]


def _constant_share(jitter: Any) -> float:
    """Return the share of a jitter's mean that becomes a part of the base RTT when another jitter takes its place."""
    if jitter in (None, "none") or str(jitter).startswith("normal"):
        return 1.0
    factor = parse_factor(jitter)
    return 0.0 if factor is None else max(1.0 - factor, 0.0)


def _at_mean(path: Path, share: float) -> list[tuple[float, str]]:
    """Return a path's base RTT with a share of its jitter's mean added, as `Path` takes it."""
    (rtt_from_ns, rtts_ns), (jitter_from_ns, jitters) = path.rtt_steps(), path.jitter_steps(path.jitters_before)
    steps_ns = np.union1d(rtt_from_ns, jitter_from_ns)
    rtt_ns = rtts_ns[np.searchsorted(rtt_from_ns, steps_ns, "right") - 1]
    means_ns = np.array([_mean_ns(jitter) for jitter in jitters])
    mean_ns = means_ns[np.searchsorted(jitter_from_ns, steps_ns, "right") - 1]
    return [(t / 1e9, f"{us:.1f}us") for t, us in zip(steps_ns, (rtt_ns + share * mean_ns) / 1e3, strict=True)]


def _mean_ns(jitter: Jitter | None) -> float:
    """Return the mean that a jitter adds to the base RTT, ns."""
    if jitter is None or jitter.kind == "normal":
        return 0.0
    if jitter.samples_ns is None:
        return parse_time_ns(jitter.mean, "mean")
    return float(np.mean(np.asarray(jitter.samples_ns, float)))


def _scaled(buffer_bytes: float, factor: float) -> float:
    """Return a multiple of a buffer.

    Half of a queue of three packets holds one packet or two: that depends on whether it counts bytes or packets, and on
    rounding. No flow shows the part of a packet that a buffer has beyond whole ones; if the multiple is no whole number
    of packets, that part, as it was drawn with the buffer, is kept unscaled and decides.
    """
    packets, rest_bytes = divmod(buffer_bytes, PACKET_BYTES)
    is_whole = float(packets * factor).is_integer()
    return buffer_bytes * factor if is_whole else packets * factor * PACKET_BYTES + rest_bytes


def _louder(jitter: Jitter, factor: float) -> Jitter:
    """Return a jitter with its sd scaled, and its mean where that is part of it."""
    if jitter.kind == "empirical":
        return dataclasses.replace(jitter, samples_ns=np.asarray(jitter.samples_ns) * factor)

    def times(name: str) -> str | None:
        text = getattr(jitter, name)
        return None if text is None else f"{parse_time_ns(text, name) * factor / 1e3:.3f}us"

    return dataclasses.replace(jitter, sd=times("sd"), mean=times("mean"))
