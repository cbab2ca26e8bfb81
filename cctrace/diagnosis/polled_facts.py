"""Facts of a flow from polls of its counters, as far as they go."""

import numpy as np

from cctrace.columns import Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis import groups
from cctrace.diagnosis.common import growth, is_at, sharing_of, socket_limit
from cctrace.diagnosis.facts import POLLS, Facts
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.polled import Polls, rate_changes
from cctrace.display import endpoint
from cctrace.flows.counters import CounterFlow
from cctrace.path.constants import MAX_OTHERS
from cctrace.path.neighbours import Presence, matters
from cctrace.path.own_queue import mean_rank
from cctrace.schema import U32_MAX


def facts_of(polls: Polls, limits: list[Limit]) -> Facts:
    """Return the facts of a connection that was polled several times."""
    rtt = float(np.nanmedian(polls.rtt)) if np.isfinite(polls.rtt).any() else groups.NAN
    goodput = float(polls.flow.row["goodput_bps"])
    busy, rwnd, sndbuf = (polls.span_us(name) for name in ("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us"))
    receiver, buffer = (part / busy if busy > 0 else groups.NAN for part in (rwnd, sndbuf))
    nothing = shares(limits).get("application", 0.0)
    waited = (
        max(nothing - (1 - busy / 1e6 / polls.end), 0.0) if buffer >= const.NEGLIGIBLE_SHARE and polls.end > 0 else 0.0
    )
    return Facts(
        POLLS,
        polls.end,
        goodput,
        is_model_based=polls.is_model_based,
        controller=polls.controller,
        has_polls=True,
        rtt_us=rtt,
        least_rtt_us=polls.least_us,
        window=groups.ReceiverWindow(receiver, window_used(polls.flow)),
        send_buffer=groups.SendBuffer(buffer, waited),
        short_transfer=_short_transfer(polls),
        socket_limit=_socket_limit(polls, rtt),
        idle=groups.Idle(nothing - waited, goodput),
        sharing=_sharing(polls),
        losses=_losses(polls),
        ecn_marks=_ecn_marks(polls),
        rates=_rates(polls, rtt),
        queue=_queue(polls, rtt),
        growing_window=_growing_window(polls, limits, rtt),
        reordering=_reordering(polls),
        min_rtt=_min_rtt(polls, rtt),
    )


def window_used(flow: CounterFlow) -> float:
    """Return the typical share of the receive window in flight (median of the polls); NaN unknown."""
    window = flow.values("snd_wnd")
    used = flow.outstanding() * flow.values("snd_mss") / np.where(window > 0, window, np.nan)
    return float(min(1.0, np.nanmedian(used))) if not np.isnan(used).all() else groups.NAN


def _short_transfer(polls: Polls) -> groups.ShortTransfer | None:
    """Return the start of a connection without retransmissions: its duration in minimum RTTs."""
    time_ns, acked = polls.flow.acked()
    grown = np.flatnonzero(np.diff(acked))
    if polls.retransmitted[-1] > 0 or not polls.least_us > 0 or not len(grown):
        return None
    lasted_us = (time_ns[grown[-1] + 1] - polls.flow.start_ns) / 1e3
    sent = float(polls.flow.row["bytes_sent"])
    return groups.ShortTransfer(lasted_us / polls.least_us, sent, polls.least_us, is_growing=True, is_complete=False)


def _growing_window(polls: Polls, limits: list[Limit], rtt_us: float) -> groups.GrowingWindow | None:
    """Return how cwnd grew once ssthresh was set, if nothing was retransmitted then; else None."""
    starts = [one.end_s for one in limits if one.name == "startup"]
    if not starts or not rtt_us > 0:
        return None
    after = polls.time > starts[-1] + const.SEPARATE_RTTS * rtt_us / 1e6
    cwnd, again = polls["snd_cwnd"][after], polls.retransmitted[after]
    if not len(cwnd) or not np.isfinite(cwnd).all() or again[-1] > again[0]:
        return None
    rounds = float(np.ptp(polls.time[after])) * 1e6 / rtt_us
    return growth(cwnd, rounds, float(np.nanmedian(polls["snd_mss"])), starts[-1], float(again[0]), limits)


def _socket_limit(polls: Polls, rtt: float) -> groups.SocketLimit:
    limit, share = socket_limit(polls["pacing_rate_Bps"], polls["max_pacing_rate"])
    _, rate, _ = polls.windows
    at_it = len(rate) > 0 and is_at(float(np.median(rate)) / 8, limit)
    return groups.SocketLimit(
        8 * limit, share, polls.flow.row["goodput_bps"], at_it, rtt > const.QUEUED_RTTS * polls.least_us
    )


def _sharing(polls: Polls) -> groups.Sharing | None:
    """Return the rates of connections whose RTTs correlate with this one's."""
    table = polls.flow.table
    if len(polls.time) < const.MIN_FOR_SHARES:
        return None
    alike: dict[str, tuple[float, float]] = {}
    for index in range(min(len(table.connections), 1 + MAX_OTHERS)):
        other = CounterFlow(table, index)
        if other.connection == polls.flow.connection or not other.is_timed or len(other.polls) < const.MIN_FOR_SHARES:
            continue
        up, its_up = (
            Presence(one.start_ns, one.polls["time_ns"][-1], one.row["bytes_sent"]) for one in (polls.flow, other)
        )
        if matters(up, its_up) and (correlation := _correlation(polls, other)) > const.RTTS_ALIKE:
            name = endpoint(other.connection.get("src"), other.connection.get("sport"))
            alike[name] = (float(other.row["goodput_bps"]), correlation)
    if not alike:
        return None
    rates = {name: rate for name, (rate, _) in alike.items()}
    most = max(correlation for _, correlation in alike.values())
    return sharing_of(float(polls.flow.row["goodput_bps"]), rates, (0.0, polls.end), rtt_correlation=most)


def _correlation(polls: Polls, other: CounterFlow) -> float:
    """Return the correlation of two connections' RTTs while both are active; NaN if they hardly are."""
    begin = max(other.start_ns, polls.flow.start_ns)
    end = min(other.polls["time_ns"][-1], polls.flow.polls["time_ns"][-1])
    grid = np.linspace(0, end - begin, 200)
    series = [
        np.interp(grid, (flow.polls["time_ns"] - begin).astype(float), _filled(flow.rtt_us()))
        for flow in (polls.flow, other)
    ]
    return float(np.corrcoef(series)[0, 1]) if min(np.std(one) for one in series) > 0 else groups.NAN


def _filled(values: Floats) -> Floats:
    known = np.isfinite(values)
    return np.interp(np.arange(len(values)), np.flatnonzero(known), values[known]) if known.any() else values * 0


def _reordering(polls: Polls) -> groups.Reordering:
    count, copies = (polls.span_us(name) for name in ("reord_seen", "dsack_dups"))
    share = count / polls.sent if polls.sent > 0 else groups.NAN
    return groups.Reordering(share, count, copies, retransmitted=float(polls.retransmitted[-1]), is_kernels=True)


def _rates(polls: Polls, rtt: float) -> groups.RateChanges | None:
    changes = rate_changes(polls)
    return groups.RateChanges(changes, rtt_us=rtt) if changes else None


def _min_rtt(polls: Polls, rtt: float) -> groups.MinRtt | None:
    """Return BBR's own min_rtt and rate estimate, if its counters are present."""
    least = polls["bbr_min_rtt_us"]
    least = least[(least > 0) & (least < U32_MAX)]
    deviation, goodput = polls["rttvar"], float(polls.flow.row["goodput_bps"])
    if not len(least) or not np.isfinite(deviation).any():
        return None
    most = float(np.nanmax(np.append(polls["bbr_bw_Bps"], 0.0))) * 8
    used = goodput / most if most > 0 else groups.NAN
    return groups.MinRtt(float(np.median(least)), rtt, float(np.nanmedian(deviation)), used, goodput, acts_as_bbr=True)


def _losses(polls: Polls) -> groups.Losses | None:
    """Return the retransmissions, and the RTTs before them."""
    lost = float(polls.retransmitted[-1])
    share = lost / polls.sent if polls.sent > 0 else groups.NAN
    if lost < const.MIN_OBSERVATIONS or not share >= const.ACCIDENTAL_SHARE / 5:
        return None
    known, steps = np.isfinite(polls.rtt), np.flatnonzero(np.diff(polls.retransmitted) > 0)
    rtt = polls.rtt[known] if known.any() else np.array([np.nan])
    room = float(np.quantile(rtt, 0.99)) - polls.least_us
    before = polls.rtt[steps][np.isfinite(polls.rtt[steps])]
    typical = float(np.median(rtt)) / polls.least_us
    apart = np.diff(polls.time[steps], prepend=0.0, append=polls.end)
    often = len(steps) >= const.MIN_OBSERVATIONS and apart.max() < const.MOST_OF_TIME * polls.end
    dispersion, rest = _dispersion(polls)
    # Polls several RTTs apart do not show which RTTs preceded losses: a standing queue is evidence enough then.
    distance_us = float(np.median(np.diff(polls.time))) * 1e6
    blind = np.isnan(dispersion) and distance_us > const.SEPARATE_RTTS * polls.least_us and typical > const.QUEUED_RTTS
    once = len(steps) < 2 and typical < 1 + const.RTT_RISE and share > 5 * const.ACCIDENTAL_SHARE
    return groups.Losses(
        lost=int(lost),
        sent=polls.sent,
        loss_share=share,
        span=(float(polls.time[steps[0]]), float(polls.time[steps[-1] + 1])) if len(steps) else (0.0, polls.end),
        rtt_rank=mean_rank(polls.rtt[known], before) if len(before) else 0.5,
        episodes=max(len(steps), 1),
        room_us=room,
        least_rtt_us=polls.least_us,
        is_gathered=lambda: bool(dispersion > const.MAX_LOSS_DISPERSION or rest < const.ACCIDENTAL_SHARE),
        clear_rank=const.CLEAR_RANK if room > const.RTT_RISE * polls.least_us else 1.0,
        can_be_chance=bool((share >= const.ACCIDENTAL_SHARE and often and not blind) or once),
        of_polls={"polls_with_losses": len(steps), "dispersion": dispersion, "share_otherwise": rest},
    )


def _ecn_marks(polls: Polls) -> groups.EcnMarks | None:
    """Return what the receiver reported as marked, in how many poll intervals, and at which queue."""
    counted = polls["delivered_ce"]
    if not np.nanmax(counted, initial=0.0) > 0:
        return None
    marked = np.maximum.accumulate(np.nan_to_num(counted))
    steps, lost = (np.flatnonzero(np.diff(column, prepend=0.0) > 0) for column in (marked, polls.retransmitted))
    apart_s = const.EPISODE_RTTS * polls.least_us / 1e6
    at = polls.time[steps]
    first = at[np.diff(at, prepend=-np.inf) > apart_s]
    rtt = polls.rtt[steps][np.isfinite(polls.rtt[steps])]
    return groups.EcnMarks(
        reported=int(marked[-1]),
        marked=groups.NAN,
        marked_share=groups.NAN,
        reductions=len(first),
        loss_episodes=int((np.diff(polls.time[lost], prepend=-np.inf) > apart_s).sum()),
        longest_pause_share=float(np.diff(first, prepend=0.0, append=polls.end).max()) / max(polls.end, 1e-9),
        queue_us=float(max(np.median(rtt) - polls.least_us, 0.0)) if len(rtt) else groups.NAN,
        is_l4s=False,
        span=(float(at[0]), float(at[-1])),
        is_heeded=not polls.is_model_based,
    )


def _dispersion(polls: Polls) -> tuple[float, float]:
    """Return the dispersion and the share of retransmissions, without the tenth of the time with most of them.

    Dispersion is variance over mean of their counts, 1 for random losses; NaN unknown. Each interval contains as
    many segments as ten losses take at the average share, and at least two RTTs, because packets lost together are
    retransmitted together. A start that overflows a queue is excluded: there may be random losses besides.
    """
    sent = np.maximum.accumulate(np.nan_to_num(polls["data_segs_out"]))
    rtts = polls.time[-1] * 1e6 / (2 * polls.least_us)
    many = int(min(polls.retransmitted[-1] / 10, np.nan_to_num(rtts), len(sent) - 1))
    if many < const.MIN_OBSERVATIONS or not sent[-1] > sent[0]:
        return np.nan, np.nan
    inner = np.unique(np.searchsorted(sent, np.linspace(sent[0], sent[-1], many + 1)[1:-1]))
    edges = np.unique(np.concatenate([[0], inner, [len(sent) - 1]]))
    got, of = np.diff(polls.retransmitted[edges]), np.diff(sent[edges])
    few = np.argsort(got / np.maximum(of, 1))[: len(got) - int(np.ceil(0.1 * len(got)))]
    got, of = got[few], of[few]
    mean = of * got.sum() / of.sum()
    share = float(got.sum() / of.sum())
    return (float(np.mean((got - mean) ** 2 / np.maximum(mean, 1e-9))) if share > 0 else 0.0), share


def _queue(polls: Polls, rtt: float) -> groups.Queue:
    """Return the RTTs relative to the minimum, and whether the rate is steady."""
    middle, rate, _ = polls.windows
    busy = rate[(rate > 0) & (middle > min(1.0, 0.2 * polls.end))]
    steady = (
        len(rate) >= 8 and len(busy) > 0 and float(np.median(np.abs(busy / np.median(busy) - 1))) < const.STEADY_SCATTER
    )
    return groups.Queue(rtt, polls.least_us, polls.least_us, queue_us=rtt - polls.least_us, is_steady=bool(steady))
