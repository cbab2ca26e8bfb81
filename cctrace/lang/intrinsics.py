"""The compiled forms of functions of Python, math, NumPy and `cctrace.cc.cmath`."""

import math
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cctrace.cc import asking, cmath
from cctrace.lang import memory
from cctrace.lang.accesses import Accesses
from cctrace.lang.emit import LLVM, Array, Scalar, Value, described

# The prelude of every module: math.gcd, and Python's // and % of floats, which have the divisor's sign.
PRELUDE = """
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare double @llvm.fabs.f64(double)
declare float @llvm.fabs.f32(float)
declare double @llvm.floor.f64(double)
declare double @llvm.ceil.f64(double)
declare double @llvm.sqrt.f64(double)
declare double @llvm.copysign.f64(double, double)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.bswap.i64(i64)
attributes #0 = { nounwind }
!0 = !{!"branch_weights", i32 1, i32 1048576}

define internal i64 @gcd(i64 %a, i64 %b) #0 {
entry:
  br label %loop
loop:
  %x = phi i64 [ %a, %entry ], [ %y, %next ]
  %y = phi i64 [ %b, %entry ], [ %rest, %next ]
  %done = icmp eq i64 %y, 0
  br i1 %done, label %end, label %next
next:
  %rest = srem i64 %x, %y
  br label %loop
end:
  %negative = sub i64 0, %x
  %low = icmp slt i64 %x, 0
  %size = select i1 %low, i64 %negative, i64 %x
  ret i64 %size
}

define internal double @floor_mod(double %x, double %y) #0 {
  %rest = frem double %x, %y
  %zero = fcmp oeq double %rest, 0.0
  %signed = call double @llvm.copysign.f64(double 0.0, double %y)
  %low = fcmp olt double %rest, 0.0
  %negative = fcmp olt double %y, 0.0
  %differ = xor i1 %low, %negative
  %moved = fadd double %rest, %y
  %other = select i1 %differ, double %moved, double %rest
  %mod = select i1 %zero, double %signed, double %other
  ret double %mod
}

define internal double @floor_div(double %x, double %y) #0 {
  %mod = call double @floor_mod(double %x, double %y)
  %left = fsub double %x, %mod
  %div = fdiv double %left, %y
  %down = call double @llvm.floor.f64(double %div)
  %rest = fsub double %div, %down
  %over = fcmp ogt double %rest, 0.5
  %up = fadd double %down, 1.0
  %whole = select i1 %over, double %up, double %down
  %ratio = fdiv double %x, %y
  %nothing = call double @llvm.copysign.f64(double 0.0, double %ratio)
  %zero = fcmp oeq double %div, 0.0
  %result = select i1 %zero, double %nothing, double %whole
  ret double %result
}
"""

Lowering: TypeAlias = Callable[..., Value]  # of the emitter and the arguments


def _integer(f: Accesses, value: Value) -> str:
    if not isinstance(value, Scalar) or value.kind not in ("int", "bool"):
        f.refuse(f"{described(value)} is given to a function of integers")
    return f.convert(value, "int").text


def _extreme(op: str) -> Lowering:
    def lowered(f: Accesses, first: Value, *others: Value) -> Value:
        kind = f.joined(first, *others)
        found = f.convert(first, kind)
        for other in others:  # the first of equal ones, as in Python
            other = f.convert(other, kind)
            found = f.selected(f.compare(op, other, found), other, found)
        return found

    return lowered


def _abs(f: Accesses, x: Value) -> Value:
    if isinstance(x, Scalar) and x.kind in ("float", "f32"):
        size = "f64" if x.kind == "float" else "f32"
        return Scalar(x.kind, f.op(f"call {LLVM[x.kind]} @llvm.fabs.{size}({LLVM[x.kind]} {x.text})"))
    text = _integer(f, x)
    negative = f.op(f"sub i64 0, {text}")
    return f.selected(f.op(f"icmp slt i64 {text}, 0"), Scalar("int", negative), Scalar("int", text))


def _len(f: Accesses, x: Value) -> Value:
    if not isinstance(x, Array) or x.shape[0] is None:
        f.refuse(f"len of {described(x)} is not known")
    return Scalar("int", str(x.shape[0]))


def _converted(kind: str) -> Lowering:
    return lambda f, x: f.convert(x, kind)


def _to_integer(name: str) -> Lowering:
    def lowered(f: Accesses, x: Value) -> Value:
        if isinstance(x, Scalar) and x.kind in ("int", "bool"):
            return f.convert(x, "int")
        return f.convert(Scalar("float", f.op(f"call double @llvm.{name}.f64(double {_real(f, x)})")), "int")

    return lowered


def _real(f: Accesses, x: Value) -> str:
    return f.convert(x, "float").text


def _sqrt(f: Accesses, x: Value) -> Value:
    return Scalar("float", f.op(f"call double @llvm.sqrt.f64(double {_real(f, x)})"))


def _of_c(name: str) -> Lowering:
    return lambda f, *args: Scalar("float", f.call_c(name, *(_real(f, x) for x in args)))


def _fls64(f: Accesses, x: Value) -> Value:
    zeros = f.op(f"call i64 @llvm.ctlz.i64(i64 {_integer(f, x)}, i1 false)")
    return Scalar("int", f.op(f"sub i64 64, {zeros}"))


def _gcd(f: Accesses, a: Value, b: Value) -> Value:
    return Scalar("int", f.op(f"call i64 @gcd(i64 {_integer(f, a)}, i64 {_integer(f, b)})"))


def _masked(mask: int) -> Lowering:
    return lambda f, x: Scalar("int", f.op(f"and i64 {_integer(f, x)}, {mask}"))


def _s32(f: Accesses, x: Value) -> Value:
    return Scalar("int", f.op(f"sext i32 {f.op(f'trunc i64 {_integer(f, x)} to i32')} to i64"))


def _as_uint(f: Accesses, x: Value) -> Scalar:
    return Scalar("uint", _integer(f, x))


def _idiv(f: Accesses, x: Value, y: Value) -> Value:
    dividend, divisor = _integer(f, x), _integer(f, y)
    f.fail_if(f.op(f"icmp eq i64 {divisor}, 0"), "division by zero")
    return Scalar("int", f.quotient(dividend, divisor)[0])


def _call(f: Accesses, address: Value, event: Value, state: Value, ack: Value) -> Value:
    function = f.op(f"inttoptr i64 {_integer(f, address)} to ptr")
    args = ", ".join(f"i64 {_integer(f, a)}" for a in (event, state, ack))
    return Scalar("int", f.op(f"call i64 {function}({args})"))


def _word64(order: str) -> Lowering:
    def lowered(f: Accesses, array: Value, at: Value) -> Value:
        if not isinstance(array, Array) or array.dtype != np.uint8 or len(array.shape) != 1:
            f.refuse(f"eight bytes are read of {described(array)}; they can be of an array of bytes only")
        place = _integer(f, at)
        if f.checks:
            last = f.op(f"sub i64 {array.shape[0]}, 8")
            for outside in (f"icmp slt i64 {place}, 0", f"icmp sgt i64 {place}, {last}"):
                f.fail_if(f.op(outside), "index out of bounds")
        word = f.op(f"load i64, ptr {f.op(f'getelementptr i8, ptr {array.text}, i64 {place}')}, align 1")
        return Scalar("int", word if order == sys.byteorder else f.op(f"call i64 @llvm.bswap.i64(i64 {word})"))

    return lowered


def _ask(f: Accesses, address: Value, numbers: Value) -> Value:
    if not isinstance(numbers, Array) or numbers.dtype != np.float64:
        f.refuse(f"{described(numbers)} is asked about; only an array of floats can be")
    function = f.op(f"inttoptr i64 {_integer(f, address)} to ptr")
    return Scalar("float", f.op(f"call double {function}(ptr {numbers.text})"))


# Python object: (what emits it, fewest and most arguments)
INTRINSICS: dict[Any, tuple[Lowering, int, int]] = {
    min: (_extreme("<"), 2, 99),
    max: (_extreme(">"), 2, 99),
    abs: (_abs, 1, 1),
    len: (_len, 1, 1),
    math.gcd: (_gcd, 2, 2),
    math.sqrt: (_sqrt, 1, 1),
    math.fabs: (lambda f, x: _abs(f, f.convert(x, "float")), 1, 1),
    math.floor: (_to_integer("floor"), 1, 1),
    math.ceil: (_to_integer("ceil"), 1, 1),
    math.pow: (_of_c("pow"), 2, 2),
    np.sqrt: (_sqrt, 1, 1),
    cmath.u8: (_masked(0xFF), 1, 1),
    cmath.u16: (_masked(0xFFFF), 1, 1),
    cmath.u32: (_masked(0xFFFFFFFF), 1, 1),
    cmath.s32: (_s32, 1, 1),
    cmath.u64: (lambda f, x: Scalar("int", _integer(f, x)), 1, 1),
    cmath.u64_shr: (lambda f, x, n: f.convert(f.binary(">>", _as_uint(f, x), _as_uint(f, n)), "int"), 2, 2),
    cmath.u64_div: (lambda f, x, y: f.convert(f.binary("//", _as_uint(f, x), _as_uint(f, y)), "int"), 2, 2),
    cmath.u64_lt: (lambda f, x, y: Scalar("bool", f.compare("<", _as_uint(f, x), _as_uint(f, y))), 2, 2),
    cmath.fls64: (_fls64, 1, 1),
    cmath.idiv: (_idiv, 2, 2),
    memory.big64: (_word64("big"), 2, 2),
    memory.little64: (_word64("little"), 2, 2),
    memory.call: (_call, 4, 4),
    asking.ask: (_ask, 2, 2),
}
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int, np.int64),
    "uint": (np.uint64,),
    "float": (float, np.float64),
    "f32": (np.float32,),
}
INTRINSICS |= {name: (_converted(kind), 1, 1) for kind, names in _KINDS.items() for name in names}
INTRINSICS |= {name: (_converted("bool"), 1, 1) for name in (bool, np.bool_)}
INTRINSICS |= {getattr(math, n): (_of_c(n), 1, 1) for n in ("exp", "expm1", "log", "log1p", "log2", "tanh")}
