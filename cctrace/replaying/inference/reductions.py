"""cwnd before each reduction of CUBIC or Reno, to a segment, inferred from the data in flight after it.

An error of one segment in the replay of an unpaced controller (from an ACK's number of delivered segments, or a tick)
persists in ssthresh, and in CUBIC's plateau: whether cwnd is below the last maximum, by one segment, decides how far it
will grow (fast convergence). But a cwnd-limited sender fills its window, but for a segment that waits for a second one,
so the data in flight up to the next reduction reveal cwnd. Only differences of NEAR segments are tried, and the factor
of the reduction is never changed: the windows of another controller stay wrong.
"""

from collections.abc import Sequence

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit, Script

NEAR = (0, -1, 1, -2, 2)  # segments
MAX_ROWS = 20_000  # after a reduction that are used
WAITING = 0.25  # segments that wait for a second one, on average
MAX_ERROR = 4.0  # segments; larger errors count as this, as they are outliers
CLEARLY = 0.2  # segments by which the mean error must be smaller
FEW = 8  # ACKs, at least
AT_FIRST = 3  # reductions before which any difference is possible, if SACKs are reconstructed
LATEST = 6  # ACKs before a reduction; the most that was in flight before them is about cwnd


def set_right(follower: Follower, script: Script, rows: Sequence[int], limited: Ints, at_first: int = 0) -> Script:
    """Return a script that also corrects cwnd before reductions, by the data in flight after them.

    `follower`: at row 0, of a controller without `on_ack`, that records "snd_cwnd"; it is run. `script`: values
    inferred so far. Ascending: `rows` of the calls that return ssthresh, and `limited`, rows of ACKs before which the
    sender was cwnd-limited. Before the first `at_first` reductions cwnd may be set to the data in flight, whatever the
    difference.
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
            np.searchsorted(limited, row, "right") : np.searchsorted(limited, min(following, row + MAX_ROWS))
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


def _beyond(follower: Follower, latest: Ints) -> tuple[int, ...]:
    """Return by how much the data in flight before the latest ACKs exceeded cwnd, if by more than NEAR."""
    if not len(latest):
        return ()
    by = int(follower.rows.at("rs_prior_in_flight", latest).max()) - follower.get("snd_cwnd")
    return (by,) if abs(by) > max(NEAR) else ()


def _nearest(follower: Follower, full: Values, tried: Sequence[int]) -> int:
    """Return the increase of cwnd at this row that fits the data in flight before rows `full` clearly best; else 0."""
    saved, off = follower.save(), []
    flight = follower.rows.at("rs_prior_in_flight", full).astype(float)
    for by in tried:
        if follower.get("snd_cwnd") + by >= 2:
            follower.set("snd_cwnd", follower.get("snd_cwnd") + by)
            follower.run(int(full[-1]))
            distance = flight - follower.recorded["snd_cwnd"][full - 1] + WAITING
            off.append(float(np.mean(np.minimum(np.abs(distance), MAX_ERROR))))
            follower.restore(saved)
        else:
            off.append(np.inf)
    best = int(np.argmin(off))
    return tried[best] if off[best] < off[0] - CLEARLY else 0
