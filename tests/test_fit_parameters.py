"""Fitted parameters: the truth of simulated and recorded senders, refusals, and pooling over flows."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc.base import Param
from cctrace.cli import main
from cctrace.errors import ArgumentError, FitError
from cctrace.fit import Estimate, Hierarchical, Parameters
from cctrace.fit.hierarchical import spread, spread_bounds
from cctrace.fit.surface import Axis, Surface

JITTERY = {"rate": "10Mbit", "rtt": "40ms", "buffer": "1bdp", "loss": "0.02%", "jitter": "normal:sd=0.5ms"}


def sender(spec, duration="3s", seed=2, **path):
    return cct.simulate(cct.Path(**JITTERY | path), spec, duration, seed, packets=True)


# --- the truth --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("controller", "name", "truth", "between"),
    [
        ("bbr2022", "cwnd_gain", 1.4, (1.0, 2.0)),
        ("cubic6", "beta", 0.6, (0.5, 0.75)),
        pytest.param("bbrx", "beta", 0.4, (0.2, 0.6), marks=pytest.mark.slow),
    ],
)
def test_the_parameter_of_a_simulated_sender_is_found_and_its_interval_holds_it(controller, name, truth, between):
    sim = sender(f"{controller}:{name}={truth}", loss="0.1%" if controller == "cubic6" else "0.02%")
    fit = Parameters(controller, {name: between}).fit(sim)
    estimate = fit.estimates_[name]
    assert estimate.low <= truth <= estimate.high
    assert estimate.value == pytest.approx(truth, rel=0.02)
    assert fit.explained_ > 0.9
    assert fit.spec_.startswith(f"{controller}:{name}=")
    values, shortfall = fit.profile(name)
    assert values[shortfall == 0].min() <= estimate.value <= values[shortfall == 0].max()
    assert np.all(shortfall[(values < estimate.low) | (values > estimate.high)] > 1.9)
    assert fit.score(sim) > 1.0  # per send; -1.8 is what nothing explains


@pytest.mark.slow
def test_the_kernels_beta_is_found_in_a_recording():
    flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    estimate = Parameters("cubic6", {"beta": (0.65, 0.75)}).fit(flow).estimates_["beta"]
    assert estimate.low <= 717 / 1024 <= estimate.high
    assert estimate.value == pytest.approx(0.7, rel=0.01)


@pytest.mark.slow  # 700 replays
def test_two_parameters_are_fitted_together():
    between = {"cwnd_gain": (1.2, 1.6), "up_pacing_gain": (1.1, 1.5)}
    sim = sender("bbr2022:cwnd_gain=1.4,up_pacing_gain=1.3")
    fit = Parameters("bbr2022", between).fit(sim)
    for name, truth in (("cwnd_gain", 1.4), ("up_pacing_gain", 1.3)):
        estimate = fit.estimates_[name]
        assert (estimate.low or 0) <= truth <= (estimate.high or 9)
    assert fit.correlation_ is None or -1 <= fit.correlation_ <= 1


# --- refusals ---------------------------------------------------------------------------------------------------------
def test_a_parameter_that_never_mattered_is_refused():
    clean = sender("bbr2", loss=0, jitter=None, buffer="4bdp")
    with pytest.raises(FitError, match=r"not identifiable on this flow.*nothing that was sent depended on it"):
        Parameters("bbr2", ["full_loss_cnt"]).fit(clean)


@pytest.mark.parametrize("paced", [0, 1])
def test_a_switch_that_mattered_is_on_or_off_and_nothing_between(paced):
    fit = Parameters("cubic6", ["paced"]).fit(sender(f"cubic6:paced={paced}", loss="0.1%"))
    assert fit.estimates_["paced"] == (paced, paced, paced)
    assert fit.unidentified_ == {}


def test_a_window_that_never_limited_is_bounded_from_below_only():
    fit = Parameters("bbr2022", {"cwnd_gain": (1.0, 3.0)}).fit(sender("bbr2022", loss=0, jitter=None))
    value, low, high = fit.estimates_["cwnd_gain"]
    assert (value, high) == (None, None)
    assert 1.0 < low < 2.0
    assert "from one side only" in fit.unidentified_["cwnd_gain"]
    assert json.loads(json.dumps(fit.to_dict()))["parameters"]["cwnd_gain"] == {
        "value": None,
        "low": low,
        "high": None,
    }


def test_another_controllers_flow_is_refused():
    with pytest.raises(FitError, match="cctrace identify"):
        Parameters("cubic6", ["fast_convergence"]).fit(sender("bbr2022"))


def test_what_does_not_show_sends_is_refused():
    sim = sender("bbr2022")
    with pytest.raises(FitError, match="taken at the sender is needed"):
        Parameters("bbr2022", ["cwnd_gain"]).fit(sim.capture(0, side="receiver").flow(0))
    short = sender("bbr2022", duration="1s")
    with pytest.raises(FitError, match="at least 10 are needed"):
        Parameters("bbr2022", ["cwnd_gain"]).fit(short)


@pytest.mark.parametrize(
    ("controller", "parameters", "said"),
    [
        ("bbr2022", ["cwnd"], "no parameter 'cwnd'"),
        ("bbr2022", [], "one or two"),
        ("bbr2022", ["cwnd_gain", "bw_rtts", "high_gain"], "one or two"),
        ("bbr2022:cwnd_gain=2", ["cwnd_gain"], "is to be fitted"),
        ("bbr2022", {"cwnd_gain": (3, 2)}, "not a range"),
        ("obbr", ["mu"], "QUIC"),
    ],
    ids=["unknown", "none", "three", "fixed", "range", "quic"],
)
def test_what_cannot_be_fitted_is_said(controller, parameters, said):
    with pytest.raises(ArgumentError, match=said):
        Parameters(controller, parameters)


# --- the command ------------------------------------------------------------------------------------------------------
def test_the_command_prints_value_low_and_high(tmp_path, capsys):
    file = tmp_path / "sender.pcap"
    sender("cubic6:beta=0.6", loss="0.1%").to_pcap(file)
    words = ["fit", "parameters", str(file), "--controller", "cubic6", "--parameter", "beta=0.55:0.65", "--json"]
    assert main(words) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert set(found["parameters"]["beta"]) == {"value", "low", "high"}
    assert found["parameters"]["beta"]["value"] == pytest.approx(0.6, rel=0.02)
    assert found["flow"]["dport"] == 5201


# --- the search -------------------------------------------------------------------------------------------------------
class Any:
    params = {"x": Param(1.0, 0.0, 2.0, ""), "n": Param(3, 1, 9, ""), "wide": Param(10, 0, 10**8, "")}


def test_a_narrow_peak_is_found_and_its_interval_ends_where_it_does():
    def replay(values):
        return np.full(20, 2.0 if abs(values["x"] - 1.2345) < 0.002 else -3.0)

    surface = Surface([Axis.of(Any, "any", "x")], replay)
    surface.maximise(lambda text: None, -1.8)
    low, high = surface.interval(0, lambda best, scores: (best - scores).sum() < 2)
    assert surface.plateau(0) == pytest.approx(1.2345, abs=3e-4)
    assert (low, high) == (pytest.approx(1.2325, abs=1e-4), pytest.approx(1.2365, abs=1e-4))


@pytest.mark.parametrize("name", ["x", "n", "wide"])
def test_every_value_of_an_axis_is_allowed_and_places_invert_values(name):
    axis = Axis.of(Any, "any", name)
    values = [axis.value(place) for place in np.linspace(0, 1, 50)]
    assert values == sorted(values)
    assert (values[0], values[-1]) == (axis.low, axis.high)
    assert all(axis.value(axis.place(value)) == pytest.approx(value) for value in values)


# --- pooling ----------------------------------------------------------------------------------------------------------
def test_pooled_intervals_hold_as_often_as_they_say():
    rng = np.random.default_rng(5)
    held = []
    for _ in range(300):
        errors = rng.uniform(0.5, 2.0, 8)
        own = rng.normal(10, 1.0, 8)
        singles = [Estimate.around(v, e) for v, e in zip(rng.normal(own, errors), errors, strict=True)]
        pooled = Hierarchical().pool(singles)
        inside = [e.low <= t <= e.high for e, t in zip(pooled.flows_, own, strict=True)]
        held.append(
            (
                pooled.mean_.low <= 10 <= pooled.mean_.high,
                pooled.spread_.low <= 1 <= pooled.spread_.high,
                np.mean(inside),
            )
        )
    assert np.all(np.abs(np.mean(held, axis=0) - 0.95) < 0.038)  # 3 standard errors of 300 runs


def test_flows_alike_pool_to_their_mean_and_unlike_ones_keep_their_own():
    alike = Hierarchical().pool([Estimate.around(v, 1.0) for v in (9.9, 10.0, 10.1, 10.05)])
    assert alike.spread_.value == 0.0
    assert all(abs(flow.value - 10) < 0.1 for flow in alike.flows_)
    unlike = Hierarchical().pool([Estimate.around(v, 0.01) for v in (1.0, 2.0, 3.0, 4.0)])
    assert unlike.spread_.value == pytest.approx(np.std([1, 2, 3, 4], ddof=1), rel=1e-3)
    assert [flow.value for flow in unlike.flows_] == pytest.approx([1, 2, 3, 4], abs=1e-3)
    assert unlike.predict().low < 1 < 4 < unlike.predict().high
    assert "sd between flows" in unlike.summary()


def test_the_spread_is_the_plain_sd_where_errors_vanish_and_its_bounds_are_those_of_chi_square():
    values, errors = np.array([1.0, 2.0, 4.0]) / 4, np.full(3, 1e-6)
    assert spread(values, errors) == pytest.approx(np.std(values, ddof=1), rel=1e-3)
    low, high = spread_bounds(values, errors)
    squares = ((values - values.mean()) ** 2).sum()
    assert (low, high) == pytest.approx(((squares / 7.377759) ** 0.5, (squares / 0.050636) ** 0.5), rel=1e-4)


@pytest.mark.slow
def test_an_estimator_is_pooled_over_the_flows_of_a_path():
    sims = [sender("cubic6:beta=0.6", seed=seed, loss="0.1%") for seed in (1, 2, 3)]
    pooled = Hierarchical(Parameters("cubic6", {"beta": (0.55, 0.65)})).fit(sims)
    assert pooled.mean_.value == pytest.approx(0.6, rel=0.02)
    assert len(pooled.flows_) + len(pooled.refused_) == 3


def test_single_flows_and_open_intervals_are_not_pooled():
    with pytest.raises(FitError, match="at least 3"):
        Hierarchical(Parameters("cubic6", ["beta"])).fit([None])
    with pytest.raises(FitError, match="at least 3"):
        Hierarchical().pool([Estimate.around(1, 1)])
    with pytest.raises(ArgumentError, match="both ends"):
        Hierarchical().pool([Estimate(1.0, 0.5, None)] * 3)
    with pytest.raises(ArgumentError, match="no estimator"):
        Hierarchical().fit([None] * 3)
