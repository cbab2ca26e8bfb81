"""The event stream of one flow: the rows of `schema.EVENTS` and the facts that hold for all of them."""

import numpy as np

from cctrace import schema
from cctrace.errors import FormatError, StreamError
from cctrace.flows.state import CLOCK_START_US, EVENT

# What replays reckon with of the facts that hold for all rows, and what a file may say of it.
_FACTS = {
    "mss": (1, 65535),
    "hz": (24, 10_000),
    "start_ns": (0, schema.LATEST_NS),
    "handshake_rtt_us": (-1, 1 << 50),
    "initial_cwnd": (-1, 1 << 31),
    "complete": (0, 1),
    "ecn_ok": (0, 1),
}


class Events:
    """One row per call that the sender's congestion control could have received.

    Rows for every kind of controller are there (`pkts_acked`, `on_ack` and `cong_avoid` for one ACK, say); a controller
    receives those it defines.

    Parameters
    ----------
    rows : structured ndarray, shape (n,)
        Fields of `schema.EVENTS`.
    meta : dict
        ``mss`` (bytes), ``hz``, ``isn``, ``start_ns`` (capture time at which `now_us` is 1,000,000),
        ``handshake_rtt_us`` (-1 unknown), ``initial_cwnd`` (segments; -1 unknown), ``ecn_ok``, ``ecn`` (none,
        classic, accurate, unknown), ``sack_ok``,
        ``complete`` (the capture shows the handshake), ``inferred`` (names of the facts above that are guesses). Of a
        coarse stream also ``coarse``: ``polls``, ``interval_ms`` between them, ``acks``, how many are ``made_up``, and
        ``in_flight_told``.
    sends : structured ndarray, optional
        Fields of `schema.SENDS`: what left, between the rows; None where nobody saw it.
    zero_ns : int, optional
        Where `frame` counts seconds from: the flow's first packet; default: the first row.

    Examples
    --------
    >>> events["delivered"][-1]            # doctest: +SKIP
    """

    def __init__(self, rows, meta, sends=None, zero_ns=None):
        self.rows, self.meta, self.sends, self._zero_ns = rows, dict(meta), sends, zero_ns

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, name):
        if name not in self.rows.dtype.names:
            raise StreamError(f"the event stream has no column {name!r}; it has: {', '.join(self.rows.dtype.names)}")
        return self.rows[name]

    def __repr__(self):
        return f"<Events: {len(self)} rows, mss {self.meta['mss']}, hz {self.meta['hz']}>"

    @property
    def now_us(self):
        """Time of each row on the connection's own clock, which starts at 1 s; int64 us, shape (n,)."""
        return (self.rows["time_ns"] - self.meta["start_ns"]) // 1000 + CLOCK_START_US

    @property
    def coarse(self):
        """Whether these are not ACKs that anybody saw, but the differences between polls of counters."""
        return "coarse" in self.meta

    @property
    def confidence(self):
        """How each column is known: {column: word}.

        ``observed`` in the packets; ``computed`` from them by the kernel's rules; ``estimated``: the capture was
        not taken at the sender; ``relative``, counted from where the capture begins; ``inferred`` from the sending
        pattern; ``coarse``: made up between polls of counters, see `coarse`; ``unknown``.
        """
        if self.coarse:
            return {column.name: "coarse" for column in schema.EVENTS} | {"tlp_orig_data_app_limited": "unknown"}
        words = {column.name: "computed" for column in schema.EVENTS}
        words |= dict.fromkeys(("time_ns", "ack", "snd_una", "snd_nxt"), "observed")
        if not self.meta["complete"]:
            counters = ("delivered", "delivered_ce", "lost", "rs_prior_delivered", "tcp_min_rtt_us")
            words |= dict.fromkeys(counters, "relative")
        if "start_ns" in self.meta["inferred"]:  # what was sent when, and before which ACK, is an estimate
            words |= {name: "estimated" for name, word in words.items() if word == "computed" and name != "mss"}
            words |= dict.fromkeys(("time_ns", "snd_nxt"), "estimated")
        limits = ("is_cwnd_limited", "max_packets_out", "app_limited", "rs_is_app_limited", "skb_tx_app_limited")
        return words | dict.fromkeys(limits, "inferred") | {"tlp_orig_data_app_limited": "unknown"}

    def of(self, *names):
        """Return the indices of the rows of the named calls (`schema.LINUX_EVENTS`), in order."""
        codes = [schema.LINUX_EVENTS[name] for name in names]
        return np.flatnonzero(np.isin(self.rows["event"], codes))

    def _repr_html_(self):
        from cctrace.display import card

        codes, counts = np.unique(self.rows["event"], return_counts=True)
        names = {code: name for name, code in schema.EVENT_CODES.items()}
        calls = ", ".join(f"{names[code]} {count}" for code, count in zip(codes, counts, strict=True))
        span_s = (int(self.rows["time_ns"][-1]) - int(self.rows["time_ns"][0])) / 1e9 if len(self) else 0.0
        rows = [
            ("calls", calls or "none"),
            ("time", f"{span_s:.3f} s"),
            ("segment size", f"{self.meta['mss']} B"),
            ("packets sent", "nobody saw them" if self.sends is None else len(self.sends)),
            ("guessed", ", ".join(self.meta.get("inferred", ())) or "nothing"),
        ]
        notes = ["made up between polls of counters"] if self.coarse else []
        return card(f"Event stream: {len(self)} rows", rows, [*notes, "As a table: .frame()"])

    def to_parquet(self, path):
        """Write the stream as Parquet, as `save` does."""
        return self.save(path)

    def save(self, path):
        """Write the stream as Parquet, without loss; `Events.load` reads it back. Returns the rows written."""
        from cctrace.io import tablefile

        return tablefile.save(path, "events", [{name: self[name] for name in self.rows.dtype.names}], self.meta)

    @classmethod
    def load(cls, source):
        """Read what `save` wrote.

        Raises
        ------
        FormatError
            If the file is not Parquet, is damaged, or holds another table.
        """
        from cctrace.io import door, tablefile

        kind, columns, meta = tablefile.load(source)
        if kind != "events":
            raise FormatError(f"{source}: holds {kind}, not an event stream")
        if lacking := sorted(set(EVENT.names) - set(columns)):
            raise FormatError(f"{source}: an event stream of another version of cctrace: lacks {', '.join(lacking)}")
        columns = door.checked(schema.EVENTS, columns, source)
        rows = np.zeros(len(columns["time_ns"]), EVENT)
        for name in EVENT.names:
            rows[name] = columns[name]
        facts = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in meta.items()}
        for name, (low, high) in _FACTS.items():
            if not (isinstance(facts.get(name), int) and low <= facts[name] <= high):
                raise FormatError(f"{source}: {name} is {facts.get(name)!r}; needed is an integer from {low} to {high}")
        return cls(rows, facts)

    def frame(self):
        """Return a DataFrame with one row per call.

        Its columns are `time_s`, seconds since the flow's first packet, and those of `schema.EVENTS`; `event` is a
        text, and what was not observed is NA.
        """
        import pandas as pd

        time_ns = self.rows["time_ns"]
        zero_ns = self._zero_ns if self._zero_ns is not None else int(time_ns[0]) if len(self) else 0
        data = {"time_s": (time_ns - zero_ns) / 1e9}
        for column in schema.EVENTS:
            values = np.ascontiguousarray(self.rows[column.name])
            if column.name == "event":
                names = {code: name for name, code in schema.LINUX_EVENTS.items()}
                values = pd.Categorical.from_codes(values, [names[i] for i in range(len(names))])
            elif column.missing is not None:
                values = pd.arrays.IntegerArray(values.copy(), values == column.missing)
            data[column.name] = values
        return pd.DataFrame(data)


def pointing(rows, sends):
    """Return rows whose `rs_send` points into the table of sends; a stream that was saved comes without its sends."""
    beyond = rows["rs_send"] >= sends
    if beyond.any():
        rows = rows.copy()
        rows["rs_send"][beyond] = -1
    return rows
