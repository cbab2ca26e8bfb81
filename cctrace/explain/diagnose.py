"""Why a flow behaved as it did: one plain sentence, and the figures behind it.

    diagnose(flow)      flow: of a capture, or of counters alone; what is asked is the same event stream

What limited a flow is asked in this order; the first that held for most of the time is the verdict:

    receiver       the kernel's own account of time (or its re-enactment): the receiver's window kept data back; or
                   polls that show what was in flight to fill it
    application    there was nothing to send, or the samples say that the application sent less than it could
    window         BBR only: RTTs were twice its min_rtt or more, so that the window of two estimated BDPs was full
    path           at least one BDP was in flight: the flow had what its path gave
    loss           less was, a controller takes losses for congestion, and one segment in 200 or more was sent again
    unknown        none of these

The bandwidth-delay product (BDP) is the 95th percentile of the rate samples times the lower decile of the RTTs. Where
polls do not tell what was in flight (iperf3), it is what an RTT delivered, and only against the lowest RTT a statement.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from cctrace.errors import StreamError
from cctrace.explain.findings import Event, Limit, Verdict
from cctrace.explain.look import WINDOW_FULL, look, window_used
from cctrace.schema import EVENT_CODES
from cctrace.units import format_rate, format_share, format_time

MOST = 0.5  # of the time
LOSSY = 0.005  # segments sent again: above it loss-based controllers are far below most paths' rates
FULL = 0.95  # BDPs in flight
FEWEST_RTTS = 3  # that a capture has to cover
_MODEL_BASED = ("bbr", "bbr2", "bbr3")


@dataclass(frozen=True)
class Diagnosis:
    """What limited a flow.

    Attributes
    ----------
    cause : {"receiver", "application", "window", "path", "loss", "unknown"}
    verdict : str
        One sentence.
    figures : dict
        What it rests on: ``receiver_share``, ``window_used`` (of the receiver's, by polls), ``application_share``,
        ``retransmitted_share`` (NaN unknown), ``rtt_median_us``, ``rtt_min_us``, ``min_rtt_us`` (BBR's; NaN unknown),
        ``in_flight_bdp`` (median, in BDPs); of a single look `look.look`'s.
    coarse : bool
        It rests on polls of counters, not on ACKs: shares and minima are those of means.
    limits : list of Limit
        What limited it when; from the first second to the last, without a gap.
    events : list of Event
        In the order of time.
    verdicts : list of Verdict
        Most important first; the first one's sentence and advice are `verdict`.
    """

    cause: str
    verdict: str
    figures: dict
    coarse: bool = False
    limits: list[Limit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def diagnose(flow, controller=None):
    """Return the `Diagnosis` of a flow.

    Parameters
    ----------
    flow : Flow or CounterFlow
    controller : str, optional
        The kernel's name of its congestion control, if known.

    Raises
    ------
    StreamError
        If the flow has no event stream.
    """
    found = _diagnosed(flow, controller)
    duration = float(np.nan_to_num(flow.summary["duration_s"]))
    verdict = Verdict(_NAMES[found.cause], 0.5, 0.0, duration, found.figures, found.verdict)
    return replace(found, verdicts=[verdict], limits=[Limit("unknown", 0.0, duration)])


def _diagnosed(flow, controller):
    try:
        events = flow.events
    except StreamError:
        if hasattr(flow, "polls") and (found := look(flow)) is not None:
            return Diagnosis(*found, coarse=True)
        raise
    figures = _figures(flow)
    cause = _cause(figures, controller)
    coarse = getattr(events, "coarse", False)
    if not coarse and cause not in ("receiver", "application") and (doubt := _doubt(figures, flow)):
        return Diagnosis("unknown", f"{doubt}, and so not what limited it to {_rate(flow)}.", figures)
    verdict = _SENTENCES[cause](figures, flow)
    if coarse:
        verdict += " (From polls, not packets: shorter events do not show.)"
    elif flow.taken_at != "sender":
        verdict += " (Captured elsewhere than at the sender: times are estimates.)"
    return Diagnosis(cause, verdict, figures, coarse)


def _doubt(figures, flow):
    """Return why a capture does not tell what limited its flow; "" if it may."""
    if flow.taken_at == "unknown":
        return "Where it was captured cannot be told"
    duration_us = flow.summary["duration_s"] * 1e6
    if duration_us < FEWEST_RTTS * figures["rtt_median_us"]:
        return (
            f"A capture of {_time(duration_us)} cannot tell what happens in RTTs of {_time(figures['rtt_median_us'])}"
        )
    return ""


# ---------------------------------------------------------------------------------------------------------------------
def _acks(rows):
    code = rows["event"]
    return rows[code == EVENT_CODES["on_ack"]]


def _bdp_segments(acks, share):
    """Return the bandwidth-delay product: the 95th percentile of the rate samples times a quantile of the RTTs."""
    sampled = acks["rs_interval_us"] > 0
    rtt = acks["rs_rtt_us"][acks["rs_rtt_us"] > 0]
    if not sampled.any() or not len(rtt):
        return np.nan
    rate = acks["rs_delivered"][sampled] / acks["rs_interval_us"][sampled]
    return float(np.quantile(rate, 0.95) * np.quantile(rtt, share))


def _figures(flow):
    events, row = flow.events, flow.summary
    acks = _acks(events.rows)
    lasts = np.diff(acks["time_ns"], append=acks["time_ns"][-1:]) if len(acks) else np.zeros(0)
    busy, kept_back = _times(flow)
    duration = row["duration_s"] * 1e6
    limited = float(lasts[acks["rs_is_app_limited"] != 0].sum() / 1e3)
    idle = max(0.0, duration - busy) if busy == busy else 0.0
    told = not getattr(events, "coarse", False) or events.meta["coarse"]["in_flight_told"]
    bdp = _bdp_segments(acks, 0.1 if told else 0)
    rtt = acks["rs_rtt_us"][acks["rs_rtt_us"] > 0]
    polls = flow.tcpinfo
    min_rtt = polls["bbr_min_rtt_us"] if polls is not None else np.zeros(0, np.int64)
    min_rtt = min_rtt[min_rtt > 0]
    return {
        "receiver_share": kept_back / busy if busy > 0 else np.nan,
        "window_used": window_used(flow) if hasattr(flow, "polls") else np.nan,
        "application_share": float(min(1.0, max(idle, limited) / duration)) if duration > 0 else np.nan,
        "retransmitted_share": row["retransmitted_segments"] / (row["segments_sent"] or np.nan),
        "rtt_median_us": float(np.median(rtt)) if len(rtt) else np.nan,
        "rtt_min_us": float(rtt.min()) if len(rtt) else np.nan,
        "min_rtt_us": float(np.median(min_rtt)) if len(min_rtt) else np.nan,
        "in_flight_bdp": float(np.median(acks["rs_prior_in_flight"]) / bdp) if bdp > 0 and len(acks) else np.nan,
    }


def _times(flow):
    """Return (time with data outstanding, time in which the receiver's window kept data back), us; NaN unknown."""
    if hasattr(flow, "account"):
        return flow.account
    busy, kept_back = (flow.tcpinfo[name] for name in ("busy_time_us", "rwnd_limited_us"))
    if not (busy >= 0).any():
        return np.nan, np.nan
    return float(busy.max()), float(max(0, kept_back.max()))


def _cause(figures, controller):
    if figures["receiver_share"] >= MOST or figures["window_used"] >= WINDOW_FULL:
        return "receiver"
    if figures["application_share"] >= MOST:
        return "application"
    if figures["rtt_median_us"] >= 2 * figures["min_rtt_us"]:
        return "window"
    if figures["in_flight_bdp"] >= FULL:
        return "path"
    loss_based = controller is not None and controller not in _MODEL_BASED
    return "loss" if loss_based and figures["retransmitted_share"] >= LOSSY else "unknown"


def _receiver(figures, flow):
    if not figures["receiver_share"] >= MOST:
        return (
            f"The receiver's window was full: {format_share(figures['window_used'])} of it was typically in flight; a "
            "larger receive buffer would help, another congestion control would not."
        )
    return (
        f"The receiver's window held it back for {format_share(figures['receiver_share'])} of the time it had data "
        "to send; a larger receive buffer would help, another congestion control would not."
    )


def _application(figures, flow):
    return (
        f"The application limited it: for {format_share(figures['application_share'])} of the time it sent less than "
        "it could have."
    )


def _window(figures, flow):
    times = figures["rtt_median_us"] / figures["min_rtt_us"]
    return (
        f"Its window was full: RTTs (typically {_time(figures['rtt_median_us'])}) are {times:.2g} times BBR's min_rtt "
        f"({_time(figures['min_rtt_us'])}), and its window of two bandwidth-delay products covers twice; if that is "
        "jitter, not a queue of its own or of others, this is how a minRTT collapse begins."
    )


def _loss(figures, flow):
    return (
        f"Losses held it back: {format_share(figures['retransmitted_share'])} of the segments had to be sent again, "
        "and every loss cuts the window."
    )


def _path(figures, flow):
    return f"It had what its path gave, {_rate(flow)}, with {_queue(figures)}."


def _unknown(figures, flow):
    less = figures["in_flight_bdp"]
    told = f" with {less:.2g} bandwidth-delay products in flight" if less == less else ""
    return f"Nothing in the record tells what limited it to {_rate(flow)}{told}; {_queue(figures)}."


def _queue(figures):
    lowest, median = figures["rtt_min_us"], figures["rtt_median_us"]
    if not median >= 1.15 * lowest:
        return f"hardly a queue: RTTs of typically {_time(median)}, at least {_time(lowest)}"
    return f"data waiting in a queue (or jitter): RTTs of typically {_time(median)}, at least {_time(lowest)}"


def _rate(flow):
    return format_rate(flow.summary["goodput_bps"])


def _time(us):
    return format_time(us * 1000) if us == us else "unknown length"


_NAMES = {
    "receiver": "receiver_limited",
    "application": "application_limited",
    "window": "window_limited",
    "loss": "random_loss",
    "path": "path_full",
    "unknown": "unknown",
}
_SENTENCES = {
    "receiver": _receiver,
    "application": _application,
    "window": _window,
    "loss": _loss,
    "path": _path,
    "unknown": _unknown,
}
