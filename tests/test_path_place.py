"""Jitter before the bottleneck's queue or behind it: told apart, fitted, and kept where it is."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.counterfactual.interventions import INTERVENTIONS
from cctrace.counterfactual.path_changes import changed
from cctrace.fit.fitted_path import FittedPath
from cctrace.fit.jitter import Jitter

NORMAL, REORDERS = "normal:sd=2ms,per=packet", "normal:sd=2ms,per=packet,reorder"


def simulated(cc="bbr3", **jitter):
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp", **jitter)
    return cct.simulate(path, [cct.Sender(cc, ack_every=2)], "8s", seed=31, packets=True)


@pytest.fixture(scope="module")
def before():
    return cct.fit.path(simulated(jitter_before=NORMAL))


@pytest.mark.parametrize("drawn", [NORMAL, "normal:sd=2ms,per=slot:5ms"])
def test_jitter_before_the_queue_and_behind_it_are_told_apart_and_fitted(drawn):
    for field, place in (("jitter_before", "before"), ("jitter", "behind")):
        fitted = cct.fit.path(simulated(**{field: drawn}))
        jitter = fitted.estimates["jitter"]
        assert jitter["place"] == place
        assert getattr(fitted, field) is not None
        assert fitted.jitters_before == (place == "before")
        assert jitter["sd_us"].low < 2200  # within an interval that a few slots leave wide
        assert jitter["sd_us"].high > 1800
        assert jitter["sd_us"].value == pytest.approx(2000, rel=0.3)
        assert fitted.estimates["base_rtt_us"].value == pytest.approx(40_000, rel=0.08)
        assert "jitter_place" not in fitted.estimates["undetermined"]


def test_reordering_before_the_queue_is_fitted_to_packets_that_found_it_empty():
    jitter = cct.fit.path(simulated(jitter_before=REORDERS)).estimates["jitter"]
    assert (jitter["place"], jitter["process"]) == ("before", "reorder")
    assert jitter["sd_us"].value == pytest.approx(2000, rel=0.15)


def test_a_queue_that_never_empties_hides_the_jitter_before_it():
    delays = cct.fit.uncongested_rtt(simulated("cubic6", jitter_before="gamma:mean=1ms,sd=0.5ms"))
    assert delays.place is None
    assert delays.reveals.all()


def test_without_jitter_nothing_is_said_of_its_place():
    assert cct.fit.uncongested_rtt(simulated()).place is None


def test_a_fitted_path_keeps_its_jitter_before_the_queue(before):
    assert "before the queue" in before.summary()
    assert FittedPath.from_json(before.to_json()).jitter_before == before.jitter_before
    script = before.export("netem").splitlines()
    assert "root handle 1: netem" in script[-2]
    assert "parent 1:1 handle 10: tbf" in script[-1]


def test_what_ifs_change_the_jitter_where_it_is(before):
    half = changed(before, {"jitter": "x0.5"})
    assert half.jitter is None
    spreads = [path.jitter_before.fields(0)["jitter_b"] for path in (half, before)]
    assert spreads[0] == pytest.approx(spreads[1] / 2, 1e-3)
    assert changed(before, {"jitter": None}).jitter_before is None
    assert not INTERVENTIONS["jitter"].change(before, None).has_jitter


def test_a_forecast_simulates_the_jitter_before_the_queue():
    forecast = cct.fit.Collapse(["bbr2016"], quick=True).fit(simulated(jitter_before=NORMAL))
    path = forecast.path(3000.0)
    assert forecast.to_dict()["place"] == "before"
    assert path.jitters_before


def test_the_mean_rtt_is_that_of_packets_that_found_the_queue_empty():
    delays = cct.fit.uncongested_rtt(simulated(jitter_before=NORMAL))
    assert delays.mean_us.value < float(np.mean(delays.rtt_us))
    fit = Jitter().fit(delays)
    assert fit.events_ == delays.event.sum()
