"""Verdicts by family of causes; `judge` asks all of them and puts the most important first."""

from cctrace.diagnosis.rules import again, delays, endpoints, losses, pacing, policing, quality, rates, sharing
from cctrace.diagnosis.rules.order import ordered

FAMILIES = (endpoints, policing, sharing, pacing, losses, rates, delays, again)


def judge(record, limits, found_by):
    """Return the list of `Verdict` of a captured flow, most important first; at least one.

    Parameters
    ----------
    record : Record
    limits : list of Limit
    found_by : callable
        ``found_by(part, function, *arguments, instead=...)``: the function's result, or `instead` if it has none.
    """
    found = found_by("judgement of the capture's quality", quality.verdicts, record, limits, [], instead=[])
    if (quality.too_short(record) and not record.flow.facts["complete"]) or record.flow.taken_at == "unknown":
        return [quality.unknown(record), *found]
    for family in FAMILIES:
        part = f"judgement of {family.__name__.rpartition('.')[2]}"
        found = [*found, *found_by(part, family.verdicts, record, limits, found, instead=[])]
    names = {verdict.name for verdict in found}
    if "collapse" in names:  # what looks like a full path is its window
        found = [verdict for verdict in found if verdict.name != "path_full"]
    return ordered(quality.tempered(found)) or [quality.unknown(record)]
