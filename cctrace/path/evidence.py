"""Path properties inferred from a flow's packets, each computed once, on first use.

    path = evidence_of(flow)
    path.transmissions      the fate of every packet
    path.bottleneck         rate, base RTT and the flow's own queue
    path.traffic            the same as accurately as fits need: rate over time, all flows that share the queue

Diagnosis, fits, what-ifs and the report share one `PathEvidence` per flow. `coarse` and everything derived from it
(`bottleneck`, `delivered`, `uncongested` and so on) merge neighbouring packets, which suffices for a diagnosis and
takes a fraction of the time; `traffic` and everything derived from it (`route`, `shaper`, `delays`) use every packet.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.columns import LONG, Bools, Floats
from cctrace.errors import FitError
from cctrace.path import own_queue
from cctrace.path.acks import Acks, acks_of
from cctrace.path.arrays import in_order
from cctrace.path.bottleneck import constant_rate, served_packets
from cctrace.path.buckets import Bucket, policer_of
from cctrace.path.changes import Change, rate_changes, variation
from cctrace.path.constants import ENOUGH_RTTS, LEAST_RTTS
from cctrace.path.delays import Delays, delays_of
from cctrace.path.losses import Backlogs, backlogs_of
from cctrace.path.neighbours import SharedQueue, companions_of, neighbours, sent_packets_by_flow, shared_queue
from cctrace.path.queue import Steps
from cctrace.path.route import Traffic, traffic_through_bottleneck
from cctrace.path.sent import SentPackets
from cctrace.path.shapers import packet_bucket, shaper_of
from cctrace.path.steps import jumps, rate_steps
from cctrace.path.transmissions import LOST, Transmissions, as_flow, transmissions
from cctrace.replaying.inference import through_fq

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture
    from cctrace.flows.flow import Flow
    from cctrace.sim.result import Simulation


@dataclass(frozen=True, eq=False, repr=False)
class PathEvidence:
    """Path properties inferred from one flow's packets; get it from `evidence_of`.

    Times are the sender's and count from the flow's first packet. Rates are bytes on the wire per microsecond, as
    in `cctrace.Path`. Properties that the packets do not reveal are None.

    Any part raises `StreamError` if the capture lacks the data or the acknowledgements.
    """

    capture: Capture
    index: int
    one_bottleneck: bool = False
    cache: dict[Any, Any] = field(default_factory=dict)  # results of other packages, by function

    # --- packets -----------------------------------------------------------------------------------------------------
    @functools.cached_property
    def transmissions(self) -> Transmissions:
        """The fate of every packet."""
        return transmissions(self.capture.flow(self.index))

    @functools.cached_property
    def _sent(self) -> tuple[SentPackets, tuple[float, float] | None]:
        return served_packets(self.transmissions)

    @property
    def sent(self) -> SentPackets:
        """The flow's packets that the bottleneck served: without those dropped in its queue or before it."""
        return self._sent[0]

    def require_sent(self) -> SentPackets:
        """`sent`, or a `FitError` that says what is needed if too few RTTs are known."""
        known = len(self.sent.acked)
        if known < LEAST_RTTS:
            raise FitError(f"only {known} RTTs are known; at least {LEAST_RTTS} are needed, so capture a longer flow")
        if not self.sent.lasts:
            raise FitError("all packets have the same time stamp, which shows no rate; capture with a working clock")
        return self.sent

    @property
    def loses_behind(self) -> bool:
        """Whether packets were lost behind the bottleneck, which had served them."""
        return bool(len(self.sent.sent_us) > np.count_nonzero(~self.lost))

    @property
    def arrived_bytes(self) -> Floats:
        """Bytes that each transmission added to the bottleneck's queue; 0 if the queue had no room."""
        arrived = ~self.lost | (np.isin(self.sent_us, self.sent.sent_us) if self.loses_behind else False)
        return np.where(arrived, self.transmissions.wire_bytes, 0.0)

    @functools.cached_property
    def sent_s(self) -> Floats:
        """Departure time of each transmission, seconds."""
        return (self.transmissions.sent_ns - self.transmissions.start_ns) / 1e9

    @property
    def sent_us(self) -> Floats:
        """Departure times in us, equal to the last bit to those of `sent`: what left at one instant stays together."""
        return (self.transmissions.sent_ns - self.transmissions.start_ns) / 1e3

    @functools.cached_property
    def lost(self) -> Bools:
        """Which transmissions were lost, to a queue, a policer or chance; `losses.losses_of` distinguishes them."""
        return self.transmissions.state == LOST

    @functools.cached_property
    def rtt_us(self) -> Floats:
        """RTT of each first transmission, us; NaN where unknown."""
        return np.where(self.transmissions.retransmitted, np.nan, self.transmissions.rtt_us)

    @property
    def _known_rtts_us(self) -> Floats:
        return self.rtt_us[np.isfinite(self.rtt_us)]

    @property
    def rtts_in_order_us(self) -> Floats:
        """Known RTTs of packets that overtook none: one that passes the others' delay does not show the path's."""
        known = np.isfinite(self.rtt_us)
        return self.rtt_us[known][in_order(self.transmissions.acked_ns[known])]

    @property
    def sender_min_rtt_us(self) -> float:
        """Minimum of all RTTs, as a sender takes it, also of packets that overtook others; NaN if none is known."""
        known = self._known_rtts_us
        return float(known.min()) if len(known) else np.nan

    @functools.cached_property
    def least_rtt_us(self) -> float:
        """Minimum RTT of packets that overtook none; NaN if none is known."""
        known = self.rtts_in_order_us
        return float(known.min()) if len(known) else np.nan

    @functools.cached_property
    def median_rtt_us(self) -> float:
        """Median RTT; NaN if none is known."""
        known = self._known_rtts_us
        return float(np.median(known)) if len(known) else np.nan

    @property
    def is_long(self) -> bool:
        """Whether the flow is so long that memory counts."""
        return bool(self.capture.flow(self.index).row["packets"] > LONG)

    def put_away(self, *names: str) -> None:
        """Drop parts that have columns as long as the packets, and are made anew if asked."""
        for name in names:
            vars(self).pop(name, None)

    @functools.cached_property
    def acks(self) -> Acks | None:
        """How the receiver acknowledges; None if too few ACKs came in order."""
        return acks_of(self.transmissions)

    # --- other flows -------------------------------------------------------------------------------------------------
    @functools.cached_property
    def companions(self) -> dict[int, Transmissions]:
        """Transmissions of other flows of the capture that may share the queue, by flow index."""
        return companions_of(self.capture, neighbours(self.capture.columns, self.index, self.one_bottleneck))

    @functools.cached_property
    def sent_by_flow(self) -> dict[int, SentPackets]:
        """Packets of this flow and its companions, by flow index, on this flow's clock; merged if they are many."""
        return sent_packets_by_flow({self.index: self.transmissions, **self.companions}, self.transmissions.start_ns)

    @functools.cached_property
    def shared(self) -> SharedQueue | None:
        """How well the joint queue of this flow and its companions explains its delays; None without companions.

        Either all companions, or those between the same two hosts, whichever explains the delays better.
        """
        if not self.companions or self.bottleneck is None:
            return None
        ends = list(zip(self.capture.columns["src"], self.capture.columns["dst"], strict=True))
        everyone, same_ends = tuple(self.companions), tuple(k for k in self.companions if ends[k] == ends[self.index])
        groups = {everyone} if self.one_bottleneck or not same_ends else {everyone, same_ends}
        own_rate = self.bottleneck.rate
        return max(
            (shared_queue(self.sent_by_flow, self.index, group, own_rate) for group in groups), key=lambda s: s.gain
        )

    # --- the bottleneck, as a diagnosis needs it ---------------------------------------------------------------------
    @functools.cached_property
    def coarse(self) -> SentPackets | None:
        """`sent` with neighbouring packets merged; None if too little is known to infer a rate."""
        every = self.sent
        if len(every.acked) < ENOUGH_RTTS or not every.first[every.acked].any() or not every.lasts:
            return None
        return own_queue.coarser(every, own_queue.packets_per_unit(len(every.sent_us)))

    @functools.cached_property
    def bottleneck(self) -> own_queue.Bottleneck | None:
        """The bottleneck as inferred from the flow's own queue; None if too few delays are known."""
        return None if self.coarse is None else own_queue.bottleneck_of(self, self.coarse)

    @property
    def require_bottleneck(self) -> own_queue.Bottleneck:
        """`bottleneck`, or a `FitError` if it is None."""
        if self.bottleneck is None:
            raise FitError(f"fewer than {ENOUGH_RTTS} RTTs are known: the bottleneck cannot be determined")
        return self.bottleneck

    @functools.cached_property
    def uncongested(self) -> own_queue.Uncongested:
        """Mean and spread of the RTT without queue; requires a `bottleneck`."""
        return own_queue.uncongested_of(self.require_bottleneck)

    @functools.cached_property
    def queued_us(self) -> float:
        """RTT from which a queue must have stood: what jitter hardly reaches, us."""
        mean, spread = self.uncongested
        return mean + max(3 * spread, 0.03 * mean, 1000.0)

    @functools.cached_property
    def delivered(self) -> own_queue.Delivered:
        """Deliveries in windows of 100 ms or an RTT."""
        return own_queue.delivered_of(self.coarse)

    @functools.cached_property
    def standing(self) -> Bools:
        """Which windows of `delivered` had a queue: RTTs above the uncongested ones by more than jitter."""
        return (self.delivered.rate > 0) & (self.delivered.rtt_us > self.queued_us)

    @functools.cached_property
    def rate_jumps_s(self) -> Floats:
        """When the delivered rate changed, seconds; `rate_changes` has those caused by the path."""
        rate = self.delivered.rate
        return jumps(self.delivered.middle_s[rate > 0], np.log(rate[rate > 0]), over_dips=True)

    @functools.cached_property
    def rate_changes(self) -> list[Change]:
        """When the path's rate changed."""
        return [] if self.bottleneck is None else rate_changes(self)

    @functools.cached_property
    def rate_range_bps(self) -> tuple[float, float] | None:
        """10th and 90th percentile of a continuously varying rate; None if the rate does not vary."""
        return variation(self)

    # --- the bottleneck, as exactly as a fit needs it ----------------------------------------------------------------
    @functools.cached_property
    def constant_rate(self) -> tuple[float, float]:
        """The constant rate that best explains the delays of this flow alone, and the deviation at that rate."""
        return self._sent[1] or constant_rate(self.sent)

    @functools.cached_property
    def steps(self) -> Steps:
        """The rate over time that best explains the delays of this flow alone."""
        return rate_steps(self.sent, self.constant_rate)[0]

    @functools.cached_property
    def delays(self) -> Delays:
        """RTTs without the flow's own queue; raises `FitError` if too few are known, or others always filled it."""
        return delays_of(self.transmissions, self.sent, self.steps)

    @functools.cached_property
    def traffic(self) -> Traffic:
        """The traffic through the bottleneck, and the bottleneck's rate over time."""
        return traffic_through_bottleneck(self)

    @functools.cached_property
    def backlogs(self) -> Backlogs:
        """Backlogs that transmissions met at the bottleneck of `traffic`; a diagnosis computes its own, at one rate."""
        return backlogs_of(self, self.traffic.steps)

    @functools.cached_property
    def shaper(self) -> Bucket | None:
        """The token bucket that delayed packets, if there is one."""
        return shaper_of(self.traffic.sent, self.traffic.steps)

    @functools.cached_property
    def packet_bucket(self) -> Bucket | None:
        """The token bucket of about one packet that serves the queue instead of a link, if the handshake shows that."""
        if self.shaper is not None:
            return None
        return packet_bucket(self.traffic.sent, self.traffic.steps, self.transmissions.handshake_us)

    @property
    def tokens_bytes(self) -> float:
        """Bytes that pass the bottleneck at once when no queue stands: the size of its bucket; 0 of a link."""
        bucket = self.shaper or self.packet_bucket
        return 0.0 if bucket is None else bucket.size_bytes.number

    @functools.cached_property
    def policer(self) -> Bucket | None:
        """The token bucket that dropped packets; None behind a `shaper`, whose full queue drops like one."""
        if self.shaper is not None:
            return None
        table = self.transmissions
        base_us = float(np.nanquantile(table.rtt_us, 0.05))
        return policer_of([table, *self.companions.values()], table.start_ns, base_us)


def forget(flow: Flow) -> None:
    """Drop a flow's cached `PathEvidence` and events; facts and retransmissions, which are drawn, stay."""
    flow._kept.clear()
    through_fq.forget(flow)
    if "_reenacted" in vars(flow):
        vars(flow).update(facts=flow.facts, retransmission_log=flow.retransmission_log)
        del vars(flow)["_reenacted"]
        for name in ("events", "ecn"):
            vars(flow).pop(name, None)


def evidence_of(source: Flow | Simulation, one_bottleneck: bool = False) -> PathEvidence:
    """Return the path properties of a flow; computed once and cached with the flow.

    `source`: of a simulation (``packets=True``) the first flow. `one_bottleneck`: assume that all flows of the capture
    share a bottleneck, even between different hosts. Raises `ArgumentError` if `source` is neither.
    """
    flow = as_flow(source)
    key = (PathEvidence, one_bottleneck)
    found = flow._kept.get(key)
    if not isinstance(found, PathEvidence):
        found = flow._kept[key] = PathEvidence(flow.capture, flow.index, one_bottleneck)
    return found
