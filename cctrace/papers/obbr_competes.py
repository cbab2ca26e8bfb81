"""oBBR, Fig. 12: two flows, one of oBBR or BBR and one of another controller.

Section 5.2.4: {40 Mbit/s, 100 ms}, R 0.5 and 1. Both flows end "once the 1 GB data file has been fully delivered": when
the faster of them has fetched the file. (When both together have delivered 1 GB, the shares are nearly the same.)
"""

import itertools
from collections.abc import Iterator

import pandas as pd

from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.runs import Result, Run
from cctrace.units import format_percent


class Fig12(ob.Bi23):
    """One flow of oBBR, or BBR, against one of another controller."""

    varied = {"ratio": "ratios", "system": "systems", "rival": "rivals", "client": "clients"}
    drawn = drawing("bars", "pair", "share", "system", ylabel="share of the goodput")

    def run(self, at: Fields, p: Fields) -> Run:
        """Two flows, until one has its file."""
        client = ob.acks(at["client"], 100)
        path = ob.link(40, 100, at["ratio"] * ob.bdp_bytes(40, 100), client=at["client"])
        return ob.run_of([at["system"], at["rival"]], path, at["seed"], p["longest_s"], client, until=p["size"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Goodput of both, and the first one's share."""
        mine, other = (flow["goodput_bps"] / 1e6 for flow in result["flows"])
        return {"goodput_mbps": mine, "rival_mbps": other, "share": mine / (mine + other), "seconds": result["seconds"]}

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.4."""
        for form, ending in ob.FORMS.items():
            yield from _competes(made, form, ending)

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Shares by rival and R, of the first client."""
        table = made.rows(client=made.table.client.iloc[0])
        return table.assign(pair="vs " + table.rival + ", R " + table.ratio.map("{:g}".format))


def _competes(made: Reproduction, form: str, ending: str) -> Iterator[Claim]:
    """The claims of section 5.2.4 for one form."""

    def shares(systems: list[str], rival: str, ratio: float) -> list[float]:
        known = made.means("share", "system", rival=rival, ratio=ratio)
        return [known.get(system, float("nan")) for system in systems]

    names = ob.obbrs(ending)
    low, high = (shares(names, ob.BBR, ratio) for ratio in (0.5, 1.0))
    cubic, second = ({ratio: shares(names, rival, ratio) for ratio in (0.5, 1.0)} for rival in (ob.CUBIC, ob.BBR2))
    (plain,) = shares([ob.BBR], ob.CUBIC, 0.5)
    yield Stated(
        "12", "against BBR in 0.5 BDP oBBR hardly gains bandwidth; a larger mu helps", "33 % with mu 1"
    ).judged(
        {"all below half": max(low) < 0.5, "most with mu 1": low[2] == max(low)},
        f"{_percent(low, 1)} % at mu 0.5/0.75/1",
        {"% with mu 1": (33.0, 100 * low[2])},
        reading=form,
    )
    yield Stated("12", "in 1 BDP even mu 0.5 takes 40.5 % beside BBR", "40.5 %").judged(
        {"more than in 0.5 BDP": high[0] > low[0]},
        f"{_percent(high, 1)} % at mu 0.5/0.75/1",
        {"%": (40.5, 100 * high[0])},
        reading=form,
    )
    yield Stated(
        "12",
        "against CUBIC oBBR has more than half, but leaves it more than BBR does in 0.5 BDP",
        "BBR takes almost all; CUBIC up to 46.6 % in 1 BDP",
    ).judged(
        {
            "more than half in 0.5 BDP": min(cubic[0.5]) > 0.5,
            "less than BBR takes": max(cubic[0.5]) < plain,
            "BBR takes almost all": plain >= 0.9,
        },
        f"{_percent(cubic[0.5])} % (BBR {100 * plain:.0f}) in 0.5 BDP, {_percent(cubic[1.0])} % in 1 BDP",
        {"most of CUBIC in 1 BDP (%)": (46.6, 100 * (1 - min(cubic[1.0])))},
        reading=form,
    )
    yield Stated(
        "12",
        "against BBRv2 it is similar in 0.5 BDP; BBRv2 takes more in 1 BDP",
        "as CUBIC, then more bandwidth for BBRv2",
    ).judged(
        {
            "more than half in 0.5 BDP": min(second[0.5]) > 0.5,
            "BBRv2 has more in 1 BDP than in 0.5": sum(second[1.0]) < sum(second[0.5]),
            "and more than CUBIC there": sum(second[1.0]) < sum(cubic[1.0]),
        },
        f"{_percent(second[0.5])} % in 0.5 BDP, {_percent(second[1.0])} % in 1 BDP",
        reading=form,
    )


def _percent(shares: list[float], digits: int = 0) -> str:
    return listed([100 * share for share in shares], f"{{:.{digits}f}}")


class LargestCap(ob.Bi23):
    """oBBR against CUBIC in a deep buffer, g_max varied, and BBR; the text does not say with which mu."""

    varied = {"form": "forms", "mu": "mus", "g_max": "gains", "client": "clients"}
    drawn = drawing(
        "lines", "g_max", [("share", "share of the goodput")], "line", panel_by="form", xlabel="g_max (released: 2.05)"
    )

    def run(self, at: Fields, p: Fields) -> Run:
        """Two flows over Fig. 3's link, R 16; g_max 0 is BBR."""
        cc = ob.SYSTEMS[ob.obbr(at["mu"], ob.FORMS[at["form"]])]
        system = f"{cc},g_max={at['g_max']:g}" if at["g_max"] else ob.BBR
        path = ob.link(20, 40, 16 * ob.bdp_bytes(20, 40), client=at["client"])
        return ob.run_of([system, ob.CUBIC], path, at["seed"], p["duration_s"], ob.acks(at["client"], 40))

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The first flow's share."""
        mine, other = (flow["goodput_bps"] for flow in result["flows"])
        return {"share": mine / (mine + other)}

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 4.3."""
        for form, mu in itertools.product(made.each("form"), made.each("mu")):
            gains, got = made.column("share", "g_max", form=form, mu=mu)
            bbr, at = got[0], dict(zip(gains, got, strict=True))
            yield Stated(
                "4.3",
                "in a deep buffer g_max sets how strongly oBBR competes; with 2 it behaves as BBR",
                "smaller weakens, greater strengthens",
            ).judged(
                {"a larger g_max takes more": (got[2:] > got[1:-1]).all()},
                f"{_percent(list(got[1:]))} % beside CUBIC at {listed(gains[1:], '{:g}')}, BBR {format_percent(bbr)}",
                {"share with g_max 2": (bbr, at[2.0])},
                reading=f"{form}; mu {mu:g}",
            )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A line per mu, a panel per form, of the first client."""
        table = made.rows(client=made.table.client.iloc[0]).query("g_max > 0")
        return table.assign(line="mu " + table.mu.map("{:g}".format))


FIGURES = [
    Fig12("12", "oBBR against others",
          {"systems": (ob.BBR, *ob.OBBRS), "rivals": (ob.BBR, ob.CUBIC, ob.BBR2), "ratios": (0.5, 1.0),
           "clients": ob.CLIENTS, "seeds": ob.OF_LAB, "size": "1GB", "longest_s": 500.0},
          {"seeds": (1,), "longest_s": 20.0, "clients": ob.CLIENTS[:1]}),
    LargestCap("4.3", "the largest cap, g_max, beside CUBIC in 16 BDP",
               {"forms": tuple(ob.FORMS), "mus": ob.MUS, "gains": (0.0, 1.5, 2.0, 3.0), "clients": ob.CLIENTS,
                "seeds": (1, 2, 3, 4, 5), "duration_s": 480.0},
               {"mus": ob.MUS[:1], "seeds": (1,), "duration_s": 40.0, "clients": ob.CLIENTS[:1]}),
]  # fmt: skip
