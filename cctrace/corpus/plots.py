"""The figures of `Corpus.plot_*`: matplotlib axes."""

from typing import Any

import numpy as np
import pandas as pd

from cctrace.extras import needed

_MAX_GROUPS = 30


def _axes(ax: Any) -> Any:
    return ax or needed("matplotlib.pyplot", "plot").subplots(figsize=(8, 4.5), layout="constrained")[1]


def shares(frame: pd.DataFrame, by: str, column: str, ax: Any = None) -> Any:
    """Draw stacked bars: per group the shares of the values of a column; only the largest groups if there are many."""
    ax = _axes(ax)
    sizes = frame.groupby(by)["flows"].sum().sort_values(ascending=False)
    groups = list(sizes.index[:_MAX_GROUPS])
    table = frame.pivot_table(index=by, columns=column, values="share", aggfunc="sum", fill_value=0.0).loc[groups[::-1]]
    left = np.zeros(len(table))
    for name in table.mean().sort_values(ascending=False).index:
        ax.barh(table.index.astype(str), table[name], left=left, label=str(name))
        left += table[name].to_numpy()
    ax.set(xlabel="share of the flows", ylabel=by, xlim=(0, 1))
    ax.legend(title=column, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def intervals(frame: pd.DataFrame, quantity: str, by: str, ax: Any = None) -> Any:
    """Draw values with their intervals, one line each; only the groups with most flows if there are many."""
    ax = _axes(ax)
    largest = frame.dropna(subset="value").nlargest(_MAX_GROUPS, "flows").sort_values("value")
    error = [largest["value"] - largest["low"], largest["high"] - largest["value"]]
    ax.errorbar(largest["value"], largest[by].astype(str), xerr=error, fmt="o", capsize=3)
    ax.set(xlabel=f"{quantity}, 95 % interval", ylabel=by, xscale="log")
    return ax


def drift(frame: pd.DataFrame, quantity: str, by: str | None, ax: Any = None) -> Any:
    """Draw medians over time, with a band that holds 80 % of the flows."""
    ax = _axes(ax)
    for name, one in frame.groupby(by) if by else [(None, frame)]:
        (line,) = ax.plot(one["time"], one["median"], marker="o", label=None if name is None else str(name))
        ax.fill_between(one["time"], one["low"], one["high"], alpha=0.2, color=line.get_color(), linewidth=0)
    ax.set(xlabel="time (UTC)", ylabel=f"{quantity}: median, 80 % of the flows")
    if by:
        ax.legend(title=by, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.tick_params(axis="x", labelrotation=30)
    return ax
