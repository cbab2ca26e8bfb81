"""Statements that do not hold, with one detail of the testbed varied at a time: which detail turns them, as numbers.

A `Varied` figure makes the runs of another one once per variation and lets that figure judge each: every variation is a
reading of the statement.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd

from cctrace import plot
from cctrace.papers.claims import Claim
from cctrace.papers.figure import Drawn, Fields, Figure, Reproduction, chosen, spread
from cctrace.papers.runs import Result, Run
from cctrace.units import parse_time_ns

AS_CHOSEN = "as chosen"


class Variation(NamedTuple):
    """What is changed of each run: fields of its path, fields of its flows, times its length, times its buffer."""

    path: Fields = {}
    flow: Fields = {}
    longer: float = 1.0
    buffer: float = 1.0

    def of(self, run: Run) -> Run:
        """Return the run, changed."""
        arguments = dict(run.arguments)
        arguments["path"] = arguments["path"] | self.path
        arguments["flows"] = [flow | self.flow for flow in arguments["flows"]]
        if self.longer != 1:
            arguments["duration"] = f"{parse_time_ns(arguments['duration']) / 1e9 * self.longer:g}s"
        if self.buffer != 1:
            arguments["path"]["buffer"] = times(arguments["path"]["buffer"], self.buffer)
        return replace(run, arguments=arguments)


def times(size: str, factor: float) -> str:
    """Return a text with a number and a unit, multiplied.

    >>> times("100kB", 2), times("0.2bdp", 0.5)
    ('200kB', '0.1bdp')
    """
    unit = size.lstrip("0123456789.")
    return f"{float(size.removesuffix(unit)) * factor:g}{unit}"


VARIATIONS = {
    "an ACK per segment": Variation(flow={"ack_every": 1}),
    "an ACK per 8 segments": Variation(flow={"ack_every": 8}),
    "ACKs in slots of 2 ms": Variation(flow={"ack_slot": "2ms"}),
    "the fq qdisc": Variation(flow={"fq": True}),
    "jitter of 0.5 ms behind the queue": Variation(path={"jitter": "normal:sd=500us"}),
    "jitter of 0.5 ms before the queue": Variation(path={"jitter_before": "normal:sd=500us"}),
    "half as long": Variation(longer=0.5),
    "twice as long": Variation(longer=2.0),
    "half of the buffer": Variation(buffer=0.5),
    "twice the buffer": Variation(buffer=2.0),
}


@dataclass
class Varied(Figure):
    """Runs of `base` under variations, and what it says of some of its statements under each."""

    base: Figure = field(default_factory=Figure)
    wanted: tuple[str, ...] = ()  # claims of `base`
    value: str = "goodput_mbps"  # what is drawn: a column of `base`
    line: str = "system"  # a bar of each variation: a label of `base`
    variations: Mapping[str, Variation] = field(default_factory=lambda: VARIATIONS)

    def __post_init__(self) -> None:
        self.by = ("variation", *(self.base.by or self.base.varied))
        self.parameters = self.base.parameters | {"variations": tuple(self.variations)} | self.parameters

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """Return the runs of `base`, once per variation."""
        return [
            ({"variation": name} | labels, self.variations[name].of(run))
            for name in p["variations"]
            for labels, run in self.base.runs(p)
        ]

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields | list[Fields]:
        """As `base`."""
        return self.base.row(labels, result, p)

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """As `base`, variation by variation."""
        made = [
            self.base.derived(rows.drop(columns="variation"), p).assign(variation=name)
            for name, rows in frame.groupby("variation", sort=False)
        ]
        return pd.concat(made, ignore_index=True)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Return the statements under each variation, which is a reading."""
        for name in made.each("variation"):
            rows = chosen(made.runs, variation=name).drop(columns="variation")
            of = Reproduction(self.base, made.parameters, rows, spread(rows, list(self.by[1:])), [])
            for claim in self.base.claims(of):
                if claim.claim in self.wanted:
                    read = "" if claim.reading == AS_CHOSEN else claim.reading
                    yield replace(claim, reading="; ".join(filter(None, [read, name])))

    def plot(self, made: Reproduction) -> Drawn:
        """Draw the mean of a column over all runs of a variation, a bar for each line."""
        mean = made.runs.groupby(["variation", self.line], sort=False)[self.value].mean().reset_index()
        mean[self.line] = mean[self.line].astype(str)
        return plot.bars(mean, "variation", self.value, self.line, title=self.heading(made), ylabel=self.value)
