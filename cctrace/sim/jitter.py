"""Jitter of a simulated path: distribution, grouping, and correlation of successive draws."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace.arguments import check_argument, check_choice, short_repr
from cctrace.columns import Floats
from cctrace.display import Public, brief
from cctrace.errors import ArgumentError, FormatError
from cctrace.sim.core.structs import EMPIRICAL, GAMMA, LOGNORMAL, NORMAL, PER_BURST, PER_PACKET, PER_SLOT
from cctrace.units import LONGEST_NS, parse_time_ns

_KINDS = {"normal": NORMAL, "gamma": GAMMA, "lognormal": LOGNORMAL, "empirical": EMPIRICAL}
_FLAGS = ("reorder", "cut")
_NAMES = ("sd", "mean", "file", "per", "rho", *_FLAGS)
MIN_DECAY = 1e-4  # of the correlation: a process that returns from below its floor in reasonable time
MAX_DELAYS = 10_000_000  # lines of a file of delays: it may be named by another file, and be an endless device
_LONGEST_LINE = 65536  # characters, a comment included


@dataclass(frozen=True)
class Jitter(Public):
    """Random delay beyond the bottleneck, drawn per packet, per burst or per time slot.

    Parameters
    ----------
    kind : {"normal", "gamma", "lognormal", "empirical"}
        Normal jitter has mean zero, and what would bring the path's delay below zero is drawn again (or `cut`); the
        others add to the base delay.
    sd : str, optional
        Standard deviation, for example ``"2ms"``.
    mean : str, optional
        Mean of a gamma or lognormal jitter.
    samples_ns : array_like, optional
        Delays to draw from, ns (empirical); `read_delays` reads a file of them.
    per : str
        ``"packet"``, ``"burst"`` or ``"slot:5ms"``.
    rho : float
        Correlation of successive normal (or log-normal) draws, 0 to 0.9999.
    reorder : bool
        Whether packets overtake each other, as with netem; by default a packet waits behind its predecessor.
    cut : bool
        Whether a packet whose normal jitter would bring the path's delay below zero passes without delay, as through
        netem, instead of drawing again.

    Examples
    --------
    >>> Jitter("normal", sd="2ms", per="slot:5ms").text()
    'normal:sd=2ms,per=slot:5ms'
    """

    kind: str
    sd: str | None = None
    mean: str | None = None
    samples_ns: ArrayLike | None = None
    per: str = "packet"
    rho: float = 0.0
    reorder: bool = False
    cut: bool = False

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        check_choice("jitter", self.kind, _KINDS)
        if self.kind == "empirical":
            samples = np.asarray([] if self.samples_ns is None else self.samples_ns, dtype=np.float64)
            if samples.size == 0 or not np.all((samples >= 0) & (samples < LONGEST_NS)):
                raise ArgumentError("empirical jitter needs samples_ns: delays in nanoseconds, none negative")
        elif (
            self.sd is None
            or parse_time_ns(self.sd, "sd") < 0
            or (self.kind == "gamma" and parse_time_ns(self.sd, "sd") == 0)
        ):
            raise ArgumentError(f"{self.kind} jitter needs sd, for example sd='2ms'")
        elif self.kind == "normal" and self.mean is not None:
            raise ArgumentError(f"mean={self.mean!r}: normal jitter has a mean of zero; gamma and lognormal take one")
        elif self.kind != "normal" and (self.mean is None or parse_time_ns(self.mean, "mean") <= 0):
            raise ArgumentError(f"{self.kind} jitter needs a positive mean, for example mean='10ms'")
        for flag in _FLAGS:
            check_argument(isinstance(getattr(self, flag), bool), flag, getattr(self, flag), "True or False")
        if self.cut and self.kind != "normal":
            raise ArgumentError(f"cut=True: {self.kind} jitter is never negative; only normal jitter can be cut")
        check_argument(isinstance(self.rho, Real), "rho", self.rho, "a number")
        correlates = self.kind in ("normal", "lognormal")
        if not 0.0 <= self.rho <= 1.0 - MIN_DECAY or (self.rho > 0 and not correlates):
            raise ArgumentError(f"rho={self.rho!r}: 0 <= rho <= 0.9999, for normal and lognormal jitter")
        self.grouping()

    @classmethod
    def parse(cls, text: str) -> Jitter:
        """Read ``normal:sd=10ms,per=packet|burst|slot:5ms[,rho=0.9][,reorder][,cut]``; ``empirical:file=FILE,…``."""
        check_argument(isinstance(text, str), "text", text, "a text, for example 'normal:sd=2ms'")
        kind, _, rest = text.partition(":")
        check_choice("jitter", kind, _KINDS)
        given: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            name, _, value = part.partition("=")
            if name not in _NAMES:
                raise ArgumentError(f"jitter {text!r}: unknown {name!r} (use {', '.join(_NAMES)})")
            given[name] = True if name in _FLAGS else value
        if "rho" in given:
            try:
                given["rho"] = float(given["rho"])
            except ValueError:
                raise ArgumentError(f"jitter {text!r}: rho is a number from 0 to 0.9999") from None
        if "file" in given:
            given["samples_ns"] = read_delays(given.pop("file"))
        return cls(kind, **given)

    def text(self) -> str:
        """Return the jitter as `parse` reads it."""
        parts = [f"{n}={v}" for n, v in (("sd", self.sd), ("mean", self.mean), ("per", self.per)) if v is not None]
        parts += [f"rho={self.rho:g}"] if self.rho > 0 else []
        return f"{self.kind}:" + ",".join(parts + [flag for flag in _FLAGS if getattr(self, flag)])

    def grouping(self) -> tuple[int, int]:
        """Return (PER_PACKET, PER_BURST or PER_SLOT, slot in ns)."""
        per = self.per if isinstance(self.per, str) else ""  # an array would compare element by element
        if per == "packet":
            return PER_PACKET, 0
        if per == "burst":
            return PER_BURST, 0
        if per.startswith("slot:") and (slot := parse_time_ns(per[5:], "slot")) > 0:
            return PER_SLOT, slot
        raise ArgumentError(f"jitter per={short_repr(self.per)}: use packet, burst or slot:TIME, for example slot:5ms")

    def fields(self, forward_ns: int) -> dict[str, Any]:
        """Return the WORLD fields of this jitter on a path of the given forward delay; arrays are yet to be placed."""
        per, slot = self.grouping()
        given = {"jitter_kind": _KINDS[self.kind], "jitter_per": per, "jitter_slot_ns": slot, "jitter_rho": self.rho}
        if self.kind == "empirical":
            samples = np.ascontiguousarray(self.samples_ns, dtype=np.float64)
            return given | {"jitter_table": samples, "jitter_samples": len(samples)}
        sd = parse_time_ns(self.sd, "sd")
        if self.kind == "normal":
            floor = -math.inf if self.cut else -float(forward_ns)
            return given | {"jitter_a": 0.0, "jitter_b": float(sd), "jitter_floor": floor}
        mean = parse_time_ns(self.mean, "mean")
        if self.kind == "gamma":
            return given | {"jitter_a": (mean / sd) ** 2, "jitter_b": sd * sd / mean, "jitter_floor": 0.0}
        variance = np.log1p((sd / mean) ** 2)
        return given | {"jitter_a": np.log(mean) - variance / 2, "jitter_b": np.sqrt(variance), "jitter_floor": 0.0}

    def span_ns(self) -> int:
        """Return a delay that the jitter practically never exceeds (one draw in 10**10)."""
        if self.kind == "empirical":
            return int(np.max(np.asarray(self.samples_ns, np.float64)))
        given = self.fields(0)
        if self.kind == "lognormal":
            return round(math.exp(min(given["jitter_a"] + 6.5 * given["jitter_b"], math.log(LONGEST_NS))))
        if self.kind == "gamma":
            return round(parse_time_ns(self.mean, "mean") + 8 * parse_time_ns(self.sd, "sd") + 24 * given["jitter_b"])
        return 8 * parse_time_ns(self.sd, "sd")


def read_delays(file: str | os.PathLike[str]) -> Floats:
    """Read delays in milliseconds, one per line (``#`` begins a comment), as the ns that `Jitter` takes.

    Raises `FormatError` if a line is not a number from 0; names the line. If there are more than `MAX_DELAYS` lines.
    """
    delays: list[float] = []
    with open(file, encoding="utf-8", errors="replace") as source:
        for number, line in enumerate(iter(lambda: source.readline(_LONGEST_LINE), ""), 1):
            if number > MAX_DELAYS:
                raise FormatError(f"{file}: more than {MAX_DELAYS} lines; the delays of a flow are fewer")
            text = line.partition("#")[0].strip()
            if not text:
                continue
            try:
                delays.append(float(text) * 1e6)
            except ValueError:
                delays.append(math.nan)
            if not 0 <= delays[-1] < LONGEST_NS:
                raise FormatError(f"{file}, line {number}: {text[:40]!r} is not a delay in milliseconds")
    if not delays:
        raise FormatError(f"{file}: no delays")
    return np.array(delays)
