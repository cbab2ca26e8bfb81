"""Catalogue of causes: priority, plain words, sentence, advice, and what would refute each one.

    CAUSES["random_loss"].words         "random loss", for tables
    order.verdict(finding)              a rule's finding in words

Causes at the ends precede causes on the path, and a cause precedes its effects (a competitor fills the queue that
drops); `path_full` says that nothing was wrong. Templates are those of `wording`: a bracketed clause is omitted if
the record lacks its numbers, so that packets, polls and a single poll share one sentence.
"""

from cctrace.diagnosis.wording import Cause, Sentence


def _cause(words: str, text: str, advice: str = "", refuted_by: str = "", **forms: Sentence) -> Cause:
    return Cause(words, Sentence(text, advice, refuted_by), forms)


_OTHERS = "Look for other users of the path: they are not in this capture."
_WRITE_MORE = "Have the application write earlier or more at a time; the network could carry more."
_LARGER_BUFFER = "A larger send buffer would help (net.ipv4.tcp_wmem, SO_SNDBUF unset)"
_LIMIT = (
    "Raise the limit or remove it: an application sets it (SO_MAX_PACING_RATE, iperf3 --fq-rate), or `maxrate` of the "
    "fq qdisc, or a cap of the cloud's or the container's network. The path could carry more."
)
_EVEN = (
    "packets left evenly at {rate_bps} (on the wire) for {even_share} of the time, no queue grew, "
    "[{lost_share?}{lost_share} of them were lost|nothing was lost][, and the path carried {carried_bps}]"
)

CAUSES = {  # the most important first
    "capture_artefact": _cause(
        "unknown: the capture misleads",
        "The capture lacks {unseen_share} of the data sent (acknowledged, but not captured), so losses and windows "
        "are uncertain.",
        "Capture with a larger buffer (tcpdump -B), a shorter snapshot, or fewer bytes.",
        "A capturing interface that counted no packets dropped by the kernel.",
        clock=Sentence(
            "The capture's clock was set {way} by {set_by_us} at {at_s} (the time stamps of both ends went on): RTTs, "
            "rates and pauses around that time are artefacts.",
            "Analyse the parts before and after separately; capture with a clock that is slewed, not set (chrony, "
            "ntpd).",
            "Time stamps of the two ends that changed by different amounts.",
        ),
        held=Sentence(
            "Packets were typically held for {held_us} between the sender's TCP and the capture point (by its time "
            "stamps): a queue before the capture, such as a shaper on the captured interface, limits what leaves. RTTs "
            "as captured (typically {captured_rtt_us}), and what is in flight, lack that queue.",
            "Look at `tc -s qdisc` of the sender's interface; capture where TCP hands packets over (before the "
            "shaper), or take the kernel's counters (`ss -tin`, given with --tcpinfo), whose RTT has that queue in it.",
            "Time stamps that are as old as the capture when packets pass it.",
        ),
        copies=Sentence(
            "Packets were captured at several interfaces: {copies} copies were left out, and {repeated_share} of what "
            "was sent appears again for no reason, modified or too late to be distinguished from retransmissions.",
            "Capture on one interface (not -i any), or one direction of each.",
            "D-SACKs for the duplicates: then they were sent twice.",
        ),
    ),
    "receiver_limited": _cause(
        "receiver's window",
        "The receiver's window [held it back for {held_share} of the time it had data to send|was full: {used_share} "
        "of {advertised_bytes} in flight|was full: {used_share} of it was typically in flight|was spent: the rate on "
        "average took {average_share} of {advertised_bytes} per RTT|did not grow beyond {kept_bytes}, although more "
        "than half of that arrived per RTT][: about {window_bytes} {per_rtt}].",
        "A larger receive buffer would help (or a receiver that reads faster); another congestion control would not.",
        "Windows in the ACKs that leave a segment or more free.",
    ),
    "slow_start_only": _cause(
        "too short: slow start",
        "It ended before it left slow start: [{bytes} in ]{rounds} round trips of {rtt_us}, no loss.",
        "Fewer round trips would help: a connection that is kept open, a larger initial window, a nearer server.",
        "Rounds that deliver no more than the round before.",
    ),
    "pacing_limited": _cause(
        "pacing limit",
        "Its socket's pacing limit (SO_MAX_PACING_RATE) held it to {limit_bps}: it paced at that limit for "
        "{limited_share} of the time, and no queue stood[, though the path carried {carried_bps}].",
        _LIMIT,
        "A pacing rate below the limit (`pacing_rate A/B` of ss: A at the time, B the limit).",
        partly=Sentence(
            "Its socket's pacing limit (SO_MAX_PACING_RATE), {limit_bps}, was reached for {limited_share} of the time.",
            _LIMIT,
            "A pacing rate below the limit (`pacing_rate A/B` of ss: A at the time, B the limit).",
        ),
        evenly=Sentence(
            f"Something paced it: {_EVEN}. A limit of its pacing rate does that, or an application that writes as "
            "evenly.",
            _LIMIT,
            "Counters (`ss -tin`, given with --tcpinfo) without a limit (`pacing_rate A/B`).",
        ),
    ),
    "policer": _cause(
        "policer",
        "A policer dropped what exceeded {rate_bps} (token bucket of about {bucket_bytes}): {explained_share} of "
        "{lost} losses met an empty bucket, and packets did not wait.",
        "Pace below that rate ([{answers_losses?}a rate-based controller, ]SO_MAX_PACING_RATE), or have the operator "
        "shape instead.",
        "Losses while tokens were left, or delays that grew before them.",
    ),
    "application_limited": _cause(
        "application",
        "The application limited it: [for {application_share} of the time ]it sent less than it could have.[ Or its "
        "send buffer was full: data were always written when {level_segments} segments were left in flight.]",
        _WRITE_MORE,
        "Data that waits in the socket (notsent_bytes of ss) while nothing leaves.",
        evenly=Sentence(
            f"The application limited it: {_EVEN}, and {{partly_filled_share}} of the segments were not full, as those "
            "of a sender are that has no more to send.",
            _WRITE_MORE,
            "Data that waits in the socket (notsent_bytes of ss) while nothing leaves.",
        ),
    ),
    "send_buffer_limited": _cause(
        "send buffer",
        "Its own send buffer was full for {send_buffer_share} of the time it had data to send.",
        f"{_LARGER_BUFFER}.",
        "A kernel that counts no time in sndbuf_limited.",
        counted=Sentence(
            "Its send buffer held it back: for {waited_share} of the time more could have been sent and all that had "
            "been written was in flight, and the kernel counted a full buffer ({send_buffer_share} of the time with "
            "data; it counts a part of that only).",
            f"{_LARGER_BUFFER}.",
            "A kernel that counts no time in sndbuf_limited.",
        ),
        writes=Sentence(
            "Its send buffer held it back: for {waited_share} of the time it waited until ACKs had left only "
            "{in_flight_at_writes_bytes} of some {in_flight_bytes} in flight, and sent more just after one, time and "
            "again.",
            f"{_LARGER_BUFFER}[{{has_counters?}}|; the kernel's counters (`ss -tin`, given with --tcpinfo) would tell "
            "for sure].",
            "A kernel that counts no time in sndbuf_limited, or an application that waits for replies.",
        ),
    ),
    "competition": _cause(
        "competing flows",
        "It shared [a bottleneck of {link_bps}|a queue{by_rtts?}|its path, perhaps,] with {others} of this {record}"
        "[{by_rtts?} (their RTTs move together)][{by_time?} that had data at the same time] and got {share:percent} of "
        "what they got together[, {won} a fair share ({mine_bps}; {best} got {best_bps})].",
        "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whoever the controllers are.",
        "[{by_rtts?}RTTs that move apart|Delays that this flow's own queue explains as well as the queue of all "
        "together].",
        beside=Sentence(
            "{others} of this capture shared the same bottleneck ({link_bps}) at the same time.",
            "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whoever the controllers are.",
            "A rate that is the same without them.",
        ),
        hypothetical=Sentence(
            "A flow outside this capture took part of the path's {link_bps} from {from_s} on: a queue "
            "that is not this flow's own stood before it, and a simulated competitor makes what was recorded likelier "
            "than a rate that changed.",
            "Look for other users of the path; a fair queue at the bottleneck (fq_codel, cake) would share evenly.",
            "Delays that this flow's own data explain at a lower rate.",
        ),
    ),
    "fair_queueing": _cause(
        "its share of a fair queue",
        "The bottleneck serves its flows in turn: {flows} flows of this capture got equal parts of {link_bps} while "
        "all had data (this one {share:percent}, within {share_deviation:percent} of that for three quarters of the "
        "time)[; while it was alone it got {alone_bps}], and {whose} delays are those of a queue of its own"
        "[{never_alone?} (or each of them has a limit of its own)].",
        "Nothing to repair: no flow can take another's part, and more in flight only makes one's own queue longer.",
        "Delays that the queue of all together explains, or parts that follow the controllers.",
    ),
    "ecn_marking": _cause(
        "marks (ECN)",
        "Its window followed marks (ECN): a queue marked [{marked:count} segments ({marked_share})|packets] instead of "
        "dropping them, which cut the window {reductions:times}[, typically at {queue_us} of queue].[ Losses did so "
        "{losses:times}.][{ramps?} From {ramp_s} to {ramp_end_s} the window grew back without another reduction.][ By "
        "these marks it is {marker}[: {threshold_us} ({threshold_us_low:micros} to {threshold_us_high:micros})].| The "
        "marks fit {markers} alike.|{no_marker?} Which AQM it is remains unknown.]",
        "[{ramps?}After such a reduction Reno adds one segment per RTT, and CUBIC little more at first: BBR regains "
        "the rate of a long path sooner|Nothing to repair: this is how an AQM keeps its queue short without losses. A "
        "higher rate needs a faster path or less competing traffic][{is_l4s?}; marks at long queues are those of one "
        "that takes ECT(1) for ECT(0), where DualPI2 would mark at 1 ms].",
        "ACKs without marks (ECE; with AccECN the counter), or window reductions without them.",
    ),
    "collapse": _cause(
        "BBR's min_rtt collapsed (jitter)",
        "minRTT collapse[{is_guess?} of a sender that paces as BBR does]: jitter (sd {jitter_sd_us}) makes the least "
        "RTT {min_rtt_us}, {than} half of the {uncongested_rtt_us} that packets take without a queue, and a window of "
        "two bandwidth-delay products of that is too small: {goodput_bps}[ of a path of {rate_bps}].",
        "A controller that does not take the minimum RTT for the base RTT (bbr2_comp, BBRv2+), or CUBIC; less jitter.",
        "A min_rtt above half the mean RTT without queue, or a rate that stays when the window is raised.",
    ),
    "reordering": _cause(
        "reordering",
        "The path reorders: {reordered_share} of the packets arrived after one that was sent later[, by the kernel's "
        "count ({counted:times})][, and {needless:count} retransmissions were needless|, and duplicates: "
        "{copies:count} came twice, of {again:count} that were sent again].",
        "Find the parallel links or per-packet balancing; senders need RACK (Linux since 4.18) to tolerate it.",
        "SACKs that follow losses only.",
    ),
    "stale_bandwidth": _cause(
        "BBR's bandwidth out of date",
        "At {at_s} the path's rate fell from {before_bps} to {after_bps}, and the bandwidth estimate (a maximum over "
        "ten round trips) was stale for {stale_s}: RTTs reached {longest_rtt_us}, {lost} packets were lost.",
        "A controller that forgets faster (oBBR, BBRv3 after losses), or a shorter queue at the bottleneck.",
        "A sending rate that fell to the new rate within a round trip.",
    ),
    "rate_change": _cause(
        "path's rate changed",
        "The path's rate {verb} from {before_bps} to {after_bps} at [{about}]{at_s}[; {more}].",
        "Ask what changed there (a radio, a route, others' traffic): no controller can exceed the path's rate.",
        "Delivery at the old rate later, while a queue stood.",
        varied=Sentence(
            "The path's rate varied between {rate_p10_bps} and {rate_p90_bps} while a queue stood before it (RTTs of "
            "typically {rtt_us}, at least {least_rtt_us}): a radio, or what others left of it.",
            "A queue that is kept short (fq_codel, cake) would keep the delay low while the rate varies.",
            "A constant rate that explains the delays.",
        ),
    ),
    "random_loss": _cause(
        "random loss",
        "Losses by chance: {loss_share} of the packets, {whatever}[{answers_losses?}; every one of them cuts the "
        "window of a controller that takes losses for congestion].",
        "Look for a bad link (wireless, cable, duplex)[{answers_losses?}; BBR or another model-based controller loses "
        "less rate to it].",
        "Losses that come only when the queue is long.",
    ),
    "poor_pacing": _cause(
        "bursts overflow the queue",
        "Bursts overflow the queue: what was lost ({loss_share}) left behind {burst_bytes} of its own burst, "
        "typically, sent faster than twice the bottleneck's rate, which made up {own_share_of_queue:percent} of "
        "the queue it met; a sender that paces lets out {paced_bytes} at a time.",
        "Pace (the fq qdisc, or BBR's own timer), with smaller bursts; a window-based sender cannot where ACKs come in "
        "batches.",
        "Losses at the start of bursts, or of isolated packets.",
    ),
    "shallow_buffer": _cause(
        "shallow buffer",
        "The buffer is shallow: [{buffer_bytes}|{buffer_us}], {buffer_bdp:two} BDP, less than the "
        "0.25 by which BBR exceeds the rate when it probes; it dropped {lost} packets[ ({loss_share})]"
        "[{perhaps_policer?}, unless a policer did, which polls cannot exclude].",
        "A larger buffer at the bottleneck, pacing without bursts, or a controller that heeds losses (BBRv3, oBBR).",
        "Longer backlogs without a loss.",
        by_effect=Sentence(
            "The buffer is short: {buffer_bytes}, {buffer_bdp:two} bandwidth-delay products. It dropped {lost} "
            "packets, and one twice as large gives this flow more.",
            "A larger buffer at the bottleneck, or a controller that keeps its rate after losses.",
            "As much goodput over a larger buffer.",
        ),
    ),
    "shaper": _cause(
        "shaper (token bucket)",
        "A shaper delays what exceeds {rate_bps}: the first {bucket_bytes} after a pause pass at once (a token "
        "bucket).",
        "Nothing to repair; only a rate measured after the first moments is the path's.",
        "Bursts after a pause whose first packets are already delayed.",
    ),
    "ack_compression": _cause(
        "compressed ACKs",
        "ACKs are compressed on the return path: {bunched_share} of them came in bunches of typically {acks_per_bunch} "
        "within {came_within_us}, which the receiver had sent over {sent_over_us} (its time stamps): a queue on the "
        "return path, or its jitter, held them up.",
        "Look for traffic on the return path (an upload, Wi-Fi); give ACKs priority there. Pacing hides the bursts.",
        "Equal time stamps within a bunch: then the receiver delayed the ACKs.",
    ),
    "ack_aggregation": _cause(
        "aggregated ACKs",
        "ACKs come in batches: every {interval_us} ({of_base_share} of the base RTT) for some {segments_per_batch} "
        "segments at a time, as of a radio or a receiver that waits.",
        "A window with room for one more batch (BBR of 2019 and later adds it); less aggregation on the last hop.",
        "ACKs that come evenly, as the bottleneck delivers.",
    ),
    "ack_thinning": _cause(
        "thinned ACKs",
        "ACKs are few: one for {segments_per_ack:tenths} segments on average, where receivers answer every second: "
        "something drops or merges them, or the receiver delays them.",
        "Pacing hides the resulting bursts; check ACK filters of the uplink, GRO and the receiver.",
        "ACKs for every second segment in a capture at the receiver.",
    ),
    "aqm": _cause(
        "AQM drops",
        "An AQM dropped {lost} packets: with {wait_us_p10:micros} to {wait_us_p90:micros} of "
        "queue, not with an empty one, while others passed that met {longest_wait_us}.",
        "Nothing to repair[{has_ecn?}; ECN is on, and it drops all the same: it does not mark, or was too full to|; "
        "with ECN on both ends it would mark instead of drop].",
        "Losses at one length of the queue only (a full buffer), or with an empty one (chance).",
    ),
    "stalls": _cause(
        "timeouts",
        "It stalled for {stalled_share} of the time: no ACKs arrived until the retransmission timer fired, "
        "{timeouts} times.",
        "Look for path outages or lost ACKs (a handover, a firewall, a full queue on the return path).",
        "ACKs or data, in a capture at the receiver, during these silences.",
    ),
    "receiver_pauses": _cause(
        "receiver pauses",
        "The receiver stopped reading {pauses:times}: its window was shut for {shut_s:lasting} in all.",
        "Check what the receiving application does meanwhile.",
        "ACKs without zero windows.",
    ),
    "self_induced_queue": _cause(
        "full, with a deep queue of its own",
        "[{is_own?}It filled a deep buffer itself: {queue_us} of queue of its own|A deep buffer is full: {queue_us} of "
        "queue], typically, on a base RTT of {base_rtt_us}[ ({queue_bytes} at {rate_bps})].",
        "An AQM at the bottleneck (fq_codel, cake)[{answers_losses?}, or a controller that keeps queues short (BBR)].",
        "RTTs that stay as long with little in flight.",
    ),
    "window_limited": _cause(
        "something held its window",
        "Something held its window at {window_bytes}: so much {per_rtt}, round after round, without loss, queue or a "
        "full receive window.",
        "A larger send buffer, or a higher limit of the window or of the pacing rate; the kernel's counters "
        "[{has_counters?}name none of these|would tell].",
        "A window that grows without losses.",
    ),
    "path_full": _cause(
        "full: all the path gave",
        "Its path was full: [RTTs of typically {long_rtt_us}, at least {least_rtt_us}, so that more was in flight than "
        "the path holds, and the rate ({goodput_bps}) did not follow|its congestion window was full, {cwnd_segments} "
        "segments|it had its own estimate of the rate{at_estimate?}|it had sent {retransmitted:count} segments again].",
        "A higher rate needs a faster path or less competing traffic.",
        "Periods in which more data in flight increased the rate.",
        rate=Sentence(
            "It had what its path gave[{mostly?} for most of the time]: {goodput_bps}[{mostly?} in all], [{mostly?}"
            "typically ]{of_rate_share} of the bottleneck's {rate_bps} (on the wire) while it sent, with {queue_us} of "
            "queue, typically, on a base RTT of {base_rtt_us}.",
            "A higher rate needs a faster path or less competing traffic.",
            "Periods in which more data in flight increased the rate.",
        ),
    ),
    "heavy_retransmission": _cause(
        "much sent again",
        "It sent {retransmitted_share} of its segments again ({retransmitted_segments:count} of {segments:count})"
        "[; {vain:count} of these had arrived before].",
        "Mend what dropped them first; a controller that heeds losses (CUBIC, BBRv3) would lose fewer.",
        "D-SACKs for most of them: then few were lost.",
    ),
    "congested_before": _cause(
        "congested before it began",
        "Its path was congested before it began: its first packets took {first_rtt_us} with hardly a queue of their "
        "own, later ones as little as {least_rtt_us}.",
        _OTHERS,
        "First RTTs as short as any later.",
    ),
    "congestive_loss": _cause(
        "full queue drops",
        "{lost} packets were lost {when}: a full queue[{perhaps_policer?} or a policer] dropped them"
        "[{by_others?}, which this flow's own data do not explain].",
        f"[{{by_others?}}{_OTHERS}|A capture would tell more.]",
        "Losses after short RTTs, at any time.",
        overflow=Sentence(
            "A full queue of {buffer_bytes} ({buffer_bdp:two} BDP) dropped {lost} packets.",
            "That is how a loss-based controller finds the rate; an AQM with ECN would do it without losses.",
            "Losses while the queue was short.",
        ),
    ),
    "jitter": _cause(
        "jitter",
        "Delays vary by {jitter_sd_us} (standard deviation within an RTT) on {uncongested_rtt_us}, whatever the flow's "
        "own queue.",
        "BBR's min_rtt falls with it: `cctrace fit collapse` tells how far this is from a minRTT collapse.",
        "Delays that follow the flow's own queue.",
    ),
    "inflated_min_rtt": _cause(
        "BBR's min_rtt inflated",
        "BBR's min_rtt is inflated: for ten seconds at a time no RTT was below {min_rtt_us}, though the path's is "
        "{base_rtt_us}: others keep the queue, and the window grows with it.",
        "Flows that empty the queue together (PROBE_RTT of several BBR flows), or a fair queue.",
        "RTTs near the least in every ten seconds.",
    ),
    "app_limited_samples": _cause(
        "BBR's samples app-limited",
        "{limited_share} of its bandwidth samples were taken while the application limited it; the model takes them "
        "only if they are higher than what it has.",
        "Have the application write more at a time, so that the samples are of the path.",
        "Samples without a bubble in flight.",
    ),
    "lost_before_capture": _cause(
        "losses before the capture",
        "{retransmitted_share} of the segments were lost before the capture ({retransmitted_segments:count} of "
        "{segments:count} were sent again): by chance or by a full queue, which only the sender's side shows.",
        "Capture at the sender, which sees what every packet met.",
        "Copies of these segments in the capture: then they were not lost.",
    ),
    "vantage_point": _cause(
        "captured too far from the sender",
        "It was captured {sender_side_us} (there and back) from the sender: what the sender saw is an estimate.",
        "Capture at the sender.",
        "A sender's capture in which the same packets leave at other times.",
    ),
    "unknown": _cause(
        "unknown",
        "[{why}, and so not what|Nothing in {record} tells what] limited it to {goodput_bps}[: {despite}].",
        "[{has_polls?}A capture at the sender would tell.|{has_counters?}The kernel's counters do not tell either."
        "|The kernel's counters (`ss -tin`, given with --tcpinfo) would tell.]",
    ),
}
ORDER = tuple(CAUSES)
