"""oBBR, Fig. 8: one to five flows of one kind over a constant link.

Section 5.2: {100 Mbit/s, 40 ms}, R (buffer over BDP) 0.5. Runs are as long as the link needs for 1 GB for each flow.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.analytic.metrics import jain
from cctrace.papers.claims import Claim, by_name, judge, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.obbr import (
    B3R,
    BBR,
    BBR_S,
    CLIENTS,
    FORMS,
    GIGABYTE_MBIT,
    PAYLOAD,
    SEEDS,
    SYSTEMS,
    Bi23,
    acks,
    again_pct,
    bdp_bytes,
    by_client,
    by_form,
    complete,
    link,
    obbr,
    run_of,
)
from cctrace.papers.runs import Result, Run


class Fig8(Bi23):
    """One to five flows of the same controller."""

    varied = {"system": "systems", "flows": "flows", "client": "clients"}
    drawn = drawing(
        "lines",
        "flows",
        [
            ("retransmitted_pct", "retransmitted (%)"),
            ("goodput_mbps", "goodput per flow (Mbit/s)"),
            ("jain", "Jain's index"),
        ],
        "system",
        panel_by="form",
        xlabel="flows",
    )

    def run(self, at: Fields, p: Fields) -> Run:
        """Some flows of one system."""
        number = at["flows"]
        seconds = p["duration_s"] or number * GIGABYTE_MBIT / 100
        return run_of(
            [at["system"]] * number,
            link(100, 40, 0.5 * bdp_bytes(100, 40)),
            at["seed"],
            seconds,
            acks(at["client"], 40),
        )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A panel each for release and paper form, first client."""
        return by_form(made.rows(client=made.table.client.iloc[0]))

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Retransmitted share and goodput per flow, and Jain's index."""
        flows = result["flows"]
        rates = [flow["goodput_bps"] / 1e6 for flow in flows]
        return {
            "retransmitted_pct": again_pct(flows),
            "goodput_mbps": sum(rates) / len(rates),
            "least_mbps": min(rates),
            "most_mbps": max(rates),
            "used": sum(rates) / 100 / PAYLOAD,
            "jain": float(jain(rates)),
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.1, multiple flows, client by client; none unless all systems were run."""
        if complete(made):
            yield from by_client(made, self._of_client)

    def _of_client(self, made: Reproduction) -> Iterator[Claim]:
        numbers = sorted(made.table.flows.unique())
        curve = {s: made.column("retransmitted_pct", "flows", system=s)[1] for s in made.each("system")}
        yield judge(
            "8",
            "BBR retransmits most, whatever the number of flows; more with two or three than with one",
            {
                "most in the mean": all(curve[BBR].mean() >= c.mean() for c in curve.values()),
                "more with several than with one": curve[BBR][1:].max() > curve[BBR][0],
            },
            paper="8.41 % (1 flow) to 15.25 % (3 flows)",
            here=f"{listed(curve[BBR])} % with {listed(numbers, '{:g}')} flows",
            sizes={
                f"{n:g} flows": (pct, here)
                for n, here in zip(numbers, curve[BBR], strict=True)
                if (pct := {1: 8.41, 3: 15.25}.get(n)) is not None
            },
        )
        if {3, 4, 5} <= set(numbers):
            rows = [numbers.index(n) for n in (3, 4, 5)]
            yield judge(
                "8",
                "with four and five flows the overestimation is alleviated",
                {s: max(curve[s][rows[1:]]) < curve[s][rows[0]] for s in (BBR, B3R, BBR_S)},
                paper="less than with three",
                here="; ".join(f"{s} {listed(curve[s][rows])}" for s in (BBR, B3R, BBR_S)) + " % with 3, 4 and 5 flows",
            )
        for form, ending in FORMS.items():
            for mu, most, at in ((0.5, 0.52, 2), (0.75, 0.99, 3), (1.0, 7.59, 3)):
                got = curve[obbr(mu, ending)]
                yield judge(
                    "8",
                    f"oBBR-{mu:g} retransmits at most {most:g} %",
                    {"less than BBR": (got < curve[BBR]).all()},
                    paper=f"at most {most:g} % ({at} flows)",
                    here=f"{listed(got)} %",
                    sizes={"most": (most, got.max())},
                    reading=form,
                )
        yield _fair(made)


def _fair(made: Reproduction) -> Claim:
    table = made.table
    worst = {system: made.rows(system=system).jain.min() for system in made.each("system")}
    row = table.iloc[int(np.argmin(table.jain))]
    return judge(
        "8",
        "all use the link and share it fairly",
        {
            "Jain's index at least 0.9 everywhere": table.jain.min() >= 0.9,
            "90 % used everywhere": table.used.min() >= 0.9,
        },
        paper="effectively and fairly",
        here=f"least index {by_name(worst, '{:.2f}')}"
        f"; least used {table.used.min():.0%}; worst {row.system} with {row.flows} flows: {row.least_mbps:.0f} to "
        f"{row.most_mbps:.0f} Mbit/s",
    )


FIGURES = [
    Fig8(
        "8",
        "one to five flows of one controller",
        {"systems": tuple(SYSTEMS), "flows": (1, 2, 3, 4, 5), "clients": CLIENTS, "seeds": SEEDS, "duration_s": None},
        {"flows": (1, 3), "seeds": (1,), "duration_s": 10},
    ),
]
