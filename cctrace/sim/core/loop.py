"""The event loop: always the flow with the earliest event; ACKs before timers at the same instant."""

from cctrace.sim.core.app import answered, application
from cctrace.sim.core.arrivals import next_arrival, take_all
from cctrace.sim.core.entry import only_room_matters, queue_ack, reach_queue
from cctrace.sim.core.events import enter_all, next_time, schedule
from cctrace.sim.core.fq import free_left, has_small_queues, release
from cctrace.sim.core.linux_sender import linux_ack, linux_timer
from cctrace.sim.core.managed import serve_on
from cctrace.sim.core.output import push
from cctrace.sim.core.positions import begins
from cctrace.sim.core.quic_sender import q_probe, q_process_ack, q_push
from cctrace.sim.core.receiver import delack_timer, receive, send_ack
from cctrace.sim.core.reference import on_rto, process_ack
from cctrace.sim.core.rtx_timer import is_early
from cctrace.sim.core.sendmsg import write
from cctrace.sim.core.structs import LINUX, NEVER, QUIC, REQUESTS, RUNNING, TAP_ACK_ARRIVED, acks, coming, flows, told
from cctrace.sim.core.tap import tap, tap_room
from cctrace.sim.core.windows import take_window, window_ns


def step(w, f, now):
    """Process the flow's event at `now`, which its sender's clock shows (`now_us`, tcp_mstamp)."""
    f.now_us = now // 1000
    if f.fq == 1 and (f.fq_at <= now or (w.one_host == 1 and f.fq_soft_ns <= now)):
        release(w, f, now)
    if w.one_host == 1 and (f.pace_at <= now or (f.compressed > 0 and f.delack_at <= now)):
        soft_timer(w, f, now)
    elif f.before > 0 and f.way_head < f.way_tail and coming(f.way)[f.way_head & f.mask].ns <= now:
        reach_queue(w, f, now)
    elif f.arr_head < f.arr_tail and coming(f.arr)[f.arr_head & f.mask].ns <= now:
        receive(w, f, next_arrival(f), now)
    elif w.shared == 1 and f.ack_queued < f.ack_tail and acks(f.ack)[f.ack_queued & f.ack_mask].ns <= now:
        queue_ack(w, f, now)
    elif f.ack_head < f.ack_queued and acks(f.ack)[f.ack_head & f.ack_mask].ns <= now:
        take_ack(w, f, now)
    elif f.dack_at <= now:
        delack_timer(w, f, now)
    elif f.delack_at <= now:
        send_ack(w, f, now)
    elif f.pace_at <= now:
        f.pace_at = NEVER
        push(w, f, now)
    elif f.app_at <= now:
        application(w, f, now)
    elif f.rto_at <= now:
        if f.profile == LINUX:
            linux_timer(w, f, now)
        else:
            on_rto(w, f, now)
    elif f.tsq_at <= now:
        f.tsq_at = NEVER
        push(w, f, now)
    elif f.push_at <= now:
        q_push(w, f, now)
    elif f.write_at <= now:  # processes run after the interrupts of the same instant
        write(w, f, now)
    elif f.probe_at <= now:
        q_probe(w, f, now)
    if has_small_queues(w, f) and f.wmem_leaving > 0 and f.left_at != now + 1:
        free_left(w, f, now)


def take_ack(w, f, now):
    """The next ACK on its way back reaches the sender."""
    tap(f, now, TAP_ACK_ARRIVED, 0, told(f.told)[f.ack_head & f.ack_mask].id)
    if f.profile == QUIC:
        q_process_ack(w, f, now)
    elif f.profile == LINUX:
        linux_ack(w, f, now)
    else:
        process_ack(w, f, now)
    if f.app_kind == REQUESTS and f.app_at == f.stop_ns and f.app_stage == RUNNING and all_delivered(f):
        answered(f, now)


def soft_timer(w, f, now):
    """A timer of pacing or compressed SACKs that shares an interrupt with a packet's arrival (`one_host`).

    Both belong to the softirq of hrtimers, which runs before netem's packet is received (__do_softirq: NET_TX and
    HRTIMER in the first round, NET_RX in the second).
    """
    if f.pace_at <= now:
        f.pace_at = NEVER
        push(w, f, now)
        if f.compressed > 0 and f.comp_due_ns <= now:
            f.delack_at = now  # one timer interrupt serves all timers that may fire (hrtimer_run_softirq)
    else:
        send_ack(w, f, now)


def all_delivered(f):
    """Whether everything the application has written was acknowledged."""
    if f.profile == QUIC:
        return f.nxt * f.mss == f.app_end and f.q_in_flight == 0 and f.resend_head == f.resend_tail
    return begins(f, f.una) == f.app_end


def run_world(worlds, until_ns):
    """Advance the simulation of a single WORLD record: the compiled entry point."""
    return run(worlds[0], until_ns)


def run(w, until_ns, check=None):
    """Advance the simulation to `until_ns`; return the time, early if a trace must be emptied or data fetched.

    `check` is called with world and flow after every event (interpreted only).
    """
    table = flows(w.flows)
    w.only_room = 1 if only_room_matters(w) else 0
    w.window_ns = window_ns(w)
    w.taken_ns = 0 if w.window_ns > 0 else NEVER
    for i in range(w.n):
        take_all(w, table[i], until_ns)
        table[i].next_ns = next_time(w, table[i])
    first = enter_all(w)
    while True:
        f = table[first]
        now = f.next_ns
        if w.aqm > 0 and w.serve_at <= min(now, until_ns):
            served = serve_on(w, w.serve_at)
            if served >= 0:
                first = schedule(w, table[served])
            continue
        if now > min(w.taken_ns, until_ns):
            if now > until_ns:
                return until_ns
            first = take_window(w, min(now + w.window_ns, until_ns))
            continue
        if f.rto_at <= now and is_early(f, now):
            first = schedule(w, f)
            continue
        if f.trace_size > 0 and f.trace_rows + trace_room(f) > f.trace_size:
            return now
        if f.tap_size > 0 and f.tap_rows + tap_room(f) > f.tap_size:
            return now
        step(w, f, now)
        first = schedule(w, f)
        if check is not None:
            check(w, f)
        if f.awaited > 0 and f.rcv_nxt * f.mss - f.rcv_lack >= f.awaited:
            return now


def trace_room(f):
    """Rows that one event can add to a trace: a timeout may mark all segments, or all packets of a QUIC sender."""
    return (f.nxt - f.una if f.profile == LINUX else f.tx_next - f.tx_head) + f.nxt - f.una + 64
