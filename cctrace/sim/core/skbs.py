"""Super-packets of a simulated sender: sent, lost and retransmitted as a unit (struct sk_buff).

A segment stores the end of its super-packet (`skb_end`, the number of the segment after it); segments of one share
that and the data in flight at their send. In the reference stack every segment is its own super-packet.
"""

from cctrace.sim.core.structs import FRESH, LOST, RETRANS, SACKED, segments


def skb_of(f, index):
    """Return the first segment of a segment's super-packet, as far as it is outstanding, and the one after it."""
    end = segments(f.seg)[index & f.mask].skb_end
    first = index
    while first > f.una and segments(f.seg)[(first - 1) & f.mask].skb_end == end:
        first -= 1
    return first, end


def fragment(f, index):
    """tcp_fragment: a super-packet ends before a segment. What its parts then count as in flight: flows.scoreboard."""
    first, end = skb_of(f, index)
    if first == index:
        return
    before = max(segments(f.seg)[index & f.mask].tx_in_flight - (end - first), 0)
    for k in range(first, end):
        seg = segments(f.seg)[k & f.mask]
        if k < index:
            seg.skb_end = index
            if f.parts_as_v2 == 0:
                seg.tx_in_flight = before + index - first
        elif f.parts_as_v2 != 0:
            seg.tx_in_flight = before + end - index


def part_sacked(f, index):
    """tcp_match_skb_to_sack, tcp_shift_skb_data: part what an ACK newly SACKs from `index` on from its super-packet."""
    seg, prior = segments(f.seg)[index & f.mask], segments(f.seg)[(index - 1) & f.mask]
    follows = index > f.una and prior.marks & SACKED
    if follows and prior.skb_end == seg.skb_end:
        return  # it was, with the segment before it
    fragment(f, index)
    until = index
    while until < seg.skb_end and segments(f.seg)[until & f.mask].marks & FRESH:
        until += 1
    end = seg.skb_end
    if until == end:
        return
    if not follows or prior.marks & (LOST | RETRANS) or seg.marks & (LOST | RETRANS) == RETRANS:
        fragment(f, until)
        return
    for k in range(index, end):
        one = segments(f.seg)[k & f.mask]
        if k < until:
            one.skb_end = until
        else:
            one.tx_in_flight = max(one.tx_in_flight - (until - index), 0)


def share_in_flight(f, burst, in_flight):
    """tcp_set_tx_in_flight [BBRv2alpha]: a burst is one skb, and all of it counts for each of its segments."""
    join_skbs(f, f.nxt - burst, f.nxt, in_flight)


def join_skbs(f, first, end, in_flight):
    """The segments before `end` were sent, or sent again, as one skb."""
    for k in range(first, end):
        seg = segments(f.seg)[k & f.mask]
        seg.skb_end = end
        seg.tx_in_flight = in_flight
