"""A figure of a paper as a function: parameters, runs, table, plot, claims."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cctrace.errors import ArgumentError
from cctrace.papers.runs import run_all


@dataclass(frozen=True)
class Reproduction:
    """What calling a figure returns.

    Attributes
    ----------
    figure : Figure
    parameters : dict
        That it was made with.
    runs : DataFrame
        One row per run: what was varied, the seed, what was measured.
    table : DataFrame
        Mean (``name``), standard deviation (``name_sd``) over the seeds and their number (``seeds``).
    claims : list of Claim
    """

    figure: object
    parameters: dict
    runs: pd.DataFrame
    table: pd.DataFrame
    claims: list

    def plot(self):
        """Return the figure as `matplotlib.figure.Figure`."""
        return self.figure.plot(self)

    def shown(self):
        """Return the table as texts, mean ± standard deviation, for people."""
        out = {}
        for name in self.table:
            if name.endswith("_sd") and name[:-3] in self.table:
                continue
            values = self.table[name]
            if f"{name}_sd" in self.table:
                sds = self.table[f"{name}_sd"]
                out[name] = [_said(v, sd, n) for v, sd, n in zip(values, sds, self.table["seeds"], strict=True)]
            else:
                out[name] = [f"{v:g}" if isinstance(v, float) else str(v) for v in values]
        return pd.DataFrame(out)

    def value(self, column, **where):
        """Return the mean of a column in the one row of the table that `where` describes (NaN if there is none)."""
        rows = self.table
        for name, wanted in where.items():
            rows = rows[rows[name] == wanted]
        return float(rows[column].iloc[0]) if len(rows) else float("nan")

    def column(self, column, over, **where):
        """Return (values of `over`, means of `column`), sorted, of the rows that `where` describes."""
        rows = self.table
        for name, wanted in where.items():
            rows = rows[rows[name] == wanted]
        rows = rows.sort_values(over)
        return rows[over].to_numpy(), rows[column].to_numpy(float)


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
    by : list of str
        Columns of the runs that name a row of the table.
    """

    name: str = ""
    title: str = ""
    parameters: dict = field(default_factory=dict)
    quick: dict = field(default_factory=dict)
    by: tuple = ()

    def runs(self, p):
        """Return [(labels, Run)], for parameters `p`: each label set names what was varied, and the seed."""
        raise NotImplementedError

    def row(self, labels, result, p):
        """Return the measured columns of one run."""
        raise NotImplementedError

    def derived(self, frame, p):
        """Return the runs with rows that are computed from them: a model beside a measurement."""
        return frame

    def claims(self, made):
        """Return the list of `Claim` for a `Reproduction`."""
        return []

    def plot(self, made):
        """Draw a `Reproduction`."""
        raise NotImplementedError

    def __call__(self, quick=False, *, workers=1, progress=None, fresh=False, **changes):
        """Run what is not yet known, and return the `Reproduction`.

        Parameters
        ----------
        quick : bool
            The short version.
        workers : int
        progress : callable, optional
            Called with (runs done, runs in all).
        fresh : bool
            Ignore what is kept on disk.
        **changes
            Of the figure's `parameters`.

        Raises
        ------
        ArgumentError
            If there is no such parameter.
        """
        for name in changes:
            if name not in self.parameters:
                there = ", ".join(sorted(self.parameters)) or "none"
                raise ArgumentError(f"figure {self.name} has no parameter {name!r}; there are: {there}")
        p = self.parameters | (self.quick if quick else {}) | changes
        wanted = self.runs(p)
        results = run_all([run for _, run in wanted], workers, progress, fresh)
        rows = [labels | self.row(labels, result, p) for (labels, _), result in zip(wanted, results, strict=True)]
        frame = self.derived(pd.DataFrame(rows), p)
        made = Reproduction(self, p, frame, spread(frame, list(self.by)), [])
        made.claims.extend(self.claims(made))
        return made


def _said(value, sd, seeds):
    """Write a mean and its spread with three digits."""
    if not np.isfinite(value):
        return "-"
    digits = max(0, 2 - int(np.floor(np.log10(abs(value))))) if value else 0
    digits = min(digits, 4)
    return f"{value:.{digits}f}" + (f" ± {sd:.{digits}f}" if seeds > 1 else "")


def spread(runs, by):
    """Return mean and standard deviation over the seeds of every measured column, one row per combination of `by`.

    Examples
    --------
    >>> spread(pd.DataFrame({"cc": ["a", "a"], "seed": [1, 2], "x": [1.0, 3.0]}), ["cc"]).to_dict("records")
    [{'cc': 'a', 'seeds': 2, 'x': 2.0, 'x_sd': 1.4142135623730951}]
    """
    if runs.empty:
        return runs
    values = [name for name in runs if name not in (*by, "seed") and pd.api.types.is_numeric_dtype(runs[name])]
    groups = runs.groupby(by, sort=False) if by else runs.assign(_all=0).groupby("_all")
    out = groups.size().rename("seeds").to_frame()
    for name in values:
        out[name] = groups[name].mean()
        out[f"{name}_sd"] = groups[name].std(ddof=1).fillna(0.0) if len(runs) else np.nan
    return out.reset_index() if by else out.reset_index(drop=True)
