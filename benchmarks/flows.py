"""How fast connections are listed and senders reconstructed, and whether that stays so: long files, short connections.

    python -m benchmarks.flows CAPTURE [--packets 5000000] [--repeat 3] [--connections 100000]

Listing: `cctrace flows` and `tcptrace -nlr` as whole processes side by side, interpreter start included, compiled code
in the cache. The capture is tiled to the asked size, as in ingest.py, each copy as a further connection. The programs
run in turn and the best of each counts; the factors are those of tcptrace's times. Then `cctrace flows` over as many
short connections as asked (12 packets each, 50 open at a time), with the peak of its memory; tcptrace, which searches
its open connections one by one, is spared that.

Reconstruction: the event streams of all connections, on one core (CPU time; reading the file included and not), of the
capture repeated 1, 2, 4 and 8 times as further connections, and of the short ones. A capture of many connections should
take as long as its packets, not longer.
"""

import argparse
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.ingest import machine, tile
from cctrace import schema
from cctrace.flows.capture import Capture
from cctrace.io import read_file
from cctrace.io.captures.packets import Packets

# Starts a program and prints seconds by the clock, CPU seconds and KB. A small process does it: Linux counts the memory
# of whoever starts a program as the program's, too.
_MEASURED = """
import os, sys, time
began, command = time.perf_counter(), sys.argv[1:]
quiet = [(os.POSIX_SPAWN_OPEN, which, os.devnull, os.O_WRONLY, 0) for which in (1, 2)]
_, status, used = os.wait4(os.posix_spawnp(command[0], command, os.environ, file_actions=quiet), 0)
print(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(status != 0)
"""


# An installation has the bytecode of what a command imports (see the Makefile), which a variable of whoever measures
# may forbid to keep: compiling it anew would be a fifth more CPU time of `analyze`. The first run writes it here.
_BYTECODE = tempfile.mkdtemp(prefix="cctrace-bytecode-")
atexit.register(shutil.rmtree, _BYTECODE)


def run(command):
    """Return wall-clock and CPU seconds of a program, and its memory in MB."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    measured = [sys.executable, "-S", "-c", _MEASURED, *command]
    done = subprocess.run(
        measured, capture_output=True, text=True, check=True, env=kept | {"PYTHONPYCACHEPREFIX": _BYTECODE}
    )
    wall, cpu, kilobytes = map(float, done.stdout.split())
    return wall, cpu, kilobytes / 1024


# flags, from the server, sequence and acknowledgement number, payload: a request of two segments, an answer, the end.
_SHORT = (
    (2, 0, 0, 0, 0), (18, 1, 0, 1, 0), (16, 0, 1, 1, 0), (16, 0, 1, 1, 1448), (24, 0, 1449, 1, 1448),
    (16, 1, 1, 2897, 0), (24, 1, 1, 2897, 500), (16, 0, 2897, 501, 0), (17, 0, 2897, 501, 0), (16, 1, 501, 2898, 0),
    (17, 1, 501, 2898, 0), (16, 0, 2898, 502, 0),
)  # fmt: skip
_OPEN = 50  # connections at a time
_RECORD = (
    ("s", "<u4"), ("ns", "<u4"), ("caplen", "<u4"), ("wirelen", "<u4"), ("ip", ">u2"), ("length", ">u2"),
    ("id", ">u4"), ("ttl", "u1"), ("protocol", "u1"), ("sum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
    ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("flags", ">u2"), ("window", ">u2"),
    ("check", ">u4"),
)  # fmt: skip


def short_connections(count, out):
    """Write a pcap of `count` short connections between as many pairs of ports; return the packets."""
    steps = len(_SHORT)
    record = np.dtype(list(_RECORD))
    c, k = np.repeat(np.arange(count), steps), np.tile(np.arange(steps), count)
    flags, server, seq, ack, payload = np.array(_SHORT, np.int64).T[:, k]
    at_us = (c * steps // _OPEN + k) * 100 + c % 100
    rows = np.zeros(len(c), record)
    rows["s"], rows["ns"] = 1_700_000_000 + at_us // 1_000_000, at_us % 1_000_000 * 1000
    rows["caplen"], rows["wirelen"], rows["length"] = 40, 40 + payload, 40 + payload
    rows["ip"], rows["ttl"], rows["protocol"], rows["window"] = 0x4500, 64, 6, 65535
    ends = (0x0A000001 + (c // 50_000), 10_000 + c % 50_000, 0x0A630002, 5001)
    for name, here, there in (("src", 0, 2), ("sport", 1, 3), ("dst", 2, 0), ("dport", 3, 1)):
        rows[name] = np.where(server, ends[there], ends[here])
    rows["seq"], rows["ack"], rows["flags"] = seq + c * 7919, np.where(flags & 16, ack + c * 7919, 0), 0x5000 | flags
    with open(out, "wb") as file:
        file.write(np.array([0xA1B23C4D, 0x40002, 0, 0, 65535, 101], "<u4").tobytes())
        file.write(rows[np.argsort(at_us, kind="stable")].tobytes())
    return len(rows)


def repeated(packets, times):
    """Return the capture `times` over, each time as further connections, half a minute apart."""
    copy, sacks = np.repeat(np.arange(times), len(packets)), len(packets.sacks["left"])
    columns = {column.name: np.tile(packets[column.name], times) for column in schema.PACKETS}
    columns["conn"] += (copy * len(packets.connections["sport"])).astype(np.int32)
    columns["time_ns"] += copy * 30_000_000_000
    columns["sack_row"] = np.where(columns["sack_row"] < 0, -1, columns["sack_row"] + copy * sacks).astype(np.int32)
    each = {name: np.tile(values, times) for name, values in packets.sacks.items()}
    table = {name: np.tile(values, times) for name, values in packets.connections.items()}
    return Packets(columns, each, table, source="repeated")


def reconstruct(what, packets, reading_s):
    """Print at which rate all event streams of a capture are rebuilt, the better of two times."""
    took = float("inf")
    for _ in range(2):
        capture, start = Capture(packets), time.process_time()
        stream = capture.reenactment(range(len(capture))).run()[0]
        took = min(took, time.process_time() - start)
    both = len(packets) / (took + reading_s * len(packets)) / 1e6
    print(
        f"{what:26s} {len(packets):9d} packets {len(capture):7d} connections {stream.count:9d} events "
        f"{len(packets) / took / 1e6:6.2f} M packets/s, with reading {both:6.2f}",
        flush=True,
    )


def cpu_of_reading(path):
    """Return the packets of a file, and the CPU seconds that each took to read."""
    read_file(path)
    start = time.process_time()
    packets = read_file(path)
    return packets, (time.process_time() - start) / len(packets)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("--packets", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--connections", type=int, default=100_000)
    args = parser.parse_args()
    commands = {"cctrace flows": [sys.executable, "-m", "cctrace", "flows", "--json"], "tcptrace": ["tcptrace", "-nlr"]}
    commands = {name: command for name, command in commands.items() if shutil.which(command[0])}
    with tempfile.TemporaryDirectory() as folder:
        big = os.path.join(folder, "big.pcap")
        packets = tile(args.capture, args.packets, big)
        run([*commands["cctrace flows"], args.capture])  # compile, or load from the cache
        times = {name: [] for name in commands}
        for _ in range(args.repeat):
            for name, command in commands.items():
                times[name].append(run([*command, big]))
        print(f"{packets} packets, {os.path.getsize(big) / 1e9:.2f} GB; {machine()}")
        for name, runs in times.items():
            listed(name, packets, runs, times.get("tcptrace"))
        os.remove(big)
        short = os.path.join(folder, "short.pcap")
        packets = short_connections(args.connections, short)
        runs = [run([*commands["cctrace flows"], short]) for _ in range(args.repeat)]
        listed(f"cctrace flows, {args.connections} connections", packets, runs)
        print("reconstruction on one core, CPU time")
        reconstruct_all(args.capture, short)


def listed(name, packets, runs, peer=None):
    wall, cpu, memory = (min(values) for values in zip(*runs, strict=True))
    peer_wall, peer_cpu, _ = (min(values) for values in zip(*(peer or runs), strict=True))
    times = f"{wall:7.2f} s wall {wall / peer_wall:5.2f} x  {cpu:7.2f} s CPU {cpu / peer_cpu:5.2f} x"
    print(f"{name:34s} {times}  {packets / wall / 1e6:7.2f} M packets/s  {memory:6.0f} MB at most", flush=True)


def reconstruct_all(capture, short):
    packets, reading_s = cpu_of_reading(capture)
    Capture(packets).reenactment([0]).run()  # compile, or load from the cache
    for times in (1, 2, 4, 8):
        reconstruct(f"the capture, {times} times", repeated(packets, times), reading_s)
    reconstruct("short connections", *cpu_of_reading(short))


if __name__ == "__main__":
    main()
