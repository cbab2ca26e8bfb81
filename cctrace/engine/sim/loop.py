"""The event loop: always the flow whose next thing comes first; ACKs before timers at the same instant."""

from cctrace.engine.sim.layout import NEVER, QUIC
from cctrace.engine.sim.link import draw_jitter, receive, send_ack
from cctrace.engine.sim.memory import flows, words
from cctrace.engine.sim.quic import q_probe, q_process_ack, q_push, q_start
from cctrace.engine.sim.sender import INIT, call, on_rto, process_ack, push, rtt_estimator


def next_time(f):
    """Return when the flow has something to do."""
    t = min(min(min(f.pace_at, f.rto_at), min(f.delack_at, f.app_at)), min(f.push_at, f.probe_at))
    if f.arr_head < f.arr_tail:
        t = min(t, words(f.arr_ns)[f.arr_head & f.mask])
    if f.ack_head < f.ack_tail:
        t = min(t, words(f.ack_ns)[f.ack_head & f.mask])
    return t


def step(w, f, now):
    """Do what the flow has to do at `now`."""
    if f.arr_head < f.arr_tail and words(f.arr_ns)[f.arr_head & f.mask] <= now:
        receive(w, f, now)
    elif f.ack_head < f.ack_tail and words(f.ack_ns)[f.ack_head & f.mask] <= now:
        if f.profile == QUIC:
            q_process_ack(w, f, now)
        else:
            process_ack(w, f, now)
    elif f.delack_at <= now:
        send_ack(w, f, now)
    elif f.pace_at <= now:
        f.pace_at = NEVER
        push(w, f, now)
    elif f.app_at <= now:
        application(w, f, now)
    elif f.rto_at <= now:
        on_rto(w, f, now)
    elif f.probe_at <= now:
        q_probe(w, f, now)
    else:
        q_push(w, f, now)


def application(w, f, now):
    """The flow's application wakes up: first to connect, then, a handshake later, to send."""
    f.app_at = NEVER
    f.app_end = f.app_segments
    if f.profile == QUIC:
        q_start(w, f, now)
    elif f.srtt == 0 and now == f.start_ns:  # the SYN finds the queue as it is
        f.app_at = now + f.fwd_ns + f.rev_ns + max(w.free_at - now, 0) + draw_jitter(w, f, now)
    else:
        handshake_rtt = (now - f.start_ns) // 1000
        f.min_rtt = handshake_rtt
        f.min_rtt_stamp = now
        rtt_estimator(f, handshake_rtt)
        call(w, f, INIT, 0, now)
        push(w, f, now)


def run(w, until_ns):
    """Advance the simulation to `until_ns`; returns the number of events."""
    table = flows(w.flows)
    for i in range(w.n):
        table[i].next_ns = next_time(table[i])
    events = 0
    while True:
        first = 0
        now = table[0].next_ns
        for i in range(1, w.n):
            if table[i].next_ns < now:
                now = table[i].next_ns
                first = i
        if now > until_ns:
            return events
        step(w, table[first], now)
        table[first].next_ns = next_time(table[first])
        events += 1
