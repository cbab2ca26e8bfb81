"""Rule on ECN: whether marks limited the window."""

import math
from collections.abc import Iterator
from typing import Any

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import Facts
from cctrace.diagnosis.findings import ENDS, Finding, Findings, between
from cctrace.display import listed
from cctrace.path.markers import Marker

# How a sentence names each law of `path.markers`.
NAMES = {
    "step": "a step threshold (it marks every packet that waits longer, as DualPI2 does for ECT(1))",
    "red": "RED (at random, above an average queue)",
    "codel": "CoDel or fq_codel (a packet at a time while the queue stands)",
    "pie": "PIE (at random, towards a target delay)",
    "dualpi2": "DualPI2 (at random, coupled across its two queues)",
}
LOW_LATENCY = {"step", "dualpi2"}  # laws that treat ECT(1) otherwise than ECT(0), or may


def ecn_marking(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Marks reduced the window repeatedly, more often than losses did, or once, and it then grew back for long.

    Many in a short part of the flow are reported as well, with that part. A model of the path ignores marks, unless its
    replay shows that it does not.
    """
    marks = facts.ecn_marks
    if marks is None or not marks.is_heeded or found.sure & ENDS:
        return
    ramps = not math.isnan(marks.ramp_s) and marks.reductions > marks.loss_episodes
    again = marks.reductions >= max(const.MIN_CUTS, marks.loss_episodes)
    if again and marks.longest_pause_share <= const.PREDOMINANT_SHARE:
        sure, ramps = (
            between(const.EXPLAINING_CONFIDENCE, const.MEASURED_CONFIDENCE, marks.reductions / const.MIN_OBSERVATIONS),
            False,
        )
    elif ramps:
        sure = const.EXPLAINING_CONFIDENCE
    elif again and marks.reductions >= const.MIN_FOR_PATTERN:
        sure = const.DOUBTFUL_CONFIDENCE  # for a short part of the flow
    else:
        return
    if 2 * marks.loss_episodes > marks.reductions:
        sure = const.DOUBTFUL_CONFIDENCE
    marker: dict[str, str] = {} if marks.likely_marker is None else _marker_words(marks.likely_marker)
    as_classic = marks.is_l4s and not (marks.likely_marker is not None and LOW_LATENCY & set(marks.likely_marker.names))
    words: dict[str, Any] = {"losses": marks.loss_episodes or None, "ramps": ramps, "as_classic": as_classic, **marker}
    if again and marks.longest_pause_share > const.PREDOMINANT_SHARE:
        words |= {"first_s": marks.span[0], "last_s": marks.span[1]}
    yield facts.finding("ecn_marking", sure, marks).saying(**words)


def _marker_words(marker: Marker) -> dict[str, str]:
    """Return words for the AQM that marks, or for an unknown one."""
    if not marker.names:
        return {"no_marker": "of none"}
    names = [NAMES[name] for name in marker.names]
    return {"marker" if len(names) == 1 else "markers": listed(names)}
