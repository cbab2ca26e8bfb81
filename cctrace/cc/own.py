"""Users' own controllers in files, named ``FILE.py:CLASS``.

Loading such a class runs its file, with all the rights of the user. Only `load` does so, and only the command
line calls it, for what was typed there and allowed. A specification that comes from a configuration, a capture or a
file of results is looked up among the classes that were loaded; it never makes anything run.
"""

import hashlib
import linecache
import os
import sys
import types
from typing import TypeGuard

from cctrace.cc.base import Controller, check_methods
from cctrace.errors import ArgumentError, CctraceError

_ENDING = ".py"
_loaded: dict[str, tuple[type[Controller], str]] = {}  # name: (class, digest of the file it is from)


def parts(spec: str) -> tuple[str, str, str]:
    """Split a specification into name, colon and settings; the name of a class in a file contains a colon itself.

    >>> parts("obbr:mu=0.5"), parts("mine/vegas.py:Vegas:beta=6")
    (('obbr', ':', 'mu=0.5'), ('mine/vegas.py:Vegas', ':', 'beta=6'))
    """
    file, mark, rest = spec.partition(f"{_ENDING}:")
    if not mark:
        return spec.partition(":")
    name, colon, settings = rest.partition(":")
    return f"{file}{mark}{name}", colon, settings


def file_of(spec: str) -> str | None:
    """Return the file that a specification names, None if it names none.

    >>> file_of("mine/vegas.py:Vegas:beta=6"), file_of("vegas.py"), file_of("obbr:mu=0.5")
    ('mine/vegas.py', 'vegas.py', None)
    """
    file, colon, _ = spec.partition(f"{_ENDING}:")
    return f"{file}{_ENDING}" if colon else spec if spec.endswith(_ENDING) else None


def known(name: str) -> type[Controller]:
    """Return the class that was loaded by this name. Raises `ArgumentError` if there is none."""
    if name not in _loaded:
        raise ArgumentError(
            f"{name} was not loaded: only commands with --trust run a file; in Python, import the class and give it"
        )
    return _loaded[name][0]


def digest(name: str) -> str:
    """Return the hash of the file that a class was loaded from, "" for a class that was not loaded from a file."""
    return _loaded[name][1] if name in _loaded else ""


def load(spec: str) -> None:
    """Run a file and keep the class that the specification names; the file's source runs, not a compiled copy of it.

    `spec`: ``FILE.py:CLASS``, with settings or without. Raises `ArgumentError` if the file cannot be read or fails, or
    has no such controller.
    """
    name, _, _ = parts(spec)
    if name in _loaded:
        return
    file = file_of(spec) or name
    attribute = name[len(file) + 1 :]
    try:
        with open(file, encoding="utf-8") as source:
            text = source.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    module = _run(file, text)
    classes = {key: value for key, value in vars(module).items() if _is_controller(value)}
    if attribute not in classes:
        there = ", ".join(key for key, cls in classes.items() if cls.__module__ == module.__name__)
        raise ArgumentError(
            f"{file} has no controller class {attribute!r} (it has: {there or 'none'}); "
            f"write {file}:CLASS, a subclass of LinuxController or QuicController"
        )
    check_methods(classes[attribute])
    _loaded[name] = classes[attribute], hashlib.sha256(text.encode()).hexdigest()


def _is_controller(value: object) -> TypeGuard[type[Controller]]:
    return isinstance(value, type) and issubclass(value, Controller)


def _run(file: str, text: str) -> types.ModuleType:
    path = os.path.abspath(file)
    module = types.ModuleType(f"_own_{hashlib.sha256(path.encode()).hexdigest()[:16]}")
    module.__file__ = path
    # Compiling a controller reads its source again: it has to be the text that ran.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise ArgumentError(f"{file}, line {_line(error, path) or 1}: {type(error).__name__}: {error}") from error
    return module


def raised(error: BaseException) -> str | None:
    """Return in one line what a loaded class raised, and where; None for an error that arose elsewhere."""
    if isinstance(error, CctraceError):  # one line already
        return None
    for name in _loaded:
        path, text = os.path.abspath(file_of(name) or name), " ".join(str(error).split())
        if line := _line(error, path):
            return f"{name} raised {type(error).__name__}: {path}:{line}: {text}"
        if text.startswith(f"{path}:"):  # compiled code has no traceback, its error states the place
            return f"{name} raised {type(error).__name__}: {text}"
    return None


def _line(error: BaseException, path: str) -> int | None:
    """Return the line of a file at which an error arose, None if it arose elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    lines, trace = [], error.__traceback__
    while trace:
        lines += [trace.tb_lineno] if trace.tb_frame.f_code.co_filename == path else []
        trace = trace.tb_next
    return lines[-1] if lines else None
