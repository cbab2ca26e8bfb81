r"""Effective sample size and standard errors of autocorrelated samples.

Samples of one flow are autocorrelated, and errors computed as if they were independent are far too small. The functions
here use blocks long enough that block means are nearly independent.

The block length is [Politis04]_'s (with [Patton09]_'s correction) for the circular block bootstrap; the effective
number of samples is n times the variance over the long-run variance, :math:`n \gamma_0 / \sum_k \gamma_k`.
"""

import numpy as np

from cctrace.columns import Floats
from cctrace.estimates import Z95, Estimate
from cctrace.special import special

MAX_LAGS = 5_000
_TRANSFORM = 1 << 18  # samples, of which a transform has 8 MB


def autocovariances(series: Floats, lags: int) -> Floats:
    """Return the autocovariances of a series at lags 0 to `lags`.

    Of a long one they are summed over parts: a transform of a million samples would have 70 MB, with what the library
    needs, and take longer.
    """
    n, mean = len(series), np.mean(series)
    size = min(1 << int(np.ceil(np.log2(2 * n))), _TRANSFORM)
    found, step = np.zeros(lags + 1), size - lags
    for begin in range(0, n, step):
        part = series[begin : begin + size] - mean
        spectrum = np.fft.rfft(part, size)
        first = spectrum if len(part) <= step else np.fft.rfft(part[:step], size)
        for product, by in zip(np.array_split(spectrum, 64), np.array_split(first, 64), strict=True):
            product *= np.conj(by)
        found += np.fft.irfft(spectrum, size)[: lags + 1]
    return found / n


def correlation_time(series: Floats, step_us: float) -> Estimate:
    r"""Return the autocorrelation time of evenly spaced samples, an `Estimate` in us.

    Half a step plus the sum of the correlations up to a lag of five times the result [Sokal97]; larger lags would
    only add noise. Its relative error is :math:`\sqrt{4 (M + 1/2 - \tau) / n}`, with M that lag and tau the time in
    samples [Wolff04]; as a sum of squares, the estimate is uncertain by a factor.
    """
    low, high = np.quantile(series, [0.005, 0.995])
    series, n = np.clip(series, low, high), len(series)
    gamma = autocovariances(series, min(MAX_LAGS, n - 1))
    if gamma[0] <= 0:
        return Estimate(0.0)
    times = 0.5 + np.cumsum(gamma[1:]) / gamma[0]
    beyond = np.flatnonzero(np.arange(1, len(times) + 1) >= 5 * times)
    lag = int(beyond[0]) if len(beyond) else len(times) - 1
    value = max(float(times[lag]), 0.5)
    error = min(Z95 * np.sqrt(4 * max(lag + 1.5 - value, 0.5) / n), 3.0)
    # Half the bias of subtracting the mean; the choice of the lag makes up the other half.
    value *= 1 + (lag + 1) / n
    return Estimate(value * step_us, value * step_us * np.exp(-error), value * step_us * np.exp(error))


def block_length(series: Floats) -> int:
    """Return the block length (samples) for the circular block bootstrap of a series' mean [Politis04]_.

    >>> block_length(np.random.default_rng(1).standard_normal(1000)) < 10
    True
    """
    n = len(series)
    if n < 16 or np.ptp(series) == 0:
        return 1
    most = int(min(np.ceil(3 * np.sqrt(n)), n // 3))
    reach = max(5, int(np.ceil(np.sqrt(np.log10(n)))))
    lags = min(max(2 * most, reach), MAX_LAGS, n - 1)
    gamma = autocovariances(series, lags)
    small = np.abs(gamma[1:] / gamma[0]) < 2 * np.sqrt(np.log10(n) / n)
    # The first lag from which the correlations stay insignificant.
    runs = np.convolve(small, np.ones(reach), "valid") >= reach
    m = int(np.argmax(runs)) if runs.any() else lags
    m = min(2 * max(m, 1), lags)
    k = np.arange(-m, m + 1)
    flat_top = np.clip(2 * (1 - np.abs(k) / m), 0, 1)
    g = gamma[np.abs(k)] * flat_top
    spread = 4 / 3 * g.sum() ** 2
    if spread <= 0:
        return most
    return int(np.clip(np.ceil((2 * (np.abs(k) * g).sum() ** 2 / spread) ** (1 / 3) * n ** (1 / 3)), 1, most))


def effective_samples(series: Floats) -> float:
    """Return the number of independent samples whose mean would be as uncertain as that of `series`.

    >>> n = effective_samples(np.repeat(np.random.default_rng(1).standard_normal(500), 20))
    >>> bool(300 < n < 800)
    True
    """
    series = np.asarray(series, float)
    n = len(series)
    if n < 4 or np.ptp(series) == 0:
        return 1.0
    means = block_means(series, block_sizes(series))
    return float(np.clip(float(np.var(series)) / max(float(np.var(means, ddof=1)) / len(means), 1e-300), 1.0, n))


def block_sizes(series: Floats, least: int = 20) -> int:
    """Return the block length for sandwich errors: three times the bootstrap's, but at least `least` blocks."""
    return int(np.clip(3 * block_length(series), 1, max(len(series) // least, 1)))


def block_means(series: Floats, length: int) -> Floats:
    """Return the means of successive blocks; an incomplete last block is dropped."""
    count = max(len(series) // length, 1)
    return np.asarray(series[: count * length], float).reshape(count, -1).mean(axis=1)


def blocked(rows: Floats, length: int) -> Floats:
    """Return the sums of successive blocks of rows, shape (blocks, columns)."""
    edges = np.arange(0, len(rows), length)
    return np.add.reduceat(rows, edges, axis=0)


def student(degrees: int) -> float:
    """Return the ratio of a 95 % interval of Student's t distribution to a normal one."""
    return float(special.stdtrit(degrees, 0.975) / Z95)
