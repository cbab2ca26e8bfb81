"""The draft's derived quantities: the bounds that its requirements compare with."""

from typing import Any

import numpy as np

from cctrace.cc.bbr_draft_model import BBRDraftModel
from cctrace.cc.bbr_draft_quic import BBRDraftQuic
from cctrace.cc.linux import EVENT_TX_START
from cctrace.columns import Values, last_true
from cctrace.conform.bbr_names import CRUISE, DOWN, DRAIN, REFILL, STARTUP, STATES, UP
from cctrace.conform.trace import Trace, once

MIN_PIPE = 4  # BBR.MinPipeCwnd, segments
HEADROOM = 0.15


def is_exact(r: Trace) -> bool:
    """Whether rates are unquantised, as in the draft; released controllers keep them in fixed point."""
    return issubclass(r.cls, BBRDraftModel)


def states_of(r: Trace) -> tuple[Values, Values]:
    """Return the state before and after each call."""
    return r.before["state"], r.after["state"]


def enters(r: Trace, state: int) -> Values:
    """Return the calls that enter a state."""
    return (r.before["state"] != state) & (r.after["state"] == state)


def leaves(r: Trace, state: int) -> Values:
    """Return the calls that leave a state."""
    return (r.before["state"] == state) & (r.after["state"] != state)


def moves(r: Trace, a: int, b: int) -> Values:
    """Return the calls that lead from one state to another; that stay in it, if they are the same."""
    return (r.before["state"] == a) & (r.after["state"] == b)


def from_idle(r: Trace) -> Values:
    """Return the calls with which an application-limited flow sends again, and nothing is in flight."""
    return r.is_call("cwnd_event", EVENT_TX_START) & (r.before["app_limited"] != 0) & (r.inflight == 0)


def slack(r: Trace, within: float, rel: float = 0.0, exact: float = 0.0) -> dict[str, float]:
    """Return the tolerance of a comparison: `exact` where rates are unquantised, else an amount and a share."""
    return {"within": exact} if is_exact(r) else {"within": within, "rel": rel}


def bound_limits(r: Trace) -> Values:
    """Return where inflight_longterm limits the flow [BBRdraft] 5.3.3.7."""
    return (r.ack("is_cwnd_limited") != 0) & (r.before["snd_cwnd"] >= r.after["inflight_longterm"])


def restarts_plateau(r: Trace) -> Values:
    """Return where the plateau detector has just begun anew, from the current sample."""
    near = np.abs(r.after["full_bw"] - r.delivery_rate) <= 0.02 * r.delivery_rate + (1e-3 if is_exact(r) else 200)
    return near & (r.after["full_bw_count"] == 0) & ~r.is_set("full_bw_now")


def among(states: Values, *some: int) -> Values:
    """Return where a state is one of several; a table is faster than `np.isin`."""
    table = np.zeros(len(STATES), bool)
    table[list(some)] = True
    return table[states]


def bdp_of(r: Trace, bw: Values, gain: Any = 1.0, min_rtt_us: Values | None = None) -> Values:
    """Return `gain` BDPs in segments, rounded up [BBRdraft] 5.6.4.2; the least RTT is that before the call."""
    rtt = r.before["min_rtt_us"] if min_rtt_us is None else min_rtt_us
    return np.ceil(np.round(gain * bw * rtt / (1e6 * r.ack("mss")), 9))


def offload_budget(r: Trace, quantum: Values, pacing: Values) -> Values:
    """Return the offload budget, segments: three quanta for TCP; for QUIC one, and more by parameters [BBRdraft] 5.5.8.

    `quantum`: bytes; `pacing`: the pacing rate that it was set with.
    """
    mss = r.ack("mss")
    if not issubclass(r.cls, BBRDraftQuic):
        return 3 * np.ceil(quantum / mss)
    ahead, threshold, delay = (r.facts[name] for name in ("pacing_offload_us", "ack_threshold", "ack_delay_us"))
    unacked = np.minimum(threshold, np.ceil(delay * r.after["max_bw"] / (1e6 * mss)))
    return np.ceil(quantum / mss) + np.ceil(ahead * pacing / (1e6 * mss)) + unacked


def quantized(r: Trace, volume: Values, pacing: Values, state: Values) -> Values:
    """Return a volume with room for offload, at least four segments, two more in UP [BBRdraft] 5.6.4.2."""
    quantum = np.maximum(np.minimum(np.maximum(pacing, 0) // 1000, 64 * 1024), 2 * r.ack("mss"))
    volume = np.maximum(np.maximum(volume, offload_budget(r, quantum, pacing)), MIN_PIPE)
    return volume + np.where(state == UP, 2, 0)


@once
def inflight_of(r: Trace, name: str, after: bool = False) -> Values:
    """Return Inflight(bw, 1.0), segments, by the values before the call; with `after`, by the bandwidth after it."""
    bw = (r.after if after else r.before)[name]
    return quantized(r, bdp_of(r, bw), r.before["pacing_rate"], r.before["state"])


def with_headroom(longterm: Values) -> Values:
    """Return inflight_longterm less 15 % [BBRdraft] 5.3.3.9."""
    with np.errstate(invalid="ignore"):
        left = longterm - np.maximum(1, np.floor(HEADROOM * longterm))
    return np.where(np.isinf(longterm), np.inf, np.maximum(left, MIN_PIPE))


@once
def target_inflight(r: Trace) -> Values:
    """Return TargetInflight, segments [BBRdraft] 5.3.3.8.3."""
    bdp = r.before["bw"] * r.before["min_rtt_us"] / (1e6 * r.ack("mss"))
    return np.minimum(bdp, r.before["snd_cwnd"])


def since(r: Trace, inside: Values, happens: Values) -> Values:
    """Return on how many ACKs of a stay (a run of rows of a mask) something has happened, up to and with this row.

    The first row of the stay is that of its entry and does not count.
    """
    inside = np.asarray(inside, bool)
    count = np.cumsum(np.asarray(happens, bool) & inside & r.acks)
    last = last_true(inside & np.diff(inside, prepend=False), before=0)
    return np.where(inside, count - count[last], 0)


def first_time_us(r: Trace, inside: Values, happens: Values) -> Values:
    """Return when (us) something first happened in a stay, for the rows of the stay; 0 while it has not."""
    inside = np.asarray(inside, bool)
    stay = np.cumsum(inside & np.diff(inside, prepend=False))
    rows = np.flatnonzero(inside & happens)
    first = np.full(int(stay.max(initial=0)) + 1, len(r), np.int64)
    first[stay[rows][::-1]] = rows[::-1]
    there = inside & (first[stay] <= np.arange(len(r)))
    return np.where(there, r.ack("now_us")[np.minimum(first[stay], len(r) - 1)], 0)


@once
def begins_probe_bw(r: Trace) -> Values:
    """Return the ACKs that end Drain (or Startup) and enter ProbeBW, perhaps CRUISE at once."""
    was, now = states_of(r)
    return r.acks & among(was, STARTUP, DRAIN) & among(now, DOWN, CRUISE, REFILL)
