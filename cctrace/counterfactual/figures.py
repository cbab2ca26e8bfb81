"""Figures of a what-if: of the recording, of simulated runs with intervals, and of the difference between two senders.

All intervals are computed on a scale on which errors are homogeneous: logarithms; for the retransmitted share, of the
share plus SHARE_TOLERANCE.

    Runs        {figure: one value per drawn path}
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

SHARE = "retransmitted_share"
FIGURES = {"goodput_bps": "goodput_bps", "rtt_mean_us": "rtt_mean_us", SHARE: "retransmit_ratio"}  # column of `flows`
# A recording is reproduced within these bounds: goodput 10 %, mean RTT 20 %, share a factor of 2 or 0.3 points.
TOLERANCE = {"goodput_bps": 0.10, "rtt_mean_us": 0.20}
SHARE_FACTOR, SHARE_TOLERANCE = 2.0, LOSS_CHANGES
UPPER = 0.95  # quantile at the upper end of a 90 % interval
# Error of simulations over a known path, half a 90 % interval on the scale of `to_log_scale`, from recordings of a
# quiet lab that are not used to evaluate what-ifs: `python benchmarks/whatif.py simulator`.
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
        name: {column: side for key, estimate in figures.items() for column, side in estimate.columns(key).items()}
        for name, figures in rows
    }
    return pd.DataFrame.from_dict(flat, orient="index")


def to_log_scale(name: str, value: ArrayLike) -> Floats:
    """Return a figure on the scale on which its errors are homogeneous."""
    return np.log(np.asarray(value, float) + (SHARE_TOLERANCE if name == SHARE else 0.0))


def from_log_scale(name: str, value: float) -> float:
    """Return the figure whose `to_log_scale` this is."""
    return float(np.clip(np.exp(value) - SHARE_TOLERANCE, 0.0, 1.0) if name == SHARE else np.exp(value))


def bounds(estimate: Estimate) -> tuple[float, float, float]:
    """Return value, lower and upper bound of an estimate; open bounds are infinite, unknown values NaN."""
    value, low, high = estimate
    return np.nan if value is None else value, -np.inf if low is None else low, np.inf if high is None else high


def is_reproduced(name: str, simulated: float, recorded: float) -> bool:
    """Return whether a simulated figure is close enough to the recorded one."""
    if name in TOLERANCE:
        return abs(simulated / recorded - 1) <= TOLERANCE[name]
    least, most = sorted((simulated, recorded))
    return most - least <= SHARE_TOLERANCE or most <= SHARE_FACTOR * least


def miss_beyond_interval(name: str, estimate: Estimate, recorded: float) -> float:
    """Return the error, on the scale of `to_log_scale`, by which an interval must widen to hold the recorded figure."""
    value, low, high = bounds(estimate)
    middle, bound = to_log_scale(name, value), to_log_scale(name, low if recorded < value else high)
    excess = float((middle - to_log_scale(name, recorded)) ** 2 - (middle - bound) ** 2)
    return float(np.sqrt(max(excess, 0.0)))


def interval(values: ArrayLike, *errors: float) -> tuple[float, float, float]:
    """Return the median of a few runs, and the interval in which 90 % of further runs lie.

    `errors` are half widths of independent errors. Sample quantiles would be too narrow: of 12 runs they cover 76 %.
    The interval is the prediction interval of a normal sample, sqrt(1 + 1/n) times Student's quantile ([Hahn91]_),
    with a separate spread on each side of the median, and holds every run: one of twelve that takes another course
    (half of a queue that just sufficed overflows) is not a tail of a normal distribution.
    """
    sample = np.asarray(values, float)
    n, median = len(sample), float(np.median(sample))
    deviations = sample - median
    student = np.sqrt(1 + 1 / n) * special.stdtrit(n - 1, UPPER)

    def half_width(sign: int) -> float:
        one_sided = np.where(sign * deviations > 0, deviations, 0.0)
        spread = student * np.sqrt(2 * np.mean(one_sided**2) * n / (n - 1))
        return float(np.sqrt(max(spread, (sign * deviations).max()) ** 2 + sum(error**2 for error in errors)))

    return median, median - half_width(-1), median + half_width(1)


def estimated(runs: Runs, misfit: Mapping[str, float]) -> dict[str, Estimate]:
    """Return {figure: Estimate} of runs; intervals combine their spread, the simulator's error, and `misfit`.

    `misfit`: `miss_beyond_interval` of each figure of the flow's own controller over the inferred path; 0 if left out.
    """
    estimates: dict[str, Estimate] = {}
    for name, values in runs.items():
        ends = interval(to_log_scale(name, values), SIMULATOR[name], misfit.get(name, 0.0))
        estimates[name] = Estimate90(*(from_log_scale(name, end) for end in ends))
    return estimates


def difference(runs: Runs, original: Runs, misfit: Mapping[str, float]) -> dict[str, Estimate]:
    """Return {figure: Estimate} of the change against the flow's own controller: relative, for the share absolute.

    Runs share the drawn paths, so that their uncertainty cancels as far as it affects both. `misfit`: see `estimated`.
    """
    estimates: dict[str, Estimate] = {}
    for name, values in runs.items():
        log_ratios = to_log_scale(name, values) - to_log_scale(name, original[name])
        ends = interval(log_ratios, np.sqrt(2) * SIMULATOR[name], misfit.get(name, 0.0))
        unit = float(np.median(original[name])) + SHARE_TOLERANCE if name == SHARE else 1.0
        estimates[name] = Estimate90(*(float(np.expm1(end)) * unit for end in ends))
    return estimates


# --- in words --------------------------------------------------------------------------------------------------------
_WORDS = {"goodput_bps": "goodput", "rtt_mean_us": "RTT", SHARE: "retransmissions"}
# Per cent, and percentage points of the share: smaller changes are "about the same".
ABOUT_THE_SAME = {"goodput_bps": 5.0, "rtt_mean_us": 5.0, SHARE: 100 * SHARE_TOLERANCE}


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
    value, low, high = bounds(estimate)
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
        if max(-low, high) > ABOUT_THE_SAME[name]:
            return f"{word} undecided ({' to '.join(ends)}{unit})"
        return f"about the same {word} ({' to '.join(ends)}{unit})"
    nearest, farthest = (low, high) if value > 0 else (high, low)
    less, of_ends = ("fewer", "") if name == SHARE else ("less", unit)
    more = "more" if value > 0 else less
    text = _two(value)
    unit = " point" if name == SHARE and text == "1" else unit
    return f"{text}{unit} {more} {word} ({_ends(nearest, farthest, of_ends)})"


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
