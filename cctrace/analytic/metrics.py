"""Kleinrock's operating point [Kleinrock79], Jain's index [Jain84]_, throughput gain [Yang22]_ Eqs. 1 and 2."""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.domain import not_negative, positive
from cctrace.columns import Floats


def operating_point(inflight: ArrayLike, capacity: ArrayLike, base_rtt: ArrayLike) -> tuple[Floats, Floats, Floats]:
    r"""Throughput, RTT and power of a deterministic path with `inflight` data in it.

    .. math:: \lambda = \min(n / l, c),\qquad RTT = \max(l, n / c),\qquad P = \lambda / RTT \quad\text{[Kleinrock79]_}

    Power is largest exactly at n = c l: full throughput, no queue. Units agree: packets, packets per second, seconds.

    >>> throughput, rtt, power = operating_point([50, 100, 200], 2500.0, 0.04)
    >>> rtt
    array([0.04, 0.04, 0.08])
    """
    n, c = not_negative("inflight", inflight), positive("capacity", capacity)
    base = positive("base_rtt", base_rtt)
    throughput, rtt = np.minimum(n / base, c), np.maximum(base, n / c)
    return throughput, rtt, throughput / rtt


def jain(throughputs: ArrayLike) -> Floats:
    r"""Jain's fairness index over the last axis.

    .. math:: \mathcal F = \frac{(\sum_i T_i)^2}{n \sum_i T_i^2} \quad\text{Eq. (1) [Yang22]_}

    1 where all are equal (all zero included), 1/n where one has all.

    >>> float(jain([30.0, 10.0]))
    0.8
    """
    t = np.atleast_1d(not_negative("throughputs", throughputs))
    squares = t.shape[-1] * (t**2).sum(-1)
    return np.divide(t.sum(-1) ** 2, squares, out=np.ones_like(squares), where=squares > 0)


def throughput_gain(of: ArrayLike, over: ArrayLike) -> Floats:
    r"""Relative gain in throughput of one over the other.

    .. math:: Tput\_Gain = \frac{Tput_{BBR} - Tput_{BBRv2}}{Tput_{BBRv2}} \quad\text{Eq. (2) [Yang22]_}

    >>> float(throughput_gain(12.0, 10.0).round(2))
    0.2
    """
    over = positive("over", over)
    return (not_negative("of", of) - over) / over
