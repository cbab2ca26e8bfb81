"""Arguments of public functions; a wrong one raises an `ArgumentError` with its name, its value and what is allowed."""

import math
import os
import reprlib
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from cctrace.errors import ArgumentError, suggestion

MAX_WORKERS = 1024  # processes of one machine


def check_argument(holds: object, name: str, value: object, allowed: str) -> None:
    """Raise an `ArgumentError` that names argument, value and what is allowed, unless `holds`.

    >>> check_argument(False, "files", None, "a path, or a list of paths")
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: files=None must be a path, or a list of paths
    """
    if not holds:
        raise ArgumentError(f"{name}={short_repr(value)} must be {allowed}")


def short_repr(value: object) -> str:
    """Return the `repr` of an argument for an error: on one line, and cut if it is long; of a table only the type.

    >>> short_repr(list(range(1000)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    text = reprlib.repr(value)
    return f"<{type(value).__name__}>" if "\n" in text else " ".join(text.split())


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Raise an `ArgumentError` that names argument, value and what is known, unless `value` is a text among it.

    >>> check_choice("goal", "goodputs", ("goodput", "delay"))
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: goal='goodputs' is not one of goodput, delay; did you mean 'goodput'?
    """
    known = list(known)
    if not isinstance(value, str) or value not in known:  # an array compares element by element
        meant = suggestion(value, known) if isinstance(value, str) else ""
        raise ArgumentError(f"{name}={short_repr(value)} is not one of {', '.join(known)}{meant}")


def flag(name: str, value: object) -> bool:
    """Return an argument that must be True or False (numpy's, too).

    >>> flag("packets", True)
    True
    >>> flag("packets", "no")
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: packets='no' must be True or False
    """
    check_argument(type(value).__name__ in ("bool", "bool_"), name, value, "True or False")
    return bool(value)


def text_of(name: str, value: object, otherwise: str = "") -> str:
    """Return an argument that must be a text, or another text if it is empty or None.

    >>> text_of("title", "Ten seconds"), text_of("xlabel", "", "rtt")
    ('Ten seconds', 'rtt')
    >>> text_of("title", 5)
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: title=5 must be a text
    """
    check_argument(value is None or isinstance(value, str), name, value, "a text")
    return str(value or otherwise)


def whole(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return an argument that must be an integer (numpy's, too), from `least` to `most`, as an int.

    >>> whole("draws", 12, least=3)
    12
    >>> whole("draws", 1.5, least=3)
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: draws=1.5 must be an integer from 3
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    holds = is_whole and least <= int(value) and (most is None or int(value) <= most)  # type: ignore[call-overload]
    check_argument(holds, name, value, f"an integer from {least}" + (f" to {most}" if most is not None else ""))
    return int(value)  # type: ignore[call-overload]


def check_progress(progress: object) -> None:
    """Raise an `ArgumentError` unless an argument `progress` can be called.

    >>> check_progress(True)
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: progress=True must be a function that receives lines, for example print
    """
    check_argument(callable(progress), "progress", progress, "a function that receives lines, for example print")


def place_in(which: object, count: int, whose: str) -> int:
    """Return the row, from 0, that an argument `which` names among `count` connections; -1 is the last.

    >>> place_in(-1, 3, "the capture")
    2
    """
    if isinstance(which, bool) or not isinstance(which, Integral):
        raise ArgumentError(f"which={which!r}: a row number or (src, sport, dst, dport)")
    row = int(which)
    if not -count <= row < count:
        raise ArgumentError(f"which={row}: {whose} has {count} connection{'' if count == 1 else 's'}")
    return row % count


def number(name: str, value: object, allowed: str = "a number", above: float = -math.inf) -> float:
    """Return an argument that must be a finite number (numpy's, too), and more than `above`, as a float.

    >>> number("span_s", 2)
    2.0
    >>> number("span_s", 0, "a number of seconds above 0", above=0)
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: span_s=0 must be a number of seconds above 0
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    holds = is_number and above < value < math.inf  # type: ignore[operator]
    check_argument(holds, name, value, allowed)
    return float(value)  # type: ignore[arg-type]


def as_list(given: Any) -> list[Any]:
    """Return an argument that names one thing or several as a list; a text or a class is one.

    >>> as_list("reno"), as_list(("reno", "bbr")), as_list(None)
    (['reno'], ['reno', 'bbr'], [None])
    """
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes | type) else [given]


def path_of(name: str, given: object) -> str:
    """Return the path that an argument names; refuse what no file can be called.

    >>> path_of("file", "out.pcap")
    'out.pcap'
    >>> path_of("file", 5)
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: file=5 must be a path
    """
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else b""
    check_argument(isinstance(path, str), name, given, "a path")
    try:
        is_name = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        is_name = False
    check_argument(is_name, name, given, "a path that can be encoded, without a zero byte")
    return str(path)


def paths_of(name: str, given: Any) -> list[str]:
    """Return the paths that an argument names, one or several.

    >>> paths_of("files", "a.pcap"), paths_of("files", ["a.pcap", "b.pcap"])
    (['a.pcap'], ['a.pcap', 'b.pcap'])
    """
    paths = as_list(given)
    check_argument(all(isinstance(one, str | os.PathLike) for one in paths), name, given, "a path, or a list of paths")
    return [str(one) for one in paths]
