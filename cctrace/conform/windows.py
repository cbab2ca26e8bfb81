"""Common parts of window-based congestion controls: epochs between reductions, and cases that produce them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cctrace.cc.linux import CA_CWR, CA_LOSS, EVENT_COMPLETE_CWR, EVENT_TX_START
from cctrace.columns import Values, last_true
from cctrace.conform.cases import IMPOSSIBLE, Cases, Outcome, app, burst, counted, overtaking, queue_of_one_bdp
from cctrace.conform.requirements import MUST, SHOULD, Found, Table, all_of, at_least, at_most, equal
from cctrace.conform.runner import Cell, Runner
from cctrace.conform.trace import Trace

CELLS = (
    Cell("500kbit", "50ms"),
    Cell("2Mbit", "50ms"),
    Cell("20Mbit", "40ms"),
    Cell("50Mbit", "100ms"),
    Cell("100Mbit", "10ms"),
)
SECONDS = 20.0
DEEP_PACKETS_PER_S = 200  # paths on which a curve of some seconds asks for more than half a window a round
MAX_CALLS_PER_S = 9_000  # runs on faster paths are shorter
case = Cases()
CASES = case.rows


def _seconds(runner: Runner) -> float:
    return min(SECONDS, max(60 * runner.cell.rtt_s + 6, SECONDS * MAX_CALLS_PER_S / (runner.cell.payload_Bps / 700)))


def _reduces(r: Trace) -> Outcome:
    return counted(r, r.is_call("ssthresh"), "no reduction", "a reduction of the window")


@case("W.1", "A bulk flow overflows a queue of one BDP")
def _overflow(runner: Runner) -> Outcome:
    return _reduces(runner.trace(_seconds(runner), path=queue_of_one_bdp(runner)))


@case("W.2", "Random losses of 0.3 %")
def _random(runner: Runner) -> Outcome:
    return _reduces(runner.trace(_seconds(runner), path={"loss": "0.3%"}))


@case("W.3", "An outage longer than the timeout")
def _outage(runner: Runner) -> Outcome:
    lost = burst(runner, 3.0, "100%", 1.2 + 0.4 / runner.cell.rtt_s)
    r = runner.trace(3 + 60 * runner.cell.rtt_s + 6, path={"loss": lost})
    return counted(r, r.is_call("set_state", CA_LOSS))


@case("W.4", "An application at 30 % of the rate, and a few losses")
def _limited(runner: Runner) -> Outcome:
    r = runner.trace(min(_seconds(runner), 10.0), path={"loss": burst(runner, 1.0, "5%", 2)}, sender=app(runner, 0.3))
    return counted(r, r.ack("is_cwnd_limited") == 0)


@case("W.5", "An application that pauses")
def _pauses(runner: Runner) -> Outcome:
    """Writes for three seconds, then nothing for two; losses on the way."""
    r = runner.trace(14.0, path={"loss": burst(runner, 1.5, "5%", 2)}, sender={"app": "onoff:on=3s,off=2s"})
    return counted(r, r.is_call("cwnd_event", EVENT_TX_START) & (r.time_s > 3.0))


@case("W.6", "Spurious recoveries: reordering, and a delay longer than the timeout")
def _spurious(runner: Runner) -> Outcome:
    """After a reduction packets overtake each other for half a round trip, then all are late by a timeout."""
    rtt = runner.cell.rtt_s
    steps = [(0, runner.cell.rtt), (7.0, f"{(4 * rtt + 1.0) * 1e6:.0f}us"), (round(7.4 + rtt, 6), runner.cell.rtt)]
    path = {"rtt": steps, "loss": burst(runner, 1.5, "5%", 1)}
    r = runner.trace(14.0 + 20 * rtt, path=path | overtaking(runner, 4.0, 0.5))
    return counted(r, r.is_call("undo_cwnd"))


@case("W.7", "Short pieces that overtake each other: spurious up to the end of a recovery")
def _pieces(runner: Runner) -> Outcome:
    """Pieces of 24 segments that overtake each other: recoveries that prove spurious with their last ACK."""
    rtt = runner.cell.rtt_s
    jitter = [(0, "none"), (3.0, f"normal:sd={rtt * 0.3e6:.0f}us,reorder")]
    pieces = {"app": f"chunks:size={24 * runner.cell.mss}B,every={2e6 * rtt:.0f}us"}
    r = runner.trace(14.0, path={"jitter": jitter, "loss": burst(runner, 0.6, "30%", 2)}, sender=pieces)
    return counted(r, r.is_call("undo_cwnd"))


@case("W.8", "Random losses of 10 %: windows of a few segments")
def _few(runner: Runner) -> Outcome:
    return _reduces(runner.trace(_seconds(runner), path={"loss": "10%"}))


@case("W.9", "An RTT that falls to a third")
def _shorter(runner: Runner) -> Outcome:
    """The RTT falls to a third in congestion avoidance, when the window has just been reduced: no queue replaces it."""
    steps = [(0, f"{3e6 * runner.cell.rtt_s:.0f}us"), (3.5, runner.cell.rtt)]
    return _reduces(runner.trace(7.0, path={"rtt": steps, "loss": burst(runner, 1.5, "5%", 2)}))


@case("W.10", "A deep queue on a slow path")
def _deep(runner: Runner) -> Outcome:
    """A loss at a small window, then a queue of 16 s: the growth of a curve outruns what the ACKs allow."""
    packets_per_s = runner.cell.payload_Bps / runner.cell.mss
    if packets_per_s > DEEP_PACKETS_PER_S:
        return IMPOSSIBLE
    path = {"buffer": f"{int(16 * runner.cell.rate_bps / 8)}B", "loss": burst(runner, 1.0, "100%", 2)}
    return _reduces(runner.trace(20.0, path=path))


class Epoch(NamedTuple):
    """Growth between two reductions: rows of `cong_avoid`, the window at the loss before, and at its own beginning."""

    rows: Values
    at_loss: float
    earlier: float  # the window at the loss before that, 0 for none
    start: float
    start_s: float

    def reno(self, r: Trace, alpha: float = 1.0) -> Values:
        """Return the window at each row if it had grown by `alpha` segments per window acknowledged."""
        acked = r.ack("arg")[self.rows] / r.before["snd_cwnd"][self.rows]
        return self.start + alpha * np.concatenate([[0.0], np.cumsum(acked)[:-1]])


def epochs(r: Trace) -> Iterator[Epoch]:
    """Yield the epochs of congestion avoidance in which the sender was always cwnd-limited."""
    cuts = np.flatnonzero(r.is_call("ssthresh"))
    growing = r.is_call("cong_avoid") & (r.ack("ca_state") < CA_CWR)
    earlier = 0.0
    for place, cut in enumerate(cuts):
        end = cuts[place + 1] if place + 1 < len(cuts) else len(r)
        rows = cut + np.flatnonzero(growing[cut:end])
        at_loss = float(r.before["snd_cwnd"][cut])
        timeout = bool(r.is_call("set_state", CA_LOSS)[cut:end].any())
        undone = bool(np.any(r.is_call("undo_cwnd")[cut:end]))
        inside = rows[r.before["snd_cwnd"][rows] >= r.before["snd_ssthresh"][rows]]
        limited = len(inside) > 2 and bool(np.all(r.ack("is_cwnd_limited")[inside] != 0))
        restarted = bool(np.any(np.diff(r.before["snd_cwnd"][inside]) < 0))  # after idling, RFC 5681 4.1
        if limited and not (timeout or undone or restarted) and len(inside) == len(rows):
            yield Epoch(inside, at_loss, earlier, float(r.before["snd_cwnd"][inside[0]]), float(r.time_s[inside[0]]))
        earlier = 0.0 if timeout else at_loss


def common(requirement: Table, sections: dict[str, str]) -> None:
    """Add what every window-based control has to do; `sections` is {requirement: section}."""

    def add(name: str, sentence: str, *needs: str, level: str = MUST) -> Callable[[Any], Any]:
        return requirement(name, sections[name], sentence, *needs, level=level)

    @add("slow_start.growth", "In slow start cwnd grows by no more than what was acknowledged.", "snd_ssthresh")
    def _slow_start(r: Trace) -> Found:
        where = r.is_call("cong_avoid") & (r.before["snd_cwnd"] < r.before["snd_ssthresh"])
        return at_most(where, r.after["snd_cwnd"], r.before["snd_cwnd"] + r.ack("arg"))

    @add("slow_start.doubles", "In slow start cwnd grows by no less than what was acknowledged, up to ssthresh.",
         "snd_ssthresh", level=SHOULD)  # fmt: skip
    def _doubles(r: Trace) -> Found:
        where = r.is_call("cong_avoid") & (r.before["snd_cwnd"] < r.before["snd_ssthresh"])
        where &= (r.ack("is_cwnd_limited") != 0) & (r.after["snd_ssthresh"] == r.before["snd_ssthresh"])
        grown = np.minimum(r.before["snd_cwnd"] + r.ack("arg"), r.before["snd_ssthresh"])
        return at_least(where, r.after["snd_cwnd"], grown)

    @add("window.limited", "cwnd does not grow while it does not limit the sender.", "snd_cwnd")
    def _limited(r: Trace) -> Found:
        where = r.is_call("cong_avoid") & (r.ack("is_cwnd_limited") == 0)
        where &= r.before["snd_cwnd"] >= r.before["snd_ssthresh"]
        return at_most(where, r.after["snd_cwnd"], r.before["snd_cwnd"])

    @add("slow_start.limited", "In slow start cwnd does not grow beyond twice the largest flight.", "snd_cwnd",
         level=SHOULD)  # fmt: skip
    def _unused(r: Trace) -> Found:
        cwnd = r.before["snd_cwnd"]
        where = r.is_call("cong_avoid") & (r.ack("is_cwnd_limited") == 0) & (cwnd < r.before["snd_ssthresh"])
        return at_most(where & (cwnd >= 2 * r.ack("max_packets_out")), r.after["snd_cwnd"], cwnd)

    @add("loss.floor", "ssthresh is at least two segments.", "o_ret")
    def _floor(r: Trace) -> Found:
        return at_least(r.is_call("ssthresh"), r.after["o_ret"], 2)

    @add("timeout.window", "After a timeout cwnd allows one segment.", "snd_cwnd")
    def _timeout(r: Trace) -> Found:
        where = r.is_call("set_state", CA_LOSS)
        return at_most(where, r.before["snd_cwnd"], r.inflight + 1)

    @add("recovery.window", "At the end of fast recovery cwnd is ssthresh.", "snd_ssthresh")
    def _after(r: Trace) -> Found:
        leaves = r.is_call("cwnd_event", EVENT_COMPLETE_CWR)  # as soon as the stack has set it
        undone = np.cumsum(r.is_call("undo_cwnd"))
        cut = last_true(r.is_call("ssthresh"), before=0)
        return equal(leaves & (undone == undone[cut]), r.before["snd_cwnd"], r.before["snd_ssthresh"])


def cut_to(requirement: Table, name: str, section: str, share: float, level: str) -> None:
    """Add that a loss leaves `share` of the window, rounded down, at least two segments."""

    @requirement(name, section, f"A loss sets ssthresh to {share:g} of the window.", level=level)
    def check(r: Trace) -> Found:
        expected = np.maximum(share * r.before["snd_cwnd"], 2)
        good = (r.after["o_ret"] <= expected * 1.002) & (r.after["o_ret"] > expected - 1)
        return all_of(r.is_call("ssthresh"), good, r.after["o_ret"], expected)
