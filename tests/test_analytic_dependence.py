"""Minima of dependent delays: order-preserving queues, autocorrelation and reordering against simulated series."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, stats

from cctrace.analytic import dependence
from cctrace.analytic.distributions import TruncatedNormal
from cctrace.errors import ArgumentError
from tests.naive import analytic as naive

JITTER = TruncatedNormal(5000, 1000)


def draws(rng, shape):
    return np.maximum(rng.normal(5000, 1000, shape), 0)


@pytest.mark.parametrize(("step", "digits"), [(2000.0, 1e-12), (150.0, 1e-12), (20.0, 1e-7), (2.0, 1e-8)])
def test_the_running_maximum_is_the_product_over_all_earlier_draws(step, digits):
    x = np.linspace(2000, 9000, 15)
    exact = [dependence.log_cdf(JITTER, value + step * np.arange(30_000)).sum() for value in x]
    assert dependence.running_maximum_log_cdf(JITTER, x, step) == pytest.approx(exact, rel=digits)


@pytest.mark.parametrize("step", [3000.0, 500.0, 100.0])
def test_an_order_preserving_queue_has_the_distribution_of_the_running_maximum(step):
    delays = naive.ordered_delays(draws(np.random.default_rng(3), 200_000), step)[1000:]
    x = np.quantile(delays, [0.02, 0.1, 0.5, 0.9])
    observed = [np.mean(delays <= level) for level in x]
    expected = np.exp(dependence.running_maximum_log_cdf(JITTER, x, step))
    # 200,000 correlated values: a few hundred independent ones at the smallest step.
    assert observed == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("step", "count"), [(3000.0, 24), (1250.0, 160), (500.0, 400)])
def test_the_minimum_over_a_flow_is_predicted_from_its_crossings(step, count):
    rng = np.random.default_rng(5)
    minima = [naive.ordered_delays(draws(rng, count + 30), step)[30:].min() for _ in range(3000)]
    x = np.quantile(minima, [0.1, 0.5, 0.9])
    log_draw, log_delay = dependence.log_cdf(JITTER, x), dependence.running_maximum_log_cdf(JITTER, x, step)
    survival = np.exp(dependence.log_survival_of_minimum(log_delay, log_draw, count))
    assert survival == pytest.approx([0.9, 0.5, 0.1], abs=0.04)  # 4 sd of 3000 minima


@pytest.mark.parametrize("step", [3000.0, 500.0, 50.0])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_autocorrelated_draws_in_order_have_the_distribution_of_a_markov_chain(rho, step):
    scores = signal.lfilter([np.sqrt(1 - rho**2)], [1, -rho], np.random.default_rng(7).normal(size=300_000))
    delays = naive.ordered_delays(np.maximum(5000 + 1000 * scores, 0), step)[2000:]
    p = np.array([0.05, 0.2, 0.5, 0.9])
    x = np.quantile(delays, p)
    one, both = (np.exp(dependence.ordered_log_cdf(JITTER, x, step, rho, gap)) for gap in (None, 0.0))
    # Memory, in draws: that of the series, and of the maximum, which decays from its spread in as many steps.
    independent = len(delays) / ((1 + rho) / (1 - rho) + 4000 / step)
    assert np.all(np.abs(one - p) < 4 * np.sqrt(p * (1 - p) / independent) + 0.003)  # the grids'
    low = delays <= x[:, None]
    assert both / one == pytest.approx((low[:, 1:] & low[:, :-1]).sum(1) / low.sum(1), abs=0.01)


def test_a_vanishing_correlation_is_none():
    x = np.linspace(3000, 8000, 20)
    independent, nearly = (dependence.ordered_log_cdf(JITTER, x, 400.0, rho) for rho in (0.0, 1e-9))
    assert np.exp(nearly) == pytest.approx(np.exp(independent), abs=2e-3)  # the grid of scores and levels


def test_independent_delays_give_the_papers_power():
    x = np.array([1500.0, 2500.0])
    log_draw = dependence.log_cdf(JITTER, x)
    got = dependence.log_survival_of_minimum(log_draw, log_draw, 1e4, ordered=False)
    assert got == pytest.approx(1e4 * JITTER.logsf(x), rel=1e-12)


def test_far_apart_packets_of_an_ordered_path_are_independent():
    x = np.array([1500.0, 2500.0])
    log_draw, log_delay = dependence.log_cdf(JITTER, x), dependence.running_maximum_log_cdf(JITTER, x, 1e5)
    got = dependence.log_survival_of_minimum(log_delay, log_draw, 100.0)
    # But for the extremal index 1 - F, which is what makes the next packet's low delay the same cluster's.
    assert got == pytest.approx(100 * JITTER.logsf(x), rel=0.02)


@settings(max_examples=40)
@given(st.floats(1, 5000), st.floats(1.01, 10), st.floats(1000, 9000))
def test_order_makes_low_delays_rarer_the_closer_the_packets(step, factor, x):
    near, far = (float(dependence.running_maximum_log_cdf(JITTER, x, s)) for s in (step, step * factor))
    assert near <= far + 1e-7 * abs(far)
    assert far <= float(dependence.log_cdf(JITTER, x)) + 1e-12


# --- extremal index ---------------------------------------------------------------------------------------------------
def ar1(rng, correlation, size):
    noise = rng.normal(size=size) * np.sqrt(1 - correlation**2)
    return signal.lfilter([1], [1, -correlation], noise)


def test_the_estimator_is_the_published_one():
    series = ar1(np.random.default_rng(1), 0.9, 20_000)
    level = np.quantile(series, 0.02)
    naively = naive.intervals_extremal_index(series, level)
    assert dependence.extremal_index(series, level) == pytest.approx(naively, rel=1e-12)
    assert dependence.effective_samples(series) == pytest.approx(20_000 * naively, rel=1e-9)
    short = np.array([0.0, 1, 0, 1, 0, 0, 1])  # no distance above 2: the other branch
    assert dependence.extremal_index(short, 0.5) == pytest.approx(naive.intervals_extremal_index(short, 0.5))


def test_independent_samples_count_fully_and_repeated_ones_once():
    series = np.random.default_rng(2).normal(size=50_000)
    assert dependence.effective_samples(series) == pytest.approx(50_000, rel=0.08)
    assert dependence.effective_samples(np.repeat(series, 10)) == pytest.approx(50_000, rel=0.08)


@pytest.mark.parametrize("correlation", [0.3, 0.9, 0.99])
def test_the_crossings_of_an_autocorrelated_jitter_are_owens(correlation):
    z = np.array([-2.5, -1.0, 0.0])
    joint = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    exact = [stats.norm.cdf(level) - joint.cdf([level, level]) for level in z]
    assert dependence.gaussian_crossing(z, correlation) == pytest.approx(exact, abs=1e-8)
    series = ar1(np.random.default_rng(7), correlation, 400_000)
    starts = np.mean((series[:-1] > z[0]) & (series[1:] <= z[0])) / np.mean(series <= z[0])
    assert dependence.gaussian_extremal_index(z[0], correlation) == pytest.approx(starts, rel=0.15)


def test_without_correlation_the_extremal_index_is_the_chance_of_the_predecessor_being_above():
    assert dependence.gaussian_extremal_index([-6.0, -1.0], 0.0) == pytest.approx(stats.norm.sf([-6.0, -1.0]), rel=1e-6)


def test_reordering_leaves_the_count_of_arrivals_random_by_the_square_root_of_the_jitter():
    rng, rate, sd = np.random.default_rng(8), 0.04, 900.0
    counts = []
    for _ in range(600):
        arrivals = np.arange(-300, 900) / rate + rng.normal(0, sd, 1200)
        counts.append(np.sum((arrivals >= 0) & (arrivals < 10_000)))
    # The standard error of a standard deviation from 600 values is 3 %.
    assert np.std(counts) == pytest.approx(dependence.count_noise(rate, sd), rel=0.12)


def test_too_few_low_samples_are_an_error():
    with pytest.raises(ArgumentError, match="2 samples lie below"):
        dependence.extremal_index([0, 5, 0, 5, 5], 1)
    with pytest.raises(ArgumentError, match="step_us"):
        dependence.running_maximum_log_cdf(JITTER, [1000.0], 0)
