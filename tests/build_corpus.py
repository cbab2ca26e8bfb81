"""Corpora for tests and benchmarks: the shipped recordings, cut into small captures."""

import contextlib
import os
import struct
from pathlib import Path

from cctrace import datasets
from cctrace.io.source import open_source

RECORDINGS = ("loss_cubic_1pct", "jitter_bbr_sd2ms", "single_bbr_1bdp", "compete_bbr_cubic_2bdp")
_HEADER, _RECORD = 24, 16


def pieces(count, packets=300, recordings=RECORDINGS):
    """Yield (name, bytes of a pcap file): pieces of recordings in turn, each of so many packets."""
    sources = [_Pieces(name, packets) for name in recordings]
    for number in range(count):
        of = sources[number % len(sources)]
        yield f"{number:07d}-{of.name}.pcap", of.piece(number // len(sources))


class _Pieces:
    """A recording as uncompressed bytes, and where its packets begin."""

    def __init__(self, name, packets):
        self.name, self._packets = name, packets
        with open_source(datasets.path(name, "sender.pcap.zst")) as source:
            self._data = source.rest()
        self._offsets = []
        position = _HEADER
        while position + _RECORD <= len(self._data):
            self._offsets.append(position)
            position += _RECORD + struct.unpack_from("<I", self._data, position + 8)[0]
        self._offsets.append(position)

    def piece(self, number):
        first = number * self._packets % max(len(self._offsets) - self._packets, 1)
        last = min(first + self._packets, len(self._offsets) - 1)
        return self._data[:_HEADER] + self._data[self._offsets[first] : self._offsets[last]]


def write(folder, count, packets=300, recordings=RECORDINGS):
    """Write so many captures into a folder; return it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in pieces(count, packets, recordings):
        (folder / name).write_bytes(data)
    return folder


def opens(pid, ending):
    """Whether a process is in openat() of such a path: there one waits that opens a pipe without a writer."""
    try:
        with open(f"/proc/{pid}/syscall") as file:
            told = file.read().split()
        if told[0] not in ("257", "56"):  # of x86-64, of aarch64
            return False
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(int(told[2], 16))
            return memory.read(4096).split(b"\0")[0].endswith(ending.encode())
    except (OSError, ValueError):
        return False


def of_session(session):
    """Yield the processes of a session."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry)) == session:
                yield int(entry)
