"""flent's `.flent.gz`: samples of each TCP stream's socket (from `ss` or netperf, `raw_values`) and its throughput.

Sampled are cwnd (segments), rtt and rtt_var (ms), pacing and delivery rates (Mbit/s) and BBR's figures; entries with
`val` (Mbit/s) and `dur` (s) are the throughput over the interval that ends there, and no sample of the socket. Times
are seconds since the epoch.

A connection has the controller and the kernel's release that the run states (`cc`, `kernel`).

Source: [flent] runners.py (SsRunner, NetperfDemoRunner), file format version 4.
"""

from typing import Any

from cctrace.io.counters import tcpinfo
from cctrace.io.source import Source, reads

_MEGA = 10**6 / 8  # Mbit/s -> bytes/s
_VALUES = {
    "tcp_cwnd": ("snd_cwnd", 1),
    "tcp_rtt": ("rtt", 1000),
    "tcp_rtt_var": ("rttvar", 1000),
    "tcp_pacing_rate": ("pacing_rate_Bps", _MEGA),
    "tcp_delivery_rate": ("delivery_rate_Bps", _MEGA),
    "tcp_bbr_bw": ("bbr_bw_Bps", _MEGA),
    "tcp_bbr_mrtt": ("bbr_min_rtt_us", 1000),
    "tcp_bbr_pacing_gain": ("bbr_pacing_gain", 256),
    "tcp_bbr_cwnd_gain": ("bbr_cwnd_gain", 256),
}


def sniff(head: bytes) -> bool:
    """Return whether a file that starts with these bytes is flent's."""
    return head.lstrip().startswith(b"{") and b'"metadata"' in head[:200] and b'"BATCH_' in head


@reads("a flent data file")
def read(source: Source) -> tcpinfo.TcpInfo:
    """Read the sockets' samples of a flent run into `TcpInfo`; a connection's `flow_id` is the name of its series.

    Raises `FormatError`: not flent's JSON, or no samples of a socket in it (flent takes them with `--socket-stats`).
    """
    document = source.json()
    series = document["metadata"].get("SERIES_META") or {}
    polls = tcpinfo.Polls()
    for name, entries in sorted(document["raw_values"].items()):
        if not any(key in entry for entry in entries or () for key in _VALUES):
            continue
        meta = series.get(name) or {}
        known = {"flow_id": name, "cc": meta.get("CONG_CONTROL"), "kernel": document["metadata"].get("KERNEL_RELEASE")}
        for entry in sorted(entries, key=lambda entry: entry["t"]):
            if poll := _poll(entry):
                polls.add(poll | {"snd_mss": meta.get("TCP_MSS")} | _carried(entry), name, **known)
    none = "no samples of sockets in this flent run; take them with flent --socket-stats"
    return polls.info(source, "flent", none)


def _poll(entry: dict[str, Any]) -> dict[str, Any] | None:
    poll = {
        ours: round(float(entry[key]) * factor) for key, (ours, factor) in _VALUES.items() if entry.get(key) is not None
    }
    if not poll and (entry.get("val") is None or entry.get("dur") is None):
        return None
    return poll | {"time_ns": round(float(entry["t"]) * 1e9)}


def _carried(entry: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that the stream transferred in the interval ending with an entry; 0 if it samples the socket."""
    value, lasted = entry.get("val"), entry.get("dur")
    if value is None or lasted is None:
        return {"interval_bytes": 0, "interval_us": 0}
    return {"interval_bytes": round(value * lasted * _MEGA), "interval_us": round(lasted * 1e6)}
