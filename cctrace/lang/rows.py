"""The loop over the rows of a view that calls a compiled controller: what `replaying.player` runs."""

from cctrace.lang.machine import Machine
from cctrace.lang.memory import call, words
from cctrace.schema import SSTHRESH, UNDO_CWND


def rows(code, row, stop, event, place, carried, state, recorded, out) -> None:
    """Call rows [row, stop). See `Compiled.run`.

    `code`: the addresses of the controller's function for a row, of `state` and of `place`; the slots of the returned
    value, and of the fields where the stack stores what `ssthresh` and `undo_cwnd` return (-1: nowhere). `place`: the
    row, which is written here, and the addresses of the columns. `carried`: (address, slot) of each observed field.
    """
    address, state_at, place_at, returned, ssthresh, cwnd = code
    for i in range(row, stop):
        for k in range(len(carried)):
            state[carried[k, 1]] = words(carried[k, 0])[i]
        called = event[i]
        place[0] = i
        result = call(address, called, state_at, place_at)
        state[returned] = result
        for k in range(len(recorded)):
            out[k, i] = state[recorded[k]]
        if called == SSTHRESH and ssthresh >= 0:
            state[ssthresh] = result
        if called == UNDO_CWND and cwnd >= 0:
            state[cwnd] = result


run_rows = Machine(rows)
