"""What `cctrace predict` prints: one function per model, plain dictionaries with stable keys.

Each number comes with the domain of its model; outside the domain it is still printed, with the reason.
"""

from typing import Any

import numpy as np

from cctrace.analytic import closedloop, share
from cctrace.analytic.collapse import Collapse, collapse_domain
from cctrace.analytic.distributions import TruncatedNormal
from cctrace.analytic.domain import PACKET_BYTES, checked, positive
from cctrace.analytic.jittered import SENDERS, Link
from cctrace.arguments import check_choice
from cctrace.errors import ArgumentError


def collapse(**parameters: Any) -> dict[str, Any]:
    """Return the paper's prediction for one link.

    `parameters`: as of `Collapse`. Returns ``probability``, ``expected_min_rtt_us``, ``threshold_sd_us``, ``domain``.
    Raises `ArgumentError` for negative or inconsistent parameters, naming the parameter. The threshold is None where no
    jitter makes the flow collapse (the floor is above the mean over the gain), or any does (the gain is one).

    >>> collapse(mean_us=5000, sd_us=750, floor_us=75)["threshold_sd_us"]
    656.063
    """
    model = Collapse(**parameters)
    v: dict[str, Any] = model.values
    half_us, relative_sd = v["mean_us"] / v["cwnd_gain"], v["sd_us"] / v["mean_us"]
    domain = collapse_domain(v["samples"], half_us, model.floor_us, False, False, relative_sd)
    probability = float(model.probability())
    try:
        threshold = round(float(model.threshold("sd_us")), 3)
    except ArgumentError:  # the parameters are allowed: nothing is found up to three times the mean
        threshold = None
    return {
        "probability": probability,
        "expected_min_rtt_us": round(float(model.expected_min_rtt()), 3),
        "threshold_sd_us": threshold,
        "domain": domain.text + "; assumes independent samples (see docs/models.md)",
    }


def closed_loop(
    mean_us: float, sd_us: float, rate_bps: float, floor_us: float = 0.0, variant: str = "bbr2016", **path_fields: Any
) -> dict[str, Any]:
    """Return the prediction of `cctrace.analytic.closedloop` for one flow on a jittering link.

    `mean_us`, `sd_us`, `floor_us`: of the truncated normal delay without queue, microseconds. `variant`: one of
    `SENDERS`. `path_fields`: ``draws``, ``ordered``, ``rho`` and so on: see `jittered.Link`. Returns ``probability``
    of being below half the link, ``expected_min_rtt_us``, ``threshold_sd_us`` (the least jitter at which collapse
    becomes the rule; None where none from 0.1 % to 100 % of the mean is), ``domain``. Raises `ArgumentError` for wrong
    parameters, naming them.
    """
    check_choice("variant", variant, SENDERS)

    def path(sd: float) -> Link:
        delay = TruncatedNormal(mean_us, sd, floor_us)
        return Link(rate_bps, delay, **path_fields)

    sender, here = SENDERS[variant], path(sd_us)
    try:
        threshold = round(closedloop.threshold(path, sender, mean_us / 1000, mean_us), 1)
    except ArgumentError:
        threshold = None
    return {
        "probability": closedloop.collapse_probability(here, sender),
        "expected_min_rtt_us": round(closedloop.expected_min_rtt(here, sender), 1),
        "threshold_sd_us": threshold,
        "domain": closedloop.domain(here, sender).text,
    }


def buffer_share(
    gain: float,
    ratio: float,
    flows: int = 1,
    loss_based_flows: int = 1,
    rate_bps: float = 40e6,
    rtt_us: float = 40_000,
    duration_s: float = 120.0,
) -> dict[str, Any]:
    """Return what three models say about BBR against loss-based flows in one drop-tail buffer.

    `gain`, `ratio`: BBR's cwnd_gain, and the buffer over the BDP. `rate_bps`, `rtt_us`, `duration_s`: link, base RTT
    and duration; only Ware's model depends on them. Returns ``loss_based_share`` (p*, 0 where the fixed point is
    negative) and ``bbr_share`` of [Bi23] with ``domain``; ``ware`` {``bbr_share``, ``domain``}; ``mishra``
    {``bbr_share_low``, ``bbr_share_high``, ``nash_bbr_flows``, ``domain``}; ``loss_onset_ratio``. Raises
    `ArgumentError` for parameters that are not positive.

    >>> buffer_share(2, 16)["loss_based_share"]
    0.46875
    """
    checked("flows", flows, 1), checked("loss_based_flows", loss_based_flows, 1)
    p = float(share.loss_based_share(gain, ratio))
    rtt_s = float(positive("rtt_us", rtt_us)) / 1e6
    packets_per_s = float(positive("rate_bps", rate_bps)) / 8 / PACKET_BYTES
    ware = share.ware_bbr_share(ratio, rtt_s, packets_per_s, flows, duration_s)
    low, high = share.mishra_bounds(ratio, loss_based_flows)
    ware_domain = share.ware_domain(ratio, rtt_s, duration_s, flows, loss_based_flows)
    everyone = flows + loss_based_flows
    return {
        "loss_based_share": p,
        "bbr_share": 1 - p,
        "domain": share.share_domain(ratio, flows, loss_based_flows).text,
        "loss_onset_ratio": float(share.loss_onset_ratio(gain)),
        "ware": {"bbr_share": float(ware), "domain": ware_domain.text},
        "mishra": {
            "bbr_share_low": float(low),
            "bbr_share_high": float(np.maximum(low, high)),
            "nash_bbr_flows": float(share.nash_bbr_flows(ratio, everyone)),
            "domain": share.mishra_domain(ratio, flows, loss_based_flows).text,
        },
    }
