"""Rival explanations of a capture's losses: by chance, or by which queue.

    rivals_of(path, evidence)       {"as inferred": path, "tail drops": ..., "chance": ..., "codel and chance": ...}

A packet's fate does not reveal what dropped it. If the backlog at losses leaves that open, each explanation becomes
a path, and simulations over it decide which one is right (`counterfactual.path_likelihood`).
"""

from typing import Any

from cctrace.estimates import Estimate
from cctrace.fit.fitted_path import FittedPath
from cctrace.path import constants as const
from cctrace.path.constants import CODEL_TARGET_US, MAX_EARLY_SHARE, MIN_DROPS, NEAR_TARGET
from cctrace.path.evidence import PathEvidence
from cctrace.path.losses import proportion
from cctrace.tcp.wire import PACKET_BYTES

AS_INFERRED, TAIL_DROPS, CHANCE, CODEL = "as inferred", "tail drops", "chance", "codel"
CODEL_AND_CHANCE = "codel and chance"
NO_LOSS = {"model": "none", "share": Estimate(0.0, 0.0, 0.0), "congestive": 0, "random": 0}


def rivals_of(path: FittedPath, evidence: PathEvidence) -> dict[str, FittedPath]:
    """Return the paths that may explain a capture, the inferred one first; only that if there is no ambiguity.

    `evidence`: from which it was inferred.
    """
    rivals = {AS_INFERRED: path}
    at, estimates = evidence.backlogs, path.estimates
    lost, sent = int(at.lost.sum()), len(at.lost)
    if lost < MIN_DROPS or estimates["policer"] is not None or evidence.shaper is not None:
        return rivals
    longest = max(at.longest_bytes - evidence.tokens_bytes, PACKET_BYTES)
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    by_chance, by_queue = estimates["loss"]["model"] != "none", estimates["buffer_bytes"].value is not None
    managed, behind = estimates["aqm"] not in (None, "droptail"), {"is_behind": evidence.loses_behind}
    if (by_chance or managed or not by_queue) and at.early_share < MAX_EARLY_SHARE:
        half = max(0.05 * longest, PACKET_BYTES)
        buffer = Estimate(longest + PACKET_BYTES / 2, max(longest - half, PACKET_BYTES), longest + half)
        changed = {"buffer_bytes": buffer, "aqm": "droptail", "loss": NO_LOSS | {"congestive": lost}}
        rivals[TAIL_DROPS] = _instead(path, changed, "buffer")
    if (by_queue or managed) and at.chance >= const.CHANCE_PROBABILITY:
        share = Estimate(lost / sent, *proportion(lost, sent))
        loss = behind | {"model": "bernoulli", "share": share, "congestive": 0, "random": lost}
        buffer = Estimate(None, longest, None)
        rivals[CHANCE] = _instead(path, {"buffer_bytes": buffer, "aqm": None, "loss": loss})
    if estimates["aqm"] not in (None, "droptail", "codel") and longest > 0.25 * bdp:
        buffer = Estimate(None, longest, None)
        rivals[CODEL] = _instead(path, {"buffer_bytes": buffer, "aqm": "codel", "loss": NO_LOSS})
        short = at.backlog_bytes < NEAR_TARGET * CODEL_TARGET_US * path.max_rate_bps() / 8e6
        if by_others := int(at.lost[short].sum()):  # CoDel drops none of a queue so short
            share = Estimate(by_others / int(short.sum()), *proportion(by_others, int(short.sum())))
            counts = {"congestive": lost - by_others, "random": by_others}
            loss = behind | {"model": "bernoulli", "share": share, **counts}
            rivals[CODEL_AND_CHANCE] = _instead(path, {"buffer_bytes": buffer, "aqm": "codel", "loss": loss})
    return rivals


def _instead(path: FittedPath, changed: dict[str, Any], *determined: str) -> FittedPath:
    """Return a path with some estimates replaced; `determined` are those no longer undetermined."""
    undetermined = {name for name in path.estimates["undetermined"] if name not in determined}
    undetermined |= {"buffer"} if changed["buffer_bytes"].value is None else set()
    return FittedPath.of(path.estimates | changed | {"undetermined": sorted(undetermined)})
