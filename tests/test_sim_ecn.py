"""ECN feedback of simulated flows: how the receiver reports marks, and what the sender makes of the reports."""

import pytest

from cctrace.errors import ArgumentError
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

PATH = Path(rate="40Mbit", rtt="20ms", buffer="4bdp", ecn_threshold="30kB")


@pytest.mark.parametrize("side", ["sender", "receiver"])
@pytest.mark.parametrize("ack_every", [1, 2])
def test_accurate_feedback_reports_every_mark_once(side, ack_every):
    sim = simulate(PATH, "cubic", "10s", ecn="accurate", ack_every=ack_every, packets=True, mode="compiled")
    found = sim.capture(side=side).flow(0).ecn
    assert found.feedback == "accurate"
    assert found.delivered_ce == sim.flows.marked[0] > 0


def test_accurate_and_classic_feedback_reduce_the_window_alike():
    classic, accurate = (simulate(PATH, "reno", "10s", ecn=ecn).flows for ecn in ("classic", "accurate"))
    assert accurate.goodput_bps[0] == pytest.approx(classic.goodput_bps[0], rel=0.02)


def test_dctcp_hears_of_each_mark():
    sim = simulate(PATH, "dctcp", "10s", ecn=True, ack_every=2, packets=True, sample="10ms", watch="dctcp_alpha")
    assert sim.capture().flow(0).ecn.delivered_ce == sim.flows.marked[0]
    assert sim.timeline.dctcp_alpha[500:].mean() < 512
    assert sim.link["utilisation"] > 0.97
    assert not sim.notes


def test_with_accurate_feedback_retransmissions_are_ecn_capable_too():
    path = Path(rate="20Mbit", rtt="20ms", buffer="2bdp", loss="1%")
    sent = {
        ecn: simulate(path, "cubic", "5s", ecn=ecn, packets=True).capture().flow(0).ecn.sent
        for ecn in ("classic", "accurate")
    }
    assert sent["accurate"]["not_ect"] == 0 < sent["classic"]["not_ect"]


@pytest.mark.parametrize("flow", [Sender("reno", ecn="accurate"), Sender("dctcp", ecn=True)])
def test_interpreted_and_compiled_runs_agree(flow):
    path = Path(
        rate="5Mbit", rtt="10ms", buffer="30kB", aqm="dualpi2", loss="1%", jitter="normal:sd=1ms,reorder", ack_loss="5%"
    )
    runs = [simulate(path, [flow, "cubic"], "600ms", 2, mode=mode) for mode in ("compiled", "debug")]
    assert runs[0].flows.equals(runs[1].flows)
    assert runs[0].flows.marked[0] > 0


def test_unknown_feedback_is_refused():
    with pytest.raises(ArgumentError, match="True, classic or accurate"):
        Sender("cubic", ecn="AccECN")
