"""A fitted quantity per group: the flows of each group pooled by `cct.fit.Hierarchical`, then the groups likewise.

Both on the logarithm of the quantity, because flows of a network, and networks, differ by factors. A flow's error is
the width of its interval. Groups with fewer than `MIN_FLOWS` such flows have no value of their own.
"""

import numpy as np
import pandas as pd

from cctrace.columns import Floats
from cctrace.corpus.tasks import Row
from cctrace.estimates import Estimate
from cctrace.fit.constants import MIN_FLOWS
from cctrace.fit.hierarchical import Hierarchical

MAX_FLOWS = 20_000  # per group: more add nothing, and pooling holds some hundred numbers for each
COLUMNS = ("flows", "value", "low", "high", "spread", "among", "among_low", "among_high")


def pooled(frame: pd.DataFrame, quantity: str, by: str | None) -> pd.DataFrame:
    """Return a quantity per group.

    `frame`: a row per flow with the columns `quantity`, `<quantity>_low`, `<quantity>_high`, which are above 0, and
    `by`. `by`: None makes all flows one group. Returns a DataFrame: group, flows (with value and interval), value, low,
    high (mean of the group, and its 95 % interval), spread (factor by which flows of the group differ beyond their
    errors, one standard deviation); and if there are at least `MIN_FLOWS` groups, among, among_low, among_high: the
    value shrunk towards the other groups by partial pooling. NaN where there are too few.
    """
    columns = [quantity, f"{quantity}_low", f"{quantity}_high"]
    known = frame[(frame[columns].notna() & (frame[columns] > 0)).all(axis=1)]
    groups = known.groupby(known[by] if by else pd.Series("all", index=known.index), sort=True)
    rows = [{by or "group": name} | _alone(one[columns].to_numpy(float)) for name, one in groups]
    types = {"flows": int} | dict.fromkeys(COLUMNS[1:], float)
    found = pd.DataFrame(rows, columns=[by or "group", *COLUMNS]).astype(types)
    _among(found)
    return found


def _alone(values: Floats) -> Row:
    row = {"flows": len(values)}
    if len(values) < MIN_FLOWS:
        return row
    step = -(-len(values) // MAX_FLOWS)
    fit = Hierarchical().pool(Estimate(*line) for line in np.log(values[::step]).tolist())
    value, low, high = (float(np.exp(side)) for side in fit.mean_.sides())
    return row | {"value": value, "low": low, "high": high, "spread": float(np.exp(fit.spread_.sides()[0]))}


def _among(found: pd.DataFrame) -> None:
    """Add the value of each group after partial pooling with the others."""
    has_value = found["value"].notna()
    if has_value.sum() < MIN_FLOWS:
        return
    logs = np.log(found.loc[has_value, ["value", "low", "high"]].to_numpy(float))
    fit = Hierarchical().pool(Estimate(*line) for line in logs.tolist())
    found.loc[has_value, ["among", "among_low", "among_high"]] = np.exp(np.array(fit.flows_, float))
