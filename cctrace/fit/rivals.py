"""Rival explanations of a capture's losses: by chance, or by which queue.

    rivals_of(path, evidence)       {"as inferred": path, "tail drops": ..., "chance": ..., "codel and chance": ...}

A packet's fate does not reveal what dropped it. If the backlog at losses leaves that open, each explanation becomes
a path, and simulations over it decide which one is right (`counterfactual.weighing`).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cctrace.estimates import Estimate
from cctrace.fit.fitted_path import FittedPath
from cctrace.path.bottleneck import backlog_met
from cctrace.path.constants import CODEL_TARGET_US, EARLY, LEAST_DROPS, NEAR_TARGET
from cctrace.path.evidence import PathEvidence
from cctrace.path.losses import decided_ns, early_share, overflows, proportion
from cctrace.path.transmissions import LOST
from cctrace.tcp.wire import PACKET_BYTES

AS_INFERRED, TAIL_DROPS, CHANCE, CODEL = "as inferred", "tail drops", "chance", "codel"
CODEL_AND_CHANCE = "codel and chance"
NO_LOSS = {"model": "none", "share": Estimate(0.0, 0.0, 0.0), "congestive": 0, "random": 0}


@dataclass(frozen=True)
class Lost:
    """Lost packets, and the backlogs (bytes) of the flow's own queue met by lost and passed packets."""

    sent: int
    met: np.ndarray
    passed: np.ndarray
    is_early: bool  # whether most overflows began before the queue was longest, unlike those of a full queue

    @property
    def longest(self) -> float:
        """The longest backlog of a packet that passed."""
        return float(self.passed.max(initial=PACKET_BYTES))

    def waited_less(self, wait_us: float, path: FittedPath) -> tuple[int, int]:
        """Return how many lost packets met a shorter delay than this at a path's highest rate."""
        backlog = wait_us * path.max_rate_bps() / 8e6
        lost = int(np.count_nonzero(self.met < backlog))
        return lost, lost + int(np.count_nonzero(self.passed < backlog))


def lost_of(evidence: PathEvidence) -> Lost:
    """Return the `Lost` of a flow."""
    table, through = evidence.transmissions, evidence.through
    decided = table.sent_ns <= decided_ns(table)
    lost = table.state[decided] == LOST
    time_us = (table.sent_ns[decided] - table.start_ns) / 1e3
    met = backlog_met(through.sent, through.steps, time_us)
    found = Lost(int(decided.sum()), met[lost], met[~lost], False)
    dropped = overflows(lost, met, met > found.longest / 2, found.longest, time_us)
    early = early_share(dropped, lost, met, time_us, float(np.nanmin(table.rtt_us)), PACKET_BYTES)
    return replace(found, is_early=early >= EARLY)


def rivals_of(path: FittedPath, evidence: PathEvidence) -> dict[str, FittedPath]:
    """Return the paths that may explain a capture, the inferred one first; only that if there is no ambiguity.

    `evidence`: from which it was inferred.
    """
    found = {AS_INFERRED: path}
    lost = lost_of(evidence)
    estimates = path.estimates
    if len(lost.met) < LEAST_DROPS or estimates["policer"] is not None or estimates["shaper"] is not None:
        return found
    longest, bdp = lost.longest, path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    by_chance, by_queue = estimates["loss"]["model"] != "none", estimates["buffer_bytes"].value is not None
    managed, behind = estimates["aqm"] not in (None, "droptail"), {"is_behind": evidence.loses_behind}
    if (by_chance or managed or not by_queue) and not lost.is_early:
        half = max(0.05 * longest, PACKET_BYTES)
        buffer = Estimate(longest + PACKET_BYTES / 2, max(longest - half, PACKET_BYTES), longest + half)
        changed = {"buffer_bytes": buffer, "aqm": "droptail", "loss": NO_LOSS | {"congestive": len(lost.met)}}
        found[TAIL_DROPS] = _instead(path, changed, "buffer")
    if by_queue or managed:
        share = Estimate(len(lost.met) / lost.sent, *proportion(len(lost.met), lost.sent))
        loss = behind | {"model": "bernoulli", "share": share, "congestive": 0, "random": len(lost.met)}
        buffer = Estimate(None, longest, None)
        found[CHANCE] = _instead(path, {"buffer_bytes": buffer, "aqm": None, "loss": loss})
    if estimates["aqm"] not in (None, "droptail", "codel") and longest > 0.25 * bdp:
        buffer = Estimate(None, longest, None)
        found[CODEL] = _instead(path, {"buffer_bytes": buffer, "aqm": "codel", "loss": NO_LOSS})
        if (short := lost.waited_less(NEAR_TARGET * CODEL_TARGET_US, path))[0]:  # not CoDel's drops
            share = Estimate(short[0] / short[1], *proportion(*short))
            counts = {"congestive": len(lost.met) - short[0], "random": short[0]}
            loss = behind | {"model": "bernoulli", "share": share, **counts}
            found[CODEL_AND_CHANCE] = _instead(path, {"buffer_bytes": buffer, "aqm": "codel", "loss": loss})
    return found


def _instead(path: FittedPath, changed: dict[str, Any], *determined: str) -> FittedPath:
    """Return a path with some estimates replaced; `determined` are those no longer undetermined."""
    undetermined = {name for name in path.estimates["undetermined"] if name not in determined}
    undetermined |= {"buffer"} if changed["buffer_bytes"].value is None else set()
    return FittedPath.of(path.estimates | changed | {"undetermined": sorted(undetermined)})
