"""Conformance of a congestion control to its specification: requirements as tables, checked in runs and recordings.

    found = cctrace.conform.run("bbr3", "bbr")          # a controller: the specification's cases, simulated
    found = cctrace.conform.run(flow, "cubic")          # a recorded flow: what the wire reveals of its sender
    print(found.summary())

A specification (`SPECS`) is a file of its own: a sentence, its section and level, and a predicate over the columns
of a trace. Verdicts are *conforms*, *violates* (with the first call, time, value and expectation) and *not
exercised*: no run reached the situation, or the record does not show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cctrace.arguments import check_progress
from cctrace.conform.requirements import SPECS, spec_of
from cctrace.conform.result import Conformity, Verdict
from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError
from cctrace.flows.flow import Flow

if TYPE_CHECKING:
    from cctrace.cc.base import Controller
    from cctrace.flows.counters import CounterFlow
    from cctrace.sim.scenario import Scenario

__all__ = ["SPECS", "Conformity", "Verdict", "run", "spec_of"]


def run(
    subject: str | type[Controller] | Flow | CounterFlow | Scenario,
    spec: str,
    *,
    seed: int = 1,
    sender: int = 0,
    progress: Progress = silent,
) -> Conformity:
    """Return how a controller, or the sender of a recorded flow, of a log or in a scenario, follows a specification.

    Parameters
    ----------
    subject : str, type, Flow, CounterFlow or Scenario
        A controller, see `cctrace.cc.controller`, which runs the specification's cases; a flow of a capture, or of a
        qlog; or a scenario, which is simulated.
    spec : str
        One of `SPECS`.
    seed : int
        Of the cases; a scenario has its own.
    sender : int
        Which of a scenario's senders.
    progress : callable
        Receives a line per path.

    Raises
    ------
    ArgumentError
        If there is no such controller or specification, if the specification does not apply to the controller's
        stack, if the controller raises or sends nothing, or if the flow was sent by another controller.

    Examples
    --------
    >>> found = run("quic_reno", "quic")
    >>> found.conforms
    True
    """
    check_progress(progress)
    found = spec_of(spec)
    if isinstance(subject, str | type):
        from cctrace.conform.controllers import of_controller

        return of_controller(subject, found, seed, progress)
    from cctrace.conform.captures import of_flow
    from cctrace.conform.log import of_log
    from cctrace.flows.counters import CounterFlow
    from cctrace.sim.scenario import Scenario

    if isinstance(subject, CounterFlow):
        return of_log(subject, found)
    if isinstance(subject, Scenario):
        from cctrace.conform.controllers import of_scenario

        return of_scenario(subject, found, sender)
    if not isinstance(subject, Flow):
        raise ArgumentError(
            f"cannot examine {type(subject).__name__!r}: give a controller, a scenario, or a flow of a capture"
        )
    return of_flow(subject, found, progress)
