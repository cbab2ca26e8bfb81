"""Re-enactment of the sender's TCP and replay of its controller in one pass, compiled (`inference.one_pass`).

`lead` alternates between the re-enactment (`flows.sender.reenact`), which adds rows to the event stream and stops with
UNDECIDED where TCP may hand over data next, and `decide_rows`, which calls the controller with the new rows. What it
decides there (`decided`: cwnd, pacing rate, …) determines what the re-enactment hands over.
"""

from typing import Any

import numpy as np

from cctrace.flows.sender.continuing import decide
from cctrace.flows.sender.reenact import PAUSED, UNDECIDED, reenact
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.loop import call_row
from cctrace.replaying.engine.stack import CWND, DRAWS, PACING, tcp_of, usual_burst

NOT_YET = 1 << 60  # row of a packet that has not been sent
# State of a pass.
(
    SETS_RATE,  # whether the socket paces
    MODE_SLOT,  # slot of the controller's mode, -1: it has none
    PROBE_RTT,  # value of that mode
    DRAW,  # place in the draws that are given by time
    EDIT,  # place in the edits that are given by time
    IS_GIVEN,  # whether the next draw is given (`Leader.draw`)
    STOPS,  # whether a draw that is not given stops the pass
    WATCH_SLOT,  # slot whose value stops it, -1: none
    WATCH_VALUE,
    STATUS,  # with which `reenact` stopped last
    OVERHEAD,  # bytes that an skb takes besides its data
    LEAST,  # log likelihood (1000ths) below which a branch is stopped
    PASS_SIZE,
) = range(13)
DRAWN, WATCHED, ENDED = range(PAUSED + 1, PAUSED + 4)  # statuses of `lead`, besides those of `reenact`


def give_draw(draws: Any, state: Any, i: int, time_ns: int, next_draw: Any) -> None:
    """Let row `i` take the next draw if that is given, or the one given for the time closest to `time_ns`."""
    next_draw[0, 0] = i if state[IS_GIVEN] != 0 else -1
    if draws.shape[0] == 0:
        return
    k = state[DRAW]
    while k + 1 < draws.shape[0] and abs(draws[k + 1, 0] - time_ns) <= abs(draws[k, 0] - time_ns):
        k += 1
    state[DRAW] = k
    next_draw[0, 0] = i
    for j in range(1, 5):
        next_draw[0, j] = draws[k, j]


def make_edits(edits: Any, state: Any, time_ns: int, slots: Any) -> None:
    """Make the edits that are due before a row of this time."""
    while state[EDIT] < edits.shape[0] and edits[state[EDIT], 0] <= time_ns:
        slots[edits[state[EDIT], 1]] += edits[state[EDIT], 2]
        state[EDIT] += 1


def decide_rows(
    at: Any, tp: Any, rows: Any, sends: Any, controller: Any, script: Any, state: Any, marks: Any, decided: Any
) -> int:
    """Call the controller with the new rows; return DRAWN, WATCHED or ENDED if that stops the pass, else 0."""
    ctx, slots, stack, acks, likelihood, checkpoint = controller
    replay = (ctx, rows, sends, marks, acks, likelihood)
    draws, edits, next_draw = script
    calls, states, _ = rows
    tcp, size = tcp_of(stack), slots.size
    ctx[cx.OBSERVED] = -1  # the states may have been written anew
    if tp.sent < sends.size:
        # What will be handed over next is not known, whatever an earlier trial left there.
        sends[tp.sent].row, sends[tp.sent].begins = NOT_YET, 1
        sends[tp.sent].retransmitted, sends[tp.sent].ends_write = 0, 0
    for i in range(at.decided_rows, tp.rows):
        if state[STOPS] != 0 and ctx[cx.ENTRIES] >> np.int64(calls[i].event) & 1:  # other rows draw nothing
            checkpoint[:size] = slots
            checkpoint[size:] = stack
        time_ns = states[calls[i].of].time_ns
        make_edits(edits, state, time_ns, slots)
        give_draw(draws, state, i, time_ns, next_draw)
        tcp.next_draw = 0
        if call_row(replay, next_draw, i, slots, stack) and state[STOPS] != 0:
            slots[:] = checkpoint[:size]
            stack[:] = checkpoint[size:]
            at.decided_rows = i
            return DRAWN
        if slots[DRAWS] > 0:
            state[IS_GIVEN] = 0
        decided[i, 0], decided[i, 2] = time_ns, slots[CWND]
        decided[i, 1] = max(slots[PACING], 0) if state[SETS_RATE] != 0 else 0
        probes_rtt = state[MODE_SLOT] >= 0 and slots[state[MODE_SLOT]] == state[PROBE_RTT]
        decided[i, 3] = 1 if probes_rtt else 0
        decided[i, 4] = usual_burst(slots, tcp, ctx[cx.OWN_MIN_RTT], ctx[cx.SLOW_BURST])
        decided[i, 5] = state[OVERHEAD]
        decide(tp, decided, i)
        if state[WATCH_SLOT] >= 0 and slots[state[WATCH_SLOT]] == state[WATCH_VALUE]:
            at.decided_rows = i + 1
            return WATCHED
        if state[LEAST] > -cx.NO_MARGIN and likelihood[0] + likelihood[1 + tcp.next_send] < state[LEAST] / 1000.0:
            at.decided_rows = i + 1
            return ENDED
    at.decided_rows = tp.rows
    return 0


def lead(given: Any, tables: Any, controller: Any, script: Any, state: Any, marks: Any, decided: Any) -> int:
    """Re-enact a flow with a controller that decides what is handed over; fill `decided`, a row for each row.

    `given`, `tables`: of `flows.flow.Flow.reenactment`. `controller`: (ctx, slots, stack, acks, likelihood,
    checkpoint), see `loop`. `script`: (draws, edits, next draw), by time. Returns as `reenact` does, but
    instead of UNDECIDED, DRAWN if a random number is needed that is not given, WATCHED, or ENDED if the likelihood
    cannot reach LEAST. Called again, it continues from there.
    """
    packets, sacks, order, first, params, polls, nothing, hints, place = given
    rows, _, sends, _, _, _, finals, _, _ = tables
    at, tp = place[0], finals[0]
    status = state[STATUS]
    going = 1
    stopped = 0
    while going != 0:
        stopped = decide_rows(at, tp, rows, sends, controller, script, state, marks, decided)
        if stopped != 0 or status != UNDECIDED:
            going = 0
        else:
            status = reenact(packets, sacks, order, first, params, polls, nothing, hints, place, tables)
    if stopped != 0:
        state[STATUS] = status
        return stopped
    state[STATUS] = UNDECIDED
    return status
