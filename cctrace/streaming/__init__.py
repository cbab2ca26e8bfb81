"""Adaptive streaming (DASH): a client that chooses bitrates, over the simulated transport.

* `play` a session over a `Path`, with any controller; `play_rates` over rates alone, as Sabre simulates
* `Video` bitrates and segment sizes; `Settings` of the player; `Session` the result
* `read_periods` network traces of Sabre

Rules (`rules`), estimates of throughput and latency, and the buffer (both in `player`) decide as Sabre
does; `tests/test_streaming.py` compares each decision.
"""

from cctrace.streaming.player import Settings
from cctrace.streaming.rates import read_periods
from cctrace.streaming.session import Session, play, play_rates
from cctrace.streaming.video import BIG_BUCK_BUNNY_KBPS, Video

__all__ = ["BIG_BUCK_BUNNY_KBPS", "Session", "Settings", "Video", "play", "play_rates", "read_periods"]
