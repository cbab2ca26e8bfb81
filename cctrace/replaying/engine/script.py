"""Unrecorded inputs of a replay: random draws, corrections, ticks, whether the socket paced."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

Changes: TypeAlias = Mapping[str, int]  # what a scan adds to fields
Passed: TypeAlias = tuple[tuple[Any, ...], float]  # a state for `restore`, and the `total` of a scan from there


class Best(NamedTuple):
    """What is known of the best branch of a scan.

    `near`: which row it may start at; those closest to that are tried first. `reached`: a log likelihood ratio that it
    has at least. `lower`: only branches matter that have this part of its ratio.
    """

    near: int = 0
    reached: float = -math.inf
    lower: float = 1.0


BEST = Best()


class Edit(NamedTuple):
    """An inferred correction: before row `row`, `value` is added to a field."""

    row: int
    field: str
    value: int


class Script(NamedTuple):
    """Inferred values: random numbers (row and four raw numbers each), edits, both ascending; ticks; pacing."""

    draws: list[Any]
    edits: list[Edit]
    hz: int = 0  # as given
    tick_us: int = 0  # lead of the ticks over the connection's clock
    paced: int | None = None  # whether the socket paced; None: as given
    gso_max_bytes: int | None = None  # the parameter of BBRv2 of that name; None: as given
    ecn_enable: int | None = None  # that of BBRv2 and v3; None: as given
