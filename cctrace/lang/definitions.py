"""Source text in and out: the syntax tree of a Python function, the text of numbers and of generated functions."""

import ast
import copy
import linecache
import math

import numpy as np

from cctrace.errors import CompileError
from cctrace.lang.fields import kind_of


def where_of(function):
    """Return file:line of a Python function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


_parsed: dict[str, tuple] = {}  # file name -> (text, {line: definition})


def definition_of(function):
    """Return a copy of the syntax tree of a function, with the line numbers of its file."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if _parsed.get(code.co_filename, (None,))[0] != text:
        try:
            tree = ast.parse(text)
        except SyntaxError:
            tree = ast.Module([], [])
        found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        definitions = {min([n.lineno, *(d.lineno for d in n.decorator_list)]): n for n in found}
        _parsed[code.co_filename] = (text, definitions)
    definition = _parsed[code.co_filename][1].get(code.co_firstlineno)
    if definition is None or definition.name != function.__name__:
        raise CompileError(
            f"{where_of(function)}: the source of {function.__qualname__} cannot be read "
            "(write it in a file or a notebook cell with def; reload a file that changed)"
        )
    return copy.deepcopy(definition)


def closure_of(function):
    """Return the values that a function takes from the function around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if name != "__class__"}


def with_origins(tree, path, title):
    """Return the text of a function, each line with the file and line it comes from."""
    text = ast.unparse(ast.fix_missing_locations(tree))
    again = ast.parse(text).body[0]
    origin = {new.lineno: old.lineno for new, old in zip(_statements(again), _statements(tree), strict=True)}
    lines = text.splitlines()
    last = tree.lineno
    for number, line in enumerate(lines, 1):
        last = origin.get(number, last)
        lines[number - 1] = f"{line}  # {path}:{last}"
    return "\n".join([f"# {title}", "@njit__", *lines])


def _statements(node):
    """Yield a statement and those inside it, in the order of the text."""
    yield node
    for part in ("body", "orelse"):
        for child in getattr(node, part, ()):
            yield from _statements(child)


def literal(value):
    """Return the text of a number or a tuple of numbers of one kind, None for anything else."""
    kind = kind_of(value)
    if kind == "int":
        return repr(value) if -(1 << 63) <= value < 1 << 63 else None
    if kind in ("bool", "float"):
        return repr(value) if value == value and abs(value) != math.inf else f"float__({str(value)!r})"
    if kind == "f32":
        return f"f32__({float(value)!r})"
    if isinstance(value, tuple) and value:
        kinds = {kind_of(v) for v in np.array(value, dtype=object).ravel()}
        dtype = {"int": "int64", "float": "float64", "f32": "float32"}.get(kinds.pop() if len(kinds) == 1 else "")
        return f"np__.array({_nested(value)}, np__.{dtype})" if dtype else None
    return None


def _nested(value):
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_nested, value)) + ",)"
    return repr(value.item() if isinstance(value, np.generic) else value)
