"""`TcpInfo`: what kernels said about their connections, poll by poll, as columns. One table for all formats.

Readers give `build` the columns they found, under the names of the kernel (`tcpi_rtt`) or of the schema (`rtt`);
it puts those of `schema.TCP_INFO` in their place, keeps the others in `extra`, and turns the kernel's ways of saying
"none" into `MISSING`.
"""

import numpy as np

from cctrace import schema

MISSING = np.iinfo(np.int64).min  # in the int64 columns of TcpInfo; pd.NA in `frame()`
U32_NONE, U64_NONE = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

# What stands for "no value" in struct tcp_info: no RTT sample yet, no limit to the pacing rate.
_NONE = {"min_rtt": U32_NONE, "pacing_rate_Bps": U64_NONE, "max_pacing_rate": U64_NONE, "bbr_min_rtt_us": U32_NONE}

# Kernel names and the schema's, where the schema's is not simply the kernel's without "tcpi_".
_NAMES = {
    "delivery_rate": "delivery_rate_Bps",
    "pacing_rate": "pacing_rate_Bps",
    "busy_time": "busy_time_us",
    "rwnd_limited": "rwnd_limited_us",
    "sndbuf_limited": "sndbuf_limited_us",
}


class TcpInfo:
    """Polls of struct tcp_info.

    Attributes
    ----------
    columns : dict of str to ndarray of int64, shape (polls,)
        The columns of `schema.TCP_INFO`; what was not reported is `MISSING`.
    extra : dict of str to ndarray
        Everything else that the source reports, under the source's names.
    connection : ndarray of int64, shape (polls,)
        Index into `connections`.
    connections : list of dict
        One per connection: whatever identifies it, of `flow_id, src, sport, dst, dport, cc`.
    warnings : list of str
    source, format : str
    """

    def __init__(self, columns, extra, connection, connections, source="", format="", warnings=()):
        self.columns, self.extra = columns, extra
        self.connection, self.connections = connection, connections
        self.source, self.format, self.warnings = source, format, list(warnings)

    def __len__(self):
        return len(self.connection)

    def __getitem__(self, name):
        return self.columns[name] if name in self.columns else self.extra[name]

    def __repr__(self):
        return f"<TcpInfo {self.source}: {len(self)} polls, {len(self.connections)} connections>"

    def select(self, index):
        """Return the polls of one connection, in the order of the source."""
        rows = self.connection == index
        return TcpInfo(
            {name: column[rows] for name, column in self.columns.items()},
            {name: column[rows] for name, column in self.extra.items()},
            np.zeros(int(rows.sum()), np.int64),
            [self.connections[index]],
            self.source,
            self.format,
            self.warnings,
        )

    def frame(self):
        """Return a DataFrame: `connection`, the columns of `schema.TCP_INFO` (Int64, missing as NA), the extra ones."""
        import pandas as pd

        out = {"connection": self.connection}
        for name, column in (self.columns | self.extra).items():
            if column.dtype == np.int64:
                gap = column == MISSING
                out[name] = pd.arrays.IntegerArray(np.where(gap, 0, column), gap)
            else:
                out[name] = column
        return pd.DataFrame(out)


def build(fields, connection, connections, source, format, warnings=()):
    """Arrange columns as read into a `TcpInfo`.

    Parameters
    ----------
    fields : dict of str to array_like
        Columns under kernel names (with or without "tcpi_") or schema names. Integer columns may be uint64.
    connection : array_like of int
    connections : list of dict
    """
    rows = len(connection)
    columns = {c.name: np.full(rows, MISSING) for c in schema.TCP_INFO}
    extra = {}
    for name, values in fields.items():
        plain = name.removeprefix("tcpi_")
        plain = _NAMES.get(plain, plain)
        values = np.asarray(values)
        if values.dtype.kind in "iu":
            values = _signed(values, _NONE.get(plain))
        if plain in columns:
            columns[plain] = values if values.dtype == np.int64 else _whole(values)
        else:
            extra[plain] = values
    if np.all(columns["time_after_ns"] == MISSING):
        columns["time_after_ns"] = columns["time_ns"].copy()
    return TcpInfo(columns, extra, np.asarray(connection, np.int64), list(connections), source, format, warnings)


def _signed(values, none):
    """Return int64 with `none`, and u64 values that do not fit (all are such markers), as MISSING."""
    out = values.astype(np.int64)
    if none is not None:
        out[values == np.asarray(none).astype(values.dtype)] = MISSING
    if values.dtype == np.uint64:
        out[values > np.iinfo(np.int64).max] = MISSING
    return out


def _whole(values):
    """Return floats as int64, rounded to nearest, NaN as MISSING."""
    gap = np.isnan(values)
    return np.where(gap, MISSING, np.rint(np.where(gap, 0, values)).astype(np.int64))
