"""What the page's script makes of the columns that `cctrace.report.encode` packs."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decoded(column: dict[str, Any]) -> NDArray[Any]:
    """Return the values of a column, as the page's script does."""
    data = column["data"]
    data = base64.b64decode(data) if isinstance(data, str) else data
    planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(column["planes"], -1)
    zigzag = np.zeros(column["n"], np.uint64)
    for i, plane in enumerate(planes):
        zigzag |= plane.astype(np.uint64) << np.uint64(8 * i)
    steps = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps) * column["scale"]
