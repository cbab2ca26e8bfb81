"""Delivery-rate samples: the rate at which data reached the receiver over one flight.

A segment records the data delivered, and the time, when it is sent. When it is (S)ACKed,

    rate = (delivered now - delivered then) / max(time between the ACKs, time between the sends)

The longer of the two intervals counts, because ACKs may arrive compressed. A sample that includes a time without
data to send is marked application-limited: it is only a lower bound.

Sources: draft-cheng-iccrg-delivery-rate-estimation; [Linux] net/ipv4/tcp_rate.c.
"""

from cctrace.flows.state import EVER_RETRANS, RETRANS, SACKED
from cctrace.lang.memory import CopyFields
from cctrace.tcp.rate import app_limited_after, rate_interval_us

# What a sample takes from the segment.
copy_sample = CopyFields(
    "tx_in_flight",
    "tx_in_flight_v2",
    prior_delivered="tx_delivered",
    prior_delivered_us="tx_delivered_us",
    prior_ce="tx_ce",
    prior_lost="tx_lost",
    is_app_limited="tx_app_limited",
    send="tx_send",
)


def on_sent(tp, s, in_flight):
    """Store the delivery state in the sent segment `s` [Linux] tcp_rate_skb_sent."""
    if tp.packets_out == 0:  # nothing in flight: the sample's clocks start with this send
        tp.first_tx_us = s.tx_us
        tp.delivered_us = s.tx_us
    s.tx_first_us = tp.first_tx_us
    s.tx_delivered_us = tp.delivered_us
    s.tx_delivered = tp.delivered
    s.tx_ce = tp.delivered_ce
    s.tx_lost = tp.lost
    s.tx_in_flight = in_flight
    s.tx_in_flight_v2 = in_flight
    s.tx_app_limited = tp.next_app_limited if tp.next_app_limited >= 0 else 1 if tp.app_limited != 0 else 0
    s.tx_send = tp.sent


def on_delivered(tp, rs, s, end_seq):
    """Consider the (S)ACKed segment `s` as the basis of this ACK's sample [Linux] tcp_rate_skb_delivered."""
    if s.tx_delivered_us == 0:
        return
    newest = s.tx_us > tp.first_tx_us or (s.tx_us == tp.first_tx_us and end_seq > rs.last_end_seq)
    if rs.prior_delivered == 0 or newest:
        copy_sample(rs, s)
        rs.is_retrans = 1 if s.flags & (RETRANS | EVER_RETRANS) else 0
        rs.last_end_seq = end_seq
        tp.first_tx_us = s.tx_us
        rs.snd_interval_us = s.tx_us - s.tx_first_us
    if s.flags & SACKED:  # sampled now, not again when it is cumulatively acknowledged
        s.tx_delivered_us = 0


def generate(tp, rs, delivered, lost):
    """Complete the sample at the end of an ACK [Linux] tcp_rate_gen."""
    tp.app_limited = app_limited_after(tp.app_limited, tp.delivered)
    if delivered:
        tp.delivered_us = tp.now_us
    rs.acked_sacked = delivered
    rs.losses = lost
    rs.delivered = -1
    rs.interval_us = -1
    if rs.prior_delivered_us == 0 or tp.is_reneg:
        return
    rs.delivered = tp.delivered - rs.prior_delivered
    rs.delivered_ce = tp.delivered_ce - rs.prior_ce
    rs.lost = tp.lost - rs.prior_lost
    interval = rate_interval_us(rs.snd_interval_us, tp.now_us - rs.prior_delivered_us, tp.tcp_min_rtt_us)
    if interval < 0:
        return
    rs.interval_us = interval
    faster = rs.delivered * tp.rate_interval_us >= tp.rate_delivered * interval
    if not rs.is_app_limited or faster:
        tp.rate_delivered = rs.delivered
        tp.rate_interval_us = interval
        tp.rate_app_limited = rs.is_app_limited
