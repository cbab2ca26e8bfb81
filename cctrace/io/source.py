"""Where bytes come from: a file, standard input, a file object or a URL; plain or compressed, told apart by content.

`open_source` hands out a `Source`: `head` (the first bytes, for sniffing), `Chunks(source)` (for the compiled decoders:
the next are read and decompressed in a second thread while this one is decoded) and `lines()` (for text formats).
Bytes are always decompressed; offsets in messages count decompressed bytes.

Two dangers are met here, once for all formats. A compressed file that ends early yields what precedes the end and sets
`Source.cut`. A decompression bomb is refused: more bytes than `limit` out of one compressed file is an error that
says how to raise it.
"""

import functools
import io
import os
import queue
import stat
import sys
import threading
import weakref

import numpy as np

from cctrace.errors import ArgumentError, CctraceError, FormatError

CHUNK = 4 << 20  # bytes per chunk: fits the cache, and large enough that per-chunk costs vanish
_AHEAD = 4  # chunks that are read in advance, so that reader and decoder rarely wait for each other
HEADROOM = 1 << 18  # unconsumed bytes that are kept in front of the next chunk
HEAD = 4096  # bytes that `sniff` functions see
_COMPRESSED_READ = 1 << 16

# Without a limit from the user, this many bytes per compressed byte are accepted, and BOMB_FLOOR bytes in any case.
# Headers of captures shrink 3 to 10 times, full packets of zeros 100 times.
BOMB_RATIO = 250
BOMB_FLOOR = 1 << 28
BOM = b"\xef\xbb\xbf"


def _gzip():
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


def _zstd():
    from backports import zstd

    return zstd.ZstdDecompressor()


def _xz():
    import lzma

    return lzma.LZMADecompressor(memlimit=1 << 30)


def _bz2():
    import bz2

    return bz2.BZ2Decompressor()


def _lz4():
    try:
        from lz4 import frame
    except ImportError:
        raise ArgumentError("reading .lz4 needs the package lz4: pip install lz4") from None
    return frame.LZ4FrameDecompressor()


# All five decompressors follow the protocol of the standard library's: decompress(data, max_length), eof, needs_input.
_DECOMPRESSORS = (
    (b"\x1f\x8b", "gzip", _gzip),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    (b"\xfd7zXZ\x00", "xz", _xz),
    (b"BZh", "bzip2", _bz2),
    (b"\x04\x22\x4d\x18", "lz4", _lz4),
)


class _Decompressed(io.RawIOBase):
    """The decompressed bytes of a binary file: every member, bounded memory, early ends noticed, bombs refused."""

    def __init__(self, raw, first, kind, make, source):
        self._raw, self._input, self._make, self._source = raw, first, make, source
        self._kind, self._decoder, self._bytes_out = kind, make(), 0

    def readable(self):
        return True

    def readinto(self, view):
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def _next(self, size):
        while True:
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
            except Exception as error:  # five codecs, as many families of errors
                self._source.cut = f"the {self._kind} stream is corrupt ({error})"
                self._next = lambda size: b""
                return b""
            self._input = b""
            if data:
                self._bytes_out += len(data)
                self._refuse_bomb()
                return data

    def _next_member(self):
        """Start on what follows a finished member: another member, padding (ignored), or the end."""
        self._input = self._decoder.unused_data or self._raw.read(_COMPRESSED_READ)
        self._source.taken += len(self._input) if not self._decoder.unused_data else 0
        if not self._input.strip(b"\0"):
            return False
        self._decoder = self._make()
        return True

    def _refuse_bomb(self):
        limit = self._source.limit or max(BOMB_FLOOR, BOMB_RATIO * self._source.taken)
        if self._bytes_out > limit:
            raise FormatError(
                f"{self._source.name}: {self._source.taken} compressed bytes gave more than {limit} bytes: "
                f"a decompression bomb? If the file is sound, raise the limit (limit=, --limit)"
            )


def _text(line):
    """Return a line as str without the byte order mark that some editors and shells begin a file with."""
    return line.removeprefix(BOM).decode("utf-8", "replace").rstrip("\r")


class Source:
    """Decompressed bytes of one input, with the name that messages use.

    Attributes
    ----------
    name : str
        Path, URL or "<stdin>".
    head : bytes
        The first bytes (at most `HEAD`), for sniffing.
    path : str, Member or None
        What to open to read it again, where that is possible.
    cut : str or None
        Why the bytes ended early, once they have.
    size, taken : int
        Bytes of the file, compressed if it is, 0 where only reading tells; and how many of them were read so far.
    """

    def __init__(self, stream, name, limit=None, path=None):
        self.name, self.limit, self.cut, self.path = name, limit, None, path
        self._reading, self._closed = threading.Lock(), False
        self._file, self.size = stream, _file_size(stream)
        first = _read_some(stream, HEAD)
        self.taken = len(first)
        for magic, kind, make in _DECOMPRESSORS:
            if first.startswith(magic):
                stream = _Decompressed(stream, first, kind, make, self)
                first = _read_some(stream, HEAD)
                break
        self._stream, self._pending = stream, first
        self.head = first

    def readinto(self, view):
        """Fill `view` as far as bytes last; return how many."""
        with self._reading:  # never from a closed file: another one may have got its descriptor
            return 0 if self._closed else self._readinto(view)

    def _readinto(self, view):
        total = min(len(self._pending), len(view))
        view[:total] = self._pending[:total]
        self._pending = self._pending[total:]
        while total < len(view):
            count = self._stream.readinto(view[total:])
            if not count:
                break
            total += count
            if self._stream is self._file:
                self.taken += count
        return total

    def read(self, size):
        """Return up to `size` bytes; fewer only at the end."""
        data = bytearray(size)
        return bytes(data[: self.readinto(memoryview(data))])

    def lines(self, longest=1 << 24):
        """Yield the lines as str without their ends; undecodable bytes become U+FFFD.

        Raises FormatError for a line of more than `longest` bytes, so that no file can exhaust the memory.
        """
        rest, number = b"", 0
        while data := self.read(1 << 20):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                number += 1
                yield _text(line)
            if len(rest) > longest:
                raise FormatError(f"{self.name}: line {number + 1} is longer than {longest} bytes")
        if rest:
            yield _text(rest)

    def rest(self):
        """Return all bytes that are left."""
        parts = []
        while data := self.read(1 << 24):
            parts.append(data)
        return b"".join(parts)

    def text(self):
        """Return all that is left as one str; undecodable bytes become U+FFFD."""
        return self.rest().removeprefix(BOM).decode("utf-8", "replace")

    def close(self):
        """Close the underlying file, unless it was the caller's; waits for a read that is under way."""
        if self._file is not sys.stdin.buffer:
            with self._reading:
                self._closed = True
                self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Member:
    """A file in an archive: its bytes as they are stored there, to be opened any number of times."""

    def __init__(self, name, data):
        self.name, self.data = name, data

    def open(self):
        """Return a binary file object."""
        return io.BytesIO(self.data)


def _file_size(stream):
    """Return the size of a regular file, 0 for anything else."""
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _read_some(stream, size):
    """Read exactly `size` bytes unless the stream ends before."""
    parts = []
    while size and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def open_source(source, limit=None):
    """Open a path, "-" (standard input), a binary file object or a URL (through fsspec) as a `Source`.

    Parameters
    ----------
    source : str, os.PathLike, binary file object, Member or Source
    limit : int, optional
        Largest number of decompressed bytes accepted from a compressed file.

    Raises
    ------
    FormatError
        The file does not exist, cannot be read or is empty.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, Member):
        return _opened(Source(source.open(), source.name, limit, source))
    name = str(getattr(source, "name", "<stream>")) if hasattr(source, "read") else os.fspath(source)
    try:
        if hasattr(source, "read"):
            stream = source
        elif name == "-":
            name, stream = "<stdin>", sys.stdin.buffer
        elif "://" in name:
            stream = _open_url(name)
        else:
            stream = open(name, "rb", buffering=0)  # noqa: SIM115 (the Source closes it)
        opened = Source(stream, name, limit, name if os.path.isfile(name) else None)
    except OSError as error:
        raise FormatError(f"{name}: {error.strerror or error}") from error
    return _opened(opened)


def _opened(source):
    if not source.head:
        raise FormatError(f"{source.name}: {source.cut or 'the file is empty'}")
    return source


def _open_url(url):
    try:
        import fsspec
    except ImportError:
        raise ArgumentError(f"{url}: reading URLs needs the package fsspec: pip install fsspec") from None
    return fsspec.open(url, "rb").open()


def reads(what):
    """Make a function that reads an open `Source` a reader of anything `open_source` opens.

    What the function trips over (a JSON of another shape, a number beyond 64 bits) becomes a FormatError that says so
    in one line; the original error stays attached as its cause.
    """

    def decorate(function):
        @functools.wraps(function)
        def read(source, **options):
            with open_source(source) as opened:
                try:
                    return function(opened, **options)
                except CctraceError:
                    raise
                except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
                    reason = " ".join(f"{type(error).__name__}: {error}".split())
                    raise FormatError(f"{opened.name}: not of the shape of {what} ({reason})") from error

        return read

    return decorate


class Chunks:
    """The bytes of a source as a window that a decoder moves along; the next chunks are read in the background.

    Each chunk is read behind a headroom into which the unconsumed end of the one before is copied, so that a record
    cut by the chunk's end continues in place.

    Attributes
    ----------
    data : ndarray of uint8
        The window's buffer; bytes `pos` to `end` are not consumed yet.
    pos, end : int
        Set `pos` to what has been consumed before calling `more`.
    """

    def __init__(self, source, chunk=CHUNK):
        self._source = source
        self.data, self.pos, self.end = np.empty(0, np.uint8), 0, 0
        self._base = 0  # offset in the source of data[0]
        self._taken = 0  # of the file's bytes, for those up to `end`
        self._free: queue.SimpleQueue = queue.SimpleQueue()
        self._full: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(_AHEAD):
            self._free.put(np.empty(HEADROOM + chunk, np.uint8))
        weakref.finalize(self, self._free.put, None)  # ends the thread when nobody wants more
        threading.Thread(target=_fill, args=(source, self._free, self._full), daemon=True).start()

    @property
    def offset(self):
        """Offset in the source of the byte at `pos`."""
        return self._base + self.pos

    @property
    def share(self):
        """About which part of the source precedes `pos`, 0 where its size is not known."""
        if not self._source.size:
            return 0.0
        return self._taken / self._source.size * self.offset / (self._base + self.end)

    def more(self, need=1):
        """Make at least `need` bytes available from `pos` on; False if the source ends before."""
        while self.end - self.pos < need:
            if self._full is None:
                return False
            buffer, count, self._taken = self._full.get()
            if not count:
                self._full = None
                if isinstance(buffer, Exception):
                    raise buffer
                return False
            self._append(buffer, count)
        return True

    def _append(self, buffer, count):
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


def _fill(source, free, full):
    """Fill free buffers behind their headroom: (buffer, bytes, of the file's bytes so far); (error, 0, 0) the last."""
    try:
        count = 1
        while count and (buffer := free.get()) is not None:
            count = source.readinto(memoryview(buffer)[HEADROOM:])
            full.put((buffer, count, source.taken))
    except Exception as error:  # handed over to the thread that asks
        full.put((error, 0, 0))
