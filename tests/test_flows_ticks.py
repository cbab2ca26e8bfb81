"""Ticks of the sender's kernel, at which its timers fire: bounds that retransmissions and time stamps give."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace import datasets
from cctrace.cc import controller
from cctrace.flows.capture import read
from cctrace.flows.packed import EventColumns
from cctrace.flows.sender.handover import waited_in_timer
from cctrace.flows.sender.reenact import Pass
from cctrace.flows.sender.timers import NEARLY_US, is_probe_due, note_tick, tick_by
from cctrace.flows.state import SLOWEST_HZ, THROUGH_FQ
from cctrace.replaying.inference.through_fq import at_hand_over
from cctrace.tcp.small_queue import TIMER_SLACK_NS
from tests.places import RECORDINGS

TICK_US = 4000


def sender(**known):
    fields = {"hz": 250, "now_us": 0, "ts_ok": 0, "ts_tick_us": 1000, "ts_offset_us": 0}
    return SimpleNamespace(**fields | {"tick_low_us": 0, "tick_high_us": 0} | known)


def test_of_an_unknown_tick_the_middle_is_taken():
    assert tick_by(sender(), 100_000) == 102_000


@pytest.mark.parametrize(("hz", "tick_us"), [(250, 104_300), (1000, 101_300)])
def test_time_stamps_step_with_the_ticks(hz, tick_us):
    """Of four steps in a tick of 250 Hz the last, as nothing was sent before; at 1000 Hz there is one."""
    assert tick_by(sender(hz=hz, ts_ok=1, ts_offset_us=700), 100_500) == tick_us


def test_a_retransmission_bounds_all_later_ticks():
    tp = sender(now_us=101_000)
    note_tick(tp, 100_000, tp.now_us)  # between 100 and 101 ms
    assert tick_by(tp, 500_200) == 500_600
    assert tick_by(tp, 501_500) == 504_500
    tp.now_us = 200_600
    note_tick(tp, 198_000, tp.now_us)  # not after 200.6 ms
    assert tick_by(tp, 300_000) == 300_300
    tp.ts_ok, tp.ts_offset_us = 1, 800
    assert tick_by(tp, 300_000) == 300_200


def test_bounds_that_exclude_each_other_are_of_clocks_that_drift():
    tp = sender(now_us=100_100)
    note_tick(tp, 100_000, tp.now_us)
    tp.now_us = 203_000
    note_tick(tp, 202_500, tp.now_us)
    assert tick_by(tp, 302_000) == 302_750


def test_a_flow_has_the_timers_of_the_hz_that_it_is_given():
    flow = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    assert flow.hz == 250
    other = flow.at_hz(1000)
    assert (other.hz, other.capture.hz) == (1000, 250)
    assert len(other.events) != 0


@pytest.mark.parametrize(
    ("table", "place"), [(None, 0), (0, 0), (0, -1), (1, 0), (1, -1), (2, -1), (3, -1), (4, 0), (4, -1)]
)
def test_a_stream_is_compared_in_parts(monkeypatch, table, place):
    """Equal tables are found equal, with a final state as of the whole pass; one changed value at either end is not."""
    monkeypatch.setattr("cctrace.flows.sender.reenact.PART", 300)
    flow = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    again = flow.reenactment(flow._left)
    rows, log, sent, *_, finals = again.run()
    assert rows.count > 10 * 300
    tables = [part.copy() for part in (*rows.tables, log, sent)]
    if table is not None:
        tables[table][("arg", "time_ns", "lost", "time_ns", "time_ns")[table]][place] += 1
    found = flow.reenactment(flow._left).is_like(EventColumns(*tables[:3]), *tables[3:])
    assert (found is None) == (table is not None)
    if found is not None:
        names = [name for name in finals.dtype.names if not name.startswith("taken_")]
        assert [found[name][0] for name in names] == [finals[name][0] for name in names]


def test_a_stream_that_has_more_rows_is_another():
    flow = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    rows, log, sent, *_ = flow.reenactment(flow._left).run()
    longer = EventColumns(*(np.concatenate([table, table[-1:]]) for table in rows.tables))
    assert flow.reenactment(flow._left).is_like(longer, log, sent) is None
    assert flow.reenactment(flow._left).is_like(rows.first(rows.count - 1), log, sent) is None


def test_flows_whose_timers_decide_nothing_share_their_events(monkeypatch):
    """Not re-enacted again, they are what a re-enactment would show."""
    flow = read(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    rows, log, sent, final = flow._reenacted
    assert not final["ticks_matter"]
    for hz in (SLOWEST_HZ, 1000):
        assert flow._like(_hz=hz)._pass().is_like(rows, log, sent.records) is not None
    monkeypatch.setattr(Pass, "is_like", None)
    assert flow.at_hz(1000).events.stream is flow.events.stream
    assert flow.at_hz(1000).hz == 1000


def test_where_a_timer_may_have_been_over_ticks_matter():
    flow = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    assert flow._reenacted[3]["ticks_matter"]


@pytest.mark.parametrize(("left_us", "matters"), [(NEARLY_US, 1), (NEARLY_US + 1, 0)])
def test_ticks_matter_to_a_timer_that_is_nearly_over(left_us, matters):
    tp = sender(now_us=500_000)
    tp.ticks_matter, tp.probe_us = 0, 500_000 + left_us
    assert not is_probe_due(tp)
    assert tp.ticks_matter == matters


@pytest.mark.parametrize(("late_ns", "waited_ns"), [(TIMER_SLACK_NS + 256, TIMER_SLACK_NS + 256), (50_000, 10_300)])
def test_fq_lets_go_by_its_slack_and_a_step_of_the_clock_late(late_ns, waited_ns):
    """What left in time has exactly its time: 256 ns more would move a sample of the RTT by a microsecond."""
    sent = {"tail": 100, "total_retrans": 0, "syns": 1}
    tp = SimpleNamespace(clock_ns=0, start_ns=0, wstamp_ns=10**9 + 5_000_000, rate_Bps=10**6, left_together=1, **sent)
    p = SimpleNamespace(fq=THROUGH_FQ)
    assert waited_in_timer(tp, p, 5_000_000 + late_ns) == waited_ns


def test_a_stream_through_fq_is_compared_in_parts(monkeypatch):
    """A start from idle, whose rate the hand-over asks for, may be in rows that were overwritten."""
    monkeypatch.setattr("cctrace.flows.sender.reenact.PART", 200)
    flow = read(RECORDINGS / "fq_v1_chunks" / "sender.pcap.zst").flow(0)
    handed = at_hand_over(flow, controller("bbr2022")[0])
    rows, log, sent, *_ = handed._pass().run()
    assert rows.count > 10 * 200
    assert handed._pass().is_like(rows, log, sent) is not None
