"""The event stream of one flow: the rows of `schema.EVENTS` and their common attributes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace import schema
from cctrace.display import Card, Carded, Framed
from cctrace.errors import FormatError, StreamError
from cctrace.flows.packed import EventColumns, Records
from cctrace.flows.periodic_writes import NOTHING_DUE, Writes, writes_on_clock
from cctrace.flows.state import EVENT

if TYPE_CHECKING:
    import os

    import pandas as pd
    import xarray
    from numpy.typing import ArrayLike

    from cctrace.columns import Ints, Values


NAMES = tuple(column.name for column in schema.EVENTS)


class AckRows:
    """The rows of a stream that end an ACK: `on_ack`, or `cong_avoid` where the stream has only that.

    Gathers one column at a time, on demand; all columns together would take half as much memory as the stream.
    """

    def __init__(self, rows: EventColumns | Events) -> None:
        self._stream = rows.stream if isinstance(rows, Events) else rows
        event = self._stream["event"]
        ends = event == schema.EVENT_CODES["on_ack"]
        at = np.flatnonzero(ends if ends.any() else event == schema.EVENT_CODES["cong_avoid"])
        self._at, self._of = at.astype(np.uint32), self._stream.states_of(at)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> Values:
        return self._stream.gathered(name, self._at, self._of)


# Bounds of the attributes that replays compute with, when read from a file.
_FACTS: dict[str, tuple[int, int]] = {
    "mss": (1, 65535),
    "hz": (24, 10_000),
    "start_ns": (0, schema.LATEST_NS),
    "handshake_rtt_us": (-1, 1 << 50),
    "initial_cwnd": (-1, 1 << 31),
    "complete": (0, 1),
    "ecn_ok": (0, 1),
}


class Events(Carded, Framed):
    """One row per call that the sender's congestion control could have received.

    There are rows for every kind of controller (`pkts_acked`, `on_ack` and `cong_avoid` for one ACK, say); a
    controller receives those that it defines.

    Parameters
    ----------
    rows : structured ndarray, shape (n,), or EventColumns
        Fields of `schema.EVENTS`.
    meta : dict
        ``mss`` (bytes), ``hz``, ``isn``, ``start_ns`` (capture time at which `now_us` is 1,000,000),
        ``handshake_rtt_us`` (-1 unknown), ``initial_cwnd`` (segments in flight before the first ACK; -1 unknown),
        ``lost_syns`` (SYNs of the sender after the first), ``ecn_ok``, ``ecn`` (none, classic, accurate, unknown),
        ``sack_ok``, ``complete`` (the capture includes the handshake), ``inferred`` (names of the attributes above
        that are guesses). Of a coarse stream also ``coarse``: ``polls``, ``interval_ms`` between them, ``acks``, how
        many are ``made_up``, and ``in_flight_known``.
    sends : structured ndarray, optional
        Fields of `schema.SENDS`: packets sent between the rows; None if unknown.
    zero_ns : int, optional
        Origin of `frame`'s seconds: the flow's first packet; default: the first row.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> int(flow.events["delivered"][-1]) > 1000
    True
    """

    def __init__(
        self,
        rows: Values | EventColumns,
        meta: Mapping[str, Any],
        sends: Values | Records | None = None,
        zero_ns: int | None = None,
    ) -> None:
        self.stream = rows if isinstance(rows, EventColumns) else EventColumns.of(rows)
        self.meta, self._zero_ns = dict(meta), zero_ns
        # Columns of `sends`; None if the stream is coarse or was saved.
        self.sent: Any = Records(sends) if isinstance(sends, np.ndarray) else sends

    @functools.cached_property
    def writes(self) -> Writes | None:
        """The application's writes, if they are of one size and come on a clock."""
        return None if self.sent is None else writes_on_clock(self.sent, max(self.meta["mss"], 1))

    @property
    def due(self) -> Ints:
        """When each of these writes came, capture clock, and where its data end; none if it is not known."""
        return NOTHING_DUE if self.writes is None else self.writes.due(self.sends)

    @property
    def sends(self) -> Any:
        """The packets sent as records, None if unknown; once packed they are made anew."""
        return None if self.sent is None else self.sent.records

    def pack(self) -> None:
        """Keep rows and sends packed, once no replay reads them."""
        self.stream.pack()
        if self.sent is not None:
            self.sent.pack()

    @property
    def rows(self) -> Values:
        """The rows as records, made anew: columns by name take less memory."""
        return self.stream.rows

    def at(self, name: str, rows: ArrayLike) -> Values:
        """Return a column's values at some rows, by their numbers or a mask."""
        return self.stream.at(name, rows)

    def last(self, name: str) -> int:
        """Return a column's value at the last row."""
        return int(self.at(name, [-1])[0])

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.stream)

    def __len__(self) -> int:
        return self.stream.count

    def __getitem__(self, name: str) -> Values:
        if name not in self._names:
            raise StreamError(f"the event stream has no column {name!r}; it has: {', '.join(self._names)}")
        return self.stream[name]

    def __repr__(self) -> str:
        return f"<Events: {len(self)} rows, mss {self.meta['mss']}, hz {self.meta['hz']}>"

    @property
    def now_us(self) -> Ints:
        """Time of each row on the connection's own clock, which starts at 1 s; int64 us, shape (n,)."""
        found = self["time_ns"]  # made for this: in place, as of a million packets each copy has 12 MB
        found -= self.meta["start_ns"]
        found //= 1000
        found += schema.CLOCK_START_US
        return found

    @property
    def coarse(self) -> bool:
        """Whether these are differences between polls of counters instead of captured ACKs."""
        return "coarse" in self.meta

    @property
    def confidence(self) -> dict[str, str]:
        """Origin of each column: {column: word}.

        ``observed`` in the packets; ``computed`` from them by the kernel's rules; ``estimated``: the capture was
        not taken at the sender; ``relative`` to the start of the capture; ``inferred`` from the sending pattern;
        ``coarse``: interpolated between polls of counters, see `coarse`; ``unknown``.
        """
        if self.coarse:
            return {column.name: "coarse" for column in schema.EVENTS} | {"tlp_orig_data_app_limited": "unknown"}
        words = {column.name: "computed" for column in schema.EVENTS}
        words |= dict.fromkeys(("time_ns", "ack", "snd_una", "snd_nxt", "snd_wnd"), "observed")
        if not self.meta["complete"]:
            counters = ("delivered", "delivered_ce", "lost", "rs_prior_delivered", "tcp_min_rtt_us")
            words |= dict.fromkeys(counters, "relative")
        if "start_ns" in self.meta["inferred"]:  # departure times, and their order relative to ACKs, are estimates
            words |= {name: "estimated" for name, word in words.items() if word == "computed" and name != "mss"}
            words |= dict.fromkeys(("time_ns", "snd_nxt"), "estimated")
        limits = ("is_cwnd_limited", "max_packets_out", "app_limited", "rs_is_app_limited", "skb_tx_app_limited")
        return words | dict.fromkeys(limits, "inferred") | {"tlp_orig_data_app_limited": "unknown"}

    def of(self, *names: str) -> Ints:
        """Return the indices of the rows of the named calls (`schema.LINUX_EVENTS`), in order."""
        codes = [schema.LINUX_EVENTS[name] for name in names]
        return np.flatnonzero(np.isin(self["event"], codes))

    def _card(self) -> Card:
        codes, counts = np.unique(self["event"], return_counts=True)
        names = {code: name for name, code in schema.EVENT_CODES.items()}
        calls = ", ".join(f"{names[code]} {count}" for code, count in zip(codes, counts, strict=True))
        time_ns = self["time_ns"]
        span_s = (int(time_ns[-1]) - int(time_ns[0])) / 1e9 if len(self) else 0.0
        rows: list[tuple[str, object]] = [
            ("calls", calls or "none"),
            ("time", f"{span_s:.3f} s"),
            ("segment size", f"{self.meta['mss']} B"),
            ("packets sent", "not captured" if self.sends is None else len(self.sends)),
            ("guessed", ", ".join(self.meta.get("inferred", ())) or "nothing"),
        ]
        notes = ["made up between polls of counters"] if self.coarse else []
        return f"Event stream: {len(self)} rows", rows, [*notes, "As a table: .frame()"]

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the stream as Parquet, losslessly; `Events.load` reads it back. Return the number of rows."""
        from cctrace.io import tablefile

        return tablefile.save(path, "events", [{name: self[name] for name in self._names}], self.meta)

    @classmethod
    def load(cls, source: Any) -> Events:
        """Read a file written by `to_parquet`.

        Raises
        ------
        FormatError
            If the file is not Parquet, is damaged, or holds another table.
        """
        from cctrace.io import tablefile, validation

        kind, columns, meta = tablefile.load(source)
        if kind != "events":
            raise FormatError(f"{source}: holds {kind}, not an event stream")
        if lacking := sorted(set(NAMES) - set(columns)):
            raise FormatError(f"{source}: an event stream of another version of cctrace: lacks {', '.join(lacking)}")
        columns = validation.checked(schema.EVENTS, columns, source)
        rows = np.zeros(len(columns["time_ns"]), EVENT)
        for name in NAMES:
            rows[name] = columns[name]
        facts = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in meta.items()}
        for name, (low, high) in _FACTS.items():
            value = facts.get(name)
            if not (isinstance(value, int) and low <= value <= high):
                raise FormatError(f"{source}: {name} is {value!r}; needed is an integer from {low} to {high}")
        return cls(rows, facts)

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row per call.

        Its columns are `time_s`, seconds since the flow's first packet, and those of `schema.EVENTS`; `event` is a
        text, and unobserved values are NA.
        """
        import pandas as pd

        time_ns = self["time_ns"]
        zero_ns = self._zero_ns if self._zero_ns is not None else int(time_ns[0]) if len(self) else 0
        data: dict[str, Any] = {"time_s": (time_ns - zero_ns) / 1e9}
        for column in schema.EVENTS:
            values: Any = np.ascontiguousarray(self[column.name])
            if column.name == "event":
                names = {code: name for name, code in schema.LINUX_EVENTS.items()}
                values = pd.Categorical.from_codes(
                    values, dtype=pd.CategoricalDtype([names[i] for i in range(len(names))])
                )
            elif column.missing is not None:
                values = pd.arrays.IntegerArray(values.copy(), values == column.missing)
            data[column.name] = values
        return pd.DataFrame(data)

    def to_xarray(self) -> xarray.Dataset:
        """Return the columns of `schema.EVENTS` over the dimension ``call``, with units and meanings as attributes.

        The coordinate `time_s` counts seconds since the flow's first packet; unobserved values are NaN.
        """
        import xarray

        frame = self.frame()
        variables = {}
        for column in schema.EVENTS:
            kept = frame[column.name]
            if column.name == "event":
                values = kept.astype(str).to_numpy(object)
            else:
                values = kept.to_numpy() if column.missing is None else kept.to_numpy(float, na_value=np.nan)
            variables[column.name] = ("call", values, {"units": column.unit, "long_name": column.meaning})
        since = {"units": "s", "long_name": "time since the flow's first packet"}
        return xarray.Dataset(
            variables,
            {"time_s": ("call", frame["time_s"].to_numpy(), since)},
            {name: int(self.meta[name]) for name in _FACTS if name in self.meta},
        )


def first_ack(rows: EventColumns | Events) -> int:
    """Return the first row that is an ACK, one of the first; the number of rows if there is none."""
    event = rows["event"]
    return next((row for row, kind in enumerate(event) if kind == schema.EVENT_CODES["on_ack"]), len(event))
