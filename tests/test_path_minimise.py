"""Where a cost is least, and the compiled costs of a rate: those of numpy, and cut short without harm."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.path.bottleneck import deviation_of
from cctrace.path.constants import SMALL_US, SPENT_QUANTILE
from cctrace.path.lindley import median, quantile
from cctrace.path.minimise import least_of, least_within
from cctrace.path.own_queue import bottleneck_of, coarser
from cctrace.path.queue import constant, departures
from cctrace.path.sent import SentPackets


def flow_of(rng, count=3_000, rate=2.0):
    """Bursts through a queue of 2 bytes/us, jitter behind it; one delay in ten is unknown."""
    sent_us = np.sort(rng.choice(np.arange(0.0, 5e6, 20_000), count)) + np.sort(rng.uniform(0, 500, count))
    size = rng.choice([60.0, 1514.0], count)
    acked_us = departures(sent_us, size, constant(rate)) + 20_000 + rng.normal(0, 300, count)
    acked_us[rng.random(count) < 0.1] = np.nan
    return SentPackets(sent_us, size, acked_us, np.arange(count), np.ones(count, bool), np.ones(count, bool))


def with_bucket(flow, rate, least_us):
    """What a token bucket leaves, by the definition: `refilled_shaper`."""
    left = (flow.acked_us - departures(flow.sent_us, flow.wire_bytes, constant(rate)))[flow.acked] - least_us
    bucket = -np.quantile(left, SPENT_QUANTILE) * rate
    if not bucket > 0:
        return np.inf
    gone = departures(flow.sent_us, flow.wire_bytes, constant(rate), bucket)
    return np.mean(np.log1p(np.abs((flow.acked_us - gone)[flow.acked] - least_us) / SMALL_US))


@pytest.mark.parametrize("rate", [0.3, 1.9, 2.0, 2.3, 40.0])
def test_the_compiled_deviation_is_numpys(rng, rate):
    flow = flow_of(rng)
    for whole in (False, True):
        wanted = deviation_of(flow, flow.unexplained(constant(rate)), whole)
        assert flow.deviation_at(rate, np.inf, whole) == pytest.approx(wanted, rel=1e-12)
        assert flow.deviation_at(rate, wanted * 1.001, whole) == pytest.approx(wanted, rel=1e-12)
        assert flow.deviation_at(rate, wanted * 0.999, whole) == np.inf
        assert len(flow._scratch(1)[0]) == (len(flow.timed) if whole else flow.window_rows)  # no more than it takes


@pytest.mark.parametrize("whole", [False, True])
def test_the_deviation_from_running_medians_has_numpys_digits(rng, whole):
    flow = flow_of(rng)
    left = flow.unexplained(constant(2.0))
    size = len(left) if whole else flow.window_rows
    parts = left[: len(left) // size * size].reshape(-1, size)
    around = np.abs(parts - np.median(parts, axis=1)[:, None]).ravel() / SMALL_US
    assert deviation_of(flow, left, whole) == np.mean(np.log1p(around))


@pytest.mark.parametrize("rate", [0.3, 2.0, 40.0])
def test_what_came_before_time_0_took_the_queues_time(rng, rate):
    """Times count from a flow's first packet; flows that share its queue may have begun earlier."""
    flow = flow_of(rng)
    flow = replace(flow, sent_us=flow.sent_us - 2e6, acked_us=flow.acked_us - 2e6)
    left = flow.acked_us - departures(flow.sent_us, flow.wire_bytes, constant(rate))
    np.testing.assert_allclose(flow.unexplained(constant(rate)), left[flow.timed], rtol=0, atol=1e-3)


@pytest.mark.parametrize("rate", [0.3, 1.9, 2.0, 2.3, 40.0])
def test_the_compiled_deviation_with_a_bucket_is_numpys(rng, rate):
    flow = flow_of(rng)
    wanted = with_bucket(flow, rate, 21_000.0)
    assert flow.deviation_with_bucket(rate, np.inf, SPENT_QUANTILE, 21_000.0) == pytest.approx(wanted, rel=1e-12)
    assert flow.deviation_with_bucket(rate, wanted * 0.999, SPENT_QUANTILE, 21_000.0) == np.inf


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101, 1000])
def test_medians_and_quantiles_are_numpys(rng, count):
    for values in (rng.normal(size=count), np.round(rng.normal(size=count)), np.zeros(count), np.arange(float(count))):
        assert median(values.copy(), count) == np.median(values)
        for share in (0.0, 0.1, 0.5, 0.97, 1.0):
            assert quantile(values.copy(), count, share) == pytest.approx(np.quantile(values, share), rel=1e-12)


def test_a_cost_that_is_cut_short_leads_to_the_same_place(rng):
    bends = rng.uniform(1, 9, 30)

    def cost(x):
        return float(np.abs(np.log(x / bends)).sum())

    asked = []

    def bounded(x, most):
        asked.append(cost(x) > most)
        return np.inf if asked[-1] else cost(x)

    assert least_within(bounded, 1.0, 9.0, 40, 1e-4) == least_of(cost, 1.0, 9.0, 40, 1e-4)
    assert sum(asked) > 20


def test_a_search_ends_early_only_if_the_least_cost_lies_beyond_what_matters():
    asked = []

    def cost(x, most):
        asked.append(x)
        return (x - 4) ** 2

    exact = least_within(cost, 1.0, 9.0, 80, 1e-4)
    every = len(asked)
    assert least_within(cost, 1.0, 9.0, 80, 1e-4, upto=4.0) == exact
    asked.clear()
    assert least_within(cost, 1.0, 9.0, 80, 1e-4, upto=3.0)[0] > 3.0
    assert len(asked) < 0.7 * every


@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("load", [0.9, 0.98, 1.0, 1.02])
def test_a_rate_does_not_depend_on_how_packets_were_merged(phase, load):
    rate, packets = 5.0, 6000  # bytes/us; pairs, in bursts of 400 packets
    pair = (np.arange(packets) + phase) // 2
    sent_us = np.cumsum(np.append(0, np.diff(pair) > 0) * 2 * 1514 / rate / load) + pair // 200 * 3000.0
    wire_bytes, known = np.full(packets, 1514.0), np.ones(packets, bool)
    acked_us = departures(sent_us, wire_bytes, constant(rate)) + 30_000.0
    sent = SentPackets(sent_us, wire_bytes, acked_us, np.arange(packets), known, known)
    path = SimpleNamespace(sent=sent, lost=~known)
    assert bottleneck_of(path, coarser(sent, 2)).rate == pytest.approx(rate, rel=0.01)
