"""The log of an endpoint: window, flight and pacing rate as it noted them, against what RFC 9002 and BBR ask for."""

import json

import pytest

import cctrace as cct
from cctrace import conform
from cctrace.errors import ArgumentError

DATAGRAM, RTT_MS = 1200, 40.0


def written(tmp_path, *, rounds=12, growth=1.0, after_loss=0.5, beyond=0, paced=True, least=4, sizes=True):
    """Return the log of a sender that sends a window a round and loses a datagram in the seventh."""
    events, number, window = [], 0, 10
    for k in range(rounds):
        start, end = k * RTT_MS, (k + 1) * RTT_MS
        sent, lost = window + beyond, k == 6
        for i in range(sent):
            at = start + (RTT_MS / 1.25 / sent * i if paced else 0.001 * i)
            packet = {"header": {"packet_type": "1RTT", "packet_number": number}}
            events.append((at, "transport:packet_sent", packet | ({"raw": {"length": DATAGRAM}} if sizes else {})))
            metrics = {"congestion_window": window * DATAGRAM, "bytes_in_flight": (i + 1) * DATAGRAM,
                       "smoothed_rtt": RTT_MS, "pacing_rate": 1.25 * window * DATAGRAM * 8e3 / RTT_MS}  # fmt: skip
            events.append((at, "recovery:metrics_updated", metrics))
            number += 1
        acked = [[number - sent + (1 if lost else 0), number - 1]]
        frames = [{"frame_type": "ack", "acked_ranges": acked}]
        header = {"packet_type": "1RTT", "packet_number": k}
        events.append((end - 0.3, "transport:packet_received", {"header": header, "frames": frames}))
        if lost:
            header = {"packet_type": "1RTT", "packet_number": number - sent}
            events.append((end - 0.3, "recovery:packet_lost", {"header": header}))
            window = max(int(window * after_loss), least)
        elif k < 6:
            window = min(int(window * (1 + growth)), 80)
        events.append((end - 0.2, "recovery:metrics_updated", {"congestion_window": window * DATAGRAM,
                                                               "bytes_in_flight": 0}))  # fmt: skip
    file = tmp_path / "flow.qlog"
    rows = [{"time": time, "name": name, "data": data} for time, name, data in events]
    trace = {"vantage_point": {"type": "server"}, "common_fields": {"time_format": "relative", "reference_time": 0}}
    file.write_text(json.dumps({"qlog_version": "0.3", "traces": [trace | {"events": rows}]}))
    return file


def violated(file, spec):
    found = conform.run(cct.read(file).flow(0), spec)
    return {verdict.id for verdict in found.verdicts if verdict.verdict == "violates"}


def test_a_sender_that_keeps_to_the_rules_conforms_in_every_row(tmp_path):
    found = conform.run(cct.read(written(tmp_path)).flow(0), "quic")
    assert {verdict.id: verdict.text() for verdict in found.verdicts if verdict.verdict != "conforms"} == {}
    assert violated(written(tmp_path), "bbr") == set()


@pytest.mark.parametrize(
    ("fault", "spec", "caught"),
    [
        ({"growth": 2.0}, "quic", {"log.growth"}),
        ({"after_loss": 1.0}, "quic", {"log.reduction"}),
        ({"beyond": 5}, "quic", {"log.flight"}),
        ({"paced": False}, "quic", {"log.pacing"}),
        ({"paced": False}, "bbr", {"log.pacing"}),
        ({"after_loss": 0.0, "least": 1}, "quic", {"log.least"}),
        ({"after_loss": 0.0, "least": 2}, "bbr", {"log.floor"}),
    ],
)
def test_a_fault_is_found_in_the_row_that_it_breaks(tmp_path, fault, spec, caught):
    assert violated(written(tmp_path, **fault), spec) == caught


def test_without_sizes_nothing_is_said_of_what_was_sent(tmp_path):
    found = conform.run(cct.read(written(tmp_path, sizes=False, paced=False)).flow(0), "quic")
    rows = {verdict.id: verdict.text() for verdict in found.verdicts}
    assert rows["log.pacing"] == rows["log.growth"] == "not exercised: the record does not show it"


def test_a_specification_of_packets_is_not_asked_of_a_log(tmp_path):
    with pytest.raises(ArgumentError, match="spec='rack' asks nothing of a log"):
        conform.run(cct.read(written(tmp_path)).flow(0), "rack")


def test_a_log_without_windows_is_refused(tmp_path):
    file = written(tmp_path)
    file.write_text(file.read_text().replace("congestion_window", "window"))
    with pytest.raises(ArgumentError, match="no congestion window"):
        conform.run(cct.read(file).flow(0), "quic")
