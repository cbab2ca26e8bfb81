"""Flows of one file are judged together: who shares a queue with whom, and who gets how much."""

from dataclasses import replace

import numpy as np

from cctrace.explain.findings import Verdict
from cctrace.explain.own_queue import coarser, rate_of
from cctrace.explain.record import MOST
from cctrace.fit.bottleneck import Sent, constant, deviation, sent
from cctrace.units import format_rate, format_share

COMMON = 0.1  # share by which the queue of all together explains a flow's delays better than its own
FAIR = 0.05  # of the fair share, within which everyone gets it


def verdicts(record, limits, found):
    """Return `competition`, if other flows of the capture go through this one's queue."""
    others = record.companions
    if not others or record.fluid is None:
        return []
    gain, rate = together(record)
    if gain < COMMON:
        return []
    rows = record.flow.capture.flows
    mine = record.goodput_bps
    theirs = {index: float(rows.iloc[index]["goodput_bps"]) for index in others}
    total = mine + sum(theirs.values())
    best = max(theirs, key=theirs.get)
    fair = total / (1 + len(theirs))
    won = "more than" if mine > (1 + FAIR) * fair else "less than" if mine < (1 - FAIR) * fair else "about"
    name = f"{rows.iloc[best]['src']}:{rows.iloc[best]['sport']}"
    return [
        Verdict(
            "competition",
            float(min(0.99, 0.7 + gain)),
            *_overlap(record, others),
            {
                "flows": 1 + len(theirs),
                "share": mine / total,
                "fair_share": 1 / (1 + len(theirs)),
                "link_bps": rate * 8e6,
                "explained_better_by": float(gain),
            },
            f"It shared a bottleneck of {format_rate(rate * 8e6)} with {len(theirs)} other flow"
            f"{'s' if len(theirs) > 1 else ''} of this capture and got {format_share(mine / total)} "
            f"of it, {won} a fair "
            f"share ({format_rate(mine)}; {name} got {format_rate(theirs[best])}).",
            "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whoever the controllers are.",
            "Delays that this flow's own queue explains as well as the queue of all together.",
        )
    ]


def together(record):
    """Return by how much the queue of all flows explains this one's delays better than its own, and its rate."""
    packets = len(record.table) + sum(len(table) for table in record.companions.values())
    size = max(1, -(-packets // (2 * MOST)))
    own = coarser(sent(record.table), size)
    parts = [own]
    for table in record.companions.values():
        its = coarser(sent(table), size)
        shift = (table.start_ns - record.start_ns) / 1e3
        unknown = np.full(len(its.sent_us), np.nan)
        parts.append(replace(its, sent_us=its.sent_us + shift, told_us=unknown))
    order = np.argsort(np.concatenate([part.sent_us for part in parts]), kind="stable")
    names = tuple(Sent.__dataclass_fields__)
    whole = Sent(*(np.concatenate([getattr(part, name) for part in parts])[order] for name in names))
    alone = deviation(own, constant(record.bottleneck.rate))
    rate, cost = rate_of(whole)
    return (alone - cost) / alone if alone > 0 else 0.0, rate


def _overlap(record, others):
    begin = max(0.0, min((table.start_ns - record.start_ns) / 1e9 for table in others.values()))
    end = max(float(record.seconds(table.sent_ns[-1:])[0]) for table in others.values())
    return begin, min(end, record.duration_s)
