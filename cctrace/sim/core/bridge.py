"""How a simulated sender calls its controller: an object when interpreted, a function pointer when compiled."""

from types import SimpleNamespace

from cctrace import schema
from cctrace.sim.core.memory import words

_FIELDS = {
    "linux": ("draws", "snd_cwnd", "snd_cwnd_cnt", "snd_ssthresh", "pacing_rate", "app_limited", "min_rtt_us"),
    "quic": ("draws", "cwnd", "pacing_rate", "app_limited", "ssthresh"),
}
_NAMES = {"linux": schema.names(schema.LINUX_VIEW), "quic": schema.names(schema.QUIC_VIEW)}
OBJECTS = {}  # what stands for the address of a controller's code when interpreted
_ENTRY = {code: name for name, code in schema.EVENT_CODES.items()}


def shared_fields(cls):
    """The fields of a controller that the stack reads or writes, in the order of the compiled record's first slots."""
    return tuple(name for name in _FIELDS[cls.view] if hasattr(cls, name))


def call_cc(w, f, event):
    """Call the entry point `event` of the flow's controller object; the fields it shares lie in the flow's state."""
    controller = OBJECTS[f.cc]
    entry = getattr(controller, _ENTRY[event], None)
    if entry is None:
        return 0
    kind = controller.view
    values = words(w.linux_view if kind == "linux" else w.quic_view)
    ack = SimpleNamespace(**dict(zip(_NAMES[kind], values.tolist(), strict=True)))
    state = words(f.state)
    for slot, name in enumerate(shared_fields(type(controller))):
        setattr(controller, name, int(state[slot]) if slot else 0)
    result = entry(ack)
    for slot, name in enumerate(shared_fields(type(controller))):
        state[slot] = getattr(controller, name)
    return 0 if result is None else int(result)
