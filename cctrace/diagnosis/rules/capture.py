"""Rules on the capture: its artefacts, and where it was taken."""

from collections.abc import Iterator
from dataclasses import replace

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import SINGLE_POLL, Facts
from cctrace.diagnosis.findings import ENDS, Finding, Findings

OWN = {"capture_artefact", "vantage_point"}
# Found by when packets were lost, or delivered.
BY_SACKS = {"policer", "random_loss", "poor_pacing", "shallow_buffer", "aqm", "congestive_loss", "reordering"}
BY_SACKS |= {"rate_change", "shaper"}
BY_SCALE = {"application_limited", "send_buffer_limited"}  # or the receive window


def capture_artefact(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Times or counts are artefacts of the capture."""
    one = facts.artefact
    if one is not None:
        yield facts.finding("capture_artefact", one.confidence, one.numbers, one.form).saying(**one.words)


def vantage_point(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The capture was not taken at the sender."""
    place = facts.elsewhere
    if place is not None:
        yield facts.finding(
            "vantage_point", const.CLEAR_CONFIDENCE if place.is_measured else const.EXPLAINING_CONFIDENCE, place
        )


def tempered(facts: Facts, found: list[Finding]) -> list[Finding]:
    """Return findings with the confidence that the record allows: misleading, without SACKs, or a single poll."""
    if facts.kind == SINGLE_POLL:
        of_ends = ENDS | {"reordering"}  # counted by the kernel
        most = {
            one.name: const.LIKELY_CONFIDENCE if one.name in of_ends else const.DOUBTFUL_CONFIDENCE for one in found
        }
    elif any(one.name == "capture_artefact" for one in found):
        most = {one.name: 1.0 if one.name in OWN else const.UNSURE_CONFIDENCE for one in found}
    elif facts.lacks_sacks or facts.lacks_scale:
        doubted = (BY_SACKS if facts.lacks_sacks else set()) | (BY_SCALE if facts.lacks_scale else set())
        most = {one.name: const.EXPLAINING_CONFIDENCE if one.name in doubted else 1.0 for one in found}
    else:
        return found
    return [replace(one, confidence=min(one.confidence, most[one.name])) for one in found]


def unknown(facts: Facts) -> Finding:
    """Return the finding for a flow whose limit is unknown."""
    numbers = {"goodput_bps": facts.goodput_bps, "rtt_least_us": facts.least_rtt_us}
    words = {"why": facts.why_nothing} if facts.why_nothing else {"despite": facts.despite or None}
    record = "these counters" if facts.has_polls else "the record"
    of_kernel = {"has_polls": facts.has_polls, "has_counters": facts.has_counters}
    return facts.finding("unknown", 0.0, numbers).saying(record=record, **of_kernel, **words)
