"""TCP Small Queues: how much of a connection may wait in the queue of the sender's own device.

What TCP has handed to the device's queue (fq, for example) and has not left yet is counted in `sk_wmem_alloc`, as
the memory of its packets (skbs). The next packet waits while that exceeds a millisecond at the pacing rate or two
packets of its size, whichever is more; TCP continues when a packet has left.

Source: [Linux61] net/ipv4/tcp_output.c tcp_small_queue_check, tcp_wfree; include/linux/skbuff.h SKB_TRUESIZE.
"""

from cctrace.cc.linux import PACING_SHIFT

# Bytes that an skb of TCP's takes besides its data (SKB_TRUESIZE), on 64 bits: itself, its shared info and its head,
# since 6.3 one of skb_small_head_cache. 960 where a kernel is configured for longer headers (tunnels, mesh).
SKB_OVERHEAD_BYTES = 896
SKB_OVERHEAD_BYTES_6_1 = 1280  # before 6.3: its head took a kilobyte
SHARED_INFO_BYTES, SK_BUFF_BYTES = 320, 256  # skb_shared_info and sk_buff, as they are aligned
LEAST_TCP_HEADER = 192  # MAX_TCP_HEADER, bytes, of a kernel built without wireless LAN and tunnels


def reserved_bytes(mss: int, header_bytes: int) -> int:
    """Return the send buffer that the kernel reserves for a segment [Linux612] tcp_sndbuf_expand.

    >>> reserved_bytes(1460, LEAST_TCP_HEADER), reserved_bytes(1460, 320)
    (2304, 4352)
    """
    return (1 << (mss + header_bytes + SHARED_INFO_BYTES - 1).bit_length()) + SK_BUFF_BYTES


WMEM_BASE = 1  # sk_wmem_alloc of a socket with empty queues
TIMER_SLACK_NS = 10_000  # of fq's timer (its option timer_slack): packets leave up to this much late


def is_throttled(queued: int, truesize: int, rate_Bps: int, again: bool, rtx_skbs: int) -> bool:
    """Return whether a packet must wait until another has left [Linux61] tcp_small_queue_check.

    `queued`: memory of the packets that were handed over and have not left, bytes. `truesize`: memory of the next one.
    `rate_Bps`: the pacing rate, bytes/s; 0 where it is not known. `again`: whether it is a retransmission, for which
    the limit is twice as high. `rtx_skbs`: packets in the retransmission queue; with one or none, nothing waits.
    """
    limit = max(2 * truesize, rate_Bps >> PACING_SHIFT) << (1 if again else 0)
    return rtx_skbs > 1 and queued + WMEM_BASE > limit
