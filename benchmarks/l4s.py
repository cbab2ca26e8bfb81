"""Compare simulated DualPI2 and Prague with L4STeam's runs and with RFC 9332: share of marks and queue of each flow.

    python -m benchmarks.l4s DIR     # the folder ect1-tests of L4STeam/l4steam.github.io, or one with its captures
    python -m benchmarks.l4s         # with RFC 9332 alone

The first writes `l4s.json` beside this file, from which `docs/make_ecn.py` makes the table of docs/ecn.md.

The RFC has no examples with flows. What it gives in figures is compared: the target of 15 ms (appendix A.1, figure 4),
and the coupling of the two probabilities, which is p_CL = 2 sqrt(p_C) (equations 1 and 2, k = 2).
"""

import argparse
import json
import lzma
import sys
import tempfile
from pathlib import Path

import numpy as np

import cctrace as cct
from cctrace.schema import EVENT_CODES

PRAGUE = "prague2020"
RUNS = (  # end of the name, rate in Mbit/s, RTT in ms, whether CUBIC came 10 s before
    ("oneflow-ns-prague-dualpi2-5Mbit-20ms", 5, 20, False),
    ("oneflow-ns-prague-dualpi2-5Mbit-80ms", 5, 80, False),
    ("oneflow-ns-prague-dualpi2-5Mbit-160ms", 5, 160, False),
    ("oneflow-ns-prague-dualpi2-50Mbit-20ms", 50, 20, False),
    ("oneflow-ns-prague-dualpi2-50Mbit-80ms", 50, 80, False),
    ("twoflow-ns-cubic-vs-prague-dualpi2-20ms", 50, 20, True),
)
BURST = "1600B"  # of their htb class; their dualpi2 applies its step to packets that find more than one packet waiting
SEEDS = (1, 2)
TABLE = Path(__file__).parent / "l4s.json"


def measured(flow, begin_s, end_s):
    """Return the share of marks, and the mean RTT above the least one, ms."""
    rows = flow.events.rows
    rows = rows[rows["event"] == EVENT_CODES["on_ack"]]
    time_s = flow.seconds(rows["time_ns"])
    part = rows[(time_s - time_s[0] > begin_s) & (time_s - time_s[0] < end_s)]
    share = np.ptp(part["delivered_ce"].astype(int)) / np.ptp(part["delivered"].astype(int))
    rtt = part["rs_rtt_us"][part["rs_rtt_us"] > 0]
    return share, (rtt.mean() - rows["rs_rtt_us"][rows["rs_rtt_us"] > 0].min()) / 1e3


def recorded(file):
    """Yield whether a bulk flow of a capture is Prague's, and the flow."""
    with tempfile.NamedTemporaryFile(suffix=".pcap") as unpacked:
        content = file.read_bytes()
        unpacked.write(lzma.decompress(content) if file.suffix == ".xz" else content)
        unpacked.flush()
        capture = cct.read(unpacked.name)
        for index in np.flatnonzero(capture.flows["bytes_sent"] > 1e6):
            flow = capture.flow(int(index))
            yield flow.ecn.sent["ect1"] > 0, flow


def simulated(rate_mbit, rtt_ms, beside, seed):
    """Yield the same of a simulation; `rate` is that of their links between hosts, which are virtual."""
    senders = [cct.Sender("cubic", ecn="accurate", ack_every=2)] if beside else []
    senders.append(cct.Sender(PRAGUE, ecn="accurate", ack_every=2, start="10s" if beside else "0s"))
    shaper = (f"{rate_mbit}Mbit", BURST, "htb")
    aqm = "dualpi2:min_qlen_step=2"
    path = cct.Path(rate="10Gbit", rtt=f"{rtt_ms}ms", buffer="1000packets", aqm=aqm, shaper=shaper)
    sim = cct.simulate(path, senders, "40s" if beside else "60s", seed=seed, packets=True)
    for index, sender in enumerate(senders):
        yield sender.cc == PRAGUE, sim.capture(flow=index).flow(0)


def of_rfc_9332(seed):
    """Return the queue of sixteen CUBIC flows, which hold the probability steady, and both shares of marks."""
    path = cct.Path(rate="100Mbit", rtt="20ms", buffer="2000packets", aqm="dualpi2")
    senders = [cct.Sender("prague", ecn="accurate", ack_every=2)]
    senders += [cct.Sender("cubic6", ecn="accurate", ack_every=2)] * 16
    flows = cct.simulate(path, senders, "60s", seed=seed).flows
    scalable, classic = (part.marked.sum() / part.sent.sum() for part in (flows[:1], flows[1:]))
    wait_ms = flows.tail_queue_delay_mean_us[1:].mean() / 1e3
    return {"seed": seed, "classic_queue_ms": wait_ms, "classic_marked": classic, "ect1_marked": scalable}


def captures(folder, name):
    """Yield the senders' captures of a run."""
    for file in sorted(Path(folder).rglob(f"*{name}*.pcap*")):
        if "srv_srv" not in file.name and ".srv." not in file.name:
            yield file


def compared(file, rate_mbit, rtt_ms, beside):
    """Yield a row for each flow of a run: what was recorded, and what each seed gives."""
    rows = {}
    for source in (recorded(file), *(simulated(rate_mbit, rtt_ms, beside, seed) for seed in SEEDS)):
        for is_prague, flow in source:
            # A flow alone from its start on: at 80 ms marks come in two bursts, which an edge would divide.
            begin_s = 0 if not beside else 12 if is_prague else 22
            found = measured(flow, begin_s, begin_s + (16 if beside else 60))
            rows.setdefault("Prague" if is_prague else "CUBIC", []).append(found)
    for cc, found in sorted(rows.items(), reverse=True):
        (marked, wait_ms), *others = found
        yield {
            "rate_mbit": rate_mbit,
            "rtt_ms": rtt_ms,
            "beside": beside,
            "flow": cc,
            "marked": marked,
            "queue_ms": wait_ms,
            "simulated_marked": [one[0] for one in others],
            "simulated_queue_ms": [one[1] for one in others],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", nargs="?")
    folder = parser.parse_args().folder
    found = {"rfc9332": [of_rfc_9332(seed) for seed in SEEDS], "runs": []}
    print(json.dumps(found["rfc9332"], indent=1), flush=True)
    if folder is None:
        return
    for name, *run in RUNS:
        for file in captures(folder, name):
            found["runs"] += compared(file, *run)
            print(json.dumps(found["runs"][-1], indent=1), flush=True)
    if not found["runs"]:
        sys.exit(f"{folder}: none of {', '.join(name for name, *_ in RUNS)}; {TABLE.name} is left as it is")
    TABLE.write_text(json.dumps(found, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
