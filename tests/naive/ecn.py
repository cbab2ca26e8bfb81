"""Marks counted the slow way: oracles for `cctrace.tcp.ecn` and `cctrace.flows.ecn`."""


def newly_marked(ace, before, delivered):
    """Return by how much a count that starts at 5 grew, of which the lower three bits came.

    The least growth that fits; where more was delivered than three bits count, the largest that is no more than that.
    """
    fits = [n for n in range(max(delivered, 7) + 1) if (5 + before + n) % 8 == ace]
    return fits[-1] if delivered > 7 else fits[0]


def alpha(delivered, marked, prior_delivered):
    """Return DCTCP's average of the share of marks at each ACK, packet by packet as its paper says: gain 1/16."""
    value, values = 1.0, []
    begun_delivered, begun_marked = delivered[0], marked[0]
    for got, ce, prior in zip(delivered, marked, prior_delivered, strict=True):
        if prior >= begun_delivered and got > begun_delivered:  # what left after the round began has arrived
            share = (ce - begun_marked) / (got - begun_delivered)
            value = (1 - 1 / 16) * value + share / 16
            begun_delivered, begun_marked = got, ce
        values.append(value)
    return values
