"""A fitted quantity per group: the flows of each group pooled by `cct.fit.Hierarchical`, then the groups likewise.

Both on the logarithm of the quantity: flows of a network differ by factors, and so do networks. A flow's error is the
width of its interval. Groups with fewer than `LEAST_FLOWS` flows that have one say nothing by themselves.
"""

import numpy as np
import pandas as pd

from cctrace.estimates import Estimate
from cctrace.fit.hierarchical import LEAST_FLOWS, Hierarchical

MOST_FLOWS = 20_000  # of a group: more tell nothing new, and pooling holds some hundred numbers for each
COLUMNS = ("flows", "value", "low", "high", "spread", "among", "among_low", "among_high")


def pooled(frame, quantity, by):
    """Return a quantity per group.

    Parameters
    ----------
    frame : DataFrame
        A row per flow with the columns `quantity`, `<quantity>_low`, `<quantity>_high`, which are above 0, and `by`.
    quantity : str
    by : str or None
        None: all flows are one group.

    Returns
    -------
    DataFrame
        Group, flows (that have value and interval), value, low, high (mean of the group, and its 95 % interval), spread
        (factor by which flows of the group differ beyond their errors, one standard deviation); and where there are
        at least `LEAST_FLOWS` groups, among, among_low, among_high: the same value drawn towards the other groups by as
        much as they tell more than it. NaN where there are too few.
    """
    columns = [quantity, f"{quantity}_low", f"{quantity}_high"]
    known = frame[(frame[columns].notna() & (frame[columns] > 0)).all(axis=1)]
    groups = known.groupby(known[by] if by else pd.Series("all", index=known.index), sort=True)
    rows = [{by or "group": name} | _alone(one[columns].to_numpy(float)) for name, one in groups]
    types = {"flows": int} | dict.fromkeys(COLUMNS[1:], float)
    found = pd.DataFrame(rows, columns=[by or "group", *COLUMNS]).astype(types)
    _among(found)
    return found


def _alone(values):
    """Return what the flows of one group say together."""
    row = {"flows": len(values)}
    if len(values) < LEAST_FLOWS:
        return row
    step = -(-len(values) // MOST_FLOWS)
    fit = Hierarchical().pool(Estimate(*line) for line in np.log(values[::step]).tolist())
    value, low, high = (float(np.exp(side)) for side in fit.mean_)
    return row | {"value": value, "low": low, "high": high, "spread": float(np.exp(fit.spread_.value))}


def _among(found):
    """Add what each group's value is in the company of the others."""
    told = found["value"].notna()
    if told.sum() < LEAST_FLOWS:
        return
    logs = np.log(found.loc[told, ["value", "low", "high"]].to_numpy(float))
    fit = Hierarchical().pool(Estimate(*line) for line in logs.tolist())
    found.loc[told, ["among", "among_low", "among_high"]] = np.exp(np.array(fit.flows_, float))
