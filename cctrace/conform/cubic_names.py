"""Fields of Linux's CUBIC under the names of RFC 9438, in segments, seconds and microseconds.

What a class has no field for is left out, and no requirement that needs it is exercised.
"""

from typing import Any

import numpy as np

from cctrace.cc.base import Controller
from cctrace.cc.cubic import Cubic
from cctrace.cc.cubic6 import Cubic6
from cctrace.columns import Columns

_SAME = {"w_max": "last_max_cwnd", "w_est": "tcp_cwnd", "w_origin": "bic_origin_point", "per_increment": "cnt"}
_CURVE_HZ = 1024.0  # bic_K counts in these


def named(cls: type[Controller], fields: Columns, hz: float, clock: tuple[Any, Any]) -> Columns:
    """Return the state of a Linux CUBIC under the names of RFC 9438, beside its own; nothing for other controllers.

    `epoch_us` is the start of the epoch, on the clock of now_us; NaN before. `clock` has now_us and jiffies of each
    row, because the kernel's stamps are jiffies.
    """
    if not issubclass(cls, Cubic):
        return fields
    now_us, jiffies = clock
    begun = fields["epoch_start"] != 0
    unit_us = 1.0 if issubclass(cls, Cubic6) else 1000 / 8  # of delay_min: us, before 6.x ms << 3
    return (
        fields
        | {name: fields[field] for name, field in _SAME.items()}
        | {
            "k_s": fields["bic_K"] / _CURVE_HZ,
            "epoch_us": np.where(begun, now_us - (jiffies - fields["epoch_start"]) * (1e6 / hz), np.nan),
            "min_rtt_us": fields["delay_min"] * unit_us,
        }
    )
