"""Path histories as a search varies them: disturbances of a constant path, within bounds.

    History((Disturbance("rate", at_s=2.0, for_s=0.4, value=0.25, every_s=1.0, times=6),))

A disturbance changes one property for a while, once or periodically: the bottleneck's rate and the base RTT by a
factor, or the share of data packets lost. Where several of a kind overlap, the most severe holds. ACKs held until
the ends of slots and a pausing application apply to the entire run.
"""

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

KINDS = ("rate", "rtt", "loss", "acks", "app")
OF_PATH = KINDS[:3]
RUNS = 10_000  # histories that a search tries unless told otherwise
MAX_TIMES = 20  # repetitions of a periodic disturbance
_STEP_S = 0.005  # to which times are rounded


class Disturbance(NamedTuple):
    """One disturbance."""

    kind: str  # "rate", "rtt" or "loss"
    # at_s, for_s: when it begins, and how long it lasts
    at_s: float
    for_s: float
    value: float  # factor of the rate or of the RTT; share lost
    every_s: float = 0.0  # from the beginning of one to that of the next
    times: int = 1

    @property
    def spans(self) -> list[tuple[float, float]]:
        """Begin and end of each time, seconds."""
        begins = (self.at_s + k * self.every_s for k in range(self.times))
        return [(round(begin, 6), round(begin + self.for_s, 6)) for begin in begins]


@dataclass(frozen=True)
class Bounds:
    """Limits of a history's disturbances.

    Attributes
    ----------
    kinds : tuple of str
        Of KINDS.
    until_s : float
        When the last disturbance is over.
    rates, rtts, losses : (float, float)
        Smallest and largest factor of the rate and of the RTT, and share lost.
    longest_s : float
        Duration of one disturbance.
    share : float
        Of the time before `until_s`, for all disturbances together.
    most : int
        Disturbances per history.
    holds_s, pauses_s : tuple of float
        For how long ACKs may be held; how long an application's data may take on the path, and its pauses last.

    Examples
    --------
    >>> Bounds(("loss", "rtt"), losses=(0.01, 0.05), most=2).kinds
    ('loss', 'rtt')
    """

    kinds: tuple[str, ...] = KINDS
    until_s: float = 10.0
    rates: tuple[float, float] = (0.1, 1.0)
    rtts: tuple[float, float] = (1.0, 3.0)
    losses: tuple[float, float] = (0.01, 1.0)
    longest_s: float = 0.5
    share: float = 0.2
    most: int = 4
    holds_s: tuple[float, ...] = (0.005, 0.02, 0.05, 0.1)
    pauses_s: tuple[float, ...] = (0.1, 0.3, 1.0)

    def range_of(self, kind: str) -> tuple[float, float]:
        """Least and largest value of a disturbance."""
        return {"rate": self.rates, "rtt": self.rtts, "loss": self.losses}[kind]


@dataclass(frozen=True)
class History:
    """Disturbances in order of time, and the run's constant conditions."""

    disturbances: tuple[Disturbance, ...] = ()
    hold_s: float = 0.0  # ACKs leave in batches, this long apart; 0: at once
    # (seconds, pause): the application writes at once what the path carries in these seconds, and pauses after them;
    # None: it always has data
    app: tuple[float, float] | None = None

    @property
    def end_s(self) -> float:
        """When the last disturbance is over."""
        return max((part.spans[-1][1] for part in self.disturbances), default=0.0)

    @property
    def size(self) -> tuple[int, float, float]:
        """What is minimised: parts of the history, times of its disturbances, disturbed seconds."""
        parts = len(self.disturbances) + (self.hold_s > 0) + (self.app is not None)
        times = sum(part.times for part in self.disturbances)
        return parts + times, round(sum(part.times * part.for_s for part in self.disturbances), 6), self.end_s

    def steps(self, kind: str, normal: float) -> list[tuple[float, float]]:
        """Return (second, value) of the rate's or RTT's factor or of the loss, as steps from 0 s on."""
        parts = [part for part in self.disturbances if part.kind == kind]
        spans = [(begin, end, part.value) for part in parts for begin, end in part.spans]
        edges = sorted({0.0, *(edge for begin, end, _ in spans for edge in (begin, end))})
        steps: list[tuple[float, float]] = []
        for edge in edges:
            values = [value for begin, end, value in spans if begin <= edge < end]
            value = (min if kind == "rate" else max)(values, default=normal)
            if not steps or steps[-1][1] != value:
                steps.append((edge, value))
        return steps


def drawn(rng: random.Random, bounds: Bounds) -> History:
    """Return a history drawn at random."""
    kinds = [kind for kind in bounds.kinds if kind in OF_PATH]
    count = rng.randint(1, bounds.most) if kinds else 0
    history = History(tuple(_disturbance(rng, bounds, rng.choice(kinds)) for _ in range(count)))
    for kind in ("acks", "app"):
        if kind in bounds.kinds and rng.random() < (0.3 if kinds else 1.0):
            history = _with_pattern(rng, bounds, history, kind)
    return _within(history, bounds)


def _within(history: History, bounds: Bounds) -> History:
    """Return a history without its last disturbances where they are too many, or take too much of the time."""
    parts = list(history.disturbances[: bounds.most])
    while len(parts) > 1 and sum(part.times * part.for_s for part in parts) > bounds.share * bounds.until_s:
        parts.pop()
    return replace(history, disturbances=tuple(sorted(parts, key=lambda part: (part.at_s, part))))


def _disturbance(rng: random.Random, bounds: Bounds, kind: str) -> Disturbance:
    low, high = bounds.range_of(kind)
    value = low * (high / low) ** rng.random()
    if kind == "loss" and rng.random() < 0.5:
        value = high
    times = 1 if rng.random() < 0.5 else rng.randint(2, MAX_TIMES)
    longest = min(bounds.longest_s, bounds.share * bounds.until_s / times)
    for_s = longest * rng.uniform(0.05, 1.0)
    # The gaps between bursts decide which retransmissions arrive: short ones are as likely as long ones.
    longest_gap = (bounds.until_s - for_s) / max(times - 1, 1) - for_s
    every = 0.0 if times == 1 else for_s + _STEP_S * max(longest_gap / _STEP_S, 1.0) ** rng.random()
    at = rng.uniform(0.0, max(bounds.until_s - for_s - every * (times - 1), 0.0))
    return bounded(Disturbance(kind, at, for_s, value, every, times), bounds)


def bounded(part: Disturbance, bounds: Bounds) -> Disturbance:
    """Return a disturbance with round numbers, within the bounds."""
    low, high = bounds.range_of(part.kind)
    for_s = min(max(_STEP_S, _rounded(part.for_s)), bounds.longest_s)
    every_s = max(_rounded(part.every_s), for_s) if part.times > 1 else 0.0
    at_s = min(max(0.0, _rounded(part.at_s)), max(0.0, bounds.until_s - for_s))
    times = min(part.times, MAX_TIMES, max(1, int(bounds.share * bounds.until_s / for_s)))
    while times > 1 and at_s + (times - 1) * every_s + for_s > bounds.until_s:
        times -= 1
    return Disturbance(
        part.kind,
        at_s,
        for_s,
        min(max(float(f"{part.value:.3g}"), low), high),
        every_s if times > 1 else 0.0,
        times,
    )


def _rounded(seconds: float) -> float:
    return round(round(seconds / _STEP_S) * _STEP_S, 6)


def _with_pattern(rng: random.Random, bounds: Bounds, history: History, kind: str) -> History:
    if kind == "acks":
        return replace(history, hold_s=rng.choice(bounds.holds_s))
    return replace(history, app=(rng.choice(bounds.pauses_s), rng.choice(bounds.pauses_s)))


def mutated(rng: random.Random, bounds: Bounds, history: History) -> History:
    """Return a history changed in one or two places."""
    kinds = [kind for kind in bounds.kinds if kind in OF_PATH]
    for _ in range(rng.choice((1, 1, 2))):
        parts = list(history.disturbances)
        choice = rng.random()
        patterns = [kind for kind in bounds.kinds if kind not in OF_PATH]
        if patterns and choice < 0.1:
            kind = rng.choice(patterns)
            history = (
                _with_pattern(rng, bounds, history, kind)
                if rng.random() < 0.5
                else replace(history, **({"hold_s": 0.0} if kind == "acks" else {"app": None}))
            )
            continue
        if kinds and (not parts or (choice < 0.25 and len(parts) < bounds.most)):
            parts.append(_disturbance(rng, bounds, rng.choice(kinds)))
        elif choice < 0.35 and len(parts) > 1:
            parts.pop(rng.randrange(len(parts)))
        elif parts:
            k = rng.randrange(len(parts))
            parts[k] = _moved(rng, bounds, parts[k])
        history = replace(history, disturbances=tuple(parts))
    return _within(history, bounds)


def _moved(rng: random.Random, bounds: Bounds, part: Disturbance) -> Disturbance:
    """Return a disturbance with one number changed, by a little or by much."""
    scale = rng.choice((0.005, 0.02, 0.1, 0.5))
    which = rng.choice(("at_s", "for_s", "value", "gap", "times"))
    if which == "at_s":
        part = part._replace(at_s=part.at_s + rng.gauss(0, scale * bounds.until_s))
    elif which == "times":
        times = max(1, min(MAX_TIMES, part.times + rng.choice((-3, -1, 1, 3))))
        part = part._replace(times=times, every_s=part.every_s or rng.uniform(part.for_s, 1.5))
    elif which == "gap":
        part = part._replace(every_s=part.for_s + (part.every_s - part.for_s) * 2.0 ** rng.gauss(0, 4 * scale))
    else:
        part = part._replace(**{which: getattr(part, which) * 2.0 ** rng.gauss(0, 4 * scale)})
    return bounded(part, bounds)


def crossed(rng: random.Random, bounds: Bounds, first: History, second: History) -> History:
    """Return a history that has disturbances of both."""
    parts = [part for part in (*first.disturbances, *second.disturbances) if rng.random() < 0.5]
    rng.shuffle(parts)
    return _within(History(tuple(parts) or first.disturbances, rng.choice((first, second)).hold_s, first.app), bounds)
