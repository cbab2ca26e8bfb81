"""Common quantities for the panels, from the fields of each controller family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.cc.base import declared_fields
from cctrace.cc.bbr2_model import BBR_UNIT, BW_UNIT
from cctrace.cc.bbr_draft_model import UNSET_BW
from cctrace.columns import Floats, Held, Runs, Values
from cctrace.errors import ArgumentError
from cctrace.flows.source import flow_of
from cctrace.replaying.words import UNBOUNDED

if TYPE_CHECKING:
    from cctrace.cc.base import Controller
    from cctrace.columns import Columns
    from cctrace.replaying.run import Run

_FIELDS = (
    *("snd_cwnd", "snd_ssthresh", "pacing_rate", "mode", "cycle_idx", "pacing_gain", "cwnd_gain", "min_rtt_us"),
    *("lt_use_bw", "lt_bw", "bw_lo", "bw_hi0", "bw_hi1", "inflight_hi", "inflight_lo"),
    *("bw", "bw_shortterm", "inflight_longterm", "inflight_shortterm"),  # bytes/s and segments, of bbr_draft
)
_ARRAYS = {"bw_v": ("bw_v[0]",)}


def model_fields(controller: type[Controller]) -> list[str]:
    """Return the fields of a Linux controller class that `model_table` needs, as names for a replay to record."""
    declared = declared_fields(controller)
    elements = [name for array, names in _ARRAYS.items() if array in declared for name in names]
    return [name for name in _FIELDS if name in declared] + elements


def model_of(run: Run) -> Held:
    """Return the common quantities of a `Run` that recorded `model_fields`, after each call; see `model_table`."""
    if run.controller.view != "linux":
        raise ArgumentError(f"{run.controller.__name__} is of the QUIC stack: it has no state that Linux counters show")
    flow, fields = flow_of(run.source), model_fields(run.controller)
    if flow is None:
        raise ArgumentError("this replay is of no flow, so its segments' size is not known; see `decisions`")
    held = run.recorded(*fields)
    mss = flow.facts["mss"]
    if not held.runs:
        return Held(held.count, model_table(run.controller, held, held["time_ns"], mss), {})
    changed = np.zeros(held.count, bool)  # in between, all quantities stay as they are
    for name in fields:
        changed[held.runs[name].begins] = True
    at = np.flatnonzero(changed)
    table = model_table(run.controller, {name: held.runs[name].at(at) for name in fields}, held["time_ns"][at], mss)
    runs = {name: Runs(at, values).joined() for name, values in table.items() if name != "time_ns"}
    times = held.only("time_ns")
    return Held(held.count, times.plain, runs, times.made)


def model_table(controller: type[Controller], decisions: Mapping[str, Any], time_ns: Any, mss: Any) -> Columns:
    """Return a replayed Linux controller's state after each event, in common units.

    `decisions`: the fields named by `model_fields` after each event, shape (n,) as `time_ns` and `mss`. Returns arrays
    of this shape, those that the controller has of: time_ns, cwnd_segments, ssthresh_segments, pacing_rate_Bps,
    min_rtt_us, bw_Bps, cwnd_gain, pacing_gain, mode, phase, and inflight_hi_segments, inflight_lo_segments, bw_lo_Bps
    (infinite if unset).
    """
    held = {name: np.asarray(decisions[name]) for name in model_fields(controller)}
    table = {"time_ns": np.asarray(time_ns, np.int64), "cwnd_segments": held["snd_cwnd"].astype(np.float64)}
    table["ssthresh_segments"] = held["snd_ssthresh"].astype(np.float64)
    for name, draft in (("inflight_hi", "inflight_longterm"), ("inflight_lo", "inflight_shortterm")):
        if name in held or draft in held:
            bound = held[name if name in held else draft].astype(np.float64)
            table[f"{name}_segments"] = np.where(bound >= UNBOUNDED, np.inf, bound)
    pacing = held["pacing_rate"].astype(np.float64)
    if (pacing > 0).any():
        table["pacing_rate_Bps"] = np.where(pacing > 0, pacing, np.nan)
    if "min_rtt_us" in held:
        unset = (held["min_rtt_us"] == 0) | (held["min_rtt_us"] == 0xFFFFFFFF)
        table["min_rtt_us"] = np.where(unset, np.nan, held["min_rtt_us"].astype(np.float64))
    bw = _bandwidth(held)
    unit = 1e6 * np.asarray(mss, np.float64) / BW_UNIT
    if bw is not None:
        table["bw_Bps"] = np.where(bw > 0, bw * unit, np.nan)
    if "bw_lo" in held:
        table["bw_lo_Bps"] = np.where(held["bw_lo"] >= UNBOUNDED, np.inf, held["bw_lo"] * unit)
    if "bw_shortterm" in held:
        table["bw_Bps"] = np.where(held["bw"] > 0, held["bw"], np.nan)
        table["bw_lo_Bps"] = np.where(held["bw_shortterm"] >= UNSET_BW, np.inf, held["bw_shortterm"])
    if "cwnd_gain" in held:
        table["cwnd_gain"] = _gain(held["cwnd_gain"])
    if "pacing_gain" in held:
        table["pacing_gain"] = _gain(held["pacing_gain"])
        names = np.array([*controller.states[:4], "PROBE_BW up", "PROBE_BW down"], dtype=object)
        mode, gain = held["mode"], table["pacing_gain"]
        probing = mode == controller.states.index("PROBE_BW")
        table["mode"] = names[mode]
        table["phase"] = names[np.where(probing & (gain > 1), 4, np.where(probing & (gain < 1), 5, mode))]
    return table


def _gain(values: Values) -> Floats:
    """Return gains, which released controllers keep in 256ths and `bbr_draft` in units."""
    return values if values.dtype.kind == "f" else values / BBR_UNIT


def _bandwidth(held: Mapping[str, Values]) -> Values | None:
    """Return the controller's bandwidth estimate, segments/us << 24, None if it has none."""
    if "bw_hi0" in held:
        highest = np.maximum(held["bw_hi0"], held["bw_hi1"])
        return np.minimum(highest, held["bw_lo"])
    if "bw_v[0]" in held:
        return np.where(held["lt_use_bw"] > 0, held["lt_bw"], held["bw_v[0]"])
    return None
