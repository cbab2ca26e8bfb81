"""When the next packet may leave, and how many segments it holds: the pacing clock and the size of super-packets.

A paced sender keeps `tcp_wstamp_ns`, the earliest departure time of the next packet (an skb, which the device
splits into segments). Each packet advances it by the packet's time at the pacing rate. A packet that left late,
because the timer was late or the application had nothing to send, gets that time back, up to half of its own.

Sources: [Linux61] net/ipv4/tcp_output.c tcp_update_skb_after_send, tcp_tso_autosize; net/core/sock.c sk_setup_caps;
net/ipv4/tcp_bbr.c bbr_min_tso_segs.
"""

from cctrace.cc.linux import GSO_MAX_SIZE, MAX_TCP_HEADER, MIN_TSO_SEGS, NSEC_PER_SEC, PACING_SHIFT

UNPACED_SEGMENTS = 10  # the first of a connection
SK_GSO_MAX_SIZE = GSO_MAX_SIZE - (MAX_TCP_HEADER + 1)  # bytes of payload that the device takes at once, since 5.17
SOON_NS = 1_000_000  # since pacing allowed it and until the next ACK, for a super-packet to wait for more room
TSO_WIN_DIVISOR = 3  # sysctl tcp_tso_win_divisor: a burst of this fraction of cwnd does not wait for more
TSO_RTT_LOG = 9  # sysctl tcp_tso_rtt_log: the bytes added for a near peer halve with every 512 us of min_rtt
BBR_MIN_TSO_RATE_BYTES = 1_200_000 >> 3  # bytes/s, bbr_min_tso_rate: below it BBR's super-packets are single segments


def next_departure(prior_ns: int, now_ns: int, length: int, rate_Bps: int, data_segs_out: int) -> int:
    """Return the earliest departure time after a packet, ns [Linux61] tcp_update_skb_after_send.

    `prior_ns`: the earliest departure time before it. `now_ns`: when it is sent; where `prior_ns` is later, it leaves
    then. `length`: its payload, bytes. `rate_Bps`: the pacing rate, bytes/s; 0 or below (~0, no limit) paces nothing.
    `data_segs_out`: segments of data sent on the connection up to and with it.
    """
    wstamp_ns = max(prior_ns, now_ns)
    if rate_Bps <= 0 or data_segs_out < UNPACED_SEGMENTS:
        return wstamp_ns
    length_ns = length * NSEC_PER_SEC // rate_Bps
    return wstamp_ns + length_ns - min(length_ns // 2, wstamp_ns - prior_ns)


def near_peer_bytes(most_bytes: int, min_rtt_us: int) -> int:
    """Return how many bytes longer super-packets are on a short path; since Linux 5.18 [Linux61] tcp_tso_autosize.

    `most_bytes` is SK_GSO_MAX_SIZE for the stack's own rule, which uses TCP's min_rtt. BBRv2 and v3 have their own
    rule, which starts from GSO_MAX_SIZE and uses the controller's min_rtt [BBRv3] bbr_tso_segs_generic.
    """
    return most_bytes >> min(min_rtt_us >> TSO_RTT_LOG, 31)


def tso_autosize(rate_Bps: int, more_bytes: int, mss: int, min_segs: int) -> int:
    """Return the number of segments of a super-packet [Linux61] tcp_tso_autosize.

    It holds what leaves in 1/1024 s at the pacing rate (0 or above, bytes/s) and `more_bytes` (`near_peer_bytes`),
    at most what the device takes and at least `min_segs` segments of `mss` bytes.
    """
    return max(min((rate_Bps >> PACING_SHIFT) + more_bytes, SK_GSO_MAX_SIZE) // mss, min_segs)


def waits_for_ack(room: int, longest: int, third: int, idle_ns: int, age_ns: int, srtt_ns: int) -> bool:
    """Return whether new data wait for the next ACK, for a longer super-packet [Linux618] tcp_tso_should_defer.

    `room`, `longest`, `third`: bytes that the windows allow now, those of a full super-packet, and a third of the
    window. `idle_ns`: how long ago pacing would have allowed it. `age_ns`: of the oldest data outstanding.
    """
    if room >= min(longest, third) or idle_ns > SOON_NS:
        return False
    return srtt_ns - age_ns <= min(srtt_ns >> 1, SOON_NS)


def bbr_min_tso_segs(rate_Bps: int) -> int:
    """Return the least segments of a super-packet of BBR v1 and v2 [Linux61] bbr_min_tso_segs; v3 has no such rule."""
    return 1 if rate_Bps < BBR_MIN_TSO_RATE_BYTES else MIN_TSO_SEGS
