"""When a window reduction was unnecessary: Eifel, D-SACK, F-RTO.

A recovery was spurious if a D-SACK answered every retransmission, or if the original arrived: the ACK echoes a time
stamp from before the first retransmission, or nothing was retransmitted yet. After a timeout, F-RTO sends new data;
if an ACK then covers data that was never retransmitted, the timeout was spurious.

Sources: RFC 3522 (Eifel), RFC 3708 (D-SACK), RFC 5682 section 3.1 (F-RTO); [Linux61] net/ipv4/tcp_input.c
tcp_may_undo, tcp_packet_delayed, tcp_process_loss.
"""

# Findings of F-RTO: none yet, undo, continue as after any loss; with the last two high_seq becomes snd_nxt as well.
FRTO_WAIT, FRTO_SPURIOUS, FRTO_REAL, FRTO_SEND_NEW, FRTO_RETRANSMIT = range(5)


def original_arrived(retrans_stamp: int, echoes_before: bool, may_reopen: bool) -> bool:
    """Return whether the ACK answers an original [Linux618] tcp_packet_delayed.

    `retrans_stamp`: time stamp of the first retransmission, 0 if there was none. `echoes_before`: whether the ACK
    echoes an older one. `may_reopen`: false only without SACK, once everything up to high_seq is acknowledged:
    retrans_stamp was then cleared.
    """
    return echoes_before if retrans_stamp != 0 else may_reopen


def was_needless(has_undo: bool, undo_retrans: int, is_delayed: bool) -> bool:
    """Return whether the reduction may be undone [Linux61] tcp_may_undo.

    `has_undo`: an undo is possible (undo_marker). `undo_retrans`: number of retransmissions that no D-SACK has
    answered (negative if there was none). `is_delayed`: result of `original_arrived`.
    """
    return has_undo and (undo_retrans == 0 or is_delayed)


def frto_finding(
    original_acked: bool, sent_new: bool, sacked: bool, advanced: bool, recovered: bool, may_send_new: bool
) -> int:
    """Return what an ACK says of a timeout that F-RTO examines [RFC 5682] section 3.1, [Linux61] tcp_process_loss.

    `original_acked`: it acknowledges (or SACKs) data that was never retransmitted. `sent_new`: new data was sent since
    the timeout: snd_nxt is beyond high_seq. `sacked`: it SACKs new data, or is a duplicate. `advanced`: it advances
    snd_una. `recovered`: it acknowledges everything that was outstanding at the timeout. `may_send_new`: there is new
    data to send, and the receive window admits it.
    """
    if original_acked:
        return FRTO_SPURIOUS  # step 3.b
    if sent_new:
        return FRTO_REAL if sacked else FRTO_WAIT  # step 3.a
    if advanced and not recovered:
        return FRTO_SEND_NEW if may_send_new else FRTO_RETRANSMIT  # step 2.b
    return FRTO_WAIT
