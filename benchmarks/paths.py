"""Make the fitted entries of models/paths.json from the lab's recordings.

    python -m benchmarks.paths --captures DIR [--only REGEX] [--file models/paths.json]

Fits every recording named in `RECORDINGS` with `cctrace.fit.path` and writes what it found, with its intervals, where
it came from and the version that did, in place of the entry of that name; other entries (cellular ones) stay.
"""

import argparse
import json
import re
from pathlib import Path

import cctrace as cct
from cctrace.display import plain
from cctrace.fit.draws import simulated

RECORDINGS = {
    "wired_40mbit_40ms": "single_bbr_1bdp",
    "step_20_to_5mbit_100ms": "step_bbr_20to5",
    "jitter_packet_sd4ms_of_20ms": "jitter_bbr_sd4ms",
    "jitter_packet_sd1ms_of_5ms": "kumar_bbr_100m_sd1000us",
    "jitter_reordering_sd1ms_of_5ms": "kumar_bbr_100m_sd1000us_reorder",
    "jitter_gamma_sd7ms_of_40ms": "jitter_bbr_gamma_rtt40",
    "lossy_1pct_40mbit_40ms": "loss_bbr_1pct",
}
MIN_JITTER_US = 200.0  # sd: less is the host's, and is left to the simulation


def entry(recording, folder):
    """Return the entry of one recording; None if its jitter is none that an entry can name."""
    flow = cct.read(str(folder / recording / "sender.pcap.zst")).bulk()[0]
    fitted = cct.fit.path(flow)
    e, jitter = fitted.estimates, fitted.estimates["jitter"]
    told = jitter is not None and jitter["process"] != "unknown" and jitter["sd_us"].value >= MIN_JITTER_US
    drawn = simulated(jitter) if told else None
    if drawn is not None and drawn.kind == "empirical":
        return None
    rtt_us = e["base_rtt_us"].value - (jitter["mean_us"].value if drawn is not None and drawn.kind != "normal" else 0.0)
    return {
        "kind": "fitted",
        "rate_bps": [[round(row["start_s"], 3), round(row["value"])] for row in e["rate_bps"]],
        "rtt_us": round(rtt_us),
        "buffer_bytes": fitted.buffer_bytes,
        "jitter": drawn.text() if drawn is not None else None,
        "loss": round(e["loss"]["share"].value, 6),
        "undetermined": e["undetermined"],
        "intervals": plain({name: e[name] for name in ("rate_bps", "base_rtt_us", "buffer_bytes")}),
        "source": f"cctrace fit path of the sender's capture of the lab's recording {recording} (Linux 6.18)",
        "made_by": f"python -m benchmarks.paths, cctrace {cct.__version__}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--captures", type=Path, required=True, help="folder of the lab's recordings")
    parser.add_argument("--only", default="", help="regular expression of the names to make")
    parser.add_argument("--file", type=Path, default=Path(__file__).parent.parent / "models" / "paths.json")
    options = parser.parse_args()
    known = json.loads(options.file.read_text())
    for name, recording in RECORDINGS.items():
        if not re.search(options.only, name):
            continue
        if not (options.captures / recording).is_dir():
            print(f"{name}: {options.captures / recording} is not there; kept as it is")
            continue
        made = entry(recording, options.captures)
        if made is None:
            print(f"{name}: the fitted jitter is not of a family that has a text; kept as it is")
            continue
        print(f"{name}: {made['rate_bps']} {made['rtt_us']} us, {made['buffer_bytes']} bytes, {made['jitter']}")
        known["paths"][name] = made
    options.file.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
