"""Verdicts by family of causes; `judge` asks all of them and puts the most important first."""

from cctrace.explain.verdicts import delays, endpoints, losses, pacing, policing, quality, rates, sharing
from cctrace.explain.verdicts.order import ordered

FAMILIES = (endpoints, policing, sharing, pacing, losses, rates, delays)


def judge(record, limits):
    """Return the list of `Verdict` of a captured flow, most important first; at least one.

    Parameters
    ----------
    record : Record
    limits : list of Limit
    """
    found = quality.verdicts(record, limits, [])
    if (quality.too_short(record) and not record.flow.facts["complete"]) or record.flow.taken_at == "unknown":
        return [quality.unknown(record), *found]
    for family in FAMILIES:
        found += family.verdicts(record, limits, found)
    names = {verdict.name for verdict in found}
    if "collapse" in names:  # what looks like a full path is its window
        found = [verdict for verdict in found if verdict.name != "path_full"]
    return ordered(quality.tempered(found)) or [quality.unknown(record)]
