"""pcap: the classic capture file, in all of its dialects.

24 bytes of header, then records of 16 bytes (seconds, fraction, captured length, original length) and the frame.
The magic number gives byte order and unit of the fraction; the "modified" dialect has 8 more bytes per record.

Source: draft-ietf-opsawg-pcap; libpcap's savefile reader for the dialects.
"""

from collections.abc import Iterator

import numpy as np

from cctrace.errors import FormatError
from cctrace.io import layout
from cctrace.io.captures import halves, records
from cctrace.io.captures.chunks import CHUNK, Chunks, Decoding, Window, frames_of_records, window_of
from cctrace.io.captures.frames import Decoder, FrameIterator, Frames
from cctrace.io.layout import ByteOrder
from cctrace.io.source import Source
from cctrace.lang.machine import Machine

# Magic number as read in little-endian order: (big-endian, nanoseconds per unit of the fraction, record header bytes).
_DIALECTS = {
    b"\xd4\xc3\xb2\xa1": (False, 1000, 16),
    b"\xa1\xb2\xc3\xd4": (True, 1000, 16),
    b"\x4d\x3c\xb2\xa1": (False, 1, 16),
    b"\xa1\xb2\x3c\x4d": (True, 1, 16),
    b"\x34\xcd\xb2\xa1": (False, 1000, 24),
    b"\xa1\xb2\xcd\x34": (True, 1000, 24),
}
FILE_HEADER = 24
MAX_RECORD = 1 << 24  # captured bytes; a larger length is treated as damage (BIG TCP ends at 512 KiB)

_DAMAGE = f"claims more than {MAX_RECORD} bytes"

find_records = Machine(records.find_records)


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a pcap."""
    return head[:4] in _DIALECTS


def frames_of(source: Source, decoder: Decoder, chunk: int = CHUNK) -> FrameIterator:
    """Yield (buffer, `Frames`, count) until a pcap ends; damage is reported to `decoder`."""
    chunks, frames = Chunks(source, chunk), Frames()
    *dialect, frames.link[:] = _begin(source, decoder, chunks)

    def find() -> tuple[int, int, int]:
        return find_records(
            chunks.data, chunks.pos, chunks.end, *dialect, MAX_RECORD, len(frames.offset),
            frames.offset, frames.caplen, frames.wirelen, frames.time_ns,
        )  # fmt: skip

    yield from frames_of_records(source, decoder, chunks, frames, find, _DAMAGE)


def decode(source: Source, decoder: Decoder) -> Iterator[None]:
    """Decode a pcap without showing its frames, which is faster; yield whenever the rows are full and more follows."""
    window = window_of(source)
    big, unit_ns, header, swap, link = _begin(source, decoder, window)
    decoding, need = Decoding(decoder, window, link, halves.begun), 1
    interfaces = np.array([[link, layout.MULTIPLY, unit_ns, 0, 0]])
    given = (0, big, header, swap, MAX_RECORD), interfaces, np.zeros(0, np.int64)
    while decoding.window.more(need):
        why, window = (yield from decoding.on(*given)), decoding.window
        if why == layout.BAD_LENGTH:
            decoder.damaged(source, f"record at offset {window.offset} {_DAMAGE}; stopped there")
            return
        need = window.end - window.pos + 1
    decoder.ended(source, decoding.window, "record")


def _begin(source: Source, decoder: Decoder, window: Chunks | Window) -> tuple[bool, int, int, int, int]:
    """Consume the file's header; return what it says, see `_file_header`."""
    if not window.more(FILE_HEADER):
        left = window.end - window.pos
        raise FormatError(f"{source.name}: not a capture: it ends after {left} of the {FILE_HEADER} header bytes")
    head = bytes(window.data[window.pos : window.pos + FILE_HEADER])
    header = _file_header(head, source.name)
    decoder.check_link(source, header[-1])
    window.pos += FILE_HEADER
    return header


def _file_header(head: bytes, name: str) -> tuple[bool, int, int, int, int]:
    """Return (big-endian, nanoseconds per unit of the fraction, record header bytes, swap, link type)."""
    big, unit_ns, header = _DIALECTS[head[:4]]
    order: ByteOrder = "big" if big else "little"
    major, minor = int.from_bytes(head[4:6], order), int.from_bytes(head[6:8], order)
    if major != 2 and (major, minor) != (543, 0):
        raise FormatError(f"{name}: pcap version {major}.{minor} at offset 4 is unknown; 2.x is allowed")
    # Before version 2.3 the two lengths were swapped; in 2.3 writers disagreed.
    swap = 1 if major == 543 or minor < 3 else (2 if minor == 3 else 0)
    # The upper bits of the link type say whether frames end with a checksum, which lies behind all TCP headers.
    return big, unit_ns, header, swap, int.from_bytes(head[20:24], order) & 0x03FFFFFF
