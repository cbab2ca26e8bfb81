"""How controllers differ, read off their classes: parameters, and the steps of their algorithms.

A *step* is a method. Two controllers share a step if they inherit the same function; they differ in it if one overrides
it or lacks it. Nothing here is written down twice: what a variant changes is what its class overrides. What code does
not say for itself (quirks of a release, what a paper leaves open) stands in the headers of the files, in paragraphs
that begin with a heading of `_HEADINGS`; they are quoted.
"""

import inspect
import re
import sys
from types import FunctionType
from typing import Any, NamedTuple

from cctrace.cc import REGISTRY, canonical, controller
from cctrace.cc.base import Controller, Counterpart, LinuxController, Param, QuicController
from cctrace.cc.of_papers import SYSTEMS

_COMMON = {Controller, LinuxController, QuicController, object}
_HEADINGS = {"quirks": "Quirks", "left_open": "Left open", "sources": "Sources:", "differs": "Differs from"}


class Difference(NamedTuple):
    """One parameter or step that differs: its name, and what each side has (None: nothing)."""

    name: str
    left: object
    right: object


def describe(name: str) -> dict[str, Any]:
    """Return what a registered controller is.

    `name`: see `cctrace.cc.controller`. Returns ``name``; ``stack`` ("linux" or "quic"); ``parent``, the registered
    name of the variant it is derived from, or None; ``summary``, the first line of its file, or of its class where a
    file holds several controllers; ``papers`` {paper: what it calls this system}, of those that run it; ``params``
    {name: {default, low, high, doc}}; ``own_steps``, those that its parent lacks or does otherwise; ``states`` and
    ``transitions`` as (from, to, why); and lists of sentences from its header: ``quirks`` of the release that are kept,
    ``left_open`` by the paper and chosen here, ``sources``, ``differs`` (from its parent, in words). Raises
    `ArgumentError` if there is no such controller.
    """
    cls, given = controller(name)
    parent = _parent(cls)
    inherited = _steps(controller(parent)[0]) if parent else {}
    modules = [target.partition(":")[0] for target in REGISTRY.values()]
    documented = cls if modules.count(cls.__module__) > 1 else inspect.getmodule(cls)
    return {
        "name": name,
        "stack": cls.view,
        "parent": parent,
        "summary": (documented.__doc__ or "").strip().split("\n")[0],
        "papers": SYSTEMS.get(canonical(name).partition(":")[0], {}),
        "params": {key: _row(row, given.get(key, row.default)) for key, row in cls.params.items()},
        "own_steps": [step for step, function in _steps(cls).items() if inherited.get(step) is not function],
        "states": list(cls.states),
        "transitions": [(*edge, why) for edge, why in cls.transitions.items()],
        **_quoted(cls, controller(parent)[0] if parent else Controller),
    }


def _row(param: Param, value: float) -> dict[str, Any]:
    return {"default": value, "low": param.low, "high": param.high, "doc": param.doc}


def differences(left: str, right: str) -> tuple[list[Difference], list[Difference]]:
    """Return where two controllers differ.

    `left`, `right`: see `cctrace.cc.controller`. Returns the parameters, with their defaults, and the steps, with the
    class that defines each, in the order of definition. Raises `ArgumentError` if there is no such controller.

    >>> params, steps = differences("bbr2019", "bbr2022")
    >>> sorted(step.name for step in steps)
    ['delivery_rate', 'init', 'takes_rtt']
    """
    (left_class, left_given), (right_class, right_given) = controller(left), controller(right)
    left_params = {key: left_given.get(key, row.default) for key, row in left_class.params.items()}
    right_params = {key: right_given.get(key, row.default) for key, row in right_class.params.items()}
    left_steps, right_steps = _steps(left_class), _steps(right_class)
    params = [
        Difference(key, left_params.get(key), right_params.get(key))
        for key in left_params | right_params
        if left_params.get(key) != right_params.get(key)
    ]
    steps = [
        Difference(key, _owner(left_class, key), _owner(right_class, key))
        for key in left_steps | right_steps
        if left_steps.get(key) is not right_steps.get(key)
    ]
    return params, steps


def counterparts(left: str, right: str) -> list[Counterpart]:
    """Return the differences found by reading a specification (`left` or `right`) beside the other's source.

    Rows are as seen from `left`: `here` is what it does. Raises `ArgumentError` if there is no such controller.

    >>> counterparts("bbr3", "bbr_draft")[0][:3]
    ('drain gain', '0.344 (88/256)', '0.5')
    """
    names = [canonical(name).partition(":")[0] for name in (left, right)]
    (here, _), (there, _) = controller(left), controller(right)
    mirrored = (row._replace(here=row.there, there=row.here) for row in there.counterparts.get(names[0], ()))
    return [*here.counterparts.get(names[1], ()), *mirrored]


def _steps(cls: type[Controller]) -> dict[str, FunctionType]:
    """Return {name: function} of every step, a parent's before its child's."""
    own = [base for base in reversed(cls.__mro__) if base not in _COMMON]
    names = dict.fromkeys(name for base in own for name, item in vars(base).items() if inspect.isfunction(item))
    return {name: getattr(cls, name) for name in names}


def steps_of(cls: type[Controller]) -> dict[str, str | None]:
    """Return {step: name of the class that defines it} of a controller class, in the order of definition."""
    return {step: _owner(cls, step) for step in _steps(cls)}


def _owner(cls: type[Controller], step: str) -> str | None:
    return next((base.__name__ for base in cls.__mro__ if step in vars(base)), None)


def _parent(cls: type[Controller]) -> str | None:
    """Return the registered name of the nearest base that has one, None if none has."""
    names = {target: name for name, target in REGISTRY.items()}
    bases = (f"{base.__module__}:{base.__name__}" for base in cls.__mro__[1:])
    return next((names[base] for base in bases if base in names), None)


def _quoted(cls: type[Controller], parent: type[Controller]) -> dict[str, list[str]]:
    """Return {heading: list of sentences} of the headers of those files that define `cls` but not its parent."""
    modules = dict.fromkeys(base.__module__ for base in cls.__mro__ if not issubclass(parent, base))
    found: dict[str, list[str]] = {name: [] for name in _HEADINGS}
    for module in modules:
        current = None
        # "Differs from" may follow the sources on the same line.
        for block in re.split(r"\n\s*\n|(?=Differs from)", inspect.getdoc(sys.modules[module]) or ""):
            heading = next((name for name, start in _HEADINGS.items() if block.startswith(start)), None)
            current = heading or (current if block.startswith("* ") else None)
            if current:
                found[current] += _sentences(current, block)
    return {heading: list(dict.fromkeys(said)) for heading, said in found.items()}


def _sentences(heading: str, block: str) -> list[str]:
    """Return the items of a list, or the block as one item; a heading that only announces them is dropped."""
    items = [" ".join(item.split()) for item in re.split(r"(?:^|\n)\* ", block)]
    if heading != "differs" and items[0].startswith(_HEADINGS[heading]):
        items[0] = items[0].partition(":")[2].strip()
    return [item for item in items if item and not item.endswith(":")]
