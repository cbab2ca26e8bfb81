"""Write what recordings of the real Linux stack showed as a small table, against which the simulation is held.

    python -m benchmarks.quiet_lab DIR... > benchmarks/quiet_lab.json

Each DIR holds recordings made by the lab: folders with `scenario.json` and `tcpinfo.csv.zst`. Where the lab's host
stopped its guests (more than `MAX_STALLS` intervals of 10 ms with a delivery over 4 ms late) a recording shows the
host and is left out; so is what the simulation has no scenario for. Repeats are rows of their own, of the same name.
"""

import argparse
import json
import re
from pathlib import Path

from benchmarks.recorded import recording, simulated

ABOUT = (
    "Made by the project with its own lab: Linux senders and receivers in network namespaces over an emulator "
    "of the path (rates in Mbit/s and buffers in bytes of IP packets, delays in us; late_us is the median lateness of "
    "its deliveries). Of the time until a flow stops: goodput_mbps from the capture, mean of tcpi_rtt polled every "
    "10 ms, tcpi_total_retrans, tcpi_data_segs_out. Written by benchmarks/quiet_lab.py."
)
MAX_STALLS = 5
LEFT_OUT = ("topo", "poll_ms", "snaplen", "bdp_ref_bytes", "buffer_bdp")


def rows(folders):
    """Yield the rows of the table."""
    for folder in folders:
        for file in sorted(Path(folder).glob("*/scenario.json")):
            scenario = json.loads(file.read_text())
            if not simulated(scenario) or scenario["parameters"]["topo"] != "tun":
                continue
            if scenario["run"]["emulator_stalls"]["intervals_over_4ms"] <= MAX_STALLS:
                row = recording(file)
                row["parameters"] = {k: v for k, v in row["parameters"].items() if k not in LEFT_OUT}
                row["name"] = row["parameters"]["name"] = re.sub(r"_r\d$", "", row["name"])
                yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="DIR", nargs="+")
    found = sorted(
        rows(parser.parse_args().folders), key=lambda row: (row["name"], row["stalls_over_4ms"], row["recorded"])
    )
    print(f'{{"about": {json.dumps(ABOUT)},\n "recordings": [')
    print(",\n".join(f"  {json.dumps(row)}" for row in found))
    print(" ]}")


if __name__ == "__main__":
    main()
