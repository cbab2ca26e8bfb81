"""Where polls of the kernel's counters are attached, limits of windows and buffers are what the kernel counted."""

from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.groups import Idle, SendBuffer, Writes
from cctrace.diagnosis.limits import account, counted, data_waited, edges_of
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.rules import judge
from cctrace.flows.state import DIRECTLY
from tests.places import RECORDINGS

END_S, STEP_S = 10.0, 0.02


def polled(every_s=0.01, end_s=END_S, **shares_counted):
    time = np.arange(0, end_s + every_s / 2, every_s)
    columns = {name: (share * time * 1e6).astype(np.int64) for name, share in shares_counted.items()}

    class Polls(dict):
        def __len__(self):
            return len(time)

    polls = Polls(time_ns=(time * 1e9).astype(np.int64), **columns)
    flow = SimpleNamespace(tcpinfo=polls)
    table = SimpleNamespace(mss=1000)
    return SimpleNamespace(flow=flow, seconds=lambda ns: np.asarray(ns) / 1e9, duration_s=END_S, run=None, table=table)


@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 0.97])
def test_a_limit_has_the_share_of_the_time_that_the_kernel_counted(share):
    record = polled(rwnd_limited_us=0.0, sndbuf_limited_us=share)
    found = counted(record, edges_of(END_S, STEP_S))
    limits = account({"application": np.array([[0.0, END_S]])} | found, END_S, STEP_S)
    assert shares(limits).get("send_buffer", 0.0) == pytest.approx(share, abs=0.005)
    assert sum(limit.end_s - limit.start_s for limit in limits) == pytest.approx(END_S)


def test_a_counter_that_ticks_more_slowly_than_slices_pass_loses_none_of_its_time():
    """Linux counts in jiffies of 4 ms: of two polls 10 ms apart one has 8 ms more, the next 12."""
    record = polled(rwnd_limited_us=0.99, sndbuf_limited_us=0.0)
    ticked = record.flow.tcpinfo["rwnd_limited_us"] // 4000 * 4000
    record.flow.tcpinfo["rwnd_limited_us"] = ticked
    found = counted(record, edges_of(END_S, 0.006))
    assert np.diff(found["receive_window"]).sum() / END_S == pytest.approx(0.99, abs=0.005)


def test_unsent_data_by_the_counters_means_that_no_application_paused():
    """For its last half data wait; only between polls that both say so."""
    record = polled(notsent_bytes=0.0)
    record.flow.tcpinfo["notsent_bytes"][501:] = 1000
    assert data_waited(record) == pytest.approx(np.array([[5.01, END_S]]))
    record.flow.tcpinfo["notsent_bytes"][501:] = 56  # less than a segment waits for more data
    assert data_waited(record).size == 0
    assert data_waited(polled(every_s=1.0, notsent_bytes=1.0)).size == 0


@pytest.mark.parametrize("polls", [{"every_s": 1.0}, {"end_s": 5.0}])
def test_polls_that_are_seldom_or_of_a_part_tell_nothing_of_when(polls):
    record = polled(rwnd_limited_us=0.5, sndbuf_limited_us=0.5, **polls)
    assert counted(record, edges_of(END_S, STEP_S)) == {}


def test_what_no_kernel_counts_is_left_to_the_capture():
    record = polled(rwnd_limited_us=0.5, sndbuf_limited_us=0.0)
    record.flow.tcpinfo["sndbuf_limited_us"] -= 1
    assert set(counted(record, edges_of(END_S, STEP_S))) == {"receive_window"}


@pytest.mark.parametrize(("counted_share", "first"), [(0.0, "application_limited"), (0.13, "send_buffer_limited")])
def test_a_small_count_of_a_full_send_buffer_tells_it_from_an_application(counted_share, first):
    waited = 0.8
    idle = Idle(waited if not counted_share else 0.0, 1e6)
    facts = Facts(PACKETS, END_S, 1e6, send_buffer=SendBuffer(counted_share, waited), idle=idle)
    assert judge(facts)[0].name == first


@pytest.mark.parametrize("share", [0.35, 0.9])
def test_writes_that_follow_acks_tell_a_send_buffer_from_an_application(share):
    writes = Writes(20.0, 30e3, 60e3, is_by_acks=True)
    facts = Facts(PACKETS, END_S, 1e6, idle=Idle(share, 1e6), writes=writes)
    first = judge(facts)[0]
    assert first.name == "send_buffer_limited"
    assert (first.confidence >= 0.5) == (share >= 0.5)


def test_a_window_stays_the_limit_until_a_super_packet_fits():
    """Linux sends nothing while less than a third of the window is free, unless that is all it has to send."""
    mss, window = 1000, 12_000
    time = np.arange(6.0)
    free = np.array([6000, 0, 2000, 3000, 0, 5000])  # filled, freed twice by ACKs, filled, freed by more than a third
    sent = np.array([True, True, False, False, True, False])
    left = free[np.maximum.accumulate(np.where(sent, np.arange(6), 0))]
    windows = time, free, left, np.full(6, window)
    record = SimpleNamespace(_windows=lambda: windows, table=SimpleNamespace(mss=mss), duration_s=5.0)
    assert Record._window_limits.func(record)[0] == pytest.approx(np.array([[1.0, 5.0]]))


def test_of_the_receive_window_only_its_limits_are_kept():
    """Of a million packets the window after each has half as much memory as the packets."""
    record = Record(cct.read(RECORDINGS / "fq_v3_rwnd" / "sender.pcap.zst").flow(0))
    assert record.window_shut_s.size > 0
    assert record.window_full_share > 0
    assert "captured" not in vars(record)
    assert sum(np.asarray(limits).nbytes for limits in record._window_limits) < len(record.table)


@pytest.mark.parametrize(("name", "variant"), [("fq_v3_rwnd", "bbr3"), ("lab_v2_window", "bbr2")])
def test_where_fq_is_open_a_receive_window_is_counted_as_the_likelier_sender_counts_it(name, variant):
    """A timer of TCP's own comes before the window, fq does not: of the first flow it would hide a third of the time.

    Both replays are of senders with timers, as where departures leave fq open.
    """
    flow = cct.read(RECORDINGS / name / "sender.pcap.zst").flow(0)
    polls = cct.read(RECORDINGS / name / "tcpinfo.csv.zst")
    timed = flow.paced_by(DIRECTLY)
    run = cct.replay(timed, variant)
    kernel_s = polls["rwnd_limited_us"][-1] / 1e6

    def shut_s(reading):
        record = Record(reading, run=run)
        return np.diff(counted(record, edges_of(record.duration_s, 0.005))["receive_window"])[:, 0].sum()

    assert flow.through_fq is None
    assert shut_s(flow) == pytest.approx(kernel_s, rel=0.03)
    if variant == "bbr3":
        assert shut_s(timed) < 0.7 * kernel_s


@pytest.mark.parametrize("name", ["lab_v2_jitter", "fq_v2_probe_rtt", "lab_v3_loss", "fq_bbr3_loss", "fq_v1_max_rate"])
def test_probe_rtt_lasts_as_long_as_the_kernel_was_in_it(name):
    """Also without counters; and no application is blamed, although BBR marks what it sends then as app-limited."""
    polls = cct.read(RECORDINGS / name / "tcpinfo.csv.zst")
    kernels = float(np.mean(polls["bbr_mode"] == "PROBE_RTT"))
    assert kernels > 0.01
    for analysis in (
        *cct.analyze(RECORDINGS / name / "sender.pcap.zst", effects=False),
        *cct.analyze(RECORDINGS / name / "tcpinfo.csv.zst", effects=False),
    ):
        found = shares(analysis.diagnosis.limits)
        assert found["probe_rtt"] == pytest.approx(kernels, abs=0.003)
        assert found.get("application", 0.0) < 0.01


def test_a_replay_that_did_not_record_its_mode_gives_no_account():
    flow = cct.read(RECORDINGS / "lab_v3_loss" / "sender.pcap.zst").flow(0)
    found = cct.diagnose(flow, "bbr3", cct.replay(flow, "bbr3", record=["snd_cwnd"]))
    (lack,) = found.lacks
    assert lack.endswith('this replay did not record mode: replay with record="all"')
    assert found.cause == cct.diagnose(flow, "bbr3").cause
