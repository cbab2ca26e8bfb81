"""Write the list of recordings that `benchmarks.interventions` scores: flows with a cause, and the same flows without.

    python -m benchmarks.intervention_bases 60 --seed 7 > list.json
    python -m benchmarks.intervention_bases 60 --seed 7 --pairs > pairs.json
    python -m benchmarks.intervention_bases 60 --seed 7 --squares > squares.json
    python -m benchmarks.intervention_bases 40 --seed 7 --paths > paths.json

A base is a random path with one or two causes that a kernel can really have (docs/lab.md describes a lab that records
it; a square, recorded with both causes, each, and none, has three bases). NAME.own is the flow with its causes,
NAME.without-CAUSE the same path and seed without one of them, NAME.cc-OTHER another controller in its place,
NAME.buffer-x2 and NAME.buffer-x0.5 the flow over another queue. `--paths` asks what-ifs only: random paths, number k of
seed + k, with every such question.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SECONDS = 12.0
# (name in cctrace, name in the kernel, the lab's kernel)
SENDERS = (
    ("bbr2022", "bbr", "linux-bbr1"),
    ("cubic6", "cubic", "linux-bbr1"),
    ("bbr2", "bbr2", "linux-bbr2"),
    ("bbr3", "bbr", "linux-bbr3"),
    ("reno", "reno", "linux-bbr3"),
)
MAX_BUFFER = 212_992  # bytes, net.core.rmem_max and wmem_max of the lab's kernels
WINDOW_PER_RCVBUF = 1.2  # of a kernel that doubles SO_RCVBUF and keeps two fifths of that for itself
SYSCTL = {
    "net.ipv4.tcp_rmem": "4096 131072 67108864",
    "net.ipv4.tcp_wmem": "4096 65536 67108864",
    "net.ipv4.tcp_no_metrics_save": "1",
}
Scenario = dict[str, Any]
Draw = Callable[[random.Random, Scenario], None]
Scale = tuple[()] | tuple[tuple[float, float], float]


def _bdp(one: Scenario) -> float:
    return one["rate"] * 1e6 / 8 * (one["fwd_delay"] + one["rev_delay"]) / 1e6


def _buffer(one: Scenario, bdp: float) -> None:
    one["buffer"], one["buffer_bdp"] = int(bdp * _bdp(one)), round(bdp, 3)


def receiver_limited(rng: random.Random, one: Scenario) -> None:
    one["rcvbuf"] = int(min(rng.uniform(0.25, 0.7) * _bdp(one) / WINDOW_PER_RCVBUF, MAX_BUFFER))


def send_buffer_limited(rng: random.Random, one: Scenario) -> None:
    one["flows"][0]["sndbuf"] = int(min(rng.uniform(0.3, 0.9) * _bdp(one), MAX_BUFFER))


def application_limited(rng: random.Random, one: Scenario) -> None:
    every, share = rng.choice([0.4, 0.5, 1.0]), rng.uniform(0.3, 0.6)
    size = int(share * every * one["rate"] * 1e6 / 8)
    one["flows"][0] |= {"mode": "chunks", "chunk_interval": every, "chunk_bytes": size}


def random_loss(rng: random.Random, one: Scenario) -> None:
    one["loss"] = round(0.0005 * 40 ** rng.random(), 5)


def jitter(rng: random.Random, one: Scenario) -> None:
    one["jitter_us"] = int(rng.uniform(0.05, 0.2) * 2 * one["fwd_delay"])
    if rng.random() < 0.5:  # else uniform
        one["jitter_dist"] = "normal"


def reordering(rng: random.Random, one: Scenario) -> None:
    one["reorder"] = round(0.002 * 10 ** rng.random(), 5)


def policer(rng: random.Random, one: Scenario) -> None:
    one["policer"] = {"rate": round(rng.uniform(0.3, 0.6) * one["rate"], 2), "burst": rng.randrange(20_000, 100_000)}


def aqm(rng: random.Random, one: Scenario) -> None:
    one["qdisc"] = rng.choice(["codel", "fq_codel", "pie", "red", "cake"])
    _buffer(one, rng.uniform(3, 6))


def shallow_buffer(rng: random.Random, one: Scenario) -> None:
    _buffer(one, rng.uniform(0.1, 0.3))


def competition(rng: random.Random, one: Scenario) -> None:
    other = {"cc": rng.choice(["cubic", "reno", "bbr"]), "start": round(rng.uniform(0, 2), 2)}
    one["flows"].append({"id": 1, "sport": 40002, "dport": 5002, "stop": one["seconds"], **other})


def rate_change(rng: random.Random, one: Scenario) -> None:
    lower = round(rng.uniform(0.35, 0.65) * one["rate"], 2)
    one["steps"] = [[0, one["rate"]], [round(rng.uniform(3, 6), 1), lower]]


def pacing_limited(rng: random.Random, one: Scenario) -> None:
    one["flows"][0]["max_pacing_rate"] = int(rng.uniform(0.25, 0.8) * one["rate"] * 1e6 / 8)


CAUSES: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        receiver_limited, send_buffer_limited, application_limited, random_loss, jitter, reordering, policer, aqm,
        shallow_buffer, competition, rate_change, pacing_limited,
    )
}  # fmt: skip
SINGLE: list[list[str]] = [*([name] for name in CAUSES), [], []]
PAIRS = [
    ["random_loss", "application_limited"],
    ["random_loss", "receiver_limited"],
    ["jitter", "random_loss"],
    ["shallow_buffer", "application_limited"],
    ["pacing_limited", "random_loss"],
    ["competition", "random_loss"],
    ["rate_change", "random_loss"],
    ["send_buffer_limited", "jitter"],
    ["reordering", "receiver_limited"],
    ["policer", "application_limited"],
    ["shallow_buffer", "random_loss"],
    ["receiver_limited", "competition"],
    ["jitter", "application_limited"],
    ["aqm", "random_loss"],
    ["policer", "random_loss"],
    ["policer", "jitter"],
    ["pacing_limited", "competition"],
    ["pacing_limited", "policer"],
    ["application_limited", "competition"],
    ["rate_change", "application_limited"],
    ["send_buffer_limited", "random_loss"],
    ["receiver_limited", "jitter"],
]

MORE_PAIRS = [
    ["competition", "aqm"],
    ["shallow_buffer", "jitter"],
    ["policer", "reordering"],
    ["reordering", "random_loss"],
    ["rate_change", "jitter"],
    ["send_buffer_limited", "shallow_buffer"],
]


def without(one: Scenario, cause: str) -> Scenario:
    """Return a scenario without one of its causes."""
    found = copy.deepcopy(one)
    first = found["flows"][0]
    match cause:
        case "receiver_limited":
            del found["rcvbuf"]
        case "send_buffer_limited":
            del first["sndbuf"]
        case "application_limited":
            for name in ("mode", "chunk_interval", "chunk_bytes"):
                del first[name]
        case "random_loss":
            del found["loss"]
        case "jitter":
            del found["jitter_us"]
            found.pop("jitter_dist", None)
        case "reordering":
            del found["reorder"]
        case "policer":
            del found["policer"]
        case "aqm":
            found["qdisc"] = "droptail"
        case "shallow_buffer":
            _buffer(found, 2 * found["buffer_bdp"])
        case "competition":
            del found["flows"][1:]
        case "rate_change":
            del found["steps"][1:]
        case "pacing_limited":
            del first["max_pacing_rate"]
    return found


def own(
    rng: random.Random,
    causes: list[str],
    sender: tuple[str, str, str],
    rates: tuple[float, float] = (8, 5),
    seconds: float = SECONDS,
) -> Scenario:
    """Return a base as it is; `rates`: the lowest, and how many times that the highest is, Mbit/s."""
    rtt_us = int(12_000 * 7.5 ** rng.random())
    name, kernel_name, image = sender
    one: Scenario = {"topo": "uml", "rate": round(rates[0] * rates[1] ** rng.random(), 2), "fwd_delay": rtt_us // 2}
    one |= {"rev_delay": rtt_us - rtt_us // 2, "qdisc": "droptail", "seed": rng.randrange(1, 1 << 31), "poll_ms": 10}
    one |= {"snaplen": 100, "seconds": seconds, "sysctl": SYSCTL, "receiver_pcap": False, "kernel_image": image}
    one["flows"] = [{"id": 0, "sport": 40001, "dport": 5001, "start": 0.0, "stop": seconds, "cc": kernel_name}]
    _buffer(one, 0.3 * 3.4 ** rng.random() if not causes else 0.8 * 5 ** rng.random())
    for cause in causes:
        CAUSES[cause](rng, one)
    if rng.random() < (0.3 if kernel_name.startswith("bbr") else 0.15):
        one["fq"] = True
    return one | {"causes": causes, "own": name}


def with_and_without(label: str, one: Scenario) -> Iterator[Scenario]:
    """Yield a base as it is, and without each of its causes."""
    yield one | {"name": f"{label}.own", "intervention": {}}
    for cause in one["causes"]:
        yield without(one, cause) | {"name": f"{label}.without-{cause}", "intervention": {"without": cause}}


def base(
    rng: random.Random,
    number: int,
    causes: list[str],
    sender: tuple[str, str, str],
    scale: Scale = (),
    both: bool = False,
) -> Iterator[Scenario]:
    """Yield the recordings of one base: as it is, and with one thing changed each.

    `scale`: rates and seconds of `own`. `both`: twice and half the buffer, too, of a flow with causes.
    """
    name, _, image = sender
    one = own(rng, causes, sender, *scale)
    label = f"b{number:02d}-{'+'.join(causes) or 'plain'}"

    def recording(tag: str, scenario: Scenario, **intervention: str) -> Scenario:
        return scenario | {"name": f"{label}.{tag}", "intervention": intervention}

    yield from with_and_without(label, one)
    other = rng.choice([other for other in SENDERS if other != sender]) if causes else SENDERS[name == "bbr2022"]
    # Another kernel's "bbr" would be another competitor, its SO_RCVBUF another window (6.6: tcp_adv_win_scale).
    if "rcvbuf" in one or any(flow["cc"] == "bbr" for flow in one["flows"][1:]):
        same = [one for one in SENDERS if one[2] == image and one != sender]
        other = same[0] if same else ("cubic6", "cubic", image)
    replaced = copy.deepcopy(one) | {"kernel_image": other[2]}
    replaced["flows"][0]["cc"] = other[1]
    yield recording(f"cc-{other[0]}", replaced, cc=other[0])
    factors = (2.0, 0.5) if both or not causes else (2.0 if number % 2 else 0.5,)
    for factor in factors:
        if factor == 2 and "shallow_buffer" in causes:
            continue
        resized = copy.deepcopy(one)
        _buffer(resized, factor * one["buffer"] / _bdp(one))
        yield recording(f"buffer-x{factor:g}", resized, buffer=f"x{factor:g}")


ON_THE_PATH = {"random_loss": 0.5, "jitter": 0.25, "reordering": 0.1}  # how often a random path has each
AT_HOSTS = ["application_limited", "pacing_limited", "receiver_limited", "send_buffer_limited"]
HELD = 0.25  # of the flows over random paths, by one of these


def paths(n: int, seed: int) -> Iterator[Scenario]:
    """Yield flows over random paths, and what a user may ask of them: another controller, buffer, or no random loss.

    Every fourth path has nothing but a queue of 0.3 to 1 BDP, where BBRv1 and CUBIC differ most.
    """
    for k in range(n):
        rng = random.Random(seed + k)
        causes = [cause for cause, share in ON_THE_PATH.items() if rng.random() < share]
        causes += [rng.choice(AT_HOSTS)] if rng.random() < HELD else []
        sender = rng.choice(SENDERS)
        if k % 4 == 3:
            causes, sender = [], SENDERS[k // 4 % 2]
        for one in base(rng, k, causes, sender, ((4, 6), 10.0), both=True):
            if one["intervention"].get("without", "random_loss") == "random_loss":
                yield one


def squares(n: int, seed: int) -> Iterator[Scenario]:
    """Yield the recordings of short flows over slow paths with a pair of causes, and with each of them alone.

    Of the seven recordings of a pair four differ: what lacks one cause is the base of the other.
    """
    rng = random.Random(seed)
    pairs = PAIRS + MORE_PAIRS
    rng.shuffle(pairs)
    for k in range(n):
        causes = pairs[k % len(pairs)]
        both = own(rng, causes, rng.choice(SENDERS), (4, 4), 8.0)
        for label, one in (
            ("ab-" + "+".join(causes), both),
            *((f"{place}-{causes[number]}", without(both, causes[1 - number])) for number, place in enumerate("ab")),
        ):
            kept = [cause for cause in causes if cause in label]
            yield from with_and_without(f"q{k:03d}{label}", one | {"causes": kept})


def bases(n: int, seed: int, only_pairs: bool = False) -> Iterator[Scenario]:
    """Yield the recordings of `n` bases: two of three with one cause (or none), every third, or all, with two."""
    rng = random.Random(seed)
    singles, pairs = SINGLE.copy(), PAIRS.copy()
    rng.shuffle(singles)
    rng.shuffle(pairs)
    senders = rng.sample(SENDERS, len(SENDERS))
    if only_pairs:
        for k in range(n):
            yield from base(rng, k, pairs[k % len(pairs)], rng.choice(SENDERS))
        return
    for k in range(n):
        kinds = pairs if k % 3 == 2 else singles
        place = k // 3 if k % 3 == 2 else k - (k + 1) // 3
        causes = kinds[place % len(kinds)]
        # Without a cause, the pair that a queue below one BDP separates most: BBRv1 and CUBIC.
        yield from base(rng, k, causes, senders[k % len(senders)] if causes else SENDERS[k % 2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bases", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs", action="store_true", help="two causes in every base")
    parser.add_argument("--squares", action="store_true", help="pairs of causes, and each of them alone")
    parser.add_argument("--paths", action="store_true", help="random paths with every what-if")
    options = parser.parse_args()
    made = squares if options.squares else paths if options.paths else partial(bases, only_pairs=options.pairs)
    found = made(options.bases, options.seed)
    print(json.dumps(list(found), indent=1))


if __name__ == "__main__":
    main()
