"""A worker's side of its child: give it inputs one by one, and come through whatever happens to it.

A capture that takes too long, needs too much memory or kills its child is an error of that capture; the next one gets
a new child. A death in a child that had done others before is tried once more in a new one, so that what is found does
not depend on what came before.
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

import cctrace
from cctrace.corpus import zygote
from cctrace.errors import CctraceError

_MAIN = "from cctrace.corpus.zygote import main; main()"
_PATIENCE = 10  # times the limit of CPU time may pass by the clock: of waiting for a disk or a network
_ENVIRONMENT = {
    **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")},
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve more addresses than a small limit allows
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}


class Stopped(CctraceError):
    """The run was ended while a capture was under way."""


class Zygote:
    """The process that this worker's children are forked from."""

    def __init__(self):
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

    def fork(self):
        """Return a new child: its number, and the socket to it."""
        mine, theirs = socket.socketpair()
        with self._lock, theirs, _ended():
            socket.send_fds(self._control, [b"f"], [theirs.fileno()])
            return self._answer(), mine

    def ended(self, child):
        """Wait for a child; return its exit status, negative for a signal."""
        with self._lock, _ended():
            self._control.sendall(b"w" + struct.pack("<q", child))
            return self._answer()

    def _answer(self):
        data = self._control.recv(8)
        if len(data) < 8:
            raise OSError("closed")
        return struct.unpack("<q", data)[0]

    def close(self):
        """End it, and with it all children."""
        self._closing()


@contextlib.contextmanager
def _ended():
    try:
        yield
    except OSError as error:
        raise Stopped("the process that analyses captures has ended") from error


def _close(control, process):
    control.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _search_path():
    """Return the PYTHONPATH by which a new process finds the same packages, and nothing in the working directory.

    Captures lie there, and what else a stranger put beside them: a numpy.py would be imported. An interpreter that was
    started there has it as "" in its own path; cctrace itself is found all the same.
    """
    here = os.path.dirname(os.path.dirname(os.path.abspath(cctrace.__file__)))
    return os.pathsep.join([path for path in sys.path if path] + [here])


class Guard:
    """One child at a time, and the limits that every capture has in it.

    Parameters
    ----------
    zygote : Zygote
    memory : int
        Bytes of address space that a capture may take beyond what the child has anyway.
    seconds : float
        CPU time that a capture may take; ten times that by the clock.
    """

    def __init__(self, zygote, memory, seconds):
        self.zygote, self.memory, self.seconds = zygote, memory, seconds
        self._child, self._socket, self._late = None, None, False
        self._stopped = False
        self._alone = True  # the child has done nothing before: what fails fails by itself

    def analyse(self, entry, tasks, rules=(), limit=None):
        """Analyse one input; yield per capture ``{"rows", "date"}`` or ``{"error", "reason", "capture"}``.

        Parameters
        ----------
        entry : Entry
        tasks, rules, limit
            As for `one.analyse` and `one.captures_of`.
        """
        order = {"entry": entry._asdict(), "tasks": list(tasks), "rules": list(rules), "limit": limit}
        order |= {"memory": self.memory, "skip": 0}
        while True:
            self._begin()
            failed = yield from self._follow(order)
            if failed is None:
                return
            index, error = failed
            order["skip"] = index
            if error["error"] == "time" or self._alone:
                yield error
                if index < 0 or not entry.archive:
                    return
                order["skip"] = index + 1

    def _begin(self):
        """Have a child."""
        if self._child is None:
            self._child, self._socket = self.zygote.fork()
            self._alone = True

    def _follow(self, order):
        """Yield what the child tells; return None when it is done, else (which capture, error) of what failed."""
        entry, index = order["entry"], -1 if order["entry"]["archive"] else 0
        capture = entry["capture"]
        try:
            zygote.send(self._socket, order)
            self._watch()
            while (message := self._next()) is not None:
                done = message.pop("done", False)
                if message.get("error") == "memory":
                    self._end(capture)
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
            return index, self._end(capture)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return index, self._end(capture)

    # -----------------------------------------------------------------------------------------------------------------
    def _watch(self):
        self._began, self._used = time.monotonic(), None

    def _next(self):
        """Return the next message; None if the child is gone, or was killed because it took too long."""
        self._late = False
        while True:
            self._socket.settimeout(min(max(self.seconds / 10, 0.05), 5.0))
            try:
                first = self._socket.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                if self._is_late():
                    self._late = True
                    return None
                continue
            self._socket.settimeout(60)
            return zygote.receive(self._socket) if first else None

    def _is_late(self):
        passed, used = time.monotonic() - self._began, _cpu_seconds(self._child)
        if self._used is None:  # asked for the first time: none of what it used before can have been later
            self._used = used - min(passed, used)
        return passed > _PATIENCE * self.seconds or used - self._used > self.seconds

    def _end(self, capture):
        """Take leave of a child; return the error of the capture it had."""
        child = self._child
        if self._late:
            os.kill(child, signal.SIGKILL)
        self._socket.close()
        self._child, status = None, self.zygote.ended(child)
        if self._stopped:
            raise Stopped("the run was ended")
        if self._late:
            reason = f"it took more than {self.seconds:g} s of CPU time, or {_PATIENCE} times that by the clock"
            return {"error": "time", "reason": reason, "capture": capture}
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return {"error": "crashed", "reason": f"the process that analysed it ended with {how}", "capture": capture}

    def stop(self):
        """End what is under way, from another thread: there it raises `Stopped`."""
        self._stopped = True
        if (child := self._child) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def close(self):
        """End the child."""
        if self._child is not None:
            with contextlib.suppress(Stopped):
                self._end("")


def _cpu_seconds(child):
    """Return the CPU time that a process has used, 0 if it is gone."""
    try:
        with open(f"/proc/{child}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
