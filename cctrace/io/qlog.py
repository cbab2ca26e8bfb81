"""qlog: what a QUIC endpoint logged about itself, as recovery metrics (a state table) and packet events.

Read are JSON and JSON text sequences (also lines of JSON) of versions 0.3, 0.4 and the current drafts, and the event
arrays of draft-00 to 02, whose implementations differ in case, in words and in whether numbers are text. Metrics come
as updates: a field that an update leaves out keeps its last value, and one that stands for "unlimited" (2^64 - 1) is
missing. Windows are bytes, pacing bit/s; RTTs and times ms, or what `time_units` says; times relative, absolute or from
event to event.

Sources: draft-ietf-quic-qlog-main-schema-02 to -11, draft-ietf-quic-qlog-quic-events; draft-marx-qlog-main-schema-01.
"""

import json
import re

import numpy as np

from cctrace.errors import FormatError
from cctrace.io import tcpinfo
from cctrace.io.clock import parse_iso
from cctrace.io.source import reads

_METRICS = {
    "smoothed_rtt": ("rtt", 1000),
    "rtt_variance": ("rttvar", 1000),
    "min_rtt": ("min_rtt", 1000),
    "latest_rtt": ("latest_rtt_us", 1000),
    "congestion_window": ("congestion_window_bytes", 1),
    "bytes_in_flight": ("bytes_in_flight", 1),
    "packets_in_flight": ("unacked", 1),
    "ssthresh": ("ssthresh_bytes", 1),
    "pto_count": ("pto_count", 1),
    "pacing_rate": ("pacing_rate_Bps", 1 / 8),
}
_ALIASES = {"cwnd": "congestion_window", "current_cwnd": "congestion_window"}  # aioquic, picoquic; mvfst
_TIMES = ("smoothed_rtt", "rtt_variance", "min_rtt", "latest_rtt")
_UPDATES = ("metrics_updated", "metric_update", "congestion_metric_update")
_PACKETS = {"packet_sent": "sent", "packet_received": "received", "packet_lost": "lost"}
_RS = "\x1e"
_LONGEST = 1 << 31  # some write the whole trace into one line


def sniff(head):
    """Tell whether a file that starts with these bytes is a qlog."""
    start = head.lstrip(b"\x1e \r\n\t")[:1000]
    if not start.startswith(b"{"):
        return False
    known = b'"qlog_version"' in start or b"urn:ietf:params:qlog" in start
    return known or (b'"traces"' in start and b'"events"' in head)  # the version may stand at the end


@reads("qlog")
def read(source):
    """Read a qlog into `TcpInfo`: one row per update of the recovery metrics, packet events in `events`.

    `events` holds the columns time_ns, connection, kind (sent, received, acked, lost), space (packet type), first and
    last packet number, bytes (-1 where not logged).

    Raises
    ------
    FormatError
        Not JSON, or neither metrics nor packets in it.
    """
    text, name, cut = "\n".join(source.lines(_LONGEST)), source.name, source.cut
    warnings = [f"{name}: {cut}; read what precedes it"] if cut else []
    polls, events, connections = [], [], []
    for trace in _traces(text, name, warnings):
        at = len(connections)
        connections.append(_connection(trace))
        rows, packets = _walk(trace, name, warnings)
        polls += [row | {"connection": at} for row in rows]
        events += [(time, at, *rest) for time, *rest in packets]
    if not polls and not events:
        raise FormatError("; ".join([f"{name}: neither recovery metrics nor packets in this qlog", *warnings]))
    fields = tcpinfo.columns_of(polls) if polls else {"time_ns": np.empty(0, np.int64)}
    info = tcpinfo.build(fields, connections, name, "qlog", warnings)
    info.events = _event_columns(events)
    return info


def _traces(text, name, warnings):
    """Return the traces of a file, each {header fields, "events": [...]}."""
    if text.lstrip(" \t\r\n").startswith(_RS):  # (a bare lstrip takes the separator for a blank)
        return [_sequence(text.split(_RS)[1:], warnings, name)]
    try:
        whole = json.loads(text)
    except ValueError as error:
        lines = text.split("\n")
        if len(lines) > 1 and _is_json(lines[0]):
            return [_sequence(lines, warnings, name)]
        whole = _salvage(text, error, warnings, name)
    traces = whole.get("traces", []) if isinstance(whole, dict) else []
    return [trace for trace in traces if isinstance(trace, dict)]


def _is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _sequence(records, warnings, name):
    """Return the trace of a text sequence: its first record is the header, the others are events."""
    parsed = []
    for number, record in enumerate(records):
        if not record.strip():
            continue
        try:
            parsed.append(json.loads(record))
        except ValueError:
            warnings.append(f"{name}: record {number} of the sequence is not JSON; left out")
    header = parsed[0] if parsed and isinstance(parsed[0], dict) else {}
    return header.get("trace", {}) | {"events": parsed[1:]}


def _salvage(text, error, warnings, name):
    """Return what a JSON file cut short holds: the header of its last trace and the events before the cut."""
    match = re.search(r'"events"\s*:\s*\[', text)
    if not match:
        raise FormatError(f"{name}: not JSON: {error}")
    try:
        whole = json.loads(text[: match.end()] + "]}]}")
        last = whole["traces"][-1]
    except (ValueError, LookupError):
        raise FormatError(f"{name}: not JSON: {error}") from None
    decoder, at, events = json.JSONDecoder(), match.end(), []
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()
        try:
            event, at = decoder.raw_decode(text, at)
        except ValueError:
            break
        events.append(event)
    warnings.append(f"{name}: the JSON breaks off at offset {at}; read the {len(events)} events before")
    last["events"] = events
    return whole


def _connection(trace):
    common = trace.get("common_fields") or {}
    vantage = trace.get("vantage_point") or {}
    told = {
        "group_id": common.get("group_id") or common.get("ODCID") or trace.get("title"),
        "vantage_point": vantage.get("type") if isinstance(vantage, dict) else vantage,
    }
    return {name: value for name, value in told.items() if value}


def _walk(trace, name, warnings):
    """Return (rows of metrics, packet events) of one trace."""
    clock = _Clock(trace)
    rows, packets, state, odd = [], [], {}, 0
    names = [str(name).lower() for name in trace.get("event_fields") or ("time", "category", "event", "data")]
    for event in trace.get("events") or []:
        try:
            if isinstance(event, list):  # before 0.3
                event = dict(zip(names, event, strict=False))
            time_ns = clock.at(event)
            kind = (event.get("name") or event.get("event") or event.get("event_type")).rpartition(":")[2].lower()
            data = event.get("data") or {}
            if kind.removeprefix("recovery_") in _UPDATES:
                state |= _metrics(data, clock.unit_ns)
                rows.append({"time_ns": time_ns} | state)
            elif kind == "congestion_state_updated":
                state["congestion_state"] = data.get("new")
                rows.append({"time_ns": time_ns} | state)
            elif kind in _PACKETS:
                packets += [(time_ns, *packet) for packet in _packet(_PACKETS[kind], data)]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            odd += 1
    if odd:
        warnings.append(f"{name}: {odd} events are not of qlog's shape; left out")
    return rows, packets


def _metrics(data, unit_ns):
    """Return the metrics of an update, those we know in our units; without a number of 64 bits they are missing."""
    told = {}
    for theirs, value in data.items():
        name = _ALIASES.get(theirs, theirs)
        if name in _METRICS and value is not None:
            ours, factor = _METRICS[name]
            number = float(value) * (unit_ns / 1000 if name in _TIMES else factor)
            told[ours] = _int64(number) if abs(number) < 1 << 62 else None
        elif type(value) in (int, float) and abs(value) < 1 << 62:
            told[theirs] = value
    return told


def _packet(kind, data):
    """Yield (kind, packet type, first and last packet number, bytes) of a packet and of the ACK ranges in it."""
    header, raw = data.get("header") or {}, data.get("raw") or {}
    space = header.get("packet_type") or data.get("packet_type") or ""
    number = int(header.get("packet_number", data.get("packet_number", -1)))
    size = int(raw.get("length") or header.get("packet_size") or data.get("packet_size") or -1)
    yield kind, str(space), _int64(number), _int64(number), _int64(size)
    if kind == "received":
        for frame in data.get("frames") or []:
            if frame.get("frame_type") == "ack":
                for span in frame.get("acked_ranges") or []:
                    yield "acked", str(space), _int64(int(span[0])), _int64(int(span[-1])), -1


def _int64(value):
    """Return a number rounded to an integer; OverflowError if it exceeds 64 bits."""
    return int(np.int64(round(value)))


def _event_columns(events):
    names = ("time_ns", "connection", "kind", "space", "first", "last", "bytes")
    columns = zip(*events, strict=True) if events else [()] * len(names)
    return {
        name: np.array(column, object if name in ("kind", "space") else np.int64)
        for name, column in zip(names, columns, strict=True)
    }


class _Clock:
    """Turns the times of events into nanoseconds, whichever way the trace counts."""

    def __init__(self, trace):
        common = trace.get("common_fields") or {}
        configuration = trace.get("configuration") or {}
        self._format = common.get("time_format") or common.get("protocol_time_format") or "relative"
        self.unit_ns = {"us": 1000, "ns": 1}.get(configuration.get("time_units"), 10**6)
        self._now = self._zero = self._reference(common.get("reference_time", configuration.get("time_offset", 0)))

    def _reference(self, told):
        if isinstance(told, dict):
            wall = told.get("wall_clock_time")
            if wall:
                return parse_iso(wall)
            epoch = told.get("epoch", "unknown")
            return 0 if epoch == "unknown" else parse_iso(epoch)
        return _exact(told or 0, self.unit_ns)

    def at(self, event):
        """Return the time of an event."""
        key = next((key for key in ("time", "relative_time", "delta_time", "timestamp") if key in event), "time")
        told = event[key]
        ns = _exact(told, self.unit_ns)
        if self._format in ("delta", "relative_to_previous_event") or "delta_time" in event:
            self._now += ns
            return self._now
        return ns if self._format == "absolute" else self._zero + ns


def _exact(number, unit_ns):
    """Return nanoseconds without losing digits to a float that counts from the epoch."""
    if isinstance(number, str):
        number = int(number) if number.lstrip("-").isdigit() else float(number)
    whole = int(float(number)) if not isinstance(number, int) else number
    return _int64(whole * unit_ns + round((float(number) - whole) * unit_ns))
