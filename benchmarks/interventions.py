"""How well verdicts, effects, what-ifs and limits agree with what the kernel itself did without a cause.

    python -m benchmarks.interventions DIR [--only REGEX] [--parts verdicts,whatif,limits] [--output ANSWERS.csv]

DIR has recordings of the list that `benchmarks.intervention_bases` writes: a base as it is (NAME.own), and the same
path with one thing changed. `verdicts`: is the first verdict the cause whose removal changes goodput most (RTT, where
goodput is full); are the effects that verdicts state those of the kernel; does their confidence say how often.
`whatif`: the same for questions (another controller, half and twice the buffer, no random loss). `limits`: what limited
the flow when, from the capture alone, against the kernel's counters.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import cctrace as cct
from cctrace.counterfactual.figures import FIGURES, SHARE, near, recorded_figures
from cctrace.diagnosis.limits import shares
from cctrace.diagnosis.record import Record
from cctrace.errors import CctraceError

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow

SPORT = 40001  # of the flow that is asked about
CHANGES_GOODPUT, CHANGES_RTT = 0.03, 0.05  # by which a cause must change a figure to be one
GOODPUT_NEAR, RTT_NEAR = 0.10, 0.15  # of an effect
POINTS = 0.02  # by which a limit's share of the time may differ from the kernel's count
COUNTERS = {
    "busy": "tcpi_busy_time",
    "receive_window": "tcpi_rwnd_limited",
    "send_buffer": "tcpi_sndbuf_limited",
}
FAR = 2.0  # times, by which no interval that is not said to be open may be off
# Names that are right for a cause; and for a flow that no removal changes.
RIGHT = {
    "rate_change": {"rate_change", "stale_bandwidth"},
    "jitter": {"jitter", "collapse"},
    "shallow_buffer": {"shallow_buffer", "poor_pacing"},
}
NOTHING_WRONG = {"path_full", "self_induced_queue", "congestive_loss", "shallow_buffer"}


@dataclass(frozen=True)
class Base:
    """A base: the folder of the flow as it is, and those of its interventions by tag."""

    name: str
    own: Path
    others: dict[str, Path]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return dict(json.loads((self.own / "scenario.json").read_text())["parameters"])

    def ratios(self, tag: str) -> tuple[float, float]:
        """Return how many times the goodput and the mean RTT an intervention had, by the kernel itself."""
        mine, theirs = figures_of(self.own), figures_of(self.others[tag])
        return theirs["goodput_bps"] / mine["goodput_bps"], theirs["rtt_mean_us"] / mine["rtt_mean_us"]

    @cached_property
    def matters(self) -> list[str]:
        """The causes whose removal changes something, the one that changes most first."""
        changed = {
            cause: np.abs(np.log(self.ratios(f"without-{cause}")))
            for cause in self.parameters["causes"]
            if f"without-{cause}" in self.others
        }
        full = all(goodput < np.log1p(CHANGES_GOODPUT) for goodput, _ in changed.values())
        least = np.log1p(CHANGES_RTT if full else CHANGES_GOODPUT)
        by = {cause: float(pair[1 if full else 0]) for cause, pair in changed.items()}
        return sorted((cause for cause in by if by[cause] >= least), key=lambda cause: -by[cause])


def bases_of(folder: Path, only: str) -> Iterator[Base]:
    """Yield the bases of a folder that are there with at least one intervention."""
    for own in sorted(folder.glob("*.own")):
        name = own.name.removesuffix(".own")
        others = {one.name.removeprefix(f"{name}."): one for one in folder.glob(f"{name}.*") if one != own}
        others = {tag: one for tag, one in sorted(others.items()) if (one / "scenario.json").exists()}
        if others and (own / "scenario.json").exists() and re.search(only, name):
            yield Base(name, own, others)


def flow_of(folder: Path) -> Flow:
    """Return the flow of a recording that is asked about."""
    capture = cct.read(str(folder / "sender.pcap.zst"))
    return capture.flow(int(np.flatnonzero(capture.flows["sport"].to_numpy() == SPORT)[0]))


def figures_of(folder: Path) -> dict[str, float]:
    """Return goodput, mean RTT and share sent again of a recording; kept beside it once they are known."""
    kept = folder / "figures.json"
    if not kept.exists():
        flow = flow_of(folder)
        kept.write_text(json.dumps(recorded_figures(flow, Record(flow).table)))
    return dict(json.loads(kept.read_text()))


# --- limits ----------------------------------------------------------------------------------------------------------
def counted(folder: Path, end_s: float) -> dict[str, float]:
    """Return the kernel's shares of the time: with nothing to send, with a closed window, with a full send buffer."""
    polls = pd.read_csv(folder / "tcpinfo.csv.zst", usecols=["flow_id", "time_ns", *COUNTERS.values()])
    polls = polls[polls["flow_id"] == 0]
    last = polls.iloc[-1]
    told = {name: float(last[column]) / 1e6 / end_s for name, column in COUNTERS.items()}
    return told | {"idle": 1 - told.pop("busy")}


def limits_agree(base: Base) -> Iterator[dict[str, Any]]:
    """Yield the shares of the time of an account from the capture alone, beside the kernel's."""
    flow = flow_of(base.own)
    record = Record(flow)
    end_s = record.duration_s
    mine = shares(cct.diagnose(flow).limits)
    empty = record.empty_s
    got = {
        "idle": float(np.diff(empty)[:, 0].sum()) / end_s if len(empty) else 0.0,
        "receive_window": mine.get("receive_window", 0.0),
        "send_buffer": mine.get("send_buffer", 0.0),
    }
    want = counted(base.own, end_s)
    for name, value in got.items():
        yield {"part": "limits", "base": base.name, "asked": name, "got": value, "want": want[name]}
    yield {"part": "limits", "base": base.name, "asked": "application", "got": mine.get("application", 0.0)}


# --- what-if ---------------------------------------------------------------------------------------------------------
def question(tag: str) -> tuple[list[str], dict[str, Any]] | None:
    """Return the candidates and changes that ask for an intervention; None if that is no what-if."""
    kind, _, value = tag.partition("-")
    if kind == "cc":
        return [value], {}
    if kind == "buffer":
        return [], {"buffer": value}
    return ([], {"loss": "0%"}) if tag == "without-random_loss" else None


def whatifs(base: Base, draws: int) -> Iterator[dict[str, Any]]:
    """Yield every figure of the questions that a base can answer, beside the kernel's."""
    flow = flow_of(base.own)
    for tag, folder in base.others.items():
        asked = question(tag)
        if asked is None:
            continue
        row = {"part": "whatif", "base": base.name, "asked": tag}
        try:
            answer = cct.whatif(flow, asked[0], draws=draws, **asked[1])
            got = next(iter(answer.candidates.values()), None)
        except CctraceError as error:
            print(f"{base.name} {tag}: refused: {error}", flush=True)
            got = None
        if got is None:
            yield row | {"figure": "goodput_bps", "refused": True}
            continue
        wanted = figures_of(folder)
        print(
            f"{base.name} {tag}: {answer.own} {'' if answer.reproduces else 'NOT REPRODUCED '}"
            + ", ".join(f"{got[name].text('{:.4g}')} for {wanted[name]:.4g}" for name in FIGURES),
            flush=True,
        )
        for name in FIGURES:
            value, low, high = got[name]
            row |= {"figure": name, "got": value, "low": low, "high": high, "want": wanted[name]}
            yield row | {"refused": False, "reproduces": answer.reproduces}


def report_whatif(rows: pd.DataFrame) -> None:
    """Print how many what-if answers are near, hold, or are far off without being said to be open."""
    answered = rows[~rows["refused"].astype(bool)]
    print(f"what-if: {answered.groupby(['base', 'asked']).ngroups} answered, {int(rows['refused'].sum())} refused")
    low, high = answered["low"].astype(float).fillna(-np.inf), answered["high"].astype(float).fillna(np.inf)
    want = answered["want"]
    scored = answered.assign(
        near=[near(row.figure, row.got, row.want) for row in answered.itertuples()],
        holds=(low <= want) & (want <= high),
        far=(answered["figure"] != SHARE) & ((want > FAR * high) | (want < low / FAR)),
    )
    for part, kept in (("all", scored), ("reproduced", scored[scored["reproduces"].astype(bool)])):
        counts = kept.groupby("figure", sort=False)[["near", "holds", "far"]].agg(["sum", "count"])
        print(f"{part}:\n{counts.to_string()}")


def report_limits(rows: pd.DataFrame) -> None:
    """Print in how many flows each limit's share is the kernel's."""
    for name, part in rows.dropna(subset="want").groupby("asked", sort=False):
        off = (part["got"] - part["want"]).abs()
        print(
            f"limits: {name} within {POINTS * 100:.0f} points of the kernel's in {(off <= POINTS).sum()} of {len(part)}"
        )
        for row in part[off > POINTS].itertuples():
            print(f"    {row.base}: {row.got:.3f} for {row.want:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="regular expression of the bases' names")
    parser.add_argument("--parts", default="verdicts,whatif,limits")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--output", type=Path, help="write every answer as CSV")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {part: [] for part in options.parts.split(",")}
    for base in bases_of(options.folder, options.only):
        for part in rows:
            rows[part] += {"limits": limits_agree, "whatif": partial(whatifs, draws=options.draws)}[part](base)
    reports = {"limits": report_limits, "whatif": report_whatif}
    for part, found in rows.items():
        reports[part](pd.DataFrame(found))
    if options.output:
        pd.DataFrame([row for found in rows.values() for row in found]).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
