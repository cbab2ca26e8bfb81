"""A worker's side of its child process: passes it inputs one by one, and survives any failure of it.

A capture that takes too long, needs too much memory or kills its child is an error of that capture; the next one gets
a new child. If a child dies that had analysed other captures before, the capture is tried again in a new one, so that
results do not depend on earlier captures.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import cctrace
from cctrace.corpus import zygote
from cctrace.corpus.inputs import Entry
from cctrace.corpus.tasks import Row
from cctrace.errors import CctraceError

_MAIN = "from cctrace.corpus.zygote import main; main()"
_PATIENCE = 10  # the wall-clock limit as a multiple of the CPU limit: time for a disk or a network
_ENVIRONMENT = {
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")},
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve more address space than a small limit allows
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}


class Stopped(CctraceError):
    """The run was ended while a capture was being analysed."""


class Child(NamedTuple):
    """A process that analyses captures: its number, and the socket to it."""

    number: int
    socket: socket.socket


class Zygote:
    """The process that this worker's children are forked from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, str(theirs.fileno())],
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": _search_path()},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is for the worker, which ends this by closing the socket
            )
        self._closing = weakref.finalize(self, _close, self._control, self._process)
        if self._control.recv(1) != b"r":
            raise CctraceError(f"the process that analyses captures did not start (status {self._process.wait()})")

    def fork(self) -> Child:
        """Return a new child."""
        mine, theirs = socket.socketpair()
        with self._lock, theirs, _ended():
            socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            return Child(self._answer(), mine)

    def ended(self, child: int) -> int:
        """Wait for a child; return its exit status, negative for a signal."""
        with self._lock, _ended():
            self._control.sendall(b"w" + struct.pack("<q", child))
            return self._answer()

    def _answer(self) -> int:
        data = self._control.recv(8)
        if len(data) < 8:
            raise OSError("closed")
        return struct.unpack("<q", data)[0]

    def close(self) -> None:
        """End it, and with it all children."""
        self._closing()


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Stopped("the process that analyses captures has ended") from error


def _close(control: socket.socket, process: subprocess.Popen[bytes]) -> None:
    control.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _search_path() -> str:
    """Return the PYTHONPATH for a new process: the same packages, without the working directory.

    The working directory holds captures and possibly foreign files beside them: a numpy.py would be imported. An
    interpreter started there has it as "" in its own path, which is dropped here.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(cctrace.__file__)))
    return os.pathsep.join([path for path in sys.path if path] + [here])


class Guard:
    """Runs one child at a time, with limits for every capture.

    `memory`: bytes of address space that a capture may take beyond those of an idle child. `seconds`: CPU time that a
    capture may take; the wall-clock limit is ten times as long.
    """

    def __init__(self, zygote: Zygote, memory: int, seconds: float) -> None:
        self.zygote, self.memory, self.seconds = zygote, memory, seconds
        self._child: Child | None = None
        self._late = self._stopped = False
        self._began = 0.0
        self._used: float | None = None
        self._alone = True  # the child has analysed nothing before: a failure is this capture's own

    def analyse(
        self, entry: Entry, tasks: Sequence[str], rules: Sequence[str] = (), limit: int | None = None
    ) -> Iterator[Row]:
        """Analyse an input; yield {"rows", "date"} or {"error", "reason", "capture"} per capture; see `one.analyse`."""
        order = {"entry": entry._asdict(), "tasks": list(tasks), "rules": list(rules), "limit": limit}
        order |= {"memory": self.memory, "skip": 0}
        while True:
            failed = yield from self._follow(self._begin(), order)
            if failed is None:
                return
            index, error = failed
            order["skip"] = index
            if error["error"] == "time" or self._alone:
                yield error
                if index < 0 or not entry.archive:
                    return
                order["skip"] = index + 1

    def _begin(self) -> Child:
        """Return the child, a new one if there is none."""
        if self._child is None:
            self._child = self.zygote.fork()
            self._alone = True
        return self._child

    def _follow(self, child: Child, order: Row) -> Generator[Row, None, tuple[int, Row] | None]:
        """Yield the child's results; return None when it is done, else (number, error) of the capture that failed."""
        entry, index = order["entry"], -1 if order["entry"]["archive"] else 0
        capture = entry["capture"]
        try:
            zygote.send(child.socket, order)
            self._watch()
            while (message := self._next(child)) is not None:
                done = message.pop("done", False)
                if message.get("error") == "memory":
                    self._end(child, capture)
                    return message.pop("index"), message
                if "begin" in message:
                    index, capture = message["begin"], message["capture"]
                elif message:
                    message.pop("index", None)
                    yield message
                    self._alone = False
                if done:
                    return None
                self._watch()
            return index, self._end(child, capture)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return index, self._end(child, capture)

    def _watch(self) -> None:
        self._began, self._used = time.monotonic(), None

    def _next(self, child: Child) -> Row | None:
        """Return the next message; None if the child is gone, or was killed because it took too long."""
        self._late = False
        while True:
            child.socket.settimeout(min(max(self.seconds / 10, 0.05), 5.0))
            try:
                first = child.socket.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                if self._is_late(child):
                    self._late = True
                    return None
                continue
            child.socket.settimeout(60)
            return zygote.receive(child.socket) if first else None

    def _is_late(self, child: Child) -> bool:
        passed, used = time.monotonic() - self._began, _cpu_seconds(child.number)
        if self._used is None:  # first look: CPU time beyond the time passed was used before this capture
            self._used = used - min(passed, used)
        return passed > _PATIENCE * self.seconds or used - self._used > self.seconds

    def _end(self, child: Child, capture: str) -> Row:
        """End a child; return the error of the capture that it was analysing."""
        if self._late:
            os.kill(child.number, signal.SIGKILL)
        child.socket.close()
        self._child, status = None, self.zygote.ended(child.number)
        if self._stopped:
            raise Stopped("the run was ended")
        if self._late:
            reason = f"it took more than {self.seconds:g} s of CPU time, or {_PATIENCE} times that by the clock"
            return {"error": "time", "reason": reason, "capture": capture}
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return {"error": "crashed", "reason": f"the process that analysed it ended with {how}", "capture": capture}

    def stop(self) -> None:
        """End the analysis in progress, from another thread; the analysing thread raises `Stopped`."""
        self._stopped = True
        if (child := self._child) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.number, signal.SIGKILL)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with contextlib.suppress(Stopped):
                self._end(self._child, "")


def _cpu_seconds(child: int) -> float:
    """Return the CPU time that a process has used, 0 if it is gone."""
    try:
        with open(f"/proc/{child}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
