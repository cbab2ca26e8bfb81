"""Parts of an analysis, given what damaged captures leave: nothing divides by 0 or reads beyond a table."""

import dataclasses
import types

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.counterfactual.flow_model import _base_rtt_us
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.packets import ends, sharing
from cctrace.diagnosis.packets.writes import paused_writes
from cctrace.diagnosis.record import Record
from cctrace.errors import FitError
from cctrace.fit.components import quick_jitter
from cctrace.fit.joint import _Model, joint
from cctrace.flows.arrivals import Receiver
from cctrace.flows.capture import Capture
from cctrace.flows.events import Events
from cctrace.flows.missing_sacks import restored
from cctrace.identification.halves import HalfRounds
from cctrace.io.captures.packets import OPT_SACK, Packets
from cctrace.path import buckets
from cctrace.path.bottleneck import served_packets
from cctrace.path.evidence import evidence_of
from cctrace.replaying.inference.writes import marks_of_writes
from tests.places import RECORDINGS


def shipped(name):
    return cct.read(datasets.path(name, "sender.pcap.zst")).flow(0)


@pytest.fixture(scope="module")
def lossy():
    return shipped("loss_cubic_1pct")


def with_columns(flow, **changed):
    """Return the flow of a capture with other columns."""
    old = flow.capture.packets
    packets = Packets(dict(old.columns) | changed, old.sacks, old.connections, old.counters, old.warnings, old.source)
    return Capture(packets).flow(flow.index)


def test_blocks_of_the_other_directions_packets_do_not_outlive_their_table(lossy):
    """A sender that receives data, too, reports blocks on its own packets."""
    columns = lossy.capture.packets.columns
    row, count, options = (columns[name].copy() for name in ("sack_row", "sack_count", "options"))
    its_data = np.flatnonzero(columns["payload"] > 0)[-5:]
    row[its_data], count[its_data] = len(lossy.capture.packets.sacks["left"]) - 1, 1
    options[its_data] |= OPT_SACK
    packets = restored(with_columns(lossy, sack_row=row, sack_count=count, options=options)).capture.packets
    assert np.all(packets["sack_row"] + packets["sack_count"] <= len(packets.sacks["right"]))
    assert not packets["sack_count"][its_data].any()


def test_one_time_stamp_for_all_packets_tells_no_rate(lossy):
    path = evidence_of(lossy)
    table = path.transmissions
    at_once = dataclasses.replace(table, sent_ns=np.full_like(table.sent_ns, table.start_ns))
    sent, _ = served_packets(at_once)
    assert not sent.lasts
    assert path.sent.lasts
    path = evidence_of(with_columns(lossy))
    path.__dict__["_sent"] = sent, None
    with pytest.raises(FitError, match="the same time stamp"):
        path.require_sent()


def test_moments_that_do_not_exist_beside_the_likeliest_parameters_give_no_joint_fit(monkeypatch):
    path = evidence_of(shipped("jitter_bbr_sd2ms"))
    delays, jitter = path.delays, quick_jitter(path, path.delays)
    assert joint(path.sent, delays, jitter, quick=True) is not None
    gradient = _Model.gradient
    monkeypatch.setattr(_Model, "gradient", lambda model, theta: gradient(model, theta) * np.nan)
    assert joint(path.sent, delays, jitter, quick=True) is None


def test_rtts_of_0_are_compared_with_nothing(monkeypatch):
    flow = cct.read(RECORDINGS / "pacing_limit" / "sender.pcap.zst").flow(0)
    record, limits = Record(flow), diagnose(flow).limits
    assert np.isfinite(ends.even_sends(record, limits).faster_rtts)
    monkeypatch.setitem(vars(record.path), "median_rtt_us", 0.0)
    assert np.isnan(ends.even_sends(record, limits).faster_rtts)


def test_pauses_that_end_at_one_instant_are_one():
    sends = np.zeros(60, [("retransmitted", "u1"), ("segments", "u4"), ("time_ns", "i8")])
    sends["segments"], sends["time_ns"] = 1, np.arange(60) * 10**8
    idle = np.array([[k + 0.2, k + 1.0] for k in range(5)])
    idle = np.insert(idle, 2, [1.8, 2.0], axis=0)
    record = types.SimpleNamespace(
        empty_s=idle,
        path=types.SimpleNamespace(least_rtt_us=0.0),
        duration_s=6.0,
        events=types.SimpleNamespace(sent=sends),
        table=types.SimpleNamespace(mss=1000),
        seconds=lambda ns: ns / 1e9,
    )
    with np.errstate(all="raise"):
        assert paused_writes(record) == "chunks:size=10000B,every=1000000us"


def test_a_flow_of_which_no_delivery_is_known_delivered_nothing(lossy):
    part = evidence_of(lossy).sent
    unknown = dataclasses.replace(part, acked_us=np.full_like(part.acked_us, np.nan))
    assert sharing._rates(unknown, np.arange(0, 5e6, 1e6)).tolist() == [0.0] * 4


def test_an_unanswered_flow_through_the_same_bottleneck_has_the_others_rtt(lossy):
    path = evidence_of(with_columns(lossy))
    part = path.sent_by_flow[path.index]
    path.__dict__["sent_by_flow"] = [dataclasses.replace(part, acked_us=np.full_like(part.acked_us, np.nan))]
    with np.errstate(all="raise"):
        assert np.isnan(_base_rtt_us(path, path.index))


def test_a_base_rtt_of_0_makes_a_round_of_every_nanosecond():
    with np.errstate(all="raise"):
        assert buckets._rounds(types.SimpleNamespace(sent_ns=np.array([0, 5, 7])), 0.0).tolist() == [0, 5, 7]


def test_a_replay_of_no_packets_has_no_writes_to_explain():
    flow = shipped("single_bbr_1bdp")
    run = dataclasses.replace(cct.replay(flow, "bbr2022"), marked=np.zeros(0, bool))
    assert marks_of_writes(run) is None


def test_no_acks_have_no_halves(lossy):
    events = lossy.events
    none = Events(events.stream.first(1), events.meta | {"inferred": {"start_ns": 0}}, events.sends[:0])
    with np.errstate(all="raise"):
        assert not HalfRounds(none).held_back


def test_what_was_sent_before_the_capture_began_takes_nothing_of_what_the_capture_shows():
    """ACKs of it come first; all that was captured arrived later, in order."""
    begin = np.arange(5001, 9001, 1000)
    receiver = Receiver(begin * 10, begin, begin + 1000)
    for acked in (2001, 4001, 5001):
        receiver.advance(acked)
        assert (receiver.next, receiver.report()) == (0, [])
    receiver.advance(7001)
    assert (receiver.next, receiver.report()) == (2, [])
