"""Segment positions in the sequence space, which the simulation counts in segments: not all of them are full.

A bulk sender of profile `linux` sends a shorter one at the end of a write and at the edge of the receive window:
few, when its flow begins. Behind the last of these (`small_sent`) a segment's place follows from its number; before it
the ring `lacks` holds, for each segment, the cumulative shortfall in bytes of all before it.
"""

from cctrace.lang.memory import words
from cctrace.sim.core.structs import transmissions


def lack_before(f, index):
    """Shortfall of all segments before a sent one, or before the next."""
    return f.snd_lack if index >= f.small_sent else words(f.lacks)[index & f.mask]


def begins(f, index):
    """Start of a sent segment, or of the one after the last, bytes."""
    return index * f.mss - lack_before(f, index)


def next_begins(f):
    """Start of the next segment to be sent, bytes."""
    return f.nxt * f.mss - f.snd_lack


def length(f, index, count=1):
    """Length of `count` sent segments, bytes."""
    if index >= f.small_sent:
        return count * f.mss
    return begins(f, index + count) - begins(f, index)


def note_length(f, lacks):
    """Record the shortfall of the segment being sent, bytes (tcp_minshall_update)."""
    if lacks > 0:
        for index in range(max(f.small_sent, f.nxt - f.mask), f.nxt + 1):
            words(f.lacks)[index & f.mask] = f.snd_lack
        f.snd_lack += lacks
        f.small_sent = f.nxt + 1


def packet_bytes(f, order):
    """Bytes of a transmission on the wire."""
    return f.wire_bytes - f.mss + length(f, transmissions(f.tx)[order & f.mask].seg)
