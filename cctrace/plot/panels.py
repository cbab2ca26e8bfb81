"""The content of plots: a panel is a title, an explanation, an axis and a few series.

`cctrace.plot.figure` draws panels with matplotlib, `cctrace.report` as one HTML page; both therefore show the same
content in the same colours. A colour has one meaning on every panel: see `COLOURS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Columns, Ints, Values, spans_of

# Meaning -> colour on white, and on a dark page.
COLOUR_PAIRS = {
    "observed": ("#6b7f99", "#93a7c1"),  # what the capture shows
    "estimate": ("#0b6e4f", "#3cc795"),  # the controller's model of the path, BDP
    "window": ("#c2570c", "#f0924c"),  # cwnd
    "pacing": ("#7b3fa0", "#c48cf0"),  # pacing rate
    "bound": ("#b08900", "#e0be4a"),  # receive window
    "kernel": ("#111827", "#e5e9f0"),  # what the kernel logged
    "lost": ("#d21f3c", "#ff6b81"),  # losses and retransmissions
    "limit": ("#0f7ea8", "#5cc3ea"),  # the controller's own bounds: inflight_hi, inflight_lo
    "ssthresh": ("#8a4b2a", "#d9a066"),
    # Flows that are compared: Okabe and Ito's colours, which are distinguishable with colour blindness.
    "flow0": ("#0072b2", "#56b4e9"),
    "flow1": ("#d55e00", "#f08a4b"),
    "flow2": ("#007a58", "#3cc795"),
    "flow3": ("#b4568f", "#e08fc0"),
    "flow4": ("#8a6d00", "#e0be4a"),
    "flow5": ("#2f8fc4", "#8fd0f5"),
    "flow6": ("#4b4b4b", "#c7ccd4"),
    "flow7": ("#7a4fbf", "#b79cf0"),
}
COLOURS = {meaning: light for meaning, (light, _) in COLOUR_PAIRS.items()}
THIN_SHARE = 0.004  # of the time shown: a stripe of four pixels on a page of a thousand
# Background of a phase; phases that are not listed (cruising in PROBE_BW) stay white.
PHASE_PAIRS = {
    "STARTUP": ("#fde3c8", "#4a3524"),
    "DRAIN": ("#e2e5ea", "#343b45"),
    "PROBE_BW up": ("#dcf0e3", "#1f4030"),
    "PROBE_BW down": ("#f1e6f6", "#3f2d4b"),
    "PROBE_RTT": ("#cfe3fb", "#1f3d5c"),
}
PHASE_COLOURS = {phase: light for phase, (light, _) in PHASE_PAIRS.items()}


@dataclass(frozen=True)
class Series:
    """One line or cloud of points."""

    label: str
    time_s: np.ndarray  # seconds since the start of the flow, not decreasing (float64)
    value: np.ndarray  # in the unit of the panel's axis; NaN where unknown (float64)
    colour: str  # a key of `COLOURS`
    kind: str = "line"  # or "steps", which holds a value until the next one, or "points": unconnected samples
    dashed: bool = False
    # whether the axis grows to fit the series; False where it may be far above the others, as a receive window
    stretches: bool = True


@dataclass(frozen=True)
class Panel:
    """Series over one axis."""

    name: str  # for links and file names
    title: str  # what is drawn
    explanation: str  # how to read it, for someone who does not know the field's abbreviations
    axis: str  # label of the y axis, unit in brackets
    series: list[Series]
    from_zero: bool = True  # whether the axis starts at 0 whatever part of the flow is in view

    @property
    def upper_limit(self) -> float:
        """Return the largest value the axis needs to show: lines in full, points up to their 99.8th percentile.

        A few samples of an ACK burst can be a hundred times the link rate; they would flatten everything else.
        """
        tops = [0.0]
        for series in self.series:
            values = series.value[np.isfinite(series.value)]
            if values.size and series.stretches:
                tops.append(float(np.quantile(values, 0.998) if series.kind == "points" else values.max()))
        return max(tops) * 1.06 or 1.0


@dataclass(frozen=True)
class Phases:
    """The controller's phases over time: `spans` holds (start_s, end_s, name), in order, without gaps."""

    spans: list[tuple[float, float, str]] = field(default_factory=list)

    @property
    def thin(self) -> bool:
        """Whether most phases of a PROBE_BW cycle are too short to be distinguished when all of the flow is shown."""
        cycle = [end - start for start, end, name in self.spans if name.startswith("PROBE_BW ")]
        return bool(cycle) and float(np.median(cycle)) < THIN_SHARE * (self.spans[-1][1] - self.spans[0][0])

    @classmethod
    def from_names(cls, time_s: Values, names: ArrayLike) -> Phases:
        """Join equal neighbours of one phase name per time; each phase lasts until the next one begins."""
        return cls(spans_of(time_s, names))


def throughput_series(table: Columns, columns: Sequence[tuple[str, str, str]], scale: float) -> list[Series]:
    """Return the series of a table of throughput, which hold each rate until its bin ends.

    `table`: the columns of `Flow.throughput`. `columns`: column, label and colour of each series.
    `scale`: bits per second of the axis' unit.
    """
    if not len(table["time_s"]):
        return []
    time_s = np.append(table["time_s"], table["time_s"][-1] + table["span_s"][-1])
    return [
        Series(label, time_s, np.append(table[name], table[name][-1]) / scale, colour, "steps")
        for name, label, colour in columns
    ]


def changes(time_s: Values, values: Values) -> tuple[Values, Values]:
    """Leave out of a series of steps the points that repeat the value before them; the last one stays.

    >>> changes(np.arange(4.0), np.array([2.0, 2.0, 5.0, 5.0]))
    (array([0., 2., 3.]), array([2., 5., 5.]))
    """
    keep = np.append(True, values[1:] != values[:-1])[: len(values)]
    keep[-1:] = True
    return time_s[keep], values[keep]


def decimate(time_s: Values, values: Values, buckets: int) -> tuple[Values, Values]:
    """Thin a series to what is visible: first, lowest, highest and last point of each of `buckets` equal time bins.

    `time_s`, `values`: shape (n,); times must not decrease, and points that are not finite are dropped. Drawn, the
    result covers the same pixels as the original as long as a pixel is wider than a bin.

    >>> time_s, values = decimate(np.arange(1e6), np.sin(np.arange(1e6)), buckets=100)
    >>> len(values) <= 400, round(float(values.max()), 6)
    (True, 1.0)
    """
    finite = np.isfinite(values)
    time_s, values = time_s[finite], values[finite]
    if len(values) <= 4 * buckets:
        return time_s, values
    span = (time_s[-1] - time_s[0]) or 1.0
    bucket = np.minimum(((time_s - time_s[0]) / span * buckets).astype(np.int64), buckets - 1)
    keep = np.unique(np.concatenate(extreme_rows(bucket, values, values)))
    return time_s[keep], values[keep]


def extreme_rows(span: Ints, low: Values, high: Values) -> list[Ints]:
    """Return rows: first and last of each span, and the first ones with the smallest `low` and the largest `high`.

    `span`: the number of each row's span; rows of a span are neighbours.
    """
    if not len(span):
        return [np.zeros(0, np.int64)]
    first = np.concatenate(([0], np.flatnonzero(np.diff(span)) + 1))
    rows = [first, np.append(first[1:], len(span)) - 1]
    group = np.repeat(np.arange(len(first)), rows[1] - first + 1)
    for extreme, values in ((np.minimum, low), (np.maximum, high)):
        there = np.flatnonzero(values == extreme.reduceat(values, first)[group])
        rows.append(there[np.unique(group[there], return_index=True)[1]])
    return rows


def prefix_of(largest: float, unit: str) -> tuple[float, str]:
    """Return (divisor, unit with prefix) that make `largest` a number people can read."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= factor:
            return factor, prefix + unit
    return 1.0, unit
