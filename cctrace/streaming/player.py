"""The client: it downloads segment after segment, plays its buffer, and stalls when that is empty.

The same player runs over a simulated transport (`session`) and over rates alone (`rates`). Playback begins with the
first segment. Arithmetic and its order follow Sabre ([Sabre] at 09b03bb), so that decisions agree exactly.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Protocol

from cctrace.arguments import check_argument, check_choice
from cctrace.errors import ArgumentError
from cctrace.streaming.rules import RULES
from cctrace.streaming.video import Video


class Ewma:
    """Two exponential moving averages, of which the lower throughput and the higher latency count.

    Half-lives are in download time; latency is sampled once per segment, so its half-life is in segments. Both averages
    start at zero and are corrected for that.
    """

    HALF_LIVES_MS = 3000.0, 8000.0

    def __init__(self, video: Video) -> None:
        self.half_lives_segments = [ms / video.segment_ms for ms in self.HALF_LIVES_MS]
        self.throughputs = [0.0] * len(self.HALF_LIVES_MS)
        self.latencies = [0.0] * len(self.HALF_LIVES_MS)
        self.download_ms, self.downloads = 0.0, 0

    def add(self, download_ms: float, throughput: float, latency: float) -> tuple[float, float]:
        """Add a finished download; return the new (throughput, latency)."""
        self.download_ms += download_ms
        self.downloads += 1
        rates, waits = [], []
        for k, (ms, segments) in enumerate(zip(self.HALF_LIVES_MS, self.half_lives_segments, strict=True)):
            old = pow(0.5, download_ms / ms)
            self.throughputs[k] = old * self.throughputs[k] + (1 - old) * throughput
            rates.append(self.throughputs[k] / (1 - pow(0.5, self.download_ms / ms)))
            old = pow(0.5, 1 / segments)
            self.latencies[k] = old * self.latencies[k] + (1 - old) * latency
            waits.append(self.latencies[k] / (1 - pow(0.5, self.downloads / segments)))
        return min(rates), max(waits)


class Sliding:
    """The means of the last three downloads."""

    LAST = 3

    def __init__(self, video: Video) -> None:
        self.throughputs: deque[float] = deque(maxlen=self.LAST)
        self.latencies: deque[float] = deque(maxlen=self.LAST)

    def add(self, download_ms: float, throughput: float, latency: float) -> tuple[float, float]:
        """Add a finished download; return the new (throughput, latency)."""
        self.throughputs.append(throughput)
        self.latencies.append(latency)
        return sum(self.throughputs) / len(self.throughputs), sum(self.latencies) / len(self.latencies)


ESTIMATES: dict[str, Callable[[Video], Ewma | Sliding]] = {"ewma": Ewma, "sliding": Sliding}


@dataclass(frozen=True)
class Settings:
    """Settings of a player; the defaults are Sabre's.

    Parameters
    ----------
    rule : str
        Of `rules.RULES`.
    estimate : str
        Of `ESTIMATES`.
    buffer_s : float
        The largest buffer.
    gamma_p : float
        BOLA's weight of not stalling, against utility.
    abandon : bool
        Whether downloads may be abandoned for a lower quality.
    oscillate : bool
        Whether BOLA may exceed the throughput by one step; else it waits.
    basic : bool
        BOLA without its adjustments at the beginning and end of the video.
    safe_buffer : bool
        The rule against an insufficient buffer.

    Raises
    ------
    ArgumentError
        For an unknown rule or estimate, or a quantity that is not positive.

    Examples
    --------
    >>> from cctrace.streaming import Video, play_rates
    >>> video = Video.of([230, 477, 991], segment_s=3, minutes=1)
    >>> int(play_rates([(1000, 700, 75)], video, settings=Settings(rule="throughput")).segments["quality"].max())
    1
    """

    rule: str = "dynamic"
    estimate: str = "ewma"
    buffer_s: float = 25.0
    gamma_p: float = 5.0
    abandon: bool = True
    oscillate: bool = True
    basic: bool = False
    safe_buffer: bool = True

    def __post_init__(self) -> None:
        for name, known in (("rule", RULES), ("estimate", ESTIMATES)):
            check_choice(name, getattr(self, name), known)
        for name in ("buffer_s", "gamma_p"):
            value = getattr(self, name)
            check_argument(isinstance(value, Real) and 0 < float(value) < math.inf, name, value, "positive and finite")

    @property
    def buffer_ms(self) -> float:
        """The largest buffer."""
        return self.buffer_s * 1000


class Progress(NamedTuple):
    """A download in progress: bits so far of its size, ms since the request, and ms until the first bit."""

    quality: int
    size: float
    bits: float
    ms: float
    first_ms: float
    abandon_to: int | None = None


Ask = Callable[[Progress], int | None]  # called during a download: the lower quality to switch to, or None


class Network(Protocol):
    """What a `Player` downloads from."""

    def download(self, size: float, quality: int, ask: Ask | None) -> Progress:
        """Download `size` bits; `ask`, if given, may end the download early."""

    def wait(self, ms: float) -> None:
        """Let time pass."""


class TimeUp(Exception):
    """The time limit is reached, `ms` after the request: the session ends there."""

    def __init__(self, ms: float) -> None:
        super().__init__(ms)
        self.ms = ms


class Player:
    """One session. Raises `ArgumentError` if the buffer does not hold a segment in addition to the one being played."""

    def __init__(self, video: Video, settings: Settings, network: Network) -> None:
        if settings.buffer_ms < 2 * video.segment_ms:
            raise ArgumentError(
                f"buffer_s={settings.buffer_s:g} must hold two segments of {video.segment_ms / 1000:g} s"
            )
        self.video, self.settings, self.network = video, settings, network
        self.rule = RULES[settings.rule](video, settings)
        self.estimate = ESTIMATES[settings.estimate](video)
        self.throughput_kbps = self.latency_ms = math.nan  # until the first segment has arrived
        self.buffered, self.played_ms = 0, 0.0  # segments in the buffer, and how much of the first was played
        self.stalled_ms = self.startup_ms = self.clock_ms = 0.0
        self.stalls = 0
        self.downloads: list[dict[str, Any]] = []  # rows

    @property
    def level_ms(self) -> float:
        """Playback time in the buffer."""
        return self.video.segment_ms * self.buffered - self.played_ms

    def run(self) -> bool:
        """Play the video; return whether it reached its end."""
        try:
            self._first()
            index = 1
            while index < self.video.segments:
                index += self._next(index)
        except TimeUp as error:
            self._play(error.ms)
            return False
        return True

    def _first(self) -> None:
        """Download the first segment, in the lowest quality; then playback begins."""
        progress = self.network.download(self.video.sizes_bits[0][0], 0, None)
        self.clock_ms += progress.ms
        self.startup_ms = progress.ms
        self.buffered = 1
        self._note(0, progress, 0)
        self._learn(progress)

    def _next(self, index: int) -> int:
        """Download one segment; return 0 if it was abandoned, else 1."""
        self._wait(self.level_ms + self.video.segment_ms - self.settings.buffer_ms, full=True)
        quality, wait_ms = self.rule.choose(self, index)
        self._wait(wait_ms)
        level = self.level_ms

        def ask(progress: Progress) -> int | None:
            return self.rule.abandon(self, progress, max(0, level - progress.ms))

        size = self.video.sizes_bits[index][quality]
        progress = self.network.download(size, quality, ask if self.settings.abandon else None)
        self._play(progress.ms)
        is_complete = progress.abandon_to is None
        self.buffered += is_complete
        self._note(index, progress, level)
        self.rule.downloaded(self, progress)
        if is_complete:
            self._learn(progress)
        return is_complete

    def _wait(self, ms: float, full: bool = False) -> None:
        if ms > 0:
            self._play(ms)
            self.network.wait(ms)
            if full:
                self.rule.waited(ms)

    def _learn(self, progress: Progress) -> None:
        span_ms = progress.ms - progress.first_ms
        found = self.estimate.add(span_ms, progress.bits / span_ms, progress.first_ms)
        self.throughput_kbps, self.latency_ms = found

    def _note(self, index: int, progress: Progress, level: float) -> None:
        end_s = self.clock_ms / 1000
        self.downloads.append(
            {
                "segment": index,
                "quality": progress.quality,
                "abandoned": progress.abandon_to is not None,
                "requested_s": end_s - progress.ms / 1000,
                "first_byte_s": end_s - (progress.ms - progress.first_ms) / 1000,
                "received_s": end_s,
                "download_ms": progress.ms,
                "latency_ms": progress.first_ms,
                "bits": progress.bits,
                "buffer_s": level / 1000,
            }
        )

    def _play(self, ms: float) -> None:
        """Advance the clock: play the buffer, then stall."""
        self.clock_ms += ms
        segment_ms = self.video.segment_ms
        if self.buffered == 0:
            self.stalled_ms += ms
            return
        if self.played_ms > 0:
            if ms + self.played_ms < segment_ms:
                self.played_ms += ms
                return
            ms -= segment_ms - self.played_ms
            self.buffered -= 1
            self.played_ms = 0
        while ms > 0 and self.buffered > 0:
            if ms < segment_ms:
                self.played_ms = ms
                return
            self.buffered -= 1
            ms -= segment_ms
        if ms > 0:
            self.stalled_ms += ms
            self.stalls += 1
