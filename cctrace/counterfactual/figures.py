"""Figures of a what-if: of the recording, of simulated runs with intervals, and of the difference between two senders.

All intervals are computed on a scale on which errors are homogeneous: logarithms; for a share, of the share plus
half a point.

    runs        {figure: one value per drawn path}
    estimated   median and 90 % prediction interval of the next run
    difference  of a candidate and the flow's own controller over the same paths with the same random numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Floats, Ints
from cctrace.diagnosis.constants import LOSS_CHANGES
from cctrace.errors import StreamError
from cctrace.estimates import Z90, Estimate, Estimate90
from cctrace.path.transmissions import DELIVERED, Transmissions
from cctrace.special import special
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import format_number

if TYPE_CHECKING:
    import pandas as pd

Runs = Mapping[str, Floats]

FIGURES = {"goodput_bps": "goodput_bps", "rtt_mean_us": "rtt_mean_us", "retransmitted_share": "retransmit_ratio"}
SHARE = "retransmitted_share"
# A recording is reproduced within these bounds: 10 %, 20 %, a factor of 2 or 0.3 points.
NEAR = {"goodput_bps": 0.10, "rtt_mean_us": 0.20}
NEAR_FACTOR, NEAR_POINTS = 2.0, LOSS_CHANGES
SIDES = (0.05, 0.95)  # 90 % intervals
# Error of simulations over a known path, half a 90 % interval on the scale of `log`, from recordings of a quiet lab
# that are not used to evaluate what-ifs: `python benchmarks/whatif.py simulator`.
SIMULATOR = {"goodput_bps": 0.01 * Z90, "rtt_mean_us": 0.012 * Z90, SHARE: 0.03 * Z90}


def recorded_figures(rtts_us: Ints, table: Transmissions) -> dict[str, float]:
    """Return goodput (bit/s of payload, first packet to last ACK), mean RTT (us) and retransmitted share of a flow.

    Raises `StreamError` if nothing was acknowledged, or all time stamps are equal.
    """
    acked = table.acked_ns[table.acked_ns >= 0]
    if not len(acked):
        raise StreamError("nothing that was sent was acknowledged, so there is nothing to compare with")
    if acked.max() <= table.start_ns:
        raise StreamError("all its packets have the same time stamp, so there is no rate to compare with")
    delivered = (table.wire_bytes - HEADER_BYTES)[table.state == DELIVERED].sum()
    rtt_us = float(rtts_us.mean()) if len(rtts_us) else 0.0
    if not delivered or not rtt_us > 0:
        raise StreamError("no delivery or no RTT is known, so there is nothing to compare with")
    return {
        "goodput_bps": float(delivered * 8e9 / (int(acked.max()) - table.start_ns)),
        "rtt_mean_us": rtt_us,
        SHARE: float(table.retransmitted.mean()),
    }


def frame_of(rows: Iterable[tuple[str, Mapping[str, Estimate]]]) -> pd.DataFrame:
    """Return a DataFrame with a row per name: value and interval of each of its figures."""
    import pandas as pd

    flat = {
        name: {column: side for key, one in figures.items() for column, side in one.columns(key).items()}
        for name, figures in rows
    }
    return pd.DataFrame.from_dict(flat, orient="index")


def log(name: str, value: ArrayLike) -> Floats:
    """Return a figure on the scale on which its errors are homogeneous."""
    return np.log(np.asarray(value, float) + (NEAR_POINTS if name == SHARE else 0.0))


def unlog(name: str, value: float) -> float:
    """Return the figure whose `log` this is."""
    return float(np.clip(np.exp(value) - NEAR_POINTS, 0.0, 1.0) if name == SHARE else np.exp(value))


def sides(estimate: Estimate) -> tuple[float, float, float]:
    """Return value, low and high; open ends are infinite, unknown values NaN."""
    value, low, high = estimate
    return np.nan if value is None else value, -np.inf if low is None else low, np.inf if high is None else high


def near(name: str, got: float, want: float) -> bool:
    """Return whether a figure is reproduced."""
    if name in NEAR:
        return abs(got / want - 1) <= NEAR[name]
    return abs(got - want) <= NEAR_POINTS or max(got, want) <= NEAR_FACTOR * min(got, want)


def missed(name: str, estimate: Estimate, want: float) -> float:
    """Return by how much an estimate missed a figure beyond its interval, on the scale of `log`."""
    value, low, high = sides(estimate)
    middle, side = log(name, value), log(name, low if want < value else high)
    beyond = float((middle - log(name, want)) ** 2 - (middle - side) ** 2)
    return float(np.sqrt(max(beyond, 0.0)))


def interval(values: ArrayLike, *further: float) -> tuple[float, float, float]:
    """Return the median of a few runs, and the interval in which 90 % of further runs lie.

    `further` are half widths of independent errors. Sample quantiles would be too narrow: of 12 runs they cover 76
    %. The interval is the prediction interval of a normal sample, sqrt(1 + 1/n) times Student's quantile
    ([Hahn91]_), with a separate spread on each side of the median, and holds every run: one of twelve that takes
    another course (half of a queue that just sufficed overflows) is not a tail of a normal distribution.
    """
    given = np.asarray(values, float)
    n, middle = len(given), float(np.median(given))
    off = given - middle
    reach = np.sqrt(1 + 1 / n) * special.stdtrit(n - 1, SIDES[1])
    sides = [reach * np.sqrt(2 * np.mean(np.where(sign * off > 0, off, 0.0) ** 2) * n / (n - 1)) for sign in (-1, 1)]
    sides = [max(side, (sign * off).max()) for sign, side in zip((-1, 1), sides, strict=True)]
    low, high = (float(np.sqrt(side**2 + sum(one**2 for one in further))) for side in sides)
    return middle, middle - low, middle + high


def estimated(runs: Runs, misfit: Mapping[str, float]) -> dict[str, Estimate]:
    """Return {figure: Estimate} of runs: their spread, the simulator's error, and the original's `missed`."""
    found: dict[str, Estimate] = {}
    for name, values in runs.items():
        sides = interval(log(name, values), SIMULATOR[name], misfit.get(name, 0.0))
        found[name] = Estimate90(*(unlog(name, side) for side in sides))
    return found


def difference(runs: Runs, original: Runs, misfit: Mapping[str, float]) -> dict[str, Estimate]:
    """Return {figure: Estimate} of the change against the flow's own controller: relative, for the share absolute.

    Runs share the drawn paths, so that their uncertainty cancels as far as it affects both.
    """
    found: dict[str, Estimate] = {}
    for name, values in runs.items():
        gained = log(name, values) - log(name, original[name])
        simulator = np.sqrt(2) * SIMULATOR[name]
        sides = interval(gained, simulator, misfit.get(name, 0.0))
        least = float(np.median(original[name])) + NEAR_POINTS
        found[name] = Estimate90(*(float(np.expm1(side)) * (least if name == SHARE else 1.0) for side in sides))
    return found


# --- in words --------------------------------------------------------------------------------------------------------
_WORDS = {"goodput_bps": "goodput", "rtt_mean_us": "RTT", SHARE: "retransmissions"}
# Per cent, and points of the share: smaller changes are "about the same".
ALIKE = {"goodput_bps": 5.0, "rtt_mean_us": 5.0, SHARE: 100 * NEAR_POINTS}


def in_words(differ: Mapping[str, Estimate]) -> str:
    """Return the difference between two senders in words.

    >>> figures = {"goodput_bps": Estimate90(-0.12, -0.15, -0.08), "rtt_mean_us": Estimate90(0.01, -0.03, 0.04)}
    >>> in_words(figures | {SHARE: Estimate90(0.004, 0.002, None)})
    '12 % less goodput (8 to 15 %), about the same RTT (-3 to +4 %), 0.4 points more retransmissions (0.2 or more)'
    >>> figures[SHARE] = Estimate90(0.0, -0.001, 0.001)
    >>> in_words(figures | {"goodput_bps": Estimate90(1.5, 1.2, 2.0)}).split(", ")[0]
    '2.5 times the goodput (2.2 to 3)'
    >>> in_words(figures | {"goodput_bps": Estimate90(1.5, None, 2.0)})
    '3 times the goodput at most, about the same RTT (-3 to +4 %), about the same retransmissions (-0.1 to +0.1 points)'
    """
    return ", ".join(_differs(name, differ[name]) for name in FIGURES)


def _differs(name: str, estimate: Estimate) -> str:
    value, low, high = sides(estimate)
    word = _WORDS[name]
    if name != SHARE and np.isinf(low) and value > 0:
        if np.isinf(high):
            return f"{word} unknown"
        more = f"{_two(1 + high)} times the" if high >= 1 else f"{_two(100 * high)} % more"
        return f"{more} {word} at most"
    if name != SHARE and value >= 1:
        return f"{_two(1 + value)} times the {word} ({_ends(1 + low, 1 + high, '')})"
    unit = " points" if name == SHARE else " %"
    value, low, high = 100 * value, 100 * low, 100 * high
    if low <= 0 <= high:
        ends = [_signed(side) for side in (low, high) if np.isfinite(side)]
        if len(ends) < 2:
            return f"{word} undecided ({ends[0]}{unit} or {'more' if np.isinf(high) else 'less'})"
        if max(-low, high) > ALIKE[name]:
            return f"{word} undecided ({' to '.join(ends)}{unit})"
        return f"about the same {word} ({' to '.join(ends)}{unit})"
    nearest, farthest = (low, high) if value > 0 else (high, low)
    less, shown = ("fewer", "") if name == SHARE else ("less", unit)
    more = "more" if value > 0 else less
    text = _two(value)
    return (
        f"{text}{' point' if name == SHARE and text == '1' else unit} {more} {word} ({_ends(nearest, farthest, shown)})"
    )


def _ends(nearest: float, farthest: float, unit: str) -> str:
    if np.isinf(farthest):
        return f"{_two(nearest)}{unit} or more"
    return f"{_two(nearest)} to {_two(farthest)}{unit}"


def _signed(value: float) -> str:
    text = _two(value)
    return text if text == "0" else f"{'-' if value < 0 else '+'}{text}"


def _two(value: float) -> str:
    """Return the magnitude of a number with two significant digits, or as an integer."""
    magnitude = abs(value)
    if magnitude >= 10:
        return f"{magnitude:.0f}"
    return format_number(magnitude, 2) if magnitude >= 0.005 else "0"
