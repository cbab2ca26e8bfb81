r"""BBRx: a proportional-integral law on the RTT, the gains at which it is stable, and what its agent maximises.

    r = gamma C - (beta / delta) C (R - R0),   R0 = k/4 R_min,   delta = R_min         [Chung18]_ Eqs. 4, 5

The bottleneck's queueing delay d integrates the surplus, d' = (r - C) / C; the sender measures it an RTT later. In
units of delay C cancels, so the loop is an integrator with a delay (Bode analysis, the paper's Sec. III):

.. math:: L(s) = \frac{\beta}{\delta}\,\frac{e^{-s T}}{s},\qquad T = R + \delta/2

where delta/2 is the mean age of a rate that is set once per epoch. With BBR's per-ACK updates T = R; the range of
beta that is stable shrinks with R/R_min, which is why the paper's margins shrink with the RTT.

Two errors in the text: the sigmoid of Eq. 6 must *decrease* in the loss rate (it is PCC Allegro's, slope about 100,
cut-off 5 %), and "BBRx becomes BBR for beta = 1" must read "for small beta" (Eq. 3 with beta = 0 is BBR).
"""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import NDArray

from cctrace.analytic.domain import Real, checked, not_negative, positive
from cctrace.columns import Floats
from cctrace.special import special

LOSS_CUTOFF = 0.05
SIGMOID_SLOPE = 100.0


def rate_step(
    rate: Real,
    capacity: Real,
    queue_bytes: Real,
    target_queue_bytes: Real,
    alpha: Real,
    beta: Real,
    delta_s: Real,
    gamma: Real = 1.0,
) -> Floats:
    r"""One step of the full law, bytes per second.

    .. math:: r \leftarrow (1-\alpha) r + \alpha\gamma C - \frac{\beta}{\delta}(q - q_0) \quad\text{Eq. (2) [Chung18]_}

    >>> float(rate_step(1.0e6, 1.25e6, 20_000, 10_000, 0.1, 0.5, 0.04))
    900000.0
    """
    surplus = not_negative("queue_bytes", queue_bytes) - not_negative("target_queue_bytes", target_queue_bytes)
    alpha, fed = checked("alpha", alpha, 0, 1), not_negative("gamma", gamma) * not_negative("capacity", capacity)
    correction = not_negative("beta", beta) / positive("delta_s", delta_s) * surplus
    return (1 - alpha) * not_negative("rate", rate) + alpha * fed - correction


def rate(capacity: Real, rtt_s: Real, target_rtt_s: Real, beta: Real, delta_s: Real, gamma: Real = 1.0) -> Floats:
    r"""The law in terms of what a sender can measure.

    .. math:: r \leftarrow \gamma C - \frac{\beta}{\delta} C (R - R_0) \quad\text{Eq. (4) [Chung18]_}

    >>> float(rate(1.25e6, 0.05, 0.04, 0.5, 0.04))
    1093750.0
    """
    surplus = positive("rtt_s", rtt_s) - not_negative("target_rtt_s", target_rtt_s)
    correction = not_negative("beta", beta) / positive("delta_s", delta_s) * surplus
    return not_negative("capacity", capacity) * (not_negative("gamma", gamma) - correction)


def bbrx_rate(capacity: Real, rtt_s: Real, min_rtt_s: Real, beta: Real, k: Real = 4, gamma: Real = 1.0) -> Floats:
    r"""The law as deployed, with the target k/4 R_min and the epoch R_min, Eq. (5) [Chung18]_.

    .. math:: r \leftarrow \gamma C - \frac{\beta}{R_{min}} C \Bigl(R - \frac{k}{4}R_{min}\Bigr)

    >>> float(bbrx_rate(1.25e6, 0.05, 0.04, 0.5))
    1093750.0
    """
    base = positive("min_rtt_s", min_rtt_s)
    return rate(capacity, rtt_s, not_negative("k", k) / 4 * base, beta, base, gamma)


def loop_gain(omega: Real, beta: Real, delta_s: Real, rtt_s: Real, hold: Real = 0.0) -> NDArray[np.complex128]:
    r"""Open-loop frequency response, complex, at `omega` radians per second.

    .. math:: L(i\omega) = \frac{\beta}{\delta}\frac{e^{-i\omega(R + h\delta)}}{i\omega}

    `hold`: h, 0 where the rate follows every ACK, 0.5 where it is set once per epoch.

    >>> float(abs(loop_gain(10.0, 0.5, 0.04, 0.05)).round(3))
    1.25
    """
    omega = positive("omega", omega)
    delta = positive("delta_s", delta_s)
    delay = positive("rtt_s", rtt_s) + not_negative("hold", hold) * delta
    return positive("beta", beta) / delta * np.exp(-1j * omega * delay) / (1j * omega)


def margins(beta: Real, delta_s: Real, rtt_s: Real, hold: Real = 0.0) -> tuple[Floats, Floats]:
    r"""Phase margin in degrees and gain margin as a factor.

    .. math:: PM = \frac{\pi}{2} - \frac{\beta}{\delta} T,\qquad GM = \frac{\pi/2}{(\beta/\delta)\,T}

    from :math:`|L(i\omega_c)| = 1` at :math:`\omega_c = \beta/\delta` and :math:`\angle L = -\pi` at
    :math:`\omega = \pi/(2T)`. The loop is stable where both are positive, respectively above 1.

    >>> phase, gain = margins(beta=0.5, delta_s=0.1, rtt_s=0.1)
    >>> float(phase.round(2)), float(gain.round(3))
    (61.35, 3.142)
    """
    delta = positive("delta_s", delta_s)
    turn = positive("beta", beta) / delta * (positive("rtt_s", rtt_s) + not_negative("hold", hold) * delta)
    return np.degrees(np.pi / 2 - turn), np.pi / 2 / turn


def largest_beta(delta_s: Real, rtt_s: Real, phase_margin_deg: Real = 0.0, hold: Real = 0.0) -> Floats:
    r"""Largest beta that leaves the wanted phase margin; 0 degrees is the edge of stability.

    .. math:: \beta_{max} = \Bigl(\frac{\pi}{2} - \varphi\Bigr)\frac{\delta}{T}

    Independent of C, which cancels: that the paper's empirical range moves with C comes from what the linear loop
    leaves out (packet granularity, the bandwidth filter, other flows).

    >>> largest_beta(0.04, 0.05, [0.0, 60.0]).round(3)
    array([1.257, 0.419])
    """
    phase = np.radians(checked("phase_margin_deg", phase_margin_deg, 0, 90, open_high=True))
    delta = positive("delta_s", delta_s)
    return (np.pi / 2 - phase) * delta / (positive("rtt_s", rtt_s) + not_negative("hold", hold) * delta)


def utility(throughput: Real, loss_rate: Real, slope: Real = SIGMOID_SLOPE) -> Floats:
    r"""Utility of one flow; the sigmoid falls from 1 to 0 around 5 % loss.

    .. math:: U_i = T_i\,\mathrm{Sigmoid}(p_i - 0.05) - T_i\frac{p_i}{1-p_i},\qquad
        \mathrm{Sigmoid}(y) = \frac{1}{1+e^{a y}}                                \quad\text{Eq. (6) [Chung18]_}

    >>> float(utility(100.0, 0.0).round(3)), float(utility(100.0, 0.1).round(3))
    (99.331, -10.442)
    """
    p = checked("loss_rate", loss_rate, 0, 1, open_high=True)
    sigmoid = special.expit(-positive("slope", slope) * (p - LOSS_CUTOFF))
    return not_negative("throughput", throughput) * (sigmoid - p / (1 - p))


def mean_utility(throughputs: Real, loss_rates: Real, slope: Real = SIGMOID_SLOPE) -> Floats:
    r"""Utility of a configuration, over its flows (last axis).

    .. math:: U(\beta_{|k}) = \frac1N\sum_{i=1}^N U_i(\beta_{|k}) \quad\text{Eq. (7) [Chung18]_}

    >>> float(mean_utility([1e6, 2e6], [0.0, 0.0]).round(3))
    1489960.724
    """
    return np.atleast_1d(utility(throughputs, loss_rates, slope)).mean(-1)
