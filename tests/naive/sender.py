"""The sender's counters, RTT and rate samples by definition: recomputed from the whole history at every ACK.

No segment is sent again. Slow and obvious, to hold `cctrace.flows.sender.tcp_sender` against.
"""


def view(sends, acks, handshake_us):
    """Return what the sender knows after each ACK, one dict each.

    Parameters
    ----------
    sends : list of (time_us, seq, end_seq)
        Segments in order of sending, all at different times.
    acks : list of (time_us, ack, blocks)
        In order of time; `blocks` are (left, right) pairs.
    handshake_us : int
        When the connection was established.
    """
    history = [(handshake_us, set(), 1)]  # (time, segments known to have arrived, cumulative acknowledgement)
    for now, ack, blocks in acks:
        _, known, una = history[-1]
        una = max(una, ack)
        covered = {
            i
            for i, (time, left, right) in enumerate(sends)
            if time < now and (right <= una or any(a <= left and right <= b for a, b in blocks))
        }
        history.append((now, known | covered, una))
    return [_row(sends, history, n) for n in range(1, len(history))]


def _row(sends, history, n):
    now, known, una = history[n]
    new = known - history[n - 1][1]
    row = {
        "delivered": 1 + len(known),
        "packets_out": sum(time < now and end > una for time, _, end in sends),
        "sacked_out": sum(sends[i][2] > una for i in known),
    }
    if new:
        latest = max(new)
        delivered, delivered_us, first_us = _at_send(sends, history, latest)
        sacked = {i for i in new if sends[i][2] > una}
        row["rs_prior_delivered"] = delivered
        row["rs_delivered"] = 1 + len(known) - delivered
        row["rs_interval_us"] = max(sends[latest][0] - first_us, now - delivered_us)
        row["rs_rtt_us"] = now - sends[max(sacked or new)][0]
    return row


def _at_send(sends, history, i):
    """What segment `i` remembers: delivered by then, since when, and the first send of its sampling period."""
    time = sends[i][0]
    past = [n for n, (at, _, _) in enumerate(history) if at < time]
    known = history[past[-1]][1]
    if _was_idle(sends, history, i):
        return 1 + len(known), time, time  # nothing was in flight: the clocks start with this send
    productive = [n for n in past[1:] if history[n][1] != history[n - 1][1]]
    restarts = [j for j in range(i) if _was_idle(sends, history, j)]
    if productive and history[productive[-1]][0] > sends[restarts[-1]][0]:
        n = productive[-1]
        latest = max(history[n][1] - history[n - 1][1])
        return 1 + len(known), history[n][0], sends[latest][0]
    return 1 + len(known), sends[restarts[-1]][0], sends[restarts[-1]][0]


def _was_idle(sends, history, j):
    time = sends[j][0]
    una = [h[2] for h in history if h[0] < time][-1]
    return not any(end > una for sent, _, end in sends if sent < time)
