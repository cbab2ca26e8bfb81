"""Flows of a capture that share a flow's queue: candidates, and whether a joint queue explains the delays better."""

import contextlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from cctrace.errors import StreamError
from cctrace.flows.capture import Capture
from cctrace.path.bottleneck import ROUGHLY, constant_rate, deviation
from cctrace.path.constants import COARSE_PACKETS, COMMON_GAIN, MAX_OTHERS, MIN_BYTES
from cctrace.path.own_queue import coarser, packets_per_unit
from cctrace.path.queue import constant
from cctrace.path.sent import SentPackets, sent_packets
from cctrace.path.transmissions import Transmissions, transmissions


class SharedQueue(NamedTuple):
    """A queue that a flow may share with other flows, compared with one of its own."""

    gain: float  # share by which it explains the flow's delays better: reduction of their deviation
    rate: float  # bytes/us
    flows: tuple[int, ...]  # indices of the other flows

    @property
    def is_common(self) -> bool:
        """Whether they share it."""
        return self.gain >= COMMON_GAIN


class Presence(NamedTuple):
    """When a flow was active (any clock and unit) and how much it sent: numbers, or arrays for several flows."""

    begin: Any
    end: Any
    sent_bytes: Any


def matters(mine: Presence, other: Presence) -> Any:
    """Return whether another flow would matter in the same queue: whether it sent enough bytes beside this one.

    A short flow that sends as fast as a long one takes as much of the path, for as long as it lasts.
    """
    overlap = np.minimum(mine.end, other.end) - np.maximum(mine.begin, other.begin)
    beside = other.sent_bytes * np.clip(overlap / np.maximum(other.end - other.begin, 1e-9), 0.0, 1.0)
    return beside > MIN_BYTES * mine.sent_bytes


def neighbours(rows: Mapping[str, Any], index: int, one_bottleneck: bool = False) -> list[int]:
    """Return the indices of the flows of a capture that may share a flow's queue.

    They share an end with it (or are assumed to share one bottleneck), and satisfy `matters`. Without some of its flows
    a queue explains no delays: its rate seems to change. Of more than `MAX_OTHERS`, those that sent most are returned.

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


def on_clock(table: Transmissions, start_ns: int, size: int = 1) -> SentPackets:
    """Return a flow's packets, `size` neighbours counted as one, with times in microseconds since `start_ns`."""
    flow, shift_us = coarser(sent_packets(table), size), (table.start_ns - start_ns) / 1e3
    return replace(flow, sent_us=flow.sent_us + shift_us, acked_us=flow.acked_us + shift_us)


def sent_packets_by_flow(tables: dict[int, Transmissions], start_ns: int) -> dict[int, SentPackets]:
    """Return {index: packets} of flows on one clock, merged so that all together have about 80,000 units at most."""
    size = packets_per_unit(sum(map(len, tables.values())), 2 * COARSE_PACKETS)
    return {index: on_clock(table, start_ns, size) for index, table in tables.items()}


def merged(parts: list[SentPackets], timed: int = 1) -> SentPackets:
    """Return the packets of all flows in order of sending; delivery times are kept for the first `timed` flows only."""
    own, others = parts[:timed], parts[timed:]
    parts = [*own, *(replace(other, acked_us=np.full(len(other.sent_us), np.nan)) for other in others)]
    order = np.argsort(np.concatenate([part.sent_us for part in parts]), kind="stable")
    return SentPackets(
        *(np.concatenate([getattr(part, each.name) for part in parts])[order] for each in fields(SentPackets))
    )


def shared_queue(parts: dict[int, SentPackets], index: int, others: tuple[int, ...], own_rate: float) -> SharedQueue:
    """Return how well a queue joint with `others` explains a flow's delays; `own_rate` is that of its own queue."""
    alone = deviation(parts[index], constant(own_rate))
    rate, cost = constant_rate(merged([parts[k] for k in (index, *others)]), ROUGHLY)
    return SharedQueue((alone - cost) / alone if alone > 0 else 0.0, rate, others)
