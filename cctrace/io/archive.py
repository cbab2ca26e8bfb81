"""Archives of supported files (tar, compressed or not, and ZIP): each member is a source, nothing is unpacked to disk.

Members are held as stored: a `.pcap.zst` in a tar stays compressed until it is read. Files of unknown format (a README,
an index) are skipped, with a warning. Captures are joined like rotated files; counters become one table, which merges
the parts of a connection (M-Lab's `.00000`, `.00001` ...).

The size of the archive bounds what all of its members together may unpack to, however they are nested.
"""

import bz2
import io
import lzma
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, cast

from cctrace.errors import FormatError
from cctrace.io.compression import Allowance
from cctrace.io.source import Member, Source

_STEP = 1 << 12  # bytes read at a time from a file in a ZIP archive
MAX_MEMBERS = 20_000  # of an archive that is read as one: every member is sniffed and held in memory
# What the standard library's readers raise at damaged archives, besides their own errors.
DAMAGE = (tarfile.TarError, EOFError, ValueError, LookupError, ArithmeticError)
ZIP_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, RuntimeError, *DAMAGE)  # also: encrypted


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a tar or a ZIP archive."""
    return head[257:262] == b"ustar" or is_zip(head)


def is_zip(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a ZIP archive."""
    return head.startswith(b"PK\3\4")


def members(source: Source) -> tuple[list[Member], list[str]]:
    """Return the files in an archive, in its order, as `Member`; and warnings about what could not be read.

    Raises `FormatError`: no file could be read, there are too many or they unpack to too much, or a ZIP file is
    encrypted or damaged.
    """
    zipped = is_zip(source.head)
    damage = ZIP_DAMAGE if zipped else DAMAGE
    found: list[Member] = []
    warnings: list[str] = []
    allowance = Allowance(source)
    try:
        for name, size, read in (_zipped if zipped else _tarred)(source):
            allowance.add(size)
            if len(found) == MAX_MEMBERS:
                advice = "unpack it and read them in parts, or analyse each with `cctrace corpus run`"
                raise FormatError(f"{source.name}: more than {MAX_MEMBERS} files in the archive; {advice}")
            found.append(Member(f"{source.name}:{name}", read(), allowance))
    except damage as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if zipped:
            raise FormatError(f"{source.name}: a ZIP archive that cannot be read: {reason}") from None
        warnings.append(f"{source.name}: the archive is damaged or cut short ({reason}); read what precedes it")
    if not found:
        raise FormatError("; ".join([f"{source.name}: no files in the archive", *warnings]))
    return found, warnings


def _tarred(source: Source) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield (name, size, function that reads it) for each file of a tar."""
    with tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as archive:
        for info in archive:
            if info.isfile() and info.size:
                yield info.name, info.size, partial(extracted, archive, info)


def extracted(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    """Return the bytes of a file in a tar."""
    file = archive.extractfile(info)
    return file.read() if file else b""


def _zipped(source: Source) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """As `_tarred`; the directory of a ZIP archive is at its end."""
    with zipfile.ZipFile(io.BytesIO(source.rest())) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir() and info.file_size]
        source.refuse_bomb(sum(info.file_size for info in infos), source.size or source.taken)
        for info in infos:
            yield info.filename, info.file_size, partial(unzipped, archive, info)


def unzipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a file in a ZIP archive, at most as many as the directory says: that may be a lie."""
    with archive.open(info) as file:
        if info.compress_type != zipfile.ZIP_BZIP2:  # a step unpacks to its size (deflate), or to 7000 times as much
            shutil.copyfileobj(file, data := io.BytesIO(), _STEP)
            return data.getvalue()
    # The standard library unpacks each step whole: 4 KiB can be 80 MB, and a few hundred bytes all there is of a bomb.
    stored = cast(IO[bytes], archive.fp)
    stored.seek(info.header_offset + 26)
    stored.seek(sum(struct.unpack("<HH", stored.read(4))), os.SEEK_CUR)  # behind name and extra field
    unpacked = bz2.BZ2Decompressor().decompress(stored.read(info.compress_size), info.file_size)
    if zlib.crc32(unpacked) != info.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")
    return unpacked
