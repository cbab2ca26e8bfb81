"""What is written is what was read: Parquet without loss, pcap with the same headers, CSV for people."""

import csv
import errno
import gzip
import io
import json
import struct

import numpy as np
import pytest
from test_io_pcap import T0, conversation
from wire import enhanced, ethernet, interface, ipv4, ipv6, option, pcap, section, tcp, tcp_options

from cctrace import datasets
from cctrace.errors import ArgumentError, FormatError
from cctrace.flows.capture import read
from cctrace.flows.events import Events
from cctrace.io import parquet, read_file
from cctrace.io.write import convert

SYN = tcp_options(mss=1460, wscale=7, sack_ok=True, timestamps=(1, 0))
BLOCKS = tcp_options(timestamps=(3, 4), sacks=[(10, 20), (30, 40), (50, 60)])
CAPTURE = [
    (T0, ipv4(tcp(seq=5, flags=2, options=SYN))),
    (T0 + 7, ipv4(tcp(seq=6, payload=bytes(700), options=tcp_options(timestamps=(3, 4))), tos=2, ttl=9)),
    (T0 + 9, ipv6(tcp(seq=6, options=BLOCKS), traffic_class=3, hops=7)),
    (T0 + 5, ipv4(tcp(sport=80, dport=1000, flags=0x1FF), src="10.0.0.2", dst="10.0.0.1")),
    (T0 + 11, ipv4(tcp(seq=9, payload=bytes(100_000)), length=0)[:60], 100_040),
]


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap(CAPTURE, 101))
    return path


def same(one, other, leave_out=()):
    for name in set(one.columns) - set(leave_out):
        assert np.array_equal(one[name], other[name]), name
    for side in one.sacks:
        assert np.array_equal(one.sacks[side], other.sacks[side])
    for name in one.connections:
        assert one.connections[name].tolist() == other.connections[name].tolist(), name


def test_packets_survive_parquet_without_loss(capture, tmp_path):
    capture.write_bytes(capture.read_bytes() + bytes(5))  # a record that was cut off
    told = convert(capture, tmp_path / "out.parquet")
    packets, back = read_file(capture), read_file(tmp_path / "out.parquet")
    same(packets, back)
    assert {n: c.dtype for n, c in back.columns.items()} == {n: c.dtype for n, c in packets.columns.items()}
    assert back.counters == packets.counters
    assert told["rows"] == len(packets) == 5
    assert told["warnings"] == packets.warnings != []


def test_a_capture_converted_in_parts_is_the_whole(tmp_path):
    (tmp_path / "in.pcap").write_bytes(pcap([(T0 + i, p) for i, p in enumerate(conversation(1000))], 101))
    convert(tmp_path / "in.pcap", tmp_path / "out.parquet", chunk=100)
    same(read_file(tmp_path / "in.pcap"), read_file(tmp_path / "out.parquet"))


@pytest.mark.parametrize("seed", range(3))
def test_headers_survive_pcap(tmp_path, seed):
    ips = conversation(300, seed)
    (tmp_path / "in.pcap").write_bytes(pcap([(T0 + i, ethernet(p)) for i, p in enumerate(ips)]))
    convert(tmp_path / "in.pcap", tmp_path / "out.pcap")
    one, other = read_file(tmp_path / "in.pcap"), read_file(tmp_path / "out.pcap")
    # MSS, window scale and SACK-permitted are written on SYNs only, as their connection has them.
    same(Without(one), Without(other), {"options"})
    assert np.array_equal(one["options"] & 3, other["options"] & 3)


def test_the_header_of_a_syn_keeps_its_length(tmp_path):
    linux = struct.pack("!BBHBBBBIIBBBB", 2, 4, 1460, 4, 2, 8, 10, 5, 0, 1, 3, 3, 7)
    (tmp_path / "in.pcap").write_bytes(pcap([(T0, ipv4(tcp(flags=2, options=linux)))], 101))
    convert(tmp_path / "in.pcap", tmp_path / "out.pcap")
    same(read_file(tmp_path / "in.pcap"), read_file(tmp_path / "out.pcap"))


def test_a_time_that_no_pcap_holds_is_refused(tmp_path):
    late = option(9, b"\0")
    data = section() + interface(101, options=late) + enhanced(1 << 32, ipv4(tcp()))
    (tmp_path / "in.pcapng").write_bytes(data)
    with pytest.raises(ArgumentError, match=r"packet 0 at time_ns 4294967296000000000: .*use parquet"):
        convert(tmp_path / "in.pcapng", tmp_path / "out.pcap")


class Without:
    """Packets without what only SYNs are meant to say."""

    def __init__(self, packets):
        self.columns, self.sacks = packets.columns, packets.sacks
        self.connections = {n: packets.connections[n] for n in ("src", "sport", "dst", "dport")}

    def __getitem__(self, name):
        return self.columns[name]


def test_a_written_pcap_reads_back_with_every_length(capture, tmp_path):
    convert(capture, tmp_path / "out.pcap")
    same(read_file(capture), read_file(tmp_path / "out.pcap"))


def test_csv_names_sender_and_receiver(capture, tmp_path):
    convert(capture, tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [r["src"] for r in rows][3] == "10.0.0.2"
    assert (rows[3]["sport"], rows[3]["dport"]) == ("80", "1000")
    assert rows[2]["sack"] == "10-20 30-40 50-60"
    assert rows[0]["time_ns"] == str(T0)


def test_tcp_info_and_link_traces_survive_parquet(tmp_path):
    text = f"time_ns,tcpi_rtt,tcpi_snd_cwnd,note,cc\n{T0},1,,a,bbr\n{T0 + 1},,5,b,bbr\n"
    (tmp_path / "in.csv").write_text(text)
    (tmp_path / "in.down").write_text("0\n0\n5\n9\n")
    for name in ("in.csv", "in.down"):
        convert(tmp_path / name, tmp_path / "out.parquet")
        one, other = read_file(tmp_path / name), read_file(tmp_path / "out.parquet")
        assert one.frame().equals(other.frame())
        assert one.format == other.format
    assert other.rate(5)[1].tolist() == one.rate(5)[1].tolist()
    assert read_file(tmp_path / "in.csv").connections == [{"cc": "bbr"}]


def test_no_text_of_a_file_becomes_a_formula_of_a_spreadsheet(tmp_path):
    source, target = tmp_path / "ss.txt", tmp_path / "ss.csv"
    source.write_text(
        "ESTAB 0 0 10.0.0.1:5000 10.0.0.2:5201\n\t cubic rtt:40/5 cwnd:10 mss:1448 bytes_acked:5000 "
        "pacing_rate =HYPERLINK(9) delivery_rate @SUM(9) retrans:-1+cmd|x minrtt:=1+1\n"
    )
    convert(str(source), str(target))
    with open(target, newline="") as file:
        head, *rows = csv.reader(file)
    cells = [cell for row in rows for cell in row]
    assert any(cell.startswith("'=") for cell in cells)
    assert not [cell for cell in [*head, *cells] if cell.startswith(("=", "+", "-", "@"))]


def test_what_cannot_be_converted_is_an_error(capture, tmp_path):
    with pytest.raises(ArgumentError, match="to='xlsx' is not one of parquet, csv, pcap"):
        convert(capture, tmp_path / "out.xlsx")
    (tmp_path / "t").write_text("0\n5\n")
    with pytest.raises(ArgumentError, match="only captures become pcap, and this holds no packets"):
        convert(tmp_path / "t", tmp_path / "out.pcap")


def test_a_source_is_never_its_own_target(tmp_path):
    file = tmp_path / "own.pcap"
    file.write_bytes(data := pcap(CAPTURE, 101))
    (tmp_path / "same.pcap").symlink_to(file)
    with pytest.raises(ArgumentError, match="is the source itself"):
        convert(file, tmp_path / "same.pcap")
    assert file.read_bytes() == data


@pytest.mark.parametrize("to", ["csv", "pcap", "parquet"])
def test_a_target_that_cannot_be_written_whole_is_left_as_it_was(capture, tmp_path, monkeypatch, to):
    target = tmp_path / f"out.{to}"
    target.write_text("before")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left") as refusal:
        convert(capture, target)
    assert refusal.value.filename == str(target)
    assert [(path.name, path.read_text()) for path in tmp_path.glob("out*")] == [(target.name, "before")]


def test_damaged_and_foreign_parquet_is_refused(capture, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    convert(capture, tmp_path / "out.parquet")
    data = (tmp_path / "out.parquet").read_bytes()
    with pytest.raises(FormatError, match="damaged Parquet"):
        read_file(io.BytesIO(data[:-10]))
    pq.write_table(pa.table({"x": [1]}), tmp_path / "foreign.parquet")
    with pytest.raises(FormatError, match="not written by cctrace; found x"):
        read_file(tmp_path / "foreign.parquet")


def test_other_tables_are_saved_with_their_metadata(tmp_path):
    rows = parquet.save(tmp_path / "e.parquet", "events", [{"time_ns": np.array([1, 2])}], {"mss": 1448})
    kind, columns, meta = parquet.load(tmp_path / "e.parquet")
    assert (rows, kind, columns["time_ns"].tolist(), meta) == (2, "events", [1, 2], {"mss": 1448})
    assert json.dumps(meta)


def test_an_event_stream_survives_the_disk_without_loss(tmp_path):
    events = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0).events
    assert events.to_parquet(tmp_path / "e.parquet") == len(events)
    back = Events.load(tmp_path / "e.parquet")
    assert back.rows.dtype == events.rows.dtype
    assert np.array_equal(back.rows, events.rows)
    assert back.meta == events.meta


def test_only_event_streams_are_loaded_as_such(capture, tmp_path):
    convert(capture, tmp_path / "packets.parquet")
    with pytest.raises(FormatError, match="holds packets, not an event stream"):
        Events.load(tmp_path / "packets.parquet")
    parquet.save(tmp_path / "old.parquet", "events", [{"time_ns": np.array([1])}], {})
    with pytest.raises(FormatError, match="another version of cctrace: lacks ack"):
        Events.load(tmp_path / "old.parquet")


def test_packets_that_were_written_for_people_are_not_taken_for_counters(tmp_path):
    """Their time stamps and addresses are columns of counters, too."""
    source = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    convert(source, tmp_path / "people.csv")
    with pytest.raises(FormatError, match="packets that cctrace wrote as CSV"):
        read_file(tmp_path / "people.csv")


def test_a_file_that_was_compressed_twice_says_so(tmp_path):
    (tmp_path / "twice.pcap.gz").write_bytes(gzip.compress(gzip.compress(b"\xd4\xc3\xb2\xa1" + bytes(20))))
    with pytest.raises(FormatError, match=r"gzip within a compressed file, .*unpack it"):
        read_file(tmp_path / "twice.pcap.gz")
