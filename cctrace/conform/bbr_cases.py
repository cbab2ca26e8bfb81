"""Example cases of draft-ietf-ccwg-bbr-06, appendix A, up to A.14; `bbr_changes` has those in which the path changes.

A case is an experiment with a `Runner` and an aim: what must happen in it. An event at a certain state of the flow
(bandwidth that drops when Drain starts) is placed by a rehearsal: a run without it gives the time, and the run with
it is identical until then. All requirements of the specification are checked in the runs of all cases.

Where the draft's own figures do not produce the intended situation, ours do, and the docstring says so.
"""

import numpy as np

from cctrace.cc.linux import EVENT_TX_START
from cctrace.conform import cases
from cctrace.conform.bbr_names import CRUISE, DOWN, DRAIN, PROBE_RTT, REFILL, STARTUP, UP
from cctrace.conform.bbr_oracle import among, bdp_of, begins_probe_bw, inflight_of, moves
from cctrace.conform.cases import IMPOSSIBLE, NOTHING, Outcome
from cctrace.conform.requirements import Found, all_of
from cctrace.conform.runner import Runner
from cctrace.conform.trace import Trace

SIX_LOSSES_BDP = 60  # segments that fill the path, from which a burst of losses has six ranges in a round
LIMITED = 0.4  # of the rate: what an application writes without Startup finding a plateau


case = cases.Cases()
CASES = case.rows


# --- Startup and Drain ------------------------------------------------------------------------------------------------
@case("A.1", "Exiting STARTUP on bandwidth plateau", column="full_bw_now")
def startup_plateau(runner: Runner) -> Outcome:
    """max_bw within 2 % of the path's, where a flight is more than a burst."""
    r = runner.plain
    exits = moves(r, STARTUP, DRAIN) | (begins_probe_bw(r) & (r.before["state"] == STARTUP))
    found = cases.happened(r, exits & r.is_set("full_bw_now"), "DRAIN by a plateau")
    if found.row is None and runner.cell.bdp >= 10:
        row = int(np.flatnonzero(exits)[0])
        rate = r.facts["rate_Bps"]
        found = cases.combined(
            found, cases.between(r, row, float(r.after["max_bw"][row]), 0.98 * rate, 1.02 * rate, "max_bw")
        )
    return Outcome(r, found)


def limited_then_lossy(runner: Runner) -> Trace | None:
    """Return an app-limited run whose Startup a burst of losses ends."""
    if runner.cell.bdp < SIX_LOSSES_BDP:
        return None
    loss = cases.burst(runner, runner.settled_s / 2, "25%", 3)
    return runner.trace(runner.plain_s, path={"loss": loss}, sender=cases.app(runner, LIMITED), keep=True)


@case("A.2", "Exiting STARTUP on loss when application-limited")
def startup_loss(runner: Runner) -> Outcome:
    """25 % lost over three RTTs of an application at 40 % of the rate, which finds no plateau."""
    r = limited_then_lossy(runner)
    if r is None or not r.has("full_bw_now"):
        return IMPOSSIBLE
    exits = (moves(r, STARTUP, DRAIN) | begins_probe_bw(r)) & ~r.is_set("full_bw_now")
    return Outcome(r, cases.happened(r, exits, "DRAIN by losses"))


@case("A.3", "Exiting DRAIN based on inflight", column="state")
def drain_inflight(runner: Runner) -> Outcome:
    """The plain run."""
    r = runner.plain
    exits, bound = begins_probe_bw(r), inflight_of(r, "bw")
    drained = all_of(exits, r.inflight <= bound, r.inflight, bound)
    return Outcome(r, cases.combined(cases.left(r, DRAIN, exits, "PROBE_BW"), drained))


@case("A.4", "Exiting DRAIN based on time", at=DRAIN)
def drain_time(runner: Runner, at_s: float) -> Outcome:
    """The rate halves when DRAIN begins; 10 % less, as in the draft, still drains at half the rate."""
    rate = cases.changed_rate(runner, at_s, 0.45)
    r = runner.trace(at_s + 40 * runner.cell.rtt_s + 1.0, path=rate)
    bound = inflight_of(r, "bw")
    stays = np.flatnonzero(begins_probe_bw(r))
    if len(stays) and r.inflight[stays[0]] <= bound[stays[0]]:
        return Outcome(r, NOTHING)  # offload makes Inflight(1.0) more than is ever in flight
    return Outcome(r, cases.left(r, DRAIN, begins_probe_bw(r), "DOWN after 3 rounds, the flight still above a BDP"))


# --- ProbeBW ----------------------------------------------------------------------------------------------------------
@case("A.5", "Exiting PROBE_UP on bandwidth plateau", column="full_bw_now")
def up_plateau(runner: Runner) -> Outcome:
    """The plain run."""
    r = runner.plain
    return Outcome(r, cases.left(r, UP, moves(r, UP, DOWN) & r.is_set("full_bw_now"), "DOWN by a plateau"))


def limited_in_up(runner: Runner) -> tuple[Trace, float] | None:
    """Return the app-limited run of case 2 and when it enters UP."""
    r = limited_then_lossy(runner)
    at_s = None if r is None else cases.entered(r, UP)
    return None if r is None or at_s is None else (r, at_s)


@case("A.6", "Exiting PROBE_UP on loss when application-limited")
def up_loss(runner: Runner) -> Outcome:
    """The run of case 2, and in its UP 10 % lost over two RTTs."""
    limited = limited_in_up(runner)
    if limited is None:
        return IMPOSSIBLE
    before, at_s = limited[0], limited[1] + 2.5 * runner.cell.rtt_s
    ended = cases.entered(before, DOWN, limited[1])
    if ended is not None and ended <= at_s + 3 * runner.cell.rtt_s:
        return IMPOSSIBLE
    loss = cases.burst(runner, runner.settled_s / 2, "25%", 3) + cases.burst(runner, at_s, "10%", 2)[1:]
    r = runner.trace(runner.plain_s, path={"loss": loss}, sender=cases.app(runner, LIMITED))
    return Outcome(r, cases.left(r, UP, moves(r, UP, DOWN) & (r.time_s >= at_s), "DOWN by losses", at_s))


@case("A.7", "Never exiting PROBE_UP (or STARTUP) when application-limited with no loss")
def never(runner: Runner) -> Outcome:
    """An application at 30 % of the rate."""
    r = runner.trace(runner.plain_s, sender=cases.app(runner, 0.3), keep=True)
    if not r.has("state"):
        return IMPOSSIBLE
    limited = np.cumsum(r.acks & (r.ack("rs_is_app_limited") == 0))
    if limited[-1] > 0.2 * np.count_nonzero(r.acks):
        return Outcome(r, NOTHING)  # packets this long use the path's full rate
    state = r.after["state"]
    return Outcome(r, all_of(r.acks, among(state, STARTUP, PROBE_RTT), state, "STARTUP"))


@case("A.8", "Exiting PROBE_DOWN on inflight", column="state")
def down_inflight(runner: Runner) -> Outcome:
    """The plain run."""
    r = runner.plain
    return Outcome(r, cases.left(r, DOWN, moves(r, DOWN, CRUISE), "CRUISE"))


@case("A.9", "Exiting PROBE_DOWN after max time")
def down_time(runner: Runner) -> Outcome:
    """The rate falls by 30 % when DOWN begins: by 10 % the flight of 1.25 BDP just drains within 3 s."""
    at_s = cases.entered(runner.plain, DOWN, source=UP)
    if at_s is None:
        return IMPOSSIBLE
    r = runner.trace(at_s + 4 + 8 * runner.cell.rtt_s, path=cases.changed_rate(runner, at_s, 0.7))
    ends = (r.before["state"] == DOWN) & (r.time_s >= at_s)
    direct = ends & (r.after["state"] == REFILL)
    if np.any(ends & among(r.after["state"], CRUISE, PROBE_RTT)) and not direct.any():
        return Outcome(r, NOTHING)
    return Outcome(r, cases.happened(r, direct, "REFILL, bypassing CRUISE"))


# --- ProbeRTT and idle ------------------------------------------------------------------------------------------------
@case("A.10", "Entering and exiting PROBE_RTT", column="state")
def probe_rtt(runner: Runner) -> Outcome:
    """The plain run."""
    r = runner.plain
    enters = among(r.before["state"], *cases.PROBE_BW) & (r.after["state"] == PROBE_RTT)
    cruises = cases.happened(r, moves(r, PROBE_RTT, CRUISE), "CRUISE")
    return Outcome(r, cases.combined(cases.happened(r, enters, "PROBE_RTT"), cruises))


@case("A.11", "Skipping PROBE_RTT due to application-limited sending", at=CRUISE)
def skipping(runner: Runner, at_s: float) -> Outcome:
    """The application pauses for 6 s, from the first CRUISE on."""
    on_s = at_s + 2 * runner.cell.rtt_s + 0.2
    queue_s = 4 * runner.cell.rtt_s + 40 * runner.cell.mss / runner.cell.payload_Bps
    r = runner.trace(2 * on_s + 6 + queue_s, sender={"app": f"onoff:on={on_s:.6f}s,off={6 + queue_s:.6f}s"})
    starts = r.is_call("cwnd_event", EVENT_TX_START) & (r.time_s > on_s)
    idle = starts & r.is_set("idle_restart")
    expired = r.acks & r.was_set("idle_restart") & r.is_set("probe_rtt_expired") \
        if r.has("probe_rtt_expired") else idle  # fmt: skip
    skips = all_of(expired, r.after["state"] != PROBE_RTT, r.after["state"], "no PROBE_RTT")
    return Outcome(r, cases.combined(cases.happened(r, idle, "idle_restart"), skips))


# --- aggregation and small BDPs ---------------------------------------------------------------------------------------
def aggregated(runner: Runner) -> Trace | None:
    """Return a run whose ACKs come in batches of a quarter of an RTT, where such a batch holds some packets."""
    slot_s = runner.cell.rtt_s / 4
    if slot_s * runner.cell.payload_Bps < 4 * runner.cell.mss:
        return None
    return runner.trace(runner.plain_s, sender={"ack_slot": f"{slot_s * 1e6:.0f}us", "ack_every": 1}, keep=True)


@case("A.12", "Achieving expected STARTUP bandwidth on a link with aggregation")
def startup_aggregation(runner: Runner) -> Outcome:
    """ACKs in batches of a quarter of an RTT; the window exceeds two BDPs by what they hold."""
    r = aggregated(runner)
    if r is None or not r.has("extra_acked"):
        return IMPOSSIBLE
    startup = r.acks & (r.after["state"] == STARTUP)
    rows = np.flatnonzero(startup)
    if not len(rows):
        return Outcome(r, Found(1, 0, "no STARTUP", "STARTUP"))
    row = int(rows[-1])
    bdp = bdp_of(r, r.after["max_bw"], 1.0, r.after["min_rtt_us"])
    rate = r.facts["rate_Bps"]
    return Outcome(r, cases.combined(
        cases.happened(r, startup & (r.after["extra_acked"] > 0), "extra_acked above 0"),
        cases.happened(r, startup & (r.after["snd_cwnd"] > 2 * bdp), "cwnd above 2 BDP"),
        cases.between(r, row, float(r.after["max_bw"][row]), 0.95 * rate, 1.35 * rate, "max_bw"),
    ))  # fmt: skip


@case("A.13", "Achieving expected cruise bandwidth on a link with aggregation")
def cruise_aggregation(runner: Runner) -> Outcome:
    """The run of case 12: full use of the path, at least 90 %, while it cruises."""
    r = aggregated(runner)
    if r is None or not r.has("extra_acked"):
        return IMPOSSIBLE
    cruising = moves(r, CRUISE, CRUISE)
    drained = np.maximum.accumulate(np.where(r.after["state"] == PROBE_RTT, r.time_s, -1e9))
    cruising &= r.time_s > drained + 3 * runner.cell.rtt_s  # it takes a round to fill the pipe again
    rows = np.flatnonzero(cruising)
    if len(rows) < 10:
        return Outcome(r, NOTHING)
    spans = np.diff(r.time_s, prepend=0.0)[rows].sum()
    rate = float(np.diff(r.ack("delivered"), prepend=0)[rows].sum()) * r.mss / spans if spans > 0 else 0.0
    full = r.facts["rate_Bps"]
    augmented = cases.happened(r, cruising & (r.after["extra_acked"] > 0), "extra_acked above 0")
    return Outcome(r, cases.combined(augmented, cases.between(r, int(rows[-1]), rate, 0.9 * full, 1.2 * full, "rate")))


@case("A.14", "Correctly managing sub-packet BDPs", column="state")
def sub_packet(runner: Runner) -> Outcome:
    """Paths that one packet fills."""
    if runner.cell.bdp >= 1:
        return IMPOSSIBLE
    r = runner.plain
    rows = r.acks & among(r.after["state"], *cases.PROBE_BW)
    cruising = rows & (r.after["state"] == CRUISE)
    rate = r.facts["rate_Bps"]
    low, high = 0.85 * rate, 1.1 * rate
    paced = all_of(cruising, (r.after["pacing_rate"] >= low) & (r.after["pacing_rate"] <= high), r.after["pacing_rate"],
                   f"{low:.4g} to {high:.4g}")  # fmt: skip
    return Outcome(r, cases.combined(all_of(rows, r.after["snd_cwnd"] >= 4, r.after["snd_cwnd"], "at least 4"), paced))
