"""Rows of the event stream, as calls and the states that they share (`packed.EventColumns`)."""


def emit(out, tp, rs, event, arg):
    """Write one row of the event stream; the caller has made room. It shares the state of the one before, if equal."""
    write(out, tp, rs, event, arg)
    calls, states = out
    last = tp.states - tp.taken_states - 1
    if last > 0 and are_same(states[last - 1], states[last]):
        tp.states -= 1
        calls[tp.rows - tp.taken_rows - 1].of = tp.states - 1


def are_same(one, other):
    """Whether two states are equal; without branches, as most are."""
    return (
        (one.time_ns == other.time_ns)
        & (one.ca_state == other.ca_state)
        & (one.ack == other.ack)
        & (one.snd_una == other.snd_una)
        & (one.snd_nxt == other.snd_nxt)
        & (one.packets_out == other.packets_out)
        & (one.sacked_out == other.sacked_out)
        & (one.lost_out == other.lost_out)
        & (one.retrans_out == other.retrans_out)
        & (one.data_segs_out == other.data_segs_out)
        & (one.delivered == other.delivered)
        & (one.delivered_ce == other.delivered_ce)
        & (one.lost == other.lost)
        & (one.srtt_us8 == other.srtt_us8)
        & (one.mdev_us4 == other.mdev_us4)
        & (one.rttvar_us4 == other.rttvar_us4)
        & (one.tcp_min_rtt_us == other.tcp_min_rtt_us)
        & (one.mss == other.mss)
        & (one.is_cwnd_limited == other.is_cwnd_limited)
        & (one.max_packets_out == other.max_packets_out)
        & (one.lsndtime_us == other.lsndtime_us)
        & (one.app_limited == other.app_limited)
        & (one.rs_prior_delivered == other.rs_prior_delivered)
        & (one.rs_rtt_us == other.rs_rtt_us)
        & (one.rs_losses == other.rs_losses)
        & (one.rs_prior_in_flight == other.rs_prior_in_flight)
        & (one.rs_is_app_limited == other.rs_is_app_limited)
        & (one.rs_is_retrans == other.rs_is_retrans)
        & (one.rs_is_ack_delayed == other.rs_is_ack_delayed)
        & (one.rs_is_acking_tlp_retrans == other.rs_is_acking_tlp_retrans)
        & (one.tlp_orig_data_app_limited == other.tlp_orig_data_app_limited)
        & (one.rs_tx_in_flight == other.rs_tx_in_flight)
        & (one.rs_tx_in_flight_v2 == other.rs_tx_in_flight_v2)
        & (one.rs_prior_lost == other.rs_prior_lost)
        & (one.rs_send == other.rs_send)
        & (one.skb_tx_in_flight == other.skb_tx_in_flight)
        & (one.skb_tx_in_flight_v2 == other.skb_tx_in_flight_v2)
        & (one.skb_tx_lost == other.skb_tx_lost)
        & (one.skb_tx_delivered == other.skb_tx_delivered)
        & (one.skb_tx_app_limited == other.skb_tx_app_limited)
        & (one.skb_tx_has_mstamp == other.skb_tx_has_mstamp)
        & (one.skb_segments == other.skb_segments)
    )


def write(out, tp, rs, event, arg):
    """Write one row of the event stream, with a state of its own."""
    calls, states = out
    call, row = calls[tp.rows - tp.taken_rows], states[tp.states - tp.taken_states]
    call.of = tp.states
    tp.rows += 1
    tp.states += 1
    call.event = event
    call.arg = arg
    call.delivered_mstamp_us = tp.delivered_us
    call.rs_delivered = rs.delivered
    call.rs_interval_us = rs.interval_us
    call.rs_acked_sacked = rs.acked_sacked
    call.rs_lost = rs.lost
    call.rs_delivered_ce = rs.delivered_ce
    row.time_ns = tp.clock_ns
    row.ca_state = tp.ca_state
    row.ack = rs.ack
    row.snd_una = tp.snd_una
    row.snd_nxt = tp.snd_nxt
    row.packets_out = tp.packets_out
    row.sacked_out = tp.sacked_out
    row.lost_out = tp.lost_out
    row.retrans_out = tp.retrans_out
    row.data_segs_out = data_segs_out(tp)
    row.delivered = tp.delivered
    row.delivered_ce = tp.delivered_ce
    row.lost = tp.lost
    row.srtt_us8 = tp.srtt8
    row.mdev_us4 = tp.mdev4
    row.rttvar_us4 = tp.rttvar4
    row.tcp_min_rtt_us = tp.min0
    row.mss = tp.mss
    row.is_cwnd_limited = tp.is_cwnd_limited
    row.max_packets_out = tp.max_packets_out
    row.lsndtime_us = tp.lsnd_us
    row.app_limited = tp.app_limited
    row.rs_prior_delivered = rs.prior_delivered
    row.rs_rtt_us = rs.rtt_us
    row.rs_losses = rs.losses
    row.rs_prior_in_flight = rs.prior_in_flight
    row.rs_is_app_limited = rs.is_app_limited
    row.rs_is_retrans = rs.is_retrans
    row.rs_is_ack_delayed = rs.is_ack_delayed
    row.rs_is_acking_tlp_retrans = rs.acking_tlp
    row.tlp_orig_data_app_limited = 0
    row.rs_tx_in_flight = rs.tx_in_flight
    row.rs_tx_in_flight_v2 = rs.tx_in_flight_v2
    row.rs_prior_lost = rs.prior_lost
    row.rs_send = rs.send
    row.skb_tx_in_flight = 0
    row.skb_tx_in_flight_v2 = 0
    row.skb_tx_lost = 0
    row.skb_tx_delivered = 0
    row.skb_tx_app_limited = 0
    row.skb_tx_has_mstamp = 0
    row.skb_segments = 0


def data_segs_out(tp):
    """Segments of data sent so far, retransmissions included; a SYN is none."""
    return tp.tail + tp.total_retrans - tp.syns
