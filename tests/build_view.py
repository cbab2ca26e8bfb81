"""A small flow as the plots receive it: 2 s at 10 Mbit/s and 40 ms, one round of losses, BBR-like phases."""

import numpy as np

from cctrace import schema
from cctrace.analysis.flow_view import FlowView
from cctrace.flows.packed import EventColumns

RATE_BPS, RTT_US, MSS, START_NS = 10e6, 40_000, 1448, 1_795_191_153_675_129_354


def columns_of(table, every=1):
    """Columns as long as that of times, of which some rows are kept."""
    rows = len(table["time_ns"])
    return {name: np.array(np.broadcast_to(values, rows))[::every] for name, values in table.items()}


def flow_view(rows=2000, model=True, kernel=True):
    time_s = np.linspace(0, 2, rows)
    acked = 1 + (time_s * RATE_BPS / 8).astype(np.int64)
    columns = {
        "time_ns": START_NS + (time_s * 1e9).astype(np.int64),
        "event": np.full(rows, schema.EVENT_CODES["on_ack"], np.uint8),
        "ack": acked,
        "snd_una": acked,
        "snd_nxt": acked + 35 * MSS,
        "rs_prior_in_flight": np.full(rows, 35, np.uint32),
        "srtt_us8": np.full(rows, RTT_US * 8, np.uint32),
        "mss": np.full(rows, MSS, np.uint16),
        "rs_rtt_us": np.full(rows, RTT_US) + (np.arange(rows) % 7) * 100,
        "rs_delivered": np.full(rows, 34, np.int32),
        "rs_interval_us": np.full(rows, round(34 * MSS * 8e6 / RATE_BPS)),
    }
    columns["rs_interval_us"][::10] = -1  # ACKs without a rate sample
    events = np.zeros(rows, [(c.name, c.dtype) for c in schema.EVENTS])
    for name, values in columns.items():
        events[name] = values
    phase = np.where(time_s < 0.5, "STARTUP", np.where(time_s < 0.6, "DRAIN", "PROBE_BW"))
    states = columns_of(
        {
            "time_ns": events["time_ns"],
            "cwnd_segments": 70.0,
            "pacing_rate_Bps": np.where(time_s < 0.01, np.nan, 1.25 * RATE_BPS / 8),
            "bw_Bps": RATE_BPS / 8,
            "min_rtt_us": float(RTT_US),
            "pacing_gain": 1.25,
            "phase": phase,
        }
    )
    polls = columns_of(
        {
            "time_ns": events["time_ns"],
            "snd_cwnd": 70,
            "bbr_bw_Bps": round(RATE_BPS / 8),
            "bbr_min_rtt_us": np.where(time_s < 0.1, 0, RTT_US),
            "bbr_pacing_gain": 320,
            "pacing_rate_Bps": round(RATE_BPS / 8),
        },
        20,
    )
    lost = {"time_ns": events["time_ns"][900:910], "seq": acked[900:910]}
    return FlowView(EventColumns.of(events), states if model else None, polls if kernel else None, lost)
