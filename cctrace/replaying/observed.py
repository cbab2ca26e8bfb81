"""A row of the event stream as a Linux controller reads it: `schema.EVENTS` into `schema.LINUX_VIEW`."""


def observe(row, ack):
    """Copy every column that the record has; `ack` is in the order of `schema.LINUX_VIEW`, int64."""
    ack[0] = row.arg
    ack[1] = row.ca_state
    ack[2] = row.ack
    ack[3] = row.snd_una
    ack[4] = row.snd_nxt
    ack[5] = row.packets_out
    ack[6] = row.sacked_out
    ack[7] = row.lost_out
    ack[8] = row.retrans_out
    ack[9] = row.data_segs_out
    ack[10] = row.delivered
    ack[11] = row.delivered_mstamp_us
    ack[12] = row.delivered_ce
    ack[13] = row.lost
    ack[14] = row.srtt_us8
    ack[15] = row.mdev_us4
    ack[16] = row.rttvar_us4
    ack[17] = row.tcp_min_rtt_us
    ack[18] = row.mss
    ack[19] = row.is_cwnd_limited
    ack[20] = row.max_packets_out
    ack[21] = row.rs_delivered
    ack[22] = row.rs_interval_us
    ack[23] = row.rs_prior_delivered
    ack[24] = row.rs_rtt_us
    ack[25] = row.rs_losses
    ack[26] = row.rs_acked_sacked
    ack[27] = row.rs_prior_in_flight
    ack[28] = row.rs_is_app_limited
    ack[29] = row.rs_is_retrans
    ack[30] = row.rs_is_ack_delayed
    ack[31] = row.rs_is_acking_tlp_retrans
    ack[32] = row.tlp_orig_data_app_limited
    ack[33] = row.rs_tx_in_flight
    ack[34] = row.rs_lost
    ack[35] = row.rs_prior_lost
    ack[36] = row.rs_delivered_ce
    ack[37] = row.skb_tx_in_flight
    ack[38] = row.skb_tx_lost
    ack[39] = row.skb_tx_delivered
    ack[40] = row.skb_tx_app_limited
    ack[41] = row.skb_tx_has_mstamp
    ack[42] = row.skb_segments
