"""Ask simulated flows which queue management marked them.

    python -m benchmarks.markers [FIRST:STOP]     # seeds; 101:107 by default, six flows for each law

Rate, RTT, thresholds, jitter, controller and feedback are drawn. A line for each flow, then how many were named right,
not at all, or wrong, and of how many named right a threshold or target is given, and its 95 % interval holds the truth.
"""

import argparse
import math
import random
from collections import Counter

import cctrace as cct
from cctrace.path.constants import MIN_MARKS
from cctrace.path.evidence import evidence_of
from cctrace.path.markers import NAMES, judged
from cctrace.path.marking import marking_of

PACKET_BITS = 1514 * 8
DUALPI2_TARGET_MS = 15  # of the classic queue [RFC9332], where `dualpi2:` names no other


def managed(kind, rate_mbps, draw):
    """Return what a path marks by, as fields of `cctrace.Path`, and the threshold or target, ms."""
    bytes_per_ms = rate_mbps * 1e3 / 8
    if kind == "step":
        wait_ms = max(draw.choice([0.5, 1, 2, 5, 10]), 3 * PACKET_BITS / rate_mbps / 1e3)
        return {"ecn_threshold": f"{bytes_per_ms * wait_ms:.0f}B"}, wait_ms
    if kind == "red":
        low_ms, chance = draw.choice([3, 6, 10]), draw.choice([2, 5, 10])
        low, high = f"{bytes_per_ms * low_ms:.0f}B", f"{bytes_per_ms * 3 * low_ms:.0f}B"
        return {"aqm": f"red:min={low},max={high},probability={chance}%,avpkt=1500B"}, low_ms
    if kind == "dualpi2":
        step_ms = draw.choice([1, 1, 2])
        return {"aqm": f"dualpi2:step={step_ms}ms"}, step_ms
    target_ms = draw.choice([3, 5, 10] if kind == "codel" else [10, 15, 20])
    return {"aqm": f"{kind}:target={target_ms}ms"}, target_ms


def flow_of(kind, seed):
    """Return a flow whose packets were marked, the path in words, and the threshold or target, ms."""
    draw = random.Random(seed * 1000 + sum(map(ord, kind)))
    rate_mbps, rtt_ms = draw.choice([8, 12, 20, 30, 50]), draw.choice([10, 20, 40, 60, 90])
    path = {"rate": f"{rate_mbps}Mbit", "rtt": f"{rtt_ms}ms", "buffer": "6bdp" if rtt_ms >= 40 else "12bdp"}
    marks_by, threshold_ms = managed(kind, rate_mbps, draw)
    path |= marks_by
    if draw.random() < 0.4:
        path["jitter"] = f"normal:sd={draw.choice([0.1, 0.3])}ms"
    name = draw.choice(["cubic6", "prague", "prague+"] if kind == "dualpi2" else ["cubic6", "reno", "prague"])
    if kind == "dualpi2" and "prague" not in name:
        threshold_ms = DUALPI2_TARGET_MS  # the step marks ECT(1) only
    is_classic = "prague" not in name and draw.random() < 0.6
    senders = [cct.Sender(name.strip("+"), ecn=True if is_classic else "accurate", ack_every=2)]
    if name.endswith("+"):  # beside a classic flow
        senders.append(cct.Sender("cubic6", ecn=True, ack_every=2))
    sim = cct.simulate(cct.Path(**path), senders, "25s", seed=seed, packets=True)
    return sim.capture(flow=0).flow(0), f"{path} {name}", threshold_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", metavar="FIRST:STOP", nargs="?", default="101:107")
    first, stop = map(int, parser.parse_args().seeds.split(":"))
    found = Counter()
    for kind in NAMES:
        for seed in range(first, stop):
            flow, words, threshold_ms = flow_of(kind, seed)
            marking = marking_of(evidence_of(flow))
            marker = judged(marking)
            names, law = marker.names, marker.law
            if marking.counts[1].sum() < MIN_MARKS:
                answer = "few"
            elif kind == "dualpi2" and names == ("step",):  # the one that ECT(1) meets there
                answer = "step"
            else:
                answer = "right" if names == (kind,) else "among" if kind in names else "wrong" if names else "none"
            found[kind, answer] += 1
            if answer == "right" and law is not None and math.isfinite(law.threshold_us):
                found[kind, "given"] += 1
                found[kind, "held"] += bool(law.low_us <= 1e3 * threshold_ms <= law.high_us)
            print(kind, seed, answer, names, words, flush=True)
    for (kind, answer), count in sorted(found.items()):
        print(f"{kind:8} {answer:6} {count}")


if __name__ == "__main__":
    main()
