"""The process that children are forked from: it has imported everything, so that a new child costs 10 ms.

    worker  --- control socket ---  zygote  --- fork --->  child  --- its own socket ---  worker

It runs `main`, whose only argument is the descriptor of its socket, and has one thread. A child analyses captures and
sends a message before and after each; it is killed and replaced if one takes too long; the kernel limits its memory.
Children die with the zygote, and the zygote with the worker. docs/design.md says why this is not `multiprocessing`.

Messages are JSON behind four bytes of length.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cctrace.corpus.tasks import Row

_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1


def send(connection: socket.socket, message: Row) -> None:
    """Send one message."""
    data = json.dumps(message, ensure_ascii=True).encode()
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Return the next message, None if the other side is gone."""
    head = _exactly(connection, _LENGTH.size)
    data = head and _exactly(connection, *_LENGTH.unpack(head))
    return json.loads(data) if data else None


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def main() -> None:
    """Fork a child for every socket received; send its number, and on request its exit status."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the worker ends this process
    warnings.simplefilter("ignore")  # warnings of readers are in the tables
    _warm()
    gc.freeze()  # children share this memory; collecting garbage would copy it
    libc = ctypes.CDLL(None)
    control.sendall(b"r")
    while True:
        order, fds, _, _ = socket.recv_fds(control, 9, 1)
        if not order:
            return
        if fds:
            if not (child := os.fork()):
                _become_child(libc, control, fds[0])
            os.close(fds[0])
            control.sendall(struct.pack("<q", child))
        else:  # exit status: a child stays a zombie until then, so that its number is not reused
            _, status = os.waitpid(struct.unpack("<q", order[1:9])[0], 0)
            control.sendall(struct.pack("<q", os.waitstatus_to_exitcode(status)))


def _become_child(libc: ctypes.CDLL, control: socket.socket, fd: int) -> NoReturn:
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        control.close()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _serve(socket.socket(fileno=fd))
    finally:
        os._exit(0)


def _warm() -> None:
    """Import what children need, and load compiled code, so that no child has to."""
    import cctrace as cct
    import cctrace.corpus.capture
    import cctrace.corpus.members
    import cctrace.diagnosis.diagnose

    with contextlib.suppress(Exception):  # a broken installation shows in every capture
        capture = cct.read(cct.datasets.path("tso_bbr_300m_veth", "sender.pcap.zst"))
        cct.corpus.capture.analyse("warm", capture.packets.source, [], 0, ("flows", "explain"))


def _serve(connection: socket.socket) -> None:
    """Analyse inputs until the worker is gone."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    while (order := receive(connection)) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (min(used + order["memory"], most), hard))
        for message in _messages(order):
            send(connection, message)
            if message.get("error") == "memory":
                return  # how much memory is left is unknown


def _messages(order: Row) -> Iterator[Row]:
    """Yield messages about every capture of one input: its begin (in archives), then its rows or its error."""
    from cctrace.corpus import capture

    entry, index = order["entry"], -1
    found = iter(capture.captures_of(entry, order["rules"], order["limit"]))
    while True:
        index += 1
        name, began = entry["capture"], time.process_time()
        message: Row
        try:
            if (following := next(found, None)) is None:
                break
            name, load = following
            if index < order["skip"]:
                continue
            if entry["archive"]:
                yield {"begin": index, "capture": name}
            source, counters = load()
            size = entry["size"] if isinstance(source, str) else len(source.data)
            rows, date = capture.analyse(name, source, counters, size, order["tasks"], order["limit"])
            message = {"rows": rows, "date": date}
        except Exception as error:
            kind, reason = capture.reason_of(error)
            message = {"error": kind, "reason": reason, "capture": name, "index": index}
        message["cpu"] = time.process_time() - began
        if name == entry["capture"]:  # a single capture, or an archive that cannot be read any further
            yield message | {"done": True}
            return
        yield message
    yield {"done": True}
