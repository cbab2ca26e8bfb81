"""The example cases of draft-ietf-ccwg-bbr-06, appendix A, in which the path changes under the flow, A.15 to A.22."""

from dataclasses import replace

import numpy as np

from cctrace.cc.linux import CA_LOSS, EVENT_TX_START
from cctrace.conform import scenes as sc
from cctrace.conform.bbr_cases import CASES, LIMITED, SIX_LOSSES_BDP, case, never
from cctrace.conform.bbr_names import CRUISE, DOWN, PROBE_RTT, REFILL, STARTUP, UP
from cctrace.conform.bbr_oracle import leaves, moves
from cctrace.conform.requirements import at_least
from cctrace.conform.scenes import IMPOSSIBLE, NOTHING, Scene
from cctrace.conform.stage import RATE_OF_TRAINS, TRAIN, Stage

__all__ = ["CASES"]


@case("A.15", "Increasing bandwidth 10x and ensuring full bandwidth is reached", at=CRUISE, least_bdp=2)
def tenfold(stage: Stage, at_s: float) -> Scene:
    """Tenfold from CRUISE on; 90 % of it must be found within the wait for two probes and 40 RTTs.

    Not where ProbeRTT comes every few rounds. Segments stand for trains if the new rate asks for them.
    """
    if stage.cell.rate_bps > 2e8 or stage.cell.rtt_s > 0.2:
        return IMPOSSIBLE
    if 10 * stage.cell.rate_bps >= RATE_OF_TRAINS:
        stage = Stage(stage.subject, replace(stage.cell, mss=TRAIN), stage.seed)
        at_s = sc.entered(stage.plain, CRUISE) or at_s
    for waits_s in (3.5, 7.0):  # of one probe; of two
        r = stage.record(at_s + waits_s + 40 * stage.cell.rtt_s, path=sc.changed_rate(stage, at_s, 10))
        reached = r.after["max_bw"] >= 9 * r.facts["rate_Bps"]
        if reached.any():
            break
    return Scene(r, sc.happened(r, reached, "max_bw of 90 % of the new rate"))


@case("A.16", "Decreasing bandwidth 10x and ensuring max bandwidth adapts down", at=CRUISE, least_bdp=30)
def tenth(stage: Stage, at_s: float) -> Scene:
    """A tenth from CRUISE on, with a queue of one BDP; two cycles later max_bw is the new rate, to within a quarter.

    That queue makes rounds of eleven RTTs, of which two cycles take up to 30.
    """
    if stage.cell.rtt_s > 0.2:
        return IMPOSSIBLE
    buffer = {"buffer": "1bdp"}
    r = stage.record(at_s + 20 + 330 * stage.cell.rtt_s, path=sc.changed_rate(stage, at_s, 0.1) | buffer)
    rate = r.facts["rate_Bps"] / 10
    last = r.time_s > r.time_s[-1] - 1
    lowest = float(np.min(r.after["max_bw"][last]))
    lowered = sc.happened(r, np.isfinite(r.after["bw_shortterm"]) & (r.time_s > at_s), "bw_shortterm")
    return Scene(r, sc.combined(lowered, sc.between(r, len(r) - 1, lowest, 0.75 * rate, 1.25 * rate, "max_bw")))


@case("A.17", "Handling token bucket policers", least_bdp=30)
def policer(stage: Stage) -> Scene:
    """Half of the rate, a bucket of two BDPs; in the last third at most 10 % lost, at least 70 % of the tokens used."""
    cell = stage.cell
    tokens = cell.rate_bps / 2
    bucket = int(2 * cell.rate_bps / 8 * cell.rtt_s)
    r = stage.record(1.5 * stage.plain_s, path={"policer": (f"{tokens:.0f}bit", f"{bucket}B")})
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
    return Scene(r, sc.combined(
        sc.happened(r, bounded, "a bound"),
        sc.between(r, len(r) - 1, float(lost) / max(float(sent), 1.0), 0.0, 0.1, "share lost"),
        sc.between(r, len(r) - 1, float(used), 0.7 * half, most, "goodput"),
    ))  # fmt: skip


@case("A.18", "Handling spurious fast recovery", at=UP, least_bdp=30)
def spurious(stage: Stage, at_s: float) -> Scene:
    """In UP the path's delay varies for half an RTT so that packets overtake each other."""
    rtt = stage.cell.rtt_s
    begin = at_s + 1.2 * rtt
    r = stage.record(begin + 10 * rtt + 0.5, path=sc.overtaking(stage, begin, 0.5))
    return sc.counted(r, r.is_call("undo_cwnd") & (r.time_s > begin))


@case("A.19", "Handling spurious RTO recovery", at=CRUISE, least_bdp=10)
def spurious_timeout(stage: Stage, at_s: float) -> Scene:
    """In CRUISE the path's delay grows for a moment by more than a timeout."""
    rtt = stage.cell.rtt_s
    begin, more = at_s + 0.3, 3 * rtt + 1.0
    slow = (round(begin, 6), f"{(rtt + more) * 1e6:.0f}us")
    steps = [(0, stage.cell.rtt), slow, (round(begin + 0.4 + rtt, 6), stage.cell.rtt)]
    r = stage.record(begin + 3 * more + 10 * rtt, path={"rtt": steps})
    return sc.counted(r, r.is_call("undo_cwnd") & (r.time_s > begin) & r.is_call("set_state", CA_LOSS).any())


@case("A.20", "Entering and exiting PROBE_RTT during STARTUP")
def startup_probe_rtt(stage: Stage) -> Scene:
    """The app-limited run of case 7."""
    scene = never(stage)
    r = scene.record
    if r is None or scene.found.exercised == 0:
        return Scene(r, NOTHING)
    into, out = moves(r, STARTUP, PROBE_RTT), moves(r, PROBE_RTT, STARTUP)
    if not into.any() and (r.before["idle_restart"] != 0).any():
        return Scene(r, NOTHING)  # pieces this far apart leave the path idle, which counts as an attempt to drain it
    return Scene(r, sc.combined(sc.happened(r, into, "PROBE_RTT"), sc.happened(r, out, "STARTUP")))


@case("A.21", "Handling loss during PROBE_UP after inflight_longterm is set", at=UP, least_bdp=30)
def loss_in_up(stage: Stage, at_s: float) -> Scene:
    """10 % lost in UP sets the bound; lost again in a later UP that reaches it."""
    first = sc.burst(stage, at_s + 1.2 * stage.cell.rtt_s, "10%", 1)
    r = stage.record(at_s + 6 + 20 * stage.cell.rtt_s, path={"loss": first})
    again = sc.entered(r, UP, at_s + 4 * stage.cell.rtt_s)
    if again is not None:
        loss = first + sc.burst(stage, again + 1.05 * stage.cell.rtt_s, "10%", 1)[1:]
        r = stage.record(again + 12 * stage.cell.rtt_s + 0.5, path={"loss": loss})
    lost = r.is_call("skb_marked_lost") & moves(r, UP, DOWN) & (r.time_s >= at_s)
    bounded = lost & np.isfinite(r.after["inflight_longterm"])
    return Scene(r, sc.left(r, UP, bounded, "DOWN by losses, and a bound", at_s))


@case("A.22", "Handling application-limited sending during PROBE_REFILL", at=REFILL, least_bdp=10)
def limited_refill(stage: Stage, at_s: float) -> Scene:
    """The application pauses for a third of an RTT when REFILL begins."""
    rtt = stage.cell.rtt_s
    r = stage.record(at_s + 12 * rtt + 0.2, sender={"app": f"onoff:on={at_s:.6f}s,off={rtt / 3:.6f}s"})
    again = sc.entered(r, REFILL, at_s - rtt)
    if again is None:
        return Scene(r, NOTHING)
    limited = r.acks & (r.ack("rs_is_app_limited") != 0) & (r.time_s >= again)
    lower = limited & (r.delivery_rate < r.before["max_bw"]) & (r.before["state"] == REFILL)
    kept = at_least(lower, r.after["max_bw"], r.before["max_bw"], rel=1e-3)
    ups = sc.happened(r, moves(r, REFILL, UP) & (r.time_s >= again), "UP")
    return Scene(r, ups if kept.row is None else kept)


# --- beyond the appendix ----------------------------------------------------------------------------------------------
@case("B.1", "A spurious recovery after a probe that losses ended", at=UP, least_bdp=30)
def real_then_spurious(stage: Stage, at_s: float) -> Scene:
    """Losses end UP; later, in CRUISE, a recovery is spurious: the flow stays there."""
    rtt = stage.cell.rtt_s
    loss = sc.burst(stage, at_s + 1.2 * rtt, "10%", 1)
    late = round(at_s + 1.2 * rtt + 10 * rtt + 0.2, 6)
    r = stage.record(late + 14 * rtt + 3.0, path={"loss": loss} | sc.overtaking(stage, late, 0.5))
    return sc.counted(r, r.is_call("undo_cwnd") & (r.time_s > late))


@case("B.2", "Startup goes on if more than 2 % are lost, but in few ranges", least_bdp=SIX_LOSSES_BDP)
def few_ranges(stage: Stage) -> Scene:
    """Five short outages, two RTTs apart, of an app-limited Startup: more than 2 % lost, in few ranges."""
    rtt, at_s = stage.cell.rtt_s, stage.settled_s / 2
    steps = [(0.0, "0%")]
    for k in range(5):
        begin = at_s + 2 * k * rtt
        steps += [(round(begin, 7), "100%"), (round(begin + 0.1 * rtt, 7), "0%")]
    r = stage.record(at_s + 14 * rtt, path={"loss": steps}, sender=sc.app(stage, LIMITED))
    return sc.counted(r, r.acks & (r.ack("rs_losses") > 0))


@case("B.3", "A spurious recovery whose losses ended STARTUP", least_bdp=SIX_LOSSES_BDP)
def spurious_startup(stage: Stage) -> Scene:
    """Packets of an app-limited Startup overtake each other for two RTTs: it was not losses that ended it."""
    rtt, at_s = stage.cell.rtt_s, stage.settled_s / 2
    r = stage.record(at_s + 20 * rtt, path=sc.overtaking(stage, at_s, 2), sender=sc.app(stage, LIMITED))
    if not r.has("state"):
        return IMPOSSIBLE
    return sc.counted(r, r.is_call("undo_cwnd") & (np.cumsum(leaves(r, STARTUP)) > 0))


@case("B.4", "Idle in PROBE_RTT until it is over", at=PROBE_RTT)
def idle_in_probe_rtt(stage: Stage, at_s: float) -> Scene:
    """The application pauses in ProbeRTT, and for longer than that lasts."""
    on_s, off_s = at_s + stage.cell.rtt_s + 0.05, 0.4 + 3 * stage.cell.rtt_s
    r = stage.record(on_s + 2 * off_s + 8 * stage.cell.rtt_s, sender={"app": f"onoff:on={on_s:.6f}s,off={off_s:.6f}s"})
    return sc.counted(r, r.is_call("cwnd_event", EVENT_TX_START) & (r.before["state"] == PROBE_RTT))
