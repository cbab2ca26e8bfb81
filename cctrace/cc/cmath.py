"""C integer and single-precision arithmetic, the same interpreted and compiled.

The released controllers are C. Their decisions depend on 32-bit wrap-around, truncating division and `float`
rounding, so a controller writes these out with the functions below wherever its source relies on them.

Every integer is an int64. Interpreted Python integers do not wrap, compiled ones wrap at 64 bits: both agree when each
sum, difference or product that can leave its C type passes through `u32`, `s32`, `u16` or `u64` before it is
shifted right, divided or compared. A u64 is held as the int64 with the same bits, so a u64 that can exceed
2**63 - 1 must be shifted, divided and compared with `u64_shr`, `u64_div` and `u64_lt`.

`lang/intrinsics.py` has compiled equivalents of these functions; `tests/test_cmath.py` holds the two together.
"""

import numpy as np

U16_MAX = 0xFFFF
U32_MAX = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF

f32 = np.float32  # C float: wrap the result of every single-precision operation


def u8(x: int) -> int:
    """Wrap to an unsigned 8-bit integer."""
    return x & 0xFF


def u16(x: int) -> int:
    """Wrap to an unsigned 16-bit integer."""
    return x & U16_MAX


def u32(x: int) -> int:
    """Wrap to an unsigned 32-bit integer."""
    return x & U32_MAX


def s32(x: int) -> int:
    """Wrap to a signed 32-bit integer; `s32(a - b) > 0` is the kernel's after(a, b)."""
    return ((x + 0x80000000) & U32_MAX) - 0x80000000


def u64(x: int) -> int:
    """Wrap to 64 bits; returned as the int64 of the same bits."""
    return ((x + (1 << 63)) & _M64) - (1 << 63)


def u64_shr(x: int, n: int) -> int:
    """Shift the u64 `x` right by `n` bits, filling with zeros; 0 < n < 64."""
    return (x & _M64) >> n


def u64_div(x: int, y: int) -> int:
    """Quotient of two u64 (both given as int64 bits), y nonzero."""
    return u64((x & _M64) // (y & _M64))


def u64_lt(x: int, y: int) -> bool:
    """Compare two u64: x < y."""
    return (x & _M64) < (y & _M64)


def fls64(x: int) -> int:
    """Position of the highest bit set in `x`, not negative, from 1; 0 if none is."""
    return int(x).bit_length()


def idiv(x: int, y: int) -> int:
    """Signed C division: truncates towards zero; y nonzero."""
    q = abs(x) // abs(y)
    return q if (x < 0) == (y < 0) else -q
