"""Conservation checks of a simulated flow after every event, in debug mode."""

from cctrace.lang.memory import words
from cctrace.sim.core import structs
from cctrace.sim.core.bottleneck import queued_packets


def check_books(w, f):
    """Raise AssertionError, naming the quantity, if anything sent is not delivered, dropped or in flight."""
    dropped = f.drops_queue + f.drops_random
    _equal(
        "transmissions on their way",
        f.n_sent - dropped - f.arr_head,
        f.arr_tail - f.arr_head + f.way_tail - f.way_head + len(waiting(w, f)),
    )
    _equal("transmissions received", f.arr_head, f.log_next + f.n_discarded)
    queued = sum(
        int(words(w.q_bytes)[k & w.q_mask]) for k in range(w.q_head, w.q_head + (w.q_tail - w.q_head & w.q_mask))
    )
    packets = queued_packets(w)
    if w.aqm > 0:
        q = structs.aqms(w.aqm)[0]
        queued, packets = q.serving + sum(int(lane.bytes) for lane in queues(w)), q.packets
    _equal("queued bytes", queued, w.queue_bytes)
    assert w.queue_bytes <= w.buffer_bytes, f"the queue holds {w.queue_bytes} of {w.buffer_bytes} bytes"
    most = w.buffer_packets or w.q_mask
    assert packets <= most, f"the queue holds {packets} of {most} packets"
    if f.profile == structs.QUIC:
        sent = range(f.tx_head, f.tx_next)
        open_packets = sum(
            not structs.segments(f.seg)[k & f.mask].marks & (structs.SACKED | structs.LOST) for k in sent
        )
        _equal("bytes in flight", f.q_in_flight, open_packets * f.mss)
        return
    expected = [structs.coming(f.arr)[k & f.mask].order for k in range(f.arr_head, f.arr_tail)] + waiting(w, f)
    marked = sum(structs.transmissions(f.tx)[order & f.mask].marks & structs.CE > 0 for order in expected)
    _equal("CE marks", f.n_marked, f.n_ce + marked)
    assert f.delivered_ce < f.delivered, "more marked segments delivered than segments"
    marks = [int(structs.segments(f.seg)[k & f.mask].marks) for k in range(f.una, f.nxt)]
    _equal("sacked_out", f.sacked_out, sum(m & structs.SACKED > 0 for m in marks))
    _equal("lost_out", f.lost_out, sum(m & structs.LOST > 0 for m in marks))
    _equal("retrans_out", f.retrans_out, sum(m & structs.RETRANS > 0 for m in marks))
    _equal("delivered", f.delivered, 1 + f.una + f.sacked_out + f.dsacks)  # the SYN counts
    assert f.una <= f.rcv_nxt <= f.rcv_high <= f.nxt, "the receiver has what was never sent"


def queues(w):
    """Return the queues of a bottleneck under active management."""
    q = structs.aqms(w.aqm)[0]
    count = {structs.FQ_CODEL: int(w.n), structs.DUALPI2: 2}.get(int(q.kind), 1)
    return [structs.lanes(w.lanes)[k] for k in range(count)]


def waiting(w, f):
    """Return the transmissions of a flow that wait in such queues."""
    return [
        int(words(lane.order)[k & w.q_mask])
        for lane in (queues(w) if w.aqm > 0 else ())
        for k in range(lane.head, lane.tail)
        if words(lane.flow)[k & w.q_mask] == f.index
    ]


def _equal(what, got, expected):
    assert got == expected, f"{what}: {got} instead of {expected}"
