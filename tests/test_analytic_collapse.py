"""The minRTT-collapse model: the issue's check values, 40-digit evaluations, limits and monotonicity, bad input."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cctrace import cli
from cctrace.analytic import bandwidth
from cctrace.analytic import collapse as kumar
from cctrace.analytic.collapse import Collapse, collapse_probability, expected_min_rtt
from cctrace.analytic.distributions import Affine, Empirical, TruncatedNormal
from cctrace.analytic.predict import collapse as predict_collapse
from cctrace.errors import ArgumentError
from tests.naive import analytic as naive

PAPER = {"mean_us": 5000.0, "floor_us": 75.0}
EIGHT_DIGITS = 1e-8


# --- the paper's figures ----------------------------------------------------------------------------------------------
def test_the_papers_example_gives_the_known_figures():
    model = Collapse(**PAPER)
    assert model.probability(sd_us=[500.0, 750.0]) == pytest.approx([0.002862, 0.98632], abs=5e-6)
    assert model.expected_min_rtt(sd_us=750.0) == pytest.approx(2108, abs=0.5)
    assert model.threshold("sd_us", queue_delay_us=[0.0, 1000.0]) == pytest.approx([656.1, 918.5], abs=0.05)


@pytest.mark.parametrize("sd", [300.0, 500.0, 750.0, 1500.0])
@pytest.mark.parametrize("queue_delay", [0.0, 1000.0])
@pytest.mark.parametrize("samples", [1, 10_000, 1_000_000])
def test_closed_forms_agree_with_40_digits(sd, queue_delay, samples):
    model = Collapse(**PAPER, sd_us=sd, queue_delay_us=queue_delay, samples=samples)
    exact = naive.collapse_probability(5000, sd, 75, samples, queue_delay)
    assert float(model.probability()) == pytest.approx(float(exact), rel=EIGHT_DIGITS)


@pytest.mark.parametrize(
    ("sd", "queue_delay", "samples"), [(750.0, 0.0, 10_000), (1500.0, 1000.0, 1), (500.0, 0.0, 1_000_000)]
)
def test_the_expected_minimum_agrees_with_18_digits(sd, queue_delay, samples):
    model = Collapse(**PAPER, sd_us=sd, queue_delay_us=queue_delay, samples=samples)
    exact = naive.expected_min_rtt(5000, sd, 75, 160, samples, queue_delay)
    assert float(model.expected_min_rtt()) == pytest.approx(float(exact), rel=EIGHT_DIGITS)


@pytest.mark.parametrize("queue_delay", [0.0, 400.0, 1000.0, 2500.0])
def test_thresholds_agree_with_40_digits(queue_delay):
    found = Collapse(**PAPER).threshold("sd_us", queue_delay_us=queue_delay)
    exact = naive.threshold_sd(5000, 75, 10_000, queue_delay, guess=float(found) * 1.01)
    assert float(found) == pytest.approx(float(exact), rel=EIGHT_DIGITS)


@pytest.mark.parametrize("parameter", kumar.PARAMETERS)
def test_at_every_threshold_the_probability_is_the_target(parameter):
    model = Collapse(**PAPER, sd_us=700.0)
    found = model.threshold(parameter, probability=[0.1, 0.5, 0.8])
    assert model.probability(**{parameter: found}) == pytest.approx([0.1, 0.5, 0.8], rel=1e-9)


def test_thousands_of_thresholds_equal_those_solved_alone():
    delays = np.linspace(0, 3000, 1001)
    together = Collapse(**PAPER).threshold("sd_us", queue_delay_us=delays)
    alone = [Collapse(**PAPER).threshold("sd_us", queue_delay_us=d) for d in delays[::250]]
    assert together[::250] == pytest.approx(alone, rel=1e-12)


def test_the_surface_is_the_probability_on_the_grid():
    surface = Collapse(**PAPER).surface(sd_us=[500, 750], queue_delay_us=[0, 500, 1000])
    assert surface.shape == (2, 3)
    assert surface[1, 2] == Collapse(**PAPER, sd_us=750, queue_delay_us=1000).probability()


def test_expected_minimum_agrees_with_simulated_minima():
    rng = np.random.default_rng(4)
    rtt = stats.gamma(4, loc=1000, scale=500)
    draws = np.minimum(rtt.rvs((4000, 20), random_state=rng).min(1), rtt.rvs((4000, 50), random_state=rng).min(1) + 200)
    exact = expected_min_rtt(rtt, 20, stats.gamma(4, loc=1200, scale=500), 50)
    assert abs(exact - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))


def test_a_scipy_distribution_and_ours_give_the_same():
    ours, scipys = TruncatedNormal(5000, 750, 75), stats.truncnorm(-4925 / 750, np.inf, 5000, 750)
    x = np.linspace(100, 9000, 50)
    assert ours.logsf(x) == pytest.approx(scipys.logsf(x), rel=1e-10)
    assert ours.ppf([1e-9, 0.3, 0.999]) == pytest.approx(scipys.ppf([1e-9, 0.3, 0.999]), rel=1e-9)
    assert float(TruncatedNormal(5000, 4000, 75).mean()) == pytest.approx(
        stats.truncnorm(-4925 / 4000, np.inf, 5000, 4000).mean(), rel=1e-10
    )
    assert expected_min_rtt(ours, 160, ours, 1e4) == pytest.approx(
        expected_min_rtt(scipys, 160, scipys, 1e4), rel=1e-10
    )


# --- equations 1 to 8 -------------------------------------------------------------------------------------------------
def test_the_delivery_rate_is_what_was_acked_over_the_time_it_took():
    assert bandwidth.delivery_rate(120, 20, 0.5, 0.3) == pytest.approx(500)
    with pytest.raises(ArgumentError, match="ack_time"):
        bandwidth.delivery_rate(1, 0, 0.3, 0.3)


def test_equation_5_is_equation_6_below_the_threshold_and_equation_7_beyond():
    assert bandwidth.next_bandwidth(0.08, 3000, 5000) == 0.08
    assert bandwidth.next_bandwidth(0.08, 2000, 5000) == pytest.approx(0.08 * 2 * 2000 / 5000)
    window = 2 * bandwidth.bdp(0.08, 2000)
    assert bandwidth.next_bandwidth(0.08, 2000, 5000) == pytest.approx(
        bandwidth.window_delivery_rate(window, 1 / 0.08, 5000)
    )


def test_the_bandwidth_falls_geometrically_once_the_minimum_is_below_half():
    trajectory = bandwidth.bandwidth_trajectory(1.0, [2500.0, 2000.0, 2600.0, 2000.0], 5000.0)
    assert trajectory == pytest.approx([1, 1, 0.8, 0.64, 0.512])  # the minimum so far counts, not the cycle's
    assert bandwidth.bandwidth_trajectory(1.0, [2000.0], 5000.0, extra_us=1000.0) == pytest.approx([1, 1])


def test_the_mass_of_equation_11_makes_the_collapse_as_likely_as_asked():
    assert 1 - (1 - kumar.collapse_mass(10_000, 0.05)) ** 10_000 == pytest.approx(0.95)


# --- properties -------------------------------------------------------------------------------------------------------
means, sds = st.floats(200, 1e5), st.floats(0.02, 0.6)


@settings(max_examples=60)
@given(means, sds, st.floats(1, 1e9), st.floats(1.01, 3))
def test_collapse_grows_with_samples_and_gets_rarer_with_delay_and_gain(mean, relative_sd, samples, factor):
    model = Collapse(mean_us=mean, sd_us=relative_sd * mean, samples=samples)
    p = model.probability()
    assert 0 <= p <= 1
    assert model.probability(samples=samples * factor) >= p
    assert model.probability(queue_delay_us=mean * (factor - 1)) <= p
    assert model.probability(cwnd_gain=2 * factor) <= p


@settings(max_examples=40)
@given(means, sds, st.floats(1, 1e6), st.floats(0, 2))
def test_the_expected_minimum_lies_between_floor_and_mean_and_falls_with_samples(mean, relative_sd, samples, delay):
    floor = mean / 50
    model = Collapse(mean_us=mean, sd_us=relative_sd * mean, floor_us=floor, queue_delay_us=delay * mean)
    few, many = model.expected_min_rtt(samples=samples), model.expected_min_rtt(samples=10 * samples)
    assert floor <= many <= few * (1 + 1e-12)
    assert few <= TruncatedNormal(mean, relative_sd * mean, floor).mean() * (1 + 1e-12)


def test_one_sample_has_the_mean_as_its_expected_minimum():
    rtt = TruncatedNormal(5000, 2500, 75)
    assert float(expected_min_rtt(rtt, 0, rtt, 1)) == pytest.approx(float(rtt.mean()), rel=1e-10)


def test_a_billion_samples_and_tiny_probabilities_keep_their_digits():
    p = collapse_probability(TruncatedNormal(5000, 130, 75), 2500, 1e9)
    assert p == pytest.approx(float(naive.collapse_probability(5000, 130, 75, 1e9)), rel=1e-9)
    assert p < 1e-70


# --- measured distributions -------------------------------------------------------------------------------------------
def test_a_measured_distribution_is_its_samples():
    samples = np.random.default_rng(1).gamma(4, 500, 501) + 1000
    rtt = Empirical(samples)
    assert rtt.cdf(np.median(samples)) == pytest.approx(0.5, abs=1 / 501)
    assert rtt.logsf(samples.max()) == -np.inf
    # The expected minimum of M draws, by the definition of order statistics.
    ordered, m = np.sort(samples), 7
    survival = 1 - np.arange(501) / 501
    exact = ordered[0] + (np.diff(ordered) * survival[1:] ** m).sum()
    assert expected_min_rtt(rtt, 0, rtt, m) == pytest.approx(exact, rel=2e-4)  # a staircase under Gauss-Legendre


def test_a_stretched_distribution_keeps_its_shape_and_mean():
    base = Empirical([10.0, 20.0, 30.0, 40.0])
    wide = Affine(base, 3.0, 5.0)
    assert wide.mean() == 30
    assert wide.ppf([0.25, 1.0]) == pytest.approx([-15, 75])
    assert wide.cdf(29.9) == base.cdf(24.9)


def test_the_threshold_of_a_measured_shape_stretches_it():
    rtt = stats.gamma(16, loc=1000, scale=250)  # mean 5000, sd 1000
    sd = Collapse(rtt).threshold("sd_us")
    assert Collapse(rtt).probability(sd_us=sd) == pytest.approx(0.5)
    assert collapse_probability(Affine(rtt, sd / 1000), 2500, 1e4) == pytest.approx(0.5)
    samples = np.random.default_rng(3).normal(5000, 500, 1000)
    measured = Collapse(Empirical(samples))
    assert measured.values["sd_us"] == pytest.approx(samples.std())
    assert measured.probability() == 0  # no sample below half the mean: none of the mass asked for
    assert TruncatedNormal(5000, 4000, 75).std() == pytest.approx(
        stats.truncnorm(-4925 / 4000, np.inf, 5000, 4000).std(), rel=1e-10
    )


# --- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mean_us": -5.0}, "mean_us"),
        ({"mean_us": 5000.0, "sd_us": 0.0}, "sd_us"),
        ({"mean_us": 5000.0, "sd_us": float("nan")}, "sd_us"),
        ({"mean_us": 50.0, "sd_us": 5.0, "floor_us": 75.0}, "floor_us"),
        ({"mean_us": 5000.0, "samples": 0}, "samples"),
        ({"mean_us": 5000.0, "cwnd_gain": -1}, "cwnd_gain"),
        ({"mean_us": 5000.0, "queue_delay_us": -1}, "queue_delay_us"),
        ({"mean_us": "fast"}, "mean_us"),
    ],
)
def test_wrong_parameters_are_named(arguments, named):
    with pytest.raises(ArgumentError, match=named):
        Collapse(**arguments)


def test_a_missing_parameter_is_named():
    with pytest.raises(ArgumentError, match="sd_us"):
        Collapse(mean_us=5000.0).probability()


def test_no_threshold_in_the_bracket_is_an_error_that_names_the_parameter():
    with pytest.raises(ArgumentError, match="sd_us has no threshold"):
        Collapse(**PAPER).threshold("sd_us", bracket=(1.0, 100.0))
    with pytest.raises(ArgumentError, match="samples has no threshold"):  # half the mean lies below the floor: no mass
        Collapse(mean_us=5000.0, sd_us=500.0, floor_us=3000.0).threshold("samples")
    with pytest.raises(ArgumentError, match="parameter='colour' is not one of"):
        Collapse(**PAPER, sd_us=1.0).threshold("colour")


def test_no_samples_are_refused():
    with pytest.raises(ArgumentError, match="samples_us is empty"):
        Empirical([])
    rtt = TruncatedNormal(5000, 500)
    with pytest.raises(ArgumentError, match="samples"):
        expected_min_rtt(rtt, 0, rtt, 0)


# --- what the command line prints -------------------------------------------------------------------------------------
def test_the_prediction_has_the_stable_keys():
    out = predict_collapse(mean_us=5000, sd_us=750, floor_us=75)
    assert out["probability"] == pytest.approx(0.98632, abs=5e-6)
    assert out["expected_min_rtt_us"] == pytest.approx(2108.362)
    assert out["threshold_sd_us"] == pytest.approx(656.063)
    assert out["domain"].startswith("inside")


def test_the_command_prints_the_figures_and_refuses_nonsense(capsys):
    from cctrace import cli

    command = "predict collapse --mean 5ms --sd 0.75ms --floor 75us --samples 10000 --queue-delay 0"
    assert cli.main([*command.split(), "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["probability"] == pytest.approx(0.98632, abs=5e-6)
    assert {"expected_min_rtt_us", "threshold_sd_us"} <= set(out)
    assert cli.main(["predict", "collapse", "--mean", "50us", "--sd", "1us", "--floor", "75us"]) == 2
    assert "--floor is 75 us" in capsys.readouterr().err
    for options, words in ((["--floor", "4ms"], "no jitter makes"), (["--gain", "1"], "any jitter makes")):
        assert cli.main(["predict", "collapse", "--mean", "5ms", "--sd", "1ms", *options]) == 0
        assert words in capsys.readouterr().out
    command = "predict collapse --mean 5ms --sd 1.25ms --rate 1Gbit --draws slot --json"
    assert cli.main(command.split()) == 0
    assert 0.3 < json.loads(capsys.readouterr().out)["closed_loop"]["probability"] < 0.9
    assert cli.main([*command.split(), "--variant", "bbr9"]) == 2
    assert "--variant bbr9: no controller is called 'bbr9'; did you mean" in capsys.readouterr().err
    assert cli.main(["predict", "share", "--ratio", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss_based_share"] == 0.46875


def test_fewer_samples_in_probe_rtt_leave_a_higher_minimum(capsys):
    def expected_us(samples):
        command = f"predict collapse --mean 5ms --sd 0.75ms --samples 1000 --probe-rtt-samples {samples} --json"
        assert cli.main(command.split()) == 0
        return json.loads(capsys.readouterr().out)["expected_min_rtt_us"]

    assert expected_us(16) > expected_us(160) > expected_us(1600)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--mean -5ms --sd 1ms", "--mean='-5ms' is negative"),
        ("--mean 5ms --sd 0us", "--sd 0us: a duration above 0 is needed"),
        ("--mean 5ms --sd 1ms --floor 6ms", "--floor is 6 ms; no RTT is below it, so it must lie below --mean"),
        ("--mean 5ms --sd 1ms --rate fast", "--rate='fast' is not a rate"),
        ("--mean 5ms --sd 1ms --rate 1Gbit --rho 1", "Invalid value for '--rho': 1.0 is not in the range 0<=x<1"),
        ("--mean 5ms --sd 1ms --reorder", "--reorder needs --rate"),
        ("--mean 5ms --sd 1ms --before", "--before needs --rate"),
    ],
)
def test_wrong_options_are_one_line_that_names_them(options, said, capsys):
    assert cli.main(["predict", "collapse", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cctrace: {said}")
    assert err.count("\n") == 1


def test_a_link_too_slow_for_the_model_gets_numbers_and_a_warning(capsys):
    assert cli.main(["predict", "collapse", "--mean", "5ms", "--sd", "1ms", "--rate", "1kbit", "--json"]) == 0
    loop = json.loads(capsys.readouterr().out)["closed_loop"]
    assert loop["domain"].startswith("outside: only 0 packets in flight")
    assert 0 < loop["expected_min_rtt_us"] < 5000


def test_a_threshold_is_found_where_the_probability_falls_again_and_the_words_say_where_the_model_ends(capsys):
    command = "predict collapse --mean 10ms --sd 10ms --rate 100Mbit --reorder"
    assert cli.main([*command.split(), "--json"]) == 0
    loop = json.loads(capsys.readouterr().out)["closed_loop"]
    assert loop["probability"] == 0  # the model's answer, which simulated flows contradict
    # Half of simulated runs collapse at 1.8 ms (kind reo100x10 of benchmarks/closed_loop/grid.csv).
    assert loop["threshold_sd_us"] == pytest.approx(1800, rel=0.15)
    assert loop["domain"].startswith("outside: reordering so wide")
    assert cli.main(command.split()) == 0
    assert "That lies outside of the model's domain: reordering so wide" in capsys.readouterr().out
