"""Whether a flow filled a path of one rate, as a forecast of its collapse needs, and how far it fell below that rate.

`filled_rate` returns the steps of that rate and its error, or raises a `FitError` that says what the flow reveals
instead.
"""

import itertools

import numpy as np

from cctrace.errors import FitError
from cctrace.fit import constants as const
from cctrace.path.bottleneck import constant_rate, deviation, rate_errors
from cctrace.path.constants import SMALL_STEP
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, delivered_rate
from cctrace.path.steps import candidate_steps
from cctrace.units import format_rate, format_time


def filled_rate(sent: SentPackets, rate: float | None) -> tuple[Steps, float]:
    """Return the path's one rate, as `Steps`, and the standard error of its logarithm.

    `rate`: the likeliest constant rate in bytes/us, if it is known already. Raises `FitError` if the rate changed, or
    if the flow never filled the path.
    """
    steps = _one_rate(sent, constant_rate(sent)[0] if rate is None else rate)
    error = float(rate_errors(sent, steps)[0])
    _, delivered, _ = delivered_rate(sent, max(5e5, 4 * sent.least_rtt_us))
    is_certain = error <= const.MAX_RATE_ERROR and explains_delays(sent, steps)
    if not is_certain or delivered.max() > const.FASTER_TIMES * steps.rate[0]:
        raise FitError(_unfilled(sent, delivered.max() * 8))
    return steps, error


def explains_delays(sent: SentPackets, steps: Steps) -> bool:
    """Return whether a queue at this rate explains any of the delays."""
    with_queue, without = deviation(sent, steps), deviation(sent, constant(1e6))
    return without - with_queue >= const.RATE_GAIN * without


def _unfilled(sent: SentPackets, fastest_mbps: float) -> str:
    """Return why the path's rate is unknown, and what a flow that did not fill its path still reveals."""
    rtt = sent.rtt_us[sent.acked]
    sd, mean = float(np.std(rtt)), float(np.mean(rtt))
    text = (
        "the flow never filled the path long enough to show its rate, which is at least "
        f"{format_rate(fastest_mbps * 1e6)}: a bulk flow is needed"
    )
    if sd > 2 * const.JITTERY_SHARE * mean:
        text += (
            f"; its RTTs deviate by {format_time(1e3 * sd)} from {format_time(1e3 * mean)} without a queue to show for "
            "it: if it was BBR with data to send, it is one that jitter made collapse"
        )
    return text


def _one_rate(sent: SentPackets, rate: float) -> Steps:
    """Return a constant rate as `Steps`; raise if a part of the flow between likely changes had another one."""
    steps = constant(rate)
    changes_us = candidate_steps(sent)
    edges_us = [0.0, *changes_us, np.inf] if len(changes_us) else []
    for begin, end in itertools.pairwise(edges_us):
        part = sent.part(begin, end)
        if len(part.acked) < const.MIN_PART:
            continue
        rate_of_part, deviates = constant_rate(part)
        if abs(np.log(rate_of_part / rate)) > SMALL_STEP and deviates < 0.8 * deviation(part, steps):
            raise FitError(
                f"the rate of the path changed (about {changes_us[0] / 1e6:.1f} s after the flow's first packet); the "
                "forecast is of one rate: cut the capture where it changes"
            )
    return steps


def lowest_share(sent: SentPackets, rate: float) -> float | None:
    """Return the smallest share of the rate over 5 s; None if at least one half, or if no second reached 0.8."""
    _, delivered, _ = delivered_rate(sent, 1e6)
    share = delivered[1:-1] / rate
    if len(share) < 5 or share.max() < 0.8:
        return None
    least = float(np.convolve(share, np.full(5, 0.2), "valid").min())
    return least if least < 0.5 else None
