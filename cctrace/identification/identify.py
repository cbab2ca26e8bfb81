"""Which congestion control sent this flow? Every candidate is replayed, and scored by the likelihood of what was sent.

    1. replay      each candidate decides again on the recorded ACKs; what no record shows (draws, ticks) is inferred
    2. score       a capture taken at the sender: when each super-packet left, and of how many segments, against what
                   the candidate would have let go, `replaying.likelihood.any_send`; elsewhere, or where the SACKs are
                   missing: what was in flight and how fast it was sent, `identify_trajectory`, and in which phases,
                   `identify_phases`, weighed by `identify_elsewhere`
                   counters: how cwnd, ssthresh and pacing rate went on from poll to poll, `identify_counters`
    3. compare     softmax over the candidates; what hangs together counts once, tempered
    4. unknown     does the best candidate explain the flow as its sender would? `identify_fit`

Ports and addresses are not looked at, nor the name of the congestion control that counters tell. Candidates that decide
alike on a flow share its probability: they are a group. How often this is right: docs/identify.md.
"""

import dataclasses
import math
import os
import time
from typing import NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.display import Summarized
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.flows.large import LARGE_FILE, bulk_flows, bulk_or_largest, bulk_rows
from cctrace.identification import polls as counters
from cctrace.identification.elsewhere import elsewhere
from cctrace.identification.odds import known_log_odds
from cctrace.identification.phases import Phases
from cctrace.identification.relatives import difference
from cctrace.identification.sends import examine, shown
from cctrace.io import is_capture
from cctrace.io.tcpinfo import TcpInfo
from cctrace.replaying.intervals import BLOCK_US
from cctrace.replaying.through_fq import at_hand_over

# The newest kernel's first, in which order those that a flow does not tell apart are named.
CANDIDATES = ("cubic6", "bbr3", "bbr2plus", "bbr2", "bbr2022", "bbr2019", "cubic", "reno", "bbr2016")
UNKNOWN = "unknown"
TEMPER = 0.5  # blocks that follow each other are not independent
ALIKE = 50.0  # times less likely than the best: not of its group
LIKELY = 0.001  # candidates that are told
MOST_ODDS = 500.0  # of a logarithm, that a float still holds
CHECKED_ROWS = 20_000  # of the event stream: enough to check what counters name


class Candidate(NamedTuple):
    """A controller, or "unknown", and how probable it is that it sent the flow."""

    name: str
    probability: float


@dataclasses.dataclass(frozen=True, repr=False)
class Identification(Summarized):
    """Who sent a flow.

    Attributes
    ----------
    candidates : list of Candidate
        The most probable first; "unknown" is one of them. They sum to 1.
    group : tuple of str
        The best candidate, and those that this flow does not tell from it.
    reason : str
        Why, in a sentence.
    seconds : float
        What it took, without reading the capture.
    paced : bool
        Whether the socket was seen to pace although the controller sets no rate.
    """

    shown_as = "Who sent it"

    candidates: list
    group: tuple
    reason: str
    seconds: float
    paced: bool = False

    @property
    def name(self):
        """The most probable of the group: "unknown" only where that is likelier than all candidates together."""
        return self.group[0]

    @property
    def spec(self):
        """`name` with its ``paced=1``, as `cctrace.replay` and `cctrace.simulate` take it."""
        return f"{self.name}:paced=1" if self.paced else self.name

    def summary(self):
        """Return the likeliest senders and the reason as text."""
        likely = [
            f"{one.name}: probability {one.probability:.3g}" for one in self.candidates if one.probability > LIKELY
        ]
        return "\n".join([*likely, self.reason])


def identify(flow, check=None):
    """Find out which congestion control sent a flow.

    Parameters
    ----------
    flow : Flow or CounterFlow
        Of a capture, wherever it was taken, or of counters.
    check : str, optional
        The candidate that the kernel's counters name: a capture's first CHECKED_ROWS events then are enough, which take
        a small part of the time. Who is named is not told `identify`; what contradicts it can be seen from the result.

    Returns
    -------
    Identification

    Raises
    ------
    ArgumentError
        If it is neither.
    StreamError
        If where the capture was taken cannot be told, it lacks one direction, no ACK follows what was sent, or counters
        do not tell how the connection went on.

    Examples
    --------
    >>> import cctrace as cct
    >>> cct.identify(cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)).name
    'cubic6'
    """
    began = time.perf_counter()
    if isinstance(flow, CounterFlow):
        found = counters.examine(flow, CANDIDATES)
        evidence = counters.evidence(found)
        return _conclude(
            evidence, found, "counters", began, counters.known_log_odds(found[max(evidence, key=evidence.get)])
        )
    if not isinstance(flow, Flow):
        raise ArgumentError(f"cannot identify {type(flow).__name__!r}: use a flow of a capture or of counters")
    source = f"{flow.capture.packets.source}: connection {flow.index}"
    flow.events  # noqa: B018 (says what is missing)
    if flow.taken_at == "unknown":
        raise StreamError(f"{source}: where it was captured cannot be told; identify needs that")
    flow = at_hand_over(flow, resolve(check)[0] if check in CANDIDATES else None)
    if check in CANDIDATES and len(flow.events) > CHECKED_ROWS:
        found = _of_packets(shown(flow, CHECKED_ROWS), began)
        if found is not None:
            return found
    found = _of_packets(shown(flow), began)
    if found is None:
        raise StreamError(f"{source}: nothing was sent before the last acknowledgement; identify needs a bulk flow")
    return found


def _of_packets(seen, began):
    """Return the `Identification` of what a capture shows of a flow; None if nothing was sent, or acknowledged."""
    if not seen.sent.any() or not len(seen.halves.acks):
        return None
    found = {name: examine(seen, name) for name in CANDIDATES}
    evidence = {name: TEMPER * float(np.sum(one.sends)) for name, one in found.items()}
    phases = None
    if not seen.exact:
        phases = Phases(seen, found)
        evidence = elsewhere(seen, found, phases)
    best = max(evidence, key=evidence.get)
    known = _known(seen, found, evidence) - (phases.other_cycle(best) if phases else 0.0)
    differs = difference(seen, best, counters.FACTORS.get(best, math.nan)) if known < 0 else ""
    return _conclude(evidence, found, "sends" if seen.exact else "flights", began, known, differs)


def _known(seen, found, evidence):
    """Return the log odds that a candidate sent the flow: those of each that may be the one, as probable as it is."""
    weights = softmax(evidence)
    odds = [
        weight * math.exp(min(known_log_odds(seen, found[name]), MOST_ODDS))
        for name, weight in weights.items()
        if weight * ALIKE >= max(weights.values())
    ]
    return math.log(math.fsum(odds))


def softmax(evidence):
    """Return {candidate: its probability if one of them sent the flow} of {candidate: log likelihood}."""
    most = max(evidence.values())
    weights = {name: math.exp(value - most) for name, value in evidence.items()}
    total = math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def probabilities(evidence, known):
    """Return the candidates, the most probable first; of equals those of newer kernels first.

    Parameters
    ----------
    evidence : {str: float}
        Log likelihood of the flow under each controller.
    known : float
        Log odds that one of them sent the flow.
    """
    share = 1 / (1 + math.exp(-max(min(known, MOST_ODDS), -MOST_ODDS)))
    found = [Candidate(name, weight * share) for name, weight in softmax(evidence).items()]
    return sorted([*found, Candidate(UNKNOWN, 1 - share)], key=lambda candidate: -candidate.probability)


def identify_files(files, say=lambda text: None, **options):
    """Identify the senders of the bulk flows of captures.

    Parameters
    ----------
    files : sequence of path
    say : callable
        Receives what is being done, for display.
    options
        `limit`, `decapsulate` of `cctrace.io.read_file`.

    Yields
    ------
    (str, Flow, Identification or StreamError)
        Per capture, its flows of at least 100 kB, largest first; its largest flow if none is that large. A flow that
        cannot be identified comes with the reason.
    """
    for file in map(str, files):
        say(f"reading {file}")
        for flow in _flows(file, options):
            say(f"{file}: {flow!r}")
            try:
                yield file, flow, identify(flow)
            except StreamError as error:
                yield file, flow, error


def _flows(file, options):
    if os.path.isfile(file) and os.path.getsize(file) >= LARGE_FILE and is_capture(file, options.get("limit")):
        return bulk_flows(file, **options)
    data = read(file, **options)
    if isinstance(data, TcpInfo):
        flows = [data.flow(index) for index in range(len(data.connections))]
        return [flows[row] for row in bulk_rows([flow.summary["bytes_sent"] for flow in flows])]
    if not isinstance(data, Capture):
        raise ArgumentError(f"{file}: holds neither packets nor counters of connections")
    if not len(data):
        raise StreamError(f"{file}: no TCP connection in this capture")
    return bulk_or_largest(data)


def _conclude(evidence, found, how, began, known, differs=""):
    candidates = probabilities(evidence, known)
    group = _group(candidates)
    reason = _reason(group, evidence, found, how, differs)
    paced = group[0] in found and found[group[0]].paced
    return Identification(candidates, group, reason, time.perf_counter() - began, paced)


def _group(candidates):
    if dict(candidates)[UNKNOWN] >= 0.5:
        return (UNKNOWN,)
    best = next(candidate for candidate in candidates if candidate.name != UNKNOWN)
    return tuple(
        name for name, probability in candidates if name != UNKNOWN and probability * ALIKE >= best.probability
    )


_WHAT = {
    "sends": "when packets left, and how many at a time",
    "flights": "what was in flight, and how fast it was sent",
    "counters": "how cwnd, ssthresh and pacing rate went on",
}


_PACES, _WINDOW = "packets leave by a pacing timer, at the rate", "packets leave upon ACKs, as many as the window"
_PACED = "packets leave as cwnd lets them, paced, as under fq or SO_MAX_PACING_RATE, by the window"


def _reason(group, evidence, found, how, differs):
    """Return in a sentence what speaks for a group, or against all candidates."""
    nearest = max(evidence, key=evidence.get)
    off = f"{found[nearest].scale:.0%} off" if how != "counters" else "nearer than the others"
    if group == (UNKNOWN,):
        nearest_is = f"the nearest, {nearest}, is {off}{differs}"
        return f"no candidate explains {_WHAT[how]}, as its own sender would; {nearest_is}"
    best = group[0]
    others = [name for name in evidence if name not in group]
    if not others:
        return "this flow is too short to tell the candidates apart, or something else than their windows held it back"
    second = max(others, key=evidence.get)
    how_sent = _PACED if found[best].paced else _PACES if resolve(best)[0].sets_pacing_rate else _WINDOW
    alike = f" ({', '.join(group[1:])} cannot be told from it on this flow)" if len(group) > 1 else ""
    limited = ", on a socket with SO_MAX_PACING_RATE," if how == "counters" and found[best].paced else ""
    start = f"{how_sent} of {best}{alike}" if how == "sends" else f"{best}{alike}{limited} explains best {_WHAT[how]}"
    lead = (
        (found[best].sends - found[second].sends)
        if len(found[best].sends)
        else found[best].halves - found[second].halves
    )
    worse, better = np.sum(lead > 0), np.sum(lead < 0)
    each = {"sends": f"intervals of {BLOCK_US / 1e6:g} s", "flights": "half round trips", "counters": "polls"}[how]
    return f"{start}; {second}, the next best, explains {worse} of {len(lead)} {each} worse and {better} better"
