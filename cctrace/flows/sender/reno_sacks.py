"""Connections without SACK: duplicate ACKs stand for the segments that SACKs would name.

Source: [Linux] tcp_input.c tcp_add_reno_sack, tcp_remove_reno_sacks, tcp_limit_reno_sacked.
"""

from cctrace.flows.sender.scoreboard import count_delivered
from cctrace.tcp.rack import MAX_REORDERING


def limit_reno_sacked(tp, addend):
    """Keep the emulated SACK count possible; more duplicates than that mean reordering."""
    holes = min(max(tp.lost_out, 1), tp.packets_out)
    if tp.sacked_out + holes > tp.packets_out:
        tp.sacked_out = tp.packets_out - holes
        tp.reordering = min(tp.packets_out + addend, MAX_REORDERING)
        tp.reord_seen += 1


def add_reno_sack(tp, dupacks, ece):
    """Count a duplicate ACK as one delivered segment."""
    if dupacks == 0:
        return
    prior = tp.sacked_out
    tp.sacked_out += dupacks
    limit_reno_sacked(tp, 0)
    if tp.sacked_out > prior:
        count_delivered(tp, tp.sacked_out - prior, ece)


def remove_reno_sacks(tp, acked, ece):
    """Take cumulatively acknowledged segments out of the emulated SACK count."""
    if acked > 0:
        count_delivered(tp, max(acked - tp.sacked_out, 1), ece)
        tp.sacked_out = 0 if acked - 1 >= tp.sacked_out else tp.sacked_out - (acked - 1)
    limit_reno_sacked(tp, acked)
