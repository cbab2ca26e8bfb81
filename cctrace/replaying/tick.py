"""Where the ticks of the sender's kernel lay, inferred from what a window-limited sender had in flight.

CUBIC counts time in jiffies, of which a capture shows no edge: at HZ = 250 a step of the curve may come up to 4 ms
early or late, and cwnd be one segment off, which the next ssthresh then inherits. But a sender that cwnd limits fills
its window: before each ACK in Open or Disorder, in flight = cwnd. So the phase at which the replayed cwnd equals the
recorded flight most often is the kernel's; if the recorded sender ran another controller, any phase is as good.

Sources: [Linux618] net/ipv4/tcp_cubic.c bictcp_update (tcp_jiffies32).
"""

import numpy as np

from cctrace import schema
from cctrace.cc.linux import CA_DISORDER
from cctrace.errors import CompileError
from cctrace.flows.views import ticks
from cctrace.replaying.player import Player

CHOICES = 40  # 100 us apart at HZ = 250, about as well as a capture knows when an ACK was handled
ROWS = 500_000  # of the stream, that the phase is inferred from


def phase_us(view, cls, params, events):
    """Return how far the sender's tick had come when the connection's clock read a whole number of ticks.

    Parameters
    ----------
    view : View
    cls : type
        Class of a Linux controller without on_ack. Of one that cannot be compiled the phase is not inferred: 0.
    params : dict
    events : Events
        What the view is of.

    Returns
    -------
    int
        Microseconds, from 0 to the length of a tick.
    """
    rows = min(len(view), ROWS)
    now_us, lsndtime_us = events.now_us[:rows], events["lsndtime_us"][:rows]
    ack, before = _full_flights(view, rows)
    flight = view.columns["rs_prior_in_flight"][ack]
    try:
        player = Player(view, cls, record=["snd_cwnd"], **params)
    except CompileError:
        return 0
    start, best, most = player.save(), 0, 0
    for k in range(CHOICES):
        phase = k * 1_000_000 // (params["hz"] * CHOICES)
        player.replace_columns(ticks(now_us, lsndtime_us, params["hz"], phase))
        player.restore(start)
        player.run(rows)
        equal = np.count_nonzero(player.recorded["snd_cwnd"][before] == flight)
        if equal > most:
            best, most = phase, equal
    return best


def _full_flights(view, rows):
    """Return the ACKs in Open or Disorder before which cwnd kept the sender from sending, and the rows before them."""
    columns, time_ns = view.columns, view.time_ns[:rows]
    full = (view.event[:rows] == schema.LINUX_EVENTS["on_ack"]) & (columns["ca_state"][:rows] <= CA_DISORDER)
    ack = np.flatnonzero(full & (columns["is_cwnd_limited"][:rows] != 0))
    before = np.searchsorted(time_ns, time_ns[ack]) - 1
    return ack[before >= 0], before[before >= 0]
