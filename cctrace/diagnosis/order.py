"""From what rules have found to verdicts: in words, with calibrated confidence, the most important first."""

from __future__ import annotations

from cctrace.diagnosis.catalogue import CAUSES, ORDER
from cctrace.diagnosis.findings import Finding, Verdict
from cctrace.diagnosis.wording import fill

SLOPE = 1.75  # of the logarithmic odds: by the rules' own measure verdicts are right more often than they say
MOST = 0.99
DOUBTFUL = 0.5  # below it a verdict goes behind all others, and its confidence stays


def verdict(finding: Finding) -> Verdict:
    """Return what a rule has found, in words, with calibrated confidence."""
    cause = CAUSES[finding.name]
    sentence = cause.forms.get(finding.form, cause.sentence)
    known = finding.numbers | finding.words
    said = (fill(template, known) for template in (sentence.text, sentence.advice, sentence.refuted_by))
    return Verdict(finding.name, calibrated(finding.confidence), *finding.span, finding.numbers, *said)


def cause_words(name: str, confidence: float) -> str:
    """Return a verdict's cause in plain words, for a table.

    Examples
    --------
    >>> cause_words("receiver_limited", 0.9), cause_words("random_loss", 0.3)
    ("receiver's window", 'perhaps random loss')
    """
    words = CAUSES[name].words
    return f"perhaps {words}" if confidence < DOUBTFUL and name != "unknown" else words


def ordered(found: list[Finding]) -> list[Finding]:
    """Return findings in the order of their importance; what is doubtful goes behind what is not."""
    return sorted(found, key=lambda finding: (finding.confidence < DOUBTFUL, _place(finding)))


def calibrated(confidence: float) -> float:
    """Return the confidence that is right as often as it says, of one as the rules give it; what is doubtful stays.

    One number, the slope of its logarithmic odds, was set on simulated flows of one seed and tried on another's;
    `python -m benchmarks.explain simulated` prints the one that makes its flows likeliest (docs/explain.md).

    Examples
    --------
    >>> round(calibrated(0.75), 2), calibrated(0.45)
    (0.87, 0.45)
    """
    if confidence <= DOUBTFUL:
        return confidence
    odds = (confidence / max(1 - confidence, 1e-6)) ** SLOPE
    return min(odds / (1 + odds), MOST)


def _place(finding: Finding) -> int:
    """Return the place in `ORDER`; a shaper whose bucket is gone within an RTT is no more than a link."""
    slight = finding.name == "shaper" and finding.numbers["bucket_rtts"] < 1
    return ORDER.index("congestive_loss" if slight else finding.name)
