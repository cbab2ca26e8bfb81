"""The receive window of a current Linux receiver, which decides how far a young connection may run ahead.

The window begins at 64 KB and grows by two segments for each that arrives, up to a clamp that follows what the
application took during the last round trip: twice that, and more while it grows (dynamic right-sizing). Segments that
wait behind a hole take their share of it, and the right edge never moves back. So a start-up that overflows the queue
stalls on the window long before its congestion window does. Sizes are in segments; the sender's RTT stands for the
receiver's own estimate, and the application reads at once. [Linux618] tcp_input.c, tcp_output.c.
"""

FIRST_WINDOW_BYTES = 65_160  # before data: 45 segments of 1448
FIRST_CLAMP_BYTES = 81_920  # of a receive buffer of 128 KB, once the overhead of a segment is known
INITIAL_COPIED = 10  # segments taken to have been read before anything was: the initial window


def grow_window(f, now):
    """tcp_grow_window and tcp_rcv_space_adjust, for a segment that was new; the sender hears of more room at once."""
    held = f.goodput_segs - f.rcv_nxt
    room = min(f.rcv_clamp - held - f.rcv_ssthresh, 2)
    if room > 0:
        f.rcv_ssthresh += room
        f.quick_acks |= 1
    if held > 0:
        grow_clamp(f, f.rcv_copied)
    if f.srtt == 0 or now - f.rcv_copied_at < (f.srtt >> 3) * 1000:
        return
    copied = f.rcv_nxt - f.rcv_copied_to
    if copied > f.rcv_copied:
        grow_clamp(f, copied)
        f.rcv_copied = copied
    f.rcv_copied_to = f.rcv_nxt
    f.rcv_copied_at = now


def grow_clamp(f, copied):
    """tcp_rcvbuf_grow: room for what the next round trip may bring, and for what waits behind a hole."""
    window = 2 * copied
    window += 2 * (window * (copied - f.rcv_copied) // f.rcv_copied) + max(f.rcv_high - f.rcv_nxt, 0)
    f.rcv_clamp = max(f.rcv_clamp, min(window, f.rwnd))


def advertise(f):
    """tcp_select_window: return the right edge that an ACK sent now carries."""
    if f.rcv_copied > 0:
        held = f.goodput_segs - f.rcv_nxt
        f.rcv_right = max(f.rcv_right, f.rcv_nxt + min(f.rcv_ssthresh, f.rcv_clamp - held))
    return f.rcv_right


def window_left(f):
    """Return how many more segments the receive window admits."""
    return min(f.una + f.rwnd, f.snd_right) - f.nxt
