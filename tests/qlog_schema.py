"""What draft-ietf-quic-qlog-main-schema-02 to -06, and the QUIC events of then, require: a check of records."""

import json

STATES = "client", "server", "network", "unknown"
TEXT, NUMBER = (str,), (int, float)
# Fields of each event's data: types, and whether it must be there.
PACKET = {"header": ((dict,), True), "raw": ((dict,), False), "frames": ((list,), False), "trigger": (TEXT, False)}
METRICS = ["min_rtt", "smoothed_rtt", "latest_rtt", "rtt_variance", "pto_count", "congestion_window"]
METRICS += ["bytes_in_flight", "ssthresh", "packets_in_flight", "pacing_rate"]
EVENTS = {
    "transport:packet_sent": PACKET,
    "transport:packet_received": PACKET,
    "recovery:packet_lost": {"header": ((dict,), False), "frames": ((list,), False), "trigger": (TEXT, False)},
    "recovery:metrics_updated": dict.fromkeys(METRICS, (NUMBER, False)),
    "recovery:congestion_state_updated": {"old": (TEXT, False), "new": (TEXT, True), "trigger": (TEXT, False)},
}
TRIGGERS = "retransmit_reordering", "retransmit_timeout", "pto_probe", "retransmit_crypto", "cc_bandwidth_probe"


def records(path):
    """Return the records of a JSON text sequence [RFC 7464]: each begins with RS and ends with a line feed."""
    parts = path.read_text("utf-8").split("\x1e")
    assert parts[0] == ""
    assert all(part.endswith("\n") for part in parts[1:])
    return [json.loads(part) for part in parts[1:]]


def check(path):
    """Fail if a log lacks what is required, or holds another type; return its events."""
    head, *events = records(path)
    assert (head["qlog_version"], head["qlog_format"]) == ("0.3", "JSON-SEQ")
    assert path.read_text("utf-8").index("qlog_format") < 256  # "SHOULD be in the first 256 characters"
    assert set(head) <= {"qlog_version", "qlog_format", "title", "description", "summary", "trace"}
    trace = head["trace"]
    assert set(trace) <= {"title", "description", "configuration", "common_fields", "vantage_point"}
    assert isinstance(trace["configuration"]["time_offset"], float)
    assert isinstance(trace["configuration"]["original_uris"], list)
    assert trace["vantage_point"]["type"] in STATES
    common = trace["common_fields"]
    assert common["time_format"] in ("absolute", "delta", "relative")
    assert isinstance(common["reference_time"], NUMBER)
    assert all(isinstance(name, str) for name in common["protocol_type"])
    for event in events:
        _check_event(event)
    times = [event["time"] for event in events]
    assert times == sorted(times)
    return events


def _check_event(event):
    assert isinstance(event["time"], NUMBER)
    assert isinstance(event["data"], dict)
    category, _, name = event["name"].partition(":")
    assert name
    assert ":" not in name
    if event["name"] not in EVENTS:
        assert category == "cctrace", event  # an extension is in a namespace of its own
        return
    fields = EVENTS[event["name"]]
    assert set(event["data"]) <= set(fields), event
    for field, (types, required) in fields.items():
        assert field in event["data"] or not required, event
        assert isinstance(event["data"].get(field, types[0]()), types), event
    if "header" in event["data"]:
        assert isinstance(event["data"]["header"]["packet_type"], str)
        assert event["data"]["header"]["packet_number"] >= 0
    assert event["data"].get("trigger", "pto_probe") in TRIGGERS
    for frame in event["data"].get("frames", []):
        assert frame["frame_type"] in ("stream", "ack", "max_data")
        for first, last in frame.get("acked_ranges", []):
            assert 0 <= first <= last
