"""The send buffer: the application's data, their skbs, and when it may write more.

A bulk application writes until its socket is full. The kernel fills skbs one after another, each up to half of the
largest receive window seen, 64 KB at most, so where skbs end depends on how the window opened. Super-packets are
cut from the first of them; a kernel before 6.10 ends one where the skb ends, a later one adds data of the next skb.
The buffer starts at tcp_wmem[1] and grows while data leave that do not fill the congestion window; a size set by
the application (SO_SNDBUF) stays. A waiting application is woken once a third of the buffer is free, and writes
before time advances. Whether the socket ran dry meanwhile decides which rate samples are application-limited, and
what tcp_tso_should_defer holds back.

Function names are the kernel's ([Linux612] net/ipv4/tcp.c, tcp_input.c, tcp_output.c; net/core/stream.c).
"""

from cctrace.cc.linux import GSO_MAX_SIZE, MAX_TCP_HEADER, TCP_INIT_CWND
from cctrace.lang.memory import words
from cctrace.sim.core.calls import in_flight
from cctrace.sim.core.positions import length, next_begins
from cctrace.sim.core.structs import LINUX_6_1, NEVER, SACKED, SKB_END, segments
from cctrace.sim.core.view import CWND
from cctrace.tcp.small_queue import LEAST_TCP_HEADER, SKB_OVERHEAD_BYTES, SKB_OVERHEAD_BYTES_6_1, reserved_bytes

FIRST_SNDBUF_BYTES, MAX_SNDBUF_BYTES = 65_536, 67_108_864  # tcp_wmem[1], [2]
MIN_SNDBUF_BYTES = 4608  # SOCK_MIN_SNDBUF
SNDBUF_FACTOR = 2  # the kernel takes twice what SO_SNDBUF asks for, as half may be overhead (__sock_set_sndbuf)
SEGMENT_BYTES = reserved_bytes(1460, LEAST_TCP_HEADER)
SKB_DATA_BYTES = GSO_MAX_SIZE - (MAX_TCP_HEADER + 1)


def overhead(f):
    """Bytes that an skb takes beside its data."""
    return SKB_OVERHEAD_BYTES_6_1 if f.kernel == LINUX_6_1 else SKB_OVERHEAD_BYTES


def size_goal(f):
    """tcp_xmit_size_goal: how much an skb is filled with."""
    return max(min(SKB_DATA_BYTES, f.max_window >> 1) // f.mss, 1) * f.mss


def write_end(f, k):
    """Where skb `k` of the write queue ends, bytes; its lowest bit tells whether it carries PSH."""
    return words(f.wq_ends)[k & f.mask] >> 1


def unsent(f):
    """How many bytes were written and not sent."""
    return f.written - next_begins(f)


def count_unsent(f):
    """Note how many segments the written data fill; the last need not be full."""
    f.write_seq = f.nxt + (unsent(f) + f.mss - 1) // f.mss


def grow_skb(f, wanted):
    """tcp_grow_skb: fill the next skb from the one behind it if more is `wanted`, since Linux 6.10; return its bytes.

    It keeps what it got if it is not sent now, and may then be filled from the one that is behind it by then.
    """
    begun = next_begins(f)
    end, place = begun + wanted, f.wq_head & f.mask
    if f.kernel != LINUX_6_1 and write_end(f, f.wq_head) < end and f.wq_tail - f.wq_head > 1:
        pushed = words(f.wq_ends)[place] & 1
        if write_end(f, f.wq_head + 1) > end:
            words(f.wq_ends)[place] = end << 1 | pushed
        else:  # tcp_eat_one_skb
            f.wq_head += 1
            words(f.wq_ends)[f.wq_head & f.mask] |= pushed
            f.wmem_queued -= overhead(f)
    return write_end(f, f.wq_head) - begun


def cut_head(f, size):
    """tso_fragment: the first `size` bytes of the write queue are an skb of their own, although not sent yet."""
    end = next_begins(f) + size
    if write_end(f, f.wq_head) > end:
        f.wq_head -= 1
        words(f.wq_ends)[f.wq_head & f.mask] = end << 1
        f.wmem_queued += overhead(f)


def pushes(f, size):
    """Whether the skb that ends after the next `size` bytes, if one does, carries PSH."""
    end = next_begins(f) + size
    k = f.wq_head
    while k < f.wq_tail and write_end(f, k) < end:
        k += 1
    return k < f.wq_tail and write_end(f, k) == end and words(f.wq_ends)[k & f.mask] & 1 == 1


def note_sent(f):
    """tcp_event_new_data_sent, after tso_fragment or tcp_grow_skb: a super-packet up to `nxt` is an skb of its own."""
    sent = next_begins(f)
    while f.wq_head < f.wq_tail and write_end(f, f.wq_head) <= sent:
        f.wmem_queued -= overhead(f)
        f.wq_head += 1
    end_skb(f, f.nxt - 1)
    count_unsent(f)


def end_skb(f, index):
    """An skb ends with a segment, by being sent so or by tcp_fragment."""
    seg = segments(f.seg)[index & f.mask]
    if not seg.marks & SKB_END:
        seg.marks |= SKB_END
        f.wmem_queued += overhead(f)


def merge_skbs(f, index):
    """tcp_shift_skb_data: the skb that ends with a segment and the one behind it become one."""
    seg = segments(f.seg)[index & f.mask]
    if seg.marks & SKB_END:
        seg.marks &= ~SKB_END
        f.wmem_queued -= overhead(f)


def account_sacked(f, index):
    """tcp_sacktag_walk: what is SACKed is cut from its skb, and joined with SACKed neighbours of the same length."""
    size = length(f, index)
    if index > f.una:
        if segments(f.seg)[(index - 1) & f.mask].marks & SACKED and length(f, index - 1) == size:
            merge_skbs(f, index - 1)
        else:
            end_skb(f, index - 1)
    follows = index + 1 < f.nxt and segments(f.seg)[(index + 1) & f.mask].marks & SACKED
    if follows and length(f, index + 1) == size:
        merge_skbs(f, index)
    else:
        end_skb(f, index)


def discard_unsent(f):
    """The application withdraws the data that TCP has not sent."""
    f.wmem_queued -= unsent(f) + (f.wq_tail - f.wq_head) * overhead(f)
    f.wq_head = f.wq_tail
    f.written = next_begins(f)
    f.app_end = min(f.app_end, f.written)
    f.write_seq = f.nxt


def expand_sndbuf(f):
    """tcp_sndbuf_expand."""
    segs = max(max(TCP_INIT_CWND, words(f.state)[CWND]), f.reordering + 1)
    if segs <= f.sndbuf_segs:
        return
    f.sndbuf_segs = segs
    wanted = (3 if f.has_on_ack == 1 else 2) * segs * SEGMENT_BYTES * f.mss // 1448
    f.sndbuf = max(f.sndbuf, min(wanted, f.most_sndbuf))


def is_writeable(f):
    """sk_stream_is_writeable: a third of the buffer is free."""
    return f.sndbuf - f.wmem_queued >= f.wmem_queued >> 1 and f.wmem_queued < f.sndbuf


def check_space(f, now):
    """tcp_check_space: the buffer grows unless cwnd is full; an application that waits for room is woken."""
    if f.nospace == 0:
        return
    if in_flight(f) < words(f.state)[CWND]:
        expand_sndbuf(f)
    if is_writeable(f):
        f.nospace = 0
        f.write_at = min(f.write_at, now)


def wait_for_space(f, now):
    """The application waits until it can write: tcp_poll, which leaves the mark of a full buffer as it is if it can."""
    if is_writeable(f):
        f.write_at = now
    else:
        f.nospace, f.write_at = 1, NEVER
