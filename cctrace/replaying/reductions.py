"""How large the window was before each reduction, to a segment: what the flights after it tell.

A replay of an unpaced controller that is a segment off (an ACK's exact number of delivered segments, a tick) carries it
on through ssthresh, and CUBIC through its plateau: whether a window fell short of the last one, by one segment, decides
how far it will grow. But a sender that cwnd limits fills its window, up to a segment that waits for a second one to go
with it, so the flights up to the next reduction tell which window it was. Only a difference of NEAR segments is tried,
and of a reduction's factor nothing is changed: another controller's windows stay wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.replaying.script import Edit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.replaying.follow import Follower
    from cctrace.replaying.script import Script

NEAR = (0, -1, 1, -2, 2)  # segments
MOST_ROWS = 20_000  # that tell of one reduction
WAITING = 0.25  # segments that usually wait
ASTRAY = 4.0  # segments: what is further off, is off by anything
CLEARLY = 0.2  # segments, in the mean of FEW flights or more
FEW = 8
AT_FIRST = 3  # reductions
LATEST = 6  # ACKs before a reduction, of which the largest flight stands for the window


def set_right(
    follower: Follower, script: Script, rows: Sequence[int], limited: NDArray[np.int64], at_first: int = 0
) -> Script:
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
    at_first : int
        Before so many first reductions the window may be what was in flight, by however much (AT_FIRST: where the
        ACKs' SACKs are not the receiver's own).
    """
    follower.begin(script)
    pending, made = list(script.edits), []
    for k, (row, following) in enumerate(zip(rows, [*rows[1:], len(follower.rows)], strict=False)):
        while pending and pending[0].row <= row:
            follower.run(pending[0].row)
            follower.edit(pending[0])
            made.append(pending.pop(0))
        follower.run(row)
        full = limited[
            np.searchsorted(limited, row, "right") : np.searchsorted(limited, min(following, row + MOST_ROWS))
        ]
        since = rows[k - 1] if k else -1
        latest = limited[np.searchsorted(limited, since, "right") : np.searchsorted(limited, row, "right")][-LATEST:]
        excesses = _beyond(follower, latest) if k < at_first else ()
        less = min(excesses, default=0) if len(latest) == LATEST else 0
        by = _nearest(follower, full, (*NEAR, *excesses)) if len(full) >= FEW else min(less, 0)
        if by:
            made.append(Edit(row, "snd_cwnd", by))
            follower.edit(made[-1])
    return script._replace(edits=[*made, *pending])


def _beyond(follower: Follower, latest: NDArray[np.int64]) -> tuple[int, ...]:
    """Return by how many segments more the largest of the latest flights is than the window, if that is not near."""
    if not len(latest):
        return ()
    by = int(follower.rows.rs_prior_in_flight[latest].max()) - follower.get("snd_cwnd")
    return (by,) if abs(by) > max(NEAR) else ()


def _nearest(follower: Follower, full: NDArray[Any], tried: Sequence[int]) -> int:
    """Return by how many segments a larger window at this row fits the flights before rows `full` clearly best."""
    saved, off = follower.save(), []
    flight = follower.rows.rs_prior_in_flight[full].astype(float)
    for by in tried:
        if follower.get("snd_cwnd") + by >= 2:
            follower.set("snd_cwnd", follower.get("snd_cwnd") + by)
            follower.run(int(full[-1]))
            distance = flight - follower.recorded["snd_cwnd"][full - 1] + WAITING
            off.append(float(np.mean(np.minimum(np.abs(distance), ASTRAY))))
            follower.restore(saved)
        else:
            off.append(np.inf)
    best = int(np.argmin(off))
    return tried[best] if off[best] < off[0] - CLEARLY else 0
