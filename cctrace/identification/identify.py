"""Identify the congestion control of a flow: replay every candidate, and score it by the likelihood of the sends.

    1. sends       each candidate decides again on the recorded ACKs; unrecorded inputs (random draws, ticks) are
                   inferred; in a capture taken at the sender, each send is scored
    2. flights     data in flight and sending rate, compared with what the candidate allowed
    3. phases      in captures taken elsewhere: the phases that a BBR's gain cycle must have gone through
    4. odds        combine the evidence, and decide whether the best candidate fits as the sender's own replay would
    or polls       counters: the evolution of cwnd, ssthresh and pacing rate from poll to poll

Ports, addresses and the congestion control's name in the counters are not used. Candidates that decide alike on a
flow share its probability: they form a group. docs/identify.md has the accuracy.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cctrace.arguments import check_argument
from cctrace.cc import controller as resolve
from cctrace.cc import kernel_name
from cctrace.columns import give_back
from cctrace.display import Progress, Summarized, silent
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.counters import CounterFlow, title_of
from cctrace.flows.cut_options import LACKS_SACKS, cut_options
from cctrace.flows.ecn import may_miss_marks
from cctrace.flows.flow import Flow
from cctrace.flows.large import batches_of_file, in_processes
from cctrace.identification import constants as const
from cctrace.identification.flights import flights_of
from cctrace.identification.odds import UNKNOWN, Candidate, Fit, Judgement, judge, probabilities
from cctrace.identification.phases import cycles_of
from cctrace.identification.polls import judge_polls
from cctrace.identification.relatives import difference
from cctrace.identification.sends import RecordedFlow, Replay, SenderRecord, replay_of
from cctrace.lang.threads import each
from cctrace.refusals import KILLED
from cctrace.replaying.engine.stream import stream_of
from cctrace.replaying.intervals import BLOCK_US
from cctrace.replaying.senders import L4S_SENDERS
from cctrace.units import format_rate

# Newest kernel first: the order in which indistinguishable candidates are listed.
CANDIDATES = ("cubic6", "bbr3", "bbr2", "bbr2plus", "bbr2022", "bbr2019", "cubic", "reno", "bbr2016")
HEED_MARKS = ("dctcp", *L4S_SENDERS)  # differ from others only if queues mark (ECN)
_WHAT = {
    "sends": "when packets left, and how many at a time",
    "flights": "what was in flight, and how fast it was sent",
    "counters": "how cwnd, ssthresh and pacing rate went on",
}
_EACH = {"sends": f"intervals of {BLOCK_US / 1e6:g} s", "flights": "half round trips", "counters": "polls"}
_PACES, _WINDOW = "packets leave by a pacing timer, at the rate", "packets leave upon ACKs, as many as the window"
_PACED = "packets leave as cwnd allows, paced, as under fq or SO_MAX_PACING_RATE, by the window"
# Of Linux's others, not replayed [Linux618] net/ipv4/tcp_lp.c, tcp_htcp.c htcp_alpha_update, tcp_vegas.c
# tcp_vegas_cong_avoid: a segment a round trip until two are queued, which only the sender's capture tells apart.
_LIKE_RENO = "; LP would send the same as reno, and so would H-TCP where losses are less than a second apart"
_NEARLY_RENO = ", and Vegas, to a segment, where losses come before a queue"


@dataclasses.dataclass(frozen=True, repr=False)
class Identification(Summarized):
    """Result of an identification.

    Attributes
    ----------
    candidates : list of Candidate
        Most probable first, including "unknown". They sum to 1.
    group : tuple of str
        The best candidate, and those indistinguishable from it on this flow.
    reason : str
        The evidence, in a sentence.
    seconds : float
        Run time without reading the capture.
    paced : bool
        Whether the socket paced although the controller sets no rate.
    misses_marks : bool
        Whether the flow is explained only if its kernel missed marks (`cctrace.flows.ecn.misses_marks`).

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> found = identify(flow)
    >>> found.name, found.group, [candidate.name for candidate in found.candidates][:1]
    ('cubic6', ('cubic6',), ['cubic6'])
    """

    card_title = "Who sent it"

    candidates: list[Candidate]
    group: tuple[str, ...]
    reason: str
    seconds: float
    paced: bool = False
    misses_marks: bool = False

    @property
    def name(self) -> str:
        """Most probable member of the group; "unknown" only if that is likelier than all candidates together."""
        return self.group[0]

    @property
    def spec(self) -> str:
        """`name` with its ``paced=1``, as `cctrace.replay` and `cctrace.simulate` take it."""
        return f"{self.name}:paced=1" if self.paced else self.name

    def summary(self) -> str:
        """Return the likeliest senders and the reason as text."""
        likely = [
            f"{candidate.name}: probability {candidate.probability:.3g}"
            for candidate in self.candidates
            if candidate.probability > const.MIN_PROBABILITY
        ]
        return "\n".join([*likely, self.reason])


def identify(flow: Flow | CounterFlow, check: str | None = None) -> Identification:
    """Identify the congestion control of a flow.

    Parameters
    ----------
    flow : Flow or CounterFlow
        Of a capture, taken anywhere, or of counters.
    check : str, optional
        The candidate named by the kernel's counters: a quarter of the capture's first CHECKED_ROWS events suffices
        if it confirms the name, otherwise all of them are used, and the entire capture if nothing explains these. The
        name is not evidence: the result may contradict it.

    Returns
    -------
    Identification
        The most probable candidate and the others with their probabilities; ``unknown`` if none explains the flow.

    Raises
    ------
    ArgumentError
        If it is neither.
    StreamError
        If the place of capture is unknown, one direction is missing, no ACK follows the data, or counters do not
        show how the connection evolved.

    Examples
    --------
    >>> import cctrace as cct
    >>> cct.identify(cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)).name
    'cubic6'
    """
    began = time.perf_counter()
    check_argument(check is None or isinstance(check, str), "check", check, "a name")
    if isinstance(flow, CounterFlow):
        return _concluded(judge_polls(flow, CANDIDATES), None, began)
    if not isinstance(flow, Flow):
        raise ArgumentError(f"cannot identify {type(flow).__name__!r}: use a flow of a capture or of counters")
    source = f"{flow.capture.packets.source}: connection {flow.index}"
    flow.events  # noqa: B018 (says what is missing)
    if flow.taken_at == "unknown":
        raise StreamError(f"{source}: where it was captured cannot be determined; identify needs that")
    believed = check if check in (*CANDIDATES, *HEED_MARKS) else None
    sent = RecordedFlow(flow, resolve(believed)[0] if believed else None)
    judgement, part = _judged(sent.record, believed and kernel_name(believed))
    if judgement is None:
        raise StreamError(f"{source}: nothing was sent before the last acknowledgement; identify needs a bulk flow")
    identification = _concluded(judgement, part, began)
    if cut_options(flow).lacks_all_blocks:
        reason = f"{identification.reason}; less sure, as {LACKS_SACKS}"
        identification = dataclasses.replace(identification, reason=reason)
    if identification.name == UNKNOWN and may_miss_marks(flow) and not flow.is_missing_marks:
        other = identify(sent.at_hand_over.missing_marks())
        if other.name != UNKNOWN:
            reason = f"{other.reason}; its kernel counts marks late, as L4STeam's did in 2020"
            return dataclasses.replace(other, reason=reason, misses_marks=True)
    return identification


def identified(flow: Flow | CounterFlow, check: str | None = None) -> Identification:
    """Return `identify`; of a capture's flow without counters computed once, because neighbours ask for it, too."""
    if check is not None or not isinstance(flow, Flow) or flow.tcpinfo is not None or flow.is_beginning:
        return identify(flow, check)
    kept, key = flow.capture._kept, (Identification, flow.index, flow.hz, flow.is_missing_marks)
    if key not in kept:
        kept[key] = identify(flow)
    return kept[key]


def _judged(record: SenderRecord, named: str | None) -> tuple[Judgement | None, SenderRecord]:
    """Return the judgement, and what it judges: the first rows if they confirm or contradict the kernel's name."""
    for most in (const.CHECKED_ROWS // 4, const.CHECKED_ROWS) if named else ():
        if len(record.events) <= most:
            break
        judgement = _of_packets(part := record.part(most))
        if judgement is None:
            continue
        contradicted = most == const.CHECKED_ROWS and judgement.group != (UNKNOWN,)  # by another candidate
        if contradicted or _confirms(probabilities(judgement.evidence, judgement.known_log_odds), named):
            return judgement, part
    return _of_packets(part := record.part()), part


def _confirms(likely: Sequence[Candidate], named: str | None) -> bool:
    """Whether the candidates that the kernel calls by a name are likely; nobody else is called so."""
    named_share = sum(candidate.probability for candidate in likely if kernel_name(candidate.name) == named)
    return named_share > const.CONFIRMED_PROBABILITY


def _of_packets(record: SenderRecord) -> Judgement | None:
    """Return the identification from packets; None if nothing was sent, or acknowledged."""
    if not record.sent.any() or not len(record.halves.acks):
        return None
    fits = _fits(record)
    return judge(record, fits, None if record.exact else cycles_of(record, [fit.replay for fit in fits.values()]))


def _fits(record: SenderRecord) -> dict[str, Fit]:
    """Replay all candidates.

    Whether the socket paces does not depend on the window's controller, so all candidates with the right windows
    must agree on it: otherwise one would explain by pacing what another explains without.
    """
    more: tuple[str, ...] = ("dctcp",) if record.events["delivered_ce"].any() else ()
    if record.events.meta.get("ecn") == "accurate":  # without it they are none; with it they differ without marks, too
        more += L4S_SENDERS
    stream = stream_of(record.events, record.events.sends)  # noqa: F841 - kept for all of them
    replays = each(functools.partial(_replayed, record), (*CANDIDATES, *more))
    fits = {replay.name: Fit(replay, flights_of(record, replay)) for replay in replays}
    share = {name: fit.flights.wrong_windows.share for name, fit in fits.items() if fit.flights.wrong_windows}
    right = [name for name, wrong in share.items() if wrong <= min(share.values()) + const.MIN_WRONG_WINDOWS]
    if len({fits[name].replay.paced for name in right}) > 1:
        for name in right:
            replay = replay_of(record, name, {"paced": 0}) if fits[name].replay.paced else fits[name].replay
            fits[name] = Fit(replay, flights_of(record, replay))
    return fits


def _replayed(record: SenderRecord, name: str) -> Replay:
    """Replay a candidate; what that has freed is given back if the record is only the beginning of a long flow."""
    replay = replay_of(record, name)
    if len(record.events) >= const.MAX_ROWS:
        give_back()
    return replay


def _concluded(judgement: Judgement, record: SenderRecord | None, began: float) -> Identification:
    """Return the identification that follows from a judgement of a flow's record."""
    candidates, group = judgement.candidates, judgement.group
    if group == (UNKNOWN,):
        off = f"{judgement.closest_error}{difference(record, judgement.best)}" if record else judgement.closest_error
        what = f"no candidate explains {_WHAT[judgement.kind]}, as its own sender would"
        reason = f"{what}; the nearest, {judgement.best}, is {off}"
        return Identification(candidates, group, reason, time.perf_counter() - began)
    reason = _in_favour(judgement, group, record)
    if record and record.limit_Bps:
        reason += f"; no send exceeds {format_rate(8 * record.limit_Bps)}, the SO_MAX_PACING_RATE of its socket"
    if record and record.longer:
        reason += (
            "; later a fixed amount in flight held it, as a full send buffer does, which distinguishes no candidates"
        )
    return Identification(candidates, group, reason, time.perf_counter() - began, judgement.paced[group[0]])


def _in_favour(judgement: Judgement, group: tuple[str, ...], record: SenderRecord | None) -> str:
    """Return the evidence for a group, in a sentence."""
    best, how, paced = group[0], judgement.kind, judgement.paced[group[0]]
    others = {name: value for name, value in judgement.evidence.items() if name not in group}
    if not others and record and record.is_timed_by_application:
        return "its application timed nearly all that it sent, too little to fill a window, which fits any candidate"
    if not others:
        return "this flow is too short to distinguish the candidates, or was not limited by their windows"
    second = max(others, key=others.__getitem__)
    how_sent = _PACED if paced else _PACES if resolve(best)[0].sets_pacing_rate else _WINDOW
    alike = f" ({', '.join(group[1:])} cannot be distinguished from it on this flow)" if len(group) > 1 else ""
    limited = ", on a socket with SO_MAX_PACING_RATE," if how == "counters" and paced else ""
    start = f"{how_sent} of {best}{alike}" if how == "sends" else f"{best}{alike}{limited} explains best {_WHAT[how]}"
    lead = judgement.contributions[best] - judgement.contributions[second]
    others_too = f"{_LIKE_RENO}{_NEARLY_RENO if how == 'flights' else ''}" if "reno" in group else ""
    worse, better = np.sum(lead > 0), np.sum(lead < 0)
    differs = f"explains {worse} of {len(lead)} {_EACH[how]} worse and {better} better"
    if how == "flights" and worse <= better:  # cycles and reductions decided, which are judged beside them
        differs = "explains that as well, but not how rate or window went on"
    return f"{start}; {second}, the next best, {differs}{others_too}"


def identify_files(
    files: Sequence[str | os.PathLike[str]], progress: Progress = silent, **options: Any
) -> Iterator[tuple[str, Flow | CounterFlow, Identification | StreamError]]:
    """Identify the senders of the bulk flows of captures or counters: yield file, flow and result of each.

    Per file, its flows of at least 100 kB, largest first; its largest flow if none is that large. The result is a
    `StreamError` if a flow cannot be identified. `options`: `limit`, `decapsulate` of `cctrace.io.read_file`.
    """
    killed: Identification | StreamError = StreamError(KILLED)
    for file in map(str, files):
        progress(f"reading {file}")
        for flows in batches_of_file(file, **options):
            with contextlib.closing(in_processes(_attempted, flows, killed)) as results:
                for flow in flows:
                    progress(f"identifying {title_of(flow)} of {file}")
                    yield file, flow, next(results)


def _attempted(flow: Flow | CounterFlow) -> Identification | StreamError:
    try:
        return identify(flow)
    except StreamError as error:
        return error
