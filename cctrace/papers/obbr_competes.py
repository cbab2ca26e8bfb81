"""oBBR, Fig. 12: two flows, one of oBBR or BBR and one of another controller.

Section 5.2.4: {40 Mbit/s, 100 ms}, R 0.5 and 1. Both flows end "once the 1 GB data file has been fully delivered": by
the faster of them, each of which fetches the file, or by both together, which takes as long as the link needs for it.
"""

from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.obbr import (
    BBR,
    BBR2,
    CUBIC,
    FORMS,
    GIGABYTE_MBIT,
    MUS,
    PAPER,
    PAYLOAD,
    SEEDS,
    bdp_bytes,
    link,
    listed,
    obbr,
    run_of,
)


class Fig12(Figure):
    """One flow of oBBR, or BBR, against one of another controller."""

    def runs(self, p):
        """One run per pair, R, reading of the session's end and seed."""
        out = []
        for ratio in p["ratios"]:
            path = link(40, 100, ratio * bdp_bytes(40, 100))
            for system in p["systems"]:
                for rival in p["rivals"]:
                    for reading, (longest_s, size) in p["sessions"].items():
                        for seed in p["seeds"]:
                            labels = {
                                "system": system,
                                "rival": rival,
                                "ratio": ratio,
                                "session": reading,
                                "seed": seed,
                            }
                            out.append((labels, run_of([system, rival], path, seed, longest_s, until=size)))
        return out

    def row(self, labels, result, p):
        """Goodput of both, and the first one's share."""
        mine, other = (flow["goodput_bps"] / 1e6 for flow in result["flows"])
        return {"mbps": mine, "rival_mbps": other, "share": mine / (mine + other), "seconds": result["seconds"]}

    def claims(self, made):
        """Section 5.2.4."""
        out = []
        for reading in dict.fromkeys(made.table.session):
            for form, ending in FORMS.items():
                out += _competes(made, reading, form, ending)
        return out

    def plot(self, made):
        """Shares, a panel per R; the rivals are the lines."""
        from cctrace.plot import bars

        table = made.table[made.table.session == made.table.session.iloc[0]]
        table = table.assign(pair="vs " + table.rival + ", R " + table.ratio.map("{:g}".format))
        title = f"oBBR, Fig. 12: {self.title} ({made.table.session.iloc[0]})"
        return bars(table, "pair", "share", "system", title=title, ylabel="share of the goodput")


def _competes(made, reading, form, ending):
    """The claims of section 5.2.4 for one form and one reading."""

    def share(system, rival, ratio):
        return made.value("share", system=system, rival=rival, ratio=ratio, session=reading)

    names = [obbr(mu, ending) for mu in MUS]
    low, high, of = [share(s, BBR, 0.5) for s in names], [share(s, BBR, 1.0) for s in names], f"({form}; {reading})"
    cubic = {r: [share(s, CUBIC, r) for s in names] for r in (0.5, 1.0)}
    second = {r: [share(s, BBR2, r) for s in names] for r in (0.5, 1.0)}
    plain = share(BBR, CUBIC, 0.5)
    return [
        judge(
            "12",
            f"against BBR in 0.5 BDP oBBR hardly gains bandwidth; a larger mu helps {of}",
            {
                "all below 45 %": max(low) < 0.45,
                "most with mu 1": low[2] == max(low),
                "mu 1: 20 to 45 %": 0.2 <= low[2] <= 0.45,
            },
            paper="33 % with mu 1",
            here=f"{listed([100 * x for x in low], '{:.1f}')} % at mu 0.5/0.75/1",
            numbers=(33.0, 100 * low[2]),
        ),
        judge(
            "12",
            f"in 1 BDP even mu 0.5 takes 40.5 % beside BBR {of}",
            {"at least 30 %": high[0] >= 0.3, "more than in 0.5 BDP": high[0] > low[0]},
            paper="40.5 %",
            here=f"{listed([100 * x for x in high], '{:.1f}')} % at mu 0.5/0.75/1",
            numbers=(40.5, 100 * high[0]),
            mechanism="each loss sets oBBR's g by what the RTT shows; BBR answers no loss",
        ),
        judge(
            "12",
            f"against CUBIC oBBR has more than half, but leaves it more than BBR does in 0.5 BDP {of}",
            {
                "more than half in 0.5 BDP": min(cubic[0.5]) > 0.5,
                "less than BBR takes": max(cubic[0.5]) < plain,
                "CUBIC has 35 to 60 % somewhere in 1 BDP": 0.35 <= 1 - min(cubic[1.0]) <= 0.6,
            },
            paper="BBR takes almost all; CUBIC up to 46.6 % in 1 BDP",
            here=f"{listed([100 * x for x in cubic[0.5]], '{:.0f}')} % (BBR {100 * plain:.0f}) in 0.5 BDP, "
            f"{listed([100 * x for x in cubic[1.0]], '{:.0f}')} % in 1 BDP",
            numbers=(46.6, 100 * (1 - min(cubic[1.0]))),
        ),
        judge(
            "12",
            f"against BBRv2 it is similar in 0.5 BDP; BBRv2 takes more in 1 BDP {of}",
            {
                "more than half in 0.5 BDP": min(second[0.5]) > 0.5,
                "BBRv2 has more in 1 BDP than in 0.5": sum(second[1.0]) < sum(second[0.5]),
                "and more than CUBIC there": sum(second[1.0]) < sum(cubic[1.0]),
            },
            paper="as CUBIC, then more bandwidth for BBRv2",
            here=f"{listed([100 * x for x in second[0.5]], '{:.0f}')} % in 0.5 BDP, "
            f"{listed([100 * x for x in second[1.0]], '{:.0f}')} % in 1 BDP",
        ),
    ]


_OBBR = tuple(obbr(mu, ending) for ending in ("", PAPER) for mu in MUS)
_WHOLE_S = GIGABYTE_MBIT / 40 / PAYLOAD  # for 1 GB over the link
_SESSIONS = {"1 GB by the faster": (2.5 * _WHOLE_S, "1GB"), "1 GB in all": (_WHOLE_S, None)}
FIGURES = [
    Fig12(
        "12",
        "oBBR against others",
        {
            "systems": (BBR, *_OBBR),
            "rivals": (BBR, CUBIC, BBR2),
            "ratios": (0.5, 1.0),
            "sessions": _SESSIONS,
            "seeds": SEEDS,
        },
        {"sessions": {"20 s": (20.0, None)}, "seeds": (1,)},
        ("system", "rival", "ratio", "session"),
    ),
]
