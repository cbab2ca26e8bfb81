"""Estimates of throughput (kbit/s) and latency (ms) from the downloads so far."""

from collections.abc import Callable, Sequence
from typing import Protocol

from cctrace.errors import ArgumentError
from cctrace.streaming.video import Video


class Ewma:
    """Two exponential moving averages with half-lives in seconds of download: the lower throughput, the higher latency.

    Both start at zero and are corrected for that. Latency is sampled once per segment, so its half-life is in segments.
    """

    def __init__(self, video: Video, half_lives_s: Sequence[float] = (3.0, 8.0)) -> None:
        self.half_lives_ms = [1000 * h for h in half_lives_s]
        self.half_lives_segments = [h / video.segment_ms for h in self.half_lives_ms]
        self.throughputs = [0.0] * len(self.half_lives_ms)
        self.latencies = [0.0] * len(self.half_lives_ms)
        self.download_ms, self.downloads = 0.0, 0

    def add(self, download_ms: float, throughput: float, latency: float) -> tuple[float, float]:
        """Add a finished download; return the new (throughput, latency)."""
        self.download_ms += download_ms
        self.downloads += 1
        rates, waits = [], []
        for k, (ms, segments) in enumerate(zip(self.half_lives_ms, self.half_lives_segments, strict=True)):
            old = pow(0.5, download_ms / ms)
            self.throughputs[k] = old * self.throughputs[k] + (1 - old) * throughput
            rates.append(self.throughputs[k] / (1 - pow(0.5, self.download_ms / ms)))
            old = pow(0.5, 1 / segments)
            self.latencies[k] = old * self.latencies[k] + (1 - old) * latency
            waits.append(self.latencies[k] / (1 - pow(0.5, self.downloads / segments)))
        return min(rates), max(waits)


class Sliding:
    """The means of the last downloads, three by default."""

    def __init__(self, video: Video, last: int = 3) -> None:
        self.last = last
        self.throughputs: list[float] = []
        self.latencies: list[float] = []

    def add(self, download_ms: float, throughput: float, latency: float) -> tuple[float, float]:
        """Add a finished download; return the new (throughput, latency)."""
        self.throughputs = [*self.throughputs, throughput][-self.last :]
        self.latencies = [*self.latencies, latency][-self.last :]
        return sum(self.throughputs) / len(self.throughputs), sum(self.latencies) / len(self.latencies)


class Estimate(Protocol):
    """What a `Player` expects of an estimate."""

    def add(self, download_ms: float, throughput: float, latency: float) -> tuple[float, float]:
        """Add a finished download; return the new (throughput, latency)."""


ESTIMATES: dict[str, Callable[[Video], Estimate]] = {"ewma": Ewma, "sliding": Sliding}


def estimate(name: str, video: Video) -> Estimate:
    """Return a new estimate by name.

    Raises `ArgumentError` if there is no such estimate.
    """
    if name not in ESTIMATES:
        raise ArgumentError(f"estimate={name!r}: use {' or '.join(ESTIMATES)}")
    return ESTIMATES[name](video)
