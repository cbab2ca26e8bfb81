"""Loss-based laws, BBRx's PI law and the yardsticks, against 40-digit arithmetic, simulation and known limits."""

import inspect

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cctrace.analytic import bandwidth, lossbased, metrics, pilaw, share
from cctrace.errors import ArgumentError
from tests.naive import analytic as naive


@pytest.mark.parametrize("p", [1e-6, 1e-3, 0.02, 0.3])
@pytest.mark.parametrize("window", [8.0, 64.0, 1e6])
@pytest.mark.parametrize("b", [1, 2])
def test_pftk_agrees_with_40_digits(p, window, b):
    exact = naive.pftk(0.1, p, 0.4, window, b)
    assert float(lossbased.pftk_rate(0.1, p, 0.4, window, b)) == pytest.approx(float(exact), rel=1e-8)


def test_without_timeouts_pftk_becomes_mathis_law():
    # Small loss, one timeout in very many windows: both are the sawtooth of [Mathis97].
    p = 1e-9
    assert lossbased.pftk_rate(0.1, p, 1e-6) == pytest.approx(lossbased.mathis_rate(1, 0.1, p, 2), rel=1e-3)
    assert lossbased.pftk_rate_simple(0.1, p, 0.4) == pytest.approx(lossbased.mathis_rate(1, 0.1, p, 2), rel=1e-3)


@given(st.floats(1e-6, 0.25), st.floats(1.05, 3), st.floats(0.001, 1))
def test_more_loss_means_less_throughput(p, factor, rtt):
    for rate in (
        lambda x: lossbased.mathis_rate(1448, rtt, x),
        lambda x: lossbased.pftk_rate(rtt, x, 0.4),
        lambda x: lossbased.cubic_rate(1448, rtt, x),
    ):
        assert rate(p * factor) < rate(p)


def test_mathis_law_is_the_mean_of_a_sawtooth():
    top = 1000.0
    sent = np.arange(top / 2, top).sum()  # one more segment every RTT, one loss per tooth
    mean_window = sent / (top / 2)
    assert float(lossbased.mathis_rate(1, 1, 1 / sent)) == pytest.approx(mean_window, rel=2e-3)


def test_cubics_mean_window_is_the_time_average_of_its_cubic():
    top, rtt = 1000.0, 0.05
    k = float(lossbased.cubic_k(top, 0.7 * top))
    t = np.linspace(0, k, 200_001)
    window = lossbased.cubic_window(t, top, k)
    assert window[0] == pytest.approx(0.7 * top)
    assert window[-1] == pytest.approx(top)
    mean = np.trapezoid(window, t) / k
    sent = mean * k / rtt
    assert float(lossbased.cubic_mean_window(rtt, 1 / sent)) == pytest.approx(mean, rel=1e-8)


def test_cubic_is_renos_where_renos_is_larger():
    p = np.array([1e-1, 1e-6])
    assert lossbased.cubic_regime(0.02, p).tolist() == ["reno", "cubic"]
    reno = 1448 / 0.02 * lossbased.reno_mean_window(p[0])
    assert lossbased.cubic_rate(1448, 0.02, p)[0] == pytest.approx(float(reno))
    alpha = 3 * (1 - 0.7) / (1 + 0.7)  # the increase that makes beta = 0.7 as fast as Reno
    assert lossbased.reno_mean_window(p, alpha, 0.7) == pytest.approx(lossbased.reno_mean_window(p))
    assert lossbased.mathis_domain(0.01).inside
    assert not lossbased.mathis_domain(0.1).inside


# --- BBRx -------------------------------------------------------------------------------------------------------------
def test_the_three_forms_of_the_law_agree():
    c, delay, beta, delta = 1e6, 0.03, 0.5, 0.1
    full = pilaw.rate_step(c, c, c * delay, 0, alpha=1, beta=beta, delta_s=delta)
    assert full == pytest.approx(pilaw.rate(c, 0.1 + delay, 0.1, beta, delta))
    assert pilaw.bbrx_rate(c, 0.13, 0.1, beta, k=4) == pytest.approx(full)
    assert pilaw.rate(c, 0.2, 0.1, 0.0, delta) == c  # beta = 0 is BBR
    assert pilaw.bbrx_rate(c, 0.15, 0.1, beta, k=6) == pytest.approx(c)  # at its target


@given(st.floats(0.05, 1.4), st.floats(0.005, 0.5), st.floats(0.1, 1), st.sampled_from([0.0, 0.5]))
def test_the_margins_are_those_of_the_frequency_response(beta, rtt, ratio, hold):
    delta = rtt * ratio
    phase, gain = pilaw.margins(beta, delta, rtt, hold)
    crossover = pilaw.loop_gain(beta / delta, beta, delta, rtt, hold)
    assert abs(crossover) == pytest.approx(1)
    turn = np.angle(crossover * np.exp(1j * np.radians(180 - float(phase))))
    assert turn == pytest.approx(0, abs=1e-9)
    omega = np.pi / 2 / (rtt + hold * delta)
    assert pilaw.loop_gain(omega, beta, delta, rtt, hold) * gain == pytest.approx(-1)


@pytest.mark.parametrize(("factor", "settles"), [(0.97, True), (1.03, False)])
@pytest.mark.parametrize("rtt", [0.05, 0.2])
def test_the_delayed_loop_settles_below_the_largest_beta_and_not_above(factor, settles, rtt):
    delta, steps = 0.1, 400
    k = factor * float(pilaw.largest_beta(delta, rtt)) / delta
    dt = rtt / steps
    d = np.empty(steps * 120)
    d[: steps + 1] = 1.0  # a queue of 1 s above its target, seen one RTT late
    for i in range(steps, len(d) - 1):
        d[i + 1] = d[i] - dt * k * d[i - steps]
    late, early = np.abs(d[-10 * steps :]).max(), np.abs(d[20 * steps : 30 * steps]).max()
    assert (late < early) == settles


def test_a_phase_margin_asked_for_is_had():
    beta = pilaw.largest_beta(0.1, 0.1, phase_margin_deg=60)
    assert pilaw.margins(beta, 0.1, 0.1)[0] == pytest.approx(60)


def test_the_utility_falls_with_loss_and_is_the_throughput_without():
    p = np.linspace(0, 0.5, 51)
    u = pilaw.utility(10.0, p)
    assert np.all(np.diff(u) < 0)
    assert u[0] == pytest.approx(10 / (1 + mp.exp(-5)).__float__(), rel=1e-12)
    assert u[5] == pytest.approx(10 * (0.5 - 0.05 / 0.95))  # at the cut-off the sigmoid is one half
    assert pilaw.mean_utility([10.0, 20.0], [0.0, 0.1]) == pytest.approx(
        (pilaw.utility(10, 0) + pilaw.utility(20, 0.1)) / 2
    )


# --- yardsticks -------------------------------------------------------------------------------------------------------
@given(st.lists(st.floats(0.01, 1e9), min_size=1, max_size=20))
def test_jains_index_is_between_one_nth_and_one_and_ignores_the_unit(throughputs):
    index = float(metrics.jain(throughputs))
    assert 1 / len(throughputs) - 1e-12 <= index <= 1 + 1e-12
    assert float(metrics.jain(np.multiply(throughputs, 8.0))) == pytest.approx(index)


def test_jains_index_of_equals_of_one_and_of_none():
    assert metrics.jain([[5, 5, 5], [5, 0, 0], [0, 0, 0]]) == pytest.approx([1, 1 / 3, 1])


def test_power_is_largest_at_one_bdp():
    inflight = np.linspace(1, 400, 4000)
    throughput, rtt, power = metrics.operating_point(inflight, capacity=3000.0, base_rtt=0.04)
    assert inflight[np.argmax(power)] == pytest.approx(120, abs=0.1)
    assert np.all(throughput * rtt == pytest.approx(inflight))
    assert metrics.throughput_gain(116, 100) == pytest.approx(0.16)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: lossbased.mathis_rate(1448, 0.1, 0), "loss_rate"),
        (lambda: lossbased.pftk_rate(0.1, 1.5, 0.4), "loss_rate"),
        (lambda: lossbased.cubic_mean_window(0, 0.1), "rtt_s"),
        (lambda: pilaw.margins(-1, 0.1, 0.1), "beta"),
        (lambda: pilaw.largest_beta(0.1, 0.1, phase_margin_deg=95), "phase_margin_deg"),
        (lambda: metrics.jain([-1.0, 2.0]), "throughputs"),
        (lambda: metrics.throughput_gain(1, 0), "over"),
    ],
)
def test_wrong_parameters_are_named(call, named):
    with pytest.raises(ArgumentError, match=named):
        call()


GOOD = {"ack_time": 1, "backoff": 0.7, "flows": 2, "loss_based_flows": 2, "max_window": 10, "stack": "linux"}
LAWS = [
    (law, name)
    for module in (bandwidth, lossbased, metrics, pilaw, share)
    for law in vars(module).values()
    if inspect.isfunction(law) and law.__module__ == module.__name__ and not law.__name__.startswith("_")
    for name in inspect.signature(law).parameters
]


@pytest.mark.parametrize("wrong", ["abc", float("nan"), None, 10**400], ids=["abc", "nan", "None", "huge"])
@pytest.mark.parametrize(("law", "name"), LAWS, ids=lambda value: getattr(value, "__name__", value))
def test_a_law_refuses_what_is_no_number_by_name(law, name, wrong):
    right = {one: GOOD.get(one, 0.5) for one in inspect.signature(law).parameters}
    law(**right)
    with pytest.raises(ArgumentError, match=name.removesuffix("s")):  # mean_utility: of one flow
        law(**right | {name: wrong})
