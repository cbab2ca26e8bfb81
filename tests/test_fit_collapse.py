"""Forecasts of minRTT collapse from flows: thresholds near those of simulated flows, clean paths say no."""

import json

import numpy as np
import pytest
from scipy import stats

import cctrace as cct
from cctrace.cli import main
from cctrace.fit.collapse import _Shape

FAST = {"rate": "40Mbit", "rtt": "40ms", "buffer": "8bdp"}


def simulated(jitter, **flow):
    return cct.simulate(cct.Path(**FAST, jitter=jitter), cct.Sender("bbr2016", **flow), "8s", packets=True)


# Where bbr2016 is below half the link in closed loop (docs/models.md), us.
@pytest.mark.parametrize(
    ("jitter", "threshold"),
    [
        ("normal:sd=4ms,per=packet", 11_000),
        ("normal:sd=4ms,per=slot:5ms", 12_000),
        ("normal:sd=2ms,reorder", 6_400),
    ],
)
def test_threshold_from_a_flow_below_it_is_near_that_of_simulated_flows(jitter, threshold):
    forecast = cct.fit.Collapse(["bbr2016"]).fit(simulated(jitter)).forecasts_["bbr2016"]
    assert forecast.threshold_sd_us.value == pytest.approx(threshold, rel=0.2)
    assert forecast.verdict == "no"
    assert forecast.probability.value < 0.05


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct", "jitter_bbr_sd2ms"])
def test_recordings_of_flows_that_did_not_collapse_say_no(name):
    fit = cct.fit.Collapse().fit(cct.read(cct.datasets.path(name, "sender.pcap.zst")).bulk()[0])
    for forecast in fit.forecasts_.values():
        assert forecast.verdict == "no"
        assert forecast.probability.high < 0.01


def test_more_jitter_makes_collapse_likelier():
    fit = cct.fit.Collapse(["bbr2016"]).fit(simulated("normal:sd=4ms"))
    chances = [fit.predict(sd, "bbr2016") for sd in (4_000, 9_000, 12_000, 16_000)]
    assert np.all(np.diff(chances) > 0)
    assert "threshold" in fit.summary()


def test_a_flow_that_never_filled_the_path_is_refused():
    path = cct.Path(rate="10Gbit", rtt="40ms", buffer="1bdp", jitter="normal:sd=1ms,per=slot:5ms")
    sender = cct.Sender("bbr2022", app="chunks:size=30kB,every=20ms")
    with pytest.raises(cct.fit.FitError, match="never filled the path"):
        cct.fit.Collapse().fit(cct.simulate(path, sender, "5s", packets=True, ack_every=2))


@pytest.mark.parametrize(
    ("family", "p", "other"),
    [
        ("gamma", (100.0, np.log(2.0), np.log(50.0)), stats.gamma(2.0, 100, 50)),
        ("lognormal", (100.0, 4.0, np.log(0.5)), stats.lognorm(0.5, 100, np.exp(4.0))),
        ("weibull", (100.0, np.log(1.5), np.log(50.0)), stats.weibull_min(1.5, 100, 50)),
        ("exponential", (100.0, np.log(50.0)), stats.expon(100, 50)),
    ],
)
def test_shapes_are_scipys(family, p, other):
    shape, x = _Shape(family, np.array(p), other.mean(), other.std()), np.array([120.0, 150.0, 400.0])
    assert shape.logsf(x) == pytest.approx(other.logsf(x))
    assert shape.ppf([0.01, 0.5, 0.999]) == pytest.approx(other.ppf([0.01, 0.5, 0.999]))


def test_command_prints_every_controller(capsys):
    file = str(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst"))
    assert main(["fit", "collapse", file, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert set(found["controllers"]) == {"bbr2016", "bbr2019", "bbr2022"}
    for forecast in found["controllers"].values():
        for name in ("threshold_sd_us", "sd_us", "probability"):
            assert set(forecast[name]) == {"value", "low", "high"}
        assert forecast["collapses"] == "no"
