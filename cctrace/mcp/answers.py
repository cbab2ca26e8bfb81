"""Contents and size limits of answers."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cctrace.arguments import whole
from cctrace.display import plain, visible
from cctrace.errors import ArgumentError

MAX_ROWS = 500  # of a list in an answer
LONGEST = 100_000  # characters of an answer


@dataclass(frozen=True)
class Picture:
    """A picture as PNG."""

    png: bytes

    @property
    def base64(self) -> str:
        """Its bytes as text."""
        return base64.b64encode(self.png).decode("ascii")


def answer(values: dict[str, Any]) -> dict[str, Any]:
    """Return named values as an answer: plain objects, NaN as None, and texts without control characters.

    Raises `ArgumentError` if it is longer than `LONGEST`.

    >>> answer({"name": "a\\x1b[31m", "rtt_us": float("nan")})
    {'name': 'a\\\\x1b[31m', 'rtt_us': None}
    """
    found = _clean(plain(values))
    size = len(json.dumps(found, ensure_ascii=False))
    if size > LONGEST:
        raise ArgumentError(f"the answer has {size} characters, and {LONGEST} are allowed: ask for less")
    return found


def _clean(value: Any) -> Any:
    """Return plain objects with texts made safe for terminals, and numbers of nine digits."""
    if isinstance(value, dict):
        return {visible(name): _clean(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, float):
        return value if abs(value) >= 1e15 or value == 0 else float(f"{value:.9g}")
    return value if value is None or isinstance(value, int) else visible(value)


def some(rows: Sequence[Any], limit: int) -> dict[str, Any]:
    """Return the first rows of a list, with how many there are in all.

    Raises `ArgumentError` if the limit is out of range.

    >>> some("abc", 2)
    {'count': 3, 'rows': ['a', 'b']}
    """
    whole("limit", limit, 1, MAX_ROWS)
    return {"count": len(rows), "rows": list(rows[:limit])}
