"""C arithmetic: what a C compiler computes, interpreted and compiled."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cctrace.cc import cmath
from cctrace.cc.base import LinuxController
from cctrace.cc.cmath import f32, fls64, idiv, s32, u8, u16, u32, u64, u64_div, u64_lt, u64_shr
from cctrace.flows.views import View
from cctrace.replaying.player import Player

INT64 = st.integers(-(2**63), 2**63 - 1)
WRAPS = [(u8, ctypes.c_uint8), (u16, ctypes.c_uint16), (u32, ctypes.c_uint32), (s32, ctypes.c_int32)]


@given(INT64)
def test_wraps_are_the_casts_of_c(x):
    for wrap, ctype in WRAPS:
        assert wrap(x) == ctype(x).value
    assert u64(x) == x


@given(st.integers(-(2**80), 2**80))
def test_u64_keeps_the_low_64_bits_as_int64(x):
    assert u64(x) == ctypes.c_int64(x & (2**64 - 1)).value


@given(INT64, INT64.filter(bool), st.integers(1, 63))
def test_u64_operations_read_the_bits_as_unsigned(x, y, n):
    ux, uy = np.uint64(x % 2**64), np.uint64(y % 2**64)
    assert u64_shr(x, n) == int(ux >> np.uint64(n))
    assert u64_div(x, y) == u64(int(ux // uy))
    assert u64_lt(x, y) == (ux < uy)


@given(INT64, INT64.filter(bool))
def test_idiv_truncates_towards_zero(x, y):
    assert idiv(x, y) == (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


@given(st.integers(0, 2**63 - 1))
def test_fls64_is_the_position_of_the_highest_bit(x):
    assert 1 << fls64(x) >> 1 <= x < 1 << fls64(x)


class Arithmetic(LinuxController):
    """Every function of cmath on two inputs, and divisions by constants, which round down."""

    wrapped8: int = 0
    wrapped16: int = 0
    wrapped32: int = 0
    signed32: int = 0
    wrapped64: int = 0
    shifted: int = 0
    divided: int = 0
    less: bool = False
    truncated: int = 0
    highest: int = 0
    floored: int = 0
    rest: int = 0
    single: f32 = f32(0.0)
    chained: f32 = f32(0.0)

    def on_ack(self, ack):
        x = ack.rand0
        y = ack.rand1
        self.wrapped8 = u8(x)
        self.wrapped16 = u16(x)
        self.wrapped32 = u32(x)
        self.signed32 = s32(u32(x) - u32(y))
        self.wrapped64 = u64(x * 3)
        self.shifted = u64_shr(x, 7)
        self.divided = u64_div(x, y)
        self.less = u64_lt(x, y)
        self.truncated = cmath_idiv(x, y)
        self.highest = fls64(u64_shr(x, 1))
        self.floored = x // 1000
        self.rest = x % 1_000_003
        self.single = f32(f32(x) * f32(0.1))
        self.chained = f32(f32(self.single / f32(3.0)) + f32(u32(y)))


cmath_idiv = cmath.idiv
EDGES = [0, 1, -1, 2**24 + 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63) + 1, -(2**63)]


@pytest.mark.parametrize("name", list(Arithmetic.__annotations__))
def test_compiled_arithmetic_equals_interpreted(name):
    pairs = [(x, y) for x in EDGES for y in EDGES if y and (x, y) != (-(2**63), -1)]
    columns = {"rand0": [x for x, _ in pairs], "rand1": [y for _, y in pairs]}
    view = View("linux", np.ones(len(pairs)), columns)
    runs = [Player(view, Arithmetic, mode=mode, record=[name]) for mode in ("compiled", "debug")]
    for run in runs:
        run.run()
    fast, slow = (run.recorded[name] for run in runs)
    assert fast.dtype == slow.dtype
    assert fast.tobytes() == slow.tobytes()
