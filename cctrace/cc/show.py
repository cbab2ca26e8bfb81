"""A controller as it runs: the methods of its class in the order in which they are called, wherever they are defined.

A variant overrides what its source changes, so that its code lies in as many files as it has ancestors. `resolved`
follows each entry point through `self.step()` and `super().step()` to the functions that would be called, in the order
of the text, with what each cites.
"""

import ast
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from cctrace import schema
from cctrace.cc import controller
from cctrace.cc.base import Controller, find_method

_KEY = r"\[(?:[A-Z][A-Za-z]+v?\d[\w]*|BBRv\w+|RFC ?\d+)\]"
_CITATION = re.compile(_KEY + r"(?: (?:§ ?[\d.]+\d|[a-z]\w*_\w+(?:\(\))?|[Ee]qs?\. \d+|Table \w+|section [\d.]+\d))?")
_FILES = re.compile(rf"({_KEY})((?:,? ?[\w/.-]+\.(?:c|h|cc|go))+)")
_PACKAGE = Path(__file__).parent.parent.parent


def resolved(name: str) -> list[dict[str, Any]]:
    """Return a controller's entry points with all that they call.

    `name`: see `cctrace.cc.controller`. Returns a dict per step, entry points (the names of `schema.EVENT_CODES`) at
    depth 0, each followed by what it calls: ``step``, ``depth``, ``class`` that defines it (a module's name for a plain
    function), ``file``, ``line``, ``doc`` (first line of its docstring), ``cites`` (with the source's file where the
    header names one), and ``source``, its text; empty where the step was shown before. Raises `ArgumentError` if there
    is no such controller.

    >>> [step["step"] for step in resolved("bbr3") if step["depth"] == 0]
    ['init', 'on_ack', 'ssthresh', 'set_state', 'cwnd_event', 'undo_cwnd', 'skb_marked_lost']
    """
    cls, _ = controller(name)
    events = schema.LINUX_EVENTS if cls.view == "linux" else schema.QUIC_EVENTS
    steps: list[dict[str, Any]] = []
    shown: set[FunctionType] = set()
    for event in events:
        if callable(getattr(cls, event, None)):
            _follow(cls, *find_method(cls, event), 0, steps, shown)
    return steps


def _follow(
    cls: type[Controller],
    owner: type | None,
    function: FunctionType,
    depth: int,
    steps: list[dict[str, Any]],
    shown: set[FunctionType],
) -> None:
    """Append the step of a function, then those of what it calls, in the order of its text."""
    first = function not in shown
    shown.add(function)
    source = textwrap.dedent(inspect.getsource(function))
    file, line = inspect.getsourcefile(function) or "", function.__code__.co_firstlineno
    steps.append(
        {
            "step": function.__name__,
            "depth": depth,
            "class": owner.__name__ if owner else function.__module__.rpartition(".")[2],
            "file": str(Path(file).relative_to(_PACKAGE)) if Path(file).is_relative_to(_PACKAGE) else file,
            "line": line,
            "doc": (inspect.getdoc(function) or "").partition("\n")[0],
            "cites": _citations(source, inspect.getmodule(function)),
            "source": source if first else "",
        }
    )
    for where, called in _calls(cls, function, owner, source) if first else ():
        _follow(cls, where, called, depth + 1, steps, shown)


def _calls(cls: type[Controller], function: FunctionType, owner: type | None, source: str) -> list[tuple[Any, Any]]:
    """Return (class that defines it, function) of each call of a step, in the order of the text; helpers included."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    nodes.sort(key=lambda node: (node.func.end_lineno, node.func.end_col_offset))
    calls = []
    for node in nodes:
        target = node.func
        if isinstance(target, ast.Attribute) and (of := ast.unparse(target.value)) in ("self", "super()"):
            calls.append(find_method(cls, target.attr, owner if of == "super()" else None))
        elif isinstance(target, ast.Name) and _is_helper(function.__globals__.get(target.id)):
            calls.append((None, function.__globals__[target.id]))
    return [call for call, _ in itertools.groupby(call for call in calls if isinstance(call[1], FunctionType))]


def _is_helper(thing: object) -> bool:
    """Whether a name means one of the controllers' helper functions; those of `cmath`, C's arithmetic, are left out."""
    module = thing.__module__ if isinstance(thing, FunctionType) else ""
    return module.startswith("cctrace.cc.") and module != "cctrace.cc.cmath"


def _citations(source: str, module: ModuleType | None) -> list[str]:
    """Return what a function cites, kernel functions with the file that the module's header names for that source."""
    files = {key: texts.split()[0].strip(",") for key, texts in _FILES.findall(inspect.getdoc(module) or "")}
    found = []
    for citation in dict.fromkeys(_CITATION.findall(source)):
        key, _, place = citation.partition(" ")
        code = place and "_" in place and key in files
        found.append(f"{key} {files[key]} {place}" if code else citation)
    return found
