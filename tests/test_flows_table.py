"""The table of connections is the same however a capture comes: whole, in parts, from memory or from a file."""

import io
import itertools

import numpy as np
import pytest
from test_io_pcap import T0
from test_io_pcap import conversation as random_packets
from wire import interface, ipv4, ipv6, pcap, section, simple, tcp, tcp_options

from cctrace import datasets, read
from cctrace.errors import ArgumentError
from cctrace.flows.table import Connections, of_file
from cctrace.flows.window_scale import MAX_WSCALE
from cctrace.io import read_file, stream
from tests.conversation import MSS, Conversation


@pytest.mark.parametrize("name", ["loss_cubic_1pct", "jitter_bbr_sd2ms"])
def test_a_capture_summed_up_in_parts_gives_the_table_of_the_whole(name):
    file = datasets.path(name, "sender.pcap.zst")
    whole = Connections(lambda: [read_file(file)])
    assert sum(1 for _ in stream(file, 100)) > 20
    parts = Connections(lambda: stream(file, 100))
    assert parts.rows() == whole.rows() == of_file(file).rows()
    assert np.array_equal(parts.sides, whole.sides)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_outstanding_or_missing_when_a_part_ends_is_kept_for_the_next(tmp_path, seed):
    (tmp_path / "in.pcap").write_bytes(
        pcap([(T0 + 10_000 * i, p) for i, p in enumerate(random_packets(3000, seed))], 101)
    )
    whole = Connections(lambda: [read_file(tmp_path / "in.pcap")])
    parts = Connections(lambda: stream(tmp_path / "in.pcap", 10))
    assert str(parts.rows()) == str(whole.rows())  # NaN is not equal to itself
    assert np.array_equal(parts.sides, whole.sides)


def test_parts_keep_their_values_as_long_as_they_are_lent_and_their_memory_is_used_again():
    file = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    kept, lent = [list(stream(file, 100, lasting=lasting)) for lasting in (0, 3)]
    for part, same in zip(kept[-3:], lent[-3:], strict=True):
        assert all(np.array_equal(part[name], same[name]) for name in part.columns)
        assert np.array_equal(part.sacks["right"], same.sacks["right"])
    places = {part["seq"].__array_interface__["data"][0] for part in lent}
    assert len(places) < len(lent) / 2
    parts = Connections(lambda: stream(file, 100, lasting=1))
    assert np.array_equal(parts.sides, Connections(lambda: kept).sides)


def test_goodput_is_what_was_acknowledged_and_all_that_was_sent_only_without_acks_or_a_beginning():
    talk = Conversation()
    talk.data(0, 1, 10).ack(40, 1 + 10 * MSS).data(40, 1 + 10 * MSS, 20).ack(80, 1 + 15 * MSS)
    (row,) = talk.capture().connections.rows()
    assert row["bytes_sent"] == 30 * MSS
    assert row["goodput_bps"] * row["duration_s"] / 8 == pytest.approx(15 * MSS)
    talk.rows = [sent for sent in talk.rows if sent["direction"] == 0]
    (row,) = talk.capture().connections.rows()
    assert row["goodput_bps"] * row["duration_s"] / 8 == pytest.approx(30 * MSS)
    late = Conversation(handshake=False)  # whose ACKs at first are of data sent before
    late.data(0, 1 + 20 * MSS, 10).ack(10, 1 + 10 * MSS).data(10, 1 + 30 * MSS, 10).ack(30, 1 + 20 * MSS)
    (row,) = late.capture().connections.rows()
    assert row["goodput_bps"] * row["duration_s"] / 8 == pytest.approx(20 * MSS)


def test_super_packets_without_a_handshake_are_counted_anew_once_their_segments_are_known():
    talk = Conversation()
    for i in range(20):
        talk.data(1 + 40 * i, 1 + 10 * i * MSS, 10).ack(41 + 40 * i, 1 + 10 * (i + 1) * MSS)
    talk.rows = [row for row in talk.rows if not row["flags"] & 2]
    (row,) = talk.capture().connections.rows()
    assert row["segments_sent"] == 200


def transfer():
    """Return the IP packets of a transfer of 40 segments, of which one is sent again, in the order of time."""
    forth, back = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}
    options = {"mss": 1460, "wscale": 7, "sack_ok": True}
    out = [ipv4(tcp(5, 80, 0, 0, 2, options=tcp_options(**options, timestamps=(1, 0))), ident=1, **forth)]
    out += [ipv4(tcp(80, 5, 99, 1, 18, options=tcp_options(**options, timestamps=(1, 1))), ident=0, **back)]
    for i in range(40):
        k = i if i < 20 else i - 1  # the twentieth goes out twice
        stamps = tcp_options(timestamps=(10 + i, 10))
        out.append(ipv4(tcp(5, 80, 1 + 1448 * k, 100, options=stamps, payload=bytes(1448)), ident=2 + i, **forth))
        stamps = tcp_options(timestamps=(10 + i, 10 + i))
        out.append(ipv4(tcp(80, 5, 100, 1 + 1448 * (k + 1), options=stamps), ident=500 + i, **back))
    return out


@pytest.mark.parametrize("burst", [1, 3])
def test_what_a_mirror_port_delivered_twice_counts_once(burst, tmp_path):
    once = transfer()
    twice = [p for i in range(0, len(once), burst) for _ in range(2) for p in once[i : i + burst]]
    tables, events = [], []
    for packets, step in ((once, 2), (twice, 1)):
        path = tmp_path / "in.pcap"
        path.write_bytes(pcap([(T0 + 100_000 * step * i, p) for i, p in enumerate(packets)], 101))
        ((row, *others), flow) = of_file(path).rows(), read(path).flow(0)
        assert not others
        tables.append(
            {name: row[name] for name in ("packets", "bytes_sent", "segments_sent", "retransmitted_segments")}
        )
        events.append(len(flow.events))
    assert tables[0] == tables[1]
    assert tables[0]["retransmitted_segments"] == 1
    assert events[0] == events[1]
    assert any("captured twice, and count once" in w for w in row["warnings"])


def test_a_quick_retransmission_without_ip_id_is_no_copy():
    stamps = tcp_options(timestamps=(10, 10))
    sends = [ipv6(tcp(5, 80, seq, 100, options=stamps, payload=bytes(1000))) for seq in (1, 1001, 2001, 1)]
    packets = read_file(io.BytesIO(pcap([(T0 + i, p) for i, p in enumerate(sends)], 101)))
    assert packets.counters["duplicates"] == 0
    copies = read_file(io.BytesIO(pcap([(T0 + i, p) for i, p in enumerate(sends) for _ in range(2)], 101)))
    assert (copies["options"] >> 6 & 1).tolist() == [0, 1] * 4


def table_of(packets, tmp_path, step_ns=1_000_000):
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap([(T0 + step_ns * i, p) for i, p in enumerate(packets)], 101))
    return of_file(path).rows()


IDENTS = itertools.count(1)  # packets that share one are copies


def forth(seq, flags=16, size=0, ack=100, sport=5, **options):
    return ipv4(
        tcp(sport, 80, seq, ack, flags, payload=bytes(size), **options), "10.0.0.1", "10.0.0.2", ident=next(IDENTS)
    )


def back(ack, flags=16, seq=100, sport=5):
    return ipv4(tcp(80, sport, seq, ack, flags), "10.0.0.2", "10.0.0.1", ident=next(IDENTS))


def test_the_acknowledgement_of_a_fin_tells_the_rtt_unless_it_was_sent_twice(tmp_path):
    (row,) = table_of([forth(1, size=100), forth(101, flags=17), back(102)], tmp_path)
    assert row["rtt_min_us"] == 1000
    (row,) = table_of([forth(1, size=100), back(101), *[forth(101, flags=17) for _ in range(3)], back(102)], tmp_path)
    assert row["rtt_p95_us"] == 1000


def test_an_rtt_over_a_step_of_the_clock_is_not_cut(tmp_path):
    (row,) = table_of([forth(1, size=100), back(101)], tmp_path, step_ns=100_000 * 10**9)
    assert row["rtt_median_us"] == 100_000 * 10**6


def test_data_on_a_syn_begins_behind_it(tmp_path):
    (row,) = table_of([forth(0, flags=2, size=30), back(31, flags=18), forth(31, size=70)], tmp_path)
    assert (row["bytes_sent"], row["retransmitted_segments"]) == (100, 0)


def test_an_attempt_without_answer_is_not_the_connection_that_follows_on_its_ports(tmp_path):
    attempt = [forth(500_000, flags=2) for _ in range(4)]
    rows = table_of([*attempt, forth(0, flags=2), back(1, flags=18, seq=99), forth(1, size=50), back(51)], tmp_path)
    assert [row["packets"] for row in rows] == [4, 4]
    assert [row["bytes_sent"] for row in rows] == [0, 50]


def test_a_syn_that_was_overtaken_by_its_answer_belongs_to_it(tmp_path):
    rows = table_of([back(1, flags=18, seq=99), forth(0, flags=2), forth(1, size=50), back(51)], tmp_path)
    assert [row["bytes_sent"] for row in rows] == [50]


def test_time_stamps_that_step_back_give_no_rtt_of_zero(tmp_path):
    talk = [(0, forth(1, size=100)), (5000, forth(101, size=100)), (3000, back(101)), (9000, back(201))]
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap([(T0 + 1000 * us, p) for us, p in talk], 101))
    assert of_file(path).rows()[0]["rtt_min_us"] == 3000


def test_packets_without_time_stamps_have_sizes_but_no_rtt(tmp_path):
    talk = [forth(0, flags=2), back(1, flags=18, seq=99), forth(1, size=100), back(101)]
    (tmp_path / "in.pcapng").write_bytes(section() + interface(101) + b"".join(simple(p) for p in talk))
    (row,) = of_file(tmp_path / "in.pcapng").rows()
    assert (row["bytes_sent"], row["duration_s"], row["rtt_min_us"]) == (100, 0, None)


@pytest.mark.parametrize(
    ("client", "server", "mss"), [(True, False, 1460), (False, True, 1460), (True, True, 1448), (False, False, 1460)]
)
def test_time_stamps_that_one_side_alone_offers_take_no_room(tmp_path, client, server, mss):
    forth, back = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}
    used = tcp_options(timestamps=(7, 7)) if client and server else b""
    offers = [tcp_options(mss=1460, timestamps=(7, 0) if offered else None) for offered in (client, server)]
    out = [ipv4(tcp(5, 80, 0, 0, 2, options=offers[0]), ident=1, **forth)]
    out += [ipv4(tcp(80, 5, 99, 1, 18, options=offers[1]), ident=1, **back)]
    for i, k in enumerate((0, 1, 2, 1, 3)):  # the second goes out twice
        data = tcp(5, 80, 1 + mss * k, 100, options=used, payload=bytes(mss))
        out.append(ipv4(data, ident=2 + i, **forth))
    out.append(ipv4(tcp(80, 5, 100, 1 + 4 * mss, options=used), ident=2, **back))
    (tmp_path / "in.pcap").write_bytes(pcap([(T0 + 10_000_000 * i, p) for i, p in enumerate(out)], 101))
    capture = read(tmp_path / "in.pcap")
    (row,) = capture.connections.rows()
    assert (row["segments_sent"], row["retransmitted_segments"]) == (5, 1)
    flow = capture.flow(0)
    assert flow.facts["mss"] == mss
    assert flow.events.rows["packets_out"].max() == 3  # when the second went again, and not twice as many


def test_counters_are_refused_before_they_are_read(tmp_path, monkeypatch):
    file = tmp_path / "ss.txt"
    file.write_text("ESTAB 0 0 10.0.0.1:443 10.0.0.2:5000\n\t cubic rto:204 rtt:3.5/1.2 mss:1448 cwnd:10\n")
    monkeypatch.setattr("cctrace.io.counters.ss.read", lambda source: pytest.fail("it was read"))
    with pytest.raises(ArgumentError, match="holds no packets; of counters and logs, see `cctrace analyze`"):
        of_file(file)


@pytest.mark.parametrize("keep", [0, 4, 8, 12])  # bytes of a SYN's options that were captured: MSS, scale, SACK
def test_a_window_whose_scale_the_snaplen_cut_off_is_no_limit(keep, tmp_path):
    packets = transfer()
    cut = {0: keep, 1: keep}  # both SYNs
    rows = [(T0 + 100_000 * i, p[: 40 + cut.get(i, len(p))], len(p)) for i, p in enumerate(packets)]
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap(rows, 101))
    capture = read(path)
    known = {name: name not in capture.flow(0).facts["inferred"] for name in ("wscale", "sack_ok", "isn")}
    assert known == {"wscale": keep >= 8, "sack_ok": keep >= 12, "isn": True}
    values = capture.params([0])
    assert (values["wscale"].tolist(), values["sack_ok"].tolist()) == ([7 if keep >= 8 else MAX_WSCALE], [1])


def test_a_syn_without_options_scales_no_windows(tmp_path):
    packets = [ipv4(tcp(5, 80, 0, 0, 2)), ipv4(tcp(80, 5, 99, 1, 18), "10.0.0.2", "10.0.0.1")]
    path = tmp_path / "in.pcap"
    path.write_bytes(pcap([(T0 + i, p) for i, p in enumerate([*packets, *transfer()[2:]])], 101))
    flow = read(path).flow(0)
    assert not {"wscale", "sack_ok"} & set(flow.facts["inferred"])
    assert (flow.facts["wscale"], flow.facts["sack_ok"]) == (0, False)


def test_times_that_ascend_are_not_copied():
    capture = read(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    assert np.shares_memory(capture.connections.clock, capture.packets["time_ns"])
