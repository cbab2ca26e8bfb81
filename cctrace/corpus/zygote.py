"""The process that children are forked from: it has imported everything and runs nothing, so that a child costs 10 ms.

    worker  --- control socket ---  zygote  --- fork --->  child  --- its own socket ---  worker

It runs `main` with the descriptor of its socket as only argument, and has one thread. A child works through captures,
tells of each before and after, and is killed and replaced where one takes too much time; the kernel limits its memory.
Children die with the zygote, and the zygote when the worker does.

Messages are JSON with a length of four bytes before.
"""

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

_LENGTH = struct.Struct("<I")
_PR_SET_PDEATHSIG = 1


def send(connection, message):
    """Send one message."""
    data = json.dumps(message, ensure_ascii=True).encode()
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection):
    """Return the next message, None if the other side is gone."""
    head = _exactly(connection, _LENGTH.size)
    data = head and _exactly(connection, *_LENGTH.unpack(head))
    return json.loads(data) if data else None


def _exactly(connection, size):
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def main():
    """Fork a child for every socket that comes; tell its number, and how it ended when asked."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the worker ends this
    warnings.simplefilter("ignore")  # what readers warn of is in the tables
    _warm()
    gc.freeze()  # what is there is shared by all children: collecting garbage would copy it
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
        else:  # how a child ended: it stays a zombie until then, so that its number is no one else's
            _, status = os.waitpid(struct.unpack("<q", order[1:9])[0], 0)
            control.sendall(struct.pack("<q", os.waitstatus_to_exitcode(status)))


def _become_child(libc, control, fd):
    try:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        control.close()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _serve(socket.socket(fileno=fd))
    finally:
        os._exit(0)


def _warm():
    """Import what children need, and load compiled code, so that no child has to."""
    import cctrace as cct
    import cctrace.corpus.members
    import cctrace.corpus.one
    import cctrace.diagnosis.diagnose

    with contextlib.suppress(Exception):  # of a broken installation every capture tells
        capture = cct.read(cct.datasets.path("tso_bbr_300m_veth", "sender.pcap.zst"))
        cct.corpus.one.analyse("warm", capture.packets.source, [], 0, ("flows", "explain"))


def _serve(connection):
    """Analyse what comes, until the worker is gone."""
    used, (_, most) = _address_space(), resource.getrlimit(resource.RLIMIT_AS)
    while (order := receive(connection)) is not None:
        resource.setrlimit(resource.RLIMIT_AS, (used + order["memory"], most))
        for message in _told(order):
            send(connection, message)
            if message.get("error") == "memory":
                return  # what is left of the memory is not known


def _address_space():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _told(order):
    """Yield messages about every capture of one input: in archives that it begins, what was found or went wrong."""
    from cctrace.corpus import one

    entry, index = order["entry"], -1
    found = iter(one.captures_of(entry, order["rules"], order["limit"]))
    while True:
        index += 1
        name, began = entry["capture"], time.process_time()
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
            rows, date = one.analyse(name, source, counters, size, order["tasks"], order["limit"])
            message = {"rows": rows, "date": date}
        except Exception as error:
            kind, reason = one.reason_of(error)
            message = {"error": kind, "reason": reason, "capture": name, "index": index}
        message["cpu"] = time.process_time() - began
        if name == entry["capture"]:  # a capture by itself, or an archive that cannot be read on
            yield message | {"done": True}
            return
        yield message
    yield {"done": True}
