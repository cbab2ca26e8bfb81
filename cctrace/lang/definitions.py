"""The syntax tree of a Python function, and where it comes from."""

import ast
import builtins
import linecache
import threading
from types import FunctionType
from typing import Any

from cctrace.errors import CompileError


def where_of(function: FunctionType) -> str:
    """Return file:line of a Python function."""
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"


_parsed: dict[str, tuple] = {}  # file name -> (text, {line: definition})
# CPython 3.11 counts the depth of syntax trees once per process: two threads that parse end in a SystemError.
_parsing = threading.Lock()


def definition_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a function, with the line numbers of its file; it is shared, and not to be changed."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    with _parsing:
        if _parsed.get(code.co_filename, (None,))[0] != text:
            _parsed[code.co_filename] = (text, _definitions(text))
        definition = _parsed[code.co_filename][1].get(code.co_firstlineno)
    if definition is None or definition.name != function.__name__:
        raise CompileError(
            f"{where_of(function)}: the source of {function.__qualname__} cannot be read "
            "(write it in a file or a notebook cell with def; reload a file that changed)"
        )
    return definition


def _definitions(text: str) -> dict[int, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions that a source text defines, by their first lines; none if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {min([n.lineno, *(d.lineno for d in n.decorator_list)]): n for n in found}


def value_of(function: FunctionType, name: str, default: Any) -> Any:
    """Return what a name that is not local means in a function."""
    code, scope = function.__code__, function.__globals__
    if name in code.co_freevars:
        return (function.__closure__ or ())[code.co_freevars.index(name)].cell_contents
    return scope[name] if name in scope else getattr(builtins, name, default)


def always_returns(body: list[ast.stmt]) -> bool:
    """Return whether every path through statements ends in a return."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and always_returns(last.body) and always_returns(last.orelse)
    return isinstance(last, ast.Return)
