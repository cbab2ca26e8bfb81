"""The Linux controllers keep the rules of their sources and papers where the golden vectors do not reach."""

import random

import numpy as np
import pytest
from build_stack import Stack

import cctrace as cct
from cctrace import schema
from cctrace.cc import controller, filters, linux
from cctrace.cc.base import declared_fields
from cctrace.cc.bbr1_model import BW_UNIT, DRAIN, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.bbr2019 import BBR2019
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.bbrx import BBRx
from cctrace.cc.cubic import Cubic
from cctrace.cc.cubic6 import Cubic6
from cctrace.cc.oracles import BBR2016Cbe, BBR2016Cmrt, BBR2019Cbe, BBR2019Cmrt
from cctrace.replaying import vectors
from cctrace.replaying.player import Player
from tests.places import GOLDEN

RELEASES = (BBR2016, BBR2019, BBR2022)
CUBICS = (Cubic, Cubic6)


def replayed(vector, cls, record, **params):
    player = Player(vector.view, cls, mode="interpreted", record=record, **params)
    player.run()
    return player.recorded


def scalar_fields(cls):
    return [name for name, value in declared_fields(cls).items() if isinstance(value, int) and name != "draws"]


# -- BBR: rules that the vectors do not reach --------------------------------------------------------------------------
def started(cls, **params):
    """A BBR connection in PROBE_BW: 100 segments every 40 ms."""
    stack = Stack(cls, **params)
    stack.call("init", srtt_us8=8 * 40_000)
    for _ in range(8):
        stack.round(100, 40_000)
    assert stack.cc.mode == PROBE_BW
    return stack


def policed(stack, rounds, losses=30, segments=100, rtt_us=40_000, **columns):
    for _ in range(rounds):
        stack.round(segments, rtt_us, losses, **columns)


@pytest.mark.parametrize("cls", RELEASES)
def test_two_equal_lossy_intervals_reveal_a_policer_for_48_rounds(cls):
    stack = started(cls)
    policed(stack, 4 + 3)  # one interval (its first round holds the loss that starts it), not yet a second one
    assert stack.cc.lt_use_bw == 0
    policed(stack, 1)
    assert stack.cc.lt_use_bw == 1
    assert stack.cc.bw() == stack.cc.lt_bw == 100 * BW_UNIT // 40_000
    policed(stack, 47, rtt_us=20_000)  # a faster path does not count now
    assert stack.cc.bw() == 100 * BW_UNIT // 40_000
    assert stack.cc.pacing_gain == 256
    policed(stack, 1, rtt_us=20_000)
    assert (stack.cc.lt_use_bw, stack.cc.bw()) == (0, 100 * BW_UNIT // 20_000)


@pytest.mark.parametrize("cls", RELEASES)
@pytest.mark.parametrize(
    "spoiled",
    [
        {"losses": 19},  # 19 % of the delivered: below 50/256
        {"rs_is_app_limited": 1},
    ],
    ids=["too few losses", "application-limited"],
)
def test_losses_that_no_policer_explains_are_not_taken_for_one(cls, spoiled):
    stack = started(cls)
    policed(stack, 20, **spoiled)
    assert stack.cc.lt_use_bw == 0
    assert stack.cc.lt_bw == 0


@pytest.mark.parametrize("cls", RELEASES)
def test_an_interval_without_a_closing_loss_is_dropped_after_16_rounds(cls):
    stack = started(cls)
    policed(stack, 1)
    policed(stack, 15, losses=0)
    assert stack.cc.lt_is_sampling == 1
    policed(stack, 1, losses=0)
    assert stack.cc.lt_is_sampling == 0


@pytest.mark.parametrize("cls", RELEASES)
def test_policed_rates_may_differ_by_an_eighth_or_by_4_kbit_per_s(cls):
    def used(first_us, second_us, segments):
        stack = started(cls)
        policed(stack, 4, rtt_us=first_us, segments=segments, losses=segments)
        policed(stack, 4, rtt_us=second_us, segments=segments, losses=segments)
        return stack.cc.lt_use_bw

    assert used(40_000, 36_000, 100) == 1  # 1/9 faster
    assert used(40_000, 35_000, 100) == 0  # 1/7 faster
    # 0.5 and 0.75 segments/s of 1500 bytes are far from 1/8, but 3 kbit/s apart.
    assert used(2_000_000, 1_333_333, 1) == 1
    assert used(2_000_000, 1_000_000, 1) == 0


@pytest.mark.parametrize("cls", RELEASES)
def test_an_interval_shorter_than_the_clock_waits(cls):
    stack = started(cls)
    stack.advance(40_000 - stack.ack.now_us % 40_000)
    policed(stack, 5, rtt_us=100)  # all of it within one jiffy and one millisecond
    assert stack.cc.lt_bw == 0
    assert stack.cc.lt_is_sampling == 1


@pytest.mark.parametrize(("cls", "minutes"), [(BBR2016, 40), (BBR2019, 72)])
def test_an_interval_too_long_for_its_clock_starts_over(cls, minutes):
    stack = started(cls)
    policed(stack, 3)
    stack.advance(minutes * 60_000_000)
    policed(stack, 1)
    assert (stack.cc.lt_is_sampling, stack.cc.lt_bw) == (0, 0)


@pytest.mark.parametrize("cls", RELEASES)
def test_a_timeout_counts_as_a_lossy_round_and_forgets_the_plateau(cls):
    stack = started(cls)
    assert stack.cc.full_bw > 0
    stack.call("set_state", arg=linux.CA_LOSS)
    assert (stack.cc.full_bw, stack.cc.prev_ca_state, stack.cc.lt_is_sampling) == (0, linux.CA_LOSS, 1)
    before = dict(vars(stack.cc))
    stack.call("set_state", arg=linux.CA_DISORDER)
    assert vars(stack.cc) == before


def test_a_phase_of_40_minutes_is_measured_by_jiffies_where_32_bits_of_us_wrap():
    stack = started(BBR2016)
    stack.cc.pacing_gain, phase = 256, stack.cc.cycle_idx
    stack.advance(40 * 60_000_000)
    stack.ack.delivered_mstamp_us = stack.ack.now_us
    elapsed = stack.ack.now_us - stack.cc.cycle_mstamp
    assert elapsed > 2**31
    assert stack.cc.phase_length_us(stack.ack) == pytest.approx(elapsed, abs=1000)  # a jiffy
    stack.round(100, 40_000)
    assert stack.cc.cycle_idx == (phase + 1) % 8


@pytest.mark.parametrize("cls", RELEASES)
def test_cwnd_starts_from_ten_segments_while_no_rtt_is_known(cls):
    stack = Stack(cls)
    stack.call("init")
    assert stack.cc.min_rtt_us == schema.U32_MAX
    assert stack.cc.bdp(BW_UNIT, 256) == linux.TCP_INIT_CWND
    # 739/256 * 10 segments over a nominal millisecond, headers or margin included.
    nominal = 10 * 1000 * 739 / 256
    per_segment = {BBR2016: 1500}.get(cls, 1448 * 0.99)
    assert stack.cc.pacing_rate == pytest.approx(nominal * per_segment, rel=1e-6)


def test_later_releases_restart_the_initial_rate_with_the_first_rtt():
    stack = Stack(BBR2019)
    stack.call("init")
    stack.round(10, 40_000)
    assert stack.cc.has_seen_rtt == 1
    assert stack.cc.pacing_rate < 10_000_000  # the nominal millisecond would have given 41 MB/s


@pytest.mark.parametrize("cls", RELEASES)
def test_bursts_are_a_millisecond_one_segment_below_1200_kbit_per_s_and_64_kB_at_most(cls):
    stack = started(cls)

    def burst(rate):
        stack.cc.pacing_rate = rate
        return stack.cc.tso_segs(stack.ack)

    assert burst(149_999) == 1
    assert burst(150_000) == 2
    assert burst(10 * 1448 << 10) == 10
    assert burst(-1) == (65536 - 1 - 320) // 1448  # ~0UL, unlimited
    assert stack.cc.tso_segs(type(stack.ack)(**vars(stack.ack) | {"mss": 100})) == 127


@pytest.mark.parametrize("hz", [250, 1000])
@pytest.mark.parametrize(("cls", "dips"), [(BBR2016, False), (BBR2019, False), (BBR2022, True)])
def test_only_the_2022_release_probes_the_rtt_of_a_path_where_it_is_constant(cls, dips, hz):
    stack = started(cls, hz=hz)
    for _ in range(round(10.1 / 0.04)):
        stack.round(100, 40_000)
    assert (stack.cc.mode == PROBE_RTT) == dips
    if dips:
        assert stack.cc.snd_cwnd == 4
        assert stack.cc.app_limited == stack.ack.delivered + 100
        stack.round(4, 40_000)
        assert stack.cc.probe_rtt_done_stamp == stack.ack.jiffies + hz // 5
        for _ in range(6):
            stack.round(4, 40_000)
        assert stack.cc.mode == PROBE_BW
        assert stack.cc.snd_cwnd > 100


@pytest.mark.parametrize("cls", RELEASES)
def test_probe_rtt_returns_to_startup_when_the_pipe_was_never_full(cls):
    stack = Stack(cls)
    stack.call("init")
    stack.round(2, 40_000, rs_is_app_limited=1)
    for _ in range(16):
        stack.round(2, 700_000, rs_is_app_limited=1)
    assert stack.cc.mode == STARTUP
    assert stack.cc.min_rtt_us == 700_000  # the 40 ms expired


@pytest.mark.parametrize("cls", RELEASES)
def test_a_restart_from_idle_paces_at_the_estimate_and_is_no_reason_to_probe_the_rtt(cls):
    stack = started(cls)
    stack.cc.app_limited = 1
    stack.advance(11_000_000)
    stack.call("cwnd_event", arg=linux.EVENT_TX_START)
    assert stack.cc.pacing_rate == stack.cc.rate_bytes_per_sec(stack.ack, stack.cc.bw(), 256)
    stack.round(10, 41_000)
    assert stack.cc.mode == PROBE_BW
    assert stack.cc.min_rtt_us == 41_000


def test_a_restart_from_idle_can_end_probe_rtt_since_2019():
    stack = started(BBR2022)
    stack.cc.mode, stack.cc.probe_rtt_done_stamp, stack.cc.app_limited = PROBE_RTT, stack.ack.jiffies + 200, 1
    stack.cc.snd_cwnd, stack.cc.prior_cwnd = 4, 300
    stack.call("cwnd_event", arg=linux.EVENT_TX_START)
    assert stack.cc.mode == PROBE_RTT
    stack.advance(300_000)
    stack.call("cwnd_event", arg=linux.EVENT_TX_START)
    assert (stack.cc.mode, stack.cc.snd_cwnd) == (PROBE_BW, 300)


def test_a_delayed_ack_does_not_replace_an_expired_minimum_since_2019():
    for cls, taken in ((BBR2016, True), (BBR2019, False), (BBR2022, False)):
        stack = started(cls)
        stack.advance(11_000_000)
        stack.round(10, 80_000, rs_is_ack_delayed=1)
        assert (stack.cc.min_rtt_us == 80_000) == taken
        stack.round(10, 79_999, rs_rtt_us=-1)
        assert stack.cc.min_rtt_us in (40_000, 80_000)


@pytest.mark.parametrize("cls", RELEASES)
def test_recovery_first_sends_what_was_delivered_and_returns_to_cwnd_at_its_end(cls):
    stack = started(cls)
    cwnd = stack.cc.snd_cwnd
    stack.call("ssthresh")
    assert stack.cc.prior_cwnd == cwnd
    stack.round(10, 1000, 5, ca_state=linux.CA_RECOVERY, packets_out=50, rs_prior_delivered=0)
    assert (stack.cc.packet_conservation, stack.cc.snd_cwnd) == (1, 60)
    stack.round(60, 40_000, ca_state=linux.CA_OPEN)
    assert stack.cc.packet_conservation == 0
    assert stack.cc.snd_cwnd >= min(cwnd, stack.cc.target_cwnd(stack.ack, stack.cc.bw()))


def test_an_undo_restarts_the_plateau_search_but_the_pipe_stays_full_since_2019():
    stack = started(BBR2019)
    policed(stack, 1)
    assert stack.call("undo_cwnd") == stack.cc.snd_cwnd
    assert (stack.cc.full_bw, stack.cc.full_bw_cnt, stack.cc.full_bw_reached) == (0, 0, 1)
    assert stack.cc.lt_is_sampling == 0


def test_aggregated_acks_add_what_came_beyond_the_estimate_capped_at_100_ms_and_16_bits():
    stack = started(BBR2019)
    quiet = stack.cc.ack_aggregation_cwnd()
    stack.round(150, 40_000, rs_delivered=100)  # 50 more than 100 segments per 40 ms
    assert stack.cc.ack_aggregation_cwnd() == pytest.approx(quiet + 50, abs=1)
    stack.cc.extra_acked[0] = 10_000
    assert stack.cc.ack_aggregation_cwnd() == stack.cc.bw() * 100_000 // BW_UNIT
    stack.cc.snd_cwnd = 70_000
    stack.round(70_000, 40_000, rs_delivered=1)
    stack.cc.snd_cwnd = 70_000
    stack.round(70_000, 1, rs_delivered=1, rs_interval_us=40_000)
    assert max(stack.cc.extra_acked) < 65_536


def test_what_pacing_holds_back_is_not_in_flight_since_2019():
    stack = started(BBR2022)
    bw_per_ms = stack.cc.bw() * 1000 / BW_UNIT
    stack.ack.wstamp_ns = stack.ack.clock_ns + 10_000_000
    stack.cc.pacing_gain = 256
    assert stack.cc.in_flight_at_departure(stack.ack, 100) == 100 - int(10 * bw_per_ms)
    stack.cc.pacing_gain = 320
    assert stack.cc.in_flight_at_departure(stack.ack, 100) == 100 - int(10 * bw_per_ms) + stack.cc.tso_segs(stack.ack)
    assert stack.cc.in_flight_at_departure(stack.ack, 3) == 0


def test_the_first_round_of_2022_lasts_a_round_trip():
    for cls, is_round in ((BBR2019, 1), (BBR2022, 0)):
        stack = Stack(cls)
        stack.call("init", delivered=1)
        stack.round(1, 40_000, rs_prior_delivered=0)
        assert stack.cc.round_start == is_round


def test_startup_drains_before_it_cruises():
    stack = Stack(BBR2022)
    stack.call("init", srtt_us8=8 * 40_000)
    modes = []
    for _ in range(12):
        stack.round(100, 40_000, packets_out=400)
        modes.append(stack.cc.mode)
    assert modes[:3] == [STARTUP] * 3
    assert modes[-1] == DRAIN  # 400 in flight is more than the 100 of the BDP
    assert stack.cc.pacing_gain == 88
    assert 100 < stack.cc.snd_ssthresh <= 100 + 3 * 7 + 2  # the BDP and three bursts of 1 ms at STARTUP's rate
    stack.round(100, 40_000, packets_out=90)
    assert stack.cc.mode == PROBE_BW


# -- BBRx --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", sorted((GOLDEN / "bbr2016").glob("*.parquet")), ids=lambda path: path.stem)
def test_bbrx_without_the_law_is_bbr2016_decision_by_decision(path):
    vector = vectors.load(path)
    fields = [*scalar_fields(BBR2016), "bw_v[0]", "o_ret"]
    parent = replayed(vector, BBR2016, fields)
    child = replayed(vector, BBRx, fields, beta=0.0, gamma=1.0)
    for name in fields:
        np.testing.assert_array_equal(child[name], parent[name], err_msg=name)


@pytest.mark.parametrize(
    ("latest_ms", "k", "beta", "gamma", "share"),
    [
        (40, 4, 0.45, 1.0, 1.0),  # R = Rmin: on target
        (60, 4, 0.45, 1.0, 1 - 0.45 * 0.5),
        (60, 4, 0.45, 0.98, 0.98 - 0.45 * 0.5),
        (60, 6, 0.45, 1.0, 1.0),  # on the target of 6/4
        (40, 6, 0.45, 1.0, 1 + 0.45 * 0.5),  # below it: r exceeds C
        (400, 4, 0.75, 1.0, 88 / 256),  # the law would be negative: floor
    ],
)
def test_bbrx_paces_at_equation_5(latest_ms, k, beta, gamma, share):
    stack = started(BBRx, beta=beta, k=k, gamma=gamma)
    stack.cc.latest_rtt_us = latest_ms * 1000
    stack.cc.share = stack.cc.law()
    stack.cc.set_pacing_rate(stack.ack, stack.cc.bw(), 256)
    whole = stack.cc.rate_bytes_per_sec(stack.ack, stack.cc.bw(), 256)
    assert stack.cc.pacing_rate == pytest.approx(share * whole, abs=2 * whole / stack.cc.bw())  # bw is whole


def test_bbrx_evaluates_its_law_once_an_epoch_of_min_rtt():
    path = cct.Path(rate="5Mbit", rtt="25ms", buffer="125kB")
    run = cct.simulate(
        path, "bbrx:beta=0.5,k=6", "5s", sample="1ms", watch=("share", "epoch_us", "min_rtt_us")
    ).timeline
    renewed = np.flatnonzero(np.diff(run["epoch_us"]) > 0)
    assert len(renewed) > 50
    assert np.all(np.diff(run["epoch_us"])[renewed] >= run["min_rtt_us"].to_numpy()[renewed + 1])
    assert np.ptp(run["share"]) > 0.1
    changed = np.flatnonzero(np.diff(run["share"]) != 0)
    assert set(changed) <= set(renewed)


def test_bbrx_paces_at_gamma_c_until_it_knows_an_rtt():
    stack = Stack(BBRx, gamma=0.98)
    stack.call("init")
    assert stack.cc.law() == 0.98


@pytest.mark.parametrize(
    ("mbps", "min_rtt_ms", "beta"),
    [
        (2.9, 49, 0.75),
        (2000, 49, 0.75),
        (2.9, 50, 0.45),
        (9.9, 99, 0.45),
        (10.1, 50, 0.75),
        (1001, 50, 0.75),
        (2.9, 100, 0.25),
        (3.1, 1000, 0.45),
        (10.1, 100, 0.75),
    ],
)
def test_bbrx_reads_its_bin_of_table_i_on_entering_startup_and_probe_bw(mbps, min_rtt_ms, beta):
    stack = Stack(BBRx)
    stack.call("init")
    assert stack.cc.bin_beta == 0.75  # nothing known: [0,50) ms
    for enter in (stack.cc.enter_probe_bw, stack.cc.enter_startup):
        stack.cc.bw_v[0], stack.cc.min_rtt_us = round(mbps / 8 / 1448 * BW_UNIT), min_rtt_ms * 1000
        enter(stack.ack)
        assert stack.cc.bin_beta == beta
        stack.cc.bin_beta = -1.0


# -- Kumar's oracles ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cls", "told"), [(BBR2016, BBR2016Cmrt), (BBR2019, BBR2019Cmrt)])
def test_an_oracle_told_what_the_parent_measures_decides_like_it(cls, told):
    path = GOLDEN / cls.__name__.lower() / "applimidle_s1.parquet"
    vector = vectors.load(path)
    assert set(vector.expected["s_min_rtt_us"]) == {40_000}
    fields = [*scalar_fields(cls), "o_ret"]
    parent, oracle = replayed(vector, cls, fields), replayed(vector, told, fields, true_rtt_us=40_000)
    for name in fields:
        np.testing.assert_array_equal(oracle[name], parent[name], err_msg=name)


@pytest.mark.parametrize("cls", [BBR2016Cmrt, BBR2019Cmrt])
def test_a_given_rtt_keeps_cwnd_when_a_small_sample_would_collapse_it(cls):
    stack = started(cls, true_rtt_us=40_000)
    stack.round(100, 40_000, rs_rtt_us=2_000)
    assert stack.cc.min_rtt_us == 40_000
    assert stack.cc.bdp(stack.cc.bw(), 256) == 100
    parent = started(cls.__mro__[2])
    parent.round(100, 40_000, rs_rtt_us=2_000)
    assert parent.cc.bdp(parent.cc.bw(), 256) == 5


@pytest.mark.parametrize("cls", [BBR2016Cbe, BBR2019Cbe])
def test_a_given_bandwidth_holds_the_rate_while_deliveries_collapse(cls):
    truth = 1448 * 100 * 25  # 100 segments per 40 ms
    stack = started(cls, true_bw_Bps=truth)
    for _ in range(30):
        stack.round(4, 40_000)
    gains = {stack.cc.rate_bytes_per_sec(stack.ack, stack.cc.bw(), gain) for gain in (320, 192, 256)}
    assert stack.cc.bw() == pytest.approx(100 * BW_UNIT / 40_000, rel=1e-6)
    assert stack.cc.pacing_rate in gains
    policed(stack, 12)
    assert stack.cc.bw() == stack.cc.max_bw()


# -- shared pieces -----------------------------------------------------------------------------------------------------
def test_the_windowed_maximum_is_a_recent_sample_and_no_larger_than_the_true_maximum():
    rng = random.Random(2)
    for window in (4, 10, 40):
        values, times = [0] * 3, [0] * 3
        history = [(0, 0)]
        now = 2**32 - 500  # wraps on the way
        filters.reset_filter(values, times, now, 0)
        history = [(now, 0)]
        for _ in range(2000):
            now += rng.choice((0, 1, 1, 2, 25))
            sample = rng.randrange(1000)
            history.append((now, sample))
            best = filters.running_max(values, times, window, now % 2**32, sample)
            recent = [s for t, s in history[-200:] if now - t <= window]
            assert best in recent
            assert sample <= best <= max(recent)
            assert values == sorted(values, reverse=True)


def test_the_windowed_maximum_is_exact_while_samples_rise_or_one_stays_in_the_window():
    values, times = [0] * 3, [0] * 3
    assert [filters.running_max(values, times, 10, t, t) for t in range(30)] == list(range(30))
    assert [filters.running_max(values, times, 10, t, 5) for t in range(30, 39)] == [29] * 9
    assert filters.running_max(values, times, 10, 40, 4) == 5


@pytest.mark.parametrize(
    ("hz", "ms", "ticks"), [(1000, 200, 200), (250, 200, 50), (250, 1, 1), (300, 10, 3), (100, 11, 2)]
)
def test_milliseconds_are_rounded_up_to_ticks(hz, ms, ticks):
    assert linux.msecs_to_jiffies(ms, hz) == ticks


def test_a_moment_in_the_past_lies_in_the_tick_of_its_time():
    assert linux.jiffies_at(1_000_010, 40_999, 36_001, 250) == 1_000_009
    assert linux.jiffies_at(5, 40_000, 30_000, 1000) == 2**32 - 5
    assert linux.jiffies_to_usecs(2**32 // 1000 + 1, 1000) == 704  # wraps


def test_every_controller_here_is_known_by_name():
    for name in ("bbr2016", "bbr2019", "bbr2022", "bbrx", "reno", "cubic", "cubic6", "cubic_paced"):
        assert controller(name)[0].view == "linux"
    for parent in ("bbr2016", "bbr2019"):
        assert controller(f"{parent}_cbe:true_bw_Bps=1250000")[1] == {"true_bw_Bps": 1_250_000}
        assert controller(f"{parent}_cmrt:true_rtt_us=5000")[1] == {"true_rtt_us": 5000}
