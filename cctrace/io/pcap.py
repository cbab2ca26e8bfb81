"""pcap: the classic capture file, in all its dialects.

24 bytes of header, then records of 16 bytes (seconds, fraction, captured length, original length) and the frame.
The magic number tells byte order and unit of the fraction; the "modified" dialect has 8 more bytes per record.

Source: draft-ietf-opsawg-pcap; libpcap's savefile reader for the dialects.
"""

import warnings

import numpy as np
from numba import njit

from cctrace.errors import FormatError, Truncated
from cctrace.io.frames import SKIPPED, Decoder, Frames
from cctrace.io.source import Chunks, open_source

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
LARGEST_RECORD = 1 << 24  # captured bytes; above this a length field is taken for garbage (BIG TCP ends at 512 KiB)
_BAD_LENGTH = 1


def sniff(head):
    """Tell whether a file that starts with these bytes is a pcap."""
    return head[:4] in _DIALECTS


@njit(cache=True, _nrt=False, forceinline=True)
def _u32(b, p, big):
    p &= (1 << 40) - 1  # see frames._OFFSET
    if big:
        return (np.int64(b[p]) << 24) | (np.int64(b[p + 1]) << 16) | (np.int64(b[p + 2]) << 8) | np.int64(b[p + 3])
    return (np.int64(b[p + 3]) << 24) | (np.int64(b[p + 2]) << 16) | (np.int64(b[p + 1]) << 8) | np.int64(b[p])


@njit(cache=True, nogil=True, _nrt=False)  # see frames._compiled
def find_records(b, pos, end, big, unit_ns, header, swap, largest, offset, caplen, wirelen, time_ns):
    """Find the complete records of b[pos:end]; returns (records found, position after them, status).

    `swap`: 0 never, 1 always, 2 where the lengths make no sense otherwise (files of ancient versions).
    """
    n = 0
    while n < len(offset) and pos + header <= end:
        captured, original = _u32(b, pos + 8, big), _u32(b, pos + 12, big)
        if swap == 1 or (swap == 2 and captured > original):
            captured, original = original, captured
        if captured > largest:
            return n, pos, _BAD_LENGTH
        if pos + header + captured > end:
            break
        time_ns[n] = _u32(b, pos, big) * 1_000_000_000 + _u32(b, pos + 4, big) * unit_ns
        offset[n], caplen[n], wirelen[n] = pos + header, captured, original
        n += 1
        pos += header + captured
    return n, pos, 0


def read(source, decapsulate=()):
    """Read a pcap file.

    Parameters
    ----------
    source : str, os.PathLike, binary file object or Source
    decapsulate : sequence of str
        Tunnels to look into, see `frames.Decoder`.

    Returns
    -------
    Packets

    Raises
    ------
    FormatError
        Not a pcap, or no TCP in it. A truncated or damaged tail yields what precedes it and a `Truncated` warning.
    """
    with open_source(source) as opened:
        decoder = Decoder(opened.name, decapsulate)
        for _ in decode(opened, decoder):
            pass
    return finish(decoder)


def decode(source, decoder):
    """Feed a pcap to a decoder; yields after each chunk of the file, so that the caller may take what is there."""
    chunks, frames = Chunks(source), Frames()
    if not chunks.more(FILE_HEADER):
        raise FormatError(
            f"{source.name}: not a capture: the file ends after {chunks.end - chunks.pos} of the 24 header bytes"
        )
    big, unit_ns, header, swap, link = _file_header(
        bytes(chunks.data[chunks.pos : chunks.pos + FILE_HEADER]), source.name
    )
    frames.link[:] = link
    chunks.pos += FILE_HEADER
    need = 1
    while chunks.more(need):
        status, count = 0, len(frames.offset)
        while count == len(frames.offset) and not status:
            count, chunks.pos, status = find_records(
                chunks.data, chunks.pos, chunks.end, big, unit_ns, header, swap, LARGEST_RECORD,
                frames.offset, frames.caplen, frames.wirelen, frames.time_ns,
            )  # fmt: skip
            decoder.feed(chunks.data, frames, count)
        yield
        if status == _BAD_LENGTH:
            truncated(
                decoder, f"record at offset {chunks.offset} claims more than {LARGEST_RECORD} bytes; stopped there"
            )
            return
        need = chunks.end - chunks.pos + 1
    _explain_end(source, chunks, decoder)


def _explain_end(source, chunks, decoder):
    left = chunks.end - chunks.pos
    if source.cut or left:
        reason = source.cut or "the file ends inside a record"
        truncated(decoder, f"{reason}, {left} bytes into the record at offset {chunks.offset}; read what precedes it")


def truncated(decoder, text):
    """Add a warning about a damaged tail to the result, and issue it."""
    decoder.warnings.append(f"{decoder.name}: {text}")
    warnings.warn(decoder.warnings[-1], Truncated, stacklevel=3)


def finish(decoder):
    """Return the packets of a decoder; FormatError if there are none."""
    packets = decoder.take()
    if not len(packets):
        raise FormatError(f"{decoder.name}: {_why_empty(decoder)}")
    return packets


def _why_empty(decoder):
    counters = decoder.counters
    if not counters["frames"]:
        return "; ".join(["no packets in the file", *decoder.warnings])
    reasons = ", ".join(f"{name} {counters[name]}" for name in counters if name in SKIPPED and counters[name])
    return f"no TCP packets among {counters['frames']} frames ({reasons})"


def _file_header(head, name):
    big, unit_ns, header = _DIALECTS[head[:4]]
    order = "big" if big else "little"
    major, minor = int.from_bytes(head[4:6], order), int.from_bytes(head[6:8], order)
    if major != 2 and (major, minor) != (543, 0):
        raise FormatError(f"{name}: pcap version {major}.{minor} at offset 4 is unknown; 2.x is allowed")
    # Before 2.3 the two lengths were the other way round; at 2.3 writers disagreed.
    swap = 1 if major == 543 or minor < 3 else (2 if minor == 3 else 0)
    # The upper bits of the link type say whether frames end with a checksum, which no TCP header reaches.
    return big, unit_ns, header, swap, int.from_bytes(head[20:24], order) & 0x03FFFFFF
