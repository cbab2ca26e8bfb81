"""Calls of a simulated sender to its controller: compiled code by its address, or an object when interpreted."""

from functools import partial
from types import SimpleNamespace

from cctrace import schema
from cctrace.lang.fields import VIEW_COLUMNS
from cctrace.lang.memory import call, callback, words

_FIELDS = {
    "linux": (
        *("draws", "snd_cwnd", "snd_cwnd_cnt", "snd_ssthresh", "pacing_rate", "app_limited", "min_rtt_us"),
        "max_tso_burst",
    ),
    "quic": ("draws", "cwnd", "pacing_rate", "app_limited", "ssthresh"),
}
_ENTRY = {code: name for name, code in schema.EVENT_CODES.items()}


def shared_fields(cls):
    """The fields of a controller that the stack reads or writes, in the order of the compiled record's first slots."""
    return tuple(name for name in _FIELDS[cls.view] if hasattr(cls, name))


def params_of_stack(cls, flow):
    """The parameters of a controller that a flow's socket and kernel set, of those that the class has."""
    values = {"hz": flow.hz, "resizes_packets": 0}
    if flow.fq or flow.max_pacing_rate_Bps:
        values["paced"] = 1  # fq and SO_MAX_PACING_RATE make every socket pace (fq_classify, sk_setsockopt)
    if flow.fq:
        values["internal_pacing"] = 0  # no timer of the stack's own
    if flow.max_pacing_rate_Bps:
        values["max_pacing_rate"] = flow.max_pacing_rate_Bps
    return {name: value for name, value in values.items() if name in cls.params}


def call_cc(w, f, event):
    """Call the entry point `event` of the flow's controller; returns what it returns, 0 for nothing."""
    return call(f.cc, event, f.state, f.cc_view)


def address_of(controller):
    """Return what stands for the address of a controller object; the fields it shares lie in the flow's state."""
    return callback(partial(_called, controller))


def _called(controller, event, state, ack):
    """Call the entry point `event` of a controller object, as compiled code is called."""
    entry = getattr(controller, _ENTRY[event], None)
    if entry is None:
        return 0
    kind = controller.view
    ack = SimpleNamespace(**dict(zip(VIEW_COLUMNS[kind], words(ack).tolist(), strict=True)))
    state = words(state)
    for slot, name in enumerate(shared_fields(type(controller))):
        setattr(controller, name, int(state[slot]) if slot else 0)
    result = entry(ack)
    for slot, name in enumerate(shared_fields(type(controller))):
        state[slot] = getattr(controller, name)
    return 0 if result is None else int(result)
