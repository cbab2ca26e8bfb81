"""The analytic models again, slowly: 40-digit arithmetic, literal sums and simulated draws."""

import itertools

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def truncated_normal_sf(x, mean, sd, floor):
    x, mean, sd, floor = map(mp.mpf, map(float, (x, mean, sd, floor)))
    if x <= floor:
        return mp.mpf(1)
    return mp.ncdf((mean - x) / sd) / mp.ncdf((mean - floor) / sd)


def collapse_probability(mean, sd, floor, samples, queue_delay=0, gain=2):
    sf = truncated_normal_sf(mp.mpf(mean) / gain, mean + queue_delay, sd, floor)
    return 1 - sf ** mp.mpf(samples)


def expected_min_rtt(mean, sd, floor, n, m, queue_delay=0):
    def survival(s):
        x = truncated_normal_sf(s, mean, sd, floor)
        y = truncated_normal_sf(s, mean + queue_delay, sd, floor)
        return x ** mp.mpf(n) * y ** mp.mpf(m)

    # Break points around the cliff, which lies a few sd below the mean.
    points = sorted({max(mp.mpf(floor), mean + queue_delay - mp.mpf(k) * sd) for k in range(-7, 11)})
    with mp.workdps(18):
        return points[0] + mp.quad(survival, points, maxdegree=6)


def threshold_sd(mean, floor, samples, queue_delay, guess, probability="0.5"):
    def excess(sd):
        sf = truncated_normal_sf_exact(mp.mpf(mean) / 2, mean + queue_delay, sd, floor)
        return mp.log(1 - mp.mpf(probability)) - samples * mp.log(sf)

    return mp.findroot(excess, mp.mpf(guess))


def truncated_normal_sf_exact(x, mean, sd, floor):
    return mp.ncdf((mean - x) / sd) / mp.ncdf((mean - floor) / sd)


def ordered_delays(jitter, step):
    """Delay of each packet behind an order-preserving queue: it cannot arrive before its predecessor."""
    delay = np.empty_like(jitter)
    delay[0] = jitter[0]
    for k in range(1, len(jitter)):
        delay[k] = max(jitter[k], delay[k - 1] - step)
    return delay


def intervals_extremal_index(series, level):
    """Ferro and Segers' estimator for what falls below `level`, from the times between such samples."""
    below = [k for k, value in enumerate(series) if value < level]
    gaps = [b - a for a, b in itertools.pairwise(below)]
    if max(gaps) <= 2:
        top, bottom = 2 * sum(gaps) ** 2, len(gaps) * sum(g**2 for g in gaps)
    else:
        top = 2 * sum(g - 1 for g in gaps) ** 2
        bottom = len(gaps) * sum((g - 1) * (g - 2) for g in gaps)
    return min(1.0, top / bottom)


def pftk(rtt, p, t0, wm, b):
    """Padhye's full model with 40 digits, as printed."""
    rtt, p, t0, wm, b = map(mp.mpf, map(str, (rtt, p, t0, wm, b)))

    def q(w):
        k = 1 - p
        return min(1, (1 - k**3) * (1 + k**3 * (1 - k ** (w - 3))) / (1 - k**w))

    f = 1 + p + 2 * p**2 + 4 * p**3 + 8 * p**4 + 16 * p**5 + 32 * p**6
    wu = (2 + b) / (3 * b) + mp.sqrt(8 * (1 - p) / (3 * b * p) + ((2 + b) / (3 * b)) ** 2)
    if wu < wm:
        return ((1 - p) / p + wu + q(wu) / (1 - p)) / (rtt * (b / 2 * wu + 1) + q(wu) * t0 * f / (1 - p))
    top = (1 - p) / p + wm + q(wm) / (1 - p)
    return top / (rtt * (b / 8 * wm + (1 - p) / (p * wm) + 2) + q(wm) * t0 * f / (1 - p))
