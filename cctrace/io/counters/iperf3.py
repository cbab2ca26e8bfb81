"""iperf3's JSON (`-J`) and JSON stream (`--json-stream`): the state of the sender's socket at each interval.

One row per stream and interval, stamped with the interval's end: rtt and rttvar in us, snd_cwnd in bytes (converted
to segments where the MSS is known), retransmits per interval (accumulated into `total_retrans`), bytes of the interval.

Source: [iperf3] iperf_api.c, iperf_tcp.c.
"""

import json
import re
from typing import Any

from cctrace.documents import whole_items
from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.source import Source, reads
from cctrace.units import format_counted

_ENDS = {"src": "local_host", "sport": "local_port", "dst": "remote_host", "dport": "remote_port"}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is iperf3 JSON or a JSON stream of it."""
    text = head.lstrip()
    is_stream = text.startswith(b'{"event"') and b'"data"' in text[:400]
    return is_stream or (text.startswith(b"{") and b'"start"' in text[:100] and b'"connected"' in text[:1500])


@reads("iperf3 JSON")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read the sender's intervals into `TcpInfo`.

    Raises `FormatError`: not iperf3 JSON, an error that iperf3 reported, or no interval of a sending TCP stream.
    """
    text, name = "\n".join(source.lines()), source.name
    warnings = source.cut_warning()
    start, intervals, end = _parse(text, name, warnings)
    connected = {c.get("socket"): c for c in start.get("connected", [])}
    zero_ns = int(start.get("timestamp", {}).get("timesecs", 0)) * 10**9
    mss = start.get("tcp_mss") or start.get("tcp_mss_default")
    polls = tcpinfo.Polls()
    retransmitted: dict[object, int] = {}
    for interval in intervals:
        for stream in interval.get("streams", []):
            if "snd_cwnd" not in stream and "rtt" not in stream:
                continue  # the receiver's side, or UDP
            key = stream.get("socket")
            ends = {ours: connected.get(key, {}).get(theirs) for ours, theirs in _ENDS.items()}
            retransmitted[key] = retransmitted.get(key, 0) + stream.get("retransmits", 0)
            poll = _poll(stream, zero_ns, mss, retransmitted[key])
            polls.add(poll, key, **ends, cc=end.get("sender_tcp_congestion"))
    if not polls:
        reason = end.get("error") or _without_tcp(start)
        raise FormatError(f"{name}: {reason}")
    return tcpinfo.build(polls.rows.arrays(), polls.table, name, "iperf3", warnings)


def _without_tcp(start: dict[str, Any]) -> str:
    """Return why there are no intervals of a sending TCP stream."""
    protocol = start.get("test_start", {}).get("protocol", "TCP")
    if protocol != "TCP":
        return f"a test of {protocol}, of which iperf3 logs no TCP information"
    return "no intervals of a sending TCP stream (is this the receiver's?)"


def _poll(stream: dict[str, Any], zero_ns: int, mss: int | None, retransmitted: int) -> tcpinfo.Poll:
    cwnd = stream.get("snd_cwnd")
    poll: tcpinfo.Poll = {
        "time_ns": zero_ns + round(float(stream.get("end", 0)) * 1e9),
        "rtt": stream.get("rtt"),
        "rttvar": stream.get("rttvar"),
        "snd_cwnd": round(cwnd / mss) if cwnd is not None and mss else None,
        "snd_mss": mss,
        "snd_cwnd_bytes": cwnd,
        "total_retrans": retransmitted,
        "interval_bytes": stream.get("bytes"),
        "interval_us": round(float(stream.get("seconds", 0)) * 1e6),
        "omitted": int(bool(stream.get("omitted"))),
    }
    for name in ("snd_wnd", "pmtu", "reorder"):
        if name in stream:
            poll["reordering" if name == "reorder" else name] = stream[name]
    return poll


def _salvage(text: str, error: Exception, name: str, warnings: list[str]) -> dict[str, Any]:
    """Return what JSON that is cut short holds: its start, and the intervals before the cut."""
    match = re.search(r'"intervals"\s*:\s*\[', text)
    try:
        document: dict[str, Any] = json.loads(text[: match.end()] + "]}") if match else {}
    except ValueError:
        document = {}
    if not match or not document:
        raise FormatError(f"{name}: not JSON: {error}") from None
    document["intervals"], _ = whole_items(text, match.end())
    whole = format_counted(len(document["intervals"]), "whole interval", "whole intervals")
    warnings.append(f"{name}: the JSON is damaged ({error}); read its {whole}")
    return document


def _parse(text: str, name: str, warnings: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return (start, intervals, end) of either form; of a truncated stream, what its complete lines hold."""
    if not text.lstrip().startswith('{"event"'):
        try:
            document = json.loads(text)
        except (RecursionError, ValueError) as error:
            document = _salvage(text, error, name, warnings)
        refused = {"error": document["error"]} if "error" in document else {}
        return document.get("start", {}), document.get("intervals", []), document.get("end", {}) | refused
    parts: dict[str, dict[str, Any]] = {"start": {}, "end": {}}
    intervals = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            event, data = record["event"], record["data"]
        except (ValueError, KeyError, TypeError):
            warnings.append(f"{name}: line {number} is not an event of a JSON stream; left out")
            continue
        if event == "interval":
            intervals.append(data)
        elif event == "error":
            parts["end"]["error"] = str(data)
        elif event in parts:
            parts[event] |= data
    return parts["start"], intervals, parts["end"]
