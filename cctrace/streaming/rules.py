"""Rules by which a client of adaptive streaming chooses the quality of the next segment [Spiteri19], as in Sabre.

* `Throughput` the highest bitrate within 90 % of the estimated throughput, unless the buffer would run dry
* `Bola` by the buffer: the quality with the largest (V (utility + gamma p) - buffer level) per bit [Spiteri16]
* `BolaE` BOLA with virtual segments (a *placeholder*) where other rules decided or the buffer was never full
* `Dynamic` throughput while the buffer is low or BOLA would choose less, BOLA otherwise
* `DynamicDash` the same switch as in dash.js: by the buffer alone, between `Throughput` and `BolaE`

A rule is given the `player`: `level_ms` (of the buffer), `throughput_kbps`, `latency_ms`, `video`. Constants are
Sabre's ([Sabre] at 09b03bb); where the program and the papers differ, the program counts, because decisions are
compared with it.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cctrace.streaming.player import Player, Progress, Settings
    from cctrace.streaming.video import Video


class Rule:
    """The interface of rules; the default does nothing."""

    def __init__(self, video: Video, settings: Settings) -> None:
        self.video, self.settings = video, settings

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """Return (quality, ms to wait before the request) of segment `index`."""
        raise NotImplementedError

    def waited(self, ms: float) -> None:
        """Called when the player waited because its buffer was full."""

    def downloaded(self, player: Player, progress: Progress) -> None:
        """Called when a download ended, or was abandoned for ``progress.abandon_to``."""

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """Return the quality to switch to during a download, or None."""


def carried(player: Player, throughput_kbps: float) -> int:
    """Return the best quality whose segments download within their own duration, latency included."""
    video, quality = player.video, 0
    span = video.segment_ms
    for k, rate in enumerate(video.bitrates_kbps[1:], 1):
        if player.latency_ms + span * rate / throughput_kbps > span:
            break
        quality = k
    return quality


class Safety:
    """The rule against an insufficient buffer: a segment has to download within a share of the buffer's playback time.

    The share begins at 0.9 and falls by 10 % per segment, to one half.
    """

    FIRST, FALL, LEAST = 0.9, 0.9, 0.5

    def __init__(self) -> None:
        self.share = self.FIRST

    def limit(self, player: Player, quality: int) -> int:
        """Return the quality, or the best that is safe."""
        bits = self.share * (player.level_ms - player.latency_ms) * player.throughput_kbps
        self.share = max(self.share * self.FALL, self.LEAST)
        for lower, rate in enumerate(player.video.bitrates_kbps[1 : quality + 1]):
            if rate * player.video.segment_ms > bits:
                return lower
        return quality


class Throughput(Rule):
    """By the throughput; abandons a download that would take 1.8 segment durations or more."""

    SHARE, PATIENCE, GRACE_MS = 0.9, 1.8, 500

    def __init__(self, video: Video, settings: Settings) -> None:
        super().__init__(video, settings)
        self.safety = Safety() if settings.safe_buffer else None

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """See `Rule`."""
        quality = carried(player, player.throughput_kbps * self.SHARE)
        return (quality if self.safety is None else self.safety.limit(player, quality)), 0

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """See `Rule`; not in the first half second."""
        span_ms = progress.ms - progress.first_ms
        if progress.ms < self.GRACE_MS or span_ms <= 0:
            return None
        rate = progress.bits / span_ms
        left = progress.size - progress.bits
        if progress.ms + left / rate <= self.PATIENCE * self.video.segment_ms:
            return None
        quality = carried(player, rate * self.SHARE)
        rates = self.video.bitrates_kbps
        size = progress.size * rates[quality] / rates[progress.quality]
        return None if quality >= progress.quality or size >= left else quality


class _ByBuffer(Rule):
    """What both forms of BOLA share: the score of a quality, V (utility + gamma p) - buffer level, compared per bit."""

    v: float
    gamma_p: float
    utilities: list[float]

    def score(self, quality: int, level_ms: float = 0.0) -> float:
        """Return the score of a quality; without a level, the one above which the score is negative, ms."""
        return self.v * (self.utilities[quality] + self.gamma_p) - level_ms

    def best(self, level_ms: float) -> int:
        """Return the quality with the best score per bit; the lower one of equal scores."""
        scores = [self.score(k, level_ms) / rate for k, rate in enumerate(self.video.bitrates_kbps)]
        return scores.index(max(scores))

    def cheaper(self, progress: Progress, left: float, level_ms: float) -> int | None:
        """Return the quality whose full download scores better than the bits `left` of the current one, or None."""
        choice, score = None, self.score(progress.quality, level_ms) / left
        for quality in range(progress.quality):
            size = progress.size * self.video.bitrates_kbps[quality] / self.video.bitrates_kbps[progress.quality]
            other = self.score(quality, level_ms) / size
            if size < left and other > score:
                choice, score = quality, other
        return choice


class Bola(_ByBuffer):
    """By the buffer; exceeds the throughput by one step at most.

    ``settings.oscillate`` False: it waits instead of taking that step. ``settings.basic``: a constant buffer size (else
    it is smaller near the beginning and end of the video), and no download is abandoned.
    """

    def __init__(self, video: Video, settings: Settings) -> None:
        super().__init__(video, settings)
        self.utilities = [log(rate) - log(video.bitrates_kbps[0]) for rate in video.bitrates_kbps]
        self.gamma_p = settings.gamma_p
        self.last = 0
        self._set_v(settings.buffer_ms)

    def _set_v(self, buffer_ms: float) -> None:
        self.v = (buffer_ms - self.video.segment_ms) / (self.utilities[-1] + self.gamma_p)

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """See `Rule`."""
        if not self.settings.basic:
            near = max(min(index, self.video.segments - index) / 2, 3) * self.video.segment_ms
            self._set_v(min(self.settings.buffer_ms, near))
        quality, wait_ms = self.best(player.level_ms), 0.0
        if quality > self.last:
            fits = carried(player, player.throughput_kbps)
            if quality > fits:
                quality, wait_ms = self._within_buffer(player, fits)
        self.last = quality
        return quality, wait_ms

    def _within_buffer(self, player: Player, fits: int) -> tuple[int, float]:
        if self.last > fits:
            return self.last, 0
        if self.settings.oscillate:
            return fits + 1, 0
        return fits, max(0, player.level_ms - self.score(fits))

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """See `Rule`; not where the buffer is above the level that its quality is worth."""
        left = progress.size - progress.bits
        if self.settings.basic or progress.bits <= 0 or left <= 0:
            return None
        if self.score(progress.quality, level_ms) < 0:
            return None
        choice = self.cheaper(progress, left, level_ms)
        if choice is not None:
            self.last = choice
        return choice


class BolaE(_ByBuffer):
    """BOLA-E: BOLA over the buffer and a placeholder, with the rule against an insufficient buffer."""

    MIN_MS, MIN_PER_LEVEL_MS = 10_000, 2_000

    def __init__(self, video: Video, settings: Settings) -> None:
        super().__init__(video, settings)
        offset = 1 - log(video.bitrates_kbps[0])
        self.utilities = [log(rate) + offset for rate in video.bitrates_kbps]
        if settings.safe_buffer:
            buffer_ms = max(self.MIN_MS + self.MIN_PER_LEVEL_MS * len(video.bitrates_kbps), settings.buffer_ms)
            self.gamma_p = (self.utilities[-1] - 1) / (buffer_ms / self.MIN_MS - 1)
            self.v = self.MIN_MS / self.gamma_p
        else:
            self.gamma_p = settings.gamma_p - 1
            self.v = (settings.buffer_ms - video.segment_ms) / (self.utilities[-1] + self.gamma_p)
        self.safety: Safety | None = None
        self.placeholder_ms, self.last = 0.0, 0

    def level_least(self, quality: int) -> float:
        """Return the level (ms) above which a quality scores better than all lower ones."""
        rates, mine, level = self.video.bitrates_kbps, self.utilities[quality], 0
        for rate, utility in list(zip(rates, self.utilities, strict=True))[:quality]:
            own = rates[quality]
            level = max(level, self.v * (self.gamma_p + (own * utility - rate * mine) / (own - rate)))
        return level

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """See `Rule`; the first choice is by the throughput."""
        level = player.level_ms
        if self.safety is None:
            self.safety = Safety()
            quality = carried(player, player.throughput_kbps)
            self.placeholder_ms = max(0, self.level_least(quality) - level)
            return quality, 0
        quality = self.best(level + self.placeholder_ms)
        fits = carried(player, player.throughput_kbps)
        if quality > self.last and quality > fits:
            quality = max(self.last, fits) + self.settings.oscillate
        wait_ms = self._wait(level, quality)
        if self.settings.safe_buffer and (safe := self.safety.limit(player, quality)) < quality:
            quality, wait_ms = safe, 0
            self.placeholder_ms = min(max(0, self.level_least(quality) - level), self.placeholder_ms)
        return quality, wait_ms

    def _wait(self, level: float, quality: int) -> float:
        """Remove the excess over the highest level from the placeholder first; return how long to wait for the rest."""
        over = level + self.placeholder_ms - self.score(quality)
        if over <= 0:
            over = 0
        elif over <= self.placeholder_ms:
            self.placeholder_ms -= over
            over = 0
        else:
            over -= self.placeholder_ms
            self.placeholder_ms = 0
        return 0 if quality == len(self.video.bitrates_kbps) - 1 else over

    def waited(self, ms: float) -> None:
        """See `Rule`: the time that a full buffer cost is virtual buffer."""
        self.placeholder_ms += ms

    def downloaded(self, player: Player, progress: Progress) -> None:
        """See `Rule`: keep the placeholder within the levels of the quality that was chosen."""
        self.last, level = progress.quality, player.level_ms
        if progress.abandon_to is not None:
            to = progress.abandon_to
            wanted = self.level_least(to) if to > 0 else self.MIN_MS
            self.placeholder_ms = min(self.placeholder_ms, max(0, wanted - level))
            return
        before = level + progress.ms
        self.placeholder_ms = min(self.placeholder_ms, max(0, self.score(progress.quality) - before))
        if level > 0:
            self.placeholder_ms = max(self.placeholder_ms, self.level_least(progress.quality) - before)

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """See `Rule`; the latency of a new request is included."""
        if progress.bits <= 0 or progress.size <= progress.bits:
            return None
        level = max(0, level_ms + self.placeholder_ms - progress.first_ms)
        rate = progress.bits / (progress.ms - progress.first_ms)
        left = progress.size - progress.bits - progress.first_ms * rate
        if left <= 0:
            return None
        return self.cheaper(progress, left, level)


class _Switching(Rule):
    """Two rules, one of which is active."""

    BY_BUFFER: type[Rule]

    def __init__(self, video: Video, settings: Settings) -> None:
        super().__init__(video, settings)
        self.by_buffer, self.by_throughput = self.BY_BUFFER(video, settings), Throughput(video, settings)
        self.uses_buffer = False

    def waited(self, ms: float) -> None:
        """See `Rule`."""
        self.by_buffer.waited(ms)

    def downloaded(self, player: Player, progress: Progress) -> None:
        """See `Rule`."""
        self.by_buffer.downloaded(player, progress)


class Dynamic(_Switching):
    """DYNAMIC of [Spiteri19]: BOLA from 10 s of buffer on, where it chooses no less than the throughput rule."""

    BY_BUFFER = Bola
    LOW_MS = 10_000

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """See `Rule`; both are evaluated each time."""
        buffered, measured = (rule.choose(player, index) for rule in (self.by_buffer, self.by_throughput))
        if self.uses_buffer:
            self.uses_buffer = not (player.level_ms < self.LOW_MS and buffered[0] < measured[0])
        else:
            self.uses_buffer = player.level_ms > self.LOW_MS and buffered[0] >= measured[0]
        return buffered if self.uses_buffer else measured

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """See `Rule`; by the throughput, whichever rule has chosen."""
        return self.by_throughput.abandon(player, progress, level_ms)


class DynamicDash(_Switching):
    """As dash.js: to BOLA-E above 10 s of buffer, back below 5 s; only the active rule is evaluated."""

    BY_BUFFER = BolaE
    LOW_MS, HIGH_MS = 5_000, 10_000

    @property
    def rule(self) -> Rule:
        """The active rule."""
        return self.by_buffer if self.uses_buffer else self.by_throughput

    def choose(self, player: Player, index: int) -> tuple[int, float]:
        """See `Rule`."""
        level = player.level_ms
        self.uses_buffer = level >= self.LOW_MS if self.uses_buffer else level > self.HIGH_MS
        return self.rule.choose(player, index)

    def abandon(self, player: Player, progress: Progress, level_ms: float) -> int | None:
        """See `Rule`."""
        return self.rule.abandon(player, progress, level_ms)


RULES: dict[str, type[Rule]] = {
    "dynamic": Dynamic,
    "dynamicdash": DynamicDash,
    "bola": Bola,
    "bolae": BolaE,
    "throughput": Throughput,
}
