"""At which loss of STARTUP BBR v1 began the interval sampling by which it detects a policer.

bbr_lt_bw_sampling begins at a loss, computes the rates of intervals of four rounds or more, each from loss to loss, and
takes them for a policer's as soon as two agree. An application-limited sample resets it to the next loss. In STARTUP a
sender that fills its send buffer each time room returns may be application-limited, and the capture does not show it
(`startup`), so the sampling may have begun at any loss of STARTUP. Each gives other intervals, and thus a policer that
is detected at another ACK, with another rate. BBR paces 48 rounds by that rate: the sends tell which it was.

Sources: [Linux618] net/ipv4/tcp_bbr.c bbr_lt_bw_sampling.
"""

import math
from collections.abc import Mapping

import numpy as np

from cctrace.cc.bbr1_model import CYCLE_LEN, GAIN_UNIT, LT_LOSS_THRESH, LT_MIN_ROUNDS
from cctrace.columns import Ints
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import MOST, Follower
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, LARGEST_DRAW, Inference

POLICED, POLICED_BW, SAMPLING = "lt_use_bw", "lt_bw", "lt_is_sampling"
SEARCH = (SAMPLING, POLICED_BW, "lt_rtt_cnt", "lt_last_delivered", "lt_last_stamp", "lt_last_lost")
LONGEST_SEARCH = 2 * 4 * LT_MIN_ROUNDS  # rounds of two intervals, at most
MAX_SEARCHES = 128  # losses at which sampling is tried to begin; of more, evenly spaced ones
SPAN_RTTS = 2 * CYCLE_LEN  # over which sends show a policer's rate


class Policers:
    """The policers that a BBR v1 would detect if its sampling had begun at other losses of STARTUP."""

    def __init__(self, work: Inference, follower: Follower) -> None:
        self._work, self._follower, self._beginning = work, follower, follower.save()
        self._found: dict[int, list[dict[str, int]]] = {}  # {row at which one is detected: fields (SEARCH) before it}
        self._tried = 1

    @property
    def next_row(self) -> int:
        """The next row at which one would be detected; the number of rows if none would, or one has been."""
        if self._found and self._follower.get(POLICED):
            self._found.clear()
        return min(self._found, default=len(self._follower.rows))

    def look(self) -> None:
        """Find out when each would be detected; the follower, in STARTUP or at its end, stays where it is."""
        follower = self._follower
        if POLICED not in follower.fields or not np.any(follower.stream.tables[2]["rs_losses"]):
            return
        here, end = follower.save(), self._end_of_startup()
        follower.restore(self._beginning)
        losses, last = self._losses(end)
        usual = self._search(last) if len(losses) else None
        follower.restore(self._beginning)
        for row in losses[1:].tolist():
            self._run(row)
            if follower.get(POLICED):
                break
            before, found = follower.save(), self._search(last)
            if found is not None and found != usual and found[0] >= here[0]:
                self._found.setdefault(found[0], []).append(found[1])
            follower.restore(before)
        self._tried = max(sum(map(len, self._found.values())), 1)
        follower.restore(here)

    def likeliest(self) -> Mapping[str, int]:
        """Return what to add to fields so that the sends are likeliest, of those samplings that end at `next_row`."""
        follower = self._follower
        now = [follower.get(name) for name in SEARCH]
        changes: list[dict[str, int]] = [{}]
        for search in self._found.pop(follower.row)[: MOST - 1]:
            changes.append(
                {name: search[name] - old for name, old in zip(SEARCH, now, strict=True) if search[name] != old}
            )
        span = self._work.after(SPAN_RTTS * follower.get("min_rtt_us"))
        likelihood, ends, _ = follower.trials(span, changes=changes)
        best = int(np.argmax(likelihood))
        sure = likelihood[best] - likelihood[0] > math.log(self._tried / FALSE_ALARM)
        return changes[best] if sure and ends.min() == ends.max() else {}

    def _end_of_startup(self) -> int:
        """Return the row that ends STARTUP: this one if it has ended."""
        follower = self._follower
        if follower.get("mode") != follower.cls.states.index("STARTUP"):
            return follower.row
        watch = ("mode", follower.cls.states.index("DRAIN"))
        return int(follower.trials(len(follower.rows), [(LARGEST_DRAW,)], score=cx.NOTHING, watch=watch)[1][0])

    def _losses(self, end: int) -> tuple[Ints, int]:
        """Return ACKs before row `end` that report losses, and the row at which samplings from there end at the latest.

        No ACKs if no later round loses as much as at a policer; evenly spaced ones if there are many.
        """
        follower, events = self._follower, self._follower.events
        losses = np.flatnonzero(follower.stream.is_ack[:end] & (events.stream.column("rs_losses", 0, end) > 0))
        if not len(losses):
            return losses, end
        srtt_us = max(follower.srtt_us(int(losses[0])), 1)
        times_us = follower.now_us[losses[0]] + srtt_us * np.arange(LT_MIN_ROUNDS, LONGEST_SEARCH + 1)
        rounds = np.minimum(follower.now_us.searchsorted(times_us), len(follower.rows) - 1)
        lost, delivered = (np.diff(events.at(name, rounds).astype(np.int64)) for name in ("lost", "delivered"))
        if not np.any((lost > 0) & (lost * GAIN_UNIT >= LT_LOSS_THRESH * delivered)):
            return losses[:0], end
        some = np.linspace(0, len(losses) - 1, min(len(losses), MAX_SEARCHES)).astype(int)
        return losses[some], self._work.rounds_after(LONGEST_SEARCH, srtt_us, end)

    def _search(self, last: int) -> tuple[int, dict[str, int]] | None:
        """Begin the sampling anew at the follower's row, and follow it up to row `last`.

        Returns the row at which a policer is detected, and the fields before its call; None if none is.
        """
        follower = self._follower
        follower.set(SAMPLING, 0)
        follower.set(POLICED_BW, 0)
        while follower.row < last:
            _, (end,), (is_found,) = follower.trials(last, changes=[{}], score=cx.NOTHING, watch=(POLICED, 1))
            if is_found:
                self._run(int(end) - 1)
                return follower.row, {name: int(follower.get(name)) for name in SEARCH}
            self._run(int(end))
        return None

    def _run(self, stop: int) -> None:
        """Run up to `stop` with any draws: the sampling does not depend on them."""
        while self._follower.run(stop) < stop:
            self._follower.draw((LARGEST_DRAW,))
