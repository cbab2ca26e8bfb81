"""A fair queue: when a flow's packets leave a link that serves all flows that have packets waiting at equal rates.

Its *virtual time* counts the bytes sent of each flow that has some waiting. A packet leaves as many bytes as it has
after it arrived, or after the one before it in its flow left, whatever other flows do: how many of them wait only
decides how fast virtual time passes [Demers89].
"""

import numpy as np

from cctrace.columns import Floats
from cctrace.path.bottleneck import AROUND, ROUGHLY, deviation_of
from cctrace.path.lindley import served_in_turn
from cctrace.path.minimise import least_within
from cctrace.path.sent import SentPackets


def fair_queue(own: SentPackets, others: list[SentPackets], about: float) -> tuple[float, float]:
    """Return the rate (bytes/us, near `about`) of the fair queue that explains the delays best; their deviation."""
    parts = [own, *others]
    sent_us, size = (np.concatenate([getattr(part, name) for part in parts]) for name in ("sent_us", "wire_bytes"))
    flow = np.repeat(np.arange(len(parts)), [len(part.sent_us) for part in parts])
    order = np.argsort(sent_us, kind="stable")
    packets = sent_us[order].astype(float), size[order].astype(float), flow[order]
    leaves, left_us = np.empty(len(own.sent_us)), np.empty(len(own.sent_us))

    def unexplained(rate: float) -> Floats:
        served_in_turn(*packets, float(rate), np.zeros(len(parts)), leaves, left_us)
        return own.acked_us[own.timed] - left_us[own.timed]

    low, high = about * AROUND[0], about * AROUND[1]
    return least_within(lambda rate, most: deviation_of(own, unexplained(rate)), low, high, *ROUGHLY.near)
