"""Facts about ECN marks, from packets: how often the sender responded, at which queue, and which AQM marks so.

The receiver reports marks by ECE, or by AccECN's counter; `path.markers` compares AQMs' marking laws by likelihood.
"""

import numpy as np

from cctrace.cc.linux import CA_CWR
from cctrace.columns import Bools, Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import NAN, EcnMarks
from cctrace.diagnosis.record import Record
from cctrace.flows.ecn import Ecn
from cctrace.path.markers import likely_marker


def ecn_marks(record: Record) -> EcnMarks | None:
    """Return the marks and how often they reduced the window; None without marks."""
    ecn = record.flow.ecn
    if not ecn.delivered_ce:
        return None
    at = reductions_s(record)
    lost, (marked, share) = record.path.sent_s[record.path.lost], _marked(ecn, len(at))
    ends = np.concatenate([[0.0], at, [record.duration_s]])
    reported = record.ack_s[_reports(record)]
    marker = None if not record.heeds_marks or len(at) < const.MIN_CUTS else likely_marker(record.path)
    ramp = _ramp(record, at)
    law = marker.law if marker is not None and len(marker.names) == 1 else None
    return EcnMarks(
        reported=ecn.delivered_ce,
        marked=marked,
        marked_share=share,
        reductions=len(at),
        loss_episodes=int(
            (np.diff(lost, prepend=-np.inf) > const.EPISODE_RTTS * record.path.median_rtt_us / 1e6).sum()
        ),
        longest_pause_share=float(np.diff(ends).max()) / max(record.duration_s, 1e-9),
        queue_us=_queue_us(record, at),
        is_l4s=ecn.sent["ect1"] > ecn.sent["ect0"],
        span=(float(reported[0]), float(reported[-1])) if len(reported) else (0.0, record.duration_s),
        is_heeded=record.heeds_marks,
        likely_marker=marker,
        threshold_us=NAN if law is None else law.threshold_us,
        threshold_us_low=NAN if law is None else law.low_us,
        threshold_us_high=NAN if law is None else law.high_us,
        ramp_s=ramp[0],
        ramp_end_s=ramp[1],
    )


def _marked(ecn: Ecn, reductions: int) -> tuple[float, float]:
    """Return how many segments were marked and their share; NaN if unknown: classic feedback repeats a mark."""
    if ecn.feedback == "accurate":
        return float(ecn.delivered_ce), ecn.ce_share
    carried = ecn.sent["ce"]  # behind the queue packets show them
    return (float(carried), carried / sum(ecn.sent.values())) if carried >= max(reductions, 1) else (NAN, NAN)


def _ramp(record: Record, at: Floats) -> tuple[float, float]:
    """Return the longest time between reductions, if the window grew and nothing was lost meanwhile; else NaN."""
    if not len(at) or at[0] > const.MOST_OF_TIME * record.duration_s:
        return NAN, NAN
    pauses = np.diff(at, append=record.duration_s)
    begin, end = float(at[pauses.argmax()]), float(at[pauses.argmax()] + pauses.max())
    lost_s, (start_s, _, flights) = record.path.sent_s[record.path.lost], record.rounds
    within = flights[(start_s > begin + record.path.median_rtt_us / 1e6) & (start_s < end)]
    grown = (
        len(within) >= 2 * const.MIN_OBSERVATIONS
        and within[-const.MIN_OBSERVATIONS :].max() >= (1 + const.STEADY_SCATTER) * within[0]
    )
    return (begin, end) if grown and not ((lost_s > begin) & (lost_s < end)).any() else (NAN, NAN)


def _reports(record: Record) -> Bools:
    return np.diff(record.acks["delivered_ce"].astype(np.int64), prepend=int(record.events["delivered_ce"][0])) > 0


def reductions_s(record: Record) -> Floats:
    """Return when marks made the sender enter CWR, seconds."""
    state = record.acks["ca_state"]
    entered = (state == CA_CWR) & (np.concatenate([[0], state[:-1]]) < CA_CWR)
    return record.ack_s[entered & _reports(record)]


def _queue_us(record: Record, at: Floats) -> float:
    """Return the typical queueing delay at the marks that reduced the window, us; NaN unknown."""
    samples = record.flow.rtt_samples
    place = np.searchsorted(samples["time_s"], at, side="right") - 1
    rtt = samples["rtt_us"][place[place >= 0]]
    return float(max(np.median(rtt) - record.path.least_rtt_us, 0.0)) if len(rtt) else NAN
