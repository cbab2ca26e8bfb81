r"""A fitted quantity per group: partial pooling of flows within groups, and of groups.

On the logarithm :math:`y_{ij}` of what flow :math:`i` of group :math:`j` says, with its standard error
:math:`s_{ij}` from the width of its interval:

.. math:: y_{ij} \sim N(\theta_j,\ s_{ij}^2 + \tau^2), \qquad \theta_j \sim N(\mu,\ \omega^2)

:math:`\tau` (how much flows of a group differ) and :math:`\omega` (how much groups do) are moment estimates from the
weighted sums of squares [DerSimonian86]_; a group of few or unsure flows is drawn towards the others by as much as
:math:`\omega` allows.
"""

import numpy as np
import pandas as pd

_Z95 = 1.959963984540054
_LEAST_ERROR = 1e-4  # relative: no interval is narrower than the model that it is of


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
        Group, flows (that have value and interval), value, low, high (95 % interval of the group's mean, in the
        logarithm), spread (factor by which flows of a group differ, one standard deviation), of_group (how much of the
        value is the group's own, the rest is that of all groups).
    """
    columns = [quantity, f"{quantity}_low", f"{quantity}_high"]
    known = frame[(frame[columns].notna() & (frame[columns] > 0)).all(axis=1)]
    group = known[by] if by else pd.Series("all", index=known.index)
    y = np.log(known[quantity].to_numpy(float))
    width = np.log(known[columns[2]].to_numpy(float)) - np.log(known[columns[1]].to_numpy(float))
    s2 = np.maximum(width / (2 * _Z95), _LEAST_ERROR) ** 2
    codes, names = pd.factorize(group, sort=True)
    if not len(names):
        return pd.DataFrame(columns=[by or "group", "flows", "value", "low", "high", "spread", "of_group"])
    tau2 = _between(y, s2, codes, len(names))
    means, variances = _means(y, s2 + tau2, codes, len(names))
    omega2 = _between(means, variances, np.zeros(len(names), int), 1)
    (mu,), (mu_variance,) = _means(means, variances + omega2, np.zeros(len(names), int), 1)
    own = omega2 / (omega2 + variances) if len(names) > 1 else np.ones(1)
    value = own * means + (1 - own) * mu
    error = np.sqrt(own * variances + (1 - own) ** 2 * mu_variance)
    return pd.DataFrame(
        {
            by or "group": names,
            "flows": np.bincount(codes, minlength=len(names)),
            "value": np.exp(value),
            "low": np.exp(value - _Z95 * error),
            "high": np.exp(value + _Z95 * error),
            "spread": np.exp(np.sqrt(tau2)),
            "of_group": own,
        }
    )


def _means(y, variance, codes, groups):
    """Return weighted means per group and their variances."""
    weight = 1 / variance
    total = np.bincount(codes, weight, groups)
    return np.bincount(codes, weight * y, groups) / total, 1 / total


def _between(y, s2, codes, groups):
    """Return the variance that the errors do not explain, pooled over the groups [DerSimonian86]_; 0 if they do."""
    means, variances = _means(y, s2, codes, groups)
    weight = 1 / s2
    squares = np.sum(weight * (y - means[codes]) ** 2)
    freedom = len(y) - groups
    scale = np.sum(weight) - np.sum(np.bincount(codes, weight**2, groups) * variances)
    return max(0.0, (squares - freedom) / scale) if freedom > 0 and scale > 0 else 0.0
