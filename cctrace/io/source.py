"""Where bytes come from: a file, standard input, a file object or a URL; compression is recognised by content.

`open_source` returns a `Source`: `head` (the first bytes, for sniffing), `lines()` (for text formats), and bytes for
`io.captures.chunks` (for the compiled decoders). Bytes are always decompressed (`cctrace.io.compression`); offsets in
messages count decompressed bytes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import os
import stat
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from cctrace.arguments import short_repr, whole
from cctrace.documents import of_shape
from cctrace.errors import FormatError, MissingError
from cctrace.extras import needed, pip
from cctrace.io.compression import DECOMPRESSORS, Allowance, Decompressed, bomb, most_bytes

HEAD = 4096  # bytes that `sniff` functions see
_READ = 1 << 20  # bytes at a time
_LONGEST_LINE = 1 << 24  # bytes, so that no file can exhaust the memory
BOM = b"\xef\xbb\xbf"


def _text(line: bytes) -> str:
    """Return a line as str, without the byte order mark that some editors and shells put first."""
    return line.removeprefix(BOM).decode("utf-8", "replace").rstrip("\r")


@runtime_checkable
class BinaryFile(Protocol):
    """A file object that yields bytes, as `open(path, "rb")` returns."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes, b"" at the end."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a buffer; return how many bytes that was."""

    def close(self) -> None:
        """Close the file."""


class Source:
    """Decompressed bytes of one input, with the name that messages use.

    `name`: path, URL or "<stdin>". `head`: the first bytes (at most `HEAD`), for sniffing. `path`: what to open to read
    the source again, where that is possible. `cut`: why the bytes ended early, once they have. `size`: bytes of the
    file as stored, 0 if unknown; `taken`, how many of them were read so far.
    """

    def __init__(self, stream: BinaryFile, name: str, limit: int | None = None, path: Origin | None = None) -> None:
        self.name, self.limit, self.path = name, limit, path
        self.cut: str | None = None
        self._reading, self._closed = threading.Lock(), False
        self._file, self.size = stream, _file_size(stream)
        try:
            self._begin(stream)
        except (OSError, FormatError):
            self.close()
            raise

    def _begin(self, stream: BinaryFile) -> None:
        """Read the first bytes, unpacked if they are compressed."""
        first = _head_of(stream)
        self.taken = len(first)
        for magic, kind, make in DECOMPRESSORS:
            if first.startswith(magic):
                stream = Decompressed(stream, first, kind, make, self)
                first = _head_of(stream)
                break
        self._stream, self._pending = stream, first
        self.head = first

    @property
    def is_plain(self) -> bool:
        """Whether the bytes are those of the file."""
        return self._stream is self._file

    def readinto(self, view: memoryview) -> int:
        """Fill `view` as far as bytes last; return how many."""
        with self._reading:  # never from a closed file: another may have its descriptor by now
            return 0 if self._closed else self._readinto(view)

    @property
    def has_descriptor(self) -> bool:
        """Whether the bytes are those of a regular file that the C library's `read` can read."""
        return os.name == "posix" and self.is_plain and self.size > 0 and isinstance(self._file, io.FileIO)

    def again(self, offset: int) -> Source | None:
        """Open a file that `has_descriptor` once more, to read on from there; None if its path leads elsewhere now."""
        file = cast(io.FileIO, self._file)
        try:
            other = open(file_path(str(self.path)), "rb", buffering=0)  # noqa: SIM115 (the Source closes it)
        except OSError:
            return None
        if not os.path.samestat(os.fstat(other.fileno()), os.fstat(file.fileno())) or file.tell() != self.taken:
            other.close()
            return None
        source = copy.copy(self)
        source._file = source._stream = other
        source._pending, source._reading = b"", threading.Lock()
        source.go_on(offset)
        return source

    def go_on(self, offset: int) -> None:
        """Read on from another place of a file that `has_descriptor`."""
        cast(io.FileIO, self._file).seek(offset)
        self.taken = offset

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """Yield the descriptor of a file that `has_descriptor`, kept open meanwhile; -1 if it must not be read."""
        with self._reading:
            pending = bool(self._pending)  # those come first, by `readinto`
            yield -1 if self._closed or pending else cast(io.FileIO, self._file).fileno()

    def _readinto(self, view: memoryview) -> int:
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

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end."""
        data = bytearray(size)
        return bytes(data[: self.readinto(memoryview(data))])

    def lines(self) -> Iterator[str]:
        """Yield the lines as str without their ends; undecodable bytes become U+FFFD. Raises FormatError: too long."""
        rest, number = b"", 0
        while data := self.read(_READ):
            *complete, rest = (rest + data).split(b"\n")
            for line in complete:
                number += 1
                yield _text(line)
            if len(rest) > _LONGEST_LINE:
                raise FormatError(f"{self.name}: line {number + 1} is longer than {_LONGEST_LINE} bytes")
        if rest:
            yield _text(rest)

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return b"".join(iter(lambda: self.read(_READ), b""))

    def text(self) -> str:
        """Return the remaining text as one str; undecodable bytes become U+FFFD."""
        return self.rest().removeprefix(BOM).decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the remaining text as a JSON document. Raises `FormatError`: it is none."""
        try:
            return json.loads(self.text())
        except ValueError as error:
            raise FormatError(f"{self.name}: not JSON: {self.cut or error}") from None

    def refuse_bomb(self, size: int, compressed: int) -> None:
        """Raise FormatError if a file of `compressed` bytes must not unpack to `size` bytes."""
        most = self.limit or most_bytes(compressed)
        if size > most:
            raise FormatError(bomb(self.name, compressed, most))
        if isinstance(self.path, Member):
            grown = max(size - self.path.unpacked, 0)  # each byte counts once, however often it is opened
            self.path.unpacked += grown
            self.path.allowance.add(grown)

    def cut_warning(self) -> list[str]:
        """Return a warning if the bytes ended early, as a list of one line or none."""
        return [f"{self.name}: {self.cut}; read what precedes it"] if self.cut else []

    def close(self) -> None:
        """Close the underlying file, unless it is standard input; waits for a read in progress."""
        if self._file is not _standard_input():
            with self._reading:
                self._closed = True
                self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Member:
    """A file in an archive: its bytes as stored there; it can be opened any number of times.

    `allowance`: the common limit of all members of an archive. `unpacked`: bytes that came out of this one.
    """

    def __init__(self, name: str, data: bytes, allowance: Allowance) -> None:
        self.name, self.data, self.allowance, self.unpacked = name, data, allowance, 0

    def open(self) -> io.BytesIO:
        """Return a binary file object."""
        return io.BytesIO(self.data)


Origin = str | Member  # what can be opened again
Input = str | os.PathLike[str] | BinaryFile | Source | Member
Inputs = Input | Sequence[Input]
P = ParamSpec("P")
T = TypeVar("T")


def _standard_input() -> BinaryFile:
    """Return standard input without a buffer, whose lock a waiting read would hold when Python ends: it then aborts."""
    return cast(BinaryFile, getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))


def _file_size(stream: Any) -> int:
    """Return the size of a regular file, 0 for anything else."""
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a device (/dev/zero), which may never end; pipes and files are not."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def is_named_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a pipe that has a name of its own: not one that is open already (/dev/fd/63)."""
    try:
        return stat.S_ISFIFO(os.stat(os.path.realpath(path)).st_mode)
    except OSError:  # the real path of an open pipe, pipe:[4026], is no file
        return False


def _head_of(stream: BinaryFile) -> bytes:
    """Read exactly HEAD bytes unless the stream ends before."""
    size, parts = HEAD, []
    while size and (data := stream.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def open_source(source: Input, limit: int | None = None) -> Source:
    """Open a path, "-" (standard input), a binary file object or a URL (through fsspec) as a `Source`.

    `limit`: largest number of decompressed bytes accepted from a compressed file. Raises `FormatError`: the file does
    not exist, cannot be read or is empty.
    """
    if isinstance(source, Source):
        return source
    if limit is not None:
        whole("limit", limit, 1)
    if isinstance(source, Member):
        return _opened(Source(source.open(), source.name, limit, source))
    name = str(getattr(source, "name", "<stream>")) if isinstance(source, BinaryFile) else os.fspath(source)
    if "\0" in name:
        raise FormatError(f"{short_repr(name)}: a name cannot hold a zero byte")
    try:
        stream: BinaryFile
        if isinstance(source, BinaryFile):
            stream = source
        elif name == "-":
            name, stream = "<stdin>", _standard_input()
        elif "://" in name and not name.startswith(_FILE):
            stream = _open_url(name)
        else:
            stream = open(file_path(name), "rb", buffering=0)  # noqa: SIM115 (the Source closes it)
        opened = Source(stream, name, limit, name if os.path.isfile(file_path(name)) else None)
    except OSError as error:
        raise FormatError(f"{name}: {error.strerror or str(error) or type(error).__name__}") from error
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON may hold
        raise FormatError(f"{short_repr(name)}: no file can have this name") from None
    return _opened(opened)


_FILE = "file://"


def file_url(path: str) -> str:
    """Return the name of a local file as UTF-8 text: itself, or a URL if it is not valid UTF-8 [RFC8089].

    >>> file_url("/data/a.pcap"), file_url(os.fsdecode(b"/data/\\xff.pcap"))
    ('/data/a.pcap', 'file:///data/%FF.pcap')
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return _FILE + urllib.parse.quote(os.fsencode(os.path.abspath(path)))
    return path


def file_path(name: str) -> str:
    """Return the path of a local file named by path or by URL; the inverse of `file_url`.

    >>> file_path("/data/a%20b.pcap"), file_path("file:///data/a%20b.pcap")
    ('/data/a%20b.pcap', '/data/a b.pcap')
    """
    if not name.startswith(_FILE):
        return name
    return os.fsdecode(urllib.parse.unquote_to_bytes(name.removeprefix(_FILE)))


def _opened(source: Source) -> Source:
    if not source.head:
        source.close()
        raise FormatError(f"{source.name}: {source.cut or 'the file is empty'}")
    return source


def _open_url(url: str) -> BinaryFile:
    fsspec = needed("fsspec", "formats")
    try:
        return fsspec.open(url, "rb").open()
    except ImportError as error:  # each protocol needs its own package: aiohttp, s3fs
        raise MissingError(f"{url}: {error} (with {pip()} install)") from error
    except ValueError as error:  # a protocol that is not known, a URL without a host
        raise FormatError(f"{url}: {' '.join(str(error).split())}") from error


def reads(what: str) -> Callable[[Callable[Concatenate[Source, P], T]], Callable[Concatenate[Input, P], T]]:
    """Decorate a function that reads an open `Source`: it then takes anything that `open_source` opens.

    An error in the function (unexpected JSON, a number beyond 64 bits) becomes a FormatError; see `of_shape`.
    """

    def decorate(function: Callable[Concatenate[Source, P], T]) -> Callable[Concatenate[Input, P], T]:
        @functools.wraps(function)
        def read(source: Input, /, *args: P.args, **options: P.kwargs) -> T:
            with open_source(source) as opened, of_shape(opened.name, what):
                return function(opened, *args, **options)

        return read

    return decorate
