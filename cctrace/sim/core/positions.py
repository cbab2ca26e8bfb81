"""Where segments begin in the sequence space, which the simulation counts in segments: not all of them are full.

A bulk sender of profile `linux` sends a shorter one at the end of a write and at the edge of the receive window. The
ring `lacks` holds, for each segment from those outstanding to the next, by how many bytes all before it fall short.
"""

from cctrace.lang.memory import words


def begins(f, index):
    """Where a segment begins, bytes; of those not sent yet only of the next."""
    return index * f.mss - words(f.lacks)[index & f.mask]


def length(f, index, count=1):
    """How many bytes `count` segments that were sent hold."""
    return begins(f, index + count) - begins(f, index)


def note_length(f, lacks):
    """The next segment, which is being sent, lacks so many bytes (tcp_minshall_update)."""
    words(f.lacks)[(f.nxt + 1) & f.mask] = words(f.lacks)[f.nxt & f.mask] + lacks
    if lacks > 0:
        f.small_sent = f.nxt + 1


def packet_bytes(f, order):
    """Bytes of a transmission on the wire."""
    return f.wire_bytes - f.mss + length(f, words(f.tx_seg)[order & f.mask])
