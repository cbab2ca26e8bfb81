"""oBBR, Figs. 13 and 14: over the Internet, from Virginia to Shandong, in bulk and as video.

Of the path the text says 270 ms on average and 80 Mbit/s of egress at the server; its losses, its buffer and what else
uses it are not known, and no run can be repeated. So the path is *chosen*: 270 ms, 80 Mbit/s, and 30 Mbit/s, for what
the fastest of the paper got, 27.17 Mbit/s and 6.58 % sent again, would fill that; R 0.25, as in Fig. 7; random losses
of 0, 0.1, 1 and 2 %. No tc, so no burst. What the paper says of its path is judged on each of these eight.

Bulk (section 5.2.5): 1 GB, or ten minutes of it. Video (section 5.3): ten minutes of ten bitrates, segments of 4 s,
constant in size; dash.js's rule that goes between throughput and buffer is Sabre's `dynamic` (`cctrace.streaming`).
Playback and length are compared without the startup.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from cctrace.papers.claims import Claim, judge, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
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
    Bi23,
    again_pct,
    bdp_bytes,
    by_form,
    complete,
    measures,
    obbr,
    run_of,
    session_of,
)
from cctrace.papers.runs import Result, Run

RTT_MS, RATIO = 270, 0.25
PATHS = tuple((mbps, loss) for mbps in (80, 30) for loss in (0.0, 0.1, 1.0, 2.0))
ByPath = dict[str, dict[str, float]]  # path: {system: mean}


def chosen_path(mbps: float, loss_pct: float, ratio: float = RATIO) -> Fields:
    """Return the fields of `Path` of a chosen path.

    >>> chosen_path(80, 1.0)["rate"], chosen_path(80, 0.0)["loss"]
    ('80Mbit', '0%')
    """
    buffer = f"{round(ratio * bdp_bytes(mbps, RTT_MS))}B"
    return {"rate": f"{mbps}Mbit", "rtt": f"{RTT_MS}ms", "buffer": buffer, "loss": f"{loss_pct:g}%"}


class OverPaths(Bi23):
    """A figure of systems over the chosen paths; release and paper form in panels of their own."""

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per path, system and seed."""
        return [
            (
                {"system": system, "path": f"{mbps} Mbit/s, {loss:g} %", "mbps": mbps, "loss_pct": loss, "seed": seed},
                self.over(system, chosen_path(mbps, loss, p["ratio"]), seed, p),
            )
            for mbps, loss in p["paths"]
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
        """A panel per form and rate."""
        table = by_form(made.table)
        return table.assign(panel=table.form + ", " + table.mbps.map("{:g} Mbit/s".format))


def _drawn(*panels: tuple[str, str]) -> Any:
    return drawing("lines", "loss_pct", panels, "system", panel_by="panel", xlabel="random loss (%)")


def _over(values: ByPath, text: Callable[[dict[str, float]], str]) -> str:
    """Write what holds on each path."""
    return "; ".join(f"{path}: {text(of)}" for path, of in values.items())


def _against(values: ByPath, names: list[str], others: list[str]) -> str:
    """Write the values of some systems against those of others, path by path."""
    return _over(values, lambda of: " against ".join(listed(of[s] for s in some) for some in (names, others)))


class Fig13(OverPaths):
    """Bulk: goodput and retransmissions."""

    drawn = _drawn(("goodput_mbps", "goodput (Mbit/s)"), ("retransmitted_pct", "retransmitted (%)"))

    def over(self, system: str, path: Fields, seed: int, p: Fields) -> Run:
        """One flow, until it has its file."""
        return run_of([system], path, seed, p["longest_s"], until=p["size"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Goodput and what was sent again."""
        found = measures(result["flows"][0], "goodput_mbps", "retransmitted_pct")
        return found | {"seconds": result["seconds"]}

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.5; its arithmetic alone, unless all systems were run."""
        if not complete(made):
            yield _arithmetic()
            return
        goodput, again = (self.of(made, column) for column in ("goodput_mbps", "retransmitted_pct"))
        yield judge(
            "13",
            "CUBIC retransmits least and has the lowest goodput",
            {
                f"{what} ({path})": values[path][CUBIC] <= min(values[path].values()) + 1e-9
                for path in goodput
                for what, values in (("retransmits least", again), ("lowest goodput", goodput))
            },
            paper="0.16 %, 6.30 Mbit/s",
            here="; ".join(f"{path}: {again[path][CUBIC]:.2f} %, {goodput[path][CUBIC]:.2f} Mbit/s" for path in again),
            mechanism="its goodput falls with random loss alone; it fills a path without losses",
        )
        yield _arithmetic()
        for form, ending in FORMS.items():
            yield from _bulk(goodput, again, form, ending)


def _bulk(goodput: ByPath, again: ByPath, form: str, ending: str) -> Iterator[Claim]:
    """The claims on one form of oBBR."""
    names, rival = [obbr(mu, ending) for mu in MUS], BBR_S + ending
    best = {path: max(of[s] for s in names) for path, of in goodput.items()}
    most = {path: max(of[s] for s in names) for path, of in again.items()}
    yield judge(
        "13",
        f"oBBR has a higher goodput than BBRv2 ({form})",
        {path: best[path] > of[BBR2] for path, of in goodput.items()},
        paper="27.17 Mbit/s with mu 0.75 against 17.66: the text's 1.54 is the ratio",
        here=_against(goodput, names, [BBR2]) + " Mbit/s",
    )
    yield judge(
        "13",
        f"oBBR retransmits less than BBR-S, at the same goodput or more ({form})",
        {f"less ({path})": most[path] < of[rival] for path, of in again.items()}
        | {f"goodput within a tenth ({path})": best[path] >= 0.9 * of[rival] for path, of in goodput.items()},
        paper="6.30/6.58/6.85 against 10.41 %: 39.48, 36.79, 34.2 % less (the text: 36.11)",
        here=_against(again, names, [rival]) + " %",
    )
    yield judge(
        "13",
        f"BBRv2 retransmits more than oBBR ({form})",
        {path: of[BBR2] > most[path] for path, of in again.items()},
        paper='6.71 %, "higher than the oBBR schemes"; but oBBR-1 has 6.85',
        here=_over(again, lambda of: f"{of[BBR2]:.2f}") + " %",
        mechanism="BBRv2 gives way to losses beyond 2 % a round; the paper's path is not known",
    )


def _arithmetic() -> Claim:
    """The shares that section 5.2.5 derives from its own numbers."""
    stated = {6.30: 39.48, 6.58: 36.79, 6.85: 36.11}
    less = {pct: 100 * (1 - pct / 10.41) for pct in stated}
    return judge(
        "13",
        "6.30, 6.58 and 6.85 % are 39.48, 36.79 and 36.11 % less than BBR-S's 10.41 (the paper's own numbers)",
        {f"{pct} % is {share} % less": abs(less[pct] - share) < 0.05 for pct, share in stated.items()},
        paper=f"{listed(stated.values())} % less",
        here=f"{listed(less.values())} % less",
        numbers=(36.11, less[6.85]),
        mechanism="an error of arithmetic in the text",
    )


class Fig14(OverPaths):
    """Video: retransmissions, quality, switches, rebuffering."""

    drawn = _drawn(
        ("retransmitted_pct", "retransmitted (%)"),
        ("quality", "average quality"),
        ("switches_down", "switches down"),
        ("rebuffering_pct", "rebuffering (%)"),
    )

    def over(self, system: str, path: Fields, seed: int, p: Fields) -> Run:
        """One session."""
        return session_of(system, path, seed, p["minutes"], p["rule"])

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The metrics of section 5.3.2, and what was sent again."""
        return {
            "retransmitted_pct": again_pct([result]),
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
        if not complete(made):
            return
        lowest, quality = (self.of(made, column) for column in ("lowest_share", "quality"))
        yield judge(
            "14",
            "CUBIC's client takes almost only the lowest quality, and so stalls less",
            {path: of[CUBIC] >= 0.8 for path, of in lowest.items()},
            paper="almost the lowest",
            here="; ".join(f"{at}: {quality[at][CUBIC]:.2f}, {lowest[at][CUBIC]:.0%} lowest" for at in lowest),
            mechanism="goodput falls with the random loss alone; without losses it has the best quality",
        )
        for form, ending in FORMS.items():
            yield from self._video(made, form, ending)

    def _video(self, made: Reproduction, form: str, ending: str) -> Iterator[Claim]:
        """The claims on one form of oBBR."""
        again, quality, down, stalled = (self.of(made, column) for column, _ in self.drawn.arguments[1])
        names, most, few = [obbr(mu, ending) for mu in MUS], [BBR, B3R + ending], [BBR_S + ending, BBR2, CUBIC]
        yield judge(
            "14",
            f"BBR-S, BBRv2, CUBIC and oBBR retransmit much less than BBR and B3R ({form})",
            {path: 1.5 * max(of[s] for s in (*few, *names)) < min(of[s] for s in most) for path, of in again.items()},
            paper="similar to each other, much lower",
            here=_against(again, [*few, *names], most) + " %",
            mechanism="at 80 Mbit/s a segment of the best quality fits the window of STARTUP and is sent "
            "before any sample that is not application-limited: BBR and its kin stay, until losses end it",
        )
        yield judge(
            "14",
            f"oBBR retransmits below 4 % ({form})",
            {path: max(of[s] for s in names) < 4 for path, of in again.items()},
            paper="< 4 %",
            here=_over(again, lambda of: listed(of[s] for s in names)) + " %",
        )
        yield judge(
            "14",
            f"BBR-S, BBRv2 and CUBIC have the lowest quality, most switches down, most rebuffering ({form})",
            {
                f"{what} ({path})": min(sign * of[path][s] for s in few)
                >= least + max(sign * of[path][s] for s in (*most, *names))
                for path in again
                for what, of, sign, least in (
                    ("quality, by 0.1 at least", quality, -1, 0.1),
                    ("switches, by one at least", down, 1, 1),
                    ("rebuffering, by 0.1 % at least", stalled, 1, 0.1),
                )
            },
            paper="lowest, highest, highest",
            here=_over(
                quality, lambda of: f"quality {listed(of[s] for s in few)} against {listed(of[s] for s in names)}"
            ),
        )
        yield _like_the_papers(names[0], quality, down, stalled, form)


def _like_the_papers(ours: str, quality: ByPath, down: ByPath, stalled: ByPath, form: str) -> Claim:
    conditions = {}
    for path in quality:
        conditions[f"quality within one ({path})"] = abs(quality[path][ours] - 6.37) <= 1
        conditions[f"at most 8 switches down ({path})"] = down[path][ours] <= 8
        conditions[f"at most 1 % of rebuffering ({path})"] = stalled[path][ours] <= 1
    return judge(
        "14",
        f"oBBR-0.5 has a quality of 6.37, 4 switches down and 0.28 % of rebuffering ({form})",
        conditions,
        paper="6.37, 4, 0.28 %",
        here="; ".join(
            f"{path}: {quality[path][ours]:.2f}, {down[path][ours]:.1f}, {stalled[path][ours]:.2f} %"
            for path in quality
        ),
        numbers=(6.37, sum(of[ours] for of in quality.values()) / len(quality)),
        mechanism="6.37 is some 4 Mbit/s, of a path that carried 27.17 in bulk; here what carries "
        "that carries the best quality, 14.9",
    )


_BY = ("system", "path", "mbps", "loss_pct")
FIGURES = [
    Fig13(
        "13",
        "bulk over chosen paths of 270 ms",
        {"systems": tuple(SYSTEMS), "paths": PATHS, "ratio": RATIO, "seeds": SEEDS, "size": "1GB", "longest_s": 600.0},
        {"paths": (PATHS[0], PATHS[6]), "seeds": (1,), "size": "50MB", "longest_s": 20.0},
        _BY,
    ),
    Fig14(
        "14",
        "video over chosen paths of 270 ms",
        {"systems": tuple(SYSTEMS), "paths": PATHS, "ratio": RATIO, "seeds": SEEDS, "minutes": 10.0, "rule": "dynamic"},
        {"paths": (PATHS[0], PATHS[6]), "seeds": (1,), "minutes": 1.0},
        _BY,
    ),
]
