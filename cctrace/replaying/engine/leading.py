"""The pass of `one_pass`: plain functions that call the controller as the re-enactment of a flow goes on."""

from typing import Any

import numpy as np

from cctrace.flows.sender.continuing import decide
from cctrace.flows.sender.reenact import ASKS, PAUSED, reenact
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.loop import call_row
from cctrace.replaying.engine.stack import CWND, DRAWS, NEXT_DRAW, NEXT_SEND, PACING, usual_burst

NOT_YET = 1 << 60  # row of a packet that has not been sent
# State of `lead`: whether the controller paces, the slot of its mode (-1: none), that mode's PROBE_RTT; the next of the
# draws and edits given by time; whether the next draw is given, and whether a missing one stops the pass; the slot
# whose value stops it (-1: none); the status with which `reenact` had stopped before; what an skb of its kernel takes
# besides its data; the log likelihood (1000ths) that a branch must be able to reach
PACES, MODE_SLOT, PROBE_RTT, DRAW, EDIT, GIVEN, STOPS, WATCH_SLOT, WATCH_VALUE, STATUS, OVERHEAD, LEAST, NOTES = range(
    13
)
DRAWN, WATCHED, ENDED = range(PAUSED + 1, PAUSED + 4)  # statuses of `lead`, besides those of `reenact`


def give_draw(draws: Any, notes: Any, i: int, time_ns: int, one: Any) -> None:
    """Let row `i` draw the numbers given for the next draw, or those drawn closest to its time."""
    one[0, 0] = i if notes[GIVEN] != 0 else -1
    if draws.shape[0] == 0:
        return
    k = notes[DRAW]
    while k + 1 < draws.shape[0] and abs(draws[k + 1, 0] - time_ns) <= abs(draws[k, 0] - time_ns):
        k += 1
    notes[DRAW] = k
    one[0, 0] = i
    for j in range(1, 5):
        one[0, j] = draws[k, j]


def make_edits(edits: Any, notes: Any, time_ns: int, slots: Any) -> None:
    """Make the edits that are due before a row of this time."""
    while notes[EDIT] < edits.shape[0] and edits[notes[EDIT], 0] <= time_ns:
        slots[edits[notes[EDIT], 1]] += edits[notes[EDIT], 2]
        notes[EDIT] += 1


def decide_rows(
    at: Any, tp: Any, out: Any, sent: Any, controller: Any, script: Any, notes: Any, marks: Any, decided: Any
) -> int:
    """Call the controller with the new rows; return DRAWN, WATCHED or ENDED if that stops, else 0."""
    ctx, slots, stack, ack, likelihood, saved = controller
    draws, edits, one = script
    calls, states, _ = out
    size = slots.size
    ctx[cx.OBSERVED] = -1  # states may have been made anew
    if tp.sent < sent.size:
        # What will be handed over next is not known, whatever an earlier trial left there.
        sent[tp.sent].row, sent[tp.sent].begins = NOT_YET, 1
        sent[tp.sent].retransmitted, sent[tp.sent].ends_write = 0, 0
    for i in range(at.led_rows, tp.rows):
        if notes[STOPS] != 0 and ctx[cx.ENTRIES] >> np.int64(calls[i].event) & 1:  # other rows draw nothing
            saved[:size] = slots
            saved[size:] = stack
        time_ns = states[calls[i].of].time_ns
        make_edits(edits, notes, time_ns, slots)
        give_draw(draws, notes, i, time_ns, one)
        stack[NEXT_DRAW] = 0
        if call_row(ctx, out, sent, marks, one, i, slots, stack, ack, likelihood) and notes[STOPS] != 0:
            slots[:] = saved[:size]
            stack[:] = saved[size:]
            at.led_rows = i
            return DRAWN
        if slots[DRAWS] > 0:
            notes[GIVEN] = 0
        decided[i, 0], decided[i, 2] = time_ns, slots[CWND]
        decided[i, 1] = max(slots[PACING], 0) if notes[PACES] != 0 else 0
        probing = notes[MODE_SLOT] >= 0 and slots[notes[MODE_SLOT]] == notes[PROBE_RTT]
        decided[i, 3] = 1 if probing else 0
        decided[i, 4] = usual_burst(slots, stack, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST])
        decided[i, 5] = notes[OVERHEAD]
        decide(tp, decided, i)
        if notes[WATCH_SLOT] >= 0 and slots[notes[WATCH_SLOT]] == notes[WATCH_VALUE]:
            at.led_rows = i + 1
            return WATCHED
        if notes[LEAST] > -cx.NO_MARGIN and likelihood[0] + likelihood[1 + stack[NEXT_SEND]] < notes[LEAST] / 1000.0:
            at.led_rows = i + 1
            return ENDED
    at.led_rows = tp.rows
    return 0


def lead(given: Any, tables: Any, controller: Any, script: Any, notes: Any, marks: Any, decided: Any) -> int:
    """Re-enact the single connection of a pass, led by a controller; fill `decided`, one row per row of the stream.

    Returns as `reenact` does, but never ASKS; or DRAWN, if an unknown number is drawn, WATCHED, or ENDED where the
    likelihood cannot reach LEAST. Called again, it continues from there.
    """
    packets, sacks, order, first, params, polls, nothing, told, place = given
    out, _, sent, _, _, _, finals, _, _ = tables
    at, tp = place[0], finals[0]
    status = notes[STATUS]
    going = 1
    stopped = 0
    while going != 0:
        stopped = decide_rows(at, tp, out, sent, controller, script, notes, marks, decided)
        if stopped != 0 or status != ASKS:
            going = 0
        else:
            status = reenact(packets, sacks, order, first, params, polls, nothing, told, place, tables)
    if stopped != 0:
        notes[STATUS] = status
        return stopped
    notes[STATUS] = ASKS
    return status
