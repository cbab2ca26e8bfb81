"""Window before each reduction, to a segment, inferred from the flights after it.

An error of one segment in the replay of an unpaced controller (an ACK's exact number of delivered segments, a tick)
persists through ssthresh, and for CUBIC through its plateau: whether a window fell short of the last one, by one
segment, decides how far it will grow. But a cwnd-limited sender fills its window, up to a segment that waits for a
second one, so the flights up to the next reduction reveal the window. Only a difference of NEAR segments is tried,
and the reduction's factor is never changed: another controller's windows stay wrong.
"""

from collections.abc import Sequence

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit, Script

NEAR = (0, -1, 1, -2, 2)  # segments
MAX_ROWS = 20_000  # used per reduction
WAITING = 0.25  # segments typically waiting
ASTRAY = 4.0  # segments: larger errors are outliers
CLEARLY = 0.2  # segments, in the mean of FEW flights or more
FEW = 8
AT_FIRST = 3  # reductions
LATEST = 6  # ACKs before a reduction whose largest flight stands for the window


def set_right(follower: Follower, script: Script, rows: Sequence[int], limited: Ints, at_first: int = 0) -> Script:
    """Return a script with the windows before reductions corrected by the flights after them.

    `follower`: at row 0, of a controller without `on_ack`, that records "snd_cwnd"; it is run. `script`: values
    inferred so far. Ascending: `rows` of the calls that return ssthresh, and `limited`, rows of ACKs before which the
    sender was cwnd-limited. Before the `at_first` first reductions the window may be set to the data in flight, by any
    difference (AT_FIRST: if the ACKs' SACKs are reconstructed).
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
    """Return by how much the largest of the latest flights exceeds the window, if beyond NEAR."""
    if not len(latest):
        return ()
    by = int(follower.rows.at("rs_prior_in_flight", latest).max()) - follower.get("snd_cwnd")
    return (by,) if abs(by) > max(NEAR) else ()


def _nearest(follower: Follower, full: Values, tried: Sequence[int]) -> int:
    """Return the increase of the window at this row that fits the flights before rows `full` clearly best."""
    saved, off = follower.save(), []
    flight = follower.rows.at("rs_prior_in_flight", full).astype(float)
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
