"""The log of a QUIC endpoint (qlog) against a specification: window, flight and pacing rate as the sender noted them.

A trace has a row per update of these. What was sent, acknowledged and lost until then is counted from the packets of
the log; where it lacks a figure, the requirements that need it are not exercised. Nothing in a log names its
controller: whoever asks for a specification says that the sender claims to follow it. States that the log names in its
own way (`congestion_state_updated`) are not examined.
"""

import re

import numpy as np

from cctrace import schema
from cctrace.cc.base import QuicController
from cctrace.columns import Values, runs_of_true
from cctrace.conform.bbr_names import DRAIN, PROBE_RTT, STARTUP, STATES
from cctrace.conform.bbr_states import follow_diagram
from cctrace.conform.cases import PROBE_BW
from cctrace.conform.judge import Tally
from cctrace.conform.requirements import MUST, SHOULD, Found, Spec, Table, all_of, at_least, at_most, of_parts
from cctrace.conform.result import Conformity
from cctrace.conform.trace import State, Trace
from cctrace.errors import ArgumentError
from cctrace.flows.counters import CounterFlow
from cctrace.flows.views import View

MIN_DATAGRAM = 1200  # bytes [RFC9000] 14
PROBES = 2  # datagrams that a probe timeout sends whatever the window [RFC9002] 7.5
BURST = 10  # datagrams, the initial window, that may leave at once [RFC9002] 7.7
TIMER_S = 0.002  # by which a pacing timer may be late; what was due meanwhile leaves at once
PROBE_RTT_S = 0.2  # ProbeRTTDuration
ANSWER_RTTS = 2.0  # within which a loss and the fall of the window for it are looked for
_COLUMNS = {
    "cwnd": "congestion_window_bytes",
    "flight": "bytes_in_flight",
    "pacing_rate": "pacing_rate_Bps",
    "srtt_us": "rtt",
}
UNKNOWN = -1  # a state of another name
# Names of states, the draft's and RFC 9002's: in lower case, letters only, without "bbr" or "probebw" before them.
BBR_STATES = {name.replace("_", "").lower(): state for state, name in enumerate(STATES)}
RENO_STATES = {"slowstart": 0, "congestionavoidance": 1, "recovery": 2, "applicationlimited": 3}


def record_of_log(flow: CounterFlow) -> Trace:
    """Return the `Trace` of a log; raise `ArgumentError` if it lacks updates of the window, or packets."""
    packets, cwnd = flow.packets, flow.values(_COLUMNS["cwnd"])
    if packets is None or np.isnan(cwnd).all():
        raise ArgumentError("the log has no congestion window, or no packets: nothing of its sender can be examined")
    known = ~np.isnan(cwnd)
    columns = {name: flow.values(column)[known] for name, column in _COLUMNS.items()}
    state = {name: values for name, values in columns.items() if not np.isnan(values).all()}
    time_ns = flow.polls["time_ns"][known]

    def until(times: Values, amounts: Values) -> Values:
        """Return the sum of amounts up to each row."""
        return np.concatenate([[0.0], np.cumsum(amounts)])[np.searchsorted(np.sort(times), time_ns, "right")]

    sent, lost = packets["kind"] == "sent", packets["kind"] == "lost"
    sizes = np.maximum(packets["bytes"][sent], 0)
    state |= {"lost": until(packets["time_ns"][lost], np.ones(int(lost.sum())))}
    if sizes.any():
        times, acked = flow.acked()
        state |= {"sent": until(packets["time_ns"][sent], sizes), "acked": until(times, np.diff(acked, prepend=0))}
    names = flow.polls["congestion_state"][known] if "congestion_state" in flow.polls.extra else ()
    for name, codes in (("state", BBR_STATES), ("reno_state", RENO_STATES)):
        states = np.array([codes.get(_bare(one), UNKNOWN) for one in names], int)
        state |= {name: states} if (states != UNKNOWN).any() else {}
    before = {name: np.concatenate([values[:1], values[:-1]]) for name, values in state.items()}
    event = np.full(len(time_ns), schema.EVENT_CODES["on_ack"])
    facts = {"mss": float(sizes.max(initial=MIN_DATAGRAM))}
    return Trace(QuicController, View("quic", event, {}, time_ns=time_ns), State(state), State(before), facts)


def _bare(state: object) -> str:
    """Return the name of a state without differences of spelling."""
    return re.sub("[^a-z]", "", str(state).lower()).removeprefix("bbr").removeprefix("probebw")


def of_log(flow: CounterFlow, spec: Spec) -> Conformity:
    """Return the `Conformity` of a log; see `cctrace.conform.run`."""
    if not spec.log:
        raise ArgumentError(f"spec={spec.name!r} asks nothing of a log of window and packets: give a capture")
    tally = Tally(spec.log, {})
    tally.examine(spec.log, record_of_log(flow), "the log")
    notes = ("a log has updates of the sender's state, not every step", *flow.table.warnings)
    return Conformity(flow.table.source, spec.name, spec.title, tally.verdicts(), notes)


def _answered(r: Trace) -> tuple[Values, Values, Values]:
    """Return the losses before the log's last RTTs, and for each row the rows between which their answer lies."""
    span = ANSWER_RTTS * np.nan_to_num(r.after["srtt_us"]) / 1e6
    first, last = (np.searchsorted(r.time_s, r.time_s + seconds, "right") for seconds in (-span, span))
    return (r.after["lost"] > r.before["lost"]) & (last < len(r)) & (span > 0), first, last


def common(requirement: Table, pacing: tuple[str, str]) -> None:
    """Add to a table what holds of any sender of QUIC; `pacing` is the section and level that ask for pacing."""

    @requirement("log.flight", "RFC 9002 7", "Nothing but probes is sent beyond the window.")
    def _flight(r: Trace) -> Found:
        rose = (r.after["flight"] > r.before["flight"]) & (r.after["sent"] > r.before["sent"])
        return at_most(rose, r.after["flight"], np.maximum(r.after["cwnd"], r.before["cwnd"]), within=PROBES * r.mss)

    @requirement("log.pacing", pacing[0], "Beyond an initial window sent at once, departures keep to the pacing rate.",
                 level=pacing[1])  # fmt: skip
    def _pacing(r: Trace) -> Found:
        rate = np.nan_to_num(np.maximum(r.after["pacing_rate"], r.before["pacing_rate"]), nan=np.inf)
        where = np.isfinite(rate) & (rate > 0)
        allowed = np.where(where, rate, 0.0) * np.diff(r.time_s, prepend=0.0)
        over = np.zeros(len(r))
        level, sent = 0.0, r.after["sent"] - r.before["sent"]
        for row in range(1, len(r)):  # a bucket that runs empty
            level = max(level + sent[row] - allowed[row], 0.0) if where[row] else 0.0
            over[row] = level
        # What is sent up to the first update after a pause counts from there; the timer's delay is caught up with.
        return at_most(where, over, BURST * r.mss + rate * TIMER_S)


def of_quic() -> Table:
    """Return what a log shows of the congestion control of RFC 9002."""
    requirement = Table()

    @requirement("log.least", "7.2", "The window is at least two datagrams.")
    def _least(r: Trace) -> Found:
        return at_least(np.ones(len(r), bool), r.after["cwnd"], 2 * MIN_DATAGRAM)

    @requirement("log.growth", "7.3.1", "The window grows by no more than what is acknowledged.")
    def _growth(r: Trace) -> Found:
        grown, acked = r.after["cwnd"] - r.before["cwnd"], r.after["acked"] - r.before["acked"]
        return at_most(grown > 0, grown, acked, within=r.mss)

    @requirement("log.reduction", "7.3.2", "A loss reduces the window, unless it falls into the recovery of another.")
    def _reduction(r: Trace) -> Found:
        lost, first, last = _answered(r)
        fallen = np.concatenate([[0], np.cumsum(r.after["cwnd"] < r.before["cwnd"])])
        good = fallen[last] > fallen[np.maximum(first - 1, 0)]
        return all_of(lost & (r.after["cwnd"] > 4 * r.mss), good, r.after["cwnd"], "a smaller window")

    @requirement("log.recovery", "7.3.2", "A loss begins a recovery period, unless it falls into one.")
    def _recovery(r: Trace) -> Found:
        lost, _, last = _answered(r)
        recovering = np.concatenate([[0], np.cumsum(r.after["reno_state"] == RENO_STATES["recovery"])])
        good = recovering[last] > recovering[np.arange(len(r))]
        return all_of(lost & (r.after["reno_state"] != UNKNOWN), good, "none", "a recovery period")

    @requirement("log.held", "7.3.2", "In recovery the window does not grow.")
    def _recovery_window(r: Trace) -> Found:
        inside = RENO_STATES["recovery"]
        where = (r.before["reno_state"] == inside) & (r.after["reno_state"] == inside)
        return at_most(where, r.after["cwnd"], r.before["cwnd"])

    common(requirement, ("7.7", SHOULD))
    return requirement


def _stays(r: Trace, state: int) -> list[tuple[int, int]]:
    """Return (first row, row after the last) of each stay in a state of BBR that begins and ends in the log."""
    firsts, ends = (rows.tolist() for rows in runs_of_true(r.after["state"] == state))
    return [(first, end) for first, end in zip(firsts, ends, strict=True) if first > 0 and end < len(r)]


def of_bbr() -> Table:
    """Return what a log shows of BBR."""
    requirement = Table()

    @requirement("log.floor", "5.6.4.3", "The window is at least four datagrams.")
    def _floor(r: Trace) -> Found:
        return at_least(np.ones(len(r), bool), r.after["cwnd"], 4 * MIN_DATAGRAM)

    @requirement("log.states", "5.1.1", "State changes follow the diagram of transitions.")
    def _states(r: Trace) -> Found:
        known = np.flatnonzero((r.before["state"] != UNKNOWN) & (r.after["state"] != UNKNOWN))
        found = follow_diagram(r.before["state"][known], r.after["state"][known])
        return found if found.row is None else found._replace(row=int(known[found.row]))

    @requirement("log.drain", "5.3.2", "Drain paces slower than the Startup before it.")
    def _drain(r: Trace) -> Found:
        rate, state, parts = r.after["pacing_rate"], r.after["state"], []
        for first, end in _stays(r, DRAIN):  # an update may precede the name of its state
            if state[first - 1] == STARTUP:
                fastest = rate[np.flatnonzero(state[:first] == STARTUP)].max()
                parts.append((first, rate[first:end].min(), fastest))
        where, least, before = of_parts(len(r), parts)
        return all_of(where, least < before, least, before, "less than")

    @requirement("log.probe_rtt", "5.3.4.3", "ProbeRTT lasts 200 ms at least.")
    def _probe_rtt(r: Trace) -> Found:
        parts = ((end, r.time_s[end] - r.time_s[first], PROBE_RTT_S) for first, end in _stays(r, PROBE_RTT))
        return at_least(*of_parts(len(r), parts), within=TIMER_S)

    @requirement("log.dip", "5.6.4.5", "In ProbeRTT the window falls to half of that in ProbeBW.")
    def _dip(r: Trace) -> Found:
        cwnd = r.after["cwnd"]
        widest = np.maximum.accumulate(np.where(np.isin(r.after["state"], PROBE_BW), cwnd, 0.0))
        stays = [(first, end) for first, end in _stays(r, PROBE_RTT) if widest[first] > 0]
        parts = ((first, cwnd[first:end].min(), max(widest[first] / 2, 4 * r.mss)) for first, end in stays)
        return at_most(*of_parts(len(r), parts))

    common(requirement, ("5.6.2", MUST))
    return requirement
