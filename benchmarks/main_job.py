"""How long the main job takes, as a user runs it: ``python -m benchmarks.main_job [replay] [length] [commands]``.

replay    calls a second of `cct.replay(flow, name)`, from the flow to the table of decisions, all inference included:
          of the shipped BBR recording, and of a flow of 60 s that the controller itself sent (simulated, written as a
          capture, read back), without reading and re-enacting it; on the clock, and a second of CPU time (a second
          core helps to find what no capture contains); best of five
length    CPU time of the same for flows of 5, 50 and 500 s of one path: seconds a million calls, which must not grow
commands  whole processes, warm: `cctrace analyze` of the shipped recording (asked: 3 s), of a capture of a million
          packets (10 s), `cctrace validate` of the shipped recordings; wall and CPU seconds and memory, best of three

A call is a row of the event stream. Ratios within one table are of one run.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cctrace as cct
from benchmarks.flows import run

VARIANTS = ("bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr3", "cubic6", "cubic", "reno")
ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "datasets" / "jitter_bbr_sd2ms"
PATH = {"rate": "30Mbit", "rtt": "40ms", "buffer": "2bdp"}


def machine():
    """Return what the numbers depend on."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, cctrace {cct.__version__}"
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, load {load}; {versions}"


def sent_by(name, duration, folder, **path):
    """Return the file of a capture of one flow that a controller sent."""
    sim = cct.simulate(cct.Path(**(PATH | path)), [name], duration, 1, packets=True)
    file = Path(folder) / f"{name}-{duration}.pcap"
    sim.to_pcap(file)
    return file


def seconds(file, name, times=5):
    """Return calls, and the seconds of a replay, on the clock and of CPU time, each best of several.

    The first one loads what is compiled; each is of a flow just read, as what was inferred of a flow is remembered.
    """
    taken = []
    for _ in range(times + 1):
        flow = cct.read(file).flow(0)
        calls = len(flow.events)
        start = time.perf_counter(), time.process_time()
        cct.replay(flow, name)
        taken.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return calls, *map(min, zip(*taken[1:], strict=True))


def replay():
    """Print calls a second of each variant."""
    print(f"{'':12}{'shipped':>12}{'':>8}{'its own, 60 s':>20}{'':>8}{'':>10}   million calls a second")
    print(f"{'replay':12}{'clock':>12}{'CPU':>8}{'clock':>20}{'CPU':>8}{'calls':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in VARIANTS:
            files = SHIPPED / "sender.pcap.zst", sent_by(name, "60s", folder)
            rates = []
            for file in files:
                calls, clock, cpu = seconds(file, name)
                rates += [calls / clock / 1e6, calls / cpu / 1e6]
            print("{:12}{:12.2f}{:8.2f}{:20.2f}{:8.2f}{:10}".format(name, *rates, calls), flush=True)


def length():
    """Print what a million calls take in flows of several lengths."""
    print(f"{'length':12}{'5 s':>10}{'50 s':>10}{'500 s':>10}   CPU seconds a million calls")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("bbr2022", "bbr2", "cubic6"):
            taken = []
            for duration in ("5s", "50s", "500s"):
                calls, _, took = seconds(sent_by(name, duration, folder), name, 2)
                taken.append(took / calls * 1e6)
            print(f"{name:12}" + "".join(f"{value:10.2f}" for value in taken), flush=True)


def commands():
    """Print what whole commands take."""
    print(f"{'command':60}{'wall s':>8}{'CPU s':>8}{'MB':>8}")
    with tempfile.TemporaryDirectory() as folder:
        large = sent_by("bbr2022", "230s", folder, rate="40Mbit")
        packets = cct.read(large).packets
        columns_mb = sum(column.nbytes for column in packets.columns.values()) / 1e6
        recordings = sorted(str(path.parent) for path in (ROOT / "datasets").glob("*/tcpinfo.csv*"))
        report = ["-o", str(Path(folder) / "report")]
        shipped = [str(SHIPPED / "sender.pcap.zst"), "--tcpinfo", str(SHIPPED / "tcpinfo.csv.zst")]
        for title, words in {
            "analyze, the shipped recording": ["analyze", *shipped, *report],
            f"analyze, {len(packets)} packets, columns {columns_mb:.0f} MB": ["analyze", str(large), *report],
            f"validate, the {len(recordings)} shipped recordings": ["validate", *recordings],
        }.items():
            taken = [run([sys.executable, "-m", "cctrace", *words]) for _ in range(3)]
            wall, cpu, megabytes = (min(values) for values in zip(*taken, strict=True))
            print(f"{title:60}{wall:8.2f}{cpu:8.2f}{megabytes:8.0f}", flush=True)


def main():
    """Print the machine and the tables that are asked for, by default all."""
    tables = {"replay": replay, "length": length, "commands": commands}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    asked = parser.parse_args().tables or list(tables)
    if unknown := [name for name in asked if name not in tables]:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(tables)}")
    print(machine())
    for name in asked:
        print()
        tables[name]()


if __name__ == "__main__":
    main()
