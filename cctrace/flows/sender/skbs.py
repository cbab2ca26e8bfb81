"""Super-packets of the sender: sent, lost and retransmitted as a unit (struct sk_buff).

Each segment of the queue has the end of its super-packet (`skb_end`); segments of one share the data in flight at
their send. A SACK, or a retransmission of a part, splits it for good. The parts' in-flight values differ between
the kernels of BBRv3 and BBRv2 (`tx_in_flight_v2`); others do not keep them.

Sources: [BBRv3], [BBRv2alpha] tcp_fragment, tcp_shifted_skb; [Linux] tcp_match_skb_to_sack, tcp_shift_skb_data.
"""

from cctrace.flows.state import LOST, RETRANS, SACKED


def skb_of(tp, seg, i):
    """Return the first segment of the super-packet of segment `i`, as far as it is outstanding, and that after it."""
    mask = seg.size - 1
    skb_end = seg[i & mask].skb_end
    first, end = i, i + 1
    while first > tp.head and seg[(first - 1) & mask].skb_end == skb_end:
        first -= 1
    while end < tp.tail and seg[end & mask].skb_end == skb_end:
        end += 1
    return first, end


def fragment(tp, seg, i):
    """Split a super-packet before segment `i`, unless it ends there [Linux] tcp_fragment.

    The data in flight when each part was sent then count, in BBRv3, as if the first part had been sent alone and the
    second after it; in BBRv2alpha, the first part's include the second, and the second's leave out the first.
    """
    mask = seg.size - 1
    first, end = skb_of(tp, seg, i)
    if first == i:
        return
    before = max(seg[i & mask].tx_in_flight - (end - first), 0)
    before_v2 = max(seg[i & mask].tx_in_flight_v2 - (end - first), 0)
    for k in range(first, i):
        seg[k & mask].skb_end = seg[i & mask].seq
        seg[k & mask].tx_in_flight = before + i - first
    for k in range(i, end):
        seg[k & mask].tx_in_flight_v2 = before_v2 + end - i


def take_front(tp, seg, i, end, is_dup):
    """Split the segments from `i` on that a SACK block covers from the rest of their super-packet, from `end` on.

    They are shifted to the previous super-packet if that is SACKed, too [Linux] tcp_shift_skb_data; the rest counts
    as sent without them. Otherwise the super-packet is fragmented.
    """
    mask = seg.size - 1
    s = seg[i & mask]
    shifts = i > tp.head and (is_dup or s.flags & (LOST | RETRANS) != RETRANS)
    if shifts:
        prior = seg[(i - 1) & mask]
        is_full_sized = prior.end_seq - prior.seq == tp.mss
        shifts = is_full_sized and prior.flags & (SACKED | LOST | RETRANS) == SACKED
    if not shifts:
        fragment(tp, seg, end)
        return
    skb_end = s.skb_end
    for k in range(i, end):
        seg[k & mask].skb_end = seg[end & mask].seq
    k = end
    while k < tp.tail and seg[k & mask].skb_end == skb_end:
        seg[k & mask].tx_in_flight = max(seg[k & mask].tx_in_flight - (end - i), 0)
        seg[k & mask].tx_in_flight_v2 = max(seg[k & mask].tx_in_flight_v2 - (end - i), 0)
        k += 1
