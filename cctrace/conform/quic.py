"""RFC 9002, section 7: QUIC's congestion control, checked call by call on a controller of a QUIC stack.

Windows are in bytes. What the RFC leaves to the controller (B.2: kLossReductionFactor; 7: "a sender MAY use a different
controller") is read from the window: a controller other than NewReno violates the rows on growth and reduction, but not
those that apply to every sender (minimum window, initial window, one reduction per round, persistent congestion).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cctrace.cc.base import Counterpart
from cctrace.cc.quic import MSS
from cctrace.columns import Values
from cctrace.conform import log
from cctrace.conform.cases import Cases, Outcome, app, burst, counted, queue_of_one_bdp
from cctrace.conform.requirements import SHOULD, Found, Spec, Table, all_of, at_least, at_most, equal
from cctrace.conform.runner import Cell, Runner
from cctrace.conform.trace import Trace, once

DATAGRAM = MSS  # bytes, of the simulated stack
INITIAL, LEAST = min(10 * DATAGRAM, max(14720, 2 * DATAGRAM)), 2 * DATAGRAM  # 7.2
REDUCTION = 0.5  # kLossReductionFactor
CELLS = tuple(
    Cell(rate, rtt, DATAGRAM)
    for rate, rtt in (("500kbit", "50ms"), ("2Mbit", "50ms"), ("20Mbit", "40ms"), ("50Mbit", "100ms"))
)

_OF_CUBIC = (
    Counterpart("initial window", "10 datagrams", "32", "7.2", "CubicInit", ("window.initial",)),
    Counterpart("growth after a loss", "a datagram per window", "CUBIC's curve", "7.3.3", "CubicUpdate",
                ("avoidance.growth", "avoidance.least")),
    Counterpart("reduction", "half of the window", "0.7 of it (718/1024)", "7.3.2", "CubicOnLost",
                ("recovery.entry", "recovery.ssthresh")),
    Counterpart("window that is not used", "does not grow", "grows with every ACK", "7.8", "CubicOnAck",
                ("window.limited",)),
    Counterpart("after persistent congestion", "two datagrams, recovery is over",
                "four, and ACKs of what was sent before the last loss do not grow the window", "7.6.2", "CubicReset",
                ("persistent.window", "slow_start.growth")),
)  # fmt: skip


def _of_bbr(file: str) -> tuple[Counterpart, ...]:
    """Return where nginx-quic's BBR, or version 2, is no NewReno, with the functions of its `file`.c."""
    return (
        Counterpart("initial window", "10 datagrams", "32", "7.2", f"{file}_init", ("window.initial",)),
        Counterpart("reduction", "half of the window", "none", "7.3.2", f"{file}_on_lost", ("recovery.entry",)),
        Counterpart(
            "window", "acknowledged data, while it is used and outside of recovery", "bandwidth times least RTT at any "
            "time", "7.3.2, 7.8", f"{file}_set_cwnd", ("recovery.growth", "window.limited"),
        ),
        Counterpart(
            "after persistent congestion", "two datagrams", "four", "7.6.2", f"{file}_reset_cwnd",
            ("persistent.window",),
        ),
        Counterpart(
            "pacing", "one to two windows per RTT", "a gain times the bandwidth", "7.7", f"{file}_set_pacing_rate",
            ("pacing.rate",),
        ),
    )  # fmt: skip


_BBR = ("quic_bbr", "b3r", "bbr_s", "obbr", "quic_b3r_paper", "quic_bbr_s_paper", "quic_obbr_paper")

requirement = Table()
case = Cases()
CASES = case.rows


@once
def _recovery_ms(r: Trace) -> Values:
    """Return when (ms) the last reduction before each call was; -1 before the first, and after persistent congestion.

    A reduction is the fall of the window upon a loss of what was sent after the last one.
    """
    began, found = -1, np.full(len(r), -1, np.int64)
    lost, reset = r.is_call("on_lost"), r.is_call("reset_cwnd")
    sent, now = r.ack("arg"), r.ack("now_ms")
    for row in np.flatnonzero(lost | reset):
        found[row:] = began
        if reset[row]:
            began = -1
        elif sent[row] > began:
            began = int(now[row])
        found[row + 1 :] = began
    return found


def _congestion_events(r: Trace) -> tuple[Values, Values]:
    """Return the losses that begin a recovery period, and those that fall into one."""
    lost, inside = r.is_call("on_lost"), r.ack("arg") <= _recovery_ms(r)
    return lost & ~inside, lost & inside


def _growing(r: Trace) -> Values:
    """Return the ACKs outside of recovery of packets that the application did not limit."""
    outside = r.ack("smp_po_sent_time") > _recovery_ms(r)
    return r.acks & outside & (r.ack("smp_is_app_limited") == 0) & (r.ack("smp_acked") > 0)


@requirement("window.initial", "7.2", "The initial window is ten datagrams, at most 14720 bytes or two datagrams.",
             level=SHOULD)  # fmt: skip
def _initial(r: Trace) -> Found:
    return at_most(r.is_call("init"), r.after["cwnd"], INITIAL)


@requirement("window.least", "7.2", "The window is at least two datagrams.")
def _least(r: Trace) -> Found:
    return at_least(~r.is_call("init"), r.after["cwnd"], LEAST)


@requirement("slow_start.growth", "7.3.1", "In slow start the window grows by what is acknowledged, and by no more.")
def _slow_start(r: Trace) -> Found:
    where = _growing(r) & (r.before["cwnd"] < r.before["ssthresh"])
    return equal(where, r.after["cwnd"], r.before["cwnd"] + r.ack("smp_acked"))


def _avoiding(r: Trace) -> tuple[Values, Values]:
    """Return the ACKs of congestion avoidance, and a window that has grown by a datagram per window acknowledged."""
    cwnd = r.before["cwnd"]
    return _growing(r) & (cwnd >= r.before["ssthresh"]), cwnd + DATAGRAM * r.ack("smp_acked") / np.maximum(cwnd, 1)


@requirement("avoidance.growth", "7.3.3", "In congestion avoidance the window grows by at most a datagram per window "
             "acknowledged.")  # fmt: skip
def _avoidance(r: Trace) -> Found:
    where, fair = _avoiding(r)
    return at_most(where, r.after["cwnd"], fair)


@requirement("avoidance.least", "7.3.3", "In congestion avoidance the window grows by at least a datagram per window "
             "acknowledged.", level=SHOULD)  # fmt: skip
def _avoidance_least(r: Trace) -> Found:
    where, fair = _avoiding(r)
    return at_least(where, r.after["cwnd"], fair, within=1.0)


@requirement("recovery.entry", "7.3.2", "A loss of data sent after the last reduction halves the window.")
def _entry(r: Trace) -> Found:
    events, _ = _congestion_events(r)
    expected = np.maximum(r.before["cwnd"] * REDUCTION, LEAST)
    return equal(events, r.after["cwnd"], expected, within=1.0)


@requirement("recovery.ssthresh", "7.3.2", "Such a loss sets ssthresh to half the window.")
def _ssthresh(r: Trace) -> Found:
    events, _ = _congestion_events(r)
    half = r.before["cwnd"] * REDUCTION
    return all_of(events, (r.after["ssthresh"] >= half - 1) & (r.after["ssthresh"] <= np.maximum(half, LEAST)),
                  r.after["ssthresh"], half)  # fmt: skip


@requirement("recovery.once", "7.3.2", "A loss of data sent before the last reduction does not reduce the window "
             "again.")  # fmt: skip
def _once(r: Trace) -> Found:
    _, repeated = _congestion_events(r)
    return at_least(repeated, r.after["cwnd"], r.before["cwnd"])


@requirement("recovery.growth", "7.3.2", "In recovery the window does not grow.")
def _no_growth(r: Trace) -> Found:
    inside = r.acks & (r.ack("smp_po_sent_time") <= _recovery_ms(r)) & (r.ack("smp_acked") > 0)
    return at_most(inside, r.after["cwnd"], r.before["cwnd"])


@requirement("window.limited", "7.8", "The window does not grow while it is underused.", level=SHOULD)
def _limited(r: Trace) -> Found:
    where = r.acks & (r.ack("smp_is_app_limited") != 0)
    return at_most(where, r.after["cwnd"], r.before["cwnd"])


@requirement("persistent.window", "7.6.2", "Persistent congestion leaves two datagrams.")
def _persistent(r: Trace) -> Found:
    return equal(r.is_call("reset_cwnd"), r.after["cwnd"], LEAST)


@requirement("persistent.slow_start", "7.6.2, 7.3.2", "After persistent congestion the flow is in slow start, out of "
             "recovery.")  # fmt: skip
def _again(r: Trace) -> Found:
    return all_of(r.is_call("reset_cwnd"), r.after["cwnd"] <= r.after["ssthresh"], r.after["ssthresh"], "at least cwnd")


@requirement("pacing.rate", "7.7", "The pacing rate is between one and two windows per smoothed RTT.", level=SHOULD)
def _pacing(r: Trace) -> Found:
    window = r.after["cwnd"] * 1000 / np.maximum(r.ack("smp_srtt_ms"), 1)
    where = r.acks & (r.ack("smp_srtt_ms") > 1) & r.cls.sets_pacing_rate  # else the stack does
    good = (r.after["pacing_rate"] >= 0.99 * window) & (r.after["pacing_rate"] <= 2.02 * window)
    return all_of(where, good, r.after["pacing_rate"], window)


def _outcome(runner: Runner, call: str, changes: Callable[[Runner], dict[str, Any]]) -> Outcome:
    r = runner.trace(12.0, **changes(runner))
    return counted(r, r.is_call(call))


for _id, _title, _call, _changes in (
    ("Q.1", "A bulk flow overflows a queue of one BDP", "on_lost", lambda runner: {"path": queue_of_one_bdp(runner)}),
    ("Q.2", "Random losses of 0.5 %", "on_lost", lambda runner: {"path": {"loss": "0.5%"}}),
    ("Q.3", "An outage of three seconds", "reset_cwnd",
     lambda runner: {"path": {"loss": burst(runner, 3.0, "100%", 3.0 / runner.cell.rtt_s)}}),
    ("Q.4", "An application at 30 % of the rate, and a few losses", "on_ack",
     lambda runner: {"path": {"loss": burst(runner, 1.0, "5%", 2)}, "sender": app(runner, 0.3)}),
):  # fmt: skip
    case(_id, _title)(partial(_outcome, call=_call, changes=_changes))


SPEC = Spec("quic", "NewReno of QUIC (RFC 9002, section 7)", tuple(requirement.rows), (),
            differs={"quic_cubic": _OF_CUBIC, "quic_bbr2": _of_bbr("ngx_bbr2")}
                    | dict.fromkeys(_BBR, _of_bbr("ngx_bbr")), stack="quic",
            log=tuple(log.of_quic().rows), cells=CELLS, cases=CASES)  # fmt: skip
