"""What fitted paths leave open: intervals that hold, draws from them, and what only some records can tell."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from benchmarks.fit_path import share_below
from cctrace.estimates import Estimate
from cctrace.fit.components import Components
from cctrace.fit.draws import at_share, simulated
from cctrace.flows.capture import Capture
from cctrace.path.bottleneck import deviation
from cctrace.path.evidence import evidence_of
from cctrace.path.losses import backlogs_of, losses_of
from cctrace.path.queue import Steps
from cctrace.path.steps import _pruned
from tests.places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "benchmarks"))


def fitted(path, cc="bbr2022", seconds=10, seed=3, **options):
    return cct.fit.path(cct.simulate(path, cc, f"{seconds}s", seed, packets=True, **{"ack_every": 2} | options))


@pytest.fixture(scope="module")
def lossy():
    return fitted(cct.Path(rate="20Mbit", rtt="60ms", buffer="150kB", loss="0.5%", jitter="gamma:sd=1ms,mean=2ms"))


# A small window tells the rate only by its bursts, and jitter of a packet's time or more hides it: the delays deviate
# least at a rate 15 % too low there, with an interval of a third of a per cent.
@pytest.mark.parametrize("jitter", ["normal:sd=1.52ms,per=packet", "normal:sd=2.8ms,per=slot:5ms"])
def test_the_rate_of_a_short_queue_with_jitter_lies_in_its_interval(jitter):
    path = cct.Path(rate="36.18Mbit", rtt="76ms", buffer="1bdp", loss="1%", jitter=jitter)
    e = fitted(path, "cubic6", 12, 16).estimates
    (row,) = e["rate_bps"]
    assert row["low"] < 36.18e6 < (row["high"] or np.inf)
    assert e["base_rtt_us"].low < 76_000 < e["base_rtt_us"].high
    assert e["jitter"]["process"] == jitter.partition("per=")[2].partition(":")[0]


def test_sacks_that_the_receiver_holds_back_do_not_lengthen_the_base_rtt():
    path = cct.Path(rate="50Mbit", rtt="80ms", buffer="4bdp", loss="2%")
    e = fitted(path, seconds=8).estimates
    assert e["base_rtt_us"].value == pytest.approx(80_000, abs=5)  # +0.12 % with them
    assert e["jitter"] is None


def test_a_buffer_is_as_certain_as_the_rate_at_which_it_overflowed_and_open_above_where_that_is_unknown():
    path = cct.Path(rate=[(0, "20Mbit"), (6, "40Mbit")], rtt="40ms", buffer="100kB")
    evidence = evidence_of(cct.simulate(path, cct.Sender("cubic6", ack_every=2), "7s", seed=1, packets=True))
    steps = Steps(np.array([0.0, 6e6]), np.array([2.5, 5.0]))
    assert backlogs_of(evidence, steps).time_us[backlogs_of(evidence, steps).overflow].max() < 6e6
    exact, later, never = (losses_of(evidence, steps, np.array(e)).buffer_bytes for e in ([0, 0], [0, 1e9], [1e9, 0]))
    assert later == exact
    assert exact.low < 100_000 < exact.high
    assert never.high is None
    assert never.low < 100_000
    assert never.text("{:.0f}").endswith("(at least 1514)")


def test_intervals_hold_over_random_paths():
    from fit_path import QUANTITIES, run

    shares = {name: [] for name in QUANTITIES}
    for seed in range(40, 45):
        for name, (below, _, truth) in run(seed)[1].items():
            if below is not None and truth:
                shares[name].append(below)
    every = np.concatenate([shares[name] for name in QUANTITIES])
    # Five paths prove no coverage, which benchmarks/fit_path.py measures: but one in three of the earlier intervals
    # missed, most by many standard errors.
    assert np.mean((every > 0.025) & (every < 0.975)) > 0.8
    assert np.mean((every > 1e-6) & (every < 1 - 1e-6)) > 0.95


def test_draws_are_as_far_apart_as_the_estimates_say(lossy):
    e, paths = lossy.estimates, lossy.draws(400, seed=2)
    rates = np.array([path.max_rate_bps() for path in paths])
    assert np.mean((rates > e["rate_bps"][0]["low"]) & (rates < e["rate_bps"][0]["high"])) == pytest.approx(
        0.95, abs=0.04
    )
    shares = np.array([path.world_fields()["loss_values"][0] for path in paths])
    low, high = np.quantile(shares, [0.025, 0.975])
    assert (low, high) == pytest.approx((e["loss"]["share"].low, e["loss"]["share"].high), rel=0.1)
    assert [path.rtt for path in lossy.draws(3, seed=2)] == [path.rtt for path in paths[:3]]
    together = np.corrcoef(rates, [path.rtt_ns for path in paths])[0, 1]
    wanted = np.array(e["correlation"]["matrix"])[0, 1]
    assert np.sign(together) == np.sign(wanted)


def test_what_is_bounded_from_one_side_is_drawn_beyond_the_bound():
    bounded = fitted(cct.Path(rate="20Mbit", rtt="30ms", buffer="20bdp"), seconds=4)
    assert "buffer" in bounded.estimates["undetermined"]
    sizes = [path.buffer_bytes for path in bounded.draws(50)]
    assert min(sizes) >= bounded.estimates["buffer_bytes"].low - 1
    assert max(sizes) > 4 * min(sizes)


def test_an_uncertain_mean_of_the_jitter_is_drawn_within_the_base_rtt_that_contains_it(lossy):
    jitter, base = lossy.estimates["jitter"], lossy.estimates["base_rtt_us"]
    wide = lossy.estimates | {"jitter": jitter | {"mean_us": Estimate(2000.0, 10.0, 4e6)}, "correlation": None}
    for path in cct.fit.FittedPath.of(wide).draws(20):
        mean_us = float(path.jitter.mean.removesuffix("us"))
        assert path.rtt_ns / 1e3 + mean_us == pytest.approx(base.value, rel=0.01)


@pytest.mark.parametrize("estimate", [Estimate(10.0, 9.0, 12.0), Estimate(1.0, 0.2, 7.0), Estimate(0.0, 0.0, 3.0)])
def test_shares_and_values_of_an_estimate_are_inverse(estimate):
    for share in (0.6, 0.9, 0.975):
        assert share_below(False, estimate, at_share(False, estimate, share)) == pytest.approx(share)
    assert at_share(True, Estimate(5.0, 4.0, 6.0), 0.975) == pytest.approx(6.0)


def test_json_out_is_json_in(lossy):
    text = lossy.export("json")
    again = cct.fit.FittedPath.from_json(text)
    assert again == lossy
    assert again.export("json") == text
    assert [path.rtt for path in again.draws(3)] == [path.rtt for path in lossy.draws(3)]
    assert again.summary() == lossy.summary()
    with pytest.raises(cct.errors.FormatError, match="rate_bps"):
        cct.fit.FittedPath.from_json(json.dumps({"base_rtt_us": None}))
    with pytest.raises(cct.errors.FormatError, match="JSON"):
        cct.fit.FittedPath.from_json("{")


def test_a_change_of_the_route_is_a_step_of_the_base_rtt():
    path = cct.Path(rate="20Mbit", rtt=[(0, "40ms"), (5, "60ms")], buffer="200kB", loss="0.1%")
    found = fitted(path, "cubic6", 10)
    first, second = found.estimates["base_rtt_steps"]
    assert (first["value"], second["value"]) == pytest.approx((40_000, 60_000), rel=0.002)
    assert second["start_s"] == pytest.approx(5.0, abs=0.1)
    assert found.estimates["base_rtt_us"].value == first["value"]
    assert found.rtt_steps()[1].tolist() == pytest.approx([40e6, 60e6], rel=0.002)


def test_a_route_that_holds_has_no_steps(lossy):
    assert "base_rtt_steps" not in lossy.estimates


@pytest.mark.parametrize(
    ("path", "aqm"),
    [
        (cct.Path(rate="20Mbit", rtt="40ms", buffer="4bdp", aqm="codel"), "codel"),
        (cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp"), "droptail"),
        (cct.Path(rate="20Mbit", rtt="40ms", buffer="8bdp", loss="1%"), None),
    ],
    ids=["codel", "droptail", "loss"],
)
@pytest.mark.parametrize("cc", ["bbr2022", "cubic6"])
def test_where_losses_come_in_the_queue_tells_who_dropped(path, aqm, cc):
    found = fitted(path, cc)
    assert found.estimates["aqm"] == aqm
    assert ("aqm" in found.estimates["undetermined"]) == (aqm is None)
    assert found.aqm == ("codel" if aqm == "codel" else "droptail")


@pytest.mark.parametrize(("more", "aqm"), [({"aqm": "codel"}, "codel"), ({"loss": "2%"}, None)])
def test_codels_clock_tells_it_where_the_queue_is_never_short(more, aqm):
    """A BBR keeps more than 5 ms at the bottleneck all the time, whoever drops."""
    found = fitted(cct.Path(rate="6Mbit", rtt="48ms", buffer="8bdp", **more), "bbr2022", seconds=20)
    assert found.estimates["aqm"] == aqm
    assert found.estimates["loss"]["random"] == (0 if aqm else pytest.approx(191, abs=60))


def test_acks_are_counted_and_gathered_ones_recognised():
    path = cct.Path(rate="40Mbit", rtt="40ms", buffer="2bdp")
    assert fitted(path, seconds=4, ack_every=1).estimates["acks"]["every"].value == 1
    four = fitted(path, seconds=4, ack_every=4).estimates["acks"]
    assert (four["every"].value, four["aggregation_us"]) == (4, None)
    gathered = fitted(path, cct.Sender("cubic6", ack_slot="5ms"), 4, ack_every=1).estimates["acks"]
    assert gathered["aggregation_us"].value == pytest.approx(5_000, rel=0.01)


def test_the_figure_shows_flow_and_fit(lossy):
    pytest.importorskip("matplotlib")
    rates, delays, queue = lossy.plot().axes
    assert [line.get_label() for line in rates.lines] == ["delivered", "bottleneck"]
    assert "base RTT" in [line.get_label() for line in delays.lines]
    assert "met by lost packets" in [line.get_label() for line in queue.lines]
    with pytest.raises(cct.errors.ArgumentError, match="JSON"):
        cct.fit.FittedPath.from_json(lossy.export("json")).plot()


def test_no_base_rtt_is_negative_where_rtts_are_shorter_than_serialisation():
    delays = SimpleNamespace(median_us=(-615.0, 100.0))
    on_a_coarse_clock = SimpleNamespace(delays=delays, joint=None, _overtaking_us=None, jitter=None, drift_us=0.0)
    value, low, high = Components.base(on_a_coarse_clock)
    assert value == low == 0.0 < high


def test_a_jitter_drawn_with_no_mean_delays_nothing():
    drawn = {"distribution": "gamma", "process": "packet", "sd_us": Estimate(5e4), "mean_us": Estimate(0.0)}
    assert simulated(drawn).samples_ns.tolist() == [0.0]


def test_equal_spacings_on_a_coarse_clock_do_not_give_the_rate_to_its_digits():
    """Twelve microseconds are 46.9 ticks: pairs say 46 or 47, and the queue's delays which rate it is."""
    path = cct.Path(rate="1009Mbit", rtt="2ms", buffer="1bdp")
    packets = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "500ms", seed=1, packets=True).capture().packets
    packets.columns["time_ns"] = packets.columns["time_ns"] // 256 * 256
    e = cct.fit.path(Capture(packets).flow(0)).estimates
    assert e["rate_bps"][0]["value"] == pytest.approx(1.009e9, rel=1e-3)
    assert e["base_rtt_us"].value == pytest.approx(2000, abs=20)


def test_losses_count_to_the_end_of_a_flow_that_was_acknowledged_completely():
    path = cct.Path(rate="20Mbit", rtt="60ms", buffer="1bdp", loss="2%")
    sender = cct.Sender("cubic6", ack_every=2, app="bulk:size=400kB")
    flow = cct.simulate(path, sender, "5s", seed=2, packets=True).capture().flow(0)
    lost = int(flow.events.sends["retransmitted"].sum())
    assert cct.fit.path(flow).estimates["loss"]["random"] == lost == 4


def test_a_first_rate_that_explains_nothing_is_no_step():
    path = cct.Path(rate="40Mbit", rtt="30ms", buffer="1bdp")
    sent = evidence_of(cct.simulate(path, "cubic6", "5s", packets=True)).sent
    steps = Steps(np.array([0.0, 1e5]), np.array([2.0, 5.0]))  # bytes/us
    pruned, _ = _pruned(sent, steps, deviation(sent, steps))
    assert pruned.rate.tolist() == [5.0]
