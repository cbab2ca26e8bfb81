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
from benchmarks.intervention_bases import CAUSES
from cctrace.analysis.inputs import Counters
from cctrace.analysis.one_flow import of_capture, senders_to_simulate
from cctrace.counterfactual.effects import effects_of
from cctrace.counterfactual.figures import FIGURES, SHARE, is_reproduced, recorded_figures
from cctrace.diagnosis.constants import EFFECT_NEAR
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.record import Record
from cctrace.errors import CctraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.diagnosis.findings import Effect, Verdict
    from cctrace.flows.flow import Flow

CHANGES_GOODPUT, CHANGES_RTT = 0.03, 0.05  # by which a cause must change a figure to be one
PACING_NEAR = 0.02  # of the limit of a pacing rate: BBRv3 cruises one per cent below it
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
    "competition": {"competition", "fair_queueing"},
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
        return parameters_of(self.own)

    @property
    def counters(self) -> list[Path]:
        """The kernel's counters; none of a simulation."""
        return [one for one in [self.own / "tcpinfo.csv.zst"] if one.exists()]

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


def parameters_of(folder: Path) -> dict[str, Any]:
    """Return the scenario of a recording."""
    return dict(json.loads((folder / "scenario.json").read_text())["parameters"])


def flow_of(folder: Path) -> Flow:
    """Return the flow of a recording that is asked about: the first of its scenario."""
    capture, sport = cct.read(str(folder / "sender.pcap.zst")), parameters_of(folder)["flows"][0]["sport"]
    return capture.flow(int(np.flatnonzero(capture.flows["sport"].to_numpy() == sport)[0]))


def figures_of(folder: Path) -> dict[str, float]:
    """Return goodput, mean RTT and share sent again of a recording; kept beside it once they are known."""
    kept = folder / "figures.json"
    if not kept.exists():
        flow = flow_of(folder)
        kept.write_text(json.dumps(recorded_figures(flow.rtt_samples["rtt_us"], Record(flow).table)))
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
    """Yield the shares of the time of an account, from the capture alone and with counters, beside the kernel's."""
    alone = flow_of(base.own)
    record = Record(alone)
    empty, end_s = record.empty_s, record.duration_s
    want = counted(base.own, end_s)
    row = {"part": "limits", "base": base.name}
    # What the kernel calls busy is data outstanding; the application's limit begins when all has been sent.
    idle = float(np.diff(empty)[:, 0].sum()) / end_s if len(empty) else 0.0
    yield row | {"asked": "nothing outstanding, capture alone", "got": idle, "want": want["idle"]}
    with_polls = alone.attach(cct.read(str(base.own / "tcpinfo.csv.zst")))
    for given, flow in (("with counters", with_polls), ("capture alone", alone)):
        found = of_capture(str(base.own), flow).diagnosis
        assert found is not None
        mine = shares(found.limits)
        for name in ("receive_window", "send_buffer"):
            yield row | {"asked": f"{name}, {given}", "got": mine.get(name, 0.0), "want": want[name]}
    yield from ends_named(base, found.verdicts)


def ends_named(base: Base, alone: list[Verdict]) -> Iterator[dict[str, Any]]:
    """Yield whether the capture alone tells a send buffer from an application, and a pacing limit with its rate."""
    found = {one.name: one for one in alone}
    row, limited = {"part": "limits", "base": base.name}, base.parameters["flows"][0].get("max_pacing_rate")
    if "send_buffer_limited" in base.matters:
        ends = [name for name in found if name in ("send_buffer_limited", "application_limited")]
        told = ends[:1] != ["application_limited"]
        yield row | {"asked": "send buffer not taken for an application, capture alone", "got": told, "want": True}
    if limited:
        rate = found["pacing_limited"].evidence["limit_bps"] if "pacing_limited" in found else np.nan
        told = abs(rate / (8 * limited) - 1) < PACING_NEAR
        yield row | {"asked": "pacing_limited with the rate, capture alone", "got": told, "want": True}


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


# --- verdicts --------------------------------------------------------------------------------------------------------
def is_named(cause: str, name: str) -> bool:
    """Return whether a verdict's name is right for a cause."""
    return name in RIGHT.get(cause, {cause})


def diagnosed(base: Base) -> list[Verdict]:
    """Return the verdicts of a base with their effects, as `cctrace.analyze` has them; no forecast, no other flow."""
    flow, notes = Counters(cct.read(str(one)) for one in base.counters).attach(flow_of(base.own))
    found = of_capture(str(base.own), flow, notes)
    assert found.diagnosis is not None
    suspects = senders_to_simulate(found)
    try:
        effects = effects_of(flow, found.diagnosis, suspects)
    except CctraceError as error:
        print(f"    {base.name}: {error}")
        return found.diagnosis.verdicts
    if effects.unlike:
        print(f"    {base.name}: {effects.unlike}")
    return effects.joined(found.diagnosis).verdicts


def verdicts(base: Base) -> Iterator[dict[str, Any]]:
    """Yield every verdict of a base with counters, its effect beside the kernel's; the first says what came first."""
    row = {
        "part": "verdicts",
        "base": base.name,
        "causes": "+".join(base.parameters["causes"]),
        "matters": base.matters,
    }
    found = diagnosed(base)
    named = [one.name for one in found]
    line = ", ".join(f"{one.name} {one.confidence:.2f}{_in_words(one.effect)}" for one in found[:4])
    print(f"{base.name} ({base.parameters['own']}; matters: {base.matters}): {line}", flush=True)
    for place, one in enumerate(found):
        told = row | {"place": place, "name_": one.name, "confidence": one.confidence, "named": named}
        tag = truth_of(base, one.name)
        effect = one.effect
        if effect is None or tag is None:
            yield told
            continue
        goodput, rtt = base.ratios(tag) if tag else (1.0, 1.0)
        yield told | {
            "goodput": effect.goodput.value,
            "goodput_low": effect.goodput.low,
            "goodput_high": effect.goodput.high,
            "goodput_want": goodput,
            "rtt": effect.rtt.value,
            "rtt_low": effect.rtt.low,
            "rtt_high": effect.rtt.high,
            "rtt_want": rtt,
        }


def truth_of(base: Base, name: str) -> str | None:
    """Return the recording without what a verdict names; "" if the base has no such cause, None if none was made."""
    for cause in base.parameters["causes"]:
        if is_named(cause, name):
            if cause == "receiver_limited" and len(base.parameters["flows"]) > 1:
                return None  # the lab's receiver has one size of buffer for all connections
            tag = "buffer-x2" if cause == "shallow_buffer" else f"without-{cause}"
            return next((one for one in (f"without-{cause}", tag) if one in base.others), None)
    if name == "poor_pacing":
        return None  # no recording has the same flow through fq
    if name in ("congestive_loss", "shallow_buffer"):
        return "buffer-x2" if "buffer-x2" in base.others else None
    return "" if any(is_named(cause, name) for cause in CAUSES) else None


def _in_words(effect: Effect | None) -> str:
    return "" if effect is None else f" [goodput x{effect.goodput.text('{:.3g}')}, RTT x{effect.rtt.text('{:.3g}')}]"


def report_verdicts(rows: pd.DataFrame) -> None:
    """Print how often the first verdict, the order, the effects and the confidences are right."""
    first = rows[rows["place"] == 0]
    right = [_first_is_right(row) for row in first.itertuples()]
    print(f"first verdict: right in {sum(right)} of {len(first)}")
    for row, ok in zip(first.itertuples(), right, strict=True):
        if not ok:
            print(f"    {row.base}: {row.name_} for {row.matters or 'nothing'}")
    pairs = first[[len(matters) == 2 for matters in first["matters"]]]
    print(
        f"pairs that both matter: named in the right order in {sum(map(_in_order, pairs.itertuples()))} of {len(pairs)}"
    )
    if "goodput" not in rows:
        return
    known = rows.dropna(subset=["goodput", "goodput_want"])
    near = {}
    for figure, tolerance in zip(("goodput", "rtt"), EFFECT_NEAR, strict=True):
        low, high = (known[f"{figure}_{end}"].astype(float) for end in ("low", "high"))
        want = known[f"{figure}_want"]
        near[figure] = (known[figure] / want - 1).abs() <= tolerance
        for one in known[~near[figure]].itertuples():
            got = getattr(one, figure)
            print(f"    {one.base}, {one.name_}: {figure} x{got:.3g} for x{getattr(one, f'{figure}_want'):.3g}")
        holds = ~(want < low) & ~(want > high)
        both = low.notna() & high.notna()
        print(
            f"effect on {figure}: within {tolerance:.0%} in {near[figure][both].sum()} of {both.sum()} bounded "
            f"on both sides; 90 % intervals hold {holds.sum()} of {len(holds)}"
        )
    error, n = calibration_error(known["confidence"].to_numpy(float), is_right(known))
    print(f"confidences: calibration error {error:.3f} over {n} effects")


def is_right(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which effects are right: near the kernel's, or, of an open side, not beyond the other one."""
    right = np.ones(len(rows), bool)
    for figure, share in zip(("goodput", "rtt"), EFFECT_NEAR, strict=True):
        value, low, high, want = (rows[f"{figure}{end}"].to_numpy(float) for end in ("", "_low", "_high", "_want"))
        bounded = np.isfinite(low) & np.isfinite(high)
        beyond = (want * (1 + share) < low) | (want > high * (1 + share))  # not, where a side is unknown
        right &= (np.abs(value / want - 1) <= share) | (~bounded & ~beyond)
    return right


def _first_is_right(row: Any) -> bool:
    """Return whether the first verdict is the cause that matters most; if none does, whether it says so."""
    if row.matters:
        return is_named(row.matters[0], row.name_)
    causes = row.causes.split("+") if row.causes else []
    return row.name_ in NOTHING_WRONG or any(is_named(cause, row.name_) for cause in causes)


def _in_order(row: Any) -> bool:
    places = [[k for k, name in enumerate(row.named) if is_named(cause, name)] for cause in row.matters]
    return all(places) and min(places[0]) < min(places[1])


def calibration_error(says: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 5) -> tuple[float, int]:
    """Return the expected calibration error of confidences, and of how many."""
    order = np.array_split(np.argsort(says, kind="stable"), bins)
    off = [len(part) * abs(says[part].mean() - right[part].mean()) for part in order if len(part)]
    return float(sum(off) / max(len(says), 1)), len(says)


def report_whatif(rows: pd.DataFrame) -> None:
    """Print how many what-if answers are near, hold, or are far off without being said to be open."""
    answered = rows[~rows["refused"].astype(bool)]
    print(f"what-if: {answered.groupby(['base', 'asked']).ngroups} answered, {int(rows['refused'].sum())} refused")
    low, high = answered["low"].astype(float).fillna(-np.inf), answered["high"].astype(float).fillna(np.inf)
    want = answered["want"]
    scored = answered.assign(
        near=[is_reproduced(row.figure, row.got, row.want) for row in answered.itertuples()],
        holds=(low <= want) & (want <= high),
        far=(answered["figure"] != SHARE) & ((want > FAR * high) | (want < low / FAR)),
    )
    for part, kept in (("all", scored), ("reproduced", scored[scored["reproduces"].astype(bool)])):
        counts = kept.groupby("figure", sort=False)[["near", "holds", "far"]].agg(["sum", "count"])
        print(f"{part}:\n{counts.to_string()}")


def report_limits(rows: pd.DataFrame) -> None:
    """Print in how many flows each limit's share is the kernel's."""
    for name, part in rows.groupby("asked", sort=False):
        off = (part["got"].astype(float) - part["want"].astype(float)).abs()
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
    made = {"verdicts": verdicts, "limits": limits_agree, "whatif": partial(whatifs, draws=options.draws)}
    rows: dict[str, list[dict[str, Any]]] = {part: [] for part in options.parts.split(",")}
    for base in bases_of(options.folder, options.only):
        for part in rows:
            rows[part] += made[part](base)
    reports = {"verdicts": report_verdicts, "limits": report_limits, "whatif": report_whatif}
    for part, found in rows.items():
        reports[part](pd.DataFrame(found))
    if options.output:
        pd.DataFrame([row for found in rows.values() for row in found]).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
