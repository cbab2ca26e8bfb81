"""Text for display: made safe for a terminal and for HTML; and the representation of objects in a notebook.

File names and contents may hold anything: escape sequences, marks that reverse the direction of writing, bytes that are
not UTF-8. `visible` escapes them; every text that commands print, pages show or tables store passes through it, or
through `escape`, which calls it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cctrace.extras import needed

if TYPE_CHECKING:
    import pandas as pd

Card = tuple[str, list[tuple[str, object]], list[str]]  # title, figures and remarks of an object, see `card`
Progress = Callable[[str], object]  # receives lines of progress, for the argument `progress=` of what takes long
_TABLE = "border-collapse:collapse;margin:2px 0"
_HEAD = "text-align:left;padding:1px 14px 1px 0;font-weight:600"
_CELL = "text-align:left;padding:1px 14px 1px 0"
_BYTES_OF_NAMES = range(0xDC80, 0xDD00)  # what surrogateescape makes of bytes that are not UTF-8 [PEP 383]


def silent(line: str) -> None:
    """Receive a line of progress and do nothing with it."""


def visible(text: object, keep: str = "\n\t") -> str:
    """Return a text that does not control a terminal and can be encoded as UTF-8.

    Unprintable characters (control and format characters, lone surrogates) are escaped as in Python, the bytes of a
    file name that is not UTF-8 as ``\\xff``.

    `text`: its `str` is taken. `keep`: characters that stay although they do not print.

    >>> import os
    >>> visible("a\\x1b[31m.pcap"), visible("5 µs → 1 ms"), visible(os.fsdecode(b"bad\\xff.pcap"))
    ('a\\\\x1b[31m.pcap', '5 µs → 1 ms', 'bad\\\\xff.pcap')
    """
    text = printed = str(text)
    for one in keep:
        printed = printed.replace(one, "")
    if printed.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _written_out(one) for one in text)


def _written_out(character: str) -> str:
    code = ord(character)
    if code in _BYTES_OF_NAMES:
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) == "Zs":  # spaces of other widths
        return character
    return character.encode("ascii", "backslashreplace").decode() if code > 0x7F else f"\\x{code:02x}"


def endpoint(host: str | None, port: int | str | None) -> str:
    """Return an endpoint as address:port; "unknown" where it is None.

    >>> endpoint("192.0.2.1", 443), endpoint("2001:db8::1", 443), endpoint("192.0.2.1", None), endpoint(None, None)
    ('192.0.2.1:443', '[2001:db8::1]:443', '192.0.2.1', 'unknown')
    """
    if host is None:
        return "unknown"
    if port is None:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listed(names: Sequence[str]) -> str:
    """Return names as text.

    >>> listed(["bbr2016"]), listed(["bbr2016", "bbr2019", "bbr2022"])
    ('bbr2016', 'bbr2016, bbr2019 and bbr2022')
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def connection(src: str | None, sport: int | str | None, dst: str | None, dport: int | str | None) -> str:
    """Return a connection as text, the sender of the data first.

    >>> connection("192.0.2.1", 443, "198.51.100.7", 50000)
    '192.0.2.1:443 → 198.51.100.7:50000'
    """
    return f"{endpoint(src, sport)} → {endpoint(dst, dport)}"


def escape(text: object) -> str:
    """Return a text escaped for HTML, quotation marks included, so that it is valid in an attribute.

    >>> escape('<a title="\\x1b">')
    '&lt;a title=&quot;\\\\x1b&quot;&gt;'
    """
    import html

    return html.escape(visible(text))  # noqa: TID251 (the one place)


def card(title: str, rows: Iterable[tuple[str, object]], notes: Iterable[object] = ()) -> str:
    """Return a title and figures as HTML.

    `rows`: name and value of each figure. `notes`: sentences below.

    >>> print(card("Flow <a>", [("sent", "1 MB")]))
    <div><b>Flow &lt;a&gt;</b><table style="border-collapse:collapse;margin:2px 0"><tr><th style="text-align:left;padding:1px 14px 1px 0;font-weight:600">sent</th><td style="text-align:left;padding:1px 14px 1px 0">1 MB</td></tr></table></div>
    """  # noqa: E501
    lines = "".join(
        f'<tr><th style="{_HEAD}">{escape(name)}</th><td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f'<div><b>{escape(title)}</b><table style="{_TABLE}">{lines}</table>{_remarks(notes)}</div>'


def grid(title: str, columns: Iterable[object], rows: Iterable[Iterable[object]], notes: Iterable[object] = ()) -> str:
    """Return a title and a table as HTML; `rows` are sequences of values, one per column."""
    head = "".join(f'<th style="{_HEAD}">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(value)}</td>' for value in row) + "</tr>" for row in rows
    )
    return f'<div><b>{escape(title)}</b><table style="{_TABLE}"><tr>{head}</tr>{body}</table>{_remarks(notes)}</div>'


def of_summary(title: str, text: str) -> str:
    """Return the lines of a summary, "name: value", as a card."""
    lines = [line.partition(": ") for line in text.splitlines()]
    rows = [(name, value) for name, colon, value in lines if colon]
    return card(title, rows, [name for name, colon, _ in lines if not colon])


class Public:
    """An object of which `dir()`, and with it completion, lists the public names only."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]


class Jsonable:
    """An object whose `to_dict()` holds what JSON can."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return `to_dict` as JSON text; NaN becomes null."""
        return json.dumps(plain(self.to_dict()), allow_nan=False)


class Framed:
    """An object with `frame()`, which polars, pyarrow and DuckDB take as it is, by Arrow's C stream."""

    def frame(self) -> pd.DataFrame:
        """Return the object as a DataFrame."""
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        needed("pyarrow", "parquet")  # through which pandas hands its columns over
        return self.frame().__arrow_c_stream__(requested_schema)


class Carded(Public):
    """An object of a few figures: notebooks show them as a card, and `summary()` returns them as text."""

    def _card(self) -> tuple[str, Iterable[tuple[str, object]], Iterable[object]]:
        """Return title, figures and remarks; see `card`."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return a readable summary."""
        title, rows, notes = self._card()
        return visible("\n".join([title, *(f"{name}: {value}" for name, value in rows), *map(str, notes)]))

    def _repr_html_(self) -> str:
        return card(*self._card())


class Gridded(Public):
    """An object of similar parts: notebooks show a table of them, and `summary()` returns a line for each."""

    def _grid(self) -> tuple[str, Sequence[str], Iterable[Iterable[object]], Iterable[object]]:
        """Return title, columns, rows and remarks; see `grid`."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return a readable summary."""
        title, columns, rows, notes = self._grid()
        parts = (", ".join(f"{name} {value}" for name, value in zip(columns, row, strict=True)) for row in rows)
        return visible("\n".join([title, *parts, *map(str, notes)]))

    def _repr_html_(self) -> str:
        return grid(*self._grid())


class Summarized(Public):
    """An object that notebooks show by its `summary()`, whose first line is its `repr`.

    A subclass sets `card_title` and, if it is an estimator, `fitted_by` to an attribute that it has once it is fitted.
    """

    card_title = ""
    fitted_by = ""

    def summary(self) -> str:
        """Return a readable summary."""
        raise NotImplementedError

    def _is_ready(self) -> bool:
        """Whether there is something to summarize: always, unless it is an estimator that has not been fitted."""
        return not self.fitted_by or hasattr(self, self.fitted_by)

    def _repr_html_(self) -> str:
        if not self._is_ready():
            return of_summary(f"{self.card_title}, not fitted yet", "")
        return of_summary(f"{self.card_title}, fitted" if self.fitted_by else self.card_title, self.summary())

    def __repr__(self) -> str:
        if not self._is_ready():
            return f"<{type(self).__name__}, not fitted yet>"
        return f"<{type(self).__name__}: {shortened(self.summary())}>"


def texts_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values as texts: "grid" of an array, "not given" of None.

    >>> texts_of({"sd_us": 750.0, "samples": None})
    [('sd_us', '750'), ('samples', 'not given')]
    """

    def text(value: Any) -> str:
        return "not given" if value is None else "grid" if getattr(value, "ndim", 0) else f"{float(value):g}"

    return [(name, text(value)) for name, value in values.items()]


def shortened(text: str, most: int = 160) -> str:
    """Return the first line of a text, truncated to `most` characters.

    >>> shortened("one two\\nthree"), shortened("a" * 20, 10)
    ('one two', 'aaaaaaaaa…')
    """
    line = text.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: arrays as lists, what is missing or not finite as None.

    >>> plain({"rtt_us": float("nan"), "ends": (1, 2)})
    {'rtt_us': None, 'ends': [1, 2]}
    """
    if hasattr(value, "to_dict"):  # estimates, which are tuples too
        return plain(value.to_dict())
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return plain(value.tolist())
    if (isinstance(value, float) and not math.isfinite(value)) or type(value).__name__ == "NAType":
        return None
    return value


def brief(instance: Any, always: Collection[str] = (), **usual: object) -> str:
    """Return a dataclass as its constructor call, without fields that have their default or `usual` value.

    Fields in `always` are never left out.
    """
    given = []
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        default = usual.get(field.name, default)
        differs = type(value) is not type(default) or not _same(value, default)
        if field.init and field.repr and (differs or field.name in always):
            given.append(f"{field.name}={value!r}")
    return f"{type(instance).__name__}({', '.join(given)})"


def _same(one: object, other: object) -> bool:
    """Whether two values are equal; arrays are not compared."""
    try:
        return bool(one == other)
    except ValueError:
        return False


def _remarks(notes: Iterable[object]) -> str:
    return "".join(f'<div style="opacity:0.7">{escape(note)}</div>' for note in notes)
