"""Shares of a bottleneck: what a simulation of competing flows knows, and refusals."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.errors import ArgumentError, FitError
from cctrace.fit import Share
from cctrace.fit.share import resampled
from cctrace.path.neighbours import neighbours

PATH = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp", jitter="normal:sd=0.1ms")


def run(flows, duration="20s", **options):
    return cct.simulate(PATH, flows, duration, 1, packets=True, **options)


@pytest.fixture(scope="module")
def competing():
    sim = run(["bbr2022", "cubic6"])
    return sim, Share().fit(sim)


def test_what_the_simulation_knows_is_found(competing):
    sim, fit = competing
    assert [fit.flows_[k][0] for k in (0, 1)] == ["bbr2022", "cubic6"]
    assert (fit.bbr_flows_, fit.loss_based_flows_) == (1, 1)
    assert fit.rate_bps_.value == pytest.approx(20e6, rel=0.02)
    assert fit.ratio_.value == pytest.approx(2.0, rel=0.05)
    # Without the first fifth, while the table's tail is the last 67 %.
    goodput = sim.flows.tail_goodput_bps
    assert fit.bbr_share_.value == pytest.approx(goodput[0] / goodput.sum(), abs=0.05)
    assert fit.loss_based_share_.value == pytest.approx(1 - fit.bbr_share_.value)
    assert fit.bbr_share_.low < fit.bbr_share_.value < fit.bbr_share_.high
    assert 1.0 < fit.gain_.value < 2.6  # a window of 2 BDP and bursts


def test_models_are_held_against_it_with_their_domains(competing):
    _, fit = competing
    assert set(fit.predicted_) == {"obbr", "ware", "mishra"}
    assert fit.predicted_["mishra"].domain == "inside"
    assert "buffer below 16 BDP" in fit.predicted_["ware"].domain
    assert fit.predicted_["ware"].bbr_share.value > fit.bbr_share_.high
    assert "outside" in fit.summary()


def test_the_command_prints_an_object_per_flow(competing, tmp_path, capsys):
    competing[0].to_pcap(tmp_path / "two.pcap")
    assert main(["fit", "share", str(tmp_path / "two.pcap"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["controller"] for row in found} == {"bbr2022", "cubic6"}
    assert sum(row["share"]["value"] for row in found) == pytest.approx(1.0)
    assert set(found[0]["predicted"]["ware"]["bbr_share"]) == {"value", "low", "high"}
    assert found[0]["flow"]["dport"] == 5201


def test_what_is_no_competition_is_refused():
    with pytest.raises(FitError, match="all 2 flows are bbr"):
        Share().fit(run(["bbr2022", "bbr2022"], "10s"))
    with pytest.raises(FitError, match="at least two"):
        Share().fit(run("bbr2022", "5s"))
    with pytest.raises(FitError, match="are needed"):
        Share().fit(run(["bbr2022", cct.Sender("cubic6", start="7s")], "10s"))
    with pytest.raises(FitError, match="at the sender"):
        Share().fit(run(["bbr2022", "cubic6"], "5s").capture(side="receiver"))
    with pytest.raises(ArgumentError, match="no capture of TCP"):
        Share(senders={0: "obbr"})


def test_resampled_sums_scatter_as_the_mean_of_dependent_bins_does():
    noise = np.random.default_rng(3).standard_normal(400)
    draws = resampled(np.repeat(noise, 5)[None])  # each five times: as uncertain as 400 independent ones
    assert np.std(draws) == pytest.approx(5 * np.sqrt(400), rel=0.15)


def test_of_too_many_flows_the_largest_are_followed():
    size = np.arange(1000, 1100)
    rows = {"src": ["a"] * 100, "dst": ["b"] * 100, "start_ns": np.zeros(100), "duration_s": np.full(100, 9.0)}
    followed = neighbours(rows | {"bytes_sent": size[::-1]}, 0)
    assert followed == list(range(1, len(followed) + 1))
    assert neighbours(rows | {"bytes_sent": size}, 0) == list(range(100 - len(followed), 100))


def test_a_short_flow_that_takes_a_part_of_the_path_matters_for_as_long_as_it_lasts():
    rows = {
        "src": ["a"] * 3,
        "dst": ["b"] * 3,
        "start_ns": np.array([0, 4e9, 9.9e9]),
        "duration_s": np.array([10.0, 1.0, 10.0]),
        "bytes_sent": np.array([40e6, 1.5e6, 30e6]),  # the third sends nearly all of them later
    }
    assert neighbours(rows, 0) == [1]
