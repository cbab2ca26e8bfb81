"""The bytes of a source for the compiled decoders: chunk by chunk, in threads that decompress, seek and decode."""

import ctypes
import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Ints
from cctrace.io.captures import pieces
from cctrace.io.captures.frames import Decoder, FrameIterator, Frames
from cctrace.io.layout import BAD_LENGTH
from cctrace.io.source import Source
from cctrace.lang.machine import Machine

CHUNK = 4 << 20  # bytes per chunk: fits the cache, and large enough that per-chunk costs vanish
HEADROOM = 1 << 18  # unconsumed bytes that are kept in front of the next chunk
_Free = queue.SimpleQueue[NDArray[np.uint8] | None]
_Filled = tuple[NDArray[np.uint8] | Exception, int, int]
decode_packets = Machine(pieces.decode_packets)
_READ = ctypes.cast(ctypes.CDLL(None).read, ctypes.c_void_p).value if os.name == "posix" else None  # of the C library
Find = Callable[[], tuple[int, int, int]]  # fills `Frames`; returns (count, position after them, status)
NEVER = 1 << 62  # an offset beyond any file
Given = tuple[Ints, Ints, Ints]  # how packets are found: `pieces.decode_packets`
_BUFFERS = 3  # one that is decoded, one that waits, and one that is being filled


class Chunks:
    """The bytes of a source as a window that a decoder moves along.

    Each chunk is read behind a headroom into which the unconsumed end of the one before is copied, so that a record
    cut by the chunk's end continues in place. A plain file is read by the thread that decodes it, so that its bytes are
    still in the cache; a compressed one is decompressed ahead by another thread. A buffer is reused once nobody refers
    to its `data`.

    Bytes `pos` to `end` of `data` are not consumed yet; set `pos` to what has been consumed before calling `more`.
    """

    def __init__(self, source: Source, chunk: int = CHUNK) -> None:
        self._source = source
        self.data, self.pos, self.end = np.empty(0, np.uint8), 0, 0
        self._base = 0  # offset in the source of data[0]
        self._taken = 0  # of the file's bytes, for those up to `end`
        self._free: _Free = queue.SimpleQueue()
        self._full: queue.SimpleQueue[_Filled] | None = queue.SimpleQueue()
        for buffer in np.empty((_BUFFERS, HEADROOM + chunk), np.uint8):  # of one piece, which gets huge pages
            self._free.put(buffer)
        if not source.is_plain:
            weakref.finalize(self, self._free.put, None)  # ends the thread once this object is gone
            threading.Thread(target=_fill, args=(source, self._free, self._full), daemon=True).start()

    @property
    def offset(self) -> int:
        """Offset in the source of the byte at `pos`."""
        return self._base + self.pos

    @property
    def share(self) -> float:
        """About what share of the source precedes `pos`, 0 where its size is unknown."""
        if not self._source.size:
            return 0.0
        return self._taken / self._source.size * self.offset / (self._base + self.end)

    def more(self, need: int = 1) -> bool:
        """Make at least `need` bytes available from `pos` on; False if the source ends before."""
        while self.end - self.pos < need:
            if self._full is None:
                return False
            if self._source.is_plain:
                _fill_one(self._source, self._free, self._full)
            buffer, count, self._taken = self._full.get()
            if isinstance(buffer, Exception) or not count:
                self._full = None
                if isinstance(buffer, Exception):
                    raise buffer
                return False
            self._append(buffer, count)
        return True

    def decode(self, decoder: Decoder, state: Ints, *args: Any) -> int:
        """Let a decoder decode the bytes from `pos` on; return why it ended, see `pieces.decode_packets`."""
        state[:2] = self.pos, self.end
        why = decoder.decode(decode_packets, 0, -1, self.data, 0, state, *args)
        self.pos = int(state[0])
        return why

    def _append(self, buffer: NDArray[np.uint8], count: int) -> None:
        offset, left = self.offset, self.data[self.pos : self.end]
        if len(left) <= HEADROOM:
            start = HEADROOM - len(left)
            buffer[start:HEADROOM] = left
            self.data, self.pos, self.end = buffer[:], start, HEADROOM + count
            weakref.finalize(self.data, self._free.put, buffer).atexit = False  # once nobody looks at it any more
        else:  # a record larger than the headroom, rare
            self.data = np.concatenate((left, buffer[HEADROOM : HEADROOM + count]))
            self._free.put(buffer)
            self.pos, self.end = 0, len(self.data)
        self._base = offset - self.pos


class Window:
    """The bytes of a plain file, which compiled code itself reads into `data`; otherwise like `Chunks`."""

    def __init__(self, source: Source, base: int = 0) -> None:
        self.source, self._base = source, base
        self.stop = NEVER  # offset at which compiled code stops reading
        self.data, self.pos, self.end = np.empty(4 * pieces.PIECE, np.uint8), 0, 0

    @property
    def offset(self) -> int:
        """Offset in the source of the byte at `pos`."""
        return self._base + self.pos

    @property
    def share(self) -> float:
        """The share of the source that precedes `pos`."""
        return self.offset / max(self.source.size, 1)

    def more(self, need: int = 1) -> bool:
        """Make at least `need` bytes available from `pos` on; False if the source ends before."""
        while (left := self.end - self.pos) < need:
            data = self.data if left + pieces.PIECE <= len(self.data) else np.empty(2 * len(self.data), np.uint8)
            data[:left] = self.data[self.pos : self.end]
            self._base, self.data, self.pos, self.end = self.offset, data, 0, left
            count = self.source.readinto(self.data.data[left : left + pieces.PIECE])
            if not count:
                return False
            self.end += count
        return True

    def decode(self, decoder: Decoder, state: Ints, *args: Any) -> int:
        """Let a decoder read and decode; return why it ended, see `pieces.decode_packets`."""
        state[:3] = self.pos, self.end, self._base
        state[pieces.STOP] = self.stop
        with self.source.descriptor() as file:
            why = decoder.decode(decode_packets, _READ, file, self.data, self.data.ctypes.data, state, *args)
            self.pos, self.end, self._base = state[:3].tolist()
            self.source.taken = self._base + self.end
        return why


def window_of(source: Source) -> Chunks | Window:
    """Return the bytes of a source in the form that `Decoding` reads fastest."""
    return Window(source) if source.has_descriptor else Chunks(source)


class Decoding:
    """Decodes the packets of a window, and remembers the frames that were found but not decoded yet.

    `halve`: `halves.begun`, if the file may be decoded by two threads.
    """

    def __init__(
        self,
        decoder: Decoder,
        window: Chunks | Window,
        link: int = -1,
        halve: Callable[["Decoding", Given], Any] | None = None,
    ) -> None:
        self.decoder, self.window, self.link = decoder, window, link
        self.state = np.zeros(pieces.STATE, np.int64)
        positions = (np.empty(pieces.FRAMES, np.int64) for _ in range(4))
        self.frames: tuple[Any, ...] = (*positions, np.full(pieces.FRAMES, link, np.int32))
        self._halve, self._may_halve = halve, decoder.is_whole

    def on(self, rules: Sequence[int], interfaces: Ints, counts: Ints) -> Generator[None, None, int]:
        """Decode on, yield whenever the rows are full and more follows; return why it ended (`decode_packets`)."""
        given = np.array(rules, np.int64), interfaces, counts
        half = None
        while True:
            why = self.window.decode(self.decoder, self.state, *given, self.frames)
            if why == pieces.NO_CONNECTION:
                self.decoder.more_connections()
            elif half and (why != pieces.NO_ROOM or half.is_reached):
                half = half.join(self)
            elif why == pieces.NO_ROOM:
                yield
                self.decoder.make_room(pieces.FRAMES, self.window.share)
                half = half or self._halved(given)
            else:
                return why

    def _halved(self, given: Given) -> Any:
        """Let another thread decode the second half of a file, once; None: not yet possible, or not worth it."""
        if not (self._halve and self._may_halve and self.decoder.rows):
            return None
        half = self._halve(self, given)
        self._may_halve = half is None
        return half


def frames_of_records(
    source: Source, decoder: Decoder, chunks: Chunks, frames: Frames, find: Find, damage: str
) -> FrameIterator:
    """Yield (buffer, `Frames`, count) of a file of records; `find` fills `frames` and returns (count, end, status)."""
    need = 1
    while chunks.more(need):
        status, count = 0, len(frames.offset)
        while count == len(frames.offset) and not status:
            count, chunks.pos, status = find()
            frames.share = chunks.share
            yield chunks.data, frames, count
        if status == BAD_LENGTH:
            decoder.damaged(source, f"record at offset {chunks.offset} {damage}; stopped there")
            return
        need = chunks.end - chunks.pos + 1
    decoder.ended(source, chunks, "record")


def _fill(source: Source, free: _Free, full: queue.SimpleQueue[_Filled]) -> None:
    """Fill free buffers as long as there are bytes."""
    while _fill_one(source, free, full):
        pass


def _fill_one(source: Source, free: _Free, full: queue.SimpleQueue[_Filled]) -> int:
    """Fill a free buffer behind its headroom: (buffer, bytes, bytes of the file so far); on an error (error, 0, 0)."""
    try:
        if (buffer := free.get()) is None:
            return 0
        count = source.readinto(buffer.data[HEADROOM:])
        full.put((buffer, count, source.taken))
    except Exception as error:  # raised in the thread that asks for bytes
        full.put((error, 0, 0))
        return 0
    return count
