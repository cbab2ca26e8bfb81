"""Flows of a capture that share a flow's queue: candidates, and whether a joint queue explains the delays better."""

import contextlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from cctrace.errors import StreamError
from cctrace.flows.capture import Capture
from cctrace.path.bottleneck import ROUGHLY, constant_rate, deviation
from cctrace.path.constants import COARSE_PACKETS, COMMON, MAX_OTHERS, MIN_BYTES, MIN_OVERLAP
from cctrace.path.own_queue import coarser, packets_per_unit
from cctrace.path.queue import constant
from cctrace.path.sent import Sent, sent
from cctrace.path.transmissions import Transmissions, transmissions


class Shared(NamedTuple):
    """The joint queue of a flow and `flows`: its gain over the own queue in explaining delays, and its rate."""

    gain: float
    rate: float
    flows: tuple[int, ...]

    @property
    def is_common(self) -> bool:
        """Whether they share a queue."""
        return self.gain >= COMMON


class Presence(NamedTuple):
    """When a flow was active (any clock and unit) and how much it sent: numbers, or arrays for several flows."""

    begin: Any
    end: Any
    sent_bytes: Any


def matters(mine: Presence, other: Presence) -> Any:
    """Return whether another flow would matter in the same queue: a fifth of the time and a fiftieth of the bytes."""
    overlap = np.minimum(mine.end, other.end) - np.maximum(mine.begin, other.begin)
    return (overlap > MIN_OVERLAP * (mine.end - mine.begin)) & (other.sent_bytes > MIN_BYTES * mine.sent_bytes)


def neighbours(rows: Mapping[str, Any], index: int, one_bottleneck: bool = False) -> list[int]:
    """Return the indices of the flows of a capture that may share a flow's queue.

    They share an end with it (or are assumed to share one bottleneck), and satisfy `matters`. Without some of the
    flows in it, a queue explains nothing: the rate that is left looks as if it changed. If there are too many to be
    followed, those that sent least are left out.

    `rows`: `Capture.flows`, or its `columns`.
    """
    src, dst, begin, sent_bytes = (np.asarray(rows[name]) for name in ("src", "dst", "start_ns", "bytes_sent"))
    end = begin + np.asarray(rows["duration_s"]) * 1e9
    near = (src == src[index]) | (dst == dst[index]) | one_bottleneck
    near &= matters(Presence(begin[index], end[index], sent_bytes[index]), Presence(begin, end, sent_bytes))
    near[index] = False
    found = np.flatnonzero(near)
    largest = np.argsort(-sent_bytes[found], kind="stable")[:MAX_OTHERS]
    return np.sort(found[largest]).tolist()


def companions_of(capture: Capture, indices: list[int]) -> dict[int, Transmissions]:
    """Return {index: Transmissions} of the flows that can be reconstructed."""
    found = {}
    for index in indices:
        with contextlib.suppress(StreamError):
            found[index] = transmissions(capture.flow(index))
    return found


def on_clock(table: Transmissions, start_ns: int, size: int = 1) -> Sent:
    """Return the `Sent` of a flow, `size` neighbours counted as one, in microseconds since `start_ns`."""
    its, shift = coarser(sent(table), size), (table.start_ns - start_ns) / 1e3
    return replace(its, sent_us=its.sent_us + shift, acked_us=its.acked_us + shift)


def parts_of(tables: dict[int, Transmissions], start_ns: int) -> dict[int, Sent]:
    """Return {index: Sent} of flows on one clock, at the coarseness that all together require."""
    size = packets_per_unit(sum(map(len, tables.values())), 2 * COARSE_PACKETS)
    return {index: on_clock(table, start_ns, size) for index, table in tables.items()}


def merged(parts: list[Sent]) -> Sent:
    """Return the `Sent` of all flows in order of sending; delivery times are kept for the first flow only."""
    own, *others = parts
    parts = [own, *(replace(other, acked_us=np.full(len(other.sent_us), np.nan)) for other in others)]
    order = np.argsort(np.concatenate([part.sent_us for part in parts]), kind="stable")
    return Sent(*(np.concatenate([getattr(part, each.name) for part in parts])[order] for each in fields(Sent)))


def shared_queue(parts: dict[int, Sent], index: int, others: tuple[int, ...], own_rate: float) -> Shared:
    """Return how well a queue joint with `others` explains a flow's delays; `own_rate` is that of its own queue."""
    alone = deviation(parts[index], constant(own_rate))
    rate, cost = constant_rate(merged([parts[k] for k in (index, *others)]), ROUGHLY)
    return Shared((alone - cost) / alone if alone > 0 else 0.0, rate, others)
