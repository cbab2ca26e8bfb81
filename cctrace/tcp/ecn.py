"""ECN feedback: what a handshake agrees on, and how many marks an ACK reports.

The three flags AE, CWR and ECE, one number from 0 to 7 here, mean different things on different packets:

    SYN             7 asks for accurate feedback (AccECN), 3 for classic ECN, 0 for none
    SYN-ACK         see `agreed`; with AccECN it also says which codepoint the SYN arrived with
    other packets   classic: ECE echoes a mark until CWR answers it
                    AccECN: ACE, the lower three bits of the count of marked packets, which starts at 5

Sources: [RFC3168] §6.1; [RFC9768] §3.1, §3.2.2, appendix A.2; [Linux618] include/net/tcp_ecn.h, net/ipv4/tcp_input.c
__tcp_accecn_process().
"""

NO_ECN, CLASSIC_ECN, ACCURATE_ECN = 0, 1, 2
ASKS_CLASSIC, ASKS_ACCURATE = 3, 7  # on a SYN
ECHO = 1  # ECE
CE_ON_SYN = 6  # on a SYN-ACK, or the ACK that answers one: the packet arrived with a mark [RFC9768] tables 2 and 3
ACE_START = 5  # not 0, so that a field cleared by a middlebox is noticed
ACE_SHIFT, ACE_MASK = 6, 7  # AE, CWR and ECE in a packet's flags


def ace_of(flags: int) -> int:
    """Return AE, CWR and ECE of a packet's TCP flags as one number."""
    return (flags >> ACE_SHIFT) & ACE_MASK


def agreed(requested: int, answered: int) -> int:
    """Return the feedback that a SYN and its SYN-ACK agree on, by their AE, CWR and ECE [RFC9768] table 2.

    The answer 7 is that of a server which reflects unknown flags. The reserved answer 5 means accurate feedback to
    a client that requested it (§3.1.3), and the former ECN-nonce to one that requested classic ECN. A server treats
    reserved requests as 7.
    """
    if requested == 0 or answered == 0 or answered == ACE_MASK:
        return NO_ECN
    if requested == ASKS_CLASSIC:
        return CLASSIC_ECN if answered & ASKS_CLASSIC == ECHO else NO_ECN
    if answered == ECHO:
        return CLASSIC_ECN if requested == ASKS_ACCURATE else NO_ECN
    return ACCURATE_ECN


def newly_marked(ace: int, delivered_ce: int, delivered: int, ce_bytes: int, mss: int) -> int:
    """Return how many of the segments that an ACK delivers it reports as marked, by its ACE field.

    Three bits distinguish up to seven. If more segments are delivered at once, the largest number that fits is taken,
    since the field may have wrapped, unless the option counts the bytes with CE (`ce_bytes`, -1: it does not).
    """
    least = (ace - ACE_START - delivered_ce) & ACE_MASK
    if delivered <= ACE_MASK:
        return least
    most = delivered - ((delivered - least) & ACE_MASK)
    if ce_bytes < 0:
        return most
    if ce_bytes == 0:
        return least
    if delivered > 2 * ACE_MASK + 1:  # it may have wrapped more than once
        if ce_bytes >= delivered * mss:
            return most
        return min(most, least + (-(-ce_bytes // mss) & ~ACE_MASK))
    return least if ce_bytes <= least * mss and ce_bytes < (most * mss) >> 1 else most
