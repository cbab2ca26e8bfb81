"""Compact encoding of numeric columns for the page: differences, byte planes, deflate.

    integers --difference--> zigzag --one plane per byte--> deflate --> {"n", "planes", "scale", "data"}

`decode.js` is the inverse; the page holds the bytes as base64, a notebook's kernel sends them unchanged. A column
of a million capture times takes some two bytes per row, a constant one nothing.
"""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import ArrayLike

Pack = Callable[[bytes], bytes]


small = functools.partial(zlib.compress, level=6)
fast = functools.partial(isal_zlib.compress, level=1)  # ten times as fast, a fifth larger

STEPS = 100_000  # of the largest value: rounding of floats, far finer than a screen


def integers(values: ArrayLike, scale: float = 1.0, pack: Pack = small) -> dict[str, Any]:
    """Return a column of integers, exactly; what is read is the integer times `scale`.

    `pack`: `small` or `fast`. Returns dict: ``data`` is bytes.

    >>> integers([5, 5, 6])["n"], integers([5, 5, 6])["planes"]
    (3, 1)
    """
    values = np.asarray(values).astype(np.int64)
    steps = np.diff(values, prepend=np.int64(0))
    signs = steps >> 63
    steps <<= 1
    steps ^= signs
    zigzag = steps.view(np.uint64)
    planes = max(1, (int(zigzag.max(initial=0)).bit_length() + 7) // 8)
    bytes_of = zigzag.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :planes]
    data = pack(np.ascontiguousarray(bytes_of.T).tobytes())
    return {"n": len(values), "planes": planes, "scale": scale, "data": data}


def floats(values: ArrayLike, pack: Pack = small) -> dict[str, Any]:
    """Return a column of finite floats, rounded to about a `STEPS`-th of the largest one.

    >>> column = floats([0.1, 12.5])
    >>> column["scale"]
    0.0001
    """
    values = np.asarray(values, np.float64)
    largest = float(np.abs(values).max(initial=0)) or 1.0
    scale = float(f"1e{int(np.floor(np.log10(largest / STEPS)))}")
    steps = values / scale
    return integers(np.rint(steps, out=steps), scale, pack)
