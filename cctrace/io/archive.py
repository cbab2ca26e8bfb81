"""Archives of supported files (tar, compressed or not, and ZIP): each member is a source, nothing is unpacked to disk.

Members are held as they are stored: a `.pcap.zst` in a tar stays compressed until it is read. Those of no known format
(a README, an index) are left out, and named in a warning. All captures are joined as rotated files are; counters become
one table, in which the parts of a connection (M-Lab's `.00000`, `.00001` ...) come together.
"""

import io
import tarfile
import zipfile
import zlib

from cctrace.errors import FormatError
from cctrace.io.source import BOMB_FLOOR, BOMB_RATIO, Member

_ZIP = b"PK\3\4"


def sniff(head):
    """Tell whether a file that starts with these bytes is a tar or a ZIP archive."""
    return head[257:262] == b"ustar" or head.startswith(_ZIP)


def members(source):
    """Return the files in an archive, in its order, as `Member`; and warnings about what could not be read.

    Raises
    ------
    FormatError
        No file could be read, or a ZIP file is encrypted, damaged or a bomb.
    """
    found, warnings = _zipped(source) if source.head.startswith(_ZIP) else _tarred(source)
    if not found:
        raise FormatError("; ".join([f"{source.name}: no files in the archive", *warnings]))
    return found, warnings


def _tarred(source):
    found, warnings = [], []
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for info in archive:
                if info.isfile() and info.size:
                    found.append(Member(f"{source.name}:{info.name}", archive.extractfile(info).read()))
    except tarfile.TarError as error:
        warnings.append(f"{source.name}: the archive is damaged or cut short ({error}); read what precedes it")
    return found, warnings


def _zipped(source):
    found = []
    try:
        with zipfile.ZipFile(io.BytesIO(source.rest())) as archive:
            for info in archive.infolist():
                if info.is_dir() or not info.file_size:
                    continue
                if info.file_size > (source.limit or max(BOMB_FLOOR, BOMB_RATIO * info.compress_size)):
                    raise FormatError(
                        f"{source.name}: {info.filename} unpacks from {info.compress_size} to {info.file_size} bytes: "
                        "a decompression bomb? If the file is sound, raise the limit (limit=, --limit)"
                    )
                found.append(Member(f"{source.name}:{info.filename}", archive.read(info)))
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise FormatError(f"{source.name}: a ZIP archive that cannot be read: {error}") from None
    return found, []
