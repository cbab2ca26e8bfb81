"""Whether packets waited between TCP and the tap, as the echoes of time stamps show.

TCP writes the latest time stamp that it has received into a packet when it hands it over (`sender.echoes`). Without a
queue it leaves at once, and echoes the latest ACK; what waited for fq's clock echoes an older one. A busy host may
process an ACK later than it was captured, by less than a millisecond and seldom.
"""

import numpy as np

from cctrace.flows.flow import Flow
from cctrace.replaying.engine.waiting import SOON_NS

# Of the packets with data. In captures without fq .2 % at most, with fq 3 % of a BBR's or more; of others' fewer, where
# windows and ACKs hold back nearly all.
STALE = 0.01


def waits_in_queue(flow: Flow) -> bool:
    """Return whether packets echo stale time stamps: an ACK with a newer one had come SOON_NS before they left."""
    if not flow.facts["timestamps"]:
        return False
    capture, k = flow.capture, flow.index
    rows = capture.connections.rows_of(k)
    packets, time_ns = capture.packets, capture.connections.clock[rows]
    sent = packets["direction"][rows] == capture.connections.sender[k]
    stamps = (packets[name][rows].astype(np.uint32) for name in ("tsval", "tsecr"))
    acks, data = ~sent, sent & (packets["payload"][rows] > 0)
    stamp, echo = (one[some] for one, some in zip(stamps, (acks, data), strict=True))
    if not len(stamp) or not len(echo):
        return False
    first = stamp[0]  # time stamps wrap around
    latest = np.maximum.accumulate((stamp - first).view(np.int32))
    since = np.searchsorted(time_ns[acks], time_ns[data] - SOON_NS, side="right") - 1
    stale = (since >= 0) & (latest[since] > (echo - first).view(np.int32))
    return bool(np.mean(stale) > STALE)
