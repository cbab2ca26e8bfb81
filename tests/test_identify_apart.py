"""Who is nobody, seen from the receiver or through `ss`: strangers by what no candidate would do."""

import numpy as np
import pytest

import cctrace as cct
from benchmarks.identify import from_ss, simulated
from cctrace.cc import controller
from cctrace.identification.constants import MAX_AGAINST, STRONG_WEIGHT
from cctrace.identification.dips import overdue
from cctrace.identification.flights import flights_of, longest_still, paced_log_odds, waits_us
from cctrace.identification.halves import HalfRounds
from cctrace.identification.odds import UNKNOWN
from cctrace.identification.polled_odds import other_gains, unchanged
from cctrace.identification.sends import record_of, replay_of

RTT_US = 40_000.0
WIDE = np.full(400, np.inf)  # a window that no flight fills


class Flights(HalfRounds):
    """Blocks of half a round trip whose flights are given."""

    def __init__(self, flight, reductions=()):
        self.flight = np.append(flight[:1], flight).astype(float)
        self.edges = self.acks = np.arange(len(self.flight))
        self.time_us = self.edges * RTT_US / 2
        self.rtt_us = np.full(len(self.edges), RTT_US)
        self.outside_recovery, self.busy = np.ones(len(self.edges)), np.ones(len(flight), bool)
        self.not_cwnd_limited = np.zeros(len(self.edges), bool)
        self.reductions = np.array(reductions, int)
        self.jitter = 0.0
        self.ran_out = np.zeros(len(flight), bool)

    def __len__(self):
        return len(self.flight) - 1

    def block_means(self, values):
        return values[1:].astype(float)


def held_still(blocks, is_v1, rtt_us=RTT_US):
    return longest_still(blocks, waits_us(np.broadcast_to(rtt_us, len(blocks)), is_v1), WIDE[: len(blocks)])


def probing(rounds, high=1.25):
    return np.tile([high, high, *[1.0] * (2 * rounds - 2)], 400 // (2 * rounds))[:400] * 80


def test_a_flight_is_still_between_probes_and_for_ever_without():
    wait_us = np.full(400, 10 * RTT_US)
    assert longest_still(Flights(probing(8)), wait_us, WIDE) == pytest.approx(0.7)
    assert longest_still(Flights(np.full(400, 80)), wait_us, WIDE) == pytest.approx(17.5)
    assert longest_still(Flights(np.full(400, 80)), wait_us, np.full(400, 81.0)) == 0  # its window holds it


def test_only_who_holds_still_for_longer_than_it_waits_to_probe_is_a_stranger():
    for is_v1, rounds in ((True, 8), (False, 60)):
        blocks = Flights(probing(rounds))
        assert paced_log_odds(blocks, held_still(blocks, is_v1), RTT_US, is_v1) == 0
    still = Flights(np.full(400, 80))
    assert paced_log_odds(still, held_still(still, is_v1=False), RTT_US, is_v1=False) > 5
    assert paced_log_odds(still, held_still(still, is_v1=True), 100.0, is_v1=True) == 0  # a block is many round trips


def test_a_wait_of_so_many_round_trips_lasts_longer_while_a_queue_stands():
    still = Flights(np.full(120, 80))
    assert held_still(still, is_v1=False, rtt_us=RTT_US / 2) > 1
    queued_us = np.where(np.arange(120) < 40, RTT_US / 2, RTT_US)  # as after a fall of the rate
    assert held_still(still, is_v1=False, rtt_us=queued_us) < 1


def test_a_window_rises_all_the_time_between_losses_and_a_bbr_does_not():
    saw = np.tile(np.linspace(70, 90, 40), 10)
    cuts = np.arange(40, 400, 40) + 1
    assert Flights(saw, cuts).growing_periods == (9, 1.0)
    assert paced_log_odds(Flights(saw, cuts), 0.0, RTT_US, is_v1=True) > 5
    assert Flights(probing(8), cuts).growing_periods[1] == 0
    queueing = probing(8) * np.linspace(1, 2, 400)  # jitter raises its bandwidth; it drains after each probe
    assert Flights(queueing, [1]).growing_periods[1] < 0.1
    assert Flights(queueing.clip(max=80 * np.linspace(1, 2, 400)), [1]).growing_periods == (1, 1.0)
    short = np.append(np.tile(np.linspace(70, 80, 5), 40), np.linspace(50, 80, 20))  # each probe overflows the queue
    epochs, share = Flights(short, np.arange(5, 201, 5) + 1).growing_periods
    assert epochs == 1
    assert share < 0.15


@pytest.mark.parametrize(
    ("period", "is_window"),
    [
        (np.sqrt(np.linspace(0, 1, 40)), True),  # as Illinois, whose steps become smaller
        (np.linspace(0, 1, 40) ** 2, True),  # H-TCP, whose steps become larger
        (((np.linspace(-1, 1, 40)) ** 3 + 1) / 2, True),  # BIC
        (np.repeat([0, 1], 20), False),  # v1, whose probe a queue keeps, or a rate step
        (np.append(np.zeros(34), np.linspace(0, 1, 6)), False),  # v3 probes until it loses
    ],
)
def test_a_window_has_risen_by_the_middle_or_is_never_still(period, is_window):
    flight = np.tile(60 + 50 * period, 10)
    assert Flights(flight, np.arange(40, 400, 40) + 1).growing_periods == (9, float(is_window))


def test_a_flight_that_rises_and_then_stays_for_most_of_a_period_is_no_windows():
    """BBRv3's bandwidth rises for some round trips after each loss where jitter hides it, and then is the path's."""
    risen = np.concatenate([np.linspace(60, 80, 60), np.full(140, 80.0)])
    assert Flights(np.tile(risen, 2), [1, 201]).growing_periods[1] == 0
    concave = np.concatenate([np.linspace(60, 80, 110), np.full(90, 80.0)])  # as a cubic near its last maximum
    assert Flights(np.tile(concave, 2), [1, 201]).growing_periods[1] > 0.9


def test_a_window_that_falls_without_losses_rises_between_its_falls():
    saw = np.tile(np.linspace(70, 100, 40), 10)  # CDG backs off to 0.7 of its window
    assert Flights(saw, [1]).growing_periods[1] > 0.9
    drained = np.tile(np.append(np.linspace(70, 100, 30), np.linspace(100, 70, 10)), 10)  # v3 after a probe
    assert Flights(drained, [1]).growing_periods[1] == 0
    halved = np.tile(np.append(np.linspace(100, 120, 30), np.full(10, 50)), 10)  # PROBE_RTT, and as before it
    assert Flights(halved, [1]).growing_periods[1] == 0


def test_a_window_that_never_meets_a_loss_rises_between_its_falls():
    flight = np.tile(np.linspace(50, 100, 40), 10)
    flight[:4] = 10, 20, 40, 80
    epochs, share = Flights(flight).growing_periods
    assert epochs > 5
    assert share > 0.9
    assert Flights(probing(8)).growing_periods[1] == Flights(np.full(400, 80.0)).growing_periods[1] == 0


def test_a_bbr_drains_the_queue_when_its_minimum_rtt_expires():
    queued_us = np.full(801, 1.5 * RTT_US)  # for 16 s
    queued_us[0] = RTT_US
    kept = np.full(800, 80)
    for name, missing in (("bbr2", 2), ("bbr3", 2), ("bbr2022", 1)):
        cls, _ = controller(name)
        against = overdue(Flights(kept), queued_us, cls)
        assert against == min(STRONG_WEIGHT * missing, MAX_AGAINST)
        dipped = np.where(np.arange(800) % 250 > 240, 40, kept)
        assert overdue(Flights(dipped), queued_us, cls) == 0
        assert overdue(Flights(kept / 10), queued_us, cls) == 0  # half of it is v2's least window
        ten = overdue(Flights(kept / 8), queued_us, cls)  # an ACK moves half of it, not v1's four (seed 336903)
        assert ten == (against if cls.phase_choices else 0)
        refreshed = np.where(np.arange(801) % 200 == 0, RTT_US, queued_us)
        assert overdue(Flights(kept), refreshed, cls) == 0
        for more_us, odds in ((900, 0), (1100, against)):  # an RTT is between two time stamps
            nearly = np.where(refreshed < queued_us, RTT_US + more_us, queued_us)
            assert overdue(Flights(kept), nearly, cls) == odds
        pausing = Flights(kept)
        pausing.ran_out[np.arange(800) % 30 == 0] = True  # every 0.6 s, as in seed 335383: the dip is in a pause
        assert overdue(pausing, queued_us, cls) == 0
        pausing.ran_out[100:] = False  # but not when it is due
        assert overdue(pausing, queued_us, cls) == against


def test_the_minimum_rtt_of_a_bbr_is_what_it_measured_since_its_last_dip():
    """Jitter brings a smaller one before each dip, at 5 and at 12 s: the second dip is due 5 s after RTTs of 7 s."""
    time_s = np.arange(801) * RTT_US / 2e6
    rtt_us = RTT_US * np.select([time_s < 4, time_s < 5.3, time_s < 7], [1.5, 1.0, 1.2], 1.5)
    rtt_us[0] = 0.9 * RTT_US
    flight = np.where((np.abs(time_s[1:] - 5.2) < 0.15) | (np.abs(time_s[1:] - 12.1) < 0.15), 40, 80)
    cls, _ = controller("bbr2")
    assert overdue(Flights(flight), rtt_us, cls) == 0
    later = np.where(np.abs(time_s[1:] - 5.2) < 0.15, 40, 80)
    assert overdue(Flights(later), rtt_us, cls) == STRONG_WEIGHT


def test_rates_at_other_gains_and_rates_that_never_change_are_a_strangers():
    ratio = np.log(np.tile([1.0, 1.0, 1.5, 0.5], 20))
    own = np.where(ratio == 0, np.log(50.0), np.log(0.006))
    assert other_gains(own, ratio, 0.004) == MAX_AGAINST
    assert other_gains(np.full(80, np.log(100.0)), np.zeros(80), 0.004) == 0
    time_ns = np.arange(80) * 100_000_000
    sent, rtt_us = np.arange(80) * 1e5, np.full(80, RTT_US)
    for is_v1 in (True, False):
        assert unchanged(time_ns, np.full(80, 1e6), sent, rtt_us, is_v1) > 5
    assert unchanged(time_ns, np.full(80, 1e6), sent, 4 * rtt_us, is_v1=True) == 0  # 48 rounds at a policer's rate
    assert unchanged(time_ns, np.full(80, 1e6), sent / 3, rtt_us, is_v1=False) == 0  # not used
    changes = 1e6 * (1 + 0.01 * (np.arange(80) // 20))
    assert unchanged(time_ns, changes, sent, rtt_us, is_v1=False) == 0
    assert unchanged(time_ns, np.full(80, 0.0), sent, rtt_us, is_v1=False) == 0


@pytest.mark.parametrize(("name", "number"), [("Constant", 2), ("Steep", 1), ("Quick", 1), ("Delay", 2)])
def test_a_stranger_seen_from_the_receiver_is_nobody(name, number, tmp_path):
    assert cct.identify(simulated(name, number, 71, "8s", tmp_path, side="receiver")).group == (UNKNOWN,)


@pytest.mark.parametrize("name", ["Constant", "Quick"])
def test_counters_of_a_stranger_that_paces_are_nobodys(name, tmp_path):
    assert from_ss(name, 0, 71, "8s", tmp_path).group == (UNKNOWN,)
    if name == "Constant":
        assert from_ss(name, 0, 71, "8s", tmp_path, bbr_fields=False).group == (UNKNOWN,)


def test_a_reduction_that_only_seems_undone_is_kept(tmp_path):
    record = record_of(simulated("cubic6", 2, 71, "8s", tmp_path, side="receiver")).part()
    assert flights_of(record, replay_of(record, "cubic6")).scale == pytest.approx(0.02)


def test_who_was_held_back_by_the_receivers_window_is_anybody(tmp_path):
    for name in ("bbr2022", "cubic6"):
        sim = cct.simulate(
            cct.Path(rate="40Mbit", rtt="40ms", buffer="1bdp"), [cct.Sender(name, rwnd="60kB")], "4s", 1, packets=True
        )
        sim.to_pcap(tmp_path / "held", side="receiver")
        found = cct.identify(cct.read(tmp_path / "held").flow(0))
        assert name in found.group
        assert len(found.group) > 3
        assert dict(found.candidates)[UNKNOWN] > 0.15


@pytest.mark.parametrize(("name", "limited"), [("bbr2022", True), ("bbr2", True), ("bbr2022", False), ("bbr2", False)])
def test_a_bbr_that_cannot_probe_at_its_sockets_limit_is_anybody_seen_from_the_receiver(name, limited, tmp_path):
    limit = ":max_pacing_rate=1300000" if limited else ""
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp")
    cct.simulate(path, cct.Sender(name + limit), "8s", 1, packets=True).to_pcap(tmp_path / "held", side="receiver")
    flow = cct.read(tmp_path / "held").flow(0)
    assert record_of(flow).part().halves.steady == limited
    found = cct.identify(flow)
    assert name in found.group
    if limited and name == "bbr2022":  # its minimum RTT expires after 10 s
        assert {"cubic6", "reno", "bbr2022", "bbr2", "bbr3"} <= set(found.group)
    elif limited:  # one dip of PROBE_RTT
        assert set(found.group) <= {"bbr2", "bbr2plus", "bbr3"}
    else:
        assert not {"cubic6", "reno"} & set(found.group)


@pytest.mark.parametrize(("name", "alike"), [("bbr2022", "bbr2016"), ("bbr3", "bbr2"), ("reno", "cubic6")])
def test_dips_of_probe_rtt_tell_who_sent_at_its_sockets_limit(name, alike, tmp_path):
    sender = cct.Sender("reno:paced=1" if name == "reno" else name, max_pacing_rate="10Mbit")
    path = cct.Path(rate="20Mbit", rtt="60ms", buffer="2bdp")
    cct.simulate(path, sender, "20s", 1, packets=True).to_pcap(tmp_path / "held", side="receiver")
    flow = cct.read(tmp_path / "held").flow(0)
    assert record_of(flow).part().halves.steady
    group = set(cct.identify(flow).group)
    assert {name, alike} <= group
    others = {"bbr2022": {"reno", "bbr2"}, "bbr3": {"reno", "bbr2022"}, "reno": {"bbr2", "bbr3"}}
    assert not others[name] & group


def test_what_a_policer_drops_before_the_receiver_was_sent_all_the_same(tmp_path):
    path = cct.Path(rate="40Mbit", rtt="30ms", buffer="1bdp", policer=("10Mbit", "40kB"))
    sim, left = cct.simulate(path, "bbr2022", "8s", 1, packets=True), {}
    for side in ("sender", "receiver"):
        sim.to_pcap(tmp_path / side, side=side)
        left[side] = record_of(cct.read(tmp_path / side).flow(0)).halves.sent_so_far[-1]
    lost = cct.read(tmp_path / "receiver").flow(0).row["retransmitted_segments"]
    assert lost > 200
    assert abs(left["receiver"] - left["sender"]) < lost / 2  # what is lost twice shows once


def test_a_window_that_climbs_before_any_reduction_left_slow_start_by_hystart(tmp_path):
    assert Flights(np.linspace(40, 80, 400)).grows_at_start
    assert not Flights(np.full(400, 40)).grows_at_start
    assert not Flights(np.linspace(40, 80, 400), [0]).grows_at_start
    path = cct.Path(rate="20Mbit", rtt="60ms", buffer="8bdp")
    cct.simulate(path, "cubic6", "8s", 1, packets=True).to_pcap(tmp_path / "climbs", side="receiver")
    record = record_of(cct.read(tmp_path / "climbs").flow(0)).part()
    assert not len(record.halves.reductions)
    assert flights_of(record, replay_of(record, "cubic6")).log_odds_against == 0
    assert flights_of(record, replay_of(record, "reno")).log_odds_against >= MAX_AGAINST


def test_jitter_does_not_hide_that_a_window_rises_for_a_long_time():
    rng = np.random.default_rng(1)

    def share(flight):
        blocks = Flights(flight * (1 + rng.normal(0, 0.03, 400)), [0])
        blocks.jitter = 0.06
        return blocks.growing_periods[1]

    assert share(np.linspace(100, 400, 400)) > 0.9
    assert share(np.full(400, 250.0)) == 0
    assert share(probing(8)) < 0.1
    assert share(np.repeat([100.0, 400.0], 200)) == 0  # the path became faster


@pytest.mark.parametrize(
    ("more", "held"),
    [({"send_buffer": "64kB"}, True), ({}, False), ({"app": "chunks:size=200kB,every=200ms"}, False)],
    ids=["buffer", "none", "application"],
)
def test_a_send_buffer_that_is_written_to_once_a_round_trip_holds_the_flight(more, held, tmp_path):
    path = cct.Path(rate="38.7Mbit", rtt="61.3ms", buffer="2bdp")
    sim = cct.simulate(path, cct.Sender("bbr2022", ack_every=2, **more), "5s", 1, packets=True)
    sim.to_pcap(tmp_path / "held", side="receiver")
    assert (record_of(cct.read(tmp_path / "held").flow(0)).part().longer is not None) == held


def test_dips_of_probe_rtt_tell_who_sent_behind_a_send_buffer(tmp_path):
    path = cct.Path(rate="38.7Mbit", rtt="61.3ms", buffer="2bdp")
    sim = cct.simulate(path, cct.Sender("bbr3", ack_every=2, send_buffer="128kB"), "18s", 1, packets=True)
    sim.to_pcap(tmp_path / "held", side="receiver")
    flow = cct.read(tmp_path / "held").flow(0)
    assert record_of(flow).part().longer
    group = set(cct.identify(flow).group)
    assert "bbr3" in group
    assert not {"cubic6", "reno", "bbr2022"} & group


def test_a_send_buffer_holds_a_flight_until_the_first_loss_and_bursts_may_exceed_it():
    flight = np.tile([60.0, 100.0], 200)
    flight[:4] = 10, 20, 40, 80
    assert Flights(flight).held_from() is not None
    burst = flight.copy()
    burst[150:156] = 130
    assert Flights(burst).held_from() is not None
    lost = flight.copy()
    lost[300:] = 150
    assert Flights(lost, [301]).held_from() is not None
    assert Flights(lost, [120, 301]).held_from() is None  # for too short a time
    assert Flights(np.full(400, 100.0)).held_from() is None


def test_the_sends_of_a_bbr2_behind_a_send_buffer_are_due_when_an_ack_makes_room(tmp_path):
    sender = cct.Sender("bbr2", send_buffer="400kB")
    path = cct.Path(rate="100Mbit", rtt="43ms", buffer="1bdp")
    cct.simulate(path, sender, "8s", 1, packets=True, profile="linux").to_pcap(tmp_path / "buffered")
    record = record_of(cct.read(tmp_path / "buffered").flow(0)).part()
    assert record.exact
    assert not record.longer  # all of it counts
    assert np.median(replay_of(record, "bbr2").sends) > 1
    assert np.median(replay_of(record, "cubic6").sends) < -3


def test_the_window_before_a_loss_is_the_last_round_trips_although_a_send_buffer_lets_flights_fall(tmp_path):
    path = cct.Path(rate="21.5Mbit", rtt="20.6ms", buffer="2bdp")
    sim = cct.simulate(path, cct.Sender("cubic6", send_buffer="32kB"), "6s", 1, packets=True, profile="linux")
    sim.to_pcap(tmp_path / "buffered", side="receiver")
    record = record_of(cct.read(tmp_path / "buffered").flow(0)).part()
    flights = flights_of(record, replay_of(record, "cubic6"))
    assert flights.reductions == 3
    assert flights.error_after_reductions < 0.05
