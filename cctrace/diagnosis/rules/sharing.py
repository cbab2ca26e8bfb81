"""Flows of one file are judged together: who shares a queue with whom, who is served in turn, who gets how much."""

from typing import NamedTuple

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.record import Record
from cctrace.path.bottleneck import Steps, constant, deviation
from cctrace.units import format_rate, format_share

COMMON = 0.1  # share by which the queue of all together explains a flow's delays better than its own
FAIR = 0.05  # of the fair share, within which everyone gets it
STEADY = 0.1  # and within which it stays, for three quarters of the time
FILLED = 0.7  # of the link's rate, that all flows together had where they competed
MOST_OF_IT = 0.5  # of a flow's data, that must have met a link so full
FEWEST = 20  # windows in which all had data, for their shares to be compared


def verdicts(record, limits, found):
    """Return `competition`, if other flows of the capture go through this one's queue, or `fair_queueing`."""
    if not record.companions or record.fluid is None:
        return []
    gain, rate = record.path.shared
    turns = _in_turns(record, gain)
    if turns is not None and (turns.hold or _others_show_turns(record)):
        return [_fair(record, turns)]
    if gain < COMMON or (got := _got(record, rate)) is None:
        return []
    return [_competition(record, gain, rate, got)]


class _Got(NamedTuple):
    """What a flow and its companions got while they were up together, bit/s of the wire, by their numbers."""

    mine: float
    theirs: dict


def _got(record, link):
    """Return the `_Got` of flows that filled the link together; None where most of this one's data met it half empty.

    Whoever sends little into a link that others leave empty competes with nobody, whatever queue would explain.
    """
    parts = record.path.parts
    begin, end = (1e6 * at_s for at_s in _overlap(record))
    window_us = max(100_000.0, *(part.least_rtt_us for part in parts if len(part.known)))
    edges = np.arange(begin, end + 1.0, window_us)
    if len(edges) < 2:
        return None
    rates = np.array([_rates(part, edges) for part in parts])
    mine, filled = rates[0], rates.sum(axis=0) >= FILLED * link
    if not mine.any() or mine[filled].sum() < MOST_OF_IT * mine.sum():
        return None
    mean = rates.mean(axis=1) * 8e6
    return _Got(float(mean[0]), dict(zip(record.companions, mean[1:].tolist(), strict=True)))


def _competition(record, gain, rate, got):
    rows = record.flow.capture.flows
    mine, theirs = got
    total = mine + sum(theirs.values())
    best = max(theirs, key=theirs.get)
    fair = total / (1 + len(theirs))
    won = "more than" if mine > (1 + FAIR) * fair else "less than" if mine < (1 - FAIR) * fair else "about"
    name = f"{rows.iloc[best]['src']}:{rows.iloc[best]['sport']}"
    others = f"{len(theirs)} other flow{'s' if len(theirs) > 1 else ''}"
    return Verdict(
        "competition",
        float(min(0.99, 0.7 + gain)),
        *_overlap(record),
        {
            "flows": 1 + len(theirs),
            "share": mine / total,
            "fair_share": 1 / (1 + len(theirs)),
            "link_bps": rate * 8e6,
            "explained_better_by": float(gain),
        },
        f"It shared a bottleneck of {format_rate(rate * 8e6)} with {others} of this capture and got "
        f"{format_share(mine / total)} of what they got together, {won} a fair share ({format_rate(mine)}; {name} got "
        f"{format_rate(theirs[best])}).",
        "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whoever the controllers are.",
        "Delays that this flow's own queue explains as well as the queue of all together.",
    )


def _fair(record, turns):
    rate, many = turns.rate * 8e6, 1 + len(record.companions)
    alone = f"; while it was alone it got {format_rate(turns.solo * 8e6)}" if turns.solo > 0 else ""
    whose = "its" if turns.hold else "the largest other flow's"
    own = "" if turns.solo > 0 else " (or each of them has a limit of its own)"
    return Verdict(
        "fair_queueing",
        0.95 if turns.solo > (1 - FAIR) * turns.rate else 0.75,
        *_overlap(record),
        {
            "flows": many,
            "share": turns.share,
            "share_deviation": turns.spread,
            "link_bps": rate,
            "deviation": turns.deviation,
        },
        f"The bottleneck serves its flows in turn: {many} flows of this capture got equal parts of "
        f"{format_rate(rate)} while all had data (this one {format_share(turns.share)}, within "
        f"{format_share(turns.spread)} of that for three quarters of the time){alone}, and "
        f"{whose} delays are those of a queue of its own{own}.",
        "Nothing to repair: no flow can take another's part, and more in flight only makes one's own queue longer.",
        "Delays that the queue of all together explains, or parts that follow the controllers.",
    )


class _Turns(NamedTuple):
    """Flows served in turn: the link's rate and this flow's while it was alone (0: never), bytes/us; this one's share
    and what it keeps within of that, relative; the deviation of its delays with such a server, and with one for all.
    """

    rate: float
    solo: float
    share: float
    spread: float
    deviation: float
    deviation_common: float

    @property
    def hold(self):
        """Whether a queue of its own explains the flow's delays, and one for all does not."""
        return self.deviation < (1 - COMMON) * self.deviation_common


def _others_show_turns(record):
    """Return whether the largest companion's delays are those of a queue of its own, served in turn.

    An AQM that drops much of this flow's own queue leaves delays that no queue explains.
    """
    rows = record.flow.capture.flows
    other = Record(record.flow.capture.flow(max(record.companions, key=lambda k: rows.iloc[k]["bytes_sent"])))
    if other.fluid is None or record.flow.index not in other.companions:
        return False
    turns = _in_turns(other, other.path.shared.gain)
    return turns is not None and turns.hold


def _in_turns(record, gain):
    """Return the `_Turns` if all flows got equal parts whenever they had data, else None."""
    own, *others = record.path.parts
    window_us = max(100_000.0, *(part.least_rtt_us for part in (own, *others) if len(part.known)))
    edges = np.arange(0.0, own.sent_us[-1] + window_us, window_us)
    if len(edges) < FEWEST:
        return None
    rates = np.array([_rates(part, edges) for part in (own, *others)])
    busy = rates > 0
    many, total = busy.sum(axis=0), rates.sum(axis=0)
    # Of a window in which a flow begins or ends it had data for a part only.
    inside = np.all(busy == np.roll(busy, 1, axis=1), axis=0) & np.all(busy == np.roll(busy, -1, axis=1), axis=0)
    full = inside & busy[0] & (many > 1)
    if full.sum() < FEWEST:
        return None
    parts = rates[:, full] / total[full] * many[full]
    off = np.abs(np.where(busy[:, full], parts, 1.0) - 1)
    spread = float(np.quantile(off.max(axis=0), 0.75))
    if spread > STEADY or np.median(off.max(axis=0)) > FAIR:
        return None
    link = float(np.median(total[full]))
    solo = rates[0, inside & busy[0] & (many == 1)]
    alone = deviation(own, constant(record.bottleneck.rate))
    return _Turns(
        link,
        float(np.median(solo)) if len(solo) >= FEWEST / 4 else 0.0,
        float(np.median(rates[0, full] / total[full])),
        spread,
        min(alone, deviation(own, _served(others, link, window_us))),
        alone * (1 - gain),
    )


def _served(others, link, pause_us):
    """Return the `Steps` of what is left of a link for one flow while each of the others that sends takes its part."""
    times, change = [0.0], [0]
    for other in others:
        sent_us = other.sent_us
        first = np.flatnonzero(np.diff(sent_us, prepend=-np.inf) > pause_us)
        times += [*sent_us[first], *sent_us[np.append(first[1:], len(sent_us)) - 1]]
        change += [1] * len(first) + [-1] * len(first)
    order = np.argsort(np.maximum(times, 0.0), kind="stable")
    many = 1 + np.cumsum(np.array(change)[order])
    times = np.maximum(times, 0.0)[order]
    at = np.unique(times)
    return Steps(at, link / many[np.searchsorted(times, at, side="right") - 1])


def _rates(part, edges):
    """Return what was delivered of a flow in windows, bytes/us; 0 where nothing was."""
    told, size = part.told_us[part.known], part.wire_bytes[part.known]
    order = np.argsort(told, kind="stable")
    told, total = told[order], np.cumsum(size[order])
    last = np.append(np.diff(told) > 0, True)
    even = np.diff(np.interp(edges, told[last], total[last], left=0.0)) / (edges[1] - edges[0])
    return np.where(np.histogram(told, edges)[0] > 0, even, 0.0)


def _overlap(record):
    others = record.companions.values()
    begin = max(0.0, min((table.start_ns - record.start_ns) / 1e9 for table in others))
    end = max(float(record.seconds(table.sent_ns[-1:])[0]) for table in others)
    return begin, min(end, record.duration_s)
