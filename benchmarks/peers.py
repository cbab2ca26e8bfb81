"""Every connection of captures counted by cctrace, tcptrace and tshark: equal, or why not.

    python -m benchmarks.peers CAPTURE|FOLDER...

Of each connection and direction: packets, bytes (each once) and packets sent again. A difference is explained only if
the packets that carry it are of one of the classes in `WHY`, counted one by one from the packets themselves by the slow
and obvious `Recount`, which must also agree with the table of `cctrace flows`. Whatever is left is printed with its
file and connection, and the exit status is 1.

tshark gets the file as it is, tcptrace a pcap of raw IP that cctrace writes (it reads few link types, and no pcapng).
"""

import argparse
import collections
import csv
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cctrace.errors import CctraceError
from cctrace.flows.capture import Capture, read
from cctrace.io.captures.packets import OPT_COPY
from cctrace.io.write import convert
from cctrace.tcp.flags import ACK, FIN, SYN


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
    "fin again": "a FIN that is sent again, or has the number of data or of the SYN, likewise",
    "one byte": "a keep-alive or a probe of the window, one byte seen before: tcptrace and tshark may count it",
    "syn data": "data in a SYN: the others do not count them, or what follows, as cctrace does",
    "old": "below the SYN's number: no data of this connection, though others count it",
    "late": "behind newer data, shown for the first time: tshark may call it a retransmission",
    "partly": "part of it was seen before, or it goes on behind its FIN: tcptrace may count that part otherwise",
    "split": "tcptrace begins another connection after silence, or after a SYN that it takes for one",
    "acked": "an ACK of it was captured before it: tshark calls it a spurious retransmission",
    "passed": "an ACK of a higher number was captured before it: out of order, tshark calls it sent again",
    "renumbered": "SYNs of different numbers in one direction (a middlebox): the others count from the last one",
    "fcs": "four bytes at the end that tshark takes for the frame's checksum (FabricPath, some Ethernet)",
    "padding": "a short frame's padding, which the IP header counts: tshark stops where the link's length ends (PPPoE)",
    "undecoded": "frames that contradict themselves, are cut, in fragments or tunnels: one decodes them, the other not",
    "jump": "tcptrace takes numbers that jump by a quarter of the sequence space or precede the SYN for data",
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
    jumps: int = 0
    ends: set = field(default_factory=set)
    numbers: set = field(default_factory=set)

    @property
    def all_packets(self):
        """Packets with the copies."""
        return self.packets + self.why["copy"] + self.why["copy of an ACK"]

    @property
    def oddity(self):
        """Why its sequence numbers may be counted otherwise, None if they are in order."""
        if len(self.numbers) > 1:
            return "renumbered"
        return "syn data" if self.why["syn data"] else "jump" if self.why["old"] or self.jumps else None

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
        if flags & SYN:
            self.numbers.add(seq)
        if flags & SYN and self.base < 0:
            self.base = (seq + 1) & 0xFFFFFFFF
        label = ""
        for bit, name in ((SYN, "syn again"), (FIN, "fin again")):
            if flags & bit:
                label = name if bit in self.ends or self._is_used(bit, seq) else label
                self.ends.add(bit)
        if flags & SYN and payload:
            self._data(seq + 1, payload)
            return "syn data"
        return self._data(seq, payload) or label if payload else label

    def _is_used(self, bit, seq):
        """Return whether a FIN has the number of data, or of the SYN."""
        return bit == FIN and self.base >= 0 and self._place(seq) < self.top

    def _place(self, seq):
        return ((seq - self.base - self.top + 0x80000000) & 0xFFFFFFFF) - 0x80000000 + self.top

    def _data(self, seq, payload):
        if self.base < 0:
            self.base, self.lowest = seq, -(1 << 62)  # without a SYN, what came before may follow
        a = self._place(seq)
        b = a + payload
        start = max(a, self.lowest)
        if b <= start:
            return "one byte" if payload == 1 else "old"
        self.jumps += abs(a - self.top) > 1 << 28
        new = self.seen.add(start, b)
        self.bytes += new
        behind, filled = a < self.top, new - max(0, b - max(start, self.top))
        self.top = max(self.top, b)
        if not behind:
            return ""
        if filled:  # a gap below the highest number
            return "late" if new == payload else "partly"
        if payload == 1:
            return "one byte"
        self.again += 1
        return "partly" if new else "again"


def recount(capture):
    """Return {(connection, direction): Recount}, and the label of every packet."""
    p = capture.packets
    found, labels = collections.defaultdict(Recount), []
    columns = (p["conn"], p["direction"], p["flags"], p["seq"], p["payload"], p["options"] & OPT_COPY)
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


def _lines(*command):
    """Return the lines that a program prints."""
    out = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    return out.stdout.splitlines()


def tcptrace(path):
    """Return the connections that tcptrace lists, each a dict of its CSV's columns."""
    lines = [line for line in _lines("tcptrace", "--csv", "-nlr", path) if line and not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:] if row and row[0].isdigit()] if rows else []


_LABELS = ("retransmission", "out_of_order", "spurious_retransmission", "fast_retransmission", "keep_alive")

_UNJOINED = ("-o", "ip.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE")


def tshark(path):
    """Return (payload, whether it is called sent again, whether a keep-alive) of every TCP packet of a file."""
    rows = _fields(path, "tcp && !icmp && !icmpv6 && !udp", "tcp.len", *(f"tcp.analysis.{label}" for label in _LABELS))
    return [(int(size or 0), any(again), bool(alive)) for size, *again, alive in (row.split(";") for row in rows)]


def _fields(path, packets, *names):
    """Return what tshark prints of these fields for each of the packets of a display filter."""
    form = ["-T", "fields", "-E", "separator=;", "-E", "occurrence=l", *(f"-e{name}" for name in names)]
    return _lines("tshark", "-n", *_UNJOINED, *form, "-Y", packets, "-r", str(path))


def _address(text):
    """Return an address in its usual form; tcptrace writes ::1 as :0001."""
    return str(ip_address(f":{text}" if text.startswith(":") and not text.startswith("::") else text))


def _ends(a, aport, b, bport):
    return frozenset([(_address(a), str(aport)), (_address(b), str(bport))])


def against_tcptrace(capture, counts, folder, source):
    """Yield (what, class or None) of each difference from tcptrace."""
    plain, framed = folder / "plain.pcap", folder / "framed.pcap"
    convert(source, plain)
    as_ethernet(plain, framed)
    theirs, mine = collections.defaultdict(list), collections.defaultdict(list)
    for row in tcptrace(framed):
        theirs[_ends(row["host_a"], row["port_a"], row["host_b"], row["port_b"])].append(row)
    table = capture.packets.connections
    for i in range(len(capture)):
        mine[_ends(table["src"][i], table["sport"][i], table["dst"][i], table["dport"][i])].append(i)
    for ends, rows in mine.items():
        if len(theirs[ends]) != len(rows):
            yield from _split(rows, theirs[ends], counts)
            continue
        for i, row in zip(rows, theirs[ends], strict=True):
            first = _address(table["src"][i]), str(table["sport"][i])
            same = (_address(row["host_a"]), row["port_a"]) == first
            for direction in (0, 1):
                told = "a2b" if (direction == 0) == same else "b2a"
                columns = {name[:-4]: value for name, value in row.items() if name.endswith(told)}
                yield from _direction(counts[i, direction], columns, _beyond(capture.packets))


def _split(rows, theirs, counts):
    packets = sum(counts[i, d].all_packets for i in rows for d in (0, 1))
    told = sum(int(row[f"total_packets_{way}"]) for row in theirs for way in ("a2b", "b2a"))
    yield f"{len(rows)} connections, tcptrace {len(theirs)}", "split" if packets == told else None


def _beyond(packets):
    """Return whether packets of a capture may have other lengths to others: fragments, headers that claim too much."""
    return any(packets.counters[name] for name in ("beyond_wire", "later_fragments", "first_fragments", "cut_headers"))


def _direction(count, row, beyond):
    oddity = count.oddity or ("undecoded" if beyond else None)
    packets, unique, again = (int(row[n]) for n in ("total_packets", "unique_bytes_sent", "rexmt_data_pkts"))
    probes, why = int(row["zwnd_probe_pkts"]), count.why
    if packets != count.all_packets:
        yield f"packets {count.all_packets}, tcptrace {packets}", None
    if unique != count.bytes:
        reason = next((name for name in ("one byte", "partly", "fin again", "syn again") if why[name]), None)
        reason = oddity or reason or ("one byte" if probes else None)
        yield f"bytes {count.bytes}, tcptrace {unique}", reason
    if again == count.again:
        return
    left = again - count.again
    known = collections.Counter(why) | collections.Counter(copy=int(row["hardware_dups"]))
    for name in ("copy", "syn again", "fin again", "one byte"):
        took = min(left, known[name]) if left > 0 else 0
        left -= took
        if took:
            yield "", name
    if left:
        reason = oddity or ("partly" if abs(left) <= why["partly"] + probes else None)
        yield f"sent again {count.again}, tcptrace {again}, {dict(why)}", reason


def against_tshark(capture, counts, labels, source):
    """Yield (what, class or None) of each difference from tshark, packet by packet."""
    theirs, packets = tshark(source), capture.packets
    if len(theirs) != len(packets):
        known = ("malformed", "cut_headers", "later_fragments", "tunnelled", "unknown_link", "first_fragments")
        odd = sum(packets.counters[name] for name in known)
        explained = abs(len(theirs) - len(packets)) <= odd + malformed(source)
        yield f"{len(packets)} packets, tshark {len(theirs)}", "undecoded" if explained else None
        return
    overtaken = _overtaken(packets)
    beyond = _beyond(packets) or packets.counters["tunnelled"]  # streams inside tunnels and outside mix
    for row, ((size, again, alive), label) in enumerate(zip(theirs, labels, strict=True)):
        if size != packets["payload"][row]:
            more = int(packets["payload"][row]) - size
            reason = "fcs" if more == 4 else "padding" if 0 < more <= 6 else "undecoded" if beyond else None
            yield f"packet {row}: {packets['payload'][row]} bytes, tshark {size}", reason
            continue
        if again == (label in ("again", "partly")):
            continue
        if label in WHY:
            yield "", label
        elif overtaken[row]:
            yield "", overtaken[row]
        else:
            called = "keep-alive" if alive else "sent again" if again else "new"
            reason = counts[int(packets["conn"][row]), int(packets["direction"][row])].oddity
            if packets.counters["tunnelled"]:  # streams inside and outside mix
                reason = reason or "undecoded"
            yield f"packet {row}: {label or 'new'}, tshark {called}", reason


def _overtaken(packets):
    """Return of each packet "acked" or "passed" if an earlier packet had its number behind it, else ""."""
    acked, passed, found = {}, {}, []
    columns = (packets[n].tolist() for n in ("conn", "direction", "flags", "seq", "ack", "payload"))
    for conn, direction, flags, seq, ack, payload in zip(*columns, strict=True):
        mine, others = (conn, direction), (conn, 1 - direction)
        before = "acked" if _behind(seq, acked.get(mine)) else "passed" if _behind(seq, passed.get(mine)) else ""
        found.append(before if payload or flags & (SYN | FIN) else "")
        if flags & ACK and (others not in acked or _behind(acked[others], ack)):
            acked[others] = ack
        if mine not in passed or _behind(passed[mine], seq):
            passed[mine] = seq
    return found


def _behind(seq, known):
    """Return whether a sequence number is before another one, False if there is none."""
    return known is not None and 0 < ((known - seq) & 0xFFFFFFFF) < 0x80000000


def malformed(path):
    """Return how many frames tshark gives up before it comes to TCP."""
    return len(_fields(path, "_ws.malformed && !tcp", "frame.number"))


def compare(source, folder):
    """Return (connections, packets, differences) of a file; None if it is no capture with TCP."""
    try:
        capture = read(source)
    except CctraceError:
        return None
    if not isinstance(capture, Capture):
        return None
    counts, labels = recount(capture)
    found = list(_against_table(capture, counts))
    if shutil.which("tcptrace"):
        found += against_tcptrace(capture, counts, folder, source)
    if shutil.which("tshark"):
        found += against_tshark(capture, counts, labels, source)
    return len(capture), len(capture.packets), found


def _against_table(capture, counts):
    """Yield where the table of `cctrace flows` is not what the packets say."""
    for (i, direction), count in counts.items():
        side = capture.connections.sides[i, direction]
        if (int(side["packets"]), int(side["distinct_bytes"])) != (count.packets, count.bytes):
            told = f"{side['packets']} packets, {side['distinct_bytes']} bytes"
            yield f"the table has {told}, the packets {count.packets}, {count.bytes}", count.oddity
        again, repaired = int(side["retransmitted"]), int(side["refilled"])
        single = side["largest"] <= capture.connections.mss[i]  # super-packets count as the segments in them
        late = count.why["late"] + count.why["partly"]
        if (again != count.again or repaired > late) if single else again < count.again:
            reason = count.oddity or ("partly" if count.why["partly"] else None)
            yield f"the table has {again} sent again and {repaired} repairs, the packets {count.again}", reason


def files_of(paths):
    """Return the files that paths and the folders among them stand for."""
    found = [path if path.is_file() else sorted(path.rglob("*")) for path in map(Path, paths)]
    return [file for one in found for file in (one if isinstance(one, list) else [one]) if file.is_file()]


def main(paths):
    """Print the table of classes and every unexplained difference; return how many there are."""
    warnings.simplefilter("ignore")
    total, classes, unexplained = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for file in files_of(paths):
            outcome = compare(file, Path(folder))
            if outcome is None:
                total["files without TCP"] += 1
                continue
            connections, packets, found = outcome
            total.update({"files": 1, "connections": connections, "packets": packets})
            for what, why in found:
                classes[why or "UNEXPLAINED"] += 1
                if why is None:
                    unexplained += 1
                    print(f"{file}: {what}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in total.items()))
    for why, count in classes.most_common():
        print(f"{count:8} {why}: {WHY.get(why, 'see above')}")
    print(f"{unexplained} unexplained")
    return unexplained


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="CAPTURE|FOLDER")
    sys.exit(1 if main(parser.parse_args().paths) else 0)
