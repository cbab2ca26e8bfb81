"""How large the window was before each reduction, to a segment: what the flights after it tell.

A replay of an unpaced controller that is a segment off (an ACK's exact number of delivered segments, a tick) carries it
on through ssthresh, and CUBIC through its plateau: whether a window fell short of the last one, by one segment, decides
how far it will grow. But a sender that cwnd limits fills its window, up to a segment that waits for a second one to go
with it, so the flights up to the next reduction tell which window it was. Only a difference of NEAR segments is tried,
and of a reduction's factor nothing is changed: another controller's windows stay wrong.
"""

import numpy as np

from cctrace.replaying.follow import Edit

NEAR = (0, -1, 1, -2, 2)  # segments
MOST_ROWS = 20_000  # that tell of one reduction
WAITING = 0.25  # segments that usually wait
ASTRAY = 4.0  # segments: what is further off, is off by anything
CLEARLY = 0.2  # segments, in the mean of FEW flights or more
FEW = 8


def set_right(follower, script, rows, limited):
    """Return a script that also has the windows before reductions as the flights after them tell.

    Parameters
    ----------
    follower : Follower
        At row 0, of a controller without `on_ack`, that records "snd_cwnd"; it is run.
    script : Script
        What was inferred of it.
    rows : sequence of int
        Ascending: those of the calls that return ssthresh.
    limited : ndarray of int
        Ascending: rows of ACKs before which cwnd was what limited the sender.

    Returns
    -------
    Script
    """
    follower.begin(script)
    pending, made = list(script.edits), []
    for row, following in zip(rows, [*rows[1:], len(follower.rows)], strict=False):
        while pending and pending[0].row <= row:
            follower.run(pending[0].row)
            follower.edit(pending[0])
            made.append(pending.pop(0))
        follower.run(row)
        told = limited[
            np.searchsorted(limited, row, "right") : np.searchsorted(limited, min(following, row + MOST_ROWS))
        ]
        by = _nearest(follower, told) if len(told) >= FEW else 0
        if by:
            made.append(Edit(row, "snd_cwnd", by))
            follower.edit(made[-1])
    return script._replace(edits=[*made, *pending])


def _nearest(follower, told):
    """Return by how many segments a larger window at this row fits the flights before rows `told` clearly best."""
    saved, off = follower.save(), []
    flight = follower.rows.rs_prior_in_flight[told].astype(float)
    for by in NEAR:
        if follower.get("snd_cwnd") + by >= 2:
            follower.set("snd_cwnd", follower.get("snd_cwnd") + by)
            follower.run(int(told[-1]))
            apart = flight - follower.recorded["snd_cwnd"][told - 1] + WAITING
            off.append(float(np.mean(np.minimum(np.abs(apart), ASTRAY))))
            follower.restore(saved)
        else:
            off.append(np.inf)
    best = int(np.argmin(off))
    return NEAR[best] if off[best] < off[0] - CLEARLY else 0
