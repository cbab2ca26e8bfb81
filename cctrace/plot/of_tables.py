"""Plots of tables: lines with their spread, heatmaps, normalised delay against throughput, time series.

The plots of papers on congestion control. Each takes a table (pandas) and returns a `matplotlib.figure.Figure` that
a notebook displays directly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cctrace.arguments import as_list, check_argument, short_repr, text_of, whole
from cctrace.errors import ArgumentError
from cctrace.plot.figure import blank, check_curves, finish, one_panel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cctrace.columns import Values

COLOURS = (
    "#1f6fb2", "#b3541e", "#2e8b57", "#8a4fa3", "#c2a000", "#5d6b7a", "#d6336c", "#17a2a2", "#111827", "#7fb069",
    "#9db4c8", "#e08e45",
)  # fmt: skip
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
_MAX_TICKS = 8


def lines(
    table: pd.DataFrame,
    x: str,
    panels: Sequence[Any],
    by: str,
    *,
    title: str = "",
    xlabel: str = "",
    columns: int = 2,
    panel_by: str | None = None,
    marks: Sequence[tuple[float, str]] = (),
) -> Figure:
    """Draw measured columns over `x`, one line per value of `by`, with the spread of the seeds as bars.

    Parameters
    ----------
    table : DataFrame
        With ``name`` and (for bars) ``name_sd`` for every panel.
    x : str
    panels : list of (column, label) or of (column, label, options)
        Options: ``log``, ``scale`` (a factor), ``top`` (upper limit), ``level`` (a dashed line), ``logx``, ``zero``
        (False: the axis need not begin at zero).
    by : str
        Column whose values are the lines.
    panel_by : str, optional
        A row of panels for each value of this column (side by side, if there is one measure).
    marks : list of (x, label), optional
        Vertical lines in every panel.
    title, xlabel : str
    columns : int
        Panels in a row.

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"cc": ["bbr", "bbr"], "sd_ms": [0, 4], "mbps": [9.4, 3.2]})
    >>> lines(runs, "sd_ms", [("mbps", "Goodput (Mbit/s)")], "cc").axes[0].get_ylabel()
    'Goodput (Mbit/s)'
    """
    panels = as_list(panels)
    holds = panels and all(isinstance(panel, tuple | list) and len(panel) > 1 for panel in panels)
    check_argument(holds, "panels", panels, "a list of (column, label) or (column, label, options)")
    _has(table, x, by, *(panel[0] for panel in panels), panel_by=panel_by)
    columns, groups = whole("columns", columns, 1), _groups(table, panel_by)
    cells = [(panel, group) for group in groups for panel in panels]
    across = min(columns, len(cells)) if not panel_by else len(panels) if len(panels) > 1 else len(groups)
    down = -(-len(cells) // across)
    drawing = blank((max(3.7 * across + 0.4, 7.0), 2.5 * down + 0.9), title)
    names = list(dict.fromkeys(table[by]))
    styles = dict(zip(names, _styles(), strict=False))
    # Panels of one measure stand above each other, or side by side.
    shared: Literal["col", "row", False] = ("col" if len(panels) > 1 else "row") if panel_by else False
    grid = drawing.subplots(down, across, squeeze=False, sharex=True, sharey=shared)
    for axes, ((column, _, *options), (_, rows)) in zip(grid.flat, cells, strict=False):
        for name in names:
            _line(axes, rows[rows[by] == name].sort_values(x), x, column, name, styles[name], *options)
        for at, text in marks:
            axes.axvline(at, color="#888", ls=":", lw=1)
            axes.text(
                at, 0.98, text, transform=axes.get_xaxis_transform(), fontsize=7, rotation=90, va="top", ha="right"
            )
    # Limits are set last, once all axes that share them are drawn.
    for axes, ((_, label, *options), (called, _)) in zip(grid.flat, cells, strict=False):
        _dress(axes, label, called, **(options[0] if options else {}))
    if table[x].dtype.kind in "iu" and grid[0, 0].get_xscale() == "linear":
        grid[0, 0].locator_params(axis="x", integer=True)  # of all: they share the axis
    _finish_grid(grid, len(cells), text_of("xlabel", xlabel, x))
    _legend(drawing, grid.flat)
    return drawing


def _groups(table: pd.DataFrame, by: str | None) -> list[tuple[str, pd.DataFrame]]:
    """Return title and rows of each panel: one per value of a column, or one of everything."""
    if by is None:
        return [("", table)]
    return [(str(group), table[table[by] == group]) for group in dict.fromkeys(table[by])]


def _finish_grid(grid: Values, count: int, xlabel: str | None = None) -> None:
    """Hide what is left over behind `count` panels, and label the axes below the lowest."""
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    for axes in () if xlabel is None else grid[-1]:
        axes.set_xlabel(xlabel)


def _styles() -> Iterator[tuple[str, str]]:
    while True:
        yield from zip(COLOURS, MARKS, strict=True)


def _line(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    column: str,
    name: str,
    style: tuple[str, str],
    options: dict[str, Any] | None = None,
) -> None:
    rows = rows[np.isfinite(rows[column].astype(float))]
    if rows.empty:
        return
    scale, (colour, mark) = (options or {}).get("scale", 1.0), style
    bars = rows[f"{column}_sd"] * scale if f"{column}_sd" in rows else None
    drawn: dict[str, Any] = {"color": colour, "marker": mark, "ms": 4, "lw": 1.3, "elinewidth": 0.8, "capsize": 2}
    axes.errorbar(rows[x], rows[column] * scale, bars, label=str(name), **drawn)


def _dress(
    axes: Axes,
    label: str,
    title: str,
    log: bool = False,
    logx: bool = False,
    top: float | None = None,
    zero: bool = True,
    level: float | None = None,
    scale: float = 1.0,
) -> None:
    axes.set_ylabel(label, fontsize=9)
    if log:
        axes.set_yscale("log")
    elif zero:
        axes.set_ylim(0, top)
    if logx:
        axes.set_xscale("log")
        _ticks_where_measured(axes)
    if level is not None:
        axes.axhline(level, color="#444", ls="--", lw=1, zorder=0)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=8)
    finish(axes)


def _ticks_where_measured(axes: Axes) -> None:
    """Label the measured values on a logarithmic axis, if they are few: the usual labels of a decade or two overlap."""
    places_of = [np.asarray(line.get_xdata(), float) for line in axes.lines]  # of error bars, old matplotlib: objects
    drawn = [places for places in places_of if len(places) > 2]
    places = np.unique(np.concatenate(drawn)) if drawn else np.empty(0)
    if 0 < len(places) <= _MAX_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()


def _legend(drawing: Figure, axes: Iterable[Axes]) -> None:
    known = {label: handle for one in axes for handle, label in zip(*one.get_legend_handles_labels(), strict=True)}
    widest = 0.6 + 0.075 * max(map(len, known), default=0)  # inches
    columns = max(1, int(drawing.get_figwidth() / widest))
    style: dict[str, Any] = {"loc": "outside lower left", "frameon": False, "fontsize": 8}
    drawing.legend(known.values(), known.keys(), ncols=columns, **style)


def bars(table: pd.DataFrame, x: str, value: str, by: str, *, title: str = "", ylabel: str = "") -> Figure:
    """Draw a value for each name in a column, a bar per value of `by`, with the spread of the seeds.

    Parameters
    ----------
    table : DataFrame
        One row per bar, its spread in ``value_sd``; or several, as of seeds, which give mean and spread.
    x, value, by : str
        Columns: where the bars stand, how high they are, and which colour they have.
    title, ylabel : str

    Examples
    --------
    >>> import pandas as pd
    >>> runs = pd.DataFrame({"cc": ["bbr", "cubic"], "buffer": [1, 1], "mbps": [9.4, 3.2]})
    >>> bars(runs, "buffer", "mbps", "cc", ylabel="Goodput (Mbit/s)").axes[0].get_ylabel()
    'Goodput (Mbit/s)'
    """
    _has(table, x, value, by)
    names, groups = list(dict.fromkeys(table[x])), list(dict.fromkeys(table[by]))
    drawing, axes = one_panel((2.5 + 0.9 * len(names), 4.6), title)
    width = 0.8 / len(groups)
    for k, group in enumerate(groups):
        each = table[table[by] == group].groupby(x)
        height = each[value].mean().reindex(names)
        spread = (each[f"{value}_sd"].mean() if f"{value}_sd" in table else each[value].std()).reindex(names)
        at = np.arange(len(names)) + (k - (len(groups) - 1) / 2) * width
        error = spread if spread.notna().any() else None
        axes.bar(at, height, width, yerr=error, color=COLOURS[k % len(COLOURS)], label=str(group), capsize=2)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=8)
    below = bool((table[value] < 0).any())
    _dress(axes, text_of("ylabel", ylabel, value), "", zero=not below, level=0 if below else None)
    _legend(drawing, [axes])
    return drawing


def heatmap(
    table: pd.DataFrame,
    rows: str,
    columns: str,
    value: str,
    *,
    by: str | None = None,
    label: str = "",
    title: str = "",
    form: str = "{:.1f}",
    centre: float | None = None,
    xlabel: str = "",
    ylabel: str = "",
) -> Figure:
    """Draw a value over two axes as coloured squares with their numbers, one panel per value of `by`.

    Parameters
    ----------
    table : DataFrame
        One row per square (and value of `by`).
    rows, columns, value : str
        Columns of the table.
    by : str, optional
    form : str
        How a number is written in its square.
    centre : float, optional
        A value that is neither good nor bad: colours diverge from it.
    label, title, xlabel, ylabel : str
        Of the colours, the figure and the axes.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"rate": [10, 10, 50, 50], "rtt": [5, 20, 5, 20], "loss": [0.1, 0.2, 0.3, 0.4]})
    >>> len(heatmap(table, "rtt", "rate", "loss").axes)
    2
    """
    _has(table, rows, columns, value, panel_by=by)
    groups = _groups(table, by)
    across = min(len(groups), 3)
    down = -(-len(groups) // across)
    tall, wide = table[rows].nunique(), table[columns].nunique()
    drawing = blank((across * (0.62 * wide + 1.0) + 0.9, down * (0.36 * tall + 0.9) + 0.4), title)
    known = table[value].astype(float)
    low, high, colours = known.min(), known.max(), "viridis"
    if centre is not None:
        span = max(abs(low - centre), abs(high - centre)) or 1.0
        low, high, colours = centre - span, centre + span, "RdBu"
    grid = drawing.subplots(down, across, squeeze=False)
    for axes, (called, its) in zip(grid.flat, groups, strict=False):
        square = its.pivot_table(index=rows, columns=columns, values=value)
        image = axes.imshow(square.to_numpy(float), origin="lower", aspect="auto", vmin=low, vmax=high, cmap=colours)
        _numbers(axes, square, image, form)
        axes.set_title(called, fontsize=9)
        axes.set(xlabel=text_of("xlabel", xlabel, columns), ylabel=text_of("ylabel", ylabel, rows))
    _finish_grid(grid, len(groups))
    drawing.colorbar(image, ax=list(grid.flat), label=text_of("label", label, value), shrink=0.8)
    return drawing


def _numbers(axes: Axes, square: pd.DataFrame, image: Any, form: str) -> None:
    """Label a square's axes, and write into each cell its number in a colour that can be read on it."""
    axes.set_xticks(range(square.shape[1]), [f"{v:g}" for v in square.columns], fontsize=7)
    axes.set_yticks(range(square.shape[0]), [f"{v:g}" for v in square.index], fontsize=7)
    for (i, j), v in np.ndenumerate(square.to_numpy(float)):
        if np.isfinite(v):
            r, g, b, _ = image.cmap(image.norm(v))
            dark = 0.3 * r + 0.59 * g + 0.11 * b < 0.5
            axes.text(j, i, form.format(v), ha="center", va="center", fontsize=6, color="white" if dark else "black")


def ellipses(table: pd.DataFrame, by: str = "cc", *, panel_by: str | None = None, title: str = "") -> Figure:
    """Draw normalised throughput against normalised delay: marker mean, ellipse one sd, line to the p95.

    Better is up and to the right: delay grows to the left, as in the literature.

    Parameters
    ----------
    table : DataFrame
        A row per system: ``delay``, ``throughput`` (normalised to the least delay and the most throughput), their
        standard deviations ``delay_spread`` and ``throughput_spread``, and ``delay_p95``.
    by : str
        Column that names the systems.
    panel_by : str, optional
    title : str, optional

    Examples
    --------
    >>> import pandas as pd
    >>> spread = {"delay_spread": 0.1, "throughput_spread": 0.05, "delay_p95": [1.4, 3.0]}
    >>> table = pd.DataFrame({"cc": ["bbr3", "cubic6"], "delay": [1.2, 2.4], "throughput": [0.95, 1.0]} | spread)
    >>> len(ellipses(table).axes)
    1
    """
    _has(table, by, "delay", "throughput", "delay_spread", "throughput_spread", "delay_p95", panel_by=panel_by)
    groups = _groups(table, panel_by)
    drawing = blank((5.2 * len(groups) + 0.3, 4.3), title)
    styles = dict(zip(dict.fromkeys(table[by]), _styles(), strict=False))
    grid = drawing.subplots(1, len(groups), squeeze=False)[0]
    for axes, (called, rows) in zip(grid, groups, strict=True):
        for row in rows.to_dict("records"):
            _ellipse(axes, row, row[by], *styles[row[by]])
        axes.set(xlabel="Queueing delay over the least (log scale)", ylabel="Throughput over the most", xscale="log")
        axes.invert_xaxis()
        axes.set_title(called, fontsize=9)
        axes.grid(color="#e4e8ed", lw=0.6)
    _legend(drawing, grid)
    return drawing


def _ellipse(axes: Axes, row: Mapping[Any, Any], name: str, colour: str, mark: str) -> None:
    # On a logarithmic axis an ellipse is drawn as a polygon, cut at a tenth of the mean where it would reach zero.
    turn = np.linspace(0, 2 * np.pi, 90)
    x = np.maximum(row["delay"] + row["delay_spread"] * np.cos(turn), row["delay"] / 10)
    y = row["throughput"] + row["throughput_spread"] * np.sin(turn)
    axes.fill(x, y, facecolor=colour, alpha=0.06, lw=0)
    axes.plot(x, y, color=colour, lw=0.8, alpha=0.7)
    axes.plot([row["delay"], row["delay_p95"]], [row["throughput"]] * 2, color=colour, lw=1)
    axes.plot(row["delay"], row["throughput"], mark, color=colour, ms=7, label=str(name))


def over_time(
    series: dict[str, list[Any]],
    *,
    title: str = "",
    ylabel: str = "",
    right: str | None = None,
    xlabel: str = "Time (s)",
    columns: int = 2,
) -> Figure:
    """Draw panels of curves over time.

    Parameters
    ----------
    series : dict of str to list of (time_s, values, label, options)
        Panel title: its curves; options ``right`` (second axis), ``colour``, ``step``.
    title, ylabel, xlabel : str
    right : str, optional
        Label of the second axis.
    columns : int
        Panels in a row.

    Examples
    --------
    >>> curve = ([0.0, 1.0, 2.0], [10.0, 12.0, 11.0], "bbr3", {})
    >>> len(over_time({"first": [curve], "second": [curve]}, ylabel="Mbit/s").axes)
    2
    """
    check_curves(series)
    across = min(whole("columns", columns, 1), len(series))
    down = -(-len(series) // across)
    drawing = blank((5.2 * across + 0.3, 2.5 * down + 0.8), title)
    grid = drawing.subplots(down, across, squeeze=False, sharex=True)
    all_axes = []
    for axes, (name, curves) in zip(grid.flat, series.items(), strict=False):
        second = axes.twinx() if text_of("right", right) else None
        for k, (time_s, values, label, options) in enumerate(curves):
            on = second if second is not None and options.get("right") else axes
            style = {"drawstyle": "steps-post"} if options.get("step") else {}
            colour = options.get("colour", COLOURS[k % len(COLOURS)])
            on.plot(time_s, values, color=colour, lw=1.1, label=label, **style)
        axes.set(ylabel=text_of("ylabel", ylabel), ylim=(0, None))
        axes.set_title(name, fontsize=9)
        axes.grid(color="#e4e8ed", lw=0.6)
        if second is not None:
            second.set(ylabel=right, ylim=(0, None))
        all_axes += [one for one in (axes, second) if one is not None]
    _finish_grid(grid, len(series), text_of("xlabel", xlabel))
    _legend(drawing, all_axes)
    return drawing


def _has(table: pd.DataFrame, *names: str, panel_by: str | None = None) -> None:
    """Refuse what is not a table of at least one row with these columns."""
    check_argument(hasattr(table, "columns") and len(table), "table", table, "a DataFrame of one or more rows")
    for name in names if panel_by is None else (*names, panel_by):
        if not isinstance(name, Hashable) or name not in table.columns:
            known = ", ".join(map(str, table.columns))
            raise ArgumentError(f"table has no column {short_repr(name)}; there are: {known}")
