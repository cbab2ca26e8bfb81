"""The receive window of a Linux receiver, which limits young connections.

The window starts at 64 KB. Each arriving segment lets it grow by two, as far as the receive buffer has free room;
the buffer follows what the application read during the last round trip: twice that, and more while it grows
(dynamic right-sizing), plus room for data waiting behind a hole. A round trip is the receiver's own estimate, from
time stamps in milliseconds and from the time in which a window arrives; a minimum counts at once, others by an
eighth. The right edge never moves back, and is rounded up to the window scale. A start-up that overflows the queue
thus stalls on the receive window long before its congestion window. Windows, buffers and copied data are in bytes,
sequence numbers in segments; the application reads at once. [Linux618] tcp_input.c, tcp_output.c.

Kernels differ: before 6.16 or so the buffer has a cushion of 16 segments and no room for data behind a hole
[Linux612]; 6.1 assumes that payload is half of all memory, whatever the segments' is [Linux61].
"""

from cctrace.lang.memory import words
from cctrace.sim.core.positions import begins, length, next_begins
from cctrace.sim.core.structs import LINUX, LINUX_6_1, LINUX_6_18
from cctrace.tcp.wire import MSS_BYTES

FIRST_BUFFER_BYTES = 131_072  # tcp_rmem[1]
FIRST_WINDOW_BYTES = 65_160  # before data: 45 segments of 1448
WINDOW_STEP_BYTES = 1 << 11  # the window scale that goes with a tcp_rmem[2] of 64 MB
FIRST_CLAMP_BYTES = FIRST_BUFFER_BYTES // 2 - MSS_BYTES  # one segment of half a buffer stays reserved before 6.18
CUSHION_SEGMENTS = 16  # beside what the application reads in a round trip, before 6.18
PLAIN_RCVMEM_BYTES = 2920  # 6.1: what a segment is taken to occupy when the buffer grows (tcp_rcv_space_adjust)
PAGE_FRAG_BYTES = 32_768  # of the sender's memory that segments point to (SKB_FRAG_PAGE_ORDER)
INITIAL_COPIED = 10  # segments taken to have been read before anything was: the initial window


def scaling_ratio(kernel, truesize_bytes):
    """Payload share of memory, in 256ths, for segments of this truesize: `tcp_measure_rcv_mss`; half in 6.1."""
    return 128 if kernel == LINUX_6_1 else (MSS_BYTES << 8) // truesize_bytes


def window_of(f, memory_bytes):
    """tcp_win_from_space: how much of a receive buffer may be advertised."""
    return memory_bytes * f.rcv_ratio >> 8


def window_clamp(f):
    """The largest window of this buffer; 6.1 computes it anew only when the buffer grows, 6.12 with the first data."""
    if f.kernel == LINUX_6_1 and f.rcvbuf == FIRST_BUFFER_BYTES:
        return FIRST_CLAMP_BYTES
    return window_of(f, f.rcvbuf)


def truesize(f, segment):
    """Memory of an skb with one segment; a longer one takes more in proportion."""
    lacks = f.mss - length(f, segment)
    return (f.rcv_truesize if f.mss == MSS_BYTES else f.mss * f.rcv_truesize // MSS_BYTES) - lacks


def joins(f, segment):
    """tcp_ooo_try_coalesce: whether one that waits joins the skb that ends before it; then it takes its bytes only.

    That goes where segments arrive in page fragments, `rcv_frags` of which an skb holds.
    """
    if f.rcv_frags == 0:
        return False
    before = words(f.got)[(segment - 1) & f.mask]
    return before > 0 and (before >> 2) + fragments(f, segment) <= f.rcv_frags


def fragments(f, segment):
    """How many page fragments a segment consists of: two where the sender's page ends in it; only if skbs have any."""
    if f.rcv_frags == 0:
        return 1
    first = begins(f, segment)
    return 1 if first // PAGE_FRAG_BYTES == (begins(f, segment + 1) - 1) // PAGE_FRAG_BYTES else 2


def held_by(f, segment):
    """Buffer bytes of a segment before its window grows: in order it is unread, otherwise it may join another."""
    return truesize(f, segment) if segment == f.rcv_nxt else length(f, segment) if joins(f, segment) else 0


def hold(f, segment):
    """Keep a segment until those before it arrive: `got` has whether it starts an skb, and its fragments.

    One in order is read at once (`read`). Receivers of the golden vectors and of QUIC have no books of their memory.
    """
    if segment == f.rcv_nxt:
        f.rcv_held += truesize(f, segment)
    elif f.profile != LINUX:
        words(f.got)[segment & f.mask] = 3
    elif joins(f, segment):
        begun = words(f.got)[(segment - 1) & f.mask] >> 2
        words(f.got)[segment & f.mask] = 1 | (begun + fragments(f, segment)) << 2
        f.rcv_held += length(f, segment)
    else:
        words(f.got)[segment & f.mask] = 3 | fragments(f, segment) << 2
        f.rcv_held += truesize(f, segment)


def join_waiting(f, segment):
    """tcp_ofo_queue: skbs that waited for a segment join it or one another; returns where what is in order ends."""
    end = segment + 1
    if f.rcv_high == end or words(f.got)[end & f.mask] == 0:
        return end
    count = fragments(f, segment)
    while words(f.got)[end & f.mask] > 0:
        last = end
        while words(f.got)[(last + 1) & f.mask] & 3 == 1:
            last += 1
        waiting = words(f.got)[last & f.mask] >> 2
        count += waiting
        if count <= f.rcv_frags:
            words(f.got)[end & f.mask] &= ~2
            f.rcv_held -= truesize(f, end) - length(f, end)
        else:
            count = waiting
        end = last + 1
    return end


def release(f, segment):
    """The application reads a segment that waited."""
    if f.profile == LINUX:
        f.rcv_held -= truesize(f, segment) if words(f.got)[segment & f.mask] & 2 else length(f, segment)
    words(f.got)[segment & f.mask] = 0


def measure_rtt(f, now, echo_ms, segment):
    """tcp_rcv_rtt_measure_ts: from an ACK to the full segment it let go, by the receiver's clock."""
    if echo_ms != f.rcv_echo_ms and length(f, segment) == f.mss:
        sample = ((now + f.rcv_clock_ns) // 1_000_000 - echo_ms) * 1000
        if sample == 0 and f.kernel == LINUX_6_1:
            sample = 1000
        if sample > 0:
            update_rtt(f, sample, False)
    f.rcv_echo_ms = echo_ms


def measure_window_rtt(f, now):
    """tcp_rcv_rtt_measure, for the next in order: a window has come since it was advertised, at least a round trip."""
    read = begins(f, f.rcv_nxt + 1)
    if read < f.rcv_rtt_edge:
        return
    if f.rcv_rtt_at > 0:
        update_rtt(f, max((now - f.rcv_rtt_at) // 1000, 1), True)
    f.rcv_rtt_edge = read + f.rcv_right - begins(f, f.rcv_acked)
    f.rcv_rtt_at = now


def update_rtt(f, sample, of_window):
    """tcp_rcv_rtt_update; eighths of microseconds."""
    if f.rcv_rtt8 == 0 or sample << 3 < f.rcv_rtt8:
        f.rcv_rtt8 = sample << 3
    elif not of_window:
        f.rcv_rtt8 += sample - (f.rcv_rtt8 >> 3)


def grow_window(f, more_bytes):
    """tcp_grow_window, for a segment that is new and takes `more_bytes`; the sender hears of more room at once."""
    room = min(window_clamp(f), window_of(f, f.rcvbuf - f.rcv_held - more_bytes)) - f.rcv_ssthresh
    if room > 0:
        f.rcv_ssthresh += min(room, 2 * f.mss)
        f.quick_acks |= 1


def read(f, now):
    """The application reads all there is in order, after TCP has answered its arrival."""
    end = first_read(f) if f.rcv_copied > 0 else f.rcv_nxt
    f.rcv_held -= truesize(f, f.rcv_read)  # the one that has just come in order
    f.rcv_read += 1
    while f.rcv_read < f.rcv_nxt:
        release(f, f.rcv_read)
        f.rcv_read += 1
    if f.rcv_copied > 0:
        adjust_space(f, end, now)


def first_read(f):
    """Where the first skb ends that the application reads."""
    end = f.rcv_read + 1
    while end < f.rcv_nxt and not words(f.got)[end & f.mask] & 2:
        end += 1
    return end


def adjust_space(f, read, now):
    """tcp_rcv_space_adjust: once per round trip, from what the application read in it.

    It is called for each skb read, the first of them up to `read`; unread data behind it do not count, nor data
    read before: a filled hole ends a measurement early, and the next one contains everything that waited.
    """
    if f.rcv_rtt8 == 0 or now < (f.rcv_copied_us + (f.rcv_rtt8 >> 3)) * 1000:
        return
    copied = begins(f, read) - f.rcv_copied_to
    if f.kernel != LINUX_6_1:
        copied -= length(f, read, f.rcv_nxt - read)
    if copied > f.rcv_copied:
        grow_buffer(f, copied)
    f.rcv_copied_to = begins(f, read)
    f.rcv_copied_us = now // 1000


def grow_buffer(f, copied):
    """tcp_rcvbuf_grow: room for what the next round trip may bring, and for what waits behind a hole."""
    window = 2 * copied
    if f.kernel != LINUX_6_18:
        window += CUSHION_SEGMENTS * f.mss
    if copied > f.rcv_copied:
        window += 2 * (window * (copied - f.rcv_copied) // f.rcv_copied)
    if f.kernel == LINUX_6_18:
        window += length(f, f.rcv_nxt, max(f.rcv_high - f.rcv_nxt, 0))
    window = min(window, f.rwnd * f.mss)
    if f.kernel == LINUX_6_1:
        f.rcvbuf = max(f.rcvbuf, window // f.mss * (PLAIN_RCVMEM_BYTES * f.mss // MSS_BYTES))
    elif window > window_of(f, f.rcvbuf):
        f.rcvbuf = max(f.rcvbuf, (window << 8) // f.rcv_ratio)
    f.rcv_copied = copied


def advertise(f):
    """tcp_select_window: return the right edge that an ACK sent now carries."""
    if f.rcv_copied > 0:
        read = begins(f, f.rcv_nxt)
        edge = max(f.rcv_right, read + free_window(f))
        f.rcv_right = read + round_up(edge - read)
    return f.rcv_right


def round_up(window):
    """What the window scale can say."""
    return (window + WINDOW_STEP_BYTES - 1) // WINDOW_STEP_BYTES * WINDOW_STEP_BYTES


def free_window(f):
    """__tcp_select_window, before it is rounded: beyond half a buffer quick ACKs end, near its end all room."""
    full = window_clamp(f)
    free = window_of(f, f.rcvbuf - f.rcv_held)
    if free < full >> 1:
        f.quick_acks = 0
        free -= free % WINDOW_STEP_BYTES
        if free < max(full >> 4, f.mss):
            return 0
    return min(free, f.rcv_ssthresh)


def keeps_window(f):
    """Whether the window is no smaller than advertised although what has just come in order is not read yet.

    Then __tcp_ack_snd_check acknowledges more than a segment at once.
    """
    if f.rcv_copied == 0:
        return True
    return round_up(free_window(f)) >= f.rcv_right - begins(f, f.rcv_acked)


def has_doubled(f):
    """Whether what has been read makes room for twice the window that is left, or more (tcp_cleanup_rbuf)."""
    left = f.rcv_right - begins(f, f.rcv_nxt)
    return f.rcv_copied > 0 and 2 * left <= window_clamp(f) and round_up(free_window(f)) >= 2 * max(left, 1)


def window_left(f, most):
    """Return how many of `most` more full segments the receive window admits; usually all, which spares a division."""
    window = window_bytes(f)
    return most if window >= most * f.mss else window // f.mss


def window_bytes(f):
    """Return how many more bytes the receive window admits."""
    return min((f.una + f.most_out - f.nxt) * f.mss, f.snd_right - next_begins(f))
