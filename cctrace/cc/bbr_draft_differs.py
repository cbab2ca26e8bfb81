"""Where the IETF's BBR draft and Linux's BBRv3 decide differently: `cctrace variants bbr_draft bbr3` prints it.

Read off draft-ietf-ccwg-bbr-06 and net/ipv4/tcp_bbr.c of google/bbr, branch v3, function by function.

Sources: [BBRdraft], [BBRv3].
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
