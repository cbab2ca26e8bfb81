"""Probabilities of the candidates that they sent a flow, from packets: sends, flights and phases combined.

**Which candidate.** Where times are exact, the log likelihoods of sends count by half, since consecutive blocks are
correlated. Otherwise single sends are uninformative, and a replay's errors persist for the entire flow: a queue
before the capture point, a minimum RTT that it hides, a gain cycle out of step. Log likelihoods then count little,
and less per block the more blocks there are:

    evidence = (MANY_BLOCKS / n)^DEPENDENCE times the sum of
                   FAMILY_WEIGHT     best of the candidates with a gain cycle, against those without (flights)
               and for each of these, relative to the best of them,
                   FLIGHTS_WEIGHT    flights                  x short^(1/2)
                   BANDWIDTH_WEIGHT  by_bandwidth (phases)    x short^(4/3)
                   LEVEL_WEIGHT      by_level (phases)        x short^(4/3)
               - AFTER_WEIGHT wrong_factor
               - evidence of flights against one that paces (`Flights.log_odds_against`)

    short = min(1, flight / LONG_FLIGHT segments): errors are of the order of segments

A window limited by something other than cwnd neither distinguishes controllers that pace from others, nor proves
that a probe was due; at a fixed rate, dips of PROBE_RTT do (`dips`).

**Or none.** A sender's own replay is near perfect on any path; its closest relative's only for a while. Measures of
fit, each relative to perfection, add to the log odds: the median log likelihood of a send (+2.4 for the own
controller in simulation, +1 on real hosts, less with long super-packets), how often an unpaced window is wrong, and
the errors of flights, rates, and windows after reductions.
"""

import math
from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.identification import constants as const
from cctrace.identification.flights import Flights, WrongWindows, uninformative
from cctrace.identification.phases import Cycles, other_cycle
from cctrace.identification.sends import Replay, SenderRecord
from cctrace.replaying.senders import L4S_SENDERS
from cctrace.special import special
from cctrace.units import format_percent

UNKNOWN = "unknown"
BOUNDED = ("bbr2", "bbr2plus", "bbr3")  # differ by what losses leave of inflight_hi, known to their sender only


class Candidate(NamedTuple):
    """A controller, or "unknown", and the probability that it sent the flow.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> name, probability = cct.identify(flow).candidates[0]
    >>> name, probability > 0.9
    ('cubic6', True)
    """

    name: str
    probability: float


class Fit(NamedTuple):
    """All measures of one candidate on a capture."""

    replay: Replay
    flights: Flights


class Judgement(NamedTuple):
    """The combined evidence for all candidates."""

    kind: str  # "sends", "flights" or "counters"
    evidence: dict[str, float]  # log likelihood of the flow under each candidate
    known_log_odds: float  # that one of them sent the flow
    contributions: dict[str, Floats]  # contributions to that, per interval, half round trip or poll
    paced: dict[str, bool]  # whether the socket paces although the candidate does not
    closest_error: str  # of the closest candidate

    @property
    def best(self) -> str:
        """The candidate that explains the flow best."""
        return max(self.evidence, key=self.evidence.__getitem__)

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates and "unknown", most probable first.

        LP, which is none of them, sends the same as Reno ([Linux618] net/ipv4/tcp_lp.c): no record tells one from the
        other, so that LP is an alternative as likely as an unknown sender is beforehand.
        """
        log_odds = self.known_log_odds
        if self.best == "reno":
            log_odds = -float(np.logaddexp(-log_odds, -const.PRIOR_LOG_ODDS))
        return probabilities(self.evidence, log_odds)

    @property
    def group(self) -> tuple[str, ...]:
        """The best candidate and those not GROUP_RATIO times less probable; "unknown" if that is more probable."""
        if dict(self.candidates)[UNKNOWN] >= 0.5:
            return (UNKNOWN,)
        named = [candidate for candidate in self.candidates if candidate.name != UNKNOWN]
        return group_of(named)


def group_of(candidates: list[Candidate]) -> tuple[str, ...]:
    """Return the names of the first, most probable candidate and of those not GROUP_RATIO times less probable."""
    most = candidates[0].probability
    return tuple(candidate.name for candidate in candidates if candidate.probability * const.GROUP_RATIO >= most)


def judge(record: SenderRecord, fits: dict[str, Fit], cycles: Cycles | None) -> Judgement:
    """Combine sends, flights and phases; `cycles` where departure times are estimates."""
    evidence = _evidence_of_flights(record, fits, cycles) if cycles else _evidence_of_sends(record, fits)
    best = fits[max(evidence, key=evidence.__getitem__)]
    known_log_odds = _known(record, fits, evidence)
    if cycles:
        known_log_odds -= _length(record) ** (2 * const.DEPENDENCE) * other_cycle(cycles, best.replay)
    contributions = {name: fit.flights.log_likelihoods if cycles else fit.replay.sends for name, fit in fits.items()}
    paced = {name: fit.replay.paced for name, fit in fits.items()}
    how = "flights" if cycles else "sends"
    return Judgement(how, evidence, known_log_odds, contributions, paced, f"{format_percent(best.flights.scale)} off")


def _evidence_of_sends(record: SenderRecord, fits: dict[str, Fit]) -> dict[str, float]:
    """Return the log likelihood of the sends under each candidate, where departure times are exact."""
    evidence = {name: const.SENDS_TEMPER * float(np.sum(fit.replay.sends)) for name, fit in fits.items()}
    if record.rebuilt:
        evidence |= _alike_paced(fits, evidence)
    if record.rebuilt or _is_lossy_middle(record):  # what losses left of inflight_hi, or when, is a guess
        most = max(evidence[name] for name in BOUNDED)
        evidence |= {name: most + const.RARE_LOG_ODDS.get(name, 0.0) for name in BOUNDED}
    return evidence


def _is_lossy_middle(record: SenderRecord) -> bool:
    """Return whether packets were lost, and the losses before the capture, which bound the flight, too, are unknown."""
    return not record.events.meta["complete"] and len(record.halves.reductions) > 0


def _evidence_of_flights(record: SenderRecord, fits: dict[str, Fit], cycles: Cycles) -> dict[str, float]:
    """Return the log likelihood of flights and gain cycles under each candidate, where departures are estimates."""
    halves = record.halves
    paces = [name for name, fit in fits.items() if fit.replay.paces]
    flights = {name: float(np.sum(fit.flights.log_likelihoods)) for name, fit in fits.items()}
    best = max(paces, key=flights.__getitem__)
    count = (const.MANY_BLOCKS / max(len(fits[best].flights.log_likelihoods), 1)) ** const.DEPENDENCE
    paced_evidence = among_paced(paces, flights, cycles, _length(record), count)
    if halves.policed or _is_lossy_middle(record):
        most = max(paced_evidence[name] - const.RARE_LOG_ODDS.get(name, 0.0) for name in BOUNDED)
        paced_evidence |= {name: most + const.RARE_LOG_ODDS.get(name, 0.0) for name in BOUNDED}
    evidence = {}
    for name, fit in fits.items():
        if name in paced_evidence:
            evidence[name] = count * const.FAMILY_WEIGHT * flights[best] + paced_evidence[name]
        else:
            wrong = const.SENDS_TEMPER * wrong_factor(fit.flights)
            evidence[name] = count * const.FAMILY_WEIGHT * flights[name] - wrong
    if halves.held_back:
        most = max(evidence[name] for name in paces)
        evidence = {name: value if name in paced_evidence else min(value, most) for name, value in evidence.items()}
        if not halves.steady:
            return evidence
    return {name: value - fits[name].flights.log_odds_against for name, value in evidence.items()}


def _alike_paced(fits: dict[str, Fit], by_sends: dict[str, float]) -> dict[str, float]:
    """Return the evidence for each candidate that paces where losses are reconstructed, relative to the best of them.

    Errors of what was delivered persist in a bandwidth, and differ between models: intervals do not add up.
    """
    usual = {name: float(np.median(fit.replay.sends)) for name, fit in fits.items() if fit.replay.paces}
    best = max(usual, key=by_sends.__getitem__)
    return {name: by_sends[best] + const.WEIGHT * (value - usual[best]) for name, value in usual.items()}


def _length(record: SenderRecord) -> float:
    """Return how much flights say because of their length, 0 to 1: errors are of the order of segments."""
    return min(float(np.median(record.halves.flight)) / const.LONG_FLIGHT, 1.0)


def among_paced(
    paces: list[str], flights: dict[str, float], cycles: Cycles, short: float, count: float
) -> dict[str, float]:
    """Return the log evidence for each candidate that paces, relative to the best of them.

    `flights`: log likelihoods. `short`, `count`: factors of short flights, and of many blocks.
    """
    value = {name: const.FLIGHTS_WEIGHT * math.sqrt(short) * flights[name] for name in paces}
    by_cycle = short ** (2 * const.DEPENDENCE)
    for weight, scores in ((const.BANDWIDTH_WEIGHT, cycles.by_bandwidth), (const.LEVEL_WEIGHT, cycles.by_level)):
        most = max(scores.values(), default=0.0)
        for name, score in scores.items():
            value[name] += max(weight * by_cycle * (score - most), -math.log(const.GROUP_RATIO))
    value = {name: count * evidence + const.RARE_LOG_ODDS.get(name, 0.0) for name, evidence in value.items()}
    most = max(value.values())
    return {name: evidence - most for name, evidence in value.items()}


def _known(record: SenderRecord, fits: dict[str, Fit], evidence: dict[str, float]) -> float:
    """Return the log odds that a candidate sent the flow, averaged over the plausible ones by probability."""
    weights = softmax(evidence)
    odds = [
        math.log(weight) + log_odds(record, fits[name])
        for name, weight in weights.items()
        if weight * const.GROUP_RATIO >= max(weights.values())
    ]
    return float(np.logaddexp.reduce(odds))


def log_odds(record: SenderRecord, fit: Fit) -> float:
    """Return the log odds that a candidate, not an unknown sender, sent a flow."""
    replay, flights = fit
    total = const.PRIOR_LOG_ODDS + (const.SENDS_ECT1 if record.is_l4s and replay.name in L4S_SENDERS else 0.0)
    halves = min(len(flights.log_likelihoods) / const.FULL_WEIGHT, 1.0)
    if not record.exact:
        scale = const.PACED_SCALE if replay.paces else const.WINDOW_SCALE
        fits = const.STRONG_WEIGHT * math.log((scale + record.halves.jitter) / flights.scale)
        # Within a segment, the short flights of any sender are those of a candidate.
        total += halves * min(fits, const.MAX_FOR * _length(record))
        if record.halves.steady or (record.halves.held_back and not replay.paces):
            total = min(total, const.PRIOR_LOG_ODDS)
        return total - flights.log_odds_against - wrong_factor(flights)
    full = min(len(replay.sends) / const.FULL_WEIGHT, 1.0)
    middle = uninformative(record.halves)
    if flights.wrong_windows is not None:
        # The worse quarter: the windows of H-TCP and YeAH are Reno's for a part of a flow. A host blurs all of it.
        worse, better = (
            float(likelihood) - middle
            for likelihood in np.quantile(replay.sends, (const.WORSE_QUANTILE, const.BETTER_QUANTILE))
        )
        usual = min(max(better - const.UNEVEN_LOG_LIKELIHOOD, 0.0), const.WORSE_FITS)
        fits = const.STRONG_WEIGHT * (worse - usual)
        right = full * max(min(fits, const.MAX_FOR), -const.MAX_AGAINST) + _window_odds(flights.wrong_windows, replay)
        # A segment off either way is right, too: of windows up to three segments that is nearly any.
        usual_flight = max(float(np.median(record.halves.flight)), const.ONE_SEGMENT)
        weight = max(1 - 3 * const.ONE_SEGMENT / usual_flight, 0.0)
        total += right * weight if right > 0 else right
    else:
        sends = full * (float(np.median(replay.sends)) - middle)
        total += sends + const.REBUILT_LOG_ODDS * full if record.rebuilt else const.WEIGHT * sends
        total += halves * const.WEIGHT * math.log(const.EXACT_SCALE / flights.scale)
        total -= halves * const.MAX_AGAINST if record.shows_no_timer else 0.0  # round trips in which none was due
    return total - wrong_factor(flights)


def _window_odds(wrong_windows: WrongWindows, replay: Replay) -> float:
    usual = const.TICKS_WRONG_WINDOWS if replay.depends_on_ticks else const.WRONG_WINDOWS
    weight = const.WRONG_WINDOWS_WEIGHT * min(wrong_windows.acks / const.FULL_WEIGHT, 1.0)
    odds = weight * math.log(usual / max(wrong_windows.share, const.MIN_WRONG_WINDOWS))
    return min(odds, const.MAX_FOR) if replay.paced else odds  # a timer excuses windows that are not filled


def wrong_factor(flights: Flights) -> float:
    """Return the reduction of a candidate's log odds due to wrong windows after reductions: of all, or of some.

    Others reduce their window as a candidate does for a part of a flow only (H-TCP, YeAH): the likelihood ratio of the
    share of wrong ones and of the share that may be anything, if it is the smaller one.
    """
    if math.isnan(flights.error_after_reductions):
        return 0.0
    beyond = max(abs(flights.error_after_reductions) - const.AFTER_USUAL, 0.0)
    wrong = min(const.AFTER_WEIGHT * beyond, const.MAX_AGAINST)
    share = flights.other_reductions / flights.reductions
    beyond_stray = (
        special.rel_entr([share, 1 - share], [const.STRAY_SHARE, 1 - const.STRAY_SHARE]).sum()
        if share > const.STRAY_SHARE
        else 0.0
    )
    usual = wrong * min(flights.reductions / const.MIN_OBSERVATIONS, 1.0)
    return max(usual, min(flights.reductions * float(beyond_stray), const.MAX_AGAINST))


def softmax(evidence: dict[str, float]) -> dict[str, float]:
    """Return {candidate: its probability if one of them sent the flow} of {candidate: log likelihood}."""
    most = max(evidence.values())
    weights = {name: math.exp(value - most) for name, value in evidence.items()}
    total = math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def probabilities(evidence: dict[str, float], known_log_odds: float) -> list[Candidate]:
    """Return the candidates, most probable first; among equals in the order of `evidence`: newer kernels first.

    "unknown" is before them only if it is likelier than all together, as nobody's name is the answer only then.

    `evidence`: {str: float}, log likelihood of the flow under each controller. `known_log_odds`: that one of them sent
    the flow.
    """
    share = float(special.expit(known_log_odds))
    named = [Candidate(name, weight * share) for name, weight in softmax(evidence).items()]
    named.sort(key=lambda candidate: -candidate.probability)
    nobody = Candidate(UNKNOWN, 1 - share)
    likelier = sum(candidate.probability >= nobody.probability for candidate in named)
    named.insert(0 if nobody.probability >= 0.5 else max(likelier, 1), nobody)
    return named
