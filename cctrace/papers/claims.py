"""What a paper says, what comes out here, and the mark that follows from the numbers.

A claim is split into *conditions*, each a sentence with a truth value computed from results. All true: held; some: held
in part; none: not held. Nobody writes a mark by hand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

HELD, IN_PART, NOT_HELD, NOT_RUN = "held", "held in part", "not held", "not reproducible"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper beside what was found.

    Attributes
    ----------
    figure, claim : str
        Where the paper says it, and what.
    paper, here : str
        The paper's figures and ours, with units.
    mark : str
        ``held``, ``held in part``, ``not held``, or ``not reproducible`` (something is not to be had).
    direction : str
        Ours against the paper's number: ``same`` (within 10 %), ``higher``, ``lower``, or empty without numbers.
    size : float or None
        Ours over the paper's number.
    mechanism : str
        Why it comes out as it does.
    recording : str
        What recordings of the real kernel show, where there are any.
    failed : list of str
        The conditions that are not fulfilled.

    Examples
    --------
    >>> import cctrace as cct
    >>> (two,) = cct.papers.reproduce("kumar", "2", quick=True, workers=1)
    >>> two.claims[0].to_dict()["figure"]
    '2d'
    """

    figure: str
    claim: str
    paper: str
    here: str
    mark: str
    direction: str = ""
    size: float | None = None
    mechanism: str = ""
    recording: str = ""
    failed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain objects."""
        return asdict(self) | {"failed": list(self.failed)}


def mark_of(conditions: Iterable[object]) -> str:
    """Return the mark that truth values give.

    Examples
    --------
    >>> mark_of([True, True]), mark_of([True, False]), mark_of([False])
    ('held', 'held in part', 'not held')
    """
    fulfilled = [bool(c) for c in conditions]
    if not fulfilled:
        return NOT_RUN
    return HELD if all(fulfilled) else IN_PART if any(fulfilled) else NOT_HELD


def compare(paper: float | None, here: float | None, within: float = 0.1) -> tuple[str, float | None]:
    """Return (direction, size) of our number against the paper's.

    Examples
    --------
    >>> compare(20.0, 10.0), compare(10.0, 10.5), compare(0.0, 1.0)
    (('lower', 0.5), ('same', 1.05), ('higher', None))
    """
    if paper is None or here is None or not np.isfinite(here):
        return "", None
    if paper == 0:
        return ("same" if here == 0 else "higher" if here > 0 else "lower"), None
    size = float(here) / float(paper)
    direction = "same" if abs(size - 1) <= within else "higher" if size > 1 else "lower"
    return direction, round(size, 4)


def judge(
    figure: str,
    claim: str,
    conditions: Mapping[str, object],
    *,
    paper: str,
    here: str,
    numbers: tuple[float | None, float | None] = (None, None),
    mechanism: str = "",
    recording: str = "",
) -> Claim:
    """Return the `Claim` whose mark follows from `conditions`.

    `conditions`: what the claim says, piece by piece; none if it cannot be run. `numbers`: the paper's number and ours,
    where the claim has one.

    Examples
    --------
    >>> judge("2", "collapses", {"below 5 %": False}, paper="95 % less", here="20 % less", numbers=(95, 20)).mark
    'not held'
    """
    failed = tuple(text for text, holds in conditions.items() if not holds)
    direction, size = compare(*numbers)
    return Claim(
        figure, claim, paper, here, mark_of(conditions.values()), direction, size, mechanism, recording, failed
    )


def listed(values: Iterable[Any], form: str = "{:.2f}") -> str:
    """Write numbers with slashes between them.

    >>> listed([0.5, 2.0]), listed([1, 2], "{:g}")
    ('0.50/2.00', '1/2')
    """
    return "/".join(form.format(v) for v in values)


def by_name(values: Mapping[Any, float], form: str) -> str:
    """Write numbers with their names.

    >>> by_name({"BBR": 1.25, "CUBIC": 2.0}, "{:.1f}")
    'BBR 1.2, CUBIC 2.0'
    """
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())
