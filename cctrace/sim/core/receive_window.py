"""The receive window of a current Linux receiver, which decides how far a young connection may run ahead.

The window begins at 64 KB. Each segment that arrives lets it grow by two, as far as the receive buffer has room beside
what it holds; the buffer follows what the application took during the last round trip: twice that, and more while it
grows (dynamic right-sizing), and room for what waits behind a hole. A round trip is the receiver's own estimate, of
time stamps in milliseconds and of the time that a whole window takes to arrive; the least counts at once, others by an
eighth. The right edge never moves back, and is rounded up to what the window scale can say. So a start-up that
overflows the queue stalls on the window long before its congestion window does. Windows and buffers are in bytes,
sequence numbers and what was copied in segments; the application reads at once. [Linux618] tcp_input.c, tcp_output.c.
"""

FIRST_BUFFER_BYTES = 131_072  # tcp_rmem[1]
FIRST_WINDOW_BYTES = 65_160  # before data: 45 segments of 1448
WINDOW_STEP_BYTES = 1 << 11  # the window scale that goes with a tcp_rmem[2] of 64 MB
PLAIN_BYTES, PLAIN_TRUESIZE_BYTES = 1448, 2304  # a segment, and the memory it takes, received one by one
SCALING_RATIO = 160  # 256ths of memory that are payload, of such segments: `tcp_measure_rcv_mss`
INITIAL_COPIED = 10  # segments taken to have been read before anything was: the initial window


def window_of(memory_bytes):
    """tcp_win_from_space: how much of a receive buffer may be advertised."""
    return memory_bytes * SCALING_RATIO >> 8


def memory_of(f, held):
    """What segments take that wait; longer ones in proportion."""
    return held * f.mss * PLAIN_TRUESIZE_BYTES // PLAIN_BYTES


def measure_rtt(f, now, echo_ms):
    """tcp_rcv_rtt_measure_ts: from an ACK to the data it let go, by the receiver's clock."""
    sample = ((now + f.rcv_clock_ns) // 1_000_000 - echo_ms) * 1000
    if echo_ms != f.rcv_echo_ms and sample > 0:
        update_rtt(f, sample, False)
    f.rcv_echo_ms = echo_ms


def measure_window_rtt(f, now):
    """tcp_rcv_rtt_measure, for the next in order: a window has come since it was advertised, at least a round trip."""
    read = (f.rcv_nxt + 1) * f.mss
    if read < f.rcv_rtt_edge:
        return
    if f.rcv_rtt_at > 0:
        update_rtt(f, max((now - f.rcv_rtt_at) // 1000, 1), True)
    f.rcv_rtt_edge = read + f.rcv_right - f.rcv_acked * f.mss
    f.rcv_rtt_at = now


def update_rtt(f, sample, of_window):
    """tcp_rcv_rtt_update; eighths of microseconds."""
    if f.rcv_rtt8 == 0 or sample << 3 < f.rcv_rtt8:
        f.rcv_rtt8 = sample << 3
    elif not of_window:
        f.rcv_rtt8 += sample - (f.rcv_rtt8 >> 3)


def grow_window(f, segment):
    """tcp_grow_window, for a segment that is new and not counted yet; the sender hears of more room at once."""
    held = f.goodput_segs - f.rcv_nxt + (1 if segment == f.rcv_nxt else 0)  # unread, or behind a hole before it
    room = window_of(f.rcvbuf - memory_of(f, held)) - f.rcv_ssthresh
    if room > 0:
        f.rcv_ssthresh += min(room, 2 * f.mss)
        f.quick_acks |= 1


def adjust_space(f, segment, now):
    """tcp_rcv_space_adjust: once in a round trip, what the application took in it.

    It is asked for each segment read, and what waits to be read behind the first does not count, nor, a second time,
    what was read: so a hole that is filled ends a measurement early, and the next has all that waited.
    """
    if f.rcv_rtt8 == 0 or now - f.rcv_copied_at < (f.rcv_rtt8 >> 3) * 1000:
        return
    copied = 2 * (segment + 1) - f.rcv_copied_to - f.rcv_nxt
    if copied > f.rcv_copied:
        grow_buffer(f, copied)
    f.rcv_copied_to = segment + 1
    f.rcv_copied_at = now


def grow_buffer(f, copied):
    """tcp_rcvbuf_grow: room for what the next round trip may bring, and for what waits behind a hole."""
    window = 2 * copied * f.mss
    window += 2 * (window * (copied - f.rcv_copied) // f.rcv_copied) + max(f.rcv_high - f.rcv_nxt, 0) * f.mss
    f.rcvbuf = max(f.rcvbuf, (min(window, f.rwnd * f.mss) << 8) // SCALING_RATIO)
    f.rcv_copied = copied


def advertise(f):
    """tcp_select_window: return the right edge that an ACK sent now carries, in whole segments."""
    if f.rcv_copied > 0:
        read = f.rcv_nxt * f.mss
        edge = max(f.rcv_right, read + free_window(f))
        f.rcv_right = read + (edge - read + WINDOW_STEP_BYTES - 1) // WINDOW_STEP_BYTES * WINDOW_STEP_BYTES
        return f.rcv_right // f.mss
    return f.rcv_right


def free_window(f):
    """__tcp_select_window, before it is rounded: beyond half a buffer quick ACKs end, near its end all room."""
    full = window_of(f.rcvbuf)
    free = window_of(f.rcvbuf - memory_of(f, f.goodput_segs - f.rcv_nxt))
    if free < full >> 1:
        f.quick_acks = 0
        free -= free % WINDOW_STEP_BYTES
        if free < max(full >> 4, f.mss):
            return 0
    return min(free, f.rcv_ssthresh)


def window_left(f):
    """Return how many more segments the receive window admits."""
    return min(f.una + f.rwnd, f.snd_right) - f.nxt
