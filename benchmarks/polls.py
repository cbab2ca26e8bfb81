"""What `ss -tinO` would have printed about a simulated flow every 100 ms: its own calls, replayed, as text.

`ss_text(name, sim, hz)` works of any Linux controller; BBR's fields are those of the kernel's `bbr:(...)`.
"""

import numpy as np

import cctrace as cct
from benchmarks.replay_simulated import quantities
from cctrace.cc import controller
from cctrace.lang.fields import fields_of

EVERY_NS = 100_000_000
EPOCH_NS = 1_700_000_000_000_000_000
INFINITE = 0x7FFFFFFF
_FIELDS = ("snd_cwnd", "snd_ssthresh", "pacing_rate", "min_rtt_us", "pacing_gain", "cwnd_gain", "mode")
_BW_FIELDS = ("bw_hi0", "bw_hi1", "bw_lo", "lt_use_bw", "lt_bw")


def ss_text(spec, sim, hz, bbr_fields=True, every_ns=EVERY_NS):
    """Return polls of the simulation's first flow, which controller `spec` sent."""
    cls, params = controller(spec)
    trace, fields = sim.flow(0), fields_of(cls)
    wanted = [name for name in (*_FIELDS, *_BW_FIELDS) if name in fields] + (["bw_v[0]"] if "bw_v" in fields else [])
    given = params | ({"hz": hz} if "hz" in cls.params else {})
    decisions = cct.replay(trace, cls, record=wanted, **given).decisions
    held = {name: decisions[name].to_numpy().astype(float) for name in wanted}
    if not hasattr(cls, "on_ack"):  # the stack writes cwnd too, after the last call: what the next call finds
        for name in ("snd_cwnd", "snd_ssthresh"):
            held[name] = np.append(trace.carried[name][1:], held[name][-1]).astype(float)
    bw = quantities(held).get("bw") if bbr_fields else None
    at_ns, column = trace.columns["clock_ns"], trace.columns
    sampled = np.flatnonzero((column["rs_interval_us"] > 0) & (column["rs_delivered"] > 0))
    lines = []
    for now in np.arange(at_ns[0] + every_ns // 3, at_ns[-1], every_ns):
        row = int(np.searchsorted(at_ns, now, side="right")) - 1
        before = sampled[sampled <= row]
        ack = {name: int(values[row]) for name, values in column.items()}
        own = {name: values[row] for name, values in held.items()}
        rate = column["rs_delivered"][before[-1]] / column["rs_interval_us"][before[-1]] if len(before) else 0
        lines.append(f"# {EPOCH_NS + now} {EPOCH_NS + now + 10_000}\n")
        lines.append(_socket(ack, own, rate * ack["mss"] * 8e6, None if bw is None else bw[row]) + "\n")
    return "".join(lines)


def _socket(ack, own, delivery_bps, bw):
    mss, srtt_us = ack["mss"], max(ack["srtt_us8"] / 8, 1)
    cwnd, ssthresh = int(own["snd_cwnd"]), int(own["snd_ssthresh"])
    again = ack["data_segs_out"] - (ack["delivered"] - 1) - ack["packets_out"] + ack["sacked_out"]
    pacing_bps = own["pacing_rate"] * 8
    if pacing_bps <= 0:  # [Linux618] net/ipv4/tcp_input.c tcp_update_pacing_rate
        pacing_bps = (2.0 if cwnd < ssthresh / 2 else 1.2) * mss * cwnd / srtt_us * 8e6
    words = [
        f"ESTAB 0 100000 10.0.0.1:50000 10.1.0.1:5201 wscale:9,9 rto:{200 + int(srtt_us / 1000)}",
        f"rtt:{srtt_us / 1000:.3f}/{ack['mdev_us4'] / 4000:.3f} mss:{mss} pmtu:{mss + 52} cwnd:{cwnd}",
        f"ssthresh:{ssthresh}" if ssthresh < INFINITE else "",
        f"bytes_sent:{ack['data_segs_out'] * mss} bytes_acked:{ack['snd_una']} segs_out:{ack['data_segs_out'] + 1}",
        f"segs_in:{ack['delivered']} data_segs_out:{ack['data_segs_out']}",
    ]
    if bw is not None:
        words.append(
            f"bbr:(bw:{int(bw * mss * 8e6 / (1 << 24))}bps,mrtt:{own['min_rtt_us'] / 1000:g},"
            f"pacing_gain:{own['pacing_gain'] / 256:g},cwnd_gain:{own['cwnd_gain'] / 256:g})"
        )
    words.append(f"send {int(cwnd * mss * 8e6 / srtt_us)}bps pacing_rate {int(pacing_bps)}bps")
    words.append(f"delivery_rate {int(delivery_bps)}bps" if delivery_bps else "")
    words.append(f"delivered:{ack['delivered']} unacked:{ack['packets_out']}")
    words.append(f"retrans:{ack['retrans_out']}/{max(again, 0)}" if ack["retrans_out"] or again > 0 else "")
    words += [
        f"{name}:{ack[column]}" for name, column in (("lost", "lost_out"), ("sacked", "sacked_out")) if ack[column]
    ]
    words.append(f"minrtt:{ack['tcp_min_rtt_us'] / 1000:g}")
    return " ".join(word for word in words if word)
