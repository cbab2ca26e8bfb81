"""Constants and helpers of the Linux TCP stack that its congestion controls share.

Defaults of the kernel and of its module parameters, with which the golden vectors were made; what a controller does
with them is in its own file. Times in jiffies are u32 and wrap; `hz` is the kernel's CONFIG_HZ.

Sources: [Linux61] include/net/tcp.h, include/linux/jiffies.h, include/uapi/linux/tcp.h, net/core/sock.c.
"""

from cctrace.cc.cmath import s32, u32

USEC_PER_SEC, NSEC_PER_SEC = 1_000_000, 1_000_000_000
USEC_PER_MSEC = 1_000
NSEC_PER_USEC = 1_000

# icsk_ca_state [Linux61] enum tcp_ca_state
CA_OPEN = 0
CA_DISORDER = 1
CA_CWR = 2
CA_RECOVERY = 3
CA_LOSS = 4

# Arguments of cwnd_event [Linux61] enum tcp_ca_event
EVENT_TX_START = 0
EVENT_CWND_RESTART = 1
EVENT_COMPLETE_CWR = 2
EVENT_LOSS = 3
EVENT_ECN_NO_CE = 4
EVENT_ECN_IS_CE = 5
EVENT_TLP_RECOVERY = 6

TCP_INIT_CWND = 10  # segments [RFC 6928]
TCP_INFINITE_SSTHRESH = 0x7FFFFFFF  # segments
STARTUP_GAIN = 512  # 256ths: a larger pacing gain in tcp_info is that of STARTUP, in every BBR
MAX_TCP_HEADER = 320  # bytes: room for headers in an skb; depends on the kernel's configuration
GSO_MAX_SIZE = 65536  # bytes a device takes at once (sk_gso_max_size is the same here)
GSO_MAX_SIZE_5_19 = 8 * 65535  # the same macro since Linux 5.19, where a device may take more
PACING_SHIFT = 10  # sk_pacing_shift: a burst is about 1 ms at the pacing rate
PACING_SS_RATIO, PACING_CA_RATIO = 200, 120  # sysctls tcp_pacing_ss_ratio, tcp_pacing_ca_ratio: percent of cwnd / srtt
MIN_TSO_SEGS = 2  # sysctl tcp_min_tso_segs
MTU_HEADERS = 52  # bytes: IPv4 + TCP + time stamps; tcp_mss_to_mtu(mss) = mss + 52


def before(a: int, b: int) -> bool:
    """Whether sequence number (or tick) `a` precedes `b` modulo 2**32 [Linux61] before()."""
    return s32(a - b) < 0


def msecs_to_jiffies(ms: int, hz: int) -> int:
    """Ticks of 1/hz s that cover `ms` milliseconds, rounded up [Linux61] msecs_to_jiffies()."""
    return (ms * hz + 999) // 1000


def jiffies_to_usecs(jiffies: int, hz: int) -> int:
    """Microseconds of `jiffies` ticks, as a u32 that wraps after 71 minutes [Linux61] jiffies_to_usecs()."""
    return u32(jiffies * USEC_PER_SEC // hz)


def jiffies_at(now_jiffies: int, now_us: int, then_us: int, hz: int) -> int:
    """Tick of the moment `then_us`, given that `now_us` lies in the tick `now_jiffies` (all as u32 ticks)."""
    return u32(now_jiffies - (now_us * hz // USEC_PER_SEC - then_us * hz // USEC_PER_SEC))


def in_256ths(fraction: float) -> int:
    """Fixed point of BBR's gains and fractions, BBR_UNIT * fraction, truncated as its integer divisions do."""
    return int(fraction * 256)


def socket_rate(rate_Bps: int, limit_Bps: int) -> int:
    """Pacing rate under SO_MAX_PACING_RATE, 0 for no limit [Linux61] sk_max_pacing_rate."""
    return min(rate_Bps, limit_Bps) if limit_Bps > 0 else rate_Bps


def stack_pacing_rate(mss: int, cwnd: int, ssthresh: int, packets_out: int, srtt8: int, most_Bps: int = 0) -> int:
    """Pacing rate of a controller that sets none, bytes/s [Linux61] tcp_update_pacing_rate.

    It sizes bursts, and spaces them where the socket paces. `most_Bps` is SO_MAX_PACING_RATE, 0 for none.
    """
    percent = PACING_SS_RATIO if cwnd < ssthresh // 2 else PACING_CA_RATIO
    rate = mss * (USEC_PER_SEC // 100 * 8) * percent * max(cwnd, packets_out)
    if srtt8 > 0:
        rate = rate // srtt8
    return socket_rate(rate, most_Bps)


def segments_in_flight(packets_out: int, sacked_out: int, lost_out: int, retrans_out: int) -> int:
    """Segments believed to be in the network, a u32 [Linux61] tcp_packets_in_flight()."""
    return u32(packets_out - (sacked_out + lost_out) + retrans_out)
