"""The tracepoint tcp:tcp_probe, as ftrace (trace_pipe, trace-cmd) and perf script print it: one row per received ACK.

`<comm>-<pid> [cpu] flags <seconds>: tcp_probe: src=A:p dest=B:q ... snd_nxt=0x.. snd_una=0x.. snd_cwnd=N ssthresh=N
snd_wnd=N srtt=N rcv_wnd=N`. Fields differ between releases, so every `key=value` is taken. srtt is in us. `src` is the
socket's own address.

Source: [Linux618] include/trace/events/tcp.h.
"""

import re
from typing import Any

from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import fraction_ns
from cctrace.io.source import Source, reads

_LINE = re.compile(r"\s(?P<seconds>\d+)\.(?P<fraction>\d+):\s+(?:\w+:)?tcp_probe:\s+(?P<fields>.*)")
_FIELD = re.compile(r"\b(\w+)=(\S+)")
_RENAMED = {"length": "data_len", "ssthresh": "snd_ssthresh", "srtt": "rtt"}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes holds tcp_probe events."""
    return b"tcp_probe:" in head and b"snd_cwnd=" in head


@reads("tcp_probe events")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read tcp_probe events into `TcpInfo`; times are the tracer's clock (mostly seconds since boot).

    Raises `FormatError`: no event in the file.
    """
    polls = tcpinfo.Polls()
    for line in source.lines():
        match = _LINE.search(line)
        if not match:
            polls.skipped += "tcp_probe:" in line
            continue
        try:
            polls.add(*_poll(match))
        except ValueError:
            polls.skipped += 1
    return polls.info(source, "tcp_probe", "no tcp_probe events", "tcp_probe lines are truncated or garbled")


def _poll(match: re.Match[str]) -> tuple[dict[Any, Any], tuple[str, int, str, int]]:
    fields = dict(_FIELD.findall(match["fields"]))
    key = (*_endpoint(fields.pop("src", "")), *_endpoint(fields.pop("dest", "")))
    nanoseconds = int(match["seconds"]) * 10**9 + fraction_ns(match["fraction"])
    poll: tcpinfo.Poll = {"time_ns": nanoseconds}
    for name, text in fields.items():
        value = re.fullmatch(r"(0x)?([0-9a-fA-F]+)", text)
        if not value:
            poll[name] = text
        else:
            poll[_RENAMED.get(name, name)] = int(value[2], 16 if value[1] or not value[2].isdigit() else 10)
    if "snd_cwnd" not in poll:
        raise ValueError("truncated")
    return poll, key


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not port.isdigit():
        raise ValueError(text)
    return tcpinfo.plain_address(address), int(port)
