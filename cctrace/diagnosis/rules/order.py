"""In which order verdicts are told, and how sure they are."""

from dataclasses import replace

SLOPE = 1.75  # of the logarithmic odds: by the rules' own measure verdicts are right more often than they say
MOST = 0.99

# Verdict -> the cause in plain words, as tables have it; most important first. What the ends of a connection do comes
# before what its path does, what explains others before what it explains (a competitor fills the queue that drops), and
# `path_full` says that nothing was wrong.
CAUSES = {
    "capture_artefact": "unknown: the capture misleads",
    "receiver_limited": "receiver's window",
    "slow_start_only": "too short: slow start",
    "pacing_limited": "pacing limit",
    "policer": "policer",
    "application_limited": "application",
    "send_buffer_limited": "send buffer",
    "competition": "competing flows",
    "fair_queueing": "its share of a fair queue",
    "collapse": "BBR's min_rtt collapsed (jitter)",
    "reordering": "reordering",
    "stale_bandwidth": "BBR's bandwidth out of date",
    "rate_change": "path's rate changed",
    "random_loss": "random loss",
    "poor_pacing": "bursts overflow the queue",
    "shallow_buffer": "shallow buffer",
    "shaper": "shaper (token bucket)",
    "ack_compression": "compressed ACKs",
    "ack_aggregation": "aggregated ACKs",
    "ack_thinning": "thinned ACKs",
    "aqm": "AQM drops",
    "stalls": "timeouts",
    "receiver_pauses": "receiver pauses",
    "self_induced_queue": "full, with a deep queue of its own",
    "window_limited": "something held its window",
    "path_full": "full: all the path gave",
    "heavy_retransmission": "much sent again",
    "congested_before": "congested before it began",
    "congestive_loss": "full queue drops",
    "jitter": "jitter",
    "inflated_min_rtt": "BBR's min_rtt inflated",
    "app_limited_samples": "BBR's samples app-limited",
    "lost_before_capture": "losses before the capture",
    "vantage_point": "captured too far from the sender",
    "unknown": "unknown",
}
ORDER = tuple(CAUSES)


def cause_words(name, confidence):
    """Return a verdict's cause in plain words, for a table.

    Examples
    --------
    >>> cause_words("receiver_limited", 0.9), cause_words("random_loss", 0.3)
    ("receiver's window", 'perhaps random loss')
    """
    doubtful = confidence < 0.5 and name != "unknown"
    return f"perhaps {CAUSES[name]}" if doubtful else CAUSES[name]


def ordered(found):
    """Return verdicts in the order of their importance; what is hardly sure goes behind what is."""
    found = sorted(found, key=lambda verdict: (verdict.confidence < 0.5, _place(verdict)))
    return [replace(verdict, confidence=calibrated(verdict.confidence)) for verdict in found]


def calibrated(confidence):
    """Return the confidence that is right as often as it says, of one as the rules give it; what is unlikely stays.

    One number, the slope of its logarithmic odds, was set on simulated flows of one seed and tried on another's;
    `python -m benchmarks.explain simulated` prints the one that makes its flows likeliest (docs/explain.md).

    Examples
    --------
    >>> round(calibrated(0.75), 2), calibrated(0.45)
    (0.87, 0.45)
    """
    if confidence <= 0.5:
        return confidence
    odds = (confidence / max(1 - confidence, 1e-6)) ** SLOPE
    return min(odds / (1 + odds), MOST)


def _place(verdict):
    """Return the place in `ORDER`; a shaper whose bucket is gone within an RTT is no more than a link."""
    slight = verdict.name == "shaper" and verdict.evidence["bucket_rtts"] < 1
    return ORDER.index("congestive_loss" if slight else verdict.name)
