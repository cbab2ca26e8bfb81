"""One row per connection: who sent what, how fast, how often again, and the RTT; one linear pass over the packets.

The same pass (`scan`) collects what the re-enactment of the sender needs to know beforehand: segment size, the phase of
the time-stamp clock, where the capture was taken. A capture may come in parts: `of_file` sums up one that is larger
than memory while the next part is decoded in a second thread.
"""

import functools
import os
import queue
import threading

import numpy as np

from cctrace.errors import ArgumentError
from cctrace.flows.scan import SIDE, quantiles, scan
from cctrace.flows.seqspace import group, segment_size
from cctrace.flows.state import OPT_TIMESTAMPS

CHUNK = 1 << 17  # packets per part of a file: few enough to stay in the cache


def _columns(packets, clock):
    names = ("direction", "flags", "seq", "ack", "payload", "tsval", "tsecr", "options", "sack_row", "sack_count")
    return (clock, *(packets[name] for name in names), packets.sacks["right"])


class Connections:
    """What one pass tells about every connection.

    Parameters
    ----------
    parts : callable
        Returns an iterable of `Packets`: the parts of a capture in order, each with the connections seen so far. It is
        called again if the segments turn out to be of another size than thought.

    Attributes
    ----------
    packets : Packets
        The last part.
    order, first : ndarray of int64
        Rows of the last part grouped by connection, see `seqspace.group`.
    clock : ndarray of int64
        The times of the last part, made non-decreasing in file order, ns.
    sides : structured ndarray, shape (connections, 2)
        `SIDE` records.
    begin_ns : ndarray of int64, shape (connections,)
        Time of each connection's first packet.
    sender : ndarray of int64, shape (connections,)
        Direction (0 or 1) that carried more distinct payload.
    mss, mss_known : ndarray, shape (connections,)
        Payload of the sender's full segments, and whether that is certain.
    """

    def __init__(self, parts):
        guess = self._scan_all(parts(), None)
        rows, table = np.arange(len(guess)), self.packets.connections
        distinct = self.sides["distinct_bytes"]
        self.sender = (distinct[:, 1] > distinct[:, 0]).astype(np.int64)
        mine = self.sides[rows, self.sender]
        option = _syn_mss(table, self._opening)
        values = (column.tolist() for column in (mine["largest"], mine["gcd"], option))
        sizes = [segment_size(*each) for each in zip(*values, strict=True)]
        self.mss = np.array([s[0] for s in sizes], np.int64).reshape(len(rows))
        self.mss_known = np.array([s[1] for s in sizes], bool).reshape(len(rows))
        if np.any((self.mss != guess) & (mine["largest"] > np.minimum(self.mss, guess))):
            self._scan_all(parts(), self.mss)
        self.segments = self._segments[rows, self.sender]
        samples, owner = (np.concatenate(arrays) for arrays in zip(*self._samples, strict=True))
        self.rtt = quantiles(samples, *group(owner, 2 * len(rows)), self.sender)
        del self._segments, self._samples, self._opening

    def _scan_all(self, parts, mss):
        """Go through all parts; `mss` None: guessed from what is known when a connection begins. Returns it."""
        self.sides, self._segments = np.zeros((0, 2), SIDE), np.zeros((0, 2, 2), np.int64)
        self.begin_ns, self._opening, used = (np.zeros(0, np.int64) for _ in range(3))
        kept, gaps, last_ns, self._samples = np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64), None, []
        for packets in parts:
            known, count = len(self.sides), len(packets.connections["sport"])
            self.packets, self.clock = packets, packets["time_ns"]
            if len(packets):
                self.clock = np.maximum.accumulate(self.clock)
                self.clock = self.clock if last_ns is None else np.maximum(self.clock, last_ns)
                last_ns = self.clock[-1]
            self.order, self.first = group(packets["conn"], count)
            new = self.order[self.first[known:-1]]
            self.begin_ns = np.concatenate([self.begin_ns, self.clock[new]])
            self._opening = np.concatenate([self._opening, packets["options"][new].astype(np.int64)])
            option = _syn_mss(packets.connections, self._opening)[known:]
            guess = np.where(option > 0, option, 1460) if mss is None else mss[known:count]
            used = np.concatenate([used, guess])
            self.sides = np.concatenate([self.sides, np.zeros((count - known, 2), SIDE)])
            self._segments = np.concatenate([self._segments, np.zeros((count - known, 2, 2), np.int64)])
            columns = _columns(packets, self.clock)
            kept, gaps, *samples = scan(columns, self.order, self.first, used, self.sides, self._segments, kept, gaps)
            self._samples.append(samples)
        return used

    def __len__(self):
        return len(self.sender)

    @functools.cached_property
    def sender_side_ns(self):
        """The time from the capture point to the sender and back, ns; 0 where the capture is the sender's own.

        It is the shortest time in which the sender echoed a time stamp that had passed the capture; without them, that
        in which it answered during the handshake. Below 300 us, or a twentieth of the way to the receiver and back, the
        sender's own reaction cannot be told from a path, unless the receiver reacts several times faster.
        """
        rows = np.arange(len(self))
        mine, other = self.sides[rows, self.sender], self.sides[rows, 1 - self.sender]
        answered = np.where(mine["syn_ack"] > 0, mine["syn_ns"], mine["opened_ns"])
        single = (mine["syn_count"] == 1) & (other["syn_count"] == 1)
        handshake = np.where(single, answered - other["syn_ns"], 0)
        there = np.where(mine["echo_ns"] > 0, mine["echo_ns"], np.maximum(handshake, 0))
        far = np.where(self.rtt[:, 3] > 0, np.maximum(self.rtt[:, 0], 1), 0) * 1000
        distant = (there > 300_000) & (there > far // 20)
        return np.where(distant | ((there > 5_000) & (there > 4 * far) & (far > 0)), there, 0)

    def warnings(self, i):
        """Return what a reader of a connection's numbers should know, a list of sentences."""
        mine, other = self.sides[i, self.sender[i]], self.sides[i, 1 - self.sender[i]]
        found = []
        if mine["distinct_bytes"] == 0:
            return ["no payload in either direction"]
        if not mine["syn"]:
            found.append("capture starts after the connection did")
        if other["packets"] == 0:
            found.append("the receiver's direction is missing")
        if self.sender_side_ns[i]:
            away = self.sender_side_ns[i] // 1000
            found.append(f"not captured at the sender but {away} us from it, there and back: times are estimates")
        if mine["unseen_bytes"]:
            found.append(f"{mine['unseen_bytes']} bytes were acknowledged that the capture does not show")
        if mine["out_of_order"]:
            found.append(f"{mine['out_of_order']} packets were captured out of sequence order")
        if mine["cut"]:
            found.append(f"{mine['cut']} gaps too many at a time: some bytes are counted twice")
        if not self.mss_known[i]:
            found.append(f"segment size guessed: {self.mss[i]}")
        return found

    def columns(self):
        """Return the table as a dict of lists and arrays; RTTs in us, -1 without a sample."""
        table, rows = self.packets.connections, np.arange(len(self))
        mine = self.sides[rows, self.sender]
        flip = self.sender == 1
        duration = (self.sides["last_ns"].max(axis=1, initial=0) - self.begin_ns) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            goodput = np.where(duration > 0, mine["distinct_bytes"] * 8 / duration, np.nan)
        return {
            "src": np.where(flip, table["dst"], table["src"]),
            "sport": np.where(flip, table["dport"], table["sport"]),
            "dst": np.where(flip, table["src"], table["dst"]),
            "dport": np.where(flip, table["sport"], table["dport"]),
            "packets": self.sides["packets"].sum(axis=1),
            "bytes_sent": mine["distinct_bytes"],
            "segments_sent": self.segments[:, 0],
            "retransmitted_segments": self.segments[:, 1],
            "goodput_bps": goodput,
            "rtt_min_us": self.rtt[:, 0],
            "rtt_median_us": self.rtt[:, 1],
            "rtt_p95_us": self.rtt[:, 2],
            "start_ns": self.begin_ns,
            "duration_s": duration,
            "warnings": [self.warnings(i) for i in range(len(self))],
        }

    def frame(self):
        """Return the table as a DataFrame; an RTT without a sample is NA."""
        import pandas as pd

        columns = self.columns()
        for name in _RTTS:
            columns[name] = pd.arrays.IntegerArray(np.maximum(columns[name], 0), columns[name] < 0)
        return pd.DataFrame(columns)

    def rows(self):
        """Return the table as a list of dicts of Python numbers and texts; an RTT without a sample is None."""
        columns = {n: column if isinstance(column, list) else column.tolist() for n, column in self.columns().items()}
        for name in _RTTS:
            columns[name] = [None if value < 0 else value for value in columns[name]]
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


_RTTS = ("rtt_min_us", "rtt_median_us", "rtt_p95_us")


def _syn_mss(table, opening):
    """Return the smaller MSS option less what time stamps (on the connection's first packet) take of it; -1 unknown."""
    mss = np.minimum(table["mss_a"], table["mss_b"]).astype(np.int64)
    return np.where(mss > 0, mss - 12 * (opening & OPT_TIMESTAMPS), -1)


def of_file(source, **options):
    """Return the `Connections` of a capture file, which may be larger than memory; uses two cores.

    Parameters
    ----------
    source : as for `cctrace.io.read_file`
    options
        Those of `read_file`.

    Raises
    ------
    FormatError
        If the source cannot be read.
    ArgumentError
        If it holds counters or a link trace, not packets.
    """
    from cctrace.io import CAPTURES, open_source, read_file, sniff, stream
    from cctrace.io.packets import Packets

    if isinstance(source, (str, os.PathLike)) and os.path.isfile(source):
        with open_source(source, options.get("limit")) as opened:
            whole = sniff(opened) not in CAPTURES
        if not whole:
            return Connections(lambda: _ahead(stream(source, CHUNK, **options)))
    data = read_file(source, **options)  # what might not be there to be read again
    if not isinstance(data, Packets):
        raise ArgumentError(f"{source}: holds counters, not packets")
    return Connections(lambda: [data])


def _ahead(parts, depth=3):
    """Yield what `parts` yields, produced in a second thread that is at most `depth` parts ahead."""
    line: queue.Queue = queue.Queue(depth)

    def produce():
        try:
            for part in parts:
                line.put((part, None))
            line.put((None, None))
        except BaseException as error:  # handed over to the thread that asks
            line.put((None, error))

    threading.Thread(target=produce, daemon=True).start()
    while True:
        part, error = line.get()
        if error is not None:
            raise error
        if part is None:
            return
        yield part
