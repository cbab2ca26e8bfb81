"""How many marked packets a counter of three bits reports, by trying every number: an oracle for `cctrace.tcp.ecn`."""


def newly_marked(ace, before, delivered):
    """Return by how much a count that starts at 5 grew, of which the lower three bits came.

    The least growth that fits; where more was delivered than three bits count, the largest that is no more than that.
    """
    fits = [n for n in range(max(delivered, 7) + 1) if (5 + before + n) % 8 == ace]
    return fits[-1] if delivered > 7 else fits[0]
