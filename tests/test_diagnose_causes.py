"""Causes in several flows, the ACK path and the sender's bursts, in flows drawn as the benchmark draws them."""

import io
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cctrace as cct
from benchmarks.explain import calibration
from benchmarks.explain_cases import BESIDE, RIGHT, _served_in_turn, random_case, simulated_flow
from cctrace.diagnosis import limits
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.packets.acks import _by_clock
from cctrace.diagnosis.packets.losses import losses
from cctrace.diagnosis.packets.policing import policer
from cctrace.diagnosis.record import Record
from cctrace.path.evidence import evidence_of
from cctrace.path.losses import arrived_before, early_share, losses_of
from tests.conversation import MSS, Conversation

CASES = [
    ("fair_queueing", 0),
    ("fair_queueing", 30),  # the second flow comes later: the rate of the first falls, and is no change of the path's
    ("shaper", 1),
    ("poor_pacing", 4_000_002),
    ("ack_compression", 5),
    ("inflated_min_rtt", 9),
    ("app_limited_samples", 10),
    ("aqm", 6),
    ("policer", 8),
]


@pytest.mark.parametrize(("cause", "number"), CASES, ids=[f"{cause}-{number}" for cause, number in CASES])
def test_a_drawn_cause_is_told(cause, number):
    flow, controller = simulated_flow(cause, number, seed=21)
    found = diagnose(flow, controller)
    told = [verdict for verdict in found.verdicts if verdict.name in RIGHT[cause]]
    assert told
    assert cause in BESIDE or found.verdicts[0].name == cause
    assert told[0].evidence
    assert told[0].refuted_by
    assert told[0].advice


def simulated(path, seed=1, duration="6s", **flow):
    path = {"rate": "20Mbit", "rtt": "40ms", "buffer": "1.5bdp"} | path
    sim = cct.simulate(cct.Path(**path), cct.Sender(**{"cc": "cubic"} | flow), duration, seed=seed, packets=True)
    return sim.capture().flow(0)


def test_parts_that_are_equal_in_one_queue_are_competition_and_no_fair_queueing():
    sim = cct.simulate(
        cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp"), ["cubic", "cubic"], "8s", seed=2, packets=True
    )
    assert [diagnose(sim.capture().flow(k)).cause for k in (0, 1)] == ["competition"] * 2


@pytest.mark.parametrize("cc", ["cubic", "reno"])
def test_a_sender_that_does_not_pace_is_not_said_to_be_paced(cc):
    flow = simulated({"loss": "0.5%"}, cc=cc, ack_every=2)
    share = shares(diagnose(flow).limits)
    assert share.get("pacing", 0) < 0.02 < share["cwnd"]
    assert "pacing" not in shares(diagnose(flow, cc).limits)


def test_a_sender_that_paces_is_said_to_be_paced():
    share = shares(diagnose(simulated({}, cc="bbr2022")).limits)
    assert share["pacing"] > 0.7 > share.get("cwnd", 0)


def test_the_pause_that_empties_the_path_for_probe_rtt_is_part_of_it():
    found = diagnose(simulated({}, cc="bbr2022", duration="12s", ack_every=2)).limits
    (probe,) = [k for k, limit in enumerate(found) if limit.name == "probe_rtt"]
    assert found[probe].end_s - found[probe].start_s > 0.2  # as long as four are in flight, and the pause before
    assert "application" not in {limit.name for limit in found[probe - 2 : probe]}


def test_writes_that_a_pacing_timer_spreads_are_the_applications_pauses():
    flow = simulated({}, cc="bbr2022", app="chunks:size=25kB,every=50ms")
    share = shares(diagnose(flow).limits)
    assert share["application"] > 0.6


def test_a_flow_that_waits_for_its_timer_is_stalled_and_not_short():
    found = diagnose(simulated({"ack_loss": "85%", "rate": "90Mbit", "rtt": "14ms"}, seed=4, duration="10s", cc="bbr2"))
    names = [verdict.name for verdict in found.verdicts]
    assert "stalls" in names
    assert "slow_start_only" not in names
    stalls = next(verdict for verdict in found.verdicts if verdict.name == "stalls")
    silent = shares(found.limits)["rto_stall"]
    assert stalls.evidence["stalled_share"] == pytest.approx(silent)
    assert stalls.evidence["timeouts"] >= 1


def test_a_clock_is_told_from_an_amount_by_what_differs():
    rng = np.random.default_rng(1)
    slots = np.where(rng.random(200) < 0.1, 20.0, 10.0)  # some slots had nothing
    assert _by_clock(slots, rng.integers(8, 12, 200).astype(float))
    late = np.where(rng.random(200) < 0.1, rng.uniform(13, 17, 200), 10.0)  # eight segments took longer
    assert not _by_clock(late, np.full(200, 8.0))
    assert _by_clock(np.full(200, 10.0), rng.integers(9, 12, 200).astype(float))
    assert not _by_clock(rng.normal(10, 0.3, 200), np.full(200, 8.0))


def test_a_full_queue_of_many_flows_is_no_policer_of_those_that_never_saw_it_empty():
    senders = [cct.Sender("cubic", start=f"{0.2 * k:.1f}s", ack_every=2) for k in range(20)]
    sim = cct.simulate(cct.Path(rate="20Mbit", rtt="30ms", buffer="1bdp"), senders, "8s", packets=True)
    capture = sim.capture()
    assert [policer(Record(capture.flow(k))) for k in (9, 12, 16)] == [None] * 3


def test_each_of_thirty_flows_in_a_queue_is_told_of_the_others():
    senders = [cct.Sender("cubic", start=f"{0.1 * k:.1f}s", ack_every=2) for k in range(30)]
    sim = cct.simulate(cct.Path(rate="40Mbit", rtt="30ms", buffer="1bdp"), senders, "6s", packets=True)
    capture = sim.capture()
    for k in (3, 12, 21, 29):
        found = diagnose(capture.flow(k), "cubic").verdicts
        assert found[0].name == "competition"
        assert not {"aqm", "random_loss", "rate_change"} & {verdict.name for verdict in found}


def test_a_window_of_four_packets_that_queues_on_a_slow_path_is_not_called_other_flows():
    path = cct.Path(rate="200kbit", rtt="60ms", buffer="10bdp")  # four packets take 240 ms, the base RTT is 120
    sim = cct.simulate(path, cct.Sender("bbr3", ack_every=2), "40s", packets=True)
    assert "inflated_min_rtt" not in {verdict.name for verdict in diagnose(sim.capture().flow(0), "bbr3").verdicts}


def test_acks_in_batches_do_not_make_the_delivered_rate_jump():
    record = Record(simulated({"rtt": "120ms"}, cc="bbr2022", ack_slot="80ms", duration="10s"))
    _, rate, _ = record.path.delivered
    late = rate[len(rate) // 2 : -2]
    assert np.std(late) < 0.25 * np.mean(late)
    assert record.path.rate_changes == []


def test_limits_sum_to_the_whole_time_whatever_happens():
    rng = np.random.default_rng(3)
    for _ in range(50):
        names = rng.choice(["cwnd", "pacing", "application", "recovery"], 3, replace=False)
        spans = {str(name): np.sort(rng.uniform(-1, 12, (6,))).reshape(3, 2) for name in names}
        found = limits.account(spans, 10.0, rng.uniform(0.01, 3))
        assert found[0].start_s == 0
        assert found[-1].end_s == pytest.approx(10.0)
        assert sum(shares(found).values()) == pytest.approx(1.0)
        assert all(a.end_s == b.start_s and a.name != b.name for a, b in itertools.pairwise(found))


def polls_with(again, rtt_us=40_000):
    """Return a flow of polls every 100 ms in which so many segments had been sent again."""
    n = len(again)
    table = {"time_ns": [10**18 + 10**8 * i for i in range(n)], "tcpi_rtt": [rtt_us] * n, "tcpi_snd_mss": [1000] * n}
    table |= {"tcpi_min_rtt": [40_000] * n, "tcpi_data_segs_out": [100 * i for i in range(n)]}
    table |= {"tcpi_bytes_acked": [1 + 10**5 * i for i in range(n)], "tcpi_total_retrans": list(again)}
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return cct.read(io.BytesIO("\n".join(lines).encode())).flow()


def test_losses_are_told_from_polls_without_an_rtt():
    """A warning of numpy about a median of nothing would fail this."""
    assert "random_loss" in diagnose(polls_with(np.cumsum(np.random.default_rng(2).poisson(1.0, 300)), 0)).causes


def test_losses_by_chance_come_evenly_and_a_start_that_overflows_does_not_hide_them():
    chance = np.random.default_rng(2).poisson(1.0, 300)
    assert diagnose(polls_with(np.cumsum(chance))).cause == "random_loss"
    chance[5:8] = 90  # of a hundred
    found = diagnose(polls_with(np.cumsum(chance)))
    assert found.cause == "random_loss"
    assert found.figures["share_otherwise"] == pytest.approx(0.01, rel=0.2)


def test_losses_that_come_together_are_no_chance_though_no_rtt_was_long():
    again = np.zeros(300, int)
    again[20:300:40] = 60
    again[21:300:40] = 40
    found = diagnose(polls_with(np.cumsum(again)))
    assert found.cause == "congestive_loss"
    assert found.verdicts[0].confidence < 0.5
    assert found.figures["dispersion"] > 8


def test_the_error_of_calibration_is_that_between_confidence_and_the_share_that_is_right():
    told = [(0.95, True)] * 18 + [(0.95, False)] * 2 + [(0.65, True)] * 10
    bins, error = calibration(told)
    assert bins == [(0.6, 0.7, 0.65, 1.0, 10), (0.9, 1.0, 0.95, 0.9, 20)]
    assert error == pytest.approx((10 * 0.35 + 20 * 0.05) / 30)


def written_in_parts(when, segments=24, writes=40):
    """A path of a segment per millisecond and some 40 ms; `when` tells when to write more, or None.

    It is asked at every ACK, with what is outstanding, its time and the next one's.
    """
    talk, arrivals, free, sent, told = Conversation(), [], 0.0, 0, 0
    now = 0.0
    while True:
        if now is not None:
            talk.data(now, 1 + MSS * sent, segments=segments)
            sent += segments
            for _ in range(segments // 2):
                free = max(free, now) + 2.0
                arrivals.append(free + 40.0 + 3.0 * np.sin(free / 500.0))
        if told == len(arrivals) or sent >= writes * segments:
            return talk.capture().flow(0)
        at, told = arrivals[told], told + 1
        talk.ack(at, 1 + 2 * MSS * told)
        now = when(sent - 2 * told, at, arrivals[told] if told < len(arrivals) else np.inf)


def test_writes_that_wait_for_acks_are_a_full_send_buffer():
    first = diagnose(written_in_parts(lambda out, at, _: at + 0.1 if out == 8 else None)).verdicts[0]
    assert first.name == "send_buffer_limited"
    assert first.evidence["in_flight_at_writes_bytes"] == pytest.approx(8 * MSS, rel=0.15)


def test_a_full_send_buffer_is_recognised_where_acks_arrive_every_150_us():
    flow = simulated({"rate": "160Mbit", "rtt": "60ms"}, send_buffer="200kB", profile="linux")
    assert diagnose(flow).cause == "send_buffer_limited"


def test_writes_at_their_own_times_are_the_applications():
    times = iter(np.arange(1, 60) * 50.0 + 0.9 * np.sin(np.arange(1, 60)))
    due = [next(times)]

    def clocked(_, at, following):
        if not at <= due[0] < following:
            return None
        now, due[0] = due[0], next(times)
        return now

    assert diagnose(written_in_parts(clocked)).verdicts[0].name == "application_limited"


@pytest.mark.parametrize("number", [13, 23])
def test_a_bucket_that_fills_again_between_bursts_shows_the_shapers_rate_and_not_the_links(number):
    path = random_case("shaper", number, 61)[0]
    first = diagnose(simulated_flow("shaper", number, 61)[0]).verdicts[0]
    rate, bucket = path["shaper"]
    assert first.name == "shaper"
    assert first.evidence["rate_bps"] == pytest.approx(float(rate.removesuffix("Mbit")) * 1e6, rel=0.005)
    assert first.evidence["bucket_bytes"] == pytest.approx(float(bucket.removesuffix("B")), rel=0.05)


@pytest.mark.parametrize(("cause", "number"), [("rate_drop", 3), ("fair_queueing", 16), ("competition", 8)])
def test_a_rate_that_fell_or_is_shared_is_no_bucket(cause, number):
    verdicts = diagnose(simulated_flow(cause, number, 71)[0]).verdicts
    assert "shaper" not in [verdict.name for verdict in verdicts if verdict.confidence > 0.5]


def test_one_overflow_of_a_path_whose_rate_no_queue_showed_is_no_poor_pacing():
    """ACKs that come in batches hide the rate: one that is much too high made every burst fill a queue of its own."""
    flow = simulated({"rate": "12Mbit", "rtt": "35ms", "buffer": "2bdp"}, seed=3, duration="8s", ack_slot="10ms")
    assert "poor_pacing" not in [verdict.name for verdict in diagnose(flow).verdicts]


def test_a_loss_that_delays_the_ack_before_it_met_no_longer_queue():
    path = cct.Path(rate="18Mbit", rtt="12.4ms", buffer="1bdp", loss="0.1%")
    sender = cct.Sender("reno", ack_every=2, max_pacing_rate="14Mbit")
    flow = cct.simulate(path, sender, "12s", seed=3, packets=True).capture().flow(0)
    assert [one.name for one in cct.diagnose(flow).verdicts] == ["pacing_limited", "random_loss"]


def test_pies_drops_are_an_aqms_although_slow_start_overflowed_its_limit_more_often():
    path = cct.Path(rate="36.4Mbit", rtt="20ms", buffer="3.6bdp", aqm="pie")
    flow = cct.simulate(path, cct.Sender("reno", ack_every=2), "7s", seed=3, packets=True).capture().flow(0)
    assert cct.diagnose(flow).cause == "aqm"


@pytest.mark.parametrize(("aqm", "want"), [("codel", "aqm"), ("droptail", "shallow_buffer")])
def test_a_short_queue_that_drops_from_its_head_is_managed_however_few_packets_it_holds(aqm, want):
    path = cct.Path(rate="10Mbit", rtt="40ms", buffer="4bdp" if aqm == "codel" else "0.2bdp", aqm=aqm)
    flow = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "12s", seed=3, packets=True).capture().flow(0)
    found = cct.diagnose(flow).verdicts
    assert [one.name for one in found if one.name in ("aqm", "shallow_buffer", "congestive_loss")] == [want]


@pytest.mark.parametrize(("buffer", "loss"), [("3100B", 0.0), ("3100B", 0.01), ("4600B", 0.002), ("1600B", 0.0)])
def test_random_losses_are_told_from_those_of_a_queue_of_one_to_three_packets(buffer, loss):
    path = cct.Path(rate="4.3Mbit", rtt="9ms", buffer=buffer, loss=loss)
    evidence = evidence_of(cct.simulate(path, cct.Sender("bbr3", profile="linux"), "16s", seed=1, packets=True))
    found = losses_of(evidence, evidence.traffic.steps, np.zeros(1))
    assert found.share.low <= loss <= found.share.high
    if buffer != "1600B":  # of a single packet, whatever waits is full
        assert found.share.high < loss + 0.01
    assert found.congestive > 2 * found.random


@pytest.mark.parametrize("cc", ["reno", "bbr3"])
def test_drops_of_a_full_queue_of_three_packets_are_no_random_losses(cc):
    path = cct.Path(rate="7Mbit", rtt="10ms", buffer="4.6kB", loss="1%")
    sim = cct.simulate(path, cct.Sender(cc, ack_every=2, profile="linux"), "8s", seed=1, packets=True)
    found = losses(Record(sim.capture().flow(0)))
    assert found.loss_share > 0.035  # three in four are the queue's
    assert found.backlogs.overflow_losses > 2 * found.backlogs.other_losses


def test_acks_that_wait_for_the_next_packet_of_a_small_window_are_no_jitter():
    path = cct.Path(rate="5Mbit", rtt="12ms", buffer="4542B")
    flow = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "15s", seed=331, packets=True).capture().flow(0)
    assert Record(flow).path.uncongested.spread_us < 100  # with the packets that waited: half a round trip
    assert "jitter" not in cct.diagnose(flow).causes
    varied = cct.read(Path(__file__).parent / "recordings/lab_v2_jitter/sender.pcap.zst").flow(0)
    assert Record(varied).path.uncongested.spread_us == pytest.approx(2000 / 3**0.5, rel=0.1)  # netem's 2 ms, uniform


@pytest.mark.parametrize(("path", "want"), [({"aqm": "codel"}, ["aqm"]), ({}, []), ({"loss": "0.3%"}, ["random_loss"])])
def test_what_drops_beside_a_competitor_is_judged_by_the_joint_queue(path, want):
    link = cct.Path(rate="9Mbit", rtt="60ms", buffer="3bdp" if path else "1bdp", **path)
    sim = cct.simulate(link, ["cubic6", "reno"], "10s", 1, packets=True, ack_every=2)
    assert cct.diagnose(sim.capture().flow(0)).causes == ["competition", *want]


@pytest.mark.parametrize(("aqm", "want"), [("codel", ["aqm"]), ("droptail", [])])
def test_what_drops_where_a_fair_queue_serves_flows_in_turn_is_judged_by_the_flows_own_queue(aqm, want):
    path = {"rate": "9Mbit", "rtt": "20ms", "buffer": "4bdp", "aqm": aqm}
    flows = {"cc": "cubic6", "ack_every": 2}, {"cc": "bbr2022", "ack_every": 2, "start": "2s"}
    causes = diagnose(_served_in_turn(path, flows, "10s", 1).flow(0)).causes
    assert causes[0] == "fair_queueing"
    assert [one for one in causes if one in ("aqm", "random_loss", "jitter")] == want


def test_a_queue_of_two_packets_drops_what_finds_two_and_no_others(monkeypatch):
    path = cct.Path(rate="9Mbit", rtt="20ms", buffer="3100B", loss="1%")
    evidence = evidence_of(cct.simulate(path, cct.Sender("reno", ack_every=2), "6s", seed=3, packets=True))
    assert evidence.backlogs.chance < 1e-20  # no random losses, which would find an empty queue as often as others do
    assert losses_of(evidence, evidence.traffic.steps, np.zeros(1)).share.value < 0.03
    at = replace(evidence.backlogs)
    vars(at).update(
        backlog_bytes=np.round(at.backlog_bytes), ahead_bytes=at.ahead_bytes
    )  # whole packets: one is half of the longest
    monkeypatch.setattr("cctrace.path.losses.backlogs_of", lambda *_: at)
    assert losses_of(evidence, evidence.traffic.steps, np.zeros(1)).share.value < 0.03
    times_us, met = np.array([0.0, 5.0, 5.0, 5.0, 9.0]), np.array([1.0, 3.0, 3.0, 3.0, 2.0])
    arrived = np.array([1.0, 1.0, 1.0, 0.0, 1.0])  # of three at once the last was lost
    assert arrived_before(met, times_us, arrived).tolist() == [0.0, 1.0, 2.0, 3.0, 1.0]


@pytest.mark.parametrize(("loss", "want"), [("0%", []), ("1%", ["random_loss"])])
def test_losses_while_a_policer_has_tokens_are_random(loss, want):
    path = cct.Path(rate="9Mbit", rtt="60ms", buffer="2bdp", policer=("4Mbit", "45kB"), loss=loss)
    flow = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "10s", 1, packets=True).capture().flow(0)
    found = cct.diagnose(flow)
    assert found.causes == ["policer", *want]
    if want:
        assert 0.003 < found.verdicts[1].evidence["loss_share"] < 0.01  # others met an empty bucket


def test_drops_are_early_where_longer_queues_had_passed_within_an_rtt_or_the_queue_went_on_growing():
    time_us, size = np.arange(1200) * 1e3, 1500.0
    met = size * (time_us / 1e3 % 100)  # grows to 99 packets, then starts again
    full, head = np.zeros(len(met), bool), np.zeros(len(met), bool)
    full[99::100], head[50::100] = True, True
    falls = size * (99 - time_us / 1e3 % 100)
    assert early_share(full, full, met, time_us, 20e3, size) == 0.0
    assert early_share(head, head, falls, time_us, 20e3, size) == 1.0  # the queue was longer just before
    start = np.zeros(len(met), bool)
    start[[30, 32]] = True  # one overflow, and no drop at 99 packets
    assert early_share(start, start, met, time_us, 80e3, size) == 1.0
    beside = start | (np.arange(len(met)) % 150 == 149)  # as many random ones explain it
    assert early_share(start, beside, met, time_us, 80e3, size) == 0.0
    before = np.zeros(len(met), bool)
    before[[60, *range(95, 100)]] = True  # a random loss while the queue grows, which then overflows
    assert early_share(before, before, met, time_us, 80e3, size) == 0.0
    before[70:95:5] = True  # drops all the way (RED)
    assert early_share(before, before, met, time_us, 80e3, size) == 1.0


def test_random_losses_of_packets_that_met_a_long_queue_are_no_early_drops():
    """They count as many drops as losses elsewhere predict: a loss of 2 % had made an AQM of two overflows."""
    time_us, size = np.arange(1200) * 1e3, 1500.0
    met = size * np.minimum(time_us / 1e3 % 600, 99)  # long most of the time
    dropped, lost = np.zeros(len(met), bool), np.zeros(len(met), bool)
    for at in (99, 699):
        dropped[at : at + 20] = True
        dropped[at + 60 : at + 460 : 100] = True
    met[dropped] -= 10 * size * (np.arange(dropped.sum()) % 24 >= 20)
    lost[10:90:10], lost[610:690:10] = True, True
    assert early_share(dropped, dropped, met, time_us, 20e3, size) == 0.8
    assert early_share(dropped, dropped | lost, met, time_us, 20e3, size) == 0.0


def test_delayed_acks_of_a_flow_that_loses_a_third_are_no_jitter():
    path = cct.Path(rate="33Mbit", rtt="28ms", buffer="1.5bdp", loss="30%")
    flow = cct.simulate(path, cct.Sender("bbr3", ack_every=2), "10s", seed=2, packets=True).capture().flow(0)
    assert Record(flow).path.uncongested.spread_us < 500  # around means of periods: 997


@pytest.mark.parametrize(("cc", "words"), [("reno", "to at least 29.8 Mbit/s at"), ("bbr2022", "to 40 Mbit/s at")])
def test_what_a_flow_got_of_a_faster_path_that_it_did_not_fill_is_the_least_of_its_rate(cc, words):
    path = cct.Path(rate=[(0, "10Mbit"), (5, "40Mbit")], rtt="25ms", buffer="60kB")
    found = cct.diagnose(cct.simulate(path, cc, "9s", seed=1, packets=True, ack_every=2).capture().flow(0))
    assert words in next(one.text for one in found.verdicts if one.name == "rate_change")
    rose = words.removesuffix(" at")
    assert any(rose in event.text for event in found.events if event.name == "rate_change")
