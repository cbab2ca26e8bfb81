"""A flow's sender in words, for tables and pages."""

import dataclasses
from collections.abc import Collection

from cctrace.cc import is_model_based, kernel_name
from cctrace.identification import constants as const
from cctrace.identification.identify import Identification
from cctrace.identification.odds import UNKNOWN, Candidate
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


def believed(found: Identification | None, reported: str | None) -> Identification | None:
    """Return an identification that agrees with the kernel's counters: the controller that they name, or a variant of
    it.

    `found`: from the sends. `reported`: the kernel's name, see `named.controller_name`.
    """
    if reported is None:
        return found
    left = [one for one in found.candidates if kernel_name(one.name) == reported] if found else []
    total = sum(one.probability for one in left)
    if found is None or not total:
        return Identification(
            [Candidate(reported, 1.0)], (reported,), f"the counters name {reported}", found.seconds if found else 0.0
        )
    left = [one._replace(probability=one.probability / total) for one in left]
    group = tuple(one.name for one in left if one.probability * const.GROUP_RATIO >= left[0].probability)
    tells = f"; {found.reason}" if set(found.group) <= {one.name for one in left} else ""
    return dataclasses.replace(found, candidates=left, group=group, reason=f"the counters name {reported}{tells}")


def group_words(group: tuple[str, ...]) -> str:
    """Return the names of a group; if there are too many, their family, or that the sender is undecided.

    >>> group_words(("cubic6", "reno", "cubic"))
    'cubic6, reno or cubic'
    >>> group_words(("bbr2022", "bbr2019", "bbr3", "bbr2"))
    'a BBR of any version'
    """
    if len(group) > NAMES:
        return "a BBR of any version" if all(map(is_model_based, group)) else OF_EITHER_FAMILY
    *others, last = group
    return f"{', '.join(others)} or {last}" if others else last


def is_undecided(found: Identification | None) -> bool:
    """Whether a flow's sends fit too many controllers, of several families, to name one."""
    return found is not None and group_words(found.group) == OF_EITHER_FAMILY


def sender_words(found: Identification | None, causes: Collection[str] = ()) -> str:
    """Return the identified sender and its probability; or, if none and a cause of the diagnosis explains it, why.

    `causes`: names of the verdicts, the likeliest first.
    """
    if found is None or found.group == (UNKNOWN,):
        return "unknown"
    words = group_words(found.group)
    if words == OF_EITHER_FAMILY:
        why = next((_HELD[name] for name in causes if name in _HELD), "")
        return f"{words} ({why})" if why else words
    share = sum(one.probability for one in found.candidates if one.name in found.group)
    return f"{words} ({'over 99 %' if share > 0.99 else format_percent(share)} sure)"
