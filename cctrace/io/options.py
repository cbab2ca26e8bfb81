"""Options of a pcapng block: code and length in 16 bits each, and a value that is padded to 32 bits.

Source: draft-ietf-opsawg-pcapng, section 3.5.
"""

from collections.abc import Iterator

from cctrace.io.layout import ByteOrder


def options_of(block: bytes, at: int, order: ByteOrder) -> Iterator[tuple[int, bytes]]:
    """Yield (code, value) of the options that start at `at`; ValueError where one exceeds the block."""
    while at + 4 <= len(block) - 4:
        code, length = (int.from_bytes(block[at + i : at + i + 2], order) for i in (0, 2))
        if code == 0:
            return
        if at + 4 + length > len(block) - 4:
            raise ValueError(
                f"option {code} of {length} bytes exceeds the block; it and the following ones are ignored"
            )
        yield code, block[at + 4 : at + 4 + length]
        at += 4 + (length + 3 & ~3)
