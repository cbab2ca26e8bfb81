"""The numbers of a paper beside ours: a dot for each reading of each statement that has a size."""

from collections.abc import Iterable

from cctrace.papers.claims import NEAR, Claim, statements
from cctrace.papers.figure import Drawn
from cctrace.plot.figure import finish, one_panel

FAR = 10.0  # dots beyond lie at the edge
LABEL = 60  # letters of a statement
HOLDS_COLOUR, OTHER_COLOUR = "#2e8b57", "#b3541e"


def sizes(claims: Iterable[Claim], title: str = "") -> Drawn | None:
    """Draw ours over the paper's number, statement by statement; None if no statement has a number.

    Small dots are readings; the large one is the nearest; the band is the tolerance, a quarter either way.

    >>> from cctrace.papers.claims import Stated
    >>> most = Stated("2", "most is lost", "95 %").judged({}, "60 %", {"lost (%)": (95, 60)})
    >>> [label.get_text() for label in sizes([most]).axes[0].get_yticklabels()]
    ['2: most is lost (95 %)']
    """
    with_size = [
        (one, [c.size for c in one.claims if c.size is not None]) for one in statements(claims) if not one.ours
    ]
    rows = [(one, found) for one, found in with_size if found]
    if not rows:
        return None
    drawing, axes = one_panel((9.0, 1.4 + 0.24 * len(rows)), title)
    axes.axvspan(1 - NEAR, 1 + NEAR, color="#e8eef4", zorder=0)
    axes.axvline(1, color="#444", ls="--", lw=1, zorder=0)
    for k, (one, found) in enumerate(rows):
        clipped = [min(max(size, 1 / FAR), FAR) for size in found]
        nearest = min(clipped, key=lambda size: abs(size - 1))
        axes.plot(clipped, [k] * len(clipped), "o", ms=3, mfc="none", color="#5d6b7a")
        colour = HOLDS_COLOUR if one.mark.startswith("held") and one.mark != "held in part" else OTHER_COLOUR
        axes.plot([nearest], [k], "o", ms=6, color=colour)
    axes.set_yticks(
        range(len(rows)), [_label(one.figure, one.claim, one.claims[0].paper) for one, _ in rows], fontsize=7
    )
    axes.invert_yaxis()
    axes.set_xscale("log")
    ticks = [1 / FAR, 0.25, 0.5, 1, 2, 4, FAR]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.minorticks_off()
    axes.set_xlabel("ours / the paper's (green: holds)", fontsize=9)
    finish(axes)
    return drawing


def _label(figure: str, claim: str, paper: str) -> str:
    short = claim if len(claim) <= LABEL else claim[: LABEL - 1].rstrip() + "…"
    return f"{figure}: {short} ({paper if len(paper) <= LABEL // 3 else paper[: LABEL // 3 - 1].rstrip() + '…'})"
