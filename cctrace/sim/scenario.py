"""A run as a file: path, senders, duration and seed, in TOML, for `cctrace simulate --scenario` and `cctrace check`.

Tables have the fields of their classes:

    duration = "20s"
    seed = 1

    [path]                                   fields of `Path`
    rate = [[0, "10Mbit"], [2.5, "1Mbit"]]
    rtt = "40ms"

    [[senders]]                              fields of `Sender`
    cc = "bbr2022"
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cctrace.documents import toml_file
from cctrace.errors import ArgumentError, check_keys
from cctrace.files import write_text
from cctrace.sim.path import Path, steps_of_lists
from cctrace.sim.sender import Sender

_KEYS = ("duration", "seed", "path", "senders")


@dataclass(frozen=True)
class Scenario:
    """The arguments of a `simulate`.

    Attributes
    ----------
    path : Path
    senders : tuple of Sender
    duration : str
    seed : int

    Examples
    --------
    >>> one = Scenario(Path(rate="10Mbit", buffer="2bdp"), (Sender("cubic6", ack_every=2),), "5s")
    >>> print(one.to_toml())
    duration = "5s"
    seed = 1
    <BLANKLINE>
    [path]
    rate = "10Mbit"
    rtt = "40ms"
    buffer = "2bdp"
    loss = "0%"
    <BLANKLINE>
    [[senders]]
    cc = "cubic6"
    ack_every = 2
    <BLANKLINE>
    """

    path: Path
    senders: tuple[Sender, ...]
    duration: str = "60s"
    seed: int = 1

    def to_toml(self, remarks: Iterable[str] = ()) -> str:
        """Return the scenario as TOML text, with remarks as comments before it.

        Raises
        ------
        ArgumentError
            If a field has no text: a class as controller, a trace or a jitter that was not given as text.
        """
        lines = [*(f"# {line}" for line in remarks), f"duration = {json.dumps(self.duration)}", f"seed = {self.seed}"]
        parts: list[tuple[str, Path | Sender]] = [("[path]", self.path)]
        parts += [("[[senders]]", sender) for sender in self.senders]
        for title, one in parts:
            lines += ["", title, *(f"{name} = {_text(name, value)}" for name, value in _given(one))]
        return "\n".join([*lines, ""])

    def write(self, file: str | os.PathLike[str], remarks: Iterable[str] = ()) -> None:
        """Write `to_toml` to a file."""
        write_text(file, self.to_toml(remarks))

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Scenario:
        """Read a scenario.

        Raises
        ------
        FormatError
            If the file is no TOML.
        ArgumentError
            If a key is unknown or a value wrong; names file, key and what is allowed.
        """
        name = os.fspath(file)
        table = toml_file(file)
        check_keys(name, table, _KEYS)
        path, senders = table.get("path"), table.get("senders")
        if not isinstance(path, dict) or not isinstance(senders, list) or not senders:
            raise ArgumentError(f"{name}: a scenario has a table [path] and at least one [[senders]]")
        duration, seed = table.get("duration", cls.duration), table.get("seed", cls.seed)
        if not isinstance(duration, str) or not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ArgumentError(f'{name}: duration={duration!r}, seed={seed!r}: write them as "20s" and 1')
        try:
            return cls(_made(Path, path), tuple(_made(Sender, one) for one in senders), duration, seed)
        except ArgumentError as error:
            raise ArgumentError(f"{name}: {error}") from None


def _given(one: Path | Sender) -> list[tuple[str, Any]]:
    """Return the fields that differ from their defaults."""
    fields = [field for field in dataclasses.fields(one) if field.init]
    values = [(field, getattr(one, field.name)) for field in fields]
    return [(field.name, value) for field, value in values if value != field.default]


def _text(name: str, value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(name, one) for one in value)}]"
    if isinstance(value, str | bool | int | float):
        return json.dumps(value)
    raise ArgumentError(f"{name}={value!r}: cannot be written as text")


def _made(kind: Any, table: Mapping[str, Any]) -> Any:
    """Return a Path or Sender of a table."""
    if not isinstance(table, dict):
        raise ArgumentError(f"{table!r}: a table is needed")
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    check_keys(kind.__name__.lower(), table, names)
    missing = {"cc"} - set(table) if kind is Sender else set()
    if missing:
        raise ArgumentError('[[senders]] needs cc, for example "bbr2022"')
    return kind(**{name: steps_of_lists(value) for name, value in table.items()})
