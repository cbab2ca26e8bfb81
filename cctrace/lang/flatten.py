"""From a controller class to plain functions, which `lang.lower` turns into machine code.

Every method that an entry point can reach becomes a function of two records, the state (`self`) and the columns
(`ack`). Its lines stay as they were written, except that

* ``self.step(x)``     calls the function that the class's resolution order gives, with `self` as its first argument;
* ``super().step(x)``  calls that of the next class in the order.

Module-level functions are flattened too; module-level numbers and tuples of numbers are constants. What is not in the
language of `cctrace.cc.base` is refused here, with file, line and reason.
"""

from __future__ import annotations

import ast
import builtins
import math
import types
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cctrace import schema
from cctrace.cc import asking, cmath
from cctrace.cc.base import Controller, param_fields
from cctrace.errors import CompileError
from cctrace.lang.definitions import closure_of, definition_of, where_of
from cctrace.lang.emit import number
from cctrace.lang.expressions import MISSING
from cctrace.lang.fields import fields_of, kind_of
from cctrace.lang.lower import Source

EVENTS = {"linux": schema.LINUX_EVENTS, "quic": schema.QUIC_EVENTS}
VIEW_COLUMNS = {"linux": schema.names(schema.LINUX_VIEW), "quic": schema.names(schema.QUIC_VIEW)}
MATH = ("sqrt", "exp", "expm1", "log", "log1p", "log2", "pow", "floor", "ceil", "fabs", "tanh")
BUILTINS = (abs, min, max, int, float, bool, len)
CMATH = (
    cmath.u8, cmath.u16, cmath.u32, cmath.s32, cmath.u64, cmath.u64_shr, cmath.u64_div, cmath.u64_lt, cmath.idiv,
    cmath.fls64, np.float32, asking.ask,
)  # fmt: skip

_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.While, ast.For, ast.Return, ast.Expr, ast.Pass)
_EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Name)
_OTHERS: tuple[type[ast.AST], ...] = (ast.Constant, ast.Subscript, ast.Tuple, ast.Break, ast.Continue, ast.keyword)
_OTHERS += (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_ALLOWED: tuple[type[ast.AST], ...] = _STATEMENTS + _EXPRESSIONS + _OTHERS


class Entry(NamedTuple):
    """An entry point: function to call, whether it returns a value, the columns it can read."""

    function: str
    returns: bool
    columns: tuple[str, ...]


class Flat(NamedTuple):
    """A flattened class: {event: Entry}, and {name: Source} of the functions that entry points name."""

    entries: dict[str, Entry]
    functions: dict[str, Source]


def flatten(cls: type[Controller]) -> Flat:
    """Return the `Flat` source of a controller class.

    Raises `CompileError` if the class cannot be flattened; names file, line and reason.
    """
    if cls.interpreted_only:
        raise CompileError(f"{cls.__name__} cannot be compiled: {cls.interpreted_only}; use mode='interpreted'")
    flattener = Flattener(cls)
    roots = {event: flattener.method(event) for event in EVENTS[cls.view] if callable(getattr(cls, event, None))}
    entries = {}
    for event, name in roots.items():
        columns = flattener.columns_of(name)
        ordered = tuple(c for c in VIEW_COLUMNS[cls.view] if c in columns)
        entries[event] = Entry(name, flattener.functions[name].returns, ordered)
    return Flat(entries, {name: flattener.functions[name].source for name in roots.values()})


def find_method(cls: type[Controller], name: str, after: type | None = None) -> tuple[Any, Any]:
    """Return (class, what it calls `name`) of the first class in the resolution order, `after` a given one if any."""
    mro = cls.__mro__
    rest = mro[mro.index(after) + 1 if after else 0 :]
    return next(((owner, vars(owner)[name]) for owner in rest if name in vars(owner)), (None, None))


def value_of(function: FunctionType, name: str, default: Any) -> Any:
    """Return what a name that is not local means in a function."""
    if name in function.__code__.co_freevars:
        return closure_of(function).get(name, default)
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, default)


class Function(NamedTuple):
    """A flattened function: its source, whether it returns a value, columns it reads itself, functions it calls."""

    source: Source
    returns: bool
    columns: set[str]
    calls: set[str]


class Flattener:
    """Collects the functions that a class reaches."""

    def __init__(self, cls: type[Controller]) -> None:
        self.cls = cls
        self.fields = fields_of(cls)
        self.functions: dict[str, Function] = {}
        self.making: set[str] = set()  # those that are not complete yet
        self.named: dict[tuple[FunctionType, type | None], str] = {}  # by function and the class it is a method of

    def method(self, name: str, after: type | None = None, where: str = "") -> str:
        """Flatten a method, of the first class in the resolution order (`after` a given one); return its name."""
        owner, function = find_method(self.cls, name, after)
        if owner is None:
            raise CompileError(f"{where}: {self.cls.__name__} has no {'next ' if after else ''}method {name!r}")
        if not isinstance(function, types.FunctionType):
            raise CompileError(f"{where}: {owner.__name__}.{name} is not a plain method")
        return self.function(function, f"{owner.__name__}.{name}", owner)

    def function(self, function: FunctionType, name: str, owner: type | None = None) -> str:
        """Flatten a function or method; return its name, which no other has."""
        name = self.named.setdefault((function, owner), f"{name}.{len(self.named)}")
        if name in self.making:
            raise CompileError(f"{where_of(function)}: {function.__name__} calls itself, directly or through others")
        if name not in self.functions:
            self.making.add(name)
            self.functions[name] = _Translator(self, function, owner).translate(name)
            self.making.remove(name)
        return name

    def columns_of(self, name: str, seen: set[str] | None = None) -> set[str]:
        """Return the columns that a function and all it calls can read."""
        seen = set() if seen is None else seen
        if name in seen:
            return set()
        seen.add(name)
        function = self.functions[name]
        return function.columns.union(*(self.columns_of(called, seen) for called in function.calls))


class _Translator(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, flattener: Flattener, function: FunctionType, owner: type | None) -> None:
        self.flattener = flattener
        self.python = function
        self.owner = owner
        self.tree = definition_of(function)
        self.path = function.__code__.co_filename
        self.columns: set[str] = set()
        self.calls: set[str] = set()
        self.returns: bool | None = None
        args = self.tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            self.refuse(self.tree, "takes * arguments; methods take scalars by position or name")
        if self.tree.decorator_list or isinstance(self.tree, ast.AsyncFunctionDef):
            self.refuse(self.tree, "is decorated or async; only plain functions can be compiled")
        self.locals = {a.arg for a in args.args}
        self.locals |= {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def refuse(self, node: Any, reason: str) -> NoReturn:
        raise CompileError(f"{self.at(node)}: {self.python.__name__} {reason}")

    def at(self, node: Any) -> str:
        return f"{self.path}:{node.lineno}"

    def translate(self, name: str) -> Function:
        """Return the rewritten `Function`."""
        tree, args = self.tree, self.tree.args
        if self.owner and (not args.args or args.args[0].arg != "self"):
            self.refuse(tree, "must call its first argument self")
        for node, value in zip(args.defaults, self.python.__defaults__ or (), strict=True):
            if number(value) is None:
                self.refuse(node, f"has the default {value!r}; defaults are numbers")
        tree.body = self.block(tree.body)
        if self.returns and not _always_returns(tree.body):
            self.refuse(tree, "returns a value on some ways through it and nothing on others")
        source = Source(name, self.python, tree, self.meaning, True)
        return Function(source, bool(self.returns), self.columns, self.calls)

    def meaning(self, name: str) -> Any:
        """Return what a name means in this function: another one's `Source`, or a Python object."""
        if name in self.flattener.functions:
            return self.flattener.functions[name].source
        value = value_of(self.python, name, MISSING)
        flattened = self.flattener.named.get((value, None)) if isinstance(value, types.FunctionType) else None
        return self.flattener.functions[flattened].source if flattened else value

    def visit(self, node: Any) -> Any:
        if not isinstance(node, _ALLOWED):
            at = node if isinstance(node, ast.stmt | ast.expr) else self.tree
            self.refuse(at, f"uses {_plain_name(node)}, which is not flattened")
        return super().visit(node)

    # -- statements ----------------------------------------------------------------------------------------------------
    def visit_AnnAssign(self, node: Any) -> Any:
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Expr(self, node: Any) -> Any:
        if isinstance(node.value, ast.Constant):  # a string that comments
            return None
        if not isinstance(node.value, ast.Call):
            self.refuse(node, "has an expression without effect")
        return self.generic_visit(node)

    def visit_Return(self, node: Any) -> Any:
        none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if self.returns is not None and self.returns == none:
            self.refuse(node, "returns a value on some ways through it and nothing on others")
        self.returns = not none
        return ast.copy_location(ast.Return(None), node) if none else self.generic_visit(node)

    def visit_For(self, node: Any) -> Any:
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            self.refuse(node, "loops over something other than range(...)")
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse(node, "has a for loop with else, or with more than one variable")
        call.args = [self.visit(a) for a in call.args]
        node.body = self.block(node.body)
        return node

    def visit_If(self, node: Any) -> Any:
        node.test, node.body = self.visit(node.test), self.block(node.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        return node

    visit_While = visit_If

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        kept = [s for s in map(self.visit, statements) if s]
        return kept or [ast.copy_location(ast.Pass(), statements[0])]

    # -- expressions ---------------------------------------------------------------------------------------------------
    def visit_Constant(self, node: Any) -> Any:
        known = number(node.value)
        if known is None or known.kind == "uint":
            text = "None" if node.value is None else kind_of(node.value)
            self.refuse(node, f"uses {node.value!r} ({text}); only numbers of at most 64 bits are flattened")
        return node

    def visit_Name(self, node: Any) -> Any:
        if node.id in self.locals:
            if node.id == "self" and self.owner:
                self.refuse(node, "uses self other than as self.field or self.method(...)")
            return node
        value = self.resolve(node)
        if callable(value) or isinstance(value, types.ModuleType):
            self.refuse(node, f"uses {node.id!r} as a value; functions can only be called")
        if not _is_constant(value):
            raise CompileError(
                f"{self.at(node)}: {node.id!r} is {type(value).__name__}; constants are numbers of at most 64 bits "
                "or tuples of numbers of one kind"
            )
        return node

    def visit_Attribute(self, node: Any) -> Any:
        base = node.value.id if isinstance(node.value, ast.Name) else None
        if base == "ack" and base in self.locals:
            view = self.flattener.cls.view
            if isinstance(node.ctx, ast.Store):
                self.refuse(node, f"assigns to ack.{node.attr}; inputs are read only")
            if node.attr not in VIEW_COLUMNS[view]:
                self.refuse(node, f"reads ack.{node.attr}, which is no column of the {view} view")
            self.columns.add(node.attr)
        elif base == "self" and self.owner:
            self.check_field(node)
        else:
            self.refuse(node, f"reads the attribute {node.attr!r} of something other than self and ack")
        return node

    def check_field(self, node: Any) -> None:
        cls, name = self.flattener.cls, node.attr
        field = self.flattener.fields.get(name)
        if field is None:
            kind = "a method" if callable(getattr(cls, name, None)) else "no declared field"
            self.refuse(node, f"uses self.{name}, which is {kind} of {cls.__name__}")
        if isinstance(node.ctx, ast.Store) and name in param_fields(cls):
            self.refuse(node, f"assigns to self.{name}, which is a parameter; parameters are constant in a run")
        if isinstance(node.ctx, ast.Store) and field.length:
            self.refuse(node, f"assigns to the array self.{name}; assign to its elements")

    def visit_Call(self, node: Any) -> Any:
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse(node, "calls with * arguments")
        function, first = self.callee(node)
        node.func = function
        node.args = first + [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        return node

    def callee(self, node: Any) -> tuple[ast.expr, list[ast.expr]]:
        """Return the flattened function of a call, and the arguments that go before its own."""
        func = node.func
        if isinstance(func, ast.Attribute):
            me: list[ast.expr] = [ast.Name("self", ast.Load())]
            if self.owner and isinstance(func.value, ast.Name) and func.value.id == "self":
                return self.called(self.flattener.method(func.attr, None, self.at(node))), me
            if self.owner and _is_super(func.value):
                return self.called(self.flattener.method(func.attr, self.owner, self.at(node))), me
            name = func.value.id if isinstance(func.value, ast.Name) else "self"
            if name not in self.locals and self.resolve(func.value) is math and func.attr in MATH:
                return func, []
        elif isinstance(func, ast.Name) and func.id not in self.locals:
            value = self.resolve(func)
            if any(value is known for known in (*BUILTINS, *CMATH)):
                return func, []
            if isinstance(value, types.FunctionType):
                self.called(self.flattener.function(value, value.__name__))
                return func, []
        known = ", ".join([*(f.__name__ for f in BUILTINS), *(f"math.{m}" for m in MATH)])
        return self.refuse(
            node, f"calls {ast.unparse(func)}, which is not flattened (methods, functions and {known} are)"
        )

    def called(self, name: str) -> ast.Name:
        """Note that a function is called; returns its name as an expression."""
        self.calls.add(name)
        return ast.Name(name, ast.Load())

    def resolve(self, node: Any) -> Any:
        """Return what a name means that is no variable."""
        value = value_of(self.python, node.id, MISSING)
        if value is MISSING:
            self.refuse(node, f"uses {node.id!r}, which is not defined in its module")
        return value


def _is_constant(value: object) -> bool:
    if not isinstance(value, tuple):
        return number(value) is not None
    kinds = {kind_of(v) for v in np.array(value, dtype=object).ravel()}
    return len(kinds) == 1 and kinds <= {"int", "float", "f32"}


def _is_super(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args


def _always_returns(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return)


def _plain_name(node: Any) -> str:
    return {"Try": "try", "JoinedStr": "a string", "Lambda": "lambda", "FunctionDef": "a nested function"}.get(
        type(node).__name__, f"{type(node).__name__}"
    )
