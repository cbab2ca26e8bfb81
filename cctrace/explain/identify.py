"""Which congestion control sent this flow? Every candidate is replayed, and scored by the likelihood of what was sent.

    1. replay      each candidate decides again on the recorded ACKs; what no record shows (draws, ticks) is inferred
    2. score       a capture taken at the sender: when each super-packet left, and of how many segments, against what
                   the candidate would have let go, `replaying.likelihood.any_send`; elsewhere, or where the SACKs are
                   missing: what was in flight and how fast it was sent, `identify_trajectory`
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
from cctrace.errors import ArgumentError, StreamError
from cctrace.explain.analyze import LARGE_FILE
from cctrace.flows.capture import Capture, read
from cctrace.flows.flow import Flow
from cctrace.flows.large import bulk_flows
from cctrace.io import is_capture
from cctrace.replaying.scores import BLOCK_US, UNKNOWN_LOG, blocks, replayed
from cctrace.replaying.ticks import CONFIG_HZ

CANDIDATES = ("bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr3", "cubic", "cubic6", "reno")
UNKNOWN = "unknown"
TEMPER = 0.5  # blocks that follow each other are not independent
MOSTLY = 0.95  # of the blocks explained: where it is less, another HZ may explain the rest
ALIKE = 20.0  # times less likely than the best: not of its group


class Candidate(NamedTuple):
    """A controller, or "unknown", and how probable it is that it sent the flow."""

    name: str
    probability: float


@dataclasses.dataclass(frozen=True)
class Identification:
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
    """

    candidates: list
    group: tuple
    reason: str
    seconds: float

    @property
    def name(self):
        """The most probable candidate."""
        return self.candidates[0].name


def identify(flow):
    """Find out which congestion control sent a flow.

    Parameters
    ----------
    flow : Flow
        Of a capture that was taken at the sender.

    Returns
    -------
    Identification

    Raises
    ------
    ArgumentError
        If it is not a flow of a capture.
    StreamError
        If the capture was not taken at the sender, or lacks one direction, or no ACK follows what was sent.
    """
    began = time.perf_counter()
    if not isinstance(flow, Flow):
        raise ArgumentError(
            f"cannot identify {type(flow).__name__!r}: only a capture taken at the sender shows what was sent, and when"
        )
    events, source = flow.events, f"{flow.capture.packets.source}: connection {flow.index}"
    if flow.taken_at != "sender":
        where = (
            "where it was captured cannot be told" if flow.taken_at == "unknown" else f"taken at the {flow.taken_at}"
        )
        raise StreamError(f"{source}: {where}; identify needs a capture taken at the sender")
    stops, sent = blocks(events)
    if not sent.any():
        raise StreamError(f"{source}: nothing was sent before the last acknowledgement; identify needs a bulk flow")
    scores = {name: _score(flow, name, stops, sent) for name in CANDIDATES}
    candidates = probabilities(scores)
    group = _group(candidates)
    return Identification(candidates, group, _reason(group, candidates, scores), time.perf_counter() - began)


def probabilities(scores):
    """Return the candidates, the most probable first.

    Parameters
    ----------
    scores : {str: ndarray}
        The mean log likelihood of a send in each block, under each controller.
    """
    evidence = {name: TEMPER * float(np.sum(values)) for name, values in scores.items()}
    evidence[UNKNOWN] = TEMPER * UNKNOWN_LOG * len(next(iter(scores.values())))
    most = max(evidence.values())
    weights = {name: math.exp(value - most) for name, value in evidence.items()}
    total = math.fsum(weights.values())
    found = [Candidate(name, weight / total) for name, weight in weights.items()]
    return sorted(found, key=lambda candidate: -candidate.probability)


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
    if not isinstance(data, Capture):
        raise ArgumentError(f"{file}: holds counters, no packets; identify needs a capture taken at the sender")
    if not len(data):
        raise StreamError(f"{file}: no TCP connection in this capture")
    return data.bulk() or [data.flow(int(data.flows["bytes_sent"].argmax()))]


def _score(flow, name, stops, sent):
    """Return the mean log likelihood of the sends of each block that has any, under a candidate.

    Where the sender's HZ is a guess, and a candidate explains a part of the flow only, it is tried with others.
    """
    hz = flow.hz
    hz_known = "hz" not in flow.events.meta["inferred"]
    scores, asked = _replayed(flow, name, stops, sent, hz, hz_known)
    partly = np.mean(scores) > UNKNOWN_LOG and np.mean(scores > UNKNOWN_LOG) < MOSTLY
    if not asked or not partly:
        return scores
    others = [_replayed(flow, name, stops, sent, other, True)[0] for other in CONFIG_HZ if other != hz]
    return max([scores, *others], key=np.sum)


def _replayed(flow, name, stops, sent, hz, hz_known):
    """Return the scores of one replay, and whether its HZ is a guess that counts."""
    cls, given = resolve(name)
    return replayed(flow, cls, given | ({"hz": hz} if "hz" in cls.params else {}), stops, sent, hz_known)


def _group(candidates):
    best = candidates[0]
    if best.name == UNKNOWN:
        return (UNKNOWN,)
    return tuple(
        name for name, probability in candidates if name != UNKNOWN and probability * ALIKE >= best.probability
    )


def _reason(group, candidates, scores):
    """Return in a sentence what speaks for a group, or against all candidates."""
    means = {name: float(np.mean(values)) for name, values in scores.items()}
    if group == (UNKNOWN,):
        nearest = max(means, key=means.get)
        share = float(np.mean(scores[nearest] > UNKNOWN_LOG))
        return (
            f"no candidate explains when the packets left, and how many at a time; the nearest, {nearest}, does in "
            f"{share:.0%} of the time"
        )
    best = group[0]
    others = [name for name in means if name not in group]
    if not others:
        return "this flow is too short to tell the candidates apart"
    second = max(others, key=means.get)
    likelier = np.exp(min(means[best] - means[second], 700.0))
    lead = scores[best] - scores[second]
    paces = resolve(best)[0].sets_pacing_rate
    how = "packets leave by a pacing timer, at the rate" if paces else "packets leave upon ACKs, as many as the window"
    alike = f" ({', '.join(group[1:])} cannot be told from it on this flow)" if len(group) > 1 else ""
    worse, better, span = np.sum(lead > 0), np.sum(lead < 0), BLOCK_US / 1e6
    return (
        f"{how} of {best}{alike}: a send is {likelier:.3g} times likelier than under {second}, the next best, which "
        f"explains {worse} of {len(lead)} intervals of {span:g} s worse and {better} better"
    )
