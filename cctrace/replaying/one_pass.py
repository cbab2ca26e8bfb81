"""A flow re-enacted and its controller replayed in one pass, as a sender's kernel runs both.

What TCP hands to fq depends on cwnd and pacing rate, which the controller decides upon rate samples, which depend on
what had been handed over. So the controller leads: whenever the re-enactment (`flows.reenact`) has added rows and TCP
may hand over next, it is called with them (`loop.call_row`), and what it decides says what is handed over.

What no record shows (numbers drawn, where ticks lay) is given. It was inferred from a stream whose rows may have been
others, so it is known by time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.flows.reenact import ASKS, NOTHING, OUT, SENDS, reenact
from cctrace.flows.state import THROUGH_FQ
from cctrace.lang.fields import fields_of
from cctrace.lang.machine import Machine
from cctrace.replaying.follow import TICK, Follower, Script
from cctrace.replaying.loop import call_row
from cctrace.replaying.stack import CWND, NEXT_DRAW, PACING, TICK_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.flows.flow import Flow

NOT_YET = 1 << 60  # row of a packet that has not been sent
PACES, MODE_SLOT, PROBE_RTT, DRAW, EDIT, NOTES = range(6)  # what `lead` notes: three constants, and where it is


class Timed(NamedTuple):
    """A `Script` by time.

    Attributes
    ----------
    draws : ndarray of int64, shape (n, 5)
        When (ns, capture clock), and four raw numbers.
    edits : ndarray of int64, shape (m, 3)
        When; the slot, or -1 - k for element k of the stack; what is added.
    hz, tick_us, paced
        As in `Script`.
    """

    draws: NDArray[np.int64]
    edits: NDArray[np.int64]
    hz: int
    tick_us: int
    paced: int | None


def timed(script: Script, follower: Follower) -> Timed:
    """Return a script of a follower by time."""
    time_ns = follower.events["time_ns"]
    draws = np.array(script.draws, np.int64).reshape(-1, 5)
    draws = draws[draws[:, 0] >= 0]
    draws[:, 0] = time_ns[draws[:, 0]]
    edits = np.array(
        [(time_ns[e.row], -1 - TICK_US if e.field == TICK else follower.slot(e.field), e.value) for e in script.edits],
        np.int64,
    ).reshape(-1, 3)
    return Timed(draws, edits, script.hz, script.tick_us, script.paced)


def give_draw(draws, notes, i, time_ns, one):
    """Let row `i` draw what was drawn nearest to its time."""
    if draws.shape[0] == 0:
        return
    k = notes[DRAW]
    while k + 1 < draws.shape[0] and abs(draws[k + 1, 0] - time_ns) <= abs(draws[k, 0] - time_ns):
        k += 1
    notes[DRAW] = k
    one[0, 0] = i
    for j in range(1, 5):
        one[0, j] = draws[k, j]


def make_edits(edits, notes, time_ns, slots, stack):
    """Make the edits that are due before a row of this time."""
    while notes[EDIT] < edits.shape[0] and edits[notes[EDIT], 0] <= time_ns:
        slot, value = edits[notes[EDIT], 1], edits[notes[EDIT], 2]
        if slot >= 0:
            slots[slot] += value
        else:
            stack[-1 - slot] += value
        notes[EDIT] += 1


def lead(given, tables, controller, script, notes, marks, decided):
    """Re-enact the one connection of a pass, led by a controller; fill `decided`, a row for each row of the stream.

    Returns as `reenact` does, never ASKS.
    """
    packets, sacks, order, first, params, polls, nothing, marked, place = given
    out, _, sent, _, _, _, finals, _, _ = tables
    book, slots, stack, ack, likelihood = controller
    draws, edits, one = script
    at, tp = place[0], finals[0]
    status = ASKS
    while status == ASKS:
        status = reenact(packets, sacks, order, first, params, polls, nothing, marked, place, tables)
        if status <= NOTHING or status == ASKS:
            if tp.sent < sent.size:
                sent[tp.sent].row, sent[tp.sent].begins = NOT_YET, 1
            for i in range(at.led_rows, tp.rows):
                time_ns = out[i].time_ns
                make_edits(edits, notes, time_ns, slots, stack)
                give_draw(draws, notes, i, time_ns, one)
                stack[NEXT_DRAW] = 0
                call_row(book, out, sent, marks, one, i, slots, stack, ack, likelihood)
                decided[i, 0], decided[i, 2] = time_ns, slots[CWND]
                decided[i, 1] = max(slots[PACING], 0) if notes[PACES] != 0 else 0
                probing = notes[MODE_SLOT] >= 0 and slots[notes[MODE_SLOT]] == notes[PROBE_RTT]
                decided[i, 3] = 1 if probing else 0
                tp.rate_Bps, tp.cwnd, tp.probing_rtt = decided[i, 1], decided[i, 2], decided[i, 3]
            at.led_rows = tp.rows
    return status


_lead = Machine(lead)


def _longer(table, rows):
    """Return a table of so many rows that begins with those of `table`."""
    return np.concatenate([table, np.zeros((rows - len(table), *table.shape[1:]), table.dtype)])


def hand_over(flow: Flow, cls: type, params: dict, script: Timed) -> NDArray[np.int64]:
    """Return what a controller decides over a flow that left through fq.

    Parameters
    ----------
    flow : Flow
        As captured.
    cls : type
        Class of a Linux controller, which compiles.
    params : dict
        Its parameters.
    script : Timed

    Returns
    -------
    ndarray of int64, shape (rows, 4)
        As `Flow.as_left` takes it; a row for each row of the stream that follows.
    """
    follower = Follower(flow.events, flow.events.sends, cls, params, ())
    follower.begin(Script([], [], script.hz, script.tick_us, script.paced))
    work = flow.reenactment(THROUGH_FQ)
    work.at["led"] = 1
    has_mode = "mode" in fields_of(cls)
    notes = np.zeros(NOTES, np.int64)
    notes[PACES] = bool(cls.sets_pacing_rate or follower.params.get("paced", 0))
    notes[MODE_SLOT] = follower.slot("mode") if has_mode else -1
    notes[PROBE_RTT] = cls.states.index("PROBE_RTT") if has_mode else 0
    controller = follower.book, follower.slots, follower.stack, follower.ack, follower.likelihood
    told = script.draws, script.edits, np.full((1, 5), -1, np.int64)
    marks = np.zeros(len(work.tables[SENDS]), np.uint8)
    decided = np.zeros((len(work.tables[OUT]), 4), np.int64)
    while (lacks := _lead(work.given, work.tables, controller, told, notes, marks, decided)) != NOTHING:
        work.grow(lacks)
        marks = _longer(marks, len(work.tables[SENDS]))
        decided = _longer(decided, len(work.tables[OUT]))
    follower.check()
    return decided[: int(work.finals["rows"][0])]
