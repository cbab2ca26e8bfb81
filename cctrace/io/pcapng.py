"""pcapng: blocks of sections, interfaces and packets.

Every block is type, length, body, length again. A section header sets the byte order of what follows; interface blocks
give link type, resolution and offset of the time stamps; packets come in enhanced, simple and obsolete blocks. Blocks
of other types are passed over. Packets are found by a compiled loop, which stops at every block that changes its state.

Source: draft-ietf-opsawg-pcapng.
"""

import numpy as np

from cctrace.errors import FormatError
from cctrace.io.compiled import OFFSET, compiled
from cctrace.io.frames import Frames
from cctrace.io.source import CHUNK, Chunks

SECTION, INTERFACE, PACKET, SIMPLE, STATISTICS, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 5, 6
LARGEST_BLOCK = 1 << 24
_MAGIC = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "little", b"\x1a\x2b\x3c\x4d": "big"}

# Why `find_packets` returned: the bytes or the arrays are used up, a block for Python, or damage.
_USED_UP, _STATE, _BAD_LENGTH, _BAD_TRAILER = range(4)
# Columns of the interface matrix. Time stamps become nanoseconds by factor (MULTIPLY), divisor (DIVIDE) or shift.
_LINK, _MODE, _FACTOR, _OFFSET_NS, _SNAPLEN = range(5)
_MULTIPLY, _DIVIDE, _SHIFT = range(3)
# What it counts.
_CLIPPED, _UNDEFINED, _TIMELESS = range(3)


def sniff(head):
    """Tell whether a file that starts with these bytes is a pcapng."""
    return head[:4] == _MAGIC


@compiled(forceinline=True)
def _u32(b, p, big):
    p &= OFFSET
    if big:
        return (np.int64(b[p]) << 24) | (np.int64(b[p + 1]) << 16) | (np.int64(b[p + 2]) << 8) | np.int64(b[p + 3])
    return (np.int64(b[p + 3]) << 24) | (np.int64(b[p + 2]) << 16) | (np.int64(b[p + 1]) << 8) | np.int64(b[p])


@compiled(forceinline=True)
def _nanoseconds(high, low, interface):
    """Return a time stamp of an interface in nanoseconds since the epoch."""
    units, factor = (high << 32) | low, interface[_FACTOR]
    if interface[_MODE] == _MULTIPLY:
        ns = units * factor
    elif interface[_MODE] == _DIVIDE:
        ns = units // factor
    else:
        rest, bits = units & ((1 << factor) - 1), factor
        if bits > 32:  # what lies below 2**-32 s is less than a nanosecond, and would overflow
            rest, bits = rest >> (bits - 32), 32
        ns = (units >> factor) * 1_000_000_000 + ((rest * 1_000_000_000) >> bits)
    return ns + interface[_OFFSET_NS]


@compiled()
def find_packets(b, pos, end, big, interfaces, n_interfaces, largest, offset, caplen, wirelen, time_ns, link, counts):
    """Find the packets of the complete blocks of b[pos:end]; returns (packets, position after them, status)."""
    n = 0
    while n < len(offset) and pos + 12 <= end:
        kind, length = _u32(b, pos, big), _u32(b, pos + 4, big)
        if kind == SECTION:
            return n, pos, _STATE
        padded = (length + 3) & ~3
        if length < 12 or length > largest:
            return n, pos, _BAD_LENGTH
        if pos + padded > end:
            break
        if _u32(b, pos + padded - 4, big) != length:
            return n, pos, _BAD_TRAILER
        if kind in (INTERFACE, STATISTICS):
            return n, pos, _STATE
        body, stop = pos + 8, pos + padded - 4
        if kind == ENHANCED and length >= 32:
            interface, high, low = _u32(b, body, big), _u32(b, body + 4, big), _u32(b, body + 8, big)
            captured, original, start = _u32(b, body + 12, big), _u32(b, body + 16, big), body + 20
        elif kind == PACKET and length >= 32:
            interface, high, low = _u32(b, body, big), _u32(b, body + 4, big), _u32(b, body + 8, big)
            interface = interface >> 16 if big else interface & 0xFFFF
            captured, original, start = _u32(b, body + 12, big), _u32(b, body + 16, big), body + 20
        elif kind == SIMPLE and length >= 16:
            interface, high, low = 0, 0, 0
            original, start = _u32(b, body, big), body + 4
            captured = min(original, stop - start)
            if n_interfaces and interfaces[0, _SNAPLEN]:
                captured = min(captured, interfaces[0, _SNAPLEN])
            counts[_TIMELESS] += 1
        else:
            pos += padded
            continue
        if captured > stop - start:
            captured = stop - start
            counts[_CLIPPED] += 1
        offset[n], caplen[n], wirelen[n], time_ns[n], link[n] = start, captured, original, 0, -1
        if interface < n_interfaces:
            link[n] = interfaces[interface, _LINK]
            if kind != SIMPLE:
                time_ns[n] = _nanoseconds(high, low, interfaces[interface])
        else:
            counts[_UNDEFINED] += 1
        n += 1
        pos += padded
    return n, pos, _USED_UP


def frames_of(source, decoder, chunk=CHUNK):
    """Yield (buffer, `Frames`, count) until a pcapng ends; tells `decoder` about damage and about what is unusual."""
    chunks, frames, section = Chunks(source, chunk), Frames(), _Section()
    need = 12
    while chunks.more(need):
        status, count = _USED_UP, len(frames.offset)
        while status == _STATE or (status == _USED_UP and count == len(frames.offset)):
            count, chunks.pos, status = find_packets(
                chunks.data, chunks.pos, chunks.end, section.big, section.interfaces, section.n_interfaces,
                LARGEST_BLOCK, frames.offset, frames.caplen, frames.wirelen, frames.time_ns, frames.link,
                section.counts,
            )  # fmt: skip
            yield chunks.data, frames, count
            if status == _STATE and not section.enter(chunks, source, decoder):
                break
        if status in (_BAD_LENGTH, _BAD_TRAILER):
            length = int.from_bytes(chunks.data[chunks.pos + 4 : chunks.pos + 8].tobytes(), section.order)
            what = f"12 to {LARGEST_BLOCK} are allowed" if status == _BAD_LENGTH else "its trailing length differs"
            decoder.damaged(source, f"block at offset {chunks.offset} claims {length} bytes, {what}; stopped there")
            break
        if section.broken:
            break
        need = chunks.end - chunks.pos + 1
    else:
        decoder.ended(source, chunks, "block")
    section.report(source, decoder)


class _Section:
    """What the blocks so far have said about those to come."""

    def __init__(self):
        self.order, self.broken = "little", False
        self.interfaces, self.n_interfaces = np.zeros((8, 5), np.int64), 0
        self.counts = np.zeros(3, np.int64)
        self.dropped = 0

    @property
    def big(self):
        return self.order == "big"

    def enter(self, chunks, source, decoder):
        """Take in the section, interface or statistics block at `chunks.pos`; False if it is not complete yet."""
        head = chunks.data[chunks.pos : min(chunks.pos + 12, chunks.end)].tobytes()
        is_section = head[:4] == _MAGIC
        if is_section:
            order = _BYTE_ORDERS.get(head[8:12])
            if order is None:
                self._break(chunks, source, decoder, f"has the unknown byte-order magic {head[8:12].hex()}")
                return False
            self.order = order
        length = int.from_bytes(head[4:8], self.order)
        if length < (28 if is_section else 12) or length > LARGEST_BLOCK or length % 4:
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
            decoder.warn(source, f"block at offset {chunks.offset}: {error}")
        chunks.pos += length
        return True

    def _break(self, chunks, source, decoder, text):
        self.broken = True
        if chunks.offset == 0:
            raise FormatError(f"{source.name}: section header at offset 0 {text}")
        decoder.damaged(source, f"block at offset {chunks.offset} {text}; stopped there")

    def _take(self, block, is_section):
        number = lambda start, size: int.from_bytes(block[start : start + size], self.order)  # noqa: E731
        if is_section:
            self.n_interfaces = 0
            if number(12, 2) != 1:
                raise ValueError(f"section of version {number(12, 2)}.{number(14, 2)}; 1.x is known")
        elif number(0, 4) == STATISTICS:
            # Both counts grow over a capture: what the interface, and what the system, had to drop.
            drops = [int.from_bytes(value, self.order) for code, value in self._options(block, 20) if code in (5, 7)]
            self.dropped = max(self.dropped, sum(drops))
        else:
            self._add_interface(number(8, 2), number(12, 4), block)

    def _add_interface(self, link, snaplen, block):
        if self.n_interfaces == len(self.interfaces):
            self.interfaces = np.concatenate((self.interfaces, np.zeros_like(self.interfaces)))
        row = self.interfaces[self.n_interfaces]
        row[:] = link, _MULTIPLY, 1000, 0, snaplen  # microseconds unless an option says otherwise
        self.n_interfaces += 1
        for code, value in self._options(block, 16):
            if code == 9 and len(value) == 1:
                row[_MODE], row[_FACTOR] = _resolution(value[0])
            elif code == 14 and len(value) == 8:
                seconds = int.from_bytes(value, self.order, signed=True)
                if abs(seconds) > 1 << 33:
                    raise ValueError(f"if_tsoffset of {seconds} s ignored: it would leave the range of time_ns")
                row[_OFFSET_NS] = seconds * 1_000_000_000

    def _options(self, block, at):
        """Yield (code, value) of the options that start at `at`; ValueError where they leave the block."""
        while at + 4 <= len(block) - 4:
            code, length = (int.from_bytes(block[at + i : at + i + 2], self.order) for i in (0, 2))
            if code == 0:
                return
            if at + 4 + length > len(block) - 4:
                raise ValueError(f"option {code} of {length} bytes exceeds the block; it and what follows is ignored")
            yield code, block[at + 4 : at + 4 + length]
            at += 4 + (length + 3 & ~3)

    def report(self, source, decoder):
        """Warn about what was unusual."""
        lines = {
            "packet blocks claim more bytes than they hold": self.counts[_CLIPPED],
            "packets name an interface that the file does not describe; skipped": self.counts[_UNDEFINED],
            "packets have no time stamp (simple packet blocks): their time_ns is 0": self.counts[_TIMELESS],
            "packets were dropped while capturing, says the file": self.dropped,
        }
        for text, count in lines.items():
            if count:
                decoder.warn(source, f"{count} {text}")


def _resolution(value):
    """Return (mode, factor) for an if_tsresol byte: 10**-v seconds, or 2**-v with the top bit set."""
    if value & 0x80:
        bits = value & 0x7F
        if bits > 62:
            raise ValueError(f"if_tsresol 2^-{bits} s is finer than cctrace reads; microseconds assumed")
        return _SHIFT, bits
    if value > 27:
        raise ValueError(f"if_tsresol 10^-{value} s is finer than cctrace reads; microseconds assumed")
    return (_MULTIPLY, 10 ** (9 - value)) if value <= 9 else (_DIVIDE, 10 ** (value - 9))
