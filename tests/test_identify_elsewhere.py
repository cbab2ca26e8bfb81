"""Generations of BBR from their gain cycles, what a receiver's record may not be told by, and the check of a name."""

import copy
import types

import numpy as np
import pytest

import cctrace as cct
from benchmarks.identify import CANDIDATES, FAMILIES, calibration_error, group_size, polled, reliability, simulated
from cctrace.flows.events import Events
from cctrace.flows.state import EVENT
from cctrace.identification import constants, dips, odds
from cctrace.identification import identify as whose
from cctrace.identification.flights import NEUTRAL, growth_log_odds_against, longest_still
from cctrace.identification.flights import _paced_log_odds_against as log_odds_against
from cctrace.identification.halves import HalfRounds
from cctrace.identification.phases import Rates, chain, cycles_of
from cctrace.identification.sends import SenderRecord, _leave_slow_start, _set_window, record_of, replay_of
from cctrace.replaying.engine import midflow
from cctrace.schema import LINUX_EVENTS

RTT_US = 40_000.0


class Sent(HalfRounds):
    """Blocks of half a round trip whose rates are given, relative to 1000 segments/s."""

    def __init__(self, gains):
        block_us = RTT_US / 2
        self.edges = np.arange(len(gains) + 1)
        self.time_us = self.edges * block_us
        self.sent = self.acked = np.array(gains) * 1000 * block_us / 1e6
        self.outside_recovery, self.flight = np.ones(len(self.edges)), np.full(len(self.edges), 40.0)
        self.busy = np.ones(len(gains), bool)
        self.acks = self.edges

    def __len__(self):
        return len(self.sent)

    def block_means(self, values):
        return values[1:].astype(float)


V1 = [1.25, 1.25, 0.75, 0.75, *[1.0] * 12]
V2 = [1.25, 1.25, 0.75, 0.75, *[1.0] * 84]
V2_PLUS = [1.0, 1.0, 1.1, 1.1, 1.0, 1.0, 0.9, 0.9, *[1.0] * 19]
V3 = [*[1.25] * 6, *[0.91] * 6, *[1.0] * 78]


@pytest.mark.parametrize(
    ("cycle", "name"),
    [(V1, "bbr2022"), (V2, "bbr2"), (V2_PLUS, "bbr2plus"), (V3, "bbr3")],
    ids=["v1", "v2", "v2+", "v3"],
)
def test_a_gain_cycle_is_its_generations_in_whatever_phase_it_begins(cycle, name):
    for phase in (0, 5):
        gains = np.tile(np.roll(cycle, phase), 600 // len(cycle) + 1)[:600]
        rates = Rates(Sent(gains), RTT_US)
        one = dict.fromkeys(("bbr2022", "bbr2", "bbr2plus", "bbr3"))
        usual = np.array([np.full(600, np.log(1000.0)), rates.level()])
        rates.acked[:] = np.log(1000.0)  # nor do ACKs clock the sends
        free = np.zeros(600, bool)
        fits = {c: rates.likelihoods(chain(c, RTT_US, rates.flight), usual, free, 0) for c in one}
        for by in (0, 1):  # against the bandwidth, against the usual rate
            assert max(fits, key=lambda c: fits[c][by]) == name


def test_stages_of_a_chain_follow_each_other_for_as_long_as_its_phases_last():
    one = chain("bbr2022", RTT_US, 40)
    assert one.step.sum(axis=1) == pytest.approx(1)
    assert np.all(one.step > -1e-12)
    rest = np.linalg.matrix_power(one.step, 100_000)[0]
    share = {gain: rest[one.gains == gain].sum() for gain in (1.25, 0.75, 1.0)}
    whole = 1.3 + 0.8 + 6 * 1.05
    assert share == pytest.approx({1.25: 1.3 / whole, 0.75: 0.8 / whole, 1.0: 6.3 / whole})


def test_a_few_blocks_tell_of_no_phase():
    few = constants.MIN_FOR_CYCLE
    record = types.SimpleNamespace(halves=Sent([1.0] * (few - 1)), events=None)
    cycles = cycles_of(record, [types.SimpleNamespace(name="bbr2022", bw=np.full(few, 1000.0))])
    assert cycles.by_level == cycles.by_bandwidth == {}


@pytest.mark.parametrize(("name", "number"), [("bbr2022", 12), ("bbr2", 12), ("bbr2plus", 9), ("bbr3", 3)])
def test_a_receivers_capture_tells_the_generations_of_bbr_apart(name, number, tmp_path):
    found = cct.identify(simulated(name, number, 41, "8s", tmp_path, side="receiver"))
    assert name in found.group
    others = {FAMILIES[one] for one in found.group} - {FAMILIES[name]}
    assert len(others) <= 1
    assert not {"cubic", "reno"} & others


def test_a_receivers_capture_has_as_many_reductions_as_the_sender_made(tmp_path):
    for name, number in (("cubic6", 3), ("reno", 3)):
        count = [
            int(
                np.sum(
                    simulated(name, number, 41, "5s", tmp_path, side).events.rows["event"] == LINUX_EVENTS["ssthresh"]
                )
            )
            for side in ("sender", "receiver")
        ]
        assert count[0] == count[1] > 0


@pytest.mark.parametrize(("low", "high", "count"), [(14, 16, 1), (9, 16, 1), (4, 16, 0)])
def test_bunches_of_acks_do_not_hide_probe_rtt(low, high, count):
    """BBRv3 at a pacing limit, seed 325232: 9 to 16 segments in flight in PROBE_RTT, an ACK each millisecond."""
    flight = np.full(4000, 30)
    flight[2000:2210] = np.resize([low, high, high], 210)
    assert len(midflow._dips(acks(flight, srtt_us8=8 * 6_500))) == count


def acks(flight, **columns):
    """Events of ACKs a millisecond apart: the segments in flight before each, and other columns."""
    rows = np.zeros(len(flight), EVENT)
    rows["event"], rows["time_ns"], rows["rs_prior_in_flight"] = (
        LINUX_EVENTS["on_ack"],
        1e6 * np.arange(len(rows)),
        flight,
    )
    for name, values in columns.items():
        rows[name] = values
    return Events(rows, {"complete": True, "start_ns": 0})


def behind_a_send_buffer(seconds, dips_at):
    """Events and half rounds of flights that fall by more than a half before each write, an ACK each ms, and of
    PROBE_RTT of a BBRv3 to half a BDP.
    """
    now_us = 1000 * np.arange(1000 * seconds)
    flight = np.resize([*[47] * 14, *[19] * 30], len(now_us))
    for at in dips_at:
        flight[1000 * at : 1000 * at + 230] = 19
    count = len(flight)
    events = acks(flight, srtt_us8=8 * 44_000, tcp_min_rtt_us=42_000)
    halves = Sent([1.0] * (count // 22))
    halves.acks, halves.time_us, halves.flight = np.arange(count), now_us.astype(float), flight.astype(float)
    halves.edges, halves.rtt_us = 22 * np.arange(len(halves) + 1)[: count // 22], np.full(count, 44_000.0)
    halves.sent = halves.sent[: len(halves.edges) - 1]
    halves.sent_so_far = 0.9 * np.arange(count)  # as 38 segments each round trip
    halves.ran_out = np.zeros(len(halves), bool)  # more always waits
    return events, halves


def test_a_send_buffer_does_not_hide_probe_rtt():
    """BBRv3, seed 334438: its flights fall to half a BDP in every round trip, and in PROBE_RTT stay there."""
    events, halves = behind_a_send_buffer(16, (5, 10))
    never, without = behind_a_send_buffer(16, ())
    bbr3, reno = (cct.cc.controller(name)[0] for name in ("bbr3", "reno"))
    assert len(midflow._dips(events)) == 2
    assert dips.against(events, halves, bbr3) == -constants.MAX_AGAINST
    assert dips.against(never, without, bbr3) > 0 == dips.against(events, halves, reno)
    queued_us = np.full(len(events), 44_000.0)
    queued_us[0] = 40_000
    assert dips.overdue(halves, queued_us, bbr3) == 0
    assert dips.overdue(without, queued_us, bbr3) > 0


def test_what_an_application_did_not_write_is_no_fault_of_a_pacing_rate():
    halves = Sent([0.5] * 400)
    halves.steady, halves.elsewhere, halves.mss, halves.burst = False, True, 1000, 1.0
    cwnd, pacing_Bps = np.full(401, 50.0), np.full(401, 1e6)
    halves.ran_out = np.arange(400) < 200
    over = halves.excess(cwnd, pacing_Bps, 0)
    assert np.all(over[:200] == 0)
    assert np.all(over[200:] < -0.1)


def test_a_flight_that_runs_out_is_not_still():
    """BBRv3 behind a send buffer, seed 334406: no probe is seen where no data are left for it."""
    halves = Sent([1.0] * 800)
    halves.steady, halves.growing_periods, halves.jitter = False, (0, 0.0), 0.0
    halves.rtt_us = np.full(801, RTT_US)
    events = acks(halves.flight, srtt_us8=8 * RTT_US, tcp_min_rtt_us=RTT_US, rs_rtt_us=RTT_US)
    record = types.SimpleNamespace(halves=halves, events=events)
    replay = types.SimpleNamespace(cls=cct.cc.controller("bbr3")[0], cwnd=np.full(801, 90.0))
    for ran_out in (False, True):
        halves.ran_out = np.full(800, ran_out)
        assert (log_odds_against(record, replay) == 0) is ran_out


def test_drain_is_no_probe_of_the_rtt(tmp_path):
    events = simulated("bbr2", 2, 41, "5s", tmp_path, side="receiver").events
    (first, *_) = midflow.probe_rtts(events, {})
    assert events.now_us[first] - events.now_us[0] < 1_000_000
    assert not len(midflow.probe_rtts(events, {"probe_rtt_win_ms": 5_000}))


def test_drain_ends_though_jitter_hides_that_the_queue_was_empty(tmp_path):
    path = cct.Path(rate="40Mbit", rtt="24ms", buffer="800kB", jitter="normal:sd=4ms")
    cct.simulate(path, ["bbr2022"], "3s", 4, packets=True).to_pcap(tmp_path / "receiver", side="receiver")
    record = record_of(cct.read(tmp_path / "receiver").flow(0)).part()
    for name in ("bbr2022", "bbr2", "bbr3"):
        assert np.mean(np.isfinite(replay_of(record, name).bw)) > 0.5  # of the ACKs, from the first PROBE_BW on


def test_a_name_from_counters_is_checked_on_the_first_events_and_never_believed_against_them(tmp_path, monkeypatch):
    flow = simulated("reno", 0, 7, "5s", tmp_path)
    whole = cct.identify(flow)
    monkeypatch.setattr(constants, "CHECKED_ROWS", 2000)
    looked = []
    part = SenderRecord.part
    monkeypatch.setattr(SenderRecord, "part", lambda *args: looked.append(args[1:]) or part(*args))
    assert "reno" in cct.identify(flow, check="reno").group
    assert looked == [(500,), (2000,)][: len(looked)]
    looked.clear()
    assert "reno" in cct.identify(flow, check="bbr2022").group
    assert looked == [(500,), (2000,)]
    assert cct.identify(flow, check="westwood").candidates == whole.candidates


@pytest.mark.parametrize("name", ["cubic6", "bbr2022"])
def test_a_look_a_second_is_enough(name, tmp_path):
    assert name in cct.identify(polled(name, 0, 21, "13s", tmp_path, every_ms=1000)).group


def test_how_far_probabilities_hold_is_counted_by_tenths():
    results = [("reno", ("reno",), 0.95, 0.1)] * 9 + [
        ("reno", ("cubic",), 0.95, 0.1),
        ("reno", ("unknown",), 0.55, 0.1),
    ]
    assert reliability(results) == [(1, pytest.approx(0.55), 0.0), (10, pytest.approx(0.95), pytest.approx(0.9))]
    assert calibration_error(results) == pytest.approx((0.55 + 10 * 0.05) / 11)
    size, alone = group_size([*results, ("bbr2", ("bbr2", "bbr3"), 0.9, 0.1)])
    assert size == pytest.approx(12 / 11)
    assert alone == pytest.approx(10 / 11)
    assert set(FAMILIES) == set(CANDIDATES)


def test_the_window_before_a_reduction_is_not_one_before_the_last():
    """Marks in several round trips running: flights fall to the window of one reduction until the next one."""
    path = cct.Path(rate="40Mbit", rtt="50ms", buffer="6bdp", aqm="pie")
    sim = cct.simulate(path, [cct.Sender("cubic6", ecn=True, ack_every=2)], "10s", seed=2, packets=True)
    flow = sim.capture(0, side="receiver").flow(0)
    assert flow.ecn.delivered_ce > 0
    assert cct.identify(flow).name in ("cubic", "cubic6")


class Periods:
    """Periods between losses, of ten blocks each, with given flights."""

    sent_so_far = np.arange(2.0)

    def __init__(self, periods=3, jitter=0.0):
        self.flights = np.tile(np.linspace(50.0, 60.0, 10), periods)
        self.epochs = list(np.arange(10 * periods).reshape(periods, 10))
        self.jitter = jitter

    def rates(self, sent):
        return np.diff(sent) / 1e4  # segments/us


def against(halves, over):
    """What `growth_log_odds_against` says where flights are so far beyond a window, as a share of the larger one."""
    return growth_log_odds_against(halves, over, halves.flights * over / (1 + np.minimum(over, 0)))


def test_flights_that_outgrow_a_window_are_not_its_own():
    halves = Periods()
    rise = np.tile(np.linspace(0.0, 0.4, 10), 3)
    assert against(halves, rise) == constants.MAX_AGAINST
    assert against(halves, rise + 0.5) == constants.MAX_AGAINST  # a wrong factor is not growth
    halves.jitter = 0.4  # jitter makes flights so uneven
    assert against(halves, rise) == 0.0
    halves.jitter, halves.epochs = 0.16, [np.arange(10)]  # jitter may do this to one period: it counts by a third
    assert 0.0 < against(halves, rise) < constants.MAX_AGAINST / constants.MIN_OBSERVATIONS
    halves.jitter = 0.0  # but not this
    assert against(halves, rise) == constants.MAX_AGAINST
    halves.epochs = Periods().epochs
    assert against(halves, np.where(np.arange(30) < 20, 0.0, rise)) == constants.MAX_AGAINST  # nor in one of several
    window = np.tile(np.linspace(40.0, 50.0, 10), 3)
    assert against(halves, 1 - window / halves.flights) == 0.0  # ten segments beyond it all the time
    halves.epochs = []
    assert against(halves, rise) == 0.0


def test_a_growth_of_a_few_segments_is_sure_in_many_like_periods_and_not_in_scattered_ones():
    """H-TCP's and Hybla's windows grow by a tenth or two faster than Reno's, and by the same in each period."""
    halves = Periods(20, jitter=0.02)
    few = np.tile(np.linspace(0.0, 4.0, 10), 20) / halves.flights
    assert against(halves, few) > constants.PRIOR_LOG_ODDS
    assert against(halves, few / 4) == 0.0  # a segment is what an ACK moves
    scattered = few * np.repeat(np.tile([-0.5, 2.5], 10), 10)
    assert against(halves, scattered) < against(halves, few)
    slower = -few
    assert against(halves, slower) < against(halves, few)  # something else may hold flights back


def test_flights_that_grow_more_slowly_than_a_window_are_not_its_own_unless_they_stop():
    halves = Periods()
    slower = np.tile(np.linspace(0.0, -0.4, 10), 3)
    assert against(halves, slower) == constants.MAX_AGAINST  # as Veno's
    halves.flights = np.minimum(halves.flights, 53.0)  # something else may hold a sender below its window
    assert against(halves, slower) == 0.0


def test_what_jitter_does_to_the_growth_of_many_periods_is_small():
    few, many = Periods(3, jitter=0.1), Periods(30, jitter=0.1)
    said = against(few, np.tile(np.linspace(0.0, 0.2, 10), 3))
    assert against(many, np.tile(np.linspace(0.0, 0.2, 10), 30)) > 2 * said


def test_a_growth_that_no_candidate_has_is_nobodys_from_the_receiver(tmp_path):
    flow = simulated("reno", 3, 41, "8s", tmp_path, side="receiver")
    record = record_of(flow).part()
    reno = replay_of(record, "reno")
    own = whose.flights_of(record, reno)
    slower = whose.flights_of(record, reno._replace(cwnd=np.minimum(reno.cwnd, np.median(reno.cwnd))))
    assert own.log_odds_against == 0.0
    assert slower.log_odds_against > constants.WEIGHT


def test_a_window_that_no_flight_could_fill_is_not_thereby_right(tmp_path):
    """CDG with jitter (336856): a CUBIC's window outgrew all flights at first, and was wrong later."""
    record = record_of(simulated("reno", 3, 41, "8s", tmp_path, side="receiver")).part()
    reno = replay_of(record, "reno")
    own, rows = whose.flights_of(record, reno), np.arange(len(reno.cwnd))
    never = whose.flights_of(record, reno._replace(cwnd=np.full(len(rows), 1e6)))
    assert np.all(never.log_likelihoods <= NEUTRAL)
    assert own.log_likelihoods.sum() > never.log_likelihoods.sum()
    later = whose.flights_of(record, reno._replace(cwnd=np.where(rows < 0.6 * len(rows), 1e6, 4 * reno.cwnd)))
    assert later.scale > 10 * own.scale


def test_flights_too_short_to_show_a_probe_of_v1_are_not_still():
    wait_us, window = np.full(400, 20 * RTT_US), np.full(400, np.inf)
    assert longest_still(Sent([1.0] * 400), wait_us, window) > 5
    short = Sent([1.0] * 400)
    short.flight[:] = constants.V1_MIN_FLIGHT - 1
    assert longest_still(short, wait_us, window, constants.V1_MIN_FLIGHT) == 0.0
    assert longest_still(short, wait_us, window) > 5  # those of v2 show it
    assert longest_still(short, wait_us, short.flight[1:]) == 0.0  # a queue fills its window
    uneven = Sent([1.0] * 400)
    uneven.flight[::2] *= 0.9
    assert longest_still(uneven, wait_us, window) < 1
    assert longest_still(uneven, wait_us, window, jitter=0.1) > 5  # by jitter


def test_another_cycle_counts_as_little_as_the_cycles_where_flights_are_short(tmp_path, monkeypatch):
    record = record_of(simulated("bbr2", 12, 41, "8s", tmp_path, side="receiver")).part()
    fits = whose._fits(record)
    cycles = cycles_of(record, [fit.replay for fit in fits.values()])
    known = {}
    for length in (1.0, 0.1):
        monkeypatch.setattr(odds, "_length", lambda _, value=length: value)
        for other in (0.0, 6.0):
            monkeypatch.setattr(odds, "other_cycle", lambda *_, value=other: value)
            known[length, other] = odds.judge(record, fits, cycles).known_log_odds
    assert known[1.0, 0.0] - known[1.0, 6.0] == pytest.approx(6.0)
    assert known[0.1, 0.0] - known[0.1, 6.0] == pytest.approx(6.0 * 0.1 ** (4 / 3))


def test_what_an_application_wrote_may_be_too_little_to_fill_a_window():
    halves = HalfRounds.__new__(HalfRounds)
    # Twice 30 segments, one an ACK, acknowledged from the tenth on; no segment leaves while the last 20 are in flight.
    sent = [np.arange(1, 31), np.full(20, 30), np.arange(31, 61), np.full(20, 60)]
    halves.sent_so_far = np.concatenate(sent).astype(float)
    one = np.concatenate([np.minimum(np.arange(1, 31), 20), np.arange(20, 0, -1)])
    halves.flight = np.concatenate([one, one]).astype(float)
    halves.time_us = np.arange(100) * 1000.0
    halves.rtt_us, halves.idle = np.full(100, 20_000.0), np.zeros(100, bool)
    halves.ended = np.zeros(0, int)
    assert halves.unfilled(np.full(100, 35.0))[50:].all()
    assert not halves.unfilled(np.full(100, 20.0))[75:80].any()


def test_a_writes_last_short_segment_shows_that_nothing_else_waited():
    halves = HalfRounds.__new__(HalfRounds)
    # A segment for each of 30 ACKs, one for the 41st, and again one an ACK from the 51st on.
    sent = [np.arange(1, 31), np.full(10, 30), np.full(10, 31), np.arange(32, 82)]
    halves.sent_so_far = np.concatenate(sent).astype(float)
    halves.flight = np.concatenate([np.full(30, 60), np.arange(60, 50, -1), np.arange(51, 41, -1), np.full(50, 60)])
    halves.time_us, halves.rtt_us = np.arange(100) * 1000.0, np.full(100, 80_000.0)
    halves.idle, halves.not_cwnd_limited = np.zeros(100, bool), np.zeros(100, bool)
    halves.outside_recovery = np.ones(100, bool)
    short = copy.copy(halves)
    halves.ended, short.ended = np.zeros(0, int), np.array([40])  # the single segment is short
    assert halves.limited[:-1].all()  # cwnd may have fallen meanwhile
    assert np.array_equal(np.flatnonzero(~short.limited[:-1]), np.arange(29, 50))
    assert np.array_equal(np.flatnonzero(~halves.follows_send()), [*range(30, 40), *range(41, 50)])


@pytest.mark.parametrize(
    ("seen", "kept"), [(179.0, True), (180.0, True), (183.0, True), (200.0, False), (150.0, False)]
)
def test_a_replayed_window_that_the_flights_confirm_is_not_moved_by_a_segment(seen, kept):
    """CUBIC compares it with its last maximum, 180: a segment more gives up fast convergence for ten seconds."""
    count = 40
    halves = types.SimpleNamespace(
        acks=np.arange(count),
        edges=np.arange(0, count, 10),
        flight=np.full(count, seen),
        outside_recovery=np.ones(count, bool),
        not_cwnd_limited=np.zeros(count, bool),
        jitter=0.0,
    )
    window = {"snd_cwnd": 179}
    follower = types.SimpleNamespace(get=window.get, set=window.__setitem__)
    _set_window(follower, halves, count - 1)
    assert window["snd_cwnd"] == (179 if kept else seen)


@pytest.mark.parametrize(("ended", "kept"), [(60.0, False), (98.0, True)])
def test_a_slow_start_that_ended_earlier_than_replayed_gives_its_window_with_the_first_full_round_trip(ended, kept):
    """Once: a flight that stays below a window which grows is what tells Vegas from Reno."""
    count = 60
    halves = HalfRounds.__new__(HalfRounds)
    halves.acks, halves.edges = np.arange(count), np.arange(0, count, 10)
    halves.flight, halves.not_cwnd_limited = np.full(count, ended), np.zeros(count, bool)
    halves.limited = np.ones(count, bool)
    halves.unfilled = lambda window: np.zeros(len(window), bool)
    fields = {"snd_cwnd": 100, "snd_ssthresh": 90, "epoch_start": 7}
    follower = types.SimpleNamespace(get=fields.get, set=fields.__setitem__, cls=cct.cc.controller("cubic")[0])
    assert not _leave_slow_start(follower, halves, 0)
    assert _leave_slow_start(follower, halves, 2)  # from here on it is known
    left = {"snd_cwnd": 60, "snd_ssthresh": 60, "epoch_start": 0}
    assert fields == ({"snd_cwnd": 100, "snd_ssthresh": 90, "epoch_start": 7} if kept else left)


@pytest.mark.parametrize(("each", "rtt_us", "policed"), [(4, 41_000, True), (1, 41_000, False), (4, 80_000, False)])
def test_bursts_lost_before_the_capture_without_a_queue_are_a_policers(each, rtt_us, policed):
    blocks = 160
    halves = Sent([1.0] * blocks)
    halves.rtt_us = np.full(blocks + 1, float(rtt_us))
    halves.sent_so_far = np.cumsum(np.append(0, halves.sent))
    halves.reductions = np.arange(20, blocks, 20)
    lost = np.zeros(blocks + 1)
    lost[halves.reductions] = each  # of 20 segments
    captured = halves.sent_so_far - np.cumsum(lost)
    assert halves._is_policed(captured, np.full(blocks + 1, RTT_US)) is policed
