"""Counters of which some values are damaged: these are left out and counted, the rest is analysed."""

import json

import numpy as np
import pytest
from wire import read

from cctrace import cli
from cctrace.errors import FormatError, StreamError
from cctrace.flows.counters import CounterFlow
from cctrace.identification.identify import identify
from cctrace.io.counters.clock import leading_time
from cctrace.io.counters.tcpinfo import MISSING
from tests.test_io_ss import SOCKET, V41, T
from tests.test_io_tcpinfo_formats import NDT7, NEW

PROBE = f"  a-1 [0] .... 1.5: tcp_probe: {NEW}\n"


@pytest.fixture
def analysed(tmp_path, capsys, monkeypatch):
    """Run `cctrace analyze` on a text; returns its exit status and what it says on stderr."""
    monkeypatch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)

    def run(text):
        (tmp_path / "input").write_bytes(text if isinstance(text, bytes) else text.encode())
        status = cli.main(["analyze", str(tmp_path / "input"), "-o", str(tmp_path / "out")])
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize("word", ["rtt:inf/2", "delivered:inf", "key:1", "time_ns:5", "informed:0", "cwnd:1e999"])
def test_one_odd_word_of_ss_is_counted_and_the_rest_of_the_file_read(word):
    table = read(f"# {T}\n{SOCKET}{V41}\n# {T + 10**8}\n{SOCKET}{V41} {word}\n")
    assert len(table) == 2
    assert table["snd_cwnd"].min() > 0
    (said,) = [line for line in table.warnings if "not as ss prints" in line]
    assert "1 words" in said
    assert word in said


def test_a_field_called_connection_is_a_field_and_no_connection():
    rows = [{"ElapsedTime": 1000 * i, "RTT": 5, "connection": 7, "BytesAcked": i} for i in range(3)]
    table = read(json.dumps(NDT7 | {"Download": {"ServerMeasurements": [{"TCPInfo": row} for row in rows]}}))
    assert table.connection.tolist() == [0, 0, 0]
    assert table.extra["connection_column"].tolist() == [7, 7, 7]
    assert table.frame()["connection"].tolist() == [0, 0, 0]


def test_a_number_among_texts_and_a_text_among_numbers_are_counted():
    table = read(PROBE + PROBE.replace("snd_una=0xf", "snd_una=foo").replace("mark=0x0", "mark=zero") + PROBE)
    assert table.extra["snd_una"].tolist() == [15, MISSING, 15]
    assert table.extra["mark"].tolist() == [0, MISSING, 0]
    said = [line for line in table.warnings if "not 64-bit numbers" in line]
    assert [line.count("1 values") for line in said] == [1, 1]


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63), 10**400, 1e300, float("inf"), "many", [1, 2], {"a": 1}])
def test_what_is_no_number_of_64_bits_is_missing(value):
    polls = [{"time_ns": 10**18 + i, "snd_cwnd": 10, "rtt": 5 if i else value, "bytes_acked": i} for i in range(3)]
    table = read(json.dumps(polls))
    assert table["rtt"][1:].tolist() == [5, 5]
    assert table["rtt"][0] in (MISSING, 5)
    assert table["snd_cwnd"].tolist() == [10, 10, 10]


def test_a_date_that_is_cut_is_no_time_and_ends_no_sniffing():
    assert leading_time("Mar 18:08:10")[0] is None
    with pytest.raises(FormatError, match="not a format"):
        read("Mar 18:08:10\n")


def test_a_time_beyond_64_bits_is_none():
    assert leading_time("9999-01-01T00:00:00Z")[0] is None


# What follows ended in a traceback.
QLOG = {"qlog_version": "0.3", "traces": [{"events": [{"time": 1, "name": "transport:packet_received", "data": {}}]}]}


@pytest.mark.parametrize(
    "text",
    [
        PROBE + PROBE.replace("snd_nxt=0x10", "snd_nxt=\x7f\xff10"),
        PROBE + PROBE.replace("mark=0x0", "mark=0x0snd_una=0xf"),
        json.dumps([{"time_ns": i, "snd_cwnd": 10, "rtt": 5, "note": "\ud800"} for i in range(3)]),
        json.dumps([{"time_ns": i, "snd_cwnd": 10, "rtt": 5, "src": "10.0.0.1", "sport": 1} for i in range(3)]),
        json.dumps([{"time_ns": i, "snd_cwnd": 10, "rtt": 5, "bbr_mode": "odd"} for i in range(3)]),
        json.dumps(QLOG),
    ],
    ids=["a number of bytes", "mixed kinds", "a lone surrogate", "no destination", "an odd mode", "no packet sent"],
)
def test_odd_counters_are_analysed_or_refused_in_one_line(analysed, text):
    status, err = analysed(text)
    assert "internal error" not in err
    assert status == 0 or err.count("\n") == 1


@pytest.mark.parametrize("odd", [10**400, True], ids=["beyond every type", "no number"])
def test_numbers_of_an_ndt7_result_that_are_none_end_no_analysis_and_no_corpus(odd, analysed, tmp_path, capsys):
    rows = [
        {
            "TCPInfo": {
                "ElapsedTime": i * 10**5,
                "RTT": 9000,
                "BytesAcked": i * 10**6,
                "SndCwnd": 10,
                "SomethingNew": odd,
            }
        }
        for i in range(1, 9)
    ]
    result = NDT7 | {"ServerPort": odd, "Download": {"ServerMeasurements": rows}}
    assert "sport" not in read(json.dumps(result)).connections[0]
    status, err = analysed(json.dumps(result))
    assert (status, "internal error" in err) == (0, False)
    assert cli.main(["corpus", "run", str(tmp_path / "input"), "-o", str(tmp_path / "corpus"), "--workers", "1"]) == 0
    assert "internal error" not in capsys.readouterr().err


def test_a_port_by_its_name_is_none_in_a_corpus(tmp_path, capsys):
    text = "".join(
        f"# {T + i * 10**8}\n{SOCKET.replace(':40001 ', ':https ')}{V41} bytes_acked:{i * 10**6}\n" for i in range(8)
    )
    (tmp_path / "ss.txt").write_text(text)
    assert ":https" in text
    assert cli.main(["corpus", "run", str(tmp_path / "ss.txt"), "-o", str(tmp_path / "corpus"), "--workers", "1"]) == 0
    assert "internal error" not in capsys.readouterr().err


def test_a_quic_controller_is_replayed_over_counters_of_linux_without_a_comparison(tmp_path, capsys):
    text = "".join(f"# {T + i * 10**8}\n{SOCKET}{V41} bytes_acked:{i * 100_000}\n" for i in range(1, 9))
    (tmp_path / "ss.txt").write_text(text)
    assert cli.main(["replay", str(tmp_path / "ss.txt"), "--cc", "quic_bbr"]) == 0
    assert "after the last call" in capsys.readouterr().out


def test_a_connection_without_segment_size_is_looked_at(analysed):
    status, err = analysed(f"{SOCKET}{V41.replace('mss:', 'unknown_mss:')} mss:0 retrans:0/9 busy:900ms\n")
    assert "internal error" not in err
    assert status == 0


def test_segments_of_no_size_divide_nothing():
    """A RuntimeWarning is an error here."""
    socket = "ESTAB 0 0 10.0.0.1:443 10.0.0.2:5000\n\t cubic rto:204 rtt:10/1 mss:0 cwnd:10 bytes_acked:"
    table = read("".join(f"# {10**18 + i * 10**8}\n{socket}{i * 1000}\n" for i in range(50)))
    with pytest.raises(StreamError, match="0 polls have cwnd, RTT and progress"):
        identify(CounterFlow(table, 0))


def test_polls_whose_times_go_back_are_compared_with_a_replay(tmp_path):
    from cctrace import datasets
    from cctrace.flows.capture import read as read_counters
    from cctrace.replaying.run import replay

    table = read_counters(datasets.path("tso_bbr_300m_veth", "tcpinfo.csv.zst"))
    flow = table.flow(0)
    run = replay(flow, "bbr2022", record="all")
    compared = run.compare()
    compared._low[3:5] = compared._high[3:5] + 5
    assert not np.any(compared.agrees(compared.quantities[0])[3:5])
