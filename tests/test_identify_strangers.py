"""Strangers, and senders whose SACKs a capture lacks: what is put back, what is set right, and who is nobody."""

import numpy as np
import pytest

import cctrace as cct
from benchmarks.identify import from_ss, simulated
from benchmarks.strangers import STRANGERS
from cctrace.cc.base import checked_params
from cctrace.cc.cubic6 import Cubic6
from cctrace.flows.capture import Capture
from cctrace.flows.missing_sacks import restored
from cctrace.identification.flights import flights_of
from cctrace.identification.odds import UNKNOWN
from cctrace.identification.polled_odds import growth, wrong_reductions
from cctrace.identification.sends import record_of, replay_of
from cctrace.io.captures.packets import Packets
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit, Script
from cctrace.replaying.inference.reductions import set_right
from cctrace.schema import LINUX_EVENTS


def stripped(flow):
    """Return the flow of a capture that lacks all TCP options, as one that was made of a table."""
    packets = flow.capture.packets
    columns = {name: column.copy() for name, column in packets.columns.items()}
    for name in ("options", "sack_count", "tsval", "tsecr"):
        columns[name][:] = 0
    columns["sack_row"][:] = -1
    connections = {name: column.copy() for name, column in packets.connections.items()}
    connections["sack_ok"][:] = 0
    none = {"left": np.zeros(0, np.uint32), "right": np.zeros(0, np.uint32)}
    return Capture(Packets(columns, none, connections)).flow(flow.index)


def delivered(flow):
    rows = flow.events.rows
    return rows[rows["event"] == LINUX_EVENTS["on_ack"]][["delivered", "ca_state"]]


def test_the_sacks_that_are_put_back_are_those_of_the_receiver(flow):
    bare = stripped(flow)
    again = bare.row["retransmitted_segments"]
    assert bare.quality()["unexplained_retransmissions"] > again / 2
    back = restored(bare)
    assert back.quality()["unexplained_retransmissions"] == 0
    truth, found = delivered(flow), delivered(back)
    assert np.mean(truth["ca_state"] == found["ca_state"]) > 0.97
    apart = np.abs(truth["delivered"].astype(int) - found["delivered"].astype(int))
    assert np.mean(apart == 0) > 0.9
    assert apart.max() <= 16  # a compressed ACK's


@pytest.mark.parametrize("name", ["cubic6", "reno", "bbr2022"])
def test_without_sacks_the_sender_is_named_all_the_same(name, tmp_path):
    flow = simulated(name, 1, 23, "8s", tmp_path)
    bare = stripped(flow)
    assert record_of(bare).part().rebuilt
    assert not record_of(flow).part().rebuilt
    assert name in cct.identify(bare).group


def test_a_stranger_without_sacks_is_nobody(tmp_path):
    bare = stripped(simulated("Scalable", 1, 21, "8s", tmp_path))
    assert record_of(bare).part().rebuilt
    assert cct.identify(bare).group == (UNKNOWN,)


def test_a_window_is_never_wrong_under_its_own_controller_and_mostly_under_another(flow):
    record = record_of(flow).part()
    own, other = (flights_of(record, replay_of(record, name)).wrong_windows for name in ("cubic6", "reno"))
    assert own.acks == other.acks > 1000
    assert own.share < 0.01
    assert other.share > 0.2


def test_a_window_that_was_a_segment_off_before_a_reduction_is_set_right(tmp_path):
    record = record_of(simulated("cubic6", 1, 7, "8s", tmp_path)).part()
    halves, events = record.halves, record.events
    rows, acks = halves.reductions.tolist(), halves.acks[halves.limited]
    params = checked_params(Cubic6, {"hz": record.hz})
    right = set_right(
        Follower(events, events.sends, Cubic6, params, ("snd_cwnd",)), Script([], [], record.hz), rows, acks
    )
    wrong = Script([], [Edit(rows[0], "snd_cwnd", 2)], record.hz)
    found = set_right(Follower(events, events.sends, Cubic6, params, ("snd_cwnd",)), wrong, rows, acks)
    assert len(rows) > 1
    # What delayed ACKs hide is a segment here and there, which is set right as well.
    assert rows[0] not in [edit.row for edit in right.edits]
    assert len(right.edits) <= len(rows) / 4
    assert found.edits == [*wrong.edits, Edit(rows[0], "snd_cwnd", -2), *right.edits]


def test_windows_are_set_right_only_where_sacks_are_missing(tmp_path):
    """Two segments before each reduction are what BIC, of a window of twenty, keeps more of it than CUBIC."""
    path = cct.Path(rate="4Mbit", rtt="40ms", buffer="0.6bdp")
    sim = cct.simulate(path, [cct.Sender(STRANGERS["Gentle"])], "12s", 3, packets=True)
    sim.to_pcap(tmp_path / "sender.pcap", side="sender")
    flow = cct.read(tmp_path / "sender.pcap").flow(0)
    record = record_of(flow).part()
    assert np.median(record.halves.flight) < 20
    assert flights_of(record, replay_of(record, "cubic6")).wrong_windows.share > 0.2
    assert cct.identify(flow).group == (UNKNOWN,)


def test_an_ack_between_segments_of_one_instant_ends_a_super_packet(tmp_path):
    path = cct.Path(rate="11.7Mbit", rtt="69ms", buffer="1bdp", jitter="normal:sd=5ms")
    sim = cct.simulate(path, [cct.Sender("reno", ack_every=1)], "3s", 1, packets=True)
    sim.to_pcap(tmp_path / "whole", tso=True)
    packets = cct.read(tmp_path / "whole").packets
    assert not packets["payload"][packets["direction"] == 1].any()
    sim.to_pcap(tmp_path / "cut")
    assert packets["payload"].sum() == cct.read(tmp_path / "cut").packets["payload"].sum()


@pytest.mark.parametrize("name", ["Scalable", "Delay"])
def test_counters_of_a_stranger_are_nobodys(name, tmp_path):
    assert from_ss(name, 0, 21, "6s", tmp_path).group == (UNKNOWN,)


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        ("cubic6:beta=0.875", 0, "with beta 0.875 instead of 0.7 cubic6 would explain it better"),
        ("Scalable", 0, "keeps 0.88 of its window in a reduction, not 0.50"),
    ],
)
def test_the_reason_names_the_nearest_relative_and_in_what_a_stranger_differs(name, number, said, tmp_path):
    found = cct.identify(simulated(name, number, 61, "8s", tmp_path))
    assert found.group == (UNKNOWN,)
    assert said in found.reason


class Polls:
    """Two reductions of a Reno whose window fills the path: 40 to 20 to 30 to 15, an increment a poll."""

    cwnd = np.array([*range(30, 41), *range(20, 31), *range(15, 20)], float)
    ssthresh = np.array([15.0] * 11 + [20.0] * 11 + [15.0] * 5)
    delivered = np.cumsum(cwnd)
    time_ns = np.arange(27) * 100_000_000
    rtt_us = np.full(27, 100_000.0)
    is_open = use = full = np.ones(27, bool)


def test_polls_tell_the_factor_of_reductions_and_how_fast_the_window_grows():
    assert wrong_reductions(Polls, 0.5) == (2, 0.0)
    assert wrong_reductions(Polls, 0.7) == (2, 0.0)  # as well two reductions by 0.7, and no growth before
    assert wrong_reductions(Polls, 0.875) == (2, 1.0)
    increments, share = growth(Polls)
    assert share == pytest.approx(1, abs=0.05)  # what was delivered while cwnd grew by one
    assert increments == pytest.approx(24, abs=1)
