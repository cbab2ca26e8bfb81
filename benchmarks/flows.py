"""How fast connections are listed, as whole processes side by side: `cctrace flows` and `tcptrace -nlr`.

    python benchmarks/flows.py CAPTURE [--packets 5000000] [--repeat 3]

The capture is tiled to the asked size, as in ingest.py. The programs run in turn and the best time of each counts,
interpreter start included; compiled code is in the cache.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from ingest import tile


def run(command):
    """Return wall-clock and CPU seconds of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture")
    parser.add_argument("--packets", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
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
        print(f"{packets} packets, {os.path.getsize(big) / 1e9:.2f} GB, {os.cpu_count()} CPUs")
        for name, runs in times.items():
            wall, cpu = (min(values) for values in zip(*runs, strict=True))
            print(f"{name:14s} {wall:7.2f} s wall  {cpu:7.2f} s CPU  {packets / wall / 1e6:7.2f} M packets/s")


if __name__ == "__main__":
    main()
