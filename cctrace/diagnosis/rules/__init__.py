"""From facts to findings: one rule per cause, whatever the record; `judge` applies all of them.

A rule reads the facts and earlier findings, and stays silent if a fact is missing. The order matters: causes at the
ends explain the path's state, and other flows explain losses and queues.
"""

from collections.abc import Callable, Iterator, Sequence

from cctrace.diagnosis.facts import Facts
from cctrace.diagnosis.findings import Finding, Findings
from cctrace.diagnosis.order import ordered
from cctrace.diagnosis.rules import capture, delays, ends, losses, marks, others, rates

Rule = Callable[[Facts, Findings], Iterator[Finding]]
CAPTURE: tuple[Rule, ...] = (capture.capture_artefact, capture.vantage_point)
RULES: tuple[Rule, ...] = (
    ends.receiver_limited,
    ends.slow_start_only,
    ends.send_buffer_limited,
    ends.receiver_pauses,
    ends.stalls,
    ends.pacing_limited,
    ends.application_limited,
    ends.app_limited_samples,
    others.policer,
    others.fair_queueing,
    others.competition,
    marks.ecn_marking,
    losses.poor_pacing,
    losses.losses,
    ends.paced_evenly,
    delays.ack_path_full,
    rates.rate_change,
    delays.reordering,
    delays.collapse,
    ends.waiting,
    rates.self_induced_queue,
    rates.congested_before,
    rates.shaper,
    rates.path_full,
    ends.nothing_to_send,
    rates.window_limited,
    rates.window_growing,
    delays.ack_compression,
    delays.ack_aggregation,
    delays.ack_thinning,
    delays.jitter,
    delays.inflated_min_rtt,
    losses.retransmissions,
    ends.paced_at_times,
)
WITHOUT_ANOTHER: tuple[Rule, ...] = (losses.few_losses,)


# Causes that may hide others: simulations without them decide (`cctrace.counterfactual.candidates`).
SECOND = {"random_loss", "jitter", "reordering", "aqm", "rate_change"}


def explained_away(facts: Facts, findings: Sequence[Finding]) -> list[Finding]:
    """Return what rules would have found if earlier findings had not explained as much."""
    named = {finding.name for finding in findings}
    if facts.is_blind or named & {"capture_artefact", "slow_start_only"}:
        return []
    alone = (finding for rule in RULES for finding in rule(facts, Findings()))
    shared = {"rate_change"} if "fair_queueing" in named else set()  # a fair share changes as others come and go
    return [finding for finding in alone if finding.name in SECOND - named - shared]


def judge(facts: Facts) -> list[Finding]:
    """Return the findings of a flow, most important first; at least one."""
    found = Findings()
    for rule in CAPTURE if facts.is_blind else (*CAPTURE, *RULES, *WITHOUT_ANOTHER):
        found.findings += rule(facts, found)
    if facts.is_blind:
        return [capture.unknown(facts), *found.findings]
    return ordered(capture.tempered(facts, found.findings)) or [capture.unknown(facts)]
