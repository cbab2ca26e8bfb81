"""Of rival explanations of losses the one is taken over which a simulation does what was recorded."""

import pytest

import cctrace as cct
from cctrace.counterfactual.constants import MIN_DEVIANCE_GAIN
from cctrace.counterfactual.effects import effects_of
from cctrace.counterfactual.flow_model import model_of
from cctrace.counterfactual.path_likelihood import deviances, likeliest_path, trajectory_of
from cctrace.counterfactual.runs import Runs
from cctrace.fit.fitted_path import FittedPath
from cctrace.fit.rivals import AS_INFERRED, CHANCE, CODEL_AND_CHANCE, TAIL_DROPS, rivals_of
from cctrace.path.evidence import evidence_of
from cctrace.path.transmissions import as_flow


def model(path, cc, seconds=8):
    flow = as_flow(cct.simulate(cct.Path(**path), cc, f"{seconds}s", 3, packets=True, ack_every=2))
    found, evidence = model_of(flow, cc, None, lambda line: None), evidence_of(flow)
    return found, trajectory_of(flow.rtt_samples, evidence.transmissions), evidence


SHALLOW = {"rate": "20Mbit", "rtt": "40ms", "buffer": "0.5bdp"}
LOSSY = {"rate": "20Mbit", "rtt": "40ms", "buffer": "2bdp", "loss": "0.5%"}


@pytest.mark.parametrize(
    ("path", "cc", "seconds", "wrong"), [(SHALLOW, "bbr2022", 3, CHANCE), (LOSSY, "cubic6", 8, TAIL_DROPS)]
)
def test_what_dropped_packets_shows_in_what_a_simulation_over_it_does(path, cc, seconds, wrong):
    found = deviances(*model(path, cc, seconds))
    assert found[wrong][1] > found[AS_INFERRED][1] + MIN_DEVIANCE_GAIN


def test_losses_that_avoid_short_queues_are_not_all_random():
    right, _, evidence = model({"rate": "5Mbit", "rtt": "20ms", "buffer": "8kB"}, "reno")
    assert evidence.backlogs.chance < 1e-6
    assert CHANCE not in rivals_of(right.path, evidence)
    right, _, evidence = model(LOSSY, "cubic6")
    assert evidence.backlogs.chance > 0.01
    managed = FittedPath.of(right.path.estimates | {"aqm": "other"})
    assert rivals_of(managed, evidence)[CHANCE].estimates["loss"]["random"] == evidence.backlogs.lost.sum()


def test_a_wrong_split_of_losses_is_replaced():
    right, recorded, evidence = model(SHALLOW, "bbr2022", 3)
    wrong = rivals_of(right.path, evidence)[CHANCE]
    mistaken = type(right)(**{**vars(right), "path": wrong})
    path = likeliest_path(mistaken, recorded, evidence)
    assert path.estimates["loss"]["model"] == "none"
    assert path.buffer_bytes == pytest.approx(50_000, rel=0.1)


def test_losses_of_packets_that_hardly_waited_are_chances_beside_an_unknown_queue_management():
    managed = {"rate": "20Mbit", "rtt": "30ms", "buffer": "4bdp", "aqm": "codel", "loss": "0.2%"}
    right, _, evidence = model(managed, "bbr3")
    unknown = FittedPath.of(right.path.estimates | {"aqm": "other"})
    both = rivals_of(unknown, evidence)[CODEL_AND_CHANCE]
    assert both.aqm == "codel"
    share = both.estimates["loss"]["share"]
    assert share.low < 0.002 < share.high


def test_draws_are_those_with_which_a_flow_had_the_luck_of_the_recorded_one():
    found = model(LOSSY, "cubic6")[0]
    recorded = found.recorded["goodput_bps"]
    of_any, of_this = (Runs(found, 6, 1, tries=tries).original["goodput_bps"] for tries in (1, 4))
    assert of_this.low < recorded < of_this.high
    assert of_this.high - of_this.low < (of_any.high - of_any.low) / 2


def test_one_explanation_needs_no_simulation():
    found = deviances(*model({"rate": "20Mbit", "rtt": "40ms", "buffer": "8bdp"}, "bbr2022", 3))
    assert list(found) == [AS_INFERRED]


def test_a_course_counts_what_the_capture_counts():
    _, course, evidence = model(LOSSY, "cubic6", 4)
    table = evidence.transmissions
    assert course.retransmitted[-1] == pytest.approx(table.retransmitted.sum(), abs=2)
    assert course.rtt_mean_us == pytest.approx(evidence.capture.flow(0).rtt["rtt_us"].mean())
    assert (course.delivered[1:] >= course.delivered[:-1]).all()


@pytest.mark.parametrize("is_step", [False, True])
def test_a_flow_that_the_capture_lacks_is_told_from_a_rate_that_fell(is_step, tmp_path):
    path = {"rate": [(0, "16Mbit"), (5, "10Mbit")] if is_step else "16Mbit", "rtt": "30ms", "buffer": "2bdp"}
    senders = [cct.Sender("bbr2022", ack_every=2), cct.Sender("cubic6", ack_every=2, start="5s")]
    sim = cct.simulate(cct.Path(**path), senders[: 1 if is_step else 2], "12s", 3, packets=True)
    sim.to_pcap(tmp_path / "sender.pcap", flow=0)
    flow = cct.read(tmp_path / "sender.pcap").flow(0)
    diagnosis = cct.diagnose(flow)
    assert "rate_change" in [one.name for one in diagnosis.verdicts]
    found = model_of(flow, "bbr2022", diagnosis, lambda line: None)
    if is_step:
        assert not found.other_senders
        return
    assert found.others_hypothetical
    alone = cct.simulate(cct.Path(**path), senders[:1], "12s", 3).flows["goodput_bps"][0]
    effects = effects_of(flow, diagnosis, "bbr2022", draws=4)
    first = effects.joined(diagnosis).verdicts[0]
    assert first.name == "competition"
    assert first.effect.goodput.value == pytest.approx(alone / sim.flows["goodput_bps"][0], rel=0.1)
