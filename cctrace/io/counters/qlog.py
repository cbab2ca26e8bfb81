"""qlog: the log of a QUIC endpoint, as recovery metrics (a state table) and packet events.

Reads JSON and JSON text sequences (also lines of JSON) of versions 0.3, 0.4 and the current drafts, and the event
arrays of draft-00 to 02, whose implementations differ in case, in names and in whether numbers are text. Metrics come
as updates: a field that an update omits keeps its last value; "unlimited" (2^64 - 1) becomes missing. Windows are
bytes, pacing bit/s; RTTs and times ms, or what `time_units` says; times relative, absolute or from event to event.

Sources: draft-ietf-quic-qlog-main-schema-02 to -11, draft-ietf-quic-qlog-quic-events; draft-marx-qlog-main-schema-01.
"""

from __future__ import annotations

import functools
import gc
import json
import re
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from cctrace.columns import Values
from cctrace.documents import whole_items
from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import parse_iso
from cctrace.io.source import Source, reads

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
_STATE = ("congestion_window", "bytes_in_flight", *_ALIASES)  # fields that make any event an update: mvfst
_PACKETS = {"packet_sent": "sent", "packet_received": "received", "packet_lost": "lost"}
_RS = "\x1e"
_SCRIPT = re.compile(r"\s*(?:var|let|const)\s+\w+\s*=\s*(?=\{)")  # a file that a page loads (.qlog.js)


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a qlog."""
    script = _SCRIPT.match(head.decode("latin-1"))
    start = head[script.end() if script else 0 :].lstrip(b"\x1e \r\n\t")[:1000]
    if not start.startswith(b"{"):
        return False
    known = b'"qlog_version"' in start or b"urn:ietf:params:qlog" in start
    return known or (b'"traces"' in start and b'"events"' in head)  # the version may stand at the end


def _without_collecting(function: Callable[[Source], tcpinfo.TcpInfo]) -> Callable[[Source], tcpinfo.TcpInfo]:
    """Run a function with garbage collection off: its millions of small objects contain no cycles; a third faster."""

    @functools.wraps(function)
    def run(*args: Source) -> tcpinfo.TcpInfo:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return function(*args)
        finally:
            if collecting:
                gc.enable()

    return run


@reads("qlog")
@_without_collecting
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read a qlog into `TcpInfo`: one row per update of the recovery metrics, packet events in `events`.

    `events` holds the columns time_ns, connection, kind (sent, received, acked, lost), space (packet type), first and
    last packet number, bytes (-1 where not logged).

    Raises `FormatError`: not JSON, or neither metrics nor packets in it.
    """
    text, name = source.text(), source.name
    script = _SCRIPT.match(text)
    text = text[script.end() :].rstrip().removesuffix(";") if script else text
    warnings, events = source.cut_warning(), _Packets()
    polls: list[tcpinfo.Poll] = []
    connections: list[dict[str, Any]] = []
    for trace in _traces(text, name, warnings):
        at = len(connections)
        connections.append(_connection(trace))
        _walk(trace, at, polls, events, name, warnings)
    if not polls and not len(events):
        raise FormatError("; ".join([f"{name}: neither recovery metrics nor packets in this qlog", *warnings]))
    fields = tcpinfo.PollColumns(polls).arrays() if polls else {"time_ns": np.empty(0, np.int64)}
    info = tcpinfo.build(fields, connections, name, "qlog", warnings)
    info.events = events.columns()
    return info


def _traces(text: str, name: str, warnings: list[str]) -> list[dict[str, Any]]:
    """Return the traces of a file, each {header fields, "events": [...]}."""
    if text.lstrip(" \t\r\n").startswith(_RS):  # (a bare lstrip takes the separator for a blank)
        return _sequences(text.split(_RS)[1:], warnings, name)
    try:
        document = json.loads(text)
    except ValueError as error:
        lines = text.split("\n")
        if len(lines) > 1 and _is_json(lines[0]):
            return _sequences(lines, warnings, name)
        document = _salvage(text, error, warnings, name)
    traces = document.get("traces", []) if isinstance(document, dict) else []
    return [trace for trace in traces if isinstance(trace, dict)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _sequences(records: list[str], warnings: list[str], name: str) -> list[dict[str, Any]]:
    """Return the traces of a text sequence: a header is followed by its events, and perhaps by another header."""
    traces: list[dict[str, Any]] = []
    for number, record in enumerate(records):
        if not record.strip():
            continue
        try:
            record = json.loads(record)
        except ValueError:
            warnings.append(f"{name}: record {number} of the sequence is not JSON; skipped")
            continue
        if not traces or (isinstance(record, dict) and ("qlog_version" in record or "file_schema" in record)):
            header = record.get("trace") if isinstance(record, dict) else None
            traces.append((header if isinstance(header, dict) else {}) | {"events": []})
        else:
            traces[-1]["events"].append(record)
    return traces


def _salvage(text: str, error: ValueError, warnings: list[str], name: str) -> dict[str, Any]:
    """Return what a JSON file cut short holds: the header of its last trace and the events before the cut."""
    match = re.search(r'"events"\s*:\s*\[', text)
    if not match:
        raise FormatError(f"{name}: not JSON: {error}")
    try:
        document = json.loads(text[: match.end()] + "]}]}")
        last = document["traces"][-1]
    except (ValueError, LookupError):
        raise FormatError(f"{name}: not JSON: {error}") from None
    events, at = whole_items(text, match.end())
    warnings.append(f"{name}: the JSON breaks off at offset {at}; read the {len(events)} events before")
    last["events"] = events
    return document


def _connection(trace: dict[str, Any]) -> dict[str, Any]:
    common = trace.get("common_fields") or {}
    vantage = trace.get("vantage_point") or {}
    fields = {
        "group_id": common.get("group_id") or common.get("ODCID") or trace.get("title"),
        "vantage_point": vantage.get("type") if isinstance(vantage, dict) else vantage,
    }
    return {name: value for name, value in fields.items() if value}


def _is_of_tcp(trace: dict[str, Any]) -> bool:
    common = trace.get("common_fields") or {}
    protocols = common.get("protocol_type") or common.get("protocol_types") if isinstance(common, dict) else ()
    return isinstance(protocols, list | str) and "TCP" in protocols


def _walk(
    trace: dict[str, Any], at: int, polls: list[dict[str, Any]], events: _Packets, name: str, warnings: list[str]
) -> None:
    """Add the metrics of one trace, connection `at`, to `polls`, and its packets to `events`."""
    clock, odd = _Clock(trace), 0
    length = "payload_length" if _is_of_tcp(trace) else "length"
    kinds: dict[object, str] = {}
    state: tcpinfo.Poll = {tcpinfo.CONNECTION: at}
    names = [str(name).lower() for name in trace.get("event_fields") or ("time", "category", "event", "data")]
    for event in trace.get("events") or []:
        try:
            if event == []:  # some end with one
                continue
            if isinstance(event, list):  # before 0.3
                event = dict(zip(names, event, strict=False))
            time_ns = clock.at(event)
            called = event.get("name") or event.get("event") or event.get("event_type")
            kind = kinds.get(called) or kinds.setdefault(called, _kind(called))
            data = event.get("data") or {}
            if kind in _PACKETS:
                _add_packet(events, time_ns, at, _PACKETS[kind], data, length)
            elif kind in _UPDATES or any(name in data for name in _STATE):
                state |= _metrics(data, clock.unit_ns)
                if kind == "congestion_state_updated":
                    state["congestion_state"] = state.pop("new", None)
                polls.append({"time_ns": time_ns} | state)
            elif kind == "congestion_state_updated":
                state["congestion_state"] = data.get("new")
                polls.append({"time_ns": time_ns} | state)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            odd += 1
    if odd:
        warnings.append(f"{name}: {odd} events are not qlog events; skipped")


def _kind(name: str) -> str:
    """Return the name of an event without its category, of whichever draft."""
    return name.rpartition(":")[2].lower().removeprefix("recovery_")


def _metrics(data: dict[str, Any], unit_ns: int) -> dict[str, Any]:
    """Return the metrics of an update, known ones in our units; those that are not 64-bit numbers are missing."""
    values = {}
    for theirs, value in data.items():
        name = _ALIASES.get(theirs, theirs)
        if name in _METRICS and value is not None:
            ours, factor = _METRICS[name]
            number = float(value) * (unit_ns / 1000 if name in _TIMES else factor)
            values[ours] = _int64(number) if abs(number) < 1 << 62 else None
        elif type(value) in (int, float) and abs(value) < 1 << 62:
            values[theirs] = value
    return values


def _add_packet(events: _Packets, time_ns: int, at: int, kind: str, data: dict[str, Any], length: str) -> None:
    """Add a packet, and the ACK ranges in it, as (time, connection, kind, packet type, first and last number, bytes).

    `length`: the field of `raw` that counts towards windows and goodput, in TCP that of the payload.
    A packet type that the log calls unknown (quic-trace's, which has no handshake) is application data.
    """
    header, raw = data.get("header") or {}, data.get("raw") or {}
    space = str(header.get("packet_type") or data.get("packet_type") or "")
    space = "1RTT" if space in ("unknown", "UNKNOWN") else space
    number = _int64(header.get("packet_number", data.get("packet_number", -1)))
    size = _int64(raw.get(length) or header.get("packet_size") or data.get("packet_size") or -1)
    events.append(time_ns, at, kind, space, number, number, size)
    if kind == "received":
        for frame in data.get("frames") or ():
            if frame.get("frame_type") in ("ack", "ACK"):
                for span in frame.get("acked_ranges") or ():
                    events.append(time_ns, at, "acked", space, _int64(span[0]), _int64(span[-1]), -1)


def _int64(value: Any) -> int:
    """Return a number, or a text of one, rounded to an integer; OverflowError if it exceeds 64 bits."""
    if type(value) is not int:
        value = round(value) if isinstance(value, float) else int(value)
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError(f"{value} exceeds 64 bits")
    return value


class _Packets:
    """Packet events, collected column by column."""

    _TEXTS = ("kind", "space")

    def __init__(self) -> None:
        names = ("time_ns", "connection", "kind", "space", "first", "last", "bytes")
        self._columns: dict[str, Any] = {name: [] if name in self._TEXTS else array("q") for name in names}

    def __len__(self) -> int:
        return len(self._columns["kind"])

    def append(self, *values: int | str) -> None:
        """Add one: a value for each column."""
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def columns(self) -> dict[str, Values]:
        """Return the columns of `TcpInfo.events`."""
        return {
            name: np.array(column, object if name in self._TEXTS else np.int64)
            for name, column in self._columns.items()
        }


class _Clock:
    """Turns the times of events into nanoseconds, whichever way the trace counts."""

    def __init__(self, trace: dict[str, Any]) -> None:
        common = trace.get("common_fields") or {}
        configuration = trace.get("configuration") or {}
        self._format = common.get("time_format") or common.get("protocol_time_format") or "relative"
        self._is_delta = self._format in ("delta", "relative_to_previous_event")
        self.unit_ns = {"us": 1000, "ns": 1}.get(str(configuration.get("time_units")), 10**6)
        self._now = self._zero = self._reference(common.get("reference_time", configuration.get("time_offset", 0)))

    def _reference(self, reference: Any) -> int:
        if isinstance(reference, dict):
            wall = reference.get("wall_clock_time")
            if wall:
                return parse_iso(wall)
            epoch = reference.get("epoch", "unknown")
            return 0 if epoch == "unknown" else parse_iso(epoch)
        return _exact(reference or 0, self.unit_ns)

    def at(self, event: dict[str, Any]) -> int:
        """Return the time of an event."""
        number = event.get("time")
        if number is None:
            key = next((key for key in ("relative_time", "delta_time", "timestamp") if key in event), "time")
            number = event[key]
        ns = _exact(number, self.unit_ns)
        if self._is_delta or "delta_time" in event:
            self._now += ns
            return self._now
        return ns if self._format == "absolute" else self._zero + ns


def _exact(number: Any, unit_ns: int) -> int:
    """Return nanoseconds exactly: a float of seconds since the epoch would lose digits."""
    if isinstance(number, str):
        number = int(number) if number.lstrip("-").isdigit() else float(number)
    integer = int(number)
    return _int64(integer * unit_ns + round((number - integer) * unit_ns))
