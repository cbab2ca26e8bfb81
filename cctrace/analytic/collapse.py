r"""minRTT collapse: why BBR's throughput falls to nothing on a link with delay variation, as equations.

Model ([Kumar19]_, one BBR flow, buffer deep enough never to drop):

    the window is          W = g * BW * RTT_min                       (g = cwnd_gain = 2)
    one RTT delivers       min(W, RTT_UCAV * BW) packets              (RTT_UCAV: mean RTT without queue)
    so, each probe cycle,  BW <- BW * min(g * RTT_min, RTT_UCAV) / RTT_UCAV

and the bandwidth estimate decays geometrically as soon as RTT_min < RTT_UCAV / g. RTT_min is the smallest of N samples
of PROBE_RTT (distribution X, no queue) and M of PROBE_BW (Y, with the queueing delay delta), hence Eqs. (9) and (11).

The paper takes the samples as independent. `cctrace.analytic.dependence` says what that hides, and
`cctrace.analytic.closedloop` puts it back in.

A distribution here is any object with `logsf(x)` and `mean()` that broadcasts: a frozen `scipy.stats` one,
`TruncatedNormal` (the paper's) or `Empirical` (measured). Times are microseconds. The module
`cctrace.analytic.bandwidth` has Eqs. (1) to (7).
"""

from __future__ import annotations  # so that help() shows names of types

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.distributions import Affine, Delay, Distribution, TruncatedNormal
from cctrace.analytic.domain import Domain, Real, checked, domain_of, not_negative, positive
from cctrace.analytic.roots import first_root
from cctrace.arguments import check_choice
from cctrace.columns import Floats
from cctrace.display import Card, Carded, texts_of
from cctrace.errors import ArgumentError

COLLAPSED = 0.5  # of the mean RTT: a window of two such min_rtt no longer fills the path
PAPER_SAMPLES = 10_000  # M and L in Sec. III-E
PAPER_PROBE_RTT_SAMPLES = 160  # N: 4 packets per RTT of 5 ms for 200 ms
PARAMETERS = ("sd_us", "mean_us", "cwnd_gain", "samples", "queue_delay_us")  # that `Collapse` may vary


def min_rtt(probe_rtt_minimum_us: ArrayLike, probe_bw_minimum_us: ArrayLike) -> Floats:
    r"""Smaller of the minima of the two phases.

    .. math:: RTT_{min} = \min(a, b) \quad\text{Eq. (8) [Kumar19]_}

    >>> float(min_rtt(20_000, 18_500))
    18500.0
    """
    return np.minimum(probe_rtt_minimum_us, probe_bw_minimum_us)


def log_survival_of_min_rtt(
    s_us: ArrayLike, probe_rtt: Delay, probe_rtt_samples: Real, probe_bw: Delay, samples: Real
) -> Floats:
    r"""Logarithm of the probability that RTT_min exceeds `s_us`: the integrand of Eq. (9).

    .. math:: \log P[RTT_{min} > s] = N \log(1 - F_X(s)) + M \log(1 - F_Y(s))

    >>> rtt = TruncatedNormal(5000, 750, 75)
    >>> float(log_survival_of_min_rtt(2500.0, rtt, 160, rtt, 10_000).round(2))
    -4.36
    """
    with np.errstate(invalid="ignore"):
        log_x, log_y = probe_rtt_samples * probe_rtt.logsf(s_us), samples * probe_bw.logsf(s_us)
    # Zero samples of a phase whose distribution ends below s: 0 * -inf.
    return np.where(np.isnan(log_x), 0, log_x) + np.where(np.isnan(log_y), 0, log_y)


def expected_min_rtt(probe_rtt: Delay, probe_rtt_samples: Real, probe_bw: Delay, samples: Real) -> Floats:
    r"""Expected minimum RTT over both phases, microseconds.

    .. math:: E[RTT_{min}] = \int_0^\infty (1 - F_X(s))^N (1 - F_Y(s))^M\,ds \quad\text{Eq. (9) [Kumar19]_}

    `probe_rtt`, `probe_bw`: X and Y, of positive RTTs in microseconds. `probe_rtt_samples`, `samples`: N and M, at
    least one of them above 0.

    The integrand falls from 1 to 0, the more steeply the larger N and M. Where it falls is found by bisection (between
    survival 1 - 1e-17 and exp(-45)) and integrated there, on 64 panels of 16 Gauss-Legendre nodes; so M = 1e6 costs and
    errs no more than M = 10.

    >>> rtt = TruncatedNormal(5000, 750, 75)
    >>> float(expected_min_rtt(rtt, 160, rtt, 10_000).round(3))
    2108.362
    """
    n, m = not_negative("probe_rtt_samples", probe_rtt_samples), not_negative("samples", samples)
    positive("probe_rtt_samples + samples", n + m)
    shape = np.broadcast_shapes(n.shape, m.shape, np.shape(probe_rtt.logsf(1.0)), np.shape(probe_bw.logsf(1.0)))

    def log_survival(s: Floats) -> Floats:
        return log_survival_of_min_rtt(s, probe_rtt, n, probe_bw, m)

    high = _where_log_survival(log_survival, -45.0, shape)
    low = np.minimum(_where_log_survival(log_survival, -1e-17, shape), high)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    width = (high - low) / 64
    total = low.copy()
    for panel in range(64):
        middle = low + (panel + 0.5) * width
        for node, weight in zip(nodes, weights, strict=True):
            total += width / 2 * weight * np.exp(log_survival(middle + width / 2 * node))
    return total


def _where_log_survival(log_survival: Callable[[Floats], Floats], level: float, shape: tuple[int, ...]) -> Floats:
    """Return the largest s, elementwise, at which the log survival is still at least `level`."""
    low, high = np.zeros(shape), np.full(shape, 1e12)
    for _ in range(100):
        middle = (low + high) / 2
        alive = log_survival(middle) >= level
        low, high = np.where(alive, middle, low), np.where(alive, high, middle)
    return low


def collapse_probability(rtt: Delay, half_rtt_us: Real, samples: Real) -> Floats:
    r"""Probability that the minimum of `samples` RTTs falls below half the uncongested RTT.

    .. math:: P = 1 - \bigl(1 - F_Y(\tfrac{1}{2} RTT_{UCAV})\bigr)^{L} \quad\text{Eq. (11) [Kumar19]_}

    The minimum of L samples exceeds s with probability :math:`(1 - F_Y(s))^L`, Eq. (10).

    `rtt`: Y, RTT in PROBE_BW, microseconds. `half_rtt_us`: RTT_UCAV / cwnd_gain. `samples`: L, the *effective* number
    of independent samples (see `dependence.effective_samples`), not the packet count.

    Evaluated as ``-expm1(L * logsf)``: exact where P is as small as 1e-300 or L as large as 1e9.

    >>> float(collapse_probability(TruncatedNormal(5000, 500, 75), 2500, 10_000).round(6))
    0.002862
    """
    return 0.0 - np.expm1(not_negative("samples", samples) * rtt.logsf(half_rtt_us))  # "0.0 -": never minus zero


def collapse_mass(samples: ArrayLike, epsilon: ArrayLike) -> Floats:
    r"""Mass that F_Y must have below half the RTT for a collapse with probability 1 - epsilon.

    .. math:: F_Y(\tfrac{1}{2} RTT_{UCAV}) > 1 - \sqrt[L]{\epsilon} \quad\text{Eq. (11) [Kumar19]_}

    >>> float(collapse_mass(10_000, 0.01).round(6))
    0.00046
    """
    epsilon = checked("epsilon", epsilon, 0, 1, open_low=True, open_high=True)
    return -np.expm1(np.log(epsilon) / positive("samples", samples))


def collapse_domain(
    samples: Real,
    half_rtt_us: Real,
    floor_us: ArrayLike,
    autocorrelated: bool = True,
    ordered: bool = True,
    relative_sd: Real = 0.0,
) -> Domain:
    """Where Eq. (11) with packet counts may be used: see the header of `dependence` for what it ignores.

    `relative_sd`: the jitter over the mean RTT; above 1, the normal that is cut has a sixth of its mass below zero.

    >>> collapse_domain(10_000, 2500.0, 75.0, autocorrelated=False).inside
    False
    """
    return domain_of(
        (not ordered, "an order-preserving path keeps a running maximum, its RTTs are not the jitter's distribution"),
        (not autocorrelated, "dependent samples: use the effective number, not the packet count"),
        (np.all(np.asarray(samples) >= 1), "fewer than one sample"),
        (np.all(np.asarray(half_rtt_us) > floor_us), "half the RTT lies below the propagation delay: never reached"),
        (np.all(np.asarray(relative_sd) <= 1), "the jitter exceeds the mean RTT: what is left of the normal is longer"),
    )


class Collapse(Carded):
    """The paper's model with all its parameters, for probabilities, thresholds and surfaces.

    Parameters
    ----------
    rtt : distribution, optional
        Measured or other RTT without queue (with `std()` too), in place of the truncated normal. Its shape is kept when
        `mean_us` or `sd_us` is varied; they default to its own.
    mean_us, sd_us, floor_us : float or array_like
        RTT_UCAV, jitter and propagation delay of the truncated normal RTT.
    samples, probe_rtt_samples : float or array_like
        M = L and N.
    cwnd_gain, queue_delay_us : float or array_like
        g, and delta by which Y lies above X.

    Raises
    ------
    ArgumentError
        For negative or inconsistent parameters, naming them.

    Examples
    --------
    >>> model = Collapse(mean_us=5000, sd_us=750, floor_us=75)
    >>> float(model.probability().round(5)), float(model.threshold("sd_us").round(1))
    (0.98632, 656.1)
    >>> Collapse(mean_us=5000, floor_us=75, queue_delay_us=[0, 1000]).threshold("sd_us").round(1)
    array([656.1, 918.5])
    """

    def __init__(
        self,
        rtt: Distribution | None = None,
        *,
        mean_us: ArrayLike | None = None,
        sd_us: ArrayLike | None = None,
        floor_us: ArrayLike = 0.0,
        samples: Real = PAPER_SAMPLES,
        probe_rtt_samples: Real = PAPER_PROBE_RTT_SAMPLES,
        cwnd_gain: Real = 2.0,
        queue_delay_us: ArrayLike = 0.0,
    ) -> None:
        self.rtt, self.floor_us = rtt, not_negative("floor_us", floor_us)
        self.probe_rtt_samples = not_negative("probe_rtt_samples", probe_rtt_samples)
        if rtt is not None:
            mean_us = rtt.mean() if mean_us is None else mean_us
            sd_us = rtt.std() if sd_us is None else sd_us
        self.values = {
            "mean_us": None if mean_us is None else positive("mean_us", mean_us),
            "sd_us": None if sd_us is None else positive("sd_us", sd_us),
            "samples": positive("samples", samples),
            "cwnd_gain": positive("cwnd_gain", cwnd_gain),
            "queue_delay_us": not_negative("queue_delay_us", queue_delay_us),
        }
        if mean_us is not None and np.any(self.floor_us >= np.asarray(mean_us)):
            raise ArgumentError(
                f"floor_us is {np.max(self.floor_us):g}; no RTT is below it, so it must lie below mean_us"
            )

    def __repr__(self) -> str:
        return f"<Collapse, closed form: {', '.join(f'{name} {value}' for name, value in texts_of(self.values))}>"

    def _card(self) -> Card:
        rows: list[tuple[str, object]] = [*texts_of(self.values)]
        single = all(value is not None and np.ndim(value) == 0 for value in self.values.values())
        if single:
            rows += [
                ("probability of collapse", f"{float(self.probability()):.4g}"),
                ("expected min_rtt, us", f"{float(self.expected_min_rtt()):.1f}"),
                ("threshold of sd, us", f"{float(self.threshold('sd_us')):.1f}"),
            ]
        return "minRTT collapse (closed form)", rows, []

    def _complete(self, changes: dict[str, Any]) -> dict[str, Any]:
        values = self.values | changes
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise ArgumentError(f"{missing[0]} is not given; the model needs it here")
        return values

    def _distribution(self, v: dict[str, Any], queue_delay_us: ArrayLike) -> Delay:
        if self.rtt is None:
            return TruncatedNormal(v["mean_us"] + queue_delay_us, v["sd_us"], self.floor_us)
        stretch = v["sd_us"] / self.rtt.std()
        return Affine(self.rtt, stretch, v["mean_us"] - self.rtt.mean() + queue_delay_us)

    def probability(self, **changes: ArrayLike) -> Floats:
        """Return Eq. (11), with some of `PARAMETERS` replaced by `changes` (arrays broadcast)."""
        v = self._complete(changes)
        rtt = self._distribution(v, v["queue_delay_us"])
        return collapse_probability(rtt, v["mean_us"] / v["cwnd_gain"], v["samples"])

    def surface(self, **axes: ArrayLike) -> Floats:
        """Return Eq. (11) on the grid that the named `axes` (one-dimensional arrays) span, in their order.

        >>> Collapse(mean_us=5000, floor_us=75).surface(sd_us=[500, 750], queue_delay_us=[0, 500, 1000]).shape
        (2, 3)
        """
        grids = np.meshgrid(*(np.asarray(values, dtype=float) for values in axes.values()), indexing="ij")
        return self.probability(**dict(zip(axes, grids, strict=True)))

    def expected_min_rtt(self, **changes: ArrayLike) -> Floats:
        """Return Eq. (9), with some of `PARAMETERS` replaced by `changes`."""
        v = self._complete(changes)
        rtt, queued = self._distribution(v, 0.0), self._distribution(v, v["queue_delay_us"])
        return expected_min_rtt(rtt, self.probe_rtt_samples, queued, v["samples"])

    def threshold(
        self,
        parameter: str = "sd_us",
        probability: ArrayLike = 0.5,
        bracket: tuple[ArrayLike, ArrayLike] | None = None,
        **changes: ArrayLike,
    ) -> Floats:
        """Return the value of `parameter` at which the collapse probability crosses `probability`.

        Parameters
        ----------
        parameter : str
            One of `PARAMETERS`; the others are taken from the model, or `changes`, and broadcast.
        bracket : (low, high), optional
            Where to look. Defaults: sd 1e-4 to 3 means; mean 1 to 100 times floor + sd; gain 1 to 100; samples 1 to
            1e12; delay 1e-6 to 100 means.

        Raises
        ------
        ArgumentError
            For an unknown parameter, or if there is no crossing in the bracket.
        """
        check_choice("parameter", parameter, PARAMETERS)
        target = checked("probability", probability, 0, 1, open_low=True, open_high=True)
        v = self._complete(changes | {parameter: 1.0})
        default = {
            "sd_us": lambda: (1e-4 * v["mean_us"], 3 * v["mean_us"]),
            "mean_us": lambda: (self.floor_us + v["sd_us"], 100 * (self.floor_us + v["sd_us"])),
            "cwnd_gain": lambda: (1.0, 100.0),
            "samples": lambda: (1.0, 1e12),
            "queue_delay_us": lambda: (1e-6 * v["mean_us"], 100 * v["mean_us"]),
        }[parameter]
        others = [value for name, value in v.items() if name != parameter]
        ends = default() if bracket is None else bracket
        shape = np.broadcast_shapes(*map(np.shape, (*others, *ends, target, self.floor_us)))
        low, high = (np.broadcast_to(end, shape) for end in ends)
        log_target = np.log1p(-target)

        def excess(x: Floats) -> Floats:
            w = v | {parameter: x}
            rtt = self._distribution(w, w["queue_delay_us"])
            return log_target - w["samples"] * rtt.logsf(w["mean_us"] / w["cwnd_gain"])

        return first_root(excess, low, high, parameter, "the collapse probability")
