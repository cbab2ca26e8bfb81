"""Rows of the event stream, as calls and the states that they share, in three tables (`packed.EventColumns`)."""

from cctrace.flows.state import RS, STATE, STEADY, TP, UNSAMPLED
from cctrace.lang.memory import CopyFields, HasFields, SameFields, SetFields

STATE_FIELDS, STEADY_FIELDS = STATE.names or (), STEADY.names or ()
are_same = SameFields(*(name for name in STATE_FIELDS if name not in UNSAMPLED))
are_as_steady = SameFields(*STEADY_FIELDS)
is_same_sample, copy_sample, has_no_sample = SameFields(*UNSAMPLED), CopyFields(*UNSAMPLED), HasFields(**UNSAMPLED)
# A row has the fields of TP of the same names, but for the number of the steady part, and those of RS as `rs_...`.
copy_from_tp = CopyFields(*(name for name in STATE_FIELDS if name in (TP.names or ()) and name != "steady"))
copy_steady_from_tp = CopyFields(*(name for name in STEADY_FIELDS if name in (TP.names or ())))
_RESULTS = {f"rs_{name}": name for name in RS.names or ()}
copy_from_rs = CopyFields("ack", **{name: field for name, field in _RESULTS.items() if name in STATE_FIELDS})
copy_steady_from_rs = CopyFields(**{name: field for name, field in _RESULTS.items() if name in STEADY_FIELDS})
# What only calls of skb_marked_lost have.
clear_skb = SetFields(**{name: 0 for name in STEADY_FIELDS if name.startswith(("skb_", "tlp_"))})


def emit(out, tp, rs, event, arg):
    """Write one row of the event stream; the caller has made room. It shares the state of the one before, if equal."""
    write(out, tp, rs, event, arg)
    calls, states, steady = out
    last, rest = tp.states - tp.taken_states - 1, tp.steady - tp.taken_steady - 1
    if rest > 0 and are_as_steady(steady[rest - 1], steady[rest]):
        tp.steady -= 1
        states[last].steady = tp.steady - 1
    call = calls[tp.rows - tp.taken_rows - 1]
    if last > 0 and are_same(states[last - 1], states[last]) and takes_sample(call, states[last - 1], states[last]):
        tp.states -= 1
        call.of = tp.states - 1


def takes_sample(call, one, other):
    """Whether a call whose state is `other` can share the state `one`, which takes the first rate sample from it."""
    if call.sampled == 0:
        return True
    if has_no_sample(one):
        copy_sample(one, other)
        return True
    return is_same_sample(one, other)


def write(out, tp, rs, event, arg):
    """Write one row of the event stream, with a state of its own."""
    calls, states, steady = out
    call, row = calls[tp.rows - tp.taken_rows], states[tp.states - tp.taken_states]
    rest = steady[tp.steady - tp.taken_steady]
    call.of, row.steady = tp.states, tp.steady
    tp.rows += 1
    tp.states += 1
    tp.steady += 1
    call.event = event
    call.arg = arg
    call.delivered_mstamp_us = tp.delivered_us
    copy_from_rs(row, rs)
    call.sampled = not has_no_sample(row)
    copy_from_tp(row, tp)
    row.time_ns = tp.clock_ns
    row.data_segs_out = data_segs_out(tp)
    copy_steady_from_tp(rest, tp)
    copy_steady_from_rs(rest, rs)
    clear_skb(rest)


def data_segs_out(tp):
    """Segments of data sent so far, retransmissions included; a SYN is none."""
    return tp.tail + tp.total_retrans - tp.syns
