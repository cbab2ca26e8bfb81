"""Counters as people paste them: one snapshot without a time, lines without their sockets, a full window."""

import io
import warnings

import numpy as np
import pytest

import cctrace
from cctrace import cli
from cctrace.diagnosis.diagnose import diagnose
from cctrace.io.counters.tcpinfo import MISSING

T0 = 1_733_525_121
HEADER = "State Recv-Q Send-Q Local Address:Port Peer Address:Port\n"
SOCKET = "ESTAB 0 0 10.0.0.1:5201 10.0.0.2:60308\n"


def words(acked=1_000_000, unacked=100, window=1_000_000, cwnd=1000, cc="bbr", mss=1000, notsent=90_000, rest=""):
    return (
        f"\t {cc} wscale:7,14 rto:324 rtt:123.2/0.23 mss:{mss} cwnd:{cwnd} bytes_sent:{acked + 5} bytes_acked:{acked} "
        f"segs_out:{acked // 1000} data_segs_out:{acked // 1000} delivered:{acked // mss + 1} "
        f"delivery_rate 269Mbps busy:4720ms {rest} "
        f"unacked:{unacked} notsent:{notsent} minrtt:122.3 snd_wnd:{window}\n"
    )


def flow_of(text, which=0):
    return cctrace.read(io.BytesIO(text.encode())).flow(which)


@pytest.mark.parametrize(
    ("given", "cause", "told"),
    [
        ({"unacked": 995}, "receiver_limited", "99.5 % of 1 MB in flight"),
        ({"rest": "rwnd_limited:4000ms(84.7%)"}, "receiver_limited", "for 84.7 % of the time it had data"),
        ({"rest": "app_limited"}, "application_limited", "less than it could"),
        ({"unacked": 0, "notsent": 0}, "application_limited", "less than it could"),
        ({"unacked": 95, "cwnd": 100}, "path_full", "congestion window was full, 100 segments"),
        ({}, "unknown", "neither a window"),
    ],
)
def test_one_snapshot_without_a_time_gets_its_sentence_and_no_warning_leaks(given, cause, told):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flow = flow_of(HEADER + SOCKET + words(**given))
        assert np.isnan(flow.row["duration_s"])
        assert np.isnan(flow.row["start_ns"])
        found = diagnose(flow)
    assert found.cause == cause
    assert told in found.verdict
    assert "A single poll: " in found.verdict


@pytest.mark.parametrize("minrtt", ["0", "4294967.295"])
def test_a_min_rtt_that_the_kernel_never_measured_is_not_known(minrtt):
    found = diagnose(flow_of(HEADER + SOCKET + words(unacked=0, notsent=0).replace("122.3", minrtt)))
    assert found.cause == "application_limited"
    found = diagnose(flow_of(HEADER + SOCKET + words().replace("122.3", minrtt)))
    assert found.cause == "unknown"
    assert "at least" not in found.verdict


def test_a_snapshot_without_a_time_makes_a_report(tmp_path):
    (tmp_path / "ss.txt").write_text(HEADER + SOCKET + words(unacked=995))
    assert cli.main(["analyze", str(tmp_path / "ss.txt"), "-o", str(tmp_path / "r")]) == 0
    assert "The receive window was full" in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize("prefix", ["{time}.5 ", "Dec 06 22:45:{second:02d} ", ""])
def test_words_without_their_sockets_line_are_one_connection(prefix):
    lines = [
        prefix.format(time=T0 + i, second=i) + words(acked=1_000_000 * (i + 1), unacked=900 + i % 3, window=1_000_000)
        for i in range(20)
    ]
    flow = flow_of("".join(lines))
    assert len(flow.polls) == 20
    assert flow.polls["bytes_acked"].tolist() == [1_000_000 * (i + 1) for i in range(20)]
    assert (flow.polls["time_ns"] == MISSING).all() == (prefix == "")
    assert any("lines without addresses" in text for text in flow.polls.warnings)
    if prefix:
        assert flow.row["goodput_bps"] == pytest.approx(8e6)


def test_words_of_two_connections_are_told_apart_by_their_counters():
    lines = []
    for i in range(10):
        lines.append(f"{T0 + i}.1 " + words(acked=9_000_000 + 1000 * i))
        lines.append(f"{T0 + i}.2 " + words(acked=50_000 + 500_000 * i))
        lines.append(f"{T0 + i}.3 " + words(acked=77_000 + 10_000 * i, cc="cubic"))
    table = cctrace.read(io.BytesIO("".join(lines).encode()))
    assert [len(table.flow(i).polls) for i in range(3)] == [10, 10, 10]
    assert table.flow(0).polls["bytes_acked"].tolist() == [9_000_000 + 1000 * i for i in range(10)]
    assert table.connections[2] == {"flow_id": 2, "cc": "cubic"}


def test_a_window_full_at_most_looks_is_the_receivers_although_the_kernel_counts_less_than_half_of_the_time():
    lines = [
        f"# {T0 + i}\n{SOCKET}{words(acked=1_000_000 * (i + 1), unacked=960, rest='rwnd_limited:1982ms(42.0%)')}"
        for i in range(20)
    ]
    found = diagnose(flow_of("".join(lines)), "bbr")
    assert found.cause == "receiver_limited"
    assert found.figures["window_used"] == pytest.approx(0.96)
    assert "96 % of it" in found.verdict


def test_others_to_the_same_host_that_had_data_at_the_time_are_competition_with_little_confidence():
    two = HEADER + SOCKET + words() + SOCKET.replace("60308", "60309") + words(acked=500_000)
    found = diagnose(flow_of(two)).verdicts[0]
    assert (found.name, found.confidence) == ("competition", 0.5)
    assert found.evidence["flows"] == 2
    assert found.evidence["their_rate_bps"] == pytest.approx(500_000 * 8 / 4.72)
    elsewhere = HEADER + SOCKET + words() + SOCKET.replace("10.0.0.2", "10.0.0.3") + words()
    assert diagnose(flow_of(elsewhere)).cause == "unknown"
    small = SOCKET.replace("60308", "60309") + words(acked=5_000)
    assert diagnose(flow_of(HEADER + SOCKET + words() + small)).cause == "unknown"


def test_one_burst_of_losses_that_leaves_a_large_window_is_no_loss_by_chance():
    text = words(acked=10_000_000, unacked=0, notsent=0, cc="cubic", rest="retrans:0/100")
    text = text.replace("rtt:123.2/0.23", "rtt:100/0.23").replace("minrtt:122.3", "minrtt:100")  # 212 segments, not 24
    text = text.replace("269Mbps", "18Mbps")
    found = diagnose(flow_of(HEADER + SOCKET + text)).verdicts[0]
    assert (found.name, found.confidence) == ("path_full", 0.4)


AT_THE_END = [(104, 0, "random_loss"), (104, 50, "unknown"), (90, 50, "random_loss")]


@pytest.mark.parametrize(("rtt", "unacked", "cause"), AT_THE_END)
def test_a_delayed_ack_at_the_end_of_a_transfer_is_no_queue(rtt, unacked, cause):
    text = words(unacked=unacked, notsent=0 if unacked == 0 else 90_000, cc="cubic", rest="retrans:0/10")
    text = text.replace("rtt:123.2/0.23", f"rtt:{rtt}/0.23").replace("minrtt:122.3", "minrtt:90")
    assert diagnose(flow_of(HEADER + SOCKET + text)).cause == cause
