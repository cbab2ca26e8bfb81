"""Expectations of flows, as people write them in TOML.

All keys:

    flows = "all"                       which flows: largest (default), all, ADDRESS, ADDRESS:PORT or :PORT
    goodput = ">= 35Mbit"               FIGURES: a bound with its unit
    rtt_p95 = "<= 60ms"
    controller = "bbr"                  the kernel's name or a variant
    verdict = ["path_full"]             the first verdict is one of these
    no_verdict = ["random_loss"]        none of these is among the verdicts that are likely
    conform = ["cubic", "prr"]          what the record shows of the sender follows all of these specifications

    [[expect]]                          further expectations, of other flows or other files of a folder
    files = "single_*"
    jain = ">= 0.9"
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cctrace import units
from cctrace.arguments import check_argument
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.display import endpoint
from cctrace.documents import toml_file
from cctrace.errors import ArgumentError, check_keys, suggestion

Given = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Figure(NamedTuple):
    """A figure that may be bounded: how its bound is parsed, how a value is written, an example of a bound."""

    parse: Callable[[object, str], float]
    form: Callable[[float], str]
    example: str


# A time is in nanoseconds, a rate in bit/s.
FIGURES = {
    "goodput": Figure(units.parse_rate_bps, units.format_rate, ">= 35Mbit"),
    "rtt_p95": Figure(units.parse_time_ns, units.format_time, "<= 60ms"),
    "retransmitted": Figure(units.parse_share, units.format_share, "<= 0.5%"),
    "jain": Figure(units.parse_share, units.format_number, ">= 0.9"),
    "converged": Figure(units.parse_time_ns, lambda ns: "never" if math.isinf(ns) else units.format_time(ns), "<= 5s"),
}
OF_ALL = ("jain", "converged")  # of the selected flows of a file together
NAMES = ("controller", "verdict", "no_verdict", "conform")
SELECTION = ("flows", "files")
_BOUND = re.compile(r"\s*(>=|<=)\s*(\S.*)", re.DOTALL)
_PORT = re.compile(r":(\d+)")


class Term(NamedTuple):
    """One expectation: its key, its text, and the limit or the names."""

    key: str
    text: str
    limit: float = math.nan
    names: tuple[str, ...] = ()

    def holds(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return value >= self.limit if self.text.startswith(">=") else value <= self.limit


@dataclass(frozen=True)
class Expectation:
    """Expectations of some flows."""

    flows: str  # "largest", "all", an address, a port (":443") or both
    files: str  # pattern of file names in a folder
    asked: tuple[Term, ...]


def read(given: Given) -> list[Expectation]:
    """Parse expectations from a TOML file, or from its contents.

    Raises `FormatError` if a file is no TOML; names the line. Raises `ArgumentError` if a key is unknown, a value is
    invalid, or nothing is expected; names key, value and what is allowed.

    >>> [one.text for one in read({"goodput": ">= 35Mbit", "verdict": "path_full"})[0].asked]
    ['>= 35Mbit', 'path_full']
    """
    source = "expectations"
    if isinstance(given, str | os.PathLike):
        source, given = os.fspath(given), toml_file(given)
    if isinstance(given, Mapping):
        parts = given.get("expect", [])
        if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
            raise ArgumentError(f"{source}: expect={parts!r}: write it as tables, [[expect]]")
        first = {key: value for key, value in given.items() if key != "expect"}
        tables: list[tuple[str, Mapping[str, Any]]] = [(source, first)] if first else []
        tables += [(f"{source}: expect {k}", part) for k, part in enumerate(parts, 1)]
    else:
        dicts = isinstance(given, list | tuple) and all(isinstance(one, Mapping) for one in given)
        check_argument(dicts, source, given, "a TOML file, a dict, or a list of dicts")
        tables = [(f"{source} {k}", one) for k, one in enumerate(given, 1)]
    if not tables:
        raise ArgumentError(f"{source}: nothing is expected; give for example goodput = '>= 35Mbit'")
    return [_expectation(where, table) for where, table in tables]


def _expectation(where: str, table: Mapping[str, Any]) -> Expectation:
    allowed = (*FIGURES, *NAMES, *SELECTION)
    check_keys(where, table, allowed)
    asked = tuple(_asked(where, key, value) for key, value in table.items() if key not in SELECTION)
    if not asked:
        raise ArgumentError(f"{where}: nothing is expected of these flows; allowed are {', '.join(allowed[:-2])}")
    return Expectation(_flows(where, table.get("flows", "largest")), _text(where, table, "files", "*"), asked)


def _asked(where: str, key: str, value: Any) -> Term:
    if key in FIGURES:
        found = _BOUND.fullmatch(value) if isinstance(value, str) else None
        if not found:
            raise ArgumentError(
                f"{where}: {key}={value!r}: a bound with >= or <=, for example '{FIGURES[key].example}'"
            )
        return Term(key, " ".join(found.groups()), FIGURES[key].parse(found[2], f"{where}: {key}"))
    names = tuple(value) if isinstance(value, list) else (value,)
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{where}: {key}={value!r}: a name, or a list of names")
    for name in names:
        _check_name(f"{where}: {key}={name!r}", key, name)
    return Term(key, (" and " if key == "conform" else " or ").join(names), names=names)


def _check_name(called: str, key: str, name: str) -> None:
    if key == "controller":
        from cctrace.cc import KERNEL_NAMES, canonical

        if name not in KERNEL_NAMES:
            try:
                canonical(name)
            except ArgumentError as error:
                raise ArgumentError(f"{called}: {error}") from None
    elif key == "conform":
        from cctrace.conform import SPECS

        if name not in SPECS:
            raise ArgumentError(f"{called}: specifications are {', '.join(SPECS)}")
    elif name not in CAUSES:
        raise ArgumentError(f"{called}: none of the verdicts, {', '.join(CAUSES)}{suggestion(name, CAUSES)}")


def _text(where: str, table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise ArgumentError(f"{where}: {key}={value!r}: a text, for example '{default}'")
    return value


def _flows(where: str, value: Any) -> str:
    if isinstance(value, str) and value.strip():
        port = _PORT.fullmatch(value)
        if not port or int(port[1]) < 1 << 16:
            return value
    raise ArgumentError(f"{where}: flows={value!r}: use largest, all, an address, :PORT or ADDRESS:PORT")


def selects(which: str, ends: Sequence[tuple[str | None, int | None]]) -> bool:
    """Return whether a selection by address and port matches one of the two ends of a flow.

    >>> selects(":443", [("192.0.2.1", 443), ("198.51.100.7", 50000)]), selects("192.0.2.2", [("192.0.2.1", 443)])
    (True, False)
    """
    return any(which in (host, f":{port}", endpoint(host, port)) for host, port in ends)
