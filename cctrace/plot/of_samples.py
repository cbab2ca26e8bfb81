"""Plots of samples and of many runs: distributions, boxes.

Each returns a `matplotlib.figure.Figure` that a notebook displays directly; ``savefig("x.pdf")`` writes vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import check_argument, flag, short_repr, text_of
from cctrace.errors import ArgumentError
from cctrace.plot.figure import finish, log_axis, one_panel
from cctrace.plot.of_runs import axis_label, samples
from cctrace.plot.of_tables import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cctrace.columns import Columns

_BESIDE = 6  # groups from which on the legend is placed beside the axes
_STEPS = 5000  # of a curve: more than a page resolves
_DASHES = ("-", "--", ":", "-.")
_SHARES = np.arange(1, 200) / 200  # at which `qq` compares quantiles


def cdf(
    of: Any, quantity: str | None = None, *, by: str | None = None, xlabel: str = "", title: str = "", log: bool = False
) -> Figure:
    """Draw the empirical distribution of each group of samples.

    Parameters
    ----------
    of : dict of str to array_like, or what `samples` takes
        Samples by name; what is not finite is left out. With `quantity`: captures, a folder, a pattern, a corpus,
        flows, replays or simulations.
    quantity, by : str, optional
        What of them, and what makes the groups: see `samples`.
    log : bool
        Logarithmic axis of values.
    xlabel, title : str, optional

    Examples
    --------
    >>> figure = cdf({"bbr": [40, 41, 45], "cubic": [50, 80, 90]}, xlabel="RTT (ms)")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['bbr', 'cubic']
    >>> import cctrace as cct
    >>> cdf(cct.datasets.path("loss_cubic_1pct"), "rtt", by="folder").axes[0].get_xlabel()
    'RTT (ms)'
    """
    known = _known(of, quantity, by)
    drawing, axes = one_panel((5.6 if len(known) <= _BESIDE else 7.6, 3.8), title)
    for k, (name, values) in enumerate(known.items()):
        values = np.sort(values)
        share_of = np.arange(1, len(values) + 1) / len(values)
        steps = np.unique(np.linspace(0, len(values) - 1, min(len(values), _STEPS)).astype(np.int64))
        dashes = _DASHES[k // len(COLOURS) % len(_DASHES)]
        style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "lw": 1.4, "ls": dashes}
        axes.step([values[0], *values[steps]], [0, *share_of[steps]], where="post", label=name, **style)
    axes.set(
        xlabel=text_of("xlabel", xlabel, axis_label(quantity) if quantity else ""),
        ylabel="Cumulative share",
        ylim=(0, 1.02),
    )
    if flag("log", log):
        log_axis(axes.xaxis)
    beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    finish(axes, **({"loc": "lower right"} if len(known) <= _BESIDE else beside))
    return drawing


def boxes(
    of: Any,
    quantity: str | None = None,
    *,
    by: str | None = None,
    ylabel: str = "",
    title: str = "",
    whiskers: tuple[float, float] = (5, 95),
    log: bool = False,
) -> Figure:
    r"""Draw the samples of each group as a box: median, quartiles, and whiskers at two percentiles.

    Parameters
    ----------
    of : dict of str to array_like, or what `samples` takes
        By name, for example the goodputs of many runs per controller. With `quantity`: captures, a folder, a pattern,
        a corpus, flows, replays or simulations.
    quantity, by : str, optional
        What of them, and what makes the groups: see `samples`.
    whiskers : (float, float)
        Percentiles.
    log : bool
        Logarithmic axis of values.
    ylabel, title : str, optional

    Examples
    --------
    >>> boxes({"bbr": [9.1, 9.4, 9.5], "cubic": [3.2, 3.0, 3.9]}, ylabel="Goodput (Mbit/s)").axes[0].get_ylabel()
    'Goodput (Mbit/s)\nmedian, quartiles, 5 and 95 %'
    """
    try:
        low, high = whiskers
        holds = 0 <= low < high <= 100
    except (TypeError, ValueError):  # an array compares element by element
        holds = False
    check_argument(holds, "whiskers", whiskers, "two percentiles, the lower first")
    known = _known(of, quantity, by)
    drawing, axes = one_panel((2.0 + 0.8 * len(known), 3.8), title)
    drawn = axes.boxplot(list(known.values()), whis=(low, high), showfliers=False, patch_artist=True, widths=0.55)
    for k, (box, median) in enumerate(zip(drawn["boxes"], drawn["medians"], strict=True)):
        box.set(facecolor=COLOURS[k % len(COLOURS)], alpha=0.35, edgecolor=COLOURS[k % len(COLOURS)])
        median.set(color="#222", lw=1.6)
    axes.set_xticks(range(1, len(known) + 1), list(known), rotation=20, ha="right", fontsize=8)
    label = text_of("ylabel", ylabel, axis_label(quantity) if quantity else "")
    spread = f"median, quartiles, {low} and {high} %"
    axes.set_ylabel(f"{label}\n{spread}".strip(), fontsize=9)
    if flag("log", log):
        log_axis(axes.yaxis)
    finish(axes)
    return drawing


def qq(
    of: Any,
    quantity: str | None = None,
    *,
    by: str | None = None,
    against: str | None = None,
    label: str = "",
    title: str = "",
) -> Figure:
    """Draw the quantiles of groups of samples against those of one of them, or of a distribution.

    Parameters
    ----------
    of : dict of str to array_like, or what `samples` takes
        As for `cdf`.
    quantity, by : str, optional
        As for `cdf`.
    against : str or scipy.stats frozen distribution, optional
        The group, or the distribution (in the unit of the samples), on the horizontal axis; default: the first group.
    label : str
        What is on both axes, with its unit.
    title : str, optional

    Raises
    ------
    ArgumentError
        If there is no such group, or none besides.

    Examples
    --------
    >>> qq({"a": [1, 2, 3], "b": [2, 3, 4]}, label="RTT (ms)").axes[0].get_ylabel()
    'RTT (ms)'
    """
    known = _known(of, quantity, by)
    if against is None or isinstance(against, str):
        name = next(iter(known)) if against is None else against
        if name not in known or len(known) < 2:
            raise ArgumentError(f"against={against!r}: one of two or more groups; there are {', '.join(known)}")
        reference, quantiles = name, np.quantile(known.pop(name), _SHARES)
    else:
        check_argument(hasattr(against, "ppf"), "against", against, "a group, or a distribution of scipy.stats")
        reference, quantiles = "the distribution", against.ppf(_SHARES)
    drawing, axes = one_panel((4.6, 4.2), title)
    ends = [quantiles[0], quantiles[-1]]
    for k, (name, values) in enumerate(known.items()):
        its = np.quantile(values, _SHARES)
        axes.plot(quantiles, its, ".-", ms=4, lw=0.7, color=COLOURS[k % len(COLOURS)], label=name)
        ends = [min(ends[0], its[0]), max(ends[1], its[-1])]
    axes.plot(ends, ends, color="#444", ls="--", lw=1, zorder=0)
    label = text_of("label", label, axis_label(quantity) if quantity else "")
    axes.set(xlabel=f"{label} of {reference}".strip(), ylabel=label)
    finish(axes, loc="upper left")
    return drawing


def _known(of: Any, quantity: str | None, by: str | None) -> Columns:
    if quantity is None and not isinstance(of, dict):
        raise ArgumentError(
            f"of={short_repr(of)}: a dict of samples by name, or say which quantity: cdf(of, 'goodput')"
        )
    by_name = of if quantity is None else samples(of, quantity, by)
    known = {str(name): np.asarray(values, float) for name, values in by_name.items()}
    known = {name: values[np.isfinite(values)] for name, values in known.items()}
    empty = [name for name, values in known.items() if not len(values)]
    if empty or not known:
        raise ArgumentError(f"samples: {f'{empty[0]!r} has' if empty else 'there are'} no finite values")
    return known
