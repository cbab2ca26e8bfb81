"""Whether packets waited between TCP and the tap, as their echoes of time stamps (TSecr) show.

TCP writes the latest time stamp that it has received (ts_recent) into a packet when it hands it over. Without a queue
below TCP the packet leaves at once, and echoes the latest ACK; a packet that waited in fq echoes an older one. A busy
host may process an ACK later than it was captured, but seldom, and by less than a millisecond.
"""

import numpy as np

from cctrace.flows.flow import Flow
from cctrace.replaying.engine.waiting import SOON_NS

# Share of the packets with data that echo an older ACK. Without fq at most 0.2 %; with fq 3 % or more if a BBR sent
# them, and fewer of other controllers, whose packets mostly wait for ACKs.
STALE = 0.01


def waits_in_queue(flow: Flow) -> bool:
    """Return whether packets echo stale time stamps, although an ACK with a newer one came SOON_NS before they left."""
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
