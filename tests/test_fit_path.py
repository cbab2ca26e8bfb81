"""Fitted paths: what a flow showed of its path comes back, what it could not see is said, and re-simulating agrees."""

import functools
import json

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.fit.export import opportunities
from cctrace.fit.fitted_path import path_of
from cctrace.path.evidence import evidence_of
from cctrace.path.queue import Steps, backlog
from cctrace.path.sent import SentPackets
from cctrace.path.steps import rate_steps
from cctrace.path.transmissions import _handshake_us
from cctrace.tcp.flags import ACK, SYN


def recorded(name, index=0):
    return cct.read(cct.datasets.path(name, "sender.pcap.zst")).bulk()[index]


@functools.cache
def fit_of(name):
    """Return the path of a recording's largest flow: several tests look at it."""
    return cct.fit.path(recorded(name))


def truth(name):
    return json.loads(cct.datasets.path(name, "scenario.json").read_text())["parameters"]


@pytest.fixture(scope="module")
def clean():
    return fit_of("single_bbr_1bdp")


def test_rate_base_rtt_and_buffer_of_a_recording_are_the_emulators(clean):
    e, parameters = clean.estimates, truth("single_bbr_1bdp")
    (rate,) = e["rate_bps"]
    assert rate["value"] == pytest.approx(parameters["rate"] * 1e6 * 1514 / 1500, rel=0.005)
    assert rate["low"] < rate["value"] < rate["high"]
    assert e["base_rtt_us"].value == pytest.approx(40_000, rel=0.01)
    assert e["buffer_bytes"].value == pytest.approx(parameters["buffer"], rel=0.05)
    assert (e["loss"]["congestive"], e["loss"]["random"], e["aqm"]) == (358, 0, "droptail")
    assert e["undetermined"] == []


def test_simulating_the_fitted_path_gives_what_was_recorded(clean):
    sim = cct.simulate(clean, "bbr2022", "20s", ack_every=2, hz=250)
    recorded_flow = recorded("single_bbr_1bdp").row
    assert sim.flows.goodput_bps[0] == pytest.approx(recorded_flow["goodput_bps"], rel=0.05)
    share = recorded_flow["retransmitted_segments"] / recorded_flow["segments_sent"]
    assert sim.flows.retransmit_ratio[0] == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "jitter_bbr_sd2ms"])
def test_a_quick_fit_has_the_same_path_and_jitter_where_that_can_be_simulated(name):
    full, quick = fit_of(name).estimates, path_of(evidence_of(recorded(name)), quick=True).estimates
    assert quick["rate_bps"][0]["value"] == pytest.approx(full["rate_bps"][0]["value"], rel=1e-3)
    assert quick["base_rtt_us"].value == pytest.approx(full["base_rtt_us"].value, rel=0.01)
    assert (quick["aqm"], quick["undetermined"]) == (full["aqm"], full["undetermined"])
    if full["jitter"]["process"] == "unknown":  # of microseconds, which no path is simulated with
        assert quick["jitter"] is None
    else:
        assert quick["jitter"]["distribution"] == full["jitter"]["distribution"]
        assert quick["jitter"]["sd_us"].low < full["jitter"]["sd_us"].value < quick["jitter"]["sd_us"].high


def test_random_loss_of_a_recording_is_told_from_congestion_and_the_unfilled_buffer_bounded():
    e = fit_of("loss_cubic_1pct").estimates
    assert e["loss"]["model"] == "bernoulli"
    assert e["loss"]["share"].low < 0.01 < e["loss"]["share"].high
    assert e["loss"]["congestive"] == 0
    assert "buffer" in e["undetermined"]
    assert e["buffer_bytes"].value is None
    assert e["buffer_bytes"].low < truth("loss_cubic_1pct")["buffer"]


def test_flows_of_one_capture_that_share_a_queue_are_fitted_together():
    e = fit_of("compete_bbr_cubic_2bdp").estimates
    assert e["cross_traffic"]["kind"] == "elastic"
    assert e["rate_bps"][0]["value"] == pytest.approx(40e6, rel=0.02)
    assert e["buffer_bytes"].value == pytest.approx(400_000, rel=0.15)


@pytest.mark.parametrize(("cc", "loss"), [("bbr2022", 0.002), ("cubic6", 0.0)])
def test_a_simulated_path_is_recovered(cc, loss):
    path = cct.Path(rate=[(0, "30Mbit"), (6, "12Mbit")], rtt="60ms", buffer="150kB", loss=f"{100 * loss}%")
    fitted = cct.fit.path(cct.simulate(path, cc, "14s", seed=2, packets=True, ack_every=2))
    e = fitted.estimates
    assert [row["value"] for row in e["rate_bps"]] == pytest.approx([30e6, 12e6], rel=0.02)
    assert e["rate_bps"][1]["start_s"] == pytest.approx(6.0, abs=0.26)
    assert e["base_rtt_us"].value == pytest.approx(60_000, rel=0.01)
    assert fitted.rtt_ns == pytest.approx(60e6, rel=0.01)
    assert e["buffer_bytes"].value == pytest.approx(150_000, rel=0.15)
    assert e["loss"]["share"].low <= loss < e["loss"]["share"].high


def test_losses_in_bursts_are_a_gilbert_elliott_process():
    path = cct.Path(rate="20Mbit", rtt="30ms", buffer="8bdp", loss="100%", burst_loss=(0.002, 0.3))
    fitted = cct.fit.path(cct.simulate(path, "bbr2022", "15s", packets=True))
    loss = fitted.estimates["loss"]
    assert loss["model"] == "gilbert-elliott"
    enter, leave = loss["burst"]
    assert enter.low < 0.002 < enter.high
    assert leave.value == pytest.approx(0.3, rel=0.25)
    assert fitted.burst_loss == (enter.value, leave.value)


def test_a_rate_that_was_never_reached_is_only_bounded():
    path = cct.Path(rate="10Gbit", rtt="40ms", buffer="1bdp", jitter="normal:sd=0.3ms,per=slot:5ms")
    flow = cct.Sender("bbr2022", app="chunks:size=30kB,every=20ms")
    e = cct.fit.path(cct.simulate(path, flow, "8s", packets=True, ack_every=2)).estimates
    assert {"rate", "buffer"} <= set(e["undetermined"])
    (row,) = e["rate_bps"]
    assert row["high"] is None
    assert row["low"] < 10e9


def test_a_short_flow_is_refused():
    sim = cct.simulate(cct.Path(rate="10Mbit"), "cubic6", "0.1s", packets=True)
    with pytest.raises(cct.fit.FitError, match="longer flow"):
        cct.fit.path(sim)


def test_exports_say_what_was_fitted(clean):
    netem = clean.export("netem")
    assert f"rate {clean.rate_steps()[1][0]:.0f}bit" in netem
    assert f"delay {clean.rtt_ns / 1000:.0f}us" in netem
    times = np.array(opportunities(clean))
    assert len(times) * 1500 * 8 / 60 == pytest.approx(clean.max_rate_bps(), rel=1e-3)
    assert np.all(np.diff(times) >= 0)
    assert times[-1] <= 60_000
    assert "mm-link" in clean.export("mahimahi")
    assert json.loads(clean.export("json"))["base_rtt_us"] == clean.estimates["base_rtt_us"].to_dict()
    with pytest.raises(cct.errors.ArgumentError, match="netem"):
        clean.export("ns3")


def test_command_prints_the_promised_keys(capsys):
    file = str(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    assert main(["fit", "path", file, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    keys = {"flow", "rate_bps", "base_rtt_us", "buffer_bytes", "loss", "jitter", "policer", "shaper", "aqm"}
    assert keys | {"cross_traffic", "undetermined"} <= set(found)
    assert set(found["rate_bps"][0]) == {"start_s", "value", "low", "high"}
    assert set(found["base_rtt_us"]) == {"value", "low", "high"}
    assert {"model", "share"} <= set(found["loss"])
    assert {"distribution", "process", "sd_us", "mean_us"} <= set(found["jitter"])
    assert main(["fit", "path", file]) == 0
    assert "base RTT" in capsys.readouterr().out


def test_a_queue_of_three_packets_behind_jitter_is_no_policer():
    path = cct.Path(rate="7Mbit", rtt="22ms", buffer="4800B", jitter=cct.Jitter("normal", sd="1500us"))
    fitted = cct.fit.path(cct.simulate(path, cct.Sender("bbr2", ack_every=2), "8s", 1, packets=True))
    assert fitted.policer is None


@pytest.mark.parametrize("cc", ["bbr2022", "cubic6"])
def test_a_policer_is_told_from_a_queue_and_measured(cc):
    path = cct.Path(rate="100Mbit", rtt="40ms", buffer="300kB", policer=("10Mbit", "200kB"))
    fitted = cct.fit.path(cct.simulate(path, cc, "12s", packets=True, ack_every=2))
    policer = fitted.estimates["policer"]
    assert policer["rate_bps"].value == pytest.approx(10e6, rel=0.01)
    assert policer["bucket_bytes"].value == pytest.approx(200_000, rel=0.05)
    assert fitted.estimates["loss"]["random"] < 5
    assert fitted.policer is not None
    again = cct.simulate(fitted, cc, "12s", ack_every=2).flows
    assert again.goodput_bps[0] == pytest.approx(
        cct.simulate(path, cc, "12s", ack_every=2).flows.goodput_bps[0], rel=0.05
    )


@pytest.mark.parametrize("cc", ["bbr3", "cubic6"])
@pytest.mark.parametrize("beside", [{"loss": "0.1%", "loss_behind": True}, {"jitter": "normal:sd=3ms"}])
def test_a_policer_is_measured_beside_random_loss_and_jitter(cc, beside):
    path = cct.Path(rate="15Mbit", rtt="60ms", buffer="1.3bdp", policer=("6Mbit", "30kB"), **beside)
    policer = cct.fit.path(cct.simulate(path, cc, "12s", seed=3, packets=True, ack_every=2)).estimates["policer"]
    assert policer["rate_bps"].value == pytest.approx(6e6, rel=0.01)
    assert policer["bucket_bytes"].value == pytest.approx(30_000, rel=0.1)


@pytest.mark.parametrize(("is_behind", "cc"), [(True, "bbr2022"), (False, "bbr2022"), (False, "cubic6")])
def test_what_was_lost_behind_the_queue_has_taken_its_time(is_behind, cc):
    path = cct.Path(rate="10Mbit", rtt="40ms", buffer="2bdp", loss="1%", loss_behind=is_behind)
    fitted = cct.fit.path(cct.simulate(path, cc, "8s", seed=3, packets=True, ack_every=2))
    assert fitted.estimates["loss"].get("is_behind", False) == is_behind
    assert fitted.loss_behind == is_behind
    assert fitted.estimates["rate_bps"][0]["value"] == pytest.approx(10e6, rel=0.002)
    assert fitted.estimates["jitter"]["sd_us"].high < 1


def test_a_queue_of_a_few_packets_drops_beside_random_loss():
    path = cct.Path(rate="29Mbit", rtt="13ms", buffer="9kB", loss="0.3%", loss_behind=True)
    estimates = cct.fit.path(cct.simulate(path, "reno", "12s", seed=3, packets=True, ack_every=2)).estimates
    assert estimates["buffer_bytes"].value == pytest.approx(9_000, abs=1514)
    assert estimates["loss"]["share"].low < 0.003 < estimates["loss"]["share"].high
    assert estimates["loss"]["congestive"] > 3


def test_a_shaper_lets_a_burst_through_and_then_delays():
    path = cct.Path(rate="100Mbit", rtt="40ms", buffer="300kB", shaper=("10Mbit", "200kB"))
    e = cct.fit.path(cct.simulate(path, "bbr2022", "12s", packets=True, ack_every=2)).estimates
    assert e["policer"] is None
    assert e["shaper"]["rate_bps"].value == pytest.approx(10e6, rel=0.01)
    assert e["shaper"]["bucket_bytes"].value == pytest.approx(200_000, rel=0.05)
    assert e["base_rtt_us"].value == pytest.approx(40_000, rel=0.01)
    assert e["buffer_bytes"].value == pytest.approx(300_000, rel=0.1)


@pytest.mark.parametrize("cc", ["bbr2022", "cubic6", "bbr3"])
def test_the_handshake_tells_a_bucket_of_one_packet_from_a_link(cc):
    """Both serve a queue alike, but a full packet that finds no queue passes the bucket as fast as a SYN does."""
    bucket, link = cct.Path(shaper=("5Mbit", "1600B"), rtt="40ms"), cct.Path(rate="5Mbit", rtt="40ms")
    for path in (bucket, link):
        sim = cct.simulate(path, cct.Sender(cc, ack_every=2, fq=True), "10s", packets=True)
        fitted = cct.fit.path(sim)
        e = fitted.estimates
        assert e["base_rtt_us"].value == pytest.approx(40_000, abs=20)  # a packet takes 2.4 ms
        assert e["rate_bps"][0]["value"] == pytest.approx(5e6, rel=1e-4)
        assert e["buffer_bytes"].value == pytest.approx(path.buffer_bytes, abs=1514)
        assert (e["shaper"] is not None) == (path is bucket)
        if path is bucket:
            assert e["shaper"]["bucket_bytes"].value == pytest.approx(1600, abs=20)
        assert cct.fit.FittedPath.from_json(fitted.to_json()).rate_steps() == fitted.rate_steps()
        again = cct.simulate(fitted, cct.Sender(cc, ack_every=2, fq=True), "10s")
        assert again.flows.rtt_mean_us[0] == pytest.approx(sim.flows.rtt_mean_us[0], rel=0.02)


def test_the_rtt_of_a_handshake_that_was_repeated_is_not_known():
    mine, flags = np.array([True, False, True]), np.array([SYN, SYN | ACK, ACK])
    times_ns = np.array([0, 40_000_000, 40_000_000])
    assert _handshake_us(times_ns, mine, flags) == 40_000.0
    assert np.isnan(_handshake_us(np.append(-(10**9), times_ns), np.append(True, mine), np.append(SYN, flags)))
    assert np.isnan(_handshake_us(times_ns[1:], mine[1:], flags[1:]))


@pytest.mark.parametrize("cc", ["bbr2022", "cubic6"])
def test_a_queue_that_stands_from_the_first_round_trip_on_is_no_bucket(cc):
    """Hardly ten packets met no queue: the shortest RTTs contain some of it."""
    path = cct.Path(rate="4.55Mbit", rtt="12.9ms", buffer="19kB", jitter="normal:sd=0.6ms")
    e = cct.fit.path(cct.simulate(path, cc, "8s", packets=True, ack_every=2, profile="linux")).estimates
    assert e["shaper"] is None
    assert e["base_rtt_us"].value == pytest.approx(12_900, rel=0.02)


@pytest.mark.parametrize(
    ("first", "second", "buffer", "seed"),
    [
        pytest.param("reno", "cubic6", "1bdp", 5, id="never meets an empty queue, which is no bucket"),
        pytest.param("reno", "reno", "1bdp", 31, id="the other's packets came before time 0"),
        pytest.param("cubic6", "cubic6", "2.5bdp", 42, id="only some of the packets are the other's"),
    ],
)
def test_flows_of_which_one_joins_late_have_the_path_that_they_share(tmp_path, first, second, buffer, seed):
    path = cct.Path(rate="40Mbit", rtt="30ms", buffer=buffer)
    senders = [first, cct.Sender(second, start="8s")]
    cct.simulate(path, senders, "18s", seed=seed, profile="linux", packets=True).to_pcap(tmp_path / "both.pcap")
    for flow in cct.read(tmp_path / "both.pcap").bulk():
        e = path_of(evidence_of(flow), quick=True).estimates
        assert e["shaper"] is None
        assert e["rate_bps"][0]["value"] == pytest.approx(40e6, rel=1e-3)
        assert e["base_rtt_us"].value == pytest.approx(30_000, rel=0.01)
        assert e["buffer_bytes"].value == pytest.approx(path.buffer_bytes, rel=0.02)


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct", "compete_bbr_cubic_2bdp"])
def test_no_bucket_is_seen_where_none_was(name):
    e = fit_of(name).estimates
    assert (e["policer"], e["shaper"]) == (None, None)


def test_a_rate_that_only_a_wrong_jitter_distribution_bounds_is_not_bounded():
    """No queue stood, and no distribution that is fitted quickly is uniform: its interval would exclude the rate."""
    uniform = cct.Jitter("empirical", samples_ns=np.linspace(0, 5e6, 1001))
    path = cct.Path(rate="50Mbit", rtt="22.5ms", buffer="2bdp", jitter=uniform, policer=("14Mbit", "50kB"))
    sim = cct.simulate(path, cct.Sender("bbr3", fq=True, ack_every=2), "12s", seed=5, packets=True)
    fitted = path_of(evidence_of(sim), quick=True)
    (rate,) = fitted.estimates["rate_bps"]
    assert "rate" in fitted.estimates["undetermined"]
    assert (rate["low"] < 50e6, rate["high"]) == (True, None)


def test_a_policer_of_a_few_packets_has_its_rate_in_the_interval():
    path = cct.Path(rate="100Mbit", rtt="100ms", buffer="600kB", policer=("3Mbit", "8000B"))
    policer = cct.fit.path(cct.simulate(path, "cubic6", "20s", packets=True, ack_every=2)).estimates["policer"]
    assert policer["rate_bps"].low <= 3e6 <= policer["rate_bps"].high
    assert policer["rate_bps"].high < 9e6
    assert policer["bucket_bytes"].value == pytest.approx(8000, abs=1514)


@pytest.mark.parametrize("cc", ["cubic6", "reno"])
def test_a_short_queue_behind_a_small_bucket_is_no_policer(cc):
    path = cct.Path(rate="100Mbit", rtt="100ms", buffer="16kB", shaper=("10Mbit", "8000B"))
    assert cct.fit.path(cct.simulate(path, cc, "20s", packets=True, ack_every=2)).estimates["policer"] is None


@pytest.mark.parametrize(
    ("rate", "rtt", "buffer", "cc"), [("3.06Mbit", "23.5ms", "3947B", "cubic6"), ("2.18Mbit", "27ms", "2177B", "reno")]
)
def test_a_queue_of_a_few_packets_is_no_policer_although_another_bucket_would_do(rate, rtt, buffer, cc):
    """Its likeliest bucket delays packets as a queue does; a worse one, at another rate, seems not to."""
    path = cct.Path(rate=rate, rtt=rtt, buffer=buffer)
    assert cct.fit.path(cct.simulate(path, cc, "12s", packets=True, ack_every=2)).estimates["policer"] is None


def paused(rate, pauses, seconds=12.0):
    """Return the `SentPackets` of a flow in 2 s of standing queue and 1 s without, through a server that pauses."""
    at, wire = np.arange(0, seconds * 1e6, 1514 / 5.0), 1514.0
    sent = at[(at % 3e6 < 2e6)] * 0.98
    served, clock, pauses = np.empty(len(sent)), 0.0, list(pauses)
    for k, time in enumerate(sent):
        clock = max(clock, time)
        while pauses and pauses[0][0] <= clock:
            clock += pauses.pop(0)[1]
        clock += wire / rate(clock)
        served[k] = clock
    told = served + 40_000 + np.random.default_rng(1).exponential(50, len(sent))
    each = np.ones(len(sent), bool)
    return SentPackets(sent, np.full(len(sent), wire), told, np.arange(len(sent)), each, each)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_server_that_pauses_has_not_changed_its_rate(seed):
    rng = np.random.default_rng(seed)
    at = np.arange(4e6, 8e6, 2e5)
    steps, _ = rate_steps(
        paused(lambda time: 5.0, [(t, rng.uniform(1e4, 2.5e4)) for t in at + rng.uniform(0, 1.4e5, 20)])
    )
    assert steps.rate == pytest.approx([5.0], rel=0.01)


def test_a_rate_that_changed_by_a_sixth_is_found_though_the_server_pauses():
    rng = np.random.default_rng(8)
    pauses = [(time, rng.uniform(5e3, 15e3)) for time in np.arange(0.5e6, 11e6, 5e5)]
    steps, _ = rate_steps(paused(lambda time: 5.0 if time < 6e6 else 4.2, pauses))
    assert steps.rate == pytest.approx([5.0, 4.2], rel=0.02)
    assert steps.start_us[1] == pytest.approx(6e6, abs=3e5)


def test_a_rate_that_falls_shows_in_neighbours_where_losses_keep_the_queue_empty():
    path = cct.Path(rate=[(0, "30Mbit"), (6, "14Mbit")], rtt="40ms", buffer="2bdp", loss="1%")
    rows = cct.fit.path(cct.simulate(path, "reno", "12s", 2, packets=True, ack_every=2)).estimates["rate_bps"]
    assert [row["value"] for row in rows] == pytest.approx([30e6, 14e6], rel=0.05)
    assert rows[1]["start_s"] == pytest.approx(6, abs=0.5)


def test_the_few_packets_that_overtake_stay_few():
    early = cct.Jitter("empirical", samples_ns=np.array([0] + 99 * [20_000_000]), reorder=True)
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="2bdp", jitter=early)
    fitted = cct.fit.path(cct.simulate(path, "bbr3", "10s", 2, packets=True, ack_every=2))
    assert fitted.estimates["jitter"]["process"] == "reorder"
    added = np.asarray(fitted.jitter.samples_ns) / 1e6
    assert np.mean(added < 10) == pytest.approx(0.01, abs=0.005)
    assert fitted.rtt_ns / 1e6 + added.mean() == pytest.approx(20 + 0.99 * 20, abs=0.3)


def test_a_path_whose_rate_nothing_bounds_is_fitted():
    # A buffer of two packets: CUBIC never fills the path, and the standard error of the rate is beyond all numbers.
    sim = cct.simulate(cct.Path(rate="20Mbit", rtt="30ms", buffer="3kB"), "cubic6", "8s", packets=True, seed=1)
    assert "at least" in cct.fit.path(sim.capture().flow(0)).summary()


@pytest.mark.parametrize("steps", [Steps(np.zeros(1), np.ones(1)), Steps(np.array([0.0, 9e3]), np.array([1.0, 2.0]))])
def test_a_queue_drains_before_the_flow_begins_too(steps):
    """A competitor that came a second before sent at half the rate: nothing waits."""
    sent_us = np.arange(-1e6, 5e3, 2e3)
    assert backlog(sent_us, np.full(len(sent_us), 1e3), steps).tolist() == [1e3] * len(sent_us)
    assert steps.when(steps.served(sent_us)).tolist() == pytest.approx(sent_us.tolist(), abs=1e-6)
