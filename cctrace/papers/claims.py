"""What a paper claims, what was found here, and the mark that follows from the numbers.

A claim has *conditions*, directions and orders with truth values computed from results, and *sizes*, numbers
compared with the paper's, which must agree to 25 %. All hold: held; the directions but not the sizes: held in part;
else: not held. Claims of the same text are one *statement*: its parts, and readings of what the paper leaves open.
No mark is written by hand.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from cctrace.display import Jsonable
from cctrace.units import format_counted

HELD, IN_PART, NOT_HELD, NOT_RUN = "held", "held in part", "not held", "not reproducible"
UNDER = "held under a reading"  # of what the paper leaves open
NEAR = 0.25  # tolerance of a number against the paper's, either way; fixed before the runs, the same for all
SAME = 0.1  # within which two numbers are called the same
# What would settle the statements that do not hold, by paper; printed at the end of the summary.
SETTLES = {
    "kumar": "a capture at the sender: how ACKs are spaced there, and the size of its send buffer",
    "bbr2plus": "deviation, order and length of the runs under jitter; the traces of Figs. 16 and 22; Orca's weights",
    "obbr": "how late timers and processes of the laboratory's hosts were; a capture of Fig. 13's live path",
    "bbrx": "rates and queue of Fig. 3, the slope of Eq. 6, a capture of Fig. 4, what BBRx does in STARTUP",
    "beyond": "delay variation built against each controller, which slots of ACKs are not",
}
Sizes = Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True)
class Claim(Jsonable):
    """One statement of a paper, or a part or a reading of it, beside what was found.

    Attributes
    ----------
    figure, claim : str
        Where the paper says it, and what; claims that agree in both are one statement.
    paper, here : str
        The paper's figures and ours, with units.
    mark : str
        ``held``, ``held in part``, ``not held``, or ``not reproducible`` (something it needs is not available).
    direction : str
        Ours against the paper's number: ``same`` (within 10 %), ``higher``, ``lower``, or empty without numbers.
    size : float or None
        Ours over the paper's number.
    recording : str
        What recordings of the real kernel show, where there are any.
    failed : tuple of str
        The conditions that are not fulfilled.
    reading : str
        How what the paper leaves open was read here; empty where there is one reading.
    part : str
        Of a statement about several things, which.
    ours : bool
        The paper does not say it.

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
    recording: str = ""
    failed: tuple[str, ...] = ()
    reading: str = ""
    part: str = ""
    ours: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain objects."""
        return asdict(self) | {"failed": list(self.failed)}


@dataclass(frozen=True)
class Statement:
    """A statement of a paper: its mark follows from its `claims`, which are readings and parts of it."""

    figure: str
    claim: str
    claims: tuple[Claim, ...]

    @property
    def mark(self) -> str:
        """Held under all readings, or one, in part under one, or not at all; a reading holds if all its parts do."""
        marks = {reading: _least(parts) for reading, parts in self.readings().items()}.values()
        if HELD in marks:
            return HELD if set(marks) == {HELD} else UNDER
        return next(mark for mark in (IN_PART, NOT_RUN, NOT_HELD) if mark in marks)

    @property
    def ours(self) -> bool:
        """The paper does not say it."""
        return all(claim.ours for claim in self.claims)

    def readings(self) -> dict[str, list[Claim]]:
        """Return {reading: its claims}."""
        out: dict[str, list[Claim]] = {}
        for claim in self.claims:
            out.setdefault(claim.reading, []).append(claim)
        return out


def _least(parts: Iterable[Claim]) -> str:
    marks = {claim.mark for claim in parts}
    return next(mark for mark in (NOT_RUN, NOT_HELD, IN_PART, HELD) if mark in marks)


def statements(claims: Iterable[Claim]) -> list[Statement]:
    """Return the statements that these claims are readings and parts of, in order.

    >>> falls = Stated("2", "falls")
    >>> two = [falls.judged({"falls": x}, reading=reading) for x, reading in ((True, "a"), (False, "b"))]
    >>> [(one.claim, one.mark) for one in statements(two)]
    [('falls', 'held under a reading')]
    """
    found: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        found.setdefault((claim.figure, claim.claim), []).append(claim)
    return [Statement(figure, text, tuple(of)) for (figure, text), of in found.items()]


def summary(claims: Iterable[Claim]) -> str:
    """Return how many statements of a paper hold, under which reading, and what fails in the others, a line each.

    >>> print(summary([Stated("2", "falls").judged({"falls": False})]))
    1 statement of the paper: 0 held, 0 held under a reading of what it leaves open, 0 in part, 1 not held.
    not held, 2: falls (falls)
    """
    all_ = statements(claims)
    of_paper = [one for one in all_ if not one.ours]
    count = Counter(one.mark for one in of_paper)
    lines = [
        f"{format_counted(len(of_paper), 'statement', 'statements')} of the paper: {count[HELD]} held, {count[UNDER]} "
        f"held under a reading of what it leaves open, {count[IN_PART]} in part, {count[NOT_HELD]} not held"
        + (f", {count[NOT_RUN]} not reproducible." if count[NOT_RUN] else ".")
    ]
    checks = [one.mark for one in all_ if one.ours]
    if checks:
        lines[0] += f" Of ours: {len(checks)}, of which {sum(mark in (HELD, UNDER) for mark in checks)} held."
    for one in of_paper:
        if one.mark == UNDER:
            holding = [reading for reading, parts in one.readings().items() if _least(parts) == HELD]
            lines.append(
                f"{UNDER}, {one.figure}: {one.claim} ({holding[0]}; {len(holding)} of {len(one.readings())} readings)"
            )
        elif one.mark in (IN_PART, NOT_HELD):
            best = min(
                (claim for claim in one.claims if claim.failed),
                key=lambda claim: (claim.mark == NOT_HELD, len(claim.failed)),
            )
            where = f"; nearest: {best.reading}" if best.reading else ""
            lines.append(f"{one.mark}, {one.figure}: {one.claim} ({'; '.join(best.failed)}{where})")
    return "\n".join(lines)


def mark_of(directions: Iterable[object], sizes: Iterable[object] = ()) -> str:
    """Return the mark that truth values give: in part is what has its directions right and a size off.

    >>> mark_of([True], [True]), mark_of([True], [False]), mark_of([True, False], [True]), mark_of([])
    ('held', 'held in part', 'not held', 'not reproducible')
    """
    right, near = [bool(c) for c in directions], [bool(c) for c in sizes]
    if not right and not near:
        return NOT_RUN
    if all(right) and all(near):
        return HELD
    return IN_PART if right and all(right) else NOT_HELD


def compare(paper: float | None, here: float | None, within: float = SAME) -> tuple[str, float | None]:
    """Return (direction, size) of our number against the paper's.

    >>> compare(20.0, 10.0), compare(10.0, 10.5), compare(0.0, 1.0), compare(0.4, 0.3, within=0.25)
    (('lower', 0.5), ('same', 1.05), ('higher', None), ('same', 0.75))
    """
    if paper is None or here is None or not np.isfinite(here):
        return "", None
    if paper == 0:
        return ("same" if here == 0 else "higher" if here > 0 else "lower"), None
    size = float(here) / float(paper)
    direction = "same" if round(abs(size - 1), 12) <= within else "higher" if size > 1 else "lower"
    return direction, round(size, 4)


class Stated(NamedTuple):
    """What a paper states: in which figure, what, and with which numbers or words.

    >>> loses = Stated("2", "loses most", "95 % less")
    >>> made = loses.judged({"loses": True}, "20 % less", {"loss": (95, 20)})
    >>> made.mark, made.failed
    ('held in part', ('loss: 20 for 95',))
    """

    figure: str
    claim: str
    paper: str = ""

    def judged(
        self,
        conditions: Mapping[str, object],
        here: str = "",
        sizes: Sizes | None = None,
        *,
        recording: str = "",
        reading: str = "",
        part: str = "",
        ours: bool = False,
    ) -> Claim:
        """Return the `Claim` whose mark follows from `conditions` and `sizes`.

        `conditions`: directions and orders that the claim states. `here`: our figures. `sizes`: {name: (the paper's
        number, ours)}, which must agree to `NEAR`, higher or lower. Neither, if it cannot be run.
        """
        sizes = sizes or {}
        near = {name: compare(*pair, NEAR)[0] == "same" for name, pair in sizes.items()}
        failed = [text for text, holds in conditions.items() if not holds]
        failed += [f"{name}: {_short(sizes[name][1])} for {_short(sizes[name][0])}" for name in near if not near[name]]
        direction, size = compare(*next(iter(sizes.values()))) if sizes else ("", None)
        mark = mark_of(conditions.values(), near.values())
        return Claim(*self, here, mark, direction, size, recording, tuple(failed), reading, part, ours)


def _short(number: float | None) -> str:
    return "nothing" if number is None or not np.isfinite(number) else f"{number:.3g}"


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
