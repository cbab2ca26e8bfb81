r"""Throughput of the loss-based controllers as a function of the loss rate.

    Mathis   one loss per sawtooth, no timeouts:        T = MSS/RTT * sqrt(3 / (2 b p))
    PFTK     adds timeouts and the receive window       valid up to p of about 0.3
    CUBIC    the window as a cubic of time since loss:  W = 1.054 (RTT/p)^(3/4); Reno's law where that is larger

All windows are segments, RTT and timeouts seconds, p the loss rate per segment (loss *events* in Mathis), b the
segments per ACK. Sources: [Mathis97]_, [Padhye98]_, [RFC9438]_.
"""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cctrace.analytic.domain import Domain, Real, checked, domain_of, not_negative, positive
from cctrace.columns import Floats

CUBIC_C = 0.4
CUBIC_BETA = 0.7


def _loss(p: ArrayLike) -> Floats:
    return checked("loss_rate", p, 0, 1, open_low=True, open_high=True)


def mathis_rate(mss_bytes: ArrayLike, rtt_s: ArrayLike, loss_rate: ArrayLike, segments_per_ack: Real = 1) -> Floats:
    r"""Throughput in bytes per second.

    .. math:: T = \frac{MSS}{RTT}\sqrt{\frac{3}{2 b p}} \quad\text{Eq. (3) [Mathis97]_}

    >>> float(mathis_rate(1448, 0.1, 0.0001).round())
    1773431.0
    """
    root = np.sqrt(1.5 / (positive("segments_per_ack", segments_per_ack) * _loss(loss_rate)))
    return positive("mss_bytes", mss_bytes) / positive("rtt_s", rtt_s) * root


def mathis_domain(loss_rate: ArrayLike) -> Domain:
    """Say where Mathis' law holds: below 2 % timeouts are rare enough to be left out ([Padhye98]_ Sec. III).

    >>> mathis_domain(0.05).inside
    False
    """
    return domain_of((np.all(_loss(loss_rate) <= 0.02), "loss above 2 %: timeouts, which it ignores, dominate"))


def pftk_window(loss_rate: ArrayLike, segments_per_ack: Real = 2) -> Floats:
    r"""Expected window at a loss indication, unlimited by the receiver.

    .. math:: E[W_u] = \frac{2+b}{3b} + \sqrt{\frac{8(1-p)}{3bp} + \Bigl(\frac{2+b}{3b}\Bigr)^2}
                                                                                 \quad\text{Eq. (13) [Padhye98]_}

    >>> float(pftk_window(0.01).round(2))
    12.18
    """
    p, b = _loss(loss_rate), positive("segments_per_ack", segments_per_ack)
    start = (2 + b) / (3 * b)
    return start + np.sqrt(8 * (1 - p) / (3 * b * p) + start**2)


def pftk_timeout_share(window: ArrayLike, loss_rate: ArrayLike) -> Floats:
    r"""Probability that a loss in a window of `window` segments is detected by a timeout.

    .. math:: \hat Q(w) = \min\Bigl(1,
        \frac{(1-(1-p)^3)\,(1+(1-p)^3(1-(1-p)^{w-3}))}{1-(1-p)^w}\Bigr)         \quad\text{Eq. (24) [Padhye98]_}

    >>> float(pftk_timeout_share(10.0, 0.01).round(3))
    0.331
    """
    p, w = _loss(loss_rate), positive("window", window)
    log_q = np.log1p(-p)
    share = -np.expm1(3 * log_q) * (1 - np.exp(3 * log_q) * np.expm1((w - 3) * log_q)) / -np.expm1(w * log_q)
    return np.minimum(1.0, share)


def pftk_rate(
    rtt_s: ArrayLike, loss_rate: ArrayLike, timeout_s: ArrayLike, max_window: Real = np.inf, segments_per_ack: Real = 2
) -> Floats:
    r"""Segments sent per second, the full model.

    .. math:: B(p) = \frac{\frac{1-p}{p} + W + \frac{\hat Q(W)}{1-p}}
        {RTT\,(D(W) + 1) + \hat Q(W)\,T_0\,\frac{f(p)}{1-p}}                     \quad\text{Eq. (32) [Padhye98]_}

    with W = E[W_u], D = (b/2) W while the receiver's window W_m is larger, and W = W_m,
    D = (b/8) W_m + (1-p)/(p W_m) + 1 where it is not; f(p) = 1 + p + 2p^2 + 4p^3 + ... + 32p^6.

    >>> float(pftk_rate(0.1, 0.01, 0.4).round(1))
    77.8
    """
    p, rtt, b = _loss(loss_rate), positive("rtt_s", rtt_s), positive("segments_per_ack", segments_per_ack)
    free = pftk_window(p, b)
    limited = free >= (largest := checked("max_window", max_window, 1, infinite=True))
    w = np.minimum(free, largest)
    rounds = np.where(limited, b / 8 * w + (1 - p) / (p * w) + 2, b / 2 * w + 1)
    backoff = 1 + p + 2 * p**2 + 4 * p**3 + 8 * p**4 + 16 * p**5 + 32 * p**6
    q = pftk_timeout_share(w, p)
    sent = (1 - p) / p + w + q / (1 - p)
    return sent / (rtt * rounds + q * positive("timeout_s", timeout_s) * backoff / (1 - p))


def pftk_rate_simple(
    rtt_s: ArrayLike, loss_rate: ArrayLike, timeout_s: ArrayLike, max_window: Real = np.inf, segments_per_ack: Real = 2
) -> Floats:
    r"""Segments sent per second, the approximation that is quoted as "the" PFTK formula.

    .. math:: B(p) \approx \min\Bigl(\frac{W_m}{RTT},\;
        \frac{1}{RTT\sqrt{2bp/3} + T_0\min(1, 3\sqrt{3bp/8})\,p\,(1+32p^2)}\Bigr)   \quad\text{Eq. (33) [Padhye98]_}

    >>> float(pftk_rate_simple(0.1, 0.01, 0.4).round(1))
    79.4
    """
    p, rtt, b = _loss(loss_rate), positive("rtt_s", rtt_s), positive("segments_per_ack", segments_per_ack)
    timeouts = positive("timeout_s", timeout_s) * np.minimum(1, 3 * np.sqrt(3 * b * p / 8)) * p * (1 + 32 * p**2)
    return np.minimum(
        checked("max_window", max_window, 1, infinite=True) / rtt, 1 / (rtt * np.sqrt(2 * b * p / 3) + timeouts)
    )


def cubic_k(window_max: Real, window_now: Real, c: Real = CUBIC_C) -> Floats:
    r"""Seconds until the cubic regains the window it had before the loss.

    .. math:: K = \sqrt[3]{\frac{W_{max} - cwnd_{epoch}}{C}} \quad\text{Fig. 2 [RFC9438]_}

    >>> float(cubic_k(100.0, 70.0).round(3))
    4.217
    """
    return np.cbrt((not_negative("window_max", window_max) - not_negative("window_now", window_now)) / positive("c", c))


def cubic_window(time_s: ArrayLike, window_max: Real, k_s: Real, c: Real = CUBIC_C) -> Floats:
    r"""Window `time_s` after the start of the epoch.

    .. math:: W_{cubic}(t) = C\,(t - K)^3 + W_{max} \quad\text{Fig. 1 [RFC9438]_}

    >>> cubic_window([0.0, 4.217, 6.0], 100.0, 4.217).round(1)  # regained after K = 4.217 s
    array([ 70. , 100. , 102.3])
    """
    since_s = checked("time_s", time_s) - checked("k_s", k_s)
    return positive("c", c) * since_s**3 + not_negative("window_max", window_max)


def cubic_mean_window(rtt_s: ArrayLike, loss_rate: ArrayLike, c: Real = CUBIC_C, beta: Real = CUBIC_BETA) -> Floats:
    r"""Average window in the cubic's own regime, with losses every 1/p segments.

    .. math:: AVG\_W = \sqrt[4]{\frac{C(3+\beta)}{4(1-\beta)}}\;\frac{RTT^{3/4}}{p^{3/4}} \quad\text{Fig. 5 [RFC9438]_}

    >>> float(cubic_mean_window(1.0, 1e-12).round(-5)) / 1e9
    1.0538
    """
    beta = checked("beta", beta, 0, 1, open_low=True, open_high=True)
    factor = (positive("c", c) * (3 + beta) / (4 * (1 - beta))) ** 0.25
    return factor * (positive("rtt_s", rtt_s) / _loss(loss_rate)) ** 0.75


def reno_mean_window(loss_rate: ArrayLike, alpha: Real = 1.0, beta: Real = 0.5) -> Floats:
    r"""Average window of additive increase alpha and multiplicative decrease beta.

    .. math:: AVG\_AIMD(\alpha, \beta) = \sqrt{\frac{\alpha(1+\beta)}{2(1-\beta)\,p}} \quad\text{Fig. 3 [RFC9438]_}

    >>> float(reno_mean_window(0.01).round(2))
    12.25
    """
    beta = checked("beta", beta, 0, 1, open_low=True, open_high=True)
    return np.sqrt(positive("alpha", alpha) * (1 + beta) / (2 * (1 - beta) * _loss(loss_rate)))


def cubic_rate(
    mss_bytes: ArrayLike, rtt_s: ArrayLike, loss_rate: ArrayLike, c: Real = CUBIC_C, beta: Real = CUBIC_BETA
) -> Floats:
    """CUBIC's throughput in bytes per second: the larger of its own law and of Reno's (RFC 9438, Sec. 4.3).

    CUBIC emulates a Reno flow with alpha = 3 (1 - beta) / (1 + beta), whose average window is Reno's.

    >>> float(cubic_rate(1448, 0.1, 0.001).round())
    560808.0
    """
    window = np.maximum(cubic_mean_window(rtt_s, loss_rate, c, beta), reno_mean_window(loss_rate))
    return positive("mss_bytes", mss_bytes) / positive("rtt_s", rtt_s) * window


def cubic_regime(
    rtt_s: ArrayLike, loss_rate: ArrayLike, c: Real = CUBIC_C, beta: Real = CUBIC_BETA
) -> NDArray[np.str_]:
    """Return "cubic" or "reno" per element: which of the two laws of `cubic_rate` decides.

    >>> cubic_regime(0.1, [1e-2, 1e-5]).tolist()
    ['reno', 'cubic']
    """
    cubic = cubic_mean_window(rtt_s, loss_rate, c, beta) > reno_mean_window(loss_rate)
    return np.where(cubic, "cubic", "reno")
