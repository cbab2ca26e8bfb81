"""Is it this window, to a segment? How often what was in flight was not what an unpaced controller's window let out.

A sender that cwnd limits fills its window, and all that decides about the window of Reno or CUBIC is in the record:
what each ACK delivered, and where losses were found. So the replay of its own controller has the very window, to the
segment, ACK after ACK; another controller may grow alike for a while, or give way alike, but is somewhere else soon.

    open        in flight before an ACK, against cwnd after the ACK before: apart by more than SLACK + SHARE
                (below by more than what senders wait for, to send a super-packet of it); not in slow start, where it
                grows faster than it is filled
    recovery    in flight above cwnd, which proportional rate reduction lets fall

Where the socket paces (`replaying.paced`), the timer may keep cwnd from being filled for a while, but not for a whole
round trip: below counts what the fullest flight of this half round trip and the one before falls short of cwnd.

Sources: [Linux618] net/ipv4/tcp_output.c tcp_write_xmit, tcp_tso_should_defer; tcp_input.c tcp_cwnd_reduction.
"""

from typing import NamedTuple

import numpy as np

from cctrace.cc.linux import MIN_TSO_SEGS, PACING_SHIFT
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE, TSO_RTT_LOG

SLACK = 1  # segments: one may wait for a second one to go with it
SHARE = 0.02  # of cwnd, that the number of ACKs until an increment may be off
REPAIR = 1  # segments, by which recovery may be off in addition
PACING_RATIO = 1.2  # sysctl tcp_pacing_ca_ratio: the rate by which super-packets are sized
WIN_DIVISOR = 3  # sysctl tcp_tso_win_divisor: a sender does not wait for more than this part of its window


class Astray(NamedTuple):
    """How many ACKs tell of the window, and at which share of them it is wrong (0 without any)."""

    acks: int
    share: float


def limited(blocks):
    """Return before which ACKs cwnd was what limited the sender, out of recovery."""
    open_twice = blocks.open.copy()
    open_twice[1:] &= blocks.open[:-1]
    return open_twice & ~blocks.free & (blocks.left < blocks.left[-1:])  # after the last send there was nothing to send


def awaited(rows, cwnd, mss):
    """Return for how many segments a sender without pacing waits to send them as one super-packet.

    Parameters
    ----------
    rows : structured ndarray
        Of the event stream.
    cwnd : ndarray
        Segments, at each of these rows.
    mss : int
        Bytes.
    """
    srtt_us = np.maximum(rows["srtt_us8"] / 8, 1)
    rate = PACING_RATIO * cwnd * mss / srtt_us * 1e6
    near_peer = SK_GSO_MAX_SIZE >> np.minimum(rows["tcp_min_rtt_us"].astype(np.int64) >> TSO_RTT_LOG, 31)
    made = np.minimum(rate / 2**PACING_SHIFT + near_peer, SK_GSO_MAX_SIZE) // mss
    return np.minimum(np.maximum(made, MIN_TSO_SEGS), np.maximum(cwnd / WIN_DIVISOR, 1))


def fullest(blocks):
    """Return which ACKs found the largest flight of their half round trip."""
    return blocks.flight >= _most(blocks, blocks.flight)[0]


def _most(blocks, values):
    """Return at each ACK the largest value of its half round trip, and of that and the one before."""
    begins = np.unique(np.append(0, blocks.edges[:-1]))
    most = np.maximum.reduceat(values, begins)
    each = np.diff(np.append(begins, len(values)))
    return np.repeat(most, each), np.repeat(np.maximum(most, np.append(-np.inf, most[:-1])), each)


def astray(blocks, rows, cwnd, ssthresh, paced=False):
    """Return how often the flights are not those of a replayed controller without pacing.

    Parameters
    ----------
    blocks : identify_trajectory.Blocks
    rows : structured ndarray
        The event stream that they are of.
    cwnd, ssthresh : ndarray
        After each row of the stream, segments.
    paced : bool
        Whether the socket paces.

    Returns
    -------
    Astray
    """
    if len(blocks.acks) < 2:
        return Astray(0, 0.0)
    before = blocks.acks[1:] - 1
    window = cwnd[before].astype(float)
    apart = blocks.flight[1:] - window
    nearest = _most(blocks, np.append(-np.inf, apart))[1][1:] if paced else apart
    still_open = limited(blocks)[1:] & (window >= ssthresh[before])
    below = np.maximum(awaited(rows[before], window, blocks.mss) - 1, SLACK) + SHARE * window
    above = SLACK + SHARE * window
    wrong = still_open & ((apart > above) | (nearest < -below))
    repairs = ~blocks.open[1:]
    wrong |= repairs & (apart > above + REPAIR)
    told = int(np.sum(still_open | repairs))
    return Astray(told, float(np.sum(wrong)) / max(told, 1))
