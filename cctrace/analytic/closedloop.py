r"""minRTT collapse of one flow in its loop: Eqs. 9 to 11 of [Kumar19]_ with what the flow really samples.

The paper asks for P[RTT_min < RTT/2] over independent samples. In the loop four things differ, and all follow from the
path (a rate, a delay distribution, how it is drawn) and the sender's constants; nothing here is fitted.

1. *What is sampled.* Delays of an order-preserving path are running maxima, met at the spacing of the packets:
   `dependence`. PROBE_RTT samples them at 4 packets per RTT, and so meets lower ones than PROBE_BW at full rate.
2. *The loop is longer than the mean RTT.* An ACK that comes late delays the sending; one that comes early cannot hurry
   it beyond the pacing rate. With pacing at k times the throughput, S_n = max(S_{n-1} + 1/pacing, ack of n - W): again
   a running maximum, of the delays, decaying with slope e = 1 - 1/k. The mean loop time is L = E[max_i J_i - i e tau].
3. *The bandwidth estimate is a maximum.* It keeps, over 10 rounds, the best of W / max(send interval, ACK interval):
   the first is a loop time, the second a delay, so k = L / E[min over 10 rounds of max(loop, delay)]. With 2, a fixed
   point for k. On a reordering path the ACKs' *count* is random instead (`dependence.count_noise`).
4. *The window has a constant part.* W = g BW RTT_min + Q, Q three TSO bursts (135 packets at 1 Gbit/s!).

At throughput u (share of the link) the loop balances where u C L = g k u C RTT_min + Q(u), hence

.. math:: RTT_{crit}(u) = \frac{L - Q/(uC) - E}{g\,k}, \qquad P = P[RTT_{min} < RTT_{crit}(\tfrac12)]

which is Eq. 11 with RTT_UCAV / 2 replaced; u = 1/2 because a run counts as collapsed below half the link. E is what
later versions add to the window (2019: extra_acked; BBRv2+: its compensation), as time. No queue stands at the
bottleneck at half its rate, so delta is 0 there; at full rate it is `queue_delay_us`.

Jitter *before* the queue (`Link.before`) changes two of these. A delayed packet lets the queue behind it run empty, and
its followers then wait for each other's service too: delays decay by 1 - u instead of 1 (`jittered.decay_share`). What
comes in a clump is served at the link's rate, so that ACKs never exceed it: E shrinks by 1 - u, and k is at most 1/u.

Times in microseconds, rates in packets per microsecond.
"""

from __future__ import annotations  # so that help() shows names of types

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic import dependence
from cctrace.analytic.collapse import COLLAPSED
from cctrace.analytic.domain import Domain, domain_of
from cctrace.analytic.jittered import Constants, Link, burst_segments, decay_share, draw_interval_us, pacing_share
from cctrace.analytic.roots import fixed_point
from cctrace.columns import Floats
from cctrace.errors import ArgumentError
from cctrace.special import special

_POINTS = 256
_SCANNED = 25  # jitters tried where the ends bracket no threshold: steps of a third over three decades
_EXTRA_ROUNDS = 10.0  # extra_acked is a maximum over 5 to 10 rounds, in every version


class Loop(NamedTuple):
    """State of the loop at one throughput (see the module's header).

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> loop(path, bbr).quanta
    133
    """

    throughput: float  # packets per microsecond
    delay_us: float  # E[d], the mean RTT without queue
    loop_us: float  # L
    overestimate: float  # k
    extra_us: float  # E
    quanta: float  # Q, packets


# --- the loop --------------------------------------------------------------------------------------------------------
def _grid(path: Link) -> Floats:
    low, high = float(path.delay.ppf(1e-12)), float(path.delay.ppf(1 - 1e-13))
    return np.linspace(low, high, _POINTS)


def _mean(x: Floats, cdf: Floats) -> float:
    return float(x[0] + np.trapezoid(1 - cdf, x))


def _decaying(path: Link, x: Floats, step_us: float) -> tuple[Floats, Floats]:
    """Return the mean-over-packets and the end-of-interval distributions of the running maximum.

    Packets of one burst or slot share a draw and lie anywhere in it; the last has waited longest since the previous.
    """
    at_end = np.exp(dependence.ordered_log_cdf(path.delay, x, step_us, path.rho))
    if path.draws == "packet":
        return at_end, at_end
    nodes, weights = np.polynomial.legendre.leggauss(3)
    gaps = (nodes + 1) / 2 * step_us
    anywhere = np.exp(dependence.ordered_log_cdf(path.delay, x[:, None], step_us, path.rho, gaps)) @ weights / 2
    return anywhere, at_end


def _log_stay(path: Link, x: Floats, step_us: float, rho: float) -> Floats:
    """Return log P[d_k <= x | d_k+1 <= x]: log F(x) for independent draws, more for autocorrelated ones."""
    if rho == 0:
        return dependence.log_cdf(path.delay, x)
    both, one = (dependence.ordered_log_cdf(path.delay, x, step_us, rho, gap) for gap in (0.0, step_us))
    return np.where(np.isfinite(one), both - np.where(np.isfinite(one), one, 0), 0.0)


def loop(path: Link, sender: Constants, share: float = COLLAPSED) -> Loop:
    """Return the `Loop` of a flow that gets `share` of the link; `ArgumentError` if that is not in (0, 1].

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> round(float(loop(path, bbr).loop_us))
    8581
    """
    if not 0 < share <= 1:
        raise ArgumentError(f"share is {share:g}; it must lie in (0, 1]")
    return _loop(path, sender, share)


@functools.lru_cache(maxsize=8)  # a path's probability and domain ask for the same loop, most of their work
def _loop(path: Link, sender: Constants, share: float) -> Loop:
    rate = share * path.capacity
    delay, loop_us, k, extra = (_ordered_loop if path.ordered else _reordering_loop)(path, sender, rate)
    quanta = 3 * burst_segments(path, rate * k) + 1  # rounded up to even: 1 more in the mean
    return Loop(rate, delay, loop_us, k, extra, quanta)


def _ordered_loop(path: Link, sender: Constants, rate: float) -> tuple[float, float, float, float]:
    x, tau, most = _grid(path), draw_interval_us(path, rate), decay_share(path, rate)
    delays, _ = _decaying(path, x, most * tau)
    delay_us, log_stay = _mean(x, delays), _log_stay(path, x, most * tau, path.rho)
    draws = sender.filter_rounds * delay_us / tau

    def loop_and_best(k: float) -> tuple[float, float]:
        effective, lowest = _decaying(path, x, min(1 - 1 / (k * share), most) * tau)
        with np.errstate(divide="ignore"):
            # A loop time and, one round later, an ACK's delay: at the end of its slot for one, anywhere in its slot for
            # the other.
            both = np.log(lowest) + np.log(delays)
        survival = np.exp(dependence.log_survival_of_minimum(both, 2 * log_stay, draws))
        return _mean(x, effective), _mean(x, 1 - survival)

    share = pacing_share(path, sender)
    k = fixed_point(lambda k: np.divide(*loop_and_best(k)), 1 / share)
    # A clump of ACKs follows each large draw: all packets it delayed, less those that an average draw would have
    # delayed; a queue behind the jitter lets them out at its rate.
    peak = float(path.delay.ppf(0.5 ** (1 / max(_EXTRA_ROUNDS * delay_us / tau, 1))))
    clump = max(peak - float(np.interp(0.5, delays, x)), 0.0)
    return delay_us, loop_and_best(k)[0], k, most * clump


def _reordering_loop(path: Link, sender: Constants, rate: float) -> tuple[float, float, float, float]:
    """As `_ordered_loop`, but any ACK releases the next packet: what varies is the number of arrivals."""
    mean = float(path.delay.mean())
    sd = max(float(path.delay.ppf(0.5) - path.delay.ppf(special.ndtr(-1))), 1e-3)  # a constant delay is a narrow one
    noise, correlated = float(dependence.count_noise(rate, sd)), 2 * sd
    # The send interval of a sample starts at the most recently sent packet that was ACKed: one with a low delay.
    shortest = float(path.delay.ppf(min(0.5, 1 / max(rate * correlated, 2))))
    best = special.ndtri(0.5 ** (1 / max(sender.filter_rounds * mean / correlated, 1)))
    share = pacing_share(path, sender)
    k = max(1 + best * noise / (rate * shortest), 1.003 / share)
    k = min(k, path.capacity / rate) if path.before else k  # ACKs come no faster than the queue behind serves
    shape = _Normal(mean, noise / rate)
    smooth = replace(path, delay=shape, draws="slot", ordered=True)
    loop_us = _mean(_grid(smooth), _decaying(smooth, _grid(smooth), (1 - 1 / (k * share)) * correlated)[0])
    return mean, loop_us, k, special.ndtri(0.5 ** (correlated / (_EXTRA_ROUNDS * mean))) * noise / rate


class _Normal(NamedTuple):
    """An uncut normal distribution, for the fluctuation of arrivals."""

    mean_us: float
    sd_us: float

    def logsf(self, x: ArrayLike) -> Floats:
        return special.log_ndtr((self.mean_us - np.asarray(x)) / self.sd_us)

    def ppf(self, q: ArrayLike) -> Floats:
        return self.mean_us + self.sd_us * special.ndtri(q)

    def mean(self) -> float:
        return self.mean_us


# --- the minimum -----------------------------------------------------------------------------------------------------
def _probe_rtt_interval_us(path: Link, sender: Constants, rate: float) -> float:
    window = 4.0 if not sender.probe_rtt_share else max(4.0, sender.probe_rtt_share * rate * path.delay.mean())
    return float(path.delay.mean()) / window


def log_survival_of_min_rtt(path: Link, sender: Constants, share: float = COLLAPSED) -> tuple[Floats, Floats]:
    r"""Delays x and log P[RTT_min > x]: the integrand of Eq. (9), over one lifetime of the filter.

    .. math:: \log P[RTT_{min} > x] = \log P[\min_{PROBE\_RTT} > x] + \log P[\min_{PROBE\_BW} > x]

    Each from `dependence.log_survival_of_minimum`: PROBE_RTT 200 ms and one RTT at its window, PROBE_BW 10 s at `share`
    of the link without queue.

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> x, log_survival = log_survival_of_min_rtt(path, bbr)
    >>> round(float(x[np.searchsorted(-log_survival, np.log(2))]), -1)  # the median of RTT_min
    3560.0
    """
    x, rate = _grid(path), share * path.capacity
    gap = _probe_rtt_interval_us(path, sender, rate)
    pairs = path.ack_every if path.ordered else 1
    probes = 10.0 / sender.probe_rtt_every_s * (200_000 + float(path.delay.mean()))
    probe_step = max(gap * pairs, path.slot_us if path.draws == "slot" else 0.0)
    # Of a pair that one ACK covers the later delay counts: the larger draw, unless both share a burst's draw.
    power = pairs if path.draws == "packet" else 1
    return x, _phase(path, x, min(1 / gap, rate), probe_step, probes, power) + _phase(
        path, x, rate, draw_interval_us(path, rate), 1e7
    )


def _phase(path: Link, x: Floats, rate: float, step_us: float, duration_us: float, power: float = 1) -> Floats:
    if not path.ordered:
        draw = power * dependence.log_cdf(path.delay, x)
        return dependence.log_survival_of_minimum(draw, draw, duration_us / step_us, ordered=False)
    rho = path.rho ** (step_us / path.slot_us) if path.draws == "slot" else path.rho  # of draws that packets meet
    decay_us = step_us * decay_share(path, rate)
    running = power * dependence.ordered_log_cdf(path.delay, x, decay_us, rho)
    stay = power * _log_stay(path, x, decay_us, rho)
    return dependence.log_survival_of_minimum(running, stay, duration_us / step_us)


def critical_min_rtt_us(path: Link, sender: Constants, state: Loop) -> float:
    """RTT_crit: below it the loop cannot keep the throughput of `state` (a `Loop`). Infinite or negative: never.

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> round(float(critical_min_rtt_us(path, bbr, loop(path, bbr))))
    2427
    """
    if sender.knows == "rtt":
        return -np.inf
    quanta_us = state.quanta / state.throughput
    extra = sender.aggregation * state.extra_us
    if not sender.quanta_added:
        # The window is the larger of the two, not their sum.
        if quanta_us + extra >= state.loop_us:
            return -np.inf
        quanta_us = 0.0
    if sender.knows == "bandwidth":
        full = path.capacity / state.throughput
        return (state.loop_us - quanta_us) / (sender.cwnd_gain * full)
    plain = (state.loop_us - quanta_us - extra) / (sender.cwnd_gain * state.overestimate)
    if not sender.compensation:
        return plain
    # The mean deviation reaches 0.55 of a step in the RTT (gains 1/8 and 1/4); below 0.4 min_rtt it is not used.
    jitter = 0.55 * state.extra_us
    return min(plain, max(plain - jitter, jitter / 0.4))


def collapse_probability(path: Link, sender: Constants, share: float = COLLAPSED) -> float:
    r"""Probability that the flow is found below `share`, u, of the link.

    .. math:: P = P[RTT_{min} < RTT_{crit}(u)]

    >>> from cctrace.analytic.jittered import SENDERS, Link
    >>> from cctrace.analytic.distributions import TruncatedNormal
    >>> fast = Link(1e9, TruncatedNormal(5000, 1250), ack_every=2)
    >>> slow = Link(1e9, TruncatedNormal(5000, 1250), draws="slot", ack_every=2)
    >>> [round(collapse_probability(path, SENDERS["bbr2016"]), 1) for path in (fast, slow)]
    [0.0, 0.7]
    """
    critical = critical_min_rtt_us(path, sender, loop(path, sender, share))
    x, log_survival = log_survival_of_min_rtt(path, sender, share)
    if critical <= x[0]:
        return 0.0
    return float(-np.expm1(np.interp(critical, x, log_survival)))


def expected_min_rtt(path: Link, sender: Constants, share: float = COLLAPSED) -> float:
    """E[RTT_min], Eq. (9) [Kumar19]_ over `log_survival_of_min_rtt`, microseconds.

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> round(float(expected_min_rtt(path, bbr)))
    3479
    """
    x, log_survival = log_survival_of_min_rtt(path, sender, share)
    return _mean(x, -np.expm1(log_survival))


def queue_delay_us(path: Link, sender: Constants, min_rtt_us: ArrayLike) -> Floats:
    r"""Delta: the queue that the window keeps at full rate while min_rtt is `min_rtt_us`.

    .. math:: \delta = \max\bigl(0,\; g\,k\,RTT_{min} + Q/C + E - L\bigr)

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> round(float(queue_delay_us(path, bbr, 4000.0)))
    1474
    """
    state = loop(path, sender, 1.0)
    extra = sender.aggregation * state.extra_us
    window = sender.cwnd_gain * state.overestimate * np.asarray(min_rtt_us) + state.quanta / path.capacity + extra
    return np.maximum(window - state.loop_us, 0)


def threshold(
    path_of: Callable[[float], Link],
    sender: Constants,
    low: float,
    high: float,
    probability: float = 0.5,
    share: float = COLLAPSED,
) -> float:
    """Least jitter between `low` and `high` at which the collapse probability rises through `probability`.

    `path_of`: jitter (any unit) -> Link. Raises `ArgumentError` if there is no crossing.

    The probability jumps where a burst loses a segment, so the crossing is bracketed by bisection to 0.3 %. Under wide
    reordering it falls again (`domain` says where the model ends): where the two ends do not bracket a crossing, the
    first one on a geometric grid is taken.

    >>> from cctrace.analytic import distributions, jittered
    >>> paths = lambda sd_us: Link(1e9, distributions.TruncatedNormal(5000, sd_us), ack_every=2)
    >>> round(threshold(paths, jittered.SENDERS["bbr2016"], 100.0, 2000.0))
    1867
    """

    def collapses(jitter: float) -> bool:
        return collapse_probability(path_of(jitter), sender, share) >= probability

    at_low, at_high = collapses(low), collapses(high)
    if at_low or not at_high:
        grid = np.geomspace(low, high, _SCANNED)
        above = [at_low, *(collapses(jitter) for jitter in grid[1:-1]), at_high]
        rise = next((i for i in range(1, _SCANNED) if above[i] and not above[i - 1]), None)
        if rise is None:
            side = "above" if all(above) else "below" if not any(above) else "above, then below,"
            raise ArgumentError(
                f"jitter has no threshold in [{low:g}, {high:g}]: the collapse probability stays {side} {probability:g}"
            )
        low, high = grid[rise - 1], grid[rise]
    while high / low > 1.003:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if collapses(middle) else (middle, high)
    return float(np.sqrt(low * high))


def domain(path: Link, sender: Constants) -> Domain:
    """Where the model was derived and checked (docs/models.md): versions, bursts, ACKs.

    >>> from cctrace.analytic import distributions, jittered
    >>> path, bbr = Link(1e9, distributions.TruncatedNormal(5000, 1250), ack_every=2), jittered.SENDERS["bbr2016"]
    >>> domain(path, bbr).inside
    True
    """
    state = loop(path, sender)
    packets, later = state.throughput * state.loop_us, sender.probe_rtt_share > 0
    return domain_of(
        (
            packets >= 20,
            f"only {packets:.0f} packets in flight at half the rate: the window's floor of 4 packets matters",
        ),
        (
            path.ordered or state.quanta < packets,
            f"reordering so wide that the bandwidth estimate is {state.overestimate:.1f} times the throughput: three "
            "bursts of it fill the path in the model, while simulated flows collapse",
        ),
        (
            not later or not (path.ordered or sender.compensation),
            "BBRv2 and later, order preserved: jitter ends STARTUP early, they grow back over minutes (half of the "
            "runs lose half of the link at a jitter of 0.41 to 0.68 of the mean RTT with BBRv2, 0.7 to 1.1 with "
            "BBRv3; see cctrace sweep --vary jitter=...); BBRv2+: its compensation",
        ),
        (not (sender.aggregation and path.draws == "slot"), "extra_acked under slow jitter: grows with what it causes"),
        (
            not (path.before and path.draws != "packet"),
            "draws per burst or slot before the queue: thresholds come out 8 to 41 % too high; simulate instead "
            "(cctrace sweep --vary jitter_before=...)",
        ),
        (
            not (path.before and path.ordered) or packets >= 50,
            f"jitter before the queue, only {packets:.0f} packets in flight at half the rate: threshold to 57 % high",
        ),
        (path.rho == 0, "autocorrelated draws: thresholds come out up to a quarter low, and reordered ones unmodelled"),
    )
