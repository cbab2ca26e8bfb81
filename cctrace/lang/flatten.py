"""From a controller class to plain functions: the source text that `lang.compile` hands to Numba.

Every method that an entry point can reach becomes a function ``Owner__method(self, ...)``; `self` is then a record of
the state and `ack` a record of the columns, so that most lines stay as they were written:

* ``self.step(x)``     -> ``Owner__step(self, x)`` with the owner found in the class's method resolution order;
* ``super().step(x)``  -> the same, with the next owner in that order;
* module-level functions are flattened too, those of `cctrace.cc.cmath` are replaced by their compiled equivalents;
* module-level numbers become constants, tuples of numbers constant arrays.

Each generated line ends with the file and line it comes from. What is not in the language of `cctrace.cc.base` is
refused here, before Numba sees it, with file, line and reason.
"""

import ast
import builtins
import copy
import math
import types
from typing import NamedTuple

import numpy as np

from cctrace import schema
from cctrace.cc import cmath
from cctrace.errors import CompileError
from cctrace.lang.definitions import closure_of, definition_of, literal, where_of, with_origins
from cctrace.lang.fields import fields_of, kind_of

EVENTS = {"linux": schema.LINUX_EVENTS, "quic": schema.QUIC_EVENTS}
VIEW_COLUMNS = {"linux": schema.names(schema.LINUX_VIEW), "quic": schema.names(schema.QUIC_VIEW)}
MATH = ("sqrt", "exp", "expm1", "log", "log1p", "log2", "pow", "floor", "ceil", "fabs", "tanh")
BUILTINS = {"abs": "abs", "min": "min", "max": "max", "int": "int", "float": "float__", "bool": "bool", "len": "len"}
# What stands for a function of cmath, on int64 and their bits (uint64); each argument occurs once.
CMATH = {
    cmath.u8: "{0} & 0xFF",
    cmath.u16: "{0} & 0xFFFF",
    cmath.u32: "{0} & 0xFFFFFFFF",
    cmath.s32: "(({0} + 0x80000000) & 0xFFFFFFFF) - 0x80000000",
    cmath.u64: "int__({0})",
    cmath.u64_shr: "int__(bits__({0}) >> bits__({1}))",
    cmath.u64_div: "int__(bits__({0}) // bits__({1}))",
    cmath.u64_lt: "bits__({0}) < bits__({1})",
    cmath.idiv: "idiv__({0}, {1})",
    np.float32: "f32__({0})",
}
MOST_INLINED_NODES = 60  # of the syntax tree of a function that is put in place of its calls
_UNDEFINED = object()

_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.While, ast.For, ast.Return, ast.Expr, ast.Pass)
_EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Name)
_OTHERS: tuple = (ast.Constant, ast.Subscript, ast.Tuple, ast.Break, ast.Continue, ast.keyword)
_OTHERS += (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_ALLOWED = _STATEMENTS + _EXPRESSIONS + _OTHERS


class Entry(NamedTuple):
    """An entry point: function to call, whether it returns a value, the columns it can read."""

    function: str
    returns: bool
    columns: tuple[str, ...]


class Flat(NamedTuple):
    """A flattened class: source of constants and functions, {event: Entry}, and what was found by name on the way.

    `names` is {(function, name used in it): value}; `methods` are (name, class after which it was sought, function).
    """

    source: str
    entries: dict[str, Entry]
    names: dict
    methods: list

    def is_current(self, cls):
        """Whether all names still mean the same: in a notebook, constants and methods are assigned anew."""
        named = all(value_of(function, name, None) is value for (function, name), value in self.names.items())
        return named and all(find_method(cls, name, after)[1] is function for name, after, function in self.methods)


def flatten(cls):
    """Return the `Flat` source of a controller class.

    Raises
    ------
    CompileError
        If the class cannot be flattened; names file, line and reason.
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
    return Flat(flattener.source(roots.values()), entries, flattener.resolved, flattener.methods)


def find_method(cls, name, after=None):
    """Return (class, what it calls `name`) of the first class in the resolution order, `after` a given one if any."""
    mro = cls.__mro__
    rest = mro[mro.index(after) + 1 if after else 0 :]
    return next(((owner, vars(owner)[name]) for owner in rest if name in vars(owner)), (None, None))


def value_of(function, name, default):
    """Return what a name that is not local means in a function."""
    if name in function.__code__.co_freevars:
        return closure_of(function).get(name, default)
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, default)


class Function(NamedTuple):
    """A flattened function: its text, whether it returns a value, columns it reads itself, functions it calls.

    `parameters` and `expression` are there if it only returns an expression that calls nothing but builtins: such a
    function is put in place of its calls, because Numba takes some 30 ms for each function, however small.
    """

    text: str
    returns: bool
    columns: set
    calls: set
    parameters: list
    expression: ast.expr | None


class Flattener:
    """Collects the functions and constants that a class reaches."""

    def __init__(self, cls):
        self.cls = cls
        self.fields = fields_of(cls)
        self.functions = {}  # name -> Function, None while it is being made
        # Generated name -> the Python object it stands for; those of the generated module are taken.
        self.names = dict.fromkeys([*BUILTINS.values(), "range", "njit", "run", "call", "CheckedCompiler"])
        self.constants = {}  # generated name -> text
        self.resolved, self.methods = {}, []  # see `Flat`

    def method(self, name, after=None, where=""):
        """Flatten a method, of the first class in the resolution order (`after` a given one); return its name."""
        owner, function = find_method(self.cls, name, after)
        if owner is None:
            raise CompileError(f"{where}: {self.cls.__name__} has no {'next ' if after else ''}method {name!r}")
        if not isinstance(function, types.FunctionType):
            raise CompileError(f"{where}: {owner.__name__}.{name} is not a plain method")
        self.methods.append((name, after, function))
        return self.function(function, f"{owner.__name__}__{name}", owner)

    def function(self, function, name, owner=None):
        """Flatten a function or method; return its generated name."""
        name = self.unique(name, function)
        if name not in self.functions:
            self.functions[name] = None
            self.functions[name] = _Translator(self, function, owner).translate(name)
        elif self.functions[name] is None:
            raise CompileError(f"{where_of(function)}: {function.__name__} calls itself, directly or through others")
        return name

    def constant(self, name, value, where):
        """Return the generated name of a module-level number or tuple of numbers."""
        text = literal(value)
        if text is None:
            raise CompileError(
                f"{where}: {name!r} is {type(value).__name__}; constants are numbers of at most 64 bits "
                "or tuples of numbers of one kind"
            )
        if kind_of(value) == "int":
            text = f"int__({text})"  # not a literal: Numba would compile a callee anew for every literal argument
        name = self.unique(name, value)
        self.constants[name] = text
        return name

    def unique(self, name, thing):
        """Return `name`, numbered if it already stands for something else."""
        candidate, number = name, 1
        while candidate in self.names and not _same(self.names[candidate], thing):
            number += 1
            candidate = f"{name}__{number}"
        self.names[candidate] = thing
        return candidate

    def columns_of(self, name, seen=None):
        """Return the columns that a function and all it calls can read."""
        seen = set() if seen is None else seen
        if name in seen:
            return set()
        seen.add(name)
        function = self.functions[name]
        return function.columns.union(*(self.columns_of(called, seen) for called in function.calls))

    def source(self, roots):
        """Return the text of all constants, and of the functions that are called or among `roots`."""
        lines = [f"{name} = {text}" for name, text in self.constants.items()]
        called = set(roots).union(*(f.calls for f in self.functions.values()))
        return "\n\n".join(["\n".join(lines), *(f.text for n, f in self.functions.items() if n in called)]) + "\n"


class _Translator(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, flattener, function, owner):
        self.flattener = flattener
        self.python = function
        self.owner = owner
        self.tree = definition_of(function)
        self.path = function.__code__.co_filename
        self.columns, self.calls = set(), set()
        self.returns = None
        args = self.tree.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
            self.refuse(self.tree, "takes * arguments; methods take scalars by position or name")
        if self.tree.decorator_list or isinstance(self.tree, ast.AsyncFunctionDef):
            self.refuse(self.tree, "is decorated or async; only plain functions can be compiled")
        self.locals = {a.arg for a in args.args}
        self.locals |= {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def refuse(self, node, reason):
        raise CompileError(f"{self.at(node)}: {self.python.__name__} {reason}")

    def at(self, node):
        return f"{self.path}:{node.lineno}"

    def translate(self, name):
        """Return the rewritten `Function`."""
        tree, args = self.tree, self.tree.args
        if self.owner and (not args.args or args.args[0].arg != "self"):
            self.refuse(tree, "must call its first argument self")
        tree.name, tree.returns = name, None
        for arg in args.args:
            arg.annotation = None
        args.defaults = [
            self.constant_node(d, v) for d, v in zip(args.defaults, self.python.__defaults__ or (), strict=True)
        ]
        tree.body = self.block(tree.body)
        if self.returns and not _always_returns(tree.body):
            self.refuse(tree, "returns a value on some ways through it and nothing on others")
        text = with_origins(tree, self.path, f"{self.python.__qualname__}")
        alone = isinstance(tree.body[0], ast.Return) and not (self.calls or args.defaults)
        expression = tree.body[0].value if alone and sum(1 for _ in ast.walk(tree)) < MOST_INLINED_NODES else None
        return Function(text, bool(self.returns), self.columns, self.calls, [a.arg for a in args.args], expression)

    def visit(self, node):
        if not isinstance(node, _ALLOWED):
            self.refuse(
                node if hasattr(node, "lineno") else self.tree, f"uses {_plain_name(node)}, which is not flattened"
            )
        return super().visit(node)

    def constant_node(self, node, value):
        text = literal(value)
        if text is None or isinstance(value, tuple):
            self.refuse(node, f"has the default {value!r}; defaults are numbers")
        return ast.parse(text, mode="eval").body

    # -- statements ----------------------------------------------------------------------------------------------------
    def visit_AnnAssign(self, node):
        if node.value is None:
            return None
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):  # a string that comments
            return None
        if not isinstance(node.value, ast.Call):
            self.refuse(node, "has an expression without effect")
        return self.generic_visit(node)

    def visit_Return(self, node):
        none = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        if self.returns is not None and self.returns == none:
            self.refuse(node, "returns a value on some ways through it and nothing on others")
        self.returns = not none
        return ast.copy_location(ast.Return(None), node) if none else self.generic_visit(node)

    def visit_For(self, node):
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            self.refuse(node, "loops over something other than range(...)")
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse(node, "has a for loop with else, or with more than one variable")
        call.args = [self.visit(a) for a in call.args]
        node.body = self.block(node.body)
        return node

    def visit_If(self, node):
        node.test, node.body = self.visit(node.test), self.block(node.body)
        node.orelse = self.block(node.orelse) if node.orelse else []
        return node

    visit_While = visit_If

    def block(self, statements):
        kept = [s for s in map(self.visit, statements) if s]
        return kept or [ast.copy_location(ast.Pass(), statements[0])]

    # -- expressions ---------------------------------------------------------------------------------------------------
    def visit_Constant(self, node):
        if literal(node.value) is None:
            shown = "None" if node.value is None else kind_of(node.value)
            self.refuse(node, f"uses {node.value!r} ({shown}); only numbers of at most 64 bits are flattened")
        return node

    def visit_Name(self, node):
        if node.id in self.locals:
            if "__" in node.id:
                self.refuse(node, f"has a variable {node.id!r}; two underscores are kept for generated names")
            if node.id == "self" and self.owner:
                self.refuse(node, "uses self other than as self.field or self.method(...)")
            return node
        value = self.resolve(node)
        if callable(value) or isinstance(value, types.ModuleType):
            self.refuse(node, f"uses {node.id!r} as a value; functions can only be called")
        name = self.flattener.constant(node.id, value, self.at(node))
        return ast.copy_location(ast.Name(name, node.ctx), node)

    def visit_Attribute(self, node):
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

    def check_field(self, node):
        cls, name = self.flattener.cls, node.attr
        field = self.flattener.fields.get(name)
        if field is None:
            kind = "a method" if callable(getattr(cls, name, None)) else "no declared field"
            self.refuse(node, f"uses self.{name}, which is {kind} of {cls.__name__}")
        if isinstance(node.ctx, ast.Store) and name in cls.params:
            self.refuse(node, f"assigns to self.{name}, which is a parameter; parameters are constant in a run")
        if isinstance(node.ctx, ast.Store) and field.length:
            self.refuse(node, f"assigns to the whole array self.{name}; assign to its elements")

    def visit_Call(self, node):
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse(node, "calls with * arguments")
        name = node.func.id if isinstance(node.func, ast.Name) and node.func.id not in self.locals else None
        template = CMATH.get(self.resolve(node.func)) if name and callable(self.resolve(node.func)) else None
        function, first = (None, []) if template else self.callee(node)
        node.args = first + [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        if template:
            return self.filled(node, template)
        node.func = function
        if function.id not in self.flattener.functions:
            return node
        inlined = self.inlined(node)
        if inlined is None:
            self.calls.add(function.id)
            node.args = [_unliteral(a) for a in node.args]
        return inlined or node

    def inlined(self, node):
        """Return the expression of a called function with its arguments in place, None where that is not safe."""
        function = self.flattener.functions[node.func.id]
        if (
            function is None
            or function.expression is None
            or node.keywords
            or len(node.args) != len(function.parameters)
        ):
            return None
        if not all(isinstance(a, ast.Name | ast.Constant | ast.Attribute) for a in node.args):  # evaluated once, before
            return None
        values = dict(zip(function.parameters, node.args, strict=True))
        names = {n.id for n in ast.walk(function.expression) if isinstance(n, ast.Name)}
        if (names - set(values)) & self.locals:  # a constant that this function's variable would hide
            return None
        self.columns |= function.columns
        return _Substitution(values).visit(copy.deepcopy(function.expression))

    def filled(self, node, template):
        """Return the expression that stands for a call of a cmath function."""
        if node.keywords or len(node.args) != template.count("{"):
            self.refuse(node, f"calls {node.func.id} with other arguments than its {template.count('{')}")
        expression = template.format(*(f"({ast.unparse(a)})" for a in node.args))
        return ast.copy_location(ast.parse(expression, mode="eval").body, node)

    def callee(self, node):
        """Return the flattened function of a call, and the arguments that go before its own."""
        func = node.func
        if isinstance(func, ast.Attribute):
            me = [ast.Name("self", ast.Load())]
            if self.owner and isinstance(func.value, ast.Name) and func.value.id == "self":
                return ast.Name(self.flattener.method(func.attr, None, self.at(node)), ast.Load()), me
            if self.owner and _is_super(func.value):
                return ast.Name(self.flattener.method(func.attr, self.owner, self.at(node)), ast.Load()), me
            name = func.value.id if isinstance(func.value, ast.Name) else "self"
            if name not in self.locals and self.resolve(func.value) is math and func.attr in MATH:
                return ast.Name(f"{func.attr}__", ast.Load()), []
        elif isinstance(func, ast.Name) and func.id not in self.locals:
            value = self.resolve(func)
            if BUILTINS.get(func.id) and value is getattr(builtins, func.id):
                return ast.Name(BUILTINS[func.id], ast.Load()), []
            if isinstance(value, types.FunctionType):
                return ast.Name(self.flattener.function(value, value.__name__), ast.Load()), []
        known = ", ".join([*BUILTINS, *(f"math.{m}" for m in MATH)])
        return self.refuse(
            node, f"calls {ast.unparse(func)}, which is not flattened (methods, functions and {known} are)"
        )

    def resolve(self, node):
        value = value_of(self.python, node.id, _UNDEFINED)
        if value is _UNDEFINED:
            return self.refuse(node, f"uses {node.id!r}, which is not defined in its module")
        self.flattener.resolved[self.python, node.id] = value
        return value


class _Substitution(ast.NodeTransformer):
    """Puts arguments in place of parameters."""

    def __init__(self, values):
        self.values = values

    def visit_Name(self, node):
        return copy.deepcopy(self.values.get(node.id, node))


def _same(a, b):
    return a is b or (type(a) is type(b) and not callable(a) and repr(a) == repr(b))


def _is_super(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args


def _unliteral(node):
    """Hide a literal integer, for each of which Numba would compile the callee anew."""
    if isinstance(node, ast.Constant) and kind_of(node.value) == "int":
        return ast.Call(ast.Name("int__", ast.Load()), [node], [])
    return node


def _always_returns(body):
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_returns(last.body) and _always_returns(last.orelse)
    return isinstance(last, ast.Return)


def _plain_name(node):
    return {"Try": "try", "JoinedStr": "a string", "Lambda": "lambda", "FunctionDef": "a nested function"}.get(
        type(node).__name__, f"{type(node).__name__}"
    )
