"""oBBR, Fig. 8: one to five flows of one kind over a constant link.

Section 5.2: {100 Mbit/s, 40 ms}, R (buffer over BDP) 0.5. Each flow fetches 1 GB; its goodput is that of its session,
which ends before those of slower flows do.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.analytic.metrics import jain
from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, by_name, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.obbr_stable import fewer_losses
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import QUIC_MSS_BYTES

MBPS, RTT_MS = 100, 40
LONGER = 1.5  # than the link needs for all files: no run is cut off


class Fig8(ob.Bi23):
    """One to five flows of the same controller."""

    compares = True
    varied = {"system": "systems", "flows": "flows", "client": "clients"}
    drawn = drawing("lines", "flows",
                    [("retransmitted_pct", "retransmitted (%)"), ("goodput_mbps", "goodput per flow (Mbit/s)"),
                     ("jain", "Jain's index")], "system", panel_by="form", xlabel="flows")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """Some flows of one system, each until it has its file."""
        seconds = LONGER * at["flows"] * _least_s(p)
        path = ob.link(MBPS, RTT_MS, 0.5 * ob.bdp_bytes(MBPS, RTT_MS), client=at["client"])
        client = ob.acks(at["client"], RTT_MS) | {"app": f"bulk:size={p['size_mb']}MB"}
        samples = {"sample": "500ms", "keep": ["time_s", "delivered_segments"]}
        return ob.run_of([at["system"]] * at["flows"], path, at["seed"], seconds, client, **samples)

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A panel each for release and paper form, first client."""
        return ob.by_form(made.rows(client=made.table.client.iloc[0]))

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Retransmitted share and goodput per flow, and Jain's index."""
        ends = [_end_s(line, p["size_mb"]) for line in result["timeline"]]
        rates = [p["size_mb"] * 8 / end for end in ends]
        return {
            "retransmitted_pct": ob.retransmitted_pct(result["flows"]),
            "goodput_mbps": sum(rates) / len(rates),
            "least_mbps": min(rates),
            "most_mbps": max(rates),
            "used": len(rates) * _least_s(p) / max(ends),
            "jain": float(jain(rates)),
        }

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.1, multiple flows."""
        numbers = sorted(made.table.flows.unique())
        curve = {s: made.column("retransmitted_pct", "flows", system=s)[1] for s in made.each("system")}
        yield Stated(
            "8",
            "BBR retransmits most, whatever the number of flows; more with two or three than with one",
            "8.41 % (1 flow) to 15.25 % (3 flows)",
        ).judged(
            {
                "most in the mean": all(curve[ob.BBR].mean() >= c.mean() for c in curve.values()),
                "more with several than with one": curve[ob.BBR][1:].max() > curve[ob.BBR][0],
            },
            f"{listed(curve[ob.BBR])} % with {listed(numbers, '{:g}')} flows",
            {
                f"{n:g} flows": (pct, here)
                for n, here in zip(numbers, curve[ob.BBR], strict=True)
                if (pct := {1: 8.41, 3: 15.25}.get(n)) is not None
            },
        )
        if {3, 4, 5} <= set(numbers):
            rows = [numbers.index(n) for n in (3, 4, 5)]
            yield Stated(
                "8", "with four and five flows the overestimation is alleviated", "less than with three"
            ).judged(
                {s: max(curve[s][rows[1:]]) < curve[s][rows[0]] for s in (ob.BBR, ob.B3R, ob.BBR_S)},
                "; ".join(f"{s} {listed(curve[s][rows])}" for s in (ob.BBR, ob.B3R, ob.BBR_S))
                + " % with 3, 4 and 5 flows",
            )
        for form, ending in ob.FORMS.items():
            for mu, most, at in ((0.5, 0.52, 2), (0.75, 0.99, 3), (1.0, 7.59, 3)):
                got = curve[ob.obbr(mu, ending)]
                yield Stated(
                    "8", f"oBBR-{mu:g} retransmits at most {most:g} %", f"at most {most:g} % ({at} flows)"
                ).judged(
                    {"less than BBR": (got < curve[ob.BBR]).all()},
                    f"{listed(got)} %",
                    {"most": (most, got.max())},
                    reading=form,
                )
        for form, ending in ob.FORMS.items():
            yield fewer_losses(
                curve[ob.BBR], [curve[ob.obbr(mu, ending)] for mu in ob.MUS], f"one to five flows; {form}"
            )
        for form, ending in ob.FORMS.items():
            yield _fair(made, form, [ob.BBR, ob.BBR2, ob.CUBIC, ob.BBR_S + ending, ob.B3R + ending, *ob.obbrs(ending)])


def _least_s(p: Fields) -> float:
    """Return how long the link needs for one file."""
    return p["size_mb"] * 8 / (MBPS * ob.PAYLOAD)


def _end_s(line: Fields, size_mb: float) -> float:
    """Return when a flow has its file; infinite if it never has."""
    got, size = np.array(line["delivered_segments"]), -(-size_mb * 1e6 // QUIC_MSS_BYTES)
    done = int(np.searchsorted(got, size))
    return float(np.interp(size, got[: done + 1], line["time_s"][: done + 1])) if done < len(got) else float("inf")


def _fair(made: Reproduction, form: str, systems: list[str]) -> Claim:
    table = made.table[made.table.system.isin(systems)]
    worst = {system: made.rows(system=system).jain.min() for system in systems}
    row = table.iloc[int(np.argmin(table.jain))]
    return Stated("8", "all use the link and share it fairly", "effectively and fairly").judged(
        {
            "Jain's index at least 0.9 everywhere": table.jain.min() >= 0.9,
            "90 % used everywhere": table.used.min() >= 0.9,
        },
        f"least index {by_name(worst, '{:.2f}')}"
        f"; least used {table.used.min():.0%}; worst {row.system} with {row.flows} flows: {row.least_mbps:.0f} to "
        f"{row.most_mbps:.0f} Mbit/s",
        reading=form,
    )


FIGURES = [
    Fig8("8", "one to five flows of one controller",
         {"systems": tuple(ob.SYSTEMS), "flows": (1, 2, 3, 4, 5), "clients": ob.CLIENTS[:3], "seeds": (1,),
          "size_mb": 1000},
         {"flows": (1, 3), "size_mb": 50, "clients": ob.CLIENTS[:1]}),
]  # fmt: skip
