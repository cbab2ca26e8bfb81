"""The controller that a replay calls: compiled code, or an object of the class whose fields are copied to slots.

The compiled class serves both engines, `follow` and `player`; the object serves `follow`, whose loop reads its slots.
"""

import functools
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from cctrace import schema
from cctrace.cc.base import Controller, param_fields
from cctrace.columns import Ints, Values
from cctrace.lang.compile import Compiled, compiled
from cctrace.lang.fields import RETURNED, ack_dtype, debug_class, fields_of, mistyped, record_dtype
from cctrace.lang.fingerprint import Fingerprint
from cctrace.lang.memory import callback
from cctrace.lang.threads import check_wanted

_RETURNING = ("ssthresh", "undo_cwnd")
_ROW: Any = namedtuple("Ack", schema.names(schema.LINUX_VIEW))  # type: ignore[misc]  # its fields are the schema's
_ENTRY = {code: name for name, code in schema.LINUX_EVENTS.items()}
_CARRIED = ("snd_cwnd", "snd_cwnd_cnt", "snd_ssthresh", "pacing_rate", "app_limited")


Places: TypeAlias = Mapping[str, tuple[int, np.dtype]]  # of what is recorded: `recordable`


def state_of(get: Callable[[str], Any], cls: type[Controller]) -> dict[str, Any]:
    """Return {field: value}, as `get` reads them, arrays as lists, parameters not included."""
    return {name: get(name) for name in fields_of(cls) if name not in param_fields(cls)}


def slots_of(places: Places) -> Ints:
    """Return the slots of what is recorded."""
    return np.array([offset // 8 for offset, _ in places.values()], np.int64)


def recorded_in(out: Ints, places: Places) -> dict[str, Values]:
    """Return {name: column}: the low or high part of the recorded slots, as their dtype; `out`: a row per slot."""
    return {
        name: slots.view(dtype)[offset % 8 // dtype.itemsize :: 8 // dtype.itemsize]
        for slots, (name, (offset, dtype)) in zip(out, places.items(), strict=True)
    }


@functools.lru_cache(maxsize=256)
def _begun(code: Compiled, fingerprint: Fingerprint, *params: tuple[str, float]) -> Ints:
    """Return the state after the constructor of a class, in words, as copies of records lose their padding.

    It is cached, as most replays of a flow begin alike.
    """
    return code.new_state(**dict(params)).view(np.int64)


class CompiledCalls:
    """The compiled class; its state is a record."""

    def __init__(self, cls: type[Controller], params: dict[str, Any]) -> None:
        self.code = compiled(cls)
        self.slots = _begun(self.code, self.code.fingerprint, *params.items()).copy()
        self.records = self.slots.view(self.code.state_dtype)
        self.ack = np.zeros(1, ack_dtype(cls))
        self.address = self.code.address
        self.entries = {name: entry.returns for name, entry in self.code.entries.items()}
        self.reads = {name: entry.columns for name, entry in self.code.entries.items()}
        self.counts_ticks = "jiffies" in self.code.columns
        self.key = self.code.key

    def check(self) -> None:
        """Raise the error of a failed call, if any, or that no more calls are wanted."""
        self.code.check()
        check_wanted()

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        return self.records[name][0].tolist()

    def set(self, name: str, value: Any) -> None:
        """Change a field."""
        self.records[name][0] = value


class InterpretedCalls:
    """An object of the class; after each call its fields are copied to slots, for the stack and the recording."""

    def __init__(self, cls: type[Controller], params: dict[str, Any], mode: str) -> None:
        self.controller = (debug_class(cls) if mode == "debug" else cls)(**params)
        self.fields = fields_of(cls)
        self.records = np.zeros(1, record_dtype(cls))
        self.slots = self.records.view(np.int64)
        self.ack = np.zeros(1, ack_dtype(cls))
        self.entries = {n: n in _RETURNING for n in schema.LINUX_EVENTS if hasattr(cls, n)}
        self.counts_ticks, self.key = False, ""  # interpreted runs infer nothing
        self.reads: dict[str, Sequence[str]] = {}
        self._cls = cls
        self.address = callback(self._call)
        self._write()

    def check(self) -> None:
        """Do nothing: errors were raised by the call itself."""

    def _call(self, event: int, state: int, ack: int) -> int:
        controller = self.controller
        for name in _CARRIED:
            setattr(controller, name, int(self.records[name][0]))
        controller.draws = 0
        returned = getattr(controller, _ENTRY[int(event)])(_ROW._make(self.ack.item()))
        self._write()
        self.records[RETURNED] = 0 if returned is None else returned
        return 0 if returned is None else returned

    def _write(self) -> None:
        for name, field in self.fields.items():
            value = getattr(self.controller, name)
            if field.kind == "int" and not field.length and isinstance(value, float):
                raise mistyped(self._cls.__name__, name, "int", "float")
            self.records[name] = value

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        if name in _CARRIED:
            return self.records[name][0].tolist()
        return getattr(self.controller, name)

    def set(self, name: str, value: Any) -> None:
        """Change a field."""
        setattr(self.controller, name, value)
        self.records[name] = value
