"""Compiled formatting of table rows as text, see `save`."""

from cctrace.lang.machine import Machine
from cctrace.schema import MISSING

LONGEST = 20  # characters of an int64
_COMMA, _NEWLINE, _MINUS, _ZERO = 44, 10, 45, 48


def rows_of_cells(cells, is_text, ends, texts, out) -> int:
    """Write rows of cells, separated by commas; return how many bytes that were.

    `cells`: shape (columns, rows), numbers, `MISSING` for none; in columns of texts which text. `is_text`: shape
    (columns,). `ends`: where each text begins in `texts`, and the last one ends.
    """
    columns, rows = cells.shape
    place = 0
    for row in range(rows):
        for column in range(columns):
            value = cells[column, row]
            if is_text[column]:
                begin, end = ends[value], ends[value + 1]
                for k in range(begin, end):
                    out[place] = texts[k]
                    place += 1
            elif value != MISSING:
                place = digits(value, out, place)
            out[place] = _COMMA
            place += 1
        out[place - 1] = _NEWLINE
    return place


def digits(value, out, place) -> int:
    """Write an integer (except the least int64) at a place; return where it ends."""
    if value < 0:
        out[place] = _MINUS
        place += 1
        value = -value
    count, rest = 1, value // 10
    while rest > 0:
        count += 1
        rest //= 10
    for k in range(count):
        out[place + count - 1 - k] = _ZERO + value % 10
        value //= 10
    return place + count


write_rows = Machine(rows_of_cells)
