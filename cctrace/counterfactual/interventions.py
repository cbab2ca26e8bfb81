"""How to remove each cause of a flow's behaviour from its model: changes of the path, the hosts and the other flows.

    INTERVENTIONS["random_loss"].description          "no random loss"
    INTERVENTIONS["random_loss"].change(path, verdict), .hosts, .is_alone

NOT_SIMULATED says why the removal of other causes cannot be simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cctrace.counterfactual.path_changes import changed
from cctrace.diagnosis.findings import Verdict
from cctrace.sim.path import Path

Change = Callable[[Path, Verdict], Path]

DELAYED_ACK = 2  # segments per ACK at most [RFC5681] 4.2


@dataclass(frozen=True)
class Intervention:
    """The removal of a cause."""

    description: str  # the difference, following "with"
    change: Change = lambda path, verdict: path  # (path, verdict) -> the path without the cause
    # changes as `HostLimits.sender_options` takes them, and options of a `cctrace.Sender`
    hosts: Mapping[str, Any] = field(default_factory=dict)
    is_alone: bool = False  # whether the capture's other flows are removed
    is_longer: bool = False  # whether the queue may become longer than that of the inferred path

    def combined_with(self, other: Intervention, verdict: Verdict) -> Intervention:
        """Return the joint removal of this cause and another one with its verdict."""

        def change(path: Path, mine: Verdict) -> Path:
            return other.change(self.change(path, mine), verdict)

        description, hosts = f"{self.description} and {other.description}", {**self.hosts, **other.hosts}
        return Intervention(description, change, hosts, self.is_alone or other.is_alone)


def _in_order(path: Path, verdict: Verdict) -> Path:
    """Return a path with the same delays, whose packets wait for those before them."""
    times_ns, jitters = path.jitter_steps(path.jitters_before)
    in_order = [None if jitter is None else replace(jitter, reorder=False) for jitter in jitters]
    return changed(path, {"jitter": list(zip(times_ns / 1e9, in_order, strict=True))})


def _to(**changes: Any) -> Change:
    """Return the change of a path's properties to these, whatever the verdict."""
    return lambda path, verdict: changed(path, changes)


def varies(verdict: Verdict) -> bool:
    """Return whether the verdict is of a rate that varied all the time, not of a step."""
    return "rate_p10_bps" in verdict.evidence


def _one_rate(path: Path, verdict: Verdict) -> Path:
    """Return a path with its first rate; of a continuously varying one, the mean rate."""
    times_ns, rates_bps = path.rate_steps()
    if varies(verdict) and len(rates_bps) > 1:
        lasted_ns = np.diff(np.append(times_ns, max(verdict.end_s * 1e9, times_ns[-1] + 1.0)))
        return changed(path, {"rate": float(np.average(rates_bps, weights=lasted_ns))})
    return changed(path, {"rate": float(rates_bps[0])})


def _entire_link(path: Path, verdict: Verdict) -> Path:
    """Return a path whose queue has the rate of the link that the flows shared."""
    return changed(path, {"rate": float(verdict.evidence["link_bps"])})


INTERVENTIONS: dict[str, Intervention] = {
    "receiver_limited": Intervention("a receive window that never limits", hosts={"rwnd": "none"}),
    "send_buffer_limited": Intervention("a send buffer that grows with the window", hosts={"send_buffer": "none"}),
    "window_limited": Intervention("nothing that holds its window", hosts={"rwnd": "none"}),
    "application_limited": Intervention("an application that always has data to send", hosts={"app": "bulk"}),
    "app_limited_samples": Intervention("an application that always has data to send", hosts={"app": "bulk"}),
    "pacing_limited": Intervention("no limit of the pacing rate", hosts={"pacing": "none"}),
    "random_loss": Intervention("no random loss", _to(loss="0%")),
    "jitter": Intervention("no jitter", _to(jitter=None)),
    "collapse": Intervention("a min_rtt that is not too low (no jitter)", _to(jitter=None)),
    "reordering": Intervention("packets kept in order", _in_order),
    "policer": Intervention("no policer", _to(policer=None)),
    "aqm": Intervention("a plain queue instead of the AQM", _to(aqm="droptail")),
    "ecn_marking": Intervention("a plain queue that does not mark", _to(aqm="droptail")),
    "shallow_buffer": Intervention("a buffer twice as large", _to(buffer="x2")),
    "congestive_loss": Intervention("a buffer twice as large", _to(buffer="x2")),
    "self_induced_queue": Intervention("CoDel at the bottleneck", _to(aqm="codel")),
    "competition": Intervention("no competing flows", is_alone=True),
    "fair_queueing": Intervention("no competing flows", _entire_link),
    "inflated_min_rtt": Intervention("no competing flows", is_alone=True),
    "rate_change": Intervention("the path's first rate all the time", _one_rate),
    "stale_bandwidth": Intervention("the path's first rate all the time", _one_rate),
    "poor_pacing": Intervention("packets paced by fq", hosts={"fq": True}),
    "ack_thinning": Intervention("an ACK for every second segment", hosts={"ack_every": DELAYED_ACK}),
    "ack_aggregation": Intervention("ACKs as they are due", hosts={"ack_slot": None}),
    "ack_compression": Intervention("ACKs as they are due", hosts={"ack_slot": None}),
}
_NOT_CAPTURED = "what caused it is not in the capture, so that no simulation can leave it out"
NOT_SIMULATED = {
    "path_full": "",  # no problem
    "unknown": "",
    "capture_artefact": "the capture itself misleads",
    "vantage_point": "it concerns the capture, not the flow",
    "lost_before_capture": "what these losses met is not in the capture",
    "slow_start_only": "a connection that has already left slow start is not simulated",
    "shaper": "how fast the link behind the token bucket is, is not in the capture",
    "ack_path_full": "how fast the path of the data is, beyond what its ACKs let out, is not in the capture",
    "stalls": _NOT_CAPTURED,
    "receiver_pauses": "a receiver that pauses is not simulated",
    "heavy_retransmission": "it is an effect of other causes",
    "congested_before": _NOT_CAPTURED,
    "window_growing": "how much the path carries is not in the capture",
}
