"""The view that a simulated sender passes to its controller (schema.LINUX_VIEW, QUIC_VIEW), and its outputs."""

from cctrace import schema
from cctrace.lang.memory import CopyFields, words
from cctrace.sim.core.positions import begins, next_begins
from cctrace.sim.core.rng import CC_STREAM, random_bits
from cctrace.sim.core.skbs import tx_in_flight
from cctrace.sim.core.structs import quic_views, segments

# The first slots of every Linux controller's record ([cctrace.cc.base] LinuxController), after the draw counter.
DRAWS, CWND, CWND_CNT, SSTHRESH, PACING, APP_LIMITED = range(6)
DRAWN, LINUX_BITS, QUIC_BITS = 4, 32, 31  # random numbers that a view holds, and their size
LINUX_SLOTS, LINUX_COLUMNS = 5, len(schema.LINUX_VIEW)
RAND = LINUX_COLUMNS - DRAWN  # of a view's columns, the first of the random numbers

# The first slots of every QUIC controller's record ([cctrace.cc.base] QuicController), after the draw counter.
Q_CWND, Q_PACING, Q_APP_LIMITED = 1, 2, 3
QUIC_SLOTS, QUIC_COLUMNS = 3, len(schema.QUIC_VIEW)
Q_RAND = schema.names(schema.QUIC_VIEW).index("rand0")
# What the view has of the flow.
copy_flow = CopyFields(
    *(name for name in schema.names(schema.QUIC_VIEW) if name.startswith("smp_")),
    cg_in_flight="q_in_flight",
    cg_delivered="q_delivered",
    cg_po_sent="q_po_sent",
    cg_start_time="q_start_ms",
    loss_timer="q_loss_ms",
)


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
    if event == schema.SKB_MARKED_LOST:  # the marks that the super-packet, from its first segment on, took along
        seg = segments(f.seg)[arg & f.mask]
        f.v_skb_tx_in_flight = tx_in_flight(f, seg)
        f.v_skb_tx_lost = seg.tx_lost
        f.v_skb_tx_delivered = seg.tx_delivered
        f.v_skb_tx_app_limited = seg.tx_app_limited
        f.v_skb_tx_has_mstamp = seg.tx_delivered_mstamp
        f.v_skb_segments = seg.skb_end - arg


def fill_quic_view(w, f, arg, now):
    """Write the view of a QUIC flow at time `now` (ns) into the world's record."""
    v = quic_views(w.quic_view)[0]
    v.now_ms = now // 1_000_000
    v.arg = arg
    copy_flow(v, f)


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
