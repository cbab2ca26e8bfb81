"""The IETF's BBR draft: its functions are all there, and the cases where its text decides are decided by it."""

import inspect
import re
from types import SimpleNamespace

import pytest
from build_stack import Stack

import cctrace as cct
from cctrace.cc import bbr_draft, bbr_draft_bounds, bbr_draft_model
from cctrace.cc.bbr2_model import DOWN, PROBE_BW, REFILL, UNSET, UP
from cctrace.cc.bbr_draft import BBRDraft
from cctrace.cc.bbr_draft_quic import BBRDraftQuic
from cctrace.cc.compare import counterparts
from cctrace.cc.linux import CA_OPEN, CA_RECOVERY

# The functions of the draft's pseudocode in section 5 (the rate samples of section 4 are the stack's).
FUNCTIONS = """
AdaptLongTermModel AdaptLowerBoundsFromCongestion AdvanceLatestDeliverySignals AdvanceMaxBwFilter BDPMultiple
BoundBWForModel BoundCwndForModel BoundCwndForProbeRTT CheckDrainDone CheckFullBWReached CheckProbeRTT
CheckProbeRTTDone CheckStartupDone CheckStartupHighLoss EnterDrain EnterProbeBW EnterProbeRTT EnterStartup
ExitProbeRTT GenerateRateSample HandleInflightTooHigh HandleLostPacket HandleProbeRTT HandleRestartFromIdle
HandleSpuriousLossDetection HasElapsedInPhase InLossRecovery Inflight InflightAtLoss InflightWithHeadroom
InitLowerBounds InitPacingRate InitRoundCounting IsInAProbeBWState IsInflightTooHigh IsProbingBW
IsRenoCoexistenceProbeTime IsTimeToCruise IsTimeToGoDown IsTimeToProbeBW LossLowerBounds MarkConnectionAppLimited
NoteLoss OnEnterFastRecovery OnEnterRTO OnInit OnTransmit PickProbeWait ProbeInflightLongtermUpward ProbeRTTCwnd
QuantizationBudget RaiseInflightLongtermSlope ResetCongestionSignals ResetFullBW ResetShortTermModel RestoreCwnd
SaveCwnd SaveStateUponLoss SetCwnd SetPacingRate SetPacingRateWithGain SetSendQuantum StartProbeBW_CRUISE
StartProbeBW_DOWN StartProbeBW_REFILL StartProbeBW_UP StartRound TargetInflight UpdateACKAggregation
UpdateCongestionSignals UpdateControlParameters UpdateLatestDeliverySignals UpdateMaxBw UpdateMaxInflight
UpdateMinRTT UpdateModelAndState UpdateOffloadBudget UpdateOnACK UpdateProbeBWCyclePhase UpdateRound
"""


def test_every_function_of_the_pseudocode_stands_beside_its_section():
    text = "".join(inspect.getsource(module) for module in (bbr_draft, bbr_draft_bounds, bbr_draft_model))
    cited = set(re.findall(r"\w+", " ".join(re.findall(r"# ([45]\.[\d., ]* [^\n]*)", text))))
    cited |= set(re.findall(r"# (MarkConnectionAppLimited)", text))
    assert sorted(set(FUNCTIONS.split()) - cited) == []


def test_interpreted_and_compiled_runs_agree_to_the_last_digit():
    path = cct.Path(rate="3Mbit", rtt="30ms", buffer="1bdp", loss="1%")
    both = [cct.simulate(path, "bbr_draft", "4s", seed=3, mode=mode).flows for mode in ("interpreted", "compiled")]
    assert both[0].equals(both[1])


def probing_up():
    """Return a flow in ProbeBW_UP at 100 segments of BDP, none lost yet."""
    stack = Stack(BBRDraft)
    stack.call("init", srtt_us8=8 * 40_000)
    stack.cc.snd_cwnd = 200
    for _ in range(8):
        stack.round(100, 40_000)
    assert stack.cc.full_bw_reached
    for _ in range(80):
        if stack.cc.mode == PROBE_BW and stack.cc.cycle_idx == UP:
            return stack
        stack.round(100, 40_000, packets_out=50)
    raise AssertionError("the flow never probed")


def lose(stack, packets):
    """Mark packets of the flight lost, one after the other, and enter recovery."""
    for _ in range(packets):
        stack.ack.lost += 4
        stack.call("skb_marked_lost", skb_tx_in_flight=120, skb_tx_lost=0, skb_segments=4, ca_state=CA_OPEN)
    stack.call("ssthresh")
    stack.call("set_state", arg=CA_RECOVERY)
    stack.set(ca_state=CA_RECOVERY)


@pytest.mark.parametrize("packets", [1, 2, 5])
def test_a_spurious_recovery_that_ended_a_probe_restarts_it(packets):
    stack = probing_up()
    stack.ack.lost = 0
    lose(stack, packets)
    assert (stack.cc.mode, stack.cc.cycle_idx) == (PROBE_BW, DOWN)
    assert stack.cc.inflight_longterm < UNSET
    stack.call("undo_cwnd")
    assert (stack.cc.mode, stack.cc.cycle_idx) == (PROBE_BW, REFILL)
    assert stack.cc.inflight_longterm == UNSET


def test_the_flight_at_loss_is_where_losses_reach_two_percent():
    draft = BBRDraft()
    # 10 of 400 are lost with the last 10, none before: 2 % of 390 + x is reached at x = 7.8 / 0.98.
    assert draft.inflight_at_loss(10, 400, 10) == int(390 + 0.02 * 390 / 0.98)


def test_quic_has_room_for_one_quantum_for_offloaded_sends_and_for_what_is_not_acknowledged():
    ack = SimpleNamespace(mss=1000)
    offload, frequency = {"pacing_offload_us": 3000}, {"ack_threshold": 10}
    for given, budget in (({}, 2), (offload, 5), (frequency, 12), ({"ack_threshold": 99}, 27)):
        quic = BBRDraftQuic(**given)
        quic.send_quantum, quic.pacing_rate, quic.max_bw = 1500, 1_000_000, 1_000_000.0
        quic.update_offload_budget(ack)
        assert quic.offload_budget == budget, given


def test_the_release_is_shown_beside_the_draft_from_either_side():
    here, there = counterparts("bbr_draft", "bbr3"), counterparts("bbr3", "bbr_draft")
    assert [row.here for row in here] == [row.there for row in there]
    drain = next(row for row in here if row.what == "drain gain")
    assert (BBRDraft.params["drain_pacing_gain"].default, drain.function) == (0.5, "bbr_pacing_gain, bbr_drain_gain")
    assert counterparts("bbr_draft", "cubic") == []
