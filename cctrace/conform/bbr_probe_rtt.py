"""Requirements of draft-ietf-ccwg-bbr-06 on ProbeRTT, and on what follows idling."""

import numpy as np

from cctrace.cc.linux import EVENT_TX_START
from cctrace.columns import Values
from cctrace.conform.bbr_names import CRUISE, PROBE_RTT, STARTUP, STATES
from cctrace.conform.bbr_oracle import MIN_PIPE, first_time_us, from_idle, is_exact, leaves, moves, since, states_of
from cctrace.conform.bbr_states import TICK_US
from cctrace.conform.requirements import Found, Named, Table, all_of, at_least, equal
from cctrace.conform.trace import Trace

requirement = Table()

INTERVAL_US, DURATION_US = 5_000_000, 200_000  # BBR.ProbeRTTInterval, BBR.ProbeRTTDuration


def _clock_slack(r: Trace) -> float:
    return 0 if is_exact(r) else TICK_US


@requirement("probe_rtt.entry", "5.3.4.3", "ProbeRTT begins exactly when no lower RTT was sampled for 5 s, unless the "
             "flow was idle.")  # fmt: skip
def _probe_rtt_entry(r: Trace) -> Found:
    age_us = r.ack("now_us") - r.before["probe_rtt_min_stamp"]
    idle, slack = r.was_set("idle_restart"), _clock_slack(r)
    must, may = age_us > INTERVAL_US + slack, age_us > INTERVAL_US - slack
    good = np.where(r.after["state"] == PROBE_RTT, may & ~idle, ~must | idle)
    return all_of(r.acks & (r.before["state"] != PROBE_RTT), good, age_us, "ProbeRTT above 5000000 us")


def _low_since(r: Trace) -> Values:
    """Return since when (us) the flight has been low in a stay in ProbeRTT; 0 before."""
    inside = (r.before["state"] == PROBE_RTT) | (r.after["state"] == PROBE_RTT)
    return first_time_us(r, inside, r.acks & (r.inflight <= _half_bdp(r)))


def _half_bdp(r: Trace) -> Values:
    return np.maximum(np.ceil(0.5 * r.before["bw"] * r.after["min_rtt_us"] / (1e6 * r.mss)), MIN_PIPE)


@requirement("probe_rtt.stay", "5.3.4.3", "ProbeRTT lasts at least 200 ms after the flight has fallen.")
def _stay(r: Trace) -> Found:
    low = _low_since(r)
    where = leaves(r, PROBE_RTT) & (r.acks | r.is_call("cwnd_event"))
    stayed = np.where(low > 0, r.ack("now_us") - low, 0)
    return at_least(where, stayed, DURATION_US, within=_clock_slack(r))


@requirement("probe_rtt.leave", "5.3.4.3", "ProbeRTT ends after 200 ms and a round.")
def _leave(r: Trace) -> Found:
    stamp = r.before["probe_rtt_done_stamp"]
    where = r.acks & (r.before["state"] == PROBE_RTT) & _over(r) & r.is_set("probe_rtt_round_done")
    return all_of(where, r.after["state"] != PROBE_RTT, r.ack("now_us"), stamp, "ended at")


def _over(r: Trace) -> Values:
    """Return where the 200 ms of ProbeRTT are over."""
    stamp = r.before["probe_rtt_done_stamp"]
    return (stamp > 0) & (r.ack("now_us") > stamp + _clock_slack(r))


@requirement("probe_rtt.interval", "5.3.4.3", "The 5 s until the next ProbeRTT begin when one ends.")
def _interval(r: Trace) -> Found:
    where = (r.acks | r.is_call("cwnd_event")) & leaves(r, PROBE_RTT)
    return at_least(where, r.after["probe_rtt_min_stamp"], r.ack("now_us"), within=_clock_slack(r))


@requirement("probe_rtt.clock", "5.3.4.3", "The 200 ms of ProbeRTT begin as soon as the flight has fallen.")
def _clock(r: Trace) -> Found:
    inside = r.acks & (r.after["state"] == PROBE_RTT)
    due = inside & (r.inflight <= _half_bdp(r))
    armed = inside & (r.before["probe_rtt_done_stamp"] == 0) & (r.after["probe_rtt_done_stamp"] != 0)
    over = r.ack("now_us") + DURATION_US
    stamp = r.after["probe_rtt_done_stamp"]
    good = (stamp != 0) & (~armed | (np.abs(stamp - over) <= _clock_slack(r)))
    return all_of(due, good, stamp, over)


@requirement("probe_rtt.round", "5.3.4.3", "ProbeRTT lasts at least a round after the flight has fallen.",
             "probe_rtt_round_done")  # fmt: skip
def _round(r: Trace) -> Found:
    was, now = states_of(r)
    inside = (was == PROBE_RTT) | (now == PROBE_RTT)
    armed = inside & (r.before["probe_rtt_done_stamp"] > 0)
    rounds = since(r, armed, r.is_set("round_start"))
    return at_least(r.acks & leaves(r, PROBE_RTT), rounds, 1)


@requirement("probe_rtt.next", "5.3.4.4", "ProbeRTT is followed by CRUISE if the pipe was full before, else by "
             "Startup.")  # fmt: skip
def _next(r: Trace) -> Found:
    now, expected = r.after["state"], np.where(r.was_set("full_bw_reached"), CRUISE, STARTUP)
    return all_of(leaves(r, PROBE_RTT), now == expected, Named(now, STATES), Named(expected, STATES))


@requirement("probe_rtt.app_limited", "5.3.4.3", "Rate samples in ProbeRTT are marked app-limited.")
def _mark(r: Trace) -> Found:
    return at_least(r.acks & moves(r, PROBE_RTT, PROBE_RTT), r.after["app_limited"], r.ack("delivered"))


@requirement("probe_rtt.reset", "5.3.4.4", "Leaving ProbeRTT discards the short-term model.")
def _rtt_reset(r: Trace) -> Found:
    bound = r.after["bw_shortterm"]
    return all_of(leaves(r, PROBE_RTT), np.isinf(bound), bound, "no bound")


@requirement("idle.probe_rtt", "5.4.1", "A ProbeRTT that expires while the flow is idle ends when sending restarts.")
def _idle_probe_rtt(r: Trace) -> Found:
    stamp, where = r.before["probe_rtt_done_stamp"], from_idle(r) & (r.before["state"] == PROBE_RTT) & _over(r)
    return all_of(where, r.after["state"] != PROBE_RTT, r.ack("now_us"), stamp, "ended at")


@requirement("idle.aggregation", "5.4.1", "Restarting from idle begins a new aggregation epoch.")
def _idle_aggregation(r: Trace) -> Found:
    return equal(from_idle(r), r.after["extra_acked_interval_start"], r.ack("now_us"))


@requirement("idle.restart", "5.4.1", "Restarting from idle sets idle_restart, and the next ACK clears it.")
def _idle(r: Trace) -> Found:
    sends = r.is_call("cwnd_event", EVENT_TX_START)
    acked = r.acks & (r.ack("rs_delivered") > 0)
    expected = np.where(acked, False, from_idle(r) | r.was_set("idle_restart"))
    return all_of(sends | acked, r.is_set("idle_restart") == expected, r.after["idle_restart"], expected)
