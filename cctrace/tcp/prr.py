"""Proportional rate reduction: what cwnd is while a window-based controller recovers from a loss.

While more is in flight than ssthresh allows, one segment goes for every ``prior_cwnd / ssthresh`` delivered, so that
cwnd comes down to ssthresh in one round trip instead of pausing for half of one; below ssthresh at most what was
delivered goes, and one more on ACKs that tell of no new loss (slow start).

Sources: RFC 6937; [Linux61] net/ipv4/tcp_input.c tcp_cwnd_reduction.
"""


def prr_cwnd(
    ssthresh: int,
    in_flight: int,
    prior_cwnd: int,
    prr_delivered: int,
    prr_out: int,
    newly_delivered: int,
    undisturbed: bool,
    catch_up: bool,
) -> int:
    """Return cwnd after an ACK in Recovery or CWR, segments [Linux61] tcp_cwnd_reduction.

    The kernel leaves cwnd as it is where `newly_delivered` or `prior_cwnd` is 0; so must the caller.

    Parameters
    ----------
    ssthresh, prior_cwnd : int
        What the window is reduced to and from.
    in_flight : int
        Segments now in flight.
    prr_delivered, prr_out : int
        Segments delivered and sent since the reduction began, this ACK's (`newly_delivered`) counted in.
    newly_delivered : int
    undisturbed : bool
        Whether the ACK moved the left edge of the window and marked nothing lost.
    catch_up : bool
        Whether what earlier ACKs allowed and was not sent may follow: always in [Linux61]; in older kernels, on
        `undisturbed` ACKs alone.
    """
    room = ssthresh - in_flight
    if room < 0:
        allowed = (ssthresh * prr_delivered + prior_cwnd - 1) // prior_cwnd - prr_out
    else:
        allowed = newly_delivered
        if catch_up:
            allowed = max(prr_delivered - prr_out, newly_delivered)
        if undisturbed:
            allowed += 1
        allowed = min(room, allowed)
    return in_flight + max(allowed, 0 if prr_out > 0 else 1)  # the fast retransmission always goes
