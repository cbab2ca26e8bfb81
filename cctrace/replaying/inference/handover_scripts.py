"""What was inferred while a controller handed a flow over to fq, so that its replay need not infer it again."""

import weakref
from typing import Any, NamedTuple

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.replaying.engine.script import Script

_known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow as handed over: _HandOver}


class _HandOver(NamedTuple):
    """The controller of a pass through fq, its parameters as asked for, and what was inferred."""

    cls: type[Controller]
    params: dict[str, Any]
    script: Script


def remember_script(flow: Flow, cls: type[Controller], params: dict[str, Any], script: Script, before: Script) -> None:
    """Remember what was inferred while a controller, with the parameters it was asked for, handed over `flow`.

    `before`: the script with which the pass began; it has ``gso_max_bytes`` and ``ecn_enable``.
    """
    script = script._replace(gso_max_bytes=before.gso_max_bytes, ecn_enable=before.ecn_enable)
    _known[flow] = _HandOver(cls, params, script)


def known_script(flow: object, cls: type[Controller], params: dict[str, Any]) -> Script | None:
    """Return what was inferred while this controller handed a flow over to fq; None if it did not."""
    known = _known.get(flow) if isinstance(flow, Flow) else None
    return known.script if known is not None and known[:2] == (cls, params) else None
