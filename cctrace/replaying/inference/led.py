"""What was inferred while a controller handed a flow over to fq: what the flow's replay need not infer again."""

import weakref
from typing import Any, NamedTuple

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.replaying.engine.script import Script

_led: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow as handed over: Led}


class Led(NamedTuple):
    """A controller that led a flow's hand-over to fq: its class, its parameters as asked for, and what was inferred."""

    cls: type[Controller]
    params: dict[str, Any]
    script: Script


def note_led(handed: Flow, cls: type[Controller], params: dict[str, Any], script: Script, before: Script) -> None:
    """Remember what was inferred while a controller, with the parameters it was asked for, handed a flow over.

    `before`: what had been inferred of its super-packets and of ECN.
    """
    script = script._replace(gso_max_bytes=before.gso_max_bytes, ecn_enable=before.ecn_enable)
    _led[handed] = Led(cls, params, script)


def led_by(flow: object, cls: type[Controller], params: dict[str, Any]) -> Script | None:
    """Return what was inferred while this controller handed a flow over to fq; None if it did not."""
    led = _led.get(flow) if isinstance(flow, Flow) else None
    return led.script if led is not None and led[:2] == (cls, params) else None
