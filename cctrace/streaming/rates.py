"""The network as rates and latencies over time, without a transport protocol, as in Sabre.

A request waits for one latency, then bits flow at the rate. A wait across two periods counts proportionally: after
half of one period's latency, half of the next one's remains.
"""

import math
import os
from collections.abc import Iterable
from typing import NamedTuple

from cctrace.arguments import short_repr
from cctrace.documents import json_file
from cctrace.errors import ArgumentError
from cctrace.streaming.player import Ask, Progress


class Period(NamedTuple):
    """Duration (ms), rate (kbit/s) and latency (ms)."""

    ms: float
    kbps: float
    latency_ms: float


def read_periods(file: str | os.PathLike[str]) -> list[Period]:
    """Read a network trace of Sabre.

    Parameters
    ----------
    file : path
        JSON, a list of objects with ``duration_ms``, ``bandwidth_kbps`` and ``latency_ms``.

    Returns
    -------
    list of Period
        As `play_rates` takes them.

    Raises
    ------
    FormatError
        If the file is not such a trace; `play_rates` refuses periods of which none has a rate.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    ...     _ = file.write('[{"duration_ms": 1000, "bandwidth_kbps": 5000, "latency_ms": 75}]')
    ...     file.flush()
    ...     read_periods(file.name)
    [Period(ms=1000.0, kbps=5000.0, latency_ms=75.0)]
    """
    with json_file(file, "a network trace of Sabre") as found:
        return [Period(*(float(p[key]) for key in ("duration_ms", "bandwidth_kbps", "latency_ms"))) for p in found]


class Rates:
    """A network for a `Player`, its periods in turn; `ArgumentError` if one is not positive, or none has a rate."""

    STEP_BITS, STEP_MS = 12_000, 50  # between two calls of `ask`

    def __init__(self, periods: Iterable[tuple[float, float, float]]) -> None:
        try:
            self.periods = [Period(*map(float, period)) for period in periods]
        except (TypeError, ValueError):
            raise ArgumentError(
                f"periods={short_repr(periods)} must be a list of (ms, kbit/s, latency in ms)"
            ) from None
        if not any(p.kbps > 0 for p in self.periods) or any(p.ms <= 0 or p.latency_ms < 0 for p in self.periods):
            raise ArgumentError(
                f"{len(self.periods)} periods: each lasts more than 0 ms, some have a rate, no latency is negative"
            )
        self.index, self.left_ms = 0, self.periods[0].ms

    @property
    def now(self) -> Period:
        """The current period."""
        return self.periods[self.index]

    def _turn(self) -> None:
        self.index = (self.index + 1) % len(self.periods)
        self.left_ms = self.now.ms

    def wait(self, ms: float) -> None:
        """Let time pass."""
        while ms > self.left_ms:
            ms -= self.left_ms
            self._turn()
        self.left_ms -= ms

    def download(self, size: float, quality: int, ask: Ask | None) -> Progress:
        """See `Network`."""
        first_ms = self._latency()
        if ask is None:
            return Progress(quality, size, size, first_ms + self._piece(size, math.inf, 0.0)[1], first_ms)
        ms, bits, least_ms = first_ms, 0.0, self.STEP_MS - first_ms
        while bits < size:
            more, spent_ms = self._piece(size - bits, self.STEP_BITS, least_ms)
            ms += spent_ms
            bits += more
            least_ms = self.STEP_MS
            if bits < size and (lower := ask(Progress(quality, size, bits, ms, first_ms))) is not None:
                return Progress(quality, size, bits, ms, first_ms, lower)
        return Progress(quality, size, bits, ms, first_ms)

    def _latency(self) -> float:
        units, total = 1.0, 0.0
        while units > 0:
            ms = units * self.now.latency_ms
            if ms <= self.left_ms:
                self.left_ms -= ms
                return total + ms
            total += self.left_ms
            units -= self.left_ms / self.now.latency_ms
            self._turn()
        return total

    def _piece(self, size: float, least_bits: float, least_ms: float) -> tuple[float, float]:
        """Wait for `least_bits` and for `least_ms`, but for no more than `size`; return (bits, ms)."""
        bits = ms = 0.0
        while size > 0 and (least_bits > 0 or least_ms > 0):
            rate = self.now.kbps
            wanted, there = max(least_bits, least_ms * rate), self.left_ms * rate
            if rate > 0 and size <= wanted and size <= there:
                more, spent_ms = size, size / rate
                self.left_ms -= spent_ms
            elif rate > 0 and wanted <= there:
                more, spent_ms = wanted, wanted / rate
                least_bits = least_ms = 0.0
                self.left_ms -= spent_ms
            elif rate > 0 or least_bits > 0 or least_ms > self.left_ms:
                more, spent_ms = there, self.left_ms
                self._turn()
            else:
                more, spent_ms = 0.0, least_ms
                self.left_ms -= spent_ms
            bits += more
            ms += spent_ms
            size -= more
            least_bits -= more
            least_ms -= spent_ms
        return bits, ms
