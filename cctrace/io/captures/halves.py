"""Two threads decode one plain capture file, the second one from a record in the middle of it on.

Where a record begins there is a guess, and the second thread begins without any connection. What it decoded is handed
out only if it is, to the letter, what one thread would have found; otherwise it is dropped, and the first one goes on.

    file    |-------------- first thread ------------->|
                                          |-- run-up --|---------- second thread --------->|
                                        guess    meeting point

* The first thread must end exactly at the meeting point, with a whole record.
* By then both know the connections of the run-up, whose rows only the first one keeps. Where what bears on later
  packets (`layout`, from ISN on) is the same in both, the second one's rows are right. Where it is not, or a connection
  from before the run-up goes on, they pass `tracking` once more, from what the first one knew.
* One thread decodes alone where the columns do not hold all that matters: with fragments, or SYNs of connections that
  began before the run-up.

Both write to the same columns, the second one as far back as the first one may come; its rows then move up.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace import schema
from cctrace.columns import Ints, trim
from cctrace.io import layout
from cctrace.io.captures import pieces, tracking
from cctrace.io.captures.chunks import NEVER, Decoding, Given, Window
from cctrace.io.captures.decode import REUSE_SILENCE_NS
from cctrace.io.captures.frames import Blocks, Decoder, Rows
from cctrace.lang.machine import Machine
from cctrace.lang.threads import cores
from cctrace.tcp.flags import ACK, SYN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.columns import Bools, Values

MIN_BYTES = 1 << 25  # bytes that are worth a second thread
RUN_UP = 1 << 14  # rows
SEARCHED = 1 << 18  # bytes in which a record is looked for
_RECORDS = 16  # that follow each other where a guess is right
_CANDIDATES = 1 << 12
_MIN_PACKET_BYTES = 20  # bytes of a packet, those of an IP header
_MAX_COMPARED = 1 << 12  # connections, one by one
_BLOCK = 1 << 15  # rows
_MAX_FILLED = 0.9  # most of the rows' memory that the whole file may fill, as far as its beginning shows
track_again = Machine(tracking.track_again)

# Fields of a connection: those that its SYNs and FINs set, and those of `tracking`.
_OPENING = [layout.CLOSED, layout.ISN, layout.ISN + 1, *range(layout.MSS, layout.LATE)]
_OPENED = np.array(
    [0] * layout.ISN + [-1] * (layout.RING_POS - layout.ISN) + [0] * (layout.CONN_FIELDS - layout.RING_POS)
)
_TRACKED = [layout.SND_MAX, layout.SND_MAX + 1, *range(layout.LATE, layout.CONN_FIELDS)]
_TURNED = np.arange(layout.CONN_FIELDS)  # where each field of the other direction is
_TURNED[layout.ISN : layout.RING] ^= 1
for _rings in (layout.RING, layout.RING_NS):
    _TURNED[_rings : _rings + 2 * layout.RING_SIZE] = np.roll(
        _TURNED[_rings : _rings + 2 * layout.RING_SIZE], layout.RING_SIZE
    )


def begun(decoding: Decoding, given: Given) -> Half | None:
    """Let another thread decode the second half of what is left of a file; None if it is not worth it or possible."""
    window, decoder = decoding.window, decoding.decoder
    if not isinstance(window, Window):
        return None
    size, offset = window.source.size, window.offset
    middle = offset + (size - offset) // 2
    if cores() == 1 or size - offset < MIN_BYTES or middle < window.source.taken or given[0][layout.SWAP]:
        return None
    if decoder.rows * size / offset > _MAX_FILLED * decoder.room or (source := window.source.again(middle)) is None:
        return None
    return Half(decoding, window, given, Window(source, middle))


def prepare() -> None:
    """Compile what only files of `MIN_BYTES` and more need."""
    none = np.empty(0, np.int64)
    Decoder("").find(np.empty((0, layout.CONN_FIELDS), np.int64))
    columns = tuple(np.empty(0, c.dtype) for c in schema.PACKETS)
    track_again(
        columns, none, none, np.empty((0, layout.CONN_FIELDS), np.int64), np.zeros(len(layout.COUNTERS), np.int64)
    )


def record_in(data: NDArray[np.uint8], rules: Ints) -> int | None:
    """Return where a record, or the block of a packet, seems to begin in bytes from the middle of a file."""
    order, size, is_blocks = ">u4" if rules[layout.BIG] else "<u4", len(data) - 16, bool(rules[layout.BLOCKS])
    zero, four, eight, twelve = (np.ndarray(size, order, data, at, (1,)) for at in (0, 4, 8, 12))  # at every byte
    if is_blocks:
        fits = (zero == layout.ENHANCED) & (four >= 32) & (four % 4 == 0)
    else:
        fits = (four < 1_000_000_000) & (eight >= _MIN_PACKET_BYTES) & (eight <= twelve)
    length, header = (four, 0) if is_blocks else (eight, int(rules[layout.HEADER]))
    fits &= length < len(data)
    for start in np.flatnonzero(fits)[:_CANDIDATES].tolist():
        at, found = start, 0
        while at < size and fits[at] and found < _RECORDS:
            at, found = at + header + int(length[at]), found + 1
        if found == _RECORDS or (found > 1 and at >= size):
            return start
    return None


class _Continued(NamedTuple):
    """Connections of a second half that the first half knows, and that go on."""

    mine: Ints  # their numbers in the second half
    theirs: Ints  # and in the first one
    turned: Bools  # whether that has the other end first
    before: Ints  # what the first half knows of each at the meeting point, directions as in the second half
    assumed: Ints  # what the second half goes on with
    is_opening: Bools  # whether both know the same of its SYNs and FINs
    is_new: Bools  # of all connections of the second half: whether they begin there


class Half(Decoder):
    """The second half of a file, whose rows lie in the memory of the first one's."""

    def __init__(self, decoding: Decoding, front: Window, given: Given, window: Window) -> None:
        self._first = first = decoding.decoder
        super().__init__(first.name)
        self._tunnels, self._counts = first._tunnels, given[2]
        self._given: Given = (*given[:2], np.zeros_like(given[2]))
        later = Decoding(self, window, decoding.link)  # not kept: it refers to this half, whose columns would live on
        self._state, self._frames, self._window, self._front = later.state, later.frames, window, front
        self._columns, self._begin = first._rows, int(first.room * (window.offset / window.source.size))
        first._rows = _rows_of(self._columns, 0, self._begin)
        self._meeting, self._ended, self._has_met = window.offset, False, threading.Event()
        self._front.stop = self._meeting
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Find a record, decode the run-up, and then all that follows."""
        try:
            with contextlib.suppress(MemoryError):  # the first half goes on alone
                if self._has_run_up():
                    self._has_met.set()
                    self._decode(len(self._columns.time_ns) - self._begin)
                    self._ended = True
        finally:
            self._has_met.set()
            self._window.source.close()

    def _has_run_up(self) -> bool:
        """Find a record and decode the run-up; False if there is none or the file ends before."""
        window, state = self._window, self._state
        found = record_in(window.data[: window.end], self._given[0]) if window.more(SEARCHED) else None
        if found is None:
            return False
        window.pos += found
        self.make_room(pieces.FRAMES, 0.0)
        if self._decode(RUN_UP) != pieces.NO_ROOM or self._has_fragments or self._given[2].any():
            return False  # blocks are counted when they are found, so some of those may lie behind the run-up
        frame = int(self._frames[0][state[pieces.FRAME]])
        self._meeting = window.offset - window.pos + frame - int(self._given[0][layout.HEADER])
        self._run_up, self._run_up_sacks, self._last_ns = self._n_rows, self._n_sacks, self._counters[layout.LAST_NS]
        self._assumed = self._conns[: self._n_conns].copy()
        self._counters[: layout.LAST_NS] = 0
        return True

    @property
    def is_reached(self) -> bool:
        """Whether the first half has come to the second one's memory."""
        return self._first.rows + pieces.FRAMES > self._begin

    def make_room(self, frames: int, share: float) -> None:
        """Provide room for the SACKs of so many more frames; that for rows is what it is."""
        self._make_room_for_sacks(frames)

    def _decode(self, rows: int) -> int:
        """Decode until there are so many rows, or nothing more is found; return why it ended."""
        self._rows = _rows_of(self._columns, self._begin, self._begin + rows)
        while True:
            why = self._window.decode(self, self._state, *self._given, self._frames)
            if why == pieces.NO_CONNECTION:
                self.more_connections()
            elif why == pieces.NO_ROOM and self._n_rows + pieces.FRAMES <= rows:
                self.make_room(pieces.FRAMES, 0.0)
            else:
                return why

    @property
    def _has_fragments(self) -> bool:
        seen = self._counters[[layout.LATER_FRAGMENTS, layout.FIRST_FRAGMENTS]]
        return bool(self._datagrams[0, 0]) or bool(seen.any())

    def join(self, whole: Decoding) -> Half | None:
        """Let the first half go on to the meeting point; there append the second half if both fit, or drop it."""
        first, window, later = self._first, self._front, self._window
        self._has_met.wait()
        if window.stop < self._meeting:
            window.stop = self._meeting
            return self
        self._thread.join()
        first._rows, window.stop = self._columns, NEVER
        is_met = self._ended and window.offset == self._meeting and window.pos == window.end
        if not is_met or self._has_fragments or first._counters[layout.LAST_NS] != self._last_ns:
            return None
        if (continued := self._matched()) is None:
            return None
        self._go_on(continued)
        self._append(continued)
        window.source.go_on(later.offset - later.pos + later.end)
        later.source = window.source
        whole.window, whole.state, whole.frames = later, self._state, self._frames
        return None

    @property
    def _later(self) -> Rows:
        """The rows behind the run-up."""
        return _rows_of(self._rows, self._run_up, self._n_rows)

    def _matched(self) -> _Continued | None:
        """Return which connections go on; None if what one thread would find in them cannot be told from the rows."""
        first, known, rows = self._first, len(self._assumed), self._later
        there, turned = first.find(self._conns[: self._n_conns])
        old = np.flatnonzero(there >= 0)
        if (there[:known] < 0).any() or len(old) > _MAX_COMPARED:
            return None
        before = _turned(first._conns[there[old]], turned[old])
        assumed = np.concatenate((self._assumed, np.tile(_OPENED, (len(old) - known, 1))))
        is_opening = (before[:, _OPENING] == assumed[:, _OPENING]).all(1)
        starts = np.searchsorted(np.maximum.accumulate(rows.conn), old) if len(old) > known else old
        is_new, latest, going = there < 0, dict[int, int](), dict[int, int]()
        for i, j in enumerate(old.tolist()):
            k = int(there[j])
            last = latest.get(k)
            if j < known or (last is None and not _reopens(before[i], rows, starts[i])):
                going[k] = i
            elif last is None or is_new[old[last]] or is_opening[last]:
                is_new[j] = True
            else:  # whether a SYN begins another connection depends on the SYNs before
                return None
            latest[k] = i
        goes_on = np.array(sorted(going.values()), np.int64)
        has_syn = np.zeros(self._n_conns, bool)
        has_syn[rows.conn[np.flatnonzero(rows.flags & SYN)]] = True
        continued = _Continued(
            old[goes_on], there[old[goes_on]], turned[old[goes_on]] > 0, before[goes_on], assumed[goes_on],
            is_opening[goes_on], is_new,
        )  # fmt: skip
        stamps = (continued.before[:, layout.CONN_LAST_NS] == continued.assumed[:, layout.CONN_LAST_NS]) | (
            continued.mine >= known
        )
        return continued if stamps.all() and not (has_syn[continued.mine] & ~continued.is_opening).any() else None

    def _go_on(self, continued: _Continued) -> None:
        """Let the connections of the first half go on, in the state that its thread would have left them in."""
        state = self._conns[continued.mine]
        again = np.flatnonzero((_tracked(continued.before) != _tracked(continued.assumed)).any(1))
        if len(again):
            place = np.full(self._n_conns, -1)
            place[continued.mine[again]] = np.arange(len(again))
            rows = np.flatnonzero(place[self._later.conn] >= 0)
            for sign, tracked in ((-1, continued.assumed[again]), (1, continued.before[again])):
                counters = np.zeros_like(self._counters)
                track_again(tuple(self._later), rows, place, tracked, counters)
                self._counters += sign * counters
                state[again[:, None], _TRACKED] = tracked[:, _TRACKED]
        unseen = np.flatnonzero(~continued.is_opening)
        closed = state[:, layout.CLOSED] | continued.before[:, layout.CLOSED]
        state[unseen[:, None], _OPENING] = continued.before[unseen[:, None], _OPENING]
        state[:, layout.CLOSED] = closed
        self._first._conns[continued.theirs, layout.CLOSED :] = _turned(state, continued.turned)[:, layout.CLOSED :]

    def _append(self, continued: _Continued) -> None:
        """Append rows, SACKs, connections and counters to those of the first half."""
        first, rows, new = self._first, self._later, np.flatnonzero(continued.is_new)
        number, turned = np.full(self._n_conns, -1, np.int32), np.zeros(self._n_conns, np.uint8)
        number[continued.mine], turned[continued.mine] = continued.theirs, continued.turned
        number[new] = first._n_conns + np.arange(len(new))
        if turned.any() or not np.array_equal(number, np.arange(len(number))):
            for begin in range(0, len(rows.conn), _BLOCK):
                conn = rows.conn[begin : begin + _BLOCK]
                if turned.any():
                    rows.direction[begin : begin + _BLOCK] ^= turned[conn]
                conn[:] = number[conn]
        rows.frame[:] += np.uint32(first._counters[layout.FRAMES] & 0xFFFFFFFF)
        if self._n_sacks > self._run_up_sacks:
            np.add(rows.sack_row, first._n_sacks - self._run_up_sacks, out=rows.sack_row, where=rows.sack_row >= 0)
        begin, end = first._n_rows, first._n_rows + len(rows.conn)
        for column, part in zip(self._columns, rows, strict=True):
            column[begin:end] = part
            trim(column, end)
        blocks = zip(first._sacks, self._sacks, strict=True)
        mine = slice(self._run_up_sacks, self._n_sacks)
        first._sacks = Blocks(*(np.concatenate((a[: first._n_sacks], b[mine])) for a, b in blocks))
        first._n_rows, first._n_sacks = end, len(first._sacks.left)
        first.add_connections(self._conns[new])
        farthest = max(first._counters[layout.BACK_STEP_NS], self._counters[layout.BACK_STEP_NS])
        first._counters[: layout.LAST_NS] += self._counters[: layout.LAST_NS]
        first._counters[layout.BACK_STEP_NS], first._counters[layout.LAST_NS] = farthest, self._counters[layout.LAST_NS]
        self._counts += self._given[2]


def _rows_of(rows: Rows, begin: int, end: int) -> Rows:
    return Rows(*(column[begin:end] for column in rows))


def _turned(connections: Ints, turned: Values) -> Ints:
    """Return connections with the directions of some exchanged, but for their endpoints."""
    return np.where(turned[:, None] > 0, connections[:, _TURNED], connections)


def _tracked(connections: Ints) -> Ints:
    """Return what `tracking` knows of connections, the latest packets in the order of time."""
    at = (connections[:, layout.RING_POS : layout.RING, None] + np.arange(layout.RING_SIZE)) % layout.RING_SIZE
    rings = [
        np.take_along_axis(connections[:, ring : ring + at[0].size].reshape(at.shape), at, 2).reshape(len(at), -1)
        for ring in (layout.RING, layout.RING_NS)
    ]
    return np.concatenate([connections[:, _TRACKED[:2]], connections[:, layout.LATE : layout.RING_POS], *rings], 1)


def _reopens(connection: Ints, rows: Rows, row: int) -> bool:
    """Return whether a row begins a new connection where the first half knows one; see `decode.decode_frames`."""
    isn = connection[layout.ISN]
    if rows.flags[row] & (SYN | ACK) != SYN or isn == rows.seq[row]:
        return False
    silence_ns = rows.time_ns[row] - connection[layout.CONN_LAST_NS]
    return bool(isn >= 0 or connection[layout.CLOSED] or silence_ns > REUSE_SILENCE_NS)
