"""LLVM instructions for Python's arithmetic, as text: kinds of values, conversions, operators.

Kinds: int (int64, wraps), uint (uint64), float (float64), f32 (C float), bool. Code that would not compute Python's
number is refused (`CompileError`), and so is arithmetic that mixes f32 with another kind, which NumPy would round and C
would not. At a division by zero or an index out of bounds a function returns a status: the number of the place in the
source, counted from 1.
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np

from cctrace.errors import CompileError

LLVM = {"int": "i64", "uint": "i64", "float": "double", "f32": "float", "bool": "i1"}
ZERO = {"int": "0", "uint": "0", "float": "0.0", "f32": "0.0", "bool": "false"}

_SAVES_NONE = ("x86_64", "amd64", "aarch64", "arm64")  # processors for which LLVM has the convention preserve_none

Shape: TypeAlias = tuple[int | str | None, ...]


class Scalar(NamedTuple):
    """A number: its kind, and the name or text of the LLVM value."""

    kind: str
    text: str


class Record(NamedTuple):
    """A record in memory: its dtype and a pointer."""

    dtype: np.dtype
    text: str


class Array(NamedTuple):
    """An array in memory: dtype of its elements, pointer, lengths (each a number, a value's text, or None: unknown)."""

    dtype: np.dtype
    text: str
    shape: Shape


class Several(NamedTuple):
    """A tuple of values."""

    items: tuple[Value, ...]


Value: TypeAlias = Scalar | Record | Array | Several | None  # None: the result of a function that returns nothing


def number(value: object) -> Scalar | None:
    """Return the `Scalar` of a Python or NumPy number; None for anything else."""
    if isinstance(value, bool | np.bool_):
        return Scalar("bool", "true" if value else "false")
    if isinstance(value, np.float32):
        return Scalar("f32", _float_text(value))
    if isinstance(value, float):
        return Scalar("float", _float_text(value))
    if isinstance(value, np.uint64):
        return Scalar("uint", str(int(value)))
    if isinstance(value, int | np.integer) and -(1 << 63) <= value < 1 << 63:
        return Scalar("int", str(int(value)))
    if isinstance(value, int) and 0 <= value < 1 << 64:
        return Scalar("uint", str(value))
    return None


def _float_text(value: float | np.floating) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


def kind_of_dtype(dtype: np.dtype) -> str:
    """Return the kind that a number of this dtype has once it is read."""
    code = f"{dtype.kind}{dtype.itemsize}"
    known = {"u8": "uint", "f8": "float", "f4": "f32", "b1": "bool"}
    if code in known or dtype.kind in "iu":
        return known.get(code, "int")
    raise CompileError(f"memory of dtype {dtype} cannot be compiled")


def described(value: Value) -> str:
    """Describe a value for an error message."""
    if isinstance(value, Scalar):
        return value.kind
    names = {Record: "a record", Array: "an array", Several: "a tuple"}
    return names.get(type(value), "nothing")


class Emitter:
    """Collects the instructions of one function.

    `convention`: how compiled functions call each other. Where LLVM can, they save no registers for their callers,
    which rarely have many values in them.
    """

    convention = "preserve_nonecc" if platform.machine().lower() in _SAVES_NONE else "fastcc"

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.needs: set[str] = set()  # declarations of functions of the C library
        self.count = 0
        self.is_open = True  # whether the current block lacks its terminator
        self.can_fail, self.checks = False, False  # `checks`: whether every index is checked
        self.where = ""  # file and line of what is being translated

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error for the current line."""
        raise CompileError(f"{self.where}: {reason}")

    # -- instructions and blocks ---------------------------------------------------------------------------------------
    def name(self, prefix: str = "t") -> str:
        """Return a new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    def do(self, text: str) -> None:
        """Append an instruction."""
        if not self.is_open:  # unreachable
            self.label(self.name("dead"))
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        """Append an instruction that has a value; return the value's name."""
        name = "%" + self.name()
        self.do(f"{name} = {text}")
        return name

    def label(self, label: str) -> None:
        """Begin a basic block."""
        if self.is_open:
            self.lines.append(f"  br label %{label}")
        self.lines.append(f"{label}:")
        self.is_open = True

    def go(self, label: str) -> None:
        """End the block with an unconditional branch."""
        if self.is_open:
            self.do(f"br label %{label}")
            self.is_open = False

    def branch(self, test: str, yes: str, no: str, weights: str = "") -> None:
        """End the block with a conditional branch."""
        self.do(f"br i1 {test}, label %{yes}, label %{no}{weights}")
        self.is_open = False

    def slot(self, llvm_type: str, zero: str | None = None) -> str:
        """Return the address of a new variable."""
        name = "%" + self.name("v")
        self.allocas.append(f"  {name} = alloca {llvm_type}")
        if zero is not None:
            self.allocas.append(f"  store {llvm_type} {zero}, ptr {name}")
        return name

    def fail_if(self, test: str, kind: str) -> None:
        """Return a status from the function if `test` holds."""
        self.can_fail = True
        bad, good = self.name("bad"), self.name("good")
        self.branch(test, bad, good, ", !prof !0")
        self.label(bad)
        self.do(f"store i64 {self.site(kind)}, ptr %status")
        self.go("exit")
        self.label(good)

    def site(self, kind: str) -> int:
        """Return the status of a source line that can fail."""
        raise NotImplementedError

    # -- conversions ---------------------------------------------------------------------------------------------------
    def convert(self, value: Value, kind: str) -> Scalar:
        """Return a number as another kind, as int(), float(), np.float32() and bool() do."""
        if not isinstance(value, Scalar):
            self.refuse(f"{described(value)} is used as a number")
        have, text = value
        if have == kind:
            return value
        if kind == "bool":
            return Scalar(kind, self.truth(value))
        if have == "bool":
            text = self.op(f"zext i1 {text} to i64")
            have = "int"
        if {have, kind} <= {"int", "uint"}:
            return Scalar(kind, text)
        if kind in ("float", "f32"):
            if have in ("int", "uint"):
                return Scalar(kind, self.op(f"{'s' if have == 'int' else 'u'}itofp i64 {text} to {LLVM[kind]}"))
            return Scalar(
                kind, self.op(f"{'fpext' if kind == 'float' else 'fptrunc'} {LLVM[have]} {text} to {LLVM[kind]}")
            )
        return Scalar(kind, self.op(f"fpto{'s' if kind == 'int' else 'u'}i {LLVM[have]} {text} to i64"))

    def truth(self, value: Value) -> str:
        """Return whether a number is true, as an i1."""
        if not isinstance(value, Scalar):
            self.refuse(f"{described(value)} is used as a condition")
        if value.kind == "bool":
            return value.text
        if value.kind in ("int", "uint"):
            return self.op(f"icmp ne i64 {value.text}, 0")
        return self.op(f"fcmp une {LLVM[value.kind]} {value.text}, 0.0")

    def joined(self, *values: Value) -> str:
        """Return the common kind of numbers of these kinds."""
        scalars = [value if isinstance(value, Scalar) else self.convert(value, "int") for value in values]
        several = {scalar.kind for scalar in scalars}
        if len(several) == 1:
            return scalars[0].kind
        if "f32" in several:
            other = min(several - {"f32"})
            self.refuse(f"f32 and {other} are mixed; write f32(...) around the {other}, as C rounds it first")
        if "float" in several:
            return "float"
        if "uint" in several:
            if all(s.kind == "uint" or s.text.isdigit() for s in scalars):
                return "uint"
            self.refuse("np.uint64 and other integers are mixed; convert one of them")
        return "int"

    def selected(self, test: str, a: Scalar, b: Scalar) -> Scalar:
        """Return `a` if an i1 is true, else `b`; both are of one kind."""
        return Scalar(a.kind, self.op(f"select i1 {test}, {LLVM[a.kind]} {a.text}, {LLVM[b.kind]} {b.text}"))

    # -- operators -----------------------------------------------------------------------------------------------------
    def compare(self, op: str, a: Value, b: Value) -> str:
        """Return the i1 of a comparison; `op` is one of == != < <= > >=."""
        kind = self.joined(a, b)
        a, b = self.convert(a, kind), self.convert(b, kind)
        name = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[op]
        if kind in ("float", "f32"):
            return self.op(f"fcmp {'u' if op == '!=' else 'o'}{name} {LLVM[kind]} {a.text}, {b.text}")
        sign = "" if op in ("==", "!=") else ("u" if kind in ("uint", "bool") else "s")
        return self.op(f"icmp {sign}{name} {LLVM[kind]} {a.text}, {b.text}")

    def binary(self, op: str, a: Value, b: Value) -> Scalar:
        """Return the value of an operator; `op` as Python writes it."""
        kind = self.joined(a, b)
        if kind == "bool":
            if op in "&|^":
                word = {"&": "and", "|": "or", "^": "xor"}[op]
                return Scalar("bool", self.op(f"{word} i1 {self.truth(a)}, {self.truth(b)}"))
            kind = "int"
        if op == "/" and kind != "f32":
            kind = "float"
        a, b = self.convert(a, kind), self.convert(b, kind)
        if kind in ("float", "f32"):
            return self._of_floats(op, kind, a, b)
        return Scalar(kind, self._of_integers(op, kind == "int", a.text, b.text))

    def _of_floats(self, op: str, kind: str, a: Scalar, b: Scalar) -> Scalar:
        t = LLVM[kind]
        if kind == "float" and op in ("/", "//", "%"):  # NumPy's float32 gives inf or nan instead
            self.fail_if(self.op(f"fcmp oeq double {b.text}, 0.0"), "division by zero")
        if op in "+-*/":
            word = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}[op]
            return Scalar(kind, self.op(f"{word} {t} {a.text}, {b.text}"))
        if op == "**" and kind == "float":
            return Scalar(kind, self.call_c("pow", a.text, b.text))
        if op in ("%", "//") and kind == "float":
            return Scalar(
                kind, self.op(f"call double @floor_{'mod' if op == '%' else 'div'}({t} {a.text}, {t} {b.text})")
            )
        return self.refuse(f"{op} of {kind} is not compiled")

    def _of_integers(self, op: str, signed: bool, a: str, b: str) -> str:
        simple = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
        if op in simple:
            return self.op(f"{simple[op]} i64 {a}, {b}")
        if op in ("<<", ">>"):
            return self._shift(op, signed, a, b)
        if op == "**":
            return self._power(a, b)
        if op not in ("//", "%"):
            self.refuse(f"{op} of integers is not compiled")
        constant = int(b) if b.lstrip("-").isdigit() else 0
        if constant > 0 and constant & (constant - 1) == 0:  # floors as it is
            if op == "%":
                return self.op(f"and i64 {a}, {constant - 1}")
            return self.op(f"{'a' if signed else 'l'}shr i64 {a}, {constant.bit_length() - 1}")
        if not constant:
            self.fail_if(self.op(f"icmp eq i64 {b}, 0"), "division by zero")
        if not signed:
            return self.op(f"u{'rem' if op == '%' else 'div'} i64 {a}, {b}")
        if constant > 0:  # of a negative number a: ~(~a // b)
            sign = self.op(f"ashr i64 {a}, 63")
            quotient = self.op(f"udiv i64 {self.op(f'xor i64 {a}, {sign}')}, {b}")
            quotient = self.op(f"xor i64 {quotient}, {sign}")
            return quotient if op == "//" else self.op(f"sub i64 {a}, {self.op(f'mul i64 {quotient}, {b}')}")
        return self._floored(op, a, b)

    def _floored(self, op: str, a: str, b: str) -> str:
        """Return quotient or remainder of a division that floors; of numbers that are not negative it is plain."""
        result, rare, plain, end = self.slot("i64"), self.name("rare"), self.name("plain"), self.name("end")
        self.branch(self.op(f"icmp slt i64 {self.op(f'or i64 {a}, {b}')}, 0"), rare, plain, ", !prof !0")
        self.label(plain)
        word = "urem" if op == "%" else "udiv"
        self.do(f"store i64 {self.op(f'{word} i64 {a}, {b}')}, ptr {result}")
        self.go(end)
        self.label(rare)
        quotient, rest = self.quotient(a, b)
        mixed = self.op(f"icmp slt i64 {self.op(f'xor i64 {rest}, {b}')}, 0")
        wrong = self.op(f"and i1 {self.op(f'icmp ne i64 {rest}, 0')}, {mixed}")
        wrong = self.op(f"sext i1 {wrong} to i64")
        terms = f"{rest}, {self.op(f'and i64 {wrong}, {b}')}" if op == "%" else f"{quotient}, {wrong}"
        self.do(f"store i64 {self.op(f'add i64 {terms}')}, ptr {result}")
        self.label(end)
        return self.op(f"load i64, ptr {result}")

    def quotient(self, a: str, b: str) -> tuple[str, str]:
        """Return quotient and remainder of a division that truncates; the divisor is not zero."""
        minus = self.op(f"icmp eq i64 {b}, -1")  # the processor traps at -2**63 // -1, which is to wrap
        by = self.op(f"select i1 {minus}, i64 1, i64 {b}")
        negative = self.op(f"sub i64 0, {a}")
        quotient = self.op(f"select i1 {minus}, i64 {negative}, i64 {self.op(f'sdiv i64 {a}, {by}')}")
        return quotient, self.op(f"srem i64 {a}, {by}")

    def _shift(self, op: str, signed: bool, a: str, b: str) -> str:
        word = {"<<": "shl", ">>": "ashr" if signed else "lshr"}[op]
        if b.isdigit() and int(b) < 64:
            return self.op(f"{word} i64 {a}, {b}")
        within = self.op(f"icmp ult i64 {b}, 64")
        if word == "ashr":
            return self.op(f"ashr i64 {a}, {self.op(f'select i1 {within}, i64 {b}, i64 63')}")
        shifted = self.op(f"{word} i64 {a}, {self.op(f'and i64 {b}, 63')}")
        return self.op(f"select i1 {within}, i64 {shifted}, i64 0")

    def _power(self, a: str, b: str) -> str:
        if not b.isdigit() or int(b) > 16:
            self.refuse("an integer can only be raised to a constant power from 0 to 16")
        product = "1"
        for _ in range(int(b)):
            product = self.op(f"mul i64 {product}, {a}")
        return product

    def call_c(self, name: str, *args: str) -> str:
        """Return the value of a function of the C library on float64s."""
        self.needs.add(f"declare double @{name}({', '.join(['double'] * len(args))})")
        return self.op(f"call double @{name}({', '.join(f'double {a}' for a in args)})")
