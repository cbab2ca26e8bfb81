"""`tcpretrans` and `tcplife` of bcc and bpftrace: events of connections, to compare with a capture.

    TIME     PID    IP LADDR:LPORT          T> RADDR:RPORT          STATE
    14:32:01 0      4  10.0.0.5:443         R> 10.0.0.9:41000       ESTABLISHED
    PID   COMM       LADDR           LPORT RADDR           RPORT TX_KB RX_KB MS

`tcpretrans` prints the time of each retransmission in whole seconds of local time; `R` is a call of
`tcp_retransmit_skb`, which may send several segments, `L` a tail loss probe (`-l`). `tcplife` counts the bytes that
were acknowledged and received, in whole KiB; the header shows which of `-t`, `-T`, `-w` and `-s` (CSV) it ran with.

Source: tcpretrans(8), tcplife(8) of bcc; tools/tcpretrans.bt and tcplife.bt of bpftrace.
"""

import re
from typing import Any

import numpy as np

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.kernelevents import KernelEvents
from cctrace.io.source import Source, reads
from cctrace.schema import ENDS

_RETRANS = re.compile(
    r"\s*(\d\d):(\d\d):(\d\d)\s+\d+\s+(?:[46]\s+)?(\S+):(\d{1,5})\s+(?:([A-Z])>\s+)?(\S+):(\d{1,5})\s+(\w+)\s*$"
)
_RETRANS_HEADER = re.compile(r"^TIME\s+PID\s+(IP\s+)?LADDR:LPORT\s+(T>\s+)?RADDR:RPORT\s+STATE", re.MULTILINE)
_LIFE = re.compile(
    r"(?P<src>\S+) (?P<sport>\d{1,5}) (?P<dst>\S+) (?P<dport>\d{1,5}) "
    r"(?P<tx>\d{1,15}) (?P<rx>\d{1,15}) (?P<ms>\d{1,15}(?:\.\d+)?)"
)
_LIFE_HEADER = re.compile(
    r"^(TIME(\(s\))?[ ,]+)*PID[ ,]+COMM[ ,]+(IP[ ,]+)?LADDR[ ,]+LPORT[ ,]+RADDR[ ,]+RPORT[ ,]+TX_KB", re.MULTILINE
)
_NOISE = re.compile(r"Tracing |Attach|Detaching|\^C|\[\.\.\.\]")


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is the output of tcpretrans or tcplife."""
    text = head.decode("utf-8", "replace")
    return bool(_RETRANS_HEADER.search(text) or _LIFE_HEADER.search(text))


@reads("output of tcpretrans or tcplife")
def read(source: Source) -> KernelEvents:
    """Read the output of tcpretrans or tcplife into `KernelEvents`, one row per line.

    Raises `FormatError`: no header, counts instead of events (`tcpretrans -c`), or no event.
    """
    kind, rows, odd, name = None, [], 0, source.name
    for line in source.lines():
        if _RETRANS_HEADER.match(line) or _LIFE_HEADER.match(line):
            kind = "tcpretrans" if _RETRANS_HEADER.match(line) else "tcplife"
        elif kind and line.strip() and not _NOISE.match(line):
            row = _retransmission(line) if kind == "tcpretrans" else _life(line)
            odd += row is None
            rows += [row] if row else []
    if kind is None:
        raise FormatError(f"{name}: no header of tcpretrans or tcplife (tcpretrans -c prints counts, not events)")
    if not rows:
        raise FormatError(f"{name}: no events in this output of {kind}")
    warnings = [f"{name}: {odd} lines are truncated or garbled; skipped"] if odd else []
    warnings += source.cut_warning()
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return KernelEvents(columns, kind, name, warnings)


def _retransmission(line: str) -> dict[str, Any] | None:
    found = _RETRANS.match(line)
    if not found:
        return None
    hour, minute, second, src, sport, what, dst, dport, state = found.groups()
    event = {"second_of_day": int(hour) * 3600 + int(minute) * 60 + int(second), "kind": what or "R", "state": state}
    return _ends(src, sport, dst, dport) | event


def _life(line: str) -> dict[str, Any] | None:
    found = _LIFE.fullmatch(" ".join(line.replace(",", " ").split()[-7:]))  # before them: times, PID, and a name
    if not found:
        return None
    ends = _ends(*found.group(*ENDS))
    return ends | {"tx_kib": int(found["tx"]), "rx_kib": int(found["rx"]), "duration_ms": float(found["ms"])}


def _ends(src: str, sport: str, dst: str, dport: str) -> dict[str, Any]:
    src, dst = tcpinfo.plain_address(src), tcpinfo.plain_address(dst)
    return {"src": src, "sport": int(sport), "dst": dst, "dport": int(dport)}
