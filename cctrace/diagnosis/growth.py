"""Growth of a congestion window that nothing but its own law held back, from packets or from polls."""

import numpy as np
from numpy.typing import NDArray

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.groups import GrowingWindow


def growth(
    windows: NDArray[np.float64], rounds: float, mss: float, began_s: float, lost: float, limits: list[Limit]
) -> GrowingWindow | None:
    """Return how windows after slow start grew; None if they hardly did, or not for long enough.

    `windows`: segments, in order of time; `rounds`: how many round trips they cover. `began_s`: when slow start had
    ended. `lost`: until then.
    """
    if min(len(windows), rounds) < const.ENOUGH:
        return None
    low, high = (float(windows[part].max()) for part in (slice(const.FEWEST), slice(-const.FEWEST, None)))
    if not high >= (1 + const.STEADY) * low:
        return None
    share = shares(limits)
    return GrowingWindow(
        began_s=began_s,
        lost_at_start=lost,
        first_bytes=low * mss,
        last_bytes=high * mss,
        per_rtt_segments=(high - low) / (rounds * (1 - const.FEWEST / len(windows))),
        cwnd_share=share.get("cwnd", 0.0) / max(1 - share.get("startup", 0.0), 1e-9),
    )
