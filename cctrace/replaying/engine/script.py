"""The values that a replay needs and no capture contains: random draws, corrections, ticks, the kernel's parameters."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

Changes: TypeAlias = Mapping[str, int]  # what a scan adds to fields
Passed: TypeAlias = tuple[tuple[Any, ...], float]  # a state for `restore`, and the `total` of a scan from there


class Best(NamedTuple):
    """What is known of the best branch of a scan before it is run.

    `near`: a row at which it may start; rows close to it are tried first. `reached`: the log likelihood ratio that it
    has at least. `lower`: branches may be stopped that cannot reach this part of its ratio.
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
    """Inferred values."""

    draws: list[Any]  # row of the call, and four raw 32-bit random numbers; ascending
    edits: list[Edit]  # ascending
    hz: int = 0  # of the sender's kernel; 0: as given
    tick_us: int = 0  # offset of its ticks from the connection's clock
    paced: int | None = None  # whether the socket paced; None: as given
    gso_max_bytes: int | None = None  # the parameter of BBRv2 of that name; None: as given
    ecn_enable: int | None = None  # that of BBRv2 and v3; None: as given
