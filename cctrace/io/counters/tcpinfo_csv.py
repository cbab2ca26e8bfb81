"""tcp_info as CSV: the lab's `tcpinfo.csv`, and any CSV whose header names fields of struct tcp_info (bpftrace).

One row per poll. A column of times is required (see `TIMES`; without a unit in the name, the size of the numbers
shows it). `flow_id` or addresses and ports, and every field whose spelling `tcpinfo.field_name` knows, are optional;
other columns are kept. Empty cells, "-" and "N/A" are missing values, never 0.
`cc_info_hex` is the result of getsockopt(TCP_CC_INFO), whose length shows the version of BBR.
"""

import csv
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace import schema
from cctrace.arguments import short_repr
from cctrace.columns import Values
from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import fraction_ns, time_of_text
from cctrace.io.counters.pollcolumns import TIMES
from cctrace.io.counters.structs import FIELDS, decode_bbr
from cctrace.io.source import Source, reads

_KNOWN = {c.name for c in schema.TCP_INFO} | {name for name, _ in FIELDS} | {"bbr_bw_bytes_per_s"}
_UNITLESS_TIMES = ("time", "ts", "timestamp")
MISSING_TEXTS = ("", "-", "N/A", "n/a", "NA", "nan", "NaN", "null", "None")
_KEYS = ("flow_id", *schema.ENDS, "cc")
CC_INFO = "cc_info_hex"  # result of getsockopt(TCP_CC_INFO), in hexadecimal
# The lab's names for fields of INET_DIAG_BBRINFO.
_BBR = {
    "bbr_bw_bytes_per_s": "bbr_bw_Bps",
    "bbr_bw_hi_bytes_per_s": "bbr_bw_hi_Bps",
    "bbr_bw_lo_bytes_per_s": "bbr_bw_lo_Bps",
    "bbr_pacing_gain_256": "bbr_pacing_gain",
    "bbr_cwnd_gain_256": "bbr_cwnd_gain",
}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a CSV of tcp_info."""
    return any(_is_header(line.split(",")) for line in head.decode("utf-8", "replace").splitlines()[:3])


def known_fields() -> set[str]:
    """Return the names of the fields of tcp_info, those of the schema and of the struct; times left out."""
    return _KNOWN - {"time_ns", "time_after_ns"}


def _names(cells: Sequence[str]) -> list[str]:
    return [_BBR.get(cell.strip(), tcpinfo.field_name(cell.strip())) for cell in cells]


def _is_header(cells: Sequence[str]) -> bool:
    names = set(_names(cells))
    if {"seq", "payload"} <= names:  # packets, as `cctrace convert` writes them for people: they have options, too
        return False
    return bool(names & {*TIMES, *_UNITLESS_TIMES} and names & _KNOWN - {"time_ns", "time_after_ns", *_KEYS})


@reads("CSV")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read a CSV of tcp_info polls into `TcpInfo`.

    Raises `FormatError`: no header with a time, no rows, or a cell that is not a number; names line and column.
    """
    lines = list(csv_rows(source))
    name, warnings = source.name, source.cut_warning()
    # bpftrace prints lines before its header.
    at = next((i for i, row in enumerate(lines[:3]) if _is_header(row)), None)
    if at is None:
        raise FormatError(f"{name}: no header line that names a time and a field of tcp_info")
    header = _names(lines[at])
    rows = [(number, row) for number, row in enumerate(lines[at + 1 :], at + 2) if row]
    if rows and len(rows[-1][1]) < len(header):
        number, row = rows.pop()
        warnings.append(f"{name}: line {number} is cut off after {len(row)} of {len(header)} fields")
    for number, row in rows:
        if len(row) != len(header):
            raise FormatError(f"{name}: line {number} has {len(row)} fields, the header has {len(header)}")
    if not rows:
        raise FormatError(f"{name}: no rows of tcp_info")
    numbers, cells = zip(*rows, strict=True)
    columns = dict(zip(header, zip(*cells, strict=True), strict=True))
    connection, connections = _connections(columns, len(rows))
    fields = _time_fields(columns, numbers, name) | {tcpinfo.CONNECTION: connection}
    fields |= {key: _column(values, key, numbers, name) for key, values in columns.items() if key not in _KEYS}
    if CC_INFO in columns:
        del fields[CC_INFO]
        fields |= _bbr_fields(columns[CC_INFO], numbers, name)
    bits = fields.pop("app_limited_bits", None)
    if bits is not None:
        fields["delivery_rate_app_limited"] = np.where(bits == tcpinfo.MISSING, bits, bits & 1)
    return tcpinfo.build(fields, connections, name, "tcpinfo-csv", warnings)


def csv_rows(source: Source) -> Iterator[list[str]]:
    """Yield the rows of a CSV; a stray carriage return or an endless field is a ValueError."""
    try:
        yield from csv.reader(source.lines())
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _connections(columns: dict[str, tuple[str, ...]], rows: int) -> tuple[ArrayLike, list[dict[str, Any]]]:
    keys = [key for key in _KEYS if key in columns]
    if not keys:
        return np.zeros(rows, np.int64), [{}]
    index: dict[tuple[str, ...], int] = {}
    connection = [index.setdefault(key, len(index)) for key in zip(*(columns[key] for key in keys), strict=True)]
    numbers = ("flow_id", "sport", "dport")
    connections = [
        {name: int(v) if name in numbers and v.isdigit() else v for name, v in zip(keys, key, strict=True) if v}
        for key in index
    ]
    return connection, connections


def _time_fields(columns: dict[str, tuple[str, ...]], numbers: Sequence[int], name: str) -> dict[Any, Any]:
    """Take the time column out of `columns` and return it as `time_ns`."""
    column = next(c for c in (*TIMES, *_UNITLESS_TIMES) if c in columns)
    out = []
    for number, cell in zip(numbers, columns.pop(column), strict=True):
        try:
            if unit := TIMES.get(column):
                integer, _, fraction = cell.partition(".")
                out.append(int(integer) * unit + fraction_ns(fraction) * unit // 10**9)
            else:
                out.append(time_of_text(cell))
        except ValueError:
            raise FormatError(f"{name}: line {number}, column {column}: {short_repr(cell)} is not a time") from None
    return {"time_ns": np.array(out, np.int64)}


def _bbr_fields(cells: Sequence[str], numbers: Sequence[int], name: str) -> dict[Any, Values]:
    """Decode the result of TCP_CC_INFO at each poll."""
    polls = []
    for number, cell in zip(numbers, cells, strict=True):
        try:
            polls.append(decode_bbr(bytes.fromhex("" if cell.strip() in MISSING_TEXTS else cell)))
        except ValueError:
            raise FormatError(
                f"{name}: line {number}, column {CC_INFO}: {short_repr(cell)} is not hexadecimal"
            ) from None
    return tcpinfo.PollColumns(polls).arrays()


def _column(cells: Sequence[str], column: str, numbers: Sequence[int], name: str) -> Values:
    """Parse one column: whole numbers, else numbers, else (if it is no field of tcp_info) text."""
    try:
        whole = np.array(list(map(int, cells)), np.int64)  # nearly every column; a text of MISSING_TEXTS is no number
        if whole.min() > schema.MISSING:
            return whole
    except (ValueError, OverflowError):
        pass
    try:
        return tcpinfo.column_of([int(cell) if cell.strip() not in MISSING_TEXTS else None for cell in cells])
    except ValueError:
        pass
    out = []
    for number, cell in zip(numbers, cells, strict=True):
        try:
            out.append(float(cell) if cell.strip() not in MISSING_TEXTS else np.nan)
        except ValueError:
            if column in _KNOWN:
                raise FormatError(
                    f"{name}: line {number}, column {column}: {short_repr(cell)} is not a number"
                ) from None
            return np.array(cells, object)
    return np.array(out)
