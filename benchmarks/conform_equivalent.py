"""Mutants of `benchmarks.conform` that no specification can tell from the original, and why."""

_ROUNDING = "a segment or a tick: what the RFC's real numbers leave to a kernel's integers"
_UNUSED = "no decision is read from it before it is set anew"
_SAMPLES = "takes the RTTs of an epoch's first second, too, as RFC 9438 would"
_HYSTART = "whether HyStart runs, which RFC 9438 leaves open"

EQUIVALENT = {
    "bbr_draft": {
        "init_round_counting, line 3: number 0": "the SYN counts as delivered: Linux's v3 begins with 1",
        "set_pacing_rate_with_gain, line 5: number 1": "a rate of 1 byte/s or of 2",
        "advance_latest_delivery_signals, line 5: number 0": "a sample has delivered something",
        "inflight_with_headroom, line 5: number 1": "a headroom of one segment or of two, below 14 in flight",
    },
    "cubic6": {
        "reset, line 12: left out: self.tcp_cwnd = 0": _UNUSED + " (with the epoch)",
        "reset, line 8: number 0": _UNUSED + " (with the epoch)",
        "delay_min_jiffies, line 3: sign: self.delay_min * self.hz + USEC_PER_SEC - 1": _ROUNDING,
        "delay_min_jiffies, line 3: sign: self.delay_min * self.hz + USEC_PER_SEC": _ROUNDING,
        "delay_min_jiffies, line 3: number 1": _ROUNDING,
        "keep_up_with_reno, line 7: number 1": _ROUNDING,
        "update_cnt, line 5: inverted: self.last_cwnd == cwnd": "keeps an increment for 1/32 s at most",
        "update_cnt, line 5: number 32": "keeps an increment for 1/64 s instead of 1/32 s",
        "update_cnt, line 8: number 0": _ROUNDING,
        "keep_up_with_reno, line 9: number 1": _ROUNDING,
        "pkts_acked, line 6: inverted: self.epoch_start != 0": _SAMPLES,
        "pkts_acked, line 6: sign: ack.jiffies - self.epoch_start": _SAMPLES,
        "pkts_acked, line 11: number 0": _HYSTART,
        "reset, line 13: left out: self.found = 0": _HYSTART,
        "reset, line 13: number 0": _HYSTART,
        "pkts_acked, line 12: left out: self.run_hystart(ack, delay)": _HYSTART,
        "reset, line 5: number 0": _UNUSED,
        "reset, line 6: number 0": "W_max of one segment is below every cwnd, too",
        "reset, line 10: left out: self.epoch_start = 0": "the reduction before it has ended the epoch",
        "follow_curve, line 4: left out: self.last_time = ack.jiffies": "no increment is kept",
        "init, line 3: left out: self.reset()": "fields begin so",
        "init, line 4: left out: self.start_hystart_round(ack)": _HYSTART,
        "set_state, line 5: left out: self.start_hystart_round(ack)": _HYSTART,
        "reset, line 3: number 0": _UNUSED,
        "reset, line 3: left out: self.cnt = 0": _UNUSED,
        "reset, line 7: number 0": _UNUSED,
        "reset, line 7: left out: self.bic_origin_point = 0": _UNUSED,
        "pkts_acked, line 6: number 0": _SAMPLES,
        "keep_up_with_reno, line 9: sign: self.ack_cnt - 1": _ROUNDING,
        "reset, line 11: left out: self.ack_cnt = 0": _UNUSED + " (with the epoch)",
        "additive_increase, line 10: inverted: self.snd_cwnd_cnt >= segments_per_increment": "grows with the next ACK",
    },
    "prr": {
        "init_cwnd_reduction, line 9: inverted: f.ecn != ACCURATE_ECN": "of ECN, not of PRR",
        "prr_cwnd, line 32: sign: ssthresh * prr_delivered + prior_cwnd - 1": _ROUNDING,
        "prr_cwnd, line 32: sign: ssthresh * prr_delivered + prior_cwnd": _ROUNDING,
        "prr_cwnd, line 32: number 1": _ROUNDING,
    },
}
