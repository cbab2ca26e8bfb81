"""Documents that users write or keep (JSON, TOML): one error for those that cannot be read or have another shape."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cctrace.arguments import path_of
from cctrace.errors import CctraceError, FormatError

LONGEST_REASON = 160  # characters


@contextlib.contextmanager
def of_shape(name: str, what: str) -> Iterator[None]:
    """Turn an error that a document of another shape causes inside into a `FormatError` of one line.

    The original error (a missing key, a number beyond 64 bits) stays attached as its cause.

    >>> with of_shape("a.json", "a scenario"):
    ...     {"flows": []}["path"]
    Traceback (most recent call last):
    cctrace.errors.FormatError: a.json: not of the shape of a scenario (KeyError: 'path')
    """
    try:
        yield
    except CctraceError:
        raise
    except RecursionError as error:
        raise FormatError(f"{name}: {what}, nested too deeply to be read") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        reason = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"  # it may quote the document
        raise FormatError(f"{name}: not of the shape of {what} ({reason})") from error


def whole_items(text: str, at: int) -> tuple[list[Any], int]:
    """Return the items of a JSON list that is cut short, from its place behind "[", and where they end.

    >>> whole_items('[1, {"a": 2}, {"a"', 1)
    ([1, {'a': 2}], 14)
    """
    decoder, items = json.JSONDecoder(), list[Any]()
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        try:
            item, at = decoder.raw_decode(text, at)
        except (RecursionError, ValueError):
            return items, at
        items.append(item)


@contextlib.contextmanager
def json_file(file: str | os.PathLike[str], what: str) -> Iterator[Any]:
    """Yield the content of a JSON file, with `of_shape` around its use; `FormatError` if it cannot be read."""
    name = path_of("file", file)
    with of_shape(name, what):
        try:
            text = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise FormatError(f"{name}: {error.strerror}") from None
        yield json.loads(text)


def toml_file(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a TOML file, or raise a `FormatError` that names the file and the line."""
    import tomllib  # compiles its patterns, and few commands read any

    name = path_of("file", file)
    try:
        with open(file, "rb") as lines:
            return tomllib.load(lines)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{name}: not TOML: {error}") from None
    except RecursionError:
        raise FormatError(f"{name}: TOML that is nested too deeply to be read") from None
