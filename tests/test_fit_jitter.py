"""Uncongested RTTs and jitter: recovered from what simulations and recordings show, refused where nothing is shown."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import signal

import cctrace as cct
from cctrace.cli import main
from cctrace.estimates import Estimate
from cctrace.fit import draws
from cctrace.fit.censored import Censored
from cctrace.fit.families import FAMILIES
from cctrace.fit.goodness import SHARES, product_limit
from cctrace.fit.process import slot_length
from cctrace.path.blocks import autocovariances, block_length, correlation_time, effective_samples
from cctrace.path.delays import mean_of
from cctrace.path.queue import Steps, backlog, constant, departures
from cctrace.path.sent import SentPackets, sent_packets
from cctrace.path.steps import rate_steps
from cctrace.path.transmissions import DELIVERED, LOST, transmissions

PATH = {"rate": "40Mbit", "rtt": "40ms", "buffer": "4bdp"}


def ordered(rng, draws):
    """Return the delays that packets 300 us apart with these draws show, as `Censored`."""
    departed = np.arange(len(draws)) * 300.0
    arrived = np.maximum.accumulate(departed + draws)
    return Censored(arrived - departed, np.arange(len(draws)), np.diff(arrived, prepend=-1) > 1e-6)


def simulated(duration="8s", cc="bbr2022", ack_every=2, seed=1, **path):
    return cct.simulate(cct.Path(**PATH | path), cc, duration, seed, packets=True, ack_every=ack_every)


# --- what was sent and what became of it -----------------------------------------------------------------------------
def test_lost_transmissions_are_those_that_the_simulation_dropped():
    sim = simulated("5s", buffer="0.5bdp", loss="0.5%")
    table = transmissions(sim)
    dropped = int(sim.flows.dropped[0] + sim.flows.lost[0])
    assert dropped > 100
    # What was dropped last is not known to be lost yet.
    assert dropped - 5 <= np.sum(table.state == LOST) <= dropped
    assert len(table) == sim.flows["sent"][0]


def test_departures_are_lindleys(rng):
    sent_us, size = np.cumsum(rng.exponential(300, 500)), rng.uniform(60, 1514, 500)
    steps = Steps(np.array([0.0, 50_000.0, 90_000.0]), np.array([3.0, 1.5, 5.0]))
    got, free, queued = departures(sent_us, size, steps), 0.0, backlog(sent_us, size, steps)
    for k in range(500):
        begin = max(sent_us[k], free)
        before, left = begin, size[k]
        while left > 1e-9:
            step = int(np.searchsorted(steps.start_us, before, "right")) - 1
            end = steps.start_us[step + 1] if step < 2 else np.inf
            take = min(left, (end - before) * steps.rate[step])
            left, before = left - take, before + take / steps.rate[step]
        free = before
        assert got[k] == pytest.approx(free, abs=1e-3)
        assert queued[k] == pytest.approx(steps.served(np.array(free)) - steps.served(sent_us[k]), abs=1e-3)


@pytest.mark.parametrize("first_us", [0.0, -60_000.0])  # other flows may have begun before
def test_compiled_residual_delays_are_those_of_departures(rng, first_us):
    sent_us, size = first_us + np.cumsum(rng.exponential(300, 500)), rng.integers(60, 1514, 500).astype(float)
    acked_us, yes = sent_us + rng.uniform(1e4, 2e4, 500), np.ones(500, bool)
    acked_us[::3] = np.nan
    flow = SentPackets(sent_us, size, acked_us, np.arange(500), yes, yes)
    starts = np.array([0.0, sent_us[200], 90_000.0])  # the second with a packet
    for steps in (constant(2.0), Steps(starts, np.array([3.0, 1.5, 5.0])), Steps(starts, np.array([9.0, 8.0, 0.1]))):
        want = (acked_us - flow.departures(steps))[flow.timed]
        assert flow.unexplained(steps) == pytest.approx(want, abs=1e-9)


def test_a_token_bucket_lets_a_burst_through_at_once():
    size = np.full(20, 1000.0)
    got = departures(np.zeros(20), size, constant(1.0), bucket_bytes=10_000)
    assert got[9] == 0
    assert got[10] == pytest.approx(1000)


def test_rate_of_a_simulated_bottleneck_is_found_to_a_thousandth_and_its_step_to_a_packet():
    steps, _ = rate_steps(
        sent_packets(transmissions(simulated("8s", rate=[(0, "40Mbit"), (4, "15Mbit")], ack_every=1)))
    )
    assert steps.rate * 8 == pytest.approx([40, 15], rel=2e-3)
    assert steps.start_us[1] == pytest.approx(4e6, abs=60_000)


# --- dependence ------------------------------------------------------------------------------------------------------
def test_effective_samples_of_an_autoregression_are_those_of_theory(rng):
    rho, n = 0.9, 40_000
    x = np.zeros(n)
    for k, z in enumerate(rng.standard_normal(n - 1)):
        x[k + 1] = rho * x[k] + z
    assert effective_samples(x) == pytest.approx(n * (1 - rho) / (1 + rho), rel=0.35)
    assert block_length(x) > 5 * block_length(rng.standard_normal(n))


def test_error_of_a_mean_knows_that_samples_hang_together(rng):
    held = {}
    for wide in (False, True):
        for _ in range(40):
            z = signal.lfilter([np.sqrt(1 - 0.9**2)], [1, -0.9], rng.standard_normal(3_000))
            mean = mean_of(z)
            error = (mean.high - mean.low) / 2 if wide else 1.96 * z.std() / np.sqrt(len(z))
            held[wide] = held.get(wide, 0) + (abs(mean.value) <= error)
    assert held[True] >= 34 > 25 > held[False]


def test_autocorrelation_time_of_an_autoregression_is_that_of_theory(rng):
    z = signal.lfilter([1], [1, -0.8], rng.standard_normal(20_000))
    found = correlation_time(z, 100.0)
    assert found.low < 100 * (0.5 + 0.8 / 0.2) < found.high < 1.4 * found.value


# --- distribution ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("together", [1, 2])
def test_draws_hidden_behind_the_packet_before_are_recovered(rng, together):
    departed = np.arange(30_000) * 300.0
    arrived = np.maximum.accumulate(departed + rng.normal(20_000, 3_000, len(departed)))
    group = np.arange(len(departed)) // together
    told = arrived[together - 1 :: together]
    event = np.diff(told, prepend=-1) > 1e-6
    assert event.mean() < 0.5  # most draws hide
    fitted = Censored(told[group] - departed, group, event).fit(FAMILIES["normal"])
    assert fitted.moments == pytest.approx((20_000, 3_000), rel=0.03)


@pytest.mark.parametrize(
    ("family", "draw"),
    [
        ("normal", lambda rng, n: rng.normal(20_000, 1_000, n)),
        ("gamma", lambda rng, n: 10_000 + rng.gamma(2, 1_000, n)),
        ("lognormal", lambda rng, n: 10_000 + rng.lognormal(7, 0.8, n)),
        ("weibull", lambda rng, n: 10_000 + 2_000 * rng.weibull(3, n) ** 1.0),
        ("exponential", lambda rng, n: 10_000 + rng.exponential(1_500, n)),
    ],
)
def test_the_family_that_drew_explains_as_well_as_any(rng, family, draw):
    draws = draw(rng, 5_000)
    fit = cct.fit.Jitter().fit(draws)
    assert fit.aic_[family] < 6
    assert fit.sd_us_.low * 0.98 < draws.std() < fit.sd_us_.high * 1.02
    assert fit.predict([0.5])[0] == pytest.approx(np.median(draws), rel=0.02)
    assert fit.score(draws) > fit.score(draws + 3 * draws.std())


def test_two_components_and_no_family_describe_what_no_single_one_does(rng):
    draws = np.r_[rng.normal(20_000, 500, 3_000), rng.normal(23_000, 300, 1_000)]
    rng.shuffle(draws)
    mixed = cct.fit.Jitter().fit(draws)
    assert mixed.distribution_ == "mixture"
    assert mixed.goodness_.probability > 0.05
    free = cct.fit.Jitter(["normal", "empirical"]).fit(draws)  # the normal is refuted
    assert free.distribution_ == "empirical"
    for fit in (mixed, free):
        assert fit.sd_us_.low < draws.std() < fit.sd_us_.high
        assert fit.predict([0.1, 0.9]) == pytest.approx(np.quantile(draws, [0.1, 0.9]), rel=0.01)
        drawn = fit.jitter()
        assert drawn.kind == "empirical"
        assert np.std(drawn.samples_ns) == pytest.approx(1e3 * draws.std(), rel=0.03)


def test_residuals_refute_a_wrong_family_and_not_the_right_one_of_hidden_draws():
    sim = simulated("12s", jitter="gamma:sd=2ms,mean=2ms,per=packet")
    delays = cct.fit.uncongested_rtt(sim)
    right, wrong = (cct.fit.Jitter([family]).fit(delays).goodness_ for family in ("gamma", "normal"))
    assert right.probability > 0.01 > wrong.probability
    assert wrong.distance > 2 * right.distance


def test_residuals_of_dependent_draws_are_not_taken_for_independent_ones(rng):
    """With a Kolmogorov table nearly every one of these series would be refuted."""
    refuted = 0
    for _ in range(12):
        z = signal.lfilter([np.sqrt(1 - 0.95**2)], [1, -0.95], rng.standard_normal(4_000))
        refuted += cct.fit.Jitter(["normal"]).fit(20_000 + 1_000 * z).goodness_.probability < 0.05
    assert refuted <= 4


def test_no_family_fits_a_product_limit_that_ignores_censoring(rng):
    data = ordered(rng, rng.gamma(4, 500, 20_000) + 10_000)
    table, mean, sd = product_limit(data, lambda x: np.ones(len(x)))
    shown = data.delay_us[data.event[data.group]]
    assert (mean, sd) == (pytest.approx(12_000, rel=0.02), pytest.approx(1_000, rel=0.1))
    assert shown.mean() > 12_500
    assert np.interp(0.5, SHARES, table) == pytest.approx(11_836, rel=0.02)  # the gamma's median


def test_a_fit_survives_json(rng):
    fit = cct.fit.Jitter().fit(rng.gamma(2, 1_000, 2_000) + 10_000)
    again = cct.fit.Jitter.from_json(fit.to_json())
    assert again.to_json() == fit.to_json()
    assert again.to_dict() == fit.to_dict()
    assert again.predict([0.3]) == fit.predict([0.3])
    assert again.jitter() == fit.jitter()
    with pytest.raises(cct.errors.FormatError, match="Collapse"):
        cct.fit.Collapse.from_json(fit.to_json())


def test_plot_shows_quantiles_on_the_diagonal_where_the_family_fits(rng):
    pytest.importorskip("matplotlib").use("Agg")
    _, right = cct.fit.Jitter(["normal"]).fit(rng.normal(20_000, 1_000, 4_000)).plot()
    x, y = right.lines[0].get_data()
    assert np.median(np.abs(x - y)) < 0.05  # ms


# --- process ---------------------------------------------------------------------------------------------------------
def test_period_of_a_grid_is_found_among_its_harmonics(rng):
    times = 5_000.0 * np.sort(rng.choice(2_000, 800, replace=False)) + rng.uniform(-150, 150, 800)
    found = slot_length(times)
    assert found.low < 5_000 < found.high
    assert slot_length(np.sort(rng.uniform(0, 1e7, 800))) is None


@pytest.mark.parametrize(
    ("jitter", "process"),
    [
        ("normal:sd=2ms,per=packet", "packet"),
        ("normal:sd=2ms,per=burst", "burst"),
        ("normal:sd=2ms,per=slot:5ms", "slot"),
        ("normal:sd=2ms,reorder", "reorder"),
    ],
)
def test_process_and_sd_of_simulated_jitter_are_recovered(jitter, process):
    fit = cct.fit.Jitter().fit(simulated(jitter=jitter, ack_every=1))
    assert fit.process_.name == process
    assert fit.sd_us_.value == pytest.approx(2_000, rel=0.1)
    assert fit.delay_us_.value == pytest.approx(40_000, rel=0.01)
    if process == "slot":
        assert fit.slot_us_.low < 5_000 < fit.slot_us_.high
    again = fit.jitter()
    assert again.reorder == (process == "reorder")
    assert again.per.split(":")[0] == ("packet" if process == "reorder" else process)
    assert cct.Path(**PATH, jitter=again).has_jitter


def test_jitter_of_a_recording_is_what_the_emulator_drew():
    delays = cct.fit.uncongested_rtt(cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).bulk()[0])
    fit = cct.fit.Jitter().fit(delays)
    assert (fit.process_.name, fit.distribution_) == ("packet", "normal")
    assert fit.sd_us_.value == pytest.approx(2_002, rel=0.15)
    assert fit.delay_us_.value == pytest.approx(20_002, rel=0.02)
    assert fit.effective_samples_ < 0.2 * len(delays)  # 19,000 RTTs are not as many facts


# --- RTT without queue -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cc", ["bbr2022", "cubic6"])
def test_uncongested_rtt_has_no_queue_in_it(cc):
    sim = simulated("6s", cc=cc, buffer="2bdp")
    delays = cct.fit.uncongested_rtt(sim)
    table = delays.table
    assert np.nanmax(table.rtt_us[table.state == DELIVERED]) > 60_000
    assert delays.mean_us.value == pytest.approx(40_000, abs=150)


def test_a_queue_that_others_fill_is_left_out():
    path = cct.Path(**PATH)
    flows = [cct.Sender("bbr2022"), cct.Sender("cubic6", start="3s", stop="7s")]
    sim = cct.simulate(path, flows, "10s", packets=True, ack_every=2)
    delays = cct.fit.uncongested_rtt(sim)
    assert delays.quiet_share < 0.9
    assert np.quantile(delays.rtt_us, 0.9) < 45_000


def test_packets_that_wait_for_those_before_them_are_no_queue_of_others():
    """At 33 packets a standard deviation, each waits for the slowest of dozens, 15 ms longer than one on its own."""
    path = cct.Path(rate="50Mbit", rtt="30ms", reverse="15ms", buffer="2bdp", jitter="normal:sd=8ms,per=packet")
    sim = cct.simulate(path, "bbr2022", "20s", seed=1, packets=True)
    delays = cct.fit.uncongested_rtt(sim)
    assert delays.quiet_share > 0.99
    assert cct.fit.Jitter().fit(delays).sd_us_.number == pytest.approx(8000, rel=0.05)


def test_what_moves_all_packets_of_a_while_together_is_not_their_jitter():
    """A host that stalls leaves backlog that lasts, on top of what each packet draws."""
    delays = cct.fit.uncongested_rtt(simulated("10s", jitter="normal:sd=0.5ms,per=packet"))
    backlog = 4_000.0 * (np.floor(delays.departed_us / 200_000.0) % 2)
    gap = delays.gap_us + np.diff(backlog[delays.last], prepend=0.0)
    fit = cct.fit.Jitter().fit(dataclasses.replace(delays, delay_us=delays.delay_us + backlog, gap_us=gap))
    assert fit.sd_us_.value == pytest.approx(500, rel=0.1)
    assert fit.wander_us_ == pytest.approx(2_000, rel=0.2)


# --- refusals --------------------------------------------------------------------------------------------------------
def test_a_constant_rtt_has_no_jitter():
    with pytest.raises(cct.fit.FitError, match="constant"):
        cct.fit.Jitter().fit(simulated("3s"))


@pytest.mark.parametrize(
    ("draws", "why"), [([1.0] * 5, "at least 30"), ([1.0] * 50, "equal"), ([1.0, np.nan] * 50, "finite")]
)
def test_delays_that_tell_nothing_are_refused(draws, why):
    with pytest.raises(cct.fit.FitError, match=why):
        cct.fit.Jitter().fit(draws)


def test_counters_are_refused_with_what_they_do_tell():
    flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "tcpinfo.csv.zst")).flow(0)
    for estimator in (cct.fit.Jitter, cct.fit.Collapse):
        with pytest.raises(cct.fit.FitError, match=r"at most 1\d{4} us.*capture at the sender"):
            estimator().fit(flow)


def test_a_short_flow_is_refused():
    with pytest.raises(cct.fit.FitError, match="longer flow"):
        cct.fit.uncongested_rtt(simulated("0.2s"))


def test_an_unknown_family_is_named():
    with pytest.raises(cct.errors.ArgumentError, match="cauchy"):
        cct.fit.Jitter(families=["cauchy"])


# --- command line ----------------------------------------------------------------------------------------------------
def test_command_prints_one_object_per_bulk_flow(capsys):
    file = str(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst"))
    assert main(["fit", "jitter", file, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["flow"]["sport"] == 40001
    assert found["process"] == "packet"
    assert set(found["sd_us"]) == {"value", "low", "high"}
    assert found["sd_us"]["low"] < found["sd_us"]["value"] < found["sd_us"]["high"]


def test_command_says_why_it_refuses(capsys, tmp_path):
    file = tmp_path / "clean.pcap"
    simulated("3s").to_pcap(file)
    assert main(["fit", "jitter", str(file), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert "constant" in found["refused"]


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """A quick part of `benchmarks/fit.py coverage`: with 95 % a count of less than 24 of 30 has probability 0.0006."""
    held = 0
    for seed in range(30):
        sd = cct.fit.Jitter(["normal"]).fit(np.random.default_rng(seed).normal(20_000, 1_000, 2_000)).sd_us_
        held += sd.low <= 1_000 <= sd.high
    assert held >= 24


@pytest.mark.parametrize(("sd_us", "kind"), [(0.3, "gamma"), (0.003, "empirical")])
def test_jitter_of_picoseconds_is_drawn_by_its_quantiles(sd_us, kind):
    """As of a recording in virtual time, cut short: its delays differ by the clock's rounding alone."""
    found = {"sd_us": Estimate(sd_us), "mean_us": Estimate(2.0), "quantiles_us": [1.99, 2.0, 2.01]}
    assert draws.simulated(found | {"distribution": "gamma", "process": "packet"}).kind == kind


@pytest.mark.parametrize("n", [3, 1000, 300_000, 900_001])  # the last two take several transforms
def test_autocovariances_are_sums_of_products(n):
    series = np.cumsum(np.random.default_rng(n).normal(size=n)) + 5e4
    off, lags = series - series.mean(), min(n - 1, 50)
    expected = [off[: n - lag] @ off[lag:] / n for lag in range(lags + 1)]
    np.testing.assert_allclose(autocovariances(series, lags), expected, rtol=1e-9, atol=1e-9 * expected[0])
