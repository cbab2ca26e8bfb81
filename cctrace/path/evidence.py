"""What packets show about the path of a flow, each part computed once, when it is first asked for.

    path = evidence_of(flow)
    path.transmissions      what became of every packet
    path.bottleneck         rate and base RTT, and the queue that the flow put there
    path.through            the same as exactly as a fit needs it: rate over time, of all flows that share the queue

Diagnosis, fits, what-ifs and the report read one and the same `PathEvidence` of a flow. `coarse` and what follows from
it (`bottleneck`, `delivered`, `uncongested` and so on) count neighbouring packets as one, which is enough to explain a
flow and takes a fraction of the time; `through` and what follows from it (`route`, `shaper`, `delays`) count each.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.errors import FitError
from cctrace.path.acks import Acks, acks_of
from cctrace.path.arrays import Bools, Floats
from cctrace.path.bottleneck import Sent, Steps, constant_rate, jumps, sent
from cctrace.path.buckets import Bucket, policer_of, shaper_of
from cctrace.path.changes import Change, rate_changes, variation
from cctrace.path.constants import ENOUGH_RTTS
from cctrace.path.delays import Delays, delays_of
from cctrace.path.neighbours import Shared, companions_of, neighbours, parts_of, shared_queue
from cctrace.path.own_queue import (
    Bottleneck,
    Delivered,
    Uncongested,
    bottleneck_of,
    coarser,
    delivered_of,
    packets_per_unit,
    uncongested_of,
)
from cctrace.path.steps import rate_steps
from cctrace.path.through import Through, through_bottleneck
from cctrace.path.transmissions import LOST, Transmissions, as_flow, transmissions

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture
    from cctrace.flows.flow import Flow
    from cctrace.sim.result import Simulation


@dataclass(frozen=True, eq=False, repr=False)
class PathEvidence:
    """What the packets of one flow show about its path; get it from `evidence_of`.

    Times are those of the sender, and results count from the flow's first packet. Rates are bytes of the wire per
    microsecond, as `cctrace.Path` counts them. What the packets do not show is None.

    Raises
    ------
    StreamError
        By any part, if the capture lacks the data or the acknowledgements.
    """

    capture: Capture
    index: int
    one_bottleneck: bool = False
    kept: dict[Any, Any] = field(default_factory=dict)  # what rooms above make of it once, by the function that does

    # --- packets -----------------------------------------------------------------------------------------------------
    @functools.cached_property
    def transmissions(self) -> Transmissions:
        """What became of every packet."""
        return transmissions(self.capture.flow(self.index))

    @functools.cached_property
    def sent(self) -> Sent:
        """What the queue at the bottleneck gets to see of this flow."""
        return sent(self.transmissions)

    @functools.cached_property
    def sent_s(self) -> Floats:
        """When each transmission left, seconds."""
        return (self.transmissions.sent_ns - self.transmissions.start_ns) / 1e9

    @functools.cached_property
    def lost(self) -> Bools:
        """Which transmissions were lost: by a queue, a policer or chance; `losses.losses_of` tells by which."""
        return self.transmissions.state == LOST

    @functools.cached_property
    def rtt_us(self) -> Floats:
        """RTT of each transmission of data that were sent once, NaN where unknown."""
        return np.where(self.transmissions.again, np.nan, self.transmissions.rtt_us)

    @functools.cached_property
    def _known_rtts_us(self) -> Floats:
        return self.rtt_us[np.isfinite(self.rtt_us)]

    @functools.cached_property
    def least_rtt_us(self) -> float:
        """The least RTT; NaN if none is known."""
        return float(self._known_rtts_us.min()) if len(self._known_rtts_us) else np.nan

    @functools.cached_property
    def median_rtt_us(self) -> float:
        """The median RTT; NaN if none is known."""
        return float(np.median(self._known_rtts_us)) if len(self._known_rtts_us) else np.nan

    @functools.cached_property
    def acks(self) -> Acks | None:
        """How the receiver acknowledges; None where too few ACKs came in order."""
        return acks_of(self.transmissions)

    # --- other flows -------------------------------------------------------------------------------------------------
    @functools.cached_property
    def companions(self) -> dict[int, Transmissions]:
        """Transmissions of the other flows of the capture that may share the queue, by their index."""
        return companions_of(self.capture, neighbours(self.capture.columns, self.index, self.one_bottleneck))

    @functools.cached_property
    def parts(self) -> dict[int, Sent]:
        """`Sent` of this flow and of its companions, on this flow's clock, each as coarse as all together require."""
        return parts_of({self.index: self.transmissions, **self.companions}, self.transmissions.start_ns)

    @functools.cached_property
    def shared(self) -> Shared | None:
        """How well the queue of this flow and its companions together explains its delays; None without companions.

        Of all companions, or of those between the same two hosts: whichever explain them better.
        """
        if not self.companions or self.bottleneck is None:
            return None
        ends = list(zip(self.capture.columns["src"], self.capture.columns["dst"], strict=True))
        same_ends = tuple(k for k in self.companions if ends[k] == ends[self.index])
        groups = {tuple(self.companions), same_ends} - {()} if not self.one_bottleneck else {tuple(self.companions)}
        own_rate = self.bottleneck.rate
        return max((shared_queue(self.parts, self.index, group, own_rate) for group in groups), key=lambda s: s.gain)

    # --- the bottleneck, as a diagnosis needs it ---------------------------------------------------------------------
    @functools.cached_property
    def coarse(self) -> Sent | None:
        """`sent` with neighbouring packets counted as one; None if too little is known to seek a rate."""
        every = self.sent
        moves = len(every.sent_us) > 0 and every.sent_us[-1] > every.sent_us[0]  # not one time stamp for all
        if len(every.known) < ENOUGH_RTTS or not every.first[every.known].any() or not moves:
            return None
        return coarser(every, packets_per_unit(len(every.sent_us)))

    @functools.cached_property
    def bottleneck(self) -> Bottleneck | None:
        """The bottleneck as the flow's own queue shows it; None if too few delays are known."""
        return None if self.coarse is None else bottleneck_of(self, self.coarse)

    @property
    def require_bottleneck(self) -> Bottleneck:
        """`bottleneck`, where it must be known; else a `FitError`."""
        if self.bottleneck is None:
            raise FitError(f"fewer than {ENOUGH_RTTS} RTTs are known: the bottleneck does not show")
        return self.bottleneck

    @functools.cached_property
    def uncongested(self) -> Uncongested:
        """Mean and spread of the RTT without queue; there must be a `bottleneck`."""
        return uncongested_of(self.require_bottleneck)

    @functools.cached_property
    def queued_us(self) -> float:
        """The delay from which on something stood before a packet: what jitter hardly reaches."""
        mean, spread = self.uncongested
        return mean + max(3 * spread, 0.03 * mean, 1000.0)

    @functools.cached_property
    def delivered(self) -> Delivered:
        """What was delivered, in windows of 100 ms or an RTT."""
        return delivered_of(self.coarse)

    @functools.cached_property
    def standing(self) -> Bools:
        """Which windows of `delivered` had a queue before them: RTTs above the uncongested by more than jitter."""
        return (self.delivered.rate > 0) & (self.delivered.rtt_us > self.queued_us)

    @functools.cached_property
    def rate_jumps_s(self) -> Floats:
        """When the delivered rate changed, seconds; `rate_changes` tells of which the path was the cause."""
        rate = self.delivered.rate
        return jumps(self.delivered.middle_s[rate > 0], np.log(rate[rate > 0]))

    @functools.cached_property
    def rate_changes(self) -> list[Change]:
        """When the path's rate changed."""
        return [] if self.bottleneck is None else rate_changes(self)

    @functools.cached_property
    def rate_range_bps(self) -> tuple[float, float] | None:
        """10th and 90th percentile of a rate that varies all the time; None of one that does not."""
        return variation(self)

    # --- the bottleneck, as exactly as a fit needs it ----------------------------------------------------------------
    @functools.cached_property
    def constant_rate(self) -> tuple[float, float]:
        """The constant rate that explains the delays of this flow alone best, and their deviation with it."""
        return constant_rate(self.sent)

    @functools.cached_property
    def steps(self) -> Steps:
        """The rate over time that explains the delays of this flow alone best."""
        return rate_steps(self.sent, self.constant_rate)[0]

    @functools.cached_property
    def delays(self) -> Delays:
        """RTTs without the flow's own queue.

        Raises
        ------
        FitError
            If too few are known, or others' packets stood in the queue all the time.
        """
        return delays_of(self.transmissions, self.sent, self.steps)

    @functools.cached_property
    def through(self) -> Through:
        """What went through the bottleneck, and at which rate over time."""
        return through_bottleneck(self)

    @functools.cached_property
    def shaper(self) -> Bucket | None:
        """The token bucket that delayed packets, if there is one."""
        return shaper_of(self.through.sent, self.through.steps)

    @functools.cached_property
    def policer(self) -> Bucket | None:
        """The token bucket that dropped packets; a full queue behind a `shaper` drops like one, and is none."""
        if self.shaper is not None:
            return None
        table = self.transmissions
        base_us = float(np.nanquantile(table.rtt_us, 0.05))
        return policer_of([table, *self.companions.values()], table.start_ns, base_us)


def forget(flow: Flow) -> None:
    """Drop what `evidence_of` keeps of a flow, which takes several times the memory of its packets."""
    flow._kept.clear()


def evidence_of(source: Flow | Simulation, one_bottleneck: bool = False) -> PathEvidence:
    """Return what packets show about a flow's path; computed once, and kept as long as the flow.

    Parameters
    ----------
    source : Flow or Simulation
        Of a simulation (``packets=True``) the first flow.
    one_bottleneck : bool
        Whether all flows of the capture may be taken to share a bottleneck, also between other hosts.

    Raises
    ------
    ArgumentError
        If it is of another kind.
    """
    flow = as_flow(source)
    key = (PathEvidence, one_bottleneck)
    found = flow._kept.get(key)
    if not isinstance(found, PathEvidence):
        found = flow._kept[key] = PathEvidence(flow.capture, flow.index, one_bottleneck)
    return found
