"""The manifest of a video: bitrates, segments and their sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf

from cctrace.documents import json_file
from cctrace.errors import ArgumentError

# The DASH Industry Forum's Big Buck Bunny at 30 frames/s, as listed in [Bi23] section 5.3.1.
BIG_BUCK_BUNNY_KBPS = (254, 507, 759, 1013, 1254, 1883, 3134, 4952, 9914, 14931)


@dataclass(frozen=True)
class Video:
    """A video in segments of equal length, each available in several bitrates.

    Parameters
    ----------
    bitrates_kbps : tuple of float
        Increasing; quality 0 is the first. Default: the ten of Big Buck Bunny.
    segment_ms : float
    sizes_bits : tuple of tuples
        The size of each segment in each bitrate.

    Raises
    ------
    ArgumentError
        If bitrates do not increase, or a segment does not have one size for each.

    Examples
    --------
    >>> video = Video.of(minutes=10)
    >>> video.segments, video.length_s, video.sizes_bits[0][0]
    (150, 600.0, 1016000)
    """

    bitrates_kbps: tuple
    segment_ms: float
    sizes_bits: tuple

    def __post_init__(self) -> None:
        rates = self.bitrates_kbps
        if not rates or rates[0] <= 0 or any(a >= b for a, b in pairwise(rates)):
            raise ArgumentError(f"bitrates_kbps={rates!r} must be positive and increasing")
        if not 0 < self.segment_ms < inf or not self.sizes_bits:
            raise ArgumentError(
                f"segment_ms={self.segment_ms!r} with {len(self.sizes_bits)} segments: neither may be 0"
            )
        for k, sizes in enumerate(self.sizes_bits):
            if len(sizes) != len(rates) or min(sizes) <= 0:
                raise ArgumentError(f"segment {k} has sizes {sizes!r}; give a positive one for each of {rates}")

    @classmethod
    def of(
        cls, bitrates_kbps: Sequence[float] = BIG_BUCK_BUNNY_KBPS, segment_s: float = 4.0, minutes: float = 10.0
    ) -> Video:
        """Return a video whose segments all have the size of their nominal bitrate.

        Encoders vary the size with the scene: for the sizes of a manifest, use `read`.
        """
        number = ceil(minutes * 60 / segment_s)
        sizes = tuple(round(rate * segment_s * 1000) for rate in bitrates_kbps)
        return cls(tuple(bitrates_kbps), 1000 * segment_s, (sizes,) * number)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Video:
        """Read a manifest of Sabre: JSON with `segment_duration_ms`, `bitrates_kbps` and `segment_sizes_bits`.

        Raises
        ------
        FormatError
            If the file is not one.
        """
        with json_file(file, "a manifest of Sabre") as found:
            sizes = tuple(tuple(map(int, segment)) for segment in found["segment_sizes_bits"])
            return cls(tuple(map(float, found["bitrates_kbps"])), float(found["segment_duration_ms"]), sizes)

    def cut(self, seconds: float) -> Video:
        """Return the video at this length, repeated if it is shorter."""
        if seconds <= 0:
            raise ArgumentError(f"seconds={seconds!r} of a video must be positive")
        number = ceil(seconds * 1000 / self.segment_ms)
        times = ceil(number / self.segments)
        return Video(self.bitrates_kbps, self.segment_ms, (self.sizes_bits * times)[:number])

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self.sizes_bits)

    @property
    def length_s(self) -> float:
        """Length of the video in seconds."""
        return self.segments * self.segment_ms / 1000
