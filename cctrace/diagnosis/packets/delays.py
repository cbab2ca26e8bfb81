"""Facts about delays, from packets: order, jitter, and BBR's min_rtt, all compared with the RTT without a queue."""

import numpy as np

from cctrace.cc.bbr2022 import BBR2022
from cctrace.columns import Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.groups import NAN, InflatedMinRtt, Jitter, MinRtt, Reordering
from cctrace.diagnosis.record import Record
from cctrace.path.arrays import occur_once
from cctrace.path.own_queue import rolling_max
from cctrace.tcp.wire import HEADER_BYTES

MIN_CWND = float(BBR2022.params["cwnd_min_target"].default)
MIN_RTT_S = float(BBR2022.params["min_rtt_win_sec"].default)


def min_rtt(record: Record, limits: list[Limit]) -> MinRtt:
    """Return BBR's min_rtt (the kernel's, else the ten-second minimum of the RTT), with RTTs without a queue."""
    bottleneck, share = record.path.require_bottleneck, shares(limits)
    mean, spread = record.path.uncongested
    by_timer = share.get("pacing", 0.0) > share.get("cwnd", 0.0)
    return MinRtt(
        min_rtt_us=_least_of_filter(record),
        uncongested_rtt_us=mean,
        jitter_sd_us=spread,
        used_share=record.use if bottleneck.is_measured else NAN,
        goodput_bps=record.goodput_bps,
        acts_as_bbr=_acts_as_bbr(record, share),
        rate_bps=bottleneck.rate * 8e6 if bottleneck.is_measured else NAN,
        are_probes_short=not bottleneck.is_measured and not record.path.lost.any() and by_timer,
    )


def _acts_as_bbr(record: Record, share: dict[str, float]) -> bool:
    """Return whether the sender uses its path and is BBR, or paces or probes for the RTT as BBR does."""
    if record.is_loss_based or (
        record.path.require_bottleneck.is_measured and not record.use >= const.NEGLIGIBLE_SHARE
    ):
        return False
    return record.is_model_based or share.get("probe_rtt", 0.0) > 0 or share.get("pacing", 0.0) >= const.MUCH_OF_TIME


def _least_of_filter(record: Record) -> float:
    polls = record.flow.tcpinfo
    if polls is not None and (polls["bbr_min_rtt_us"] > 0).any():
        reported = polls["bbr_min_rtt_us"]
        return float(np.median(reported[reported > 0]))
    return float(np.median(_filtered_min(record)[1]))


def _filtered_min(record: Record) -> tuple[Floats, Floats]:
    """Return (time_s, minimum RTT of the previous ten seconds, us), every quarter of a second."""
    known = np.isfinite(record.path.rtt_us)
    time, rtt = record.path.sent_s[known], record.path.rtt_us[known]
    place = (time / const.MIN_RTT_STEP_S).astype(np.int64)
    least = np.full(int(place.max()) + 1, np.inf)
    np.minimum.at(least, place, rtt)
    size = int(MIN_RTT_S / const.MIN_RTT_STEP_S)
    return np.arange(len(least), dtype=np.float64) * const.MIN_RTT_STEP_S, -rolling_max(-least, size)


def inflated_min_rtt(record: Record) -> InflatedMinRtt | None:
    """Return the ten-second minimum of the RTT, of a flow that lasts longer."""
    if record.is_loss_based or record.duration_s < 1.5 * MIN_RTT_S:
        return None
    time, filtered = _filtered_min(record)
    late = filtered[(time > MIN_RTT_S) & np.isfinite(filtered)]
    if not len(late):
        return None
    base, high = float(np.quantile(record.path.rtt_us[np.isfinite(record.path.rtt_us)], 0.001)), np.quantile(late, 0.75)
    if high < const.QUEUED_RTTS * _least_window_us(record):
        return None
    return InflatedMinRtt(float(high), base, (MIN_RTT_S, record.duration_s))


def _least_window_us(record: Record) -> float:
    """Return how long the bottleneck takes for the packets that BBR has in flight even in PROBE_RTT, 0 if unknown."""
    bottleneck = record.path.require_bottleneck
    if not bottleneck.is_measured:
        return 0.0
    return float(MIN_CWND * (record.table.mss + HEADER_BYTES) / bottleneck.rate)


def jitter(record: Record) -> Jitter | None:
    """Return the scatter of delays within an RTT, if the bottleneck's queue is known.

    Jitter only adds to delays: where their mean is no longer than the first packets', which had no queue of their own,
    the queue that was inferred from the flow's packets is what scatters.
    """
    mean, spread = record.path.uncongested
    is_added = not record.flow.facts["complete"] or mean > record.path.least_rtt_us
    return Jitter(spread, mean) if record.path.require_bottleneck.is_measured and is_added else None


def reordering(record: Record) -> Reordering | None:
    """Return how many packets arrived after packets sent later."""
    rtt = record.table.rtt_us
    # For a segment sent more than once it is unknown which transmission was acknowledged.
    rows = np.flatnonzero(np.isfinite(rtt) & occur_once(record.table.seq))
    if len(rows) < const.MIN_PACKETS:
        return None
    reported = record.table.acked_ns[rows] / 1e3
    first = reported - reported[0]
    late = first < np.maximum.accumulate(first) - 1e6 * const.PROMPT_S
    spurious = int(record.flow.retransmission_log["spurious"].sum())
    at_s, rtt_s = record.path.sent_s[rows[late]], record.path.median_rtt_us / 1e6
    is_once = bool(late.any() and np.ptp(at_s) < rtt_s and record.duration_s > const.SEPARATE_RTTS * rtt_s)
    return Reordering(float(late.mean()), int(late.sum()), spurious, int(record.path.lost.sum()), is_once=is_once)
