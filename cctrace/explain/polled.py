"""Why a flow behaved as it did, from polls of its counters alone: limits, events and verdicts without a packet.

What the kernel accounts for (time with data, time limited by the receiver's window and by the send buffer, segments
sent again, reordering seen) is as good as from packets, however seldom it is asked. What follows from how rate, RTT and
losses move together needs several polls per change: docs/explain.md has the accuracy by the distance of the polls.
"""

import functools
import itertools

import numpy as np

from cctrace.explain.findings import Event, Limit, Verdict
from cctrace.explain.limits import account, shares
from cctrace.explain.look import WINDOW_FULL, window_used
from cctrace.explain.verdicts.order import ordered
from cctrace.fit.bottleneck import jumps
from cctrace.units import format_rate, format_share, format_size, format_time

MOST, MUCH = 0.5, 0.25  # of the time
LOSSY = 1e-3  # segments sent again
FEWEST = 5
INFINITE = 0x7FFFFFFF  # snd_ssthresh before the first loss [Linux] TCP_INFINITE_SSTHRESH
STARTUP_GAIN, UNIT = 640, 256  # of BBR: above 2.5, and 1
SHORT_RTTS = 16
DIFFERS, STEADY = 1.25, 0.15
QUEUED = 1.25  # times the least RTT
TAIL = 10.0  # mean deviations that a least RTT of some seconds may lie below the mean by jitter
SHALLOW = 0.25  # of the base RTT: the gain by which BBR probes, less 1
BLOATED = 3.0  # times the base RTT
ALIKE = 0.5  # correlation of the RTTs of two flows that go through one queue
SURE = 3.0


class Polls:
    """The polls of one connection as columns of numbers, NaN where unknown; times in seconds since the first."""

    def __init__(self, flow, controller=None):
        self.flow, self.controller = flow, controller or flow.connection.get("cc")
        self.time = flow.seconds()
        self.end = float(np.nan_to_num(flow.summary["duration_s"]))

    def __getitem__(self, name):
        return self.flow.values(name)

    @functools.cached_property
    def rtt(self):
        """The smoothed RTT, us."""
        return self.flow.rtt_us()

    @functools.cached_property
    def least_us(self):
        """The least RTT that is known, us."""
        known = np.concatenate([self["min_rtt"], self.rtt])
        known = known[(known > 0) & (known < 4e9)]
        return float(known.min()) if len(known) else np.nan

    @functools.cached_property
    def again(self):
        """Segments sent again so far, at every poll."""
        return np.maximum.accumulate(np.nan_to_num(self["total_retrans"]))

    @functools.cached_property
    def sent(self):
        """Segments sent, at the last poll; NaN unknown."""
        return float(self.flow.summary["segments_sent"] or np.nan)

    @property
    def is_model_based(self):
        """Whether the controller builds a model of the path."""
        return bool((self["bbr_bw_Bps"] > 0).any()) or (self.controller or "").startswith("bbr")

    @functools.cached_property
    def windows(self):
        """Return (middle_s, rate_bps, rtt_us) of windows of 100 ms, of an RTT, or of what lies between polls."""
        time_ns, acked = self.flow.acked()
        if len(acked) < 3:
            return (np.zeros(0),) * 3
        time = (time_ns - self.flow.start_ns) / 1e9
        step = max(0.1, 1.01 * float(np.median(np.diff(time))), np.nan_to_num(self.least_us) / 1e6)
        edges = np.arange(time[0], time[-1] + 1e-9, step)
        if len(edges) < 3:
            return (np.zeros(0),) * 3
        got = np.diff(np.interp(edges, time, acked.astype(float))) * 8 / step
        known = np.isfinite(self.rtt)
        middle = (edges[:-1] + edges[1:]) / 2
        rtt = np.interp(middle, self.time[known], self.rtt[known]) if known.any() else np.full(len(middle), np.nan)
        return middle, got, rtt

    def span_us(self, name):
        """Return how much an account of time grew, us, from the beginning of the connection; NaN unknown."""
        column = self[name]
        return float(np.nanmax(column)) if np.isfinite(column).any() else np.nan


def limits_of(polls):
    """Return the list of `Limit`; of a single poll one limit of the whole time."""
    time, end = polls.time, polls.end
    if len(time) < 2 or not end > 0:
        return [Limit("unknown", 0.0, end)]
    pairs = np.column_stack([time[:-1], time[1:]])
    width = np.maximum(np.diff(time), 1e-9) * 1e6

    def grew(name):
        return np.nan_to_num(np.diff(polls[name])) >= MOST * width

    busy = polls["busy_time_us"]
    later = {name: polls[name][1:] for name in ("unacked", "snd_cwnd", "ca_state", "bbr_pacing_gain", "bbr_cwnd_gain")}
    idle = np.diff(busy) < MOST * width if np.isfinite(busy).all() else later["unacked"] == 0
    full = later["unacked"] >= WINDOW_FULL * later["snd_cwnd"]
    start = (polls["snd_ssthresh"][1:] >= INFINITE) & (polls.again[1:] == 0) & (not polls.is_model_based)
    start |= later["bbr_pacing_gain"] > STARTUP_GAIN
    probing = (later["bbr_cwnd_gain"] == UNIT) & (later["bbr_pacing_gain"] == UNIT) & (later["unacked"] <= 5)
    held = {
        "receive_window": grew("rwnd_limited_us"),
        "send_buffer": grew("sndbuf_limited_us"),
        "application": idle | (polls["delivery_rate_app_limited"][1:] == 1),
        "probe_rtt": probing,
        "recovery": later["ca_state"] >= 2,
        "startup": start,
        "cwnd": full,
        "pacing": ~full & polls.is_model_based & np.isfinite(later["unacked"]),
    }
    return account({name: pairs[mask] for name, mask in held.items()}, end, float(np.median(np.diff(time))))


def events_of(polls):
    """Return the list of `Event` that polls show: changes of the rate, losses, idle periods."""
    found = []
    for at, before, after in rate_changes(polls):
        verb = "fell" if after < before else "rose"
        text = f"At {at:.1f} s the path's rate {verb} from {format_rate(before)} to {format_rate(after)}."
        found.append(Event("rate_change", at, at, text, {"before_bps": before, "after_bps": after}))
    lost = np.diff(polls.again)
    for k in np.argsort(-lost)[:40]:
        if lost[k] > 0:
            start, end = float(polls.time[k]), float(polls.time[k + 1])
            text = f"Until {end:.1f} s {lost[k]:.0f} segment{'s were' if lost[k] > 1 else ' was'} sent again."
            found.append(Event("loss_episode", start, end, text, {"sent_again": float(lost[k])}))
    for limit in limits_of(polls):
        if limit.name == "application" and limit.end_s - limit.start_s > max(0.2, 2 * polls.least_us / 1e6):
            lasted = limit.end_s - limit.start_s
            text = f"At {limit.start_s:.1f} s the application sent less than it could, for {lasted:.1f} s."
            found.append(Event("idle", limit.start_s, limit.end_s, text, {"lasted_s": lasted}))
    return sorted(found, key=lambda event: event.start_s)


def rate_changes(polls):
    """Return [(at_s, before_bps, after_bps)]: changes of the delivered rate while RTTs told of a queue on one side."""
    middle, rate, rtt = polls.windows
    some = rate > 0
    if some.sum() < 12:
        return []
    at = jumps(middle[some], np.log(rate[some]))
    edges, found, plateaus = [middle[0] - 1.0, *at, middle[-1] + 1.0], [], []
    for begin, end in itertools.pairwise(edges):
        inside = some & (middle > begin) & (middle < end)
        if inside.sum() >= FEWEST:
            typical = float(np.median(rate[inside]))
            spread = float(np.median(np.abs(rate[inside] / typical - 1)))
            if spread < STEADY:
                plateaus.append((begin, typical, spread, float(np.max(rtt[inside]))))
    for (_, before, spread1, _), (begin, after, spread2, longest) in itertools.pairwise(plateaus):
        apart = abs(np.log(after / before))
        # A path that slows down makes a queue; a sender that does leaves none.
        queued = after > before or longest > 1.5 * np.median(rtt[some])
        if apart > max(np.log(DIFFERS), 3 * (spread1 + spread2)) and queued:
            found.append((float(begin), before, after))
    return found if any(after < before for _, before, after in found) else []


# ---------------------------------------------------------------------------------------------------------------------
def judge(polls, limits):
    """Return the list of `Verdict`, most important first; empty if nothing is told."""
    found = [*_ends(polls, limits)]
    if not {verdict.name for verdict in found if verdict.confidence >= 0.6}:
        found += [*_others(polls), *_reordered(polls), *_changed(polls), *_collapsed(polls)]
        if not any(verdict.name in ("competition",) for verdict in found):
            found += _lost(polls)
        found += _bloated(polls)
        if not any(verdict.name == "collapse" for verdict in found):
            found += _full(polls)
    return ordered(found)


def _verdict(polls, name, confidence, evidence, text, advice, refuted_by, span=None):
    start, end = span or (0.0, polls.end)
    return Verdict(name, float(confidence), float(start), float(end), evidence, text, advice, refuted_by)


def _ends(polls, limits):
    busy, rwnd, sndbuf = (polls.span_us(name) for name in ("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"))
    receiver, buffer = (part / busy if busy > 0 else np.nan for part in (rwnd, sndbuf))
    used = window_used(polls.flow)
    if receiver >= MOST or used >= WINDOW_FULL:
        told = (
            f"held it back for {format_share(receiver)} of the time it had data to send"
            if receiver >= MOST
            else f"was full: {format_share(used)} of it was typically in flight"
        )
        yield _verdict(
            polls,
            "receiver_limited",
            0.5 + max(receiver if receiver >= MOST else 0.0, 0.4) / 2,
            {"receiver_share": receiver, "window_used": used},
            f"The receiver's window {told}.",
            "A larger receive buffer would help, another congestion control would not.",
            "Less than the window in flight.",
        )
    if buffer >= MUCH and not receiver >= MOST:
        yield _verdict(
            polls,
            "send_buffer_limited",
            0.5 + buffer / 2,
            {"send_buffer_share": buffer},
            f"Its own send buffer was full for {format_share(buffer)} of the time it had data to send.",
            "A larger send buffer would help (net.ipv4.tcp_wmem, SO_SNDBUF unset).",
            "Time in sndbuf_limited that does not grow.",
        )
    idle = shares(limits).get("application", 0.0)
    if idle >= MUCH and not _is_short(polls):
        yield _verdict(
            polls,
            "application_limited",
            0.5 + idle / 2 if idle >= MOST else 0.4 + idle,
            {"application_share": idle},
            f"The application limited it: for {format_share(idle)} of the time it sent less than it could have.",
            "Have the application write earlier or more at a time; the network could carry more.",
            "Data that waits in the socket (notsent_bytes) while nothing leaves.",
        )
    if _is_short(polls):
        yield _verdict(
            polls,
            "slow_start_only",
            0.7,
            {"duration_rtts": polls.end * 1e6 / polls.least_us, "bytes": float(polls.flow.summary["bytes_sent"])},
            f"It was over before it left slow start: {format_size(polls.flow.summary['bytes_sent'])} in "
            f"{polls.end * 1e6 / polls.least_us:.0f} round trips of {format_time(polls.least_us * 1000)}, no loss.",
            "Fewer round trips would help: a connection that is kept open, a larger initial window, a nearer server.",
            "A window that stopped growing.",
        )


def _is_short(polls):
    time_ns, acked = polls.flow.acked()
    if len(acked) < 2 or polls.again[-1] > 0 or not polls.least_us > 0:
        return False
    grown = np.flatnonzero(np.diff(acked))
    if not len(grown):
        return False
    lasted = (time_ns[grown[-1] + 1] - polls.flow.start_ns) / 1e3
    return bool(lasted < SHORT_RTTS * polls.least_us)


def _others(polls):
    """Other connections of the table whose RTTs move with this one's."""
    from cctrace.flows.counters import CounterFlow

    table = getattr(polls.flow, "table", None)
    if table is None or len(table.connections) < 2 or len(polls.time) < 20:
        return
    mine = polls.flow.summary
    alike, rates = [], []
    for index in range(min(len(table.connections), 17)):
        other = CounterFlow(table, index)
        if other.connection == polls.flow.connection or not other.is_timed or len(other.polls) < 20:
            continue
        if not other.summary["bytes_sent"] > 0.02 * mine["bytes_sent"]:
            continue
        begin = max(other.start_ns, polls.flow.start_ns)
        end = min(other.polls["time_ns"][-1], polls.flow.polls["time_ns"][-1])
        if end - begin < 0.2 * polls.end * 1e9:
            continue
        grid = np.linspace(0, end - begin, 200)
        series = [
            np.interp(grid, (flow.polls["time_ns"] - begin).astype(float), _filled(flow.rtt_us()))
            for flow in (polls.flow, other)
        ]
        if min(np.std(one) for one in series) > 0 and np.corrcoef(series)[0, 1] > ALIKE:
            alike.append(float(np.corrcoef(series)[0, 1]))
            rates.append(float(other.summary["goodput_bps"]))
    if not alike:
        return
    share = mine["goodput_bps"] / (mine["goodput_bps"] + sum(rates))
    yield _verdict(
        polls,
        "competition",
        0.5 + max(alike) * 0.4,
        {"flows": 1 + len(alike), "share": share, "rtt_correlation": max(alike)},
        f"It shared a queue with {len(alike)} other connection{'s' if len(alike) > 1 else ''} of this file (their RTTs "
        f"move together) and got {format_share(share)} of what they got in all.",
        "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whoever the controllers are.",
        "RTTs that move apart.",
    )


def _filled(values):
    known = np.isfinite(values)
    return np.interp(np.arange(len(values)), np.flatnonzero(known), values[known]) if known.any() else values * 0


def _reordered(polls):
    seen, copies = (polls.span_us(name) for name in ("reord_seen", "dsack_dups"))
    share = seen / polls.sent if polls.sent > 0 else np.nan
    if not seen >= 10 or not share >= 0.002:
        return
    yield _verdict(
        polls,
        "reordering",
        0.9,
        {"reordering_seen": seen, "share": share, "needless": copies},
        f"The path reorders: the kernel saw it {seen:.0f} times, once in {1 / share:.0f} segments"
        f"{f', and {copies:.0f} segments were sent again for nothing' if copies > 0 else ''}.",
        "Find the parallel links or per-packet balancing; senders need RACK (Linux since 4.18) to live with it.",
        "A count of reordering that stays.",
    )


def _changed(polls):
    changes = rate_changes(polls)
    if not changes:
        return
    at, before, after = changes[0]
    verb = "fell" if after < before else "rose"
    more = f", and changed {len(changes) - 1} times more" if len(changes) > 1 else ""
    yield _verdict(
        polls,
        "rate_change",
        0.75,
        {"at_s": at, "before_bps": before, "after_bps": after, "changes": len(changes)},
        f"The path's rate {verb} from {format_rate(before)} to {format_rate(after)} at about {at:.1f} s{more}.",
        "Ask what changed there (a radio, a route, others' traffic): no controller can keep a rate that is not there.",
        "The old rate delivered later while a queue stood.",
        (at, changes[-1][0]),
    )


def _collapsed(polls):
    least = polls["bbr_min_rtt_us"]
    least = least[(least > 0) & (least < 4e9)]
    deviation = polls["rttvar"]
    if not len(least) or not np.isfinite(deviation).any():
        return
    typical, jitter, rtt = float(np.median(least)), float(np.nanmedian(deviation)), float(np.nanmedian(polls.rtt))
    most = np.nanmax(np.append(polls["bbr_bw_Bps"], 0.0)) * 8
    used = polls.flow.summary["goodput_bps"] / most if most > 0 else np.nan
    if rtt < 2 * typical or rtt - typical > TAIL * jitter or not used < 0.8:
        return
    yield _verdict(
        polls,
        "collapse",
        0.7,
        {"min_rtt_us": typical, "rtt_us": rtt, "rttvar_us": jitter, "used_share": used},
        f"minRTT collapse: RTTs of typically {format_time(rtt * 1000)} vary by "
        f"{format_time(jitter * 1000)}, so that BBR's "
        f"min_rtt is {format_time(typical * 1000)}, less than half, and its window too small.",
        "A controller that does not take the least RTT for the path's (bbr2_comp, BBRv2+), or CUBIC; less jitter.",
        "RTTs that follow a queue: a capture would tell.",
    )


def _lost(polls):
    lost, share = float(polls.again[-1]), float(polls.again[-1] / polls.sent) if polls.sent > 0 else np.nan
    if lost < FEWEST or not share >= LOSSY / 5:
        return
    known = np.isfinite(polls.rtt)
    steps = np.flatnonzero(np.diff(polls.again) > 0)
    queue = float(np.nanquantile(polls.rtt, 0.99)) / polls.least_us - 1
    spread = queue > 0.1
    rank = _rank(polls.rtt[known], polls.rtt[steps][np.isfinite(polls.rtt[steps])]) if len(steps) else np.nan
    sure = abs(rank - 0.5) * np.sqrt(12 * max(len(steps), 1))
    typical = float(np.nanmedian(polls.rtt)) / polls.least_us
    evidence = {"share": share, "lost": lost, "rtt_rank": rank, "polls_with_losses": len(steps), "queue_rtts": queue}
    spans = (float(polls.time[steps[0]]), float(polls.time[steps[-1] + 1])) if len(steps) else None
    often = len(steps) >= FEWEST and len(steps) > 0.02 * len(polls.time)
    if (share >= LOSSY and (often and (not spread or rank < 0.7 or sure < SURE))) or (
        len(steps) < 2 and typical < 1.1 and share > 5 * LOSSY
    ):
        yield _verdict(
            polls,
            "random_loss",
            0.75 if often else 0.5,
            evidence,
            f"{format_share(share)} of the segments were sent again, most of them while RTTs were no "
            "longer than usual: "
            "losses by chance.",
            "Look for a bad link; BBR or another model-based controller loses less rate to it.",
            "Losses that come only when RTTs are long.",
            spans,
        )
    elif queue < SHALLOW and often and rank > 0.5:
        yield _verdict(
            polls,
            "shallow_buffer",
            0.6,
            evidence,
            f"The buffer seems shallow: RTTs rise by no more than {format_share(queue)} before {lost:.0f} losses.",
            "A larger buffer at the bottleneck, or a controller that heeds losses.",
            "Longer RTTs without a loss.",
            spans,
        )
    else:
        yield _verdict(
            polls,
            "congestive_loss",
            0.55,
            evidence,
            f"{lost:.0f} segments were sent again when RTTs were long: a full queue dropped them.",
            "",
            "Losses after short RTTs.",
            spans,
        )


def _rank(among, values):
    among = np.sort(among)
    low, high = (np.searchsorted(among, values, side) for side in ("left", "right"))
    return float(np.mean((low + high) / 2) / max(len(among), 1)) if len(values) else np.nan


def _bloated(polls):
    rtt = float(np.nanmedian(polls.rtt)) if np.isfinite(polls.rtt).any() else np.nan
    if polls.is_model_based or not rtt > BLOATED * polls.least_us:
        return
    yield _verdict(
        polls,
        "self_induced_queue",
        0.6,
        {"rtt_us": rtt, "least_rtt_us": polls.least_us},
        f"A deep buffer is full: RTTs of typically {format_time(rtt * 1000)}, at least "
        f"{format_time(polls.least_us * 1000)}.",
        "An AQM at the bottleneck (fq_codel, cake), or a controller that keeps queues short (BBR).",
        "RTTs that stay as long while little is in flight: then others fill it.",
    )


def _full(polls):
    """At least a bandwidth-delay product in flight, and RTTs or losses that tell of a queue."""
    middle, rate, _rtt = polls.windows
    goodput = polls.flow.summary["goodput_bps"]
    typical = float(np.nanmedian(polls.rtt)) if np.isfinite(polls.rtt).any() else np.nan
    queued = typical / polls.least_us
    plateau = np.nan
    if len(rate) >= 8:
        busy = rate[(rate > 0) & (middle > min(1.0, 0.2 * polls.end))]
        plateau = float(np.median(np.abs(busy / np.median(busy) - 1))) if len(busy) else np.nan
    steady = plateau < 0.1
    evidence = {"rtt_ratio": queued, "rate_deviation": plateau, "goodput_bps": goodput}
    if queued > QUEUED or (steady and polls.is_model_based and queued > 1.02) or (steady and queued > 1.1):
        yield _verdict(
            polls,
            "path_full",
            0.75 if steady and queued > 1.1 else 0.55,
            evidence,
            f"It had what its path gave, {format_rate(goodput)}: RTTs of typically "
            f"{format_time(typical * 1000)}, at least "
            f"{format_time(polls.least_us * 1000)}, tell of a queue.",
            "More rate takes a faster path, or less traffic beside it.",
            "Times in which more in flight delivered more.",
        )
