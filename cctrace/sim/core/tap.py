"""The tap: packets as captures at both ends of a simulated TCP flow would see them, recorded if a buffer is given."""

from cctrace.lang.memory import words
from cctrace.sim.core.positions import length
from cctrace.sim.core.structs import ECHO, TAP_ECHO, TAP_LACKS, TAP_SENT, TAP_WIDTH, transmissions


def tap(f, now, what, marks, value):
    """Note a packet: when, what (`structs.TAP_SYN`, …) with its marks, and which one."""
    if f.tap_size == 0:
        return
    at = f.tap_rows * TAP_WIDTH
    row = words(f.tap_buffer)
    row[at] = now
    row[at + 1] = what | marks << 3
    row[at + 2] = value
    f.tap_rows += 1


def tap_sent(f, now, order):
    """Note a transmission, by how many bytes its segment is not full and, through fq, which time stamp it echoes.

    That is the latest one received when TCP handed it over (tcp_established_options), else when it leaves.
    """
    if f.tap_size > 0:
        sent = transmissions(f.tx)[order & f.mask]
        lacks = f.mss - length(f, sent.seg)
        echo = sent.marks >> ECHO if f.fq == 1 else 0
        tap(f, now, TAP_SENT, sent.marks & (1 << ECHO) - 1 | lacks << TAP_LACKS | echo << TAP_ECHO, sent.seg)


def tap_room(f):
    """Notes that one event can add: all of a window sent, and sent again."""
    return 2 * f.most_out + 64
