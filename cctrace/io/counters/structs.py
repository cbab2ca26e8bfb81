"""struct tcp_info and the congestion-control structs of INET_DIAG as the kernel lays them out, of any length.

Kernels only ever append to struct tcp_info, so a dump of another age is a prefix of this one, or longer: fields beyond
its end are missing.

Source: [Linux618] include/uapi/linux/tcp.h, inet_diag.h; the 52-byte BBR struct: the v2 and v3 branches.
"""

from collections.abc import Sequence

import numpy as np

from cctrace.columns import Values
from cctrace.schema import MISSING, U64_MAX

# Order and width are the layout; "options" and "wscale" share bytes with bit fields, see `decode`.
_LAYOUT = (
    ("u1", "state ca_state retransmits probes backoff options wscale app_limited_bits"),
    ("u4", "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv"),
    ("u4", "last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt rcv_space"),
    ("u4", "total_retrans"),
    ("u8", "pacing_rate max_pacing_rate bytes_acked bytes_received"),
    ("u4", "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
    ("u8", "delivery_rate busy_time rwnd_limited sndbuf_limited"),
    ("u4", "delivered delivered_ce"),
    ("u8", "bytes_sent bytes_retrans"),
    ("u4", "dsack_dups reord_seen rcv_ooopack snd_wnd rcv_wnd rehash"),
    ("u2", "total_rto total_rto_recoveries"),
    ("u4", "total_rto_time received_ce delivered_e1_bytes delivered_e0_bytes delivered_ce_bytes received_e1_bytes"),
    ("u4", "received_e0_bytes received_ce_bytes"),
    ("u2", "accecn_fail_mode accecn_opt_seen"),
)
FIELDS = tuple((name, "<" + width) for width, names in _LAYOUT for name in names.split())
TCP_INFO = np.dtype(list(FIELDS))
_ENDS = np.cumsum([TCP_INFO[name].itemsize for name, _ in FIELDS]).tolist()  # offset behind each field
SHORTEST = 104  # to total_retrans: the struct of Linux 2.6

BBR_INFO = np.dtype([(n, "<u4") for n in ("bw", "bw_msb", "min_rtt", "pacing_gain", "cwnd_gain")])
# Versions 2 and 3 share one struct; byte 39 says which.
BBR23_INFO = np.dtype(
    [(n, "<u4") for n in ("bw", "bw_msb", "min_rtt", "pacing_gain", "cwnd_gain")]
    + [(n, "<u4") for n in ("bw_hi", "bw_hi_msb", "bw_lo", "bw_lo_msb")]
    + [("mode", "u1"), ("phase", "u1"), ("unused", "u1"), ("version", "u1")]
    + [(n, "<u4") for n in ("inflight_lo", "inflight_hi", "extra_acked")]
)
# By number of bbr_phase [BBRv3] include/uapi/linux/inet_diag.h, enum tcp_bbr2_phase.
PHASES = ("", "STARTUP", "DRAIN", "PROBE_RTT", "PROBE_BW_UP", "PROBE_BW_DOWN", "PROBE_BW_CRUISE", "PROBE_BW_REFILL")


def decode(dumps: Sequence[bytes]) -> dict[str, Values]:
    """Decode dumps of struct tcp_info (bytes each, of any lengths) into {field: array}, missing where not covered."""
    size = TCP_INFO.itemsize
    lengths = np.array([len(dump) for dump in dumps])
    table = np.frombuffer(b"".join(dump[:size].ljust(size, b"\0") for dump in dumps), TCP_INFO)
    fields = {}
    for (name, _), end in zip(FIELDS, _ENDS, strict=True):
        dtype = TCP_INFO[name]
        covered = lengths >= end
        if covered.any():
            none = U64_MAX if dtype.itemsize == 8 else MISSING
            wide = table[name] if dtype.itemsize == 8 else table[name].astype(np.int64)
            fields[name] = np.where(covered, wide, np.asarray(none, wide.dtype))
    bits = fields.pop("app_limited_bits", None)
    if bits is not None:
        fields["delivery_rate_app_limited"] = np.where(lengths >= 168, bits & 1, MISSING)
    return fields


def decode_bbr(dump: bytes) -> dict[str, int]:
    """Decode one struct tcp_bbr_info, of version 1 (20 bytes) or 2 and 3 (52), into {field: value}; {} if too short.

    The information that other controllers give (vegas, dctcp) is shorter than that of any BBR.
    """
    if len(dump) < BBR_INFO.itemsize:
        return {}
    long = len(dump) >= BBR23_INFO.itemsize
    raw = np.frombuffer(dump[: (BBR23_INFO if long else BBR_INFO).itemsize], BBR23_INFO if long else BBR_INFO)[0]
    out = {
        "bbr_bw_Bps": int(raw["bw"]) | int(raw["bw_msb"]) << 32,
        "bbr_min_rtt_us": int(raw["min_rtt"]),
        "bbr_pacing_gain": int(raw["pacing_gain"]),
        "bbr_cwnd_gain": int(raw["cwnd_gain"]),
        "bbr_version": int(raw["version"]) if long else 1,
    }
    if long:
        out["bbr_bw_hi_Bps"] = int(raw["bw_hi"]) | int(raw["bw_hi_msb"]) << 32
        out["bbr_bw_lo_Bps"] = int(raw["bw_lo"]) | int(raw["bw_lo_msb"]) << 32
        for name in ("mode", "phase", "inflight_lo", "inflight_hi", "extra_acked"):
            out[f"bbr_{name}"] = int(raw[name])
    return out
