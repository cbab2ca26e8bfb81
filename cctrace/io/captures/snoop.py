"""snoop: the capture file of Solaris.

16 bytes of header (name, version, data link), then records of 24 bytes (original, captured and record length, drops so
far, seconds, microseconds) and the frame, all big-endian.

Source: RFC 1761.
"""

from cctrace.errors import FormatError
from cctrace.io.captures import records
from cctrace.io.captures.chunks import CHUNK, Chunks, frames_of_records
from cctrace.io.captures.frames import Decoder, FrameIterator, Frames
from cctrace.io.captures.pcap import MAX_RECORD
from cctrace.io.source import Source
from cctrace.lang.machine import Machine

_MAGIC = b"snoop\0\0\0"
_HEADER = 16
_LINKS = {0: 1, 4: 1, 8: 10}  # its numbers for 802.3, Ethernet and FDDI to those of `layout.LINK_TYPES`

find_snoop = Machine(records.find_snoop)


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a snoop."""
    return head[:8] == _MAGIC


def frames_of(source: Source, decoder: Decoder, chunk: int = CHUNK) -> FrameIterator:
    """Yield (buffer, `Frames`, count) until a snoop ends; damage is reported to `decoder`."""
    chunks, frames = Chunks(source, chunk), Frames()
    if not chunks.more(_HEADER):
        raise FormatError(f"{source.name}: not a capture: it ends inside the {_HEADER} header bytes")
    version, link = (int.from_bytes(chunks.data[chunks.pos + i : chunks.pos + i + 4].tobytes()) for i in (8, 12))
    if version != 2:
        raise FormatError(f"{source.name}: snoop version {version} at offset 8 is unknown; 2 is allowed")
    if link not in _LINKS:
        known = ", ".join(map(str, _LINKS))
        raise FormatError(f"{source.name}: snoop data link {link} at offset 12 is not decoded; allowed are {known}")
    frames.link[:] = _LINKS[link]
    chunks.pos += _HEADER

    def find() -> tuple[int, int, int]:
        return find_snoop(
            chunks.data, chunks.pos, chunks.end, MAX_RECORD,
            frames.offset, frames.caplen, frames.wirelen, frames.time_ns,
        )  # fmt: skip

    yield from frames_of_records(source, decoder, chunks, frames, find, "has contradictory lengths")
