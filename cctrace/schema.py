"""Every shared table of cctrace: column, dtype, unit, meaning, source, and who owns it in a replay.

Nothing is defined twice: readers, reconstruction, engine and reports take their columns from here.

Ownership in a replay (`Column.replay`):

* ``observed``  the record has it (RTT, delivered, losses);
* ``carried``   the replayed controller's own output, with what the stack would do to it (cwnd, pacing rate);
* ``unknown``   no recording shows it; the column holds the stated neutral value and `Events.unknown` names it.

Unknown is explicit: where a value was not observed the column holds its `missing` value, never a guess.

`Column.within` are the values that a file may hold, where they are fewer than those of the dtype:
`cctrace.io.validation` checks them before compiled code, which does not check indices, uses them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

U32_MAX, U64_MAX = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
MISSING = int(np.iinfo(np.int64).min)  # a missing value in an int64 column; pd.NA in a DataFrame
LATEST_NS = (1 << 62) - 1  # in 2116: sums of a time and a duration do not overflow
CLOCK_START_US = JIFFIES_START = 1_000_000  # of a connection: 0 in a column of stamps stands for "never"
ENDS = ("src", "sport", "dst", "dport")  # what names a connection: addresses and ports of both ends
MAX_PACKET = 1 << 20  # bytes; BIG TCP ends at 512 KiB [gso_max_size], so a longer one is a damaged length


class Column(NamedTuple):
    """One column of a shared table."""

    name: str
    dtype: str
    unit: str
    meaning: str
    source: str = ""
    replay: str = "observed"
    missing: int | float | None = None
    within: tuple[int, int] | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest value that a file may give, integers."""
        limits = np.iinfo(self.dtype)
        return self.within or (int(limits.min), int(limits.max))


# ---------------------------------------------------------------------------------------------------------------------
# Packets: one row per captured TCP packet, as `cctrace.io` decodes it. About 60 bytes a row.
PACKETS = (
    Column("time_ns", "i8", "ns", "capture time, nanoseconds since the epoch", "pcap record", within=(0, LATEST_NS)),
    Column("conn", "i4", "", "connection number, in order of first packet", "addresses and ports",
           within=(0, (1 << 31) - 1)),
    Column("direction", "u1", "", "0: from the endpoint listed first in the connection table, 1: towards it",
           within=(0, 1)),
    Column("flags", "u2", "", "TCP flags, FIN=1 SYN=2 RST=4 PSH=8 ACK=16 URG=32 ECE=64 CWR=128 AE=256", "RFC 9293"),
    Column("seq", "u4", "bytes", "sequence number as sent (wraps)", "RFC 9293"),
    Column("ack", "u4", "bytes", "acknowledgement number as sent (wraps)", "RFC 9293"),
    Column("window", "u2", "", "receive window, unscaled", "RFC 9293"),
    Column("payload", "u4", "bytes", "TCP payload on the wire (not merely captured)", "IP total length, or capture",
           within=(0, MAX_PACKET)),
    Column("ip_len", "u4", "bytes", "IP packet length; from the record length where the header says 0 (TSO, BIG TCP)"),
    Column("tos", "u1", "", "IP type of service / traffic class; the low two bits are ECN", "RFC 3168"),
    Column("ttl", "u1", "", "IP TTL / hop limit"),
    Column("ip_id", "u2", "", "IPv4 identification, 0 for IPv6"),
    Column("tsval", "u4", "", "TCP time stamp value; 0 with options bit 0 clear", "RFC 7323"),
    Column("tsecr", "u4", "", "TCP time stamp echo reply", "RFC 7323"),
    Column("options", "u1", "",
           "bit 0 time stamps, 1 SACK blocks, 2 MSS, 3 window scale, 4 SACK permitted, 5 AccECN counters, 7 malformed",
           "RFC 9293"),
    Column("sack_row", "i4", "", "first row of this packet's blocks in the SACK table, -1 none", "RFC 2018",
           within=(-1, (1 << 31) - 1)),
    Column("sack_count", "u1", "", "number of SACK blocks", "RFC 2018", within=(0, 4)),
    Column("frame", "u4", "", "number of its record in the capture, from 1, as Wireshark counts; 0 unknown"),
    Column("ecn_e0_bytes", "u4", "bytes", "AccECN option: received with ECT(0), of 24 bits; 4294967295 none",
           "RFC 9768"),
    Column("ecn_ce_bytes", "u4", "bytes", "AccECN option: received with CE, of 24 bits; 4294967295 none", "RFC 9768"),
    Column("ecn_e1_bytes", "u4", "bytes", "AccECN option: received with ECT(1), of 24 bits; 4294967295 none",
           "RFC 9768"),
)  # fmt: skip

SACKS = (
    Column("left", "u4", "bytes", "left edge of the block as sent (wraps)", "RFC 2018"),
    Column("right", "u4", "bytes", "right edge of the block as sent (wraps)", "RFC 2018"),
)

# One row per connection of a capture. Endpoint A sent the first captured packet.
CONNECTIONS = (
    Column("src", "O", "", "address of endpoint A"),
    Column("sport", "u2", "", "port of endpoint A"),
    Column("dst", "O", "", "address of endpoint B"),
    Column("dport", "u2", "", "port of endpoint B"),
    Column("mss_a", "i4", "bytes", "MSS option sent by A, -1 unknown", "SYN", missing=-1, within=(-1, 65535)),
    Column("mss_b", "i4", "bytes", "MSS option sent by B, -1 unknown", "SYN", missing=-1, within=(-1, 65535)),
    Column("wscale_a", "i2", "", "window scale sent by A, -1 unknown", "SYN", missing=-1, within=(-1, 255)),
    Column("wscale_b", "i2", "", "window scale sent by B, -1 unknown", "SYN", missing=-1, within=(-1, 255)),
    Column("sack_ok", "i1", "", "1 both SYNs permit SACK, 0 not, -1 unknown", "SYN", missing=-1, within=(-1, 1)),
)

# ---------------------------------------------------------------------------------------------------------------------
# Calls into a congestion control. Codes of the column `event`.
LINUX_EVENTS = {
    "init": 0,
    "on_ack": 1,  # tcp_congestion_ops.cong_control
    "ssthresh": 2,
    "set_state": 3,
    "cwnd_event": 4,
    "undo_cwnd": 5,
    "skb_marked_lost": 6,
    "pkts_acked": 7,
    "cong_avoid": 8,
}
QUIC_EVENTS = {"init": 0, "on_ack": 1, "on_lost": 9, "reset_cwnd": 10, "restart_from_idle": 11}
EVENT_CODES = LINUX_EVENTS | QUIC_EVENTS
INIT, ON_ACK, SSTHRESH, SET_STATE, CWND_EVENT, UNDO_CWND, SKB_MARKED_LOST, PKTS_ACKED, CONG_AVOID = (
    LINUX_EVENTS.values()  # in their order
)
ON_LOST, RESET_CWND, RESTART_FROM_IDLE = list(QUIC_EVENTS.values())[2:]
# Golden vectors call the kernel's main entry by its own name.
VECTOR_EVENT_NAMES = {"cong_control": "on_ack"}

# The order of the calls within one ACK ([Linux61] tcp_ack): skb_marked_lost (v2 and later: once per super-packet, or
# what is left of it), pkts_acked, ssthresh, set_state (before ca_state changes), undo_cwnd, cwnd_event, then on_ack, or
# cong_avoid if cwnd may grow. Sends and idle restarts (cwnd_event TX_START) lie between ACKs.
CA_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")
CWND_EVENTS = ("TX_START", "CWND_RESTART", "COMPLETE_CWR", "LOSS", "ECN_NO_CE", "ECN_IS_CE", "TLP_RECOVERY")

# ---------------------------------------------------------------------------------------------------------------------
# The event stream: one row per call that a controller could receive. Sequence numbers are unwrapped; the first byte of
# payload is 1 (the SYN is 0). Segment counts are in segments of the MSS, as the kernel counts them.
EVENTS = (
    Column("time_ns", "i8", "ns", "when the sender's TCP learned or did it", "capture clock", within=(0, LATEST_NS)),
    Column("event", "u1", "", "code of the call, see LINUX_EVENTS", "tcp_congestion_ops", within=(0, 8)),
    Column("arg", "i4", "", "argument of the call (new state, cwnd event, packets acked)", "tcp_congestion_ops"),
    Column("ca_state", "u1", "", "congestion state before the call", "icsk_ca_state", within=(0, 4)),
    Column("ack", "i8", "bytes", "cumulative acknowledgement being processed", "TCP header"),
    Column("snd_una", "i8", "bytes", "oldest unacknowledged byte", "RFC 9293"),
    Column("snd_nxt", "i8", "bytes", "next byte to be sent", "RFC 9293"),
    Column("snd_wnd", "u4", "bytes", "receive window that the peer advertises", "tp->snd_wnd", missing=U32_MAX),
    Column("packets_out", "u4", "segments", "sent and not cumulatively acknowledged", "tp->packets_out"),
    Column("sacked_out", "u4", "segments", "selectively acknowledged", "tp->sacked_out"),
    Column("lost_out", "u4", "segments", "marked lost", "tp->lost_out"),
    Column("retrans_out", "u4", "segments", "retransmitted and outstanding", "tp->retrans_out"),
    Column("data_segs_out", "u4", "segments", "sent so far, retransmissions included", "tp->data_segs_out"),
    Column("delivered", "u4", "segments", "delivered so far, starting at 1 for the SYN", "tp->delivered"),
    Column("delivered_mstamp_us", "i8", "us", "when delivered last grew, on the clock of now_us",
           "tp->delivered_mstamp"),
    Column("delivered_ce", "u4", "segments", "delivered with CE marks", "tp->delivered_ce"),
    Column("lost", "u4", "segments", "marked lost so far", "tp->lost"),
    Column("srtt_us8", "u4", "us/8", "smoothed RTT", "tp->srtt_us"),
    Column("mdev_us4", "u4", "us/4", "mean deviation", "tp->mdev_us"),
    Column("rttvar_us4", "u4", "us/4", "smoothed maximum of mdev", "tp->rttvar_us"),
    Column("tcp_min_rtt_us", "u4", "us", "TCP's windowed minimum RTT", "tcp_min_rtt()", missing=U32_MAX),
    Column("mss", "u2", "bytes", "payload of a full segment", "tp->mss_cache", within=(1, 65535)),
    Column("is_cwnd_limited", "u1", "", "cwnd kept the sender from sending", "tp->is_cwnd_limited"),
    Column("max_packets_out", "u4", "segments", "largest packets_out of this window", "tp->max_packets_out"),
    Column("lsndtime_us", "i8", "us", "last send of data, on the clock of now_us", "tp->lsndtime"),
    Column("app_limited", "u4", "segments", "delivered mark up to which samples are app-limited", "tp->app_limited"),
    Column("rs_delivered", "i4", "segments", "delivered over the sample", "rate_sample", missing=-1),
    Column("rs_interval_us", "i8", "us", "length of the sample", "rate_sample", missing=-1),
    Column("rs_prior_delivered", "u4", "segments", "delivered when the sampled segment was sent", "rate_sample"),
    Column("rs_rtt_us", "i8", "us", "RTT of this ACK", "rate_sample, ack_sample", missing=-1),
    Column("rs_losses", "u4", "segments", "marked lost upon this ACK", "rate_sample"),
    Column("rs_acked_sacked", "u4", "segments", "newly (S)ACKed upon this ACK", "rate_sample"),
    Column("rs_prior_in_flight", "u4", "segments", "in flight before this ACK", "rate_sample"),
    Column("rs_is_app_limited", "u1", "", "the sample includes an app-limited bubble", "rate_sample"),
    Column("rs_is_retrans", "u1", "", "the sampled segment was retransmitted", "rate_sample"),
    Column("rs_is_ack_delayed", "u1", "", "the ACK was probably delayed by the receiver", "rate_sample"),
    Column("rs_is_acking_tlp_retrans", "u1", "", "the ACK covers a tail-loss probe", "rate_sample"),
    Column("tlp_orig_data_app_limited", "u1", "", "the probed data were app-limited", "tp->tlp_orig_data_app_limited"),
    Column("rs_tx_in_flight", "u4", "segments", "in flight when the sampled segment was sent", "rate_sample (v3)"),
    Column("rs_tx_in_flight_v2", "u4", "segments", "the same, as the kernel of v2 parts super-packets",
           "rate_sample (v2)"),
    Column("rs_lost", "i4", "segments", "lost over the sample", "rate_sample (v2)"),
    Column("rs_prior_lost", "u4", "segments", "lost when the sampled segment was sent", "rate_sample (v2)"),
    Column("rs_delivered_ce", "i4", "segments", "delivered with CE over the sample", "rate_sample (v2)"),
    Column("rs_send", "i4", "", "row of SENDS of the sampled segment (skb_marked_lost: of the lost one)", "",
           missing=-1),
    Column("skb_tx_in_flight", "u4", "segments", "skb_marked_lost: in flight when it was sent", "TCP_SKB_CB (v3)"),
    Column("skb_tx_in_flight_v2", "u4", "segments", "the same, as the kernel of v2 parts super-packets",
           "TCP_SKB_CB (v2)"),
    Column("skb_tx_lost", "u4", "segments", "skb_marked_lost: lost when it was sent", "TCP_SKB_CB (v2)"),
    Column("skb_tx_delivered", "u4", "segments", "skb_marked_lost: delivered when it was sent", "TCP_SKB_CB"),
    Column("skb_tx_app_limited", "u1", "", "skb_marked_lost: app-limited when it was sent", "TCP_SKB_CB"),
    Column("skb_tx_has_mstamp", "u1", "", "skb_marked_lost: it has a send time", "TCP_SKB_CB"),
    Column("skb_segments", "u2", "segments", "skb_marked_lost: what it holds", "tcp_skb_pcount()"),
)  # fmt: skip

# The other half of the event stream: one row per packet of data that left, in the order of the events. What the stack
# owns in a replay follows from it: departure times, application-limited marks.
SENDS = (
    Column("time_ns", "i8", "ns", "when it was captured, capture clock"),
    Column("tx_ns", "i8", "ns", "when TCP stamped it, on the clock of now_us", "skb_mstamp_ns"),
    Column("row", "i8", "", "how many rows of the event stream precede it"),
    Column("payload", "u4", "bytes", "payload"),
    Column("segments", "u4", "segments", "payload in segments of the MSS"),
    Column("in_flight", "u4", "segments", "in flight after it left", "tcp_packets_in_flight()"),
    Column("packets_out", "u4", "segments", "not cumulatively acknowledged after it left", "tp->packets_out"),
    Column("snd_nxt", "i8", "bytes", "next byte to be sent, after it left", "RFC 9293"),
    Column("begins", "u1", "", "it begins a super-packet", "tcp_write_xmit"),
    Column("retransmitted", "u1", "", "it holds data that had been sent before", "tcp_retransmit_skb"),
    Column("app_limited", "u1", "", "the application had let the pipe run empty before", "tcp_rate_check_app_limited"),
    Column("ends_write", "u1", "", "it holds the last byte written: a short segment that no window cut"),
    Column("fills_window", "u1", "", "the receive window then holds back the next one", "tcp_snd_wnd_test"),
    Column("skb_left", "u1", "segments", "left of the skb behind it that a write filled; 0 unknown", "tcp_sendmsg"),
)

# What a Linux controller reads as `ack.<name>`, every column an int64. It is EVENTS on the kernel's own clocks, plus:
_LINUX_DERIVED = (
    Column("now_us", "i8", "us", "time of the call; connections start at 1 s", "tp->tcp_mstamp"),
    Column("jiffies", "i8", "1/HZ s", "time of the call in ticks of the parameter hz", "tcp_jiffies32"),
    Column("clock_ns", "i8", "ns", "time of the call", "tp->tcp_clock_cache"),
    Column("wstamp_ns", "i8", "ns", "earliest departure time of the next segment", "tp->tcp_wstamp_ns", "carried"),
    Column("lsndtime", "i8", "1/HZ s", "last send of data", "tp->lsndtime"),
    Column("prior_cwnd_tp", "i8", "segments", "cwnd when recovery began", "tp->prior_cwnd", "carried"),
    Column("ecn_ok", "i8", "", "ECN was negotiated", "tp->ecn_flags"),
    Column("rand0", "i8", "", "first raw 32-bit draw of this call", "prandom_u32", "unknown", 0),
    Column("rand1", "i8", "", "second raw 32-bit draw of this call", "prandom_u32", "unknown", 0),
    Column("rand2", "i8", "", "third raw 32-bit draw of this call", "prandom_u32", "unknown", 0),
    Column("rand3", "i8", "", "fourth raw 32-bit draw of this call", "prandom_u32", "unknown", 0),
)
# Vector column -> field of `LinuxController`: written by the controller and the stack in turn, set before each call
# where recorded ("observed" state), kept from call to call otherwise ("carried"). The field of ssthresh has the
# kernel's name, because `ssthresh` is an entry point.
LINUX_CARRIED = {
    "snd_cwnd": "snd_cwnd",
    "snd_cwnd_cnt": "snd_cwnd_cnt",
    "ssthresh": "snd_ssthresh",
    "pacing_rate": "pacing_rate",
    "app_limited": "app_limited",
}

# What a replay takes the place of, or (those of v2) puts there.
_NOT_IN_LINUX_VIEW = {"time_ns", "event", "snd_wnd", "lsndtime_us", "app_limited", "rs_send"}
_NOT_IN_LINUX_VIEW |= {"rs_tx_in_flight_v2", "skb_tx_in_flight_v2"}
LINUX_VIEW = tuple(c._replace(dtype="i8") for c in EVENTS if c.name not in _NOT_IN_LINUX_VIEW) + _LINUX_DERIVED

# What a QUIC controller reads as `ack.<name>`, every column an int64: milliseconds and bytes.
QUIC_VIEW = (
    Column("now_ms", "i8", "ms", "time of the call", "ngx_current_msec"),
    Column("arg", "i8", "", "on_lost: send time (ms) of the lost packet; restart_from_idle: delivered"),
    Column("smp_now", "i8", "ms", "time of the rate sample", "sampler"),
    Column("smp_prior_delivered", "i8", "bytes", "delivered when the sampled packet was sent", "sampler"),
    Column("smp_interval_ms", "i8", "ms", "length of the sample", "sampler"),
    Column("smp_delivered", "i8", "bytes", "delivered over the sample", "sampler"),
    Column("smp_acked", "i8", "bytes", "newly acknowledged", "sampler"),
    Column("smp_in_flight", "i8", "bytes", "in flight after this ACK", "sampler"),
    Column("smp_prior_inflight", "i8", "bytes", "in flight before this ACK", "sampler"),
    Column("smp_rtt_ms", "i8", "ms", "latest RTT", "sampler"),
    Column("smp_is_app_limited", "i8", "", "the sampled packet was app-limited", "sampler"),
    Column("smp_loss", "i8", "bytes", "lost in this ACK", "sampler"),
    Column("smp_total_acked", "i8", "bytes", "acknowledged so far", "sampler"),
    Column("smp_total_loss", "i8", "bytes", "lost so far", "sampler"),
    Column("smp_srtt_ms", "i8", "ms", "smoothed RTT", "sampler"),
    Column("smp_min_rtt_ms", "i8", "ms", "minimum RTT of the connection", "sampler"),
    Column("smp_po_sent_time", "i8", "ms", "send time of the sampled packet", "sampler"),
    Column("smp_tx_in_flight", "i8", "bytes", "in flight when the sampled packet was sent", "sampler"),
    Column("smp_lost_pkts", "i8", "bytes", "lost since the sampled packet was sent; the name misleads", "sampler"),
    Column("cg_in_flight", "i8", "bytes", "in flight", "ngx_quic_congestion_t"),
    Column("cg_delivered", "i8", "bytes", "delivered so far", "ngx_quic_congestion_t"),
    Column("cg_po_sent", "i8", "bytes", "sent before the sampled packet was", "ngx_quic_congestion_t"),
    Column("cg_start_time", "i8", "ms", "start of the connection", "ngx_quic_congestion_t"),
    Column("loss_timer", "i8", "ms", "time of the last loss, written by the loss detection", "bbr->loss_timer"),
    Column("rand0", "i8", "", "first raw 31-bit draw of this call", "random", "unknown", 0),
    Column("rand1", "i8", "", "second raw 31-bit draw of this call", "random", "unknown", 0),
    Column("rand2", "i8", "", "third raw 31-bit draw of this call", "random", "unknown", 0),
    Column("rand3", "i8", "", "fourth raw 31-bit draw of this call", "random", "unknown", 0),
)
# Vector column -> field of `QuicController`, observed before each call.
QUIC_CARRIED = {"cg_app_limited": "app_limited"}

# ---------------------------------------------------------------------------------------------------------------------
# tcp_info: one row per poll. A field that a source does not report is missing (NaN / pd.NA), never 0.
# Plausible values by unit; others are missing. Rates and times leave room for sums and for conversion to bits.
_TCP_INFO_WITHIN = {
    "ns": (0, LATEST_NS),
    "us": (0, 1 << 50),
    "bytes": (0, 1 << 56),
    "bytes/s": (0, 1 << 50),
    "segments": (0, U32_MAX),
    "1/256": (0, U32_MAX),
    "": (0, U32_MAX),
}
TCP_INFO: tuple[Column, ...] = (
    Column("time_ns", "i8", "ns", "before the poll", "poller"),
    Column("time_after_ns", "i8", "ns", "after the poll (equal to time_ns where unknown)", "poller"),
    Column("state", "i8", "", "TCP state, 1 ESTABLISHED", "tcpi_state", within=(0, 15)),
    Column("ca_state", "i8", "", "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss", "tcpi_ca_state", within=(0, 4)),
    Column("snd_cwnd", "i8", "segments", "congestion window", "tcpi_snd_cwnd"),
    Column("snd_ssthresh", "i8", "segments", "slow-start threshold", "tcpi_snd_ssthresh"),
    Column("snd_mss", "i8", "bytes", "sending MSS", "tcpi_snd_mss", within=(0, 65535)),
    Column("unacked", "i8", "segments", "packets_out", "tcpi_unacked"),
    Column("sacked", "i8", "segments", "sacked_out", "tcpi_sacked"),
    Column("lost", "i8", "segments", "lost_out", "tcpi_lost"),
    Column("retrans", "i8", "segments", "retrans_out", "tcpi_retrans"),
    Column("rtt", "i8", "us", "smoothed RTT", "tcpi_rtt"),
    Column("rttvar", "i8", "us", "mean deviation, mdev_us >> 2", "tcpi_rttvar"),
    Column("min_rtt", "i8", "us", "windowed minimum RTT", "tcpi_min_rtt"),
    Column("rto", "i8", "us", "retransmission timeout", "tcpi_rto"),
    Column("total_retrans", "i8", "segments", "retransmitted so far", "tcpi_total_retrans"),
    Column("bytes_acked", "i8", "bytes", "cumulatively acknowledged, the SYN included", "tcpi_bytes_acked"),
    Column("bytes_sent", "i8", "bytes", "sent, retransmissions included", "tcpi_bytes_sent"),
    Column("bytes_retrans", "i8", "bytes", "retransmitted", "tcpi_bytes_retrans"),
    Column("delivered", "i8", "segments", "delivered", "tcpi_delivered"),
    Column("delivered_ce", "i8", "segments", "delivered with CE marks", "tcpi_delivered_ce"),
    Column("delivery_rate_Bps", "i8", "bytes/s", "latest delivery-rate sample", "tcpi_delivery_rate"),
    Column("delivery_rate_app_limited", "i8", "", "that sample was app-limited", "tcpi_delivery_rate_app_limited"),
    Column("pacing_rate_Bps", "i8", "bytes/s", "pacing rate", "tcpi_pacing_rate"),
    Column("busy_time_us", "i8", "us", "time with data outstanding", "tcpi_busy_time"),
    Column("rwnd_limited_us", "i8", "us", "time limited by the receive window", "tcpi_rwnd_limited"),
    Column("sndbuf_limited_us", "i8", "us", "time limited by the send buffer", "tcpi_sndbuf_limited"),
    Column("reordering", "i8", "segments", "reordering metric", "tcpi_reordering"),
    Column("reord_seen", "i8", "", "reordering events", "tcpi_reord_seen"),
    Column("dsack_dups", "i8", "", "D-SACKs received", "tcpi_dsack_dups"),
    Column("notsent_bytes", "i8", "bytes", "written and not yet sent", "tcpi_notsent_bytes"),
    Column("bbr_bw_Bps", "i8", "bytes/s", "BBR's bandwidth estimate", "tcp_bbr_info"),
    Column("bbr_min_rtt_us", "i8", "us", "BBR's min_rtt", "tcp_bbr_info"),
    Column("bbr_pacing_gain", "i8", "1/256", "BBR's pacing gain", "tcp_bbr_info"),
    Column("bbr_cwnd_gain", "i8", "1/256", "BBR's cwnd gain", "tcp_bbr_info"),
    Column("bbr_version", "i8", "", "generation of BBR, where the kernel tells it", "length, byte 39 of tcp_bbr_info"),
    # Of BBR versions 2 and 3; a bound that is not set is missing.
    Column("bbr_phase", "i8", "", "place in `io.counters.structs.PHASES`", "tcp_bbr_info (v2)"),
    Column("bbr_bw_hi_Bps", "i8", "bytes/s", "long-term maximum of the bandwidth", "tcp_bbr_info (v2)"),
    Column("bbr_bw_lo_Bps", "i8", "bytes/s", "short-term bound on the bandwidth", "tcp_bbr_info (v2)"),
    Column("bbr_inflight_hi", "i8", "segments", "long-term bound on what is in flight", "tcp_bbr_info (v2)"),
    Column("bbr_inflight_lo", "i8", "segments", "short-term bound on what is in flight", "tcp_bbr_info (v2)"),
    Column("bbr_extra_acked", "i8", "segments", "most that was ACKed beyond the estimate", "tcp_bbr_info (v2)"),
)
TCP_INFO = tuple(c if c.within else c._replace(within=_TCP_INFO_WITHIN[c.unit]) for c in TCP_INFO)


def names(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the column names of a table, in order.

    >>> names(SACKS)
    ('left', 'right')
    """
    return tuple(c.name for c in columns)


def empty(columns: Iterable[Column], rows: int = 0) -> dict[str, NDArray[Any]]:
    """Return {name: zeroed array} for a table."""
    return {c.name: np.zeros(rows, dtype=c.dtype) for c in columns}
