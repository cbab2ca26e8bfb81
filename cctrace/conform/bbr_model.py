"""Requirements of draft-ietf-ccwg-bbr-06 on the path model and on its outputs: pacing rate and cwnd."""

import itertools

import numpy as np

from cctrace.cc.bbr2_bounds import ACKS_PROBE_STOPPING
from cctrace.cc.linux import CA_OPEN, CA_RECOVERY
from cctrace.columns import Values
from cctrace.conform.bbr_names import CRUISE, DOWN, DRAIN, PROBE_RTT, REFILL, STARTUP, UP
from cctrace.conform.bbr_oracle import (
    MIN_PIPE,
    among,
    bdp_of,
    begins_probe_bw,
    enters,
    from_idle,
    is_exact,
    leaves,
    offload_budget,
    quantized,
    slack,
    states_of,
    with_headroom,
)
from cctrace.conform.requirements import SHOULD, Found, Table, all_of, at_least, at_most, equal
from cctrace.conform.trace import Trace, once

requirement = Table()

MARGIN = 0.99  # BBR.PacingMarginPercent
COARSE = 0.02  # fixed point: 1/256 of a gain, and of a rate at the slowest links a unit of bandwidth
GRAIN_BPS = 300.0  # three units of the kernel's bandwidth, bytes/s
MIN_RTT_US = 10_000_000  # BBR.MinRTTFilterLen
EXTRA_ROUNDS = 10  # BBR.ExtraAckedFilterLen
COARSE_ROUNDS = 4  # for which two buckets of five rounds each keep a maximum at least


def _rate_slack(r: Trace) -> dict[str, float]:
    return {"rel": 1e-9, "within": 1.0} if is_exact(r) else {"rel": COARSE, "within": GRAIN_BPS}


# --- rounds -----------------------------------------------------------------------------------------------------------
@requirement("round.start", "5.5.1", "A round ends with the first ACK of data sent after it began.")
def _round(r: Trace) -> Found:
    where = r.acks & (r.ack("rs_interval_us") > 0)
    ends = r.ack("rs_prior_delivered") >= r.before["next_round_delivered"]
    return all_of(where, r.is_set("round_start") == ends, r.after["round_start"], ends)


@requirement("round.next", "5.5.1", "A new round ends with data sent from now on.")
def _next_round(r: Trace) -> Found:
    where = r.acks & r.is_set("round_start")
    return equal(where, r.after["next_round_delivered"], r.ack("delivered"))


@requirement("round.count", "5.5.1", "Rounds are counted one by one, from 0.")
def _count(r: Trace) -> Found:
    expected = r.before["round_count"] + (r.acks & r.is_set("round_start"))
    expected = np.where(r.is_call("init"), 0, expected)
    return equal(r.acks | r.is_call("init"), r.after["round_count"], expected)


@requirement("round.restart", "5.3.3.9, 5.3.4.3", "A round begins with DOWN, REFILL, UP, ProbeRTT, and with the 200 ms "
             "of ProbeRTT.")  # fmt: skip
def _restart(r: Trace) -> Found:
    was, now = states_of(r)
    entered = (was != now) & among(now, DOWN, REFILL, UP, PROBE_RTT)
    armed = (now == PROBE_RTT) & (r.before["probe_rtt_done_stamp"] == 0) & (r.after["probe_rtt_done_stamp"] != 0)
    return equal(r.acks & (entered | armed), r.after["next_round_delivered"], r.ack("delivered"))


# --- bandwidth and delay ----------------------------------------------------------------------------------------------
@requirement("sample.rate", "4.1.2.3", "The delivery rate is the data delivered over the sample's interval; without a "
             "sample there is none.")  # fmt: skip
def _sample(r: Trace) -> Found:
    return equal(r.acks, r.after["delivery_rate"], r.delivery_rate, rel=1e-9)


@once
def _accepted(r: Trace) -> Values:
    sample = r.delivery_rate
    fair = (sample >= r.before["max_bw"] * (1 - 1e-9)) | (r.ack("rs_is_app_limited") == 0)
    return r.acks & (sample > 0) & fair


@requirement("max_bw.sample", "5.5.5", "max_bw is at least every sample that is not app-limited or exceeds it.")
def _max_bw(r: Trace) -> Found:
    # A cycle of the filter may end with the same ACK, after the sample was taken.
    same_phase = r.before["ack_phase"] == r.after["ack_phase"]
    return at_least(_accepted(r) & same_phase, r.after["max_bw"], r.delivery_rate, **_rate_slack(r))


@requirement("max_bw.app_limited", "5.5.4", "A lower app-limited sample does not change max_bw.")
def _app_limited(r: Trace) -> Found:
    where = r.acks & (r.ack("rs_is_app_limited") != 0) & (r.delivery_rate < r.before["max_bw"] * 0.999)
    return equal(where & (r.before["ack_phase"] == r.after["ack_phase"]), r.after["max_bw"], r.before["max_bw"],
                 rel=1e-9)  # fmt: skip


@requirement("max_bw.filter", "5.5.3", "max_bw is the best sample of this and the previous cycle.")
def _filter(r: Trace) -> Found:
    ends = (r.before["ack_phase"] == ACKS_PROBE_STOPPING) & ~among(r.before["state"], STARTUP, DRAIN, PROBE_RTT)
    ends |= begins_probe_bw(r)  # ProbeBW begins as a round does: this ends one
    ends &= r.acks & r.is_set("round_start") & (r.ack("rs_is_app_limited") == 0)
    starts = np.concatenate([[0], np.flatnonzero(ends) + 1, [len(r)]])
    taken = np.where(_accepted(r), r.delivery_rate, 0.0)
    expected = np.zeros(len(r))
    last = 0.0
    for begin, end in itertools.pairwise(starts):
        best = np.maximum.accumulate(taken[begin:end]) if end > begin else taken[:0]
        expected[begin:end] = np.maximum(best, last)
        last = float(best[-1]) if len(best) else 0.0
    where = _accepted(r) & ~ends
    return equal(where, r.after["max_bw"], expected, **_rate_slack(r))


@requirement("bw.bound", "5.5.10.3", "bw is the minimum of max_bw and bw_shortterm.")
def _bw(r: Trace) -> Found:
    return equal(r.acks, r.after["bw"], np.minimum(r.after["max_bw"], r.after["bw_shortterm"]), rel=1e-9)


@requirement("min_rtt.filter", "5.3.4.3", "min_rtt is the minimum RTT of 10 s.")
def _min_rtt(r: Trace) -> Found:
    now, rtt = r.ack("now_us"), r.ack("rs_rtt_us")
    expired = now > r.before["probe_rtt_min_stamp"] + 5_000_000
    take = (rtt >= 0) & ((rtt < r.before["probe_rtt_min_delay"]) | expired)
    recent = np.where(take, rtt, r.before["probe_rtt_min_delay"])
    old = now > r.before["min_rtt_stamp"] + MIN_RTT_US
    expected = np.where((recent < r.before["min_rtt_us"]) | old, recent, r.before["min_rtt_us"])
    # Within two ticks of either deadline a kernel that counts in them may decide either way.
    ticks = 0 if is_exact(r) else 2000
    sure = np.abs(now - r.before["probe_rtt_min_stamp"] - 5_000_000) >= ticks
    sure &= np.abs(now - r.before["min_rtt_stamp"] - MIN_RTT_US) >= ticks
    return equal(r.acks & sure, r.after["min_rtt_us"], expected)


@requirement("min_rtt.stamp", "5.3.4.3", "min_rtt_stamp is the time of the sample that set min_rtt.")
def _min_rtt_stamp(r: Trace) -> Found:
    taken = r.acks & (r.after["min_rtt_us"] != r.before["min_rtt_us"])
    taken &= r.before["state"] != PROBE_RTT  # leaving it stamps the least RTT of 5 s
    return equal(taken, r.after["min_rtt_stamp"], r.after["probe_rtt_min_stamp"], within=0 if is_exact(r) else 2000)


@requirement("min_rtt.recent", "5.3.4.3", "The minimum RTT that times ProbeRTT follows every lower sample, and any "
             "sample after 5 s.")  # fmt: skip
def _recent(r: Trace) -> Found:
    now, rtt = r.ack("now_us"), r.ack("rs_rtt_us")
    ticks = 0 if is_exact(r) else 2000
    old = now > r.before["probe_rtt_min_stamp"] + 5_000_000 + ticks
    taken = r.acks & (rtt >= 0) & ((rtt < r.before["probe_rtt_min_delay"]) | old)
    good = (r.after["probe_rtt_min_delay"] == rtt) & (r.after["probe_rtt_min_stamp"] >= now - ticks)
    return all_of(taken, good, r.after["probe_rtt_min_delay"], rtt)


# --- aggregation ------------------------------------------------------------------------------------------------------
def _aggregated(r: Trace) -> tuple[Values, Values, Values]:
    """Return where ACKs have fallen behind bw, so that an epoch ends; what bw allows in it, and what was delivered."""
    expected = r.before["bw"] * (r.ack("now_us") - r.before["extra_acked_interval_start"]) / (1e6 * r.ack("mss"))
    over = r.before["extra_acked_delivered"] <= expected
    delivered = np.where(over, 0, r.before["extra_acked_delivered"]) + r.ack("rs_acked_sacked")
    return over, np.where(over, 0.0, expected), delivered


@once
def _extra(r: Trace) -> Values:
    """Return the excess of each ACK, segments [BBRdraft] 5.5.9."""
    _, expected, delivered = _aggregated(r)
    return np.minimum(np.maximum(np.floor(delivered - expected + 1e-9), 0), r.before["snd_cwnd"])


@requirement("extra_acked.sample", "5.5.9", "Data ACKed beyond bw times the interval count as aggregation.")
def _extra_acked(r: Trace) -> Found:
    return at_least(r.acks, r.after["extra_acked"], _extra(r), **slack(r, 1))


@requirement("extra_acked.window", "5.5.9", "extra_acked is the maximum of 10 rounds, in Startup of one.")
def _window(r: Trace) -> Found:
    best, rounds = _best_by_round(r, r.acks)
    steady = _rolling(best, EXTRA_ROUNDS + 1)[rounds]  # the filter keeps a sample while it is no older than 10 rounds
    startup = _rolling(best, 2)[rounds]
    bound = np.where(r.is_set("full_bw_reached"), steady, startup)
    return at_most(r.acks, r.after["extra_acked"], bound, **slack(r, 1))


@requirement("extra_acked.kept", "5.5.9", "A new maximum of extra_acked is kept for 10 rounds.")
def _kept_extra(r: Trace) -> Found:
    # Samples below the maximum may be forgotten: the draft allows Nichols' algorithm (5.5.5), which keeps three.
    full = r.acks & r.is_set("full_bw_reached")
    best, rounds = _best_by_round(r, full & (_extra(r) >= r.before["extra_acked"]))
    length = EXTRA_ROUNDS if is_exact(r) else COARSE_ROUNDS
    complete = np.concatenate([np.zeros(1), _rolling(best, length)[:-1]])[rounds]  # before the round under way
    return at_least(full, r.after["extra_acked"], complete, within=1)


@requirement("extra_acked.clock", "5.5.9", "An aggregation epoch ends when ACKs fall behind bw.")
def _episode(r: Trace) -> Found:
    over, _, delivered = _aggregated(r)
    start = np.where(over, r.ack("now_us"), r.before["extra_acked_interval_start"])
    good = (r.after["extra_acked_delivered"] == delivered) & (r.after["extra_acked_interval_start"] == start)
    return all_of(r.acks, good, r.after["extra_acked_delivered"], delivered)


def _best_by_round(r: Trace, where: Values) -> tuple[Values, Values]:
    """Return the largest excess of the ACKs of a mask in each round, and the round of each row."""
    rounds = r.after["round_count"].astype(np.int64)
    best = np.zeros(int(rounds.max(initial=0)) + 1)
    np.maximum.at(best, rounds, np.where(where, _extra(r), 0))
    return best, rounds


def _rolling(values: Values, length: int) -> Values:
    """Return the maximum of the last `length` values at each place."""
    padded = np.concatenate([np.zeros(length - 1), values])
    return np.lib.stride_tricks.sliding_window_view(padded, length).max(axis=1)


# --- pacing -----------------------------------------------------------------------------------------------------------
@requirement("pacing.initial", "5.6.2", "The initial pacing rate is 2.77 times the initial window over the RTT.")
def _initial(r: Trace) -> Found:
    where = r.is_call("init") & (r.ack("srtt_us8") > 0)
    srtt_us = np.maximum(r.ack("srtt_us8") >> 3, 1)
    expected = 2.77 * r.after["snd_cwnd"] * r.ack("mss") * 1e6 / srtt_us
    return equal(where, r.after["pacing_rate"], expected, rel=COARSE)  # the kernel takes its margin of 1 % off, too


@requirement("pacing.rate", "5.6.2", "The pacing rate is pacing_gain times bw, less 1 %.")
def _pacing(r: Trace) -> Found:
    rate = r.after["pacing_gain"] * r.after["bw"] * MARGIN
    where = r.acks & r.is_set("full_bw_reached") & (r.after["bw"] > 0)
    if not is_exact(r):  # the fast path leaves the rate of the last ACK
        where &= r.ack("rs_is_app_limited") == 0
    return equal(where, r.after["pacing_rate"], np.maximum(rate, 1), **_rate_slack(r))


@requirement("pacing.startup", "5.6.2", "Until the pipe is full the pacing rate does not fall.")
def _rising(r: Trace) -> Found:
    where = r.acks & ~r.is_set("full_bw_reached")
    expected = np.maximum(r.before["pacing_rate"], r.after["pacing_gain"] * r.after["bw"] * MARGIN)
    return equal(where, r.after["pacing_rate"], expected, **_rate_slack(r))


@requirement("pacing.departures", "5.6.2", "Over several send quanta no more leaves than the pacing rate allows.")
def _departures(r: Trace) -> Found:
    if len(r) < 3:
        return Found(0)
    time, sent = r.ack("now_us").astype(float), r.ack("data_segs_out") * r.mss
    rate = np.maximum.accumulate(r.after["pacing_rate"]) if not r.has("state") else r.after["pacing_rate"]
    budget = np.concatenate(
        [[0.0], np.cumsum(np.maximum(rate[:-1], r.before["pacing_rate"][1:]) * np.diff(time) / 1e6)]
    )
    # A bucket that fills with the pacing rate, and holds what a stack may hand over at once.
    burst = 4 * np.maximum(np.max(rate) / 1000, 2 * r.mss) + 20 * r.mss
    over = (sent - budget) - np.minimum.accumulate(sent - budget)
    where = np.arange(len(r)) > 0
    return at_most(where, over, burst)


@requirement("pacing.quantum", "5.6.3", "The send quantum is 1 ms of the pacing rate, between 2 segments and 64 kB.",
             level=SHOULD)  # fmt: skip
def _quantum(r: Trace) -> Found:
    expected = np.maximum(np.minimum(r.after["pacing_rate"] // 1000, 65536), 2 * r.ack("mss"))
    return equal(r.acks, r.after["send_quantum"], expected)


@requirement("offload.budget", "5.5.8", "The offload budget is three send quanta for TCP, and one, with what pacing "
             "offload and delayed ACKs add, for QUIC.")  # fmt: skip
def _budget(r: Trace) -> Found:
    return equal(r.acks, r.after["offload_budget"], offload_budget(r, r.after["send_quantum"], r.after["pacing_rate"]))


@requirement("idle.pacing", "5.4.1", "Restarting from idle in ProbeBW, the flow paces at exactly bw.")
def _idle_pacing(r: Trace) -> Found:
    where = from_idle(r) & among(r.before["state"], DOWN, CRUISE, REFILL, UP)
    return equal(where, r.after["pacing_rate"], np.maximum(r.before["bw"] * MARGIN, 1), **_rate_slack(r))


# --- cwnd -------------------------------------------------------------------------------------------------------------


@once
def _max_inflight(r: Trace) -> Values:
    """Return BBR.max_inflight after each call, segments [BBRdraft] 5.6.4.2."""
    gain = np.where(r.after["state"] == PROBE_RTT, 0.5, r.after["cwnd_gain"])
    volume = bdp_of(r, r.after["bw"], gain, r.after["min_rtt_us"]) + r.after["extra_acked"]
    return quantized(r, volume, r.after["pacing_rate"], r.after["state"])


def _unmodulated(r: Trace) -> Values:
    """Return the ACKs that neither leave ProbeRTT nor carry a window over from it."""
    return r.acks & (r.before["state"] != PROBE_RTT) & (r.after["state"] != PROBE_RTT)


@requirement("cwnd.max_inflight", "5.6.4.6", "Once the pipe is full cwnd grows by the data ACKed, up to max_inflight.")
def _cwnd(r: Trace) -> Found:
    where = _unmodulated(r) & r.is_set("full_bw_reached")
    expected = np.minimum(r.before["snd_cwnd"] + r.ack("rs_acked_sacked"), _max_inflight(r))
    expected = np.maximum(np.minimum(np.maximum(expected, MIN_PIPE), _cap(r)), MIN_PIPE)
    if not is_exact(r):
        where &= r.ack("rs_is_app_limited") == 0
    return equal(where, r.after["snd_cwnd"], expected, **slack(r, 3, 0.05, exact=1))


@requirement("cwnd.startup", "5.6.4.6", "Until the pipe is full cwnd grows by the data ACKed while it is below "
             "max_inflight.")  # fmt: skip
def _filling(r: Trace) -> Found:
    grows = (r.before["snd_cwnd"] < _max_inflight(r)) | (r.ack("delivered") < r.before["initial_cwnd"])
    expected = r.before["snd_cwnd"] + np.where(grows, r.ack("rs_acked_sacked"), 0)
    where = _unmodulated(r) & ~r.is_set("full_bw_reached")
    return equal(where, r.after["snd_cwnd"], np.maximum(expected, MIN_PIPE), within=1)


@requirement("cwnd.floor", "5.6.4.3", "cwnd is at least four segments.")
def _floor(r: Trace) -> Found:
    return at_least(r.acks & (r.ack("rs_acked_sacked") > 0), r.after["snd_cwnd"], MIN_PIPE)


@once
def _cap(r: Trace) -> Values:
    state, longterm = r.after["state"], r.after["inflight_longterm"]
    cap = np.where(among(state, DOWN, REFILL, UP), longterm, np.inf)
    cap = np.where(among(state, CRUISE, PROBE_RTT), with_headroom(longterm), cap)
    return np.minimum(cap, r.after["inflight_shortterm"])


@requirement("cwnd.longterm", "5.6.4.7", "cwnd stays within inflight_longterm, in CRUISE and ProbeRTT less headroom.")
def _longterm(r: Trace) -> Found:
    where, cap = r.acks & np.isfinite(_cap(r)), np.maximum(_cap(r), MIN_PIPE)
    return at_most(where, r.after["snd_cwnd"], cap, **slack(r, 1, 0.004))


def _half_bdp(r: Trace) -> Values:
    """Return half a BDP after each call, segments: the window in ProbeRTT."""
    return np.maximum(bdp_of(r, r.after["bw"], 0.5, r.after["min_rtt_us"]), MIN_PIPE)


@requirement("probe_rtt.cwnd", "5.6.4.5", "In ProbeRTT cwnd is at most half a BDP.")
def _probe_rtt_cwnd(r: Trace) -> Found:
    inside = r.acks & (r.after["state"] == PROBE_RTT)
    return at_most(inside, r.after["snd_cwnd"], _half_bdp(r), **slack(r, 2, exact=1))


@requirement("probe_rtt.depth", "5.6.4.5", "In ProbeRTT cwnd is at least half a BDP.", "extra_acked")
def _probe_rtt_depth(r: Trace) -> Found:
    least = np.minimum(np.minimum(_half_bdp(r), r.before["snd_cwnd"]), np.maximum(_cap(r), MIN_PIPE))
    inside = r.acks & (r.after["state"] == PROBE_RTT)
    return at_least(inside, r.after["snd_cwnd"], least, **slack(r, 3, 0.05, exact=1))


@requirement("recovery.save", "5.6.4.4", "Entering recovery or ProbeRTT saves cwnd; within them the larger value is "
             "kept.")  # fmt: skip
def _save(r: Trace) -> Found:
    begins = r.is_call("ssthresh") & (r.ack("ca_state") < CA_RECOVERY) & (r.before["state"] != PROBE_RTT)
    dips = r.acks & enters(r, PROBE_RTT)
    saved, cwnd = r.after["prior_cwnd"], r.before["snd_cwnd"]
    return all_of(begins | dips, (saved == cwnd) | (dips & (saved > cwnd)), saved, cwnd)


@requirement("recovery.restore", "5.6.4.4", "Leaving recovery restores cwnd.")
def _restore(r: Trace) -> Found:
    return at_least(_recovered(r), r.after["snd_cwnd"], r.before["prior_cwnd"])


def _recovered(r: Trace) -> Values:
    """Return the calls that end a recovery."""
    return r.is_call("set_state", CA_OPEN) & (r.ack("ca_state") >= CA_RECOVERY)


@requirement("recovery.kept", "5.6.4.4", "No other change of the congestion state changes cwnd.", "prior_cwnd")
def _kept(r: Trace) -> Found:
    return equal(r.is_call("set_state") & ~_recovered(r), r.after["snd_cwnd"], r.before["snd_cwnd"])


@requirement("probe_rtt.restore", "5.3.4.3", "Leaving ProbeRTT restores cwnd, within the bounds of the model.")
def _rtt_restore(r: Trace) -> Found:
    bound = np.minimum(np.maximum(_cap(r), MIN_PIPE), _max_inflight(r))
    expected = np.minimum(r.before["prior_cwnd"], bound)
    return at_least(r.acks & leaves(r, PROBE_RTT), r.after["snd_cwnd"], expected, **slack(r, 2, 0.05, exact=2))
