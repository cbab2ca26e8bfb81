"""From findings to verdicts: in words, with calibrated confidence, most important first."""

import math
from collections.abc import Mapping, Sequence

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.catalogue import CAUSES, ORDER
from cctrace.diagnosis.findings import Effect, Finding, Verdict
from cctrace.diagnosis.wording import fill
from cctrace.estimates import Z90, Estimate
from cctrace.special import special

REMEDIED = {"congestive_loss", "self_induced_queue"}  # the simulated remedy is another queue: its cost does not count
DOUBLED = {"congestive_loss", "shallow_buffer"}  # the simulated remedy is a buffer twice as large
# These matter even if they held for little time.
ACCOUNTED = {"receiver_limited", "send_buffer_limited", "application_limited", "pacing_limited"}
QUARTER_OF_INTERVAL = float(special.ndtri(0.75)) / Z90  # of half a 90 % interval: exceeded with probability 3/4
PAUSED = {"application_limited", "app_limited_samples"}  # the flow was seen without data to send


def verdict_of(finding: Finding) -> Verdict:
    """Return a rule's finding in words, with calibrated confidence."""
    cause = CAUSES[finding.name]
    sentence = cause.forms.get(finding.form, cause.sentence)
    known = finding.numbers | finding.words
    text, advice, refuted_by = (fill(one, known) for one in (sentence.text, sentence.advice, sentence.refuted_by))
    sure = calibrated(finding.confidence)
    return Verdict(finding.name, sure, *finding.span, finding.numbers, text, advice, refuted_by)


def cause_words(name: str, confidence: float) -> str:
    """Return a verdict's cause in plain words, for a table.

    >>> cause_words("receiver_limited", 0.9), cause_words("random_loss", 0.3)
    ('receive window', 'perhaps random loss')
    """
    words = CAUSES[name].words
    return f"perhaps {words}" if confidence < const.DOUBTFUL_CONFIDENCE and name != "unknown" else words


def ordered(found: list[Finding]) -> list[Finding]:
    """Return findings in order of importance; doubtful ones go last."""
    return sorted(found, key=lambda one: (one.confidence < const.DOUBTFUL_CONFIDENCE, _place(one.name, one.numbers)))


def calibrated(confidence: float) -> float:
    """Return the calibrated confidence of a rule's confidence; doubtful findings stay unchanged.

    The slope of the log odds was fitted to simulated flows of one seed and tested on another's;
    `python -m benchmarks.explain simulated` prints its maximum-likelihood value (docs/explain.md).

    >>> round(calibrated(0.75), 2), calibrated(0.45)
    (0.87, 0.45)
    """
    if confidence <= const.DOUBTFUL_CONFIDENCE:
        return confidence
    odds = (confidence / max(1 - confidence, 1e-6)) ** const.CALIBRATION_SLOPE
    return min(odds / (1 + odds), const.MAX_CONFIDENCE)


def _place(name: str, numbers: Mapping[str, float]) -> int:
    """Return the position in `ORDER`; a shaper whose bucket is spent within an RTT counts as a plain link.

    An application that writes on a clock follows all causes on the path if they cost more: without them the flow gets
    no more than is written, and without its pauses no more than in the rest of the time.
    """
    if name == "shaper" and numbers["bucket_rtts"] < 1:
        return ORDER.index("congestive_loss")
    if name == "application_limited" and numbers.get("every_us", 0) > 0:
        written_bps = numbers["write_bytes"] * 8e6 / numbers["every_us"]
        if written_bps * (1 - numbers["application_share"]) > numbers["goodput_bps"]:
            return ORDER.index("self_induced_queue")
    return ORDER.index(name)


# --- by effect -------------------------------------------------------------------------------------------------------
def by_effect(verdicts: Sequence[Verdict], goal: str) -> list[Verdict]:
    """Return verdicts ordered by the effect of their removal; ties stay in the given order, which is the catalogue's.

    `goal`: the primary objective: goodput, shorter RTTs ("delay"), or fewer retransmissions ("loss"). If a removal
    does not change goodput, its effect on the RTT decides, and vice versa.

    Causes without a number follow those that change the goal, and precede those that change nothing: `path_full`
    (nothing is wrong) precedes a loss whose removal gains nothing. A gain with only an upper bound, because the
    application may have no more data, ranks by that bound's value: every other gain needs these data, too. If the
    application was seen to pause, it follows the certain effects.
    """
    first, second = (goal, "goodput" if goal != "goodput" else "delay")
    # A gain that needs data the application may lack: behind the certain ones if the flow was seen without data.
    later = 1 if any(one.name in PAUSED for one in verdicts) else 0

    def key(one: Verdict) -> tuple[int, int, float, int]:
        effect, place = one.effect, _place(one.name, one.evidence)
        if one.name == "capture_artefact":
            return 0, 0, 0.0, 0
        counts = one.name in ACCOUNTED and (_matters(one, first, goal) or _may_matter(one, first, goal))
        if one.is_there < const.DOUBTFUL_CONFIDENCE and not counts:  # the likeliest first, whatever it would change
            return 6, 0, -one.is_there, 0
        if effect is None:
            return (2 if place < ORDER.index("path_full") else 4), 0, 0.0, 0
        # Effects that differ by less than a tie are in the catalogue's order.
        for rank, wanted in ((1, first), (3, second)):
            is_longer = one.name in DOUBLED and wanted != "goodput"  # a longer queue is not a gain
            gain = _least_gain(effect, wanted) if is_longer else _size(one, effect, wanted, goal)
            size = -round(gain / (const.LOSS_TIE if wanted == "loss" else const.RATIO_TIE))
            if _may_matter(one, wanted, goal):
                return rank + later, size, 0.0, place
            if _matters(one, wanted, goal):
                return rank, size, _alone(effect), place
        is_large = any(_size(one, effect, wanted, goal) >= _least(wanted) for wanted in (first, second))
        # Where chance hides a direction, the rule that found the cause decides.
        return (3, 0, 0.0, place) if is_large and place < ORDER.index("path_full") else (5, 0, 0.0, 0)

    return sorted(verdicts, key=key)


def _alone(effect: Effect) -> float:
    """Return a key for two causes that hide each other: the one whose removal alone changes more comes first."""
    if _goodput(effect) is effect.goodput:
        return 0.0
    return -max(abs(_logarithms(ratio)[0]) for ratio in (effect.goodput, effect.rtt))


def matters(one: Verdict) -> bool:
    """Return whether removing a cause is likely to change goodput or RTT, or may increase goodput."""
    return _may_matter(one, "goodput", "goodput") or any(
        _matters(one, wanted, "goodput") for wanted in ("goodput", "delay")
    )


def is_remedy(one: Verdict) -> bool:
    """Return whether removing a cause (or what it hides, too) certainly gains goodput, or spares retransmissions."""
    if one.effect is None:
        return False
    more, fewer = (_least_gain(one.effect, wanted) for wanted in ("goodput", "loss"))
    return (more > 0 and _matters(one, "goodput", "goodput")) or (fewer > 0 and _matters(one, "loss", "loss"))


def _least_gain(effect: Effect, wanted: str) -> float:
    """Return the gain in an objective that a removal certainly has; 0 if it may have none."""
    _, low, high = _change(effect, wanted)
    return max(low if wanted == "goodput" else -high, 0.0)


def _matters(one: Verdict, wanted: str, goal: str) -> bool:
    """Return whether a removal changes the objective enough, with a probability of three quarters for its direction."""
    if one.effect is None or _size(one, one.effect, wanted, goal) < _least(wanted):
        return False
    value, low, high = _change(one.effect, wanted)
    nearest = low if value > 0 else high
    return abs(value) > QUARTER_OF_INTERVAL * abs(value - nearest)


def _may_matter(one: Verdict, wanted: str, goal: str) -> bool:
    """Return whether a removal may change the objective enough, or not at all because the application may lack data."""
    effect = one.effect
    return effect is not None and effect.goodput.low is None and _size(one, effect, wanted, goal) >= _least(wanted)


def _least(wanted: str) -> float:
    """Return the least change of an objective that matters."""
    return {"goodput": const.GOODPUT_CHANGES, "delay": const.RTT_CHANGES, "loss": const.LOSS_CHANGES}[wanted]


def _size(one: Verdict, effect: Effect, wanted: str, goal: str) -> float:
    """Return the size of a removal's effect on an objective; for delay or loss only reductions count.

    A flow gets no less without a limit of its hosts: less in simulations is chance. Without other causes it may, but
    nobody removes a cause for that: such an effect counts as far as it is certain.
    """
    change, _, high = _change(effect, wanted)
    if wanted == "goodput" and change < 0:
        change = min(high, 0.0)
    better = change if wanted == "goodput" else -change
    gains_only = one.name in REMEDIED or (wanted == "goodput" and one.name in ACCOUNTED)
    return better if wanted == goal != "goodput" or gains_only else abs(change)


def _change(effect: Effect, wanted: str) -> tuple[float, float, float]:
    """Return value, low and high of a change: logarithms, or a difference of shares; open ends are infinite."""
    if wanted == "loss":
        value, low, high = effect.retransmitted
        return value or 0.0, -math.inf if low is None else low, math.inf if high is None else high
    return _logarithms(_goodput(effect) if wanted == "goodput" else effect.rtt)


def _logarithms(ratio: Estimate) -> tuple[float, float, float]:
    """Return the logarithms of a ratio and of its sides; infinite where one is not bounded."""
    value, low, high = ratio
    at = math.log(value) if value else 0.0
    return at, -math.inf if not low else math.log(low), math.inf if high is None else math.log(high)


def _goodput(effect: Effect) -> Estimate:
    """Return the goodput without a cause; where that is the same, without the one that it hides, too."""
    if effect.without_both is None or abs(math.log(effect.goodput.value or 1.0)) >= const.GOODPUT_CHANGES:
        return effect.goodput
    return effect.without_both
