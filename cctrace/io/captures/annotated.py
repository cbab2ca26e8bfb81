"""Write a copy of a capture, byte for byte, as a pcapng with comments on its packets.

Of a pcapng every block is copied unchanged, with its interfaces, time stamps, options and secrets; packet blocks
and the first section header get the option `opt_comment`, and sections no longer state their length. The records of
a pcap or snoop file become enhanced packet blocks with nanoseconds. The file is read in chunks, whatever its size.

Source: draft-ietf-opsawg-pcapng, sections 3.5 (options), 4.1 (section header), 4.2 (interface), 4.3 (enhanced packet).
"""

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from cctrace.errors import ArgumentError, FormatError
from cctrace.io import frames_of
from cctrace.io.captures import pcapng
from cctrace.io.captures.frames import Decoder, Frames
from cctrace.io.layout import BYTE_ORDERS, ENHANCED, INTERFACE, MAX_BLOCK, PACKET, SECTION, SIMPLE, ByteOrder
from cctrace.io.options import options_of
from cctrace.io.source import Source

COMMENT, APPLICATION, RESOLUTION = 1, 4, 9  # options: opt_comment, shb_userappl, if_tsresol
MARK = "Annotated by cctrace"  # how the comment of an annotated file's section begins
LONGEST = 65_000  # bytes of a comment; an option has room for 65,535
_END_OF_OPTIONS = bytes(4)
_SECTION_OPTIONS, _PACKET_DATA = 24, 28  # where they begin in their blocks
_MIN_OF_PACKETS = {ENHANCED: 32, PACKET: 32, SIMPLE: 16}  # bytes from which `records.find_packets` takes a block
_READ = 1 << 20


class Comment(NamedTuple):
    """A comment on a packet: the number of its record, from 1, and the text."""

    frame: int
    text: str


def is_annotated(head: bytes) -> bool:
    """Return whether a file that starts with these bytes was written by `write_annotated`."""
    if not pcapng.sniff(head):
        return False
    section = head[: int.from_bytes(head[4:8], BYTE_ORDERS.get(head[8:12], "little"))]
    return MARK.encode() in section


def write_annotated(
    source: Source, target: str, comments: Iterable[Comment], about: str, application: str = "cctrace"
) -> int:
    """Copy the packets of a capture into a pcapng, with comments on some of them.

    `source`: an open capture that nothing was read from. `comments`: in the order of their frames. `about`: a comment
    on the file, written behind `MARK`. `application`: what wrote the file. Returns the number of packets. Raises
    `ArgumentError` if the capture is annotated already.
    """
    if is_annotated(source.head):
        raise ArgumentError(f"{source.name} is annotated already: annotate the capture that it was made of")
    about, pending = f"{MARK}\n{about}".strip(), _Pending(comments)
    with open(target, "wb") as file:
        if pcapng.sniff(source.head):
            return _copy_blocks(source, file, pending, about)
        return _write_records(source, file, pending, _option(COMMENT, about) + _option(APPLICATION, application))


class _Pending:
    """The comments that are still to be written."""

    def __init__(self, comments: Iterable[Comment]) -> None:
        self._comments = iter(comments)
        self.frame, self._text = 0, ""
        self.step()

    def step(self) -> None:
        self.frame, self._text = next(self._comments, Comment(0, ""))

    def take(self, order: ByteOrder = "little") -> bytes:
        """Return the comment on `frame` as an option, and go on to the next."""
        option = _option(COMMENT, self._text, order)
        self.step()
        return option


def _option(code: int, text: str, order: ByteOrder = "little") -> bytes:
    value = text.encode("utf-8", "replace")[:LONGEST].decode("utf-8", "ignore").encode()
    return code.to_bytes(2, order) + len(value).to_bytes(2, order) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


class _Quiet(Decoder):
    """Discards warnings about a file: they were reported when it was read for the comments."""

    def warn(self, source: Source, text: str) -> None:
        """Do nothing."""

    damaged = warn


def _write_records(source: Source, file: BinaryIO, comments: _Pending, section: bytes) -> int:
    """Write the records of a pcap or snoop file as the packets of one interface."""
    begun, number = False, 0
    for data, frames, count in frames_of(source, None, _Quiet(source.name)):
        if not begun:
            begun = True
            body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + section + _END_OF_OPTIONS
            file.write(_block(SECTION, body))
            resolution = struct.pack("<HHB3x", RESOLUTION, 1, 9) + _END_OF_OPTIONS
            file.write(_block(INTERFACE, struct.pack("<HHI", int(frames.link[0]) & 0xFFFF, 0, 0) + resolution))
        file.writelines(_packet_blocks(data.data, frames, count, number, comments))
        number += count
    if not number:
        raise FormatError(f"{source.name}: no packets in the file")
    return number


def _packet_blocks(
    data: memoryview, frames: Frames, count: int, before: int, comments: _Pending
) -> Iterator[bytes | memoryview]:
    """Yield the pieces of the enhanced packet blocks of frames, `before` of which precede them in the file."""
    size = frames.caplen[:count]
    options = {}
    added = np.zeros(count, np.int64)
    while before < comments.frame <= before + count:
        place = comments.frame - before - 1
        options[place] = comments.take() + _END_OF_OPTIONS
        added[place] = len(options[place])
    total = size + (-size % 4) + added + 32
    heads = np.empty((count, 7), "<u4")
    time_ns = frames.time_ns[:count].astype(np.uint64)
    heads[:, 0], heads[:, 1], heads[:, 2] = ENHANCED, total, 0
    heads[:, 3], heads[:, 4] = time_ns >> np.uint64(32), time_ns & np.uint64(0xFFFFFFFF)
    heads[:, 5], heads[:, 6] = size, frames.wirelen[:count]
    head, tails = memoryview(heads.tobytes()), memoryview(total.astype("<u4").tobytes())
    padding = (b"", bytes(3), bytes(2), bytes(1))
    for i, (begin, length) in enumerate(zip(frames.offset[:count].tolist(), size.tolist(), strict=True)):
        yield head[28 * i : 28 * i + 28]
        yield data[begin : begin + length]
        if length & 3:
            yield padding[length & 3]
        if i in options:
            yield options[i]
        yield tails[4 * i : 4 * i + 4]


def _with_option(block: bytes, at: int, order: ByteOrder, option: bytes) -> bytes:
    """Return a block with one more option after those that begin at `at`; unchanged where these are damaged."""
    try:
        at += sum(4 + (len(value) + 3 & ~3) for _, value in options_of(block, at, order))
    except ValueError:
        return block
    if at > len(block) - 4:
        return block
    body = block[8:at] + option + _END_OF_OPTIONS
    length = (len(body) + 12).to_bytes(4, order)
    return block[:4] + length + body + length


def _blocks(source: Source) -> Iterator[tuple[int, bytes, ByteOrder]]:
    """Yield (type, block, byte order) of every complete block, up to where the file is damaged."""
    data, pos = b"", 0
    order: ByteOrder = "little"
    while True:
        if len(data) - pos < 12:
            data, pos = data[pos:] + source.read(_READ), 0
            if len(data) < 12:
                return
        if pcapng.sniff(data[pos : pos + 4]):
            if data[pos + 8 : pos + 12] not in BYTE_ORDERS:
                return
            order = BYTE_ORDERS[data[pos + 8 : pos + 12]]
        length = int.from_bytes(data[pos + 4 : pos + 8], order)
        padded = length + 3 & ~3
        if not 12 <= length <= MAX_BLOCK:
            return
        if len(data) - pos < padded:
            data, pos = data[pos:] + source.read(max(_READ, padded)), 0
            if len(data) < padded:
                return
        block = data[pos : pos + padded]
        if block[-4:] != block[4:8]:
            return
        yield int.from_bytes(block[:4], order), block, order
        pos += padded


def _copy_blocks(source: Source, file: BinaryIO, comments: _Pending, about: str) -> int:
    """Copy the blocks of a pcapng up to where it is damaged, as far as `pcapng.frames_of` reads it."""
    number, sections = 0, 0
    for kind, block, order in _blocks(source):
        if kind == SECTION:
            block = block[:16] + b"\xff" * 8 + block[24:]  # the comments change the length: not stated
            sections += 1
            if sections == 1:
                block = _with_option(block, _SECTION_OPTIONS, order, _option(COMMENT, about, order))
        elif len(block) >= _MIN_OF_PACKETS.get(kind, MAX_BLOCK + 1):
            number += 1
            if number == comments.frame:
                option = comments.take(order)
                if kind != SIMPLE:  # which has no options
                    size = int.from_bytes(block[20:24], order)
                    block = _with_option(block, _PACKET_DATA + (size + 3 & ~3), order, option)
        file.write(block)
    return number
