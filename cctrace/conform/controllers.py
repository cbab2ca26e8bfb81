"""Conformance of a controller: a specification's cases on all paths, on all cores."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from weakref import WeakSet

from cctrace.cc import called, canonical, controller
from cctrace.cc.base import Controller, checked_params
from cctrace.conform.cases import Case
from cctrace.conform.judge import Tally, dated, intended, look
from cctrace.conform.requirements import Found, Spec
from cctrace.conform.result import NOT_EXERCISED, Conformity
from cctrace.conform.runner import Runner, simulated
from cctrace.conform.trace import Trace, trace_of
from cctrace.conform.wire import trace_of_flow
from cctrace.display import Progress
from cctrace.errors import ArgumentError
from cctrace.lang.compile import compiled
from cctrace.lang.threads import cores
from cctrace.sim.scenario import Scenario


class CaseResult(NamedTuple):
    """A case on a cell: the results of its aim and of every requirement in its run."""

    case: Case
    where: str
    found: Found
    seen: list[tuple[str, Found | None]]
    seconds: float


def of_controller(subject: str | type[Controller], spec: Spec, seed: int, progress: Progress) -> Conformity:
    """Return the `Conformity` of a controller; see `cctrace.conform.run`."""
    subject = _of_stack(subject, spec)
    cls, _ = controller(subject)
    tally = Tally(spec.requirements, intended(subject, spec))
    for case in spec.cases:
        tally.example(case.id, case.title)
    runners = [Runner(subject, cell, seed) for cell in spec.cells]
    if not cls.interpreted_only:
        compiled(cls)  # before threads need it, so that its mistakes are reported once
    with ThreadPoolExecutor(min(cores(), len(runners))) as pool:
        for cell, results in zip(spec.cells, pool.map(lambda runner: run_cases(runner, spec), runners), strict=True):
            progress(f"{called(subject)} on {cell}")
            for one in results:
                tally.add(one.case.id, one.found, one.where, one.seconds)
                for id, found in one.seen:
                    tally.add(id, found, one.where)
    return _conformity(subject, spec, tally)


def of_scenario(scenario: Scenario, spec: Spec, sender: int) -> Conformity:
    """Return the `Conformity` of one sender in the simulation of a scenario; see `cctrace.conform.run`."""
    one = scenario.senders[sender]
    subject = _of_stack(one.cc, spec)
    cls, given = controller(subject)
    packets = spec.requirements is spec.wire  # rack looks at segments
    run = simulated(called(subject), scenario, packets, sender)
    if packets:
        r = trace_of_flow(run.capture(sender).flow(0))
    else:
        r = trace_of(run.flow(sender), cls, checked_params(cls, given), {"mss": float(one.sizes[0])})
    tally = Tally(spec.requirements, intended(subject, spec))
    tally.examine(spec.requirements, r, "the scenario")
    return _conformity(subject, spec, tally, ("one scenario: what it does not bring about is not exercised",))


def _of_stack(subject: str | type[Controller], spec: Spec) -> str | type[Controller]:
    """Return a subject by its registered name; raise `ArgumentError` if the specification is of another stack."""
    if isinstance(subject, str):
        subject = canonical(subject)
    cls, _ = controller(subject)
    if cls.view != spec.stack:
        names = {"linux": "Linux", "quic": "QUIC"}
        raise ArgumentError(
            f"{cls.__name__} belongs to the {names[cls.view]} stack: the cases of {spec.name} run on the "
            f"{names[spec.stack]} stack's controllers"
        )
    return subject


def _conformity(subject: str | type[Controller], spec: Spec, tally: Tally, notes: tuple[str, ...] = ()) -> Conformity:
    verdicts = tally.verdicts()
    if all(verdict.verdict == NOT_EXERCISED for verdict in verdicts):
        raise ArgumentError(f"{called(subject)} shows nothing that spec={spec.name!r} asks: it keeps no such state")
    return Conformity(called(subject), spec.name, spec.title, verdicts, notes)


def run_cases(runner: Runner, spec: Spec) -> list[CaseResult]:
    """Run all cases of a specification with a runner; each run is checked once, with the case that made it."""
    done: WeakSet[Trace] = WeakSet()
    results = [run_case(runner, spec, case, done) for case in spec.cases]
    runner.traces.clear()
    return results


def run_case(runner: Runner, spec: Spec, case: Case, done: WeakSet[Trace]) -> CaseResult:
    """Run a case, and check every requirement in its run unless that was done before."""
    began = time.perf_counter()
    r, found = case.run(runner)
    seen = []
    if r is not None and r not in done:
        done.add(r)
        seen = [(requirement.id, look(requirement, r)) for requirement in spec.requirements]
    return CaseResult(case, f"{case.id} on {runner.cell}", dated(found, r), seen, time.perf_counter() - began)
