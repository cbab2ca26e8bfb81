"""Where in its gain cycle the recorded sender was, inferred from when it sent.

BBR v1 enters PROBE_BW at a random phase of its gain cycle. No counter tells which; the sends do: for about a minimum
RTT the sender paces at 1.25, then at 0.75 of the bandwidth estimate. At each draw the replay tries every phase, and
keeps the one whose pacing rate fits best: integrated, to the bytes that left; to the sizes of the super-packets, which
TCP makes of what it may send in about a millisecond; and to the gaps that the pacing timer made. Sizes and gaps tell
the rate even where the window limits the sender. Later, a phase that ends upon another ACK
than it did in the kernel (microseconds decide, and ACKs may come in clumps) would leave the replay out of step until
the next draw; so at each cycle it tries whether the cycle, shifted, fits clearly better. What the kernel logged of its
gains is not looked at: it is what a comparison is made with.

`locked` says at which share of the cycles the sends confirm the replayed phase; elsewhere the replayed cycle may be
out of step with the recorded one.
"""

from typing import NamedTuple

import numpy as np

from cctrace.replaying import midflow
from cctrace.replaying.pacing import SAME_SKB_NS

BINS_PER_PHASE = 4
CYCLES = 3  # of the gain cycle are compared: a phase lasts about a min_rtt, and errors add up over more
CYCLE_PHASES = 8
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
SHIFTS = (0.0, -1.0, -0.5, 0.5, 1.0)  # minimum RTTs by which a running cycle may be found to be late
SHIFT_CYCLES = 2
CLEARLY = 0.9  # times the misfit of the cycle as it is: less would follow the noise of sends that the window limits
ANSWER_US = 60  # a send this soon after an ACK was released by it
GSO_MAX_SIZE = 65_536 - 321  # bytes, what a device takes less the room for headers
MIN_TSO_RATE_BPS = 150_000  # BBR sends single segments below it
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
    """What was sent, on the clock of a view: when (us, ascending) and the bytes up to then; super-packets likewise.

    A super-packet is `burst_segments` long, of `mss` bytes each, and began at `burst_us`; it was released `by_timer` if
    not by an ACK.
    """

    time_us: np.ndarray
    total: np.ndarray
    burst_us: np.ndarray = np.zeros(0)
    burst_segments: np.ndarray = np.zeros(0, np.int64)
    by_timer: np.ndarray = np.zeros(0, bool)
    mss: int = 1

    @classmethod
    def of(cls, flow):
        """Return the sends of a recorded flow."""
        table, facts = flow.sends, flow.facts
        time_ns, payload, psh = (table[name].to_numpy() for name in ("time_ns", "payload", "psh"))
        time_us = (time_ns - facts["start_ns"]) / 1000 + 1_000_000
        begins = np.ones(len(table), bool)
        begins[1:] = psh[:-1] | (np.diff(time_ns) >= SAME_SKB_NS)
        first = np.flatnonzero(begins)
        segments = -(-payload.astype(np.int64) // facts["mss"])
        bursts = np.add.reduceat(segments, first) if len(first) else segments
        acks_ns = flow.events["time_ns"][flow.events.of("on_ack")]
        last = np.searchsorted(acks_ns, time_ns[first], side="right") - 1
        by_timer = (last >= 0) & (time_ns[first] - acks_ns[np.maximum(last, 0)] > ANSWER_US * 1000)
        return cls(time_us, np.cumsum(payload, dtype=np.float64), time_us[first], bursts, by_timer, facts["mss"])

    def between(self, edges_us):
        """Return the bytes sent in each interval of `edges_us`."""
        index = np.searchsorted(self.time_us, edges_us, side="right")
        return np.diff(np.where(index > 0, self.total[np.maximum(index, 1) - 1], 0.0))

    def burst_errors(self, time_us, rate_Bps, min_rtt_us):
        """Return when super-packets left while rates are known, and by how many bytes each is off its rate.

        That is by how much its size differs, and if the timer released the next one, what the rate would have let go
        by then. That one is at most as much as the super-packet.
        """
        first, last = np.searchsorted(self.burst_us, [time_us[0], time_us[-1]])
        last = max(first, min(last, len(self.burst_us) - 1))
        burst, following = slice(first, last), slice(first + 1, last + 1)
        row = np.searchsorted(time_us, self.burst_us[burst], side="right") - 1
        sent = self.burst_segments[burst] * self.mss
        off = np.abs(sent - autosize(rate_Bps[row], min_rtt_us, self.mss) * self.mss).astype(np.float64)
        paced = (self.burst_us[following] - self.burst_us[burst]) * rate_Bps[row] / 1e6
        off += np.where(self.by_timer[following], np.minimum(np.abs(paced - sent), sent), 0)
        return self.burst_us[burst], off


def follow(pacer, sends, choices, expiry=-1):
    """Run a replay to the end of its view, in step with the sends.

    Parameters
    ----------
    pacer : Pacer
        Its player records at least ``pacing_rate``; the controller is a BBR v1.
    sends : Sends
    choices : int
        Number of values the draw can take, equally likely.
    expiry : int
        Row at which the minimum RTT expires, whatever its age in the replay (`midflow`); -1 for none.

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
        if player.row < expiry:
            stop = min(stop, expiry)
        elif player.row == expiry:
            midflow.expire_min_rtt(player)
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
        row, before, min_rtt_us = self.player.row, self.pacer.save(), self.player.field("min_rtt_us")
        change()
        end = self.pacer.run(self.after(span_us), stop_at_draw=until_draw)
        end_us = min(self.time_us[row] + span_us, self.time_us[end - 1] if until_draw else np.inf)
        misfit = _misfit(
            self.time_us[row:end], self.player.recorded["pacing_rate"][row:end], min_rtt_us, self.sends, end_us
        )
        self.pacer.restore(before)
        return misfit


def raw_draw(choice, choices):
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


def autosize(rate_Bps, min_rtt_us, mss):
    """Return of how many segments TCP makes a super-packet at a pacing rate.

    As many as leave in a 1024th of a second, on short paths more [Linux618] tcp_tso_autosize, bbr_min_tso_segs.
    """
    more = GSO_MAX_SIZE >> min(int(min_rtt_us) >> 9, 31)
    size = np.minimum(np.maximum(rate_Bps, 0).astype(np.int64) // 1024 + more, GSO_MAX_SIZE)
    return np.maximum(size // mss, np.where(rate_Bps < MIN_TSO_RATE_BPS, 1, 2))


def _edges(begin_us, end_us, min_rtt_us):
    width = max(min_rtt_us / BINS_PER_PHASE, MIN_BIN_US)
    return np.arange(begin_us, end_us + width, width)


def paced_bytes(time_us, rate_Bps, edges_us):
    """Return the bytes that pacing at `rate_Bps`, in force from each `time_us` on, lets go in each interval."""
    steps = np.diff(time_us, append=max(edges_us[-1], time_us[-1]))
    total = np.concatenate([[0.0], np.cumsum(np.maximum(rate_Bps, 0) * steps / 1e6)])
    at = np.interp(edges_us, np.append(time_us, max(edges_us[-1], time_us[-1])), total)
    return np.diff(at)


def _misfit(time_us, rate_Bps, min_rtt_us, sends, end_us):
    """Relative difference between what left and what pacing would have let go, in bytes, plus that of the sizes."""
    edges_us = _edges(time_us[0], end_us, min_rtt_us)
    if len(edges_us) <= BINS_PER_PHASE:
        return np.inf
    sent = sends.between(edges_us)
    off = np.abs(sent - paced_bytes(time_us, rate_Bps, edges_us)).sum()
    off += sends.burst_errors(time_us, rate_Bps, min_rtt_us)[1].sum()
    return float(off / max(sent.sum(), 1.0))


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
    misfits = []
    for shift in shifts:
        later = time_us + shift * typical
        when, sizes_off = sends.burst_errors(later, rate_Bps, typical)
        off = np.abs(sent - paced_bytes(later, rate_Bps, edges)) + np.histogram(when, edges, weights=sizes_off)[0]
        misfits.append(np.add.reduceat(off, starts))
    return float(np.mean(np.abs(shifts[np.argmin(misfits, axis=0)]) <= 1))
