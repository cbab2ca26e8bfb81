"""Data in flight and data sent per half round trip, the basis of flights and phases.

A block is half a round trip, and at least MIN_SENT segments. Where departure times are estimates (captures not
taken at the sender), single sends are uninformative, but blocks still show what limited the sender.
"""

import functools
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cctrace.cc.linux import CA_DISORDER
from cctrace.columns import Bools, Floats, Ints, Values, last_true
from cctrace.flows.events import Events
from cctrace.identification import constants as const
from cctrace.replaying.engine.midflow import HELD_US, RECOVERED
from cctrace.replaying.intervals import firsts_of_intervals
from cctrace.schema import LINUX_EVENTS
from cctrace.tcp.pacing import TSO_WIN_DIVISOR


class HalfRounds:
    """What was sent in each half round trip.

    Attributes per ACK: `acks` (their rows), `time_us`, `rtt_us` (smoothed), `flight` (data in flight before it) and
    `sent_so_far`, in segments; `outside_recovery`, `not_cwnd_limited` (something else limited an unpaced sender) and
    `idle` (the application had no more data).

    Per block, whose boundaries are `edges` (numbers of ACKs): `sent` and `acked` segments, `busy` (the application
    always had more data). Of the flow: `reductions` (rows of the calls that start a recovery), `burst` (segments of the
    super-packet to which half of the data belong, or longer ones; 1 in a capture not taken at the sender, in which they
    have come apart) and, of such captures, `held_back` (whether something other than cwnd mostly limited the sender),
    `steady` (whether that was a fixed window or a pacing limit, which hide what a controller would do otherwise),
    `policed` (whether bursts were lost without a queue) and `jitter` (relative error of the flight due to it: half of
    it at each end of an RTT).
    """

    def __init__(self, events: Events) -> None:
        sends = events.sends
        self.mss = max(events.meta["mss"], 1)
        self.acks = np.flatnonzero(events["event"] == LINUX_EVENTS["on_ack"])
        self.time_us = events.at("time_ns", self.acks) / 1e3
        self.flight = events.at("rs_prior_in_flight", self.acks).astype(float)
        self.outside_recovery = events.at("ca_state", self.acks) <= CA_DISORDER
        self.not_cwnd_limited = events.at("is_cwnd_limited", self.acks) == 0
        self.rtt_us = events.at("srtt_us8", self.acks) / 8
        reduces = (events["event"] == LINUX_EVENTS["ssthresh"]) & (events["ca_state"] <= CA_DISORDER)
        self.reductions = np.flatnonzero(reduces)
        self.idle = np.zeros(len(self.acks), bool)
        waited = sends["row"][sends["app_limited"] != 0]
        if len(self.acks):
            self.idle[np.minimum(np.searchsorted(self.acks, waited), len(self.acks) - 1)] = True
        # What was lost before the capture was sent, too: it shows as a hole in the sequence numbers.
        self.sent_so_far = events.at("data_segs_out", self.acks).astype(float)
        captured = np.concatenate([[0], np.cumsum(sends["segments"].astype(np.int64))])
        captured = captured[np.searchsorted(sends["row"], self.acks, side="right")]
        # The first ACK after each write's last segment, which is short and empties the queue.
        ended = np.searchsorted(self.acks, sends["row"][sends["ends_write"] != 0])
        self.ended = np.unique(ended[ended < len(self.acks)])
        self.edges = self._edges(events)
        self.sent = np.diff(self.sent_so_far[self.edges])
        self.acked = np.diff(events.at("delivered", self.acks)[self.edges].astype(float))
        paused = np.append(self.block_means(self.idle) > 0, [False] * 2)
        self.busy = ~(paused[:-2] | paused[1:-1] | paused[2:])[: len(self)]
        self.elsewhere = elsewhere = "start_ns" in events.meta["inferred"]
        self.steady = elsewhere and self._is_steady(captured, events.at("tcp_min_rtt_us", self.acks))
        self.not_cwnd_limited |= self.steady
        held = self.not_cwnd_limited
        self.held_back = elsewhere and held.size > 0 and bool(np.mean(held) > const.PREDOMINANT_SHARE)
        self.policed = elsewhere and self._is_policed(captured, events.at("tcp_min_rtt_us", self.acks))
        self.burst = 1.0 if elsewhere else _burst(sends)
        rtts_us = events.at("rs_rtt_us", self.acks)
        self.jitter = max(2 * _jitter(rtts_us), self._unevenness(events)) if elsewhere else 0.0

    def __len__(self) -> int:
        return len(self.sent)

    def _is_steady(self, captured: Ints, min_rtt_us: Values) -> bool:
        """Whether a fixed window or rate limited the sender all the time: nothing reduced it, and nothing grew.

        At a rate that SO_MAX_PACING_RATE prescribes no queue builds up, and no round trip exceeds it: without such a
        limit a BBR begins with 2.77 times its rate, and slow start doubles the rate until there is a queue.
        `captured`: segments until each ACK, without those lost before the capture, as a short queue loses of a burst.
        """
        if len(self) < const.STEADY_BLOCKS:
            return False
        tenth, middle = np.quantile(self.flights, [0.1, 0.5])
        most = self.flight.max()
        if not len(self.reductions) and tenth > const.PREDOMINANT_SHARE * most and middle > const.REDUCED_CWND * most:
            return True
        # The first burst may overflow a queue.
        started = self.acks[self.edges[len(self) // const.START_SHARE]]
        rates = self.rates(captured)
        usual = np.median(rates)
        is_full_rate = np.mean(rates > (1 - const.PROBE_SEEN) * usual) > const.PREDOMINANT_SHARE
        exceeded = rates.max() > (1 + const.PROBE_SEEN) * usual
        queued = np.median(self.rtt_us) > const.QUEUED_RTTS * min_rtt_us.min()
        return bool(is_full_rate and np.all(self.reductions < started) and not exceeded and not queued)

    def rates(self, was_sent: Values) -> Floats:
        """Return the rate of each round trip (two blocks), segments/us, from what `was_sent` until each ACK."""
        begins, ends = self.edges[:-2], self.edges[2:]
        return np.asarray((was_sent[ends] - was_sent[begins]) / (self.time_us[ends] - self.time_us[begins]))

    def _is_policed(self, captured: Ints, min_rtt_us: Values) -> bool:
        """Whether a policer lost what bursts left before the capture: the excess of probes, without a queue.

        Random losses are single ones. What was in flight with those of a burst is known to their sender only.
        """
        late = slice(len(self) // const.START_SHARE, None)  # slow start overflows any queue
        unseen, sent = np.diff((self.sent_so_far - captured)[self.edges])[late], self.sent[late]
        first = np.searchsorted(self.acks, self.reductions)
        first = first[first < len(self.acks)]
        if len(first) < const.MIN_OBSERVATIONS:
            return False
        queued = np.median(self.rtt_us[first] / min_rtt_us[first]) > const.QUEUED_RTTS
        return bool(not queued and 2 * unseen[unseen > const.PROBE_SEEN * sent].sum() > unseen.sum())

    def _edges(self, events: Events) -> Ints:
        if len(self.acks) < 2:
            return np.zeros(len(self.acks), np.int64)
        half_us = max(float(np.median(events.at("srtt_us8", self.acks))) / 16, 10 * const.STAMP_ERROR_US)
        edges = [0]
        for place in firsts_of_intervals(self.time_us, half_us).tolist():
            if self.sent_so_far[place] - self.sent_so_far[edges[-1]] >= const.MIN_SENT:
                edges.append(place)
        return np.array(edges)

    def _unevenness(self, events: Events) -> float:
        """Return the typical relative difference of an RTT to those half a round trip before and after.

        Where jitter keeps the order of packets, they wait for each other: neighbours have nearly the same RTT.
        """
        rtt_us = events.at("rs_rtt_us", self.acks[self.edges]).astype(float)
        rtt_us = rtt_us[rtt_us > 0]
        if len(rtt_us) < const.SMOOTHED_RTTS:
            return 0.0
        around = (rtt_us[2:] + rtt_us[:-2]) / 2
        return float(np.median(np.abs(rtt_us[1:-1] / around - 1)))

    def block_means(self, values: Values) -> Floats:
        """Return the mean of per-ACK values over each block."""
        if len(self.edges) < 2:
            return np.zeros(0)
        sums = np.add.reduceat(values[: self.edges[-1] + 1].astype(float), self.edges[:-1] + 1)
        return sums / np.diff(self.edges)

    def block_maxima(self, values: Values, blocks: int = 1) -> Floats:
        """Return at each ACK the maximum over its block or, with ``blocks=2``, over that and the previous one."""
        begins = np.unique(np.append(0, self.edges[:-1]))
        most = np.maximum.reduceat(values, begins)
        if blocks == 2:
            most = np.maximum(most, np.append(-np.inf, most[:-1]))
        return np.repeat(most, np.diff(np.append(begins, len(values))))

    @functools.cached_property
    def open_share(self) -> Floats:
        """The share of each block's ACKs that found no recovery."""
        return self.block_means(self.outside_recovery)

    def excess(self, cwnd: Floats, pacing_Bps: Floats, overhead_bytes: int) -> Floats:
        """Return the relative excess of each block over what a window and a rate allowed (below 0: it fell short).

        Both are given after each row of the stream; the rate is of segments with so many bytes of headers.
        """
        before = np.maximum(self.acks - 1, 0)
        window = self.block_means(_beyond(self.flight, cwnd[before], const.ONE_SEGMENT))
        rate = pacing_Bps[before]
        if not np.any(rate > 0):
            excused = self.block_means(self.not_cwnd_limited | self.unfilled(cwnd[before])) > 0.5
            return np.where(excused, np.maximum(window, 0), window)
        bytes_each = self.mss + overhead_bytes
        paced = np.cumsum(rate * np.diff(self.time_us, prepend=self.time_us[:1]) * 1e-6 / bytes_each)
        # An edge of a block falls within a super-packet, half of which was sent by then.
        over = np.maximum(_beyond(self.sent, np.diff(paced[self.edges]), self.burst / 2), window)
        return np.where(self.steady | (self.elsewhere & self.ran_out), np.maximum(over, 0), over)

    @functools.cached_property
    def flights(self) -> Floats:
        """The mean flight of each block, segments."""
        return self.block_means(self.flight)

    @functools.cached_property
    def epochs(self) -> list[Ints]:
        """The blocks without recovery between successive reductions, from the first one on."""
        first = np.searchsorted(self.acks, self.reductions)
        following = np.append(first, len(self.acks))[1:]
        whole = self.open_share == 1
        return [
            np.flatnonzero((self.edges[:-1] >= begin) & (self.edges[1:] <= end) & whole)
            for begin, end in zip(first, following, strict=True)
        ]

    @functools.cached_property
    def start(self) -> Ints:
        """The blocks without recovery from the end of the start on, until the first reduction."""
        first = np.searchsorted(self.acks, self.reductions[0]) if len(self.reductions) else len(self.acks)
        begins = np.arange(len(self)) >= len(self) // const.START_SHARE
        return np.flatnonzero(begins & (self.edges[1:] <= first) & (self.open_share == 1))

    @functools.cached_property
    def grows_at_start(self) -> bool:
        """Whether flights rise as cwnd does in congestion avoidance before anything has reduced it."""
        some = self.start[self.busy[self.start] & (self.block_means(self.not_cwnd_limited)[self.start] < 0.5)]
        return len(some) >= const.FULL_WEIGHT and _grows(self.flights[some], self.jitter)

    @functools.cached_property
    def growing_periods(self) -> tuple[int, float]:
        """How many periods between reductions are long enough to judge, and the share of all in which a window grows.

        Between reductions a window never falls, and grows all the time, also from the start to the first one. A BBR's
        flight falls after each probe, even while a queue of its own makes it rise; if every probe ends with a loss, it
        stays the same until the next one, where it jumps (v1) or rises (v2, v3): it has not risen by the middle of the
        period, or within a round trip, and stays at one level for most of it.
        """
        falls = self._falls()  # reductions without losses, as CDG's and YeAH's
        epochs = blocks = growing = 0
        periods = (self.start, *self.epochs) if len(self.start) >= const.FULL_WEIGHT else self.epochs
        for epoch in periods:
            cuts = np.flatnonzero(np.isin(epoch[1:-1], falls)) + 1  # at either end, a fall is the reduction's
            for inside in np.split(epoch, cuts):
                blocks += len(inside)
                if (
                    len(inside) >= const.MIN_FOR_PATTERN
                ):  # a v1 that overflows its queue in each probe has few longer ones
                    epochs += 1
                    growing += len(inside) * _grows(self.flights[inside], self.jitter)
        return epochs, growing / max(blocks, 1)

    def _falls(self) -> Ints:
        """Return the blocks at which the flight has fallen to a lower level, within a round trip.

        A BBR drains its queue for longer; after PROBE_RTT, its flight is back.
        """
        flight, jitter, segment = self.flights, self.jitter, const.ONE_SEGMENT
        time_us = self.time_us[self.edges]
        held_us = HELD_US + 2 * np.median(self.rtt_us)
        found: list[int] = []
        for k in range(1, len(flight) - 3):
            low = k + 1 + int(np.argmin(flight[k + 1 : k + 4]))  # a round trip of two blocks begins within one
            level = flight[low]
            if (
                level > (const.REDUCED_CWND - jitter) * flight[k] - segment
                or flight[k] < (1 - jitter) * flight[k - 1] - segment
            ):
                continue
            later = flight[low + 1 : int(np.searchsorted(time_us, time_us[low] + held_us)) + 1]
            goes_on = later[:2].min(initial=np.inf) < (1 - 2 * const.STILL_SHARE - jitter) * level - segment
            if not goes_on and later.max(initial=0.0) < RECOVERED * level:
                found.append(low)
        return np.array(found, np.int64)

    @functools.cached_property
    def limited(self) -> Bools:
        """Before which ACKs the sender was cwnd-limited, outside recovery."""
        open_twice = self.outside_recovery.copy()
        open_twice[1:] &= self.outside_recovery[:-1]
        return open_twice & ~self.not_cwnd_limited & ~self._drains

    def unfilled(self, window: Floats) -> Bools:
        """Return before which ACKs too little had left since the last pause to fill a window, segments at each ACK.

        An application that writes less than a window at a time leaves it so, while a timer spreads its segments.
        """
        last = last_true(self._drains, before=0)
        return self.flight[last] + self.sent_so_far - self.sent_so_far[last] < window

    @functools.cached_property
    def ran_out(self) -> Bools:
        """In which blocks the sender had nothing more to send for a while: they show no probe for bandwidth."""
        return self.block_means(self._drains) > 0

    @functools.cached_property
    def _drains(self) -> Bools:
        """Which ACKs found nothing more to send: the last send precedes them, a write's last segment ended it
        before or ends it after them, or a pause follows.

        Data that waits for cwnd alone leaves within a round trip of ACKs, before a third of cwnd is free.
        """
        begins = self.follows_send()
        begins[:1] = True
        number = np.cumsum(begins) - 1
        since_us = self.time_us[begins]
        ends = np.append(begins[1:], True)
        fallen = (self.flight[begins] - self.flight[ends]) * TSO_WIN_DIVISOR > self.flight[begins]
        pauses = fallen | np.append(np.diff(since_us) > self.rtt_us[begins][:-1], True)
        pauses[number[np.maximum(np.flatnonzero(self.idle) - 1, 0)]] = True
        # A single segment: cwnd would have let it out, too, before.
        alone = self.ended[np.diff(self.sent_so_far, prepend=0)[self.ended] == 1]
        pauses[number[self.ended]] = True
        pauses[np.maximum(number[alone] - 1, 0)] = True
        return pauses[number]

    def fullest(self) -> Bools:
        """Return which ACKs found the largest flight of their half round trip."""
        return self.flight >= self.block_maxima(self.flight)

    def follows_send(self) -> Bools:
        """Return which ACKs are the first after a send."""
        return np.diff(self.sent_so_far, prepend=0) > 0

    def held_from(self) -> int | None:
        """Return the row from which a fixed amount of data in flight limited the sender; None if there is none.

        A send buffer stops the growth of the window, within the first quarter, at an amount that is kept from then
        on, or until a loss: hardly anything exceeds it, it grows more slowly than any congestion window, and
        before each write, mostly once per round trip, it falls by up to a third, when the kernel wakes the application
        ([Linux618] net/core/stream.c sk_stream_write_space). It counts the memory of super-packets, which differ,
        so it may limit the sender from half of this amount on; later rows are not informative about the controller.
        An application that pauses most of the time leaves no such amount.
        """
        if len(self) < const.FULL_WEIGHT or 2 * np.count_nonzero(self.busy) < len(self):
            return None
        early = len(self) // 4
        reduced = np.searchsorted(self.acks, self.reductions)
        after = np.searchsorted(reduced, self.edges[early])
        last = int(reduced[after - 1]) if after else 0
        end = int(np.searchsorted(self.edges, reduced[after])) - 1 if after < len(reduced) else len(self)
        if end - early < const.FULL_WEIGHT:
            return None
        # Within a round trip, of two blocks. Bursts of short super-packets may exceed the amount, as after PROBE_RTT.
        some = self.edges[early + 1 : end + 1]
        filled, emptied = (sign * self.block_maxima(sign * self.flight, blocks=2)[some] for sign in (1, -1))
        amount = np.quantile(filled, 1 - const.STRAY_SHARE)
        first, _, third = np.array_split(filled, 3)
        grown = np.median(third) - np.median(first)
        slow_start = self.flight[0] <= amount / 2
        share = np.mean(np.abs(filled / amount - 1) <= const.WINDOW_HOLDS + 1 / amount)
        woken = np.median(emptied) < const.PREDOMINANT_SHARE * amount - 2 * const.ONE_SEGMENT
        is_growing = grown >= const.HELD_GROWTH * len(filled) / 3
        if not (slow_start and woken) or share < const.PREDOMINANT_SHARE or is_growing:
            return None
        return int(self.acks[last + np.argmax(self.flight[last:] >= amount / 2)])


def _beyond(seen: Floats, allowed: Floats, slack: float) -> Floats:
    """Return the difference of two numbers of segments beyond some slack, relative to the larger one."""
    apart = seen - allowed
    return np.sign(apart) * np.maximum(np.abs(apart) - slack, 0) / np.maximum(np.maximum(seen, allowed), 1)


def _grows(flight: Floats, jitter: float) -> bool:
    """Whether the flights of one period between losses are those of a growing window."""
    if _rises(flight, jitter)[0]:
        return True
    each = min(
        int((jitter / const.FINEST_SCALE) ** 2), len(flight) // const.MIN_FOR_PATTERN
    )  # blocks that average jitter out
    if each < 2:
        return False
    means = [float(part.mean()) for part in np.array_split(flight, len(flight) // each)]
    return _rises(np.array(means), jitter / math.sqrt(each))[1]


def _rises(flight: Floats, jitter: float) -> tuple[bool, bool]:
    """Whether a flight of one period rises, as a window does, and whether all the time, at no level for long."""
    flight = flight[1:-1]  # at either end, a fall may be the reduction's
    # Between the largest flight until then and the smallest one later.
    level = (np.maximum.accumulate(flight) + np.minimum.accumulate(flight[::-1])[::-1]) / 2
    rise, off = level[-1] - level[0], np.mean(np.abs(flight - level))
    falls = -np.diff(flight)
    fell = falls[falls > (const.STILL_SHARE + jitter) * flight[1:] + const.ONE_SEGMENT].sum()
    if rise <= max(const.RISE_SEGMENTS, 2 * fell) or off >= const.UNSTEADY_SHARE * rise:
        return False, False
    early = level[len(level) // 2] - level[0] > const.GROWING_SHARE * rise
    gradual = np.max(level[2:] - level[:-2]) < rise / 2  # two blocks are a round trip
    stays = np.searchsorted(level, level + const.SAME_LEVEL * rise, side="right") - np.arange(len(level))
    longest = float(np.max(stays)) / len(level)
    always = longest < const.GROWING_SHARE
    return bool(early and gradual and longest < 1 - const.GROWING_SHARE) or always, always


def _burst(sends: Values) -> float:
    begins = np.flatnonzero(sends["begins"] != 0)
    if not len(begins):
        return 1.0
    lengths = np.sort(np.add.reduceat(sends["segments"].astype(float), begins))
    return max(float(lengths[np.searchsorted(np.cumsum(lengths), lengths.sum() / 2)]), 1.0)


def _jitter(rtt_us: Values) -> float:
    """Return the typical relative difference of the RTTs of ACKs to their neighbours."""
    rtt_us = rtt_us[rtt_us > 0].astype(float)
    if len(rtt_us) < const.SMOOTHED_RTTS:
        return 0.0
    around = np.median(sliding_window_view(rtt_us, const.SMOOTHED_RTTS), axis=1)
    edge = const.SMOOTHED_RTTS // 2
    return float(np.median(np.abs(rtt_us[edge : edge + len(around)] / around - 1)))
