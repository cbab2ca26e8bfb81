"""Forecasts of minRTT collapse from flows: thresholds near those of simulated flows, clean paths say no."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.errors import ArgumentError

FAST = {"rate": "40Mbit", "rtt": "40ms", "buffer": "8bdp"}


def simulated(jitter, **flow):
    return cct.simulate(cct.Path(**FAST, jitter=jitter), cct.Sender("bbr2016", **flow), "8s", packets=True)


# Where bbr2016 is below half the link in closed loop, us: docs/models.md, and with half of the RTT before the jitter.
@pytest.mark.parametrize(
    ("jitter", "floor", "threshold"),
    [
        ("normal:sd=4ms,per=packet", "0ms", 11_000),
        ("normal:sd=4ms,per=slot:5ms", "0ms", 12_000),
        ("normal:sd=2ms,reorder", "0ms", 6_400),
        ("normal:sd=4ms,per=packet", None, 12_900),
        ("normal:sd=2ms,reorder", None, 21_300),
    ],
)
def test_threshold_from_a_flow_below_it_is_near_that_of_simulated_flows(jitter, floor, threshold):
    forecast = cct.fit.Collapse(["bbr2016"], floor=floor).fit(simulated(jitter)).forecasts_["bbr2016"]
    assert forecast.threshold_sd_us.value == pytest.approx(threshold, rel=0.2)
    assert forecast.threshold_sd_us.low < forecast.threshold_sd_us.value < forecast.threshold_sd_us.high
    assert forecast.verdict == "no"
    assert forecast.probability.value < 0.05


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct", "jitter_bbr_sd2ms"])
def test_recordings_of_flows_that_did_not_collapse_say_no(name):
    fit = cct.fit.Collapse(quick=True).fit(cct.read(cct.datasets.path(name, "sender.pcap.zst")).bulk()[0])
    assert fit.fell_to_ is None
    for forecast in fit.forecasts_.values():
        assert forecast.verdict == "no"
        assert forecast.probability.high < 0.01


@pytest.mark.parametrize(
    "jitter", ["normal:sd=2ms", "normal:sd=2.5ms,per=slot:5ms", "gamma:sd=1ms,mean=3ms", "normal:sd=1.2ms,reorder"]
)
def test_where_a_quick_forecast_looks_for_no_threshold_there_is_none_up_to_what_it_says(jitter):
    flow = cct.simulate(cct.Path(**FAST, jitter=jitter), "bbr2016", "8s", packets=True).capture().flow(0)
    fit = cct.fit.Collapse(["bbr2016"], quick=True).fit(flow)
    found = fit.forecasts_["bbr2016"]
    assert found.verdict == "no"
    sds, shares = np.array(found.trials).T
    if found.runs == 2:  # and no more
        assert min(shares) > 0.5
        assert found.threshold_sd_us.low == pytest.approx(sds[0]) == pytest.approx(sds[1])
        assert found.threshold_sd_us.low >= fit.sd_us_.high / 0.3
        fit.quick = False  # with all its runs
        assert fit._search("bbr2016").sd_us > 0.95 * found.threshold_sd_us.low
    else:
        assert found.threshold_sd_us.value > fit.sd_us_.high


def test_more_jitter_makes_collapse_likelier():
    fit = cct.fit.Collapse(["bbr2016"], quick=True).fit(simulated("normal:sd=4ms"))
    chances = [fit.predict(sd, "bbr2016") for sd in (4_000, 9_000, 12_000, 16_000)]
    assert np.all(np.diff(chances) > 0)
    assert "threshold" in fit.summary()


@pytest.mark.parametrize("jitter", ["normal:sd=4ms", "normal:sd=3ms,reorder"])
def test_the_queue_over_the_jitter_is_the_captures_at_its_own_and_none_after_a_collapse(jitter):
    fit = cct.fit.Collapse(["bbr2016"], quick=True).fit(simulated(jitter, ack_every=2))
    now_us = fit.sd_us_.value
    delta = fit.delta_us([now_us, 1.5 * now_us, 30_000], "bbr2016")
    assert delta[0] == pytest.approx(fit.queue_us_, rel=0.15)
    assert 0 < delta[1] < delta[0]  # a lower min_rtt, a smaller window
    assert np.isnan(delta[2])


def test_a_flow_that_collapsed_says_so():
    """One that kept to a tenth of the link never showed its rate; one that began at full rate did."""
    always, later = (
        cct.simulate(cct.Path(**FAST, jitter=jitter), cct.Sender("bbr2016", ack_every=2), "20s", packets=True)
        for jitter in ("normal:sd=16ms,per=slot:5ms", [(0, "normal:sd=0ms"), (2, "normal:sd=9ms,reorder")])
    )
    with pytest.raises(cct.fit.FitError, match="jitter made collapse"):
        cct.fit.Collapse(["bbr2016"], quick=True).fit(always)
    assert later.flows.tail_goodput_bps[0] < 12e6
    fit = cct.fit.Collapse(["bbr2016"], quick=True).fit(later)
    assert fit.fell_to_ < 0.4
    assert fit.floor_us_ < 0.4 * fit.delay_us_  # as short as one that it had
    assert f"no RTT is below {fit.floor_us_ / 1e3:.3g} ms" in fit.line()
    assert fit.forecasts_["bbr2016"].verdict != "no"
    assert fit.forecasts_["bbr2016"].probability.high > 0.5


def test_a_floor_that_is_no_duration_or_above_the_rtts_is_refused():
    with pytest.raises(ArgumentError, match="floor='soon'"):
        cct.fit.Collapse(floor="soon")
    with pytest.raises(ArgumentError, match=r"floor='50ms' must be below .* RTT without a queue, 40"):
        cct.fit.Collapse(["bbr2016"], quick=True, floor="50ms").fit(simulated("normal:sd=2ms"))


def test_a_rate_that_changed_is_refused():
    path = cct.Path(rate=[(0, "40Mbit"), (4, "15Mbit")], rtt="40ms", buffer="4bdp")
    with pytest.raises(cct.fit.FitError, match="rate of the path changed"):
        cct.fit.Collapse().fit(cct.simulate(path, "bbr2022", "8s", packets=True, ack_every=2))


def test_a_forecast_survives_json_and_is_drawn_with_the_flows_own_point():
    fit = cct.fit.Collapse(["bbr2016"], quick=True).fit(simulated("gamma:sd=12ms,mean=12ms,per=slot:5ms"))
    again = cct.fit.Collapse.from_json(fit.to_json())
    assert again.to_json() == fit.to_json()
    assert again.summary() == fit.summary()
    assert again.path(8_000) == fit.path(8_000)
    assert again.forecasts_["bbr2016"].trials == fit.forecasts_["bbr2016"].trials
    assert sum(share < 0.5 for _, share in again.forecasts_["bbr2016"].trials) >= 2  # runs on both sides
    assert again.predict(3_000, "bbr2016") < again.predict(60_000, "bbr2016")
    pytest.importorskip("matplotlib").use("Agg")
    axes = again.plot()
    (x,), (y,) = axes.lines[0].get_data()
    assert (x, y) == (pytest.approx(fit.sd_us_.value / 1e3), pytest.approx(fit.base_us_ / 1e3))


def test_analyze_shows_the_forecast_or_why_there_is_none(tmp_path, capsys):
    bulk = str(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst"))
    assert main(["analyze", bulk, "-o", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["collapse"]["bbr2022"]["collapses"] == "no"
    file = tmp_path / "short.pcap"
    cct.simulate(cct.Path(**FAST), "bbr2022", "0.2s", packets=True).to_pcap(file)
    assert main(["analyze", str(file), "--cc", "bbr2022", "-o", str(tmp_path), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["collapse"]["refused"].startswith("only")


def test_a_flow_that_never_filled_the_path_is_refused():
    path = cct.Path(rate="10Gbit", rtt="40ms", buffer="1bdp", jitter="normal:sd=1ms,per=slot:5ms")
    sender = cct.Sender("bbr2022", app="chunks:size=30kB,every=20ms")
    with pytest.raises(cct.fit.FitError, match="never filled the path"):
        cct.fit.Collapse().fit(cct.simulate(path, sender, "5s", packets=True, ack_every=2))


def test_command_prints_every_controller(capsys):
    file = str(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst"))
    assert main(["fit", "collapse", file, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    for controller in ("bbr2016", "bbr2019", "bbr2022"):
        forecast = found[controller]
        for name in ("threshold_sd_us", "sd_us", "probability"):
            assert set(forecast[name]) == {"value", "low", "high"}
        assert forecast["collapses"] == "no"
