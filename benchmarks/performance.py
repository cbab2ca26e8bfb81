"""Write docs/performance.md: run the benchmarks of speed, and put what they print beside the words.

    python -m benchmarks.performance [--only NAME ...]

Each section is one command's own output, with the machine and its load at that moment; sections that are not asked for
stay as they are. Peers that are not installed (dpkt, tshark, tcptrace, ns-3) are left out by the benchmarks themselves.
Minutes; a quiet machine.
"""

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.main_job import machine

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
PAGE = ROOT / "docs" / "performance.md"
CAPTURE = "datasets/jitter_bbr_sd2ms/sender.pcap.zst"
SECTIONS = {
    "reading": (
        "Reading captures",
        f"-m benchmarks.ingest {CAPTURE} --packets 2000000",
        "Whole reads of a warm file into columns, the best of nine, beside dpkt, tshark and the decompressors alone.\n"
        "Columns take new memory; where the host of a virtual machine takes back what is freed, the first read of a\n"
        "process may wait 0.3 s for it, and later ones, into what the packets before have freed, do not.",
    ),
    "flows": (
        "Listing connections",
        f"-m benchmarks.flows {CAPTURE}",
        "`cctrace flows` as a process, interpreter start included, beside tcptrace; then the reconstruction of the\n"
        "sender's view.",
    ),
    "replay": (
        "Controllers alone",
        "-m benchmarks.replay --only bbr2022 bbr2 bbr3 cubic6",
        "Calls a second of each controller over recorded calls, compiled and interpreted.",
    ),
    "job": (
        "The main job",
        "-m benchmarks.main_job commands",
        "Whole commands as a user runs them.",
    ),
    "inference": (
        "Replays, all inference included",
        "-m benchmarks.main_job replay",
        "From the flow to the table of decisions. (`length`: replays of longer flows, which take minutes.)",
    ),
    "simulation": (
        "The simulation",
        "-m benchmarks.simulate speed",
        "Packets sent per second of one core.",
    ),
    "ns3": (
        "Beside ns-3",
        "-m benchmarks.ns3_bbr",
        "The same dumbbell and BBR in ns-3's TcpBbr, packets a second of CPU time.",
    ),
}
HEAD = """# Performance

Written by `python -m benchmarks.performance`: every block is what the command above it printed, on the machine and
under the load that stand beside it. Figures of other machines and moments differ, the ratios within a block less. What
a million captures cost stands in [scale](scale.md), why it is fast in [design](design.md), figures of a quiet machine
in [captures](captures.md). A load above the number of cores means that others had the machine too: times by the clock
are then far too long, CPU times somewhat.
"""


def ran(command):
    """Return what a command printed and how it ended, as a block of the page."""
    before, begun = os.getloadavg()[0], time.perf_counter()
    run = [sys.executable, *shlex.split(command)]
    done = subprocess.run(run, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SystemExit(f"{command}: exit status {done.returncode}: {last}")
    load = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    took = f"{time.perf_counter() - begun:.0f} s"
    where = machine().split(", load")[0]
    said = f"{time.strftime('%Y-%m-%d')}, {where}, {load}, {took}, Python {platform.python_version()}:"
    return f"{said}\n\n```text\n{done.stdout.strip()}\n```"


def page_of(blocks):
    """Return the text of the page, of the sections that there are."""
    parts = [
        f"## {title}\n{words}\n\n    python {command}\n\n<!-- {name} -->\n{blocks[name]}\n<!-- end -->"
        for name, (title, command, words) in SECTIONS.items()
        if name in blocks
    ]
    return HEAD + "\n" + "\n\n".join(parts) + "\n"


def main():
    """Run the benchmarks that are asked for and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    chosen = parser.parse_args().only
    page = PAGE.read_text("utf-8") if PAGE.exists() else ""
    kept = dict(re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end -->", page, re.DOTALL))
    for name in chosen:
        print(name, flush=True)
        kept[name] = ran(SECTIONS[name][1])
        PAGE.write_text(page_of(kept), "utf-8")


if __name__ == "__main__":
    main()
