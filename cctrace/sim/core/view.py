"""The view that a simulated sender passes to its controller (schema.LINUX_VIEW, QUIC_VIEW), and its outputs."""

from cctrace import schema
from cctrace.lang.memory import words
from cctrace.sim.core.chance import CC_STREAM, random_bits
from cctrace.sim.core.positions import begins, next_begins
from cctrace.sim.core.structs import segments

_names = schema.names(schema.LINUX_VIEW)
_at = {name: k for k, name in enumerate(_names)}
# The first slots of every Linux controller's record ([cctrace.cc.base] LinuxController), after the draw counter.
DRAWS, CWND, CWND_CNT, SSTHRESH, PACING, APP_LIMITED = range(6)
V_ARG, V_CA_STATE, V_ACK, V_SND_UNA, V_SND_NXT = (_at[n] for n in ("arg", "ca_state", "ack", "snd_una", "snd_nxt"))
V_PACKETS_OUT, V_SACKED_OUT, V_LOST_OUT = _at["packets_out"], _at["sacked_out"], _at["lost_out"]
V_RETRANS_OUT, V_DELIVERED, V_DELIVERED_MSTAMP = _at["retrans_out"], _at["delivered"], _at["delivered_mstamp_us"]
V_DELIVERED_CE, V_LOST, V_SRTT, V_MDEV = _at["delivered_ce"], _at["lost"], _at["srtt_us8"], _at["mdev_us4"]
V_RTTVAR, V_MIN_RTT, V_MSS = _at["rttvar_us4"], _at["tcp_min_rtt_us"], _at["mss"]
V_CWND_LIMITED, V_DATA_SEGS_OUT = _at["is_cwnd_limited"], _at["data_segs_out"]
V_MAX_PACKETS_OUT, V_RS_DELIVERED, V_RS_INTERVAL = _at["max_packets_out"], _at["rs_delivered"], _at["rs_interval_us"]
V_RS_PRIOR_DELIVERED, V_RS_RTT, V_RS_LOSSES = _at["rs_prior_delivered"], _at["rs_rtt_us"], _at["rs_losses"]
V_RS_ACKED, V_RS_PRIOR_FLIGHT = _at["rs_acked_sacked"], _at["rs_prior_in_flight"]
V_RS_APP, V_RS_RETRANS = _at["rs_is_app_limited"], _at["rs_is_retrans"]
V_RS_TX_FLIGHT, V_RS_LOST, V_RS_PRIOR_LOST = _at["rs_tx_in_flight"], _at["rs_lost"], _at["rs_prior_lost"]
V_RS_CE, V_SKB_FLIGHT, V_SKB_LOST = _at["rs_delivered_ce"], _at["skb_tx_in_flight"], _at["skb_tx_lost"]
V_SKB_DELIVERED, V_SKB_APP, V_SKB_MSTAMP = _at["skb_tx_delivered"], _at["skb_tx_app_limited"], _at["skb_tx_has_mstamp"]
V_SKB_SEGMENTS, V_ECN_OK = _at["skb_segments"], _at["ecn_ok"]
V_NOW, V_JIFFIES, V_CLOCK, V_WSTAMP = _at["now_us"], _at["jiffies"], _at["clock_ns"], _at["wstamp_ns"]
V_LSNDTIME, V_PRIOR_CWND, V_RAND = _at["lsndtime"], _at["prior_cwnd_tp"], _at["rand0"]
JIFFIES_EPOCH = 1_000_000
DRAWN, LINUX_BITS, QUIC_BITS = 4, 32, 31  # random numbers that a view holds, and their size
LINUX_SLOTS, LINUX_COLUMNS = 5, len(_names)

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
    """Write the view at time `now` (ns) into the world's record."""
    v = words(w.linux_view)
    v[V_ARG] = arg
    v[V_CA_STATE] = f.ca_state
    v[V_SND_UNA] = 1 + begins(f, f.una)
    v[V_ACK] = v[V_SND_UNA] if f.log_seen > 0 else 0
    v[V_SND_NXT] = 1 + next_begins(f)
    v[V_PACKETS_OUT] = f.nxt - f.una
    v[V_SACKED_OUT] = f.sacked_out
    v[V_LOST_OUT] = f.lost_out
    v[V_RETRANS_OUT] = f.retrans_out
    v[V_DATA_SEGS_OUT] = f.data_segs_out
    v[V_DELIVERED] = f.delivered
    v[V_DELIVERED_MSTAMP] = f.delivered_mstamp
    v[V_DELIVERED_CE] = f.delivered_ce
    v[V_LOST] = f.lost
    v[V_SRTT] = f.srtt
    v[V_MDEV] = f.mdev
    v[V_RTTVAR] = f.rttvar
    v[V_MIN_RTT] = f.min_rtt
    v[V_MSS] = f.mss
    v[V_CWND_LIMITED] = f.is_cwnd_limited
    v[V_MAX_PACKETS_OUT] = f.max_packets_out
    v[V_RS_DELIVERED] = f.rs_delivered
    v[V_RS_INTERVAL] = f.rs_interval
    v[V_RS_PRIOR_DELIVERED] = f.rs_prior_delivered
    v[V_RS_RTT] = f.rs_rtt
    v[V_RS_LOSSES] = f.rs_losses
    v[V_RS_ACKED] = f.rs_acked_sacked
    v[V_RS_PRIOR_FLIGHT] = f.rs_prior_in_flight
    v[V_RS_APP] = f.rs_app_limited
    v[V_RS_RETRANS] = f.rs_retrans
    v[V_RS_TX_FLIGHT] = f.rs_tx_in_flight
    v[V_RS_LOST] = f.rs_lost
    v[V_RS_PRIOR_LOST] = f.rs_prior_lost
    v[V_RS_CE] = f.rs_delivered_ce
    v[V_ECN_OK] = 1 if f.ecn > 0 else 0
    v[V_NOW] = now // 1000
    v[V_JIFFIES] = JIFFIES_EPOCH + now * f.hz // 1_000_000_000
    v[V_CLOCK] = now
    v[V_WSTAMP] = f.wstamp_ns
    v[V_LSNDTIME] = JIFFIES_EPOCH + f.lsndtime_us * f.hz // 1_000_000 if f.lsndtime_us > 0 else 0
    v[V_PRIOR_CWND] = f.prior_cwnd
    if event == 6:  # skb_marked_lost: the marks that the super-packet, from its first segment on, took along
        seg = segments(f.seg)[arg & f.mask]
        v[V_SKB_FLIGHT] = seg.tx_in_flight
        v[V_SKB_LOST] = seg.tx_lost
        v[V_SKB_DELIVERED] = seg.tx_delivered
        v[V_SKB_APP] = seg.tx_app_limited
        v[V_SKB_MSTAMP] = seg.tx_delivered_mstamp
        v[V_SKB_SEGMENTS] = seg.skb_end - arg


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
