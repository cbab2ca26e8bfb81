"""Arguments of a `cctrace.Path` as texts, pairs and steps, checked and in the simulation's units."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from cctrace import presets
from cctrace.arguments import short_repr
from cctrace.columns import Floats, Ints
from cctrace.errors import ArgumentError
from cctrace.sim.jitter import Jitter
from cctrace.sim.traces import Steps
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import parse_rate_bps, parse_size_bytes

MIN_BPS, MAX_BPS = 1.0, 1e14


def with_unit(name: str, value: object, example: str) -> str:
    """Return an argument that is a text; refuse a number, whose unit would be a guess."""
    if isinstance(value, str):
        return value
    raise ArgumentError(f"{name}={short_repr(value)}: write it with its unit, for example {example!r}")


def rate_bps_of(value: object, name: str) -> float:
    """Return a rate in bits/s, from a number or a text with its unit."""
    rate = float(value) if isinstance(value, int | float | np.integer) else parse_rate_bps(value, name)
    if rate != 0 and not MIN_BPS <= rate <= MAX_BPS:
        raise ArgumentError(f"{name}={short_repr(value)}: use 0 or a rate from 1 bit/s to 100 Tbit/s")
    return rate


def jitter_of(value: object) -> Jitter | None:
    """Return a jitter from a text, or from the name of a recording's."""
    if value is None or isinstance(value, Jitter):
        return value
    if isinstance(value, str) and value == "none":
        return None
    text = with_unit("jitter", value, "normal:sd=2ms")
    return Jitter.parse(text if ":" in text else presets.jitter_text(text))


def steps_of(name: str, value: Any, parse: Callable[[Any], object]) -> Steps:
    """Return (start ns, values) of a constant or of steps, as arrays."""
    steps = [(0, value)] if not isinstance(value, list | tuple) else list(value)
    try:
        seconds = [float(seconds) for seconds, _ in steps]
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}={short_repr(value)}: steps are pairs (seconds, value)") from None
    if not steps or seconds[0] != 0 or not all(a < b < 1e9 for a, b in itertools.pairwise(seconds)):
        raise ArgumentError(f"{name} steps must start at 0 s and increase in time")
    return np.array([round(s * 1e9) for s in seconds], np.int64), np.array([parse(v) for _, v in steps])


def chances_of(name: str, given: Any, argument: str = "burst_loss") -> dict[str, float]:
    """Return the fields of a Gilbert-Elliott process."""
    if given is None:
        return {}
    try:
        enter, leave = (float(chance) for chance in given)
    except (TypeError, ValueError):
        enter = leave = 0.0
    if not (0 < enter <= 1 and 0 < leave <= 1):
        raise ArgumentError(
            f"{argument}={short_repr(given)}: two chances above 0, of entering and leaving the bad state"
        )
    return {f"{name}_p": enter, f"{name}_r": leave}


def bucket_of(name: str, given: Any) -> tuple[float, int]:
    """Return (bytes/s, bytes) of a token bucket."""
    try:
        rate, burst = given
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name}={short_repr(given)}: give rate and burst, for example ('10Mbit', '100kB')"
        ) from None
    rate, burst = rate_bps_of(with_unit(name, rate, "10Mbit"), name), parse_size_bytes(burst, name=name)
    if rate <= 0 or burst < PACKET_BYTES:
        raise ArgumentError(
            f"{name}={short_repr(given)}: the rate must be positive, the burst at least {PACKET_BYTES} bytes"
        )
    return rate / 8, burst


def shaper_of(given: Any) -> tuple[Ints, Floats, int]:
    """Return (start ns, bytes/s, bytes) of a shaper whose rate is constant or varies in steps."""
    try:
        rate, burst = given[:-1] if [*given[2:]] == ["htb"] else given
    except (IndexError, TypeError, ValueError):
        example = "give rate and burst, for example ('10Mbit', '100kB')"
        raise ArgumentError(f"shaper={short_repr(given)}: {example}, and 'htb' if that qdisc shapes") from None
    if isinstance(rate, str):
        rate, bucket = bucket_of("shaper", (rate, burst))
        return np.zeros(1, np.int64), np.array([rate]), bucket
    times, rates = steps_of("shaper", rate, lambda value: rate_bps_of(value, "shaper"))
    if rates[-1] <= 0:
        raise ArgumentError(
            f"shaper={short_repr(given)}: its last rate must be positive, or what waits would wait for ever"
        )
    return times, np.array(rates, np.float64) / 8, bucket_of("shaper", ("1Mbit", burst))[1]
