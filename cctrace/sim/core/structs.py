"""The memory of a simulation: one record per flow, one per outstanding segment, rings for packets in flight.

The entire state between two events lives here, so a run can stop at any event and continue, and interpreted and
compiled runs work on the same arrays.
"""

import numpy as np

from cctrace.lang.memory import ArrayAt

# fmt: off
_FLOW = (
    # where its arrays are, and the size of its rings less one
    "seg", "tx_seg", "tx_ns", "resend", "arr_ns", "arr_order", "log_order", "got", "ack_ns", "ack_log", "ack_echo",
    "ack_stamp", "ack_dup", "ack_ece", "ack_right", "ack_id", "tx_marks", "tx_echo", "sack_blocks", "state", "cc",
    "way_ns", "way_order", "lacks", "before", "behind", "index",
    "mask", "larger_rings", "tx_full",  # rings.py: next row of its table, 0 if none; `tx_next` without room
    "rtt_tally", "queue_tally", "trace_buffer", "trace_rows", "trace_size", "tap_buffer", "tap_rows",
    "tap_size",
    # type of the flow
    "profile", "mss", "wire_bytes", "pace_overhead", "entries", "has_on_ack", "paced", "max_rate", "rwnd", "most_out",
    "start_ns", "stop_ns", "hz", "kernel", "fwd_ns", "rev_ns", "ack_every", "delack_ns", "ack_slot_ns", "ack_late_ns",
    "after_gap", "decimated_from", "decimated_every", "decimated_ns",  # of QUIC receivers (acks.py)
    "comp_sack_nr", "ecn", "tick_us",  # of the retransmission timer: a jiffy
    # application (app.py)
    "app_kind", "app_segments", "app_period_ns", "app_on_ns", "app_end", "app_at", "app_stage",
    # the send buffer (write_queue.py): bytes, but for write_seq; what the application has of it is app_end
    "write_seq", "written", "pushed_seq", "max_window", "wmem_queued", "sndbuf", "most_sndbuf", "nospace", "write_at",
    "wq_ends", "wq_head", "wq_tail",
    "small_sent", "snd_lack",  # positions.py: the segment after one that was not full; what all those sent lack
    # fq.py; fq_next is a transmission
    "fq", "fq_next", "fq_at", "fq_due_ns", "fq_soft_ns", "wmem_alloc", "tsq_throttled", "tsq_at",
    "awaited",  # in-order bytes at the receiver at which `loop.run` returns; 0: never (served.py)
    # sequence space and scoreboard, in segments
    "una", "nxt", "sacked_out", "lost_out", "retrans_out", "delivered", "delivered_ce", "lost", "high_seq",
    "ca_state", "undo_marker", "undo_proof", "prior_cwnd", "prior_ssthresh", "prr_delivered", "prr_out",
    "tx_next", "tx_head", "d1", "d2", "d3", "retrans_scan", "data_segs_out", "retransmits",
    "losses_given", "lost_orders", "lost_given", "lost_at",  # prescribed losses: transmissions, in order
    # clocks
    "delivered_mstamp", "first_tx_mstamp", "wstamp_ns", "lsndtime_us", "pace_at", "rto_at", "probe_at",
    "srtt", "mdev", "mdev_max", "rttvar", "rtt_seq", "rto_us", "backoff", "min_rtt", "min_rtt_stamp",
    "is_cwnd_limited", "max_packets_out", "max_packets_seq",
    # the rate sample of the ACK being processed
    "rs_prior_delivered", "rs_prior_mstamp", "rs_delivered", "rs_interval", "rs_rtt", "rs_losses", "rs_acked_sacked",
    "rs_prior_in_flight", "rs_app_limited", "rs_retrans", "rs_tx_in_flight", "rs_prior_lost",
    "rs_lost", "rs_last_order", "rs_delivered_ce", "rs_prior_delivered_ce",
    # RACK, tail-loss probes, undo (sack.py, ca_states.py)
    "timer", "echo_ms", "rack_ns", "rack_index", "rack_rtt", "rack_advanced", "rack_waits", "reo_wnd_steps",
    "reo_wnd_persist", "rack_last_delivered", "reord_seen", "reordering", "dsack_seen", "dsacks", "sack_high",
    "orig_sacked", "undo_retrans", "retrans_stamp", "tlp_high_seq", "tlp_retrans", "frto",
    # ECN: whether this ACK carries the echo, and the next new segment the answer
    "ece", "queue_cwr", "ect_marks", "ect_always", "ce_reported",
    # receiver
    "ts_recent_ms", "rcv_acked", "rcv_duplicate", "demand_cwr", "ce_state", "n_ce", "ce_acked", "n_acks",
    "log_next", "log_seen", "unacked_data", "delack_at", "dack_at", "dack_pending", "ato",
    "rcv_nxt", "rcv_lack", "rcv_high", "quick_acks", "rcv_last_ns",
    "dup_acks", "compressed", "comp_due_ns", "compressed_at_nxt", "n_blocks", "syn_ack_ns", "rcv_first_rtt", "rcv_rtt8",
    "rcv_echo_ms",
    "rcv_mstamp", "heard_ms", "n_discarded", "rcv_largest", "rcv_since_gap",
    # receive window (receive_window.py)
    "snd_right", "rcv_right", "rcv_ssthresh", "rcvbuf", "rcv_copied", "rcv_copied_to", "rcv_copied_at", "rcv_clock_ns",
    "rcv_rtt_edge", "rcv_rtt_at", "rcv_truesize", "rcv_ratio", "rcv_held", "rcv_read", "rcv_pushed",
    "rcv_frags",
    "way_head", "way_tail",  # on the way to the queue
    "arr_head", "arr_tail", "ack_head", "ack_tail", "last_ack",
    "burst_id",
    # QUIC
    "push_at", "pto_count", "probe_kind", "q_late_ns", "q_ssthresh_slot", "min_rtt_slot", "burst_slot", "slow_burst",
    "parts_as_v2", "gso_max",
    "q_window", "q_in_flight", "q_send", "q_lost",
    "q_delivered", "q_delivered_ms", "q_first_sent_ms", "q_po_sent", "q_prior_in_flight", "q_prior_delivered",
    "q_largest_ack", "q_latest_rtt", "q_avg_rtt", "q_rttvar", "q_min_rtt", "q_first_rtt_ms", "q_start_ms", "q_budget",
    "q_pending", "q_last_sent", "q_limit_timer", "q_loss_ms", "resend_head", "resend_tail",
    "smp_initialized", "smp_prior_lost", "smp_tx_in_flight", "smp_prior_delivered", "smp_prior_ms",
    "smp_is_app_limited", "smp_send_elapsed", "smp_ack_elapsed", "smp_po_sent_ms", "smp_acked", "smp_interval",
    "smp_delivered", "smp_lost_pkts", "smp_now", "smp_rtt", "smp_srtt", "smp_min_rtt", "smp_in_flight",
    "smp_prior_inflight", "smp_total_acked", "smp_total_loss", "smp_loss",
    # counters
    "next_ns", "n_sent", "n_retx", "n_rto", "n_undo", "drops_queue", "drops_random", "n_marked",
    "goodput_bytes", "rtt_sum_us", "rtt_count", "qdelay_sum_ns", "qdelay_count",
)
_SEGMENT = (
    "marks", "order", "sent_ns", "tx_delivered", "tx_delivered_mstamp", "tx_first_mstamp", "tx_in_flight",
    "tx_lost", "tx_app_limited", "tx_delivered_ce", "po_sent", "skb_end",
)
_WORLD = (
    "flows", "n", "linux_view", "quic_view", "rng",  # addresses, and the number of flows
    "given_draws", "given", "given_used",  # random numbers prescribed to the controllers; how many there are, were used
    # timer resolution, whether both hosts share a kernel, how long a process takes to read the clock
    "timer_step_ns", "timer_phase_ns", "one_host", "instants", "clock_read_ns", "poll_ns", "poll_lasts_ns", "polled",
    "q_ns", "q_bytes", "q_which", "q_mask", "q_head", "q_tail", "buffer_bytes", "buffer_packets", "queue_bytes",
    "free_at", "busy_ns",
    "steps_ns", "steps_Bps", "steps", "step",
    "loss_ns", "loss_values", "loss_steps", "loss_step", "loss_next_ns", "loss_behind",
    "ecn_threshold", "aqm", "lanes", "n_lanes", "serve_at",  # managed.py: addresses (0: no AQM), when the link is free
    "police", "police_bucket", "police_at", "shaping", "shape_bucket", "shape_at",
    "shape_ns", "shape_values", "shape_steps", "shape_step", "shape_asked",
    "loss_state", "ack_loss_state", "has_normal",
)
# A section of a flow's path, before or behind the queue: its delay, which may change in steps, and its jitter.
_LEG = (
    "words", "reals", "steps", "step", "next_ns", "base_ns", "shift_ns", "reorder", "kind", "per", "slot_ns", "table",
    "samples", "drawn_for", "drawn_ns", "latest",
)
_LEG_REALS = ("rho", "a", "b", "floor", "z")
# A bottleneck with an AQM (aqm.py): parameters, state, and the current packet.
_AQM = (
    "kind", "ecn", "mtu", "packets", "serving", "flow", "order", "at", "update_ns", "next_update",
    "target_ns", "interval_ns", "ce_threshold_ns", "quantum", "new_first", "old_first",
    "red_min", "red_max", "red_wlog", "red_step", "red_avg", "red_count", "red_random",
    "pie_target", "pie_alpha", "pie_beta", "pie_prob", "pie_burst", "pie_accumulated", "pie_delay", "pie_delay_before",
    "pie_left", "step_ns", "classic_weight", "first_credit", "credit", "pi2_delay",
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
    "tsq_at",
)
# fmt: on
FLOW = np.dtype([(name, "i8") for name in _FLOW])
SEGMENT = np.dtype([(name, "i8") for name in _SEGMENT])
WORLD = np.dtype([(name, "i8") for name in _WORLD] + [(name, "f8") for name in _WORLD_REALS])
LEG = np.dtype([(name, "i8") for name in _LEG] + [(name, "f8") for name in _LEG_REALS])
AQM = np.dtype([(name, "i8") for name in _AQM] + [(name, "f8") for name in _AQM_REALS])
LANE = np.dtype([(name, "i8") for name in _LANE])

# by address
segments, flows, legs, aqms, lanes = ArrayAt(SEGMENT), ArrayAt(FLOW), ArrayAt(LEG), ArrayAt(AQM), ArrayAt(LANE)

NO_DATA = -1  # in the queue: a packet of a handshake
NEVER = 1 << 62
CODEL, RED, PIE, FQ_CODEL, DUALPI2 = range(1, 6)  # `kind` of an AQM; drop-tail has none
NO_LANE = -1
NO_JITTER, NORMAL, GAMMA, LOGNORMAL, EMPIRICAL = range(5)
PER_PACKET, PER_BURST, PER_SLOT = range(3)
REFERENCE, LINUX, QUIC = 0, 1, 2  # profiles
LINUX_6_1, LINUX_6_12, LINUX_6_18 = 601, 612, 618  # kernels whose rules differ (`Sender.kernel`)
BULK, CHUNKS, ON_OFF, REQUESTS, SERVED = range(5)  # applications; SERVED: driven from outside (served.py)
CONNECTING, ESTABLISHED, RUNNING, STOPPED = range(4)  # their stages
RTO_TIMER, REORDERING_TIMER, PROBE_TIMER = range(3)  # what the retransmission timer waits for
TRACE_WIDTH = 80  # words of a row of a trace
TAP_WIDTH = 3  # words of a row of a tap
TAP_SYN, TAP_SYN_ACK, TAP_SENT, TAP_ARRIVED, TAP_ACK, TAP_ACK_ARRIVED, TAP_DISCARDED = range(7)  # what it saw
TAP_LACKS = 8  # the shortfall of a transmission's segment, stored beside its marks
TALLY_SIZE = 48 * 64  # words of a tally: 64 logarithmic steps per power of two
# Marks of a segment
SACKED, LOST, RETRANS, EVER_RETRANS, FRESH = 1, 2, 4, 8, 16  # FRESH: reported by the ACK being processed
SKB_END = 32  # the last segment of its skb (profile linux)
# Marks of a transmission: ECN-capable, window reduced, congestion experienced [RFC3168]; the end of a burst (PSH)
ECT, REDUCED, CE, PUSHED = 1, 2, 4, 8
SKB_LAST = 16  # the last of its super-packet in fq
ECT_1 = 32  # beside ECT: the codepoint ECT(1), else ECT(0)
GETS_LOST = 64  # lost behind the queue, as prescribed
ARRIVALS, ACKS, SENDS, ANSWERS, NOT_GIVEN = range(5)  # kinds of packets whose instants may be prescribed
LOST_IN_QUEUE, LOST_BEHIND = 1, 2  # where a transmission is prescribed to be lost
ECHOED_ECN = 3  # beside those of `tcp.ecn`: echoed packet by packet, as DCTCP wants it
MAX_QUICK_ACKS = 16  # TCP_MAX_QUICKACKS
DELAY_WORDS, DELAY_REALS = 8, 4  # of a step of a leg's delay, see `legs.next_delay`
