"""The bytes of a source for the compiled decoders: chunk by chunk, in threads that decompress, seek and decode."""

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cctrace.io.frames import Decoder, FrameIterator, Frames
from cctrace.io.layout import BAD_LENGTH
from cctrace.io.source import Source
from cctrace.lang.threads import ahead_of

CHUNK = 4 << 20  # bytes per chunk: fits the cache, and large enough that per-chunk costs vanish
HEADROOM = 1 << 18  # unconsumed bytes that are kept in front of the next chunk
_Free = queue.SimpleQueue[NDArray[np.uint8] | None]
_Filled = tuple[NDArray[np.uint8] | Exception, int, int]
Find = Callable[[], tuple[int, int, int]]  # fills `Frames`; returns (count, position after them, status)
_AHEAD = 2  # chunks with their frames that wait, so that who finds those and who decodes rarely wait for each other
_LENT = _AHEAD + 2  # those, one that is being decoded, and one between the two
_BUFFERS = _LENT + 2  # and one that is searched, and one that is decompressed


class Chunks:
    """The bytes of a source as a window that a decoder moves along.

    Each chunk is read behind a headroom into which the unconsumed end of the one before is copied, so that a record
    cut by the chunk's end continues in place. A plain file is read by who asks for more, so that bytes are still in the
    cache when frames are sought in them; another thread decompresses ahead. A buffer is filled again once nobody has
    its `data` any more.

    Bytes `pos` to `end` of `data` are not consumed yet; set `pos` to what has been consumed before calling `more`.
    """

    def __init__(self, source: Source, chunk: int = CHUNK) -> None:
        self._source = source
        self.data, self.pos, self.end = np.empty(0, np.uint8), 0, 0
        self._base = 0  # offset in the source of data[0]
        self._taken = 0  # of the file's bytes, for those up to `end`
        self._free: _Free = queue.SimpleQueue()
        self._full: queue.SimpleQueue[_Filled] | None = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(np.empty(HEADROOM + chunk, np.uint8))
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


def frames_of_records(
    source: Source,
    decoder: Decoder,
    chunks: Chunks,
    frames: Frames,
    find: Callable[[], tuple[int, int, int]],
    damage: str,
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


def in_advance(source: Source, found: FrameIterator) -> FrameIterator:
    """Yield what `found` yields, read and found in another thread, a few chunks ahead of whoever decodes.

    Not where another thread decompresses already: that takes longer than to find and to decode.
    """
    if not source.is_plain:
        return found
    lent: deque[Frames] = deque(maxlen=_LENT)
    return ahead_of(((data, frames.handed_over(lent), count) for data, frames, count in found), _AHEAD)


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
