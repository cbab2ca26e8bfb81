"""How the receiver acknowledges: every packet, every second one, or everything that arrived in a time slot.

Counts the segments that each in-order ACK covers. With an ACK every n segments, most ACKs cover n. With slotted ACKs
(aggregation by a radio link or an interrupt-coalescing host), the count grows with the data rate, and ACK spacings are
multiples of the slot.
"""

from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.estimates import Estimate
from cctrace.path.constants import GATHERED_SEGMENTS, GRID_TOLERANCE, MIN_ACKS, ON_GRID_SHARE, USUAL_COUNT_SHARE
from cctrace.path.transmissions import DELIVERED, Transmissions


class Acks(NamedTuple):
    """Segments per ACK, and the ACK aggregation slot (us) or None."""

    every: Estimate
    aggregation_us: Estimate | None


def acks_of(table: Transmissions) -> Acks | None:
    """Return the `Acks` of a flow; None if fewer than `MIN_ACKS` ACKs came in order."""
    rows = np.flatnonzero((table.state == DELIVERED) & table.prompt & ~table.retransmitted)
    ack, first, count = np.unique(table.ack_row[rows], return_index=True, return_counts=True)
    if len(ack) < MIN_ACKS:
        return None
    acked_us = table.acked_ns[rows[first]] / 1e3
    low, middle, high = np.quantile(count, [0.1, 0.5, 0.9])
    gathered = count.mean() > GATHERED_SEGMENTS and np.mean(count == middle) < USUAL_COUNT_SHARE
    slot = _slot(acked_us) if gathered else None
    return Acks(Estimate(float(middle), float(low), float(high)), slot)


def _slot(acked_us: Floats) -> Estimate | None:
    """Return the slot of which ACK spacings are multiples, us; None if there is none."""
    spacing = np.diff(acked_us)
    spacing = spacing[(spacing > 0) & (spacing < 4 * np.median(spacing))]
    if len(spacing) < MIN_ACKS:
        return None
    # The shortest spacings of many ACKs: those of adjacent slots.
    shortest = float(np.quantile(spacing, 0.1))
    near = spacing[np.abs(spacing / shortest - 1) < GRID_TOLERANCE]
    slot = float(np.median(near)) if len(near) else shortest
    off = np.abs(spacing / slot - np.round(spacing / slot))
    if np.mean((off < GRID_TOLERANCE) & (spacing > (1 - GRID_TOLERANCE) * slot)) < ON_GRID_SHARE:
        return None
    error = float(np.std(near)) / np.sqrt(len(near)) if len(near) > 1 else GRID_TOLERANCE * slot
    return Estimate.around(slot, max(error, 1e-3))
