"""The memory of a simulation: one record per flow, one per outstanding segment, rings for packets in flight.

The entire state between two events lives here, so a run can stop at any event and continue, and interpreted and
compiled runs work on the same arrays.
"""

import functools

import numpy as np

from cctrace.lang.memory import ArrayAt, record_of
from cctrace.schema import LINUX_VIEW, QUIC_VIEW, names
from cctrace.tcp.ecn import ACCURATE_ECN, CLASSIC_ECN, NO_ECN
from cctrace.tcp.wire import MSS_BYTES, PACKET_BYTES, QUIC_MSS_BYTES, QUIC_PACKET_BYTES

# fmt: off
# What the controllers' view (schema.LINUX_VIEW) has of a flow: its fields. Others, for the view alone, are `v_...`.
_VIEWED = {
    "delivered_mstamp_us": "delivered_mstamp", "srtt_us8": "srtt", "mdev_us4": "mdev", "rttvar_us4": "rttvar",
    "tcp_min_rtt_us": "min_rtt", "rs_interval_us": "rs_interval", "rs_rtt_us": "rs_rtt",
    "rs_is_app_limited": "rs_app_limited", "rs_is_retrans": "rs_retrans", "prior_cwnd_tp": "prior_cwnd",
} | {
    name: name for name in (
        "ca_state", "sacked_out", "lost_out", "retrans_out", "data_segs_out", "delivered", "delivered_ce", "lost",
        "now_us", "mss", "is_cwnd_limited", "max_packets_out", "rs_delivered", "rs_prior_delivered", "rs_losses",
        "rs_acked_sacked", "rs_prior_in_flight", "rs_tx_in_flight", "rs_lost", "rs_prior_lost", "rs_delivered_ce",
        "wstamp_ns",
    )
}
_FIRST = ("next_ns", "pace_at", "rto_at", "delack_at", "dack_at", "app_at", "write_at", "cc_view")
_FLOW = (
    # The order is that of use: what every packet needs of a flow fits few cache lines, which tells with many flows.
    # First the next event, and the address of the flow's view, which follows it: controllers read it where it is.
    *_FIRST,
    *(_VIEWED.get(name, f"v_{name}") for name in names(LINUX_VIEW)),
    # what all events share (events.py): where rings are, and their sizes less one (rings.py); ACKs from `ack_queued` on
    # have not reached the queue that data and ACKs share, or wait for their draw (lateness.py); `awaited`: in-order
    # bytes at the receiver at which `loop.run` returns (served.py); `snd_lack`, and `small_sent`, the segment after the
    # last that was not full: positions.py
    "way_head", "way_tail", "arr_head", "arr_tail", "ack_head", "ack_tail", "arr", "ack", "told", "mask", "ack_mask",
    "profile", "fq", "fq_at", "trace_size", "tap_size", "ack_queued", "awaited", "una", "nxt", "tx", "log", "rcv_nxt",
    "hz", "kernel", "ecn", "snd_lack", "small_sent",
    # sends: window, pacing, timer, and the send buffer (write_queue.py), bytes but for write_seq; `tx_full`: `tx_next`
    # when the rings may be full; `losses_given`: whether losses are prescribed, as transmissions; `ahead_ns`:
    # arrivals.py; `sndbuf_segs`: what the send buffer was last made for
    "seg", "state", "tx_next", "tx_full", "timer", "before", "behind", "index", "queue_tally", "wire_bytes",
    "losses_given", "parts_as_v2", "n_sent", "ahead_ns", "qdelay_sum_ns", "qdelay_count", "burst_id", "prr_out",
    "first_tx_mstamp", "lsndtime_us", "heard_ms", "write_seq", "written", "wmem_queued", "sndbuf", "sndbuf_segs",
    "most_sndbuf", "nospace", "pushed_seq", "wq_ends", "wq_head", "wq_tail", "app_kind", "has_on_ack", "paced",
    "pace_overhead", "max_rate", "min_rtt_slot", "burst_slot", "slow_burst", "gso_max", "most_out", "snd_right",
    "max_packets_seq", "retrans_scan", "retrans_seen", "retrans_again", "armed_ns", "armed_us", "rto_us", "backoff",
    "reordering", "rwnd", "tick_us", "by_acks",
    # ACKs: scoreboard in segments, rate sample, RTT, RACK, tail-loss probes, undo; `ece`: this one echoes a mark
    "cc", "entries", "log_seen", "rtt_tally", "rtt_sum_us", "rtt_count", "max_window", "high_seq", "undo_marker",
    "undo_proof", "prr_delivered", "tx_head", "d1", "d2", "d3", "retransmits", "mdev_max", "rtt_seq",
    "min_rtt_stamp", "rs_prior_mstamp", "rs_last_order", "rs_prior_delivered_ce", "echo_ms", "rack_ns", "rack_index",
    "rack_order", "rack_seen", "rack_before", "rack_beside", "rack_rtt", "rack_advanced", "rack_waits",
    "reo_wnd_steps", "reo_wnd_persist", "rack_last_delivered", "reord_seen",
    "dsack_seen", "sack_high", "orig_sacked", "undo_retrans", "tlp_high_seq", "ece",
    # the receiver, and its window (receive_window.py)
    "got", "rcv_high", "rcv_acked", "rcv_duplicate", "rcv_lack", "rcv_mstamp", "rcv_read", "rcv_held", "log_next",
    "unacked_data", "n_acks", "last_ack", "quick_acks", "compressed", "rcv_pushed", "dack_pending", "ack_every",
    "ack_scheduled", "ack_slot_ns", "ack_late_ns", "ack_bytes", "rev_ns", "after_gap", "ts_recent_ms", "demand_cwr",
    "n_ce", "ce_acked", "rcv_right", "rcvbuf", "rcv_ratio", "rcv_ssthresh", "rcv_copied", "rcv_copied_us",
    "rcv_clock_ns", "rcv_rtt_edge", "rcv_rtt8", "rcv_echo_ms", "rcv_first_rtt", "rcv_truesize", "rcv_frags",
    "goodput_bytes", "ato", "rcv_last_ns", "compressed_at_nxt", "dup_acks", "n_blocks", "sack_blocks", "comp_sack_nr",
    # QUIC (quic_sender.py), and its receivers (acks.py)
    "resend", "decimated_from", "decimated_every", "decimated_ns", "probe_at", "rcv_largest", "rcv_since_gap",
    "push_at", "pto_count", "probe_kind", "q_late_ns", "push_drawn", "q_ssthresh_slot", "q_window", "q_in_flight",
    "q_send", "q_lost", "q_delivered", "q_delivered_ms", "q_first_sent_ms", "q_po_sent", "q_prior_in_flight",
    "q_prior_delivered", "q_largest_ack", "q_latest_rtt", "q_avg_rtt", "q_rttvar", "q_min_rtt", "q_first_rtt_ms",
    "q_start_ms", "q_budget", "q_pending", "q_last_sent", "q_limit_timer", "q_loss_ms", "resend_head", "resend_tail",
    "smp_initialized", "smp_prior_lost", "smp_tx_in_flight", "smp_prior_delivered", "smp_prior_ms",
    "smp_is_app_limited", "smp_send_elapsed", "smp_ack_elapsed", "smp_po_sent_time", "smp_acked", "smp_interval_ms",
    "smp_delivered", "smp_lost_pkts", "smp_now", "smp_rtt_ms", "smp_srtt_ms", "smp_min_rtt_ms", "smp_in_flight",
    "smp_prior_inflight", "smp_total_acked", "smp_total_loss", "smp_loss",
    # what few events need: losses, ECN, reordering, fq (`fq_next` is a transmission), the application (app.py); bounds
    # of `mask` (rings.py)
    "way", "lacks", "least_mask", "most_mask", "trace_buffer", "trace_rows", "tap_buffer", "tap_rows", "start_ns",
    "stop_ns", "fwd_ns", "delack_ns", "app_bytes", "app_period_ns", "app_on_ns", "app_end", "app_stage", "fq_next",
    "fq_due_ns", "fq_soft_ns", "wmem_alloc", "wmem_leaving", "in_process", "cuts_skbs", "tsq_throttled", "tsq_at",
    "left_at",
    "prior_ssthresh", "lost_orders", "lost_given", "lost_at", "dsacks", "retrans_stamp", "tlp_retrans", "frto",
    "delays", "delays_given", "queue_cwr", "ect_marks", "ect_always", "ce_reported",
    "ce_state", "comp_due_ns", "syn_ack_ns", "n_discarded", "rcv_copied_to", "rcv_rtt_at", "n_retx", "n_rto", "n_undo",
    "drops_queue", "drops_random", "n_marked", "untraced",
)
# Field: (type, offset). A segment takes one cache line; fields of QUIC, in bytes, take the place of some of TCP.
_SEGMENT = {
    "sent_ns": ("i8", 0), "order": ("i8", 8), "tx_delivered": ("i8", 16), "tx_delivered_mstamp": ("i8", 24),
    "tx_first_mstamp": ("i8", 32), "skb_end": ("i8", 40), "tx_lost": ("i4", 48), "tx_delivered_ce": ("i4", 52),
    "tx_in_flight": ("i4", 56), "marks": ("i2", 60), "tx_app_limited": ("i2", 62),
    "q_tx_in_flight": ("i8", 8), "q_po_sent": ("i8", 40), "q_tx_lost": ("i8", 48),
}
_TRANSMISSION = ("seg", "ns", "marks")  # `marks`: from `ECHO` on the time stamp that it echoes, ms
_COMING = ("ns", "order")  # of a transmission on its way: when it gets there
_ACK = ("ns", "log")  # when it gets there, and up to where in the log it reports
# What else it tells: Linux's sender, and taps.
_TOLD = {"echo": "i8", "stamp": "i8", "dup": "i8", "right": "i8", "ece": "i4", "id": "i4"}
_WORLD = (
    # addresses; the number of flows, that of places for them in the tournament (a power of two), its latest time
    "flows", "n", "tournament", "entrants", "last_key_ns", "linux_draws", "quic_view", "rng",
    "window_ns", "taken_ns",  # windows.py: how long these are, and when the last one ends
    "given_draws", "given", "given_used",  # random numbers prescribed to the controllers; how many there are, were used
    # timer resolution, whether both hosts share a kernel, how long a process takes to read the clock
    "timer_step_ns", "timer_phase_ns", "one_host", "instants", "clock_read_ns", "poll_ns", "poll_lasts_ns", "polled",
    "q_ns", "q_bytes", "q_which", "q_mask", "q_head", "q_tail", "buffer_bytes", "buffer_packets", "queue_bytes",
    "only_room", "shared", "free_at",  # entry.py
    "steps_ns", "steps_Bps", "steps", "step", "served_bytes", "served_step", "served_ns",
    "loss_ns", "loss_values", "loss_steps", "loss_step", "loss_next_ns", "loss_behind",
    "ecn_threshold", "aqm", "lanes", "n_lanes", "serve_at",  # managed.py: addresses (0: no AQM), when the link is free
    "police", "police_bucket", "police_at", "shaping", "shape_bucket", "shape_at",
    "shape_ns", "shape_values", "shape_steps", "shape_step", "shape_asked",
    "loss_state", "ack_loss_state", "has_normal",
)
# A section of a flow's path, before or behind the queue: its delay, which may change in steps, and its jitter;
# `apart_ns`: of packets at its end, `reached`: when the last got there by the host's clock.
_LEG = (
    "words", "reals", "steps", "step", "next_ns", "base_ns", "shift_ns", "reorder", "kind", "per", "slot_ns", "table",
    "samples", "drawn_for", "drawn_ns", "latest", "apart_ns", "reached",
)
_LEG_REALS = ("rho", "a", "b", "floor", "z")
# A bottleneck with an AQM (aqm.py): parameters, state, and the current packet.
_AQM = (
    "kind", "ecn", "mtu", "packets", "serving", "flow", "order", "at", "update_ns", "next_update",
    "target_ns", "interval_ns", "ce_threshold_ns", "quantum", "new_first", "old_first",
    "red_min", "red_max", "red_wlog", "red_step", "red_avg", "red_count", "red_random",
    "pie_target", "pie_alpha", "pie_beta", "pie_prob", "pie_burst", "pie_accumulated", "pie_delay", "pie_delay_before",
    "pie_left", "step_ns", "min_qlen_step", "classic_weight", "first_credit", "credit", "pi2_delay",
)
_AQM_REALS = ("coupling", "pi2_alpha_Hz", "pi2_beta_Hz", "pi2_prob")
# One queue of it: of fq_codel a flow's, of DualPI2 classic or low latency.
_LANE = (
    "flow", "order", "at", "head", "tail", "bytes", "deficit", "listed", "next",
    "first_above", "drop_next", "count", "last_count", "dropping", "inv_sqrt",
)
_WORLD_REALS = (
    "tokens", "token_rate_Bps", "shape_tokens", "shape_rate_Bps", "loss", "loss_p", "loss_r", "ack_loss", "ack_loss_p",
    "ack_loss_r", "next_normal",
)
# Fields of a flow that are a time, `NEVER` at the start.
TIMERS = (
    "pace_at", "rto_at", "delack_at", "dack_at", "push_at", "probe_at", "write_at", "fq_at", "fq_due_ns", "fq_soft_ns",
    "tsq_at", "left_at",
)
# fmt: on
FLOW = record_of(*_FLOW)
VIEW_WORD = len(_FIRST)  # where in a flow its view begins
_formats, _offsets = zip(*_SEGMENT.values(), strict=True)
SEGMENT = np.dtype({"names": list(_SEGMENT), "formats": list(_formats), "offsets": list(_offsets)})
TRANSMISSION = record_of(*_TRANSMISSION)
COMING = record_of(*_COMING)
ACK = record_of(*_ACK)
TOLD = np.dtype(list(_TOLD.items()))
WORLD = record_of(*_WORLD, reals=_WORLD_REALS)
LEG = record_of(*_LEG, reals=_LEG_REALS)
AQM = record_of(*_AQM, reals=_AQM_REALS)
LANE = record_of(*_LANE)
QUIC_VIEW_ROW = record_of(*names(QUIC_VIEW))

# Fields that are zero in most simulations, and do not change while `loop.run` runs: code that knows them is smaller.
PLAIN = {
    WORLD: ("one_host", "poll_ns", "shared", "ecn_threshold", "aqm", "police", "shaping", "loss_behind",
            "buffer_packets", "ack_loss"),
    FLOW: ("trace_size", "tap_size", "awaited", "fq", "ecn", "before", "losses_given", "delays_given",
           "ack_slot_ns", "max_rate", "after_gap"),
}  # fmt: skip

# Fields that are never negative, nor beyond `NEVER`: clocks, sizes and places, which are divided and compared.
NATURALS = {
    FLOW: (
        "next_ns", *TIMERS, "app_at", "now_us", "wstamp_ns", "lsndtime_us", "rcv_mstamp", "rcv_clock_ns", "tick_us",
        "delivered_mstamp", "srtt", "mdev", "mdev_max", "rttvar", "min_rtt", "rto_us", "mss", "una", "nxt", "tx_next",
        "rcv_nxt", "rcv_high", "rcv_read", "rcv_acked", "arr_head", "arr_tail", "ack_head", "ack_tail", "delivered",
        "lost", "mask", "ack_mask",
    ),
    SEGMENT: ("sent_ns", "order", "tx_delivered", "tx_delivered_mstamp", "tx_first_mstamp", "skb_end"),
    TRANSMISSION: ("ns",),
    COMING: ("ns", "order"),
    ACK: ("ns",),
    TOLD: ("echo", "stamp"),
    WORLD: ("n",),
}  # fmt: skip


# by address
segments, flows, legs, aqms, lanes = ArrayAt(SEGMENT), ArrayAt(FLOW), ArrayAt(LEG), ArrayAt(AQM), ArrayAt(LANE)
transmissions, coming, acks, told = ArrayAt(TRANSMISSION), ArrayAt(COMING), ArrayAt(ACK), ArrayAt(TOLD)
quic_views = ArrayAt(QUIC_VIEW_ROW)

HANDSHAKE = 2  # packets of a handshake that the bottleneck sees: SYN, ACK
NO_DATA = -1  # in the queue: a packet of a handshake
NEVER = (1 << 62) - 1
UNLIMITED = 1 << 51  # bytes of an application that always has data
CODEL, RED, PIE, FQ_CODEL, DUALPI2 = range(1, 6)  # `kind` of an AQM; drop-tail has none
NO_LANE = -1
TBF, HTB = 1, 2  # `shaping`; 0: there is none
NO_JITTER, NORMAL, GAMMA, LOGNORMAL, EMPIRICAL = range(5)
PER_PACKET, PER_BURST, PER_SLOT = range(3)
REFERENCE, LINUX, QUIC = 0, 1, 2  # profiles
PROFILES = {"reference": REFERENCE, "linux": LINUX}  # of a `Sender` (QUIC follows from its controller)
LINUX_6_1, LINUX_6_12, LINUX_6_18 = 601, 612, 618  # kernels whose rules differ (`Sender.kernel`)
KERNELS = {"6.1": LINUX_6_1, "6.12": LINUX_6_12, "6.18": LINUX_6_18}
BULK, CHUNKS, ON_OFF, REQUESTS, SERVED = range(5)  # applications; SERVED: driven from outside (served.py)
CONNECTING, ESTABLISHED, RUNNING, STOPPED = range(4)  # their stages
RTO_TIMER, REORDERING_TIMER, PROBE_TIMER = range(3)  # what the retransmission timer waits for
TRACE_WIDTH = 80  # words of a row of a trace
TAP_WIDTH = 3  # words of a row of a tap
TAP_SYN, TAP_SYN_ACK, TAP_SENT, TAP_ARRIVED, TAP_ACK, TAP_ACK_ARRIVED, TAP_DISCARDED = range(7)  # what it saw
TAP_LACKS, TAP_ECHO = 8, 24  # beside a transmission's marks: its segment's shortfall, the time stamp that it echoes
TALLY_SIZE = 48 * 64  # words of a tally: 64 logarithmic steps per power of two
# Marks of a segment
SACKED, LOST, RETRANS, EVER_RETRANS, FRESH = 1, 2, 4, 8, 16  # FRESH: reported by the ACK being processed
SKB_END, SKB_PUSHED = 32, 64  # the last segment of its skb (profile linux); which carries PSH, however it is sent
# Marks of a transmission: ECN-capable, window reduced, congestion experienced [RFC3168]; the end of a burst (PSH)
ECT, REDUCED, CE, PUSHED = 1, 2, 4, 8
SKB_LAST = 16  # the last of its super-packet in fq
ECT_1 = 32  # beside ECT: the codepoint ECT(1), else ECT(0)
GETS_LOST = 64  # lost behind the queue, as prescribed
STEPS = 128  # found DualPI2's low-latency queue long enough for its step to apply
ECHO = 8  # bits of these marks
ARRIVALS, ACKS, SENDS, ANSWERS, NOT_GIVEN = range(5)  # kinds of packets whose instants may be prescribed
POLLS = NOT_GIVEN + 1  # interrupts that woke the process that polls the counters
BUSY, FREE = POLLS + 1, POLLS + 2  # from when to when that process has the CPU
INSTANTS_HEAD = FREE + 2  # words before the instants: where those of each kind begin, and the end
LOST_IN_QUEUE, LOST_BEHIND = 1, 2  # where a transmission is prescribed to be lost
ECHOED_ECN = 3  # beside those of `tcp.ecn`: echoed packet by packet, as DCTCP wants it
FEEDBACK = {"none": NO_ECN, "classic": CLASSIC_ECN, "echoed": ECHOED_ECN, "accurate": ACCURATE_ECN}
MAX_QUICK_ACKS = 16  # TCP_MAX_QUICKACKS
TRUESIZE_BYTES = 2304  # memory that a segment of MSS_BYTES takes, received one by one
DELAY_WORDS, DELAY_REALS = 8, 4  # of a step of a leg's delay, see `delay.next_delay`

# Fields of a flow that have these values unless its `Sender` is told otherwise, and do not change either.
USUAL = {"kernel": LINUX_6_18, "hz": 1000, "app_kind": BULK, "rcv_truesize": TRUESIZE_BYTES, "rcv_frags": 0}
USUAL_OF = {
    REFERENCE: {"mss": MSS_BYTES, "wire_bytes": PACKET_BYTES, "tick_us": 1},
    LINUX: {"mss": MSS_BYTES, "wire_bytes": PACKET_BYTES, "tick_us": 1000},
    QUIC: {"mss": QUIC_MSS_BYTES, "wire_bytes": QUIC_PACKET_BYTES, "tick_us": 1},
}


def known_values(profile, usual):
    """Return the values of fields in plain simulations whose flows all have this profile; None: in those of several.

    With `usual` these flows have the defaults of a `Sender`, too.
    """
    known = {dtype: dict.fromkeys(names, 0) for dtype, names in PLAIN.items()}
    if profile is not None:
        known[FLOW]["profile"] = profile
    if usual:
        known[FLOW] |= USUAL | USUAL_OF.get(profile, {})
    return known


@functools.cache
def known_words(profile, usual):
    """Return, of a world and of its flows, the words that `known_values` tells, and their values."""
    known = known_values(profile, usual).items()
    return [([dtype.names.index(name) for name in of], np.array(list(of.values()))) for dtype, of in known]
