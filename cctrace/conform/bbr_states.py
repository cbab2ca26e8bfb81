"""Requirements of draft-ietf-ccwg-bbr-06 on the state machine: gains, and what leads from one state to another."""

from functools import partial

import numpy as np

from cctrace.cc import bbr2_bounds as bounds
from cctrace.cc.linux import CA_RECOVERY
from cctrace.columns import Values, last_true
from cctrace.conform.bbr_names import CRUISE, DOWN, DRAIN, PROBE_RTT, REFILL, STARTUP, STATES, UP
from cctrace.conform.bbr_oracle import (
    among,
    begins_probe_bw,
    bound_limits,
    enters,
    inflight_of,
    is_exact,
    moves,
    restarts_plateau,
    since,
    slack,
    states_of,
    target_inflight,
    with_headroom,
)
from cctrace.conform.requirements import Found, Named, Table, all_of, at_most, equal
from cctrace.conform.trace import Trace

requirement = Table()

# State: pacing gain, cwnd gain; the table of 5.6.1 with 2.5.
GAINS = {
    STARTUP: (2.77, 2.0),
    DRAIN: (0.5, 2.0),
    DOWN: (0.9, 2.0),
    CRUISE: (1.0, 2.0),
    REFILL: (1.0, 2.0),
    UP: (1.25, 2.25),
    PROBE_RTT: (1.0, 0.5),
}
TICK_US = 2_000  # two ticks of a kernel at 1000 Hz, which counts its times in them
GAIN_STEP = 1 / 256  # as coarse as the kernel's gains may be
MOVES = {
    (STARTUP, DRAIN), (STARTUP, DOWN), (STARTUP, CRUISE), (STARTUP, REFILL), (STARTUP, PROBE_RTT), (DRAIN, DOWN),
    (DRAIN, CRUISE), (DRAIN, REFILL), (DRAIN, PROBE_RTT), (DRAIN, STARTUP), (DOWN, CRUISE), (DOWN, REFILL),
    (DOWN, PROBE_RTT), (DOWN, STARTUP), (CRUISE, REFILL), (CRUISE, PROBE_RTT), (CRUISE, STARTUP), (REFILL, UP),
    (REFILL, PROBE_RTT), (REFILL, STARTUP), (UP, DOWN), (UP, REFILL), (UP, PROBE_RTT), (UP, STARTUP), (UP, CRUISE),
    (PROBE_RTT, CRUISE), (PROBE_RTT, STARTUP),
}  # fmt: skip
WAIT_US = (2_000_000, 3_000_000)  # BBR.bw_probe_wait
MAX_ROUNDS = 63  # of that wait
KERNEL_RANGES = 15  # to which the kernel counts, in four bits


def _gain(state: int, section: str) -> None:
    name = STATES[state].lower()

    @requirement(f"{name}.gain", section, f"In {STATES[state]} the pacing gain is {GAINS[state][0]}.")
    def check(r: Trace) -> Found:
        where = r.acks & (r.after["state"] == state)
        return equal(where, r.after["pacing_gain"], GAINS[state][0], within=GAIN_STEP)


for _state, _section in ((STARTUP, "5.3.1.1"), (DRAIN, "5.3.2"), (DOWN, "5.3.3.1"), (CRUISE, "5.3.3.2"),
                         (REFILL, "5.3.3.3"), (UP, "5.3.3.5"), (PROBE_RTT, "5.3.4.3")):  # fmt: skip
    _gain(_state, _section)


@requirement("state.cwnd_gain", "5.6.1", "The cwnd gain is 2, but 2.25 in UP and 0.5 in ProbeRTT.")
def _cwnd_gain(r: Trace) -> Found:
    state = r.after["state"]
    expected = np.array([GAINS[k][1] for k in range(len(STATES))])[state]
    where = r.acks.copy()
    if not is_exact(r):  # the kernel keeps 1 in ProbeRTT and applies a half elsewhere: `probe_rtt.cwnd` sees it
        where &= state != PROBE_RTT
    return equal(where, r.after["cwnd_gain"], expected, within=GAIN_STEP)


@requirement("state.moves", "5.1.1", "State changes follow the diagram of transitions.")
def _moves(r: Trace) -> Found:
    return follow_diagram(*states_of(r))


def follow_diagram(was: Values, now: Values) -> Found:
    """Return whether all changes from one state to another are transitions of the diagram."""
    allowed = np.zeros((len(STATES), len(STATES)), bool)
    allowed[tuple(zip(*MOVES, strict=True))] = True
    moves = np.flatnonzero(was != now)
    old, new = was[moves], now[moves]
    texts = tuple(f"{a} to {b}" for a in STATES for b in STATES)
    codes = Named(old * len(STATES) + new, texts)
    found = all_of(np.ones(len(moves), bool), allowed[old, new], codes, "a transition of the diagram")
    return found if found.row is None else found._replace(row=int(moves[found.row]))


@requirement("init.model", "5.2.1", "A flow begins in Startup with the RTT of its handshake, and its clocks start.")
def _init(r: Trace) -> Found:
    where = r.is_call("init") & (r.ack("srtt_us8") > 0)
    good = (r.after["state"] == STARTUP) & (r.after["min_rtt_us"] == r.ack("srtt_us8") >> 3)
    for stamp in ("min_rtt_stamp", "probe_rtt_min_stamp", "extra_acked_interval_start"):
        good &= np.abs(r.ack("now_us") - r.after[stamp]) <= (0 if is_exact(r) else TICK_US)
    return all_of(where, good, r.after["min_rtt_us"], r.ack("srtt_us8") >> 3)


# --- Startup and the plateau ------------------------------------------------------------------------------------------
def _plateau(r: Trace, state: int) -> Found:
    """Return whether the plateau detector does what CheckFullBWReached says, step by step."""
    sample, baseline, count = r.delivery_rate, r.before["full_bw"], r.before["full_bw_count"]
    runs = ~r.was_set("full_bw_now") & r.is_set("round_start") & (r.ack("rs_is_app_limited") == 0)
    grown = sample >= baseline * 1.25
    expected_count = np.where(runs, np.where(grown, 0, count + 1), count)
    expected_bw = np.where(runs & grown, sample, baseline)
    where = r.acks & moves(r, state, state)
    if state == UP:  # limited by inflight_longterm, the detector starts anew
        where &= ~bound_limits(r)
    within = 1e-6 if is_exact(r) else 0.02
    near = np.abs(r.after["full_bw"] - expected_bw) <= within * expected_bw + (0 if is_exact(r) else 200)
    good = (r.after["full_bw_count"] == expected_count) & near
    found = all_of(where, good, r.after["full_bw_count"], expected_count)
    if found.row is None:
        return found
    baseline, wanted = r.after["full_bw"][found.row], expected_bw[found.row]
    return found._replace(
        value=f"{found.value} rounds from {baseline:.0f}", expected=f"{found.expected} from {wanted:.0f}"
    )


requirement("startup.plateau", "5.3.1.2", "A round whose bandwidth grew by 25 % restarts the plateau count; any other "
            "adds to it, unless it is app-limited.")(partial(_plateau, state=STARTUP))  # fmt: skip
requirement("up.plateau", "5.3.3.7", "UP detects a bandwidth plateau as Startup does.")(partial(_plateau, state=UP))


@requirement("startup.three", "5.3.1.2", "The pipe is full after three rounds of the plateau.")
def _three(r: Trace) -> Found:
    where = r.acks & (r.after["full_bw_count"] != r.before["full_bw_count"])
    return all_of(where, r.is_set("full_bw_now") == (r.after["full_bw_count"] >= 3),
                  r.after["full_bw_count"], "full at 3 rounds")  # fmt: skip


@requirement("startup.exit", "5.3.1.1", "Startup ends exactly when the pipe is full.")
def _startup_exit(r: Trace) -> Found:
    was, now = states_of(r)
    where = r.acks & (was == STARTUP) & (now != PROBE_RTT)
    full = r.is_set("full_bw_reached")
    return all_of(where, (now != STARTUP) == full, Named(now, STATES), "DRAIN exactly when full_bw_reached")


@requirement("startup.high_loss", "5.3.1.3", "Losses end Startup after a round in recovery with 6 lost ranges and more "
             "than 2 % lost.")  # fmt: skip
def _high_loss(r: Trace) -> Found:
    acks, open_yet = r.acks, ~r.was_set("full_bw_reached")
    ends = acks & r.is_set("loss_round_start")
    losses = np.cumsum(acks & (r.ack("rs_losses") > 0) & open_yet)
    last_end = last_true(ends)
    at_end = np.where(last_end >= 0, losses[last_end], 0)
    in_round = losses - np.concatenate([[0], at_end[:-1]])
    many = (in_round >= 6) & (r.ack("ca_state") == CA_RECOVERY)
    much = r.ack("rs_lost") > 0.02 * r.ack("rs_tx_in_flight")
    where = acks & open_yet & (in_round > 0) & ~r.is_set("full_bw_now")
    expected = ends & many & much
    return all_of(where, r.is_set("full_bw_reached") == expected, r.after["full_bw_reached"], expected)


@requirement("startup.ranges", "5.3.1.3", "Lost ranges are counted per loss round until the pipe is full.")
def _ranges(r: Trace) -> Found:
    where = r.acks & ~r.is_set("full_bw_reached")
    counted = r.before["loss_events_in_round"] + (r.ack("rs_losses") > 0)
    if not is_exact(r):
        counted = np.minimum(counted, KERNEL_RANGES)
    expected = np.where(r.is_set("loss_round_start"), 0, counted)
    return equal(where, r.after["loss_events_in_round"], expected)


@requirement("startup.loss_bound", "5.3.1.3", "Losses that end Startup set inflight_longterm to the BDP or what the "
             "round delivered.")  # fmt: skip
def _loss_bound(r: Trace) -> Found:
    where = r.acks & moves(r, STARTUP, DRAIN) & ~r.is_set("full_bw_now")
    bdp = np.ceil(r.before["bw"] * r.before["min_rtt_us"] / (1e6 * r.mss))
    latest = np.maximum(r.before["inflight_latest"], r.ack("rs_delivered"))
    return equal(where, r.after["inflight_longterm"], np.maximum(bdp, latest), **slack(r, 1, 0.02, exact=1))


# --- Drain ------------------------------------------------------------------------------------------------------------
@requirement("drain.inflight", "5.3.2", "Drain ends as soon as the flight is at most a BDP; within the first 3 rounds "
             "nothing else ends it.")  # fmt: skip
def _drain_inflight(r: Trace) -> Found:
    was, now = states_of(r)
    bdp = inflight_of(r, "bw")
    drained = r.inflight <= bdp
    rounds = since(r, (was == DRAIN) | (now == DRAIN), r.is_set("round_start"))
    where = r.acks & (was == DRAIN) & (now != PROBE_RTT) & (drained | (rounds <= 3))
    return all_of(where, begins_probe_bw(r) == drained, r.inflight, bdp, "ProbeBW at")


@requirement("drain.rounds", "5.3.2", "Drain lasts at most three rounds.")
def _drain_rounds(r: Trace) -> Found:
    inside = r.after["state"] == DRAIN
    return at_most(r.acks & inside, since(r, inside, r.is_set("round_start")), 3)


# --- ProbeBW ----------------------------------------------------------------------------------------------------------
def _probe_due(r: Trace) -> Values:
    """Return where the wait for a probe is over."""
    elapsed = r.ack("now_us") > r.before["cycle_stamp"] + r.before["probe_wait_us"]
    return elapsed | (r.after["rounds_since_probe"] >= np.minimum(target_inflight(r), MAX_ROUNDS))


def _cautious(r: Trace) -> Values:
    """Return where a cautious probe did no harm, so that another may follow at once."""
    stopping = (r.before["ack_phase"] == bounds.ACKS_PROBE_STOPPING) & r.is_set("round_start")
    return stopping & r.was_set("prev_probe_precautionary") & ~r.was_set("prev_probe_too_high")


@requirement("probe.wait", "5.3.3.8.3", "A probe begins exactly when its wait is over, by the clock or in rounds, or "
             "after a cautious probe without harm.")  # fmt: skip
def _wait(r: Trace) -> Found:
    was, now = states_of(r)
    where = r.acks & among(was, DOWN, CRUISE) & (now != PROBE_RTT)
    due = _probe_due(r) | _cautious(r)
    return all_of(where, (now == REFILL) == due, Named(now, STATES), Named(due, ("DOWN or CRUISE", "REFILL")))


@requirement("probe.draw", "5.3.3.8.3", "The wait is drawn from 2 to 3 s, and the round count starts at 0 or 1.")
def _draw(r: Trace) -> Found:
    wait = r.after["probe_wait_us"]
    good = (wait >= WAIT_US[0]) & (wait <= WAIT_US[1]) & (r.after["rounds_since_probe"] <= 1)
    return all_of(_draws(r), good, wait, "2000000 to 3000000 us, 0 or 1 rounds")


def _draws(r: Trace) -> Values:
    """Return the ACKs that draw a wait."""
    return r.acks & (r.after["cycle_stamp"] != r.before["cycle_stamp"]) & (r.after["state"] == DOWN)


@requirement("probe.spread", "5.3.3.8.2", "The waits are random.")
def _spread(r: Trace) -> Found:
    drawn = np.flatnonzero(_draws(r))
    if len(drawn) < 3:
        return Found(0)
    same = len(np.unique(r.after["probe_wait_us"][drawn])) == 1
    return Found(1, int(drawn[2]), "the same wait three times", "random waits") if same else Found(1)


@requirement("probe.rounds", "5.5.1", "Every round since the draw counts towards the wait.")
def _probe_rounds(r: Trace) -> Found:
    where = r.acks & (r.after["cycle_stamp"] == r.before["cycle_stamp"])
    expected = r.before["rounds_since_probe"] + (r.after["round_start"] != 0)
    return equal(where, np.minimum(r.after["rounds_since_probe"], MAX_ROUNDS), np.minimum(expected, MAX_ROUNDS))


@requirement("down.starts", "5.3.3.9, 5.3.4.4", "Entering DOWN, or CRUISE after ProbeRTT, starts the cycle's clock.")
def _down_starts(r: Trace) -> Found:
    where = r.acks & (enters(r, DOWN) | moves(r, PROBE_RTT, CRUISE))
    phase = np.where(begins_probe_bw(r) & r.is_set("round_start"), bounds.ACKS_INIT, bounds.ACKS_PROBE_STOPPING)
    return all_of(where, (r.after["cycle_stamp"] == r.ack("now_us")) & (r.after["ack_phase"] == phase),
                  r.after["cycle_stamp"], r.ack("now_us"))  # fmt: skip


@requirement("cruise.inflight", "5.3.3.1", "DOWN ends in CRUISE once the flight is at most a BDP and leaves headroom.",
             "probe_wait_us")  # fmt: skip
def _cruise(r: Trace) -> Found:
    was, now = states_of(r)
    bound = np.minimum(with_headroom(r.after["inflight_longterm"]), inflight_of(r, "max_bw", True))
    where = r.acks & (was == DOWN) & among(now, DOWN, CRUISE)
    return all_of(where, (now == CRUISE) == (r.inflight <= bound), r.inflight, bound, "CRUISE at")


@requirement("refill.round", "5.3.3.3", "REFILL lasts one round, then UP begins.")
def _refill_round(r: Trace) -> Found:
    was, now = states_of(r)
    where = r.acks & (was == REFILL) & (now != PROBE_RTT)
    return all_of(where, (now == UP) == r.is_set("round_start"), Named(now, STATES),
                  Named(r.is_set("round_start"), ("REFILL", "UP")))  # fmt: skip


@requirement("refill.reset", "5.3.3.3", "REFILL discards the short-term model.")
def _refill_reset(r: Trace) -> Found:
    unset = np.isinf(r.after["bw_shortterm"]) & np.isinf(r.after["inflight_shortterm"])
    return all_of(r.acks & enters(r, REFILL), unset, r.after["inflight_shortterm"], "no bounds")


@requirement("up.begin", "5.3.3.9", "UP measures growth from the current sample, and marks its samples as those of a "
             "probe.")  # fmt: skip
def _up_begin(r: Trace) -> Found:
    good = restarts_plateau(r) & r.is_set("is_bw_probe_sample")
    return all_of(r.acks & moves(r, REFILL, UP), good, r.after["full_bw"], r.delivery_rate)


def _risky(r: Trace) -> Values:
    """Return where a probe that follows one that was too high has reached inflight_longterm."""
    return r.was_set("prev_probe_too_high") & (r.inflight >= r.after["inflight_longterm"])


@requirement("up.exit", "5.3.3.7", "UP ends exactly at a plateau that inflight_longterm does not cause, or when a "
             "probe that follows one that was too high reaches that bound.")  # fmt: skip
def _up_exit(r: Trace) -> Found:
    was, now = states_of(r)
    leave = _risky(r) | (~bound_limits(r) & r.is_set("full_bw_now"))
    where = r.acks & (was == UP) & (now != PROBE_RTT) & ~_cautious(r)
    return all_of(where, (now == DOWN) == leave, Named(now, STATES), Named(leave, ("UP", "DOWN")))


@requirement("probe.verdict", "5.3.3.9", "A probe that was too high is remembered until one ends for another "
             "reason; a probe that stops because of it is cautious, until REFILL.")  # fmt: skip
def _verdict(r: Trace) -> Found:
    ends = moves(r, UP, DOWN)
    too_high = 2 * r.is_set("prev_probe_too_high")
    found, wanted = too_high + r.is_set("prev_probe_precautionary"), np.where(ends, _risky(r), too_high)
    names = ("remembers nothing", "cautious", "too high", "too high and cautious")
    return all_of(r.acks & (ends | enters(r, REFILL)), found == wanted, Named(found, names), Named(wanted, names))


@requirement("probe.samples", "5.3.3.9", "Samples count as a probe's up to the end of the round after it.")
def _samples(r: Trace) -> Found:
    over = (r.before["ack_phase"] == bounds.ACKS_PROBE_STOPPING) | begins_probe_bw(r)
    over &= r.is_set("round_start")
    before, after = r.was_set("is_bw_probe_sample"), r.is_set("is_bw_probe_sample")
    where = r.acks & r.was_set("full_bw_reached")
    where &= (r.before["state"] != REFILL) | ~r.is_set("round_start")  # UP begins, if ProbeRTT does not cut it short
    return all_of(where, after == (before & ~over), after, before & ~over)


@requirement("phase.acks", "5.3.3.9", "ACKs are classified by what they acknowledge: refill, probe, or what followed "
             "the probe.")  # fmt: skip
def _phases(r: Trace) -> Found:
    start, phase = r.is_set("round_start"), r.before["ack_phase"]
    expected = np.where((phase == bounds.ACKS_PROBE_STARTING) & start, bounds.ACKS_PROBE_FEEDBACK, phase)
    expected = np.where((phase == bounds.ACKS_PROBE_STOPPING) & start, bounds.ACKS_INIT, expected)
    for state, entered in (
        (REFILL, bounds.ACKS_REFILLING),
        (UP, bounds.ACKS_PROBE_STARTING),
        (DOWN, bounds.ACKS_PROBE_STOPPING),
    ):
        expected = np.where(enters(r, state), entered, expected)
    expected = np.where(begins_probe_bw(r), np.where(start, bounds.ACKS_INIT, bounds.ACKS_PROBE_STOPPING), expected)
    expected = np.where(enters(r, PROBE_RTT) | moves(r, PROBE_RTT, CRUISE), bounds.ACKS_PROBE_STOPPING, expected)
    where = r.acks & r.is_set("full_bw_reached") & r.was_set("full_bw_reached")
    return equal(where & (r.before["state"] != STARTUP), r.after["ack_phase"], expected)
