"""The bytes of a source for the compiled decoders: chunk by chunk, read ahead while the current one is decoded."""

import queue
import threading
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cctrace.io.frames import Decoder, FrameIterator, Frames
from cctrace.io.layout import BAD_LENGTH
from cctrace.io.source import Source

CHUNK = 4 << 20  # bytes per chunk: fits the cache, and large enough that per-chunk costs vanish
HEADROOM = 1 << 18  # unconsumed bytes that are kept in front of the next chunk
_Filled = tuple[NDArray[np.uint8] | Exception, int, int]
Find = Callable[[], tuple[int, int, int]]  # fills `Frames`; returns (count, position after them, status)
_AHEAD = 4  # chunks that are read in advance, so that reader and decoder rarely wait for each other


class Chunks:
    """The bytes of a source as a window that a decoder moves along; the next chunks are read in the background.

    Each chunk is read behind a headroom into which the unconsumed end of the one before is copied, so that a record
    cut by the chunk's end continues in place.

    Bytes `pos` to `end` of the buffer `data` are not consumed yet; set `pos` to what has been consumed before calling
    `more`.
    """

    def __init__(self, source: Source, chunk: int = CHUNK) -> None:
        self._source = source
        self.data, self.pos, self.end = np.empty(0, np.uint8), 0, 0
        self._base = 0  # offset in the source of data[0]
        self._taken = 0  # of the file's bytes, for those up to `end`
        self._free: queue.SimpleQueue[NDArray[np.uint8] | None] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[_Filled] | None = queue.SimpleQueue()
        for _ in range(_AHEAD):
            self._free.put(np.empty(HEADROOM + chunk, np.uint8))
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
            buffer, count, self._taken = self._full.get()
            if isinstance(buffer, Exception) or not count:
                self._full = None
                if isinstance(buffer, Exception):
                    raise buffer
                return False
            self._append(buffer, count)
        return True

    def _append(self, buffer: NDArray[np.uint8], count: int) -> None:
        offset, left, old = self.offset, self.data[self.pos : self.end], self.data
        if len(left) <= HEADROOM:
            start = HEADROOM - len(left)
            buffer[start:HEADROOM] = left
            self.data, self.pos, self.end = buffer, start, HEADROOM + count
        else:  # a record larger than the headroom, rare
            self.data = np.concatenate((left, buffer[HEADROOM : HEADROOM + count]))
            self._free.put(buffer)
            self.pos, self.end = 0, len(self.data)
        if len(old) == len(buffer):
            self._free.put(old)
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


def _fill(source: Source, free: queue.SimpleQueue[NDArray[np.uint8] | None], full: queue.SimpleQueue[_Filled]) -> None:
    """Fill free buffers behind their headroom: (buffer, bytes, bytes of the file so far); on an error (error, 0, 0)."""
    try:
        count = 1
        while count and (buffer := free.get()) is not None:
            count = source.readinto(buffer.data[HEADROOM:])
            full.put((buffer, count, source.taken))
    except Exception as error:  # raised in the thread that asks for bytes
        full.put((error, 0, 0))
