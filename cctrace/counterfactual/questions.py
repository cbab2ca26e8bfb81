"""A path with some of its quantities replaced, or multiplied."""

import dataclasses

import numpy as np

from cctrace.errors import ArgumentError
from cctrace.sim.path import Path
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import parse_factor, parse_share, parse_size_bytes, parse_time_ns

CHANGES = ("rate", "rtt", "buffer", "jitter", "loss", "aqm", "rwnd")  # the last is the receiver's


def check_changes(changes):
    """Raise `ArgumentError` for what cannot be changed of a path, or not to that."""
    for name, value in changes.items():
        if name not in CHANGES:
            raise ArgumentError(f"{name}={value!r}: what can be changed is {', '.join(CHANGES)}")
        if parse_factor(value, name) is not None and name != "aqm":
            continue
        if name == "rwnd":
            parse_size_bytes(value, name=name)
        else:
            Path(**({"rate": "1Mbit"} | {name: value}))


def changed(path, changes):
    """Return a path with some of its quantities replaced, or multiplied where a text says ``"x2"``.

    Examples
    --------
    >>> from cctrace.sim.path import Path
    >>> changed(Path(rate="10Mbit", rtt="40ms", buffer="100kB"), {"buffer": "x2", "loss": "1%"}).buffer_bytes
    200000
    """
    fields = {f.name: getattr(path, f.name) for f in dataclasses.fields(Path) if f.init}
    for name, value in changes.items():
        factor = parse_factor(value)
        fields[name] = value if factor is None else _times(path, name, factor)
        if name == "loss" and factor is None:
            fields["burst_loss"] = None
    if "rtt" in changes or "rate" in changes:
        fields["buffer"] = fields["buffer"] if "buffer" in changes else f"{path.buffer_bytes}B"
    return Path(**fields)


def _times(path, name, factor):
    """Return a quantity of a path times a factor, as `Path` takes it."""
    if name == "buffer":
        return f"{max(path.buffer_bytes * factor, PACKET_BYTES):.0f}B"
    if name == "jitter":
        steps = zip(*path.jitter_steps(), strict=True)
        louder = [(t / 1e9, None if j is None or factor == 0 else _louder(j, factor)) for t, j in steps]
        return louder if len(louder) > 1 else louder[0][1]
    if name == "loss":
        return f"{min(100 * factor * parse_share(path.loss, 'loss'), 100):.6f}%"
    times, values = path.rate_steps() if name == "rate" else path.rtt_steps()
    scaled = [
        (t / 1e9, float(v * factor) if name == "rate" else f"{v * factor / 1e3:.1f}us")
        for t, v in zip(times, values, strict=True)
    ]
    return scaled if len(scaled) > 1 else scaled[0][1]


def _louder(jitter, factor):
    """Return a jitter with times the sd, and the mean where that belongs to it."""
    if jitter.kind == "empirical":
        return dataclasses.replace(jitter, samples_ns=np.asarray(jitter.samples_ns) * factor)
    sides = {
        name: None if (text := getattr(jitter, name)) is None else f"{parse_time_ns(text, name) * factor / 1e3:.3f}us"
        for name in ("sd", "mean")
    }
    return dataclasses.replace(jitter, **sides)
