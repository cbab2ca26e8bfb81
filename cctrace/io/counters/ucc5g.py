"""The logs of the UCC 4G and 5G datasets (G-NetTrack): about one row per second of a phone's measurements.

`DL_bitrate` and `UL_bitrate` are kbit/s, the PING columns ms (PINGLOSS %), `-` is missing. Time stamps are
whole seconds and may repeat: rows of one second divide it evenly, so that times are distinct and nothing counts twice.

The phone sends about five pings every 13 s while it downloads. Their minimum (PINGMIN) is closest to a base RTT, and
is the RTT of a path made from the log; the loss of five pings is 0, 20, ... 100 %.

Source: Raca et al., "Beyond Throughput, The Next Generation: A 5G Dataset", MMSys 2020, and its README.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from cctrace.arguments import short_repr
from cctrace.columns import Ints, Values
from cctrace.errors import FormatError
from cctrace.io.counters.tcpinfo_csv import csv_rows
from cctrace.io.linktrace import LinkTrace
from cctrace.io.source import Source, reads

_RENAMED = {"DL_bitrate": "dl_bps", "UL_bitrate": "ul_bps"} | {
    f"PING{name}": f"ping_{name.lower()}_ms" for name in ("AVG", "MIN", "MAX", "STDEV")
}
_RENAMED["PINGLOSS"] = "ping_loss_pct"
_OF_PATH = {"rtt": ("ping_min_ms", 1e6, 3.6e6), "loss": ("ping_loss_pct", 0.01, 100.0)}  # column, unit, most


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a log of the UCC datasets."""
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"Timestamp,") and b"DL_bitrate" in first


@reads("a UCC log")
def read(source: Source) -> LinkTrace:
    """Read a log into a `LinkTrace` whose capacity is the download rate.

    Raises `FormatError`: a damaged time stamp or rate, or no rows; names the line.
    """
    lines = list(csv_rows(source))
    name, warnings = source.name, source.cut_warning()
    header = [cell.strip() for cell in lines[0]]
    rows = [(number, row) for number, row in enumerate(lines[1:], 2) if row]
    if rows and len(rows[-1][1]) < len(header):
        warnings.append(f"{name}: line {rows[-1][0]} is cut off; left out")
        rows.pop()
    if not rows:
        raise FormatError(f"{name}: no rows in this log")
    cells = {column: [row[i] if i < len(row) else "-" for _, row in rows] for i, column in enumerate(header)}
    time_ns = _times(cells.pop("Timestamp"), [number for number, _ in rows], name)
    columns = {"time_ns": time_ns} | {_RENAMED.get(column, column): _numbers(cells[column]) for column in cells}
    for column in ("dl_bps", "ul_bps"):
        if column in columns and columns[column].dtype == object:
            raise FormatError(f"{name}: the column of {column} holds values that are not numbers")
        if column in columns:
            columns[column] = columns[column] * 1000
    gaps = np.diff(time_ns) / 1e9
    if np.any(gaps > 10):
        count, longest = int(np.sum(gaps > 10)), gaps.max()
        warnings.append(
            f"{name}: {count} gaps of more than 10 s, the longest {longest:g} s, filled with the rate before"
        )
    widths = np.diff(time_ns, append=time_ns[-1] + 10**9)
    capacity = np.nan_to_num(columns["dl_bps"]) / 8 * widths / 1e9
    there = _of_path(columns, name, warnings)
    start = time_ns[0]
    return LinkTrace(columns, (time_ns - start, capacity), time_ns[-1] - start + 10**9, name, "ucc5g", warnings, there)


def _of_path(columns: dict[str, Values], name: str, warnings: list[str]) -> dict[str, tuple[str, float]]:
    """Return the columns of RTT and loss of the path; warn about those with impossible values."""
    there = {}
    for field, (column, unit, most) in _OF_PATH.items():
        values = columns.get(column)
        if values is None or (values.dtype != object and not np.isfinite(values).any()):
            continue
        least = 0.0 if field == "loss" else np.nextafter(0.0, 1.0)
        if values.dtype == object or not np.all(np.isnan(values) | ((least <= values) & (values <= most))):
            warnings.append(
                f"{name}: the column of {column} holds impossible values of {field}; it is not used for a path"
            )
            continue
        there[field] = column, unit
    return there


def _times(cells: Sequence[str], numbers: Sequence[int], name: str) -> Ints:
    found = []
    for number, cell in zip(numbers, cells, strict=True):
        try:
            found.append(int(datetime.strptime(cell, "%Y.%m.%d_%H.%M.%S").replace(tzinfo=UTC).timestamp()))
        except ValueError:
            raise FormatError(
                f"{name}: line {number}: {short_repr(cell)} is not a time like 2020.02.13_13.57.29"
            ) from None
    seconds = np.array(found, np.int64)
    if np.any(np.diff(seconds) < 0):
        at = int(np.flatnonzero(np.diff(seconds) < 0)[0])
        raise FormatError(f"{name}: line {numbers[at + 1]}: time goes backwards, to {cells[at + 1]}")
    _, first, count = np.unique(seconds, return_index=True, return_counts=True)
    place = np.arange(len(seconds)) - np.repeat(first, count)
    return seconds * 10**9 + place * 10**9 // np.repeat(count, count)


def _numbers(values: Sequence[str]) -> Values:
    """Return a column of numbers, or of text if one of them is not a number."""
    try:
        return np.array([np.nan if value in ("-", "") else float(value) for value in values])
    except ValueError:
        return np.array(values, object)
