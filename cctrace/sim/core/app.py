"""Applications: what they write, and when."""

from cctrace.cc.linux import EVENT_CWND_RESTART, TCP_INIT_CWND
from cctrace.lang.memory import words
from cctrace.schema import CWND_EVENT, INIT
from cctrace.sim.core import structs
from cctrace.sim.core.bottleneck import step_up
from cctrace.sim.core.calls import call, current_ssthresh
from cctrace.sim.core.delay import draw_anew, forward_delay
from cctrace.sim.core.entry import forward_bare
from cctrace.sim.core.output import push
from cctrace.sim.core.positions import next_begins
from cctrace.sim.core.quic_sender import q_start
from cctrace.sim.core.reduction import update_pacing_rate
from cctrace.sim.core.samples import take_rtt
from cctrace.sim.core.sendmsg import check_app_limited, write
from cctrace.sim.core.tap import tap
from cctrace.sim.core.view import CWND, SSTHRESH
from cctrace.sim.core.write_queue import discard_unsent, expand_sndbuf
from cctrace.tcp.window import cwnd_after_idle

SYN_OPTIONS_BYTES = 8  # MSS, window scale, SACK permitted: beside the time stamps that all segments have


def application(w, f, now):
    """The flow's application wakes up."""
    f.app_at = structs.NEVER
    if f.app_stage == structs.CONNECTING:
        connect(w, f, now)
    elif f.app_stage == structs.ESTABLISHED:
        establish(w, f, now)
    elif now >= f.stop_ns:
        discard_unsent(f)
        f.app_stage = structs.STOPPED
    else:
        offer(w, f, now)


def connect(w, f, now):
    """The handshake. A QUIC stack of the golden vectors starts after it; a TCP SYN finds the queue as it is."""
    if f.profile == structs.QUIC:
        f.app_stage = structs.RUNNING
        q_start(w, f, now)
        offer(w, f, now)
    else:
        f.app_stage = structs.ESTABLISHED
        tap(f, now, structs.TAP_SYN, 0, 0)
        if f.profile == structs.LINUX or f.before > 0:
            f.app_at = step_up(w, forward_bare(w, f, SYN_OPTIONS_BYTES, now) + f.rev_ns, structs.ACKS)
        else:  # the golden vectors' handshake occupies no bottleneck time
            leaves = max(now, w.free_at)
            f.app_at = leaves + forward_delay(w, f, leaves) + f.rev_ns
        draw_anew(f)


def establish(w, f, now):
    """The SYN-ACK arrives at a TCP sender: the handshake gives the first RTT, and the application may write."""
    f.app_stage = structs.RUNNING
    tap(f, now, structs.TAP_SYN_ACK, 0, 0)
    handshake_rtt = f.now_us - f.start_ns // 1000
    f.min_rtt = handshake_rtt
    f.syn_ack_ns = now - f.rev_ns
    f.heard_ms = (f.syn_ack_ns + f.rcv_clock_ns) // 1_000_000
    if f.profile == structs.LINUX:  # tcp_init_buffer_space, as the handshake's ACK arrives
        arrives = forward_bare(w, f, 0, now)
        f.rcv_copied_us = arrives // 1000
        f.rcv_last_ns = arrives  # tcp_create_openreq_child
        f.rcv_first_rtt = (arrives - f.syn_ack_ns) // 1000  # tcp_synack_rtt_meas
        draw_anew(f)
    f.min_rtt_stamp = now
    take_rtt(f, handshake_rtt)
    if f.profile == structs.LINUX:
        expand_sndbuf(f)  # tcp_init_buffer_space
    call(w, f, INIT, 0, now)
    if f.has_on_ack == 0 and (f.paced == 1 or f.profile == structs.LINUX):
        # tcp_ack of the handshake: the first bursts have two segments, unless a peer is near
        update_pacing_rate(w, f)
    offer(w, f, now)


def offer(w, f, now):
    """The application writes, and schedules its next write."""
    if f.profile == structs.REFERENCE and f.nxt > 0:  # the reference stack's first write marks nothing
        check_app_limited(w, f)
    if f.profile == structs.LINUX and f.has_on_ack == 0:
        restart_after_idle(w, f, now)
    if f.app_kind == structs.ON_OFF:
        on = f.app_end <= next_begins(f)
        if on:
            f.app_end = structs.UNLIMITED
        else:
            discard_unsent(f)
        f.app_at = now + (f.app_on_ns if on else f.app_period_ns)
    else:
        f.app_end += f.app_bytes
        if f.app_kind == structs.CHUNKS:
            f.app_at = now + f.app_period_ns
    if f.app_kind == structs.BULK or f.app_at > f.stop_ns:
        f.app_at = f.stop_ns
    if f.profile == structs.LINUX:
        write(w, f, now)
    else:
        f.write_seq = f.app_end // f.mss
        if f.profile != structs.QUIC:
            push(w, f, now)


def answered(f, now):
    """A response was acknowledged completely: the next request comes after the time to think."""
    f.app_at = min(now + f.app_period_ns, f.stop_ns)


def restart_after_idle(w, f, now):
    """tcp_slow_start_after_idle_check: a window unused for longer than the timeout halves per timeout, down to 10."""
    idle_us = f.now_us - f.lsndtime_us
    if f.nxt != f.una or f.nxt == 0 or idle_us <= f.rto_us:
        return
    call(w, f, CWND_EVENT, EVENT_CWND_RESTART, now)
    words(f.state)[SSTHRESH] = current_ssthresh(w, f)
    words(f.state)[CWND] = cwnd_after_idle(words(f.state)[CWND], idle_us, f.rto_us, TCP_INIT_CWND)
