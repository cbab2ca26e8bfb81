"""Common parts of a simulated TCP sender: states, clock, and the call of its controller."""

from cctrace.lang.memory import words
from cctrace.schema import SET_STATE
from cctrace.sim.core import view
from cctrace.sim.core.bridge import call_cc
from cctrace.sim.core.structs import TRACE_WIDTH
from cctrace.tcp.window import ssthresh_before


def mstamp(now):
    """tcp_mstamp (us) of the simulation time `now` (ns)."""
    return now // 1000


def call(w, f, event, arg, now):
    """Call the flow's controller; return what the entry point returns, 0 if the controller has no such entry point."""
    traced = is_traced(f, event)
    if f.entries >> event & 1 == 0 and not traced:
        return 0
    view.fill_linux_view(w, f, event, arg, now)
    if traced:
        trace_call(f, event, f.cc_view, view.LINUX_SLOTS, view.LINUX_COLUMNS)
    result = call_cc(w, f, event)
    if words(f.state)[view.DRAWS] > 0:
        view.replace_used(w, f, w.linux_draws, 0, view.LINUX_BITS)
    return result


def is_traced(f, event):
    """Whether the flow's trace has a row per call of this entry point."""
    return f.trace_size > 0 and f.untraced >> event & 1 == 0


def trace_call(f, event, address, slots, columns):
    """Append a row to the flow's trace: the event, what controller and stack write in turn, the view at `address`."""
    row = words(f.trace_buffer)[f.trace_rows * TRACE_WIDTH : (f.trace_rows + 1) * TRACE_WIDTH]
    row[0] = event
    row[1 : 1 + slots] = words(f.state)[1 : 1 + slots]
    row[1 + slots : 1 + slots + columns] = words(address)[:columns]
    f.trace_rows += 1


def in_flight(f):
    """tcp_packets_in_flight."""
    return f.nxt - f.una - f.sacked_out - f.lost_out + f.retrans_out


def set_state(w, f, state, now):
    """tcp_set_ca_state: the controller hears of it before it changes."""
    call(w, f, SET_STATE, state, now)
    f.ca_state = state


def current_ssthresh(w, f):
    """tcp_current_ssthresh."""
    return ssthresh_before(f.ca_state, words(f.state)[view.SSTHRESH], words(f.state)[view.CWND])
