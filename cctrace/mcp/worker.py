"""A separate process that answers, so that a slow call can be aborted and its memory released."""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cctrace.errors import CctraceError, one_line

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

TOOLS = (
    *("list_captures", "flows", "explain", "limits", "events", "packets", "state_at", "identify"),  # of Captures
    *("fit_path", "what_if", "simulate", "plot"),  # of paths.py
)
_ENDS_WITHIN_S = 5.0  # a process that was asked to end


class Failed(CctraceError):
    """A tool has no answer; the message is the sentence that the caller receives."""


def tool(name: str) -> Callable[..., Any]:
    """Return the function that answers a tool; its first argument is the `Captures` that it reads."""
    from cctrace.mcp import paths
    from cctrace.mcp.captures import Captures

    return getattr(Captures, name, None) or getattr(paths, name)


def signature(name: str) -> inspect.Signature:
    """Return the arguments of a tool, as a caller gives them."""
    found = inspect.signature(tool(name), eval_str=True)
    return found.replace(parameters=list(found.parameters.values())[1:])


class Worker:
    """Answers calls of tools in a process that reads below `root`, one at a time, each within `seconds`."""

    def __init__(self, root: str, seconds: float) -> None:
        self._root, self._seconds = root, seconds
        self._context = multiprocessing.get_context("spawn")  # the server's threads forbid a fork
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._one = threading.Lock()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the answer of a tool. Raises `Failed` if it has none; if it took too long, the process is ended."""
        with self._one:
            connection = self._begun()
            try:
                connection.send((name, dict(arguments)))
                if not connection.poll(self._seconds):
                    self.close()
                    raise Failed(f"{name} took more than {self._seconds:g} s and was ended: ask for less")
                answered, result = connection.recv()
            except (EOFError, OSError):
                self.close()
                raise Failed(f"{name} needed more than this machine has: ask for less") from None
        if not answered:
            raise Failed(result)
        return result

    def _begun(self) -> Connection:
        if self._connection is None or self._process is None or not self._process.is_alive():
            self._connection, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_answer, args=(theirs, self._root), daemon=True)
            self._process.start()
            theirs.close()
        return self._connection

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join(_ENDS_WITHIN_S)
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def _answer(connection: Connection, root: str) -> None:
    """Answer calls until the connection ends; standard output belongs to the protocol."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    from cctrace.mcp.captures import Captures
    from cctrace.mcp.files import Files

    warnings.simplefilter("ignore")  # what limits an answer is in its notes
    captures = Captures(Files.below(root))
    while True:
        try:
            name, arguments = connection.recv()
            connection.send(_tried(functools.partial(tool(name), captures, **arguments), root))
        except (EOFError, OSError):  # the server has ended, perhaps during the call
            return


def _tried(function: Callable[[], Any], root: str) -> tuple[bool, Any]:
    """Return (True, answer), or (False, why there is none) in a sentence; neither says where the root is."""
    place = f"{os.path.realpath(root)}{os.sep}"
    try:
        return True, _without(place, function())
    except Exception as error:
        return False, one_line(error).replace(place, "")


def _without(place: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(place, one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without(place, one) for one in value]
    return value.replace(place, "") if isinstance(value, str) else value
