"""Every connection of captures counted by cctrace, tcptrace and tshark: equal, or why not.

    python benchmarks/peers.py [--limit SECONDS] CAPTURE|FOLDER...

Of each connection and direction: packets, bytes (each once) and packets sent again. A difference is explained only if
the packets that carry it are of one of the classes in `WHY`, counted one by one from the packets themselves by the slow
and obvious `Recount`, which must also agree with the table of `cctrace flows`. Whatever is left is printed with its
file and connection, and the exit status is 1.

tshark gets the file as it is, tcptrace a pcap of raw IP that cctrace writes (it reads few link types, and no pcapng).
"""

import argparse
import collections
import csv
import io
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cctrace.errors import CctraceError
from cctrace.flows.capture import read
from cctrace.flows.capture import Capture
from cctrace.io.packets import DUPLICATE
from cctrace.io.write import convert

FIN, SYN, RST, ACK = 1, 2, 4, 16


class Seen:
    """Which numbers of a sequence space a capture has shown; slow and obvious."""

    def __init__(self):
        self.spans = []

    def add(self, a, b):
        """Add [a, b); return how many of its numbers are new."""
        new, left = b - a, []
        for low, high in self.spans:
            overlap = min(b, high) - max(a, low)
            new -= max(0, overlap)
            if overlap >= 0:
                a, b = min(a, low), max(b, high)
            else:
                left.append((low, high))
        self.spans = [*left, (a, b)]
        return new


WHY = {
    "copy": "captured twice (mirror port): cctrace counts it once, the others twice",
    "syn again": "a SYN that is sent again carries no data: cctrace does not count it, tcptrace and tshark do",
    "fin again": "a FIN that is sent again, likewise",
    "one byte": "a keep-alive or a probe of the window, one byte seen before: tcptrace and tshark may count it",
    "old": "below the SYN's number: no data of this connection, though others count it",
    "late": "behind newer data, shown for the first time: tshark may call it a retransmission",
    "partly": "part of it was seen before: cctrace and tshark count the packet, tcptrace the bytes",
    "split": "tcptrace begins another connection after silence, or after a SYN that it takes for one",
    "unread": "tcptrace cannot follow the sequence numbers (data without a SYN, numbers that jump)",
}


@dataclass
class Recount:
    """One direction of one connection, packet by packet; `why` counts what may be counted otherwise."""

    packets: int = 0
    bytes: int = 0
    again: int = 0
    payload: int = 0
    why: collections.Counter = field(default_factory=collections.Counter)
    seen: Seen = field(default_factory=Seen)
    base: int = -1
    lowest: int = 0
    top: int = 0
    ends: set = field(default_factory=set)

    def take(self, flags, seq, payload, copy):
        """Count one packet; return its label, "" for a packet that everybody counts alike."""
        label = self._label(flags, seq, payload, copy)
        self.why[label] += 1
        return label

    def _label(self, flags, seq, payload, copy):
        if copy:
            return "copy" if payload or flags & (SYN | FIN) else "copy of an ACK"
        self.packets += 1
        self.payload += payload
        if flags & SYN and self.base < 0:
            self.base = (seq + 1) & 0xFFFFFFFF
        label = ""
        for bit, name in ((SYN, "syn again"), (FIN, "fin again")):
            if flags & bit:
                label = name if bit in self.ends else label
                self.ends.add(bit)
        return self._data(seq + bool(flags & SYN), payload) or label if payload else label

    def _data(self, seq, payload):
        if self.base < 0:
            self.base, self.lowest = seq, -(1 << 62)  # without a SYN, what came before may follow
        a = ((seq - self.base - self.top + 0x80000000) & 0xFFFFFFFF) - 0x80000000 + self.top
        b = a + payload
        start = max(a, self.lowest)
        if b <= start:
            return "one byte" if payload == 1 else "old"
        new = self.seen.add(start, b)
        self.bytes += new
        behind, self.top = a < self.top, max(self.top, b)
        if not behind:
            return ""
        if new == payload:
            return "late"
        if payload == 1:
            return "one byte"
        self.again += 1
        return "partly" if new else "again"


def recount(capture):
    """Return {(connection, direction): Recount}, and the label of every packet."""
    p = capture.packets
    found, labels = collections.defaultdict(Recount), []
    columns = (p["conn"], p["direction"], p["flags"], p["seq"], p["payload"], p["options"] & DUPLICATE)
    for conn, direction, flags, seq, payload, copy in zip(*(column.tolist() for column in columns), strict=True):
        labels.append(found[conn, direction].take(flags, seq, payload, copy))
    return found, labels


def as_ethernet(source, target):
    """Write a pcap of raw IP as one of Ethernet: tcptrace takes all raw IP for version 4."""
    data = Path(source).read_bytes()
    out, at = bytearray(data[:20] + (1).to_bytes(4, "little")), 24
    while at + 16 <= len(data):
        captured, wire = (int.from_bytes(data[at + i : at + i + 4], "little") for i in (8, 12))
        frame = data[at + 16 : at + 16 + captured]
        kind = b"\x86\xdd" if frame[:1] and frame[0] >> 4 == 6 else b"\x08\x00"
        out += data[at : at + 8] + (captured + 14).to_bytes(4, "little") + (wire + 14).to_bytes(4, "little")
        out += bytes(12) + kind + frame
        at += 16 + captured
    Path(target).write_bytes(out)


def tcptrace(path):
    """Return the connections that tcptrace lists, each a dict of its CSV's columns."""
    command = ["tcptrace", "--csv", "-nlr", path]
    out = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    lines = [line for line in out.stdout.splitlines() if line and not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:] if row and row[0].isdigit()] if rows else []


_LABELS = ("retransmission", "out_of_order", "spurious_retransmission", "fast_retransmission", "keep_alive")


def tshark(path):
    """Return (stream, payload, whether it is called sent again) of every TCP packet of a file, in its order."""
    names = ["tcp.stream", "tcp.len", *(f"tcp.analysis.{label}" for label in _LABELS)]
    options = [
        "-n",
        "-o",
        "ip.defragment:FALSE",
        "-o",
        "tcp.desegment_tcp_streams:FALSE",
        "-Y",
        "tcp && !icmp && !icmpv6",
    ]
    fields = [part for name in names for part in ("-e", name)]
    command = ["tshark", *options, "-T", "fields", "-E", "separator=;", "-E", "occurrence=l", *fields, "-r", str(path)]
    out = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    rows = [line.split(";") for line in out.stdout.splitlines()]
    return [(int(row[0] or -1), int(row[1] or 0), any(row[2:6]), bool(row[6])) for row in rows]
