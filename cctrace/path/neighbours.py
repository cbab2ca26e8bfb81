"""Flows of one capture that share a bottleneck go through one queue."""

import contextlib

import numpy as np

from cctrace.errors import StreamError
from cctrace.path.bottleneck import Sent, constant, constant_rate, sent
from cctrace.path.steps import rate_steps
from cctrace.path.transmissions import transmissions

LEAST_SHARE = 0.02  # of the flow's bytes, for another to matter
BETTER = 0.85  # times the deviation alone: from there on the queue is common


def together(others, table, alone, say):
    """Return what goes through a flow's bottleneck, the bottleneck's rate, and how many other flows of the capture do.

    Parameters
    ----------
    others : list of Transmissions
        Of its `companions`.
    table : Transmissions
        Its own.
    alone : Sent
        What it sent.
    """
    if others:
        merged = _merged(alone, table.start_ns, others)
        rate, cost = constant_rate(merged, _plateau([alone, *others], table.start_ns))
        by_itself = constant_rate(alone)[1]
        if cost < BETTER * by_itself:
            return merged, constant(rate), len(others)
    return alone, rate_steps(alone, say)[0], 0


def _plateau(parts, start_ns):
    """Return the bounds of what all flows together got in most windows of 400 ms."""
    total = np.zeros(0)
    for part in parts:
        its = part if isinstance(part, Sent) else sent(part)
        shift = 0.0 if part is its else (part.start_ns - start_ns) / 1e3
        window = np.maximum((its.told_us[its.known] + shift) / 400_000.0, 0).astype(np.int64)
        got = np.bincount(window, its.wire_bytes[its.known]) / 400_000.0
        longer = np.zeros(max(len(total), len(got)))
        longer[: len(total)] += total
        longer[: len(got)] += got
        total = longer
    middle = float(np.median(total[total > 0]))
    return middle * 0.97, middle * 1.05


def neighbours(flow):
    """Return the indices of flows at the same time between the same hosts, or known to share the bottleneck."""
    rows = flow.capture.flows
    mine = rows.iloc[flow.index]
    begin, end = mine["start_ns"], mine["start_ns"] + mine["duration_s"] * 1e9
    found = []
    for i, row in enumerate(rows.to_dict("records")):
        same = flow.capture.one_bottleneck or (row["src"], row["dst"]) == (mine["src"], mine["dst"])
        overlap = min(end, row["start_ns"] + row["duration_s"] * 1e9) - max(begin, row["start_ns"])
        if same and i != flow.index and overlap > 0 and row["bytes_sent"] > LEAST_SHARE * mine["bytes_sent"]:
            found.append(i)
    return found


def companions(flow):
    """Return the transmissions of `neighbours`, of those that can be reconstructed."""
    found = []
    for i in neighbours(flow):
        with contextlib.suppress(StreamError):
            found.append(transmissions(flow.capture.flow(i)))
    return found


def _merged(alone, start_ns, others):
    """Return the `Sent` of all flows in the order of sending; only of the first it is known when what arrived."""
    parts = [alone]
    for table in others:
        its = sent(table)
        shift = (table.start_ns - start_ns) / 1e3
        unknown = np.full(len(its.sent_us), np.nan)
        parts.append(
            Sent(its.sent_us + shift, its.wire_bytes, unknown, np.full(len(unknown), -1), its.first, its.prompt)
        )
    order = np.argsort(np.concatenate([part.sent_us for part in parts]), kind="stable")
    columns = (np.concatenate([getattr(part, name) for part in parts])[order] for name in Sent.__dataclass_fields__)
    return Sent(*columns)
