"""Table of connections: endpoints, bytes, rates, retransmissions and RTT, in one linear pass over the packets.

The same pass (`scan`) collects the inputs of the sender's re-enactment: segment size, phase of the time-stamp
clock, place of capture. A capture may come in parts: `of_file` processes one larger than memory, decoding the next
part in a second thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace import schema
from cctrace.errors import ArgumentError
from cctrace.flows import scan, vantage
from cctrace.flows.seqspace import group
from cctrace.flows.state import OPTION_BYTES, SAMPLE_BITS, SIDE
from cctrace.io import CAPTURES, MAY_HOLD_PACKETS, format_of, read_file, stream
from cctrace.io.captures.packets import Packets
from cctrace.io.layout import DETAILS
from cctrace.lang.machine import Machine
from cctrace.lang.threads import ahead_of
from cctrace.tcp.wire import MSS_BYTES
from cctrace.units import format_counted, format_time

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.columns import Bools, Columns, Ints, Values

CHUNK = 1 << 15  # packets per part of a file, at least: few enough to stay in the cache
_AHEAD = 3  # parts that wait; one more is being processed, and one is ready to be handed over
COLUMNS = {c.name: c.dtype for c in schema.PACKETS if c.name not in DETAILS}  # those that the pass reads
MIN_MSS = 48  # lower MSS options count as this [Linux618] tcp_min_snd_mss
MAX_SEGMENTS = 1024  # of a super-packet: BIG TCP's 512 KiB in segments of the 536 that any path carries [RFC 9293]
COMMON_MSS = (1448, 1460, 1428, 1440, 1388, 1400, 1348, 1360, 1220, 1208, 8948, 8960, 8928, 8940, 536, 524, 1380, 1368)
walk, put_by_side = Machine(scan.walk), Machine(scan.put_by_side)


def retransmitted_share(flows: Any) -> Any:
    """Return retransmitted over sent segments of a flow, or of each in a table: NaN where none was sent.

    >>> float(retransmitted_share({"segments_sent": 200, "retransmitted_segments": 3}))
    0.015
    """
    sent = np.asarray(flows["segments_sent"], np.float64)
    return np.asarray(flows["retransmitted_segments"], np.float64) / np.where(sent > 0, sent, np.nan)


class Connections:
    """Results of the pass for every connection.

    `parts` returns an iterable of `Packets`: the parts of a capture in order, each with the connections seen so far. It
    is called again if the segment size turns out to differ from the assumed one. `packets` is the last part. Per
    connection: `sides`, `state.SIDE` records of both directions; `sender`, the direction (0 or 1) that carried more
    distinct payload; `mss` and `mss_known`, payload of the sender's full segments, and whether that is certain; `rtt`,
    minimum, median and 95th percentile of the sender's RTT samples, us (-1 without one), and their number.
    """

    def __init__(self, parts: Callable[[], Iterable[Packets]]) -> None:
        self._scan(parts(), None)
        distinct = self.sides["distinct_bytes"]
        self.sender = (distinct[:, 1] > distinct[:, 0]).astype(np.int64)
        largest, guess, option = self._mine("largest"), self.sides["mss"][:, 0], _mss_option(self.packets.connections)
        stamped = (self.sides["opening"][:, 0] > 0) | (self._mine("ts_count") > 0)  # a SYN's options may be cut
        option = np.where(option > 0, option - OPTION_BYTES * stamped, -1)
        values = (column.tolist() for column in (largest, self._mine("gcd"), option))
        sizes = [segment_size(*each) for each in zip(*values, strict=True)]
        self.mss = np.array([s[0] for s in sizes], np.int64).reshape(len(sizes))
        self.mss_known = np.array([s[1] for s in sizes], bool).reshape(len(sizes))
        if np.any((self.mss != guess) & (largest > np.minimum(self.mss, guess))):
            self._scan(parts(), self.mss)
        self.rtt = _quantiles(self._samples, 2 * np.arange(len(self)) + self.sender)
        del self._samples

    def _scan(self, parts: Iterable[Packets], mss: Ints | None) -> None:
        """Process all parts; `mss` None: guessed from what is known at the start of a connection."""
        # One direction after the other: memory that a flood of SYNs never uses is then not allocated.
        sides, pool, used = np.zeros((2, 64), SIDE), np.empty((1024, 4), np.int64), 0
        count, now, self._samples, table = 0, np.iinfo(np.int64).min, [], None
        for packets in parts:
            self.packets, count = packets, len(packets.connections["sport"])
            if count > sides.shape[1]:
                longer = np.zeros((2, max(count, 2 * sides.shape[1])), SIDE)
                longer[:, : sides.shape[1]] = sides
                sides = longer
            columns = tuple(_as(packets[name], kind) for name, kind in COLUMNS.items())
            columns += (_as(packets.sacks["right"], "u4"),)
            if packets.connections is not table:
                table = packets.connections
                limit = _mss_option(table) if mss is None else mss
            found, row = np.empty(len(packets), np.int64), 0
            while row < len(packets):
                row, used, n, now = walk(columns, row, limit, mss is not None, sides, pool, used, found, now)
                self._samples.append(found[:n].copy())
                if row < len(packets):
                    pool = _longer(pool, 2 * len(pool))
        self.sides = sides[:, :count].T

    def __len__(self) -> int:
        return len(self.sender)

    def _mine(self, name: str, other: bool = False) -> Values:
        """Return a field of the senders' sides, or of the `other` ones."""
        return np.where(self.sender == other, self.sides[name][:, 0], self.sides[name][:, 1])

    @property
    def begin_ns(self) -> Ints:
        """Time of each connection's first packet."""
        return self.sides["begin_ns"][:, 0]

    @property
    def clock(self) -> Ints:
        """The times of the last part, made non-decreasing in file order, ns."""
        return self.packets["time_ns"] if self._stepped is None else self._stepped

    @functools.cached_property
    def _stepped(self) -> Ints | None:
        time_ns = self.packets["time_ns"]
        return None if (time_ns[1:] >= time_ns[:-1]).all() else np.maximum.accumulate(time_ns)

    @functools.cached_property
    def _groups(self) -> tuple[Ints, Ints]:
        return group(self.packets["conn"], len(self))

    @property
    def order(self) -> Ints:
        """Rows of the last part by connection, see `seqspace.group`; those of a single one need not be kept."""
        return np.arange(len(self.packets)) if len(self) == 1 else self._groups[0]

    @property
    def first(self) -> Ints:
        """Where in `order` each connection begins, and the last ends."""
        return np.array([0, len(self.packets)]) if len(self) == 1 else self._groups[1]

    def opening(self, connections: Values) -> Ints:
        """Return the rows of the last part that are the first packets of connections, which have some."""
        first = self.first[connections]
        return first if len(self) == 1 else self.order[first]

    def rows_of(self, index: int) -> Ints:
        """Return the rows of the last part that are a connection's packets, in file order."""
        return self.order[self.first[index] : self.first[index + 1]]

    @functools.cached_property
    def vantage(self) -> tuple[Ints, Ints, Ints]:
        """Where each connection was captured: (place, confidence, time to the sender and back), see `vantage.judge`."""
        mine, echo = self._mine, self._mine("echo_ns")
        answered = np.where(mine("syn_ack") > 0, mine("syn_ns"), mine("opened_ns"))
        single = (mine("syn_count") == 1) & (mine("syn_count", other=True) == 1)
        single &= answered > 0
        handshake = np.where(single, np.maximum(answered - mine("syn_ns", other=True), 1), 0)  # 0: unknown
        waiting = np.where((echo == 0) & (mine("timed") > 0), mine("last_ns") - mine("timed_ns"), 0)
        far = np.where(self.rtt[:, 3] > 0, np.maximum(self.rtt[:, 0], 1), 0) * 1000
        place, confidence, away = vantage.judge(np.where(echo > 0, echo, handshake), waiting, far)
        data = mine("echo_data_ns")  # a segment of data takes longer through the bottleneck than the handshake's ACK
        return place, confidence, np.where((data > away) & (data < 2 * away), data, away)

    @property
    def sender_side_ns(self) -> Ints:
        """The time from the capture point to the sender and back, ns; 0 where the capture is the sender's own."""
        return self.vantage[2]

    @functools.cached_property
    def wscale_known(self) -> Bools:
        """Whether both SYNs were captured, each with its window scale or with all of its options."""
        offered = np.stack([self.packets.connections[f"wscale_{side}"] for side in "ab"], axis=1)
        return np.all((self.sides["syn"] > 0) & ((offered >= 0) | (self.sides["syn_whole"] > 0)), axis=1)

    def warnings(self, part: slice) -> list[list[str]]:
        """Return the caveats of connections' numbers, a list of sentences for each."""
        rows, sender = np.arange(len(self))[part], self.sender[part]
        mine, other = self.sides[rows, sender], self.sides[rows, 1 - sender]
        columns = [mine[name] for name in ("distinct_bytes", "syn", "uncaptured_bytes", "out_of_order", "cut")]
        columns += [mine["copies"] + other["copies"], other["packets"], self.mss[part], self.mss_known[part]]
        columns += [self.rtt[part, 3], *(column[part] for column in self.vantage)]
        return [_warnings(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def columns(self, part: slice = slice(None)) -> dict[str, Any]:
        """Return the table, or some rows of it, as a dict of lists and arrays; RTTs in us, -1 without a sample."""
        table, sides, flip = self.packets.connections, self.sides[part], self.sender[part] == 1
        mine = sides[np.arange(len(sides)), self.sender[part]]
        duration = (sides["last_ns"].max(axis=1, initial=0) - self.begin_ns[part]) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            goodput = np.where(duration > 0, _acknowledged(mine) * 8 / duration, np.nan)
        return {
            "src": np.where(flip, table["dst"][part], table["src"][part]),
            "sport": np.where(flip, table["dport"][part], table["sport"][part]),
            "dst": np.where(flip, table["src"][part], table["dst"][part]),
            "dport": np.where(flip, table["sport"][part], table["dport"][part]),
            "packets": sides["packets"].sum(axis=1),
            "bytes_sent": mine["distinct_bytes"],
            "segments_sent": mine["sent"],
            "retransmitted_segments": mine["retransmitted"] + mine["refilled"],
            "goodput_bps": goodput,
            **dict(zip(_RTTS, self._rtt_at_sender(part).T, strict=True)),
            "start_ns": self.begin_ns[part],
            "duration_s": duration,
            "warnings": self.warnings(part),
        }

    def _rtt_at_sender(self, part: slice) -> Ints:
        """Return minimum, median and 95th percentile of the RTT from the sender, us, -1 without a sample."""
        rtt, away_us = self.rtt[part, :3], self.sender_side_ns[part, None] // 1000
        return np.where(rtt >= 0, rtt + away_us, -1)

    def frame(self) -> pd.DataFrame:
        """Return the table as a DataFrame; an RTT without a sample is NA."""
        import pandas as pd

        columns = self.columns()
        for name in _RTTS:
            columns[name] = pd.arrays.IntegerArray(np.maximum(columns[name], 0), columns[name] < 0)
        return pd.DataFrame(columns)

    def rows(self, part: slice = slice(None)) -> list[dict[str, Any]]:
        """Return the table, or some rows, as dicts of Python numbers and texts; an RTT without a sample is None."""
        columns = {
            name: column if isinstance(column, list) else column.tolist() for name, column in self.columns(part).items()
        }
        for name in _RTTS:
            columns[name] = [None if value < 0 else value for value in columns[name]]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def each_row(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of `rows` without holding them all at once."""
        for start in range(0, len(self), _BLOCK):
            yield from self.rows(slice(start, start + _BLOCK))


_BLOCK = 10_000  # rows made at a time: a flood of SYNs has millions
_RTTS = ("rtt_min_us", "rtt_median_us", "rtt_p95_us")


def _acknowledged(side: Values) -> Ints:
    """Return how many bytes of each side were acknowledged while the capture lasted.

    Without ACKs that is all it sent; so it is after a beginning in the middle of a connection, where as much was in
    flight, unseen, as was at the end.
    """
    sent, outstanding = side["distinct_bytes"], np.maximum(side["snd_nxt"] - side["max_ack"], 0)
    return np.where((side["has_ack"] > 0) & (side["syn"] > 0), np.maximum(sent - outstanding, 0), sent)


def _warnings(
    distinct_bytes: int,
    syn: int,
    uncaptured_bytes: int,
    out_of_order: int,
    cut: int,
    copies: int,
    packets_back: int,
    mss: int,
    mss_known: bool,
    samples: int,
    place: int,
    confidence: int,
    away_ns: int,
) -> list[str]:
    """Return the warnings of a connection; the names are those of `state.SIDE`, `Connections` and `vantage.judge`."""
    found = []
    if distinct_bytes == 0:
        return ["no payload in either direction"]
    if not syn:
        found.append("capture starts after the connection did")
    if packets_back == 0:
        found.append("the receiver's direction is missing")
    if place == vantage.UNKNOWN and samples:
        found.append(
            "where it was captured cannot be determined (no handshake, no time stamp came back): RTTs are from there"
        )
    elif place in (vantage.RECEIVER, vantage.MIDDLE):
        at = "at the receiver" if place == vantage.RECEIVER else "on the way"
        least = "at least " if confidence == vantage.LIKELY else ""
        found.append(
            f"captured {at}, {least}{format_time(away_ns)} (there and back) from the sender: times are estimates"
        )
    if uncaptured_bytes:
        data = format_counted(int(uncaptured_bytes), "byte was", "bytes were")
        found.append(f"{data} acknowledged that the capture does not show")
    packets = "packet was captured", "packets were captured"
    if out_of_order:
        found.append(f"{format_counted(int(out_of_order), *packets)} out of sequence order")
    if copies:
        found.append(f"{format_counted(int(copies), *packets)} twice, and count{'s' if copies == 1 else ''} once")
    if cut:
        found.append(f"{cut} gaps more than can be kept at a time: some bytes are counted twice")
    if not mss_known:
        found.append(f"segment size guessed: {mss}")
    return found


def _mss_option(table: Columns) -> Ints:
    """Return the smaller of the two MSS options, at least what a sender accepts; -1 if one is unknown."""
    smaller = np.minimum(table["mss_a"], table["mss_b"]).astype(np.int64)
    return np.where(smaller > 0, np.maximum(smaller, MIN_MSS), -1)


def _as(column: Values, dtype: Any) -> Values:
    """Return a column in the type of compiled code; without a copy if it has that already."""
    return np.ascontiguousarray(column, dtype)


def _longer(array: Values, rows: int) -> Values:
    """Return an array of so many rows that begins with the given ones, then zeros (which cost nothing until used)."""
    longer = np.zeros((rows, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


@functools.lru_cache(maxsize=1 << 16)
def segment_size(largest: int, gcd: int, syn_mss: int) -> tuple[int, bool]:
    """Return the payload of a full segment and whether that is certain.

    `largest`: largest payload of a captured packet, bytes. `gcd`: greatest common divisor of the payloads of packets
    without PSH, and of super-packets; 0 unknown. `syn_mss`: smaller of the two MSS options less what the TCP options of
    every segment take; -1 without a SYN.
    """
    least = -(-largest // MAX_SEGMENTS)
    if 0 < syn_mss < least:  # the option is not the sender's, or the length not a packet's
        return least, False
    if syn_mss > 0:
        # The path may have allowed less than the MSS: then packets are never as large.
        return (largest, True) if 0 < largest < syn_mss and gcd == largest else (syn_mss, True)
    if largest <= 0:
        return MSS_BYTES, False
    if largest <= 1460 or gcd == largest:
        return largest, largest in COMMON_MSS
    for mss in COMMON_MSS:
        if gcd and gcd % mss == 0:
            return mss, True
    return MSS_BYTES, False


def _quantiles(samples: list[Ints], sides: Values) -> Ints:
    """Return minimum, median and 95th percentile (nearest rank) of each side's samples, us, -1 without; how many."""
    counts = np.zeros(2 * len(sides), np.int64)
    for part in samples:
        of_part = np.bincount(part >> SAMPLE_BITS)
        counts[: len(of_part)] += of_part
    ends = np.cumsum(counts)
    ordered, place = np.empty(counts.sum(), np.int64), ends - counts
    while samples:
        put_by_side(samples.pop(0), place, ordered)
    count = counts[sides]
    first = ends[sides] - count
    places = np.stack([first, first + (count - 1) // 2, first + (95 * count + 99) // 100 - 1])
    found = count > 0
    if _WORTH_A_CALL * np.count_nonzero(found) < len(ordered):
        for begin, end, ranks in zip(first[found], ends[sides][found], (places - first).T[found], strict=True):
            ordered[begin:end].partition(ranks)
    else:
        ordered.sort()
    values = np.full(places.shape, -1, np.int64)
    values[:, found] = ordered[places[:, found]] & ((1 << SAMPLE_BITS) - 1)
    return np.column_stack([*values, count])


_WORTH_A_CALL = 500  # samples of a side, from which on to select three of them takes less than to sort those of all


def of_file(source: Any, **options: Any) -> Connections:
    """Return the `Connections` of a capture file, which may be larger than memory; uses two cores.

    `options`: those of `read_file`. Raises `FormatError` if the source cannot be read. Raises `ArgumentError` if it
    holds counters or a link trace, not packets.
    """
    refused = ArgumentError(f"{source}: holds no packets; of counters and logs, see `cctrace analyze`")
    if isinstance(source, (str, os.PathLike)) and os.path.isfile(source):
        kind = options.get("format") or format_of(source, options.get("limit"))
        if kind in CAPTURES:
            return Connections(
                lambda: ahead_of(stream(source, CHUNK, **options, lasting=_AHEAD + 2, brief=True), _AHEAD)
            )
        if kind not in MAY_HOLD_PACKETS:  # before hundreds of megabytes of counters are read in vain
            raise refused
    data = read_file(source, **options)  # a source that may not be readable twice
    if not isinstance(data, Packets):
        raise refused
    return Connections(lambda: [data])
