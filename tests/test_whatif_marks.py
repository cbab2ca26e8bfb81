"""What-ifs about marks (ECN): the inferred queue marks as the recorded one did; another one, or none, is simulated."""

import pytest

import cctrace as cct
from cctrace.counterfactual.effects import effects_of
from cctrace.counterfactual.path_changes import alike, changed

LINK = {"rate": "20Mbit", "rtt": "20ms", "buffer": "4bdp"}


def simulated(**path):
    """CUBIC with classic feedback over a link of 20 Mbit/s."""
    sender = cct.Sender("cubic6", ecn=True, ack_every=2)
    return cct.simulate(cct.Path(**LINK | path), sender, "15s", seed=9, packets=True)


@pytest.fixture(scope="module")
def marked():
    return simulated(ecn_threshold="12.5kB").capture().flow(0)


@pytest.mark.parametrize("by", [None, "red:min=20kB,max=60kB"], ids=["a step", "RED"])
def test_another_queue_management_gives_what_it_does_on_the_true_path(marked, by):
    marked = simulated(aqm=by).capture().flow(0) if by else marked
    truth = simulated(aqm="pie:target=5ms").flows.iloc[0]
    found = cct.whatif(marked, own="cubic6", draws=4, aqm="pie:target=5ms")
    assert found.reproduces
    answer = found.candidates["cubic6"]
    for name, value in (("goodput_bps", truth.goodput_bps), ("rtt_mean_us", truth.tail_rtt_mean_us)):
        assert answer[name].low * 0.95 < value < answer[name].high * 1.05


def test_what_marks_cost_is_the_difference_to_a_queue_that_marks_nothing(marked):
    effect = (
        effects_of(marked, cct.diagnose(marked, controller="cubic6"), "cubic6", draws=4).causes["ecn_marking"].effect
    )
    truth = simulated().flows.goodput_bps[0] / marked.row["goodput_bps"]
    assert effect.without == "a plain queue that does not mark"
    assert effect.goodput.low * 0.95 < truth < effect.goodput.high * 1.05
    assert effect.rtt.high is None  # a queue that never overflowed may be of any length


def test_marks_of_a_queue_that_cannot_be_told_have_no_effect_for_the_path_does_not_reproduce_them():
    flow = simulated(aqm="dualpi2").capture().flow(0)
    diagnosis = cct.diagnose(flow, controller="cubic6")
    assert "does not reproduce the recording" in effects_of(flow, diagnosis, "cubic6", draws=4).unlike


def test_another_queue_management_takes_the_place_of_a_threshold_of_marks():
    path = cct.Path(**LINK, ecn_threshold="30kB")
    assert changed(path, {"aqm": "droptail"}).ecn_threshold is None
    assert changed(path, {"loss": "1%"}).ecn_threshold == "30kB"
    assert not alike(path, changed(path, {"aqm": "droptail"}))
