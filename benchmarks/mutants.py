"""Single changes of a function's source: what `benchmarks.conform` makes mutants of."""

import ast
import inspect
import sys
import textwrap
from collections import Counter

from cctrace.lang.machine import Machine

OPPOSITE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
}  # fmt: skip


class Change(ast.NodeTransformer):
    """Make change number `at`, counting all places where one can be made; `said` tells which it was."""

    def __init__(self, at):
        self.at, self.count, self.said = at, 0, None

    def here(self, node, said):
        self.count += 1
        if self.count - 1 == self.at:
            self.said = f"line {node.lineno}: {said}"
            return True
        return False

    def visit_Compare(self, node):
        self.generic_visit(node)
        kind = type(node.ops[0])
        if kind in OPPOSITE and self.here(node, f"inverted: {ast.unparse(node)}"):
            node.ops[0] = OPPOSITE[kind]()
        return node

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        if self.here(node, f"and for or: {ast.unparse(node)}"):
            node.op = OPPOSITE[type(node.op)]()
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if type(node.op) in (ast.Add, ast.Sub) and self.here(node, f"sign: {ast.unparse(node)}"):
            node.op = OPPOSITE[type(node.op)]()
        return node

    def visit_Constant(self, node):
        if type(node.value) in (int, float) and self.here(node, f"number {node.value}"):
            return ast.copy_location(ast.Constant(node.value * 2 + (1 if node.value == 0 else 0)), node)
        if type(node.value) is bool and self.here(node, f"{node.value} inverted"):
            return ast.copy_location(ast.Constant(not node.value), node)
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        swapped = {"min": "max", "max": "min"}.get(getattr(node.func, "id", ""))
        if swapped and self.here(node, f"{swapped} instead: {ast.unparse(node)}"):
            node.func.id = swapped
        return node

    def visit_Assign(self, node):
        self.generic_visit(node)
        if isinstance(node.targets[0], ast.Attribute) and self.here(node, f"left out: {ast.unparse(node)}"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return node
        self.generic_visit(node)
        if self.here(node, f"left out: {ast.unparse(node)}"):
            return ast.copy_location(ast.Pass(), node)
        return node


def changes(function):
    """Yield (what was changed, source) of all single changes of a function; equal texts are numbered."""
    text, said = textwrap.dedent(inspect.getsource(function)), Counter[str]()
    at = 0
    while True:
        tree = ast.parse(text)
        change = Change(at)
        change.visit(tree.body[0])
        if change.said is None:
            return
        said[change.said] += 1
        which = f" ({said[change.said]})" if said[change.said] > 1 else ""
        yield f"{function.__name__}, {change.said}{which}", ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        at += 1


def of_class(cls, skipped):
    """Yield (what was changed, source of a module with a class Mutant) of a controller's methods, but those skipped."""
    steps = {
        step: getattr(cls, step) for base in cls.__mro__[:-3] for step, f in vars(base).items() if inspect.isfunction(f)
    }
    for step, function in steps.items():
        if step in skipped or step.startswith("__") or "super()" in inspect.getsource(function):
            continue
        for said, text in changes(function):
            yield said, as_class(cls, function, text)


def as_class(cls, function, text):
    """Return the source of a module with a class Mutant, in which a method is another."""
    head = f"from {function.__module__} import *\nfrom {cls.__module__} import {cls.__name__}\n"
    return f"{head}\n\nclass Mutant({cls.__name__}):\n{textwrap.indent(text, '    ')}"


def rewritten(function, old, new):
    """Return the source of a function with a text in place of another, which it has once."""
    text = textwrap.dedent(inspect.getsource(function))
    if text.count(old) != 1:
        raise ValueError(f"{function.__name__} has {old!r} {text.count(old)} times")
    return text.replace(old, new)


def put_in_place(function, file):
    """Let every module that has a function use the one in a file instead: of the same name, in the same module."""
    there = sys.modules[function.__module__]
    made = {}
    exec(compile(file.read_text(), str(file), "exec"), vars(there), made)
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is function:
                setattr(module, name, made[function.__name__])
            elif isinstance(value, Machine):
                value._entries.clear()  # what was compiled before has the old one in it
