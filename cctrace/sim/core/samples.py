"""Delivery-rate samples (tcp_rate.c) and RTT estimation (tcp_input.c) of a simulated TCP sender."""

from cctrace.lang.memory import SetFields, words
from cctrace.sim.core.calls import in_flight, mstamp
from cctrace.sim.core.histogram import count
from cctrace.sim.core.skbs import tx_in_flight
from cctrace.sim.core.structs import EVER_RETRANS, FLOW, LINUX
from cctrace.sim.core.view import APP_LIMITED
from cctrace.tcp.rate import app_limited_after, rate_interval_us
from cctrace.tcp.rtt import rtt_estimator, timeout_us

_SAMPLE = [name for name in FLOW.names or () if name.startswith("rs_")]
clear_sample = SetFields(**dict.fromkeys(_SAMPLE, 0) | {"rs_last_order": -1, "rs_rtt": -1})


def start_rate_sample(f):
    """A fresh rate_sample, as tcp_ack does on entry."""
    clear_sample(f)
    f.rs_prior_in_flight = in_flight(f)


def rate_skb_sent(w, f, seg, tx_us):
    """tcp_rate_skb_sent: remember, with the segment, the state of delivery at its departure."""
    if f.nxt == f.una:  # a new flight: the clock of delivery starts with it
        f.first_tx_mstamp = tx_us
        f.delivered_mstamp = tx_us
    seg.tx_first_mstamp = f.first_tx_mstamp
    seg.tx_delivered_mstamp = f.delivered_mstamp
    seg.tx_delivered = f.delivered
    seg.tx_delivered_ce = f.delivered_ce
    seg.tx_app_limited = 1 if words(f.state)[APP_LIMITED] != 0 else 0
    seg.tx_lost = f.lost


def rate_skb_delivered(f, seg, order):
    """tcp_rate_skb_delivered: the segment sent last makes the sample; before Linux 5.18, one after most deliveries."""
    newest = order > f.rs_last_order if f.profile == LINUX else seg.tx_delivered > f.rs_prior_delivered
    if f.rs_last_order >= 0 and not newest:
        return
    f.rs_last_order = order
    f.rs_prior_delivered = seg.tx_delivered
    f.rs_prior_mstamp = seg.tx_delivered_mstamp
    f.rs_prior_delivered_ce = seg.tx_delivered_ce
    f.rs_app_limited = seg.tx_app_limited
    f.rs_retrans = 1 if seg.marks & EVER_RETRANS else 0
    f.rs_tx_in_flight = tx_in_flight(f, seg)
    f.rs_prior_lost = seg.tx_lost
    tx_us = mstamp(seg.sent_ns)
    f.rs_interval = tx_us - seg.tx_first_mstamp
    f.first_tx_mstamp = tx_us


def rate_gen(f, newly_delivered, newly_lost):
    """tcp_rate_gen: the longer of send and ACK interval, and nothing shorter than min_rtt."""
    words(f.state)[APP_LIMITED] = app_limited_after(words(f.state)[APP_LIMITED], f.delivered)
    if newly_delivered > 0:
        f.delivered_mstamp = f.now_us
    f.rs_acked_sacked = newly_delivered
    f.rs_losses = newly_lost
    if f.rs_last_order < 0:
        f.rs_delivered = -1
        f.rs_interval = -1
        return
    f.rs_delivered = f.delivered - f.rs_prior_delivered
    f.rs_delivered_ce = f.delivered_ce - f.rs_prior_delivered_ce
    f.rs_lost = f.lost - f.rs_prior_lost
    f.rs_interval = rate_interval_us(f.rs_interval, f.now_us - f.rs_prior_mstamp, f.min_rtt)


def take_rtt(f, rtt_us):
    """tcp_rtt_estimator and tcp_set_rto; `tick_us` of the reference stack is 1."""
    round_over = f.srtt == 0 or f.una > f.rtt_seq
    f.srtt, f.mdev, f.mdev_max, f.rttvar = rtt_estimator(f.srtt, f.mdev, f.mdev_max, f.rttvar, rtt_us, round_over)
    if round_over:
        f.rtt_seq = f.nxt
    f.rto_us = timeout_us(f.srtt, f.rttvar, f.tick_us)


def update_rtt(f, first_ns, last_ns, sack_first_ns, sack_last_ns, echo_ms, now):
    """tcp_ack_update_rtt: cumulative samples first (-1: none), SACKed ones otherwise, the echoed time stamp last."""
    seq_rtt = f.now_us - mstamp(first_ns) if first_ns >= 0 else -1
    ca_rtt = f.now_us - mstamp(last_ns) if first_ns >= 0 and last_ns != first_ns else seq_rtt
    if sack_first_ns >= 0:
        ca_rtt = f.now_us - mstamp(sack_last_ns)
        if seq_rtt < 0:
            seq_rtt = f.now_us - mstamp(sack_first_ns)
    if seq_rtt < 0 and 0 < echo_ms <= now // 1_000_000:
        seq_rtt = ca_rtt = max((now // 1_000_000 - echo_ms) * 1000, 1000)
    f.rs_rtt = ca_rtt
    if seq_rtt < 0:
        return
    if ca_rtt <= f.min_rtt or now - f.min_rtt_stamp > 300_000_000_000:
        f.min_rtt = ca_rtt
        f.min_rtt_stamp = now
    take_rtt(f, seq_rtt)
    f.backoff = 0
    f.rtt_sum_us += ca_rtt
    f.rtt_count += 1
    count(f.rtt_tally, ca_rtt)
