"""From the syntax tree of plain functions to LLVM text: statements, expressions, calls.

A function is lowered once for each combination of kinds of its arguments, and so are those that it calls. A variable
has one kind; where a later assignment widens it (int to float), the function is lowered again.
"""

import ast
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cctrace.cc.base import Controller, param_fields
from cctrace.errors import CompileError
from cctrace.lang.definitions import always_returns, definition_of, where_of
from cctrace.lang.emit import LLVM, ZERO, Array, Record, Scalar, Several, Shape, Value, described, kind_of_dtype, number
from cctrace.lang.expressions import MISSING, OPERATORS, Expressions, called, made_of, shape_of, words_of
from cctrace.lang.fields import VIEW_COLUMNS, Known, Naturals, accepts, fields_of, mistyped
from cctrace.lang.intrinsics import PRELUDE


class Lowered(NamedTuple):
    """A lowered function: its symbol, LLVM's type of its result, a value like its result, whether it can fail, and the
    columns that it and all it calls read of a controller's view.
    """

    symbol: str
    returned: str
    result: Any
    can_fail: bool
    columns: set[str]


class Module:
    """The functions, constants and declarations of one LLVM module; if `checked`, every index is.

    `known`, `naturals`: see `lang.machine.Machine`. `controller`: the class whose methods these are, or None: its
    fields take values of exactly their kind only. `sites`: what can fail, and where; a status counts them.
    """

    def __init__(self, checked: bool, known: Known, naturals: Naturals, controller: type[Controller] | None) -> None:
        self.checked, self.known, self.naturals, self.controller = checked, known, naturals, controller
        self.texts: list[str] = []
        self.needs: set[str] = set()
        self.sites: list[tuple[str, FunctionType, int]] = []
        self._lowered: dict[tuple[Any, ...], Lowered | None] = {}  # None while it is being lowered
        self._constants: dict[str, tuple[str, np.dtype, Shape, str]] = {}

    def text(self) -> str:
        """Return the module as LLVM's text."""
        constants = [f"@{name} = private unnamed_addr constant {text}" for name, _, _, text in self._constants.values()]
        return "\n".join([PRELUDE, *sorted(self.needs), *constants, *self.texts])

    def function(self, function: FunctionType, args: Sequence[Value], owner: type | None = None) -> Lowered:
        """Return the `Lowered` form of a function, or method of the class `owner`, for arguments like these."""
        key = (function, owner, tuple(map(shape_of, args)))
        if key not in self._lowered:
            self._lowered[key] = None
            self._lowered[key] = self._lower(function, args, owner)
        if (lowered := self._lowered[key]) is None:
            raise CompileError(f"{where_of(function)}: {function.__name__} calls itself, directly or through others")
        return lowered

    def _lower(self, function: FunctionType, args: Sequence[Value], owner: type | None) -> Lowered:
        symbol = f"{function.__name__}.{len(self._lowered)}"
        guess: dict[str, Any] = {}
        while True:
            try:
                return _Function(self, function, owner, symbol, guess).lower(args)
            except _Widened:
                continue

    def constant(self, value: tuple[Any, ...]) -> Array | None:
        """Return the `Array` of a tuple of numbers of one kind (or of such tuples); None for anything else."""
        if (key := repr(value)) not in self._constants:
            array = np.array(value)
            kinds = {getattr(number(item), "kind", None) for item in np.array(value, object).ravel()}
            if len(kinds) != 1 or array.dtype.kind not in "iuf" or array.dtype.itemsize not in (4, 8):
                return None
            kind = kind_of_dtype(array.dtype)
            items = ", ".join(f"{LLVM[kind]} {scalar.text}" for scalar in map(number, array.ravel()) if scalar)
            name = f"constant.{len(self._constants)}"
            self._constants[key] = (name, array.dtype, array.shape, f"[{array.size} x {LLVM[kind]}] [{items}]")
        name, dtype, shape, _ = self._constants[key]
        return Array(dtype, f"@{name}", shape)


_SOMETIMES = "returns a value on some paths through it and nothing on others"


class _Widened(Exception):
    """A variable needs a wider kind than that of its first value."""


class _Function(Expressions):
    """Lowers one function for arguments of certain kinds."""

    def __init__(
        self, module: Module, function: FunctionType, owner: type | None, symbol: str, guess: dict[str, Any]
    ) -> None:
        super().__init__()
        self.module, self.function, self.owner, self.symbol, self.guess = module, function, owner, symbol, guess
        self.needs, self.checks = module.needs, module.checked
        self.variables = {}
        self.loops: list[tuple[str, str]] = []
        self.result: Any = MISSING  # a `Value` from the first return on

    def refuse(self, reason: str) -> NoReturn:
        super().refuse(f"{self.function.__name__}: {reason}")

    def lower(self, args: Sequence[Value]) -> Lowered:
        """Return the `Lowered` function; its text is appended to the module's."""
        tree = definition_of(self.function)
        self.at(tree)
        if tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs or tree.decorator_list:
            self.refuse("takes * arguments or is decorated; only plain functions are compiled")
        self.local = {a.arg for a in tree.args.args}
        self.local |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - {"_"}
        if "super" in self.read:
            self.read.add("self")
        names = (f"%a{k}" for k in range(1 << 20))
        words = []
        for arg, value in zip(tree.args.args, args, strict=True):
            if value is None:
                self.variables[arg.arg] = (None, [])
                continue
            value = made_of(value, names)
            words += words_of(value)
            self.assign(arg.arg, value)
        self.block(tree.body)
        if self.module.controller and self.result not in (MISSING, None) and not always_returns(tree.body):
            self.at(tree)
            self.refuse(_SOMETIMES)
        return self.finish(words)

    def finish(self, words: list[tuple[str, str]]) -> Lowered:
        """Append the text of the function, whose only exit returns status and result."""
        result = None if self.result is MISSING else self.result
        parts = [("i64", "%status")] if self.can_fail else []
        parts += [(t, f"%result{k}") for k, (t, _) in enumerate(words_of(result))]
        self.label("exit")
        loaded = [(t, self.op(f"load {t}, ptr {name}")) for t, name in parts]
        returned = "void" if not parts else parts[0][0]
        if len(parts) > 1:
            returned = f"{{ {', '.join(t for t, _ in parts)} }}"
            aggregate = "poison"
            for k, (t, name) in enumerate(loaded):
                aggregate = self.op(f"insertvalue {returned} {aggregate}, {t} {name}, {k}")
            self.do(f"ret {returned} {aggregate}")
        else:
            self.do(f"ret {returned} {loaded[0][1]}" if parts else "ret void")
        variables = ["  %status = alloca i64", "  store i64 0, ptr %status"] if self.can_fail else []
        variables += [
            f"  %result{k} = alloca {t}\n  store {t} {'null' if t == 'ptr' else 'zeroinitializer'}, ptr %result{k}"
            for k, (t, _) in enumerate(words_of(result))
        ]
        given = ", ".join(
            f"{t} {'noalias ' if t == 'ptr' and self.module.controller else ''}{name}" for t, name in words
        )
        head = f'define internal {self.convention} {returned} @"{self.symbol}"({given}) #0 {{\nentry:'
        self.module.texts.append("\n".join([head, *variables, *self.allocas, *self.lines, "}\n"]))
        return Lowered(self.symbol, returned, result, self.can_fail, self.columns)

    def at(self, node: Any) -> None:
        self.line = node.lineno
        self.where = f"{self.function.__code__.co_filename}:{self.line}"

    def site(self, kind: str) -> int:
        self.module.sites.append((kind, self.function, self.line - self.function.__code__.co_firstlineno))
        return len(self.module.sites)

    # -- variables -----------------------------------------------------------------------------------------------------
    def assign(self, name: str, value: Value) -> None:
        """Store a value in a local variable, unless it is never read."""
        if name not in self.read:
            return
        if value is None:
            self.refuse(f"{name} is assigned what returns nothing")
        if name not in self.variables:
            if isinstance(value, Scalar):
                value = self.convert(value, self.guess.get(name, value.kind))
            zeros = {"ptr": "null"} | {LLVM[kind]: ZERO[kind] for kind in LLVM}
            self.variables[name] = (value, [self.slot(t, zeros[t]) for t, _ in words_of(value)])
        like, slots = self.variables[name]
        value = self.widened(name, like, value)
        for (llvm_type, text), slot in zip(words_of(value), slots, strict=True):
            self.do(f"store {llvm_type} {text}, ptr {slot}")

    def widened(self, name: str, like: Value, value: Value) -> Value:
        """Convert a value to the kind of `like`; lower the function again where `like` has to be widened."""
        if shape_of(like) == shape_of(value):
            return value
        if not (isinstance(like, Scalar) and isinstance(value, Scalar)):
            self.refuse(f"{name} is {described(like)} in one place, {described(value)} (of another kind) in another")
        kind = self.joined(like, value)
        if kind != like.kind:
            self.guess[name] = kind
            raise _Widened
        return self.convert(value, kind)

    # -- statements ----------------------------------------------------------------------------------------------------
    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.at(statement)
            method = getattr(self, f"do_{type(statement).__name__}", None)
            if method is None:
                self.refuse(f"uses {called(statement)}, which is not compiled")
            method(statement)

    def do_Pass(self, node: Any) -> None:
        pass

    def do_Expr(self, node: Any) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expr(node.value)

    def do_AnnAssign(self, node: Any) -> None:
        if node.value is not None:
            self.target(node.target, self.expr(node.value))

    def do_Assign(self, node: Any) -> None:
        value = self.expr(node.value)
        for target in node.targets:
            self.target(target, value)

    def do_AugAssign(self, node: Any) -> None:
        op = OPERATORS[type(node.op).__name__]
        if isinstance(node.target, ast.Name):
            old = self.expr(ast.Name(node.target.id, ast.Load()))
            self.assign(node.target.id, self.binary(op, old, self.expr(node.value)))
            return
        dtype, pointer, name = self.place(node.target)
        self.put(dtype, pointer, name, self.binary(op, self.load(dtype, pointer), self.expr(node.value)))

    def target(self, target: ast.expr, value: Value) -> None:
        """Store a value in the target of an assignment."""
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple):
            if not isinstance(value, Several) or len(value.items) != len(target.elts):
                self.refuse(f"{len(target.elts)} names are assigned {described(value)}")
            for one, item in zip(target.elts, value.items, strict=True):
                self.target(one, item)
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
            self.copy(self.slice(self.expr(target.value), target.slice), value)
        else:
            self.put(*self.place(target), value)

    def put(self, dtype: np.dtype, pointer: str, name: str, value: Value) -> None:
        """Write a number to a field or an element."""
        kind = kind_of_dtype(dtype)
        got = "None" if value is None else described(value)
        if self.module.controller and not accepts(kind, got):
            raise mistyped(self.where, name, kind, "uint64" if got == "uint" else got)
        self.store(dtype, pointer, self.convert(value, kind))

    def place(self, node: Any) -> tuple[np.dtype, str, str]:
        """Return (dtype, pointer, name of the field) of a field or an element."""
        if isinstance(node, ast.Attribute):
            record = self.expr(node.value)
            if not isinstance(record, Record):
                self.refuse(f"assigns to the attribute {node.attr!r} of {described(record)}")
            return *self.writable(record, node.attr), node.attr
        dtype, pointer, rest = self.item(self.expr(node.value), node.slice)
        if rest:
            self.refuse("assigns to a row of an array")
        return dtype, pointer, ""

    def put_field(self, record: Record, name: str, value: Value) -> None:
        """Write a number to a field."""
        self.put(*self.writable(record, name), name, value)

    def writable(self, record: Record, name: str) -> tuple[np.dtype, str]:
        """Return (dtype, pointer) of a field; refuse what is known, and what a controller only reads."""
        if self.known_value(record, name) is not None:
            self.refuse(f"assigns to {name!r}, whose value is said to be known")
        dtype, pointer = self.field(record, name)
        controller = self.module.controller
        if controller and record.dtype.names == VIEW_COLUMNS[controller.view]:
            self.refuse(f"assigns to ack.{name}; inputs are read only")
        if controller and name in param_fields(controller):
            self.refuse(f"assigns to self.{name}, which is a parameter; parameters are constant in a run")
        if controller and fields_of(controller)[name].length:
            self.refuse(f"assigns to the array self.{name}; assign to its elements")
        return dtype, pointer

    def copy(self, array: Array, value: Value) -> None:
        """Copy an array, or one number repeatedly, to a slice."""
        length = array.shape[0]
        if isinstance(value, Array):
            if value.dtype != array.dtype:
                self.refuse("copies between arrays of different dtypes")
            count = self.op(f"mul i64 {length}, {array.dtype.itemsize}")
            self.do(f"call void @llvm.memmove.p0.p0.i64(ptr {array.text}, ptr {value.text}, i64 {count}, i1 false)")
            return

        def write(k: str) -> None:
            dtype, pointer, _ = self.element(array, [Scalar("int", k)], False)
            self.put(dtype, pointer, "", value)

        self.counted("0", str(length), 1, write)

    def do_If(self, node: Any) -> None:
        if (holds := self.folded(node.test)) is not None:
            self.block(node.body if holds else node.orelse)
            return
        yes, no, end = self.name("then"), self.name("else"), self.name("end")
        self.test(node.test, yes, no)
        self.label(yes)
        self.block(node.body)
        self.go(end)
        self.label(no)
        self.block(node.orelse)
        self.label(end)

    def do_While(self, node: Any) -> None:
        if node.orelse:
            self.refuse("has a while loop with else, which is not compiled")
        test, body, end = self.name("while"), self.name("body"), self.name("end")
        self.label(test)
        self.test(node.test, body, end)
        self.label(body)
        self.loops.append((test, end))
        self.block(node.body)
        self.loops.pop()
        self.go(test)
        self.label(end)

    def do_For(self, node: Any) -> None:
        call = node.iter
        if not (isinstance(call, ast.Call) and self.static(call.func) is range):
            self.refuse("loops over something other than range(...)")
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse("has a for loop with else, or with more than one variable")
        bounds = [self.convert(self.expr(a), "int").text for a in call.args]
        first, last = ("0", bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else "1"
        if not step.lstrip("-").isdigit() or int(step) == 0:
            self.refuse("the step of a range must be a constant")

        def body(k: str) -> None:
            self.assign(node.target.id, Scalar("int", k))
            self.block(node.body)

        self.counted(first, last, int(step), body)

    def counted(self, first: str, last: str, step: int, body: Callable[[str], None]) -> None:
        """Emit a loop; `body` gets the text of the counter."""
        counter = self.slot("i64")
        self.do(f"store i64 {first}, ptr {counter}")
        test, inside, following, end = (self.name(n) for n in ("for", "body", "next", "end"))
        self.label(test)
        k = self.op(f"load i64, ptr {counter}")
        self.branch(self.op(f"icmp {'slt' if step > 0 else 'sgt'} i64 {k}, {last}"), inside, end)
        self.label(inside)
        self.loops.append((following, end))
        body(k)
        self.loops.pop()
        self.label(following)
        self.do(f"store i64 {self.op(f'add i64 {k}, {step}')}, ptr {counter}")
        self.go(test)
        self.label(end)

    def do_Break(self, node: Any) -> None:
        self.go(self.loops[-1][1])

    def do_Continue(self, node: Any) -> None:
        self.go(self.loops[-1][0])

    def do_Return(self, node: Any) -> None:
        none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        value = None if none else self.expr(node.value)
        if self.result is MISSING:
            self.result = value = self._as(value, self.guess.get("return"))
        if (self.result is None) != (value is None):
            self.refuse(_SOMETIMES)
        first = self.result
        if isinstance(value, Several) and isinstance(first, Several) and len(first.items) == len(value.items):
            pairs = list(zip(first.items, value.items, strict=True))
            kinds = [self.joined(a, b) if isinstance(a, Scalar) else None for a, b in pairs]
            if [a.kind if isinstance(a, Scalar) else None for a in first.items] != kinds:
                self.guess["return"] = kinds
                raise _Widened
            value = self._as(value, kinds)
        elif value is not None:
            value = self.widened("return", self.result, value)
        for k, (t, text) in enumerate(words_of(value)):
            self.do(f"store {t} {text}, ptr %result{k}")
        self.go("exit")

    def _as(self, value: Value, kinds: Any) -> Value:
        if kinds is None:
            return value
        if isinstance(value, Several):
            pairs = zip(value.items, kinds, strict=True)
            return Several(tuple(item if kind is None else self.convert(item, kind) for item, kind in pairs))
        return self.convert(value, kinds)
