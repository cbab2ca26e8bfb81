"""Super-packets of a simulated sender: sent, lost and retransmitted as a unit (struct sk_buff).

A segment stores the end of its super-packet (`skb_end`, the number of the segment after it), which segments of one
share. The data in flight at its send stand in its last segment alone, as a SACK changes them for all that it leaves. In
the reference stack every segment is its own super-packet.
"""

from cctrace.sim.core.structs import FRESH, LINUX, LOST, RETRANS, SACKED, segments


def tx_in_flight(f, seg):
    """Return what was in flight when a segment's super-packet was sent."""
    return seg.tx_in_flight if f.profile != LINUX else segments(f.seg)[(seg.skb_end - 1) & f.mask].tx_in_flight


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
    front, rest = segments(f.seg)[(index - 1) & f.mask], segments(f.seg)[(end - 1) & f.mask]
    before = max(rest.tx_in_flight - (end - first), 0)
    if f.parts_as_v2 == 0:
        front.tx_in_flight = before + index - first
    else:
        front.tx_in_flight, rest.tx_in_flight = rest.tx_in_flight, before + end - index
    end_before(f, first, index)


def end_before(f, first, end):
    """The segments from `first` on are a super-packet that ends before another."""
    for k in range(first, end):
        segments(f.seg)[k & f.mask].skb_end = end


def part_acked(f, prior_una):
    """tcp_trim_head: what an ACK covers of a super-packet keeps what was in flight, whatever it SACKs of the rest."""
    end, first = segments(f.seg)[f.una & f.mask].skb_end, f.una
    while first > prior_una and segments(f.seg)[(first - 1) & f.mask].skb_end == end:
        first -= 1
    if first < f.una:
        segments(f.seg)[(f.una - 1) & f.mask].tx_in_flight = segments(f.seg)[(end - 1) & f.mask].tx_in_flight
        end_before(f, first, f.una)


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
    rest = segments(f.seg)[(end - 1) & f.mask]
    segments(f.seg)[(until - 1) & f.mask].tx_in_flight = rest.tx_in_flight
    rest.tx_in_flight = max(rest.tx_in_flight - (until - index), 0)
    end_before(f, index, until)


def share_in_flight(f, burst, in_flight):
    """tcp_set_tx_in_flight [BBRv2alpha]: a burst is one skb, and all of it counts for each of its segments."""
    join_skbs(f, f.nxt - burst, f.nxt, in_flight)


def join_skbs(f, first, end, in_flight):
    """The segments before `end` were sent, or sent again, as one skb."""
    end_before(f, first, end)
    segments(f.seg)[(end - 1) & f.mask].tx_in_flight = in_flight
