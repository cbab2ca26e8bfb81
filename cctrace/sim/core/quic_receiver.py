"""Immediate ACKs of a QUIC receiver, and the start of its ACK decimation (`cctrace.sim.acks`)."""

from cctrace.lang.memory import words


def quic_at_once(f, order):
    """Whether a packet is late, or among the first from a gap on (MaybeUpdateAckTimeout); turns decimation on."""
    if f.after_gap == 0:
        return f.log_next > 1 and order != words(f.log)[(f.log_next - 2) & f.ack_mask] + 1
    if order >= f.decimated_from > 0:
        f.ack_every, f.delack_ns = f.decimated_every, f.decimated_ns
    if order < f.rcv_largest:
        return True
    if order > f.rcv_largest + 1:
        f.rcv_since_gap = 1
    elif f.rcv_since_gap > 0:
        f.rcv_since_gap += 1
    f.rcv_largest = order
    return 1 <= f.rcv_since_gap <= f.after_gap
