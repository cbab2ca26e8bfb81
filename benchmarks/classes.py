"""Retransmissions by class, side by side: cctrace, the sender's kernel, tshark and tcptrace.

    python -m benchmarks.classes CAPTURE...

A capture is a file, or the folder of a recording. The kernel's counts are those of `nstat` in the sender's network
namespace: in the recording's `scenario.json`, or under the capture's name in a `nstat.json` beside it. tshark and
tcptrace get the capture as plain pcap of raw IP; one that is not installed is left out. Both count packets, of which a
super-packet (TSO) is one; cctrace and the kernel count segments.

Under the table of counts: how tshark labels the packets of each of our classes, and which of its rules gives the label
(`RULES`; [Wireshark 4.0] packet-tcp.c, tcp_analyze_sequence_number). The rules are checked packet by packet.
"""

import argparse
import collections
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from cctrace.flows.capture import read
from cctrace.io.write import convert

RULES = {
    "fast": "two duplicate ACKs or more ask for it, and an ACK came less than 20 ms ago",
    "out of order": "otherwise: less than the handshake's RTT after the newest data",
    "retransmission": "otherwise",
    "spurious": "the data had been acknowledged before",
}
DUPLICATE_ACK_NS = 20_000_000
_FIELDS = {
    "spurious": "tcp.analysis.spurious_retransmission",
    "fast": "tcp.analysis.fast_retransmission",
    "retransmission": "tcp.analysis.retransmission",
    "out of order": "tcp.analysis.out_of_order",
}


def ours(capture):
    """Return {packet row: (class, needless)} of the packets that carry a retransmitted segment."""
    found = {}
    c, packets = capture.connections, capture.packets
    for i in range(len(capture)):
        flow = capture.flow(i)
        rows = _data(capture, i)
        clock = c.clock[rows]
        left = (packets["seq"][rows].astype(np.int64) - flow.facts["isn"]) & 0xFFFFFFFF
        right = left + packets["payload"][rows]
        for again in flow.retransmissions.itertuples():
            k = np.searchsorted(clock, again.time_ns, side="right") - 1
            while not left[k] <= again.seq & 0xFFFFFFFF < right[k]:
                k -= 1
            _, needless = found.get(int(rows[k]), (again.why, False))
            found[int(rows[k])] = (again.why, needless or again.spurious)
    return found


def _data(capture, i):
    """Return the rows of the packets that carry the bulk sender's data."""
    c, packets = capture.connections, capture.packets
    rows = c.order[c.first[i] : c.first[i + 1]]
    return rows[(packets["direction"][rows] == c.sender[i]) & (packets["payload"][rows] > 0)]


def tshark(plain):
    """Return {packet row: label} of the packets that tshark labels, and each packet's number of duplicate ACKs."""
    fields = [*_FIELDS.values(), "tcp.analysis.duplicate_ack_num"]
    command = ["tshark", "-r", plain, "-T", "fields", *(part for name in fields for part in ("-e", name))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cells = [line.split("\t") for line in lines]
    labels = {}
    for row, cell in enumerate(cells):
        marked = [label for label, value in zip(_FIELDS, cell, strict=False) if value]
        if marked:
            labels[row] = marked[0]
    return labels, np.array([int(cell[-1] or 0) for cell in cells])


def by_rule(capture, duplicates):
    """Return {packet row: label} of every packet of old data as `RULES` label it, a capture from the sender's side."""
    c, packets = capture.connections, capture.packets
    labels = {}
    for i in range(len(capture)):
        isn, mine = capture.flow(i).facts["isn"], c.sender[i]
        first_rtt_ns = capture.flow(i).facts["handshake_rtt_us"] * 1000
        newest, newest_ns, acked, ack_ns, again = 1, 0, 0, -DUPLICATE_ACK_NS, 0
        for row in c.order[c.first[i] : c.first[i + 1]]:
            now = int(packets["time_ns"][row])
            if packets["direction"][row] != mine:
                ack, ack_ns = (int(packets["ack"][row]) - isn) & 0xFFFFFFFF, now
                again = max(again if ack == acked else 0, duplicates[row])  # a window update is no duplicate
                acked = ack
                continue
            if not packets["payload"][row]:
                continue
            left = (int(packets["seq"][row]) - isn) & 0xFFFFFFFF
            right = left + int(packets["payload"][row])
            if left >= newest:
                newest, newest_ns = right, now
                continue
            if right <= acked:
                labels[row] = "spurious"
            elif again >= 2 and now - ack_ns < DUPLICATE_ACK_NS and left == acked:
                labels[row] = "fast"
            elif now - newest_ns < first_rtt_ns and right != newest:
                labels[row] = "out of order"
            else:
                labels[row] = "retransmission"
            if right > newest:
                newest, newest_ns = right, now
    return labels


def tcptrace(plain):
    """Return how many packets of data tcptrace counts as sent again and as out of order, both directions."""
    text = subprocess.run(["tcptrace", "-lnr", plain], capture_output=True, text=True, check=True).stdout
    return tuple(
        sum(int(a) for a in re.findall(rf"{name}:\s+(\d+)", text)) for name in ("rexmt data pkts", "outoforder pkts")
    )


def kernel(path):
    """Return what nstat counted in the sender's namespace, or None."""
    scenario, beside = path.parent / "scenario.json", path.parent / "nstat.json"
    if scenario.exists():
        counts = json.loads(scenario.read_text())["run"]["nstat_sender"]
    elif beside.exists() and path.name.partition(".")[0] in (known := json.loads(beside.read_text())):
        counts = known[path.name.partition(".")[0]]["nstat"]
    else:
        return None
    return {name.removeprefix("TcpExt"): int(count) for name, count in counts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captures", nargs="+", type=Path)
    args = parser.parse_args()
    columns = ("fast", "after a timeout", "timeouts", "probes sent", "needless", "packets sent again")
    print(f"{'':24s} {'':8s} " + " ".join(f"{name:>15s}" for name in columns))
    cross, wrong = collections.Counter(), collections.Counter()
    for path in args.captures:
        path = next(path.glob("sender.pcap*")) if path.is_dir() else path
        compare(path, cross, wrong)
    print("\ntshark's label of each packet that carries a retransmission (*: needless, as a D-SACK said)")
    for (why, label), count in sorted(cross.items()):
        print(f"{count:8d}  {why:14s} {label:16s} {RULES.get(label, '')}")
    print(f"labels that do not follow from these rules: {sum(wrong.values())}", dict(wrong) or "")


def compare(path, cross, wrong):
    """Print one capture's counts, and add its packets to the table of labels."""
    capture = read(path)
    name = path.parent.name if path.name.startswith("sender") else path.name.partition(".")[0]

    def line(who, counts, packets):
        print(f"{name:24s} {who:8s} " + " ".join(f"{value:>15}" for value in (*counts, packets)), flush=True)

    def of(counts):
        names = ("TCPFastRetrans", "TCPSlowStartRetrans", "TCPTimeouts", "TCPLossProbes", "TCPDSACKRecv")
        return [counts.get(key, 0) for key in names]

    each = [capture.flow(i).nstat() for i in range(len(capture))]
    mine = ours(capture)
    line("cctrace", of({key: sum(counts[key] for counts in each) for key in each[0]}), len(mine))
    if counts := kernel(path):
        line("kernel", of(counts), "")
    with tempfile.TemporaryDirectory() as folder:
        plain = str(Path(folder) / "plain.pcap")
        convert(path, plain)
        if shutil.which("tcptrace"):
            line("tcptrace", [""] * 5, "{}, {} out of order".format(*tcptrace(plain)))
        if shutil.which("tshark"):
            labels, duplicates = tshark(plain)
            expected = by_rule(capture, duplicates)
            data = {int(row) for i in range(len(capture)) for row in _data(capture, i)}
            for row in sorted((set(mine) | set(labels)) & data):
                why, needless = mine.get(row, ("sent once", False))
                label = labels.get(row, "none")
                cross[why + ("*" if needless else ""), label] += 1
                if label != expected.get(row, "none"):
                    wrong[name, label, expected.get(row, "none")] += 1
            line("tshark", [""] * 5, sum(row in data for row in labels))


if __name__ == "__main__":
    main()
