"""Which random numbers the recorded sender drew, inferred from when it sent.

BBR v1 enters PROBE_BW at a random phase of its gain cycle. No counter tells which; the sends do: for about a minimum
RTT the sender paces at 1.25, then at 0.75 of the bandwidth estimate. At each draw the replay tries every phase, and
keeps the one whose pacing rate, integrated, fits best to the bytes that left. What the kernel logged of its gains is
not looked at: it is what a comparison is made with.

`locked` says at which share of the cycles the sends confirm the replayed phase; elsewhere the replayed cycle may be
out of step with the recorded one.
"""

from typing import NamedTuple

import numpy as np

BINS_PER_PHASE = 4
CYCLES = 3  # of the gain cycle are compared: a phase lasts about a min_rtt, and errors add up over more
CYCLE_PHASES = 8
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
MIN_BIN_US = 1_000  # shorter ones would show single bursts


class Phase(NamedTuple):
    """One inferred draw: at which row, which of the choices, its misfit and that of the next best (0 is perfect)."""

    row: int
    choice: int
    misfit: float
    runner_up: float


class Sends(NamedTuple):
    """Cumulative bytes sent over time on the clock of a view: time in us, ascending, and bytes up to it."""

    time_us: np.ndarray
    total: np.ndarray

    @classmethod
    def of(cls, flow):
        """Return the sends of a recorded flow."""
        table, facts = flow.sends, flow.facts
        time_us = (table["time_ns"].to_numpy() - facts["start_ns"]) / 1000 + 1_000_000
        return cls(time_us, np.cumsum(table["payload"].to_numpy(), dtype=np.float64))

    def between(self, edges_us):
        """Return the bytes sent in each interval of `edges_us`."""
        index = np.searchsorted(self.time_us, edges_us, side="right")
        return np.diff(np.where(index > 0, self.total[np.maximum(index, 1) - 1], 0.0))


def follow(pacer, sends, choices):
    """Run a replay to the end of its view, choosing every first draw of a call among `choices` by the sends.

    Parameters
    ----------
    pacer : Pacer
        Its player records at least ``pacing_rate``.
    sends : Sends
    choices : int
        Number of values the draw can take, equally likely.

    Returns
    -------
    list of Phase
    """
    chosen = []
    player = pacer.player
    time_us = player.view.columns["now_us"]
    while (row := pacer.run(stop_at_draw=True)) < len(player.view):
        before = pacer.save()
        span = CYCLES * CYCLE_PHASES * player.field("min_rtt_us")
        end_us = time_us[row] + min(max(span, MIN_SPAN_US), MAX_SPAN_US)
        stop = max(int(np.searchsorted(time_us, end_us)), row + 1)
        edges = _edges(time_us[row], end_us, player.field("min_rtt_us"))
        misfits = []
        for choice in range(choices):
            player.set_draw(row, raw_draw(choice, choices))
            pacer.run(stop)
            misfits.append(_misfit(time_us[row:stop], player.recorded["pacing_rate"][row:stop], sends, edges))
            pacer.restore(before)
        order = np.argsort(misfits, kind="stable")
        player.set_draw(row, raw_draw(int(order[0]), choices))
        pacer.run(row + 1)
        chosen.append(Phase(row, int(order[0]), float(misfits[order[0]]), float(misfits[order[1]])))
    return chosen


def raw_draw(choice, choices):
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


def _edges(begin_us, end_us, min_rtt_us):
    width = max(min_rtt_us / BINS_PER_PHASE, MIN_BIN_US)
    return np.arange(begin_us, end_us + width, width)


def paced_bytes(time_us, rate_Bps, edges_us):
    """Return the bytes that pacing at `rate_Bps`, in force from each `time_us` on, lets go in each interval."""
    steps = np.diff(time_us, append=max(edges_us[-1], time_us[-1]))
    total = np.concatenate([[0.0], np.cumsum(np.maximum(rate_Bps, 0) * steps / 1e6)])
    at = np.interp(edges_us, np.append(time_us, max(edges_us[-1], time_us[-1])), total)
    return np.diff(at)


def _misfit(time_us, rate_Bps, sends, edges_us):
    """Relative absolute difference between what left and what pacing would have let go."""
    sent = sends.between(edges_us)
    return float(np.abs(sent - paced_bytes(time_us, rate_Bps, edges_us)).sum() / max(sent.sum(), 1.0))


def locked(time_us, rate_Bps, min_rtt_us, sends):
    """Return the share of gain cycles at which the replayed pacing rate is in step with the sends.

    Each cycle is compared as it is and shifted by up to half a cycle; it is in step if it fits best unshifted or
    shifted by one phase (a window-limited sender shows a phase one RTT late). Of cycles that the sends do not show at
    all, 3 in 8 pass.

    Parameters
    ----------
    time_us, rate_Bps, min_rtt_us : ndarray, shape (n,)
        Of PROBE_BW rows of the replay, ascending in time.
    sends : Sends

    Returns
    -------
    float
        NaN if there are fewer than two cycles.
    """
    typical = max(float(np.median(min_rtt_us)), BINS_PER_PHASE * MIN_BIN_US)
    if not len(time_us) or time_us[-1] - time_us[0] < 2 * CYCLE_PHASES * typical:
        return np.nan
    edges = _edges(time_us[0], time_us[-1], typical)
    starts = np.arange(0, len(edges) - 1, CYCLE_PHASES * BINS_PER_PHASE)
    sent = sends.between(edges)
    shifts = np.arange(-CYCLE_PHASES // 2, CYCLE_PHASES // 2)
    misfits = [
        np.add.reduceat(np.abs(sent - paced_bytes(time_us + shift * typical, rate_Bps, edges)), starts)
        for shift in shifts
    ]
    return float(np.mean(np.abs(shifts[np.argmin(misfits, axis=0)]) <= 1))
