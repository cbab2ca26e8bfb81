"""Replaying recorded flows: what the kernel logged is the judge."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace import datasets
from cctrace.cc.bbr1_model import CYCLE_LEN
from cctrace.errors import ArgumentError
from cctrace.flows.capture import Capture, read
from cctrace.flows.events import Events
from cctrace.io.captures.packets import Packets
from cctrace.replaying.inference.ahead import LEFT, Ahead
from cctrace.replaying.inference.cycle import Cycle
from cctrace.replaying.run import replay
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE, near_peer_bytes, tso_autosize


@pytest.fixture(scope="module")
def flows():
    def recorded(name):
        folder = datasets.path(name)
        return read(folder / "sender.pcap.zst").flow(0).attach(read(folder / "tcpinfo.csv.zst"))

    return {name: recorded(name) for name in ("jitter_bbr_sd2ms", "single_bbr_1bdp")}


@pytest.fixture(scope="module")
def comparisons(flows):
    return {name: replay(flow, "bbr2022").compare() for name, flow in flows.items()}


def test_a_lossless_replay_has_the_bandwidth_of_the_kernel(comparisons):
    # Nothing hides a sample where nothing is lost; what remains are samples taken while the machine stood still.
    assert comparisons["jitter_bbr_sd2ms"].share_within("bw", rel=1e-3) >= 0.95


def test_a_replay_through_losses_has_the_bandwidth_of_the_kernel(comparisons):
    assert comparisons["single_bbr_1bdp"].share_within("bw", rel=1e-2) >= 0.95


@pytest.mark.parametrize("name", ["jitter_bbr_sd2ms", "single_bbr_1bdp"])
def test_the_replayed_min_rtt_is_the_kernels(comparisons, name):
    assert comparisons[name].share_within("min_rtt", rel=1e-2) >= 0.99


@pytest.mark.parametrize("name", ["jitter_bbr_sd2ms", "single_bbr_1bdp"])
def test_the_gain_cycle_inferred_from_the_sends_is_the_kernels(comparisons, name):
    comparison = comparisons[name]
    assert comparison.share_within("pacing_gain", absolute=1e-6, slack_polls=1) >= 0.95
    assert comparison.locked >= 0.8


def test_without_the_inferred_phase_the_gain_cycle_is_out_of_step(flows, comparisons):
    flow = flows["jitter_bbr_sd2ms"]
    unseen = SimpleNamespace(events=Events(flow.events.rows, flow.facts), hz=flow.hz)  # no sends: every draw is 0
    gains = replay(unseen, "bbr2022").decisions["pacing_gain"].to_numpy() / 256
    inferred = comparisons["jitter_bbr_sd2ms"].model["pacing_gain"]
    assert np.mean(gains == inferred) < 0.8


def test_a_cycle_that_fell_out_of_step_is_brought_back_by_the_sends(flows, monkeypatch):
    # One shift of a minimum RTT on purpose, in the middle of nowhere: the following cycles must undo it.
    flow = flows["jitter_bbr_sd2ms"]
    flow = flow.attach(flow.tcpinfo)  # of which nothing has been inferred yet
    undisturbed, ahead = Cycle.keep_in_step, Ahead.run
    cycles = []

    def disturb(self):
        cycles.append(self.follower.row)
        if len(cycles) == 20:
            self.edit("cycle_mstamp", self.follower.get("min_rtt_us"))
        else:
            undisturbed(self)

    monkeypatch.setattr(Cycle, "keep_in_step", disturb)
    monkeypatch.setattr(Ahead, "run", lambda self: ahead(self) if len(cycles) >= 20 else LEFT)
    run = replay(flow, "bbr2022", hz=flow.hz)  # given, so that nothing is inferred twice
    shifts = [p for p in run.inferred.phases if p.choice is None and p.row > cycles[19]]
    now_us, three_us = run.source.events.now_us, 3 * CYCLE_LEN * run.state["min_rtt_us"]
    assert now_us[shifts[0].row] - now_us[cycles[19]] < three_us
    assert run.compare().share_within("pacing_gain", absolute=1e-6, slack_polls=1) >= 0.95


@pytest.mark.parametrize("controller", ["bbr2022", "bbr3", "cubic6"])
def test_what_was_inferred_once_is_replayed_as_when_it_was(controller):
    flow = read(datasets.path("single_bbr_1bdp") / "sender.pcap.zst").flow(0)
    first, again = (replay(flow, controller) for _ in range(2))
    assert again.inferred.script == first.inferred.script
    assert again.state == first.state
    assert all(np.array_equal(again.columns[name], column) for name, column in first.columns.items())


def test_what_was_inferred_with_other_parameters_does_not_count():
    flow = read(datasets.path("single_bbr_1bdp") / "sender.pcap.zst").flow(0)
    replay(flow, "bbr2022")
    assert replay(flow, "bbr2022", up_pacing_gain=1.5).inferred.phases != replay(flow, "bbr2022").inferred.phases


def test_super_packets_are_as_large_as_the_logged_pacing_rate_makes_them(flows):
    flow = flows["jitter_bbr_sd2ms"]
    info, sends = flow.tcpinfo, flow.sends
    first = np.flatnonzero(sends["begins"])
    sizes = np.add.reduceat(sends["segments"].to_numpy(), first)
    poll_us = (info["time_after_ns"] - flow.facts["start_ns"]) / 1000 + 1_000_000
    begins_us = sends["tx_ns"].to_numpy()[first] / 1000
    following = np.searchsorted(begins_us, poll_us)
    soon = (following < len(first)) & (info["pacing_rate_Bps"] > 0)
    soon[soon] &= begins_us[following[soon]] - poll_us[soon] < 1_000
    more = near_peer_bytes(SK_GSO_MAX_SIZE, 20_000)
    made = [tso_autosize(int(rate), more, 1448, 2) for rate in info["pacing_rate_Bps"][soon]]
    assert len(set(made)) > 2
    assert np.mean(sizes[following[soon]] == made) > 0.95  # the others cwnd cut short


def test_a_capture_from_mid_flow_learns_from_the_first_probe_rtt_when_the_minimum_expired():
    folder = datasets.path("single_bbr_1bdp")
    packets = read(folder / "sender.pcap.zst").packets
    later = packets["time_ns"] > packets["time_ns"][0] + 4 * 10**9
    columns = {name: column[later] for name, column in packets.columns.items()}
    unknown = ("mss_a", "mss_b", "wscale_a", "wscale_b", "sack_ok")
    table = packets.connections | {name: np.full_like(packets.connections[name], -1) for name in unknown}
    part = Packets(columns, packets.sacks, table, source="from 4 s on")
    flow = Capture(part).flow(0).attach(read(folder / "tcpinfo.csv.zst"))
    assert not flow.facts["complete"]
    comparison = replay(flow, "bbr2022").compare()
    # The kernel renews its minimum 10 s after the beginning of the connection, not of the capture.
    probing = np.flatnonzero(comparison.frame()["cwnd_gain_kernel"] == 1.0)
    probing = probing[probing < probing[0] + 100]
    agrees = comparison.agrees("cwnd_gain", absolute=1e-6, slack_polls=1)
    assert agrees[probing].mean() >= 0.9
    assert agrees.mean() >= 0.95


def test_the_recorded_kernels_hz_is_used_unless_another_is_given(flows):
    flow = flows["jitter_bbr_sd2ms"]
    assert replay(flow, "bbr2022").params["hz"] == flow.hz == 250
    assert replay(flow, "bbr2022", hz=1000).params["hz"] == 1000


@pytest.mark.parametrize("unmeasured_Bps", [0, 1])
def test_a_bandwidth_that_the_kernel_never_measured_is_not_compared(flows, monkeypatch, unmeasured_Bps):
    """BBRv2 and v3 report 1 byte/s before the first sample, v1 reports 0; the replay has none yet (335006)."""
    comparison = replay(flows["jitter_bbr_sd2ms"], "bbr2022").compare()
    assert "bw" in comparison.quantities
    column = comparison._info.columns["bbr_bw_Bps"]
    monkeypatch.setitem(comparison._info.columns, "bbr_bw_Bps", np.full_like(column, unmeasured_Bps))
    assert "bw" not in comparison.quantities
    assert "min_rtt" in comparison.quantities


def test_a_flow_without_counters_cannot_be_compared(flows):
    bare = read(datasets.path("single_bbr_1bdp") / "sender.pcap.zst").flow(0)
    with pytest.raises(ArgumentError, match="attach"):
        replay(bare, "bbr2022").compare()


def test_a_quantity_that_the_controller_lacks_is_refused_by_name(flows):
    comparison = replay(flows["single_bbr_1bdp"], "cubic6").compare()
    with pytest.raises(ArgumentError, match="'bw' cannot be compared here"):
        comparison.share_within("bw", rel=0.01)


@pytest.mark.parametrize("name", ["bbr2016", "bbr2", "bbr3", "quic_bbr", "obbr"])
def test_every_controller_that_measures_the_bandwidth_paces_at_the_bottlenecks_rate(flows, name):
    decisions = replay(flows["single_bbr_1bdp"], name).decisions
    wire_Bps = 40e6 / 8  # scenario.json
    typical = decisions["pacing_rate"].iloc[len(decisions) // 2 :].median()
    assert 0.97 * wire_Bps * 1448 / 1500 <= typical <= 1.02 * wire_Bps  # payload, less a margin of 1 %, or all bytes


@pytest.mark.parametrize("name", ["cubic6", "reno"])
def test_without_losses_the_window_of_a_loss_based_controller_only_grows(flows, name):
    flow = flows["single_bbr_1bdp"]
    decisions = replay(flow, name).decisions
    later = decisions.iloc[len(decisions) // 2 :]
    assert np.ptp(flow.events["lost"][flow.events["time_ns"] >= later["time_ns"].iloc[0]]) == 0
    assert (later["snd_cwnd"].diff().iloc[1:] >= 0).all()
    assert later["snd_cwnd"].iloc[-1] > later["snd_cwnd"].iloc[0] + 50  # 10 s of 40 to 80 ms, a segment each


def test_a_replay_records_what_is_asked_for_whatever_it_needs_itself(flows):
    assert "bw_v[0]" in replay(flows["single_bbr_1bdp"], "bbr2022", record=["bw_v[0]"]).decisions


def test_a_replay_in_which_a_wait_was_chosen_again_has_the_decisions_of_its_inferred_values():
    """A wait that PROBE_RTT cut off is tried again; what was recorded on the way was of the last one tried."""
    flow = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    compiled, interpreted = (replay(flow, "bbr2", mode=mode, record="all") for mode in ("compiled", "interpreted"))
    for name in compiled.decisions:
        assert compiled.decisions[name].equals(interpreted.decisions[name]), name
