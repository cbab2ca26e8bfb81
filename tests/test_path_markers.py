"""Which queue management marked a flow's packets: simulated queues are told apart, by their marks and RTTs alone."""

from dataclasses import replace

import numpy as np
import pytest

import cctrace as cct
from cctrace.path.evidence import evidence_of
from cctrace.path.markers import _red_log_likelihood, by_chance, judged, likely_marker
from cctrace.path.marking import Marking, marking_of


def marked_by(sender, seconds=20, seed=5, side="sender", **path):
    """A simulated flow over a link of 20 Mbit/s, 20 ms."""
    link = {"rate": "20Mbit", "rtt": "20ms", "buffer": "8bdp"} | path
    sim = cct.simulate(cct.Path(**link), sender, f"{seconds}s", seed=seed, packets=True)
    return sim.capture(flow=0, side=side).flow(0)


@pytest.mark.parametrize(
    ("name", "threshold_us", "path", "cc"),
    [
        ("step", 5_000, {"ecn_threshold": "12.5kB"}, "reno"),
        ("codel", 5_000, {"aqm": "codel"}, "cubic6"),
        ("codel", 10_000, {"aqm": "fq_codel:target=10ms"}, "reno"),
        ("red", 5_000, {"aqm": "red:min=12500B,max=37500B,probability=10%,avpkt=1500B"}, "cubic6"),
    ],
)
def test_a_law_is_named_with_the_threshold_from_which_it_marks(name, threshold_us, path, cc):
    marker = likely_marker(evidence_of(marked_by(cct.Sender(cc, ecn=True, ack_every=2), **path)))
    assert marker.names == (name,)
    assert marker.law.threshold_us == pytest.approx(threshold_us, rel=0.2)
    assert marker.law.low_us <= threshold_us <= marker.law.high_us


def test_the_interval_of_a_threshold_has_the_errors_of_the_delays():
    """Three packets at 8 Mbit/s: the third counts itself, and its delay is that of two and the rest of one."""
    evidence = evidence_of(marked_by("prague", rate="8Mbit", rtt="10ms", ecn_threshold="4542B"))
    marking = marking_of(evidence)
    law, exact = judged(marking).law, judged(replace(marking, error_us=0.0)).law
    assert law.low_us <= 4_542 <= law.high_us
    assert marking.error_us == pytest.approx(1_514, rel=0.5)  # a packet and the scatter
    assert not exact.low_us <= 4_542 <= exact.high_us
    assert law.high_us - exact.high_us == pytest.approx(marking.error_us)


def test_the_target_of_pie_is_found_over_several_flows():
    """Of one flow with some hundred marks it is only known to a third: the marks' probability wanders."""
    markers = [
        likely_marker(
            evidence_of(marked_by(cct.Sender("prague", ecn=True, ack_every=2), seed=seed, aqm="pie", rtt="40ms"))
        )
        for seed in range(1, 6)
    ]
    assert {marker.names for marker in markers} == {("pie",)}
    assert np.median([marker.law.threshold_us for marker in markers]) == pytest.approx(15_000, rel=0.2)


def test_ect1_is_marked_by_a_step_where_dualpi2_has_no_other_flow_and_by_chance_beside_one():
    alone = likely_marker(evidence_of(marked_by("prague", aqm="dualpi2")))
    assert alone.names == ("step",)
    assert alone.law.threshold_us == pytest.approx(1_000, rel=0.6)  # a packet takes 0.6 ms
    beside = marked_by(["prague", cct.Sender("cubic6", ecn=True)], aqm="dualpi2")
    assert likely_marker(evidence_of(beside)).names == ("dualpi2",)


def random_marking(seed, marks=60, rows=4_000):
    """Marks by mere chance, of waits that rise and fall as a window does."""
    random = np.random.default_rng(seed)
    wait = 5e3 * (1 + np.sin(np.arange(rows) / 200)) + 100 * random.random(rows)
    marked = np.zeros(rows, np.int64)
    marked[random.choice(rows, marks, replace=False)] = 1
    return Marking(np.arange(rows) * 2e-3, wait, np.full(rows, 2), marked, np.ones(rows, bool))


def red_marks(seed, least_us=5e3, slope=2e-5, shift=6, rows=6_000):
    """Marks by RED packet by packet, as Linux counts them, of waits that rise and fall as a window does."""
    random = np.random.default_rng(seed)
    wait = 6e3 * (1 + np.sin(np.arange(rows) / 200)) + 100 * random.random(rows)
    marked, average, count, drawn = np.zeros(rows, np.int64), 0.0, -1, 0.0
    for i in range(rows):
        average += (wait[i] - average) * 0.5**shift
        count = -1 if average < least_us else count + 1
        if count == 0:
            drawn = random.random()
        if count > 0 and slope * (average - least_us) * count >= drawn:
            marked[i], count, drawn = 1, 0, random.random()
    return Marking(np.arange(rows) * 2e-3, wait, np.ones(rows, np.int64), marked, np.ones(rows, bool))


def codel_marks(interval_s=0.1, target_us=5e3, gap_s=4e-4, rows=20_000):
    """Marks by CoDel packet by packet, as Linux schedules them, of a queue that stands for seconds."""
    random = np.random.default_rng(1)
    wait, marked = 7e3 + 300 * random.random(rows), np.zeros(rows, np.int64)
    wait[:200], wait[rows // 2 : rows // 2 + 800] = 1e3, 2e3
    first, dropping, count, last, root, next_s = -1.0, False, 0, 0, 1.0, 0.0
    for i, now in enumerate(np.arange(rows) * gap_s):
        if wait[i] < target_us:
            first, dropping = -1.0, False
            continue
        first = now + interval_s if first < 0 else first
        if now < first or (dropping and now < next_s):
            continue
        marked[i] = 1
        if dropping:
            count += 1
        else:
            count = count - last if count - last > 1 and now - next_s < 16 * interval_s else 1
            dropping, last, next_s = True, count, now
        root = root * (3 - count * root * root) / 2 if count > 1 else 1.0
        next_s += interval_s * root
    return Marking(np.arange(rows) * gap_s, wait, np.ones(rows, np.int64), marked, np.ones(rows, bool))


def test_codel_is_named_by_its_schedule_where_a_sender_leaves_the_queue_standing():
    marking = codel_marks()
    assert marking.marked.sum() > 1_000
    marker = judged(marking)
    assert marker.names == ("codel",)
    assert marker.law.threshold_us == pytest.approx(5_000, rel=0.2)


@pytest.mark.parametrize(("times", "is_l4s", "names"), [(0.1, True, ()), (0.1, False, ("red",)), (1.0, True, ("red",))])
def test_an_average_below_a_millisecond_may_be_a_low_latency_step_behind_jitter(times, is_l4s, names):
    marking = red_marks(1, least_us=5e3)
    assert judged(replace(marking, wait_us=marking.wait_us * times, is_l4s=is_l4s)).names == names


@pytest.mark.parametrize("seed", range(3))
def test_red_is_named_by_its_average_and_the_even_spread_of_its_marks(seed):
    marker = judged(red_marks(seed))
    assert marker.names == ("red",)
    assert marker.law.threshold_us == pytest.approx(5_000, rel=0.25)


def test_the_chances_of_all_marks_that_red_may_set_sum_to_one():
    marking = red_marks(1, rows=400)
    first = int(np.flatnonzero(marking.wait_us > 5e3)[0])
    total = 0.0
    for place in range(first, len(marking)):
        one = np.zeros(len(marking), np.int64)
        one[place] = 1
        alone = replace(marking, marked=one).until(1)
        total += np.exp(_red_log_likelihood(alone, alone.wait_us - 5e3, 7.5e3)[-1])
    assert total == pytest.approx(1, abs=0.02)


def test_rows_are_joined_up_to_marks_and_what_is_not_known():
    marking = Marking(np.arange(6.0), np.arange(6.0), np.full(6, 2), np.array([0, 0, 1, 0, 0, 0]), np.arange(6) != 5)
    joined = marking.joined(np.zeros(6, np.int64))
    assert joined.packets.tolist() == [4, 2, 4, 2]
    assert joined.marked.tolist() == [0, 1, 0, 0]
    assert joined.time_s.tolist() == [1, 2, 4, 5]
    assert marking.until(1).time_s.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_marks_by_chance_name_no_queue_management(seed):
    assert judged(random_marking(seed)).names == ()


def test_few_marks_name_none():
    assert judged(random_marking(1, marks=4)).law is None


def test_the_chance_of_marks_by_chance_is_their_share():
    marking = random_marking(3)
    share = 60 / 8_000
    expected = 60 * np.log(share) + 7_940 * np.log1p(-share)
    assert by_chance(marking).score == pytest.approx(expected, rel=0.05)


def test_repeats_of_a_mark_by_classic_feedback_are_not_known():
    flow = marked_by(cct.Sender("reno", ecn=True), seconds=6, ecn_threshold="12.5kB")
    marking = marking_of(evidence_of(flow))
    assert flow.ecn.feedback == "classic"
    assert not marking.is_known[marking.is_known.argmin()]
    assert marking.counts[1].sum() < flow.ecn.delivered_ce
    assert marking.counts[0][~marking.is_known].sum() == 0


def test_behind_the_queue_packets_show_every_mark_and_how_long_they_waited():
    sender, path = cct.Sender("reno", ecn=True, ack_every=2), {"aqm": "red:min=12500B,max=37500B,avpkt=1500B"}
    at_sender, behind = (
        marking_of(evidence_of(marked_by(sender, side=side, **path))) for side in ("sender", "receiver")
    )
    assert behind.is_known.all()
    assert behind.marked.sum() > 1.2 * at_sender.counts[1].sum()  # further marks within an echo
    assert judged(behind).names == ("red",)
    assert judged(behind).law.threshold_us == pytest.approx(5_000, rel=0.25)


def test_marks_of_a_queue_behind_the_capture_point_are_taken_from_the_acks():
    flow = marked_by(cct.Sender("reno", ecn=True, ack_every=2), side="receiver", aqm="codel")
    flow.capture.packets["tos"][flow.capture.packets["tos"] & 3 == 3] = 2
    assert not marking_of(evidence_of(flow)).is_known.all()
    assert likely_marker(evidence_of(flow)).names == ("codel",)
