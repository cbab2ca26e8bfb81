"""Files and functions stay small enough to read, and nothing private is left over that nobody uses."""

import ast
from collections import Counter
from functools import lru_cache
from pathlib import Path

import cctrace

ROOT = Path(cctrace.__file__).parent
MAX_LINES, MAX_FUNCTION_LINES = 400, 60


@lru_cache(maxsize=1)
def sources():
    """Return {path below cctrace/: text}."""
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}


@lru_cache(maxsize=1)
def nodes():
    """Return {path: every node of its tree}, the top level first."""
    return {name: list(ast.walk(ast.parse(text))) for name, text in sources().items()}


def length_of(function):
    """Return the lines of a function without its docstring."""
    text = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    return function.end_lineno - function.lineno + 1 - (text.end_lineno - text.lineno + 1 if text else 0)


def defined(statement):
    """Return the names that a top-level statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name] if not statement.decorator_list else []  # a decorator may keep it: requirements do
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def test_no_file_is_longer_than_a_file_should_be():
    assert not {name for name, text in sources().items() if text.count("\n") > MAX_LINES}


def test_no_function_is_longer_than_a_function_should_be():
    functions = [(name, node) for name, of in nodes().items() for node in of if isinstance(node, ast.FunctionDef)]
    assert not {f"{name}:{node.name}" for name, node in functions if length_of(node) > MAX_FUNCTION_LINES}


def test_no_private_function_and_no_constant_is_left_over():
    used = Counter()
    for node in (node for of in nodes().values() for node in of):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used[node.id] += 1
        elif isinstance(node, ast.Attribute):
            used[node.attr] += 1
        elif isinstance(node, ast.alias):
            used[node.name] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used[node.value] += 1  # getattr, __all__
    unused = [
        f"{name}: {word}"
        for name, of in nodes().items()
        for statement in of[0].body
        for word in defined(statement)
        if not used[word] and not word.startswith("__")
        and (word.startswith("_") or (word.isupper() and not isinstance(statement, ast.ClassDef)))
    ]  # fmt: skip
    assert not unused
