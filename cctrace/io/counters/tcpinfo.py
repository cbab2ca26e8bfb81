"""`TcpInfo`: polls of struct tcp_info as columns; one table for all formats.

Readers pass their columns to `build`, under the names of the kernel (`tcpi_rtt`) or of the schema (`rtt`); it maps them
to `schema.TCP_INFO`, keeps the others in `extra`, and turns the kernel's markers for "none" into `MISSING`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace import schema
from cctrace.columns import Columns, Floats, Ints, Values, frame_of
from cctrace.display import Carded, Framed, visible
from cctrace.errors import FormatError
from cctrace.io import validation
from cctrace.io.counters import cells
from cctrace.io.counters.pollcolumns import PollColumns, column_of
from cctrace.io.counters.structs import FIELDS
from cctrace.schema import ENDS, MISSING, U32_MAX, U64_MAX
from cctrace.units import format_counted

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cctrace.io.source import Source

Poll = dict[Any, Any]  # one poll as a reader finds it: fields by name, and `CONNECTION`
# The kernel's values for "no value": no RTT sample yet, no limit to the pacing rate, no bound set.
_NONE = {
    "min_rtt": U32_MAX,
    "pacing_rate_Bps": U64_MAX,
    "max_pacing_rate": U64_MAX,
    "bbr_min_rtt_us": U32_MAX,
    "bbr_bw_lo_Bps": U64_MAX,
    "bbr_inflight_lo": U32_MAX,
    "bbr_inflight_hi": U32_MAX,
}

# Kernel name -> the schema's, where that is not the kernel's without "tcpi_".
_NAMES = {
    "delivery_rate": "delivery_rate_Bps",
    "pacing_rate": "pacing_rate_Bps",
    "busy_time": "busy_time_us",
    "rwnd_limited": "rwnd_limited_us",
    "sndbuf_limited": "sndbuf_limited_us",
}
BBR_MODES = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
# (pacing gain, cwnd gain) * 256 -> mode; no pair serves two modes, in version 1 or 3.
_BBR_GAINS = {
    (739, 739): "STARTUP",
    (88, 739): "DRAIN",
    (710, 512): "STARTUP",  # version 3 from here
    (88, 512): "DRAIN",
    (128, 512): "DRAIN",
    (256, 256): "PROBE_RTT",
    (256, 128): "PROBE_RTT",
} | {(pacing, cwnd): "PROBE_BW" for pacing in (192, 230, 232, 256, 320) for cwnd in (512, 576)}

# Names that other tools use, in lower case and without underscores.
_WORDS = {
    "applimited": "delivery_rate_app_limited",
    "cwnd": "snd_cwnd",
    "sndcwndsegments": "snd_cwnd",
    "ssthresh": "snd_ssthresh",
    "srtt": "rtt",
    "srttus": "rtt",
    "rttus": "rtt",
    "rttvarus": "rttvar",
    "mdevus": "rttvar",
    "minrttus": "min_rtt",
    "mss": "snd_mss",
    "msscache": "snd_mss",
    "packetsout": "unacked",
    "sackedout": "sacked",
    "lostout": "lost",
    "retransout": "retrans",
    "timestampns": "time_ns",
    "tsns": "time_ns",
    "nsecs": "time_ns",
    "saddr": "src",
    "daddr": "dst",
    "lport": "sport",
    "rport": "dport",
}


# Numeric columns that readers add to those of the schema; none is negative.
_COUNTS = {"snd_una", "snd_nxt", "snd_max", "interval_bytes", "interval_us", "bytes_in_flight", "snd_cwnd_bytes"}
_COUNTS |= {"ssthresh_bytes", "congestion_window_bytes", "latest_rtt_us"}
_PORTS = ("sport", "dport")
_TEXTS = ("src", "dst", "cc")
CONNECTION = ("connection",)  # key of a poll's connection number; not text, so that no field of a file can have it


class TcpInfo(Carded, Framed):
    """Polls of struct tcp_info.

    Attributes
    ----------
    columns : dict of str to ndarray of int64, shape (polls,)
        The columns of `schema.TCP_INFO`; unreported values are `MISSING`.
    extra : dict of str to ndarray
        All other columns, under the source's names.
    connection : ndarray of int64, shape (polls,)
        Index into `connections`.
    connections : list of dict
        One per connection, with any of `flow_id, src, sport, dst, dport, cc`.
    events : dict of str to ndarray, or None
        Packet events, where the source logs them too (qlog).
    warnings : list of str
    source, format : str

    Examples
    --------
    >>> import cctrace as cct
    >>> polls = cct.read(cct.datasets.path("web_server", "ss.txt.gz"))
    >>> sorted({one["cc"] for one in polls.connections})
    ['bbr', 'cubic']
    """

    def __init__(
        self,
        columns: dict[str, Values],
        extra: dict[str, Values],
        connection: Ints,
        connections: list[dict[str, Any]],
        source: str = "",
        format: str = "",
        warnings: Sequence[str] = (),
    ) -> None:
        self.columns, self.extra = columns, extra
        self.connection, self.connections = connection, connections
        self.source, self.format, self.warnings = source, format, list(warnings)
        self.events: dict[str, Values] | None = None
        self._order: tuple[Ints, Ints] | None = None

    def __len__(self) -> int:
        return len(self.connection)

    def __getitem__(self, name: str) -> Values:
        return self.columns[name] if name in self.columns else self.extra[name]

    def __repr__(self) -> str:
        polls = format_counted(len(self), "poll", "polls")
        return f"<TcpInfo {self.source}: {polls}, {format_counted(len(self.connections), 'connection', 'connections')}>"

    def _card(self) -> tuple[str, list[tuple[str, object]], list[str]]:
        known = [name for name, values in self.columns.items() if name not in ("time_ns", "time_after_ns")
                 and len(values) and (values >= 0).any()]  # fmt: skip
        span_s = (int(self["time_ns"].max()) - int(self["time_ns"].min())) / 1e9 if len(self) else 0.0
        names = sorted({str(one["cc"]) for one in self.connections if one.get("cc")})
        rows: list[tuple[str, object]] = [
            ("format", self.format),
            ("polls", f"{len(self)} over {span_s:.3f} s"),
            ("connections", len(self.connections)),
            ("controllers", ", ".join(names) or "unknown"),
            ("columns", ", ".join(known)),
        ]
        return f"Counters {self.source}", rows, self.warnings

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the polls as Parquet, without loss; `cctrace.read` reads them back. Returns the rows written."""
        from cctrace.io.tablefile import save

        meta = {"connections": self.connections, "format": self.format, "warnings": self.warnings}
        return save(path, "tcp_info", [self.table()], meta)

    def select(self, index: int) -> TcpInfo:
        """Return the polls of one connection, in the order of the source."""
        rows = self._rows_of(index)
        return TcpInfo(
            {name: column[rows] for name, column in self.columns.items()},
            {name: column[rows] for name, column in self.extra.items()},
            np.zeros(len(rows), np.int64),
            [self.connections[index]],
            self.source,
            self.format,
            self.warnings,
        )

    def _rows_of(self, index: int) -> Ints:
        """Return the rows of a connection; sorted once, so that going through many connections stays linear."""
        if self._order is None:
            order = np.argsort(self.connection, kind="stable")
            self._order = order, np.searchsorted(self.connection[order], np.arange(len(self.connections) + 1))
        order, first = self._order
        return order[first[index] : first[index + 1]]

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame: `connection`, the columns of `schema.TCP_INFO` (Int64, missing as NA), the extra ones."""
        return frame_of(self.table(), nullable=[*self.columns, *self.extra])

    def table(self) -> Columns:
        """Return the columns of `frame`; what is missing in one of int64 is `MISSING`."""
        return {"connection": self.connection} | self.columns | self.extra


def field_name(name: str) -> str:
    """Return the schema's or kernel's name of a field in any spelling: "tcpi_snd_cwnd", "SndCwnd", "sndcwnd".

    >>> field_name("RWndLimited"), field_name("AppLimited"), field_name("novel_thing")
    ('rwnd_limited_us', 'delivery_rate_app_limited', 'novel_thing')
    """
    plain = name.removeprefix("tcpi_")
    plain = _spellings().get(plain.replace("_", "").lower(), plain)
    return _NAMES.get(plain, plain)


@cache
def _spellings() -> dict[str, str]:
    names = (*(c.name for c in schema.TCP_INFO), *(name for name, _ in FIELDS), *_NAMES)
    return {name.replace("_", "").lower(): name for name in names} | _WORDS


def plain_address(text: str) -> str:
    """Return an address without brackets, interface and the prefix of an IPv4 address mapped into IPv6."""
    text = text.strip("[]").partition("%")[0]
    return text[7:] if text.lower().startswith("::ffff:") and "." in text else text


class Connections:
    """Numbers connections in the order of their first poll.

    >>> c = Connections()
    >>> c.number(("10.0.0.1", 1000, "10.0.0.2", 80)), c.number(("10.0.0.1", 1000, "10.0.0.2", 80), cc="bbr"), c.table
    (0, 0, [{'src': '10.0.0.1', 'sport': 1000, 'dst': '10.0.0.2', 'dport': 80, 'cc': 'bbr'}])
    """

    def __init__(self) -> None:
        self.table: list[dict[str, Any]] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, **known: Any) -> int:
        """Return the number of a connection, and note what is known of it: its controller as `cc`, for example.

        `key`: (src, sport, dst, dport), or what else the source calls the connection.
        """
        at = self._numbers.setdefault(key, len(self._numbers))
        if at == len(self.table):
            self.table.append(dict(zip(ENDS, key, strict=True)) if isinstance(key, tuple) else {})
        self.table[at] |= {name: value for name, value in known.items() if value}
        return at


class Polls(Connections):
    """The polls that a reader collects, with their connections."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = PollColumns()
        self.skipped = 0

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, poll: Poll, key: Hashable, **known: Any) -> None:
        """Add a poll of a connection; `key`, `known`: see `number`."""
        poll[CONNECTION] = self.number(key, **known)
        self.rows.append(poll)

    def info(self, source: Source, format: str, none: str, skipped: str = "") -> TcpInfo:
        """Return the polls as `TcpInfo`, with a warning if some were skipped; FormatError(`none`) if there are none."""
        if not self.rows:
            raise FormatError(f"{source.name}: {none}")
        warnings = [f"{source.name}: {self.skipped} {skipped}; skipped"] if self.skipped else []
        return build(self.rows.arrays(), self.table, source.name, format, warnings + source.cut_warning())


def build(
    fields: dict[Any, Any], connections: list[dict[str, Any]], source: str, format: str, warnings: Sequence[str] = ()
) -> TcpInfo:
    """Arrange columns as read into a `TcpInfo`.

    `fields`: columns under kernel names (with or without "tcpi_") or schema names, all of one length; `CONNECTION` is
    the index into `connections` (all 0 if absent). Integer columns may be uint64. Values that do not fit their column's
    type become missing, with a warning.
    """
    rows = len(next(iter(fields.values())))
    connection = np.asarray(fields.pop(CONNECTION, np.zeros(rows)), np.int64)
    columns = {c.name: np.full(rows, MISSING) for c in schema.TCP_INFO}
    extra, warnings = {}, list(warnings)
    for name, values in fields.items():
        plain = visible(name.removeprefix("tcpi_"))
        plain = _NAMES.get(plain, plain)
        values, left_out = _settled(np.asarray(values), plain in columns or plain in _COUNTS)
        if left_out:
            warnings.append(f"{source}: the field {plain}: {left_out}")
        if values.dtype.kind in "iu":
            values = _signed(values, _NONE.get(plain))
        if plain in columns:
            columns[plain] = values if values.dtype == np.int64 else _integers(values)
        else:
            extra["connection_column" if plain == "connection" else plain] = values  # `frame` has a column of that name
    counts = [name for name in sorted(_COUNTS & extra.keys()) if extra[name].dtype == np.int64]
    warnings += [f"{source}: {line}" for line in validation.plausible(columns | extra, MISSING, counts)]
    if "bbr_mode" in extra or np.any(columns["bbr_pacing_gain"] != MISSING):
        extra["bbr_mode"] = _bbr_modes(columns, extra)
    if np.all(columns["time_after_ns"] == MISSING):
        columns["time_after_ns"] = columns["time_ns"].copy()
    return TcpInfo(columns, extra, connection, [_identity(one) for one in connections], source, format, warnings)


def _identity(connection: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies a connection: numbers, and texts that are safe to print."""
    return {
        name: value if isinstance(value, int) and name not in _TEXTS else cells.as_text(value)
        for name, value in connection.items()
        if value is not None and (name not in _PORTS or _is_port(value))
    }


def _is_port(value: Any) -> bool:
    """Return whether a file's value is a port, or a name of one, which `ss` prints without -n."""
    return isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 16)


def _settled(values: Values, is_number: bool) -> tuple[Values, cells.LeftOut | None]:
    """Return a column of one type, and the values left out of it; see `cells.settled`."""
    if values.dtype.kind == "f":
        wrong = np.isinf(values) | (np.abs(np.nan_to_num(values)) >= -float(MISSING))
        if not wrong.any():
            return values, None
        return np.where(wrong, np.nan, values), cells.LeftOut(int(wrong.sum()), float(values[wrong][0]))
    if values.dtype != object:
        return values, None
    settled, left_out = cells.settled(values.tolist(), is_number)
    return column_of(settled), left_out


def _bbr_modes(columns: dict[str, Values], extra: dict[str, Values]) -> NDArray[np.object_]:
    """Return BBR's mode by name, as printed, else inferred from its gains; None where neither is known."""
    printed = extra.get("bbr_mode", np.full(len(columns["state"]), MISSING))
    gains = zip(columns["bbr_pacing_gain"].tolist(), columns["bbr_cwnd_gain"].tolist(), strict=True)
    modes = np.array([_mode(m) or _BBR_GAINS.get(g) for m, g in zip(printed.tolist(), gains, strict=True)], object)
    # Both gains are also 1 before the first data are acknowledged (bytes_acked counts the SYN).
    acked = columns["bytes_acked"]
    modes[(modes == "PROBE_RTT") & (acked != MISSING) & (acked <= 1)] = None
    return modes


def _mode(printed: Any) -> str | None:
    """Return the name of a mode that was printed by name or number, None if it is neither."""
    if isinstance(printed, str):
        return printed if printed in BBR_MODES else None
    return BBR_MODES[int(printed)] if printed is not None and 0 <= printed < len(BBR_MODES) else None


def _signed(values: Values, none: int | None) -> Ints:
    """Return int64, with `none` and the u64 values that do not fit (all of them markers) as MISSING."""
    out = values.astype(np.int64)
    if none is not None:
        out[values == np.asarray(none).astype(values.dtype)] = MISSING
    if values.dtype == np.uint64:
        out[values > np.iinfo(np.int64).max] = MISSING
    return out


def _integers(values: Floats) -> Ints:
    """Return floats as int64, rounded to nearest, NaN as MISSING."""
    gap = np.isnan(values)
    return np.where(gap, MISSING, np.rint(np.where(gap, 0, values)).astype(np.int64))
