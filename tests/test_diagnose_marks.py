"""Marks (ECN) as the cause, the limit and the events of a flow."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.facts import PACKETS, POLLS, Facts
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.groups import EcnMarks, Losses
from cctrace.diagnosis.order import verdict_of
from cctrace.diagnosis.rules import judge
from cctrace.path.markers import Marker

LINK = {"rate": "20Mbit", "rtt": "40ms", "buffer": "4bdp"}


def found(ecn, cc="cubic", **path):
    """The diagnosis of a simulated flow."""
    sender = cct.Sender(cc=cc, ecn=ecn)
    flow = cct.simulate(cct.Path(**LINK | path), sender, "8s", seed=4, packets=True).capture().flow(0)
    return flow, cct.diagnose(flow, controller="bbr" if cc.startswith("bbr") else cc)


@pytest.mark.parametrize("path", [{"aqm": "codel"}, {"ecn_threshold": "30kB"}])
@pytest.mark.parametrize("cc", ["cubic", "reno"])
def test_a_flow_whose_window_marks_cut_is_told_so_first(path, cc):
    flow, diagnosis = found(True, cc, **path)
    assert flow.ecn.feedback == "classic"
    assert diagnosis.cause == "ecn_marking"
    assert shares(diagnosis.limits)["marks"] > 0.01
    assert [event for event in diagnosis.events if event.name == "marks"]
    assert "cut the window" in diagnosis.verdict


@pytest.mark.parametrize(("cc", "seconds"), [("reno", 20), ("cubic6", 8)])
def test_marks_that_end_slow_start_are_the_cause_while_the_window_grows_back(cc, seconds):
    path = cct.Path(rate="50Mbit", rtt="120ms", buffer="4bdp", aqm="codel")
    sim = cct.simulate(path, cct.Sender(cc, ecn=True, ack_every=2), f"{seconds}s", seed=7, packets=True)
    first = cct.diagnose(sim.capture().flow(0), controller=cc).verdicts[0]
    assert first.name == "ecn_marking"
    assert "the window grew back" in first.text
    assert "BBR regains" in first.advice


def test_few_marks_before_a_window_that_stays_are_not_the_cause():
    assert judged(reductions=1, ramp_s=1.0, ramp_end_s=9.0) == pytest.approx(0.6)
    assert judged(reductions=1, ramp_s=1.0, ramp_end_s=9.0, loss_episodes=1) is None
    assert judged(reductions=1) is None


def test_a_sender_that_paces_itself_below_the_threshold_of_marks_has_no_pacing_limit():
    """Prague's window oscillates below DualPI2's step, so that it often sends evenly and without a queue."""
    path = cct.Path(rate="5Mbit", rtt="160ms", buffer="200packets", aqm="dualpi2")
    sim = cct.simulate(path, "prague2020", "12s", ecn="accurate", ack_every=2, seed=3, packets=True)
    found = cct.diagnose(sim.capture().flow(0), controller="prague2020")
    assert found.cause == "ecn_marking"
    assert "pacing_limited" not in {one.name for one in found.verdicts}


def test_counters_that_were_given_are_not_asked_for():
    for given, words in ((False, "would tell"), (True, "do not tell either")):
        (unknown,) = judge(Facts(PACKETS, 10.0, 1e6, has_counters=given))
        assert words in verdict_of(unknown).advice


def test_the_verdict_says_which_queue_management_marks_and_from_which_queue_on():
    path = cct.Path(rate="20Mbit", rtt="20ms", buffer="8bdp", ecn_threshold="12.5kB")
    flow = cct.simulate(path, cct.Sender("reno", ecn=True), "15s", seed=4, packets=True).capture().flow(0)
    first = cct.diagnose(flow, controller="reno").verdicts[0]
    assert "come from a step" in first.text
    evidence = first.evidence
    assert evidence["threshold_us_low"] <= evidence["threshold_us"] <= evidence["threshold_us_high"]
    assert evidence["threshold_us"] == pytest.approx(5_000, rel=0.15)


def test_marks_that_several_queues_explain_name_no_single_one():
    marks = {"reported": 90, "marked": 90.0, "marked_share": 0.01, "reductions": 6, "loss_episodes": 0, "span": (0, 9)}
    marks |= {"longest_pause_share": 0.3, "queue_us": 5e3, "is_l4s": False}
    for names, words in ((("red", "pie"), "explain these marks"), ((), "remains unknown")):
        (found,) = judge(Facts(PACKETS, 10.0, 1e6, ecn_marks=EcnMarks(**marks, likely_marker=Marker(names, None))))[:1]
        assert words in verdict_of(found).text
        assert "These marks come" not in verdict_of(found).text


@pytest.mark.parametrize(
    ("names", "is_l4s", "advised"), [(("pie",), True, True), (("step",), True, False), (("pie",), False, False)]
)
def test_dualpi2_is_advised_to_an_l4s_sender_whose_queue_is_not_one(names, is_l4s, advised):
    marks = {"reported": 90, "marked": 90.0, "marked_share": 0.01, "reductions": 6, "loss_episodes": 0, "span": (0, 9)}
    marks |= {"longest_pause_share": 0.3, "queue_us": 5e3, "is_l4s": is_l4s}
    (found,) = judge(Facts(PACKETS, 10.0, 1e6, ecn_marks=EcnMarks(**marks, likely_marker=Marker(names, None))))[:1]
    assert ("DualPI2 would mark" in verdict_of(found).advice) == advised


@pytest.mark.parametrize(("loss_episodes", "shallow"), [(1, False), (2, True)])
def test_one_overflow_among_many_marks_is_no_shallow_buffer(loss_episodes, shallow):
    """As where the rate falls at once: the queue, which marks keep short, then has no room for what is in flight."""
    marks = {"reported": 900, "marked": 900.0, "marked_share": 0.03, "reductions": 45, "loss_episodes": loss_episodes}
    marks |= {"longest_pause_share": 0.3, "queue_us": 1e3, "is_l4s": True, "span": (0.0, 9.0)}
    lost = Losses(300, 30_000.0, 0.01, (4.0, 4.1), 0.99, loss_episodes, 6e3, 80e3, lambda: True)
    causes = {one.name for one in judge(Facts(PACKETS, 10.0, 1e6, ecn_marks=EcnMarks(**marks), losses=lost))}
    assert "ecn_marking" in causes
    assert ("shallow_buffer" in causes) == shallow


@pytest.mark.parametrize("path", [{"aqm": "codel"}, {"buffer": "1bdp"}])
def test_a_flow_without_marks_is_never_told_so(path):
    for ecn in (False, True) if "aqm" not in path else (False,):
        _, diagnosis = found(ecn, **path)
        assert "ecn_marking" not in {one.name for one in diagnosis.verdicts}
        assert "marks" not in shares(diagnosis.limits)
        assert not [event for event in diagnosis.events if event.name == "marks"]


def test_a_controller_that_ignores_marks_is_not_held_by_them():
    flow, diagnosis = found(True, "bbr2022", ecn_threshold="60kB")
    assert flow.ecn.delivered_ce > 0
    assert "ecn_marking" not in {one.name for one in diagnosis.verdicts}


@pytest.mark.parametrize(("heeds", "name"), [(1, "ecn_marking"), (0, "path_full")])
def test_a_bbr_that_heeds_marks_is_held_by_them(heeds, name):
    path = cct.Path(rate="30Mbit", rtt="4ms", buffer="200packets", ecn_threshold="8kB")
    sender = cct.Sender(f"bbr3:ecn_enable={heeds}", ecn=True, ack_every=2)
    flow = cct.simulate(path, sender, "4s", seed=1, packets=True).capture().flow(0)
    causes = {one.name for one in cct.diagnose(flow, controller="bbr3").verdicts}
    assert name in causes
    assert ("ecn_marking" in causes) == bool(heeds)


def judged(kind=PACKETS, **changes):
    """The confidence of ecn_marking for some marks, None without the verdict."""
    marks = {"reported": 90, "marked": 90.0, "marked_share": 0.01, "reductions": 6, "loss_episodes": 0}
    marks |= {"longest_pause_share": 0.3, "queue_us": 5e3, "is_l4s": False, "span": (0.0, 9.0)}
    facts = Facts(kind, 10.0, 1e6, ecn_marks=EcnMarks(**marks | changes))
    return {one.name: one.confidence for one in judge(facts)}.get("ecn_marking")


@pytest.mark.parametrize("kind", [PACKETS, POLLS])
def test_how_sure_it_is_follows_how_often_marks_and_losses_cut_the_window(kind):
    assert judged(kind) > judged(kind, reductions=3) > 0.6
    assert judged(kind, loss_episodes=4) < 0.6
    assert judged(kind, loss_episodes=7) is None
    assert judged(kind, reductions=1) is None
    assert judged(kind, longest_pause_share=0.9) is None
    assert judged(kind, longest_pause_share=0.9, reductions=20) == pytest.approx(0.5)  # in a short part
    assert judged(kind, is_heeded=False) is None


def test_counters_tell_of_marks_as_packets_do(tmp_path):
    rows = ["time_ns,time_after_ns,tcpi_state,tcpi_snd_cwnd,tcpi_rtt,tcpi_min_rtt,tcpi_snd_mss,tcpi_bytes_acked"]
    rows[0] += ",tcpi_delivered,tcpi_delivered_ce,tcpi_total_retrans,tcpi_unacked,tcpi_ca_state"
    for i in range(100):
        got, state = 1000 * i, 2 if i % 10 == 5 else 0
        numbers = (10**18 + i * 10**8, 10**18 + i * 10**8 + 1000, 1, 100, 45000, 40000, 1448, got * 1448)
        rows.append(",".join(map(str, (*numbers, got, 20 * ((i + 5) // 10), 0, 100, state))))
    (tmp_path / "tcpinfo.csv").write_text("\n".join(rows))
    diagnosis = cct.diagnose(cct.read(tmp_path / "tcpinfo.csv").flow(0), controller="cubic")
    told = {one.name: one for one in diagnosis.verdicts}["ecn_marking"]
    assert told.evidence["reductions"] == 10
    assert told.evidence["queue_us"] == pytest.approx(5000)
    assert np.isclose(shares(diagnosis.limits)["marks"], 0.1, atol=0.03)


def test_losses_of_a_queue_that_could_have_marked_are_not_told_to_want_ecn():
    _, diagnosis = found(False, aqm="codel")
    (told,) = [one for one in diagnosis.verdicts if one.name == "aqm"]
    assert "with ECN on both ends it could mark" in told.advice
    facts = Facts(PACKETS, 10.0, 1e6, has_ecn=True)
    assert "but the AQM drops" in verdict_of(facts.finding("aqm", 0.9, {}).saying(has_ecn=facts.has_ecn)).advice


@pytest.mark.parametrize("ecn", [False, "classic"])
def test_drops_of_a_full_queue_alone_are_not_taken_for_management(ecn):
    path = cct.Path(rate="40Mbit", rtt="40ms", buffer="1bdp")
    sim = cct.simulate(path, "cubic6", "25s", seed=63, ecn=ecn, ack_every=2, packets=True)
    names = [one.name for one in cct.diagnose(sim.capture().flow(0), controller="cubic6").verdicts]
    assert "congestive_loss" in names
    assert "aqm" not in names


def test_behind_the_queue_the_verdict_counts_classic_marks():
    path = cct.Path(**LINK, aqm="codel")
    sim = cct.simulate(path, cct.Sender("reno", ecn=True), "8s", seed=4, packets=True)
    for side, words in (("sender", "marked packets instead"), ("receiver", "segments (")):
        found = cct.diagnose(sim.capture(side=side).flow(0), controller="reno").verdicts[0]
        assert found.name == "ecn_marking"
        assert words in found.text
