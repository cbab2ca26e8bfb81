"""HyStart++: RFC 9406, checked on the window's growth in the first slow start, given the sender's RTTs.

The RFC's phases are computed from these RTTs, independently of the sender; then the growth in each phase is checked.
"""

import numpy as np

from cctrace.cc.base import Counterpart
from cctrace.columns import Values
from cctrace.conform import wire
from cctrace.conform.cases import Cases, Outcome, burst, counted
from cctrace.conform.requirements import SHOULD, Found, Spec, Table, all_of, at_least, at_most
from cctrace.conform.runner import Cell, Runner
from cctrace.conform.trace import Trace, once

CELLS = (Cell("20Mbit", "40ms"), Cell("50Mbit", "100ms"), Cell("100Mbit", "20ms"))
MIN_THRESH_US, MAX_THRESH_US, DIVISOR = 4_000, 16_000, 8  # MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR
SAMPLES = 8  # N_RTT_SAMPLE
CSS_DIVISOR, CSS_ROUNDS = 4, 5  # CSS_GROWTH_DIVISOR, CSS_ROUNDS
LOW_WINDOW = 16  # segments below which Linux does not look
BURST = 8  # L: segments by which an unpaced sender's window may grow at once
SLACK = 2.0  # segments of each stay in CSS: rounding, and the ACK with which it begins

SLOW_START, CONSERVATIVE, RESUMED, DONE = range(4)

requirement = Table()
case = Cases()
CASES = case.rows


@once
def _phases(r: Trace) -> Values:
    """Return the phase (-1: none) by section 4.2, from the RTT samples before each call, up to the first loss."""
    losses = np.flatnonzero(r.is_call("ssthresh"))
    end = int(losses[0]) if len(losses) else len(r)
    phase = np.full(len(r), -1)
    last, current, baseline = np.inf, np.inf, np.inf
    count, rounds, window_end, now = 0, 0, int(r.ack("snd_nxt")[0]), SLOW_START
    una, nxt, rtt = r.ack("snd_una"), r.ack("snd_nxt"), r.ack("rs_rtt_us")
    cwnd = r.before.get("snd_cwnd", r.inflight)  # of a capture, the flight
    sampled = r.is_call("pkts_acked") & (rtt > 0)
    for row in np.flatnonzero((sampled | r.is_call("cong_avoid"))[:end]):
        if una[row] > window_end:
            last, current, count, window_end = current, np.inf, 0, int(nxt[row])
            rounds += 1
            if now == CONSERVATIVE and rounds >= CSS_ROUNDS:
                now = DONE
        if sampled[row]:
            current, count = min(current, float(rtt[row])), count + 1
        if count >= SAMPLES and np.isfinite(last):
            thresh = max(MIN_THRESH_US, min(last / DIVISOR, MAX_THRESH_US))
            if now in (SLOW_START, RESUMED) and current >= last + thresh and cwnd[row] >= LOW_WINDOW:
                now, baseline, rounds = CONSERVATIVE, current, 0
            elif now == CONSERVATIVE and current < baseline:
                now = RESUMED
        phase[row] = now
    return phase


def _grown(r: Trace, states: tuple[int, ...]) -> tuple[Values, Values, Values]:
    """Return ACKs of some phases with cwnd as the limit, how much cwnd grew on each, and what was acknowledged."""
    where = r.is_call("cong_avoid") & np.isin(_phases(r), states) & (r.ack("is_cwnd_limited") != 0)
    return where, r.after["snd_cwnd"] - r.before["snd_cwnd"], r.ack("arg")


@requirement("growth.most", "4.2", "In slow start cwnd grows by no more than what was acknowledged.")
def _most(r: Trace) -> Found:
    where, grown, acked = _grown(r, (SLOW_START, RESUMED))
    return at_most(where, grown, acked)


@requirement("growth.least", "4.2", "Slow start continues until the minimum RTT of a round exceeds that of the round "
             "before by an eighth, at least 4 and at most 16 ms.", level=SHOULD)  # fmt: skip
def _least(r: Trace) -> Found:
    where, grown, acked = _grown(r, (SLOW_START,))
    return at_least(where, grown, np.minimum(acked, BURST))


def _in_css(r: Trace) -> tuple[Values, Values, Values, Values]:
    """Return the ACKs of CSS, growth and a quarter of what was acknowledged in all of it so far, and slack."""
    where, grown, acked = _grown(r, (CONSERVATIVE,))
    stays = np.cumsum(np.diff(_phases(r) == CONSERVATIVE, prepend=False) & (_phases(r) == CONSERVATIVE))
    quarter = np.where(where, acked, 0) / CSS_DIVISOR
    return where, np.cumsum(np.where(where, grown, 0)), np.cumsum(quarter), SLACK * np.maximum(stays, 1)


@requirement("css.most", "4.2", "In conservative slow start (CSS) cwnd grows by at most a quarter of what is "
             "acknowledged.")  # fmt: skip
def _css_most(r: Trace) -> Found:
    where, grown, quarter, slack = _in_css(r)
    return at_most(where, grown, quarter + slack)


@requirement("css.least", "4.2", "In CSS cwnd grows by at least a quarter of what is acknowledged while it limits the "
             "sender.", level=SHOULD)  # fmt: skip
def _css_least(r: Trace) -> Found:
    where, grown, quarter, slack = _in_css(r)
    return at_least(where, grown, quarter - slack)


@requirement("css.resume", "4.2", "Slow start resumes when the RTT of a round falls below that of the first round of "
             "CSS.", level=SHOULD)  # fmt: skip
def _resume(r: Trace) -> Found:
    where, grown, acked = _grown(r, (RESUMED,))
    return at_least(where, grown, np.minimum(acked, BURST))


@requirement("css.end", "4.2", "After five rounds of CSS congestion avoidance begins: ssthresh is cwnd.")
def _end(r: Trace) -> Found:
    where = r.is_call("cong_avoid") & (_phases(r) == DONE)
    return at_most(where, r.after["snd_ssthresh"], r.after["snd_cwnd"])


@requirement("first.only", "4.3", "Later slow starts end at ssthresh or with a loss, not with a longer RTT.",
             level=SHOULD)  # fmt: skip
def _first_only(r: Trace) -> Found:
    later = np.cumsum(r.is_call("ssthresh")) > 0
    where = later & (r.is_call("pkts_acked") | r.is_call("cong_avoid"))
    good = r.after["snd_ssthresh"] >= r.before["snd_ssthresh"]
    return all_of(where, good, r.after["snd_ssthresh"], r.before["snd_ssthresh"])


def of_the_wire() -> Table:
    """Return what the wire shows of slow start."""
    on_wire = Table()
    wire.growth(on_wire, "4.2", 2.0)

    @on_wire("wire.css", "4.2", "From two rounds after the RTT grew, the flight grows by a quarter a round at most.")
    def _wire_css(r: Trace) -> Found:
        phase = _phases(r)
        rows = np.flatnonzero(phase >= 0)
        inside = phase[rows] == CONSERVATIVE
        entry = np.maximum.accumulate(np.where(inside & np.diff(inside, prepend=False), rows, 0))
        # A round ago what is acknowledged now was sent; paced data take another round to fill the window.
        sent = np.searchsorted(np.maximum.accumulate(r.ack("snd_nxt")), r.ack("snd_una"))
        where = np.zeros(len(r), bool)
        where[rows] = inside & (sent[sent[rows]] >= entry)
        widest = np.maximum.accumulate(r.inflight)[sent]
        return at_most(where, r.inflight, (1 + 1 / CSS_DIVISOR) * widest + wire.BURST)

    return on_wire


@case("H.1", "Slow start fills a queue")
def _fills(runner: Runner) -> Outcome:
    """A queue of eight BDPs, which slow start fills."""
    buffer = int(8 * runner.cell.rate_bps / 8 * runner.cell.rtt_s)
    r = runner.trace(60 * runner.cell.rtt_s, path={"buffer": f"{buffer}B"})
    return counted(r, _phases(r) == CONSERVATIVE)


@case("H.2", "A longer RTT for a moment")
def _doubt(runner: Runner) -> Outcome:
    """The RTT is longer by a half for one round trip and a half, before the path is full."""
    rtt = runner.cell.rtt_s
    steps = [
        (0, runner.cell.rtt),
        (round(3.2 * rtt, 6), f"{1.5e6 * rtt:.0f}us"),
        (round(4.7 * rtt, 6), runner.cell.rtt),
    ]
    r = runner.trace(60 * rtt, path={"rtt": steps})
    return counted(r, _phases(r) == RESUMED)


@case("H.3", "Slow start after a timeout")
def _timeout(runner: Runner) -> Outcome:
    """An outage ends in slow start a second time, to half of the path: the queue is empty, and the RTT varies."""
    lost = burst(runner, 1.0, "100%", 1.0 / runner.cell.rtt_s)
    r = runner.trace(6.0, path={"loss": lost, "jitter": f"normal:sd={runner.cell.rtt_s * 0.1e6:.0f}us"})
    return counted(r, r.is_call("ssthresh"))


_OF_LINUX = (
    Counterpart("what else ends slow start", "nothing",
                "a train of ACKs as long as the least RTT; RTTs above the least so far", "4.2", "hystart_update",
                ("growth.least",)),
    Counterpart("after the RTT grew", "a quarter of slow start's growth for five rounds, or slow start again",
                "congestion avoidance", "4.2", "hystart_update", ("css.least", "css.resume")),
    Counterpart("later slow starts", "as ssthresh has it", "HyStart in each", "4.3", "bictcp_state", ("first.only",)),
)  # fmt: skip

SPEC = Spec("hystart", "HyStart++ (RFC 9406)", tuple(requirement.rows), ("cubic", "cubic6"),
            tuple(of_the_wire().rows), {"cubic": _OF_LINUX, "cubic6": _OF_LINUX}, cells=CELLS, cases=CASES)  # fmt: skip
