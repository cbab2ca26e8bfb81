"""Limits and events of a flow from polls of its counters alone, without packets.

What the kernel accounts for (time with data, time limited by the receive window and the send buffer,
retransmissions, reordering) is as accurate as from packets, however rare the polls. What follows from joint changes
of rate, RTT and losses needs several polls per change. `polled_facts` has the facts for the rules; docs/explain.md
has the accuracy by poll interval.
"""

import functools
import itertools

import numpy as np

from cctrace.cc import is_model_based
from cctrace.cc.linux import CA_CWR, CA_RECOVERY, STARTUP_GAIN, TCP_INFINITE_SSTHRESH
from cctrace.columns import Bools, Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Event, Limit
from cctrace.diagnosis.limits import account
from cctrace.flows.counters import CounterFlow
from cctrace.path.changes import Change
from cctrace.path.constants import RATE_DIFFERS, STEADY_RATE
from cctrace.path.steps import jumps
from cctrace.schema import U32_MAX
from cctrace.units import format_rate


class Polls:
    """The polls of one connection as numeric columns, NaN where unknown; times in seconds since the first."""

    def __init__(self, flow: CounterFlow, controller: str | None = None) -> None:
        self.flow, self.controller = flow, controller or flow.connection.get("cc")
        self.time = flow.seconds()
        self.end = float(np.nan_to_num(flow.row["duration_s"]))

    def __getitem__(self, name: str) -> Floats:
        return self.flow.values(name)

    @functools.cached_property
    def rtt(self) -> Floats:
        """The smoothed RTT, us."""
        return self.flow.rtt_us()

    @functools.cached_property
    def least_us(self) -> float:
        """Minimum RTT, us."""
        known = np.concatenate([self["min_rtt"], self.rtt])
        known = known[(known > 0) & (known < U32_MAX)]
        return float(known.min()) if len(known) else np.nan

    @functools.cached_property
    def retransmitted(self) -> Floats:
        """Cumulative retransmitted segments, at every poll."""
        return np.maximum.accumulate(np.nan_to_num(self["total_retrans"]))

    @functools.cached_property
    def sent(self) -> float:
        """Segments sent by the last poll; NaN unknown."""
        return float(self.flow.row["segments_sent"] or np.nan)

    @property
    def is_model_based(self) -> bool:
        """Whether the controller models the path."""
        return bool((self["bbr_bw_Bps"] > 0).any()) or is_model_based(self.controller)

    @functools.cached_property
    def windows(self) -> tuple[Floats, Floats, Floats]:
        """Return (middle_s, rate_bps, rtt_us) of windows of 100 ms, an RTT, or a poll interval."""
        time_ns, acked = self.flow.acked()
        if len(acked) < 3:
            return (np.zeros(0),) * 3
        time = (time_ns - self.flow.start_ns) / 1e9
        step = max(0.1, 1.01 * float(np.median(np.diff(time))), np.nan_to_num(self.least_us) / 1e6)
        step = max(step, (time[-1] - time[0]) / (const.MAX_WINDOWS * len(time)))
        edges = np.arange(time[0], time[-1] + 1e-9, step)
        if len(edges) < 3:
            return (np.zeros(0),) * 3
        got = np.diff(np.interp(edges, time, acked.astype(float))) * 8 / step
        known = np.isfinite(self.rtt)
        middle = (edges[:-1] + edges[1:]) / 2
        rtt = np.interp(middle, self.time[known], self.rtt[known]) if known.any() else np.full(len(middle), np.nan)
        return middle, got, rtt

    def span_us(self, name: str) -> float:
        """Return the growth of a time counter since the start of the connection, us; NaN unknown."""
        column = self[name]
        return float(np.nanmax(column)) if np.isfinite(column).any() else np.nan


def limits_of(polls: Polls) -> list[Limit]:
    """Return the list of `Limit`; a single poll has one limit for the entire time."""
    time, end = polls.time, polls.end
    if len(time) < 2 or not end > 0:
        return [Limit("unknown", 0.0, end)]
    pairs = np.column_stack([time[:-1], time[1:]])
    width = np.maximum(np.diff(time), 1e-9) * 1e6

    def grew(name: str) -> Bools:
        return np.nan_to_num(np.diff(polls[name])) >= const.MOST_OF_TIME * width

    busy = polls["busy_time_us"]
    later = {name: polls[name][1:] for name in ("unacked", "snd_cwnd", "ca_state", "bbr_pacing_gain")}
    idle = np.diff(busy) < const.MOST_OF_TIME * width if np.isfinite(busy).all() else later["unacked"] == 0
    full = later["unacked"] >= const.NEARLY_ALL_SHARE * later["snd_cwnd"]
    start = (
        (polls["snd_ssthresh"][1:] >= TCP_INFINITE_SSTHRESH)
        & (polls.retransmitted[1:] == 0)
        & (not polls.is_model_based)
    )
    start |= later["bbr_pacing_gain"] > STARTUP_GAIN
    modes = polls.flow.modes()
    probing = modes[1:] == "PROBE_RTT" if modes is not None else np.zeros(len(pairs), bool)
    bubble = (polls["delivery_rate_app_limited"][1:] == 1) & ~probing  # BBR marks what it sends in PROBE_RTT itself
    waits = polls["notsent_bytes"][1:] >= polls["snd_mss"][1:]  # less than a segment waits for more data
    by_limit = {
        "receive_window": grew("rwnd_limited_us"),
        "send_buffer": grew("sndbuf_limited_us"),
        "application": (idle | bubble) & ~waits,
        "probe_rtt": probing,
        "recovery": later["ca_state"] >= CA_RECOVERY,
        "marks": later["ca_state"] == CA_CWR,
        "startup": start,
        "cwnd": full,
        "pacing": ~full & polls.is_model_based & np.isfinite(later["unacked"]),
    }
    return account({name: pairs[mask] for name, mask in by_limit.items()}, end, float(np.median(np.diff(time))))


def events_of(polls: Polls) -> list[Event]:
    """Return the list of `Event` that polls show: changes of the rate, losses, idle periods."""
    found = []
    for at, before, after, *_ in rate_changes(polls):
        verb = "fell" if after < before else "rose"
        text = f"At {at:.1f} s the path's rate {verb} from {format_rate(before)} to {format_rate(after)}."
        found.append(Event("rate_change", at, at, text, {"before_bps": before, "after_bps": after}))
    lost = np.diff(polls.retransmitted)
    for k in np.argsort(-lost)[: const.MAX_EVENTS]:
        if lost[k] > 0:
            start, end = float(polls.time[k]), float(polls.time[k + 1])
            text = f"Until {end:.1f} s {lost[k]:.0f} segment{'s were' if lost[k] > 1 else ' was'} retransmitted."
            found.append(Event("loss_episode", start, end, text, {"retransmitted": float(lost[k])}))
    for limit in limits_of(polls):
        if limit.name == "application" and limit.end_s - limit.start_s > max(const.IDLE_S, 2 * polls.least_us / 1e6):
            lasted = limit.end_s - limit.start_s
            text = f"At {limit.start_s:.1f} s the application sent less than it could, for {lasted:.1f} s."
            found.append(Event("idle", limit.start_s, limit.end_s, text, {"lasted_s": lasted}))
    return sorted(found, key=lambda event: event.start_s)


def rate_changes(polls: Polls) -> list[Change]:
    """Return the changes of the delivered rate with a queue on one side."""
    middle, rate, rtt = polls.windows
    some = rate > 0
    if some.sum() < 12:
        return []
    at = jumps(middle[some], np.log(rate[some]))
    edges, found, plateaus = [middle[0] - 1.0, *at, middle[-1] + 1.0], [], []
    for begin, end in itertools.pairwise(edges):
        inside = some & (middle > begin) & (middle < end)
        if inside.sum() >= const.MIN_OBSERVATIONS:
            typical = float(np.median(rate[inside]))
            spread = float(np.median(np.abs(rate[inside] / typical - 1)))
            if spread < STEADY_RATE:
                plateaus.append((begin, end, typical, spread, float(np.quantile(rtt[inside], 0.9))))
    for (_, _, before, spread1, its), (begin, end, after, spread2, later) in itertools.pairwise(plateaus):
        apart = abs(np.log(after / before))
        # A path that slows down builds a longer queue; a sender that slows down does not.
        queued = later > const.QUEUED_RTTS * max(const.QUEUED_RTTS * polls.least_us, its)
        if apart > max(np.log(RATE_DIFFERS), 3 * (spread1 + spread2)) and (after > before or queued):
            found.append(Change(float(begin), before, after, end))
    return found if any(change.after_bps < change.before_bps for change in found) else []
