"""oBBR, Figs. 13 and 14: over the Internet, from Virginia to Shandong, in bulk and as video.

Of the path the text says 270 ms on average and 80 Mbit/s of egress at the server; its losses, buffer and other
traffic are not known, and no run can be repeated. The path is therefore *chosen*: 270 ms; 80 Mbit/s, and 30 Mbit/s,
which the paper's fastest flow (27.17 Mbit/s, 6.58 % retransmitted) would fill; R 0.25, as in Fig. 7; random losses
of 0, 0.1, 1 and 2 %. No tc, so no burst. The paper's statements are judged on each of these eight.

Bulk (section 5.2.5): 1 GB, or ten minutes of it. Video (section 5.3): ten minutes of ten bitrates, segments of 4 s,
constant in size; dash.js's rule that switches between throughput and buffer is Sabre's `dynamic`
(`cctrace.streaming`). Playback and length are compared without the startup.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.obbr_kinds import EACH_5S, KINDS, POLICED, RATIO, RTT_MS, VARYING, of_kind
from cctrace.papers.runs import Result, Run

PATHS = tuple((mbps, loss) for mbps in (80, 30) for loss in (0.0, 0.1, 1.0, 2.0))
ByPath = dict[str, dict[str, float]]  # path: {system: mean}


def chosen_path(mbps: float, loss_pct: float, ratio: float = RATIO) -> Fields:
    """Return the fields of `Path` of a chosen path.

    >>> chosen_path(80, 1.0)["rate"], chosen_path(80, 0.0)["loss"]
    ('80Mbit', '0%')
    """
    buffer = f"{round(ratio * ob.bdp_bytes(mbps, RTT_MS))}B"
    return {"rate": f"{mbps}Mbit", "rtt": f"{RTT_MS}ms", "buffer": buffer, "loss": f"{loss_pct:g}%"}


class OverPaths(ob.Bi23):
    """A figure of systems over the chosen paths; release and paper form in panels of their own."""

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per path, or kind of path, system and seed."""
        named = [(f"{mbps} Mbit/s, {loss:g} %", mbps, loss, None) for mbps, loss in p["paths"]]
        named += [(kind, 0, 0.0, kind) for kind in p["kinds"]]
        return [
            (
                {"system": system, "path": name, "rate_mbps": mbps, "loss_pct": loss, "seed": seed},
                self.over(system, of_kind(kind, seed), seed, p | {"longest_s": p["kinds_s"]})
                if kind
                else self.over(system, chosen_path(mbps, loss, p["ratio"]), seed, p),
            )
            for name, mbps, loss, kind in named
            for system in p["systems"]
            for seed in p["seeds"]
        ]

    def over(self, system: str, path: Fields, seed: int, p: Fields) -> Run:
        """Return the run of a system over a path."""
        raise NotImplementedError

    def of(self, made: Reproduction, column: str) -> ByPath:
        """Return the means of a column."""
        return {path: made.means(column, "system", path=path) for path in made.each("path")}

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A panel per form and rate, of the chosen paths."""
        table = ob.by_form(made.table[made.table.rate_mbps > 0])
        return table.assign(panel=table.form + ", " + table.rate_mbps.map("{:g} Mbit/s".format))


def _drawn(*panels: tuple[str, str]) -> Any:
    return drawing("lines", "loss_pct", panels, "system", panel_by="panel", xlabel="random loss (%)")


class Fig13(OverPaths):
    """Bulk: goodput and retransmissions."""

    drawn = _drawn(("goodput_mbps", "goodput (Mbit/s)"), ("retransmitted_pct", "retransmitted (%)"))

    def over(self, system: str, path: Fields, seed: int, p: Fields) -> Run:
        """One flow, until it has its file."""
        return ob.run_of([system], path, seed, p["longest_s"], until=p["size"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Goodput and retransmissions."""
        found = ob.measures(result["flows"][0], "goodput_mbps", "retransmitted_pct")
        return found | {"seconds": result["seconds"]}

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.5; its arithmetic alone, unless all systems were run."""
        if not ob.complete(made):
            yield _arithmetic()
            return
        goodput, retransmitted = (self.of(made, column) for column in ("goodput_mbps", "retransmitted_pct"))
        for path in goodput:
            yield Stated("13", "CUBIC retransmits least and has the lowest goodput", "0.16 %, 6.30 Mbit/s").judged(
                {
                    what: values[path][ob.CUBIC] <= min(values[path].values()) + 1e-9
                    for what, values in (("retransmits least", retransmitted), ("lowest goodput", goodput))
                },
                f"{retransmitted[path][ob.CUBIC]:.2f} %, {goodput[path][ob.CUBIC]:.2f} Mbit/s",
                {"%": (0.16, retransmitted[path][ob.CUBIC]), "Mbit/s": (6.30, goodput[path][ob.CUBIC])},
                reading=path,
            )
        yield _arithmetic()
        for form, ending in ob.FORMS.items():
            yield from _bulk(goodput, retransmitted, form, ending)


def _bulk(goodput: ByPath, retransmitted: ByPath, form: str, ending: str) -> Iterator[Claim]:
    names, rival = ob.obbrs(ending), ob.BBR_S + ending
    for path, rate in goodput.items():
        lost, reading = retransmitted[path], f"{path}; {form}"
        most, ours = max(lost[s] for s in names), rate[ob.obbr(0.75, ending)]
        yield Stated(
            "13",
            "oBBR has a higher goodput than BBRv2",
            "27.17 Mbit/s with mu 0.75 against 17.66: the text's 1.54 is the ratio",
        ).judged(
            {"higher": ours > rate[ob.BBR2]},
            f"{ours:.2f} against {rate[ob.BBR2]:.2f} Mbit/s",
            {"times": (1.54, ours / rate[ob.BBR2])},
            reading=reading,
        )
        yield Stated(
            "13",
            "oBBR retransmits less than BBR-S, at the same goodput or more",
            "6.30/6.58/6.85 against 10.41 %, 27.17 against 26.94 Mbit/s",
        ).judged(
            {"less": most < lost[rival]},
            f"{listed(lost[s] for s in names)} against {lost[rival]:.2f} %, {ours:.2f} against "
            f"{rate[rival]:.2f} Mbit/s",
            {
                "goodputs": (27.17 / 26.94, ours / rate[rival]),
                "retransmitted shares": (6.58 / 10.41, lost[ob.obbr(0.75, ending)] / max(lost[rival], 1e-9)),
            },
            reading=reading,
        )
        yield Stated(
            "13", "BBRv2 retransmits more than oBBR", '6.71 %, "higher than the oBBR schemes"; but oBBR-1 has 6.85'
        ).judged(
            {"more": lost[ob.BBR2] > most},
            f"{lost[ob.BBR2]:.2f} against {most:.2f} %",
            {"BBRv2 (%)": (6.71, lost[ob.BBR2])},
            reading=reading,
        )


def _arithmetic() -> Claim:
    """The shares that section 5.2.5 derives from its own numbers."""
    stated = {6.30: 39.48, 6.58: 36.79, 6.85: 36.11}
    less = {pct: 100 * (1 - pct / 10.41) for pct in stated}
    return Stated(
        "13",
        "6.30, 6.58 and 6.85 % are 39.48, 36.79 and 36.11 % less than BBR-S's 10.41 (the paper's own numbers)",
        f"{listed(stated.values())} % less",
    ).judged(
        {f"{pct} % is {share} % less": abs(less[pct] - share) < 0.05 for pct, share in stated.items()},
        f"{listed(less.values())} % less",
        ours=True,
    )


class Fig14(OverPaths):
    """Video: retransmissions, quality, switches, rebuffering."""

    drawn = _drawn(("retransmitted_pct", "retransmitted (%)"), ("quality", "average quality"),
                   ("switches_down", "switches down"), ("rebuffering_pct", "rebuffering (%)"))  # fmt: skip

    def over(self, system: str, path: Fields, seed: int, p: Fields) -> Run:
        """One session."""
        return ob.session_of(system, path, seed, p["minutes"], p["rule"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The metrics of section 5.3.2, and retransmissions."""
        return {
            "retransmitted_pct": ob.retransmitted_pct([result]),
            "quality": result["average_quality"],
            "switches_down": result["switches_down"],
            "switches": result["switches"],
            "rebuffering_pct": 100 * result["rebuffering_ratio"],
            "stalls": result["stalls"],
            "startup_s": result["startup_s"],
            "abandoned": result["abandoned"],
            "lowest_share": sum(q == 0 for q in result["qualities"]) / len(result["qualities"]),
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.3.3; none unless all systems were run."""
        if not ob.complete(made):
            return
        lowest, quality = (self.of(made, column) for column in ("lowest_share", "quality"))
        for path, of in lowest.items():
            yield Stated(
                "14", "CUBIC's client takes almost only the lowest quality, and so stalls less", "almost the lowest"
            ).judged(
                {"lowest in 80 % of the segments": of[ob.CUBIC] >= 0.8},
                f"{quality[path][ob.CUBIC]:.2f}, {of[ob.CUBIC]:.0%} lowest",
                reading=path,
            )
        for path in quality:
            for form, ending in ob.FORMS.items():
                yield from self._video(made, path, form, ending)

    def _video(self, made: Reproduction, path: str, form: str, ending: str) -> Iterator[Claim]:
        retransmitted, quality, down, stalled = (self.of(made, column)[path] for column, _ in self.drawn.arguments[1])
        names, most, few = (ob.obbrs(ending), [ob.BBR, ob.B3R + ending], [ob.BBR_S + ending, ob.BBR2, ob.CUBIC])
        reading = f"{path}; {form}"
        yield Stated(
            "14",
            "BBR-S, BBRv2, CUBIC and oBBR retransmit much less than BBR and B3R",
            "similar to each other, much lower",
        ).judged(
            {
                "two thirds at most": 1.5 * max(retransmitted[s] for s in (*few, *names))
                < min(retransmitted[s] for s in most)
            },
            f"{listed(retransmitted[s] for s in (*few, *names))} against {listed(retransmitted[s] for s in most)} %",
            reading=reading,
        )
        yield Stated(
            "14",
            "BBR-S, BBRv2 and CUBIC have the lowest quality, most switches down, most rebuffering",
            "lowest, highest, highest",
        ).judged(
            {
                what: min(sign * of[s] for s in few) > max(sign * of[s] for s in (*most, *names))
                for what, of, sign in (("quality", quality, -1), ("switches", down, 1), ("rebuffering", stalled, 1))
            },
            f"quality {listed(quality[s] for s in few)} against {listed(quality[s] for s in names)}",
            reading=reading,
        )
        ours = names[0]
        yield Stated(
            "14",
            "oBBR-0.5 has a quality of 6.37, 4 switches down, 0.28 % of rebuffering, and retransmits below 4 %",
            "6.37, 4, 0.28 %, < 4 %",
        ).judged(
            {"below 4 % retransmitted": retransmitted[ours] < 4},
            f"{quality[ours]:.2f}, {down[ours]:.1f}, {stalled[ours]:.2f} %, {retransmitted[ours]:.2f} %",
            {"quality": (6.37, quality[ours]), "switches": (4.0, down[ours]), "rebuffering (%)": (0.28, stalled[ours])},
            reading=reading,
        )


_SET = {"systems": tuple(ob.SYSTEMS), "paths": PATHS, "ratio": RATIO, "seeds": (1,), "kinds_s": 120.0}
_QUICK = {"paths": (PATHS[0], PATHS[6]), "kinds_s": 15.0}
_BY = ("system", "path")
FIGURES = [
    Fig13("13", "bulk over chosen paths of 270 ms", _SET | {"kinds": KINDS, "size": "1GB", "longest_s": 600.0},
          _QUICK | {"kinds": (POLICED, EACH_5S), "size": "50MB", "longest_s": 20.0}, _BY),
    Fig14("14", "video over chosen paths of 270 ms", _SET | {"kinds": VARYING, "minutes": 10.0, "rule": "dynamic"},
          _QUICK | {"kinds": (EACH_5S,), "minutes": 1.0}, _BY),
]  # fmt: skip
