"""pcapng: blocks of sections, interfaces and packets.

Every block is type, length, body, length again. A section header sets the byte order of what follows; interface blocks
give link type, resolution and offset of the time stamps; packets come in enhanced, simple and obsolete blocks. Blocks
of other types are passed over. Packets are found by a compiled loop, which stops at every block that changes its state.

Source: draft-ietf-opsawg-pcapng.
"""

from collections.abc import Iterator

import numpy as np

from cctrace.columns import Ints
from cctrace.errors import FormatError
from cctrace.io import layout
from cctrace.io.captures import halves, records
from cctrace.io.captures.chunks import CHUNK, Chunks, Decoding, Window, window_of
from cctrace.io.captures.frames import Decoder, FrameIterator, Frames
from cctrace.io.counters import bblog
from cctrace.io.layout import BYTE_ORDERS, MAX_BLOCK, SECTION_BYTES, ByteOrder
from cctrace.io.options import options_of
from cctrace.io.source import Source
from cctrace.lang.machine import Machine

_MIN_BLOCK = 12
_PACKET_HEADER = 28  # bytes of an enhanced packet block before the frame

find_packets = Machine(records.find_packets)


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a pcapng."""
    return head[:4] == SECTION_BYTES


def frames_of(source: Source, decoder: Decoder, chunk: int = CHUNK) -> FrameIterator:
    """Yield (buffer, `Frames`, count) until a pcapng ends; damage and oddities are reported to `decoder`."""
    chunks, frames, section = Chunks(source, chunk), Frames(), _Section()
    need, most = _MIN_BLOCK, len(frames.offset)
    while chunks.more(need):
        count, chunks.pos, status = find_packets(
            chunks.data, chunks.pos, chunks.end, section.big, section.described, MAX_BLOCK, most,
            frames.offset, frames.caplen, frames.wirelen, frames.time_ns, frames.link, section.counts,
        )  # fmt: skip
        frames.share = chunks.share
        if count:  # a file may be all interfaces
            yield chunks.data, frames, count
        if count == most:
            need = 0
        elif not (need := section.need(status, chunks, source, decoder)):
            break
    section.report(source, decoder, chunks)


def decode(source: Source, decoder: Decoder) -> Iterator[None]:
    """Decode a pcapng without showing its frames, which is faster; yield whenever the rows are full and more come."""
    window, section = window_of(source), _Section()
    decoding, need = Decoding(decoder, window, halve=halves.begun), _MIN_BLOCK
    while decoding.window.more(need):
        rules = 1, section.big, _PACKET_HEADER, 0, MAX_BLOCK
        status = yield from decoding.on(rules, section.described, section.counts)
        if not (need := section.need(status, decoding.window, source, decoder)):
            break
    section.report(source, decoder, decoding.window)


class _Section:
    """What earlier blocks say about later ones: byte order, interfaces, drops."""

    def __init__(self) -> None:
        self.order: ByteOrder = "little"
        self.broken = False
        self.interfaces, self.n_interfaces = np.zeros((8, 5), np.int64), 0
        self.counts = np.zeros(4, np.int64)
        self.dropped, self.bblog = 0, False

    @property
    def big(self) -> bool:
        return self.order == "big"

    @property
    def described(self) -> Ints:
        """The interfaces, one row each."""
        return self.interfaces[: self.n_interfaces]

    def need(self, status: int, chunks: Chunks | Window, source: Source, decoder: Decoder) -> int:
        """Deal with what stopped the search for packets; return how many bytes it takes to go on, 0: it is damage."""
        if status == layout.STATE and self.enter(chunks, source, decoder):
            while self._describes(chunks) and self.enter(chunks, source, decoder):  # interfaces come one after another
                pass
            return 0 if self.broken else _MIN_BLOCK
        if status in (layout.BAD_LENGTH, layout.BAD_TRAILER):
            self.broken = True
            length = int.from_bytes(chunks.data[chunks.pos + 4 : chunks.pos + 8].tobytes(), self.order)
            what = f"12 to {MAX_BLOCK} are allowed" if status == layout.BAD_LENGTH else "its trailing length differs"
            decoder.damaged(source, f"block at offset {chunks.offset} claims {length} bytes, {what}; stopped there")
        return 0 if self.broken else chunks.end - chunks.pos + 1

    def _describes(self, chunks: Chunks | Window) -> bool:
        """Whether an interface block begins at `chunks.pos`, as far as its bytes are there."""
        kind = chunks.data[chunks.pos : chunks.pos + 4].tobytes()
        return chunks.end - chunks.pos >= _MIN_BLOCK and int.from_bytes(kind, self.order) == layout.INTERFACE

    def enter(self, chunks: Chunks | Window, source: Source, decoder: Decoder) -> bool:
        """Read the section, interface or statistics block at `chunks.pos`; False if it is not complete yet."""
        head = chunks.data[chunks.pos : min(chunks.pos + 12, chunks.end)].tobytes()
        is_section = head[:4] == SECTION_BYTES
        if is_section:
            order = BYTE_ORDERS.get(head[8:12])
            if order is None:
                self._break(chunks, source, decoder, f"has the unknown byte-order magic {head[8:12].hex()}")
                return False
            self.order = order
        length = int.from_bytes(head[4:8], self.order)
        if length < (28 if is_section else 12) or length > MAX_BLOCK or length % 4:
            self._break(chunks, source, decoder, f"claims {length} bytes")
            return False
        if chunks.pos + length > chunks.end:
            return False
        block = chunks.data[chunks.pos : chunks.pos + length].tobytes()
        if int.from_bytes(block[-4:], self.order) != length:
            self._break(chunks, source, decoder, f"claims {length} bytes, its trailing length differs")
            return False
        try:
            self._take(block, is_section)
        except ValueError as error:
            decoder.warn_few(source, f"block at offset {chunks.offset}: {error}", "blocks with such faults")
        if self.n_interfaces:
            decoder.check_link(source, self.interfaces[self.n_interfaces - 1, layout.LINK])
        chunks.pos += length
        return True

    def _break(self, chunks: Chunks | Window, source: Source, decoder: Decoder, text: str) -> None:
        self.broken = True
        if chunks.offset == 0:
            raise FormatError(f"{source.name}: section header at offset 0 {text}")
        decoder.damaged(source, f"block at offset {chunks.offset} {text}; stopped there")

    def _take(self, block: bytes, is_section: bool) -> None:
        def number(start: int, size: int) -> int:
            return int.from_bytes(block[start : start + size], self.order)

        if is_section:
            self.n_interfaces = 0
            self.bblog |= bblog.sniff(block)
            if number(12, 2) != 1:
                raise ValueError(f"section of version {number(12, 2)}.{number(14, 2)}; 1.x is known")
        elif number(0, 4) == layout.STATISTICS:
            # Both counts grow over a capture: drops by the interface and by the system.
            options = options_of(block, 20, self.order)
            drops = [int.from_bytes(value, self.order) for code, value in options if code in (5, 7)]
            self.dropped = max(self.dropped, sum(drops))
        else:
            self._add_interface(number(8, 2), number(12, 4), block)

    def _add_interface(self, link: int, snaplen: int, block: bytes) -> None:
        if self.n_interfaces == len(self.interfaces):
            self.interfaces = np.concatenate((self.interfaces, np.zeros_like(self.interfaces)))
        row = self.interfaces[self.n_interfaces]
        row[:] = link, layout.MULTIPLY, 1000, 0, snaplen  # microseconds unless an option says otherwise
        self.n_interfaces += 1
        for code, value in options_of(block, 16, self.order):
            if code == 9 and len(value) == 1:
                row[layout.MODE], row[layout.FACTOR] = _resolution(value[0])
            elif code == 14 and len(value) == 8:
                seconds = int.from_bytes(value, self.order, signed=True)
                if abs(seconds) >= 1 << 32:
                    raise ValueError(f"if_tsoffset of {seconds} s ignored: it would leave the range of time_ns")
                row[layout.OFFSET_NS] = seconds * 1_000_000_000

    def report(self, source: Source, decoder: Decoder, chunks: Chunks | Window) -> None:
        """Warn about what was unusual, and if the file ends inside a block."""
        if not self.broken:
            decoder.ended(source, chunks, "block")
        lines = {
            "packet blocks claim more bytes than they hold": self.counts[layout.CLIPPED],
            "packets name an interface that the file does not describe; skipped": self.counts[layout.UNDEFINED],
            "packets have no time stamp (simple packet blocks): their time_ns is 0": self.counts[layout.TIMELESS],
            "packets have impossible time stamps (before 1970 or after 2116): their time_ns is 0": self.counts[
                layout.ERRATIC
            ],
            "packets were dropped while capturing, according to the file": self.dropped,
        }
        for text, count in lines.items():
            if count:
                decoder.warn(source, f"{count} {text}")
        if self.bblog:
            decoder.warn(source, bblog.HINT)


def _resolution(value: int) -> tuple[int, int]:
    """Return (mode, factor) for an if_tsresol byte: 10**-v seconds, or 2**-v with the top bit set."""
    if value & 0x80:
        bits = value & 0x7F
        if bits > 62:
            raise ValueError(f"if_tsresol 2^-{bits} s is finer than cctrace reads; microseconds assumed")
        return (layout.SHIFT, bits) if bits else (layout.MULTIPLY, 10**9)
    if value > 27:
        raise ValueError(f"if_tsresol 10^-{value} s is finer than cctrace reads; microseconds assumed")
    return (layout.MULTIPLY, 10 ** (9 - value)) if value <= 9 else (layout.DIVIDE, 10 ** (value - 9))
