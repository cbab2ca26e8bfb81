"""Rows of the event stream, as calls and the states that they share, in three tables (`packed.EventColumns`)."""


def emit(out, tp, rs, event, arg):
    """Write one row of the event stream; the caller has made room. It shares the state of the one before, if equal."""
    write(out, tp, rs, event, arg)
    calls, states, steady = out
    last, rest = tp.states - tp.taken_states - 1, tp.steady - tp.taken_steady - 1
    if rest > 0 and are_as_steady(steady[rest - 1], steady[rest]):
        tp.steady -= 1
        states[last].steady = tp.steady - 1
    call = calls[tp.rows - tp.taken_rows - 1]
    if last > 0 and are_same(states[last - 1], states[last]) and takes_sample(call, states[last - 1], states[last]):
        tp.states -= 1
        call.of = tp.states - 1


def takes_sample(call, one, other):
    """Whether a call whose state is `other` can share the state `one`, which takes the first rate sample from it."""
    if call.sampled == 0:
        return True
    if has_sample(one):
        return (
            (one.rs_delivered == other.rs_delivered)
            & (one.rs_interval_us == other.rs_interval_us)
            & (one.rs_acked_sacked == other.rs_acked_sacked)
            & (one.rs_lost == other.rs_lost)
            & (one.rs_delivered_ce == other.rs_delivered_ce)
        )
    one.rs_delivered = other.rs_delivered
    one.rs_interval_us = other.rs_interval_us
    one.rs_acked_sacked = other.rs_acked_sacked
    one.rs_lost = other.rs_lost
    one.rs_delivered_ce = other.rs_delivered_ce
    return True


def has_sample(row):
    """Whether a state has a rate sample: other values than `state.UNSAMPLED`."""
    return (
        (row.rs_delivered != -1)
        | (row.rs_interval_us != -1)
        | (row.rs_acked_sacked != 0)
        | (row.rs_lost != -1)
        | (row.rs_delivered_ce != -1)
    )


def are_same(one, other):
    """Whether two states are equal but for their rate samples; without branches, as most are."""
    return (
        (one.time_ns == other.time_ns)
        & (one.ca_state == other.ca_state)
        & (one.ack == other.ack)
        & (one.snd_una == other.snd_una)
        & (one.snd_nxt == other.snd_nxt)
        & (one.snd_wnd == other.snd_wnd)
        & (one.packets_out == other.packets_out)
        & (one.sacked_out == other.sacked_out)
        & (one.lost_out == other.lost_out)
        & (one.retrans_out == other.retrans_out)
        & (one.data_segs_out == other.data_segs_out)
        & (one.delivered == other.delivered)
        & (one.srtt_us8 == other.srtt_us8)
        & (one.mdev_us4 == other.mdev_us4)
        & (one.is_cwnd_limited == other.is_cwnd_limited)
        & (one.max_packets_out == other.max_packets_out)
        & (one.lsndtime_us == other.lsndtime_us)
        & (one.app_limited == other.app_limited)
        & (one.rs_prior_delivered == other.rs_prior_delivered)
        & (one.rs_rtt_us == other.rs_rtt_us)
        & (one.rs_prior_in_flight == other.rs_prior_in_flight)
        & (one.rs_is_app_limited == other.rs_is_app_limited)
        & (one.rs_tx_in_flight == other.rs_tx_in_flight)
        & (one.rs_tx_in_flight_v2 == other.rs_tx_in_flight_v2)
        & (one.rs_send == other.rs_send)
        & (one.steady == other.steady)
    )


def are_as_steady(one, other):
    """The same of what mostly stays from state to state."""
    return (
        (one.delivered_ce == other.delivered_ce)
        & (one.lost == other.lost)
        & (one.rttvar_us4 == other.rttvar_us4)
        & (one.tcp_min_rtt_us == other.tcp_min_rtt_us)
        & (one.mss == other.mss)
        & (one.rs_losses == other.rs_losses)
        & (one.rs_is_retrans == other.rs_is_retrans)
        & (one.rs_is_ack_delayed == other.rs_is_ack_delayed)
        & (one.rs_is_acking_tlp_retrans == other.rs_is_acking_tlp_retrans)
        & (one.tlp_orig_data_app_limited == other.tlp_orig_data_app_limited)
        & (one.rs_prior_lost == other.rs_prior_lost)
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
    calls, states, steady = out
    call, row = calls[tp.rows - tp.taken_rows], states[tp.states - tp.taken_states]
    rest = steady[tp.steady - tp.taken_steady]
    call.of, row.steady = tp.states, tp.steady
    tp.rows += 1
    tp.states += 1
    tp.steady += 1
    call.event = event
    call.arg = arg
    call.delivered_mstamp_us = tp.delivered_us
    row.rs_delivered = rs.delivered
    row.rs_interval_us = rs.interval_us
    row.rs_acked_sacked = rs.acked_sacked
    row.rs_lost = rs.lost
    row.rs_delivered_ce = rs.delivered_ce
    call.sampled = has_sample(row)
    row.time_ns = tp.clock_ns
    row.ca_state = tp.ca_state
    row.ack = rs.ack
    row.snd_una = tp.snd_una
    row.snd_nxt = tp.snd_nxt
    row.snd_wnd = tp.snd_wnd
    row.packets_out = tp.packets_out
    row.sacked_out = tp.sacked_out
    row.lost_out = tp.lost_out
    row.retrans_out = tp.retrans_out
    row.data_segs_out = data_segs_out(tp)
    row.delivered = tp.delivered
    rest.delivered_ce = tp.delivered_ce
    rest.lost = tp.lost
    row.srtt_us8 = tp.srtt8
    row.mdev_us4 = tp.mdev4
    rest.rttvar_us4 = tp.rttvar4
    rest.tcp_min_rtt_us = tp.min0
    rest.mss = tp.mss
    row.is_cwnd_limited = tp.is_cwnd_limited
    row.max_packets_out = tp.max_packets_out
    row.lsndtime_us = tp.lsnd_us
    row.app_limited = tp.app_limited
    row.rs_prior_delivered = rs.prior_delivered
    row.rs_rtt_us = rs.rtt_us
    rest.rs_losses = rs.losses
    row.rs_prior_in_flight = rs.prior_in_flight
    row.rs_is_app_limited = rs.is_app_limited
    rest.rs_is_retrans = rs.is_retrans
    rest.rs_is_ack_delayed = rs.is_ack_delayed
    rest.rs_is_acking_tlp_retrans = rs.acking_tlp
    rest.tlp_orig_data_app_limited = 0
    row.rs_tx_in_flight = rs.tx_in_flight
    row.rs_tx_in_flight_v2 = rs.tx_in_flight_v2
    rest.rs_prior_lost = rs.prior_lost
    row.rs_send = rs.send
    rest.skb_tx_in_flight = 0
    rest.skb_tx_in_flight_v2 = 0
    rest.skb_tx_lost = 0
    rest.skb_tx_delivered = 0
    rest.skb_tx_app_limited = 0
    rest.skb_tx_has_mstamp = 0
    rest.skb_segments = 0


def data_segs_out(tp):
    """Segments of data sent so far, retransmissions included; a SYN is none."""
    return tp.tail + tp.total_retrans - tp.syns
