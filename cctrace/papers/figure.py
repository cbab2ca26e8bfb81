"""A figure of a paper as a function: parameters, runs, table, plot, claims.

What figures share is data of their classes: what they vary (`Figure.varied`), what they measure (`Figure.measured`)
and how they are drawn (`Figure.drawn`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from cctrace import plot
from cctrace.columns import Floats, Values
from cctrace.errors import ArgumentError
from cctrace.papers.claims import Claim
from cctrace.papers.runs import Result, Run, run_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn
else:  # matplotlib is an extra
    Drawn = Any

Fields = dict[str, Any]  # parameters of a figure, labels of a run, a row of its table

# Measured of a flow, with units; `cctrace.papers.measure.simulation` says what a result holds.
MEASURES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "goodput_mbps": lambda flow: flow["goodput_bps"] / 1e6,
    "retransmitted_pct": lambda flow: 100 * flow["retransmit_ratio"],
    "queue_ms": lambda flow: flow["queue_delay_mean_us"] / 1e3,
    "queue_p95_ms": lambda flow: flow["queue_delay_p95_us"] / 1e3,
}


def measures(flow: Mapping[str, Any], *names: str) -> dict[str, float]:
    """Return some of `MEASURES` of a flow.

    >>> measures({"goodput_bps": 2e6, "retransmit_ratio": 0.01}, "goodput_mbps", "retransmitted_pct")
    {'goodput_mbps': 2.0, 'retransmitted_pct': 1.0}
    """
    return {name: MEASURES[name](flow) for name in names}


class Drawing(NamedTuple):
    """How the table of a figure is drawn: a function of `cctrace.plot`, its arguments after the table, its options."""

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def drawing(function: str, *arguments: Any, **options: Any) -> Drawing:
    """Return a `Drawing`."""
    return Drawing(function, arguments, options)


@dataclass(frozen=True)
class Reproduction:
    """What calling a figure returns.

    Attributes
    ----------
    figure : Figure
    parameters : dict
        With which it was made.
    runs : DataFrame
        One row per run: what was varied, the seed, what was measured.
    table : DataFrame
        Mean (``name``), standard deviation (``name_sd``) over the seeds and their number (``seeds``).
    claims : list of Claim

    Examples
    --------
    >>> import cctrace as cct
    >>> (two,) = cct.papers.reproduce("kumar", "2", quick=True, workers=1)
    >>> len(two.runs) > 0, type(two.claims[0]).__name__
    (True, 'Claim')
    """

    figure: Figure
    parameters: Fields
    runs: pd.DataFrame
    table: pd.DataFrame
    claims: list[Claim]

    def plot(self) -> Drawn:
        """Return the figure as `matplotlib.figure.Figure`."""
        return self.figure.plot(self)

    def shown(self) -> pd.DataFrame:
        """Return the table as texts for people: mean ± standard deviation."""
        out = {}
        for name in self.columns:
            if name.endswith("_sd") and name[:-3] in self.table:
                continue
            values = self.table[name]
            if f"{name}_sd" in self.table:
                sds = self.table[f"{name}_sd"]
                out[name] = [_mean_and_sd(v, sd, n) for v, sd, n in zip(values, sds, self.table["seeds"], strict=True)]
            else:
                out[name] = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
        return pd.DataFrame(out)

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return [str(name) for name in self.table]

    def rows(self, **where: Any) -> pd.DataFrame:
        """Return the rows of the table in which every column named has the value given."""
        return chosen(self.table, **where)

    def each(self, column: str) -> list[Any]:
        """Return the values of a column of the table, each once, in their order."""
        return list(dict.fromkeys(self.table[column]))

    def value(self, column: str, **where: Any) -> float:
        """Return the mean of a column in the one row of the table that `where` describes (NaN if there is none)."""
        rows = self.rows(**where)
        return float(rows[column].iloc[0]) if len(rows) else float("nan")

    def column(self, column: str, over: str, **where: Any) -> tuple[Values, Floats]:
        """Return (values of `over`, means of `column`), sorted, of the rows that `where` describes."""
        rows = self.rows(**where).sort_values(over)
        return rows[over].to_numpy(), rows[column].to_numpy(float)

    def means(self, column: str, of: str, **where: Any) -> dict[Any, float]:
        """Return {value of `of`: mean of `column`} of the rows that `where` describes."""
        rows = self.rows(**where)
        return dict(zip(rows[of], rows[column].astype(float), strict=True))

    def first_seed(self, **where: Any) -> list[Fields]:
        """Return the runs of the first seed that `where` describes, for plots of single runs."""
        return records(chosen(self.runs, seed=self.runs.seed.min(), **where))


def chosen(rows: pd.DataFrame, **where: Any) -> pd.DataFrame:
    """Return the rows in which every column named has the value given."""
    for name, wanted in where.items():
        rows = rows[rows[name] == wanted]
    return rows


def records(rows: pd.DataFrame) -> list[Fields]:
    """Return the rows as dicts."""
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]


@dataclass
class Figure:
    """One figure of one paper; subclasses say what is run, what is drawn and what the paper claims.

    Call it: ``figure(quick=True)``, ``figure(seeds=[1], duration="30s")``.

    Attributes
    ----------
    name, title : str
    parameters : dict
        Of the full figure; a call may change them.
    quick : dict
        The changes that make a version of seconds.
    by : tuple of str
        Columns of the runs that name a row of the table; default: all that is varied.
    paper : str
        The paper, in headings.
    varied : dict
        Label of a run: the parameter whose values it takes; the outermost loop first, the innermost is ``seed`` where
        it is not among them. A value that is a dict is several labels.
    measured : tuple of str
        `MEASURES` of the first flow, where `row` is not written out.
    drawn : Drawing
        How the table is drawn, where `plot` is not written out.

    Examples
    --------
    >>> import cctrace as cct
    >>> two = cct.papers.find("kumar", "2")
    >>> two.name, sorted(two.quick)
    ('2', ['jitter', 'sd_ms'])
    """

    name: str = ""
    title: str = ""
    parameters: Fields = field(default_factory=dict)
    quick: Fields = field(default_factory=dict)
    by: tuple[str, ...] = ()

    paper: ClassVar[str] = ""
    varied: ClassVar[dict[str, str]] = {}
    measured: ClassVar[tuple[str, ...]] = ()
    drawn: ClassVar[Drawing]

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """Return [(labels, Run)], for parameters `p`: each label set names what was varied, and the seed."""
        names = self.varied if "seed" in self.varied else self.varied | {"seed": "seeds"}
        out = []
        for values in itertools.product(*(p[parameter] for parameter in names.values())):
            labels: Fields = {}
            for name, value in zip(names, values, strict=True):
                labels |= value if isinstance(value, Mapping) else {name: value}
            out.append((labels, self.run(labels, p)))
        return out

    def run(self, at: Fields, p: Fields) -> Run:
        """Return the run that has these labels."""
        raise NotImplementedError

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields | list[Fields]:
        """Return the measured columns of one run, or of each row that it makes."""
        return measures(result["flows"][0], *self.measured)

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Return the runs with rows that are computed from them: a model beside a measurement."""
        return frame

    def claims(self, made: Reproduction) -> Iterable[Claim]:
        """Return the claims of the paper, judged by a `Reproduction`."""
        return []

    def heading(self, made: Reproduction) -> str:
        """Return the title of the plot."""
        return f"{self.paper}, Fig. {self.name}: {self.title}" if self.name.isdigit() else f"{self.paper}: {self.title}"

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Return the table as it is drawn: with columns for what names lines and panels."""
        return made.table

    def plot(self, made: Reproduction) -> Drawn:
        """Draw a `Reproduction`."""
        function, arguments, options = self.drawn
        return getattr(plot, function)(self.lined(made), *arguments, **{"title": self.heading(made)} | options)

    def __call__(
        self,
        quick: bool = False,
        *,
        workers: int = 1,
        on_run: Callable[[int, int], object] | None = None,
        fresh: bool = False,
        **changes: Any,
    ) -> Reproduction:
        """Run what is not yet known, and return the `Reproduction`.

        `quick`: the short version. `on_run`: called with (runs done, runs in all). `fresh`: ignore what is kept on
        disk. `changes`: of the figure's `parameters`; raises `ArgumentError` if there is no such parameter.
        """
        for name in changes:
            if name not in self.parameters:
                there = ", ".join(sorted(self.parameters)) or "none"
                raise ArgumentError(f"figure {self.name} has no parameter {name!r}; there are: {there}")
        p = self.parameters | (self.quick if quick else {}) | changes
        wanted = self.runs(p)
        results = run_all([run for _, run in wanted], workers, on_run, fresh)
        rows = []
        for (labels, _), result in zip(wanted, results, strict=True):
            measured = self.row(labels, result, p)
            rows += [labels | row for row in (measured if isinstance(measured, list) else [measured])]
        frame = self.derived(pd.DataFrame(rows), p)
        made = Reproduction(self, p, frame, spread(frame, list(self.by or self.varied)), [])
        made.claims.extend(self.claims(made))
        return made


class Formula(Figure):
    """A figure of which nothing is simulated: `derived` makes its rows."""

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """No runs."""
        return []


def _mean_and_sd(value: float, sd: float, seeds: int) -> str:
    """Write a mean and its spread with three digits."""
    if not np.isfinite(value):
        return "-"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value))))) if value else 0
    digits = min(digits, 4)
    return f"{value:.{digits}f}" + (f" ± {sd:.{digits}f}" if seeds > 1 else "")


def spread(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return mean and standard deviation over the seeds of every measured column, one row per combination of `by`.

    >>> spread(pd.DataFrame({"cc": ["a", "a"], "seed": [1, 2], "x": [1.0, 3.0]}), ["cc"]).to_dict("records")
    [{'cc': 'a', 'seeds': 2, 'x': 2.0, 'x_sd': 1.4142135623730951}]
    """
    if runs.empty:
        return runs
    values = [str(name) for name in runs if name not in (*by, "seed") and pd.api.types.is_numeric_dtype(runs[name])]
    groups = runs.groupby(by, sort=False) if by else runs.assign(_all=0).groupby("_all")
    out = groups.size().rename("seeds").to_frame()
    for name in values:
        out[name] = groups[name].mean()
        out[f"{name}_sd"] = groups[name].std(ddof=1).fillna(0.0)
    return out.reset_index() if by else out.reset_index(drop=True)
