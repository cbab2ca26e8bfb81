"""What the controllers of a simulation have in their records, in common units: columns of `Simulation.timeline`.

| column | |
| --- | --- |
| mode | name of the state; within PROBE_BW also of the phase ("PROBE_BW cruise") |
| bw_Bps, min_rtt_us | the model of the path; of v2 and v3 the bandwidth in use, the least of the bounds |
| pacing_gain, cwnd_gain | |
| bw_hi_Bps, bw_lo_Bps, inflight_hi_segments, inflight_lo_segments | bounds of v2 and v3; infinite where there is none |
| ssthresh_segments | of window-based controllers; infinite before the first loss |

NaN (mode: an empty text) where a controller has no such thing.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller
from cctrace.cc.bbr2_model import BBR_UNIT, BW_UNIT
from cctrace.cc.bbr_draft_model import UNSET_BW
from cctrace.columns import Floats, Values
from cctrace.lang.fields import fields_of, record_dtype

COLUMNS = (
    "mode", "bw_Bps", "min_rtt_us", "pacing_gain", "cwnd_gain", "bw_hi_Bps", "bw_lo_Bps", "inflight_hi_segments",
    "inflight_lo_segments", "ssthresh_segments",
)  # fmt: skip
_PHASES = 4  # from this place of `states` on they are phases of PROBE_BW, by `cycle_idx`


def columns_of(spec: str | type[Controller], states: Sequence[bytes], mss: int) -> dict[str, Values]:
    """Return {column: values} of one controller.

    `spec`: see `cctrace.cc.controller`. `states`: its record at each instant (`World.state_bytes`). `mss`: bytes of a
    segment or packet.
    """
    cls, _ = resolve(spec)
    records = np.frombuffer(b"".join(states), record_dtype(cls))
    names, count = records.dtype.names or (), len(records)
    linux = cls.view == "linux"
    found = {name: np.full(count, np.nan) for name in COLUMNS[1:]}
    found |= _model(records, names, linux, mss)
    for name in {"pacing_gain", "cwnd_gain"} & set(names):
        gains = BBR_UNIT if linux and records[name].dtype.kind == "i" else 1  # in 256ths, or as they are
        found[name] = np.round(records[name].astype(float) / gains, 6)
    for name, draft in (("inflight_hi", "inflight_longterm"), ("inflight_lo", "inflight_shortterm")):
        for field in {name, draft} & set(names):
            found[f"{name}_segments"] = _bound(records[field], 1 if linux else mss)
    for name in {"snd_ssthresh", "ssthresh"} & set(names) if "pacing_gain" not in names else ():
        found["ssthresh_segments"] = _bound(records[name], 1 if linux else mss)
    return {"mode": _modes(cls, records, found)} | {name: found[name] for name in COLUMNS[1:]}


def field_of(spec: str | type[Controller], states: Sequence[bytes], name: str) -> Values:
    """Return a field of one controller at each instant, of an array its first element; NaN if it has no such field."""
    dtype = record_dtype(resolve(spec)[0])
    if name not in (dtype.names or ()):
        return np.full(len(states), np.nan)
    return np.frombuffer(b"".join(states), dtype)[name].reshape(len(states), -1)[:, 0]


def state_names(cls: type[Controller]) -> tuple[str, ...]:
    """Return the names of a controller's states, as `mode` has them before a blank; empty if it has none."""
    if "mode" in fields_of(cls):
        return tuple(cls.states[:_PHASES])
    return (cls.states[0], cls.states[-1]) if cls.states else ()


def _model(records: NDArray[np.void], names: tuple[str, ...], linux: bool, mss: int) -> dict[str, Floats]:
    """Return bandwidth, its bounds and the least RTT."""
    found = {}
    unit = 1e6 * mss / BW_UNIT if linux else 1.0
    if "bw_lo" in names:
        highest = np.maximum(records["bw_hi0"], records["bw_hi1"]) if linux else records["bw_hi"].max(axis=1)
        lowest = _bound(records["bw_lo"], 1 / unit)
        found = {"bw_hi_Bps": highest * unit, "bw_lo_Bps": lowest, "bw_Bps": np.minimum(highest * unit, lowest)}
    elif "lt_use_bw" in names:
        bw = np.where(records["lt_use_bw"] > 0, records["lt_bw"], records["bw_v"][:, 0])
        found = {"bw_Bps": np.where(bw > 0, bw * unit, np.nan)}
    elif "bw" in names:
        found = {"bw_Bps": records["bw"].astype(float)}
    if "bw_shortterm" in names:
        found |= {"bw_hi_Bps": records["max_bw"].copy(), "bw_lo_Bps": _unset_bw(records["bw_shortterm"])}
    for name, scale in (("min_rtt_us", 1.0), ("min_rtt_ms", 1e3), ("min_rtt", 1e3)):
        if name in names:
            least = records[name].astype(float)
            found["min_rtt_us"] = np.where((least == 0) | (least >= 0x7FFFFFFF), np.nan, least * scale)
    return found


def _unset_bw(values: Floats) -> Floats:
    """Return a bound on the bandwidth, bytes/s; infinite where it is not set."""
    return np.where(values >= UNSET_BW, np.inf, values)


def _bound(values: ArrayLike, unit: float) -> Floats:
    """Return a bound in units; infinite where it is not set."""
    values = np.asarray(values, float)
    return np.where(values >= 0x7FFFFFFF, np.inf, values / unit)


def _modes(cls: type[Controller], records: NDArray[np.void], found: dict[str, Floats]) -> Values:
    """Return the names of the states."""
    states = cls.states
    if "mode" not in (records.dtype.names or ()):
        window = records["snd_cwnd" if cls.view == "linux" else "cwnd"]
        limit = records["snd_ssthresh" if cls.view == "linux" else "ssthresh"]
        return np.where(window < limit, states[0], states[-1]).astype(object) if states else np.full(len(records), "")
    names = np.array(states, dtype=object)[np.clip(records["mode"], 0, len(states) - 1)]
    probing = names == "PROBE_BW"
    if len(states) > _PHASES:
        phases = np.array([f"PROBE_BW {state.lower()}" for state in states[_PHASES:]], dtype=object)
        phase = phases[np.clip(records["cycle_idx"], 0, len(phases) - 1)]
    else:
        gain = found["pacing_gain"]
        phase = np.where(gain > 1, "PROBE_BW up", np.where(gain < 1, "PROBE_BW down", "PROBE_BW cruise"))
    return np.where(probing, phase, names)
