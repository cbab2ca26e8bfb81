"""The books of a simulated flow, checked after every event in debug mode: nothing appears or vanishes on the way."""

from cctrace.lang.memory import words
from cctrace.sim.core.bottleneck import queued_packets
from cctrace.sim.core.structs import CE, LOST, QUIC, RETRANS, SACKED, segments


def check_books(w, f):
    """Raise AssertionError, naming the quantity, if what was sent is not delivered, dropped or on its way."""
    dropped = f.drops_queue + f.drops_random
    _equal(
        "transmissions on their way", f.n_sent - dropped - f.arr_head, f.arr_tail - f.arr_head + f.way_tail - f.way_head
    )
    _equal("transmissions received", f.arr_head, f.log_next + f.n_discarded)
    queued = sum(
        int(words(w.q_bytes)[k & w.q_mask]) for k in range(w.q_head, w.q_head + (w.q_tail - w.q_head & w.q_mask))
    )
    _equal("queued bytes", queued, w.queue_bytes)
    assert w.queue_bytes <= w.buffer_bytes, f"the queue holds {w.queue_bytes} of {w.buffer_bytes} bytes"
    most = w.buffer_packets or w.q_mask
    assert queued_packets(w) <= most, f"the queue holds {queued_packets(w)} of {most} packets"
    if f.profile == QUIC:
        sent = range(f.tx_head, f.tx_next)
        open_packets = sum(not segments(f.seg)[k & f.mask].marks & (SACKED | LOST) for k in sent)
        _equal("bytes in flight", f.q_in_flight, open_packets * f.mss)
        return
    coming = (words(f.tx_marks)[words(f.arr_order)[k & f.mask] & f.mask] for k in range(f.arr_head, f.arr_tail))
    _equal("CE marks", f.n_marked, f.n_ce + sum(m & CE > 0 for m in coming))
    assert f.delivered_ce < f.delivered, "more marked segments delivered than segments"
    marks = [int(segments(f.seg)[k & f.mask].marks) for k in range(f.una, f.nxt)]
    _equal("sacked_out", f.sacked_out, sum(m & SACKED > 0 for m in marks))
    _equal("lost_out", f.lost_out, sum(m & LOST > 0 for m in marks))
    _equal("retrans_out", f.retrans_out, sum(m & RETRANS > 0 for m in marks))
    _equal("delivered", f.delivered, 1 + f.una + f.sacked_out + f.dsacks)  # the SYN counts
    assert f.una <= f.rcv_nxt <= f.rcv_high <= f.nxt, "the receiver has what was never sent"


def _equal(what, got, expected):
    assert got == expected, f"{what}: {got} instead of {expected}"
