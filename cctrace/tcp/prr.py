"""Proportional rate reduction: cwnd while a window-based controller recovers from a loss.

While more is in flight than ssthresh, one segment is sent for every ``prior_cwnd / ssthresh`` delivered, so that
cwnd reaches ssthresh within one round trip without a pause. Below ssthresh at most what was delivered is sent, and
one more on ACKs that report no new loss (slow start).

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

    As in the kernel, the caller must leave cwnd unchanged where `newly_delivered` or `prior_cwnd` is 0.

    `ssthresh`, `prior_cwnd`: what the window is reduced to and from. `in_flight`: segments now in flight.
    `prr_delivered`, `prr_out`: segments delivered and sent since the reduction began, this ACK's (`newly_delivered`)
    included. `undisturbed`: whether the ACK advanced snd_una and marked nothing lost. `catch_up`: whether segments that
    earlier ACKs allowed and that were not sent may follow: always in [Linux61]; in older kernels, on `undisturbed` ACKs
    only.
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
    return in_flight + max(allowed, 0 if prr_out > 0 else 1)  # the fast retransmission is always sent
