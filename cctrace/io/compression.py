"""Compressed files: five codecs, recognised by their first bytes, and limits on the size of the output.

A compressed file that ends early yields the bytes before the end and sets `Source.cut`. A decompression bomb (more
output than the limit from one file, nested files included) is an error that says how to raise the limit.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cctrace.errors import FormatError
from cctrace.extras import needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cctrace.io.source import BinaryFile, Source

_COMPRESSED_READ = 1 << 16  # bytes

# Without a limit from the user, this many bytes are accepted per compressed byte, and always BOMB_FLOOR bytes.
# Headers of captures shrink 3 to 10 times, full packets of zeros 100 times.
BOMB_RATIO = 250
BOMB_FLOOR = 1 << 25
_UNKNOWN_SIZE = 1 << 22  # bytes: the assumed least size of an archive whose size is unknown


def _gzip() -> Any:
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    return zstd.ZstdDecompressor()


DECOMPRESSORS = (
    (b"\x1f\x8b", "gzip", _gzip),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    (b"\xfd7zXZ\x00", "xz", lambda: import_module("lzma").LZMADecompressor(memlimit=1 << 30)),
    (b"BZh", "bzip2", lambda: import_module("bz2").BZ2Decompressor()),
    (b"\x04\x22\x4d\x18", "lz4", lambda: needed("lz4.frame", "formats").LZ4FrameDecompressor()),
)


class Decompressed(io.RawIOBase):
    """The decompressed bytes of a binary file: every member, bounded memory, early ends noticed, bombs refused."""

    def __init__(self, raw: BinaryFile, first: bytes, kind: str, make: Callable[[], Any], source: Source) -> None:
        self._raw, self._input, self._make, self._source = raw, first, make, source
        self._kind, self._decoder, self._bytes_out, self._is_corrupt = kind, make(), 0, False

    def readable(self) -> bool:
        """Say that it can be read, as `io.RawIOBase` asks."""
        return True

    def readinto(self, view: Any) -> int:
        """Read up to as many bytes as a buffer holds; return how many, 0 at the end."""
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        while not self._is_corrupt:
            if self._decoder.eof and not self._next_member():
                return b""
            if self._decoder.needs_input and not self._input:
                self._input = self._raw.read(_COMPRESSED_READ)
                self._source.taken += len(self._input)
                if not self._input:
                    self._source.cut = f"the {self._kind} stream ends early"
                    return b""
            try:
                data = self._decoder.decompress(self._input, size)
            except Exception as error:  # each of the five codecs has its own errors
                self._source.cut = f"the {self._kind} stream is corrupt ({error})"
                self._is_corrupt = True
                return b""
            self._input = b""
            if data:
                self._bytes_out += len(data)
                self._source.refuse_bomb(self._bytes_out, self._source.taken)
                return data
        return b""

    def _next_member(self) -> bool:
        """Go on behind a finished member: to another member, padding (ignored), or the end; False at the end."""
        self._input = self._decoder.unused_data or self._raw.read(_COMPRESSED_READ)
        self._source.taken += len(self._input) if not self._decoder.unused_data else 0
        if not self._input.strip(b"\0"):
            return False
        self._decoder = self._make()
        return True


def most_bytes(compressed: int) -> int:
    """Return how many bytes a file of `compressed` bytes may unpack to if the user set no limit."""
    return max(BOMB_FLOOR, BOMB_RATIO * compressed)


def bomb(name: str, compressed: int, most: int) -> str:
    """Return the message about a file that unpacks to too much."""
    return (
        f"{name}: {compressed} compressed bytes unpack to more than {most} bytes: a decompression bomb? If the file is "
        "sound, raise the limit (limit=, --limit)"
    )


class Allowance:
    """How many bytes one archive may unpack to: its members count, and the files packed in them.

    `source`: the archive.
    """

    def __init__(self, source: Source) -> None:
        self._source, self._unpacked = source, 0

    @property
    def most(self) -> int:
        """The limit in bytes; for a pipe or a URL it grows with the bytes read so far."""
        source = self._source
        return source.limit or most_bytes(source.size or max(source.taken, _UNKNOWN_SIZE))

    @property
    def is_spent(self) -> bool:
        """Whether more bytes came out than allowed."""
        return self._unpacked > self.most

    def add(self, size: int) -> None:
        """Count `size` more bytes. Raises `FormatError` if that exceeds the allowance."""
        self._unpacked += size
        if self.is_spent:
            raise FormatError(bomb(self._source.name, self._source.size or self._source.taken, self.most))
