"""CUBIC step by step: requirements of RFC 9438 on W_max, K, W_est and the increment, for senders that expose them.

One step is compared with the RFC's result for the same input and previous state. A kernel's integers and clock
leave a tolerance: a tick, 1/32 s for which it keeps an increment, and integer segments.
"""

import numpy as np

from cctrace.cc.linux import CA_LOSS, CA_RECOVERY, EVENT_TX_START
from cctrace.columns import Values, last_true
from cctrace.conform.requirements import SHOULD, Found, Table, all_of, at_least, at_most, equal
from cctrace.conform.trace import Trace

requirement = Table()

C, BETA = 0.4, 0.7
ALPHA = 3 * (1 - BETA) / (1 + BETA)  # segments per window of a Reno with this backoff, 4.3
KEPT_S = 1 / 32  # how long Linux keeps an increment while cwnd stays [Linux415] bictcp_update
FLOOR = 2.0  # segments per increment: at most 1.5-fold a round, 4.4
FLAT = 100.0  # windows per increment where the curve is at or below cwnd [Linux415] bictcp_update
ROOT = 0.004  # error of the kernel's cube root


def avoiding(r: Trace) -> Values:
    """Return the ACKs of congestion avoidance on which cwnd limits the sender."""
    return (
        r.is_call("cong_avoid") & (r.ack("is_cwnd_limited") != 0) & (r.before["snd_cwnd"] >= r.before["snd_ssthresh"])
    )


def last_time_us(r: Trace, happens: Values) -> Values:
    """Return when (us) something last happened before each row or at it; -inf if it has not."""
    row = last_true(happens)
    return np.where(row >= 0, r.ack("now_us")[np.maximum(row, 0)], -np.inf)


def _begins(r: Trace) -> Values:
    """Return the ACKs with which an epoch of congestion avoidance begins."""
    return r.is_call("cong_avoid") & np.isnan(r.before["epoch_us"]) & ~np.isnan(r.after["epoch_us"])


def _cwnd_epoch(r: Trace) -> Values:
    """Return cwnd when congestion avoidance begins with a row: ssthresh, where slow start reached it just now."""
    cwnd, ssthresh = r.before["snd_cwnd"], r.before["snd_ssthresh"]
    return np.where(cwnd < ssthresh, np.minimum(cwnd + r.ack("arg"), ssthresh), cwnd)


def _after_timeout(r: Trace) -> Values:
    """Return the rows before which the last reduction was a timeout."""
    return last_true(r.is_call("set_state", CA_LOSS)) > last_true(r.is_call("ssthresh"))


@requirement("w_max.loss", "4.7", "A loss sets W_max to cwnd, or where W_max falls to 0.85 of it (fast convergence).",
             level=SHOULD)  # fmt: skip
def _w_max(r: Trace) -> Found:
    cwnd = r.before["snd_cwnd"]
    expected = np.where(cwnd < r.before["w_max"], cwnd * (1 + BETA) / 2, cwnd)
    return equal(r.is_call("ssthresh"), r.after["w_max"], expected, within=1.0)


@requirement("w_max.kept", "4.2", "Only a loss or a timeout sets W_max.")
def _w_max_kept(r: Trace) -> Found:
    timeout = r.is_call("set_state", CA_LOSS)
    where = ~r.is_call("ssthresh") & ~timeout & ~r.is_call("init") & ~r.is_call("undo_cwnd")
    return equal(where, r.after["w_max"], r.before["w_max"])


@requirement("timeout.curve", "4.8", "After a timeout congestion avoidance begins at the plateau: K is 0 and W_max is "
             "cwnd.")  # fmt: skip
def _timeout(r: Trace) -> Found:
    where = _begins(r) & _after_timeout(r)
    good = (r.after["k_s"] == 0) & (r.after["w_origin"] == _cwnd_epoch(r))
    return all_of(where, good, r.after["w_origin"], _cwnd_epoch(r))


@requirement("epoch.ends", "4.2", "A reduction ends the epoch.")
def _ends(r: Trace) -> Found:
    return all_of(r.is_call("ssthresh"), np.isnan(r.after["epoch_us"]), r.after["epoch_us"], "none")


@requirement("epoch.begins", "4.2", "An epoch begins with the first ACK of congestion avoidance, at that time.")
def _epoch(r: Trace) -> Found:
    begins, tick = _begins(r), r.facts["tick_us"]
    waited = r.ack("now_us") - last_time_us(r, r.is_call("ssthresh")) > KEPT_S * 1e6 + 2 * tick
    late = avoiding(r) & waited & np.isnan(r.after["epoch_us"])
    with np.errstate(invalid="ignore"):
        on_time = np.abs(r.after["epoch_us"] - r.ack("now_us")) <= tick
    return all_of(begins | late, np.where(begins, on_time, False), r.after["epoch_us"], r.ack("now_us"))


@requirement("epoch.k", "4.2", "K is the cube root of (W_max - cwnd_epoch) / C, and 0 above W_max.")
def _k(r: Trace) -> Found:
    below = np.maximum(r.after["w_max"] - _cwnd_epoch(r), 0)
    return equal(_begins(r), r.after["k_s"], np.cbrt(below / C), rel=ROOT, within=3 / 1024)


@requirement("epoch.plateau", "4.2", "The plateau of the curve is W_max, or cwnd_epoch if that is larger.")
def _origin(r: Trace) -> Found:
    return equal(_begins(r), r.after["w_origin"], np.maximum(r.after["w_max"], _cwnd_epoch(r)))


@requirement("epoch.kept", "4.2", "Between reductions K and the plateau do not change.")
def _kept(r: Trace) -> Found:
    running = ~np.isnan(r.before["epoch_us"]) & ~np.isnan(r.after["epoch_us"])
    good = (r.after["k_s"] == r.before["k_s"]) & (r.after["w_origin"] == r.before["w_origin"])
    moved = np.abs(r.after["epoch_us"] - r.before["epoch_us"]) > 2 * r.facts["tick_us"]
    good &= ~moved | r.is_call("cwnd_event")
    return all_of(running, good, r.after["w_origin"], r.before["w_origin"])


@requirement("epoch.idle", "4.2, 5.8", "Idle time does not advance the curve.")
def _idle(r: Trace) -> Found:
    starts = r.is_call("cwnd_event", EVENT_TX_START) & ~np.isnan(r.before["epoch_us"])
    tick = r.facts["tick_us"]
    idle = np.maximum(r.ack("jiffies") - r.ack("lsndtime"), 0) * tick
    expected = np.minimum(r.before["epoch_us"] + idle, r.ack("now_us"))
    return equal(starts, r.after["epoch_us"], expected, within=2 * tick)


@requirement("rtt.least", "4.4", "The curve looks ahead by the minimum RTT, of samples that are at least a second into "
             "the epoch.")  # fmt: skip
def _rtt(r: Trace) -> Found:
    rtt = r.ack("rs_rtt_us")
    young = r.ack("now_us") - r.before["epoch_us"] < 1e6 + 2 * r.facts["tick_us"]  # false without an epoch
    sampled = r.is_call("pkts_acked") & (rtt > 0)
    unset = r.before["min_rtt_us"] == 0
    lower = np.minimum(np.where(unset, np.inf, r.before["min_rtt_us"]), np.where(sampled, rtt, np.inf))
    timeout = r.is_call("set_state", CA_LOSS)
    tick_us = 125.0  # of ms << 3
    least = np.minimum.accumulate(np.where(sampled, rtt, np.inf))
    good = (r.after["min_rtt_us"] >= lower - tick_us) & (r.after["min_rtt_us"] >= least - tick_us)
    must = sampled & ~young
    good &= ~must | (r.after["min_rtt_us"] <= np.maximum(lower, tick_us))
    good |= timeout | ((r.after["min_rtt_us"] == r.before["min_rtt_us"]) & ~must)
    return all_of(sampled | timeout, good, r.after["min_rtt_us"], lower)


def _curve(r: Trace, later_us: float) -> Values:
    """Return W_cubic an RTT and `later_us` ahead of each row, at its epoch's beginning at the earliest.

    With `later_us` above 0, the curve is as high as it may be: its RTT may be that of an increment kept from before.
    """
    now, rtt = r.ack("now_us"), r.after["min_rtt_us"]
    if later_us > 0:
        rtt = np.maximum(rtt, rtt[np.searchsorted(now, now - KEPT_S * 1e6 - later_us)])
    t = np.maximum(now - r.after["epoch_us"] + later_us, 0) + rtt
    return C * (t / 1e6 - r.after["k_s"]) ** 3 + r.after["w_origin"]


def _grown_in_a_tick(r: Trace) -> Values:
    """Return the segments by which cwnd grew in the last tick; Linux follows the curve once a tick."""
    now = r.ack("now_us")
    earlier = np.searchsorted(now, now - r.facts["tick_us"])
    return np.maximum(_cwnd_epoch(r) - r.before["snd_cwnd"][earlier], 0)


def _increment(r: Trace, target: Values, more: float, behind: Values | float = 0.0) -> Values:
    """Return the segments per increment that reach a target in a round, whole ones.

    `more` segments are added to the distance; cwnd was lower by `behind` when the increment was computed.
    """
    cwnd = _cwnd_epoch(r) - behind
    way = np.floor(target) + more - cwnd
    return np.where(way > 0, np.floor(cwnd / np.maximum(way, 1e-9)), FLAT * cwnd)


def _fair(r: Trace, behind: Values | float = 0.0) -> Values:
    """Return the segments per increment that reach W_est in a round; infinite where cwnd has reached it."""
    cwnd = _cwnd_epoch(r) - behind
    way = r.after["w_est"] - cwnd
    return np.where(way > 0, np.floor(cwnd / np.maximum(way, 1)), np.inf)


def _steady(r: Trace) -> Values:
    """Return the ACKs on which an epoch runs on, and the curve has been followed at least once."""
    return avoiding(r) & ~np.isnan(r.after["epoch_us"])


@requirement("increment.at_most", "4.4, 4.5", "cwnd grows per segment ACKed by no more than (W_cubic an RTT ahead - "
             "cwnd) / cwnd, or than W_est asks for.")  # fmt: skip
def _increment_least(r: Trace) -> Found:
    behind = _grown_in_a_tick(r)
    bound = np.minimum(_increment(r, _curve(r, 2 * r.facts["tick_us"]), 1.0, behind), _fair(r, behind))
    # Until the first loss Linux grows by 5 % a round at least.
    bound = np.where(r.after["w_max"] == 0, np.minimum(bound, 20), bound)
    return at_least(_steady(r), r.after["per_increment"], np.maximum(bound, FLOOR), rel=2 * ROOT)


@requirement("increment.at_least", "4.4, 4.5", "cwnd grows by no less than that, up to 1.5-fold a round.", level=SHOULD)
def _increment_most(r: Trace) -> Found:
    stale_us = -KEPT_S * 1e6 - 2 * r.facts["tick_us"]
    bound = np.minimum(_increment(r, _curve(r, stale_us), -1.0), _fair(r))
    bound = np.where(r.after["w_max"] == 0, np.minimum(bound, 20), bound)
    return at_most(_steady(r), r.after["per_increment"], np.maximum(bound, FLOOR), rel=2 * ROOT)


@requirement("increment.cwnd", "4.4", "cwnd grows by one segment for every per_increment segments ACKed.")
def _growth(r: Trace) -> Found:
    per = np.maximum(r.after["per_increment"], 1).astype(float)
    credit = np.minimum(r.before["snd_cwnd_cnt"], per)  # left from dearer increments, it pays for one at most
    expected = r.before["snd_cwnd"] + (credit + r.ack("arg")) / per
    return equal(avoiding(r), r.after["snd_cwnd"] + r.after["snd_cwnd_cnt"] / per, expected, rel=1e-9)


def _reno(r: Trace, one_from_prior: bool) -> tuple[Values, Values]:
    """Return W_est by Eq. 4 since each epoch began, from what was ACKed; and the rows of these epochs."""
    begins, steps = _begins(r), avoiding(r)
    inside = last_true(begins)
    expected = np.full(len(r), np.nan)
    cuts = last_true(r.is_call("ssthresh"))
    arg, cwnd, start = r.ack("arg"), r.before["snd_cwnd"], _cwnd_epoch(r)
    for first in np.flatnonzero(begins):
        rows = np.flatnonzero((inside == first) & steps)
        acked = arg[rows] / np.maximum(cwnd[rows], 1)
        grown = ALPHA * np.cumsum(acked)
        if one_from_prior and cuts[first] >= 0:
            room = max(float(cwnd[cuts[first]] - start[first]), 0.0)
            grown = np.where(grown <= room, grown, room + (grown - room) / ALPHA)
        expected[rows] = start[first] + grown
    where = steps & ~np.isnan(expected) & ~np.isnan(r.after["epoch_us"])
    return expected, where


@requirement("w_est.start", "4.3", "W_est begins at cwnd_epoch.")
def _w_est_start(r: Trace) -> Found:
    return equal(_begins(r), r.after["w_est"], _cwnd_epoch(r))


@requirement("w_est.growth", "4.3", "W_est grows by 0.53 segments per window ACKed.", level=SHOULD)
def _w_est(r: Trace) -> Found:
    expected, where = _reno(r, one_from_prior=False)
    most, _ = _reno(r, one_from_prior=True)
    rounds = KEPT_S * 1e6 / np.maximum(r.after["min_rtt_us"], 500.0)  # of ACKs that are not counted yet
    # Of three segments one is the ACKs of the next increment, one while cwnd grows by half during them, one is rounded.
    good = (r.after["w_est"] >= expected * (1 - ROOT) - 3 - ALPHA * rounds) & (
        r.after["w_est"] <= np.maximum(expected, most) * 1.01 + 1
    )
    return all_of(where, good, r.after["w_est"], expected)


@requirement("w_est.alpha", "4.3", "Once W_est has reached the window before the loss, it grows by a segment per "
             "window.", level=SHOULD)  # fmt: skip
def _alpha(r: Trace) -> Found:
    expected, where = _reno(r, one_from_prior=True)
    slow, _ = _reno(r, one_from_prior=False)
    tells = where & (expected > slow + 4)
    return at_least(tells, r.after["w_est"], expected - 0.5 * (expected - slow))


def _cut(r: Trace) -> Values:
    """Return the row of the reduction with which the recovery of each row began."""
    return last_true(r.is_call("ssthresh") & (r.ack("ca_state") < CA_RECOVERY), before=0)


@requirement("undo.cwnd", "4.9", "A spurious reduction restores cwnd.")
def _undo(r: Trace) -> Found:
    return at_least(r.is_call("undo_cwnd"), r.after["o_ret"], r.before["snd_cwnd"][_cut(r)])


@requirement("undo.curve", "4.9", "A spurious reduction restores W_max.", level=SHOULD)
def _undo_curve(r: Trace) -> Found:
    return equal(r.is_call("undo_cwnd"), r.after["w_max"], r.before["w_max"][_cut(r)])
