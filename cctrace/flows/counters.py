"""Connections of which only counters are known (ss, NDT7, iperf3, qlog ...), as flows.

    table = cct.read("ss.txt.gz")
    table.flows                    one row per connection, as of a capture
    flow = table.flow(0)           one connection
    flow.events                    the coarse event stream, see `coarse`
    cct.replay(flow, "bbr2022")

Time is known only as finely as the polls; what a source does not report is NaN, never 0.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import place_in
from cctrace.columns import Columns, Floats, Ints, Values, frame_of, last_true
from cctrace.display import Card, Carded, connection
from cctrace.errors import ArgumentError
from cctrace.flows import coarse, quantized
from cctrace.flows.state import DEFAULT_HZ
from cctrace.io.counters.tcpinfo import MISSING, TcpInfo
from cctrace.schema import ENDS
from cctrace.tcp.sequence import unwrapped
from cctrace.tcp.wire import MSS_BYTES
from cctrace.units import format_rate, format_size, format_time

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

    from cctrace.flows.events import Events
    from cctrace.flows.flow import Flow
    from cctrace.flows.views import View

COARSE = "from counters, without a capture: RTTs are the sender's smoothed ones, and times those of the polls"


class CounterTable(TcpInfo):
    """Counters as returned by `cctrace.read`: `TcpInfo` with its connections as flows."""

    @classmethod
    def of(cls, table: TcpInfo) -> CounterTable:
        """Return a `TcpInfo` as a `CounterTable`; its columns are shared."""
        new = cls.__new__(cls)
        vars(new).update(vars(table))
        return new

    @functools.cached_property
    def flows(self) -> pd.DataFrame:
        """One row per connection, in the order of `connections`; a DataFrame with the columns of `cctrace flows`."""
        import pandas as pd

        return pd.DataFrame([self.flow(i).row for i in range(len(self.connections))])

    def flow(self, which: int | tuple[Any, ...] = 0) -> CounterFlow:
        """Return one connection as a `CounterFlow`.

        `which`: row of `flows`, or (src, sport, dst, dport), the polled endpoint first. Raises `ArgumentError` if there
        is no such connection.
        """
        if isinstance(which, tuple):
            ends = [tuple(known.get(name) for name in ENDS) for known in self.connections]
            if which not in ends:
                raise ArgumentError(f"which={which!r}: no such connection in {self.source}")
            which = ends.index(which)
        return CounterFlow(self, place_in(which, len(self.connections), str(self.source)))


def latest(values: Floats) -> Floats:
    """Return at every poll the value of the last one that has it, NaN before: some of flent's have throughput alone."""
    return values[last_true(~np.isnan(values), before=0)]


class CounterFlow(Carded):
    """The polls of one connection.

    Parameters
    ----------
    table : TcpInfo
    index : int
        Of the connection.

    Attributes
    ----------
    table : TcpInfo
        With the other connections, which may share a path with this one.
    polls : TcpInfo
        In order of time.
    packets : dict of str to ndarray, or None
        Packet events, if the source logs them too (qlog).

    Examples
    --------
    >>> import cctrace as cct
    >>> polls = cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    >>> flow = polls.flow(0)
    >>> type(flow).__name__, bool(np.nanmin(flow.rtt_us()) > 40_000)
    ('CounterFlow', True)
    """

    def __init__(self, table: TcpInfo, index: int = 0) -> None:
        self.table = table
        self.polls, self.connection = table.select(index), table.connections[index]
        if len(self.polls) > 1:
            self.polls = _in_time_order(self.polls)
        self.packets = None
        if table.events is not None:
            mine = table.events["connection"] == index
            self.packets = {name: column[mine] for name, column in table.events.items()}

    def values(self, name: str) -> Floats:
        """Return a column as float64, shape (polls,), NaN if missing, text, or not reported."""
        if (name not in self.polls.columns and name not in self.polls.extra) or self.polls[name].dtype == object:
            return np.full(len(self.polls), np.nan)
        column = self.polls[name]
        return np.where(column == MISSING, np.nan, column) if column.dtype == np.int64 else column.astype(float)

    def rtt_us(self) -> Floats:
        """Return the smoothed RTT at every poll, us; NaN before the first sample."""
        rtt = self.values("rtt")
        return latest(np.where(rtt > 0, rtt, np.nan))

    @functools.cached_property
    def mss(self) -> int | None:
        """Segment size that the counters report, bytes; None if they report none."""
        mss = self.values("snd_mss")
        return int(np.median(mss[mss > 0])) if (mss > 0).any() else None

    def acked(self) -> tuple[Ints, Ints]:
        """Return (time_ns, bytes acknowledged by then), both int64; empty if the source lacks them."""
        time_ns, acked = self.polls["time_ns"], self.values("bytes_acked")
        if np.isnan(acked).all() and "interval_bytes" in self.polls.extra:  # iperf3: bytes of each interval
            reported = self.values("interval_us") > 0  # flent polls sockets in between
            if not reported.any():
                return time_ns[reported], np.zeros(0, np.int64)
            acked = np.cumsum(np.nan_to_num(self.values("interval_bytes"))[reported])
            begin = time_ns[reported][:1] - self.polls["interval_us"][reported][:1] * 1000
            time_ns, acked = np.concatenate([begin, time_ns[reported]]), np.concatenate([[0], acked]).astype(np.int64)
            return time_ns, quantized.smooth(time_ns, acked)
        if np.isnan(acked).all() and self.packets is not None:
            return _acked_packets(self.packets)
        # tcp_probe: sequence numbers, relative to the first.
        if np.isnan(acked).all() and "snd_una" in self.polls.extra:
            una = self.polls.extra["snd_una"].astype(np.uint32)
            return time_ns, np.maximum.accumulate(unwrapped(una, int(una[0])))
        known = ~np.isnan(acked)
        return time_ns[known], acked[known].astype(np.int64)

    def outstanding(self) -> Floats:
        """Return the segments sent and not acknowledged at every poll, NaN where unknown."""
        segments = self.values("unacked")
        if np.isnan(segments).all() and {"snd_una", "snd_nxt"} <= set(self.polls.extra):
            span = (self.values("snd_nxt") - self.values("snd_una")) % (1 << 32)
            return np.ceil(span / (self.mss or MSS_BYTES))
        return segments

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """This connection's row of `CounterTable.flows`, a dict; NaN for what is unknown.

        Goodput is over the polls between which acknowledged bytes grew. The lowest RTT is the kernel's `min_rtt` where
        there is one; median and 95th percentile are of the smoothed RTT.
        """
        time_ns, acked = self.acked()
        # The last poll before the counter grew, and the first one at its final value.
        begin, end = 0, 0
        if len(acked):
            begin, end = np.searchsorted(acked, acked[0], "right") - 1, np.searchsorted(acked, acked[-1])
        seconds = (int(time_ns[end]) - int(time_ns[begin])) / 1e9 if len(acked) and time_ns[begin] != MISSING else 0
        rtt = self.rtt_us()
        lowest = np.concatenate([self.values("min_rtt"), rtt])
        lowest = lowest[lowest > 0]
        packets, sent, retransmitted = self._counts()
        if np.isnan(sent) and self.mss:  # as many as the bytes need
            sent = -(-self._bytes_sent(acked) // self.mss) + retransmitted
        return {
            **{name: self.connection.get(name) for name in ENDS},
            "packets": packets,
            "bytes_sent": self._bytes_sent(acked),
            "segments_sent": sent,
            "retransmitted_segments": retransmitted,
            "goodput_bps": int(acked[end] - acked[begin]) * 8 / seconds if seconds > 0 else np.nan,
            "rtt_min_us": int(lowest.min()) if len(lowest) else np.nan,
            "rtt_median_us": _rank(rtt, 0.5),
            "rtt_p95_us": _rank(rtt, 0.95),
            "start_ns": self.start_ns if self.is_timed else np.nan,
            "duration_s": self._duration_s(time_ns),
            "warnings": [COARSE, *self.polls.warnings],
        }

    def _duration_s(self, time_ns: Ints) -> float:
        """Return the time from the first poll to the last, and to the last progress or packet; NaN without times."""
        logged = [] if self.packets is None else [self.packets["time_ns"]]
        times = np.concatenate([self.polls["time_ns"], time_ns, *logged])
        return (int(times.max()) - self.start_ns) / 1e9 if self.is_timed else np.nan

    def _counts(self) -> tuple[float, float, float]:
        """Return packets of both directions, segments sent and segments retransmitted."""
        if self.packets is not None:
            received, sent, lost = (int((self.packets["kind"] == kind).sum()) for kind in ("received", "sent", "lost"))
            return received + sent, sent, lost
        packets = _largest(self.values("segs_out") + self.values("segs_in"))
        return packets, _largest(self.values("data_segs_out")), _largest(self.values("total_retrans"))

    def _bytes_sent(self, acked: Ints) -> float:
        """Return the payload sent, each byte once."""
        once = _largest(self.values("bytes_sent") - np.nan_to_num(self.values("bytes_retrans")))
        return once if not np.isnan(once) else _largest(acked.astype(float))

    def _card(self) -> Card:
        row = self.row
        rows: list[tuple[str, object]] = [
            ("acknowledged", format_size(row["bytes_sent"])),
            ("goodput", format_rate(row["goodput_bps"])),
            ("RTT median", format_time(row["rtt_median_us"] * 1000)),
            ("duration", format_time(row["duration_s"] * 1e9)),
            ("polls", len(self.polls)),
        ]
        return f"Connection {self.key}, by counters of {self.polls.source}", rows, row["warnings"]

    def __repr__(self) -> str:
        return f"<CounterFlow of {self.polls.source}: {len(self.polls)} polls>"

    @property
    def tcpinfo(self) -> TcpInfo:
        """The polls: a replay of the coarse stream is compared with them."""
        return self.polls

    @property
    def key(self) -> tuple[Any, ...]:
        """(src, sport, dst, dport), None if the source lacks them."""
        return tuple(self.connection.get(name) for name in ENDS)

    @functools.cached_property
    def events(self) -> Events:
        """The coarse `Events`, see `coarse`; raises `StreamError` if the counters show no progress, or no RTT."""
        return coarse.events_of(self, DEFAULT_HZ)

    @property
    def rtt(self) -> pd.DataFrame:
        """RTTs of the polls, in the format of a captured flow: DataFrame of time_s, time_ns and rtt_us."""
        rows = self.events.rows[self.events.of("on_ack")]
        rows = rows[rows["rs_rtt_us"] >= 0]
        times = {"time_s": self.seconds(rows["time_ns"]), "time_ns": rows["time_ns"]}
        return frame_of(times | {"rtt_us": rows["rs_rtt_us"]})

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of the entire connection; the `meta` of `events`."""
        return self.events.meta

    @property
    def hz(self) -> int:
        """Ticks per second of the sender's kernel, assumed."""
        return DEFAULT_HZ

    @property
    def caveats(self) -> list[str]:
        """Caveats of results computed from `events`, a list of str."""
        return coarse.caveats(self.events)

    def view(self, kind: str) -> View:
        """Return what QUIC controllers read, a `cctrace.flows.views.View` of `events`; `kind` is "quic".

        There is none for Linux controllers (a `StreamError`): replay the flow itself.
        """
        from cctrace.flows import views

        return views.of_events(self.events, kind)

    def modes(self) -> Values | None:
        """BBR's mode at every poll, printed or inferred from its gains: text, None if unknown; None without BBR."""
        modes = self.polls.extra.get("bbr_mode")
        return modes if modes is not None and any(mode is not None for mode in modes) else None

    def phase_names(self) -> Values | None:
        """As `modes`, within PROBE_BW also what BBR probes for, "unknown" where unknown."""
        modes = self.modes()
        if modes is None:
            return None
        gain, probing = self.values("bbr_pacing_gain"), modes == "PROBE_BW"
        names = np.where(modes == None, "unknown", modes)  # noqa: E711 (element by element)
        return np.where(probing & (gain > 256), "PROBE_BW up", np.where(probing & (gain < 256), "PROBE_BW down", names))

    def seconds(self, time_ns: ArrayLike | None = None) -> Floats:
        """Return times in seconds since the first poll, as float64; by default those of the polls."""
        return (np.asarray(self.polls["time_ns"] if time_ns is None else time_ns, np.int64) - self.start_ns) / 1e9

    def throughput(self) -> pd.DataFrame:
        """Return the acknowledged rate between successive polls.

        Returns DataFrame: one row per interval: ``time_s``, its start, ``span_s``, its length, and ``acked_bps``,
        in bits per second. Empty if the counters lack it.
        """
        return frame_of(self.throughput_columns())

    def throughput_columns(self) -> Columns:
        """Return the columns of `throughput` without pandas."""
        time_ns, acked = self.acked()
        time_ns, rows = np.unique(time_ns, return_index=True)
        span_s = np.diff(time_ns) / 1e9
        rate_bps = np.diff(acked[rows]) * 8 / span_s
        return {"time_s": self.seconds(time_ns)[:-1], "span_s": span_s, "acked_bps": rate_bps}

    @property
    def start_ns(self) -> int:
        """Return the time of the first poll or packet, `MISSING` if the source has no times."""
        logged = [] if self.packets is None else [self.packets["time_ns"]]
        if "interval_us" in self.polls.extra:  # an iperf3 poll covers the interval before it
            logged.append(self.polls["time_ns"] - self.polls["interval_us"] * 1000)
        times = np.concatenate([self.polls["time_ns"], *logged])
        return int(times[times > MISSING // 2].min(initial=np.iinfo(np.int64).max)) if self.is_timed else MISSING

    @property
    def is_timed(self) -> bool:
        """Whether the source has poll times; `ss` has none unless something else records them."""
        return bool((self.polls["time_ns"] != MISSING).any()) or (
            self.packets is not None and len(self.packets["time_ns"]) > 0
        )


def _in_time_order(polls: TcpInfo) -> TcpInfo:
    order = np.argsort(polls["time_ns"], kind="stable")
    for columns in (polls.columns, polls.extra):
        for name in columns:
            columns[name] = columns[name][order]
    return polls


def _acked_packets(packets: Columns) -> tuple[Ints, Ints]:
    """Return (time_ns, bytes) of a log of packets: sizes of those sent, at their first acknowledgement."""
    sent, acks = packets["kind"] == "sent", np.flatnonzero(packets["kind"] == "acked")
    times, sizes = [], []
    for space in set(packets["space"][sent]):
        mine = np.flatnonzero(sent & (packets["space"] == space) & (packets["bytes"] > 0))
        mine = mine[np.argsort(packets["first"][mine], kind="stable")]
        reported = acks[packets["space"][acks] == space]
        numbers, bytes_ = packets["first"][mine], packets["bytes"][mine]
        low = np.searchsorted(numbers, packets["first"][reported])
        high = np.searchsorted(numbers, packets["last"][reported], side="right")
        open_, done = np.ones(len(mine), bool), 0  # everything before `done` is acknowledged
        for ack, start, end in zip(reported.tolist(), low.tolist(), high.tolist(), strict=True):
            begin = max(start, done)
            sizes.append(int(bytes_[begin:end][open_[begin:end]].sum()))
            times.append(packets["time_ns"][ack])
            open_[begin:end] = False
            done = max(done, end) if start <= done else done
    order = np.argsort(times, kind="stable")
    return np.array(times, np.int64)[order], np.cumsum(np.array(sizes, np.int64)[order])


def _largest(values: Floats) -> float:
    """Return the largest known value as an int, NaN if none is."""
    known = values[~np.isnan(values)]
    return int(known.max()) if len(known) else np.nan


def _rank(values: Floats, share: float) -> float:
    """Return a quantile by nearest rank, as `cctrace flows` does; NaN without values."""
    known = np.sort(values[~np.isnan(values)])
    return int(known[max(0, int(np.ceil(share * len(known))) - 1)]) if len(known) else np.nan


def title_of(flow: Flow | CounterFlow) -> str:
    """Return a flow's ends as "address:port → address:port", bulk sender first; without addresses the record's name."""
    if isinstance(flow, CounterFlow) and flow.key[0] is None:
        known = flow.connection
        taken_at = f" ({known['vantage_point']})" if known.get("vantage_point") else ""
        return f"connection {known.get('group_id', known.get('flow_id', 'without a name'))}{taken_at}"
    return connection(*flow.key)
