"""tcp_info as CSV: the lab's `tcpinfo.csv`, and any CSV whose header names fields of struct tcp_info.

One row per poll. `time_ns` is required; `time_after_ns`, `flow_id` or addresses and ports, and every field that the
header names are optional. Empty cells are missing values, never 0.
"""

import csv

import numpy as np

from cctrace import schema
from cctrace.errors import FormatError
from cctrace.io import tcpinfo
from cctrace.io.source import open_source

_KEYS = ("flow_id", "src", "sport", "dst", "dport", "cc")
# The lab's names for what INET_DIAG_BBRINFO says.
_BBR = {
    "bbr_bw_bytes_per_s": "bbr_bw_Bps",
    "bbr_min_rtt_us": "bbr_min_rtt_us",
    "bbr_pacing_gain_256": "bbr_pacing_gain",
    "bbr_cwnd_gain_256": "bbr_cwnd_gain",
}


def sniff(head):
    """Tell whether a file that starts with these bytes is a CSV of tcp_info."""
    columns = head.split(b"\n", 1)[0].strip().split(b",")
    known = {c.name.encode() for c in schema.TCP_INFO}
    return b"time_ns" in columns and any(c.startswith(b"tcpi_") or (c in known and c != b"time_ns") for c in columns)


def read(source):
    """Read a CSV of tcp_info polls into `TcpInfo`.

    Raises
    ------
    FormatError
        No column `time_ns`, no rows, or a cell that is no number; names line and column.
    """
    with open_source(source) as opened:
        rows = list(csv.reader(opened.lines()))
        name, cut = opened.name, opened.cut
    header = rows.pop(0)
    if "time_ns" not in header:
        raise FormatError(f"{name}: line 1 has no column time_ns; found {', '.join(header[:8])} ...")
    warnings = [f"{name}: {cut}; read what precedes it"] if cut else []
    if rows and len(rows[-1]) != len(header):
        warnings.append(f"{name}: line {len(rows) + 1} is cut off after {len(rows.pop())} of {len(header)} fields")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise FormatError(f"{name}: line {number} has {len(row)} fields, the header has {len(header)}")
    if not rows:
        raise FormatError(f"{name}: no rows of tcp_info")
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    connection, connections = _connections(cells, len(rows))
    fields = {_BBR.get(key, key): _column(values, key, name) for key, values in cells.items() if key not in _KEYS}
    bits = fields.pop("tcpi_app_limited_bits", None)
    if bits is not None:
        fields["delivery_rate_app_limited"] = np.where(bits == tcpinfo.MISSING, bits, bits & 1)
        fields["fastopen_client_fail"] = np.where(bits == tcpinfo.MISSING, bits, bits >> 1 & 3)
    return tcpinfo.build(fields, connection, connections, name, "tcpinfo-csv", warnings)


def _connections(cells, rows):
    keys = [key for key in _KEYS if key in cells]
    if not keys:
        return np.zeros(rows, np.int64), [{}]
    index = {}
    connection = [index.setdefault(key, len(index)) for key in zip(*(cells[key] for key in keys), strict=True)]
    numbers = ("flow_id", "sport", "dport")
    connections = [
        {name: int(v) if name in numbers and v.isdigit() else v for name, v in zip(keys, key, strict=True) if v}
        for key in index
    ]
    return connection, connections


def _column(cells, column, name):
    """Parse one column of whole numbers; text columns stay text."""
    try:
        values = [int(cell) if cell else tcpinfo.MISSING for cell in cells]
    except ValueError:
        return _inexact_column(cells, column, name)
    if max(values) > np.iinfo(np.int64).max:
        return np.array([value if value >= 0 else tcpinfo.U64_NONE for value in values], np.uint64)
    return np.array(values, np.int64)


def _inexact_column(cells, column, name):
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        if column.startswith("tcpi_") or column in {c.name for c in schema.TCP_INFO}:
            bad = next(i for i, cell in enumerate(cells) if cell and not _is_number(cell))
            raise FormatError(f"{name}: line {bad + 2}, column {column}: {cells[bad]!r} is not a number") from None
        return np.array(cells, object)


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
