"""Distributions of estimates, of which the interval is the central 95 %, and their correlation.

An `Estimate` is a value with a 95 % interval. Its distribution is taken as normal, in the value or, for a positive
quantity with a wide interval, in its logarithm, with a separate width on each side; the value is its median. A
buffer known to a packet is uniformly distributed within its interval.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Floats
from cctrace.errors import FormatError
from cctrace.estimates import Z95, Estimate, estimate_in
from cctrace.fit.constants import BOUND_REACH
from cctrace.sim.jitter import Jitter
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES

DRAWN = ("normal", "gamma", "lognormal", "exponential")  # distributions that `cctrace.Jitter` draws directly
EVEN = 0.95  # of a uniform distribution, within the interval


def at_share(even: bool, estimate: Estimate, share: ArrayLike) -> Floats:
    """Return a quantile of the estimate's distribution.

    `even`: uniform instead of normal. `estimate`: with both ends.

    >>> [round(float(at_share(False, Estimate(10.0, 9.0, 12.0), share)), 6) for share in (0.025, 0.5, 0.975)]
    [9.0, 10.0, 12.0]
    """
    value, low, high = estimate.sides()
    at = np.asarray(share, float)
    if even:
        return low + (at - (1 - EVEN) / 2) / EVEN * (high - low)
    z = special.ndtri(at)
    if is_logarithmic(estimate):
        side = np.where(z < 0, np.log(value / low), np.log(high / value))
        return value * np.exp(z / Z95 * side)
    return value + z / Z95 * np.where(z < 0, value - low, high - value)


def is_logarithmic(estimate: Estimate) -> bool:
    """Return whether the logarithm of an estimate is taken as normal: that of a positive one with a wide interval."""
    _, low, high = estimate.sides()
    return low > 0 and high > 1.2 * low


# --- paths -----------------------------------------------------------------------------------------------------------
def fields_of(estimates: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `cctrace.Path` for these estimates; one-sided estimates take their bound.

    The estimated base RTT includes the jitter's mean, which `cctrace.Path` adds for a jitter that is not normal.
    """
    rates = [
        (row["start_s"], float(row["low"] if row["value"] is None else row["value"])) for row in estimates["rate_bps"]
    ]
    base = _steps_or_one(estimates)
    jitter = estimates["jitter"]
    if jitter is not None and (mean_us := jitter["mean_us"].value):  # its share of the base RTT may be uncertain
        jitter = jitter | {"mean_us": Estimate(min(mean_us, *(value for _, value in base)))}
    # The process of jitter below the clock's resolution is unknown, and irrelevant.
    drawn = None if jitter is None or jitter["process"] == "unknown" else simulated(jitter)
    beyond = 0.0 if drawn is None or drawn.kind == "normal" else _mean_us(jitter)
    rtt = [(start, f"{max(value - beyond, 1.0):.1f}us") for start, value in base]
    is_before = drawn is not None and jitter.get("place") == "before"
    may_shorten = drawn is not None and drawn.kind == "normal" and not is_before
    floor_us = min([jitter.get("floor_us", 0.0), *(us for _, us in base)]) if may_shorten else 0.0
    buffer, loss, burst = estimates["buffer_bytes"], estimates["loss"], estimates["loss"].get("burst")
    policer, shaper = (_bucket(estimates[name]) for name in ("policer", "shaper"))
    room = buffer.value if buffer.value is not None else 2 * buffer.low
    return {
        "rate": None if shaper else rates if len(rates) > 1 else rates[0][1],
        "rtt": rtt if len(rtt) > 1 else rtt[0][1],
        "buffer": f"{max(room, PACKET_BYTES):.0f}B",
        "jitter_before" if is_before else "jitter": drawn,
        "reverse": f"{floor_us:.1f}us",
        "loss": "100%" if burst else f"{100 * loss['share'].value:.6f}%",
        "loss_behind": loss.get("is_behind", False),
        "burst_loss": tuple(side.value for side in burst) if burst else None,
        "aqm": "codel" if estimates["aqm"] == "codel" else "droptail",
        "policer": policer,
        "shaper": (rates, shaper[1]) if shaper else None,  # the link behind it, which no flow shows, takes no time
    }


def _steps_or_one(estimates: dict[str, Any]) -> list[tuple[float, float]]:
    """Return (start in s, base RTT in us) of the path's delay."""
    steps = estimates.get("base_rtt_steps")
    if steps:
        return [(row["start_s"], row["value"]) for row in steps]
    bounds = [side for side in estimates["base_rtt_us"] if side is not None]
    return [(0.0, bounds[0])]


def simulated(jitter: dict[str, Any]) -> Jitter:
    """Return the `cctrace.Jitter` of estimates, by quantiles if it cannot draw the distribution directly."""
    sd, mean = jitter["sd_us"].value, jitter["mean_us"].value
    per = "packet"
    if jitter["process"] == "burst" or (jitter["process"] == "slot" and jitter["slot_us"] is None):
        per = "burst"
    elif jitter["process"] == "slot":
        per = f"slot:{jitter['slot_us'].value:.1f}us"
    common = {"per": per, "reorder": jitter["process"] == "reorder"}
    kind = jitter["distribution"]
    if kind == "normal":
        return Jitter("normal", sd=f"{sd:.2f}us", **common)
    if kind not in DRAWN or not min(round(sd, 2), round(mean, 2)) > 0:  # in hundredths it would be none
        return Jitter("empirical", samples_ns=1e3 * np.array(jitter.get("quantiles_us", [0.0])), **common)
    if kind == "exponential":
        kind, sd = "gamma", mean
    return Jitter(kind, sd=f"{sd:.2f}us", mean=f"{mean:.2f}us", **common)


def _mean_us(jitter: dict[str, Any]) -> float:
    """Return the mean that a jitter adds to the base RTT."""
    return jitter["mean_us"].value if jitter["distribution"] in DRAWN else float(np.mean(jitter["quantiles_us"]))


def _bucket(bucket: dict[str, Estimate] | None) -> tuple[str, str] | None:
    if bucket is None:
        return None
    size = bucket["bucket_bytes"]
    return f"{bucket['rate_bps'].number:.0f}bit", f"{max(size.value or size.low or 0.0, PACKET_BYTES):.0f}B"


def draws(estimates: dict[str, Any], n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield `n` sets of estimates without intervals, drawn from the distributions of these."""
    rng = np.random.default_rng(seed)
    together = estimates.get("correlation") or {"names": [], "matrix": np.zeros((0, 0))}
    names, matrix = together["names"], np.array(together["matrix"], float)
    values, vectors = np.linalg.eigh(matrix) if names else (np.zeros(0), np.zeros((0, 0)))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    for _ in range(n):
        z = dict(zip(names, root @ rng.standard_normal(len(names)), strict=True))
        yield _drawn(estimates, z, rng, "")


def _drawn(value: Any, z: dict[str, float], rng: np.random.Generator, name: str) -> Any:
    """Return estimates with one value drawn for each; `z` has the normal numbers of correlated ones."""
    if isinstance(value, Estimate) and value.value is None and value.low is None:
        return value  # only an upper bound, which the path takes
    if isinstance(value, Estimate):
        share = special.ndtr(z[name]) if name in z else rng.random()
        return Estimate(float(_quantile(value, share, even=name == "buffer_bytes")))
    if isinstance(value, dict) and {"start_s", "value", "low", "high"} <= set(value):
        drawn = _drawn(Estimate(value["value"], value["low"], value["high"]), z, rng, name)
        return value | {"value": drawn.value}
    if isinstance(value, dict):
        return {key: _drawn(item, z, rng, f"{name}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_drawn(item, z, rng, f"{name}.{k}") for k, item in enumerate(value))
    return value


def _quantile(estimate: Estimate, share: float, even: bool) -> float:
    """Return a quantile of an estimate, log-uniform up to BOUND_REACH times its lower bound if it has no upper one."""
    value, low, _ = estimate.sides()
    if estimate.low is None:
        return value
    return low * BOUND_REACH**share if estimate.high is None else max(float(at_share(even, estimate, share)), 0.0)


# --- JSON ------------------------------------------------------------------------------------------------------------
KEYS = ("rate_bps", "base_rtt_us", "buffer_bytes", "loss", "jitter", "policer", "shaper", "aqm", "undetermined")


def read_estimates(text: str | bytes | dict[str, Any]) -> dict[str, Any]:
    """Parse estimates from JSON; see `FittedPath.from_json`."""
    estimates = json.loads(text) if isinstance(text, str | bytes) else text
    if missing := [key for key in KEYS if not isinstance(estimates, dict) or key not in estimates]:
        raise FormatError(f"a fitted path as JSON lacks {', '.join(missing)}; cctrace fit path --json writes it")
    return {key: _read(item, key) for key, item in estimates.items()}


def _read(value: Any, name: str = "") -> Any:
    """Return JSON with each {"value", "low", "high"} as an `Estimate`."""
    if isinstance(value, dict):
        return estimate_in(value) or {key: _read(item, key) for key, item in value.items()}
    if isinstance(value, list):
        read = [_read(item) for item in value]
        return tuple(read) if name == "burst" else read
    return value
