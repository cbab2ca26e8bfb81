"""A script by time instead of rows, for a pass through fq, whose rows are not known yet."""

from typing import NamedTuple

import numpy as np

from cctrace.columns import Ints
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script


class Timed(NamedTuple):
    """A `Script` by time; the last three are as there."""

    draws: Ints  # time (ns, capture clock), and four raw random numbers; shape (n, 5)
    edits: Ints  # time (ns, capture clock), slot, increment; shape (m, 3)
    hz: int
    tick_us: int
    paced: int | None


def timed(script: Script, follower: Follower) -> Timed:
    """Return a script of a follower by time."""
    time_ns = follower.events["time_ns"]
    draws = np.array(script.draws, np.int64).reshape(-1, 5)
    draws = draws[draws[:, 0] >= 0]
    draws[:, 0] = time_ns[draws[:, 0]]
    made = [edit for edit in script.edits if edit.row < len(time_ns)]  # one after the last row changes nothing
    edits = np.array([(time_ns[one.row], follower.slot(one.field), one.value) for one in made], np.int64).reshape(-1, 3)
    return Timed(draws, edits, script.hz, script.tick_us, script.paced)
