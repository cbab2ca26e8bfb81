"""Proportional rate reduction: RFC 6937bis, checked during recoveries.

The stack performs the reduction, for any window-based controller, so the check concerns the controller's stack.
"""

import numpy as np

from cctrace.cc.linux import CA_RECOVERY, EVENT_COMPLETE_CWR
from cctrace.columns import Values, last_true
from cctrace.conform.requirements import Found, Spec, Table, at_most, equal, of_parts
from cctrace.conform.trace import Trace
from cctrace.conform.windows import CASES, CELLS
from cctrace.conform.wire import bounded, lost_between_acks, recoveries

requirement = Table()


def _delivering(r: Trace, cut: int, rows: Values) -> Values:
    """Return those rows of a recovery, after the ACK that began it, whose ACK delivers: only these set cwnd."""
    rows = rows[rows > cut + 1]
    delivered = r.ack("delivered")
    return rows[r.is_call("pkts_acked")[rows] & (delivered[rows] > delivered[rows - 1])]


def _earlier(first: float, column: Values) -> Values:
    """Return a column's values one row earlier, after a `first`."""
    return np.concatenate([[first], column])[:-1]


@requirement("prr.proportional", "6.2", "While more than ssthresh is in flight, the data sent are to the data "
             "delivered as ssthresh is to the flight before the recovery.")  # fmt: skip
def _proportional(r: Trace) -> Found:
    """What RACK's timer releases between ACKs may exceed the share; ACKs then wait until the share allows more."""
    parts, between = [], lost_between_acks(r)
    for cut, inside in recoveries(r):
        rows = _delivering(r, cut, inside)
        out, delivered = r.ack("data_segs_out")[rows] - r.ack("data_segs_out")[cut], r.ack("delivered")[rows]
        pipe, ssthresh = r.inflight[rows], r.after["snd_ssthresh"][rows]
        share = (delivered - r.ack("delivered")[cut] + 1) * ssthresh / max(float(r.before["snd_cwnd"][cut]), 1.0)
        bound = np.maximum(np.ceil(share) + 2, _earlier(0, out)) + np.diff(between[rows], prepend=between[cut])
        above = (pipe > ssthresh + 1) & (_earlier(r.inflight[cut], pipe) > ssthresh + 1)
        parts.append((rows, out, np.where(above, bound, np.inf)))
    return at_most(*of_parts(len(r), parts))


requirement("prr.bounded", "6.2", "In recovery, ACKs release at most twice what was delivered, and a segment.",
            "snd_ssthresh")(bounded)  # fmt: skip


@requirement("prr.pipe", "6.2", "A flight at or below ssthresh grows to ssthresh, or one segment more.")
def _pipe(r: Trace) -> Found:
    """Above ssthresh only the share counts: what the application left of it may be sent later."""
    where, ssthresh = np.zeros(len(r), bool), r.after["snd_ssthresh"]
    for cut, inside in recoveries(r):
        rows = _delivering(r, cut, inside)
        where[rows] = _earlier(r.inflight[cut], r.inflight[rows]) <= ssthresh[rows]
    return at_most(where, r.inflight, ssthresh, within=1)


@requirement("prr.cwnd", "6.2", "Each ACK sets cwnd to the flight and what may leave: above ssthresh the share of what "
             "was delivered; below it what was delivered and not sent, and a segment if the ACK is safe.")  # fmt: skip
def _cwnd(r: Trace) -> Found:
    parts = []
    delivered, out, una = r.ack("delivered"), r.ack("data_segs_out"), r.ack("snd_una")
    acks = r.is_call("pkts_acked") & (r.ack("ca_state") == CA_RECOVERY)
    for cut, inside in recoveries(r):
        rows = _delivering(r, cut, inside)
        rows = rows[rows + 1 < len(r)]
        rows = rows[acks[rows] & acks[rows + 1]]  # this ACK marked nothing lost, and did not end the recovery
        total, sent, pipe = delivered[rows] - delivered[cut] + 1, out[rows] - out[cut], r.inflight[rows]
        # In `pkts_acked`, which comes first, HyStart may end slow start: that is, lower ssthresh to cwnd.
        ssthresh, flight = r.after["snd_ssthresh"][rows], max(float(r.before["snd_cwnd"][cut]), 1.0)
        safe = una[rows] > una[rows - 1]
        below = np.maximum(total - sent, delivered[rows] - delivered[rows - 1]) + safe
        room = np.where(pipe > ssthresh, np.ceil(ssthresh * total / flight) - sent, np.minimum(ssthresh - pipe, below))
        parts.append((rows, r.before["snd_cwnd"][rows + 1], pipe + np.maximum(room, np.where(sent > 0, 0, 1))))
    return equal(*of_parts(len(r), parts))


@requirement("prr.first", "6.2", "The ACK that begins a recovery releases its share, and at least one segment.")
def _first(r: Trace) -> Found:
    delivered, una, now = r.ack("delivered"), r.ack("snd_una"), r.ack("now_us")
    acked = np.flatnonzero(r.is_call("pkts_acked"))
    parts = []
    for cut, rows in recoveries(r):
        begins = cut + 1  # set_state; the stack then sets cwnd, which the next call finds
        place = int(np.searchsorted(acked, cut)) - 1
        if place < 1 or rows[0] <= begins or begins + 1 >= len(r) or una[cut] > una[acked[place] - 1]:
            continue
        same = now[acked[place]] == now[cut]  # else RACK's timer began it, which counts as one segment
        total = int(delivered[cut] - delivered[acked[place] - 1]) if same else 1
        ssthresh, pipe = int(r.before["snd_ssthresh"][begins + 1]), int(r.inflight[begins])
        share = -(-ssthresh * total // max(int(r.before["snd_cwnd"][cut]), 1))
        expected = pipe + max(share if pipe > ssthresh else min(ssthresh - pipe, total), 1)
        parts.append((begins + 1, r.before["snd_cwnd"][begins + 1], expected))
    return equal(*of_parts(len(r), parts))


@requirement("prr.undone", "6.2", "A recovery that proves spurious at its end leaves the window that was restored.")
def _undone(r: Trace) -> Found:
    now, undo = r.ack("now_us"), last_true(r.is_call("undo_cwnd"))
    ends = r.is_call("cwnd_event", EVENT_COMPLETE_CWR) & (undo >= 0)
    ends &= now[np.maximum(undo, 0)] == now
    after = np.concatenate([[False], ends[:-1]])
    return equal(after, r.before["snd_cwnd"], r.after["o_ret"][np.maximum(undo, 0)])


@requirement("prr.end", "6.2", "At the end of recovery cwnd is ssthresh.")
def _end(r: Trace) -> Found:
    ends = np.zeros(len(r), bool)
    for _, rows in recoveries(r):
        ends[rows] = True
    ends &= r.is_call("set_state") & (r.ack("arg") < CA_RECOVERY)
    after = np.concatenate([[False], ends[:-1]])  # the stack sets cwnd once it has left the state
    return equal(after, r.before["snd_cwnd"], r.before["snd_ssthresh"])


on_the_wire = Table()
on_the_wire("wire.recovery", "6.2", "A recovery sends at most twice what it sees delivered.")(bounded)
TITLE = "Proportional rate reduction (RFC 6937bis)"
SPEC = Spec("prr", TITLE, tuple(requirement.rows), ("cubic", "cubic6", "reno"), tuple(on_the_wire.rows),
            cells=CELLS, cases=CASES)  # fmt: skip
