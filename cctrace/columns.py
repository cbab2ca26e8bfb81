"""Tables as numpy columns, converted to a DataFrame on request.

pandas takes half a second to import, a quarter of the rest of a flow's analysis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cctrace.schema import MISSING

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[Any]  # a column
Columns = dict[str, Values]


def frame_of(columns: Mapping[str, Any], nullable: Collection[str] = ()) -> pd.DataFrame:
    """Return columns as a DataFrame.

    `nullable`: columns whose values may be `MISSING` where they are int64: these become Int64, and such a value NA.

    >>> frame_of({"snd_cwnd": np.array([10, MISSING])}, nullable=["snd_cwnd"])["snd_cwnd"].tolist()
    [10, <NA>]
    """
    import pandas as pd

    made: dict[str, Any] = dict(columns)
    for name in nullable:
        values = columns[name]
        if values.dtype == np.int64:
            gap = values == MISSING
            made[name] = pd.arrays.IntegerArray(np.where(gap, 0, values), gap)
    return pd.DataFrame(made)
