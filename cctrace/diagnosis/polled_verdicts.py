"""The verdicts that polls of counters allow (`polled.Polls`), most important first."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.limits import shares
from cctrace.diagnosis.look import WINDOW_FULL, window_used
from cctrace.diagnosis.polled import FEWEST, MOST, rate_changes
from cctrace.diagnosis.rules.order import ordered
from cctrace.diagnosis.socket_limit import ADVICE, REFUTED, is_at, socket_limit
from cctrace.path.own_queue import mean_rank
from cctrace.units import format_rate, format_share, format_size, format_time

LOSSY = 1e-3  # segments sent again
MUCH = 0.25  # of the time
SHORT_RTTS = 16
QUEUED = 1.25  # times the least RTT
TAIL = 10.0  # mean deviations that a least RTT of some seconds may lie below the mean by jitter
SHALLOW = 0.25  # of the base RTT: the gain by which BBR probes, less 1
BLOATED = 3.0  # times the base RTT
COARSE = 4.0  # RTTs between polls
GATHERED = 8.0  # times the dispersion of chance; losses that come in twos and threes make it two or three
ALIKE = 0.5  # correlation of the RTTs of two flows that go through one queue
SURE = 3.0


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
    paced = [*_paced(polls)] if not (receiver >= MOST or used >= WINDOW_FULL or buffer >= MUCH) else []
    yield from paced
    idle = shares(limits).get("application", 0.0)
    if idle >= MUCH and not paced and not _is_short(polls) and not buffer >= MUCH:  # data waited in the buffer then
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


def _paced(polls):
    """The socket's own pacing limit: the rate was at it, and RTTs tell of no queue."""
    limit, share = socket_limit(polls["pacing_rate_Bps"], polls["max_pacing_rate"])
    _, rate, _ = polls.windows
    queued = np.nanmedian(polls.rtt) > QUEUED * polls.least_us if np.isfinite(polls.rtt).any() else False
    if share < MOST or queued or not len(rate) or not is_at(float(np.median(rate)) / 8, limit):
        return
    yield _verdict(
        polls,
        "pacing_limited",
        0.9,
        {"limit_bps": 8 * limit, "limited_share": share, "goodput_bps": polls.flow.summary["goodput_bps"]},
        f"Its socket's pacing limit (SO_MAX_PACING_RATE) held it to {format_rate(8 * limit)}: it paced at that limit "
        f"in {format_share(share)} of the polls, and RTTs tell of no queue.",
        ADVICE,
        REFUTED,
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
    told = f", and {copies:.0f} segments were sent again for nothing" if copies > 0 else ""
    if copies > polls.again[-1]:
        told = f", and duplicates: {copies:.0f} came twice, of {polls.again[-1]:.0f} that were sent again"
    yield _verdict(
        polls,
        "reordering",
        0.9,
        {"reordering_seen": seen, "share": share, "needless": copies},
        f"The path reorders: the kernel saw it {seen:.0f} times, once in {1 / share:.0f} segments{told}.",
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
    before = polls.rtt[steps][np.isfinite(polls.rtt[steps])]
    rank = mean_rank(polls.rtt[known], before) if len(before) else np.nan
    sure = abs(rank - 0.5) * np.sqrt(12 * max(len(steps), 1))
    typical = float(np.nanmedian(polls.rtt)) / polls.least_us
    evidence = {"share": share, "lost": lost, "rtt_rank": rank, "polls_with_losses": len(steps), "queue_rtts": queue}
    spans = (float(polls.time[steps[0]]), float(polls.time[steps[-1] + 1])) if len(steps) else None
    apart = np.diff(polls.time[steps], prepend=0.0, append=polls.end)
    often = len(steps) >= FEWEST and apart.max() < MOST * polls.end
    gathered, rest = _dispersion(polls)
    evidence |= {"dispersion": gathered, "share_otherwise": rest}
    if gathered > GATHERED or rest < LOSSY:
        told = "when RTTs were long" if rank > 0.5 + SURE / np.sqrt(12 * len(steps)) else "at some times only"
        yield _verdict(
            polls,
            "congestive_loss",
            0.55 if told.startswith("when") else 0.45,
            evidence,
            f"{lost:.0f} segments were sent again {told}, not as evenly as by chance: a full queue or a policer "
            "dropped them.",
            "A capture would tell which.",
            "Losses that come evenly.",
            spans,
        )
        return
    # Polls that are some RTTs apart do not show which RTTs losses followed: a queue that stands speaks for itself then.
    blind = np.isnan(gathered) and np.median(np.diff(polls.time)) * 1e6 > COARSE * polls.least_us and typical > QUEUED
    if (share >= LOSSY and not blind and (often and (not spread or rank < 0.7 or sure < SURE))) or (
        len(steps) < 2 and typical < 1.1 and share > 5 * LOSSY
    ):
        yield _verdict(
            polls,
            "random_loss",
            0.6 if often and not polls.is_model_based else 0.55,  # a policer, or a short buffer, may lose as evenly
            evidence,
            f"{format_share(share)} of the segments were sent again, most of them while RTTs were no "
            "longer than usual: "
            "losses by chance.",
            "Look for a bad link"
            + ("." if polls.is_model_based else "; BBR or another model-based controller loses less rate to it."),
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


def _dispersion(polls):
    """Return how unevenly segments were sent again, and their share, both without the tenth of the time that had most.

    Variance over mean of their counts, 1 by chance; NaN unknown. Stretches have as many segments each as hold ten
    losses at the average share, and last two RTTs or more: what was lost together is sent again together. A start that
    overflows a queue is left out: chance may act besides.
    """
    sent = np.maximum.accumulate(np.nan_to_num(polls["data_segs_out"]))
    rtts = polls.time[-1] * 1e6 / (2 * polls.least_us)
    many = int(min(polls.again[-1] / 10, np.nan_to_num(rtts), len(sent) - 1))
    if many < FEWEST or not sent[-1] > sent[0]:
        return np.nan, np.nan
    inner = np.unique(np.searchsorted(sent, np.linspace(sent[0], sent[-1], many + 1)[1:-1]))
    edges = np.unique(np.concatenate([[0], inner, [len(sent) - 1]]))
    got, of = np.diff(polls.again[edges]), np.diff(sent[edges])
    few = np.argsort(got / np.maximum(of, 1))[: len(got) - int(np.ceil(0.1 * len(got)))]
    got, of = got[few], of[few]
    mean = of * got.sum() / of.sum()
    share = float(got.sum() / of.sum())
    return (float(np.mean((got - mean) ** 2 / np.maximum(mean, 1e-9))) if share > 0 else 0.0), share


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
