"""The view that a simulated sender passes to its controller (schema.LINUX_VIEW, QUIC_VIEW), and its outputs."""

from cctrace import schema
from cctrace.lang.memory import words
from cctrace.sim.core.chance import CC_STREAM, random_bits
from cctrace.sim.core.positions import begins, next_begins
from cctrace.sim.core.skbs import tx_in_flight
from cctrace.sim.core.structs import segments

# The first slots of every Linux controller's record ([cctrace.cc.base] LinuxController), after the draw counter.
DRAWS, CWND, CWND_CNT, SSTHRESH, PACING, APP_LIMITED = range(6)
DRAWN, LINUX_BITS, QUIC_BITS = 4, 32, 31  # random numbers that a view holds, and their size
LINUX_SLOTS, LINUX_COLUMNS = 5, len(schema.LINUX_VIEW)
RAND = LINUX_COLUMNS - DRAWN  # of a view's columns, the first of the random numbers

_q = {name: k for k, name in enumerate(schema.names(schema.QUIC_VIEW))}
# The first slots of every QUIC controller's record ([cctrace.cc.base] QuicController), after the draw counter.
Q_CWND, Q_PACING, Q_APP_LIMITED = 1, 2, 3
QUIC_SLOTS, QUIC_COLUMNS = 3, len(_q)
Q_NOW, Q_ARG, Q_SMP_NOW, Q_PRIOR_DELIVERED = _q["now_ms"], _q["arg"], _q["smp_now"], _q["smp_prior_delivered"]
Q_INTERVAL, Q_DELIVERED, Q_ACKED = _q["smp_interval_ms"], _q["smp_delivered"], _q["smp_acked"]
Q_IN_FLIGHT, Q_PRIOR_FLIGHT, Q_RTT = _q["smp_in_flight"], _q["smp_prior_inflight"], _q["smp_rtt_ms"]
Q_APP, Q_LOSS, Q_TOTAL_ACKED, Q_TOTAL_LOSS = (
    _q["smp_is_app_limited"], _q["smp_loss"], _q["smp_total_acked"], _q["smp_total_loss"],
)  # fmt: skip
Q_SRTT, Q_MIN_RTT, Q_PO_SENT_TIME = _q["smp_srtt_ms"], _q["smp_min_rtt_ms"], _q["smp_po_sent_time"]
Q_TX_FLIGHT, Q_LOST_PKTS = _q["smp_tx_in_flight"], _q["smp_lost_pkts"]
Q_CG_FLIGHT, Q_CG_DELIVERED, Q_CG_PO_SENT = _q["cg_in_flight"], _q["cg_delivered"], _q["cg_po_sent"]
Q_CG_START, Q_LOSS_TIMER, Q_RAND = _q["cg_start_time"], _q["loss_timer"], _q["rand0"]


def fill_linux_view(w, f, event, arg, now):
    """Write what the flow's view has at time `now` (ns) beside the flow's own fields."""
    f.v_arg = arg
    f.v_snd_una = 1 + begins(f, f.una)
    f.v_ack = f.v_snd_una if f.log_seen > 0 else 0
    f.v_snd_nxt = 1 + next_begins(f)
    f.v_packets_out = f.nxt - f.una
    f.v_jiffies = schema.JIFFIES_START + (now // 1_000_000 if f.hz == 1000 else now * f.hz // 1_000_000_000)
    f.v_clock_ns = now
    sent = f.lsndtime_us // 1000 if f.hz == 1000 else f.lsndtime_us * f.hz // 1_000_000
    f.v_lsndtime = schema.JIFFIES_START + sent if f.lsndtime_us > 0 else 0
    words(f.cc_view)[RAND : RAND + DRAWN] = words(w.linux_draws)[0:DRAWN]
    if event == 6:  # skb_marked_lost: the marks that the super-packet, from its first segment on, took along
        seg = segments(f.seg)[arg & f.mask]
        f.v_skb_tx_in_flight = tx_in_flight(f, seg)
        f.v_skb_tx_lost = seg.tx_lost
        f.v_skb_tx_delivered = seg.tx_delivered
        f.v_skb_tx_app_limited = seg.tx_app_limited
        f.v_skb_tx_has_mstamp = seg.tx_delivered_mstamp
        f.v_skb_segments = seg.skb_end - arg


def fill_quic_view(w, f, arg, now):
    """Write the view of a QUIC flow at time `now` (ns) into the world's record."""
    v = words(w.quic_view)
    v[Q_NOW] = now // 1_000_000
    v[Q_ARG] = arg
    v[Q_SMP_NOW] = f.smp_now
    v[Q_PRIOR_DELIVERED] = f.smp_prior_delivered
    v[Q_INTERVAL] = f.smp_interval
    v[Q_DELIVERED] = f.smp_delivered
    v[Q_ACKED] = f.smp_acked
    v[Q_IN_FLIGHT] = f.smp_in_flight
    v[Q_PRIOR_FLIGHT] = f.smp_prior_inflight
    v[Q_RTT] = f.smp_rtt
    v[Q_APP] = f.smp_is_app_limited
    v[Q_LOSS] = f.smp_loss
    v[Q_TOTAL_ACKED] = f.smp_total_acked
    v[Q_TOTAL_LOSS] = f.smp_total_loss
    v[Q_SRTT] = f.smp_srtt
    v[Q_MIN_RTT] = f.smp_min_rtt
    v[Q_PO_SENT_TIME] = f.smp_po_sent_ms
    v[Q_TX_FLIGHT] = f.smp_tx_in_flight
    v[Q_LOST_PKTS] = f.smp_lost_pkts
    v[Q_CG_FLIGHT] = f.q_in_flight
    v[Q_CG_DELIVERED] = f.q_delivered
    v[Q_CG_PO_SENT] = f.q_po_sent
    v[Q_CG_START] = f.q_start_ms
    v[Q_LOSS_TIMER] = f.q_loss_ms


def replace_used(w, f, view, first, bits):
    """Replace the random numbers used by a call with new ones, after the unused ones."""
    used = words(f.state)[DRAWS]
    words(f.state)[DRAWS] = 0
    for k in range(DRAWN - used):
        words(view)[first + k] = words(view)[first + k + used]
    draw(w, view, first, DRAWN - used, bits)


def draw(w, view, first, kept, bits):
    """Put new random numbers into a view, after the `kept` first ones; prescribed ones come first."""
    for k in range(kept, DRAWN):
        if w.given_used < w.given:
            words(view)[first + k] = words(w.given_draws)[w.given_used]
            w.given_used += 1
        else:
            words(view)[first + k] = random_bits(w, CC_STREAM, bits)
