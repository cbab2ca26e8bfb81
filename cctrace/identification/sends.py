"""First stage: each candidate is replayed over a sender's record, and scored by the times and sizes of sends.

`RecordedFlow` is a flow as its sender sent it, a part of which is judged (`SenderRecord`: at most MAX_ROWS rows);
`replay_of` decides again on its ACKs as a candidate would (`Replay`). In a capture taken at the sender, each send (time
and number of segments) is scored against what the candidate would have allowed
(`replaying.engine.likelihood.any_send`).

In other captures, departure times are estimates, and an unpaced controller's window is corrected where the record
reveals it (`_corrected`). That is before each reduction, which then reveals its factor; at the end of slow start, as
HyStart depends on microseconds that only the sender's capture has; and where a reduction was not undone although it
seems so, as only the sender learns from time stamps which retransmissions were spurious.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller, checked_params
from cctrace.cc.bbr2_model import BBR_UNIT as GAIN_UNIT
from cctrace.cc.bbr2_model import PROBE_BW
from cctrace.cc.linux import TCP_INFINITE_SSTHRESH
from cctrace.columns import Columns, Floats, Ints
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.missing_sacks import restored
from cctrace.flows.periodic_writes import found_nothing
from cctrace.identification import constants as const
from cctrace.identification.halves import HalfRounds
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower, Script
from cctrace.replaying.engine.script import Edit
from cctrace.replaying.engine.waiting import own_sends, shows_no_timer
from cctrace.replaying.inference import reductions
from cctrace.replaying.inference.infer import Given, infer
from cctrace.replaying.inference.paced import behind_fq, socket_limit, under_limit
from cctrace.replaying.inference.scores import UNKNOWN_LOG
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.replaying.inference.ticks import CONFIG_HZ
from cctrace.replaying.intervals import blocks
from cctrace.schema import CLOCK_START_US, LINUX_EVENTS


@dataclass(frozen=True, eq=False)
class SenderRecord:
    """What is judged of a flow."""

    events: Events
    hz: int  # of the sender's kernel
    hz_known: bool
    exact: bool  # whether departure times are the sender's own, and losses as it detected them
    rebuilt: bool  # whether missing SACKs were reconstructed (`flows.missing_sacks`)
    is_l4s: bool  # sent as ECT(1)
    limit_Bps: int | None  # SO_MAX_PACING_RATE of the sender's socket, see `replaying.inference.paced.socket_limit`
    # the longer one that this begins, up to where a fixed amount in flight limited the sender (`HalfRounds.held_from`)
    longer: "SenderRecord | None" = None

    @functools.cached_property
    def halves(self) -> HalfRounds:
        """What was in flight, and sent, in each half round trip."""
        return HalfRounds(self.events)

    @functools.cached_property
    def _blocks(self) -> tuple[Ints, Ints]:
        return blocks(self.events)

    @property
    def stops(self) -> Ints:
        """The rows that end intervals of 0.2 s, see `replaying.intervals.blocks`."""
        return self._blocks[0]

    @functools.cached_property
    def sent(self) -> Ints:
        """The super-packets in each whose times the application did not determine; all, if it determined each."""
        untimed = _untimed_sends(self.events, self.stops)
        return untimed if untimed.any() else self._blocks[1]

    @functools.cached_property
    def since(self) -> int:
        """The row from which on it is judged: of a capture from mid-connection the first reduction, if most follows.

        How a window grew there depends on the reduction before, which such a capture lacks.
        """
        rows = self.halves.reductions
        is_late = self.exact and not self.events.meta["complete"] and len(rows) > 0
        return int(rows[0]) if is_late and 2 * rows[0] <= len(self.events) else 0

    @property
    def is_timed_by_application(self) -> bool:
        """Whether most of the super-packets left when the application wrote them."""
        untimed = int(_untimed_sends(self.events, self.stops).sum())
        return self.exact and untimed <= (1 - const.PREDOMINANT_SHARE) * int(self._blocks[1].sum())

    @functools.cached_property
    def shows_no_timer(self) -> bool:
        """Whether each send answers an ACK, as no pacing timer lets it."""
        return shows_no_timer(self.events, self.events.sends)

    def first(self, most: int) -> "SenderRecord":
        """Return the first `most` rows."""
        meta, sends = self.events.meta, self.events.sends
        if len(self.events) <= most:
            return self
        return replace(self, events=Events(self.events.stream.first(most), meta, sends[sends["row"] < most]))

    def part(self, most: int = const.MAX_ROWS) -> "SenderRecord":
        """Return what is judged of the first `most` rows: those before a fixed amount in flight limited the sender."""
        record = self.first(most)
        end = record.halves.held_from() if record.events.meta["complete"] and not record.exact else None
        return record if end is None else replace(record.first(end), longer=record)

    @property
    def record_with_dips(self) -> "SenderRecord | None":
        """Where dips show PROBE_RTT (`dips`): what something other than cwnd held all the time; None if nothing did."""
        return self.longer or (self if self.halves.steady else None)


class RecordedFlow:
    """A captured flow as its sender sent it, computed on first use; `believed`: the presumed controller."""

    def __init__(self, captured: Flow, believed: type[Controller] | None = None) -> None:
        self.captured, self.believed = captured, believed

    @functools.cached_property
    def at_hand_over(self) -> Flow:
        """The flow, of which packets sent through fq count from their hand-over by TCP."""
        return at_hand_over(self.captured, self.believed)

    @functools.cached_property
    def record(self) -> SenderRecord:
        """All of it."""
        return record_of(self.at_hand_over)


class Replay(NamedTuple):
    """A candidate's decisions on a record's ACKs."""

    name: str  # of the candidate, with its parameters
    cls: type[Controller]
    # mean log likelihood of the sends of each interval of 0.2 s with sends; empty if their times are estimates
    sends: Floats
    # cwnd, ssthresh, pacing_Bps: after each row of the stream; ssthresh only of unpaced candidates
    cwnd: Floats
    ssthresh: Ints
    pacing_Bps: Floats
    # bandwidth after each ACK, segments/s, NaN before the first PROBE_BW; empty for one without a gain cycle
    bw: Floats
    depends_on_ticks: bool = False  # whether its window depends on the kernel's ticks
    paced: bool = False  # whether the socket paces although the candidate does not

    @property
    def paces(self) -> bool:
        """Whether the candidate sets a pacing rate."""
        return self.cls.model_based


def record_of(flow: Flow) -> SenderRecord:
    """Return the record of a captured flow in its sender's view."""
    blind, rebuilt = _is_blind(flow), False
    if blind and "start_ns" not in flow.facts["inferred"]:
        completed = restored(flow)
        blind = _is_blind(completed)
        flow, rebuilt = (flow, False) if blind else (completed, True)
    inferred = flow.facts["inferred"]
    events = flow.events
    if rebuilt:  # the time stamps from which the sender took some of its RTTs are missing, too
        events = Events(events.stream, events.meta | {"inferred": (*inferred, "min_rtt")}, events.sent)
    exact = "start_ns" not in inferred and not blind
    if exact and flow.through_fq is None:  # what waited in fq was not in flight for the capture
        events = Events(events.stream, events.meta | {"hand_over_unknown": True}, events.sent)
    if (writes := flow.events.writes) is not None:
        sends = events.sends.copy()
        sends["app_limited"] |= found_nothing(sends, events.meta["mss"], writes)
        events = Events(events.stream, events.meta, sends)
    is_l4s = flow.facts["ecn"] == "accurate" and flow.ecn.sent["ect1"] > flow.ecn.sent["ect0"]
    return SenderRecord(events, flow.hz, "hz" not in inferred, exact, rebuilt, is_l4s, socket_limit(flow))


def _untimed_sends(events: Events, stops: Ints) -> Ints:
    """Return in each interval the super-packets whose times neither the application nor a timer determined: those that
    `any_send` scores.
    """
    sends, rows = events.sends, events
    acks = np.flatnonzero(rows["event"] == LINUX_EVENTS["on_ack"])
    acked_ns = np.append(0, rows["time_ns"][acks] - events.meta["start_ns"] + CLOCK_START_US * 1000)
    before_ns = np.maximum(
        acked_ns[np.searchsorted(acks, sends["row"])], np.append(sends["tx_ns"][:1], sends["tx_ns"][:-1])
    )
    srtt_ns = rows["srtt_us8"][np.maximum(sends["row"] - 1, 0)].astype(np.int64) * 125
    silent_ns, begins = sends["tx_ns"] - before_ns, sends["begins"] != 0
    again, alone = sends["retransmitted"] != 0, (sends["segments"] == 1) & np.append(begins[1:], True)
    probes = alone & (sends["in_flight"] > 1) & (silent_ns > 2 * srtt_ns)  # one new segment beyond cwnd
    by_timer = np.where(again, silent_ns > srtt_ns, probes)
    scored = own_sends(events, sends) & ~by_timer
    return np.diff(np.searchsorted(sends["row"][scored], stops), prepend=0)


def _is_blind(flow: Flow) -> bool:
    """Whether the SACKs by which the sender detected its losses are missing."""
    unexplained = flow.quality()["unexplained_retransmissions"]
    again = int(flow.row["retransmitted_segments"])
    return bool(unexplained >= const.MIN_FOR_PATTERN and unexplained > (1 - const.PREDOMINANT_SHARE) * again)


def replay_of(record: SenderRecord, name: str, given: dict[str, Any] | None = None) -> Replay:
    """Replay one candidate; if the sender's HZ is a guess that explains only part of the flow, try others."""
    replay, asked = _replayed(record, name, given or {}, record.hz, record.hz_known)
    explained = replay.sends > UNKNOWN_LOG
    if (
        not asked
        or not len(explained)
        or np.mean(replay.sends) <= UNKNOWN_LOG
        or np.mean(explained) >= 1 - const.STRAY_SHARE
    ):
        return replay
    others = [_replayed(record, name, given or {}, hz, True)[0] for hz in CONFIG_HZ if hz != record.hz]
    return max([replay, *others], key=lambda other: np.sum(other.sends))


def _replayed(record: SenderRecord, name: str, more: dict[str, Any], hz: int, hz_known: bool) -> tuple[Replay, bool]:
    """Return one replay, and whether it depends on a guessed HZ."""
    cls, given = resolve(name)
    handed = behind_fq(cls) if record.events.meta.get("through_fq") else {}
    given = handed | given | under_limit(cls, record.limit_Bps) | more
    events, sent, halves = record.events, record.sent, record.halves
    params = checked_params(cls, given | ({"hz": hz} if "hz" in cls.params else {}))
    noted = ("snd_cwnd", "pacing_rate", *(("pacing_gain", "mode") if cls.model_based else ("snd_ssthresh",)))
    follower = Follower(events, events.sends, cls, params, record=noted)
    begun = follower.save()
    expiry = -1 if events.meta["complete"] or not cls.phase_choices else midflow.probe_rtt_row(events)
    script = infer(follower, Given(expiry, hz_known, given)).script
    paced = bool(follower.may_pace and follower.params["paced"] != 0)
    _rewind(follower, begun, params)
    sends = np.zeros(0)
    if record.exact:
        is_late = not record.events.meta["complete"] and not cls.model_based and not cls.sets_pacing_rate
        if is_late:
            script = _from_middle(follower, script, halves)
            _rewind(follower, begun, params)
        if is_late or (record.rebuilt and follower.counts_ticks and not cls.model_based):
            # What waits for room for a super-packet leaves the window unfilled until the send.
            full = halves.acks[halves.limited & (halves.fullest() if paced else halves.follows_send())]
            script = reductions.set_right(follower, script, halves.reductions.tolist(), full, reductions.AT_FIRST)
            _rewind(follower, begun, params)
        judged = (sent > 0) & (record.stops > record.since)
        sends = follower.score(script, record.stops)[judged] / sent[judged]
    else:
        _corrected(follower, script, halves)
    out = follower.recorded
    bw = _bandwidth(out, halves, cls) if cls.model_based else np.zeros(0)
    cwnd, pacing_Bps = (out[column].astype(float) for column in ("snd_cwnd", "pacing_rate"))
    ssthresh = out.get("snd_ssthresh", np.zeros(0, np.int64))
    guessed = not hz_known and follower.counts_ticks and cls.model_based  # otherwise `infer` has inferred it
    return Replay(name, cls, sends, cwnd, ssthresh, pacing_Bps, bw, follower.counts_ticks, paced), guessed


def _from_middle(follower: Follower, script: Script, halves: HalfRounds) -> Script:
    """Return a script in which the window of a capture from mid-connection begins with the data in flight.

    For CUBIC it is the plateau, from which a window grows least: what it grew to shows at the first reduction.
    """
    early = np.flatnonzero(halves.limited)[: const.MIN_FOR_PATTERN]
    if len(early) < const.MIN_FOR_PATTERN:
        return script
    row, window = int(halves.acks[0]), int(halves.flight[early].max())
    follower.begin(script)
    follower.run(row)
    names = ("snd_cwnd", "snd_ssthresh", *({"last_max_cwnd"} & fields_of(follower.cls).keys()))
    edits = [Edit(row, name, window - follower.get(name)) for name in names]
    return script._replace(edits=[*edits, *script.edits])


def _rewind(follower: Follower, begun: Any, params: dict[str, Any]) -> None:
    """Go back to row 0, where the state was `begun`, as if nothing had been inferred."""
    follower.restore(begun)
    follower.params, follower.marks[:], follower.out[:] = params, 0, 0


def _bandwidth(recorded: Columns, halves: HalfRounds, cls: type[Controller]) -> Floats:
    """Return a BBR's bandwidth estimate after each ACK, segments/s; NaN before its first PROBE_BW."""
    rate, gain, mode = (recorded[name][halves.acks].astype(float) for name in ("pacing_rate", "pacing_gain", "mode"))
    bw = rate / np.maximum(gain / GAIN_UNIT, 1 / GAIN_UNIT) / (halves.mss + cls.pacing_overhead_bytes)
    return np.where(np.maximum.accumulate(mode == PROBE_BW), bw, np.nan)


def _corrected(follower: Follower, script: Script, halves: HalfRounds) -> None:
    """Run all rows with the inferred inputs, correcting an unpaced controller's window; see the module's docstring."""
    follower.begin(script)
    stops: list[tuple[int, int, Any]] = [(edit.row, 0, edit) for edit in script.edits]
    if not follower.cls.model_based:
        rows = halves.reductions.tolist()
        first = rows[0] if rows else len(follower.rows)
        places = halves.acks[halves.edges].tolist()
        stops += [(row, 1, None) for row in rows]
        stops += [(row, 2, k) for k, row in enumerate(places) if row < first]
        stops += [(int(row), 3, None) for row in np.flatnonzero(follower.rows["event"] == LINUX_EVENTS["undo_cwnd"])]
    settled = False
    for row, kind, what in sorted(stops, key=lambda stop: stop[:2]):
        follower.run(row)
        if kind == 0:
            follower.edit(what)
        elif kind == 1:
            _set_window(follower, halves, row)
        elif kind == 2:
            settled = settled or _leave_slow_start(follower, halves, what)
        else:
            _undo(follower, halves, row)
    follower.run()


def _set_window(follower: Follower, halves: HalfRounds, row: int) -> None:
    """Before a reduction: set cwnd to the data in flight where it was cwnd-limited.

    It was no smaller than any flight of the last round trip. Behind a small send buffer, flights fall by a third
    before each write, so that the last ones do not give it. During a recovery flights exceed the window at its end.

    A replayed window that agrees with it stays: CUBIC compares it with the previous one, so that a segment more or less
    decides what it grows to until the next reduction.
    """
    last = int(np.searchsorted(halves.acks, row))
    nearby = slice(max(last - 5, 0), last + 1)
    limited = halves.outside_recovery[nearby] & ~halves.not_cwnd_limited[nearby]
    if limited.any():
        usual = float(np.median(halves.flight[nearby][limited]))
        since = halves.edges[max(int(np.searchsorted(halves.edges, last)) - 2, 0)]
        recovered = np.flatnonzero(~halves.outside_recovery[since:last])
        most = float(halves.flight[since : last + 1][recovered[-1] + 1 if len(recovered) else 0 :].max())
        is_full = usual >= (1 - const.WINDOW_HOLDS - halves.jitter) * most
        seen, replayed = max(int(usual if is_full else most), 2), follower.get("snd_cwnd")
        if abs(seen - replayed) > const.ONE_SEGMENT + const.FINEST_SCALE * replayed:
            follower.set("snd_cwnd", seen)


def _undo(follower: Follower, halves: HalfRounds, row: int) -> None:
    """Undo a reduction only if the flights of the next round trip are as large as before it."""
    cwnd, ssthresh = follower.get("snd_cwnd"), follower.get("snd_ssthresh")
    follower.run(row + 1)
    begin = int(np.searchsorted(halves.acks, row))
    end = int(np.searchsorted(halves.sent_so_far, halves.sent_so_far[min(begin, len(halves.sent_so_far) - 1)] + cwnd))
    later = halves.flight[begin:end][halves.outside_recovery[begin:end] & ~halves.not_cwnd_limited[begin:end]]
    if len(later) and abs(np.median(later) - cwnd) < abs(np.median(later) - follower.get("snd_cwnd")):
        follower.set("snd_cwnd", cwnd)
        follower.set("snd_ssthresh", ssthresh)


def _leave_slow_start(follower: Follower, halves: HalfRounds, k: int) -> bool:
    """Before the first reduction: leave slow start exactly when the record does.

    Return whether the window after it is known: from the first round trip whose flights could fill it. If they do not,
    the record's slow start ended earlier, in a part that an application's pauses hide.
    """
    edge = halves.edges[k]
    flight, cwnd = halves.flight[edge], follower.get("snd_cwnd")
    if k == 0 or halves.not_cwnd_limited[edge] or flight < const.MIN_SENT:
        return False
    slow_start = cwnd < follower.get("snd_ssthresh")
    growing = flight > (1 + const.WRONG_WINDOW) * halves.flight[halves.edges[k - 1]]
    if slow_start != growing and abs(flight / cwnd - 1) > const.WRONG_WINDOW and (flight > cwnd) == growing:
        follower.set("snd_cwnd", int(flight))
        follower.set("snd_ssthresh", TCP_INFINITE_SSTHRESH if growing else int(flight))
        return False
    since = halves.edges[max(k - 2, 0)]
    judged = np.arange(since, edge + 1)
    judged = judged[halves.limited[judged] & ~halves.unfilled(np.full(len(halves.acks), float(cwnd)))[judged]]
    if slow_start or len(judged) < const.MIN_FOR_PATTERN:
        return False
    most = int(halves.flight[judged].max())
    if most < (1 - const.WRONG_WINDOW) * cwnd:
        follower.set("snd_cwnd", most)
        follower.set("snd_ssthresh", most)
        if "epoch_start" in fields_of(follower.cls):
            follower.set("epoch_start", 0)  # CUBIC grows from there
    return True
