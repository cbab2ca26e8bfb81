"""Replaying recorded flows: what the kernel logged is the judge."""

import numpy as np
import pytest

from cctrace import datasets, schema
from cctrace.errors import ArgumentError
from cctrace.flows.capture import Capture, read
from cctrace.io.packets import Packets
from cctrace.replaying import phase
from cctrace.replaying.run import replay


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
    view = flow.view("linux", hz=flow.hz)  # a view has no sends to infer from: every draw is 0
    gains = replay(view, "bbr2022", hz=flow.hz).decisions["pacing_gain"].to_numpy() / 256
    inferred = comparisons["jitter_bbr_sd2ms"].model["pacing_gain"].to_numpy()
    assert np.mean(gains == inferred) < 0.8


def test_phases_are_found_in_sends_that_a_known_phase_made(flows):
    # The sends are replaced by those of a sender paced exactly as the replay with phase 4 says.
    from cctrace.replaying.pacing import Pacer
    from cctrace.replaying.player import Player

    flow = flows["jitter_bbr_sd2ms"]
    view = flow.view("linux", hz=flow.hz)
    player = Player(view, "bbr2022", record=["pacing_rate", "mode"], hz=flow.hz)
    pacer = Pacer(player, flow.sends)
    row = pacer.run(stop_at_draw=True)
    player.set_draw(row, phase.raw_draw(4, 7))
    stop = pacer.run(player.row + 8000)
    time_us = view.columns["now_us"][row:stop].astype(np.float64)
    edges = np.arange(time_us[0], time_us[-1], 300.0)
    sent = np.cumsum(phase.paced_bytes(time_us, player.recorded["pacing_rate"][row:stop], edges))
    again = Pacer(Player(view, "bbr2022", record=["pacing_rate", "mode"], hz=flow.hz), flow.sends)
    found = phase.follow(again, phase.Sends(edges[1:], sent), 7)
    assert found[0].choice == 4
    assert found[0].misfit < found[0].runner_up / 2


def test_a_cycle_that_fell_out_of_step_is_brought_back_by_the_sends(flows, monkeypatch):
    # One shift of a minimum RTT on purpose, in the middle of nowhere: the following cycles must undo it.
    flow = flows["jitter_bbr_sd2ms"]
    undisturbed = phase._Follower.keep_in_step
    cycles = []

    def disturb(follower):
        cycles.append(follower.player.row)
        if len(cycles) == 20:
            follower._shift(1.0)
        else:
            undisturbed(follower)

    monkeypatch.setattr(phase._Follower, "keep_in_step", disturb)
    run = replay(flow, "bbr2022")
    shifts = [p for p in run.phases if p.choice is None]
    assert shifts
    assert shifts[0].row > cycles[19]
    assert run.compare().share_within("pacing_gain", absolute=1e-6, slack_polls=1) >= 0.95


def test_super_packets_are_as_large_as_the_logged_pacing_rate_makes_them(flows):
    flow = flows["jitter_bbr_sd2ms"]
    info, sends = flow.tcpinfo, phase.Sends.of(flow)
    poll_us = (info["time_after_ns"] - flow.facts["start_ns"]) / 1000 + 1_000_000
    following = np.searchsorted(sends.burst_us, poll_us)
    soon = (following < len(sends.burst_us)) & (info["pacing_rate_Bps"] > 0)
    soon[soon] &= sends.burst_us[following[soon]] - poll_us[soon] < 1_000
    sizes = phase.autosize(info["pacing_rate_Bps"][soon], 20_000, sends.mss)
    assert len(set(sizes.tolist())) > 2
    assert np.mean(sends.burst_segments[following[soon]] == sizes) > 0.95  # the others cwnd cut short


def test_a_gap_that_the_timer_made_tells_the_rate_and_one_that_an_ack_ended_does_not():
    rate, mss, gap_us = 6_033_333.3, 1448, 960.0  # four segments in 960 us, and not five in a 1024th of a second
    burst_us = 10_000.0 + np.arange(50) * gap_us
    segments = np.full(50, 4)
    time_us, rates = np.array([0.0, 100_000.0]), np.array([rate, rate])
    timer = phase.Sends(burst_us, np.cumsum(segments) * 1448.0, burst_us, segments, np.ones(50, bool), mss)
    _, right = timer.burst_errors(time_us, rates * 1.01, 40_000)
    _, wrong = timer.burst_errors(time_us, rates * 0.8, 40_000)
    _, released = timer._replace(by_timer=np.zeros(50, bool)).burst_errors(time_us, rates * 0.8, 40_000)
    assert right.sum() < wrong.sum() / 20
    # Without the gap the size alone tells: a segment less per burst.
    assert released == pytest.approx(1448)


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


def test_pacing_holds_the_next_segment_back_by_its_predecessors_length():
    import pandas as pd

    from cctrace.flows.views import View
    from cctrace.replaying.pacing import FREE_SEGMENTS, Pacer
    from cctrace.replaying.player import Player

    rate, length = 1_000_000, 1448  # 1448 us a segment
    sent_ns = np.arange(20) * 1_448_000 + 1_000_000_000
    calls_ns = sent_ns + 448_000
    columns = {name: np.zeros(20, np.int64) for name in schema.names(schema.LINUX_VIEW)}
    columns |= {"now_us": calls_ns // 1000, "clock_ns": calls_ns}
    view = View("linux", np.full(20, 1), columns, time_ns=calls_ns)

    class Constant(Player):
        def field(self, name):
            return {"pacing_rate": rate, "min_rtt_us": 40_000}[name]

    Pacer(Constant(view, "bbr2022", record=["mode"]), pd.DataFrame({"time_ns": sent_ns, "payload": length})).run()
    held_us = (view.columns["wstamp_ns"] - calls_ns) // 1000
    assert held_us[: FREE_SEGMENTS - 1].tolist() == [0] * (FREE_SEGMENTS - 1)
    # Each left 724 us after it could have, half of what pacing asks for: that much is credited to the next.
    assert held_us[FREE_SEGMENTS:].tolist() == [1448 - 724 - 448] * (20 - FREE_SEGMENTS)


PROBE_RTT = 3


@pytest.fixture
def pacer(flows):
    """A replay of a recording in whose middle the sender probed for its minimum RTT."""
    from cctrace.replaying.pacing import Pacer
    from cctrace.replaying.player import Player

    flow = flows["single_bbr_1bdp"]
    return Pacer(Player(flow.view("linux", hz=flow.hz), "bbr2022", record=["mode"], hz=flow.hz), flow.sends)


def test_samples_of_what_was_sent_in_probe_rtt_are_application_limited(pacer):
    pacer.run()
    columns, probing = pacer.player.view.columns, pacer.player.recorded["mode"] == PROBE_RTT
    first = int(np.argmax(probing))
    during = columns["delivered"][first : first + int(np.argmin(probing[first:]))]
    assert len(during) > 10
    sampled = pacer.player.view.event == schema.LINUX_EVENTS["on_ack"]
    prior = columns["rs_prior_delivered"]
    assert columns["rs_is_app_limited"][sampled & (prior > during[0]) & (prior <= during[-1])].all()
    # The last few were in flight when it ended; rates of the rounds after that count again.
    later = sampled & (prior > during[-1] + 10) & (prior < during[-1] + 1000)
    assert later.any()
    assert not columns["rs_is_app_limited"][later].any()


def test_marks_are_taken_back_with_the_rows_that_made_them(pacer):
    limited = pacer.player.view.columns["rs_is_app_limited"]
    start, before = pacer.save(), limited.copy()
    pacer.run()
    after = limited.copy()
    assert (after != before).any()
    pacer.restore(start)
    assert (limited == before).all()
    pacer.run()
    assert (limited == after).all()


def test_a_replay_records_what_is_asked_for_whatever_it_needs_itself(flows):
    assert "bw_v[0]" in replay(flows["single_bbr_1bdp"], "bbr2022", record=["bw_v[0]"]).decisions
