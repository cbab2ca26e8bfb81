"""Where segments begin in the sequence space, which the simulation counts in segments: not all of them are full.

A bulk sender of profile `linux` sends a shorter one at the end of a write and at the edge of the receive window. The
ring `lacks` holds, for each segment from those outstanding to the next, by how many bytes all before it fall short.
"""

from cctrace.lang.memory import words


def begins(f, index):
    """Where a segment that was sent, or the one after the last of them, begins, bytes."""
    return index * f.mss - words(f.lacks)[index & f.mask]


def next_begins(f):
    """Where the next segment to be sent begins, bytes."""
    return f.nxt * f.mss - f.snd_lack


def length(f, index, count=1):
    """How many bytes `count` segments that were sent hold."""
    return begins(f, index + count) - begins(f, index)


def note_length(f, lacks):
    """The next segment, which is being sent, lacks so many bytes (tcp_minshall_update)."""
    f.snd_lack += lacks
    words(f.lacks)[(f.nxt + 1) & f.mask] = f.snd_lack
    if lacks > 0:
        f.small_sent = f.nxt + 1


def packet_bytes(f, order):
    """Bytes of a transmission on the wire."""
    return f.wire_bytes - f.mss + length(f, words(f.tx_seg)[order & f.mask])
