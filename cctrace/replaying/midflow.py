"""What a replay of a flow that was captured from its middle on has to be told of the time before.

BBR's minimum RTT is older than the capture until PROBE_RTT renews it, and nothing shows how old. But PROBE_RTT itself
is seen: for 200 ms the sender keeps at most four segments in flight. The first one in the capture is taken for the
moment at which the minimum expired; from then on the replay has its own.

Sources: [Linux61] net/ipv4/tcp_bbr.c bbr_update_min_rtt.
"""

import numpy as np

from cctrace.cc.linux import USEC_PER_SEC
from cctrace.replaying.loop import JIFFIES_START
from cctrace.schema import LINUX_EVENTS

FLOOR_SEGMENTS = 4  # bbr_cwnd_min_target
HELD_US = 200_000  # bbr_probe_rtt_mode_ms
LONG_AGO = 1 << 20  # ticks, more than 10 s at any HZ


def probe_rtt_row(events):
    """Return the row of the ACK at which the recorded sender first entered PROBE_RTT; -1 if it never did."""
    rows = events.rows
    ack = np.flatnonzero(rows["event"] == LINUX_EVENTS["on_ack"])
    flight, now_us = rows["rs_prior_in_flight"][ack].astype(np.int64), events.now_us[ack]
    low = np.concatenate([[False], flight <= FLOOR_SEGMENTS, [False]])
    begins, ends = np.flatnonzero(np.diff(low.astype(np.int8)) > 0), np.flatnonzero(np.diff(low.astype(np.int8)) < 0)
    for begin, end in zip(begins, ends, strict=True):
        full = np.median(flight[begin:end]) == FLOOR_SEGMENTS  # the window is used: the application has more to send
        if begin and full and now_us[end - 1] - now_us[begin] >= HELD_US - HELD_US // 10:
            while begin and flight[begin - 1] > flight[begin]:  # nothing was sent since
                begin -= 1
            return int(ack[begin])
    return -1


def age(follower):
    """Return what to add to ``min_rtt_stamp`` for a BBR v1 to find its minimum RTT too old upon its next ACK."""
    ticks = JIFFIES_START + int(follower.now_us[follower.row]) * follower.params["hz"] // USEC_PER_SEC
    return ticks - LONG_AGO - int(follower.get("min_rtt_stamp"))
