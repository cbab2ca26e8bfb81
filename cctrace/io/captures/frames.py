"""From the frames of a capture to `Packets`: memory for the rows, counters of what was skipped, the connection table.

A file format fills `Frames` chunk by chunk, `Decoder.feed` lets `decode.py` turn them into rows, `Decoder.take` returns
the rows. Connections continue from chunk to chunk.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, deque, namedtuple
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.arguments import as_list, check_choice
from cctrace.columns import Ints, Values, cut, room
from cctrace.errors import Truncated, warn_caller
from cctrace.io import layout
from cctrace.io.captures import decode
from cctrace.io.captures.packets import FAR_BACK_NS, Packets, back_steps
from cctrace.lang.machine import Machine, Prepared
from cctrace.units import format_counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cctrace.io.captures.chunks import Chunks, Window
    from cctrace.io.source import Source

TUNNELS = {"ipip": 1, "gre": 2, "vxlan": 4, "geneve": 8}  # bits of the argument `tunnels` of `decode_frames`
decode_frames, rehash, find_all = (Machine(f) for f in (decode.decode_frames, decode.rehash, decode.find_all))
_SECRET = np.frombuffer(os.urandom(16), np.int64) | 1  # keys the hash table of connections
_FEW = 5  # warnings of a kind that a file may give cause for without end
_named: Any = namedtuple  # the fields come from the schema, which a type checker cannot follow
_Rows: Any = _named("_Rows", [c.name for c in schema.PACKETS])
_Blocks: Any = _named("_Blocks", [c.name for c in schema.SACKS])


class Rows(_Rows):
    """The columns of `schema.PACKETS`."""

    @cached_property
    def prepared(self) -> Prepared:
        """The columns as an argument of compiled code: a plain tuple, which does not keep them alive in a cycle."""
        return Prepared(tuple(self))


class Blocks(_Blocks):
    """The columns of `schema.SACKS`."""

    prepared = Rows.prepared


class Frames:
    """Positions of the frames of the current chunk: arrays that a file format fills and `decode_frames` reads.

    `share`: approximate share of the file read including these frames, 0 where it is unknown.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.share = 0.0
        self.offset, self.caplen, self.wirelen, self.time_ns = (np.empty(capacity, np.int64) for _ in range(4))
        self.link = np.empty(capacity, np.int32)


FrameIterator = Iterator[tuple[NDArray[np.uint8], Frames, int]]  # buffer, positions of its frames, their number


class Decoder:
    """Collects frames into `Packets`.

    `name`: name of the file, for messages. `decapsulate`: tunnels to look into: any of "ipip", "gre", "vxlan",
    "geneve", or "all". `part`: about how many rows are taken at a time; 0: all rows of a file. `lasting`: how many
    parts stay valid before their memory is reused, which saves mapping and clearing pages; 0: all of them. `brief`:
    leaves out the columns `layout.DETAILS`.
    """

    def __init__(
        self, name: str, decapsulate: str | Sequence[str] = (), part: int = 0, lasting: int = 0, brief: bool = False
    ) -> None:
        self.name, self._part, self._brief = name, part, brief
        self._wanted = [c.name for c in schema.PACKETS if not (brief and c.name in layout.DETAILS)]
        self._lent: deque[tuple[Any, Any]] | None = deque(maxlen=lasting) if lasting else None
        self.warnings: list[str] = []
        self._undecoded = set[tuple[str, int]]()  # link types by source
        self._kinds = Counter[tuple[str, str]]()  # warnings by source and kind
        self._damage: list[str] = []
        self._tunnels = _tunnel_bits(decapsulate)
        self._rows, self._sacks = self._none()
        self._conns = np.empty((64, layout.CONN_FIELDS), np.int64)
        self._table = np.full(256, -1, np.int64)
        self._datagrams = np.full((layout.DATAGRAMS, layout.DATAGRAM_FIELDS), -1, np.int64)
        self._datagrams[0] = 0
        self._n_rows = self._n_sacks = self._n_conns = 0
        # Addresses as text, of the connections returned so far.
        self._src, self._dst = np.empty(0, object), np.empty(0, object)
        self._known, self._connections = b"", dict[str, Values]()
        self._counters = np.zeros(len(layout.COUNTERS), np.int64)

    @property
    def counters(self) -> dict[str, int]:
        """The counters so far, by name."""
        return {name: int(v) for name, v in zip(layout.COUNTERS, self._counters, strict=True) if name != "last_ns"}

    def feed(self, data: NDArray[np.uint8], frames: Frames, count: int) -> None:
        """Decode `count` frames of the buffer `data`."""
        self.make_room(count, frames.share)
        given = (frames.offset, frames.caplen, frames.wirelen, frames.time_ns, frames.link)
        f = 0
        while (f := self.decode(decode_frames, data, *given, f, count)) < count:
            self.more_connections()

    def decode(self, decode: Machine, *args: Any) -> int:
        """Call a decoder with `args` and the arguments that all decoders share; return the first of its results."""
        rows, sacks, keep = self._rows.prepared, self._sacks.prepared, 0 if self._brief else -1
        first, self._n_rows, self._n_sacks, self._n_conns = decode(
            *args, self._tunnels, rows, self._n_rows, keep, sacks, self._n_sacks, self._conns, self._n_conns,
            self._table, _SECRET, self._datagrams, self._counters,
        )  # fmt: skip
        return first

    def make_room(self, frames: int, share: float) -> None:
        """Provide rows for so many more frames; `share`: approximate share of the file read up to them, or 0."""
        if self._n_rows + frames > len(self._rows.time_ns):
            first = 0 if self._n_rows or self._part else _FIRST_ROWS
            share = 0.0 if first or self._part else share
            more = max(first, frames, min(frames + self._part, _TRUSTED))
            longer = _longer([getattr(self._rows, name) for name in self._wanted], self._n_rows, more, share)
            self._rows = self._rows._replace(**dict(zip(self._wanted, longer, strict=True)))
        self._make_room_for_sacks(frames)

    def _make_room_for_sacks(self, frames: int) -> None:
        if self._n_sacks + 4 * frames > len(self._sacks.left):
            self._sacks = Blocks(*_longer(self._sacks, self._n_sacks, 4 * frames))

    def more_connections(self) -> None:
        """Provide memory for twice as many connections."""
        (self._conns,) = _longer([self._conns], self._n_conns, self._n_conns)
        self._enter_connections()

    def _enter_connections(self) -> None:
        self._table = np.full(4 * len(self._conns), -1, np.int64)  # a power of 2, as a slot is found by a mask
        rehash(self._conns, self._n_conns, self._table, _SECRET)

    def add_connections(self, others: Ints) -> None:
        """Add connections, which are not those of earlier ones' endpoints any more."""
        used, size = self._n_conns, len(self._conns)
        self._n_conns += len(others)
        while size < self._n_conns:
            size *= 2
        conns = np.empty((size, layout.CONN_FIELDS), np.int64)
        conns[:used], conns[used : self._n_conns] = self._conns[:used], others
        self._conns = conns
        self._enter_connections()

    def find(self, others: Ints) -> tuple[Ints, Ints]:
        """Return which connection has the endpoints of each of the others, or -1, and 1 where the other way round."""
        found = np.empty(len(others), np.int64), np.empty(len(others), np.int64)
        find_all(self._conns, self._table, _SECRET, others, len(others), *found)
        return found

    def take(self) -> Packets:
        """Return the packets decoded since the last call; connection numbers continue."""
        rows, sacks = self._taken()
        self._n_rows = self._n_sacks = 0
        self._datagrams[:, layout.DATAGRAM_ROW] = -1  # rows that were returned do not change any more
        counters = self.counters
        warnings_so_far = [*self.warnings, *(f"{self.name}: {text}" for text in describe(counters))]
        return Packets(
            {name: getattr(rows, name) for name in self._wanted}, sacks._asdict(), self._connection_table(),
            counters, warnings_so_far, self.name,
        )  # fmt: skip

    def _none(self) -> tuple[Any, Any]:
        """Return no rows and no blocks; columns that are not wanted have the one element that takes their values."""
        rows = Rows(*(np.empty(int(c.name not in self._wanted), c.dtype) for c in schema.PACKETS))
        return rows, Blocks(*(np.empty(0, c.dtype) for c in schema.SACKS))

    def _taken(self) -> tuple[Any, Any]:
        """Return the rows and blocks decoded so far, and provide others for the next ones."""
        rows, sacks = self._rows, self._sacks
        self._rows, self._sacks = self._none()
        if self._lent is None:
            rows = Rows(*(cut(array, self._n_rows) for array in rows))
            return rows, Blocks(*(cut(array, self._n_sacks) for array in sacks))
        if len(self._lent) == self._lent.maxlen:
            self._rows, self._sacks = self._lent[0]
        self._lent.append((rows, sacks))
        return Rows(*(array[: self._n_rows] for array in rows)), Blocks(*(array[: self._n_sacks] for array in sacks))

    @property
    def is_whole(self) -> bool:
        """Whether all rows are those of one file, to be taken at once and with all columns."""
        return not (self._part or self._brief or self._n_rows)

    @property
    def room(self) -> int:
        """For how many rows there is memory."""
        return len(self._rows.time_ns)

    @property
    def rows(self) -> int:
        """Packets decoded since the last `take`."""
        return self._n_rows

    @property
    def connections(self) -> int:
        """Connections seen so far."""
        return self._n_conns

    def check_link(self, source: Source, link: int) -> None:
        """Add a warning if frames of a link type cannot be decoded."""
        if link not in layout.LINK_TYPES and (source.name, link) not in self._undecoded:
            self._undecoded.add((source.name, link))
            names = ", ".join(sorted({f"{name} ({number})" for number, name in layout.LINK_TYPES.items()}))
            called = f" ({layout.UNDECODED[link]})" if link in layout.UNDECODED else ""
            text = f"frames of link type {link}{called} are skipped; decoded are {names}"
            self.warn_few(source, text, "link types whose frames are skipped")

    def add_note(self, text: str) -> None:
        """Add a warning about all that was read; none if it is empty."""
        if text:
            self.warnings.append(f"{self.name}: {text}")

    def warn(self, source: Source, text: str) -> None:
        """Add a warning about a source to the result."""
        self.warnings.append(f"{source.name}: {text}")

    def warn_few(self, source: Source, text: str, kind: str) -> None:
        """Add one of the first warnings of a kind, of which a file can give any number; then, that there are more."""
        self._kinds[source.name, kind] += 1
        if self._kinds[source.name, kind] <= _FEW:
            self.warn(source, text)
        elif self._kinds[source.name, kind] == _FEW + 1:
            self.warn(source, f"and more {kind}")

    def damaged(self, source: Source, text: str) -> None:
        """Add a warning about a damaged tail to the result, and to those that `issue` issues."""
        self.warn(source, text)
        self._damage.append(self.warnings[-1])

    def issue(self) -> None:
        """Issue the warnings about damaged tails, not from the thread that reads: it knows no line of the caller."""
        while self._damage:
            warn_caller(self._damage.pop(0), Truncated)

    def ended(self, source: Source, chunks: Chunks | Window, what: str) -> None:
        """Warn if the bytes of a source did not end at the end of a record."""
        left = chunks.end - chunks.pos
        if source.cut or left:
            reason = source.cut or f"the file ends inside a {what}"
            text = f"{reason}, {left} bytes into the {what} at offset {chunks.offset}; read what precedes it"
            self.damaged(source, text)

    def why_empty(self) -> str:
        """Return one line that says why there are no packets."""
        counters = self.counters
        if not counters["frames"]:
            return "; ".join([f"{self.name}: no packets in the file", *self.warnings])
        words = {"non_ip": "not IP", "non_tcp": "not TCP"}
        skipped = [name for name in layout.SKIPPED if counters[name]]
        reasons = ", ".join(f"{words.get(name, name.replace('_', ' '))} {counters[name]}" for name in skipped)
        found = f"{self.name}: no TCP packets among {counters['frames']} frames ({reasons})"
        found += "; decapsulate= (--decapsulate all) looks into tunnels" if counters["tunnelled"] else ""
        return "; ".join([found, *(text.removeprefix(f"{self.name}: ") for text in self.warnings)])

    def _connection_table(self) -> dict[str, Values]:
        """Return the table of connections; the same object as before unless connections or SYN options were added."""
        c = self._conns[: self._n_conns]
        known = c[:, layout.MSS : layout.SACK_OK + 2].tobytes()
        if known != self._known:
            self._known, self._connections = known, self._new_table(c)
        return self._connections

    def _new_table(self, c: Ints) -> dict[str, Values]:
        ok = c[:, layout.SACK_OK : layout.SACK_OK + 2]
        new = c[len(self._src) :]
        self._src = np.concatenate(
            [self._src, _addresses(new[:, layout.SRC_HI], new[:, layout.SRC_LO], new[:, layout.PORTS])]
        )
        self._dst = np.concatenate(
            [self._dst, _addresses(new[:, layout.DST_HI], new[:, layout.DST_LO], new[:, layout.PORTS])]
        )
        return {
            "src": self._src,
            "sport": (c[:, layout.PORTS] >> 16 & 65535).astype("u2"),
            "dst": self._dst,
            "dport": (c[:, layout.PORTS] & 65535).astype("u2"),
            "mss_a": c[:, layout.MSS].astype("i4"),
            "mss_b": c[:, layout.MSS + 1].astype("i4"),
            "wscale_a": c[:, layout.WSCALE].astype("i2"),
            "wscale_b": c[:, layout.WSCALE + 1].astype("i2"),
            "sack_ok": np.where((ok == 0).any(1), 0, np.where((ok == 1).all(1), 1, -1)).astype("i1"),
        }


def describe(counters: Mapping[str, int]) -> Iterator[str]:
    """Yield one line per counter that matters to whoever uses the numbers."""
    c = counters
    skipped = {
        "unknown_link": "frames of a link type that cctrace cannot decode, or encrypted or aggregated 802.11",
        "tunnelled": "packets inside tunnels; decapsulate= looks into them",
        "cut_headers": "frames cut by the capture before the end of their TCP header (snaplen too small)",
        "malformed": "frames with contradictory headers",
    }
    for name, text in skipped.items():
        if c[name]:
            several, rest = text.split(" ", 1)
            yield f"skipped {format_counted(c[name], several.removesuffix('s'), several)} {rest}"
    if c["first_fragments"]:
        packets = format_counted(c["first_fragments"], "packet lacks", "packets lack")
        yield f"{packets} the payload of IP fragments that the capture does not hold"
    if c["cut_options"]:
        packets = format_counted(c["cut_options"], "packet", "packets")
        yield f"{packets} with TCP options malformed or cut off by the capture"
    if c["beyond_wire"]:
        packets = format_counted(c["beyond_wire"], "packet claims", "packets claim")
        yield f"{packets} more bytes than the frame had; the claim is used"
    if c["back_step_ns"] >= FAR_BACK_NS:
        yield f"{back_steps(c)}: sort the records (reordercap of Wireshark), unless the clock was set"
    if c["duplicates"]:
        text = "bit 6 of column options marks the copies, flows leave them out"
        packets = format_counted(c["duplicates"], "packet was", "packets were")
        yield f"{packets} captured twice (mirror port?); {text}"
    if c["unseen_acks"]:
        acks, data = format_counted(c["unseen_acks"], "ACK covers", "ACKs cover"), c["unseen_bytes"]
        yield f"{acks} {format_counted(data, 'byte', 'bytes')} that the capture does not hold"


def _tunnel_bits(decapsulate: str | Sequence[str]) -> int:
    names = as_list(decapsulate)
    if names == ["all"]:
        names = list(TUNNELS)
    for name in names:
        check_choice("decapsulate", name, (*TUNNELS, "all"))
    return sum({TUNNELS[name] for name in names})


_FIRST_ROWS = 1 << 15  # before a share of the file is large enough to estimate how many it has
_TRUSTED = 1 << 24  # rows, up to which the estimate from a file's first frames is trusted: 1 GB, paged in as it fills


def _longer(arrays: Iterable[Values], used: int, more: int, share: float = 0.0) -> Iterator[Values]:
    """Yield copies of arrays with room for `more` rows after the first `used`.

    Sized for the whole file, judging by the `share` read so far, otherwise half as large again. Untouched memory costs
    nothing, and copies are rare: new arrays, unlike enlarged ones, get huge pages and fill in a third of the time.
    """
    size = used + max(more, used // 2)
    if share:
        size = max(size, min(int(1.25 * (used + more) / share), max(_TRUSTED, 8 * size)))
    for array in arrays:
        longer = room(size, array.dtype) if array.ndim == 1 else np.empty((size, *array.shape[1:]), array.dtype)
        longer[:used] = array[:used]
        yield longer


def _addresses(hi: Ints, lo: Ints, ports: Ints) -> NDArray[np.object_]:
    """Return addresses as text; `ports` has the IP version in its upper bits."""
    out, is_four = np.empty(len(lo), object), ports >> 32 == 4
    for which, family, packed in (
        (is_four, socket.AF_INET, lo[is_four].astype(">u4")),
        (~is_four, socket.AF_INET6, np.column_stack([hi, lo])[~is_four].astype(">i8")),
    ):
        size, data = packed.itemsize * (packed.size // max(len(packed), 1)), packed.tobytes()
        out[which] = [socket.inet_ntop(family, data[i : i + size]) for i in range(0, len(data), size or 1)]
    return out
