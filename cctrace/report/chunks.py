"""Flows with too many packets for one page: the page holds a selection, files next to it hold all.

    flow0-packets1.js, flow0-packets2.js, ...    one time span each; scripts: a page on disk loads nothing else
    the page                                     the extremes of each of some thousand time spans

The page's script loads the files of the visible time span once they are few enough to draw single packets.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import Ints
from cctrace.plot.packets import NEW, Received, Sent, in_time, rows_of
from cctrace.plot.panels import extreme_rows
from cctrace.report.data import packet_columns, script_json
from cctrace.report.page import FlowSection

PACKETS = 1_000_000  # that a page holds one by one
CHUNK = 200_000  # packets of a file
SPANS = 20_000  # of time, of each of which the page holds what is lowest and highest
RETRANSMISSIONS = 50_000  # retransmissions that it holds besides


class Packed(NamedTuple):
    """The packets of a flow for files beside the page."""

    drawn: tuple[Sent, Received]  # those that the page itself holds
    # Of each file: ``from`` and ``to`` (ns since the flow's start), ``sent`` and ``received`` (numbers of packets),
    # ``acked`` and ``top`` (cumulative acknowledgement and end of what had been sent when it begins, bytes).
    spans: list[dict[str, Any]]
    columns: list[dict[str, dict[str, Any]]]  # what the files hold, compressed


def pack(packets: tuple[Sent, Received], start_ns: int, spans: int) -> Packed:
    """Return the `Packed` of a flow's packets; `spans`: of time, of which the page keeps the extremes."""
    sent, received = in_time(packets[0]), in_time(packets[1])
    times = np.sort(np.concatenate((sent.time_ns, received.time_ns)))
    edges = sorted({int(times[0]), *(int(t) for t in times[CHUNK::CHUNK]), int(times[-1]) + 1})
    del times
    top = np.maximum.accumulate(np.concatenate(([0], sent.seq + sent.size)))
    acked = np.maximum.accumulate(np.concatenate(([0], received.ack)))
    spans_of_files, columns = [], []
    for low_ns, high_ns in itertools.pairwise(edges):
        rows = [np.searchsorted(side.time_ns, (low_ns, high_ns)) for side in (sent, received)]
        part = rows_of(sent, np.arange(*rows[0])), rows_of(received, np.arange(*rows[1]))
        columns.append(packet_columns(part, start_ns))
        span = {"from": low_ns - start_ns, "to": high_ns - start_ns, "sent": len(part[0]), "received": len(part[1])}
        spans_of_files.append(span | {"acked": int(acked[rows[1][0]]), "top": int(top[rows[0][0]])})
    del top, acked, part
    return Packed(_selected(sent, received, spans), spans_of_files, columns)


def files(packed: Packed, stem: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files beside the page; their names begin with `stem`."""
    for k, columns in enumerate(packed.columns, 1):
        name = f"{stem}-packets{k}.js"
        yield name, f"cctraceChunk({json.dumps(name)}, {script_json(columns)});\n"


def with_packets_in_files(
    sections: Sequence[FlowSection | None], stems: Sequence[str]
) -> tuple[list[FlowSection | None], Iterator[tuple[str, str]]]:
    """Return the sections as a page can hold them, and names and texts of the files with the packets of the others.

    `stems`: what the names of a section's files begin with.
    """
    room = PACKETS
    fitted: list[FlowSection | None] = []
    packed_flows: list[tuple[Packed, str]] = []
    for section, stem in zip(sections, stems, strict=True):
        packed = None if section is None else section.packed
        if section is not None and section.packets is not None and packed is None:
            if section.packet_count > room:
                packed = pack(section.packets, section.start_ns, SPANS // (len(packed_flows) + 1))
            else:
                room -= section.packet_count
        if section is not None and packed is not None:
            packed_flows.append((packed, stem))
            names = [f"{stem}-packets{k}.js" for k in range(1, len(packed.spans) + 1)]
            spans = [{"src": name, **span} for name, span in zip(names, packed.spans, strict=True)]
            section = replace(section, packets=packed.drawn, packed=None, packet_files=spans)
        fitted.append(section)
    return fitted, itertools.chain.from_iterable(files(packed, stem) for packed, stem in packed_flows)


def _selected(sent: Sent, received: Received, spans: int) -> tuple[Sent, Received]:
    """Return the first and last packets of each time span, and those with the extreme values."""
    ends = [side.time_ns[[0, -1]] for side in (sent, received) if len(side)]
    low, high = min(int(e[0]) for e in ends), max(int(e[1]) for e in ends) + 1
    new = sent.kind == NEW
    retransmitted = np.flatnonzero(~new)
    retransmitted = retransmitted[:: -(-len(retransmitted) // RETRANSMISSIONS) or 1]
    least, most = np.where(new, sent.seq, np.iinfo(np.int64).max), np.where(new, sent.seq + sent.size, -1)
    rows = [*extreme_rows(_span_of(sent, low, high, spans), least, most), retransmitted]
    chosen = rows_of(sent, np.unique(np.concatenate(rows)))
    span = _span_of(received, low, high, spans)
    edge = np.maximum(received.window, 0) + received.ack
    rows = extreme_rows(span, edge, edge)
    with_sack = np.flatnonzero(received.blocks)
    if len(with_sack):
        first = (np.cumsum(received.blocks) - received.blocks)[with_sack]
        outer = np.minimum.reduceat(received.left, first), np.maximum.reduceat(received.right, first)
        rows += [with_sack[k] for k in extreme_rows(span[with_sack], *outer)]
    return chosen, rows_of(received, np.unique(np.concatenate(rows)))


def _span_of(side: Sent | Received, low: int, high: int, spans: int) -> Ints:
    return ((side.time_ns - low) / (high - low) * spans).astype(np.int64)
