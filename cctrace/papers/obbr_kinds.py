"""oBBR, Figs. 13 and 14 over other paths: which kind of path retransmits as the paper's live path did.

Section 5.2.5 gives CUBIC 6.30 Mbit/s and 0.16 % sent again, BBRv2 17.66 and 6.71 %, oBBR-0.75 27.17 and 6.58 %, BBR-S
26.94 and 10.41 %. The chosen paths of Fig. 13, a queue of R 0.25 and random losses of up to 2 %, show 0.2 to 3 %. Here
are other kinds of path of 270 ms and some 30 Mbit/s: policers with a small and a large bucket behind the 80 Mbit/s of
the server, a very short queue, losses of 6 % at random, losses in bursts, a rate that changes (as others come and go;
drawn from 10 to 80 Mbit/s, evenly in the logarithm, every second or every five), and the preset of Table 1's static1
with the RTT of this path. Nothing was fitted: none of them is the paper's path, which the text does not describe.

CUBIC's 0.16 % say that little is lost at random there, so each kind but two has 0.02 %, which is what 6 Mbit/s of
CUBIC can bear over 270 ms. Video runs over the kinds with a changing rate alone.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from cctrace.papers.claims import Claim, judge, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.obbr import (
    BBR,
    BBR2,
    BBR_S,
    CUBIC,
    SEEDS,
    SYSTEMS,
    Bi23,
    again_pct,
    bdp_bytes,
    complete,
    obbr,
    run_of,
    session_of,
)
from cctrace.papers.obbr_internet import RATIO, RTT_MS, session_of_the_paper
from cctrace.papers.runs import Result, Run
from cctrace.papers.traces import of_preset

MBPS, EGRESS_MBPS = 30, 80
LOW_MBPS, HIGH_MBPS, CHANGES_S = 10.0, 80.0, 900
PRESET = "5g_static1"
POLICED, POLICED_WIDE = "policer, 100 kB", "policer, 1 MB"
SHORT, RANDOM, BURSTS = "queue of R 0.02", "6 % at random", "losses in bursts"
EACH_S, EACH_5S, LIKE_STATIC1 = "another rate each 1 s", "another rate each 5 s", "preset static1"
VARYING = (EACH_S, EACH_5S, LIKE_STATIC1)
KINDS = (POLICED, POLICED_WIDE, SHORT, RANDOM, BURSTS, *VARYING)
LITTLE = "0.02%"
PUBLISHED = {CUBIC: (6.30, 0.16), BBR2: (17.66, 6.71), BBR_S: (26.94, 10.41), obbr(0.75): (27.17, 6.58)}


def of_kind(kind: str, seed: int) -> Fields:
    """Return the fields of `Path` of a kind of path.

    Examples
    --------
    >>> of_kind("policer, 100 kB", 1)["policer"], of_kind("another rate each 5 s", 1)["rate"][1][0]
    (['30Mbit', '100kB'], 5)
    """
    if kind == LIKE_STATIC1:
        return of_preset(PRESET, seed, CHANGES_S) | {"rtt": f"{RTT_MS}ms"}
    changes: dict[str, Fields] = {
        POLICED: {"rate": f"{EGRESS_MBPS}Mbit", "policer": [f"{MBPS}Mbit", "100kB"]},
        POLICED_WIDE: {"rate": f"{EGRESS_MBPS}Mbit", "policer": [f"{MBPS}Mbit", "1MB"]},
        RANDOM: {"loss": "6%"},
        BURSTS: {"loss": "30%", "burst_loss": [0.0005, 0.02]},
        EACH_S: {"rate": _changing(1, seed)},
        EACH_5S: {"rate": _changing(5, seed)},
    }
    ratio = 0.02 if kind == SHORT else RATIO
    base = {"rate": f"{MBPS}Mbit", "rtt": f"{RTT_MS}ms", "buffer": f"{round(ratio * bdp_bytes(MBPS, RTT_MS))}B"}
    return base | {"loss": LITTLE} | changes.get(kind, {})


def _changing(every_s: int, seed: int) -> list[list]:
    rng = np.random.default_rng([seed, every_s])
    starts = range(0, CHANGES_S, every_s)
    rates = np.exp(rng.uniform(np.log(LOW_MBPS), np.log(HIGH_MBPS), len(starts)))
    return [[at, f"{mbps:.2f}Mbit"] for at, mbps in zip(starts, rates, strict=True)]


class Kinds(Bi23):
    """Bulk over kinds of paths."""

    varied = {"kind": "kinds", "system": "systems"}
    measured = ("goodput_mbps", "retransmitted_pct")
    drawn = drawing("bars", "kind", "retransmitted_pct", "system", ylabel="retransmitted (%)")

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        return run_of([at["system"]], of_kind(at["kind"], at["seed"]), at["seed"], p["duration_s"])

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.5's numbers, kind by kind; none unless all systems were run."""
        if complete(made):
            yield from (self._claim(made, kind) for kind in made.each("kind"))

    def _claim(self, made: Reproduction, kind: str) -> Claim:
        again, goodput = (
            {system: made.value(column, system=system, kind=kind) for system in PUBLISHED}
            for column in ("retransmitted_pct", "goodput_mbps")
        )
        return judge(
            "13",
            "what CUBIC, BBRv2, BBR-S and oBBR-0.75 get and retransmit between Virginia and Shandong",
            {
                "goodputs in this order": goodput[CUBIC] < goodput[BBR2] < min(goodput[BBR_S], goodput[obbr(0.75)]),
                "BBR-S sends more again than oBBR": again[BBR_S] > again[obbr(0.75)],
            },
            paper=_published(*zip(*PUBLISHED.values(), strict=True)),
            here=_published(goodput.values(), again.values()),
            sizes={f"{s} (Mbit/s)": (mbps, goodput[s]) for s, (mbps, _) in PUBLISHED.items()}
            | {f"{s} (%)": (pct, again[s]) for s, (_, pct) in PUBLISHED.items()},
            reading=kind,
        )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The released forms."""
        return made.table[~made.table.system.str.contains("paper form")]


def _published(goodputs: Iterable[float], shares: Iterable[float]) -> str:
    return f"{listed(goodputs)} Mbit/s, {listed(shares)} % (CUBIC/BBRv2/BBR-S/oBBR-0.75)"


class KindsOfVideo(Bi23):
    """Video over the kinds of paths whose rate changes."""

    varied = {"kind": "kinds", "system": "systems"}
    drawn = drawing("bars", "kind", "quality", "system", ylabel="average quality")

    def run(self, at: Fields, p: Fields) -> Run:
        """One session."""
        return session_of(at["system"], of_kind(at["kind"], at["seed"]), at["seed"], p["minutes"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The metrics of section 5.3.2, and what was sent again."""
        return {
            "retransmitted_pct": again_pct([result]),
            "quality": result["average_quality"],
            "switches_down": result["switches_down"],
            "rebuffering_pct": 100 * result["rebuffering_ratio"],
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.3.3's numbers of oBBR-0.5, kind by kind."""
        ours = obbr(0.5)
        if ours not in set(made.table.system):
            return
        for kind in made.each("kind"):
            names = ("retransmitted_pct", "quality", "switches_down", "rebuffering_pct")
            again, quality, down, stalled = (made.value(name, system=ours, kind=kind) for name in names)
            yield session_of_the_paper(again, quality, down, stalled, kind)


FIGURES = [
    Kinds(
        "13-kinds",
        "bulk over kinds of paths of 270 ms",
        {"systems": tuple(SYSTEMS), "kinds": KINDS, "seeds": SEEDS, "duration_s": 120.0},
        {"kinds": (POLICED, EACH_5S), "seeds": (1,), "duration_s": 15.0},
        ("system", "kind"),
    ),
    KindsOfVideo(
        "14-kinds",
        "video over changing rates",
        {"systems": (BBR, BBR2, CUBIC, BBR_S, obbr(0.5), obbr(1.0)), "kinds": VARYING, "seeds": SEEDS, "minutes": 10.0},
        {"systems": (CUBIC, obbr(0.5)), "kinds": (EACH_5S,), "seeds": (1,), "minutes": 1.0},
        ("system", "kind"),
    ),
]
