r"""Dependence of successive delays: a draw per packet, per burst, per slot of time, or reordering.

The delays of two packets that left the bottleneck one after the other reveal the process. If they share a draw,
their delays agree to within the clock although they could have differed: a *flat* pair. With independent draws,
flat pairs are rare. Flat runs end either at the start of a burst or on a time grid, whose period is where the
change times, folded by it, pile up (the periodogram of the points, [Bartlett63]).
"""

from typing import NamedTuple

import numpy as np

from cctrace.columns import Bools, Floats
from cctrace.estimates import Estimate
from cctrace.fit.constants import BIN_US, MAX_FLAT_SHARE, SELDOM_SHARE
from cctrace.path.constants import LEAST_RTTS, REORDERED_SHARE
from cctrace.path.delays import Delays
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import format_percent, format_share


class Process(NamedTuple):
    """Dependence of successive draws of jitter.

    Attributes
    ----------
    name : str
        "packet", "burst", "slot" as in `cctrace.Jitter`'s `per`; "reorder": a draw per packet, and packets overtake
        each other; or "unknown".
    slot_us : Estimate or None
        Length of a slot, us; None for other processes.
    correlation_time_us : Estimate
        Sum of the autocorrelations of the observed delays, times their spacing, us.
    why : str
        The evidence, in words.
    """

    name: str
    slot_us: Estimate | None
    correlation_time_us: Estimate
    why: str


def process_of(delays: Delays) -> Process:
    """Return the `Process` of some `Delays`."""
    correlation = delays.correlation_time_us  # first: it takes the memory of nine columns
    rtt, departed = delays.rtt_us, delays.departed_us[delays.last]
    if delays.reordered_share > REORDERED_SHARE:
        why = f"{format_share(delays.reordered_share)} of the packets arrived after one that was sent later"
        return Process("reorder", None, correlation, why)
    both = delays.event[1:] & delays.event[:-1]
    gap = np.diff(departed)
    both &= (gap > 0) & (gap < 20 * np.median(gap[gap > 0]))
    if both.sum() < LEAST_RTTS and len(both) > LEAST_RTTS / SELDOM_SHARE:
        why = f"only {both.sum()} of {len(both)} neighbours arrived apart, as those do that share a draw"
        return Process("packet", None, correlation, why)
    if both.sum() < LEAST_RTTS and delays.place == "before":
        why = f"only {both.sum()} neighbours found the queue empty: that each packet has its own draw is assumed"
        return Process("packet", None, correlation, why)
    if both.sum() < LEAST_RTTS:
        return Process("unknown", None, correlation, f"only {both.sum()} neighbours arrived apart")
    change = np.abs(np.diff(rtt))[both]
    clock = max(delays.tie_us, 2.0)
    flat = change <= clock
    share = float(flat.mean())
    # Expected by chance: pairs of distant packets.
    shuffled = np.abs(rtt[1:][both] - np.roll(rtt[1:][both], 37))
    chance = float(np.mean(shuffled <= clock))
    if chance > 0.5:
        why = f"delays differ by less than the clock tells apart ({clock:.0f} us)"
        return Process("unknown", None, correlation, why)
    if share < MAX_FLAT_SHARE or share < 3 * chance:
        by_chance = f"{format_percent(chance)} would by chance"
        why = f"{format_percent(share)} of neighbours agree, {by_chance}: a draw for each packet"
        return Process("packet", None, correlation, why)
    return _shared(delays, both, flat, departed)


def _shared(delays: Delays, both: Bools, flat: Bools, departed: Floats) -> Process:
    """Distinguish bursts from slots where neighbours share draws."""
    correlation = delays.correlation_time_us
    pairs = np.flatnonzero(both)
    ends = pairs[~flat]
    packets_us = 3 * PACKET_BYTES / float(np.median(delays.steps.rate))
    if not len(ends):
        why = "draws end between bursts only: how long they hold does not show"
        return Process("slot", Estimate(packets_us, packets_us, None), correlation, why)
    first = np.searchsorted(delays.group, np.arange(delays.group[-1] + 1))
    starts_burst = np.add.reduceat(delays.burst.astype(int), first)[1:] > 0  # of each pair, with the later group
    at_burst, usual = starts_burst[ends].mean(), starts_burst[pairs].mean()
    middle = (departed[:-1] + departed[1:]) / 2
    # Draws hold for at least a slot, so no slot is longer than the shortest times between changes.
    spacing = np.diff(middle[ends])
    spacing = spacing[spacing > packets_us]
    shortest = float(np.quantile(spacing, 0.1)) if len(spacing) else packets_us
    slot = slot_length(middle[ends], packets_us, middle[pairs], 1.5 * shortest)
    if at_burst > 0.9 and usual < 0.8 * at_burst and (slot is None or at_burst > 0.98):
        why = f"{format_percent(at_burst)} of the changes come with a new burst of the sender"
        return Process("burst", None, correlation, why)
    if slot is not None:
        return Process("slot", slot, correlation, "changes come on a grid in time")
    why = f"draws hold for {shortest:.0f} us or so, on no grid in time"
    return Process("slot", Estimate(shortest, packets_us, None), correlation, why)


def slot_length(
    times_us: Floats, least_us: float = 0.0, possible_us: Floats | None = None, most_us: float = np.inf
) -> Estimate | None:
    """Return the period of a grid on which points lie, an `Estimate` in us; None if there is none.

    If points can lie only at `possible_us` (packets arrive with the ACKs of the previous round trip), only what
    these times do not explain counts.

    The end of a slot is known only to the spacing of the packets around it, and not every slot ends with a change.
    Periods below `least_us` are those of the packets themselves; none exceeds `most_us`.
    """
    span = float(times_us[-1] - times_us[0]) if len(times_us) >= 20 else 0.0
    if span <= 0:
        return None
    counts = np.bincount(((times_us - times_us[0]) / BIN_US).astype(np.int64))
    if possible_us is not None:
        place = ((possible_us - times_us[0]) / BIN_US).astype(np.int64)
        inside = (place >= 0) & (place < len(counts))
        chance = counts.sum() / max(inside.sum(), 1)
        counts = counts - chance * np.bincount(place[inside], minlength=len(counts))
    counts = counts[: int(4e7 / BIN_US)]
    size = 1 << int(np.ceil(np.log2(2 * len(counts))))
    power = np.abs(np.fft.rfft(counts - counts.mean(), size)) ** 2 / len(times_us)
    frequency = np.arange(len(power)) / (size * BIN_US)
    usable = (frequency > max(20 / span, 1 / most_us)) & (frequency < 1 / max(least_us, 4 * BIN_US))
    if not usable.any():
        return None
    noise = np.median(power[usable])
    peak = float(power[usable].max())
    if peak < 25 * max(noise, 1e-12) or peak < 0.05 * len(times_us):
        return None
    # Harmonics may be as strong as the fundamental: take the lowest strong frequency.
    strong = np.flatnonzero(usable & (power > 0.4 * peak))
    at = strong[0]
    near = np.arange(max(at - 3, 1), min(at + 4, len(power)))
    at = near[np.argmax(power[near])]
    grid = (1 + np.linspace(-1, 1, 401) / frequency[at] / span) / frequency[at]
    period = float(grid[np.argmax([abs(np.exp(2j * np.pi * times_us / p).sum()) for p in grid])])
    phases = np.exp(2j * np.pi * times_us / period)
    concentration = abs(phases.mean())
    scatter = np.sqrt(-2 * np.log(max(concentration, 1e-6))) / (2 * np.pi) * period
    error = scatter * period / span * np.sqrt(12 / len(times_us))
    return Estimate.around(period, max(error, max(least_us / 6, BIN_US / 4) * period / span))
