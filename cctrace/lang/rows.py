"""The loop over the rows of a view that calls a compiled controller: what `replaying.player` runs."""

from cctrace.lang.machine import Machine
from cctrace.lang.memory import call, words


def rows(code, row, stop, stop_at_draw, event, columns, places, carried, fields, state, before, ack, recorded, out):
    """Call rows [row, stop); see `Compiled.run`. `code` and `fields` are (address, slots of fields) by number."""
    address, state_at, ack_at, draws, returned, ssthresh, cwnd = code
    for i in range(row, stop):
        if stop_at_draw:
            for k in range(len(state)):
                before[k] = state[k]
        for k in range(len(carried)):
            if carried[k] != 0:
                state[fields[k]] = words(carried[k])[i]
        for k in range(len(columns)):
            ack[places[k]] = words(columns[k])[i]
        result = call(address, event[i], state_at, ack_at)
        state[returned] = result
        if stop_at_draw and state[draws] > 0:
            for k in range(len(state)):
                state[k] = before[k]
            return i
        for k in range(len(recorded)):
            out[k, i] = state[recorded[k]]
        if event[i] == 2 and ssthresh >= 0:
            state[ssthresh] = result
        if event[i] == 5 and cwnd >= 0:
            state[cwnd] = result
    return stop


run_rows = Machine(rows)
