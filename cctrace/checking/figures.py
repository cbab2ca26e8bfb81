"""Figures and names that expectations refer to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.analytic.metrics import jain
from cctrace.cc import KERNEL_NAMES, canonical, kernel_name
from cctrace.diagnosis.constants import DOUBTFUL_CONFIDENCE
from cctrace.errors import StreamError
from cctrace.flows.flow import Flow

if TYPE_CHECKING:
    from cctrace.checking.subjects import Series, Subject

# Time to converge: the first of IN_A_ROW bins in a row that are near the end's rate, or fair.
IN_A_ROW = 5
NEAR = 0.8  # of the median rate of the second half: a sawtooth's troughs (CUBIC 0.7) shorter than a bin stay above
FAIR = 0.9  # Jain's index of the bins: two flows no further apart than 2:1
BIN_NS, BIN_RTTS = 100_000_000, 2  # of one flow: a bin, at least; acknowledgements come in bursts of a round trip
FAIR_BIN_NS, FAIR_BIN_RTTS = 500_000_000, 10  # of several: flows in turn fill the queue


def measured(key: str, subjects: Sequence[Subject]) -> float:
    """Return a figure of one flow or, for `expectations.OF_ALL`, of several, in ns, bit/s or as a share.

    Raises `StreamError` if the record lacks the data.
    """
    if key == "jain":
        if len(subjects) < 2:
            raise StreamError("fairness needs two flows or more: select them with flows")
        return float(jain([_known(subject.row["goodput_bps"]) for subject in subjects]))
    if key == "converged":
        rtt_ns = max(_known(subject.rtt_p95_us) * 1000 for subject in subjects)
        return converged_ns([subject.acked() for subject in subjects], rtt_ns)
    if key == "rtt_p95":
        return _known(subjects[0].rtt_p95_us) * 1000
    return _known(subjects[0].row["goodput_bps" if key == "goodput" else "retransmitted_share"])


def _known(value: Any) -> float:
    if not isinstance(value, int | float | np.number) or math.isnan(value):
        raise StreamError("the record does not contain it")
    return float(value)


def converged_ns(series: Sequence[Series], rtt_ns: float = 0.0) -> float:
    """Return the convergence time of flows, ns; infinite if they did not converge.

    One flow has converged when its rate stays at NEAR of the median of its second half, several when Jain's index
    of their rates stays at FAIR, both for IN_A_ROW bins in a row. The time runs from the flow's start, of several from
    the last one's, to the first of these bins.

    `series`: per flow, times (ns) and cumulative acknowledged bytes. `rtt_ns`: bins are at least BIN_RTTS, of several
    flows FAIR_BIN_RTTS, of these. Raises `StreamError` if the flows were active, together, for fewer bins than that.

    >>> time_ns = np.arange(0, 10_000_000_000, 10_000_000)
    >>> rate = np.where(time_ns < 2_000_000_000, 1, 10)
    >>> converged_ns([(time_ns, np.cumsum(rate))]) / 1e9
    2.0
    """
    begin, end = max(int(time_ns[0]) for time_ns, _ in series), min(int(time_ns[-1]) for time_ns, _ in series)
    least, rtts = (BIN_NS, BIN_RTTS) if len(series) == 1 else (FAIR_BIN_NS, FAIR_BIN_RTTS)
    bin_ns = max(least, int(rtts * rtt_ns))
    edges = np.arange(begin, end + 1, bin_ns)
    if len(edges) < 2 * IN_A_ROW + 1:
        raise StreamError(
            f"{max(end - begin, 0) / 1e9:.3g} s are too short: {2 * IN_A_ROW} bins of {bin_ns / 1e9:.3g} s"
        )
    rates = np.array(
        [np.diff(acked[np.searchsorted(time_ns, edges, "right") - 1].astype(float)) for time_ns, acked in series]
    )
    if len(series) > 1:
        good = jain(rates.T) >= FAIR
    else:
        good = rates[0] >= NEAR * max(np.median(rates[0][len(rates[0]) // 2 :]), np.finfo(float).tiny)
    stays = np.lib.stride_tricks.sliding_window_view(good, IN_A_ROW).all(axis=1)
    return float(edges[stays.argmax()] - begin) if stays.any() else math.inf


def controller_of(subject: Subject, names: Sequence[str]) -> tuple[bool, str]:
    """Return whether one of these controllers sent a flow, and which did: the kernel's name and the variants."""
    if subject.simulated is not None:
        sent = canonical(subject.simulated[0].flows["cc"][subject.simulated[1]]).partition(":")[0]
        kernels, variants = kernel_name(sent), [sent]
    else:
        analysis = subject.analysis
        found = analysis.identification
        variants = list(found.group) if found is not None else [analysis.variant] if analysis.variant else []
        kernels = analysis.controller or (kernel_name(variants[0]) if variants else "unknown")
    holds = any(name == kernels if name in KERNEL_NAMES else canonical(name) in variants for name in names)
    return holds, kernels if variants in ([], [kernels]) else f"{kernels} ({' or '.join(variants)})"


def verdict_of(subject: Subject, names: Sequence[str], wanted: bool) -> tuple[bool, str]:
    """Return whether the first verdict is one of `names` (unless `wanted`: no likely one is), and what was found.

    Raises `StreamError` if the flow has no diagnosis; says why.
    """
    analysis = subject.analysis
    if analysis.diagnosis is None:
        raise StreamError(analysis.notes[0] if analysis.notes else "there is no diagnosis")
    likely = [one.name for one in analysis.diagnosis.verdicts if one.is_there >= DOUBTFUL_CONFIDENCE]
    likely = likely or [analysis.diagnosis.cause]
    if wanted:
        return analysis.diagnosis.cause in names, analysis.diagnosis.cause
    return not set(names) & set(likely), ", ".join(likely)


def conformity_of(subject: Subject, names: Sequence[str]) -> tuple[bool, str]:
    """Return whether a sender's record follows all of these specifications, and the first violation.

    Raises `StreamError` if there are no packets, or only counters. Raises `ArgumentError` if another controller sent
    the flow.
    """
    from cctrace.conform import spec_of
    from cctrace.conform.captures import of_flow
    from cctrace.identification.identify import identify

    if not isinstance(subject.flow, Flow):
        raise StreamError("conformity needs packets, which counters and simulations without packets lack")
    sender = identify(subject.flow)
    found = [of_flow(subject.flow, spec_of(name), sender=sender) for name in names]
    failing = [
        f"{one.spec}: {verdict.id} {verdict.text()}" for one in found for verdict in one.verdicts if verdict.fails
    ]
    return not failing, failing[0] if failing else "conforms"
