"""What limited a flow over time, from the first packet to the last.

Each limit holds in intervals. A time slice (a quarter of an RTT, or a two-thousandth of the flow) is named by the
first of `findings.LIMITS` that covers half of it, otherwise by the one that covers most. Neighbouring slices of one
name form a `Limit`, so that the limits add up to the flow's duration.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from cctrace.cc.bbr2 import BBR2
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.linux import CA_CWR, CA_RECOVERY, PACING_SHIFT
from cctrace.columns import Bools, Floats, Ints, spans_of
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import LIMITS, Limit
from cctrace.diagnosis.record import Record, runs_of
from cctrace.flows.flow import Flow
from cctrace.flows.state import THROUGH_FQ
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.replaying.inference.through_fq import leans_to_fq
from cctrace.replaying.run import Run

V1 = BBR2022.params
_COUNTERS = {"receive_window": "rwnd_limited_us", "send_buffer": "sndbuf_limited_us"}


def limits_of(record: Record) -> list[Limit]:
    """Return the list of `Limit` of a captured flow, in order, without a gap."""
    end = record.duration_s
    step = max(record.path.median_rtt_us / 4e6 if record.path.median_rtt_us > 0 else 0.01, 1e-3)
    probes = _probe_rtt(record)
    recovery = runs_of(record.ack_s, record.acks["ca_state"] >= CA_RECOVERY, record.duration_s)
    found = {
        "rto_stall": _timeouts(record),
        "receive_window": record.window_shut_s,
        "application": outside(outside(_idle(record, recovery), probes), data_waited(record)),
        "probe_rtt": probes,
        "recovery": recovery,
        "marks": runs_of(record.ack_s, record.acks["ca_state"] == CA_CWR, record.duration_s),
        "startup": np.array([[0.0, startup_end_s(record)]]),
    } | _released(record)
    return account(found | counted(record, edges_of(end, step)), end, step)


def counted(record: Record, edges_s: Floats) -> dict[str, Floats]:
    """Return when the kernel counted a closed window and a full send buffer; see `_counters`.

    If only part of a bin was counted, the total marked equals the total counted.
    """
    if len(edges_s) < 2:
        return {}
    found = {}
    width, places = edges_s[1] - edges_s[0], np.arange(len(edges_s))
    for name, (time_s, total_s) in _counters(record, edges_s).items():
        # Whole bins counted by each edge, less those passed. A tick of the counter may be longer than a bin: what it
        # counts at once marks that many bins from there on.
        due = np.floor(np.interp(edges_s, time_s, total_s) / width + 0.5) - places
        marked = np.diff(places + np.minimum.accumulate(due)) > 0
        found[name] = np.column_stack([edges_s[:-1], edges_s[1:]])[marked]
    return found


def _counters(record: Record, edges_s: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Return {limit: (times, time counted until then)}, seconds: as polled, or without polls as a replay counts it.

    Linux checks its pacing timer and cwnd before the receive window [Linux] tcp_write_xmit: only a replay shows whether
    they, too, would have held back what the window did. Nothing but polls shows a full send buffer. With fq, Linux
    checks no timer; if the departures do not show whether fq was there, and it matters, the likelier case counts.
    """
    if (polls := _close_polls(record)) is not None:
        time_s = record.seconds(polls["time_ns"])
        totals = {name: polls[column].astype(float) for name, column in _COUNTERS.items()}
        return {name: (time_s, total / 1e6) for name, total in totals.items() if (total >= 0).all()}
    run = record.run
    if run is None or not record.flow.account[1] or record.flow.taken_at != "sender":
        return {}
    shut = _shut(record, record.flow, run, edges_s)
    if record.flow.through_fq is None:
        through = _shut(record, record.flow.paced_by(THROUGH_FQ, run.decided), run, edges_s)
        differ_s = abs(through[1][-1:] - shut[1][-1:]).sum()  # at the end; 0 if there are no counts
        if differ_s > const.NEGLIGIBLE_SHARE * record.duration_s and leans_to_fq(record.flow, run.controller):
            shut = through
    return {"receive_window": shut}


def _shut(record: Record, flow: Flow, run: Run, edges_s: Floats) -> tuple[Floats, Floats]:
    """Return (times, total until then), seconds, of a closed window, as `flow` paced (by a timer, or through fq)."""
    time_ns = record.start_ns + np.rint(edges_s * 1e9).astype(np.int64)
    states = flow.answers(np.column_stack([time_ns - 1, time_ns]), run.decided, run.marked)
    return edges_s[states["poll"]], states["rwnd_limited_us"] / 1e6


def _close_polls(record: Record) -> TcpInfo | None:
    """Return the kernel's counters, if polled often enough and for long enough to tell what limited when."""
    polls = record.flow.tcpinfo
    if polls is None or len(polls) < 2:
        return None
    time = record.seconds(polls["time_ns"])
    is_close = np.median(np.diff(time)) <= const.POLLED_S
    return polls if is_close and time[-1] - time[0] >= const.NEARLY_ALL_SHARE * record.duration_s else None


def data_waited(record: Record) -> Floats:
    """Return when the kernel's counters show unsent data: then the application did not limit the flow.

    Less than a segment waits for more data [RFC1122] 4.2.3.4, whatever limits the flow.
    """
    polls = _close_polls(record)
    if polls is None:
        return np.zeros((0, 2))
    waited, time = polls["notsent_bytes"].astype(float) >= record.table.mss, record.seconds(polls["time_ns"])
    return merged(np.column_stack([time[:-1], time[1:]])[waited[:-1] & waited[1:]])


def edges_of(end_s: float, step_s: float) -> Floats:
    """Return the edges of the time slices."""
    return np.linspace(0.0, end_s, int(np.clip(np.ceil(end_s / max(step_s, 1e-6)), 1, const.MAX_BINS)) + 1)


def account(intervals: Mapping[str, Floats], end_s: float, step_s: float) -> list[Limit]:
    """Return the limits of slices of `step_s` from 0 to `end_s`.

    `intervals`: shape (n, 2), when each limit held, seconds; within one name sorted and disjoint.

    >>> account({"application": np.array([[0.5, 1.0]])}, 2.0, 0.25)  # doctest: +ELLIPSIS
    [Limit(name='unknown', start_s=0.0, end_s=0.5), Limit(name='application', start_s=0.5, end_s=1.0), Limit(...)]
    """
    if not end_s > 0:
        return []
    edges = edges_of(end_s, step_s)
    names = [name for name in LIMITS if name in intervals]
    share = np.array([covered(intervals[name], edges) for name in names]) / np.diff(edges)
    share = share.reshape(len(names), len(edges) - 1)
    most = np.append(names, "unknown")
    half = np.vstack([share >= 0.5, np.ones((1, len(edges) - 1), bool)])
    first = np.argmax(half, axis=0)
    if names:
        largest = np.where(share.max(axis=0) > 0.05, np.argmax(share, axis=0), len(names))
        first = np.where(first < len(names), first, largest)
    label = most[first]
    return [Limit(name, start_s, end_s) for start_s, end_s, name in spans_of(edges, np.append(label, label[-1]))]


def covered(intervals: ArrayLike, edges: Floats) -> Floats:
    """Return how much of each bin the intervals cover."""
    intervals = np.asarray(intervals, float).reshape(-1, 2)
    if not len(intervals):
        return np.zeros(len(edges) - 1)
    total = np.column_stack([np.zeros(len(intervals)), np.diff(intervals)]).ravel().cumsum()
    return np.diff(np.interp(edges, intervals.ravel(), total))


def startup_end_s(record: Record) -> float:
    """Return the end of the start phase: the first loss, or three rounds without growth by a quarter."""
    start, got, _ = record.rounds
    lost = record.path.sent_s[record.path.lost]
    first_loss = float(lost.min()) + record.path.least_rtt_us / 1e6 if len(lost) else np.inf
    most, since, full_rounds = 0.0, 0, int(V1["full_bw_cnt"].default)
    for k in range(len(start)):
        if got[k] >= V1["full_bw_thresh"].default * most:
            most, since = float(got[k]), 0
        else:
            since += 1
        if since >= full_rounds:
            return float(min(start[k - full_rounds + 1], first_loss))
    return float(min(record.duration_s, first_loss))


def _idle(record: Record, recovery: Floats) -> Floats:
    """Return when nothing was outstanding, or when data had been written late (application bubbles).

    In a recovery the loss delays data, even if the application is done or waits for them: its pauses begin after that.

    Behind a queue at the sender, packets are captured at the queue's times, whenever ACKs released them: there,
    only pauses of more than an RTT are attributed to the application.
    """
    if record.flow.taken_at != "sender":
        pauses = without(written(record), recovery)
        return merged(np.vstack([record.empty_s, pauses[np.diff(pauses)[:, 0] > record.path.median_rtt_us / 1e6]]))
    bubbles = runs_of(record.ack_s, record.acks["app_limited"] > 0, record.duration_s)
    return merged(np.vstack([record.empty_s, bubbles, without(written(record), recovery)]))


def written(record: Record) -> Floats:
    """Return the pauses ended by a write of the application, not by an ACK or the pacing timer.

    A pacing sender releases a millisecond's worth at a time, and at least two segments [Linux] tcp_tso_autosize, at
    similar intervals: a pause several times longer than those around it is not due to pacing. An ACK releases about
    what it acknowledged. A host that answers ACKs late must not look idle: a write has no ACK before it for
    `Record.late_s`, or only ACKs that cover far less than is written, or follow ACKs that covered as much and
    released nothing, although what was in flight before soon is again: a window that shrank leaves such a pause, too.
    In recovery ACKs release retransmissions, and the receive window does not move: a pause then is not the
    application's.
    """
    time, since, size, place, last = record.bursts
    if len(time) < 3:
        return np.zeros((0, 2))
    rate = size.sum() / max(time[-1] - time[0], 1e-9)  # segments/s
    gap = np.diff(time)
    before, after = np.append(np.inf, gap[:-1]), np.append(gap[1:], np.inf)
    large = size[1:] >= max(4, 2 * rate * 2.0**-PACING_SHIFT)
    apart = gap > const.CLEARLY_TIMES * np.minimum(before, after)
    delivered = np.append(record.acks["delivered"].astype(np.int64), 0)  # last: before the first ACK
    early = np.searchsorted(record.ack_s, time[1:] - record.late_s, side="right") - 1
    acked = delivered[last[1:]] - delivered[np.minimum(early, place[1:] - 1)]
    unused = delivered[np.maximum(early, place[:-1])] - delivered[place[:-1]]
    recovers = record.acks["ca_state"][np.maximum(place[1:], 0)] >= CA_RECOVERY
    paused = (gap > const.WRITE_S) & (large | apart) & ~recovers
    wrote = paused & ((since[1:] > record.late_s) | (size[1:] > 2 * acked + const.SPARE_SEGMENTS))
    after_unused = np.flatnonzero(paused & ~wrote & apart & (unused >= np.maximum(size[1:], 4)))
    refilled = _refilled(record, after_unused, np.cumsum(size) - delivered[last])
    wrote[after_unused] = (size[1:][after_unused] > acked[after_unused]) | refilled
    return np.column_stack([time[:-1], time[1:]])[wrote]


def _refilled(record: Record, rows: Ints, in_flight: Ints) -> Bools:
    """Return whether as much as before the pauses after these bursts is in flight again within an RTT of their ends."""
    time = record.bursts.time_s
    until = np.searchsorted(time, time[rows + 1] + record.path.median_rtt_us / 1e6, side="right")
    return np.array(
        [in_flight[row + 1 : end].max() >= in_flight[row] for row, end in zip(rows, until, strict=True)], bool
    )


def merged(intervals: Floats) -> Floats:
    """Return intervals sorted, with overlapping ones merged."""
    intervals = intervals[np.argsort(intervals[:, 0], kind="stable")]
    if not len(intervals):
        return intervals
    reach = np.maximum.accumulate(intervals[:, 1])
    begins = np.concatenate([[True], intervals[1:, 0] > reach[:-1]])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(intervals) - 1)
    return np.column_stack([intervals[begins, 0], reach[last]])


def outside(intervals: Floats, others: Floats) -> Floats:
    """Return those intervals whose centre lies in none of `others`, which are sorted and disjoint.

    >>> outside(np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[1.9, 4.0]]))
    array([[0., 1.]])
    """
    middle = intervals.mean(axis=1)
    place = np.searchsorted(others[:, 0], middle) - 1
    within = (place >= 0) & (middle < np.append(others[:, 1], 0.0)[place])
    return intervals[~within]


def without(intervals: Floats, others: Floats) -> Floats:
    """Return the parts of intervals that lie in none of `others`; each sorted and disjoint.

    >>> without(np.array([[0.0, 4.0]]), np.array([[1.0, 2.0]])).tolist()
    [[0.0, 1.0], [2.0, 4.0]]
    """
    edges = np.unique(np.concatenate([intervals.ravel(), others.ravel()]))
    parts = outside(np.column_stack([edges[:-1], edges[1:]]), others)
    middle = parts.mean(axis=1)
    place = np.searchsorted(intervals[:, 0], middle) - 1
    return parts[(place >= 0) & (middle < np.append(intervals[:, 1], 0.0)[place])]


def _timeouts(record: Record) -> Floats:
    """Return the periods without ACKs that the retransmission timer ended."""
    fired = record.timeouts_s
    if not len(fired):
        return np.zeros((0, 2))
    heard = np.sort(np.concatenate([record.ack_s, record.path.sent_s]))
    place = np.searchsorted(heard, fired - 1e-6) - 1
    begin = np.where(place >= 0, heard[np.maximum(place, 0)], 0.0)
    long = ~(fired - begin <= record.path.median_rtt_us / 2e6)  # all, where nothing arrived and no RTT is known
    return merged(np.column_stack([begin, fired])[long])


def _probe_rtt(record: Record) -> Floats:
    """Return when the replay was in PROBE_RTT; without one, when the flow looked so."""
    run = record.run
    if run is None or "PROBE_RTT" not in run.controller.states:
        return _four_in_flight(record)
    probing = run.recorded("mode")["mode"] == run.controller.states.index("PROBE_RTT")
    return runs_of(record.seconds(run.held["time_ns"]), probing, record.duration_s)


def _four_in_flight(record: Record) -> Floats:
    """Return when a flow with many segments kept four in flight for a while despite more data: PROBE_RTT of BBR v1.

    It starts with the pause, of half an RTT or more, in which the data in flight fall to that.
    """
    acks = record.acks
    flying, four = acks["rs_prior_in_flight"], V1["cwnd_min_target"].default
    if not len(acks) or np.median(flying) < 3 * four or record.is_loss_based:
        return np.zeros((0, 2))
    runs = runs_of(record.ack_s, (flying <= four + 1) & (acks["ca_state"] < CA_CWR), record.duration_s)
    runs = runs[np.diff(runs)[:, 0] >= V1["probe_rtt_mode_ms"].default / 2000]
    runs = outside(runs, record.empty_s)  # an application's pauses leave nothing in flight
    if len(runs) > 1 + record.duration_s / (BBR2.params["probe_rtt_win_ms"].default / 1000):
        return runs[:0]  # more often than any BBR probes: something else limits the data in flight
    rtt_s = record.path.median_rtt_us / 1e6
    for run in runs:
        first, end = np.searchsorted(record.path.sent_s, [run[0] - const.EPISODE_RTTS * rtt_s, run[0]])
        sent = np.append(record.path.sent_s[first:end], run[0])
        pauses = np.diff(sent)
        if len(pauses) and pauses.max() > rtt_s / 2:
            run[0] = sent[pauses.argmax()]
    return merged(runs)


def _released(record: Record) -> dict[str, Floats]:
    """Return {"cwnd", "pacing"}: whether ACKs or a timer released the sends, between successive sends."""
    time = record.bursts.time_s
    if len(time) < 2:
        return {}
    gaps = np.column_stack([time[:-1], time[1:]])
    if record.is_loss_based and not record.paced:
        return {"cwnd": gaps}
    by_limit = {"cwnd": record.released[1:], "pacing": ~record.released[1:]}
    return {name: gaps[mask] for name, mask in by_limit.items()}
