"""Requirements of draft-ietf-ccwg-bbr-06 on losses: the bounds that they set, and what a spurious recovery restores."""

import numpy as np

from cctrace.cc.bbr_draft_model import UNSET_BW
from cctrace.cc.linux import CA_RECOVERY
from cctrace.columns import Values
from cctrace.conform.bbr_names import CRUISE, DOWN, PROBE_RTT, REFILL, STARTUP, STATES, UP
from cctrace.conform.bbr_oracle import (
    among,
    begins_probe_bw,
    bound_limits,
    enters,
    is_exact,
    leaves,
    moves,
    restarts_plateau,
    slack,
    states_of,
    target_inflight,
)
from cctrace.conform.requirements import Found, Named, Table, all_of, at_least, equal
from cctrace.conform.trace import Trace, once

requirement = Table()

THRESHOLD, BETA = 0.02, 0.7  # BBR.LossThresh, BBR.Beta


def _lost(r: Trace) -> tuple[Values, Values, Values]:
    """Return where a probe's packet was lost at above 2 % of its flight, what was lost, and the flight."""
    lost, flight = r.ack("lost") - r.ack("skb_tx_lost"), r.ack("skb_tx_in_flight")
    where = r.is_call("skb_marked_lost") & r.was_set("is_bw_probe_sample") & (r.ack("skb_tx_has_mstamp") != 0)
    return where, lost, flight


@requirement("loss.probe", "5.5.10.2", "A probe that loses more than 2 % of a flight is too high and ends UP; one that "
             "loses less does not.")  # fmt: skip
def _probe(r: Trace) -> Found:
    where, lost, flight = _lost(r)
    high = lost > flight * THRESHOLD
    sure = is_exact(r) | (np.abs(lost - flight * THRESHOLD) > 0.1 * flight * THRESHOLD + 1)
    state = r.after["state"]
    good = (r.is_set("is_bw_probe_sample") != high) & (~high | (r.is_set("prev_probe_too_high") & (state != UP)))
    return all_of(where & sure, good, Named(state, STATES),
                  Named(high, ("as before", "DOWN, no more samples")))  # fmt: skip


@requirement("loss.longterm", "5.5.10.2", "A probe that is too high sets inflight_longterm to the flight at "
             "which losses reached 2 %, at least 0.7 of the target.")  # fmt: skip
def _bound(r: Trace) -> Found:
    where, lost, flight = _lost(r)
    size = r.ack("skb_segments")
    prefix = (THRESHOLD * (flight - size) - (lost - size)) / (1 - THRESHOLD)
    prefix = prefix if is_exact(r) else np.maximum(prefix, 0)
    at_loss = np.maximum(flight - size + prefix, 0)
    expected = np.maximum(at_loss, target_inflight(r) * BETA)
    where &= (lost > flight * THRESHOLD) & (r.ack("skb_tx_app_limited") == 0)
    return equal(where, r.after["inflight_longterm"], expected, **slack(r, 3, 0.03, exact=1))


@requirement("loss.app_limited", "5.5.10.2", "Losses of an app-limited flight do not change inflight_longterm.")
def _limited(r: Trace) -> Found:
    where, _, _ = _lost(r)
    return equal(where & (r.ack("skb_tx_app_limited") != 0), r.after["inflight_longterm"],
                 r.before["inflight_longterm"])  # fmt: skip


@requirement("loss.round", "5.5.10.2", "The first loss in a round begins the loss round.")
def _round(r: Trace) -> Found:
    first = r.is_call("skb_marked_lost") & ~r.was_set("is_loss_in_round")
    return equal(first, r.after["loss_round_delivered"], r.ack("delivered"))


@requirement("loss.noted", "5.5.10.2, 5.5.10.3", "loss_in_round is set by the first loss of a round and cleared at its "
             "end.")  # fmt: skip
def _noted(r: Trace) -> Found:
    ends = r.acks & r.is_set("loss_round_start")
    marks = r.is_call("skb_marked_lost") & (r.before["state"] == r.after["state"])
    return all_of(ends | marks, r.is_set("is_loss_in_round") == marks, r.after["is_loss_in_round"], marks)


@requirement("loss.reset", "5.3.3.9", "Entering DOWN resets the congestion signals.")
def _reset(r: Trace) -> Found:
    clean = (r.after["bw_latest"] == 0) & (r.after["inflight_latest"] == 0) & ~r.is_set("is_loss_in_round")
    # What an ACK delivers counts in the round of loss that begins with it.
    where = enters(r, DOWN) & (r.is_call("skb_marked_lost") | ~r.is_set("loss_round_start"))
    return all_of(where, clean, r.after["bw_latest"], "0")


@requirement("loss.round_end", "5.5.10.3", "A loss round ends with the first ACK of data sent after it began.")
def _round_end(r: Trace) -> Found:
    where = r.acks & (r.ack("rs_interval_us") > 0) & (r.ack("rs_acked_sacked") > 0)
    ends = r.ack("rs_prior_delivered") >= r.before["loss_round_delivered"]
    return all_of(where, r.is_set("loss_round_start") == ends, r.after["loss_round_start"], ends)


def _answers(r: Trace) -> Values:
    """Return the ACKs that end a round of loss while the flow does not probe, and stay in a state that keeps bounds."""
    was, now = states_of(r)
    quiet = ~among(was, STARTUP, REFILL, UP) & (now != REFILL) & ~leaves(r, PROBE_RTT)
    # An ACK may begin REFILL, which resets the bounds, and then ProbeRTT.
    quiet &= ~(enters(r, PROBE_RTT) & np.isinf(r.after["bw_shortterm"]))
    return r.acks & r.is_set("loss_round_start") & r.was_set("is_loss_in_round") & quiet


def _cut(bound: Values, start: Values, latest: Values) -> Values:
    return np.maximum(latest, BETA * np.where(np.isinf(bound), start, bound))


@requirement("loss.bw_shortterm", "5.5.10.3", "A loss round while not probing cuts bw_shortterm to 0.7 of itself, but "
             "not below bw_latest.")  # fmt: skip
def _bw(r: Trace) -> Found:
    latest = np.maximum(r.before["bw_latest"], r.delivery_rate)
    max_bw = r.after["max_bw"]
    if not is_exact(r):  # where a cycle of the filter ends at once, with the same ACK
        max_bw = np.maximum(r.before["max_bw"], max_bw)
    expected = _cut(r.before["bw_shortterm"], max_bw, latest)
    tolerance = {"rel": 1e-6} if is_exact(r) else {"rel": 0.02, "within": 300.0}
    return equal(_answers(r), r.after["bw_shortterm"], expected, **tolerance)


@requirement("loss.inflight_shortterm", "5.5.10.3", "A loss round while not probing cuts inflight_shortterm to 0.7 of "
             "itself, but not below inflight_latest.")  # fmt: skip
def _inflight(r: Trace) -> Found:
    latest = np.maximum(r.before["inflight_latest"], r.ack("rs_delivered"))
    expected = _cut(r.before["inflight_shortterm"], r.before["snd_cwnd"], latest)
    where = _answers(r)
    if not is_exact(r):  # a kernel cuts it to inflight_longterm where CRUISE begins
        where &= r.before["state"] == r.after["state"]
    return equal(where, r.after["inflight_shortterm"], expected, **slack(r, 1, 0.01, exact=1))


@requirement("loss.only", "5.5.10.3", "Nothing but loss rounds cuts the short-term bounds.")
def _only(r: Trace) -> Found:
    where = r.acks & ~(r.is_set("loss_round_start") & r.was_set("is_loss_in_round"))
    if not is_exact(r):
        where &= r.before["state"] == r.after["state"]
    before, after = r.before["inflight_shortterm"], r.after["inflight_shortterm"]
    undiminished = (r.after["bw_shortterm"] >= r.before["bw_shortterm"]) & (after >= before)
    return all_of(where, undiminished, after, before, "at least")


@requirement("loss.latest", "5.5.10.3", "bw_latest and inflight_latest are maxima of the loss round.")
def _latest(r: Trace) -> Found:
    was, now = states_of(r)
    ends = r.is_set("loss_round_start")
    # Entering DOWN resets them; a flow in UP may be in ProbeRTT by the end of the ACK.
    entered = (was != now) & among(was, UP, PROBE_RTT) | begins_probe_bw(r)
    sample, delivered = r.delivery_rate, np.maximum(r.ack("rs_delivered"), 0)
    where = r.acks & ~entered & (r.ack("rs_interval_us") > 0) & (now != DOWN)
    if not is_exact(r):
        where &= r.ack("rs_is_acking_tlp_retrans") == 0
    expected_bw = np.where(ends, sample, np.maximum(r.before["bw_latest"], sample))
    expected = np.where(ends, delivered, np.maximum(r.before["inflight_latest"], delivered))
    rel, within = (1e-6, 0) if is_exact(r) else (0.02, 300)
    near = np.abs(r.after["bw_latest"] - expected_bw) <= rel * expected_bw + within
    return all_of(where, near & (r.after["inflight_latest"] == expected), r.after["inflight_latest"], expected)


@requirement("up.growth", "5.3.3.9", "In UP inflight_longterm grows by one per probe_up_acked_per_inc ACKed while it "
             "limits the flow.")  # fmt: skip
def _growth(r: Trace) -> Found:
    safe = r.ack("rs_lost") <= r.ack("rs_tx_in_flight") * THRESHOLD
    bound = np.maximum(r.before["inflight_longterm"], np.where(safe, r.ack("rs_tx_in_flight"), 0))
    limited = safe & (r.ack("is_cwnd_limited") != 0) & (r.before["snd_cwnd"] >= bound)
    acked = r.before["bw_probe_up_acked"] + np.where(limited, r.ack("rs_acked_sacked"), 0)
    per = np.maximum(r.before["probe_up_acked_per_inc"], 1)
    delta = np.where(limited, acked // per, 0)
    where = r.acks & moves(r, UP, UP) & np.isfinite(r.before["inflight_longterm"])
    good = (r.after["inflight_longterm"] == bound + delta) & (r.after["bw_probe_up_acked"] == acked - delta * per)
    if not is_exact(r):
        where &= (r.ack("rs_lost") == 0) | (r.ack("rs_lost") > 2 * r.ack("rs_tx_in_flight") * THRESHOLD)
    return all_of(where, good, r.after["inflight_longterm"], bound + delta)


@requirement("up.slope", "5.3.3.9", "The growth of inflight_longterm doubles each round.")
def _slope(r: Trace) -> Found:
    rounds, before = r.after["bw_probe_up_rounds"], r.before["bw_probe_up_rounds"]
    per = np.maximum(r.before["snd_cwnd"] // (1 << np.clip(before.astype(np.int64), 0, 30)), 1)
    good = (r.after["probe_up_acked_per_inc"] == per) & (rounds == np.minimum(before + 1, 30))
    where = r.acks & (moves(r, REFILL, UP) | (moves(r, UP, UP) & (rounds != before)))
    return all_of(where, good, r.after["probe_up_acked_per_inc"], per)


@requirement("up.slope_reset", "5.3.3.9", "REFILL restarts the growth of inflight_longterm, and DOWN ends it.")
def _slope_reset(r: Trace) -> Found:
    refills = enters(r, REFILL)
    anew = (r.after["bw_probe_up_acked"] == 0) & (r.after["bw_probe_up_rounds"] == 0)
    good = np.where(refills, anew, r.after["probe_up_acked_per_inc"] >= 0x7FFFFFFF)
    return all_of(refills | enters(r, DOWN), good, r.after["probe_up_acked_per_inc"], "no growth")


@requirement("up.limited", "5.3.3.7", "While inflight_longterm limits the flow, UP restarts its plateau detector.",
             "prev_probe_too_high")  # fmt: skip
def _limited_anew(r: Trace) -> Found:
    where = r.acks & moves(r, UP, UP) & bound_limits(r)
    return all_of(where, restarts_plateau(r), r.after["full_bw"], r.delivery_rate)


@requirement("longterm.safe", "5.3.3.9", "Outside of UP, inflight_longterm rises only to a flight that lost at most 2 "
             "%.", "full_bw_reached")  # fmt: skip
def _safe(r: Trace) -> Found:
    lost, flight, before = r.ack("rs_lost"), r.ack("rs_tx_in_flight"), r.before["inflight_longterm"]
    sure = is_exact(r) | (np.abs(lost - flight * THRESHOLD) > 1) | (lost == 0)
    expected = np.where(lost <= flight * THRESHOLD, np.maximum(before, flight), before)
    where = r.acks & sure & ~among(r.before["state"], UP, STARTUP, REFILL) & (r.after["state"] != REFILL)
    return equal(where & np.isfinite(before), r.after["inflight_longterm"], expected)


# --- spurious recoveries ----------------------------------------------------------------------------------------------
@once
def _marks(r: Trace) -> Values:
    """Return the calls that begin a recovery, or find more losses in it."""
    return r.is_call("skb_marked_lost") | (r.is_call("ssthresh") & (r.ack("ca_state") < CA_RECOVERY))


def _ends(r: Trace) -> Values:
    """Return the calls that end a recovery."""
    return r.is_call("set_state") & (r.ack("arg") < CA_RECOVERY) | r.is_call("undo_cwnd")


@once
def _episode(r: Trace) -> Values:
    """Return the row of the first loss of the current or latest recovery; -1 before any."""
    spell = np.cumsum(_ends(r))
    first = np.full(int(spell.max(initial=0)) + 2, -1)
    rows = np.flatnonzero(_marks(r))
    first[spell[rows][::-1]] = rows[::-1]
    place = np.where(r.is_call("undo_cwnd"), np.maximum(spell - 1, 0), spell)
    return np.maximum.accumulate(first)[place]


@once
def _at_episode(r: Trace, name: str) -> Values:
    """Return a column's value before the first loss of the current or latest recovery."""
    at = _episode(r)
    return np.where(at >= 0, r.before[name][np.maximum(at, 0)], r.before[name])


@requirement("undo.cwnd", "5.5.11.2", "A spurious recovery restores cwnd.")
def _cwnd(r: Trace) -> Found:
    value = r.after["o_ret"] if r.has("o_ret") else np.maximum(r.after["snd_cwnd"], r.after["prior_cwnd"])
    return at_least(r.is_call("undo_cwnd"), value, _at_episode(r, "snd_cwnd"))


@requirement("undo.bounds", "5.5.11.2", "A spurious recovery restores the bounds, or keeps higher ones.")
def _bounds(r: Trace) -> Found:
    good = np.ones(len(r), bool)
    for name in ("bw_shortterm", "inflight_shortterm", "inflight_longterm"):
        with np.errstate(invalid="ignore"):
            good &= r.after[name] >= _at_episode(r, name)
    return all_of(
        r.is_call("undo_cwnd"), good, r.after["inflight_longterm"], _at_episode(r, "inflight_longterm"), "at least"
    )


@once
def _ended_by_loss(r: Trace, state: int) -> Values:
    """Return the rows before which losses of the current or latest recovery have ended a state."""
    by_loss = leaves(r, state) & (r.after["state"] != PROBE_RTT)
    by_loss &= r.is_call("skb_marked_lost") if state == UP else r.acks & ~r.is_set("full_bw_now")
    at, undone = np.maximum(_episode(r), 0), np.cumsum(r.is_call("undo_cwnd"))
    ended = np.cumsum(by_loss)
    once = undone - r.is_call("undo_cwnd") == undone[at]  # a second D-SACK of the same recovery restores nothing
    return (ended - ended[at] + by_loss[at] > 0) & once


@requirement("undo.state", "5.5.11.2", "After a spurious recovery, a flow whose Startup or UP these losses ended "
             "returns to Startup or REFILL; any other keeps its state.")  # fmt: skip
def _state(r: Trace) -> Found:
    was, now = states_of(r)
    startup, up = _ended_by_loss(r, STARTUP), _ended_by_loss(r, UP)
    expected = np.where(up & among(was, DOWN, CRUISE), REFILL, was)
    expected = np.where(startup & (was != STARTUP), STARTUP, expected)
    unsure = up & (was == UP) | (up & startup)
    where = r.is_call("undo_cwnd") & (was != PROBE_RTT) & ~unsure
    reached = ~startup | ~r.is_set("full_bw_reached")
    return all_of(where, (now == expected) & reached, Named(now, STATES), Named(expected, STATES))


@requirement("undo.plateau", "5.5.11.2", "A spurious recovery restarts the plateau detector.")
def _plateau(r: Trace) -> Found:
    anew = (r.after["full_bw"] == 0) & (r.after["full_bw_count"] == 0) & ~r.is_set("full_bw_now")
    return all_of(r.is_call("undo_cwnd"), anew, r.after["full_bw_count"], "0, from no bandwidth")


@requirement("undo.signals", "5.5.11.2", "A spurious recovery clears loss_in_round.")
def _signals(r: Trace) -> Found:
    noted = r.after["is_loss_in_round"]
    return all_of(r.is_call("undo_cwnd"), ~noted.astype(bool), noted, "no loss")


@requirement("undo.saved", "5.5.11.1", "The first loss of a recovery saves the bounds that an undo restores; later "
             "ones do not change them.")  # fmt: skip
def _saved(r: Trace) -> Found:
    began = np.cumsum(_marks(r))
    where = _marks(r) & (began > np.maximum.accumulate(np.where(_ends(r), began, 0)))
    good = np.ones(len(r), bool)
    for name in ("bw_shortterm", "inflight_shortterm", "inflight_longterm"):
        saved = r.after[f"undo_{name}"]
        saved = np.where(saved >= UNSET_BW, np.inf, saved) if name == "bw_shortterm" else saved
        good &= saved == _at_episode(r, name)
    return all_of(where, good, r.after["undo_inflight_longterm"], _at_episode(r, "inflight_longterm"))
