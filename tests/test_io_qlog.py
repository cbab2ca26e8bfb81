"""qlog of every version and serialisation gives one state table and one table of packet events."""

import io
import json

import pytest
from wire import read

import cctrace
from cctrace.errors import FormatError
from cctrace.io.counters.tcpinfo import MISSING

MS = 10**6
EPOCH_MS = 1795190736468
METRICS = {
    "smoothed_rtt": 40.5,
    "min_rtt": 39,
    "congestion_window": 12000,
    "bytes_in_flight": 6000,
    "pacing_rate": 8000,
}
SENT = {"header": {"packet_type": "1RTT", "packet_number": 7}, "raw": {"length": 1200}}
ACK = {
    "header": {"packet_type": "1RTT", "packet_number": 3},
    "frames": [{"frame_type": "ack", "acked_ranges": [[5, 7], [1]]}],
}
EVENTS = [
    (1, "recovery:metrics_updated", METRICS),
    (2.5, "transport:packet_sent", SENT),
    (3, "transport:packet_received", ACK),
    (4, "recovery:metrics_updated", {"smoothed_rtt": 41, "ssthresh": 9000}),
    (5, "recovery:packet_lost", {"header": {"packet_type": "1RTT", "packet_number": 6}}),
    (6, "recovery:congestion_state_updated", {"new": "recovery"}),
]


def events(times="relative", new_names=False):
    out, before = [], 0
    for time, name, data in EVENTS:
        if new_names:
            name = {"recovery:metrics_updated": "quic:recovery_metrics_updated"}.get(name, "quic:" + name.split(":")[1])
        told = {"relative": time, "absolute": EPOCH_MS + time, "delta": time - before}[times]
        out.append({"time": told, "name": name, "data": data})
        before = time
    return out


def contained(version, common, rows):
    kind = {"file_schema": "urn:ietf:params:qlog:file:contained"} if version == "current" else {"qlog_version": version}
    return json.dumps(
        kind | {"traces": [{"vantage_point": {"type": "server"}, "common_fields": common, "events": rows}]}
    )


def sequence_header(kind):
    trace = {"common_fields": {"reference_time": EPOCH_MS}}
    return {"qlog_version": "0.3", "qlog_format": kind, "trace": trace}


WALL = {"clock_type": "monotonic", "epoch": "unknown", "wall_clock_time": "2026-11-20T16:05:36.468Z"}
FILES = {
    "0.3, relative": contained("0.3", {"time_format": "relative", "reference_time": EPOCH_MS, "ODCID": "ab"}, events()),
    "0.3, absolute": contained("0.3", {"time_format": "absolute"}, events("absolute")),
    "0.4, delta": contained("0.4", {"time_format": "delta", "reference_time": EPOCH_MS}, events("delta", True)),
    "current": contained(
        "current", {"time_format": "relative_to_epoch", "reference_time": WALL}, events(new_names=True)
    ),
    "current, from event to event": contained(
        "current", {"time_format": "relative_to_previous_event", "reference_time": WALL}, events("delta", True)
    ),
    "JSON-SEQ": "".join(f"\x1e{json.dumps(record)}\n" for record in [sequence_header("JSON-SEQ"), *events()]),
    "lines of JSON": "\n".join(json.dumps(record) for record in [sequence_header("NDJSON"), *events()]),
    "draft-01": json.dumps(
        {
            "qlog_version": "draft-01",
            "traces": [
                {
                    "configuration": {"time_units": "ms"},
                    "common_fields": {"reference_time": EPOCH_MS},
                    "event_fields": ["relative_time", "category", "event", "data"],
                    "events": [[t, *name.split(":"), data] for t, name, data in EVENTS],
                }
            ],
        }
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_every_version_gives_the_same_tables(name):
    info = read(FILES[name])
    zero = EPOCH_MS * MS
    assert info["time_ns"].tolist() == [zero + 1 * MS, zero + 4 * MS, zero + 6 * MS]
    assert info["rtt"].tolist() == [40_500, 41_000, 41_000]
    assert info["min_rtt"].tolist() == [39_000] * 3  # an update that leaves a field out does not change it
    assert info["pacing_rate_Bps"].tolist() == [1000] * 3
    assert info["congestion_window_bytes"].tolist() == [12000] * 3
    assert info["ssthresh_bytes"].tolist() == [MISSING, 9000, 9000]
    assert info["congestion_state"].tolist() == [None, None, "recovery"]
    table = [tuple(info.events[c].tolist()[i] for c in ("kind", "first", "last", "bytes")) for i in range(5)]
    assert table == [
        ("sent", 7, 7, 1200),
        ("received", 3, 3, -1),
        ("acked", 5, 7, -1),
        ("acked", 1, 1, -1),
        ("lost", 6, 6, -1),
    ]
    assert info.events["time_ns"].tolist()[0] == zero + 2_500_000
    assert info.warnings == []


def test_a_file_cut_short_yields_the_events_before_the_cut():
    for name in ("0.3, relative", "JSON-SEQ"):
        info = read(FILES[name][:-60])
        assert info["rtt"].tolist()[:2] == [40_500, 41_000]
        assert info.warnings


def test_events_of_another_shape_are_counted():
    rows = [*events(), {"name": "recovery:metrics_updated", "data": {}}, 7, {"time": 1, "name": None}]
    info = read(contained("0.3", {}, rows))
    assert len(info) == 3
    assert any("3 events are not" in w for w in info.warnings)


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"qlog_version":"0.3","traces":[]}', "neither recovery metrics"), ('{"qlog_version": oops', "not JSON")],
)
def test_a_qlog_with_nothing_in_it_is_an_error(text, words):
    with pytest.raises(FormatError, match=words):
        read(text)


# --- as implementations write it -------------------------------------------------------------------------------------
def written(rows, version="0.3", configuration=None, fields=None):
    trace = {"vantage_point": {"type": "server"}, "common_fields": {}, "events": rows}
    trace |= {"configuration": configuration} if configuration else {}
    trace |= {"event_fields": fields} if fields else {}
    return {"qlog_version": version, "traces": [trace]}


QUICHE = written([{"time": 1.0, "name": "recovery:metrics_updated", "data": METRICS | {"ssthresh": 2**64 - 1}}])
AIOQUIC = written(
    [
        {"time": 0.5, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 6000, "cwnd": 12000}},
        {"time": 1.0, "name": "recovery:metrics_updated", "data": {"smoothed_rtt": 40.5, "min_rtt": 39}},
    ]
)
PICOQUIC = written(
    [
        [500, "transport", "packet_sent", {"packet_type": "1RTT", "header": {"packet_number": "7", "packet_size": 9}}],
        [1000, "recovery", "metrics_updated", {"cwnd": 12000, "bytes_in_flight": 6000, "smoothed_rtt": 40500}
         | {"min_rtt": 39_000}],
    ],
    "draft-00", {"time_units": "us"}, ["relative_time", "category", "event", "data"],
)  # fmt: skip
MVFST = written(
    [
        ["500", "METRIC_UPDATE", "CONGESTION_METRIC_UPDATE", "DEFAULT", {"current_cwnd": 12000}
         | {"bytes_in_flight": 6000}],
        ["1000", "METRIC_UPDATE", "METRIC_UPDATE", "DEFAULT", {"smoothed_rtt": 40500, "min_rtt": 39_000}],
    ],
    "draft-02", {"time_units": "us"}, ["relative_time", "CATEGORY", "EVENT_TYPE", "TRIGGER", "DATA"],
)  # fmt: skip
LATE_VERSION = {"traces": QUICHE["traces"], "description": "x" * 3000, "qlog_version": "0.3"}


@pytest.mark.parametrize("log", [QUICHE, AIOQUIC, PICOQUIC, MVFST, LATE_VERSION])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_spellings_of_implementations_mean_the_same(log, mark):
    info = read(mark + json.dumps(log))
    assert info.warnings == []
    assert info["time_ns"][-1] == MS
    got = {name: int(info[name][-1]) for name in ("rtt", "min_rtt", "congestion_window_bytes", "bytes_in_flight")}
    assert got == {"rtt": 40_500, "min_rtt": 39_000, "congestion_window_bytes": 12_000, "bytes_in_flight": 6000}
    if "ssthresh_bytes" in info.extra:
        assert info["ssthresh_bytes"][-1] == MISSING


def test_packets_numbered_in_text_are_packets():
    info = read(json.dumps(PICOQUIC))
    assert info.events["first"].tolist() == [7]
    assert info.events["bytes"].tolist() == [9]


def test_metrics_that_no_draft_knows_are_kept():
    log = written([{"time": 1.0, "name": "recovery:metrics_updated", "data": METRICS | {"max_bandwidth": 7.5}}])
    assert read(json.dumps(log)).extra["max_bandwidth"].tolist() == [7.5]


def test_a_trace_in_one_long_line_is_read():
    rows = [
        {"time": i, "name": "recovery:metrics_updated", "data": METRICS | {"note": "x" * 200_000}} for i in range(90)
    ]
    assert len(read(json.dumps(written(rows)))) == 90


# --- several traces, other wrappings ---------------------------------------------------------------------------------
def sequence(*headers):
    """Return a text sequence of several headers, each followed by the events."""
    records = [record for header in headers for record in (header, *events())]
    return "".join(f"\x1e{json.dumps(record)}\n" for record in records)


def vantage(kind, **header):
    return header | {"trace": {"vantage_point": {"type": kind}, "common_fields": {"ODCID": "ab"}}}


CURRENT = {"file_schema": "urn:ietf:params:qlog:file:sequential", "serialization_format": "application/qlog+json-seq"}
TWO = {
    "one file": json.dumps(
        {"qlog_version": "0.3", "traces": [
            {"vantage_point": {"type": kind}, "common_fields": {"ODCID": "ab"}, "events": events()}
            for kind in ("client", "server")
        ]}
    ),
    "0.3": sequence(*(vantage(kind, qlog_version="0.3", qlog_format="JSON-SEQ") for kind in ("client", "server"))),
    "current": sequence(*(vantage(kind, **CURRENT) for kind in ("client", "server"))),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_the_traces_of_two_endpoints_stay_apart(name):
    info = read(TWO[name])
    assert [known["vantage_point"] for known in info.connections] == ["client", "server"]
    assert info.connection.tolist() == [0, 0, 0, 1, 1, 1]
    assert info.events["connection"].tolist() == [0] * 5 + [1] * 5
    assert info.select(1)["rtt"].tolist() == [40_500, 41_000, 41_000]
    assert info.warnings == []


@pytest.mark.parametrize("mark", ["", ";", ";\n"])
def test_a_qlog_that_a_page_loads_as_a_script_is_read(mark):
    info = read(f"var example_1 = {FILES['draft-01']}{mark}")
    assert info["rtt"].tolist() == [40_500, 41_000, 41_000]


QUIC_TRACE = written(
    [
        ["0", "TRANSPORT", "PACKET_SENT", "DEFAULT", {"packet_type": "1RTT"}
         | {"header": {"packet_number": str(number), "packet_size": 1350}}] for number in range(1, 5)
    ] + [
        ["126536", "TRANSPORT", "PACKET_RECEIVED", "DEFAULT", {"packet_type": "UNKNOWN"}
         | {"header": {"packet_number": "1", "packet_size": 0}}
         | {"frames": [{"frame_type": "ACK", "acked_ranges": [[1, 3]], "ack_delay": 0}]}],
        ["126536", "RECOVERY", "METRIC_UPDATE", "DEFAULT", {"smoothed_rtt": 126536, "min_rtt": 126536}
         | {"bytes_in_flight": 1350, "cwnd": 17300}],
        [],
    ],
    "draft-00", {"time_units": "us"}, ["relative_time", "CATEGORY", "EVENT_TYPE", "TRIGGER", "DATA"],
)  # fmt: skip


def test_what_quic_trace_saw_acknowledged_was_sent():
    flow = cctrace.read(io.BytesIO(json.dumps(QUIC_TRACE).encode())).flow(0)
    assert flow.acked()[1].tolist() == [3 * 1350]
    assert flow.row["bytes_sent"] == 3 * 1350
    assert flow.polls.warnings == []


@pytest.mark.parametrize(
    "name", ["mvfst:congestion_metric_update", "quic:congestion_state_updated", "mvfst:network_path_model_update"]
)
def test_a_window_told_in_an_event_of_its_own_is_the_window(name):
    rows = [
        {"time": 1.0, "name": name, "data": {"current_cwnd": 12000, "bytes_in_flight": 6000, "new": "steady"}},
        {"time": 2.0, "name": "quic:recovery_metrics_updated", "data": {"smoothed_rtt": 40.5, "min_rtt": 39}},
    ]
    info = read(json.dumps(written(rows)))
    assert info["congestion_window_bytes"].tolist() == [12_000, 12_000]
    assert info["bytes_in_flight"].tolist() == [6000, 6000]
    assert info["rtt"].tolist() == [MISSING, 40_500]


def test_lists_within_lists_without_end_are_one_line():
    deep = b'{"qlog_version": "0.3", "traces": ' + b"[" * 100_000
    with pytest.raises(FormatError, match="nested too deeply"):
        cctrace.read(io.BytesIO(deep))
