"""The example cases of draft-ietf-ccwg-bbr-06, appendix A, in which the path changes under the flow, A.15 to A.22."""

from dataclasses import replace

import numpy as np

from cctrace.cc.linux import CA_LOSS, EVENT_TX_START
from cctrace.conform import cases
from cctrace.conform.bbr_cases import CASES, LIMITED, SIX_LOSSES_BDP, case, never
from cctrace.conform.bbr_names import CRUISE, DOWN, PROBE_RTT, REFILL, STARTUP, UP
from cctrace.conform.bbr_oracle import leaves, moves
from cctrace.conform.cases import IMPOSSIBLE, NOTHING, Outcome
from cctrace.conform.requirements import at_least
from cctrace.conform.runner import RATE_OF_TRAINS, TRAIN, Runner

__all__ = ["CASES"]


@case("A.15", "Increasing bandwidth 10x and ensuring full bandwidth is reached", at=CRUISE, least_bdp=2)
def tenfold(runner: Runner, at_s: float) -> Outcome:
    """Tenfold from CRUISE on; 90 % of it must be found within the wait for two probes and 40 RTTs.

    Not where ProbeRTT comes every few rounds. Segments stand for trains if the new rate asks for them.
    """
    if runner.cell.rate_bps > 2e8 or runner.cell.rtt_s > 0.2:
        return IMPOSSIBLE
    if 10 * runner.cell.rate_bps >= RATE_OF_TRAINS:
        runner = Runner(runner.subject, replace(runner.cell, mss=TRAIN), runner.seed)
        at_s = cases.entered(runner.plain, CRUISE) or at_s
    for waits_s in (3.5, 7.0):  # of one probe; of two
        r = runner.trace(at_s + waits_s + 40 * runner.cell.rtt_s, path=cases.changed_rate(runner, at_s, 10))
        reached = r.after["max_bw"] >= 9 * r.facts["rate_Bps"]
        if reached.any():
            break
    return Outcome(r, cases.happened(r, reached, "max_bw of 90 % of the new rate"))


@case("A.16", "Decreasing bandwidth 10x and ensuring max bandwidth adapts down", at=CRUISE, least_bdp=30)
def tenth(runner: Runner, at_s: float) -> Outcome:
    """A tenth from CRUISE on, with a queue of one BDP; two cycles later max_bw is the new rate, to within a quarter.

    That queue makes rounds of eleven RTTs, of which two cycles take up to 30.
    """
    if runner.cell.rtt_s > 0.2:
        return IMPOSSIBLE
    buffer = {"buffer": "1bdp"}
    r = runner.trace(at_s + 20 + 330 * runner.cell.rtt_s, path=cases.changed_rate(runner, at_s, 0.1) | buffer)
    rate = r.facts["rate_Bps"] / 10
    last = r.time_s > r.time_s[-1] - 1
    lowest = float(np.min(r.after["max_bw"][last]))
    lowered = cases.happened(r, np.isfinite(r.after["bw_shortterm"]) & (r.time_s > at_s), "bw_shortterm")
    return Outcome(r, cases.combined(lowered, cases.between(r, len(r) - 1, lowest, 0.75 * rate, 1.25 * rate, "max_bw")))


@case("A.17", "Handling token bucket policers", least_bdp=30)
def policer(runner: Runner) -> Outcome:
    """Half of the rate, a bucket of two BDPs; in the last third at most 10 % lost, at least 70 % of the tokens used."""
    cell = runner.cell
    tokens = cell.rate_bps / 2
    bucket = int(2 * cell.rate_bps / 8 * cell.rtt_s)
    r = runner.trace(1.5 * runner.plain_s, path={"policer": (f"{tokens:.0f}bit", f"{bucket}B")})
    if not r.has("inflight_shortterm"):
        return IMPOSSIBLE
    late = r.time_s > r.time_s[-1] * 2 / 3
    rows = np.flatnonzero(late)
    sent, lost, delivered = (np.ptp(r.ack(name)[rows]) for name in ("data_segs_out", "lost", "delivered"))
    seconds = max(float(np.ptp(r.time_s[rows])), 1e-9)
    used = delivered * r.mss / seconds
    half = r.facts["rate_Bps"] / 2
    most = 1.05 * half + bucket / seconds  # a bucket that was full when the last third began
    bounded = np.isfinite(r.after["inflight_shortterm"]) | np.isfinite(r.after["inflight_longterm"])
    return Outcome(r, cases.combined(
        cases.happened(r, bounded, "a bound"),
        cases.between(r, len(r) - 1, float(lost) / max(float(sent), 1.0), 0.0, 0.1, "share lost"),
        cases.between(r, len(r) - 1, float(used), 0.7 * half, most, "goodput"),
    ))  # fmt: skip


@case("A.18", "Handling spurious fast recovery", at=UP, least_bdp=30)
def spurious(runner: Runner, at_s: float) -> Outcome:
    """In UP the path's delay varies for half an RTT so that packets overtake each other."""
    rtt = runner.cell.rtt_s
    begin = at_s + 1.2 * rtt
    r = runner.trace(begin + 10 * rtt + 0.5, path=cases.overtaking(runner, begin, 0.5))
    return cases.counted(r, r.is_call("undo_cwnd") & (r.time_s > begin))


@case("A.19", "Handling spurious RTO recovery", at=CRUISE, least_bdp=10)
def spurious_timeout(runner: Runner, at_s: float) -> Outcome:
    """In CRUISE the path's delay grows for a moment by more than a timeout."""
    rtt = runner.cell.rtt_s
    begin, more = at_s + 0.3, 3 * rtt + 1.0
    slow = (round(begin, 6), f"{(rtt + more) * 1e6:.0f}us")
    steps = [(0, runner.cell.rtt), slow, (round(begin + 0.4 + rtt, 6), runner.cell.rtt)]
    r = runner.trace(begin + 3 * more + 10 * rtt, path={"rtt": steps})
    return cases.counted(r, r.is_call("undo_cwnd") & (r.time_s > begin) & r.is_call("set_state", CA_LOSS).any())


@case("A.20", "Entering and exiting PROBE_RTT during STARTUP")
def startup_probe_rtt(runner: Runner) -> Outcome:
    """The app-limited run of case 7."""
    outcome = never(runner)
    r = outcome.trace
    if r is None or outcome.found.exercised == 0:
        return Outcome(r, NOTHING)
    into, out = moves(r, STARTUP, PROBE_RTT), moves(r, PROBE_RTT, STARTUP)
    if not into.any() and (r.before["idle_restart"] != 0).any():
        return Outcome(r, NOTHING)  # pieces this far apart leave the path idle, which counts as an attempt to drain it
    return Outcome(r, cases.combined(cases.happened(r, into, "PROBE_RTT"), cases.happened(r, out, "STARTUP")))


@case("A.21", "Handling loss during PROBE_UP after inflight_longterm is set", at=UP, least_bdp=30)
def loss_in_up(runner: Runner, at_s: float) -> Outcome:
    """10 % lost in UP sets the bound; lost again in a later UP that reaches it."""
    first = cases.burst(runner, at_s + 1.2 * runner.cell.rtt_s, "10%", 1)
    r = runner.trace(at_s + 6 + 20 * runner.cell.rtt_s, path={"loss": first})
    again = cases.entered(r, UP, at_s + 4 * runner.cell.rtt_s)
    if again is not None:
        loss = first + cases.burst(runner, again + 1.05 * runner.cell.rtt_s, "10%", 1)[1:]
        r = runner.trace(again + 12 * runner.cell.rtt_s + 0.5, path={"loss": loss})
    lost = r.is_call("skb_marked_lost") & moves(r, UP, DOWN) & (r.time_s >= at_s)
    bounded = lost & np.isfinite(r.after["inflight_longterm"])
    return Outcome(r, cases.left(r, UP, bounded, "DOWN by losses, and a bound", at_s))


@case("A.22", "Handling application-limited sending during PROBE_REFILL", at=REFILL, least_bdp=10)
def limited_refill(runner: Runner, at_s: float) -> Outcome:
    """The application pauses for a third of an RTT when REFILL begins."""
    rtt = runner.cell.rtt_s
    r = runner.trace(at_s + 12 * rtt + 0.2, sender={"app": f"onoff:on={at_s:.6f}s,off={rtt / 3:.6f}s"})
    again = cases.entered(r, REFILL, at_s - rtt)
    if again is None:
        return Outcome(r, NOTHING)
    limited = r.acks & (r.ack("rs_is_app_limited") != 0) & (r.time_s >= again)
    lower = limited & (r.delivery_rate < r.before["max_bw"]) & (r.before["state"] == REFILL)
    stays = at_least(lower, r.after["max_bw"], r.before["max_bw"], rel=1e-3)
    ups = cases.happened(r, moves(r, REFILL, UP) & (r.time_s >= again), "UP")
    return Outcome(r, ups if stays.row is None else stays)


# --- beyond the appendix ----------------------------------------------------------------------------------------------
@case("B.1", "A spurious recovery after a probe that losses ended", at=UP, least_bdp=30)
def real_then_spurious(runner: Runner, at_s: float) -> Outcome:
    """Losses end UP; later, in CRUISE, a recovery is spurious: the flow stays there."""
    rtt = runner.cell.rtt_s
    loss = cases.burst(runner, at_s + 1.2 * rtt, "10%", 1)
    late = round(at_s + 1.2 * rtt + 10 * rtt + 0.2, 6)
    r = runner.trace(late + 14 * rtt + 3.0, path={"loss": loss} | cases.overtaking(runner, late, 0.5))
    return cases.counted(r, r.is_call("undo_cwnd") & (r.time_s > late))


@case("B.2", "Startup goes on if more than 2 % are lost, but in few ranges", least_bdp=SIX_LOSSES_BDP)
def few_ranges(runner: Runner) -> Outcome:
    """Five short outages, two RTTs apart, of an app-limited Startup: more than 2 % lost, in few ranges."""
    rtt, at_s = runner.cell.rtt_s, runner.settled_s / 2
    steps = [(0.0, "0%")]
    for k in range(5):
        begin = at_s + 2 * k * rtt
        steps += [(round(begin, 7), "100%"), (round(begin + 0.1 * rtt, 7), "0%")]
    r = runner.trace(at_s + 14 * rtt, path={"loss": steps}, sender=cases.app(runner, LIMITED))
    return cases.counted(r, r.acks & (r.ack("rs_losses") > 0))


@case("B.3", "A spurious recovery whose losses ended STARTUP", least_bdp=SIX_LOSSES_BDP)
def spurious_startup(runner: Runner) -> Outcome:
    """Packets of an app-limited Startup overtake each other for two RTTs: it was not losses that ended it."""
    rtt, at_s = runner.cell.rtt_s, runner.settled_s / 2
    r = runner.trace(at_s + 20 * rtt, path=cases.overtaking(runner, at_s, 2), sender=cases.app(runner, LIMITED))
    if not r.has("state"):
        return IMPOSSIBLE
    return cases.counted(r, r.is_call("undo_cwnd") & (np.cumsum(leaves(r, STARTUP)) > 0))


@case("B.4", "Idle in PROBE_RTT until it is over", at=PROBE_RTT)
def idle_in_probe_rtt(runner: Runner, at_s: float) -> Outcome:
    """The application pauses in ProbeRTT, and for longer than that lasts."""
    on_s, off_s = at_s + runner.cell.rtt_s + 0.05, 0.4 + 3 * runner.cell.rtt_s
    r = runner.trace(on_s + 2 * off_s + 8 * runner.cell.rtt_s, sender={"app": f"onoff:on={on_s:.6f}s,off={off_s:.6f}s"})
    return cases.counted(r, r.is_call("cwnd_event", EVENT_TX_START) & (r.before["state"] == PROBE_RTT))
