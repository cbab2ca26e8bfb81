"""Queues that mark instead of dropping (ECN): whether that is what held the window."""

from __future__ import annotations

from collections.abc import Iterator

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import Facts
from cctrace.diagnosis.findings import Finding
from cctrace.diagnosis.rules.found import ENDS, Found


def ecn_marking(facts: Facts, found: Found) -> Iterator[Finding]:
    """Marks cut the window time and again, more often than losses did; a model of the path takes no notice of them."""
    marks = facts.marks
    if marks is None or facts.is_model_based or found.sure & ENDS:
        return
    if marks.reductions < max(const.LEAST_CUTS, marks.loss_episodes) or marks.longest_pause_share > const.LONGEST_PAUSE:
        return
    sure = 0.6 + 0.35 * min(marks.reductions / const.MANY_CUTS, 1.0)
    if 2 * marks.loss_episodes > marks.reductions:
        sure = 0.55
    yield facts.finding("ecn_marking", sure, marks).saying(losses=marks.loss_episodes or None)
