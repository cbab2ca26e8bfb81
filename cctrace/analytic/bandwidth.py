r"""Bandwidth estimate of one BBR flow under delay variation, probe cycle by probe cycle: Eqs. (1) to (7) [Kumar19]_.

`cctrace.analytic.collapse` has the model, and the distribution of the RTT_min that these equations take.
Times are microseconds, rates packets per microsecond.
"""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.domain import Real, checked, not_negative, positive
from cctrace.columns import Floats


def delivery_rate(
    acked_at_ack: ArrayLike, acked_at_send: ArrayLike, ack_time: ArrayLike, last_ack_time: ArrayLike
) -> Floats:
    r"""Delivery rate that the ACK of packet P measures, in the unit of `acked_*` per unit of `*_time`.

    .. math:: d_P = \frac{\mathcal B[t_P] - \mathcal B[t_C]}{t_P - t_C} \quad\text{Eq. (1) [Kumar19]_}

    >>> float(delivery_rate(150_000, 90_000, 5.2, 5.0).round())  # bytes per second
    300000.0
    """
    waited = checked("ack_time", ack_time) - checked("last_ack_time", last_ack_time)
    acked = checked("acked_at_ack", acked_at_ack) - checked("acked_at_send", acked_at_send)
    return acked / positive("ack_time - last_ack_time", waited)


def bdp(bandwidth: ArrayLike, min_rtt_us: Real) -> Floats:
    r"""Bandwidth-delay product of the estimates.

    .. math:: BDP_{ini} = BW_{BEP} \times \widehat{RTT} \quad\text{Eq. (2) [Kumar19]_}

    >>> float(bdp(0.5, 40_000.0))  # packets, from packets per microsecond
    20000.0
    """
    return not_negative("bandwidth", bandwidth) * not_negative("min_rtt_us", min_rtt_us)


def window_delivery_rate(window: ArrayLike, interdeparture_us: ArrayLike, mean_rtt_us: Real) -> Floats:
    r"""Delivery rate over one mean RTT, limited by the window or by pacing.

    .. math:: d^j = \frac{1}{RTT_{UCAV}}\min\Bigl(W_j, \frac{RTT_{UCAV}}{\Delta t_{j-1}}\Bigr)
                                                                                 \quad\text{Eq. (4) [Kumar19]_}

    >>> window_delivery_rate([100, 1000], 120.0, 40_000.0).round(5)  # the window limits, then pacing
    array([0.0025 , 0.00833])
    """
    mean_rtt_us = positive("mean_rtt_us", mean_rtt_us)
    return (
        np.minimum(not_negative("window", window), mean_rtt_us / positive("interdeparture_us", interdeparture_us))
        / mean_rtt_us
    )


def next_bandwidth(
    bandwidth: Real, min_rtt_us: Real, mean_rtt_us: Real, cwnd_gain: Real = 2.0, extra_us: Real = 0.0
) -> Floats:
    r"""Bandwidth estimate one probe cycle later.

    .. math:: BW^j = \frac{1}{RTT_{UCAV}\,\Delta t_{j-1}}\min\bigl(g\,RTT_{min}^{j-1} + e,\; RTT_{UCAV}\bigr)
                                                                                 \quad\text{Eq. (5) [Kumar19]_}

    with :math:`BW^{j-1} = 1/\Delta t_{j-1}`, Eq. (3). Where :math:`g\,RTT_{min} \ge RTT_{UCAV}` it is unchanged,
    Eq. (6); otherwise it shrinks by the factor :math:`g\,RTT_{min} / RTT_{UCAV}`, Eq. (7). The paper has g = 2 and
    e = 0; `extra_us` is what later versions add to the window, divided by the bandwidth (2019: extra_acked / BW;
    BBRv2+: its compensation).

    >>> float(next_bandwidth(1.0, 18_000.0, 40_000.0).round(2))
    0.9
    """
    mean_rtt_us = positive("mean_rtt_us", mean_rtt_us)
    window_us = positive("cwnd_gain", cwnd_gain) * not_negative("min_rtt_us", min_rtt_us)
    window_us = window_us + not_negative("extra_us", extra_us)
    return not_negative("bandwidth", bandwidth) * np.minimum(window_us, mean_rtt_us) / mean_rtt_us


def bandwidth_trajectory(
    bandwidth: Real, min_rtts_us: ArrayLike, mean_rtt_us: Real, cwnd_gain: Real = 2.0, extra_us: Real = 0.0
) -> Floats:
    """Bandwidth estimate over probe cycles, Eqs. (5) to (7) iterated.

    `bandwidth`: before the first cycle, any unit. `min_rtts_us`: RTT_min of each cycle, axis 0 the cycles; the minimum
    "until now" is taken here, as in the paper. Returns one element more along axis 0; the first is `bandwidth`.

    >>> bandwidth_trajectory(1000.0, [3000, 2000, 2500], 5000).round(1)
    array([1000., 1000.,  800.,  640.])
    """
    minimum = np.minimum.accumulate(np.atleast_1d(not_negative("min_rtts_us", min_rtts_us)), axis=0)
    factors = next_bandwidth(1.0, minimum, mean_rtt_us, cwnd_gain, extra_us)
    start = np.ones((1, *factors.shape[1:]))
    return not_negative("bandwidth", bandwidth) * np.cumprod(np.concatenate([start, factors]), axis=0)
