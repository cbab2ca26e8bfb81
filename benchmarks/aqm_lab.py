"""Hold simulated queues under active management against kernels' own.

    python -m benchmarks.aqm_lab                                # simulate what the table describes, and compare
    python -m benchmarks.aqm_lab DIR > benchmarks/aqm_lab.json  # write the table from recordings

Each folder in DIR is a recording of the lab in virtual time: a bottleneck whose token bucket has red, pie, codel or
fq_codel below it, `scenario.json` with the counters of the qdisc, its backlog every 10 ms and the senders' tcp_info.
"""

import argparse
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import zstandard

import cctrace as cct
from cctrace.sim.result import tail_start_ns

TABLE = Path(__file__).parent / "aqm_lab.json"
SEEDS = (1, 2, 3)
FRAME = 1514 / 1500  # the lab's rates and buffers are of IP packets
NAMES = {"cubic": "cubic6"}  # what Linux 6.12.117 calls it


def opened(file):
    """Return the text of a compressed file."""
    return io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file.open("rb")))


def recorded(folder):
    """Return a row of the table: the path, and what the kernel's queue and flows did after the first third."""
    scenario = json.loads((folder / "scenario.json").read_text())
    p, said = scenario["parameters"], scenario["run"]["qdiscs"]["m1/b1"]
    begin, end = (scenario["start_realtime_ns"] + t for t in (tail_start_ns(p["seconds"] * 1e9), p["seconds"] * 1e9))
    queue = np.genfromtxt(opened(folder / "queue.csv.zst"), delimiter=",", names=True)
    tail = (queue["time_ns"] >= begin) & (queue["time_ns"] < end)
    acked = {}
    for poll in csv.DictReader(opened(folder / "tcpinfo.csv.zst")):
        if begin <= int(poll["time_ns"]) < end and poll["tcpi_bytes_acked"]:
            acked.setdefault(poll["flow_id"], []).append((int(poll["time_ns"]), int(poll["tcpi_bytes_acked"])))
    spans = [(one[-1][1] - one[0][1]) * 8e3 / (one[-1][0] - one[0][0]) for one in acked.values()]
    numbers = {name: sum(map(int, re.findall(rf"\b{name} (\d+)", said))) for name in ("marked", "ecn_mark")}
    return {
        "name": p["name"],
        "rate_mbps": p["rate"],
        "forward_us": p["fwd_delay"],
        "reverse_us": p["rev_delay"],
        "buffer_bytes": p["buffer"],
        "qdisc": p["qdisc"],
        "ecn": "ecn" in p["qdisc_args"].split(),
        "flows": [flow["cc"] for flow in p["flows"]],
        "seconds": p["seconds"],
        "goodput_mbps": sum(spans),
        "queue_ms": float(queue["queue_bytes"][tail].mean()) * 8 / (p["rate"] * FRAME * 1e3),
        "marked": sum(numbers.values()),
        "dropped": int(re.findall(r"dropped (\d+)", said)[1]),
    }


def path_of(row):
    """Return the path of a row: the lab's parameters of each qdisc, of a kernel with 250 ticks a second."""
    size = row["buffer_bytes"]
    texts = {
        "red": f"red:min={size // 6}B,max={size // 2}B,avpkt=1500B,burst={max(size // 9000 + 2, 5)},probability=10%",
        "pie": "pie:tupdate=16ms",
        "codel": "codel:target=5ms",
        "fq_codel": "fq_codel:target=5ms",
    }
    return cct.Path(
        rate=f"{row['rate_mbps'] * FRAME}Mbit",
        rtt=f"{row['forward_us'] + row['reverse_us']}us",
        reverse=f"{row['reverse_us']}us",
        buffer=f"{size}B" if row["qdisc"] == "red" else f"{size // 1500}packets",
        aqm=texts[row["qdisc"]] + ("" if row["ecn"] else ",noecn"),
    )


def simulated(row, seed):
    """Return the same figures of a simulation."""
    # The lab's receivers echo marks until they are answered, those of DCTCP's data, too.
    flows = [cct.Sender(NAMES.get(cc, cc), ecn="classic", hz=250, kernel="6.12", ack_every=2) for cc in row["flows"]]
    found = cct.simulate(path_of(row), flows, f"{row['seconds']}s", seed=seed).flows
    sizes = found.tail_goodput_bps
    wait_ms = float(np.average(found.tail_queue_delay_mean_us, weights=sizes)) / 1e3
    # The kernel's is the mean over time, of a bucket that has a packet's tokens ahead: half a packet is on the link.
    packet_ms = 1500 * 8 / (row["rate_mbps"] * 1e3)
    used = float(sizes.sum()) / 1e6 / (row["rate_mbps"] * 1448 / 1500)
    return {
        "goodput_mbps": float(sizes.sum()) / 1e6,
        "queue_ms": (wait_ms + packet_ms / 2) * used,
        "marked": int(found.marked.sum()),
        "dropped": int(found.dropped.sum()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path)
    folder = parser.parse_args().folder
    if folder is not None:
        rows = [recorded(file.parent) for file in sorted(folder.glob("*/scenario.json"))]
        print("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]")
        return
    apart = {name: [] for name in ("goodput_mbps", "queue_ms", "signals")}
    for row in json.loads(TABLE.read_text()):
        runs = [simulated(row, seed) for seed in SEEDS]
        row["signals"] = row["marked"] + row["dropped"]
        mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
        mean["signals"] = mean["marked"] + mean["dropped"]
        for name, values in apart.items():
            values.append(mean[name] / row[name] - 1)
        shown = "  ".join(f"{name} {row[name]:.2f} {mean[name]:.2f} ({apart[name][-1]:+.1%})" for name in apart)
        print(f"{row['name']:20} {shown}")
    for name, values in apart.items():
        size = np.abs(values)
        print(f"{name}: median {np.median(size):.1%}, within 10 % in {(size <= 0.1).sum()} of {len(size)}, ", end="")
        print(f"within 20 % in {(size <= 0.2).sum()}, mean {np.mean(values):+.1%}")


if __name__ == "__main__":
    main()
