"""A flow's sender in words, for tables and pages."""

import dataclasses
from collections.abc import Collection

from cctrace.cc import is_model_based, kernel_name
from cctrace.identification.identify import Identification
from cctrace.identification.odds import UNKNOWN, Candidate, group_of
from cctrace.units import format_percent

NAMES = 3  # most controllers named; of more, their family if they have one
OF_EITHER_FAMILY = "cannot be determined from this record"
# Verdict -> why such a flow says little about its controller.
_HELD = {
    "receiver_limited": "it was limited by the receiver",
    "receiver_pauses": "it was limited by the receiver",
    "application_limited": "it was limited by its application",
    "send_buffer_limited": "it was limited by its send buffer",
    "pacing_limited": "it was limited by a pacing rate",
    "slow_start_only": "it never left slow start",
}


def believed(identification: Identification | None, reported: str | None) -> Identification | None:
    """Return an identification that agrees with the kernel's counters: the controller that they name, or a variant of
    it.

    `identification`: from the sends. `reported`: the kernel's name, see `named.controller_name`.
    """
    if reported is None:
        return identification
    reason, candidates = f"the counters name {reported}", identification.candidates if identification else []
    named = [candidate for candidate in candidates if kernel_name(candidate.name) == reported]
    total = sum(candidate.probability for candidate in named)
    if identification is None or not total:
        seconds = identification.seconds if identification else 0.0
        return Identification([Candidate(reported, 1.0)], (reported,), reason, seconds)
    named = [candidate._replace(probability=candidate.probability / total) for candidate in named]
    group = group_of(named)
    if set(identification.group) <= {candidate.name for candidate in named}:
        reason += f"; {identification.reason}"
    return dataclasses.replace(identification, candidates=named, group=group, reason=reason)


def group_text(group: tuple[str, ...]) -> str:
    """Return the names of a group; if there are too many, their family, or that the sender is undecided.

    >>> group_text(("cubic6", "reno", "cubic"))
    'cubic6, reno or cubic'
    >>> group_text(("bbr2022", "bbr2019", "bbr3", "bbr2"))
    'a BBR of any version'
    """
    if len(group) > NAMES:
        return "a BBR of any version" if all(map(is_model_based, group)) else OF_EITHER_FAMILY
    *others, last = group
    return f"{', '.join(others)} or {last}" if others else last


def is_undecided(identification: Identification | None) -> bool:
    """Whether a flow's sends fit too many controllers, of several families, to name one."""
    return identification is not None and group_text(identification.group) == OF_EITHER_FAMILY


def sender_text(identification: Identification | None, causes: Collection[str] = ()) -> str:
    """Return the identified sender and its probability; or, if none and a cause of the diagnosis explains it, why.

    `causes`: names of the verdicts, the likeliest first.
    """
    if identification is None or identification.group == (UNKNOWN,):
        return "unknown"
    text = group_text(identification.group)
    if text == OF_EITHER_FAMILY:
        why = next((_HELD[name] for name in causes if name in _HELD), "")
        return f"{text} ({why})" if why else text
    group = identification.group
    share = sum(candidate.probability for candidate in identification.candidates if candidate.name in group)
    return f"{text} ({'over 99 %' if share > 0.99 else format_percent(share)} sure)"
