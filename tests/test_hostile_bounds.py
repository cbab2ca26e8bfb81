"""Small files do not cost large amounts of memory or time: what they may claim is bounded by what they hold."""

import contextlib
import io
import time
import tracemalloc

import numpy as np
import pytest
from wire import ethernet, ipv4, pcap, tcp, tcp_options

import cctrace as cct
from cctrace.diagnosis.constants import MAX_WINDOWS
from cctrace.diagnosis.polled import Polls
from cctrace.errors import FormatError
from cctrace.flows import coarse
from cctrace.flows.sender.reenact import MAX_UNCAPTURED, UNCAPTURED_PER_PACKET
from cctrace.flows.table import MAX_SEGMENTS, MIN_MSS, segment_size
from cctrace.flows.window_scale import MAX_WSCALE
from cctrace.io.counters.pollcolumns import MAX_FIELDS
from cctrace.path.bottleneck import constant_rate
from cctrace.path.sent import sent_packets
from cctrace.path.transmissions import transmissions

SYN, ACK = 2, 16


def capture(path, segments, mss=1460, wscale=7):
    """Write a capture of a handshake and of (time in ms, is the sender's, sequence number, ack, payload)."""
    options = tcp_options(mss, wscale)
    frames = [
        (0, True, tcp(5000, 80, 0, 0, SYN, options=options)),
        (10, False, tcp(80, 5000, 0, 1, SYN | ACK, options=options)),
        (11, True, tcp(5000, 80, 1, 1, ACK)),
    ]
    for ms, mine, seq, ack, size in segments:
        ports = (5000, 80) if mine else (80, 5000)
        frames.append((ms, mine, tcp(*ports, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, ACK, payload=b"x" * size)))
    ends = ("10.0.0.1", "10.0.0.2")
    records = [
        (10**18 + ms * 10**6, ethernet(ipv4(segment, *(ends if mine else ends[::-1]), ident=1 + number)))
        for number, (ms, mine, segment) in enumerate(frames)
    ]
    path.write_bytes(pcap(records))
    return cct.read(path)


@pytest.mark.parametrize("mss", [1, 30, 88, 1460])
def test_an_ack_far_ahead_makes_up_no_more_segments_than_a_large_flight_has(tmp_path, mss):
    size = min(mss, 1000)
    rows = [(20, True, 1, 1, size), (30, False, 1, 1 + size, 0), (40, True, 1 + size, 1, size)]
    rows += [(50 + k, False, 1, 1 + 2 * size + k * (1 << 27), 0) for k in range(12)]
    flow = capture(tmp_path / "gap.pcap", rows, mss).flow(0)
    assert flow.quality()["uncaptured_segments"] <= MAX_UNCAPTURED + UNCAPTURED_PER_PACKET * (len(rows) + 3)
    assert len(flow.events) < 8 * MAX_UNCAPTURED


def test_what_a_capture_lacks_is_counted_where_no_rtt_is_known(tmp_path):
    rows = [(20, True, 1, 1, 1460), (30, False, 1, 1461, 0), (40, False, 1, 1461 + 5000 * 1460, 0)]
    flow = capture(tmp_path / "gap.pcap", rows).flow(0)
    flow.row["rtt_median_us"] = None  # as where time steps back before each ACK
    assert flow.quality()["uncaptured_segments"] == 5000


def test_data_that_a_capture_lacks_are_still_made_up(tmp_path):
    rows = [(20, True, 1, 1, 1460), (30, False, 1, 1461, 0), (40, False, 1, 1461 + 5000 * 1460, 0)]
    assert capture(tmp_path / "gap.pcap", rows).flow(0).quality()["uncaptured_segments"] == 5000


def test_the_mss_option_counts_as_no_less_than_a_sender_accepts(tmp_path):
    rows = [(20, True, 1, 1, 1000), (30, False, 1, 1001, 0)]
    assert capture(tmp_path / "mss.pcap", rows, mss=1).connections.mss.tolist() == [MIN_MSS]


def test_no_packet_holds_more_segments_than_the_largest_super_packet():
    assert segment_size(1 << 20, 0, MIN_MSS) == ((1 << 20) // MAX_SEGMENTS, False)
    assert segment_size(65160, 1448, 1448) == (1448, True)


def test_a_window_scale_beyond_what_the_rfc_allows_counts_as_the_largest(tmp_path):
    rows = [(20, True, 1, 1, 1000), (30, False, 1, 1001, 0)]
    assert capture(tmp_path / "scale.pcap", rows, wscale=255).params([0])["wscale"].tolist() == [MAX_WSCALE]


def polls(path, times_ns, words="bytes_acked:{acked} unacked:10"):
    """Write what ss would have said at some times, with progress from one to the next."""
    lines = []
    for k, time_ns in enumerate(times_ns):
        told = words.format(k=k, acked=1 + k * 10**7)
        lines += [f"# {time_ns}", "ESTAB 0 0 10.0.0.1:5000 10.0.0.2:80"]
        lines += [f"\t cubic rto:204 rtt:40/0.7 mss:1448 cwnd:10 {told}"]
    path.write_text("\n".join([*lines, ""]))
    return path


def test_years_between_two_polls_are_no_windows_of_a_tenth_of_a_second(tmp_path):
    begin = 1_700_000_000 * 10**9
    times = [begin + k * 10**8 for k in range(10)] + [begin + 60 * 365 * 86_400 * 10**9]
    flow = cct.read(polls(tmp_path / "ss.txt", times)).flow(0)
    middle, _rate, _rtt = Polls(flow).windows
    assert len(middle) <= MAX_WINDOWS * len(times)
    assert len(cct.diagnose(flow).verdicts) >= 1


def test_acks_made_up_between_polls_are_bounded_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr(coarse, "MAX_ROWS", 1000)
    flow = cct.read(polls(tmp_path / "ss.txt", [10**18 + k * 60 * 10**9 for k in range(50)])).flow(0)
    assert 49 < flow.events.meta["coarse"]["acks"] <= 1000


def test_a_file_of_counters_with_another_word_in_each_line_is_no_table(tmp_path):
    path = polls(tmp_path / "ss.txt", range(10**18, 10**18 + MAX_FIELDS), "w{k}:1")
    with pytest.raises(FormatError, match="different fields"):
        cct.read(path)


@pytest.mark.parametrize("late_ms", [60_000, 3_000_000, 10**8])
def test_windows_of_a_microsecond_are_counted_where_something_was_delivered_only(tmp_path, late_ms):
    rows = [(20, True, 1 + 1000 * k, 1, 1000) for k in range(400)]  # all within an instant, acknowledged much later
    rows += [(20 + late_ms + k, False, 1, 1 + 1000 * (k + 1), 0) for k in range(400)]
    table = transmissions(capture(tmp_path / "late.pcap", rows).flow(0))
    table.sent_ns[:] += np.arange(len(table.sent_ns)) // 100
    tracemalloc.start()
    rate, _ = constant_rate(sent_packets(table))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rate > 0
    assert most < 32 << 20


LONG = "a" * 500_000
TCPLIFE = f"PID COMM LADDR LPORT RADDR RPORT TX_KB RX_KB MS\n{LONG} 1 b\n"
VARNISH = f"*   << Request  >> 2\n-   Timestamp Resp: 1795190736.5 1 1\n-   VCL_Log tcpi: {LONG} rtt=5\n"
SS = f"ESTAB 0 0 10.0.0.1:5001 10.0.0.2:40000\n\t cubic rto:204 rtt:1/1 mss:1448 cwnd:10 skmem:({LONG})\n"
PROBE = f"  a-1 [0] .... 1.5: tcp_probe: {LONG} data_len=1\n"


@pytest.mark.parametrize("text", [TCPLIFE, VARNISH, SS, PROBE], ids=["tcplife", "varnishlog", "ss", "tcp_probe"])
def test_a_long_word_takes_time_in_proportion_to_its_length(text):
    began = time.process_time()
    with contextlib.suppress(FormatError):
        cct.read(io.BytesIO(text.encode()))
    assert time.process_time() - began < 5  # minutes where a pattern tries it from each character on
