"""Archives: each member is a source, whatever it holds."""

import gzip
import io
import json

import numpy as np
import pytest
from test_io_pcap import T0
from test_io_tcpinfo_formats import META, raw_info
from test_io_tcpinfo_formats import snapshot as mlab_snapshot
from wire import ipv4, pcap, tar, tcp, zipped

from cctrace import cli, datasets
from cctrace.errors import FormatError
from cctrace.flows.table import of_file
from cctrace.io import read_file, stream
from cctrace.io.counters.tcpinfo import MISSING


def capture(first, count=3):
    frames = [(T0 + (first + i) * 1000, ipv4(tcp(seq=first + i, payload=b"x"), ident=first + i)) for i in range(count)]
    return pcap(frames, 101)


PACKERS = {"tar": lambda files: tar(files, "w"), "tgz": tar, "zip": zipped}


@pytest.mark.parametrize("kind", PACKERS)
def test_captures_in_an_archive_are_joined_in_the_order_of_time(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    path.write_bytes(
        PACKERS[kind]({"b.pcap.gz": gzip.compress(capture(4)), "a/a.pcap": capture(1), "README": b"hello"})
    )
    packets = read_file(path)
    assert packets["seq"].tolist() == [1, 2, 3, 4, 5, 6]
    assert any("README" in text and "left out" in text for text in packets.warnings)
    assert of_file(path).rows()[0]["packets"] == 6
    assert sum(len(part) for part in stream(path, 2)) == 6
    assert cli.main(["flows", str(path)]) == 0


def snapshot(rtt):
    return mlab_snapshot(1, raw_info(rtt=rtt)[:224])


def mlab(*lines):
    return ("\n".join([META, *lines]) + "\n").encode()


@pytest.mark.parametrize("kind", PACKERS)
def test_counters_in_an_archive_become_one_table(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    csv = b"time_ns,tcpi_rtt,src,note\n1700000000000000000,7000,10.9.9.9,x\n"
    path.write_bytes(
        PACKERS[kind]({"a.00000.jsonl": mlab(snapshot(7)), "a.00001.jsonl": mlab(snapshot(7)), "b.csv": csv})
    )
    table = read_file(path)
    assert len(table.connections) == 2  # the parts of one connection come together
    assert table.connection.tolist() == [0, 0, 1]
    assert table["rtt"].tolist()[2] == 7000
    assert table.extra["note"].tolist() == [None, None, "x"]
    assert table.extra["rcv_mss"].tolist()[2] == MISSING


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tar({"a.pcap": capture(1), "b.jsonl": mlab(snapshot(7))}), "both captures and counters"),
        (tar({"README": b"hello"}), "no supported file"),
        (tar({"empty": b""}), "no files"),
        (zipped({"README": b"hello"}), "no supported file"),
        (zipped({"a.pcap": capture(1)})[:60], "cannot be read"),
    ],
    ids=("mixed", "others", "empty", "ZIP of others", "cut"),  # archives hold the time: as names they differ by worker
)
def test_an_archive_that_cannot_be_read_is_refused_in_one_line(data, words):
    with pytest.raises(FormatError, match=words) as refused:
        read_file(io.BytesIO(data))
    assert "\n" not in str(refused.value)


def test_a_tar_cut_short_yields_what_precedes_the_cut():
    whole = tar({"a.pcap": capture(1), "b.pcap": capture(4, 400)}, "w")
    packets = read_file(io.BytesIO(whole[: len(whole) // 3]))
    assert packets["seq"].tolist() == [1, 2, 3]
    assert any("cut short" in text for text in packets.warnings)


def test_a_bomb_in_a_zip_is_refused():
    with pytest.raises(FormatError, match="bomb"):
        read_file(io.BytesIO(zipped({"a.pcap": capture(1) + bytes(2_000_000)})), limit=100_000)


def test_a_shipped_recording_in_an_archive_is_the_recording(tmp_path):
    packed = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    path = tmp_path / "x.tar"
    path.write_bytes(tar({"sender.pcap.zst": packed.read_bytes()}, "w"))
    assert np.array_equal(read_file(path)["seq"], read_file(packed)["seq"])


def test_mlabs_snapshots_without_a_time_are_read():
    old = snapshot(7).replace(json.loads(snapshot(7))["Timestamp"], "0001-01-01T00:00:00Z")
    table = read_file(io.BytesIO(mlab(old, snapshot(7))))
    assert table["time_ns"].tolist()[0] == MISSING
    assert table["time_ns"].tolist()[1] > 0
    assert table["rtt"].tolist()[0] == table["rtt"].tolist()[1]
