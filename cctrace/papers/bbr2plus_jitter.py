"""BBRv2+, Figs. 12 and 18: Gaussian jitter whose mean is varied.

40 Mbit/s, 40 ms, 32 BDP of buffer; netem adds a delay of mean 0 to 120 ms (sections 3.6, 5.3). The text gives
neither its standard deviation (run: equal to the mean, where netem draws zero for a sixth of the packets, and a
quarter of it), nor order (netem reorders unless a queue is put beneath it; both are run), nor length of the runs
(120 s). Delays are drawn as netem draws them, from a table cut at four deviations, negative ones zero.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cctrace.papers.bbr2plus import (
    BBR,
    BBR2,
    BBR2_COMP,
    BBR_COMP,
    CUBIC,
    FORMS,
    LINK_MBPS,
    RTT_MS,
    SEEDS,
    Yang22,
    run_of,
)
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing, measures
from cctrace.papers.netem import table
from cctrace.papers.runs import Result, Run

SPREADS = {"sd = mean": 1.0, "sd = mean/4": 0.25}
ORDERS = {"in order": False, "reordering": True}


class _OverJitter(Yang22):
    """Throughput and flight over the mean of the jitter, for each spread and order."""

    varied = {"system": "systems", "spread": "spreads", "order": "orders", "mean_ms": "means_ms"}
    drawn = drawing("lines", "mean_ms",
                    [("goodput_mbps", "throughput (Mbit/s)"), ("in_flight", "in flight (segments)")],
                    "system", panel_by="jitter", xlabel="mean of the jitter (ms)")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        path: Fields = {"buffer": "32bdp"}
        if at["mean_ms"] > 0:  # the path's own RTT is the way back, the drawn delay the way there
            mean_us = 1e3 * at["mean_ms"]
            path["reverse"] = f"{RTT_MS}ms"
            path["jitter"] = table(mean_us, mean_us * SPREADS[at["spread"]], ORDERS[at["order"]])
        return run_of([at["system"]], at["seed"], p["duration"], path, sample="100ms")

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The jitter's name; throughput, packets in flight, retransmissions."""
        return {
            "jitter": f"{labels['spread']}, {labels['order']}",
            "in_flight": result["means"][0]["in_flight_segments"],
            **measures(result["flows"][0], "goodput_mbps", "retransmitted_pct"),
        }


class Fig12(_OverJitter):
    """CUBIC, BBR and BBRv2."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.6, for every spread and order."""
        for kind in made.each("jitter"):
            means, cubic = made.column("goodput_mbps", "mean_ms", system=CUBIC, jitter=kind)
            curves = {s: made.column("goodput_mbps", "mean_ms", system=s, jitter=kind)[1] for s in (BBR, BBR2)}
            high = means >= 80
            rates = "; ".join(f"{s} {listed(v, '{:.1f}')}" for s, v in {CUBIC: cubic, **curves}.items())
            yield Stated(
                "12", "CUBIC keeps its throughput under high jitter, BBR and BBRv2 do not", "CUBIC high, both low"
            ).judged(
                {
                    "CUBIC has at least 80 % of the link": (cubic[high] >= 0.8 * LINK_MBPS).all(),
                    **{
                        f"{s} has at most 60 % of CUBIC's": (v[high] <= 0.6 * cubic[high]).all()
                        for s, v in curves.items()
                    },
                },
                f"{rates} Mbit/s at {listed(means, '{:g}')} ms",
                reading=kind,
                recording="Linux 6.18, reordering, sd 10 of 40 ms: bbr 6.8, cubic 19 and 25 of 40 Mbit/s "
                "(docs/simulation.md)",
            )
            yield from _starts(kind, means, curves)


def _starts(kind: str, means: NDArray, curves: dict[str, NDArray]) -> Iterator[Claim]:
    """Mark both sentences of the paper on where the degradation begins: at RTprop (3.6), at half of it (4.4)."""
    begins = {
        s: next((float(m) for m, v in zip(means, vs, strict=True) if v < 0.9 * vs[0]), np.inf)
        for s, vs in curves.items()
    }
    for claim, at, systems in (
        ("significant degradation begins when the mean reaches the path's RTT (3.6)", RTT_MS, (BBR, BBR2)),
        ("BBRv2 degrades from half of the RTT on (4.4)", RTT_MS / 2, (BBR2,)),
    ):
        yield Stated("12", claim, f"{at:g} ms").judged(
            {f"{s} near {at:g} ms": 0.6 * at <= begins[s] <= 1.6 * at for s in systems},
            ", ".join(f"{s} from {begins[s]:g} ms" if begins[s] < np.inf else f"{s} nowhere" for s in systems)
            + " (first mean with less than 90 %)",
            reading=kind,
        )


class Fig18(_OverJitter):
    """BBRv2+ as well."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.3, for every form, spread and order."""
        for kind in made.each("jitter"):
            means, cubic = made.column("goodput_mbps", "mean_ms", system=CUBIC, jitter=kind)
            old = made.column("goodput_mbps", "mean_ms", system=BBR2, jitter=kind)[1]
            for plus in FORMS:
                if plus not in set(made.runs.system):
                    continue
                here = made.column("goodput_mbps", "mean_ms", system=plus, jitter=kind)[1]
                flight = made.column("in_flight", "mean_ms", system=plus, jitter=kind)[1]
                yield Stated(
                    "18",
                    "BBRv2+ does not degrade as jitter grows, and is slightly below CUBIC",
                    "no degradation, slightly below CUBIC",
                ).judged(
                    {
                        "at least 80 % of its throughput without jitter": (here >= 0.8 * here[0]).all(),
                        "more than BBRv2 at the highest": here[-1] > old[-1],
                        "0 to 20 % below CUBIC at the highest": 0.8 * cubic[-1] <= here[-1] <= cubic[-1],
                        "more in flight at the highest than without jitter": flight[-1] > flight[0],
                    },
                    f"{listed(here, '{:.1f}')}, CUBIC {listed(cubic, '{:.1f}')}, BBRv2 "
                    f"{listed(old, '{:.1f}')} Mbit/s at {listed(means, '{:g}')} ms",
                    reading=f"{plus}; {kind}",
                )


class Compensation(_OverJitter):
    """BBR and BBRv2 with and without the compensation of section 4.4."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Sections 1 and 4.4: it "can also be applied to BBR and BBRv2"."""
        for kind in made.each("jitter"):
            for plain, with_it in ((BBR, BBR_COMP), (BBR2, BBR2_COMP)):
                means, before = made.column("goodput_mbps", "mean_ms", system=plain, jitter=kind)
                after = made.column("goodput_mbps", "mean_ms", system=with_it, jitter=kind)[1]
                flights = [made.column("in_flight", "mean_ms", system=s, jitter=kind)[1] for s in (plain, with_it)]
                high = means >= 2 * RTT_MS
                yield Stated(
                    "4.4",
                    "compensation of the BDP helps BBR and BBRv2 as well against high jitter",
                    "mitigates the underestimation",
                ).judged(
                    {
                        "a tenth more throughput wherever the mean is two RTTs and more": (
                            after[high] >= 1.1 * before[high]
                        ).all(),
                        "by more in flight": (flights[1][high] > flights[0][high]).all(),
                        "no other throughput without jitter": abs(after[0] / before[0] - 1) <= 0.02,
                    },
                    f"{listed(after, '{:.3g}')} for {listed(before, '{:.3g}')} Mbit/s at {listed(means, '{:g}')} ms",
                    reading=kind,
                    part=plain,
                )


_FULL = {
    "spreads": tuple(SPREADS),
    "orders": tuple(ORDERS),
    "means_ms": (0, 10, 20, 40, 60, 80, 120),
    "seeds": SEEDS[:3],
    "duration": "120s",
}
_QUICK = {"spreads": ("sd = mean",), "means_ms": (0, 40, 120), "seeds": (1,), "duration": "5s"}
_BY = ("system", "jitter", "mean_ms")
FIGURES = [
    Fig12("12", "jitter: CUBIC, BBR and BBRv2", _FULL | {"systems": (CUBIC, BBR, BBR2)}, _QUICK, _BY),
    Compensation("4.4", "jitter: BBR and BBRv2 with their BDP compensated",
                 _FULL | {"systems": (BBR, BBR_COMP, BBR2, BBR2_COMP), "spreads": ("sd = mean",)}, _QUICK, _BY),
    Fig18("18", "jitter: BBRv2+", _FULL | {"systems": (CUBIC, BBR, BBR2, *FORMS)}, _QUICK, _BY),
]  # fmt: skip
