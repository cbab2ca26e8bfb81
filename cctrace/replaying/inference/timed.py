"""What was inferred, by time: for a pass whose rows are not known yet."""

from typing import NamedTuple

import numpy as np

from cctrace.columns import Ints
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script


class Timed(NamedTuple):
    """A `Script` by time."""

    draws: Ints  # time (ns, capture clock), and four raw numbers; shape (n, 5)
    edits: Ints  # time, slot, increment; shape (m, 3)
    # hz, tick_us, paced: as in `Script`
    hz: int
    tick_us: int
    paced: int | None


def timed(script: Script, follower: Follower) -> Timed:
    """Return a script of a follower by time."""
    time_ns = follower.events["time_ns"]
    draws = np.array(script.draws, np.int64).reshape(-1, 5)
    draws = draws[draws[:, 0] >= 0]
    draws[:, 0] = time_ns[draws[:, 0]]
    made = [e for e in script.edits if e.row < len(time_ns)]  # one after the last row changes nothing
    edits = np.array([(time_ns[e.row], follower.slot(e.field), e.value) for e in made], np.int64).reshape(-1, 3)
    return Timed(draws, edits, script.hz, script.tick_us, script.paced)
