"""A capture and its connections: the façade over decoder, table and re-enactment; `flow` is the one over views.

From a file to a flow:

    cap = cct.read("sender.pcap.zst")
    cap.flows                      one row per connection
    flow = cap.flow(0)             one connection, from the point of view of its bulk sender
    flow.events                    what the sender's TCP received and did
    flow.quality()                 what the capture lacks
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import number, place_in, whole
from cctrace.display import Gridded, endpoint
from cctrace.errors import ArgumentError
from cctrace.flows import reaction
from cctrace.flows.cut_sacks import complete
from cctrace.flows.ecn import feedback
from cctrace.flows.flow import Flow
from cctrace.flows.periodic_writes import NOTHING_DUE
from cctrace.flows.sender.reenact import Pass
from cctrace.flows.state import DEFAULT_HZ, DIRECTLY, PARAM, STAMP_TICKS_US, THROUGH_FQ
from cctrace.flows.table import Connections, retransmitted_share
from cctrace.flows.window_scale import MAX_WSCALE, shown_scale
from cctrace.io import read_file, stream
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS, Packets
from cctrace.schema import CLOCK_START_US
from cctrace.tcp.flags import PSH, SYN
from cctrace.units import format_counted, format_rate, format_rtt, format_share, format_size

if TYPE_CHECKING:
    import os

    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from cctrace.columns import Bools, Ints, Values


def read(
    source: Any, format: str | None = None, hz: int | None = None, chunk: int | None = None, **options: Any
) -> Any:
    """Read any supported file.

    Parameters
    ----------
    source : str, path or binary file
    format : str, optional
        Skips the guessing; see `cctrace.io.FORMATS`.
    hz : int, optional
        CONFIG_HZ of the sender, 250 if not given.
    chunk : int, optional
        For captures larger than memory: packets per part of an iterator over them, see `cctrace.io.stream`.
    options
        `limit`, `decapsulate` of `cctrace.io.read_file`.

    Returns
    -------
    Capture
        For packet captures.
    iterator of Packets
        With `chunk`.
    CounterTable
        For polls of tcp_info and the like, a `TcpInfo` whose connections are flows, too.
    LinkTrace, KernelEvents
        For link traces, and for output of tcpretrans and tcplife.

    Raises
    ------
    FormatError
        If the file cannot be read; names file, offset and reason.

    Examples
    --------
    >>> import cctrace as cct
    >>> capture = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    >>> len(capture.packets), capture.flows["dport"].tolist()
    (9381, [5001])
    """
    from cctrace.flows.counters import CounterTable
    from cctrace.io.counters.tcpinfo import TcpInfo

    if chunk is not None:
        whole("chunk", chunk, 1)  # at once: the iterator checks when it is first used
        return stream(source, chunk, format, **options)
    data = read_file(source, format, **options)
    if isinstance(data, TcpInfo):
        return CounterTable.of(data)
    return Capture(data, hz) if isinstance(data, Packets) else data


BULK_BYTES = 100_000  # payload from which on a flow counts as bulk
BLUR_US = 1000  # error of departure times in a capture not taken at the sender
_READ = ("direction", "flags", "seq", "ack", "window", "payload", "tsval", "tsecr", "options", "sack_row", "sack_count",
         "ecn_ce_bytes")  # fmt: skip
_SHOWN = 10  # rows in a notebook


class Capture(Gridded):
    """The TCP connections of one packet capture.

    Parameters
    ----------
    packets : Packets
    hz : int, optional
        CONFIG_HZ of the senders, 250 if not given.

    Examples
    --------
    >>> import cctrace as cct
    >>> capture = cct.read(cct.datasets.path("web_server", "sender.pcap.zst"))
    >>> len(capture.flows), [flow.key[2] for flow in capture.bulk()][:2]
    (11, ['198.51.100.10', '192.0.2.50'])
    """

    def __init__(self, packets: Packets, hz: int | None = None) -> None:
        if hz is not None and not (isinstance(hz, int) and 24 <= hz <= 10_000):
            raise ArgumentError(f"hz={hz!r}: CONFIG_HZ is an integer from 24 to 10000, usually 100, 250, 300 or 1000")
        self.packets = packets
        self.hz, self.hz_given = hz or DEFAULT_HZ, hz is not None
        self.warnings = list(packets.warnings)
        self._reaction: dict[int, tuple[int, int]] = {}  # measured reaction times of connections' senders
        self._params: tuple[object, Any] = None, None  # of which connection, and what `params` found last
        self._read: tuple[object, Any] = None, None  # the same of the packets of a beginning
        self._completed: set[int] = set()  # connections whose cut SACK blocks have been completed
        self._scales: dict[int, int | None] = {}  # of receive windows whose SYN was not captured, as data show them
        self._kept: dict[object, Any] = {}  # results of other packages for single flows

    def pack(self, read: bool) -> None:
        """Pack the packets' columns, with `read` those that a re-enactment reads as well."""
        self._read = None, None  # it holds some of them
        self.packets.pack([name for name in self.packets.columns if read or name not in ("time_ns", *_READ)])

    def forget(self) -> None:
        """Drop what other packages have kept of its flows."""
        self._kept.clear()

    def __len__(self) -> int:
        return len(self.connections)

    def __repr__(self) -> str:
        return f"<{self._called}>"

    @property
    def _called(self) -> str:
        packets = format_counted(len(self.packets), "packet", "packets")
        where = f" {self.packets.source}" if self.packets.source else ""
        return f"Capture{where}: {packets}, {format_counted(len(self), 'connection', 'connections')}"

    def _grid(self) -> tuple[str, tuple[str, ...], list[tuple[object, ...]], list[str]]:
        rows: list[tuple[object, ...]] = []
        for i, row in zip(range(_SHOWN), self.connections.each_row(), strict=False):
            retransmitted = format_share(retransmitted_share(row))
            rtt = format_rtt(row["rtt_median_us"])
            ends = (endpoint(row["src"], row["sport"]), endpoint(row["dst"], row["dport"]))
            rows.append((i, *ends, format_size(row["bytes_sent"]), format_rate(row["goodput_bps"]), rtt, retransmitted))
        more = [f"and {len(self) - _SHOWN} more flows: .flows"] if len(self) > _SHOWN else []
        columns = ("flow", "sender", "receiver", "sent", "goodput", "RTT", "retransmitted")
        return self._called, columns, rows, [*more, *self.warnings]

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the packets as Parquet, losslessly; `cctrace.read` reads them back. Return the number of rows."""
        from cctrace.io.parquet import save_table

        return save_table(self.packets, path)

    @functools.cached_property
    def connections(self) -> Connections:
        """The statistics behind `flows`, a `Connections`."""
        return Connections(lambda: [self.packets])

    @functools.cached_property
    def columns(self) -> dict[str, Any]:
        """The columns of `flows`, arrays and lists, without pandas; an RTT without a sample is -1."""
        return self.connections.columns()

    @functools.cached_property
    def flows(self) -> pd.DataFrame:
        """One row per connection, bulk sender first; a DataFrame (see `cctrace flows --json` for the columns)."""
        return self.connections.frame()

    def flow(self, which: int | tuple[Any, ...] = 0) -> Flow:
        """Return one connection.

        Parameters
        ----------
        which : int or tuple
            Row of `flows`, or (src, sport, dst, dport) in either direction.

        Raises
        ------
        ArgumentError
            If there is no such connection.
        """
        index = self._find(which) if isinstance(which, tuple) else place_in(which, len(self), "the capture")
        flow = Flow(self, index)
        if index not in self._completed:
            self._completed.add(index)
            complete(flow)
        return flow

    def bulk(self, at_least: int = BULK_BYTES) -> list[Flow]:
        """Return the flows that carried at least `at_least` bytes, largest first."""
        least = number("at_least", at_least, "a number of bytes")
        sent = self.flows["bytes_sent"].to_numpy()
        return [self.flow(int(i)) for i in np.argsort(-sent, kind="stable") if sent[i] >= least]

    def _find(self, key: tuple[Any, ...]) -> int:
        table = self.packets.connections
        for i in range(len(self)):
            a = (table["src"][i], table["sport"][i])
            b = (table["dst"][i], table["dport"][i])
            if key in ((*a, *b), (*b, *a)):
                return i
        raise ArgumentError(f"which={key!r}: no such connection in {self.packets.source}")

    def params(self, rows: ArrayLike, fq: int = DIRECTLY, misses_marks: bool = False, hz: int | None = None) -> Values:
        """Return the parameters of the re-enactment for connections `rows` (`state.PARAM`), behind fq or not.

        `hz`: ticks per second of the senders' kernels, by default those of the capture.
        """
        rows = np.asarray(rows)
        asked, kept = (rows.tobytes(), hz), self._params
        if kept[0] != asked:  # a flow is re-enacted again and again, see `replaying.inference.through_fq`
            kept = self._params = asked, self._measured(rows, hz)
        p = kept[1].copy()
        p["fq"], p["misses_marks"] = fq, misses_marks
        return p

    def shown_scale(self, index: int) -> int | None:
        """Return the scale of a connection's receive window as its data show it, None if they do not."""
        if index not in self._scales:
            self._scales[index] = shown_scale(self, index)
        return self._scales[index]

    def _measured(self, rows: Values, hz: int | None) -> Values:
        """Return the parameters that are those of the connections, however they are re-enacted."""
        c, table = self.connections, self.packets.connections
        s = c.sender[rows]
        mine, other = c.sides[rows, s], c.sides[rows, 1 - s]
        p = np.zeros(len(rows), PARAM)
        p["sender"], p["mss"] = s, c.mss[rows]
        # Where nothing shows the scale, assume the largest, so that no window is mistaken for a limit.
        offered = np.stack([table["wscale_b"][rows], table["wscale_a"][rows]])
        wscale = np.where((offered >= 0).all(axis=0), np.minimum(np.where(s == 0, *offered), MAX_WSCALE), 0)
        unknown = np.flatnonzero(~c.wscale_known[rows])
        shown = [self.shown_scale(int(row)) for row in rows[unknown]]
        wscale[unknown] = [MAX_WSCALE if scale is None else scale for scale in shown]
        p["wscale"] = wscale
        p["sack_ok"] = np.where(table["sack_ok"][rows] == 0, 0, 1)
        p["ts_ok"] = mine["ts_count"] > 0
        p["ecn"], p["delivered_ce"], _ = feedback(mine, other)
        # If the answer to the sender's SYN is missing, what follows is re-enacted like a connection in mid-flow.
        p["has_syn"] = (mine["syn"] > 0) & ((mine["syn_ack"] > 0) | (other["syn"] > 0))
        p["passive"] = mine["syn_ack"]
        # In mid-flow, the first acknowledgement may refer to data before the first captured ones.
        early = np.where((mine["syn"] == 0) & (mine["has_ack"] > 0), np.minimum(mine["first_ack"] - 1, 0), 0)
        p["isn"] = (mine["origin"] + early) & 0xFFFFFFFF
        p["peer_isn"] = other["origin"]
        # The opening packet is the sender's own unless it opened passively.
        away = np.where(mine["syn_ack"] > 0, -1, 1) * (self.connections.sender_side_ns[rows] // 2)
        opened_ns = c.clock[c.opening(rows)] - np.maximum(away, 0)
        # So that microseconds and ticks end where the capture's do.
        p["start_ns"] = opened_ns - opened_ns % 1_000_000_000
        p["hz"] = hz or self.hz
        took_ns, p["same_skb_ns"] = self.reactions(rows)
        p["ack_delay_ns"] = p["tx_delay_ns"] = took_ns // 2
        p["answer_us"] = reaction.ANSWER * np.where(took_ns > 0, took_ns, reaction.TYPICAL_NS) // 1000
        p["ts_tick_us"] = stamp_tick_us(mine)
        phase = mine["ts_phase_us"] - self.connections.sender_side_ns[rows] // 2000
        p["blur_us"] = np.where(self.connections.sender_side_ns[rows] > 0, BLUR_US, 0)
        p["ts_offset_us"] = p["tx_delay_ns"] // 1000 - (phase - p["start_ns"] // 1000 + CLOCK_START_US)
        return p

    def reactions(self, rows: Values) -> tuple[Ints, Ints]:
        """Return the reaction times of the senders of `rows`, and the largest gap within an skb, ns; see `reaction`."""
        c = self.connections
        took_ns, same_ns = np.full(len(rows), reaction.TYPICAL_NS), np.full(len(rows), reaction.SAME_SKB_NS)
        measurable = (c.first[rows + 1] - c.first[rows] > 2 * reaction.ENOUGH) & (c.sender_side_ns[rows] == 0)
        for i in np.flatnonzero(measurable):
            row = int(rows[i])
            if row not in self._reaction:
                self._reaction[row] = self._measured_reaction(row)
            took_ns[i], same_ns[i] = self._reaction[row]
        return took_ns, same_ns

    def _measured_reaction(self, row: int) -> tuple[int, int]:
        c = self.connections
        mine = c.rows_of(row)
        sent = self.packets["direction"][mine] == c.sender[row]
        payload, flags = self.packets["payload"][mine], self.packets["flags"][mine]
        took_ns = reaction.reaction_ns(c.clock[mine], sent, payload > 0, (flags & SYN) != 0)
        return took_ns, reaction.same_skb_ns(c.clock[mine], np.where(sent, payload, 0), (flags & PSH) != 0)

    def reenactment(
        self,
        rows: ArrayLike,
        polls: ArrayLike | None = None,
        decided: Ints | None = None,
        marked: NDArray[np.uint8] | None = None,
        fq: int = DIRECTLY,
        most: int | None = None,
        misses_marks: bool = False,
        hz: int | None = None,
        due: Ints | None = None,
    ) -> Pass:
        """Return a re-enactment ready to run, a `Pass`.

        `fq`: how packets left the senders, `state.THROUGH_FQ` or others; see `handover`. `misses_marks`: whether the
        senders' kernels do, see `ecn.misses_marks`. `hz`: see `params`. Only for a single connection: `polls`, shape
        (n, 2), intervals (capture clock, ns) in which to answer as TCP_INFO would; `decided` and `marked`, as for
        `Flow.answers`; `most`, the largest number of packets; `due`, if echoes date hand-overs (`echoes`): when each
        write came, and where its data end.
        """
        rows = np.asarray(rows, np.int64)
        asked, kept = (rows.tobytes(), most), self._read
        if kept[0] != asked:
            kept = asked, self._of_connections(rows, most)
            self._read = kept if most is not None else (None, None)
        clock, order, first = kept[1]
        packets = (clock, *(self.packets.first(name, len(clock)) for name in _READ))
        sacks = (self.packets.sacks["left"], self.packets.sacks["right"])
        polls = np.zeros((0, 2), np.int64) if polls is None else np.ascontiguousarray(polls, np.int64)
        if polls.ndim != 2 or polls.shape[1] != 2:
            raise ArgumentError(f"polls of shape {polls.shape}: give the start and the end of each, shape (n, 2)")
        decided = np.zeros((0, 4), np.int64) if decided is None else np.asarray(decided, np.int64)
        decided = np.pad(decided, ((0, 0), (0, 6 - decided.shape[1])))
        marked = np.zeros(0, np.uint8) if marked is None else np.ascontiguousarray(marked, np.uint8)
        params = self.params(rows, fq, misses_marks, hz)
        params["echoes"] = due is not None and fq == THROUGH_FQ
        hints = marked, NOTHING_DUE if due is None else due
        is_ours = most is None and len(self.connections) == 1  # as `Connections.order` makes it anew
        return Pass(packets, sacks, order if is_ours else order.copy(), first, params, polls, decided, hints)

    def _of_connections(self, rows: Ints, most: int | None) -> tuple[Ints, Ints, Ints]:
        """Return what `at_the_sender` does, without copies of packets; limited to a number of packets."""
        clock, order, first = self.at_the_sender(rows)
        kept = self.packets["options"][order] & OPT_COPY == 0  # hand-over to fq and super-packets look ahead
        if not kept.all():  # of a million packets each long column has 8 MB
            order, first = order[kept], np.append(0, np.cumsum(kept, dtype=np.int32))[first].astype(np.int64)
        if most is not None:
            order = order[first[0] :][:most].copy()  # not kept with all others
            first = np.array([0, len(order)])
            clock = clock[: order.max(initial=-1) + 1]
            clock = clock.copy() if self.packets.is_packed else clock  # where all are made anew, see `pack`
        return clock, order, first

    @functools.cached_property
    def _moved(self) -> Ints:
        """Times at the senders, of connections asked for singly: copies for each of thousands would take too long."""
        return self.connections.clock.copy()

    def seen_by_sender(self, index: int) -> tuple[Ints, Ints, Bools]:
        """Return times (ns) of a connection's packets at its sender, in order; their rows, and which it sent."""
        clock, rows, _ = self.at_the_sender(np.array([index]))
        return clock[rows], rows, self.packets["direction"][rows] == self.connections.sender[index]

    def at_the_sender(self, rows: Values) -> tuple[Ints, Ints, Ints]:
        """Return times and order at the senders of the packets of connections `rows`, and where each begins.

        The times are those of all packets, but only those of `rows` are the sender's.
        Half the round-trip time from the capture point to the sender is subtracted from segments and added to ACKs.
        Time stamps reveal the delay of a queue before the capture point, to half a millisecond.
        """
        c = self.connections
        first = np.concatenate([[0], np.cumsum(c.first[rows + 1] - c.first[rows])])
        order = c.order if len(rows) == len(c) else np.concatenate([c.rows_of(i) for i in rows])
        clock, away = c.clock, c.sender_side_ns[rows]
        if not away.any():
            return clock, order, first
        order, clock = order.copy(), self._moved if len(rows) < len(c) else clock.copy()
        for i in np.flatnonzero(away):
            mine = order[first[i] : first[i + 1]]
            side = c.sides[rows[i], c.sender[rows[i]]]
            sent = self.packets["direction"][mine] == c.sender[rows[i]]
            there = c.clock[mine] - away[i] // 2
            if stamp_tick_us(side[None])[0] == 1000 and side["ts_last"] >= side["ts_first"] and side["ts_count"]:
                tick = (side["ts_phase_us"] + self.packets["tsval"][mine].astype(np.int64) * 1000) * 1000 - away[i] // 2
                stamped = self.packets["options"][mine] & OPT_TIMESTAMPS != 0  # a RST is not (RFC 7323, 3.2)
                there = np.where(stamped, np.minimum(there, tick + 500_000), there)
            clock[mine] = np.where(sent, there, c.clock[mine] + away[i] - away[i] // 2)
            order[first[i] : first[i + 1]] = mine[np.argsort(clock[mine], kind="stable")]
        return clock, order, first


def stamp_tick_us(side: Values) -> Values:
    """Return the period of the sender's time-stamp clock, us: 1 kHz unless the capture clearly shows another."""
    span = side["ts_last_ns"] - side["ts_first_ns"]
    ticks = (side["ts_last"] - side["ts_first"]) & 0xFFFFFFFF
    period = np.where((span > 2e9) & (ticks > 0), span / 1000 / np.maximum(ticks, 1), 1000)
    known = np.array(STAMP_TICKS_US)
    nearest = known[np.argmin(np.abs(np.log(np.maximum(period, 1e-3)[:, None] / known)), axis=1)]
    return np.where(np.abs(period / nearest - 1) < 0.05, nearest, 1000)
