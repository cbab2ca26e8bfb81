"""In which order verdicts are told, and how sure they are."""

from dataclasses import replace

SLOPE = 1.75  # of the logarithmic odds: by the rules' own measure verdicts are right more often than they say
MOST = 0.99

# Most important first. What the ends of a connection do comes before what its path does, what explains others before
# what it explains (a competitor fills the queue that drops), and `path_full` says that nothing was wrong.
ORDER = (
    "capture_artefact",
    "receiver_limited",
    "slow_start_only",
    "policer",
    "application_limited",
    "send_buffer_limited",
    "competition",
    "fair_queueing",
    "collapse",
    "reordering",
    "stale_bandwidth",
    "rate_change",
    "random_loss",
    "poor_pacing",
    "shallow_buffer",
    "shaper",
    "ack_compression",
    "ack_aggregation",
    "ack_thinning",
    "aqm",
    "stalls",
    "receiver_pauses",
    "self_induced_queue",
    "window_limited",
    "path_full",
    "congested_before",
    "congestive_loss",
    "jitter",
    "inflated_min_rtt",
    "app_limited_samples",
    "vantage_point",
    "unknown",
)


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
