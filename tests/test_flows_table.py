"""The table of connections is the same however a capture comes: whole, in parts, from memory or from a file."""

import numpy as np
import pytest
from test_io_pcap import T0
from test_io_pcap import conversation as random_packets
from wire import pcap

from cctrace import datasets
from cctrace.flows.table import Connections, of_file
from cctrace.io import read_file, stream
from tests.conversation import MSS, Conversation


@pytest.mark.parametrize("name", ["loss_cubic_1pct", "jitter_bbr_sd2ms"])
def test_a_capture_summed_up_in_parts_gives_the_table_of_the_whole(name, monkeypatch):
    file = datasets.path(name, "sender.pcap.zst")
    whole = Connections(lambda: [read_file(file)])
    monkeypatch.setattr("cctrace.io.pcap.frames_of.__defaults__", (20_000,))
    assert sum(1 for _ in stream(file, 100)) > 20
    parts = Connections(lambda: stream(file, 100))
    assert parts.rows() == whole.rows() == of_file(file).rows()
    assert np.array_equal(parts.sides, whole.sides)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_outstanding_or_missing_when_a_part_ends_is_kept_for_the_next(tmp_path, monkeypatch, seed):
    (tmp_path / "in.pcap").write_bytes(
        pcap([(T0 + 10_000 * i, p) for i, p in enumerate(random_packets(3000, seed))], 101)
    )
    whole = Connections(lambda: [read_file(tmp_path / "in.pcap")])
    monkeypatch.setattr("cctrace.io.pcap.frames_of.__defaults__", (3000,))
    parts = Connections(lambda: stream(tmp_path / "in.pcap", 10))
    assert str(parts.rows()) == str(whole.rows())  # NaN is not equal to itself
    assert np.array_equal(parts.sides, whole.sides)


def test_super_packets_without_a_handshake_are_counted_anew_once_their_segments_are_known():
    talk = Conversation()
    for i in range(20):
        talk.data(1 + 40 * i, 1 + 10 * i * MSS, 10).ack(41 + 40 * i, 1 + 10 * (i + 1) * MSS)
    talk.rows = [row for row in talk.rows if not row["flags"] & 2]
    (row,) = talk.capture().connections.rows()
    assert row["segments_sent"] == 200
