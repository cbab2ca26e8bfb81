"""Whether a flow filled its path, and whether the path kept one rate meanwhile."""

import dataclasses
import itertools

import numpy as np

from cctrace.errors import FitError
from cctrace.fit.constants import CHANGED, JITTERY, LEAST_PART
from cctrace.path.bottleneck import Sent, Steps, candidate_steps, constant, constant_rate, delivered_rate, deviation
from cctrace.units import format_rate, format_time


def unfilled(its: Sent, fastest_mbps: float) -> str:
    """Return why the path's rate is unknown, and what a flow that did not fill its path still reveals."""
    rtt = its.rtt_us[its.acked]
    sd, mean = float(np.std(rtt)), float(np.mean(rtt))
    text = (
        "the flow never filled the path long enough to show its rate, which is at least "
        f"{format_rate(fastest_mbps * 1e6)}: a bulk flow is needed"
    )
    if sd > 2 * JITTERY * mean:
        text += (
            f"; its RTTs deviate by {format_time(1e3 * sd)} from {format_time(1e3 * mean)} without a queue to show for "
            "it: if it was BBR with data to send, it is one that jitter made collapse"
        )
    return text


def one_rate(its: Sent, rate: float) -> Steps:
    """Return the constant rate of the path as `Steps`; raise if the rate changed.

    Every part of the flow between likely changes gets its own rate.
    """
    steps = constant(rate)
    starts = np.concatenate([[0.0], candidate_steps(its), [np.inf]])
    for begin, end in itertools.pairwise(starts if len(starts) > 2 else ()):
        part = part_of(its, begin, end)
        if len(part.acked) < LEAST_PART:
            continue
        own, deviates = constant_rate(part)
        if abs(np.log(own / steps.rate[0])) > CHANGED and deviates < 0.8 * deviation(part, steps):
            raise FitError(
                f"the rate of the path changed (about {starts[1] / 1e6:.1f} s after the flow's first packet); the "
                "forecast is of one rate: cut the capture where it changes"
            )
    return steps


def fall(its: Sent, rate: float) -> float | None:
    """Return the smallest share of the rate over 5 s; None if at least one half, or if no second reached 0.8."""
    _, delivered, _ = delivered_rate(its, 1e6)
    share = delivered[1:-1] / rate
    if len(share) < 5 or share.max() < 0.8:
        return None
    least = float(np.convolve(share, np.full(5, 0.2), "valid").min())
    return least if least < 0.5 else None


def part_of(its: Sent, begin_us: float, end_us: float) -> Sent:
    """Return the packets sent in a part of a flow."""
    rows = (its.sent_us >= begin_us) & (its.sent_us < end_us)
    return Sent(*(getattr(its, field.name)[rows] for field in dataclasses.fields(Sent)))
