"""tcp_info as JSON: an array or lines of objects that name fields of struct tcp_info, as pollers and web servers log.

Each object is a poll. The time is `time`, `ts`, `timestamp`, `time_local`, `time_iso8601`, `msec` or one of those of
`tcpinfo_csv` (seconds since the epoch as a number or text, ISO 8601); fields in any spelling that
`tcpinfo.field_name` knows, also with `tcpinfo_` in front (nginx's `$tcpinfo_rtt`, Varnish) and one level down
(`{"ts": ..., "tcp_info": {...}}`). "-", "N/A" and null are missing.
"""

import json
from typing import Any

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import time_of_text
from cctrace.io.counters.pollcolumns import TIMES
from cctrace.io.counters.tcpinfo_csv import MISSING_TEXTS, known_fields
from cctrace.io.source import Source, reads

_OPEN_TIMES = ("time", "ts", "timestamp", "time_iso8601", "msec")
_ENDS = {"src": ("src", "saddr", "server_addr", "local_addr"), "sport": ("sport", "lport", "server_port"),
         "dst": ("dst", "daddr", "remote_addr", "client"), "dport": ("dport", "rport", "remote_port")}  # fmt: skip


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is JSON with fields of tcp_info."""
    start = head.lstrip()
    if start[:1] not in (b"{", b"["):
        return False
    names = {_name(part.decode("utf-8", "replace")) for part in head.split(b'"')[1::2]}
    return len(names & known_fields()) >= 2


@reads("JSON of tcp_info")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read an array or lines of polls into `TcpInfo`.

    Raises `FormatError`: not JSON, or no object with a field of tcp_info.
    """
    polls = tcpinfo.Polls()
    for record in _records(source):
        poll = _poll(record) if isinstance(record, dict) else {}
        if not poll.keys() & known_fields():
            polls.skipped += 1
            continue
        key = tuple(poll.pop(name, None) for name in _ENDS)
        poll.setdefault("time_ns", None)
        polls.add(poll, key, cc=poll.pop("cc", None))
    return polls.info(source, "tcpinfo-json", "no object with fields of tcp_info", "records have no field of tcp_info")


def _records(source: Source) -> list[Any]:
    text = source.text()
    try:
        document = json.loads(text)
        return document if isinstance(document, list) else [document]
    except ValueError as error:
        first = error
    records = []
    for line in text.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            records.append(None)  # counted
    if not any(isinstance(record, dict) for record in records):
        raise FormatError(f"{source.name}: not JSON: {first}")
    return records


def _name(text: str) -> str:
    return tcpinfo.field_name(text.strip().removeprefix("tcpinfo_").removeprefix("tcp_info_"))


def _poll(record: dict[str, Any]) -> dict[Any, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat |= value if isinstance(value, dict) else {key: value}
    poll = {}
    for key, value in flat.items():
        end = next((ours for ours, theirs in _ENDS.items() if key.lower() in theirs), None)
        if end:
            poll[end] = int(value) if end.endswith("port") else str(value)
        elif key in TIMES:
            poll["time_ns"] = int(value) * TIMES[key]
        elif key.lower() in _OPEN_TIMES:
            poll["time_ns"] = time_of_text(str(value))
        elif not isinstance(value, (list, dict)):
            poll[_name(key)] = _number(value)
    known = known_fields()
    return {key: value for key, value in poll.items() if key not in known or not isinstance(value, str)}


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.strip() in MISSING_TEXTS:
        return None
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value
