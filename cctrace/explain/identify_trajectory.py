"""How well does a replayed controller predict what was in flight, and how fast it was sent? A likelihood that is coarse.

Where the times of departure are estimates (a capture that was not taken at the sender), single sends tell little. Over
half a round trip they tell what held the sender back:

    over(block) = max( sent / (pacing x time) - 1,  in flight / cwnd - 1 )      0 for the sender's own controller

A sender that does not pace has only the second. Both are of the larger of the two, so that they lie in [-1, 1]. Blocks
are Laplace around 0 with a scale of the flow's own, the likeliest for the candidate at hand but not below FINEST, and a
few (ASTRAY) are anything at all.

An unpaced controller is set right where the record shows its window: before each reduction (which then tells the factor
of it), and where it left slow start, which HyStart decides by microseconds that only the sender's own capture has.
"""

import numpy as np

from cctrace.cc.linux import CA_DISORDER, TCP_INFINITE_SSTHRESH
from cctrace.schema import LINUX_EVENTS

FINEST, COARSEST = 0.02, 0.6  # scales of what blocks are off
SCALES = np.geomspace(FINEST, COARSEST, 40)
ASTRAY = 0.05  # of the blocks may be off by anything
LEAST_SENT = 8  # segments of a block
LEAST_BLOCK_US = 5_000
OFF = 0.15  # share of the flight by which a window in slow start is wrong
GROWING = 1.15  # times the flight of the block before: still in slow start


class Blocks:
    """What was sent in each block of half a round trip, at least LEAST_SENT segments.

    Attributes
    ----------
    acks : ndarray of int
        Rows of the ACKs.
    edges : ndarray of int
        The ACKs, by their number, between which the blocks lie.
    """

    def __init__(self, events):
        rows, sends = events.rows, events.sends
        self.mss = max(events.meta["mss"], 1)
        self.acks = np.flatnonzero(rows["event"] == LINUX_EVENTS["on_ack"])
        self.time_us = rows["time_ns"][self.acks] / 1e3
        self.flight = rows["rs_prior_in_flight"][self.acks].astype(float)
        self.open = rows["ca_state"][self.acks] <= CA_DISORDER
        self.free = rows["is_cwnd_limited"][self.acks] == 0  # of an unpaced sender: something else held it back
        left = np.concatenate([[0], np.cumsum(sends["segments"].astype(np.int64))])
        self.left = left[np.searchsorted(sends["row"], self.acks, side="right")].astype(float)
        self.edges = self._edges(rows)
        self.sent = np.diff(self.left[self.edges])

    def __len__(self):
        return len(self.sent)

    def _edges(self, rows):
        if len(self.acks) < 2:
            return np.zeros(1, np.int64)
        half_us = max(float(np.median(rows["srtt_us8"][self.acks])) / 16, LEAST_BLOCK_US)
        places = np.searchsorted(self.time_us, np.arange(self.time_us[0], self.time_us[-1], half_us))
        kept = [0]
        for place in np.unique(places).tolist():
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
        more = (self.flight - allowed) / np.maximum(np.maximum(self.flight, allowed), 1)
        window = np.array([np.median(more[a + 1 : b + 1]) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)])
        rate = pacing_Bps[before]
        if not np.any(rate > 0):
            idle = np.array([np.mean(self.free[a + 1 : b + 1]) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)])
            return np.where(idle > 0.5, np.maximum(window, 0), window)  # held back by something else
        paced = np.cumsum(rate * np.diff(self.time_us, prepend=self.time_us[:1]) * 1e-6 / (self.mss + overhead_bytes))
        paced = np.diff(paced[self.edges])
        return np.maximum((self.sent - paced) / np.maximum(np.maximum(self.sent, paced), 1), window)


def likelihoods(over):
    """Return the log likelihood of each block, at the likeliest scale, and that scale.

    Parameters
    ----------
    over : ndarray
        See `Blocks.over`.
    """
    off = np.abs(over)[:, None]
    each = np.log((1 - ASTRAY) * np.exp(-off / SCALES) / (2 * SCALES) + ASTRAY / 2)
    best = int(np.argmax(each.sum(axis=0)))
    return each[:, best], float(SCALES[best])


def play(follower, script, blocks, set_right):
    """Call all rows with what was inferred; return cwnd and pacing rate after each.

    Parameters
    ----------
    follower : Follower
        At row 0, recording both.
    script : Script
    blocks : Blocks
    set_right : bool
        Whether to set windows to what the record shows, see above; of unpaced controllers only.
    """
    follower.begin(script)
    edits = list(script.edits)
    reductions = _reductions(follower.rows) if set_right and not hasattr(follower.cls, "on_ack") else []
    first = reductions[0] if len(reductions) else len(follower.rows)
    places = [int(blocks.acks[edge]) for edge in blocks.edges] if set_right and not hasattr(follower.cls, "on_ack") else []
    stops = [(edit.row, 0, edit) for edit in edits]
    stops += [(int(row), 1, None) for row in reductions]
    stops += [(row, 2, k) for k, row in enumerate(places) if row < first]
    for row, kind, what in sorted(stops, key=lambda stop: stop[:2]):
        follower.run(row)
        if kind == 0:
            follower.edit(what)
        elif kind == 1:
            _set_window(follower, blocks, row)
        else:
            _leave_slow_start(follower, blocks, what)
    follower.run()
    return follower.recorded["snd_cwnd"].astype(float), follower.recorded["pacing_rate"].astype(float)


def _reductions(rows):
    """Return the rows of the calls of ssthresh that a recovery begins with."""
    return np.flatnonzero((rows["event"] == LINUX_EVENTS["ssthresh"]) & (rows["ca_state"] <= CA_DISORDER))


def _set_window(follower, blocks, row):
    """Before a reduction: cwnd is what was in flight, where cwnd limited it."""
    last = int(np.searchsorted(blocks.acks, row))
    some = slice(max(last - 5, 0), last + 1)
    limited = blocks.open[some] & ~blocks.free[some]
    if limited.any():
        follower.set("snd_cwnd", max(int(np.median(blocks.flight[some][limited])), 2))


def _leave_slow_start(follower, blocks, k):
    """Before the first reduction: leave slow start when the record does, and not before."""
    edge = blocks.edges[k]
    flight, cwnd = blocks.flight[edge], follower.get("snd_cwnd")
    if k == 0 or blocks.free[edge] or flight < 2 * LEAST_SENT:
        return
    slow_start = cwnd < follower.get("snd_ssthresh")
    growing = flight > GROWING * blocks.flight[blocks.edges[k - 1]]
    if slow_start and not growing and flight < (1 - OFF) * cwnd:
        follower.set("snd_cwnd", int(flight))
        follower.set("snd_ssthresh", int(flight))
    elif not slow_start and growing and flight > (1 + OFF) * cwnd:
        follower.set("snd_cwnd", int(flight))
        follower.set("snd_ssthresh", TCP_INFINITE_SSTHRESH)
