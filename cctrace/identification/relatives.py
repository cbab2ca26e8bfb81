"""An unknown sender's closest relative, and the difference between them.

    parameters   of a relative that has any: each value of a short list is replayed, and one that explains the flow far
                 better is named ("with bic_scale 164 instead of 41 cubic6 would explain it better")
    windows      otherwise, of an unpaced relative: the share of its window that the sender keeps in a reduction, and
                 its growth in segments per round

Only the first CHECKED_ROWS events are replayed, one parameter at a time; `cctrace.fit.parameters` gives values
with intervals.
"""

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.identification import constants as const
from cctrace.identification.flights import wrong_windows
from cctrace.identification.halves import HalfRounds
from cctrace.identification.polls import FACTORS
from cctrace.identification.sends import Replay, SenderRecord, replay_of

TRIED = {
    "beta": (0.5, 0.6, 0.8, 0.875, 0.95),
    "bic_scale": (4, 10, 20, 82, 164, 410),
    "up_pacing_gain": (1.1, 1.5, 2.0),
    "down_pacing_gain": (0.5, 0.6, 0.9),
    "cwnd_gain": (1.0, 1.5, 3.0),
    "bw_rtts": (2, 5, 20),
    "probe_bw_cwnd_gain": (1.0, 1.5, 3.0),
}


def difference(record: SenderRecord, name: str) -> str:
    """Return the difference of an unknown sender to its closest relative in words, after a comma; "" if unknown."""
    text = other_parameter(record, name) if record.exact else ""
    if not text and name in FACTORS:
        text = other_windows(record.halves, name, FACTORS[name])
    return f", and {text}" if text else ""


def other_parameter(record: SenderRecord, name: str) -> str:
    """Return in words which parameter value lets the closest relative explain a flow far better; "" for none."""
    cls, _ = resolve(name)
    few = record.first(const.CHECKED_ROWS)
    usual = replay_of(few, name)
    better = [
        (_gain(few, usual, replay_of(few, f"{name}:{parameter}={value}")), parameter, value)
        for parameter, values in TRIED.items()
        if parameter in cls.params
        for value in values
    ]
    gain, parameter, value = max(better, default=(0.0, "", 0.0))
    if gain <= 0:
        return ""
    return f"with {parameter} {value:g} instead of {cls.params[parameter].default:.3g} {name} would explain it better"


def _gain(record: SenderRecord, usual: Replay, other: Replay) -> float:
    """Return the gain of a parameter value over the default one; 0 or below if not substantial."""
    if usual.paces:
        return float(np.mean(other.sends) - np.mean(usual.sends)) - const.SENDS_TEMPER if len(other.sends) else 0.0
    before, after = (wrong_windows(record, replay).share for replay in (usual, other))
    return const.MAX_WRONG_SHARE - after / max(before, 1e-3)


def kept_and_grown(halves: HalfRounds) -> tuple[float, float]:
    """Return the share of the window kept in a reduction, and the growth in segments per round; NaN unknown."""
    judged = np.flatnonzero(halves.limited)
    places = np.searchsorted(halves.acks, halves.reductions)
    factors, grown_segments, rounds = [], 0.0, 0.0
    for begin, end in zip(places, np.append(places, len(halves.acks))[1:], strict=True):
        inside = judged[(judged >= begin) & (judged < end)]
        if not begin or not len(inside):
            continue
        before = judged[(judged < begin) & (judged >= begin - const.MIN_FOR_PATTERN)]
        if len(before):
            factors.append(halves.flight[inside[0]] / halves.flight[before].max())
        flights = halves.flight[inside]
        grown_segments += float(flights[-1] - flights[0])
        rounds += float(np.sum(np.diff(halves.sent_so_far[inside]) / np.maximum(flights[1:], 1)))
    share = float(np.median(factors)) if len(factors) >= 2 else np.nan
    return share, grown_segments / rounds if rounds >= const.MIN_FOR_CYCLE else np.nan


def other_windows(halves: HalfRounds, name: str, factor: float) -> str:
    """Return in words how a sender's windows differ from those of an unpaced relative; "" if unknown.

    `name`: the relative. `factor`: by which it multiplies its window.
    """
    kept, grown = kept_and_grown(halves)
    differences = []
    if abs(kept - factor) > const.OTHER_FACTOR:
        differences.append(f"this sender keeps {kept:.2f} of its window in a reduction, not {factor:.2f}")
    if name == "reno" and abs(np.log(max(grown, 1e-2))) > const.WRONG_WINDOW:
        differences.append(f"its window grows by {grown:.2f} segments a round, not 1")
    return ", and ".join(differences)
