"""What a recorded flow's next calls see of what its replay decided before: departure times, and PROBE_RTT's marks.

A controller since Linux 5.1 reads `tcp_wstamp_ns`, the earliest departure time of the next segment: what the sender has
paced ahead does not count as in flight. The capture shows when segments left, the replay at which rate they were
paced; [Linux61] tcp_update_skb_after_send does the rest. Because the rates follow from the replay itself, `Pacer` runs
it in short slices, each with the rate in force at its start.

In PROBE_RTT a BBR has everything that it sends marked application-limited, because rates of four packets in flight say
nothing about the path. A capture does not show the marks: samples of what was sent in the replay's PROBE_RTT get them.
The long-term sampling of a policed rate, for one, starts afresh with each [Linux61] bbr_update_min_rtt,
bbr_lt_bw_sampling.
"""

import numpy as np
from numba import njit

from cctrace.schema import LINUX_EVENTS

FREE_SEGMENTS = 10  # the first of a connection are not paced [Linux61]
SAME_SKB_NS = 50_000  # segments this close left in one super-packet: a slow machine takes 15 us between two
SLICES_PER_RTT = 16
MIN_SLICE_US = 500


@njit(cache=True)
def _departures(sent_ns, payload, first, last, rate_Bps, wstamp, out):
    """Fill out[first:last] with the earliest departure time after each segment, paced at `rate_Bps`."""
    k = first
    while k < last:
        begin = k
        length = 0
        while k < last and (k == begin or sent_ns[k] - sent_ns[k - 1] < SAME_SKB_NS):
            length += payload[k]
            k += 1
        late = max(sent_ns[begin] - wstamp, 0)
        wstamp = sent_ns[begin]  # nothing leaves before its time, so an estimate beyond it was wrong
        if rate_Bps > 0 and k >= FREE_SEGMENTS:
            span = length * 1_000_000_000 // rate_Bps
            wstamp += span - min(span // 2, late)  # credit for the time that the timer was late
        for j in range(begin, k):
            out[j] = wstamp
    return wstamp


class Pacer:
    """A `Player` over a recorded flow whose `wstamp_ns` follows from its own pacing rates and the recorded sends.

    Parameters
    ----------
    player : Player
        Of a controller with the fields ``pacing_rate``, ``min_rtt_us`` and ``mode``, which is recorded; the columns
        `wstamp_ns` and `rs_is_app_limited` of its view are overwritten.
    sends : DataFrame
        `time_ns` and `payload` of what left, ascending in time (`Flow.sends`).
    """

    def __init__(self, player, sends):
        self.player = player
        self._time_ns = player.view.time_ns
        self._clock_ns = player.view.columns["clock_ns"]
        self._sent_ns = sends["time_ns"].to_numpy()
        self._payload = sends["payload"].to_numpy().astype(np.int64)
        self._after = np.empty(len(self._sent_ns), np.int64)
        self._wstamp = int(self._sent_ns[0]) if len(self._sent_ns) else 0
        self._known = 0  # sends with a departure time
        self._marks = []  # (first, last) count of delivered segments at which what was sent got marked
        self._limited = player.view.columns["rs_is_app_limited"]
        self._observed = self._limited.copy()
        self._prior = np.maximum.accumulate(player.view.columns["rs_prior_delivered"])
        self._probe_rtt = player.controller.states.index("PROBE_RTT")

    def run(self, stop=None, stop_at_draw=False):
        """Run the player as `Player.run` does; return the next row."""
        rows = len(self.player.view)
        stop = rows if stop is None else min(stop, rows)
        while self.player.row < stop:
            row = self.player.row
            slice_us = max(min(self.player.field("min_rtt_us"), 1_000_000) / SLICES_PER_RTT, MIN_SLICE_US)
            end = int(np.searchsorted(self._time_ns, self._time_ns[row] + int(slice_us * 1000)))
            end = min(max(end, row + 1), stop)
            self._pace(row, end)
            self.player.run(end, stop_at_draw)
            self._mark(row, self.player.row)
            if self.player.row < end:
                break
        return self.player.row

    def _mark(self, row, end):
        """Mark the samples of what was sent while rows [row, end) were in PROBE_RTT, or entered or left it."""
        first = max(row - 1, 0)
        probing = self.player.recorded["mode"][first:end] == self._probe_rtt
        probing[1:] |= probing[:-1]
        view = self.player.view
        acks = first + np.flatnonzero(probing & (view.event[first:end] == LINUX_EVENTS["on_ack"]))
        acks = acks[acks >= row]
        if not len(acks):
            return
        names = ("delivered", "packets_out", "sacked_out", "lost_out", "retrans_out")
        delivered, out, sacked, lost, again = (int(view.columns[name][acks[-1]]) for name in names)
        begin = int(view.columns["delivered"][acks[0]])
        if self._marks and begin <= self._marks[-1][1]:
            begin = self._marks.pop()[0]
        self._marks.append((begin, delivered + out - sacked - lost + again))
        self._write_mark(end, *self._marks[-1])

    def _write_mark(self, row, begin, end):
        rows = slice(row, int(np.searchsorted(self._prior, end, side="right")))
        prior = self.player.view.columns["rs_prior_delivered"][rows]
        self._limited[rows][(prior >= begin) & (prior <= end)] = 1

    def _pace(self, row, end):
        """Write the departure times that rows [row, end) see."""
        last = int(np.searchsorted(self._sent_ns, self._time_ns[end - 1], side="right"))
        if last > self._known:
            rate = self.player.field("pacing_rate")
            span = (self._sent_ns, self._payload, self._known, last)
            self._wstamp = _departures(*span, rate, self._wstamp, self._after)
            self._known = last
        time_ns = self._time_ns[row:end]
        sent = np.searchsorted(self._sent_ns, time_ns, side="right") - 1
        held = np.where(sent >= 0, self._after[np.maximum(sent, 0)] - time_ns, 0) if last else 0
        self.player.view.columns["wstamp_ns"][row:end] = self._clock_ns[row:end] + np.maximum(held, 0)

    def save(self):
        """Return position and state, for `restore`."""
        return self.player.save(), self._wstamp, self._known, list(self._marks)

    def restore(self, saved):
        """Go back to where `save` was called."""
        state, self._wstamp, self._known, marks = saved
        self.player.restore(state)
        if marks != self._marks:
            self._marks = list(marks)
            self._limited[:] = self._observed
            for mark in marks:
                self._write_mark(0, *mark)
