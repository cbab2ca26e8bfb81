"""Flows that another controller would have served better, among those whose own controller is reproduced.

A flow is one of four:

    better, worse       the 90 % interval of the change lies beyond the margin
    alike               it lies within the margin
    undecided           it crosses the margin

Shares count decided flows among those that are reproduced. Their 95 % intervals ([Brown01]_: Jeffreys) treat the
flows as a random sample; the upper end counts all undecided flows as well.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cctrace.arguments import check_choice
from cctrace.special import special

Interval = tuple[float, float, float]  # value, low, high
MARGIN = 0.05
FIGURES = {"goodput": ("goodput_change", 1), "rtt": ("rtt_change", -1), "share": ("share_change", -1)}
KINDS = ("better", "worse", "alike", "undecided")


def kinds(frame: pd.DataFrame, figure: str = "goodput", margin: float = MARGIN) -> pd.Series:
    """Return which of `KINDS` each row of the table `whatifs` is.

    `frame`: columns ``goodput_change_low`` and ``_high``, and so on; a missing end is open. `figure` is "goodput",
    "rtt" or "share".

    >>> rows = {"goodput_change_low": [0.1, -0.2, -0.01, -0.01], "goodput_change_high": [0.2, -0.1, 0.02, None]}
    >>> kinds(pd.DataFrame(rows)).tolist()
    ['better', 'worse', 'alike', 'undecided']
    """
    check_choice("figure", figure, FIGURES)
    column, sign = FIGURES[figure]
    low = frame[f"{column}_low"].astype(float).fillna(-np.inf)
    high = frame[f"{column}_high"].astype(float).fillna(np.inf)
    more, less = low > margin, high < -margin
    alike = (low >= -margin) & (high <= margin)
    found = np.select(
        [more, less, alike],
        ["better" if sign > 0 else "worse", "worse" if sign > 0 else "better", "alike"],
        "undecided",
    )
    return pd.Series(found, index=frame.index)


def compared(
    frame: pd.DataFrame, by: str | None = None, figure: str = "goodput", margin: float = MARGIN
) -> pd.DataFrame:
    """Return for how many flows candidates would have done better, or worse, than the flows' own controllers.

    `frame`: of the table `whatifs`. `by`: column of the groups. `figure`, `margin`: as in `kinds`.

    Returns a DataFrame with a row per group and controller (the candidate): flows asked about, sent by the candidate
    itself, and answered (the others that are reproduced); how many of these are better, worse, alike and undecided;
    better_share and worse_share, and the median change, each with its 95 % interval (_low, _high).
    """
    sent = frame["own"] == frame["controller"]
    known = frame["reproduces"].fillna(False).astype(bool) & frame["refused"].isna() & ~sent
    frame = frame.assign(kind=kinds(frame, figure, margin), sent=sent)
    rows = []
    for name, one in frame.groupby(["controller", *([by] if by else [])], sort=True, dropna=False):
        decided = one[known[one.index]]
        count = decided["kind"].value_counts().reindex(KINDS, fill_value=0)
        row = ({by: name[1]} if by else {}) | {
            "controller": name[0],
            "asked": len(one),
            "sent": int(one["sent"].sum()),
            "answered": len(decided),
        }
        row |= {kind: int(count[kind]) for kind in KINDS}
        for kind in ("better", "worse"):
            value, low, _ = share(count[kind], len(decided))
            row |= {f"{kind}_share": value, f"{kind}_share_low": low}
            row[f"{kind}_share_high"] = share(count[kind] + count["undecided"], len(decided))[2]
        middle = median(decided[FIGURES[figure][0]].astype(float).dropna())
        rows.append(row | dict(zip(("change", "change_low", "change_high"), middle, strict=True)))
    return pd.DataFrame(rows)


def share(count: int, n: int) -> Interval:
    """Return a share of n flows with its 95 % interval; NaN of none.

    >>> [round(side, 3) for side in share(5, 10)]
    [0.5, 0.224, 0.776]
    """
    if not n:
        return np.nan, np.nan, np.nan
    from cctrace.path.losses import proportion  # takes time

    low, high = proportion(count, n)
    return count / n, float(low), float(high)


def median(values: ArrayLike) -> Interval:
    """Return the median with its 95 % interval from order statistics; NaN with too few values.

    >>> median(np.arange(1, 22))
    (11.0, 6.0, 16.0)
    """
    ranked = np.sort(np.asarray(values, float))
    if not len(ranked):
        return np.nan, np.nan, np.nan
    low = int(np.ceil(special.bdtrik(0.025, len(ranked), 0.5)))
    if not low:
        return float(np.median(ranked)), np.nan, np.nan
    return float(np.median(ranked)), float(ranked[low - 1]), float(ranked[-low])
