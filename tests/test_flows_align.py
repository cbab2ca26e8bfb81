"""The clock of polls is found from how far the connection had come, and how sure that is holds."""

import functools

import numpy as np
import pytest

from cctrace import datasets
from cctrace.errors import ArgumentError
from cctrace.flows.capture import Capture, read
from cctrace.io.captures.packets import Packets
from cctrace.io.counters.tcpinfo import MISSING, TcpInfo
from tests.conversation import EPOCH_NS, MSS, Conversation

DAY_NS = 86_400_000_000_000


@functools.cache
def recording(name):
    """Return (flow, polls) of a shipped recording; one clock, polls every 10 ms."""
    polls = read(datasets.path(name, "tcpinfo.csv.zst"))
    return read(datasets.path(name, "sender.pcap.zst")).flow(0), polls.select(0)


def told(polls, offset_ns=0, drift_ppm=0.0, every=1, late_ms=None, **changed):
    """Return polls as another clock would have stamped them, with `late_ms` before the kernel was asked, once."""
    rows = slice(0, None, every)
    columns = {name: column[rows] for name, column in polls.columns.items()}
    since = columns["time_ns"] - columns["time_ns"][0]
    for name in ("time_ns", "time_after_ns"):
        columns[name] = columns[name] - offset_ns - np.rint(since * drift_ppm / 1e6).astype(np.int64)
    if late_ms is not None:
        late = np.random.default_rng(1).uniform(*late_ms, len(since))
        columns["time_ns"] = columns["time_after_ns"] = columns["time_ns"] - np.rint(late * 1e6).astype(np.int64)
    columns |= {name: np.full(len(since), value) for name, value in changed.items()}
    extra = {name: column[rows] for name, column in polls.extra.items()}
    return TcpInfo(columns, extra, polls.connection[rows], polls.connections, "polls.csv", polls.format)


RECORDINGS = ["single_bbr_1bdp", "loss_cubic_1pct", "jitter_bbr_sd2ms", "tso_bbr_300m_veth"]
OFFSETS = [37_000_000, -3_600_000_000_000, 400 * DAY_NS]


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("offset_ns", OFFSETS)
def test_any_offset_of_the_clocks_is_found_within_its_uncertainty(name, every, offset_ns):
    flow, polls = recording(name)
    got = flow.attach(told(polls, offset_ns, every=every))
    found = got.alignment
    assert abs(found.offset_ns - offset_ns) <= found.uncertainty_ns < 1_000_000
    assert found.agreement > 0.99
    want = polls["time_ns"][::every]
    assert abs(got.tcpinfo["time_ns"] - want).max() <= found.uncertainty_ns


@pytest.mark.parametrize("name", RECORDINGS)
def test_polls_of_the_same_clock_keep_their_times(name):
    flow, polls = recording(name)
    got = flow.attach(polls)
    assert got.alignment.offset_ns == got.alignment.drift_ppm == 0
    assert (got.tcpinfo["time_ns"] == polls["time_ns"]).all()
    assert got.alignment.text.startswith("clocks agree (±")


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "jitter_bbr_sd2ms"])
@pytest.mark.parametrize("ppm", [50.0, -80.0])
def test_a_drift_that_shows_is_told_and_taken_out(name, ppm):
    flow, polls = recording(name)
    got = flow.attach(told(polls, 5_000_000, ppm))
    found = got.alignment
    assert abs(found.drift_ppm - ppm) <= 3 * found.drift_uncertainty_ppm < 10
    assert abs(got.tcpinfo["time_ns"] - polls["time_ns"]).max() < 150_000  # 20 s at 50 ppm are 1 ms
    assert "drifting by" in found.text


@pytest.mark.parametrize("every", [1, 10])
def test_a_poller_that_notes_the_time_before_it_asks_costs_precision_not_truth(every):
    flow, polls = recording("single_bbr_1bdp")
    found = flow.attach(told(polls, 60_000_000, every=every, late_ms=(2, 9))).alignment
    assert abs(found.offset_ns - 60_000_000) <= found.uncertainty_ns + 9_000_000
    assert 1_000_000 <= found.uncertainty_ns < 20_000_000
    assert found.agreement > 0.9


def test_whole_seconds_of_a_date_are_enough_to_align():
    flow, polls = recording("single_bbr_1bdp")
    coarse = told(polls, 3_600_000_000_000, every=10)
    coarse.columns["time_ns"] = coarse.columns["time_after_ns"] = coarse["time_ns"] // 10**9 * 10**9
    found = flow.attach(coarse).alignment
    assert abs(found.offset_ns - 3_600_000_000_000) <= found.uncertainty_ns <= 2_000_000_000


def test_a_capture_that_starts_in_mid_flow_is_aligned_all_the_same():
    flow, polls = recording("single_bbr_1bdp")
    packets = flow.capture.packets
    late = packets["time_ns"] > packets["time_ns"][0] + 6_000_000_000
    columns = {name: column[late] for name, column in packets.columns.items()}
    flow = Capture(Packets(columns, packets.sacks, packets.connections)).flow(0)
    for offset_ns in (0, 37_000_000, -3_600_000_000_000):
        found = flow.attach(told(polls, offset_ns)).alignment
        assert abs(found.estimate_ns - offset_ns) <= found.uncertainty_ns < 1_000_000
        assert (found.offset_ns == 0) == (offset_ns == 0)


@pytest.mark.parametrize("other", ["loss_cubic_1pct", "jitter_bbr_sd2ms", "tso_bbr_300m_veth"])
def test_polls_of_another_connection_are_refused(other):
    flow, _ = recording("single_bbr_1bdp")
    _, polls = recording(other)
    with pytest.raises(ArgumentError, match=r"polls\.csv: connection of 10\.99\.0\.1:40001 .*another connection"):
        flow.attach(told(polls))


def test_polls_from_before_or_after_the_capture_are_refused():
    flow, polls = recording("single_bbr_1bdp")
    with pytest.raises(ArgumentError, match="no poll shows a state of the connection that the capture shows"):
        flow.attach(told(polls, bytes_acked=polls["bytes_acked"] + 10**9))


def test_without_counters_of_progress_equal_clocks_are_assumed_and_told():
    flow, polls = recording("single_bbr_1bdp")
    found = flow.attach(told(polls, bytes_acked=MISSING)).alignment
    assert (found.offset_ns, found.uncertainty_ns) == (0, -1)
    assert np.isnan(found.agreement)
    assert "assumed equal" in found.text
    with pytest.raises(ArgumentError, match="no poll lies within the time of the capture"):
        flow.attach(told(polls, DAY_NS, bytes_acked=MISSING))


@pytest.mark.parametrize("passive", [False, True])
def test_the_byte_of_the_syn_counts_for_the_end_that_sent_it_first(passive):
    """bytes_acked is snd_una less where the sender began, which for a server is past the SYN."""
    talk = Conversation()
    for i in range(30):
        talk.data(50 * i, 1 + i * MSS, 1).ack(50 * i + 40 - i % 3, 1 + (i + 1) * MSS)
    if passive:
        syn, syn_ack, ack = talk.rows[:3]
        syn["direction"], syn_ack["direction"] = 1, 0
        syn["seq"], syn_ack["seq"], syn_ack["ack"] = syn_ack["seq"], syn["seq"], syn_ack["seq"] + 1
        ack["direction"], ack["seq"], ack["ack"] = 1, syn["seq"] + 1, syn_ack["seq"] + 1
    flow = talk.flow()
    at = EPOCH_NS + np.arange(100, 1500, 50) * 1_000_000 + 7_000_000
    acked = np.array([sum(50 * i + 80 - i % 3 <= ms for i in range(30)) for ms in (at - EPOCH_NS) / 1e6])
    none = np.full(len(at), MISSING)
    _, polls = recording("single_bbr_1bdp")
    columns = dict.fromkeys(polls.columns, none)
    columns |= {"time_ns": at, "time_after_ns": at + 1000, "bytes_acked": acked * MSS + (not passive)}
    found = flow.attach(TcpInfo(columns, {}, none * 0, [{"flow_id": 0}])).alignment
    assert found.offset_ns == 0
    assert found.agreement == 1


def late_acks(seed, segments=2):
    """Return (conversation at the sender, the same at a receiver whose ACKs then take 15 to 45 ms to arrive)."""
    rng = np.random.default_rng(seed)
    there, here = Conversation(), Conversation()
    for row in here.rows:
        row["time_ns"] += (1 if row["direction"] == 0 else -1) * 20_000_000
    arrived, gaps = 0.0, rng.uniform(2, 6, 200)
    for i, sent in enumerate(1 + np.cumsum(gaps)):
        end = 1 + (i + 1) * segments * MSS
        received = sent + 20
        arrived = max(arrived, received + rng.uniform(15, 45))
        there.data(sent, end - segments * MSS, segments).ack(arrived, end, echo_ms=sent)
        here.data(received, end - segments * MSS, segments, stamped_ms=sent).ack(received + 0.01, end, echo_ms=sent)
    return there, here


def polls_of(talk):
    """What the kernel's counters of a sender would have said every 10 ms, as another source writes them."""
    at = EPOCH_NS + np.arange(100, 900, 10) * 1_000_000 + 7_000_000
    states = talk.flow().answers(np.column_stack([at, at + 1_000]))
    states = states[np.unique(states["poll"], return_index=True)[1]]
    none = np.full(len(at), MISSING)
    _, polls = recording("single_bbr_1bdp")
    columns = dict.fromkeys(polls.columns, none) | {"time_ns": at, "time_after_ns": at + 1_000}
    columns |= {name: states[name] for name in ("bytes_acked", "bytes_sent", "bytes_retrans")}
    return TcpInfo(columns, {}, none * 0, [{"flow_id": 0}])


def test_where_acks_come_at_any_time_the_bytes_sent_tell_whose_polls_these_are():
    there, here = late_acks(1)
    flow = here.flow()
    assert flow.quality()["taken_at"] != "sender"
    found = flow.attach(polls_of(there)).alignment
    assert found.agreement > 0.9
    assert found.uncertainty_ns < 5_000_000
    with pytest.raises(ArgumentError, match="another connection"):
        flow.attach(polls_of(late_acks(2)[0]))
