"""Captures that were not taken at the sender, against the sender's kernel and the emulator's list of drops.

    python -m benchmarks.places RECORDING...

A recording is a folder with `receiver.pcap.zst`, `sender.pcap.zst` and `tcpinfo.csv.zst`. For each flow of the
receiver's capture: where it is thought to have been taken and how far from the sender; how far the shifted view's
smoothed RTT (median and 95th percentile over the polls) and min_rtt (last poll) are from tcp_info; the fast recoveries
it shows and those in the sender's capture; and, the two captures joined, the data packets lost and the rows of
`drops.csv` about data (the token bucket of `veth` keeps no list).
"""

import argparse
import csv
import io
from pathlib import Path

import numpy as np

import cctrace
from cctrace.errors import CctraceError
from cctrace.io.source import open_source

COLUMNS = (
    "flow",
    "taken at",
    "us away",
    "srtt p50 %",
    "p95 %",
    "min_rtt %",
    "recoveries",
    "at sender",
    "lost",
    "dropped",
)


def dropped(folder):
    """Return how many data packets of each sender port the emulator dropped, or None if it kept no list."""
    path = folder / "drops.csv.zst"
    if not path.exists():
        return None
    with open_source(str(path)) as source:
        rows = csv.DictReader(io.StringIO(b"".join(iter(lambda: source.read(1 << 20), b"")).decode()))
        ports = [int(row["sport"]) for row in rows if row["dir"] == "fwd" and int(row["ip_len"]) > 60]
    return {port: ports.count(port) for port in set(ports)}


def errors(flow, polls):
    """Return the relative errors (%) of srtt at each poll, and of min_rtt at the last."""
    times = np.column_stack([polls["time_ns"], polls["time_after_ns"]])
    answers = flow.answers(times)
    ours = answers[np.unique(answers["poll"], return_index=True)[1]]
    theirs = {name: np.asarray(polls[name], float)[ours["poll"]] for name in ("rtt", "min_rtt")}
    known = (theirs["rtt"] > 0) & (ours["rtt"] > 0) & (theirs["min_rtt"] < 2**32 - 1)
    srtt = np.abs(ours["rtt"][known] / theirs["rtt"][known] - 1) * 100
    least = (ours["min_rtt"][known][-1] / theirs["min_rtt"][known][-1] - 1) * 100
    return srtt, least


def compare(folder):
    """Print one line for each flow of a recording."""
    near, far = (cctrace.read(folder / f"{end}.pcap.zst") for end in ("sender", "receiver"))
    polls, drops = cctrace.read(folder / "tcpinfo.csv.zst"), dropped(folder)
    for flow in (far.flow(i) for i in range(len(far))):
        cells = [f"{flow.key[1]}"]
        try:
            place = flow.quality()
            srtt, least = errors(flow, flow.attach(polls).tcpinfo)
            cells += [place["taken_at"], place["sender_side_us"]]
            cells += [f"{np.median(srtt):.2f}", f"{np.percentile(srtt, 95):.2f}", f"{least:.2f}"]
            there = near.flow(flow.key)
            cells += [flow.nstat()["TCPSackRecovery"], there.nstat()["TCPSackRecovery"]]
            segments, _ = there.join(flow)
            cells += [int(segments["lost"].sum()), "-" if drops is None else drops.get(flow.key[1], 0)]
        except CctraceError as error:
            cells.append(str(error).partition(": ")[2])
        print(f"{folder.name:28s}" + " ".join(f"{cell:>11}" for cell in cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path)
    args = parser.parse_args()
    print(f"{'':28s}" + " ".join(f"{name:>11}" for name in COLUMNS))
    for folder in args.recordings:
        if (folder / "receiver.pcap.zst").exists():
            compare(folder)


if __name__ == "__main__":
    main()
