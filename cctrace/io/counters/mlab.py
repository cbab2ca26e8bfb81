"""M-Lab: tcp-info archives (JSON lines of raw structs) and NDT7 results (JSON with TCPInfo and BBRInfo).

tcp-info: the first line is metadata, then one snapshot per line: `RawIDM` is a struct inet_diag_msg, `Attributes` the
INET_DIAG attributes by number (2 struct tcp_info, 4 the congestion control's name, 16 struct tcp_bbr_info), in base64.
NDT7: `ServerMeasurements` of a download or upload, the server being the socket's owner.

Sources: m-lab/tcp-info netlink and inetdiag; m-lab/ndt-server spec/data-format.md; in 2020 the field was called
MaxBandwidth.
"""

import base64
import binascii
import json
import re
import socket
import struct
from typing import Any

from cctrace.errors import FormatError
from cctrace.io.counters import structs, tcpinfo
from cctrace.io.counters.clock import parse_iso
from cctrace.io.source import Source, reads

_INFO, _CONGESTION, _BBR = 2, 4, 16
_NDT_BBR = {
    "BW": "bbr_bw_Bps",
    "MaxBandwidth": "bbr_bw_Bps",
    "MinRTT": "bbr_min_rtt_us",
    "PacingGain": "bbr_pacing_gain",
    "CwndGain": "bbr_cwnd_gain",
}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is a tcp-info archive or an NDT7 result."""
    start = head.lstrip()[:2000]
    return start.startswith(b"{") and (
        b'"RawIDM"' in start or (b'"UUID"' in start and b'"Sequence"' in start) or b"ServerMeasurements" in head
        or (b'"GitShortCommit"' in start and b'"ServerIP"' in start)
    )  # fmt: skip


@reads("M-Lab JSON")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read a tcp-info archive or an NDT7 result into `TcpInfo`.

    Raises `FormatError`: not JSON, or no snapshot in it; names the line.
    """
    return _read_archive(source) if re.search(rb'"RawIDM"|"Sequence"', source.head) else _read_ndt7(source)


def _read_archive(source: Source) -> tcpinfo.TcpInfo:
    dumps, polls, warnings = [], tcpinfo.Polls(), []
    for number, line in enumerate(source.lines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if "RawIDM" not in record:
                continue
            attributes = [base64.b64decode(value) if value else b"" for value in record.get("Attributes") or []]
            poll, key = _identify(base64.b64decode(record["RawIDM"]))
            # Go's zero time, year 1, means unknown: connections older than the poller.
            poll["time_ns"] = None if record["Timestamp"].startswith("0001-") else parse_iso(record["Timestamp"])
        except (ValueError, KeyError, TypeError, AttributeError, struct.error, binascii.Error) as error:
            warnings.append(f"{source.name}: line {number} is not a snapshot ({error}); skipped")
            continue
        if len(attributes) <= _INFO or len(attributes[_INFO]) < structs.SHORTEST:
            continue
        if len(attributes) > _BBR:
            poll |= structs.decode_bbr(attributes[_BBR])
        name = attributes[_CONGESTION] if len(attributes) > _CONGESTION else b""
        polls.add(poll, key, cc=name.rstrip(b"\0").decode("ascii", "replace"))
        dumps.append(attributes[_INFO])
    warnings += source.cut_warning()
    if not dumps:
        raise FormatError("; ".join([f"{source.name}: no snapshots with struct tcp_info", *warnings[:1]]))
    fields = polls.rows.arrays() | structs.decode(dumps)
    return tcpinfo.build(fields, polls.table, source.name, "mlab-tcp-info", warnings)


def _identify(message: bytes) -> tuple[tcpinfo.Poll, tuple[str, int, str, int]]:
    """Return (queues, address key) from a struct inet_diag_msg."""
    family = message[0]
    sport, dport = struct.unpack_from("!HH", message, 4)
    size, kind = (4, socket.AF_INET) if family == socket.AF_INET else (16, socket.AF_INET6)
    src, dst = (tcpinfo.plain_address(socket.inet_ntop(kind, message[at : at + size])) for at in (8, 24))
    recv_q, send_q = struct.unpack_from("<II", message, 56)
    return {"recv_q": recv_q, "send_q": send_q}, (src, sport, dst, dport)


def _read_ndt7(source: Source) -> tcpinfo.TcpInfo:
    result = source.json()
    polls = tcpinfo.Polls()
    for test in ("Download", "Upload"):
        part = result.get(test) or {}
        rows = part.get("ServerMeasurements") or []
        if not rows:
            continue
        start = parse_iso(part.get("StartTime") or result["StartTime"])
        ends = {"src": "ServerIP", "sport": "ServerPort", "dst": "ClientIP", "dport": "ClientPort"}
        known = {ours: result.get(theirs) for ours, theirs in ends.items()}
        known |= {"test": test.lower(), "cc": "bbr" if rows[0].get("BBRInfo") else None}
        for row in rows:
            if row.get("TCPInfo"):
                polls.add(_ndt7_poll(row, start), test, **known)
    return polls.info(source, "ndt7", "no ServerMeasurements with TCPInfo in this NDT7 result")


def _ndt7_poll(row: dict[str, Any], start_ns: int) -> tcpinfo.Poll:
    info = dict(row["TCPInfo"])
    poll: tcpinfo.Poll = {"time_ns": start_ns + int(info.pop("ElapsedTime", 0)) * 1000}
    for name, value in info.items():
        # -1 is the kernel's "unlimited" in a signed JSON number.
        poll[tcpinfo.field_name(name)] = None if value == -1 else value
    for name, value in (row.get("BBRInfo") or {}).items():
        if name in _NDT_BBR:
            poll[_NDT_BBR[name]] = value
    return poll
