r"""Who gets how much of a drop-tail buffer: BBR against loss-based flows.

While they compete BBR is limited by its window, g times its bandwidth share times the RTT it believes in, and that RTT
was measured when the loss-based flows' packets still stood in the queue. p is the loss-based flows' share of buffer
(and link) in all three models, R or X the buffer in BDP:

    oBBR      the buffer is full, BBR sees p of it in its RTT:       1 - p* = 1 - (R - g + 1) / (g R)
    Ware      as that (g = 2), plus BBR's 4 packets, minus the time in PROBE_RTT
    Mishra    BBR sees only the *least* the loss-based flows ever hold, just after they back off

Sources: [Bi23]_ Sec. 3.1, [Ware19]_, [Mishra22]_. Every model has a `..._domain`; docs/models.md shows them against
closed-loop runs.
"""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.domain import Domain, Real, checked, domain_of, not_negative, positive
from cctrace.analytic.lossbased import CUBIC_BETA
from cctrace.analytic.roots import first_root
from cctrace.arguments import check_choice
from cctrace.columns import Floats

PROBE_RTT_S = 0.2
PROBE_RTT_INTERVAL_S = 10.0


# --- oBBR's Q_r ------------------------------------------------------------------------------------------------------
def occupied_ratio(p: ArrayLike, gain: Real, ratio: ArrayLike) -> Floats:
    r"""Share of the buffer that BBR's packets take while loss-based flows hold the share p of it.

    .. math:: Q_r(p; g, R) = g p (1-p) + (g-1) R^{-1} (1-p) \quad\text{Sec. 3.1 [Bi23]_}

    `gain`, `ratio`: g, and R, buffer over BDP.

    >>> float(occupied_ratio(0.5, 2.0, 4.0).round(3))
    0.625
    """
    p, g = checked("p", p, 0, 1), positive("gain", gain)
    return g * p * (1 - p) + (g - 1) / positive("ratio", ratio) * (1 - p)


def loss_based_share(gain: ArrayLike, ratio: ArrayLike) -> Floats:
    r"""Fixed point p*, at which BBR's packets just fill what the loss-based flows leave.

    .. math:: Q_r(p^*) = 1 - p^* \;\Rightarrow\; p^* = \max\Bigl(0, \frac{R-g+1}{gR}\Bigr) \quad\text{Sec. 3.1 [Bi23]_}

    >>> float(loss_based_share(2, 16)), float(loss_based_share(2, 0.5))
    (0.46875, 0.0)
    """
    g, r = positive("gain", gain), positive("ratio", ratio)
    return np.clip((r - g + 1) / (g * r), 0.0, 1.0)


def share_domain(ratio: ArrayLike, bbr_flows: ArrayLike = 1, loss_based_flows: ArrayLike = 1) -> Domain:
    """Where 1 - p* is an estimate of BBR's share; elsewhere it is an upper bound.

    It leaves out PROBE_RTT and that the RTT estimate is a minimum over 10 s, so it holds where neither matters: several
    BBR flows, as many as loss-based ones or a buffer that one of them fills alone.

    >>> share_domain(8.0).inside
    False
    """
    r = positive("ratio", ratio)
    bbr, loss_based = positive("bbr_flows", bbr_flows), positive("loss_based_flows", loss_based_flows)
    shallow, many = np.all(r <= 1), np.all(bbr >= loss_based)
    return domain_of(
        (np.all(bbr >= 2), "one BBR flow: its own PROBE_RTT gives way, 1 - p* is an upper bound"),
        (many, "more loss-based than BBR flows: 1 - p* is an upper bound"),
        (shallow or np.all(r >= 16), "buffer between 1 and 16 BDP: the RTT estimate lags, 1 - p* is an upper bound"),
    )


def loss_onset_ratio(gain: ArrayLike) -> Floats:
    r"""Buffer, in BDP, below which a single BBR flow overflows the buffer by its window alone.

    .. math:: R < g - 1 \quad\text{Sec. 4.1 [Bi23]_}

    >>> float(loss_onset_ratio(2.0))
    1.0
    """
    return np.maximum(checked("gain", gain, 0) - 1, 0.0)


def adaptive_gain(latest_rtt: ArrayLike, min_rtt: ArrayLike, mu: ArrayLike, max_gain: Real = 2.0) -> Floats:
    r"""oBBR's gain after a loss.

    .. math:: g = \min\Bigl(1 + \mu\,\frac{RTT_{latest} - RTprop}{RTprop},\; g_{max}\Bigr) \quad\text{Sec. 4.1 [Bi23]_}

    The released code caps at 2.05 where the paper says 2.

    >>> float(adaptive_gain(60, 40, mu=0.5)), float(adaptive_gain(400, 40, mu=0.5))
    (1.25, 2.0)
    """
    base = positive("min_rtt", min_rtt)
    mu = checked("mu", mu, 0, 1, open_low=True)
    queued = np.maximum(not_negative("latest_rtt", latest_rtt) - base, 0) / base
    return np.minimum(1 + mu * queued, positive("max_gain", max_gain))


def recovered_gain(
    gain: Real, acked_bytes: ArrayLike, bdp_bytes: ArrayLike, alpha: Real = 0.01, max_gain: Real = 2.0
) -> Floats:
    r"""oBBR's gain after `acked_bytes` more without loss.

    .. math:: g = \min\bigl(g + \alpha\,S_{ack} / BDP,\; g_{max}\bigr) \quad\text{Sec. 4.1 [Bi23]_}

    >>> float(recovered_gain(1.5, 300_000, 100_000).round(3))
    1.53
    """
    acked = not_negative("acked_bytes", acked_bytes) / positive("bdp_bytes", bdp_bytes)
    recovered = positive("gain", gain) + not_negative("alpha", alpha) * acked
    return np.minimum(recovered, positive("max_gain", max_gain))


# --- Ware ------------------------------------------------------------------------------------------------------------
def ware_loss_based_share(ratio: ArrayLike, buffer_packets: ArrayLike, bbr_flows: ArrayLike = 1) -> Floats:
    r"""Share of the link that any number of loss-based flows keep while BBR probes for bandwidth.

    .. math:: p = \frac12 - \frac{1}{2X} - \frac{4N}{q} \quad\text{[Ware19]_}

    `ratio`: X, buffer over BDP. `buffer_packets`: q = X c l. `bbr_flows`: N; each keeps 4 packets in its PROBE_RTT.

    >>> float(ware_loss_based_share(4.0, 500).round(3))
    0.367
    """
    x, q, n = positive("ratio", ratio), positive("buffer_packets", buffer_packets), positive("bbr_flows", bbr_flows)
    return np.clip(0.5 - 1 / (2 * x) - 4 * n / q, 0.0, 1.0)


def ware_probe_time(buffer_s: ArrayLike, base_rtt_s: ArrayLike, duration_s: Real) -> Floats:
    r"""Seconds of `duration_s` that BBR spends in PROBE_RTT: draining a full buffer, 200 ms, one RTT, every 10 s.

    .. math:: Probe_{time} = \Bigl(\frac{q}{c} + 0.2 + l\Bigr)\frac{d}{10} \quad\text{[Ware19]_}

    >>> float(ware_probe_time(0.16, 0.04, 60.0).round(2))
    2.4
    """
    each = not_negative("buffer_s", buffer_s) + PROBE_RTT_S + positive("base_rtt_s", base_rtt_s)
    return np.minimum(each / PROBE_RTT_INTERVAL_S, 1.0) * positive("duration_s", duration_s)


def ware_bbr_share(
    ratio: ArrayLike, base_rtt_s: ArrayLike, packets_per_s: ArrayLike, bbr_flows: ArrayLike = 1, duration_s: Real = 60.0
) -> Floats:
    r"""Share of the link that N BBR flows get together.

    .. math:: BBR_{frac} = (1 - p)\,\frac{d - Probe_{time}}{d} \quad\text{[Ware19]_}

    >>> float(ware_bbr_share(16, 0.04, 8256).round(3))
    0.485
    """
    x, base = positive("ratio", ratio), positive("base_rtt_s", base_rtt_s)
    p = ware_loss_based_share(x, x * base * positive("packets_per_s", packets_per_s), bbr_flows)
    return (1 - p) * (1 - ware_probe_time(x * base, base, duration_s) / duration_s)


def ware_domain(
    ratio: ArrayLike, base_rtt_s: ArrayLike, duration_s: Real, bbr_flows: ArrayLike = 1, loss_based_flows: ArrayLike = 1
) -> Domain:
    """Where Ware's model may be used: found by comparing it with closed-loop runs of the released code.

    `duration_s` counts from when all flows are up. A deep buffer is filled slowly by a cubic after BBR's startup: the
    shares are still moving for a few hundred times the time that the buffer takes to drain.

    >>> ware_domain(4.0, 0.04, 60.0).inside
    False
    """
    x, base = positive("ratio", ratio), positive("base_rtt_s", base_rtt_s)
    drains = positive("duration_s", duration_s) / (x * base)
    few = np.all(positive("loss_based_flows", loss_based_flows) <= 4 * positive("bbr_flows", bbr_flows))
    return domain_of(
        (np.all(x >= 16), "buffer below 16 BDP: the loss-based flows' back-off shows in BBR's RTT estimate"),
        (np.all(drains >= 250), "shorter than 250 drain times of the buffer: not converged"),
        (few, "more than 4 loss-based flows per BBR flow: their back-offs no longer coincide"),
    )


# --- Mishra ----------------------------------------------------------------------------------------------------------
def mishra_least_occupancy(ratio: ArrayLike) -> Floats:
    r"""Least buffer occupancy of the loss-based flows, in BDP: what BBR's RTT estimate contains.

    .. math:: b_{c,min} = \tfrac12 (B - C\,RTT) \quad\text{[Mishra22]_}

    from b_b + lambda_b RTT = 2 lambda_b (RTT + b_cmin / C), lambda_b = C b_b / B and b_b + b_c = B.

    >>> float(mishra_least_occupancy(4.0).round(3))
    1.5
    """
    return np.maximum((positive("ratio", ratio) - 1) / 2, 0.0)


def mishra_bbr_share(ratio: ArrayLike, backoff: ArrayLike = CUBIC_BETA) -> Floats:
    r"""Aggregate BBR share if the loss-based flows shrink to `backoff` times their largest window on a loss.

    .. math:: \theta\,(b_c + \lambda_c RTT) = b_{c,min} + \lambda_{c,min} RTT,\quad
        \lambda_c = \frac{C b_c}{B},\;\; \lambda_{c,min} = \frac{C b_{c,min}}{b_{c,min} + b_b},\;\; b_b = B - b_c

    The first equation is the back-off; the rates are proportional to the occupancies before and after. ([Mishra22]_
    derives the same closure in words close to these; the algebra here is ours.) Returns lambda_b / C; 1 for buffers of
    at most 1 BDP, where b_cmin is 0.

    >>> float(mishra_bbr_share(4.0).round(3))
    0.44
    """
    theta = checked("backoff", backoff, 0.5, 1, open_low=True, open_high=True)
    # At 1 BDP the share reaches 1; just above it the root is tiny but there.
    r, theta = np.broadcast_arrays(np.maximum(positive("ratio", ratio), 1 + 1e-9), theta)
    least = mishra_least_occupancy(r)

    def backoff_error(occupancy: Floats) -> Floats:
        return theta * occupancy * (1 + 1 / r) - least * (1 + 1 / (least + r - occupancy))

    # Concave in `occupancy`, negative at 0 and (for theta > 1/2) positive at r: one root.
    return 1 - first_root(backoff_error, 1e-12 * r, r, "ratio") / r


def mishra_bounds(ratio: ArrayLike, loss_based_flows: ArrayLike = 1) -> tuple[Floats, Floats]:
    r"""Smallest and largest aggregate BBR share: all loss-based flows back off together, or one at a time.

    .. math:: \theta_{sync} = 0.7,\qquad \theta_{desync} = 1 - 0.3 / N_c \quad\text{[Mishra22]_}

    >>> low, high = mishra_bounds(16, loss_based_flows=5)
    >>> float(low.round(2)), float(high.round(2))
    (0.32, 0.5)
    """
    flows = checked("loss_based_flows", loss_based_flows, 1)
    r, flows = np.broadcast_arrays(positive("ratio", ratio), flows)
    return mishra_bbr_share(r, CUBIC_BETA), mishra_bbr_share(r, 1 - (1 - CUBIC_BETA) / flows)


def mishra_domain(
    ratio: ArrayLike, bbr_flows: ArrayLike = 1, loss_based_flows: ArrayLike = 1, stack: str = "linux"
) -> Domain:
    """Where Mishra's bounds hold as an estimate (their mean) of the aggregate BBR share; `stack` is linux or quic.

    >>> mishra_domain(4.0).inside
    True
    """
    check_choice("stack", stack, ("linux", "quic"))
    r = positive("ratio", ratio)
    equal = np.all(positive("bbr_flows", bbr_flows) == positive("loss_based_flows", loss_based_flows))
    return domain_of(
        (np.all(r >= 1.5), "buffer below 1.5 BDP: the loss-based flows cannot keep packets in it at all times"),
        (np.all(r <= 4), "buffer above 4 BDP: the cubic's slow regrowth, which it ignores, gives BBR more"),
        (equal, "unequal numbers of flows: the truth lies between the bounds"),
        (stack == "linux", "QUIC senders on a millisecond timer: BBR got 0.1 less than this"),
    )


def nash_bbr_flows(ratio: ArrayLike, flows: ArrayLike, backoff: ArrayLike = CUBIC_BETA) -> Floats:
    r"""Number of BBR flows among `flows` at which none gains by switching, for one back-off assumption.

    .. math:: \frac{\lambda_b}{N_b} = \frac{C}{N} \;\Rightarrow\; N_b = N\,\lambda_b / C \quad\text{[Mishra22]_}

    Not an integer: the equilibrium lies at a neighbouring one.

    >>> float(nash_bbr_flows(4.0, 50).round(1))
    22.0
    """
    return checked("flows", flows, 1) * mishra_bbr_share(ratio, backoff)
