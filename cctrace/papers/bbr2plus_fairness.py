"""BBRv2+, Figs. 4, 5, 10, 19 and 20: fairness to CUBIC, and between flows of 40 and 150 ms, over the buffer.

Two flows start together at 40 Mbit/s and run for three minutes (section 3.2).
"""

from collections.abc import Callable, Iterator

import numpy as np

from cctrace.analytic.metrics import jain
from cctrace.columns import Floats, Values
from cctrace.papers.bbr2plus import (
    BBR,
    BBR2,
    BBR2_20,
    CUBIC,
    SEEDS,
    SINGLE,
    SINGLE_20,
    SINGLE_PAPER,
    SINGLE_SMOOTHED,
    TRYING,
    Yang22,
    flow,
    run_of,
)
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.runs import Result, Run

BUFFERS_BDP = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LONG_MS = 150
CLOSE = 0.1  # of Jain's index, which varies by up to 0.05 between seeds
_AXIS = {"logx": True, "top": 1.03}
Buffers = Floats
NO_WORSE = "no worse than the better one of BBR and BBRv2 at any buffer"


class AgainstCubic(Yang22):
    """Jain's index and the throughput of a flow of the system and of one of CUBIC, over the buffer."""

    varied = {"system": "systems", "buffer_bdp": "buffers_bdp"}
    drawn = drawing("lines", "buffer_bdp",
                    [("jain", "Jain's index", _AXIS), ("share", "share of the link", _AXIS | {"level": 0.5})],
                    "system", xlabel="buffer (BDP)")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """A flow of the system and one of CUBIC."""
        return run_of([at["system"], CUBIC], at["seed"], p["duration"], {"buffer": f"{at['buffer_bdp']}bdp"})

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Throughputs of both flows, Jain's index (Eq. 1), the first flow's retransmissions."""
        first, second = (f["goodput_bps"] / 1e6 for f in result["flows"])
        return {
            "jain": float(jain([first, second])),
            "goodput_mbps": first,
            "other_mbps": second,
            "share": first / (first + second),
            "retransmitted_pct": 100 * result["flows"][0]["retransmit_ratio"],
        }


def _at(made: Reproduction, column: str, system: str, wanted: Callable[[Buffers], Values]) -> Buffers:
    """Return the means of a column at those buffers of the run that fulfil a condition."""
    buffers, values = made.column(column, "buffer_bdp", system=system)
    return values[wanted(buffers)]


def _deep(bdp: Buffers) -> Values:
    return bdp >= 8


class Fig4(AgainstCubic):
    """BBR and BBRv2."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.2.1."""
        b = made.column("jain", "buffer_bdp", system=BBR)[0]
        old, new = (_at(made, "jain", s, lambda x: x < 2) for s in (BBR, BBR2))
        shares = {s: _at(made, "share", s, _deep) for s in (BBR, BBR2)}
        before, after = (_at(made, "share", s, lambda x: (x >= 2) & (x <= 4)) for s in (BBR, BBR2))
        yield Stated(
            "4", "below 2 BDP, BBRv2 is clearly fairer to CUBIC than BBR", "significantly higher index"
        ).judged(
            {f"at {x:g} BDP": n > o + 0.05 for x, o, n in zip(b[b < 2], old, new, strict=True)},
            f"{listed(new)} against {listed(old)} at {listed(b[b < 2], '{:g}')} BDP",
        )
        yield Stated("4", "in deep buffers CUBIC gets more than BBR and than BBRv2", "CUBIC more").judged(
            {s: (share < 0.5).all() for s, share in shares.items()},
            "; ".join(f"{s} has {listed(share)}" for s, share in shares.items())
            + f" at {listed(b[b >= 8], '{:g}')} BDP",
            recording="Linux 6.18, 2 BDP: bbr 15.7 and cubic 22.7 Mbit/s (docs/simulation.md)",
        )
        yield Stated("4", "at moderate buffers BBRv2 is less competitive than BBR", "lower share").judged(
            {f"at {x:g} BDP": n < o for x, o, n in zip(b[(b >= 2) & (b <= 4)], before, after, strict=True)},
            f"{listed(after)} against {listed(before)}",
        )


class Fig10(AgainstCubic):
    """BBRv2 with the loss threshold at 20 %."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.4."""
        low = min(made.runs.buffer_bdp)
        v = {s: made.value("jain", system=s, buffer_bdp=low) for s in (BBR2, BBR2_20)}
        old, new = (_at(made, "jain", s, lambda x: (x >= 1) & (x <= 4)) for s in (BBR2, BBR2_20))
        yield Stated(
            "10", "alpha 20 % makes BBRv2 less fair in an extremely shallow buffer", "worse at 0.2 BDP"
        ).judged({"lower index": v[BBR2_20] < v[BBR2] - 0.02}, f"{v[BBR2_20]:.2f} against {v[BBR2]:.2f} at {low:g} BDP")
        yield Stated("10", "and fairer at moderate buffers", "better").judged(
            {"higher index on average (1 to 4 BDP)": np.mean(new) > np.mean(old)},
            f"{listed(new)} against {listed(old)}",
        )


_SINGLE = (SINGLE, SINGLE_20, SINGLE_PAPER, SINGLE_SMOOTHED)  # TRYING without the dual mode


class Fig19(AgainstCubic):
    """BBRv2+ with and without the dual mode."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.4, for every form of BBRv2+."""
        low = min(made.runs.buffer_bdp)
        v2 = _at(made, "share", BBR2, _deep)
        b, best = made.column("jain", "buffer_bdp", system=BBR)
        best = np.maximum(best, made.column("jain", "buffer_bdp", system=BBR2)[1])
        for plus, single in zip(TRYING, _SINGLE, strict=True):
            if plus not in set(made.runs.system):
                continue
            index = made.column("jain", "buffer_bdp", system=plus)[1]
            behind = [f"{x:g}" for x, i, best_ in zip(b, index, best, strict=True) if i < best_ - CLOSE / 2]
            yield Stated("19b", NO_WORSE, "no worse").judged(
                {"index within 0.05 of the better at every buffer": not behind},
                f"{listed(index)} against {listed(best)}" + (f"; behind at {', '.join(behind)} BDP" if behind else ""),
                reading=plus,
            )
            if single not in set(made.runs.system):
                continue
            alone, dual = (_at(made, "share", s, _deep) for s in (single, plus))
            shallow = [made.value("jain", system=s, buffer_bdp=low) for s in (plus, BBR2_20)]
            yield Stated("19a", "without the dual mode CUBIC starves BBRv2+ in deep buffers", "starved").judged(
                {"at most a quarter of BBRv2's share": (alone <= v2 / 4).all()},
                f"{listed(alone)} of the link, BBRv2 {listed(v2)}",
                reading=plus,
            )
            yield Stated("19b", "the dual mode ends that", "eliminated").judged(
                {"more than without": (dual > alone).all(), "not a quarter of BBRv2's": (dual > v2 / 4).all()},
                f"{listed(dual)} of the link, without {listed(alone)}, BBRv2 {listed(v2)}",
                reading=plus,
            )
            yield Stated(
                "19b", "fairer than BBRv2(20 %, 0.3) in an extremely shallow buffer", "better at 0.2 BDP"
            ).judged(
                {"higher index": shallow[0] > shallow[1]}, f"{shallow[0]:.2f} against {shallow[1]:.2f}", reading=plus
            )


class RttFairness(AgainstCubic):
    """Two flows of one system, of 40 and of 150 ms; the buffer is in BDPs of the longer path."""

    drawn = drawing("lines", "buffer_bdp",
                    [("jain", "Jain's index", _AXIS),
                     ("share", "share of the flow of 150 ms", _AXIS | {"level": 0.5})], "system",
                    xlabel="buffer (BDP)")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """The flow of 150 ms and the other."""
        system, buffer = at["system"], round(at["buffer_bdp"] * 40e6 / 8 * LONG_MS / 1e3)
        flows = [flow(system, rtt=f"{LONG_MS}ms"), flow(system)]
        return run_of(flows, at["seed"], p["duration"], {"buffer": f"{buffer}B"})


class Fig5(RttFairness):
    """BBR and BBRv2."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.2.2."""
        low = min(made.runs.buffer_bdp)
        share, old, new = (
            _at(made, column, system, lambda x: x >= 2)
            for column, system in (("share", BBR), ("jain", BBR), ("jain", BBR2))
        )
        yield Stated("5a", "BBR shares well at 0.2 BDP", "good").judged(
            {"index at least 0.9": made.value("jain", system=BBR, buffer_bdp=low) >= 0.9},
            f"{made.value('jain', system=BBR, buffer_bdp=low):.2f} at {low:g} BDP",
        )
        yield Stated("5a", "with larger buffers BBR's longer RTT takes all", "all").judged(
            {"at least 0.9 of the link at 2 BDP and more": (share >= 0.9).all()}, f"{listed(share)} at 2 BDP and more"
        )
        yield Stated("5b", "BBRv2 shares better than BBR, deep buffers above all", "better").judged(
            {"higher index at 2 BDP and more": (new > old).all()}, f"{listed(new)} against {listed(old)}"
        )


class Fig20(RttFairness):
    """BBRv2+."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.5."""
        b, old = made.column("jain", "buffer_bdp", system=BBR)
        new = made.column("jain", "buffer_bdp", system=BBR2)[1]
        for plus in TRYING:
            if plus in set(made.runs.system):
                here = made.column("jain", "buffer_bdp", system=plus)[1]
                yield Stated("20", "RTT fairness better than BBR's and close to BBRv2's", "better, close").judged(
                    {
                        "better than BBR on average": here.mean() > old.mean(),
                        "within 0.1 of BBRv2 at every buffer": (abs(here - new) <= CLOSE).all(),
                    },
                    f"{listed(here)}; BBRv2 {listed(new)}; BBR {listed(old)} at {listed(b, '{:g}')} BDP",
                    reading=plus,
                )


_FULL = {"buffers_bdp": BUFFERS_BDP, "seeds": SEEDS, "duration": "180s"}
_QUICK = {"buffers_bdp": (0.2, 2.0, 8.0), "seeds": (1,), "duration": "10s"}


def _made(cls: type[Yang22], name: str, title: str, *systems: str) -> Yang22:
    return cls(name, title, _FULL | {"systems": systems}, _QUICK)


FIGURES = [
    _made(Fig4, "4", "fairness of BBR and BBRv2 to CUBIC", BBR, BBR2),
    _made(Fig5, "5", "RTT fairness of BBR and BBRv2 (40 and 150 ms)", BBR, BBR2),
    _made(Fig10, "10", "fairness of BBRv2 with alpha 20 % to CUBIC", BBR2, BBR2_20),
    _made(Fig19, "19", "fairness of BBRv2+ to CUBIC, with and without dual mode", BBR, BBR2, BBR2_20, *TRYING,
          *_SINGLE),
    _made(Fig20, "20", "RTT fairness of BBRv2+ (40 and 150 ms)", BBR, BBR2, *TRYING),
]  # fmt: skip
