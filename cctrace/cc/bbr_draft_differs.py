"""Where the IETF's BBR draft and Linux's BBRv3 and v2 decide differently: `cctrace variants bbr_draft bbr3` prints it.

Read off draft-ietf-ccwg-bbr-06, net/ipv4/tcp_bbr.c of google/bbr, branch v3, and its tcp_bbr2.c, branch v2alpha,
function by function.

Sources: [BBRdraft], [BBRv3], [BBRv2alpha].
"""

from cctrace.cc.base import Counterpart

FROM_BBR3 = (
    Counterpart(
        "drain gain", "0.5", "0.344 (88/256)", "5.3.2 EnterDrain", "bbr_pacing_gain, bbr_drain_gain", ("drain.gain",)
    ),
    Counterpart("gain of DOWN", "0.90", "0.91 (232/256)", "5.3.3.1", "bbr_pacing_gain", ("down.gain",)),
    Counterpart(
        "longest DRAIN", "3 rounds", "until the flight is a BDP", "5.3.2 CheckDrainDone", "bbr_check_drain",
        ("drain.rounds",),
    ),
    Counterpart(
        "after a spurious recovery", "back to Startup, or REFILL, if its losses had ended Startup or UP",
        "window and bounds restored, the state stays", "5.5.11.2 HandleSpuriousLossDetection", "bbr_undo_cwnd",
        ("undo.state",),
    ),
    Counterpart(
        "undo and inflight_longterm", "saved at the first loss of the recovery", "saved on entering recovery, after "
        "the losses were answered", "5.5.11.1 SaveStateUponLoss", "bbr_ssthresh", ("undo.bounds",),
    ),
    Counterpart(
        "window saved on entering recovery", "that of the moment", "not below the one saved before, while the last ACK "
        "was of a recovery", "5.6.4.4 SaveCwnd", "bbr_save_cwnd", ("recovery.save",),
    ),
    Counterpart(
        "a probe's sample that lost more than 2 %", "only lost packets end the probe", "ends it, too",
        "5.3.3.9 AdaptLongTermModel", "bbr_adapt_upper_bounds", ("probe.samples", "probe.verdict"),
    ),
    Counterpart("ECN", "none", "DCTCP-like, on routes with TCP_ECN_LOW", "3.7", "bbr_update_ecn_alpha"),
    Counterpart("PLB", "none", "rehashes congested paths (off by default)", "none", "bbr_plb"),
    Counterpart(
        "ACKs while app-limited", "the full update", "a fast path leaves window and rate", "5.2.3 UpdateOnACK",
        "bbr_run_fast_path",
    ),
    Counterpart(
        "plateau detector", "looks at the sample that starts a round", "a higher sample counts at any time",
        "5.3.1.2 CheckFullBWReached", "bbr_check_full_bw_reached", ("startup.plateau", "up.plateau"),
    ),
    Counterpart(
        "max_bw filter, a cycle without samples", "forgets the cycle before last", "keeps it",
        "5.5.6 AdvanceMaxBwFilter", "bbr_advance_max_bw_filter", ("max_bw.filter",),
    ),
    Counterpart(
        "window while the pipe fills", "unbounded until InitialCwnd is delivered", "unbounded up to twice the initial "
        "window", "5.6.4.6 SetCwnd", "bbr_set_cwnd", ("cwnd.startup",),
    ),
    Counterpart(
        "extra_acked", "maximum of 10 rounds, at most cwnd", "5 to 10 rounds, at most 100 ms of bandwidth",
        "5.5.9 UpdateACKAggregation", "bbr_update_ack_aggregation", ("cwnd.max_inflight", "probe_rtt.restore"),
    ),
    Counterpart(
        "entering DRAIN", "leaves the congestion signals", "resets them", "5.3.2 EnterDrain", "bbr_check_drain",
        ("loss.latest",),
    ),
    Counterpart(
        "rounds a Reno flow would take", "min(BDP, cwnd, 63)", "min(quantised BDP, cwnd, 63)",
        "5.3.3.8.3 TargetInflight", "bbr_target_inflight", ("probe.wait",),
    ),
    Counterpart(
        "flight for DRAIN, UP and DOWN", "C.inflight", "at the earliest departure time of the next packet", "5.3.3.9",
        "bbr_packets_in_net_at_edt", ("drain.inflight", "cruise.inflight", "up.exit", "probe.verdict", "A.3"),
    ),
    Counterpart(
        "pacing while the pipe fills", "0.99 of the gain's rate", "the same, in 256ths and 10000ths", "5.6.2",
        "bbr_bw_to_pacing_rate",
    ),
    Counterpart(
        "cwnd after fast recovery", "restored", "as it is; restored after a timeout", "5.6.4.4", "bbr_set_state",
        ("recovery.restore",),
    ),
    Counterpart(
        "CRUISE and inflight_shortterm", "as it is", "cut to inflight_hi", "5.3.3.9 StartProbeBW_CRUISE",
        "bbr_start_bw_probe_cruise",
    ),
    Counterpart(
        "loss repaired by a tail-loss probe", "nothing", "counts as a loss of the last flight", "5.5.10",
        "bbr_run_loss_probe_recovery",
    ),
    Counterpart(
        "offload budget", "three bursts of 1 ms", "three bursts of 1 ms and more on paths below 4 ms", "5.5.8, 5.6.3",
        "bbr_tso_segs_generic", ("cwnd.max_inflight",),
    ),
    Counterpart(
        "losses that end UP", "forgotten with the signals of UP", "count in the first round of DOWN",
        "5.3.3.9 StartProbeBW_DOWN", "bbr_update_congestion_signals", ("loss.only",),
    ),
    Counterpart("least bw_shortterm", "0", "1", "5.5.10.3 LossLowerBounds", "bbr_loss_lower_bounds"),
    Counterpart(
        "clock of ProbeRTT", "microseconds", "jiffies", "5.3.4.3 CheckProbeRTT", "bbr_update_min_rtt",
        ("probe_rtt.stay",),
    ),
)  # fmt: skip

# What holds of v2 as it does of v3, with the function of v2alpha.
_ALSO_OF_BBR2 = {
    "drain gain": "bbr_drain_gain",
    "longest DRAIN": "bbr2_check_drain",
    "undo and inflight_longterm": "bbr2_ssthresh",
    "window saved on entering recovery": "bbr_save_cwnd",
    "window while the pipe fills": "bbr_set_cwnd",
    "extra_acked": "bbr_update_ack_aggregation",
    "entering DRAIN": "bbr2_check_drain",
    "rounds a Reno flow would take": "bbr2_target_inflight",
    "flight for DRAIN, UP and DOWN": "bbr_packets_in_net_at_edt",
    "pacing while the pipe fills": "bbr_bw_to_pacing_rate",
    "cwnd after fast recovery": "bbr2_set_state",
    "CRUISE and inflight_shortterm": "bbr2_start_bw_probe_cruise",
    "losses that end UP": "bbr2_update_congestion_signals",
    "clock of ProbeRTT": "bbr_update_min_rtt",
}

FROM_BBR2 = (
    Counterpart(
        "gains of Startup", "2.77, cwnd 2.0", "2.89, cwnd 2.89", "5.3.1.1, 5.6.1", "bbr_startup_pacing_gain, "
        "bbr_startup_cwnd_gain", ("startup.gain", "state.cwnd_gain", "pacing.initial"),
    ),
    Counterpart(
        "lost ranges that end Startup", "6 of a round", "8", "5.3.1.3 CheckStartupHighLoss",
        "bbr2_check_loss_too_high_in_startup", ("startup.high_loss",),
    ),
    Counterpart("gain of DOWN", "0.90", "0.75", "5.3.3.1", "bbr_pacing_gain", ("down.gain",)),
    Counterpart(
        "cwnd gains of UP and ProbeRTT", "2.25, 0.5", "2.0, 1.0 (the window is half a BDP, too)", "5.6.1",
        "bbr2_update_gains", ("state.cwnd_gain",),
    ),
    Counterpart(
        "end of UP", "a plateau of 3 rounds, or losses", "a least RTT has passed and the flight is 1.25 BDP, or losses",
        "5.3.3.9 IsTimeToGoDown", "bbr2_update_cycle_phase", ("A.6", "A.15", "A.21"),
    ),
    Counterpart(
        "a probe's sample that lost more than 2 %", "only lost packets end the probe", "ends it, too, and the ACK may "
        "go on to CRUISE", "5.3.3.9 AdaptLongTermModel", "bbr2_adapt_upper_bounds",
        ("probe.samples", "probe.verdict", "phase.acks"),
    ),
    Counterpart(
        "ACKs counted for inflight_longterm in UP", "kept while it does not limit the flow", "forgotten then",
        "5.3.3.9 ProbeInflightLongtermUpward", "bbr2_probe_inflight_hi_upward", ("up.growth",),
    ),
    Counterpart(
        "after a spurious recovery", "back to Startup, or REFILL, if its losses had ended Startup or UP",
        "window and bounds restored, the state stays", "5.5.11.2 HandleSpuriousLossDetection", "bbr2_undo_cwnd",
        ("undo.state",),
    ),
    Counterpart(
        "an RTT equal to the least", "refreshes nothing", "refreshes it, so that a constant RTT has no ProbeRTT",
        "5.3.4.3 UpdateMinRTT", "bbr_update_min_rtt", ("A.10",),
    ),
    Counterpart("ECN", "none", "DCTCP-like, on paths below 5 ms", "3.7", "bbr2_update_ecn_alpha"),
    Counterpart(
        "ACKs while app-limited", "the full update", "a fast path leaves model, window and rate", "5.2.3 UpdateOnACK",
        "bbr2_fast_path", ("loss.round_end",),
    ),
    *(row._replace(function=_ALSO_OF_BBR2[row.what]) for row in FROM_BBR3 if row.what in _ALSO_OF_BBR2),
)  # fmt: skip
