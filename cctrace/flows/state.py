"""State of the sender's TCP: the records of the reconstruction.

One connection is one `tp` record (the kernel's struct tcp_sock, as far as a capture reveals it), one ring of `SEG`
records (the retransmission queue, one record per segment of the MSS) and one `rs` record (the results of a single
ACK). Times are int64 microseconds on the connection's own clock: it reads 1 s at the full second of the capture's
clock before the connection opens.
"""

import numpy as np

from cctrace import schema
from cctrace.lang.memory import record_of

# How packets left the sender: at once, through fq, or by a timer that may be as late as fq's.
DIRECTLY, THROUGH_FQ, LATE_TIMER = range(3)

# Tags of a segment, the kernel's TCPCB_* bits.
SACKED = 1  # TCPCB_SACKED_ACKED
RETRANS = 2  # TCPCB_SACKED_RETRANS: a retransmission is in flight
LOST = 4  # TCPCB_LOST
EVER_RETRANS = 8  # TCPCB_EVER_RETRANS
LISTED = 16  # on the list ordered by time of (re)transmission
UNCAPTURED = 32  # the capture lacks the packet; its time is that of the packet that revealed it

# Why a segment was retransmitted; DSACK is the receiver's report of a duplicate.
FAST, PROBE, TIMEOUT, UNEXPLAINED, DSACK = range(5)

DEFAULT_HZ = 250  # of most distributions' kernels; the capture shows only time stamps, whose clock is 1 kHz for any HZ
SLOWEST_HZ = 100  # of [Linux618] kernel/Kconfig.hz
PACED = 512  # of 1024 sends that a timer releases, not an ACK: more are a paced sender's (`sends.note_pacing`)
NEVER = np.int64(1) << 62


SEG = record_of(
    "seq end_seq skb_end flags tx_us ts prev next skip "
    "tx_delivered tx_delivered_us tx_first_us tx_ce tx_lost tx_in_flight tx_in_flight_v2 tx_app_limited tx_send"
)

TP = record_of(
    # Sequence space and window; `head`, `tail`: the outstanding segments, `list_…`: those that RACK may judge.
    "snd_una snd_nxt snd_wnd max_window snd_wl1 mss head tail list_head list_tail high_sack",
    # Counters.
    "packets_out sacked_out lost_out retrans_out delivered delivered_ce lost total_retrans syns bytes_acked bytes_sent",
    "bytes_retrans dsack_dups reord_seen reordering",
    # Rate samples.
    "delivered_us first_tx_us app_limited rate_delivered rate_interval_us rate_app_limited queue_empty",
    # RTT; the minimum of the last 300 s, and those of two sub-windows (lib/win_minmax.c).
    "srtt_us8 mdev_us4 mdev_max_us4 rttvar_us4 rtt_seq rto_us hz",
    "tcp_min_rtt_us tcp_min_rtt_at_us min1_rtt_us min1_rtt_at_us min2_rtt_us min2_rtt_at_us",
    # Recovery.
    "ca_state high_seq has_undo undo_marker undo_retrans retrans_stamp may_undo_cwnd frto retransmits is_reneg",
    "tlp_high_seq tlp_retrans sack_ok ts_ok ecn misses_marks expected_ace has_new_window reduced_us blur_us",
    "cwr_seq",  # where the CWR of the next reduction was seen; 0: nowhere, -1: that of the last one is due
    # The peer's latest time stamp, and the receiver's count of bytes with CE.
    "ts_recent tsecr",
    "ts_newer",  # whether this ACK carries a newer time stamp
    "ce_reported",  # the count in this ACK
    "ce_bytes",  # the latest one; -1: not known
    # RACK and its timers (`timers`).
    "rack_us rack_end_seq rack_rtt_us rack_advanced reo_steps reo_persist reo_last_delivered dsack_seen",
    "reo_first_us expires_us probe_us loss_probes",
    "tick_low_us tick_high_us",  # within which a tick of the kernel's was; 0: not known
    "ticks_matter",  # whether another tick rate might change anything
    # What limited the sender, and for how long (tcp_chrono).
    "is_cwnd_limited max_packets_out cwnd_usage_seq unvalidated lsndtime_us last_ack_us was_released",
    "busy_since_us busy_time_us rwnd_since_us rwnd_until_us rwnd_limited_us rwnd_reach credit_us credit_reach",
    "shut_us",  # since when the window has been closed with nothing outstanding; 0: it is not
    "probe_end",  # end of the byte that probed it
    "late_low late_high",  # data that were acknowledged before the capture showed them
    # How the sender sends.
    "max_burst last_burst prior_burst",  # segments of its super-packets: the largest lately, the last two
    "small_end edge_seq",  # end of its last small segment; where the window's edge cut a super-packet; 0: nowhere
    "paced send_gap_us",  # of 1024 sends, how many a timer released; how far apart the last two were
    # Decisions of a replay, 0: none (`continuing.decide`), and when pacing releases the next packet (`sends.pace`).
    "rate_Bps cwnd probing_rtt tso_segs wstamp_ns late_ns skb_ns skb_bytes",
    "next_app_limited",  # whether a replay marks the next packet as application-limited; -1: there is none
    # The clock, and what comes out.
    "now_us clock_ns start_ns ts_offset_us ts_tick_us answer_us rows logged sent uncaptured established synack_us",
    "states steady",  # rows of the tables that calls, and states, share
    "taken_rows taken_states taken_steady taken_sends",  # rows that were taken out of their tables
    # The super-packet that is being sent.
    "group_us group_ns group_first group_end_ns group_psh group_ts ts_late same_skb_ns",
    # The super-packet that is being retransmitted: its first segment, the one after it, the end of the skb that it was
    # part of, and what was in flight before it.
    "retrans_first retrans_next retrans_end retrans_flying",
    # Hand-over to fq (`handover`).
    "hands_over",  # whether packets go through fq
    "next_to_hand_over",  # place of the next packet that TCP has not handed over
    "wmem_alloc skb_overhead",  # memory of what waits in fq; what an skb takes besides its data
    "tsq_throttled cut_seq",  # whether TCP Small Queues hold TCP back; start of the super-packet that they did last
    "skb_end skb_sure short_end",  # where an skb of the write queue ended; how sure that is; where another may have
    "handed_bytes prior_handed_bytes",  # sizes of the last two super-packets handed over
    "gap_ns",  # between super-packets
    "left_together",  # whether the latest left together with another packet
    "whole_slacks usual_late_ns",  # how much more often fq's timer used all its slack than not; how late it was then
    "doubtful_rates",  # super-packets for which the replayed rate is still doubted
    "next_due",  # the next of the writes that were not due when TCP last handed over data
)

RS = record_of(
    "flag first_sack_us last_sack_us sack_delivered reord ack prior_delivered prior_delivered_us prior_ce prior_lost "
    "tx_in_flight tx_in_flight_v2 is_app_limited is_retrans last_end_seq snd_interval_us delivered interval_us rtt_us "
    "losses acked_sacked prior_in_flight is_ack_delayed is_acking_tlp_retrans lost delivered_ce send"
)

# What must be known about a connection before the pass; one record per connection.
PARAM = record_of(
    "sender mss wscale sack_ok ts_ok ecn has_syn passive isn peer_isn ts_offset_us ts_tick_us start_ns hz "
    "delivered_ce answer_us ack_delay_ns tx_delay_ns same_skb_ns blur_us fq misses_marks echoes"
)

EVENT = np.dtype([(c.name, c.dtype) for c in schema.EVENTS])
# The same in three tables (`packed.EventColumns`): in what the calls upon one ACK differ, and the rest, which they
# share; of that, what mostly stays from one ACK to the next.
_OF_A_CALL = ("event", "arg", "delivered_mstamp_us")
# Columns of the rate sample that an ACK makes [Linux618] tcp_rate_gen, and what calls before that (pkts_acked) have.
UNSAMPLED = {"rs_delivered": -1, "rs_interval_us": -1, "rs_acked_sacked": 0, "rs_lost": -1, "rs_delivered_ce": -1}
_STEADY = (
    *("delivered_ce", "lost", "rttvar_us4", "tcp_min_rtt_us", "mss", "tlp_orig_data_app_limited"),
    *("rs_losses", "rs_is_retrans", "rs_is_ack_delayed", "rs_is_acking_tlp_retrans", "rs_prior_lost"),
    *("skb_tx_in_flight", "skb_tx_in_flight_v2", "skb_tx_lost", "skb_tx_delivered", "skb_tx_app_limited"),
    *("skb_tx_has_mstamp", "skb_segments"),
)
# Whether it comes after its state's rate sample, and the row of its state.
CALL = np.dtype([*((name, EVENT[name]) for name in _OF_A_CALL), ("sampled", "u1"), ("of", "u4")])
STEADY = np.dtype([(name, EVENT[name]) for name in _STEADY])
STATE = np.dtype(
    [(c.name, c.dtype) for c in schema.EVENTS if c.name not in _OF_A_CALL + _STEADY] + [("steady", "u4")]  # its row
)
SENT = np.dtype([(c.name, c.dtype) for c in schema.SENDS])

LOG = record_of("time_ns seq end_seq why")

# Where the pass is.
PASS = record_of(
    "connection packet",  # and its packet; -1: it has not begun
    "until",  # place of the packet before which the pass pauses
    "answered poll",  # answers written; the first poll that is not over
    "decision",  # the next decision
    "needed",  # how many rows the table needs for lack of which it stopped
    "awaits_decisions",  # whether a controller decides as rows are added (`replaying.engine.leading`)
    "decided_rows",  # on so many rows
    "may_hand_over",  # whether TCP may hand over data next: 1, or `continuing.BEFORE`
    "stamp",  # a time stamp, see `continuing.precede`
)

# What TCP_INFO would have answered; columns of schema.TCP_INFO plus the poll they answer.
SNAP = record_of(
    "poll time_ns ca_state unacked sacked lost retrans rtt rttvar min_rtt rto total_retrans bytes_acked bytes_sent "
    "bytes_retrans delivered delivered_ce rate_delivered rate_interval_us delivery_rate_app_limited busy_time_us "
    "rwnd_limited_us reordering reord_seen dsack_dups"
)


# What the table of connections keeps of each direction of a connection.
SIDE = record_of(
    "packets data_packets distinct_bytes origin has_origin snd_nxt max_ack has_ack first_ack ack_base ack_span",
    "syn syn_ack syn_ns syn_count begin_ns opening last_ns largest gcd fin fins single mss sent retransmitted",
    "syn_whole",  # whether the SYN's options were captured whole
    "ecn_syn ace_first ecn_bits",  # AE, CWR, ECE: of the SYN; of the first other packet, plus 1; those ever set
    "opened_ns echo_ns echo_data_ns timed timed_val timed_ns rtt_ns typical_ns",
    "ts_count ts_first ts_last ts_first_ns ts_last_ns ts_phase_us out_of_order uncaptured_bytes cut copies",
    "late_low late_high",  # what was acknowledged before the capture showed it
    "lowest refilled",  # the lowest number shown (older may follow)
    # Where its outstanding segments and its holes are in a pool, and how many it may hold there.
    "head tail ring width holes gaps room",
)
OPTION_BYTES = 12  # of a segment, taken by time stamps
HOLES = 256  # holes remembered per direction; a connection with more at one time counts some data twice
STAMP_TICKS_US = (1, 1000, 3333, 4000, 10_000)  # of senders' time-stamp clocks
SAMPLE_BITS = 38  # of an RTT sample in us, above which is whose it is: three days, and 16 million connections
