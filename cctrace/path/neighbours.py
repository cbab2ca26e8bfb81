"""Which other flows of a capture share a flow's queue: candidates, and whether one queue explains the delays better."""

import contextlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cctrace.errors import StreamError
from cctrace.path.bottleneck import Sent, constant, deviation, sent
from cctrace.path.own_queue import MOST, coarser, packets_per_unit, rate_of
from cctrace.path.transmissions import transmissions

LEAST_SHARE = 0.02  # of the flow's bytes, for another to matter
LEAST_OVERLAP = 0.2  # of the flow's time
MOST_OTHERS = 16


class Shared(NamedTuple):
    """By which share the queue of all together explains a flow's delays better than its own; the rate of that queue."""

    gain: float
    rate: float


def neighbours(rows, index, one_bottleneck=False):
    """Return the indices of the flows of a capture that may share the queue of one.

    They have an end in common with it (or all may be taken to share one bottleneck), are up for a fifth of its time,
    and carry a fiftieth of its bytes or more.

    Parameters
    ----------
    rows : DataFrame
        `Capture.flows`.
    index : int
    one_bottleneck : bool
    """
    mine = rows.iloc[index]
    begin, end = mine["start_ns"], mine["start_ns"] + mine["duration_s"] * 1e9
    its_end = rows["start_ns"] + rows["duration_s"] * 1e9
    near = ((rows["src"] == mine["src"]) | (rows["dst"] == mine["dst"])).to_numpy() | one_bottleneck
    overlap = (np.minimum(its_end, end) - np.maximum(rows["start_ns"], begin)).to_numpy()
    near &= (overlap > LEAST_OVERLAP * (end - begin)) & (
        rows["bytes_sent"] > LEAST_SHARE * mine["bytes_sent"]
    ).to_numpy()
    near[index] = False
    return np.flatnonzero(near)[:MOST_OTHERS].tolist()


def companions_of(capture, indices):
    """Return {index: Transmissions} of those flows that can be reconstructed."""
    found = {}
    for index in indices:
        with contextlib.suppress(StreamError):
            found[index] = transmissions(capture.flow(index))
    return found


def parts_of(table, companions):
    """Return the `Sent` of a flow and of its companions, on its own clock and as coarse as all together require."""
    size = packets_per_unit(len(table) + sum(map(len, companions.values())), 2 * MOST)
    parts = []
    for each in (table, *companions.values()):
        its, shift = coarser(sent(each), size), (each.start_ns - table.start_ns) / 1e3
        parts.append(replace(its, sent_us=its.sent_us + shift, told_us=its.told_us + shift))
    return parts


def merged(parts):
    """Return the `Sent` of all flows in the order of sending; only of the first it is known when what arrived."""
    own, *others = parts
    parts = [own, *(replace(other, told_us=np.full(len(other.sent_us), np.nan)) for other in others)]
    order = np.argsort(np.concatenate([part.sent_us for part in parts]), kind="stable")
    return Sent(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in Sent.__dataclass_fields__))


def shared_queue(parts, own_rate):
    """Return the `Shared` of a flow, whose delays a bottleneck of `own_rate` explains best, and of others."""
    alone = deviation(parts[0], constant(own_rate))
    rate, cost = rate_of(merged(parts))
    return Shared((alone - cost) / alone if alone > 0 else 0.0, rate)
