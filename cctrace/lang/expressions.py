"""Expressions of plain functions as LLVM text; `cctrace.lang.lower` has the statements."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cctrace.cc.base import find_method
from cctrace.lang.accesses import MAX_NATURAL, Accesses, canonical
from cctrace.lang.definitions import value_of
from cctrace.lang.emit import LLVM, Array, Record, Scalar, Several, Shape, Value, described, number
from cctrace.lang.fields import VIEW_COLUMNS
from cctrace.lang.intrinsics import INTRINSICS
from cctrace.lang.memory import ArrayAt, FieldsAtOnce, RecordOf

if TYPE_CHECKING:
    import numpy as np

    from cctrace.lang.lower import Lowered, Module

MISSING = object()
OPERATORS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**", "LShift": "<<",
    "RShift": ">>", "BitAnd": "&", "BitOr": "|", "BitXor": "^",
    "Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=",
}  # fmt: skip


def shape_of(value: Value) -> Any:
    """Return those properties of a value that code depends on: all but the numbers themselves."""
    if isinstance(value, Scalar):
        return value.kind
    if isinstance(value, Several):
        return tuple(map(shape_of, value.items))
    if isinstance(value, Array):
        return (canonical(value.dtype), *(n if isinstance(n, int | None) else "n" for n in value.shape))
    return canonical(value.dtype) if isinstance(value, Record) else None


def words_of(value: Value) -> list[tuple[str, str]]:
    """Return [(LLVM type, text)] of the words that make up a value."""
    if isinstance(value, Scalar):
        return [(LLVM[value.kind], value.text)]
    if isinstance(value, Several):
        return [word for item in value.items for word in words_of(item)]
    lengths = [("i64", n) for n in value.shape if isinstance(n, str)] if isinstance(value, Array) else []
    return [] if value is None else [("ptr", value.text), *lengths]


def made_of(value: Value, texts: Iterator[str]) -> Value:
    """Return a value like `value` made of other words, taken from the iterator `texts`."""
    if value is None:
        return None
    if isinstance(value, Several):
        return Several(tuple(made_of(item, texts) for item in value.items))
    value = value._replace(text=next(texts))
    if isinstance(value, Array):
        value = value._replace(shape=tuple(next(texts) if isinstance(n, str) else n for n in value.shape))
    return value


def called(node: ast.AST) -> str:
    """Return what a piece of syntax is called in an error message."""
    names = {"Try": "try", "JoinedStr": "a string", "Lambda": "lambda", "FunctionDef": "a nested function"}
    return names.get(type(node).__name__, type(node).__name__)


class Expressions(Accesses):
    """Emits the instructions of expressions.

    A subclass sets `module` (where functions and constants are), `function` (that being lowered) and `owner` (the class
    it is a method of), `local` (its variables' names) and `variables` ({name: (a value of the kind it has, the
    addresses of its words)}).
    """

    module: Module
    function: Any  # a plain one; as an attribute, mypy takes a FunctionType for a method
    owner: type | None
    local: set[str]
    variables: dict[str, tuple[Value, list[str]]]

    def expr(self, node: Any) -> Value:
        """Return the value of an expression."""
        method = getattr(self, f"_of_{type(node).__name__}", None)
        if method is None:
            self.refuse(f"uses {called(node)}, which is not compiled")
        return method(node)

    def static(self, node: ast.expr) -> Any:
        """Return the Python object that a name or an attribute of a module denotes, `MISSING` if none."""
        if isinstance(node, ast.Name) and node.id not in self.local:
            return value_of(self.function, node.id, MISSING)
        if isinstance(node, ast.Attribute):
            module = self.static(node.value)
            if isinstance(module, types.ModuleType):
                return getattr(module, node.attr, MISSING)
        return MISSING

    def known(self, node: ast.expr, value: object) -> Value:
        """Return the value of a module-level number or tuple of numbers."""
        if value is MISSING:
            self.refuse(f"uses {ast.unparse(node)!r}, which is not defined in its module")
        found: Value = self.module.constant(value) if isinstance(value, tuple) else number(value)
        if found is None or (self.module.controller and isinstance(found, Scalar) and found.kind == "uint"):
            allowed = "constants are numbers of at most 64 bits or tuples of numbers of one kind"
            self.refuse(f"uses {ast.unparse(node)} ({type(value).__name__}); {allowed}")
        return found

    def folded(self, node: Any) -> bool | None:
        """Return whether ``name is None`` (or ``name is not None``) holds; None for any other condition."""
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Name)
            and isinstance(node.ops[0], ast.Is | ast.IsNot)
        ):
            missing = self.variables.get(node.left.id, (0,))[0] is None
            return missing == isinstance(node.ops[0], ast.Is)
        return None

    # -- names and memory ----------------------------------------------------------------------------------------------
    def _of_Constant(self, node: Any) -> Value:
        return self.known(node, node.value)

    def _of_Name(self, node: Any) -> Value:
        if node.id in self.variables:
            like, slots = self.variables[node.id]
            loads = (f"load {t}, ptr {slot}" for (t, _), slot in zip(words_of(like), slots, strict=True))
            return made_of(like, iter([self.op(load) for load in loads]))
        if node.id in self.local:
            self.refuse(f"uses {node.id!r} before it is assigned")
        return self.known(node, self.static(node))

    def known_value(self, record: Record, name: str) -> int | None:
        """Return the value that a field of such records always has, None if it is not known."""
        return self.module.known.get(record.dtype.names, {}).get(name) if self.module.known else None

    def field_value(self, record: Record, name: str) -> Value:
        """Return the value of a field, a constant if it is known."""
        known = self.known_value(record, name)
        return super().field_value(record, name) if known is None else number(record.dtype[name].type(known))

    def _of_Attribute(self, node: Any) -> Value:
        if (value := self.static(node)) is not MISSING:
            return self.known(node, value)
        base = self.expr(node.value)
        if isinstance(base, Record):
            return self.field_value(base, node.attr)
        if self.module.controller:  # whose arrays are lists where it is interpreted
            self.refuse(f"reads the attribute {node.attr!r} of something other than self and ack")
        if isinstance(base, Array) and node.attr in ("size", "shape") and None not in base.shape:
            lengths = [Scalar("int", str(n)) for n in base.shape]
            if node.attr == "shape":
                return Several(tuple(lengths))
            return functools.reduce(functools.partial(self.binary, "*"), lengths)
        return self.refuse(f"reads the attribute {node.attr!r} of {described(base)}")

    def _of_Subscript(self, node: Any) -> Value:
        base = self.expr(node.value)
        if isinstance(node.slice, ast.Slice) and not self.module.controller:
            return self.slice(base, node.slice)
        if isinstance(base, Several):
            place = self.expr(node.slice)
            if not (isinstance(place, Scalar) and place.text.isdigit() and int(place.text) < len(base.items)):
                self.refuse("an element of a tuple is chosen by a constant")
            return base.items[int(place.text)]
        dtype, pointer, rest = self.item(base, node.slice)
        return Array(dtype, pointer, rest) if rest else self.load(dtype, pointer)

    def item(self, array: Value, index: Any) -> tuple[np.dtype, str, Shape]:
        """Return (dtype, pointer, remaining lengths) of what an index selects from an array."""
        if not isinstance(array, Array):
            self.refuse(f"an element of {described(array)} is used")
        places = [self.expr(i) for i in (index.elts if isinstance(index, ast.Tuple) else [index])]
        if len(places) > len(array.shape):
            self.refuse(f"{len(places)} indices for an array of {len(array.shape)} dimensions")
        return self.element(array, places, self.checks)

    def slice(self, array: Value, node: ast.Slice) -> Array:
        """Return a slice of an array of one dimension; both ends must lie within it."""
        if not isinstance(array, Array) or len(array.shape) != 1 or node.step:
            self.refuse(f"a slice of {described(array)} is used")
        (length,) = array.shape
        first = self.convert(self.expr(node.lower), "int").text if node.lower else "0"
        if node.upper is None and length is None:
            self.refuse("a slice of memory of unknown length needs an end")
        last = self.convert(self.expr(node.upper), "int").text if node.upper else length
        pointer = self.element(Array(array.dtype, array.text, (None,)), [Scalar("int", first)], False)[1]
        return Array(array.dtype, pointer, (self.op(f"sub i64 {last}, {first}"),))

    def _of_Tuple(self, node: Any) -> Value:
        return Several(tuple(self.expr(item) for item in node.elts))

    # -- operators -----------------------------------------------------------------------------------------------------
    def _of_BinOp(self, node: Any) -> Value:
        return self.binary(OPERATORS[type(node.op).__name__], self.expr(node.left), self.expr(node.right))

    def _of_UnaryOp(self, node: Any) -> Value:
        if isinstance(node.op, ast.Not):
            return Scalar("bool", self.op(f"xor i1 {self.truth(self.expr(node.operand))}, true"))
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            constant: Any = node.operand.value
            return self.known(node, -constant)
        value = self.expr(node.operand)
        if isinstance(value, Scalar) and value.kind == "bool":
            value = self.convert(value, "int")
        if isinstance(node.op, ast.UAdd):
            return value
        kind = value.kind if isinstance(value, Scalar) else "int"  # anything but a number is refused below
        if isinstance(node.op, ast.Invert):
            return self.binary("^", value, Scalar(kind, "-1"))
        if isinstance(value, Scalar) and value.kind in ("float", "f32"):
            return Scalar(value.kind, self.op(f"fneg {LLVM[value.kind]} {value.text}"))
        return self.binary("-", Scalar(kind, "0"), value)

    def _of_Compare(self, node: Any) -> Value:
        if len(node.ops) == 1:
            return Scalar("bool", self._compared(node.ops[0], self.expr(node.left), self.expr(node.comparators[0])))
        return self.as_value(node)

    def _compared(self, op: ast.cmpop, a: Value, b: Value) -> str:
        name = OPERATORS.get(type(op).__name__)
        if isinstance(op, ast.In | ast.NotIn) and isinstance(b, Several):
            found = "false"
            for item in b.items:
                found = self.op(f"or i1 {found}, {self.compare('==', a, item)}")
            return found if isinstance(op, ast.In) else self.op(f"xor i1 {found}, true")
        if name is None:
            self.refuse(f"the comparison {type(op).__name__} is not compiled")
        return self.compare(name, a, b)

    def as_value(self, node: Any) -> Scalar:
        """Return the bool of a condition with short-circuit evaluation."""
        slot = self.slot("i1", "false")
        yes, end = self.name("yes"), self.name("end")
        self.do(f"store i1 false, ptr {slot}")
        self.test(node, yes, end)
        self.label(yes)
        self.do(f"store i1 true, ptr {slot}")
        self.label(end)
        return Scalar("bool", self.op(f"load i1, ptr {slot}"))

    def test(self, node: ast.expr, yes: str, no: str) -> None:
        """End the block with a branch to one of two blocks, depending on a condition."""
        if isinstance(node, ast.BoolOp):
            for part in node.values[:-1]:
                following = self.name("and")
                self.test(part, *((following, no) if isinstance(node.op, ast.And) else (yes, following)))
                self.label(following)
            self.test(node.values[-1], yes, no)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.test(node.operand, no, yes)
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            left = self.expr(node.left)
            for op, comparator in zip(node.ops[:-1], node.comparators[:-1], strict=True):
                following, right = self.name("and"), self.expr(comparator)
                self.branch(self._compared(op, left, right), following, no)
                self.label(following)
                left = right
            self.branch(self._compared(node.ops[-1], left, self.expr(node.comparators[-1])), yes, no)
        else:
            self.branch(self.truth(self.expr(node)), yes, no)

    def _of_BoolOp(self, node: Any) -> Value:
        end = self.name("end")
        ways = []
        for part in node.values:
            value = self.expr(part)
            last = part is node.values[-1]
            test = "" if last else self.truth(value)
            ways.append((self.gap(), value))
            if not last:
                following = self.name("or")
                self.branch(test, *((following, end) if isinstance(node.op, ast.And) else (end, following)))
                self.label(following)
        self.label(end)
        return self.met(ways)

    def _of_IfExp(self, node: Any) -> Value:
        yes, no, end = self.name("then"), self.name("else"), self.name("end")
        self.test(node.test, yes, no)
        ways = []
        for label, part in ((yes, node.body), (no, node.orelse)):
            self.label(label)
            value = self.expr(part)
            ways.append((self.gap(), value))
            self.go(end)
        self.label(end)
        return self.met(ways)

    def gap(self) -> int:
        """Reserve a place for instructions that become known later; return it."""
        self.do("; nothing")
        return len(self.lines) - 1

    def met(self, ways: list[tuple[int, Value]]) -> Value:
        """Return the phi of [(gap, value)]: the value of the block from which control came."""
        kind = None
        if all(isinstance(value, Scalar) for _, value in ways):
            kind = self.joined(*(value for _, value in ways))
        elif len({shape_of(value) for _, value in ways}) > 1 or ways[0][1] is None:
            self.refuse(f"{described(ways[0][1])} or {described(ways[-1][1])}, depending on a condition")
        slots: list[tuple[str, str]] = []
        for gap, value in ways:
            lines, self.lines = self.lines, []
            value = value if kind is None else self.convert(value, kind)
            slots = slots or [(t, self.slot(t)) for t, _ in words_of(value)]
            for (t, text), (_, slot) in zip(words_of(value), slots, strict=True):
                self.do(f"store {t} {text}, ptr {slot}")
            lines[gap] = "\n".join(self.lines)
            self.lines = lines
        return made_of(value, iter([self.op(f"load {t}, ptr {slot}") for t, slot in slots]))

    def field(self, record: Record, name: str) -> tuple[np.dtype, str]:
        """Return (dtype, pointer) of a field; of a controller's view, note the column.

        If the module is checked, a field that is said to be natural fails where it is not.
        """
        controller = self.module.controller
        if controller and record.dtype.names == VIEW_COLUMNS[controller.view]:
            if name not in record.dtype.names:
                self.refuse(f"reads ack.{name}, which is no column of the {controller.view} view")
            self.columns.add(name)
        elif controller and name not in (record.dtype.names or ()):
            kind = "a method" if callable(getattr(controller, name, None)) else "no declared field"
            self.refuse(f"uses self.{name}, which is {kind} of {controller.__name__}")
        dtype, pointer = super().field(record, name)
        if name in self.module.naturals.get(record.dtype.names, ()):
            if self.module.checked:
                value = self.op(f"load i64, ptr {pointer}")
                self.fail_if(self.op(f"icmp ugt i64 {value}, {MAX_NATURAL}"), f"{name} is not natural")
            else:
                self.naturals.add(pointer)
        return dtype, pointer

    # -- calls ---------------------------------------------------------------------------------------------------------
    def step(self, func: ast.expr) -> tuple[type | None, Any]:
        """Return (class, method) that ``self.step`` or ``super().step`` means; (None, `MISSING`) of anything else."""
        controller = self.module.controller
        if controller is None or self.owner is None or not isinstance(func, ast.Attribute):
            return None, MISSING
        of = ast.unparse(func.value)
        if of not in ("self", "super()"):
            return None, MISSING
        owner, method = find_method(controller, func.attr, self.owner if of == "super()" else None)
        if owner is None:
            self.refuse(f"calls {of}.{func.attr}, but {controller.__name__} has no method {func.attr!r} there")
        if not isinstance(method, types.FunctionType):
            self.refuse(f"calls {owner.__name__}.{func.attr}, which is not a plain method")
        return owner, method

    def _of_Call(self, node: Any) -> Value:
        owner, function = self.step(node.func)
        me = [self.expr(ast.Name("self", ast.Load()))] if owner else []
        function = function if owner else self.static(node.func)
        known = types.FunctionType, ArrayAt, RecordOf, FieldsAtOnce
        is_known = isinstance(function, known) or (callable(function) and function in INTRINSICS)
        if not is_known or any(isinstance(a, ast.Starred) for a in node.args):
            self.refuse(f"calls {ast.unparse(node.func)}, which is not compiled")
        args = me + [self.expr(a) for a in node.args]
        if function in INTRINSICS:
            lowered, least, most = INTRINSICS[function]
            if node.keywords or not least <= len(args) <= most:
                self.refuse(f"calls {ast.unparse(node.func)} with {len(args)} arguments, or by keyword")
            return lowered(self, *args)
        if isinstance(function, ArrayAt | RecordOf | FieldsAtOnce):
            return self.in_memory(function, args)
        names, defaults = function.__code__.co_varnames[: function.__code__.co_argcount], function.__defaults__ or ()
        given = dict(zip(names, args, strict=False)) | {k.arg: self.expr(k.value) for k in node.keywords}
        given = dict(zip(names[len(names) - len(defaults) :], map(number, defaults), strict=True)) | given
        if set(given) != set(names) or len(args) > len(names):
            self.refuse(f"calls {ast.unparse(node.func)} with other arguments than its {len(names)}")
        values = [given[name] for name in names]
        return self.call(self.module.function(function, values, owner), values)

    def call(self, lowered: Lowered, args: Sequence[Value]) -> Value:
        """Emit the call of a lowered function; its failure is passed on."""
        self.columns |= lowered.columns
        words = ", ".join(f"{t} {text}" for arg in args for t, text in words_of(arg))
        call = f'call {self.convention} {lowered.returned} @"{lowered.symbol}"({words})'
        if lowered.returned == "void":
            self.do(call)
            return None
        aggregate = self.op(call)
        count = lowered.can_fail + len(words_of(lowered.result))
        parts = [aggregate]
        if count > 1:
            parts = [self.op(f"extractvalue {lowered.returned} {aggregate}, {k}") for k in range(count)]
        if lowered.can_fail:
            self.can_fail = True
            bad, good = self.name("bad"), self.name("good")
            failed = self.op(f"icmp ne i64 {parts[0]}, 0")
            self.branch(failed, bad, good, ", !prof !0")
            self.label(bad)
            self.do(f"store i64 {parts[0]}, ptr %status")
            self.go("exit")
            self.label(good)
        return made_of(lowered.result, iter(parts[lowered.can_fail :]))
