"""A simulable model of a connection that only the kernel's counters (tcp_info, ss) describe.

Polls give the minimum RTT, the delivery rate while a queue stood (otherwise a lower bound of the path's), the longest
queue (a lower bound of the buffer), and the retransmitted share. Of the hosts they reveal more than packets do:
windows, pacing limits, and when there was nothing to send.
"""

import numpy as np

from cctrace.columns import Floats
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import SHARE
from cctrace.counterfactual.flow_model import OPEN_QUESTIONS, Controller, FlowModel
from cctrace.counterfactual.host_limits import HostLimits
from cctrace.diagnosis.constants import MIN_OBSERVATIONS
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import Verdict, shares
from cctrace.diagnosis.packets.writes import Clock
from cctrace.diagnosis.polled import Polls
from cctrace.errors import FitError
from cctrace.estimates import Estimate
from cctrace.fit.fitted_path import COUNTS, FittedPath
from cctrace.flows.counters import CounterFlow
from cctrace.path.losses import proportion
from cctrace.tcp.wire import PACKET_BYTES, WIRE_PER_PAYLOAD
from cctrace.units import format_percent

FULL = {"path_full", "self_induced_queue", "congestive_loss", "shallow_buffer"}  # verdicts that imply a full path
DROPPED = {"congestive_loss", "shallow_buffer"}  # verdicts that imply an overflowing queue


def model_of_polls(flow: CounterFlow, own: Controller, diagnosis: Diagnosis) -> FlowModel:
    """Return the `FlowModel` of polled counters.

    `own`: the sender's controller. `diagnosis`: of the connection. Raises `FitError` if the counters reveal too little
    of rate and RTT over time.
    """
    polls = Polls(flow)
    rtt = polls.rtt[np.isfinite(polls.rtt) & (polls.rtt > 0)]
    rate = polls.windows[1]
    if not flow.is_timed or len(rtt) < const.MIN_POLLS or (rate > 0).sum() < const.MIN_POLLS or not polls.least_us > 0:
        raise FitError(f"fewer than {const.MIN_POLLS} polls with RTT and progress: nothing bounds the path")
    verdicts = {verdict.name: verdict for verdict in diagnosis.verdicts}
    path = _path(polls, rate[rate > 0], rtt, verdicts)
    limits = _host_limits(polls, diagnosis, verdicts, float(np.median(rtt)))
    recorded = {
        "goodput_bps": float(flow.row["goodput_bps"]),
        "rtt_mean_us": float(np.mean(rtt)),
        SHARE: float(polls.retransmitted[-1] / polls.sent) if polls.sent > 0 else 0.0,
    }
    not_excluded = [
        *limits.not_excluded,
        *(OPEN_QUESTIONS[name] for name in path.estimates["undetermined"] if name in OPEN_QUESTIONS),
    ]
    not_excluded.append("what lies between polls: jitter, reordering, and who shared the path are not simulated")
    duration_s = round(float(min(polls.end, const.LONGEST_S)), 3)
    return FlowModel(
        path=path,
        controller=own,
        host_limits=limits,
        recorded=recorded,
        duration_s=duration_s,
        ack_policies=({"ack_every": 2},),
        hz=flow.hz,
        other_senders=(),
        losses_captured=True,
        not_excluded=tuple(not_excluded),
    )


def _path(polls: Polls, rate_bps: Floats, rtt_us: Floats, verdicts: dict[str, Verdict]) -> FittedPath:
    undetermined = []
    if FULL & verdicts.keys():
        median = float(np.median(rate_bps)) * WIRE_PER_PAYLOAD
        rate = Estimate.around(median, const.RATE_ERROR * median)
    else:
        undetermined.append("rate")
        estimated = 8 * float(np.nanmax(np.append(polls["bbr_bw_Bps"], 0.0)))
        fastest = max(float(np.quantile(rate_bps, 0.99)), estimated) * WIRE_PER_PAYLOAD
        rate = Estimate(fastest, fastest, None)
    longest = max((float(np.quantile(rtt_us, 0.99)) - polls.least_us) * rate.number / 8e6, float(PACKET_BYTES))
    buffer = Estimate.around(longest, 0.1 * longest) if DROPPED & verdicts.keys() else Estimate(None, longest, None)
    undetermined += ["buffer"] if buffer.value is None else []
    share = Estimate(0.0, 0.0, 0.0)
    if "random_loss" in verdicts and polls.sent > 0:
        retransmitted = float(min(polls.retransmitted[-1], polls.sent))
        share = Estimate(retransmitted / polls.sent, *proportion(int(retransmitted), int(polls.sent)))
    return FittedPath.of(
        {
            "rate_bps": [{"start_s": 0.0, **rate.to_dict()}],
            "base_rtt_us": Estimate(polls.least_us, polls.least_us, polls.least_us),
            "buffer_bytes": buffer,
            "loss": {"model": "bernoulli" if share.value else "none", "share": share},
            "jitter": None,
            "policer": None,
            "shaper": None,
            "aqm": None,
            "acks": None,
            "undetermined": undetermined,
            "correlation": None,
            "rate_counts": COUNTS,
        }
    )


def _host_limits(polls: Polls, diagnosis: Diagnosis, verdicts: dict[str, Verdict], rtt_us: float) -> HostLimits:
    goodput_bps, not_excluded = float(polls.flow.row["goodput_bps"]), []
    pacing_bps = window_bytes = buffer_bytes = app = None
    if "pacing_limited" in verdicts:
        pacing_bps = verdicts["pacing_limited"].evidence["limit_bps"]
        not_excluded.append("a higher pacing limit, which is kept")
    outstanding = polls.flow.outstanding() * polls["snd_mss"]
    in_flight = float(np.nanmax(outstanding)) if np.isfinite(outstanding).any() else goodput_bps / 8e6 * rtt_us
    if "receiver_limited" in verdicts:
        advertised = polls["snd_wnd"]
        window_bytes = float(np.nanmax(advertised)) if (advertised > 0).any() else in_flight
        not_excluded.append(f"a receive window above {window_bytes / 1e3:.0f} kB, which held back and is kept")
    if "send_buffer_limited" in verdicts:
        buffer_bytes = in_flight
        not_excluded.append(f"more than {buffer_bytes / 1e3:.0f} kB in flight, which the send buffer kept to")
    idle = shares(diagnosis.limits).get("application", 0.0)
    if idle > const.APPLICATION_SHARE and buffer_bytes is None and pacing_bps is None:
        app = _writes(polls, diagnosis, goodput_bps)
        not_excluded.append(f"that the application had less to send for up to {format_percent(idle)} of the time")
    return HostLimits(
        app, pacing_bps, buffer_bytes, window_bytes, window_bytes or 0.0, None, not_excluded=tuple(not_excluded)
    )


def _writes(polls: Polls, diagnosis: Diagnosis, goodput_bps: float) -> str | None:
    """Return the application's writes as `cctrace.Sender` takes them, one per pause; None if there are few."""
    pauses = sum(limit.name == "application" for limit in diagnosis.limits)
    if pauses < MIN_OBSERVATIONS:
        return None
    return Clock(goodput_bps / 8 * polls.end / pauses, 1e6 * polls.end / pauses).app
