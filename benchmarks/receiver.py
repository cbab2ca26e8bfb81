"""How a simulated receiver answers what a recorded one got: what it acknowledges, and the window of every ACK.

    python -m benchmarks.receiver CAPTURE... [--seconds 5]
    python -m benchmarks.receiver --lab

CAPTURE is a receiver-side capture of a bulk flow, from its handshake on. Its data arrive at the simulated receiver
when they arrived at the recorded one, in the order recorded; nothing else is simulated. Printed is the share of the
recorded ACKs that were simulated too (the same left edge, as often), and of these whose window is the same.
`--lab` does so for the arrivals kept in benchmarks/receiver_lab.json.
"""

import argparse
import json
from pathlib import Path as FilePath

import numpy as np

import cctrace as cct
from cctrace.sim.core import receiver
from cctrace.sim.core.structs import ECHO, PUSHED, TAP_ACK, transmissions
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender

LAB = FilePath(__file__).with_name("receiver_lab.json")
MS = 1_000_000
PSH = 8
CLOSE = 0.03
BEFORE_DATA_NS = 100 * MS  # of the simulation


def recorded(file, seconds):
    """Return what a receiver-side capture shows of its first flow, as `replayed` takes it."""
    capture = cct.read(str(file)).packets
    c = {name: capture[name][capture["conn"] == capture["conn"][0]].astype(np.int64) for name in COLUMNS}
    order = np.argsort(c["time_ns"], kind="stable")
    c = {name: values[order] for name, values in c.items()}
    first, answer = c["time_ns"][0], int(np.flatnonzero(c["direction"] == 1)[0])
    c = {name: values[c["time_ns"] - first < seconds * 1e9] for name, values in c.items()}
    mss = int(c["payload"].max())
    data, acks = c["payload"] > 0, (c["direction"] == 1) & (c["flags"] & 2 == 0)
    wscale = int(capture.connections["wscale_b"][0])
    offset = (c["seq"] - c["seq"][0] - 1) % 2**32 // mss
    return {
        "mss": mss,
        "clock_us": clock_us(c["time_ns"][acks], c["tsval"][acks], c["time_ns"][answer], c["tsval"][answer]),
        "ready_us": int(c["time_ns"][2] - c["time_ns"][answer]) // 1000,
        "data": np.column_stack(
            [
                (c["time_ns"][data] - c["time_ns"][answer]) // 1000,
                offset[data],
                c["tsecr"][data] - c["tsval"][answer],
                (c["flags"][data] & PSH) // PSH,
            ]
        ).tolist(),
        "acks": np.column_stack(
            [(c["ack"][acks] - c["seq"][0] - 1) % 2**32 // mss, c["window"][acks] << wscale]
        ).tolist(),
    }


COLUMNS = ("time_ns", "direction", "flags", "seq", "ack", "window", "payload", "tsval", "tsecr")


def clock_us(times_ns, stamps_ms, zero_ns, zero_ms):
    """Return how far into its millisecond the receiver's clock was at a time; ACKs are captured after their stamp."""
    return int(np.clip(((stamps_ms - zero_ms) * 1000 - (times_ns - zero_ns) / 1000).max(), 0, 999))


def replayed(seen):
    """Return [segments acknowledged, window] of each ACK that the simulated receiver sends, and the times in us."""
    rtt_us = max(seen["ready_us"], 1000)
    path = Path(rate="1Gbit", rtt=f"{rtt_us}us", reverse=f"{rtt_us / 2}us", buffer="1000packets")
    world = World(path, [Sender("cubic6", ack_every=2)], 1, compiled=False, exact=True)
    w, f = world.record, world.flows[0]
    zero = FIRST_NS + BEFORE_DATA_NS
    f.mss = seen["mss"]
    f.syn_ack_ns = zero
    f.rcv_clock_ns = seen["clock_us"] * 1000
    f.rcv_copied_us = zero // 1000 + seen["ready_us"]
    rows = np.zeros(3 * 4 * len(seen["data"]), np.int64)
    f.tap_buffer, f.tap_size = world.place(rows), 4 * len(seen["data"])
    acks = []

    def note():
        for at, what, _ in rows[: 3 * f.tap_rows].reshape(-1, 3).tolist():
            if what & 7 == TAP_ACK:
                acks.append([int(f.rcv_acked), f.rcv_right - f.rcv_acked * f.mss, (at - zero) // 1000])
        f.tap_rows = 0

    for order, (at_us, segment, echo_ms, pushed) in enumerate(seen["data"]):
        now = zero + at_us * 1000
        if f.delack_at <= now:
            receiver.send_ack(w, f, int(f.delack_at))
            note()
        sent = transmissions(f.tx)[order & f.mask]
        sent.seg, sent.ns, sent.marks = segment, now, PUSHED * pushed | zero // MS + echo_ms << ECHO
        receiver.receive(w, f, order, now)
        note()
        f.ack_head = f.ack_tail
    world.close()
    return acks


def compare(seen):
    """Return (recorded ACKs, of them answered alike, windows alike, relative differences of windows) of `recorded`."""
    simulated = {}
    for acked, window, _ in replayed(seen):
        simulated.setdefault(acked, []).append(window)
    pairs = []
    for acked, window in seen["acks"]:
        if simulated.get(acked):
            pairs.append((simulated[acked].pop(0), window))
    mine, theirs = np.array(pairs, float).T
    return len(seen["acks"]), len(pairs), int((mine == theirs).sum()), mine / np.maximum(theirs, 1) - 1


def report(name, seen):
    acks, alike, same, apart = compare(seen)
    close, median = 100 * np.mean(abs(apart) < CLOSE), 100 * np.median(abs(apart))
    print(
        f"{name}: {acks} ACKs, {100 * alike / acks:.1f} % simulated too; windows: {100 * same / alike:.1f} % the "
        f"same, {close:.1f} % within {100 * CLOSE:.0f} %, apart by {median:.1f} % (median)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captures", nargs="*", type=FilePath)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each capture")
    parser.add_argument("--lab", action="store_true")
    options = parser.parse_args()
    for file in options.captures:
        report(f"{file.parent.name}/{file.name}", recorded(file, options.seconds))
    for name, seen in json.loads(LAB.read_text())["recordings"].items() if options.lab else ():
        report(name, seen)


if __name__ == "__main__":
    main()
