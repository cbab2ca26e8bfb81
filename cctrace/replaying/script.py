"""What a replay has to be given because no record shows it: draws, corrections, ticks, whether the socket paced."""

from __future__ import annotations

from typing import Any, NamedTuple

TICK = "kernel's tick"  # no field, but may be edited, us


class Edit(NamedTuple):
    """Something that the record does not show, found out: before row `row`, `value` is added to a field or TICK."""

    row: int
    field: str
    value: int


class Script(NamedTuple):
    """What was inferred: numbers drawn (row and four raw numbers each), edits, both ascending; ticks; pacing."""

    draws: list[Any]
    edits: list[Edit]
    hz: int = 0  # as given
    tick_us: int = 0  # by how much they are ahead of the connection's clock
    paced: int | None = None  # whether the socket paced; None: as given
