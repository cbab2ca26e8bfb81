"""oBBR, Fig. 7: one flow over a constant link.

Section 5.2: {100 Mbit/s, 40 ms} and {40 Mbit/s, 100 ms}, R (buffer over BDP) 0.25, without random losses, and
with 1 % on the former and 2 % on the latter, as the artifact's `fig7.sh` has them; {60 Mbit/s, 60 ms}, R 0.2, 0.4 and
0.6. A run ends when 1 GB is delivered, or after 300 s, as the artifact's `fig7.sh` has it: over random losses BBRv2 and
CUBIC do not get that far, and what STARTUP delivered is a part of their goodput.
"""

import textwrap
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.runs import Result, Run

LOSSY = ((100, 40, 0.25, 0.0), (100, 40, 0.25, 1.0), (40, 100, 0.25, 0.0), (40, 100, 0.25, 2.0))
SHALLOW = tuple((60, 60, ratio, 0.0) for ratio in (0.2, 0.4, 0.6))


def scenario(mbps: float, rtt_ms: float, ratio: float, loss_pct: float) -> str:
    """Name a scenario of Fig. 7."""
    return f"{mbps} Mbit/s, {rtt_ms} ms, R {ratio:g}" + (f", loss {loss_pct:g} %" if loss_pct else "")


SCENARIOS = {scenario(*one): one for one in LOSSY + SHALLOW}


class Fig7(ob.Bi23):
    """Retransmissions and goodput of one flow."""

    compares = True
    varied = {"system": "systems", "client": "clients", "scenario": "scenarios"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow, until its file is delivered, or for `longest_s`."""
        mbps, rtt, ratio, loss = SCENARIOS[at["scenario"]]
        client = ob.acks(at["client"], rtt)
        path = ob.link(mbps, rtt, ratio * ob.bdp_bytes(mbps, rtt), loss, at["client"])
        watched = {"sample": "2s", "keep": ["time_s", "sent_segments", "retransmitted_segments"]}
        return ob.run_of([at["system"]], path, at["seed"], p["longest_s"], client, **watched, until="1GB")

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Retransmitted share, in the run and in its last two thirds, and goodput as a share of the link."""
        flow = result["flows"][0]
        return {
            **ob.measures(flow, "retransmitted_pct", "goodput_mbps"),
            "tail_retransmitted_pct": _tail_pct(result["timeline"][0], flow, result["seconds"]),
            "seconds": result["seconds"],
            "goodput_share": flow["goodput_bps"] / 1e6 / SCENARIOS[labels["scenario"]][0],
        }

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.1, single flow."""
        there = set(made.table.scenario)
        lossy = [s for s in (scenario(*one) for one in LOSSY) if s in there]
        shallow = [s for s in (scenario(*one) for one in SHALLOW) if s in there]
        yield _bbr_most(made, lossy)
        yield from _vulnerable(made, there)
        for form, ending in ob.FORMS.items():
            yield from _obbr_of_form(made, form, ending, lossy, there)
            yield from _others_of_form(made, form, ending, lossy)
        if len(shallow) == len(SHALLOW):
            yield _falls_with_ratio(made, shallow)
        yield from _headlines(made, lossy, shallow)

    drawn = drawing("lines", "at", [("retransmitted_pct", "retransmitted (%)"), ("goodput_share", "goodput / link")],
                    "system", panel_by="form", xlabel="scenario")  # fmt: skip

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The table with numbers for the scenarios, first client."""
        return ob.by_form(
            made.rows(client=made.table.client.iloc[0]).assign(
                at=made.table.scenario.map(made.each("scenario").index) + 1
            )
        )

    def heading(self, made: Reproduction) -> str:
        """Return the title, with the names of the scenarios."""
        key = "; ".join(f"{k}: {name}" for k, name in enumerate(made.each("scenario"), 1))
        return "\n".join(textwrap.wrap(f"oBBR, Fig. 7. {key}", 75))


def _tail_pct(line: Fields, flow: Fields, seconds: float) -> float:
    """Return the percentage retransmitted after the first third of a run."""
    first = bisect_left(line["time_s"], seconds / 3)
    if first == len(line["time_s"]):
        return 0.0
    return ob.retransmitted_pct([{n: flow[n] - line[f"{n}_segments"][first] for n in ("sent", "retransmitted")}])


def _mean(made: Reproduction, column: str, system: str, scenarios: list[str]) -> float:
    rows = made.rows(system=system)
    return float(rows[rows.scenario.isin(scenarios)][column].mean())


def _bbr_most(made: Reproduction, lossy: list[str]) -> Claim:
    means = {system: _mean(made, "retransmitted_pct", system, lossy) for system in made.each("system")}
    others = {system: mean for system, mean in means.items() if system != ob.BBR}
    most = max(others, key=lambda system: others[system])
    worst = made.table[(made.table.system == ob.BBR) & made.table.scenario.isin(lossy)].goodput_share.min()
    return Stated("7", "BBR keeps its goodput in all cases, and retransmits most", "17.42 % on average").judged(
        {
            "80 % of the link everywhere": worst >= 0.8,
            "more than all others (mean over losses and both paths)": means[ob.BBR] > others[most],
        },
        f"{means[ob.BBR]:.2f} %, goodput at least {worst:.0%} of the link; most of the others {most} with "
        f"{others[most]:.2f} %",
        {"%": (17.42, means[ob.BBR])},
    )


def _vulnerable(made: Reproduction, there: set[str]) -> Iterator[Claim]:
    """CUBIC and BBRv2 against random losses."""
    for system, wanted in ((ob.BBR2, (76, 94)), (ob.CUBIC, (94, 96))):
        for loss, paper in zip((1.0, 2.0), wanted, strict=True):
            ((mbps, rtt, ratio),) = (one[:3] for one in LOSSY if one[3] == loss)
            clean, lossy = (scenario(mbps, rtt, ratio, x) for x in (0.0, loss))
            if {clean, lossy} <= there:
                most = made.value("goodput_mbps", system=system, scenario=clean)
                less = 100 * (1 - made.value("goodput_mbps", system=system, scenario=lossy) / most)
                yield Stated(
                    "7", f"{system} loses most of its goodput to 1 and 2 % of random loss", f"{paper} % less"
                ).judged(
                    {"more than half": less > 50}, f"{less:.0f} % less", {"% less": (paper, less)}, part=f"{loss:g} %"
                )


def _obbr_of_form(made: Reproduction, form: str, ending: str, lossy: list[str], there: set[str]) -> Iterator[Claim]:
    """Goodput of oBBR, and its retransmissions where the text has numbers."""
    names = ob.obbrs(ending)
    rows = made.table[made.table.system.isin(names) & made.table.scenario.isin(lossy)]
    least = 100 * rows.goodput_share.min()
    yield Stated("7", "oBBR keeps its goodput in all cases", "at least 82.76 %").judged(
        {"most of the link": least > 50}, f"at least {least:.1f} %", {"least (%)": (82.76, least)}, reading=form
    )
    for where, wanted in (
        ((40, 100, 0.25, 0.0), (0.51, 0.62, 1.97)),
        ((40, 100, 0.25, 2.0), (2.82, 3.06, 3.93)),
        ((60, 60, 0.2, 0.0), (1.54, 1.55, 3.10)),
        ((60, 60, 0.4, 0.0), (0.51, 0.61, 1.78)),
    ):
        name = scenario(*where)
        if name not in there:
            continue
        got = [made.value("retransmitted_pct", system=s, scenario=name) for s in names]
        tail = [made.value("tail_retransmitted_pct", system=s, scenario=name) for s in names]
        bbr = made.value("retransmitted_pct", system=ob.BBR, scenario=name)
        yield Stated(
            "7", f"oBBR retransmits little, more with a larger mu, at {name}", f"{listed(wanted)} % at mu 0.5/0.75/1"
        ).judged(
            {"mu 1 most": got[2] > max(got[:2])},
            f"{listed(got)} %, in the last two thirds {listed(tail)} %; BBR {bbr:.2f} %",
            {f"mu {mu:g}": (paper, ours) for mu, paper, ours in zip(ob.MUS, wanted, got, strict=True)},
            reading=form,
        )


def _others_of_form(made: Reproduction, form: str, ending: str, lossy: list[str]) -> Iterator[Claim]:
    """B3R and BBR-S compared with BBR and oBBR."""
    means = {s: _mean(made, "retransmitted_pct", s, lossy) for s in made.each("system")}
    bold, sampled, best = (means[ob.B3R + ending], means[ob.BBR_S + ending], max(means[s] for s in ob.obbrs(ending)))
    yield Stated("7", "B3R retransmits about as much as BBR", "similar").judged(
        {},
        f"{bold:.2f} against {means[ob.BBR]:.2f} % (mean over losses and both paths)",
        {"B3R for BBR": (means[ob.BBR], bold)},
        reading=form,
    )
    yield Stated("7", "BBR-S retransmits less than BBR and B3R, more than every oBBR", "between them").judged(
        {"less than BBR": sampled < means[ob.BBR], "less than B3R": sampled < bold, "more than oBBR": sampled > best},
        f"{sampled:.2f} %; BBR {means[ob.BBR]:.2f}, B3R {bold:.2f}, oBBR "
        f"{listed(means[s] for s in ob.obbrs(ending))} %",
        reading=form,
    )


def _falls_with_ratio(made: Reproduction, shallow: list[str]) -> Claim:
    conditions, texts = {}, []
    for system in (ob.BBR, ob.B3R, ob.BBR_S):
        got = [made.value("retransmitted_pct", system=system, scenario=s) for s in shallow]
        conditions[f"{system} falls"] = got[0] > got[1] > got[2]
        texts.append(f"{system} {listed(got)}")
    return Stated(
        "7", "BBR, B3R and BBR-S retransmit less the larger the buffer", "falling over R 0.2, 0.4, 0.6"
    ).judged(conditions, "; ".join(texts) + " %")


def _headlines(made: Reproduction, lossy: list[str], shallow: list[str]) -> Iterator[Claim]:
    """Section 1's two figures of a stable link."""
    for form, ending in ob.FORMS.items():
        names = ob.obbrs(ending)
        lost = {
            s: [made.value("retransmitted_pct", system=s, scenario=w) for w in (*lossy, *shallow)]
            for s in (ob.BBR, *names)
        }
        yield fewer_losses(lost[ob.BBR], [lost[s] for s in names], f"one flow; {form}")
        worst = [w for w in lossy if w.endswith("loss 2 %")]
        rate = {s: [made.value("goodput_mbps", system=s, scenario=w) for w in worst] for s in (ob.BBR2, *names)}
        more = max(
            (ours / two for s in names for ours, two in zip(rate[s], rate[ob.BBR2], strict=True)), default=np.nan
        )
        yield Stated("1", "with 2 % of losses oBBR has 14.65 times BBRv2's goodput", "14.65 times").judged(
            {"more": more > 1}, f"{more:.1f} times at most", {"times": (14.65, more)}, reading=form
        )


def fewer_losses(bbr: Iterable[float], ours: Iterable[Iterable[float]], reading: str) -> Claim:
    """Judge section 1's "up to 30 times" from shares retransmitted, setting by setting, of BBR and of each oBBR.

    It is the packet loss ratio that is 30 times less. The text does not say whether the link, "a stable network
    environment", is that of Fig. 7 or of Fig. 8.
    """
    fewer = max(
        ob.loss_ratio_pct(plain) / max(ob.loss_ratio_pct(mine), 1e-9)
        for each in ours
        for plain, mine in zip(bbr, each, strict=True)
    )
    return Stated("1", "oBBR loses up to 30 times less than BBR on a stable link", "30 times").judged(
        {"fewer": fewer > 1}, f"{fewer:.1f} times at most", {"times": (30.0, fewer)}, reading=reading
    )


FIGURES = [
    Fig7("7", "one flow on a stable link: retransmissions and goodput",
         {"systems": tuple(ob.SYSTEMS), "clients": ob.CLIENTS, "scenarios": tuple(SCENARIOS), "seeds": ob.OF_LAB,
          "longest_s": 300.0},
         {"scenarios": tuple(scenario(*one) for one in (*LOSSY[2:], SHALLOW[1])), "seeds": (1,),
          "clients": ob.CLIENTS[:1], "longest_s": 15.0}),
]  # fmt: skip
