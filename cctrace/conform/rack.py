"""RACK-TLP: RFC 8985, checked on the times of sends, in captures and in captures of simulated cases.

A *probe* here is a retransmission outside recoveries, when nothing sent later is known to have arrived. The stack
repairs losses, whichever controller it has.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cctrace.cc.linux import CA_CWR, CA_LOSS, CA_OPEN, CA_RECOVERY
from cctrace.columns import Values
from cctrace.conform.cases import Cases, Outcome, burst, counted, queue_of_one_bdp
from cctrace.conform.requirements import SHOULD, Found, Spec, Table
from cctrace.conform.runner import Cell, Runner
from cctrace.conform.trace import Trace, once
from cctrace.path.transmissions import transmissions
from cctrace.tcp.rtt import RTO_MIN_US

CELLS = (Cell("2Mbit", "50ms"), Cell("20Mbit", "40ms"), Cell("50Mbit", "100ms"))
TICK_NS = 8_000_000  # two ticks at 250 Hz, to which timers are rounded
MIN_RTO_NS = RTO_MIN_US * 1000  # of Linux; RFC 6298 has 1 s
EARLY = 0.9  # of a delay: what the capture sees later than the stack stamps it
WHEEL = 1 - 1 / 8  # Linux's timers are late by up to an eighth
LATEST_REPAIR = 4  # smoothed RTTs, and MIN_RTO_NS, between two repairs

requirement = Table()
case = Cases()
CASES = case.rows


class Sent(NamedTuple):
    """Transmissions, in order of sending, with the sender's state at each.

    `earlier` is the previous transmission of the same data (-1: none), `newest` the one sent last of those known to
    have arrived, `head_ns` the last send time of the oldest unacknowledged data, `row` the call before it,
    `ca_state` and `srtt_ns` the state then, `least_rtt_ns` the minimum RTT so far.
    """

    sent_ns: Values
    acked_ns: Values
    retransmitted: Values
    earlier: Values
    newest: Values
    head_ns: Values
    row: Values
    ca_state: Values
    srtt_ns: Values
    least_rtt_ns: Values

    @property
    def overtaken(self) -> Values:
        """Whether something sent after the earlier transmission is known to have arrived."""
        return self.newest > self.earlier

    @property
    def probes(self) -> Values:
        """Retransmissions without such a sign, outside of recoveries and timeouts."""
        return self.retransmitted & (self.earlier >= 0) & ~self.overtaken & (self.ca_state <= CA_CWR)

    @property
    def known(self) -> Values:
        """How many transmissions were known to have arrived when each was sent."""
        return np.searchsorted(np.sort(self.acked_ns[self.acked_ns >= 0]), self.sent_ns, "right")


@once
def sent(r: Trace) -> Sent:
    """Return what a trace's flow has sent."""
    table = transmissions(r.captured)
    row = np.maximum(np.searchsorted(r.view.time_ns, table.sent_ns, "right") - 1, 0)
    earlier, head_ns = np.full(len(table), -1), table.sent_ns.copy()
    last: dict[int, int] = {}
    for place, (seq, oldest) in enumerate(zip(table.seq.tolist(), r.ack("snd_una")[row].tolist(), strict=True)):
        earlier[place] = last.get(seq, -1)
        head_ns[place] = table.sent_ns[last.get(oldest, place)]
        last[seq] = place
    known = np.flatnonzero(table.acked_ns >= 0)
    known = known[np.argsort(table.acked_ns[known], kind="stable")]
    newest = np.concatenate([[-1], np.maximum.accumulate(known)])
    rtt = np.where(table.retransmitted[known], np.iinfo(np.int64).max, table.acked_ns[known] - table.sent_ns[known])
    least = np.concatenate([[0], np.minimum.accumulate(rtt)]) if len(known) else np.zeros(1, np.int64)
    acked_before = np.searchsorted(table.acked_ns[known], table.sent_ns, "right")
    changes = r.is_call("set_state")
    state = np.where(changes, r.ack("arg"), r.ack("ca_state"))
    return Sent(table.sent_ns, table.acked_ns, table.retransmitted, earlier, newest[acked_before], head_ns, row,
                state[row], r.ack("srtt_us8")[row] * 125, least[acked_before])  # fmt: skip


def _all(s: Sent, where: Values, holds: Values, value: Values, expected: str) -> Found:
    """Return what holds for all transmissions of a mask; `value` is a time, ns."""
    bad = np.flatnonzero(where & ~holds)
    if not len(bad):
        return Found(int(where.sum()))
    first = int(bad[0])
    return Found(int(where.sum()), int(s.row[first]), f"{value[first] / 1e6:.4g} ms", expected)


@requirement("rack.overtaken", "6.2 (5)", "Fast recovery retransmits only what data sent later have overtaken.")
def _overtaken(r: Trace) -> Found:
    s = sent(r)
    where = s.retransmitted & (s.earlier >= 0) & (s.ca_state == CA_RECOVERY)
    return _all(s, where, s.overtaken, s.sent_ns - s.sent_ns[s.earlier], "after an ACK of what was sent later")


@requirement("rack.elapsed", "6.2 (5)", "Fast recovery does not retransmit before a round trip has passed since the "
             "transmission.")  # fmt: skip
def _elapsed(r: Trace) -> Found:
    s = sent(r)
    where = s.retransmitted & (s.earlier >= 0) & (s.ca_state == CA_RECOVERY) & s.overtaken & (s.least_rtt_ns > 0)
    passed = s.sent_ns - s.sent_ns[s.earlier]
    return _all(s, where, passed >= EARLY * s.least_rtt_ns - 1e6, passed, "a round trip")


@requirement("rack.repairs", "6.2", "Overtaken data that never arrive are retransmitted within some round trips of the "
             "retransmission before, without a timeout.", level=SHOULD)  # fmt: skip
def _repairs(r: Trace) -> Found:
    s = sent(r)
    retransmitted = np.flatnonzero(s.retransmitted & (s.earlier >= 0) & (s.ca_state == CA_RECOVERY))
    first = s.earlier[retransmitted]
    # When the first ACK came of something sent after it.
    known = np.flatnonzero(s.acked_ns >= 0)
    late = np.full(len(s.sent_ns) + 1, np.iinfo(np.int64).max)
    late[known] = s.acked_ns[known]
    soonest = np.minimum.accumulate(late[::-1])[::-1]
    waited = np.zeros(len(s.sent_ns), np.int64)
    # Many losses of a small window take longer: they wait for the repair of those before them.
    before = np.concatenate([[0], s.sent_ns[retransmitted]])[:-1]
    waited[retransmitted] = s.sent_ns[retransmitted] - np.maximum(soonest[first + 1], before)
    where = np.zeros(len(s.sent_ns), bool)
    where[retransmitted] = True
    timeouts = np.cumsum(r.is_call("set_state", CA_LOSS))
    where &= timeouts[s.row] == timeouts[s.row[np.maximum(s.earlier, 0)]]
    return _all(s, where, waited <= LATEST_REPAIR * s.srtt_ns + MIN_RTO_NS, waited, "some round trips")


def _quiet_ns(s: Sent) -> Values:
    """Return how long before each transmission nothing was sent."""
    return np.diff(s.sent_ns, prepend=s.sent_ns[:1])


def _waited(s: Sent) -> Values:
    """Return where nothing was sent for two smoothed RTTs, or as long as a timeout of the oldest data may take."""
    least_rto = s.srtt_ns + MIN_RTO_NS
    waited = _quiet_ns(s) >= EARLY * np.minimum(2 * s.srtt_ns, least_rto) - TICK_NS
    return waited | (s.sent_ns - s.head_ns >= EARLY * least_rto)


@requirement("tlp.time", "7.2", "A tail-loss probe waits for two smoothed RTTs after the last transmission, or until "
             "the timeout would fire.")  # fmt: skip
def _time(r: Trace) -> Found:
    s = sent(r)
    same = np.concatenate([[False], s.probes[:-1]]) & (_quiet_ns(s) == 0)  # a probe may hold several packets
    return _all(s, s.probes & ~same, _waited(s), _quiet_ns(s), "2 SRTT")


@requirement("tlp.one", "7.3", "No second probe is sent before an ACK of the first, or a timeout.")
def _one(r: Trace) -> Found:
    s = sent(r)
    probes = np.flatnonzero(s.probes)
    second, known = np.zeros(len(s.sent_ns), bool), s.known
    pairs = (known[probes[1:]] == known[probes[:-1]]) & (s.sent_ns[probes[1:]] > s.sent_ns[probes[:-1]])
    second[probes[1:][pairs]] = True
    return _all(s, s.probes, ~second, _quiet_ns(s), "an ACK between two probes")


@requirement("tlp.first", "7.2", "Outside recovery, a timeout is preceded by a probe.", level=SHOULD)
def _first(r: Trace) -> Found:
    s = sent(r)
    waited = _waited(s)
    timeouts = np.flatnonzero(r.is_call("set_state", CA_LOSS) & (r.ack("ca_state") == CA_OPEN))
    for number, row in enumerate(timeouts):
        last = int(np.searchsorted(s.sent_ns, r.view.time_ns[row])) - 1
        # New data serve as a probe, too: they left when nothing had been sent for as long.
        if last > 0 and not s.retransmitted[last] and not waited[last] and 2 * s.srtt_ns[last] < EARLY * MIN_RTO_NS:
            return Found(len(timeouts), int(row), f"timeout {number + 1} without a probe", "a probe after 2 SRTT")
    return Found(len(timeouts))


@requirement("rto.backoff", "RFC 6298 5.5", "Each timeout in a row takes twice as long as the one before.")
def _backoff(r: Trace) -> Found:
    s = sent(r)
    lone = np.flatnonzero(s.retransmitted & (s.earlier >= 0) & (s.ca_state == CA_LOSS) & ~s.overtaken)
    waits, known = np.diff(s.sent_ns[lone]), s.known
    in_a_row = (known[lone[2:]] == known[lone[:-2]]) & (waits[:-1] > MIN_RTO_NS / 2)
    where, holds = np.zeros(len(s.sent_ns), bool), np.ones(len(s.sent_ns), bool)
    where[lone[2:][in_a_row]] = True
    holds[lone[2:]] = waits[1:] >= 2 * WHEEL * waits[:-1] - TICK_NS
    return _all(s, where, holds, _quiet_ns(s), "twice the wait before")


def _outcome(runner: Runner, changes: Callable[[Runner], dict[str, Any]]) -> Outcome:
    r = runner.on_the_wire(12.0, **changes(runner))
    return counted(r, transmissions(r.captured).retransmitted, "nothing retransmitted", "losses")


for _id, _title, _changes in (
    ("R.1", "Random losses of 1 %", lambda runner: {"path": {"loss": "1%"}}),
    ("R.2", "A bulk flow overflows a queue of one BDP", lambda runner: {"path": queue_of_one_bdp(runner)}),
    # Pieces of four segments: what is lost is often the last of a piece.
    ("R.3", "Short pieces whose tails are lost",
     lambda runner: {"path": {"loss": "15%"}, "sender": {"app": f"chunks:size={4 * runner.cell.mss}B,every=400ms"}}),
    ("R.4", "Reordering and losses",
     lambda runner: {"path": {"jitter": f"normal:sd={runner.cell.rtt_s * 0.1e6:.0f}us,reorder", "loss": "0.5%"}}),
    ("R.5", "An outage of four seconds",
     lambda runner: {"path": {"loss": burst(runner, 3.0, "100%", 4.0 / runner.cell.rtt_s)}}),
):  # fmt: skip
    case(_id, _title)(partial(_outcome, changes=_changes))


ROWS = tuple(requirement.rows)
SPEC = Spec("rack", "RACK-TLP (RFC 8985)", ROWS, (), ROWS, cells=CELLS, cases=CASES)
