"""Where in its gain cycle the recorded sender was, inferred from when it sent.

BBR v1 enters PROBE_BW at a random phase of its gain cycle. No counter tells which; the sends do: for about a minimum
RTT the sender paces at 1.25, then at 0.75 of the bandwidth estimate. At each draw the replay tries every phase, and
keeps the one whose pacing rate, integrated, fits best to the bytes that left. Later, a phase that ends upon another ACK
than it did in the kernel (microseconds decide, and ACKs may come in clumps) would leave the replay out of step until
the next draw; so at each cycle it tries whether the cycle, shifted, fits clearly better. What the kernel logged of its
gains is not looked at: it is what a comparison is made with.

`locked` says at which share of the cycles the sends confirm the replayed phase; elsewhere the replayed cycle may be
out of step with the recorded one.
"""

from typing import NamedTuple

import numpy as np

BINS_PER_PHASE = 4
CYCLES = 3  # of the gain cycle are compared: a phase lasts about a min_rtt, and errors add up over more
CYCLE_PHASES = 8
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
SHIFTS = (0.0, -1.0, -0.5, 0.5, 1.0)  # minimum RTTs by which a running cycle may be found to be late
SHIFT_CYCLES = 2
CLEARLY = 0.9  # times the misfit of the cycle as it is: less would follow the noise of sends that the window limits
MIN_BIN_US = 1_000  # shorter ones would show single bursts


class Phase(NamedTuple):
    """One inference: at which row, what, its misfit and that of the next best (0 is perfect).

    `choice` is the value drawn, or None where a running cycle was shifted by `shift` minimum RTTs.
    """

    row: int
    choice: int | None
    misfit: float
    runner_up: float
    shift: float = 0.0


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
    """Run a replay to the end of its view, in step with the sends.

    Parameters
    ----------
    pacer : Pacer
        Its player records at least ``pacing_rate``; the controller is a BBR v1.
    sends : Sends
    choices : int
        Number of values the draw can take, equally likely.

    Returns
    -------
    list of Phase
        What was inferred, in order.
    """
    follower = _Follower(pacer, sends, choices)
    player, rows = pacer.player, len(pacer.player.view)
    while player.row < rows:
        if player.field("mode") == follower.probe_bw:
            follower.keep_in_step()
            stop = follower.after(CYCLE_PHASES * player.field("min_rtt_us"))
        else:
            stop = follower.after(MIN_SPAN_US)
        if pacer.run(stop, stop_at_draw=True) < stop:
            follower.choose_draw()
    return follower.found


class _Follower:
    """A replay, and what its sends say about its next choice."""

    def __init__(self, pacer, sends, choices):
        self.pacer, self.player, self.sends, self.choices = pacer, pacer.player, sends, choices
        self.time_us = self.player.view.columns["now_us"]
        self.probe_bw = self.player.controller.states.index("PROBE_BW")
        self.found = []

    def after(self, span_us):
        """Return the first row later than `span_us` from now, at least the next, at most the end."""
        row = self.player.row
        return min(max(int(np.searchsorted(self.time_us, self.time_us[row] + span_us)), row + 1), len(self.time_us))

    def choose_draw(self):
        """The next call draws the phase: take the draw that fits best."""
        row = self.player.row
        span_us = min(max(CYCLES * CYCLE_PHASES * self.player.field("min_rtt_us"), MIN_SPAN_US), MAX_SPAN_US)
        draws = [raw_draw(choice, self.choices) for choice in range(self.choices)]
        misfits = [self._try(span_us, lambda draw=draw: self.player.set_draw(row, draw), False) for draw in draws]
        order = np.argsort(misfits, kind="stable")
        self.player.set_draw(row, draws[order[0]])
        self.pacer.run(row + 1)
        self.found.append(Phase(row, int(order[0]), misfits[order[0]], misfits[order[1]]))

    def keep_in_step(self):
        """Shift the running cycle if that fits clearly better to the next two."""
        span_us = SHIFT_CYCLES * CYCLE_PHASES * self.player.field("min_rtt_us")
        misfits = [self._try(span_us, lambda shift=shift: self._shift(shift), True) for shift in SHIFTS]
        best = int(np.argmin(misfits))
        if misfits[best] < CLEARLY * misfits[0]:
            self.found.append(Phase(self.player.row, None, misfits[best], misfits[0], SHIFTS[best]))
            self._shift(SHIFTS[best])

    def _shift(self, shift):
        later = int(shift * self.player.field("min_rtt_us"))
        self.player.set_field("cycle_mstamp", self.player.field("cycle_mstamp") + later)

    def _try(self, span_us, change, until_draw):
        """Return the misfit of the next `span_us` after `change`, and take both back."""
        row, before = self.player.row, self.pacer.save()
        change()
        end = self.pacer.run(self.after(span_us), stop_at_draw=until_draw)
        end_us = min(self.time_us[row] + span_us, self.time_us[end - 1] if until_draw else np.inf)
        edges = _edges(self.time_us[row], end_us, self.player.field("min_rtt_us"))
        misfit = _misfit(self.time_us[row:end], self.player.recorded["pacing_rate"][row:end], self.sends, edges)
        self.pacer.restore(before)
        return misfit


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
    if len(edges_us) <= BINS_PER_PHASE:
        return np.inf
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
