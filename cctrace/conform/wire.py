"""Wire-level trace of a sender from a capture: flights, deliveries and losses, from the re-enactment of its TCP.

The window itself is not on the wire, so these requirements are bounds that no conforming sender can exceed. A
verdict *conforms* means that nothing contradicts it, not that the sender's state was right.
"""

from functools import partial

import numpy as np

from cctrace import schema
from cctrace.cc.base import LinuxController
from cctrace.cc.linux import CA_LOSS, CA_OPEN, CA_RECOVERY
from cctrace.columns import Values, runs_of_true
from cctrace.conform.requirements import SHOULD, Found, Table, all_of, at_most, of_parts
from cctrace.conform.trace import State, Trace
from cctrace.flows.flow import Flow
from cctrace.flows.views import View

MIN_FLIGHT = 12  # segments from which a reduction of the flight can be distinguished from its ripple
BURST = 20  # segments that a stack hands over at once
MIN_S = 6.0  # a flow long enough for ProbeRTT


def trace_of_flow(flow: Flow) -> Trace:
    """Return the `Trace` of a recorded flow: the state of its TCP, but not of its controller, whichever that is."""
    events = flow.events
    names = set(schema.names(schema.LINUX_VIEW)) & set(schema.names(schema.EVENTS))
    columns = {name: events[name].astype(np.int64) for name in names}
    columns["now_us"] = events.now_us
    view = View("linux", events["event"], columns, time_ns=events["time_ns"])
    return Trace(LinuxController, view, State(), State(), {"mss": float(events.meta["mss"])}, flow)


def _rtt_before(r: Trace, window_us: Values) -> Values:
    """Return, for each row, the first row no older than `window_us`."""
    now = r.ack("now_us")
    return np.searchsorted(now, now - window_us)


def _srtt_us(r: Trace) -> Values:
    return np.maximum(r.ack("srtt_us8") / 8, 1000.0)


def recoveries(r: Trace) -> list[tuple[int, Values]]:
    """Return (row of the reduction, rows in recovery) of fast recoveries that no timeout and no undo cut short."""
    inside = r.ack("ca_state") == CA_RECOVERY
    cuts = np.flatnonzero(r.is_call("ssthresh") & (r.ack("ca_state") < CA_RECOVERY))
    found = []
    for place, cut in enumerate(cuts):
        end = int(cuts[place + 1]) if place + 1 < len(cuts) else len(r)
        rows = cut + np.flatnonzero(inside[cut:end])
        broken = r.is_call("undo_cwnd")[cut:end].any() or (r.ack("ca_state")[cut:end] == CA_LOSS).any()
        if len(rows) and not broken:
            found.append((int(cut), rows))
    return found


def lost_between_acks(r: Trace) -> Values:
    """Return how many segments were marked lost so far by no ACK that delivers: by RACK's timer, or by a duplicate.

    Such a loss leaves cwnd as the last ACK set it [RFC 6937bis] 6.2, [Linux61] tcp_rack_reo_timeout: it makes room in
    the flight for as many retransmissions, which no delivery allows.
    """
    acked = np.flatnonzero(r.is_call("pkts_acked"))
    delivers = acked[np.diff(r.ack("delivered")[acked], prepend=0) > 0]
    marks = r.is_call("skb_marked_lost") & ~np.isin(r.ack("now_us"), r.ack("now_us")[delivers])
    return np.cumsum(np.where(marks, np.diff(r.ack("lost"), prepend=0), 0))


def bounded(r: Trace) -> Found:
    """Return whether recoveries sent at most twice what was delivered, what a timer found lost, and a few segments."""
    out, allowed = r.ack("data_segs_out"), 2 * r.ack("delivered") + lost_between_acks(r)
    parts = ((rows, out[rows] - out[cut], allowed[rows] - allowed[cut] + 5) for cut, rows in recoveries(r))
    return at_most(*of_parts(len(r), parts))


def reduced(r: Trace, share: float) -> Found:
    """Return whether the flight in the round trip after a recovery is at most `share` of the flight before it."""
    flight = r.inflight + r.ack("rs_losses")
    start = _rtt_before(r, _srtt_us(r))
    checked = 0
    for cut, inside in recoveries(r):
        last = int(inside[-1])
        before = float(flight[start[cut] : cut + 1].max())
        end = int(np.searchsorted(r.ack("now_us"), r.ack("now_us")[last] + _srtt_us(r)[last]))
        rows = np.arange(last + 1, min(end, len(r)))
        rows = rows[r.ack("ca_state")[rows] == CA_OPEN]
        if before < MIN_FLIGHT or len(rows) < 2 or r.is_call("ssthresh")[rows].any():
            continue
        if (r.ack("rs_is_app_limited")[start[cut] : cut + 1] != 0).any():
            continue  # the window was larger than the flight, and may be so even when reduced
        checked += 1
        bound = share * before * 1.1 + 4  # a segment or two of growth, and a burst of two on its way
        if flight[rows].max() > bound:
            return Found(checked, int(rows[flight[rows].argmax()]), f"{flight[rows].max()} of {before:.0f} segments",
                         f"at most {bound:.0f}")  # fmt: skip
    return Found(checked)


def grown(r: Trace, factor: float) -> Found:
    """Return whether the flight before the first loss grew at most by a factor per round trip."""
    first = np.flatnonzero(r.is_call("ssthresh") | r.is_call("skb_marked_lost"))
    end = int(first[0]) if len(first) else len(r)
    start = _rtt_before(r, _srtt_us(r) * 0.95)
    rows = np.arange(end)
    least = np.maximum(np.maximum.accumulate(r.inflight)[start[:end]], 10)
    where = np.zeros(len(r), bool)
    where[rows] = r.acks[rows] & (r.ack("now_us")[rows] > r.ack("now_us")[0] + 2 * _srtt_us(r)[rows])
    bound = np.full(len(r), np.inf)
    bound[:end] = factor * least + BURST
    return at_most(where, r.inflight, bound)


def growth(requirement: Table, section: str, factor: float) -> None:
    """Add to a table what the wire shows of growth before the first loss."""
    sentence = f"Before the first loss the flight grows at most {factor:g}-fold a round."
    requirement("wire.growth", section, sentence)(partial(grown, factor=factor))


def of_windows(requirement: Table, share: float, sections: tuple[str, str]) -> None:
    """Add to a table what the wire shows of a window-based sender: recovery, growth, and reduction to `share`."""
    sentence = "A recovery sends at most twice the data that it delivers."
    requirement("wire.recovery", "RFC 6937bis 6.2", sentence)(bounded)
    growth(requirement, sections[0], 2.0)
    sentence = f"After a recovery the flight is {share:g} of that before, at most."
    requirement("wire.reduction", sections[1], sentence)(partial(reduced, share=share))


def _filled_row(r: Trace) -> int:
    """Return the first row by which the delivery rate has settled for long: Startup is over."""
    best = np.maximum.accumulate(r.delivery_rate)
    if not len(best) or best[-1] <= 0:
        return len(r)
    early = min(len(best) - 1, int(np.searchsorted(r.time_s, 4.0)))
    reached = int(np.argmax(best >= 0.8 * best[early]))
    return int(np.searchsorted(r.time_s, r.time_s[reached] + 12 * _srtt_us(r)[reached] / 1e6))


def _is_bulk(r: Trace, first: int) -> bool:
    """Whether few samples from a row on are app-limited; otherwise the end of Startup is unknown."""
    return first < len(r) and bool((r.ack("rs_is_app_limited")[first:] != 0).mean() < 0.1)


def paced(r: Trace, gain: float) -> Found:
    """Return whether no round trip after Startup sent at more than `gain` times the best rate of the last 8 s."""
    start, first = _rtt_before(r, _srtt_us(r)), _filled_row(r)
    now = r.ack("now_us")
    span = np.maximum(now - now[start], 1)
    sent = r.ack("data_segs_out") - r.ack("data_segs_out")[start]
    best = np.maximum.accumulate(r.delivery_rate)
    where = r.acks & (np.arange(len(r)) > first) & (span > 0.8 * _srtt_us(r)) & _is_bulk(r, first)
    bound = gain * best * span / 1e6 / r.mss + BURST
    return at_most(where, sent, bound)


def _dips(r: Trace) -> tuple[Values, Values]:
    """Return when (s) each stay of the flight at half a BDP or less began, and whether it lasted 150 ms."""
    rate = np.maximum.accumulate(r.delivery_rate)
    least = np.minimum.accumulate(np.where(r.ack("rs_rtt_us") > 0, r.ack("rs_rtt_us"), np.iinfo(np.int64).max))
    half = np.maximum(0.6 * rate * np.minimum(least, 10**9) / (1e6 * r.mss), 4.0) + 1
    low = (r.inflight <= half) & r.acks
    acks = np.flatnonzero(r.acks)
    first, behind = runs_of_true(low[acks])
    begins, ends = acks[first], acks[behind - 1]
    return r.time_s[begins], r.time_s[ends] - r.time_s[begins] >= 0.15


def dips(r: Trace) -> Found:
    """Return whether the flight falls to half a BDP within 7 s of the last time, of a flow that is always sending."""
    first = _filled_row(r)
    if (
        first >= len(r)
        or r.time_s[-1] - r.time_s[first] < MIN_S + 2
        or (r.ack("rs_is_app_limited")[first:] != 0).mean() > 0.1
    ):
        return Found(0)
    rtt = np.where(r.ack("rs_rtt_us") > 0, r.ack("rs_rtt_us"), np.iinfo(np.int64).max)
    lower = np.concatenate([[True], rtt[1:] < np.minimum.accumulate(rtt)[:-1]])
    begins, long = _dips(r)
    times = np.unique(np.concatenate([r.time_s[lower], begins[long], [r.time_s[first]]]))
    times = times[times >= r.time_s[first]]
    gaps = np.diff(np.append(times, r.time_s[-1]))
    worst = int(np.argmax(gaps))
    if gaps[worst] > 7.0:
        row = int(np.searchsorted(r.time_s, times[worst] + 7.0))
        return Found(len(gaps), min(row, len(r) - 1), f"none for {gaps[worst]:.1f} s", "a dip of 200 ms to half a BDP")
    return Found(len(gaps))


def of_bbr() -> Table:
    """Return what the wire shows of BBR."""
    requirement = Table()
    # The draft keeps no packets in recovery (5.6.4.4 saves and restores cwnd): after a pause all of cwnd may leave.
    growth(requirement, "5.3.1.1", 3.0)

    sentence = "After Startup no round trip sends at more than 1.25 times the best rate."
    requirement("wire.pacing", "5.6.2", sentence)(partial(paced, gain=1.25 * 1.1))
    sentence = "Without a lower RTT the flight falls to half a BDP every 5 s."
    requirement("wire.probe_rtt", "5.3.4.3", sentence, level=SHOULD)(dips)

    @requirement("wire.window", "5.6.4.2", "After Startup the flight stays within 2.25 BDP, aggregation and offload.")
    def _window(r: Trace) -> Found:
        first = _filled_row(r)
        rate = np.maximum.accumulate(r.delivery_rate)
        rtt = np.where(r.ack("rs_rtt_us") > 0, r.ack("rs_rtt_us"), 10**9)
        # The minimum RTT of the last 10 s may be above that of the entire flow: the latest RTT counts, too.
        bound = 2.25 * rate * np.maximum(np.minimum.accumulate(rtt), _srtt_us(r)) / (1e6 * r.mss)
        where = r.acks & (np.arange(len(r)) > first) & _is_bulk(r, first)
        return all_of(where, r.inflight <= 1.1 * bound + 3 * BURST, r.inflight, bound, "at most")

    return requirement
