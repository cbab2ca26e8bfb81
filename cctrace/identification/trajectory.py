"""How well does a replayed controller predict what was in flight, and how fast it was sent? A coarse likelihood.

Where the times of departure are estimates (a capture that was not taken at the sender), single sends tell little. Over
half a round trip they tell what held the sender back:

    over(block) = max( sent / (pacing x time) - 1,  in flight / cwnd - 1 )      0 for the sender's own controller

A sender that does not pace has only the second. Both are of the larger of the two, so that they lie in [-1, 1]. Blocks
are Laplace around 0 with a scale of the flow's own, the likeliest for the candidate at hand but not below FINEST, and a
few (ASTRAY) are anything at all.

An unpaced controller is set right where the record shows its window: before each reduction (which then tells the factor
of it), where it left slow start, which HyStart decides by microseconds that only the sender's own capture has, and
where a reduction seems to have been undone but was not: time stamps tell the sender alone what it sent in vain.
"""

import numpy as np

from cctrace.cc.linux import CA_DISORDER, TCP_INFINITE_SSTHRESH
from cctrace.replaying.intervals import firsts_of_intervals
from cctrace.schema import LINUX_EVENTS

FINEST, COARSEST = 0.02, 0.6  # scales of what blocks are off
SCALES = np.geomspace(FINEST, COARSEST, 40)
ASTRAY = 0.05  # of the blocks may be off by anything
LEAST_SENT = 16  # segments of a block
SLACK = 1.0  # segments that a count may be off: which ACK came before which send is not known for sure
LEAST_BLOCK_US = 5_000
LEAST_AFTER = 2  # open blocks after a reduction that tell of it
OFF = 0.15  # share of the flight by which a window in slow start is wrong
MANY_BLOCKS, MOSTLY_FULL, USUALLY_FULL = 100, 0.8, 0.9  # of the largest flight: a tenth and half of the others
HELD_BACK = 0.8  # of the ACKs
GROWING = 1.15  # times the flight of the block before: still in slow start


class Blocks:
    """What was sent in each block of half a round trip, at least LEAST_SENT segments.

    Attributes
    ----------
    acks : ndarray of int
        Rows of the ACKs.
    edges : ndarray of int
        The ACKs, by their number, between which the blocks lie.
    held_back : bool
        Whether mostly something else than cwnd held the sender, in a capture that was not taken there.
    """

    def __init__(self, events):
        rows, sends = events.rows, events.sends
        self.mss = max(events.meta["mss"], 1)
        self.acks = np.flatnonzero(rows["event"] == LINUX_EVENTS["on_ack"])
        self.time_us = rows["time_ns"][self.acks] / 1e3
        self.flight = rows["rs_prior_in_flight"][self.acks].astype(float)
        self.open = rows["ca_state"][self.acks] <= CA_DISORDER
        self.free = rows["is_cwnd_limited"][self.acks] == 0  # of an unpaced sender: something else held it back
        reduces = (rows["event"] == LINUX_EVENTS["ssthresh"]) & (rows["ca_state"] <= CA_DISORDER)
        self.reductions = np.flatnonzero(reduces)  # rows of the calls that a recovery begins with
        self.idle = np.zeros(len(self.acks), bool)  # the application had nothing more to send
        waited = sends["row"][sends["app_limited"] != 0]
        if len(self.acks):
            self.idle[np.minimum(np.searchsorted(self.acks, waited), len(self.acks) - 1)] = True
        left = np.concatenate([[0], np.cumsum(sends["segments"].astype(np.int64))])
        self.left = left[np.searchsorted(sends["row"], self.acks, side="right")].astype(float)
        self.edges = self._edges(rows)
        self.sent = np.diff(self.left[self.edges])
        self.busy = self.each(self.idle) == 0  # blocks in which the application always had more to send
        elsewhere = "start_ns" in events.meta["inferred"]
        if elsewhere and self._is_steady():
            self.free[:] = True
        self.held_back = elsewhere and bool(np.mean(self.free) > HELD_BACK)

    def __len__(self):
        return len(self.sent)

    def _is_steady(self):
        """Whether no loss cut a flight that hardly ever changed: a window of fixed size held the sender, not cwnd."""
        if len(self.reductions) or len(self) < MANY_BLOCKS:
            return False
        tenth, middle = np.quantile(self.each(self.flight), [0.1, 0.5])
        return bool(tenth > MOSTLY_FULL * self.flight.max() and middle > USUALLY_FULL * self.flight.max())

    def _edges(self, rows):
        if len(self.acks) < 2:
            return np.zeros(len(self.acks), np.int64)
        half_us = max(float(np.median(rows["srtt_us8"][self.acks])) / 16, LEAST_BLOCK_US)
        kept = [0]
        for place in firsts_of_intervals(self.time_us, half_us).tolist():
            if self.left[place] - self.left[kept[-1]] >= LEAST_SENT:
                kept.append(place)
        return np.array(kept)

    def over(self, cwnd, pacing_Bps, overhead_bytes=0):
        """Return by which share of what a controller allowed each block exceeded it (below 0: fell short of it).

        Parameters
        ----------
        cwnd, pacing_Bps : ndarray
            After each row of the stream; a rate of 0 or less is none.
        overhead_bytes : int
            Of each segment, that pacing counts.
        """
        before = np.maximum(self.acks - 1, 0)
        allowed = cwnd[before]
        window = self.each(_share(self.flight, allowed, SLACK))
        rate = pacing_Bps[before]
        if not np.any(rate > 0):
            return np.where(self.each(self.free) > 0.5, np.maximum(window, 0), window)
        paced = np.cumsum(rate * np.diff(self.time_us, prepend=self.time_us[:1]) * 1e-6 / (self.mss + overhead_bytes))
        paced = np.diff(paced[self.edges])
        return np.maximum(_share(self.sent, paced, SLACK / 2), window)

    def each(self, values):
        """Return the mean of the values at the ACKs of each block."""
        if len(self.edges) < 2:
            return np.zeros(0)
        sums = np.add.reduceat(values[: self.edges[-1] + 1].astype(float), self.edges[:-1] + 1)
        return sums / np.diff(self.edges)

    def after_reductions(self, over):
        """Return by how much the first open block after a reduction is over, the median, and of how many; else NaN."""
        reduced = np.searchsorted(self.acks, self.reductions)
        whole = self.each(self.open) == 1
        found = []
        for begin, end in zip(reduced, np.append(reduced, len(self.acks))[1:], strict=True):
            inside = np.flatnonzero((self.edges[:-1] >= begin) & (self.edges[1:] <= end) & whole)
            if len(inside) >= LEAST_AFTER:
                found.append(over[inside[0]])
        return (float(np.median(found)) if found else np.nan), len(found)


def _share(seen, allowed, slack):
    """Return by which share of the larger number of segments the two differ, beyond some slack."""
    apart = seen - allowed
    return np.sign(apart) * np.maximum(np.abs(apart) - slack, 0) / np.maximum(np.maximum(seen, allowed), 1)


def likelihoods(over):
    """Return the log likelihood of each block, at the likeliest scale, and that scale (COARSEST without any block).

    Parameters
    ----------
    over : ndarray
        See `Blocks.over`.
    """
    if not len(over):
        return np.zeros(0), COARSEST
    off = np.abs(over)[:, None]
    each = np.log((1 - ASTRAY) * np.exp(-off / SCALES) / (2 * SCALES) + ASTRAY / 2)
    best = int(np.argmax(each.sum(axis=0)))
    return each[:, best], float(SCALES[best])


def play(follower, script, blocks):
    """Call all rows with what was inferred, and set an unpaced controller right, see above.

    Parameters
    ----------
    follower : Follower
        At row 0.
    script : Script
    blocks : Blocks
    """
    follower.begin(script)
    stops = [(edit.row, 0, edit) for edit in script.edits]
    if not hasattr(follower.cls, "on_ack"):
        reductions = blocks.reductions.tolist()
        first = reductions[0] if reductions else len(follower.rows)
        stops += [(row, 1, None) for row in reductions]
        places = blocks.acks[blocks.edges].tolist()
        stops += [(row, 2, k) for k, row in enumerate(places) if row < first]
        stops += [(int(row), 3, None) for row in np.flatnonzero(follower.rows["event"] == LINUX_EVENTS["undo_cwnd"])]
    for row, kind, what in sorted(stops, key=lambda stop: stop[:2]):
        follower.run(row)
        if kind == 0:
            follower.edit(what)
        elif kind == 1:
            _set_window(follower, blocks, row)
        elif kind == 2:
            _leave_slow_start(follower, blocks, what)
        else:
            _undo(follower, blocks, row)
    follower.run()


def _set_window(follower, blocks, row):
    """Before a reduction: cwnd is what was in flight, where cwnd limited it."""
    last = int(np.searchsorted(blocks.acks, row))
    some = slice(max(last - 5, 0), last + 1)
    limited = blocks.open[some] & ~blocks.free[some]
    if limited.any():
        follower.set("snd_cwnd", max(int(np.median(blocks.flight[some][limited])), 2))


def _undo(follower, blocks, row):
    """Take a reduction back only if the flights of the next round trip are as large as before it."""
    reduced = follower.get("snd_cwnd"), follower.get("snd_ssthresh")
    follower.run(row + 1)
    begin = int(np.searchsorted(blocks.acks, row))
    end = int(np.searchsorted(blocks.left, blocks.left[min(begin, len(blocks.left) - 1)] + reduced[0]))
    later = blocks.flight[begin:end][blocks.open[begin:end] & ~blocks.free[begin:end]]
    if len(later) and abs(np.median(later) - reduced[0]) < abs(np.median(later) - follower.get("snd_cwnd")):
        follower.set("snd_cwnd", reduced[0])
        follower.set("snd_ssthresh", reduced[1])


def _leave_slow_start(follower, blocks, k):
    """Before the first reduction: leave slow start when the record does, and not before."""
    edge = blocks.edges[k]
    flight, cwnd = blocks.flight[edge], follower.get("snd_cwnd")
    if k == 0 or blocks.free[edge] or flight < LEAST_SENT:
        return
    slow_start = cwnd < follower.get("snd_ssthresh")
    growing = flight > GROWING * blocks.flight[blocks.edges[k - 1]]
    if slow_start and not growing and flight < (1 - OFF) * cwnd:
        follower.set("snd_cwnd", int(flight))
        follower.set("snd_ssthresh", int(flight))
    elif not slow_start and growing and flight > (1 + OFF) * cwnd:
        follower.set("snd_cwnd", int(flight))
        follower.set("snd_ssthresh", TCP_INFINITE_SSTHRESH)
