"""The time stamp that a packet echoes says between which ACKs TCP handed it over to fq.

The recordings are of the kernels of docs/lab.md; scenario.json has path and seed. `fq_v2_ksoftirqd`: BBRv2 of Linux 6.1
at 1.3 Mbit/s, whose ksoftirqd twice does not let TCP continue when a packet leaves. `fq_v1_few`: BBRv1 with a flight
of ten packets, where RACK's timer fires between ACKs. `fq_v1_timeout`: BBRv1 over a path that reorders, whose
retransmission timer counts from the head's send because RACK's timer was set in between.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.analysis.validate import validate
from cctrace.flows import state
from cctrace.flows.capture import Capture
from cctrace.flows.sender.echoes import is_early, is_newer, is_overdue
from cctrace.flows.sender.timers import on_progress
from cctrace.io.captures.packets import OPT_TIMESTAMPS, Packets
from cctrace.replaying.inference.echoed import waits_in_queue
from cctrace.replaying.inference.through_fq import at_hand_over, passage
from tests.places import RECORDINGS


@pytest.mark.parametrize("name", ["fq_v2_ksoftirqd", "fq_v1_few", "fq_v1_timeout"])
def test_every_poll_of_the_senders_view_and_of_its_controller_is_the_kernels(name):
    (agreement,) = validate(RECORDINGS / name)
    shares = {figure.name: figure.share for figure in agreement.figures}
    # Not asked: the last poll's departures, the rounding of RTTs, bandwidth to .1 %.
    exact = {figure: share for figure, share in shares.items() if figure in ("unacked", "total_retrans", "lost")}
    exact |= {figure: share for figure, share in shares.items() if figure.startswith("replay_") and "0.1" not in figure}
    assert min(exact.values()) >= 0.998, exact


def test_what_a_packet_echoes_was_received_when_it_was_handed_over_and_nothing_newer():
    """The ACK before a hand-over has the stamp that the packet echoes; one with a newer stamp follows it."""
    capture = cct.read(RECORDINGS / "fq_v2_ksoftirqd" / "sender.pcap.zst")
    flow = at_hand_over(capture.flow(0))
    assert flow.through_fq
    packets, sends, rows = capture.packets, flow.events.sends, flow.events.rows
    acks = (packets["direction"] != packets["direction"][0]) & (packets["tsval"] > 0)
    acked_ns, stamps = packets["time_ns"][acks], np.maximum.accumulate(packets["tsval"][acks])
    data = ~acks
    echo = dict(zip(packets["time_ns"][data].tolist(), packets["tsecr"][data].tolist(), strict=True))
    before = (sends["row"] > 0) & (sends["row"] < len(rows))
    handed_ns, next_ns = rows["time_ns"][sends["row"][before] - 1], rows["time_ns"][sends["row"][before]]
    echoed = np.array([echo[time_ns] for time_ns in sends["time_ns"][before].tolist()])
    latest = stamps[np.searchsorted(acked_ns, handed_ns, "right") - 1]
    newest = stamps[np.searchsorted(acked_ns, next_ns, "left") - 1]
    waited = sends["time_ns"][before] > next_ns
    assert waited.sum() > 500
    assert np.all((latest <= echoed) & (echoed <= newest))


def test_time_stamps_wrap():
    assert is_newer(5, 0xFFFFFFF0)
    assert not is_newer(0xFFFFFFF0, 5)
    assert not is_newer(5, 5)


def sender(**fields):
    return SimpleNamespace(**{"ts_recent": 100, "rate_Bps": 0, "wmem_alloc": 0} | fields)


def test_a_packet_is_handed_over_once_what_it_echoes_was_received_and_before_anything_newer():
    p, stamped, plain = SimpleNamespace(echoes=1), OPT_TIMESTAMPS, 0
    assert is_early(sender(), p, stamped, 101)
    assert not is_early(sender(), p, stamped, 100)
    assert not is_early(sender(), p, plain, 101)
    assert is_overdue(sender(), p, stamped, 100, 101, 1448)
    assert not is_overdue(sender(), p, stamped, 101, 101, 1448)
    assert not is_overdue(sender(), p, plain, 100, 101, 1448)
    unheeded = SimpleNamespace(echoes=0)  # where it is in question whether there was fq
    assert not is_early(sender(), unheeded, stamped, 101)
    assert not is_overdue(sender(), unheeded, stamped, 100, 101, 1448)


def test_a_clock_that_stands_still_does_not_fill_fq():
    """More than TCP Small Queues allow twice over does not wait, whatever old stamp a peer's packets echo."""
    p = SimpleNamespace(echoes=1)
    assert is_overdue(sender(rate_Bps=1_000_000, wmem_alloc=3_000), p, OPT_TIMESTAMPS, 100, 101, 1448)
    assert not is_overdue(sender(rate_Bps=1_000_000, wmem_alloc=60_000), p, OPT_TIMESTAMPS, 100, 101, 1448)


@pytest.mark.parametrize(
    ("pending", "since_us"), [("reo_first_us", 1_000_000), ("probe_us", 1_000_000), (None, 1_300_000)]
)
def test_a_timeout_counts_from_the_heads_send_where_another_timer_was_set(pending, since_us):
    """[Linux618] tcp_rearm_rto offsets what has passed since, so the timer may fire soon after an ACK."""
    seg = np.zeros(4, state.SEG).view(np.recarray)
    seg["tx_us"] = 1_000_000
    tp = np.zeros(1, state.TP).view(np.recarray)[0]
    tp.now_us, tp.tail, tp.packets_out, tp.ca_state, tp.hz, tp.rto_us = 1_300_000, 4, 4, 3, 250, 304_000
    if pending:
        tp[pending] = 1_290_000
    on_progress(tp, seg)
    assert tp.expires_us == since_us + 304_000
    assert tp.reo_first_us == tp.probe_us == 0


@pytest.mark.parametrize("fq", [True, False])
def test_stale_echoes_show_fq_where_departures_leave_it_open(fq):
    """At a rate that SO_MAX_PACING_RATE prescribes, a timer and fq space packets alike."""
    path = cct.Path(rate="4Mbit", rtt="100ms", buffer="1.9bdp")
    sender = cct.Sender("reno", fq=fq, max_pacing_rate="1.5Mbit")
    flow = cct.simulate(path, sender, "5s", seed=1, packets=True).capture().flow(0)
    assert waits_in_queue(flow) is fq
    assert bool(passage(flow).through_fq) is fq


@pytest.mark.parametrize(("offset", "echoed"), [(0, True), (1 << 31, True), (0, False)])
def test_echoes_are_stale_whatever_the_time_stamps_begin_with(offset, echoed):
    capture = cct.read(RECORDINGS / "fq_v1_few" / "sender.pcap.zst")
    columns = dict(capture.packets.columns)
    mine = columns["direction"] == columns["direction"][0]
    for name, some in (("tsecr", mine), ("tsval", ~mine)):
        value = columns[name].astype(np.int64)
        first = int(columns["tsval"][~mine][0])
        columns[name] = np.where(some, (value - first - 100 + offset) & 0xFFFFFFFF, value).astype(np.uint32)
    if not echoed:
        columns["tsecr"] = np.where(mine, np.uint32(0x40000000), columns["tsecr"])
    packets = Packets(columns, capture.packets.sacks, capture.packets.connections)
    assert waits_in_queue(Capture(packets).flow(0)) is echoed
