"""A fitted path as a script for an emulator: netem (tc), mahimahi, or the estimates as JSON."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from cctrace.arguments import check_choice
from cctrace.display import plain
from cctrace.units import parse_size_bytes

if TYPE_CHECKING:
    from cctrace.fit.fitted_path import FittedPath

FORMS = ("netem", "mahimahi", "json")
MTU = 1500
LOOP_S = 60.0  # length of a constant-rate Mahimahi trace, which Mahimahi repeats


def export(path: FittedPath, to: str) -> str:
    """Return `path` as text; see `FittedPath.export`."""
    check_choice("to", to, FORMS)
    if to == "json":
        return json.dumps(plain(path.estimates), indent=1)
    return _netem(path) if to == "netem" else _mahimahi(path)


def _netem(path: FittedPath) -> str:
    """Return a shell script: rate and buffer by tbf, delay, jitter and loss by netem, behind it or before it."""
    e = path.estimates
    times, rates = path.rate_steps()
    lines = [
        "#!/bin/sh -e",
        "# Emulates a fitted path on the way out of $1 (an interface): as root, `sh path.sh eth0`.",
        "# The delay of the whole round trip is on this way, on the side of the queue where the fit has the jitter.",
        "# netem draws jitter per packet and lets packets overtake; `rate` makes it keep order.",
        'dev=${1:?"name an interface"}',
        'tc qdisc del dev "$dev" root 2>/dev/null || true',
    ]
    burst = 2 * MTU if path.shaper is None else max(parse_size_bytes(path.shaper[1]), 2 * MTU)
    tbf = f"tbf burst {burst} limit {max(path.buffer_bytes, burst)}"
    delay = f"delay {path.rtt_ns / 1000:.0f}us"
    jitter = e["jitter"]
    if jitter is not None and path.has_jitter:
        delay += f" {jitter['sd_us'].value:.0f}us distribution normal"
        if jitter["process"] != "reorder":
            delay += " rate 10gbit"
        if jitter["distribution"] != "normal":
            lines.append(
                f"# The jitter is {jitter['distribution']}; netem's normal distribution with its sd stands for it."
            )
    loss = e["loss"]
    if loss.get("burst"):
        enter, leave = (100 * side.value for side in loss["burst"])
        delay += f" loss gemodel {enter:.5f}% {leave:.5f}% 100% 0%"
    elif loss["share"].value:
        delay += f" loss {100 * loss['share'].value:.5f}%"
    first, second = "root handle 1:", "parent 1:1 handle 10:"
    at_tbf, at_netem = (second, first) if path.jitters_before else (first, second)
    added = [f"{at_tbf} {tbf} rate {rates[0]:.0f}bit", f"{at_netem} netem limit 100000 {delay}"]
    lines += [f'tc qdisc add dev "$dev" {qdisc}' for qdisc in sorted(added, reverse=True)]  # the root first
    for (before, _), (after, rate) in pairwise(zip(times, rates, strict=True)):
        lines.append(f"sleep {(after - before) / 1e9:.3f}")
        lines.append(f'tc qdisc change dev "$dev" {at_tbf} {tbf} rate {rate:.0f}bit')
    return "\n".join(lines) + "\n"


def opportunities(path: FittedPath) -> list[int]:
    """Return the times (ms) at which a Mahimahi trace of the path delivers a packet of 1500 bytes."""
    times, rates = path.rate_steps()
    end = max(times[-1] / 1e9 + 10.0, LOOP_S if len(times) == 1 else 0.0)
    edges = [*(times / 1e9), end]
    times_ms, sent, credit = [], 0, 0.0
    for (a, b), rate in zip(pairwise(edges), rates, strict=True):
        total = credit + rate * max(b - a, 0.0) / 8 / MTU
        while sent < int(total) and rate > 0:
            times_ms.append(int(1000 * (a + (sent + 1 - credit) * 8 * MTU / rate)))
            sent += 1
        credit = total
    return times_ms


def _mahimahi(path: FittedPath) -> str:
    """Return a shell script that writes the trace and runs a command (a shell) behind it."""
    e = path.estimates
    one_way_ms = max(round(path.rtt_ns / 2e6), 0)
    loss = f"mm-loss uplink {e['loss']['share'].value:.6f} " if e["loss"]["share"].value else ""
    trace = "\n".join(map(str, opportunities(path)))
    note = ""
    if e["jitter"] is not None:
        note = f"# Mahimahi has no jitter; the fitted sd is {e['jitter']['sd_us'].value:.0f} us.\n"
    return (
        "#!/bin/sh -e\n# Emulates a fitted path for the data that leave: `sh path.sh COMMAND` (default: a shell).\n"
        f"{note}trace=$(mktemp)\ncat >\"$trace\" <<'END'\n{trace}\nEND\n"
        f'exec mm-delay {one_way_ms} {loss}mm-link "$trace" "$trace" --uplink-queue=droptail '
        f'--uplink-queue-args="bytes={path.buffer_bytes}" -- "${{@:-sh}}"\n'
    )
