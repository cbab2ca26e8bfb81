"""Does a congestion control do what its specification says? Requirements as tables, looked at in runs and recordings.

    found = cctrace.conform.run("bbr3", "bbr")          # a controller: the specification's cases, simulated
    print(found.summary())

A specification (`SPECS`) is a file of its own: a sentence, its section and level, and a predicate over the columns of
a record. Verdicts are *conforms*, *violates* (with the first call, time, value and what was expected) and *not
exercised*: nothing that was looked at brought it about, or the record does not show it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cctrace.conform.result import Conformity, Verdict
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from cctrace.cc.base import Controller
    from cctrace.conform.requirements import Spec
    from cctrace.display import Progress

__all__ = ["SPECS", "Conformity", "Verdict", "run", "spec_of"]

SPECS = {
    "bbr": "cctrace.conform.bbr",
}


def spec_of(name: str) -> Spec:
    """Return a specification.

    Raises `ArgumentError` if there is none of that name; the known ones are listed.

    Examples
    --------
    >>> spec_of("bbr").title
    'draft-ietf-ccwg-bbr-06 (BBRv3)'
    """
    import difflib

    if name not in SPECS:
        near = difflib.get_close_matches(name, SPECS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ArgumentError(f"spec={name!r} is not one of {', '.join(SPECS)}{hint}")
    found: Spec = importlib.import_module(SPECS[name]).SPEC
    return found


def run(subject: str | type[Controller], spec: str, *, seed: int = 1, progress: Progress | None = None) -> Conformity:
    """Return how a controller follows a specification.

    Parameters
    ----------
    subject : str or type
        A controller, see `cctrace.cc.controller`.
    spec : str
        One of `SPECS`.
    seed : int
        Of the simulations.
    progress : callable, optional
        Receives a line per path.

    Raises
    ------
    ArgumentError
        If there is no such controller or specification, if the controller belongs to a stack whose calls the
        specification does not read, or if it raises or sends nothing.

    Examples
    --------
    >>> found = run("bbr_draft", "bbr")                                                    # doctest: +SKIP
    >>> found.conforms                                                                     # doctest: +SKIP
    True
    """
    from cctrace.conform.controllers import of_controller

    return of_controller(subject, spec_of(spec), seed, progress)
