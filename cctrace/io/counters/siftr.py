"""FreeBSD's siftr: one line per packet of a connection, with the state of its TCP.

The first line names the version of siftr. Windows are bytes, `o` is a packet that left and `i` one that arrived. Until
1.2.x a checksum stands before the time, the smoothed RTT counts `1 / (tcp_rtt_scale * hz)` seconds and the RTO ticks of
`hz`; from 1.3 on both are microseconds. Acknowledged bytes are not logged.

Source: [FreeBSD] sys/netinet/siftr.c, siftr(4).
"""

import re
from typing import Any

from cctrace.io.counters import tcpinfo
from cctrace.io.counters.clock import epoch_ns
from cctrace.io.source import Source, reads

_START = b"enable_time_secs="
_FIELDS = (
    "ssthresh_bytes", "snd_cwnd_bytes", None, "snd_wnd", "rcv_wnd", "snd_wscale", "rcv_wscale", "tcp_state", "snd_mss",
    "rtt", "sack", "tcp_flags", "rto", "snd_buffer", "snd_buffered", "rcv_buffer", "rcv_buffered", "bytes_in_flight",
    "reassembly_segments",
)  # fmt: skip
ESTABLISHED = {4: 1}  # FreeBSD's TCPS_ESTABLISHED; other states are numbered otherwise than Linux's


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is siftr's log."""
    return head.startswith(_START) and b"siftrver=" in head


@reads("a siftr log")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read a siftr log into `TcpInfo`, one row per packet. Raises `FormatError`: no packet in the log."""
    lines = source.lines()
    header = dict(re.findall(r"\b(\w+)=(\S+)", next(lines)))
    ticks = int(header.get("hz", 0)), int(header.get("tcp_rtt_scale", 0))
    polls = tcpinfo.Polls()
    for line in lines:
        cells = line.split(",")
        if cells[0] not in ("i", "o"):
            polls.skipped += bool(line) and not line.startswith("disable_time_secs=")
            continue
        try:
            polls.add(*_poll(cells, ticks))
        except (ValueError, IndexError):
            polls.skipped += 1
    return polls.info(source, "siftr", "no packets in this siftr log", "lines are truncated or garbled")


def _poll(cells: list[str], ticks: tuple[int, int]) -> tuple[dict[Any, Any], tuple[str, int, str, int]]:
    old = cells[1].startswith("0x")
    time, src, sport, dst, dport, *values = cells[2 if old else 1 :]
    poll: tcpinfo.Poll = {"time_ns": epoch_ns(time), "direction": cells[0]}
    for name, text in zip(_FIELDS, values, strict=False):
        if name:
            poll[name] = int(text)
    hz, scale = ticks
    if old:
        poll["rtt"] = round(poll["rtt"] * 1e6 / (hz * scale)) if hz and scale else None
        poll["rto"] = round(poll["rto"] * 1e6 / hz) if hz else None
    mss = poll["snd_mss"] or 1
    poll |= {"unacked": -(-poll["bytes_in_flight"] // mss), "state": ESTABLISHED.get(poll.pop("tcp_state"))}
    # An unlimited threshold is 2^30 - 1 bytes, the largest window.
    poll["snd_cwnd"] = poll["snd_cwnd_bytes"] // mss
    poll["snd_ssthresh"] = poll["ssthresh_bytes"] // mss if poll["ssthresh_bytes"] < (1 << 30) - 1 else None
    key = (tcpinfo.plain_address(src), int(sport), tcpinfo.plain_address(dst), int(dport))
    return poll, key
