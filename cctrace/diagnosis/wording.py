"""Sentences from templates: numbers are formatted by the unit that ends their names, clauses with unknown ones
omitted.

    fill("It got {rate_bps}[ of {link_bps}].", {"rate_bps": 4e6})        "It got 4 Mbit/s."

`{name}` is a number or a word; `[...]` is omitted unless everything in it is known, and `[one|other]` is the first
alternative that is fully known. `{name?}` prints nothing, but must be true.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cctrace.units import (
    format_count,
    format_counted,
    format_number,
    format_rate,
    format_share,
    format_size,
    format_time,
)

Value = float | int | str | bool | None

_FIELD = re.compile(r"\{(\w+)(\?|:\w+)?\}")
_CLAUSE = re.compile(r"\[([^\[\]]*)\]")
_UNITS = {
    "bps": format_rate,
    "Bps": lambda value: format_rate(8 * value),
    "us": lambda value: format_time(1e3 * value),
    "bytes": format_size,
    "share": format_share,
    "s": lambda value: f"{value:.1f} s",
}
_FORMATS = {
    "count": lambda value: format_count(int(value)),
    "packets": lambda value: format_counted(int(value), "packet", "packets"),
    "packets_were": lambda value: format_counted(int(value), "packet was", "packets were"),
    "rounds": lambda value: format_counted(int(value), "round trip", "round trips"),
    "lasting": lambda value: format_time(1e9 * value),
    "percent": format_share,
    "micros": lambda value: format_time(1e3 * value),
    "two": lambda value: format_number(value, 2),
    "tenths": lambda value: f"{value:.1f}",
    "times": lambda value: {"1": "once", "2": "twice"}.get(f"{value:.0f}", f"{value:,.0f} times"),
}


@dataclass(frozen=True)
class Sentence:
    """Templates of a cause's sentence, its advice, and what would refute it."""

    text: str
    advice: str = ""
    refuted_by: str = ""


@dataclass(frozen=True)
class Cause:
    """A cause: plain words for a table, its sentence, and variants for its other forms."""

    words: str
    sentence: Sentence
    forms: dict[str, Sentence] = field(default_factory=dict)


def cause(words: str, text: str, advice: str = "", refuted_by: str = "", **forms: Sentence) -> Cause:
    """Return a cause of these sentences; `forms`: by the name of the form."""
    return Cause(words, Sentence(text, advice, refuted_by), forms)


def fill(template: str, known: Mapping[str, Value]) -> str:
    """Return the sentence of a template.

    `known`: their units are the last parts of their names (``_us``, ``_bps``, ``_share`` ...); None and NaN are
    unknown.

    >>> fill("It took {rtt_us}[ (least {least_us})]: [{lost} losses|no loss].", {"rtt_us": 40e3, "lost": 3})
    'It took 40 ms: 3 losses.'
    """
    while "[" in template:
        template = _CLAUSE.sub(lambda clause: _first_known(clause[1], known), template)
    return _FIELD.sub(lambda place: "" if place[2] == "?" else _written(place[1], place[2], known), template)


def _first_known(clause: str, known: Mapping[str, Value]) -> str:
    return next((text for text in clause.split("|") if _is_known(text, known)), "")


def _is_known(text: str, known: Mapping[str, Value]) -> bool:
    for name, how in _FIELD.findall(text):
        value = known.get(name)
        if value is None or _is_nan(value) or (how == "?" and not value):
            return False
    return True


def _written(name: str, how: str | None, known: Mapping[str, Value]) -> str:
    value = known.get(name)
    if value is None or _is_nan(value):
        return "unknown"
    if isinstance(value, str):
        return value
    if how:
        return _FORMATS[how[1:]](value)
    unit = _UNITS.get(name.rpartition("_")[2])
    return unit(value) if unit else f"{value:.0f}"


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)
