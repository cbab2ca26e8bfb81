"""Fields of the BBR family under the draft's names and in its units: bytes/s, segments, microseconds.

Missing fields are left out, and requirements that need them are not exercised.
"""

from typing import Any

import numpy as np

from cctrace.cc.base import Controller
from cctrace.cc.bbr2_model import BBR_UNIT, BW_UNIT, BBR2Model
from cctrace.cc.bbr_draft_model import UNSET_BW, BBRDraftModel
from cctrace.columns import Columns, Floats, Values

STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP, PROBE_RTT = range(7)
STATES = ("STARTUP", "DRAIN", "DOWN", "CRUISE", "REFILL", "UP", "PROBE_RTT")
_OF_MODES = np.array([STARTUP, DRAIN, -1, PROBE_RTT], np.int8)
_OF_PHASES = np.array([UP, DOWN, CRUISE, REFILL, UP, DOWN, DOWN, DOWN], np.int8)
_UNSET = 0x7FFFFFFF

# The draft's name: the kernel's field.
_SAME = {
    "full_bw_count": "full_bw_cnt",
    "initial_cwnd": "init_cwnd",
    "is_loss_in_round": "loss_in_round",
    "next_round_delivered": "next_rtt_delivered",
    "probe_rtt_min_delay": "probe_rtt_min_us",
    "cycle_stamp": "cycle_mstamp",
    "prev_probe_precautionary": "stopped_risky_probe",
    "is_bw_probe_sample": "bw_probe_samples",
    "probe_up_acked_per_inc": "bw_probe_up_cnt",
    "bw_probe_up_acked": "bw_probe_up_acks",
}
_RATES = ("bw_latest", "full_bw")
_STAMPS = ("min_rtt_stamp", "probe_rtt_min_stamp", "probe_rtt_done_stamp")  # jiffies


def named(cls: type[Controller], fields: Columns, mss: float, hz: float, clock: tuple[Any, Any]) -> Columns:
    """Return a controller's state under the draft's names; `clock`: now_us and jiffies of each row, for stamps."""
    if issubclass(cls, BBRDraftModel):
        return (
            fields
            | {"state": _states(fields), "bw_shortterm": _unset(fields["bw_shortterm"], UNSET_BW)}
            | _bounds(fields)
        )
    if not issubclass(cls, BBR2Model):
        return fields
    unit = 1e6 * mss / BW_UNIT
    found = dict(fields) | {"state": _states(fields)}
    found |= {name: fields[field] for name, field in _SAME.items() if field in fields}
    found |= {name: fields[name] * unit for name in _RATES if name in fields}
    found["max_bw"] = np.maximum(fields["bw_hi0"], fields["bw_hi1"]) * unit
    found["bw_shortterm"] = _unset(fields["bw_lo"], _UNSET, unit)
    found["bw"] = np.minimum(found["max_bw"], found["bw_shortterm"])
    found["extra_acked"] = np.maximum(fields["extra_acked0"], fields["extra_acked1"])
    for gain in ("pacing_gain", "cwnd_gain"):
        found[gain] = fields[gain] / BBR_UNIT
    now_us, jiffies = clock
    for stamp in _STAMPS:
        ago_us = (jiffies - fields[stamp]) * (1e6 / hz)
        found[stamp] = np.where(fields[stamp] == 0, 0, now_us - ago_us)
    return found | _bounds(
        {"inflight_longterm": fields["inflight_hi"], "inflight_shortterm": fields["inflight_lo"]}
        | {
            f"undo_{name}": fields[f"undo_{field}"]
            for name, field in (("inflight_longterm", "inflight_hi"), ("inflight_shortterm", "inflight_lo"))
        }
    )


def _bounds(fields: Columns) -> Columns:
    return {name: _unset(values, _UNSET) for name, values in fields.items() if name.endswith(("longterm", "shortterm"))
            and not name.startswith("bw") and not name.startswith("undo_bw")}  # fmt: skip


def _unset(values: Values, least: float, unit: float = 1.0) -> Floats:
    """Return a bound, infinite where it is not set."""
    return np.where(values >= least, np.inf, values * unit)


def _states(fields: Columns) -> Values:
    modes = _OF_MODES[np.clip(fields["mode"], 0, 3)]
    return np.where(modes < 0, _OF_PHASES[np.clip(fields["cycle_idx"], 0, 7)], modes)
