"""Papers reproduced figure by figure: what a paper reports, what the released code does here, and why they differ.

* `figure` a figure as a function: parameters, runs, table, plot, claims
* `claims` marks that follow from numbers; `runs` results kept on disk; `measure` what a run measures
* `lifecycle` state machines as flows pass through them
* `kumar…`, `bbr2plus…`, `obbr…`, `bbrx…`, `beyond` the papers

`reproduce` runs one or all figures of a paper; `cctrace reproduce` is the same on the command line.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from cctrace.display import Progress
from cctrace.errors import ArgumentError, suggestion

if TYPE_CHECKING:
    from cctrace.papers.figure import Figure, Reproduction

_YANG22 = ("cycles", "setup", "fairness", "shallow", "losses", "steps", "jitter", "traces", "testbed")
# Name of a paper: the modules that hold its figures (each a list FIGURES), and what it is.
_PAPERS = {
    "kumar": (
        ("kumar", "kumar_given", "kumar_model", "kumar_testbed"),
        "Kumar et al., TCP BBR for Ultra-Low Latency Networking (2019)",
    ),
    "bbr2plus": (
        tuple(f"bbr2plus_{part}" for part in _YANG22),
        "Yang et al., BBRv2+: Balancing Aggressiveness and Fairness with Delay-based Bandwidth Probing (2022)",
    ),
    "obbr": (
        tuple(
            f"obbr_{part}"
            for part in ("model", "drop", "varies", "stable", "flows", "competes", "cellular", "internet")
        ),
        "Bi et al., oBBR: Optimize Retransmissions of BBR Flows on the Internet (2023)",
    ),
    "bbrx": (
        ("bbrx", "bbrx_testbed", "bbrx_lte", "bbrx_learned"),
        "Chung et al., BBRx: Extending BBR for Customized TCP Performance (2018)",
    ),
    "beyond": (("beyond",), "Beyond the papers: starvation (Arun et al. 2022) and collapse, for every controller"),
}


def papers() -> dict[str, str]:
    """Return {name: title} of the papers.

    Examples
    --------
    >>> list(papers())
    ['kumar', 'bbr2plus', 'obbr', 'bbrx', 'beyond']
    """
    return {name: title for name, (_, title) in _PAPERS.items()}


def figures(paper: str) -> dict[str, Figure]:
    """Return {name: Figure} of a paper, in its order.

    Parameters
    ----------
    paper : str
        One of `papers`.

    Raises
    ------
    ArgumentError
        If there is no such paper; names the papers there are.

    Examples
    --------
    >>> list(figures("kumar"))
    ['1', '2', '3', '4', '8', '5', '6', '7', 'testbed']
    """
    _known("paper", paper, _PAPERS)
    modules = [importlib.import_module(f"cctrace.papers.{module}") for module in _PAPERS[paper][0]]
    return {figure.name: figure for module in modules for figure in module.FIGURES}


def find(paper: str, name: str) -> Figure:
    """Return one `Figure`, by paper and name (``"5"``; ``"fig5"`` will do).

    Parameters
    ----------
    paper : str
        One of `papers`.
    name : str
        One of `figures`.

    Raises
    ------
    ArgumentError
        If there is no such paper or figure; says which there are.

    Examples
    --------
    >>> find("kumar", "2").name
    '2'
    """
    there = figures(paper)
    wanted = str(name).lower().removeprefix("figure").removeprefix("fig").strip(" .-_")
    _known(f"figure of {paper}", wanted, there, name)
    return there[wanted]


def _known(what: str, name: str, there: Iterable[str], given: str | None = None) -> None:
    if str(name) not in there:
        meant = suggestion(str(name), there, likeness=0.5)
        raise ArgumentError(f"{what} {given or name!r} is not one of {', '.join(there)}{meant}")


def reproduce(
    paper: str,
    name: str | None = None,
    *,
    quick: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
    fresh: bool = False,
    **changes: Any,
) -> list[Reproduction]:
    """Run a figure of a paper, or all of them.

    Parameters
    ----------
    paper : str
        One of `papers`.
    name : str, optional
        One of `figures`; default all.
    quick : bool
        Short runs and few of them.
    workers : int
        Processes.
    progress : callable, optional
        Receives a line after each run.
    fresh : bool
        Make results again that are kept on disk.
    **changes
        Of the figures' parameters.

    Returns
    -------
    list of Reproduction
        Per figure: its `runs` (a DataFrame), `table()`, `plot()` and `claims`, each with a mark.

    Raises
    ------
    ArgumentError
        If there is no such paper or figure, or a change is no parameter of the figure.

    Examples
    --------
    >>> (two,) = reproduce("kumar", "2", quick=True, workers=1)
    >>> two.figure.title
    'estimates, cwnd and throughput over the jitter'
    """
    chosen = list(figures(paper).values()) if name is None else [find(paper, name)]
    common = {"workers": workers, "fresh": fresh} | changes

    def counted(one: Figure, done: int, total: int) -> None:
        if progress is not None:
            progress(f"{paper}, figure {one.name}: {done} of {total} runs")

    return [one(quick, on_run=partial(counted, one), **common) for one in chosen]
