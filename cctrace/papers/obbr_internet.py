"""oBBR, Figs. 13 and 14: over the Internet, from Virginia to Shandong, in bulk and as video.

Of the path the text says 270 ms on average and 80 Mbit/s of egress at the server; its losses, its buffer and what else
uses it are not known, and no run can be repeated. So the path is *chosen*: 270 ms, 80 Mbit/s, and 30 Mbit/s, for what
the fastest of the paper got, 27.17 Mbit/s and 6.58 % sent again, would fill that; R 0.25, as in Fig. 7; random losses
of 0, 0.1, 1 and 2 %. No tc, so no burst. What the paper says of its path is judged on each of these eight.

Bulk (section 5.2.5): 1 GB, or ten minutes of it. Video (section 5.3): ten minutes of ten bitrates, segments of 4 s,
constant in size; dash.js's rule that goes between throughput and buffer is Sabre's `dynamic` (`cctrace.streaming`).
Playback and length are compared without the startup.
"""

from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.measure_streaming import streamed
from cctrace.papers.obbr import (
    B3R,
    BBR,
    BBR2,
    BBR_S,
    CUBIC,
    FORMS,
    MUS,
    SEEDS,
    SYSTEMS,
    bdp_bytes,
    by_form,
    complete,
    listed,
    obbr,
    run_of,
)
from cctrace.papers.runs import Run

RTT_MS, RATIO = 270, 0.25
PATHS = tuple((mbps, loss) for mbps in (80, 30) for loss in (0.0, 0.1, 1.0, 2.0))


def chosen(mbps, loss_pct, ratio=RATIO):
    """Return the fields of `Path` of a chosen path.

    >>> chosen(80, 1.0)["rate"], chosen(80, 0.0)["loss"]
    ('80Mbit', '0%')
    """
    buffer = f"{round(ratio * bdp_bytes(mbps, RTT_MS))}B"
    return {"rate": f"{mbps}Mbit", "rtt": f"{RTT_MS}ms", "buffer": buffer, "loss": f"{loss_pct:g}%"}


def where(mbps, loss_pct):
    """Name a path."""
    return f"{mbps} Mbit/s, {loss_pct:g} %"


class OverPaths(Figure):
    """A figure of systems over the chosen paths."""

    def of(self, made, column, system):
        """Return {path: value} of a system."""
        rows = made.table[made.table.system == system]
        return dict(zip(rows.path, rows[column], strict=True))

    def labelled(self, p):
        """Yield (labels, path's fields, system, seed)."""
        for mbps, loss in p["paths"]:
            for system in p["systems"]:
                for seed in p["seeds"]:
                    labels = {"system": system, "path": where(mbps, loss), "mbps": mbps, "loss_pct": loss}
                    yield labels | {"seed": seed}, chosen(mbps, loss, p["ratio"]), system, seed

    def plot(self, made):
        """The measures over the losses, a panel per rate; lines by system, release and paper form apart."""
        from cctrace.plot import lines

        table = by_form(made.table)
        table = table.assign(panel=table.form + ", " + table.mbps.map("{:g} Mbit/s".format))
        title = f"oBBR, Fig. {self.name}: {self.title}"
        at = {"title": title, "xlabel": "random loss (%)"}
        return lines(table, "loss_pct", self.measures, "system", panel_by="panel", **at)


class Fig13(OverPaths):
    """Bulk: goodput and retransmissions."""

    measures = (("goodput_mbps", "goodput (Mbit/s)"), ("retransmitted_pct", "retransmitted (%)"))

    def runs(self, p):
        """One run per path, system and seed."""
        ends = {"until": p["size"]}
        return [
            (of, run_of([system], path, seed, p["longest_s"], **ends)) for of, path, system, seed in self.labelled(p)
        ]

    def row(self, labels, result, p):
        """Goodput and what was sent again."""
        flow = result["flows"][0]
        return {
            "goodput_mbps": flow["goodput_bps"] / 1e6,
            "retransmitted_pct": 100 * flow["retransmit_ratio"],
            "seconds": result["seconds"],
        }

    def claims(self, made):
        """Section 5.2.5; its arithmetic alone, unless all systems were run."""
        if not complete(made):
            return [_arithmetic()]
        goodput, again = ({s: self.of(made, c, s) for s in SYSTEMS} for c in ("goodput_mbps", "retransmitted_pct"))
        paths = list(goodput[BBR])
        out = [
            judge(
                "13",
                "CUBIC retransmits least and has the lowest goodput",
                {
                    f"{what} ({at})": holds
                    for at in paths
                    for what, holds in (
                        ("retransmits least", again[CUBIC][at] <= min(v[at] for v in again.values()) + 1e-9),
                        ("lowest goodput", goodput[CUBIC][at] <= min(v[at] for v in goodput.values()) + 1e-9),
                    )
                },
                paper="0.16 %, 6.30 Mbit/s",
                here=_over(paths, lambda at: f"{again[CUBIC][at]:.2f} %, {goodput[CUBIC][at]:.2f} Mbit/s"),
                mechanism="its goodput falls with random loss alone; it fills a path without losses",
            )
        ]
        out.append(_arithmetic())
        for form, ending in FORMS.items():
            names, rival = [obbr(mu, ending) for mu in MUS], BBR_S + ending
            out += [
                judge(
                    "13",
                    f"oBBR has a higher goodput than BBRv2 ({form})",
                    {at: max(goodput[s][at] for s in names) > goodput[BBR2][at] for at in paths},
                    paper="27.17 Mbit/s with mu 0.75 against 17.66: the text's 1.54 is the ratio",
                    here=_over(
                        paths,
                        lambda at, n=names: f"{listed([goodput[s][at] for s in n])} against {goodput[BBR2][at]:.2f}",
                    )
                    + " Mbit/s",
                ),
                judge(
                    "13",
                    f"oBBR retransmits less than BBR-S, at the same goodput or more ({form})",
                    {
                        f"{what} ({at})": holds
                        for at in paths
                        for what, holds in (
                            ("less", max(again[s][at] for s in names) < again[rival][at]),
                            ("goodput within a tenth", max(goodput[s][at] for s in names) >= 0.9 * goodput[rival][at]),
                        )
                    },
                    paper="6.30/6.58/6.85 against 10.41 %: 39.48, 36.79, 34.2 % less (the text: 36.11)",
                    here=_over(
                        paths,
                        lambda at, n=names, r=rival: f"{listed([again[s][at] for s in n])} against {again[r][at]:.2f}",
                    )
                    + " %",
                ),
                judge(
                    "13",
                    f"BBRv2 retransmits more than oBBR ({form})",
                    {at: again[BBR2][at] > max(again[s][at] for s in names) for at in paths},
                    paper='6.71 %, "higher than the oBBR schemes"; but oBBR-1 has 6.85',
                    here=_over(paths, lambda at: f"{again[BBR2][at]:.2f}") + " %",
                    mechanism="BBRv2 gives way to losses beyond 2 % a round; the paper's path is not known",
                ),
            ]
        return out


def _arithmetic():
    """The shares that section 5.2.5 derives from its own numbers."""
    said = {6.30: 39.48, 6.58: 36.79, 6.85: 36.11}
    less = {pct: 100 * (1 - pct / 10.41) for pct in said}
    return judge(
        "13",
        "6.30, 6.58 and 6.85 % are 39.48, 36.79 and 36.11 % less than BBR-S's 10.41 (the paper's own numbers)",
        {f"{pct} % is {share} % less": abs(less[pct] - share) < 0.05 for pct, share in said.items()},
        paper=f"{listed(said.values())} % less",
        here=f"{listed(less.values())} % less",
        numbers=(36.11, less[6.85]),
        mechanism="an error of arithmetic in the text",
    )


class Fig14(OverPaths):
    """Video: retransmissions, quality, switches, rebuffering."""

    measures = (
        ("retransmitted_pct", "retransmitted (%)"),
        ("quality", "average quality"),
        ("switches_down", "switches down"),
        ("rebuffering_pct", "rebuffering (%)"),
    )

    def runs(self, p):
        """One session per path, system and seed."""
        out = []
        for labels, path, system, seed in self.labelled(p):
            cc = SYSTEMS.get(system, system)
            arguments = {"path": path, "cc": cc, "seed": seed, "minutes": p["minutes"], "rule": p["rule"]}
            out.append((labels, Run(arguments, streamed, (cc,), ("streaming",))))
        return out

    def row(self, labels, result, p):
        """The metrics of section 5.3.2, and what was sent again."""
        return {
            "retransmitted_pct": 100 * result["retransmit_ratio"],
            "quality": result["average_quality"],
            "switches_down": result["switches_down"],
            "switches": result["switches"],
            "rebuffering_pct": 100 * result["rebuffering_ratio"],
            "stalls": result["stalls"],
            "startup_s": result["startup_s"],
            "abandoned": result["abandoned"],
            "lowest_share": sum(q == 0 for q in result["qualities"]) / len(result["qualities"]),
        }

    def claims(self, made):
        """Section 5.3.3; none unless all systems were run."""
        if not complete(made):
            return []
        read = {c: {s: self.of(made, c, s) for s in SYSTEMS} for c in made.table if c not in ("system", "path")}
        again, quality, stalled = (read[c] for c in ("retransmitted_pct", "quality", "rebuffering_pct"))
        paths = list(quality[BBR])
        out = [
            judge(
                "14",
                "CUBIC's client takes almost only the lowest quality, and so stalls less",
                {at: read["lowest_share"][CUBIC][at] >= 0.8 for at in paths},
                paper="almost the lowest",
                here=_over(paths, lambda at: f"{quality[CUBIC][at]:.2f}, {read['lowest_share'][CUBIC][at]:.0%} lowest"),
                mechanism="goodput falls with the random loss alone; without losses it has the best quality",
            )
        ]
        for form, ending in FORMS.items():
            names, most = [obbr(mu, ending) for mu in MUS], (BBR, B3R + ending)
            meek = (BBR_S + ending, BBR2, CUBIC)
            out += [
                judge(
                    "14",
                    f"BBR-S, BBRv2, CUBIC and oBBR retransmit much less than BBR and B3R ({form})",
                    {
                        at: 1.5 * max(again[s][at] for s in (*meek, *names)) < min(again[s][at] for s in most)
                        for at in paths
                    },
                    paper="similar to each other, much lower",
                    here=_over(
                        paths,
                        lambda at, n=names, m=meek, b=most: (
                            f"{listed([again[s][at] for s in (*m, *n)])} against {listed([again[s][at] for s in b])}"
                        ),
                    )
                    + " %",
                    mechanism="at 80 Mbit/s a segment of the best quality fits the window of STARTUP and is sent "
                    "before any sample that is not application-limited: BBR and its kin stay, until losses end it",
                ),
                judge(
                    "14",
                    f"oBBR retransmits below 4 % ({form})",
                    {at: max(again[s][at] for s in names) < 4 for at in paths},
                    paper="< 4 %",
                    here=_over(paths, lambda at, n=names: listed([again[s][at] for s in n])) + " %",
                ),
                judge(
                    "14",
                    f"BBR-S, BBRv2 and CUBIC have the lowest quality, most switches down, most rebuffering ({form})",
                    {
                        f"{what} ({at})": min(sign * read[c][s][at] for s in meek)
                        >= least + max(sign * read[c][s][at] for s in (*most, *names))
                        for at in paths
                        for what, c, sign, least in (
                            ("quality, by 0.1 at least", "quality", -1, 0.1),
                            ("switches, by one at least", "switches_down", 1, 1),
                            ("rebuffering, by 0.1 % at least", "rebuffering_pct", 1, 0.1),
                        )
                    },
                    paper="lowest, highest, highest",
                    here=_over(
                        paths,
                        lambda at, n=names, m=meek: (
                            f"quality {listed([quality[s][at] for s in m])} against "
                            f"{listed([quality[s][at] for s in n])}"
                        ),
                    ),
                ),
                judge(
                    "14",
                    f"oBBR-0.5 has a quality of 6.37, 4 switches down and 0.28 % of rebuffering ({form})",
                    {
                        f"{what} ({at})": holds
                        for at in paths
                        for what, holds in (
                            ("quality within one", abs(quality[names[0]][at] - 6.37) <= 1),
                            ("at most 8 switches down", read["switches_down"][names[0]][at] <= 8),
                            ("at most 1 % of rebuffering", stalled[names[0]][at] <= 1),
                        )
                    },
                    paper="6.37, 4, 0.28 %",
                    here=_over(
                        paths,
                        lambda at, s=names[0]: (
                            f"{quality[s][at]:.2f}, {read['switches_down'][s][at]:.1f}, {stalled[s][at]:.2f} %"
                        ),
                    ),
                    numbers=(6.37, sum(quality[names[0]].values()) / len(paths)),
                    mechanism="6.37 is some 4 Mbit/s, of a path that carried 27.17 in bulk; here what carries "
                    "that carries the best quality, 14.9",
                ),
            ]
        return out


def _over(paths, said):
    """Write what holds on each path."""
    return "; ".join(f"{at}: {said(at)}" for at in paths)


FIGURES = [
    Fig13(
        "13",
        "bulk over chosen paths of 270 ms",
        {"systems": tuple(SYSTEMS), "paths": PATHS, "ratio": RATIO, "seeds": SEEDS, "size": "1GB", "longest_s": 600.0},
        {"paths": (PATHS[0], PATHS[6]), "seeds": (1,), "size": "50MB", "longest_s": 20.0},
        ("system", "path", "mbps", "loss_pct"),
    ),
    Fig14(
        "14",
        "video over chosen paths of 270 ms",
        {"systems": tuple(SYSTEMS), "paths": PATHS, "ratio": RATIO, "seeds": SEEDS, "minutes": 10.0, "rule": "dynamic"},
        {"paths": (PATHS[0], PATHS[6]), "seeds": (1,), "minutes": 1.0},
        ("system", "path", "mbps", "loss_pct"),
    ),
]
