"""The example cases of draft-ietf-ccwg-bbr-06, appendix A, in which the path changes under the flow, A.15 to A.22."""

import numpy as np

from cctrace.cc.linux import CA_LOSS, EVENT_TX_START
from cctrace.conform.bbr_cases import CASES, LIMITED, SIX_LOSSES_BDP, Case, case, never
from cctrace.conform.bbr_names import CRUISE, DOWN, PROBE_RTT, REFILL, STARTUP, UP
from cctrace.conform.requirements import Found, at_least
from cctrace.conform.scenes import (
    NOTHING,
    UNSET_SCENE,
    Scene,
    app,
    both,
    burst,
    came,
    changed_rate,
    close,
    entered,
    left,
    moves,
)
from cctrace.conform.stage import Stage

__all__ = ["CASES"]


@case(15, "Increasing bandwidth 10x and ensuring full bandwidth is reached")
def tenfold(stage: Stage) -> Scene:
    """Tenfold from CRUISE on; 90 % of it must be found within the wait for two probes and 40 RTTs.

    Not where ProbeRTT comes every few rounds.
    """
    at_s = entered(stage.plain, CRUISE)
    if at_s is None or stage.cell.rate_bps > 2e8 or stage.cell.bdp < 2 or stage.cell.rtt_s > 0.2:
        return UNSET_SCENE
    for waits_s in (3.5, 7.0):  # of one probe; of two
        r = stage.record(at_s + waits_s + 40 * stage.cell.rtt_s, path=changed_rate(stage, at_s, 10))
        reached = r.after["max_bw"] >= 9 * r.facts["rate_Bps"]
        if reached.any():
            break
    return Scene(r, came(r, reached, "max_bw of 90 % of the new rate"))


@case(16, "Decreasing bandwidth 10x and ensuring max bandwidth adapts down")
def tenth(stage: Stage) -> Scene:
    """A tenth from CRUISE on, with a queue of one BDP; two cycles later max_bw is the new rate, to within a quarter.

    That queue makes rounds of eleven RTTs, of which two cycles take up to 30.
    """
    at_s = entered(stage.plain, CRUISE)
    if at_s is None or stage.cell.rtt_s > 0.2 or stage.cell.bdp < 30:
        return UNSET_SCENE
    buffer = {"buffer": "1bdp"}
    r = stage.record(at_s + 20 + 330 * stage.cell.rtt_s, path=changed_rate(stage, at_s, 0.1) | buffer)
    rate = r.facts["rate_Bps"] / 10
    last = r.time_s > r.time_s[-1] - 1
    lowest = float(np.min(r.after["max_bw"][last]))
    return Scene(r, both(came(r, np.isfinite(r.after["bw_shortterm"]) & (r.time_s > at_s), "bw_shortterm"),
                         close(r, len(r) - 1, lowest, 0.75 * rate, 1.25 * rate, "max_bw")))  # fmt: skip


@case(17, "Handling token bucket policers")
def policer(stage: Stage) -> Scene:
    """Half of the rate, a bucket of two BDPs; in the last third at most 10 % lost, at least 70 % of the tokens used."""
    if stage.cell.bdp < 30:
        return UNSET_SCENE
    cell = stage.cell
    tokens = cell.rate_bps / 2
    bucket = int(2 * cell.rate_bps / 8 * cell.rtt_s)
    r = stage.record(2 * stage.plain_s, path={"policer": (f"{tokens:.0f}bit", f"{bucket}B")})
    if not r.has("inflight_shortterm"):
        return UNSET_SCENE
    late = r.time_s > r.time_s[-1] * 2 / 3
    rows = np.flatnonzero(late)
    sent, lost, delivered = (np.ptp(r.ack(name)[rows]) for name in ("data_segs_out", "lost", "delivered"))
    seconds = max(float(np.ptp(r.time_s[rows])), 1e-9)
    used = delivered * r.mss / seconds
    half = r.facts["rate_Bps"] / 2
    most = 1.05 * half + bucket / seconds  # a bucket that was full when the last third began
    return Scene(r, both(
        came(r, np.isfinite(r.after["inflight_shortterm"]) | np.isfinite(r.after["inflight_longterm"]), "a bound"),
        close(r, len(r) - 1, float(lost) / max(float(sent), 1.0), 0.0, 0.1, "share lost"),
        close(r, len(r) - 1, float(used), 0.7 * half, most, "goodput"),
    ))  # fmt: skip


@case(18, "Handling spurious fast recovery")
def spurious(stage: Stage) -> Scene:
    """In UP the path's delay varies for half an RTT so that packets overtake each other."""
    at_s = entered(stage.plain, UP)
    if at_s is None or stage.cell.bdp < 30:
        return UNSET_SCENE
    rtt = stage.cell.rtt_s
    begin = at_s + 1.2 * rtt
    mixed = f"normal:sd={rtt * 0.3e6:.0f}us,reorder"
    jitter = [(0, "none"), (round(begin, 6), mixed), (round(begin + 0.5 * rtt, 6), "none")]
    r = stage.record(begin + 10 * rtt + 0.5, path={"jitter": jitter})
    undone = r.is_call("undo_cwnd") & (r.time_s > begin)
    return Scene(r, Found(int(undone.sum())))


@case(19, "Handling spurious RTO recovery")
def spurious_timeout(stage: Stage) -> Scene:
    """In CRUISE the path's delay grows for a moment by more than a timeout."""
    at_s = entered(stage.plain, CRUISE)
    if at_s is None or stage.cell.bdp < 10:
        return UNSET_SCENE
    rtt = stage.cell.rtt_s
    begin, more = at_s + 0.3, 3 * rtt + 1.0
    slow = (round(begin, 6), f"{(rtt + more) * 1e6:.0f}us")
    steps = [(0, stage.cell.rtt), slow, (round(begin + 0.4 + rtt, 6), stage.cell.rtt)]
    r = stage.record(begin + 3 * more + 10 * rtt, path={"rtt": steps})
    timeouts = r.is_call("set_state") & (r.ack("arg") == CA_LOSS)
    undone = r.is_call("undo_cwnd") & (r.time_s > begin)
    return Scene(r, Found(int(undone.sum())) if timeouts.any() else NOTHING)


@case(20, "Entering and exiting PROBE_RTT during STARTUP")
def startup_probe_rtt(stage: Stage) -> Scene:
    """The app-limited run of case 7."""
    scene = never(stage)
    r = scene.record
    if r is None or scene.found.exercised == 0:
        return Scene(r, NOTHING)
    into, out = moves(r, STARTUP, PROBE_RTT), moves(r, PROBE_RTT, STARTUP)
    if not into.any() and (r.before["idle_restart"] != 0).any():
        return Scene(r, NOTHING)  # pieces this far apart leave the path idle, which counts as an attempt to drain it
    return Scene(r, both(came(r, into, "PROBE_RTT"), came(r, out, "STARTUP")))


@case(21, "Handling loss during PROBE_UP after inflight_longterm is set")
def loss_in_up(stage: Stage) -> Scene:
    """10 % lost in UP sets the bound; lost again in a later UP that reaches it."""
    at_s = entered(stage.plain, UP)
    if at_s is None or stage.cell.bdp < 30:
        return UNSET_SCENE
    first = burst(stage, at_s + 1.2 * stage.cell.rtt_s, "10%", 1)
    r = stage.record(at_s + 6 + 20 * stage.cell.rtt_s, path={"loss": first})
    again = entered(r, UP, at_s + 4 * stage.cell.rtt_s)
    if again is not None:
        loss = first + burst(stage, again + 1.05 * stage.cell.rtt_s, "10%", 1)[1:]
        r = stage.record(again + 12 * stage.cell.rtt_s + 0.5, path={"loss": loss})
    lost = r.is_call("skb_marked_lost") & moves(r, UP, DOWN, at_s)
    bounded = lost & np.isfinite(r.after["inflight_longterm"])
    return Scene(r, left(r, UP, bounded, "DOWN by losses, and a bound", at_s))


@case(22, "Handling application-limited sending during PROBE_REFILL")
def limited_refill(stage: Stage) -> Scene:
    """The application pauses for a third of an RTT when REFILL begins."""
    at_s = entered(stage.plain, REFILL)
    if at_s is None or stage.cell.bdp < 10:
        return UNSET_SCENE
    rtt = stage.cell.rtt_s
    r = stage.record(at_s + 12 * rtt + 0.2, sender={"app": f"onoff:on={at_s:.6f}s,off={rtt / 3:.6f}s"})
    again = entered(r, REFILL, at_s - rtt)
    if again is None:
        return Scene(r, NOTHING)
    limited = r.acks & (r.ack("rs_is_app_limited") != 0) & (r.time_s >= again)
    lower = limited & (r.delivery_rate < r.before["max_bw"]) & (r.before["state"] == REFILL)
    kept = at_least(lower, r.after["max_bw"], r.before["max_bw"], rel=1e-3)
    ups = came(r, moves(r, REFILL, UP, again), "UP")
    return Scene(r, ups if kept.row is None else kept)


# --- beyond the appendix ----------------------------------------------------------------------------------------------
def real_then_spurious(stage: Stage) -> Scene:
    """Losses end UP; later, in CRUISE, a recovery is spurious: the flow stays there."""
    at_s = entered(stage.plain, UP)
    if at_s is None or stage.cell.bdp < 30:
        return UNSET_SCENE
    rtt = stage.cell.rtt_s
    loss = burst(stage, at_s + 1.2 * rtt, "10%", 1)
    late = round(at_s + 1.2 * rtt + 10 * rtt + 0.2, 6)
    mixed = f"normal:sd={rtt * 0.3e6:.0f}us,reorder"
    jitter = [(0, "none"), (late, mixed), (round(late + 0.5 * rtt, 6), "none")]
    r = stage.record(late + 14 * rtt + 3.0, path={"loss": loss, "jitter": jitter})
    return Scene(r, Found(int((r.is_call("undo_cwnd") & (r.time_s > late)).sum())))


def few_ranges(stage: Stage) -> Scene:
    """Five short outages, two RTTs apart, of an app-limited Startup: more than 2 % lost, in few ranges."""
    if stage.cell.bdp < SIX_LOSSES_BDP:
        return UNSET_SCENE
    rtt, at_s = stage.cell.rtt_s, stage.settled_s / 2
    steps = [(0.0, "0%")]
    for k in range(5):
        begin = at_s + 2 * k * rtt
        steps += [(round(begin, 7), "100%"), (round(begin + 0.1 * rtt, 7), "0%")]
    r = stage.record(at_s + 14 * rtt, path={"loss": steps}, sender=app(stage, LIMITED))
    return Scene(r, Found(int(np.count_nonzero(r.acks & (r.ack("rs_losses") > 0)))))


def spurious_startup(stage: Stage) -> Scene:
    """Packets of an app-limited Startup overtake each other for two RTTs: what ended it were no losses."""
    if stage.cell.bdp < SIX_LOSSES_BDP:
        return UNSET_SCENE
    rtt, at_s = stage.cell.rtt_s, stage.settled_s / 2
    mixed = f"normal:sd={rtt * 0.3e6:.0f}us,reorder"
    jitter = [(0, "none"), (round(at_s, 6), mixed), (round(at_s + 2 * rtt, 6), "none")]
    r = stage.record(at_s + 20 * rtt, path={"jitter": jitter}, sender=app(stage, LIMITED))
    if not r.has("state"):
        return UNSET_SCENE
    left = (r.before["state"] == STARTUP) & (r.after["state"] != STARTUP)
    return Scene(r, Found(int((r.is_call("undo_cwnd") & (np.cumsum(left) > 0)).sum())))


def idle_in_probe_rtt(stage: Stage) -> Scene:
    """The application pauses in ProbeRTT, and for longer than that lasts."""
    at_s = entered(stage.plain, PROBE_RTT)
    if at_s is None:
        return UNSET_SCENE
    on_s, off_s = at_s + stage.cell.rtt_s + 0.05, 0.4 + 3 * stage.cell.rtt_s
    r = stage.record(on_s + 2 * off_s + 8 * stage.cell.rtt_s, sender={"app": f"onoff:on={on_s:.6f}s,off={off_s:.6f}s"})
    starts = r.is_call("cwnd_event") & (r.ack("arg") == EVENT_TX_START) & (r.before["state"] == PROBE_RTT)
    return Scene(r, Found(int(starts.sum())))


CASES += [
    Case("B.1", "A spurious recovery after a probe that losses ended", real_then_spurious),
    Case("B.2", "Startup goes on if more than 2 % are lost, but in few ranges", few_ranges),
    Case("B.3", "A spurious recovery whose losses ended STARTUP", spurious_startup),
    Case("B.4", "Idle in PROBE_RTT until it is over", idle_in_probe_rtt),
]
