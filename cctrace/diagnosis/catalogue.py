"""Catalogue of causes: priority, plain words, sentence, advice, and the observation that would refute each one.

    CAUSES["random_loss"].words         "random loss", for tables
    order.verdict(finding)              a rule's finding in words

Causes at the ends come before causes on the path, and a cause comes before its effects (a competitor fills the queue
that drops); `path_full` means that nothing was wrong. `wording` defines the templates: a bracketed clause is omitted
if the record lacks its numbers, so that packets, polls and a single poll share one sentence.
"""

from cctrace.diagnosis.artefacts import CAPTURE_ARTEFACT, LOST_BEFORE_CAPTURE, VANTAGE_POINT
from cctrace.diagnosis.wording import Sentence, cause

_OTHERS = "Look for other users of the path; this capture does not contain them."
_WRITE_MORE = "Have the application write earlier, or more at a time: the network could carry more."
_LARGER_BUFFER = "A larger send buffer would help (net.ipv4.tcp_wmem, SO_SNDBUF unset)"
_LIMIT = (
    "Raise or remove the limit. An application sets it (SO_MAX_PACING_RATE, iperf3 --fq-rate), the fq qdisc does "
    "(`maxrate`), or the network of the cloud or the container has a cap. The path could carry more."
)
_EVEN = (
    "packets left evenly at {rate_bps} (on the wire) for {even_share} of the time without a queue of their own, "
    "[{lost_share?}{lost_share} of them were lost|nothing was lost][, and the path carried up to {carried_bps}]"
)

CAUSES = {  # the most important first
    "capture_artefact": CAPTURE_ARTEFACT,
    "receiver_limited": cause(
        "receive window",
        "The receive window [held the sender back for {held_share} of the time it had data to send|was full: "
        "{used_share} of {advertised_bytes} in flight|was full: typically {used_share} of it was in flight|was used "
        "up: the average rate took {average_share} of {advertised_bytes} per RTT|did not grow beyond {kept_bytes}, "
        "although more than half of that arrived per RTT][: about {window_bytes} {per_rtt}].",
        "A larger receive buffer would help (or a receiver that reads faster); another congestion control would not.",
        "Advertised windows that leave room for a segment or more.",
        shut=Sentence(
            "The receiver mostly did not read: its window was zero {pauses:times}, for {shut_s:lasting} in all.",
            "Check what the receiving application does meanwhile; a larger receive buffer would fill, too.",
            "ACKs without zero windows.",
        ),
        slow=Sentence(
            "The receiver read more slowly than data could arrive: it held unread data for {unread_share} of the time, "
            "which left typically {window_bytes} of its window[ of {advertised_bytes}].",
            "Check what the receiving application waits for; a larger receive buffer would fill, too.",
            "ACKs that announce the largest window again.",
        ),
    ),
    "slow_start_only": cause(
        "too short: slow start",
        "The flow ended before it left slow start: [{bytes} in ]{rounds:rounds}[ of {rtt_us}], no loss.",
        "Fewer or shorter round trips would help: reuse the connection, raise the initial window, serve from closer.",
        "A round trip that delivered no more than the one before.",
    ),
    "pacing_limited": cause(
        "pacing limit",
        "The socket's pacing limit (SO_MAX_PACING_RATE) held the flow to {limit_bps}: it was paced at that limit for "
        "{limited_share} of the time without a standing queue[, and the path carried up to {carried_bps}].",
        _LIMIT,
        "A pacing rate below the limit (in `pacing_rate A/B` of ss, A is the rate and B the limit).",
        partly=Sentence(
            "The flow was at its socket's pacing limit (SO_MAX_PACING_RATE), {limit_bps}, for {limited_share} of the "
            "time.",
            _LIMIT,
            "A pacing rate below the limit (in `pacing_rate A/B` of ss, A is the rate and B the limit).",
        ),
        evenly=Sentence(
            f"Something paced the flow: {_EVEN}. A limit on its pacing rate does that, and so does an application that "
            "writes at a constant rate.",
            _LIMIT,
            "Counters (`ss -tin`, with --tcpinfo) that show no limit (`pacing_rate A/B`).",
        ),
    ),
    "policer": cause(
        "policer",
        "A policer dropped what exceeded {rate_bps} (token bucket of [{least?}at least|about] {bucket_bytes}): "
        "{explained_share} of [{is_part?}the first ]{lost:count} losses met an empty bucket, and packets did not "
        "queue.",
        "Pace below that rate ([{answers_losses?}a rate-based controller, ]SO_MAX_PACING_RATE), or have the operator "
        "shape instead.",
        "Losses while tokens were left, or delays that grew before the losses.",
    ),
    "application_limited": cause(
        "application",
        "The application limited the flow: [for {application_share} of the time ]it sent less than it could have[, "
        "writing {write_bytes} every {every_us}].[ Or "
        "the send buffer was full: data were always written when {level_segments} segments were left in flight.]",
        _WRITE_MORE,
        "Unsent data in the socket (`notsent` of ss) while nothing leaves.",
        evenly=Sentence(
            f"The application limited the flow: {_EVEN}, and {{partly_filled_share}} of the segments were short, as "
            "those of a sender that has no more to send.",
            _WRITE_MORE,
            "Unsent data in the socket (`notsent` of ss) while nothing leaves.",
        ),
        short=Sentence(
            "The application limited the flow: {partly_filled_share} of the segments were short, as those of a sender "
            "that has no more to send, and no loss, queue or window shows.",
            _WRITE_MORE,
            "Unsent data of a segment or more in the socket (`notsent` of ss) while nothing leaves.",
        ),
    ),
    "send_buffer_limited": cause(
        "send buffer",
        "The send buffer was full for {send_buffer_share} of the time the flow had data to send.",
        f"{_LARGER_BUFFER}.",
        "A kernel that counts no time in sndbuf_limited.",
        counted=Sentence(
            "The send buffer held the flow back: for {waited_share} of the time everything written was in flight "
            "although the windows allowed more, and the kernel counted a full buffer ({send_buffer_share} of the time "
            "with data, which is only a part of it).",
            f"{_LARGER_BUFFER}.",
            "A kernel that counts no time in sndbuf_limited.",
        ),
        writes=Sentence(
            "The send buffer held the flow back: for {waited_share} of the time it waited until ACKs had reduced some "
            "{in_flight_bytes} in flight to {in_flight_at_writes_bytes}, and sent more right after such an ACK, again "
            "and again.",
            f"{_LARGER_BUFFER}[{{has_counters?}}|; the kernel's counters (`ss -tin`, with --tcpinfo) would confirm].",
            "A kernel that counts no time in sndbuf_limited, or an application that waits for replies.",
        ),
    ),
    "competition": cause(
        "competing flows",
        "The flow shared [a bottleneck of {link_bps}|a queue{by_rtts?}|its path, perhaps,] with {others} of this "
        "{record}[{by_rtts?} (their RTTs move together)][{by_time?} that had data at the same time] and got "
        "{share:percent} of what {all_flows} got together[, {won} a fair share ({mine_bps}; {best} got {best_bps})].",
        "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whatever the controllers are.",
        "[{by_rtts?}RTTs that move apart|Delays that this flow's own queue explains as well as the queue of all "
        "together].",
        beside=Sentence(
            "{others} of this capture shared the same bottleneck ({link_bps}) at the same time.",
            "A fair queue at the bottleneck (fq_codel, cake) would share evenly, whatever the controllers are.",
            "A rate that is the same without them.",
        ),
        hypothetical=Sentence(
            "From {from_s} on, a flow outside this capture took part of the path's {link_bps}: packets met a queue "
            "that this flow did not fill, and a simulated competitor explains the recording better than a rate change.",
            "Look for other users of the path; a fair queue at the bottleneck (fq_codel, cake) would share evenly.",
            "Delays that this flow's own data at a lower rate would explain.",
        ),
    ),
    "fair_queueing": cause(
        "its share of a fair queue",
        "The bottleneck serves its flows in turn: {flows} flows of this capture got [{is_equal?}equal ]shares of "
        "{link_bps} while all had data (this one {share:percent}[{is_equal?}, within {share_deviation:percent} of that "
        "for three quarters of the time])[; while it was alone it got {alone_bps}], and {whose} delays are those of a "
        "separate queue[{never_alone?} (or each of them has its own limit)].",
        "Nothing to repair: no flow can take another's share, and more data in flight only lengthens its own queue.",
        "Delays that a common queue explains, or shares that depend on the controllers.",
    ),
    "ecn_marking": cause(
        "marks (ECN)",
        "ECN marks set the window: a queue marked [{marked:count} segments ({marked_share})|packets] instead of "
        "dropping them, which cut the window {reductions:times}[, from {first_s} to {last_s}][, typically "
        "at {queue_us} of queue].[ Losses cut it {losses:times}.][{ramps?} From {ramp_s} to {ramp_end_s} the window "
        "grew back without another reduction.][ These marks come from {marker}[: {threshold_us} "
        "({threshold_us_low:micros} to {threshold_us_high:micros})].| {markers} explain these marks equally well."
        "|{no_marker?} Which AQM set them remains unknown.]",
        "[{ramps?}After such a reduction Reno adds one segment per RTT, and CUBIC little more at first: BBR regains "
        "the rate of a long path sooner|Nothing to repair: this is how an AQM keeps its queue short without losses. A "
        "higher rate needs a faster path or less competing traffic][{as_classic?}; an AQM that marks only long queues "
        "treats ECT(1) like ECT(0), where DualPI2 would mark at 1 ms].",
        "ACKs that echo no marks (ECE, or the counter of AccECN), or window reductions without them.",
    ),
    "collapse": cause(
        "BBR's min_rtt collapsed (jitter)",
        "minRTT collapse[{is_guess?} of a sender that paces as BBR does]: jitter (sd {jitter_sd_us}) lowers the "
        "minimum RTT to {min_rtt_us}, {than} half of the {uncongested_rtt_us} that packets take without a queue, so "
        "that a window of two bandwidth-delay products is too small: {goodput_bps}[ on a path of {rate_bps}].",
        "Less jitter; a controller that does not take the minimum RTT for the base RTT (bbr2_comp, BBRv2+); or CUBIC.",
        "A min_rtt above half the mean RTT without queue, or the same rate with a larger window.",
    ),
    "reordering": cause(
        "reordering",
        "The path reorders: {reordered_share} of the packets arrived after one that was sent later[, by the kernel's "
        "count ({counted:times})][, and segments were retransmitted in vain {needless:times}|, and duplicates packets: "
        "{copies:count} arrived twice, where {retransmitted:count} were retransmitted].",
        "Find the parallel links or per-packet load balancing; senders need RACK (Linux since 4.18) to tolerate it.",
        "SACK blocks that only losses caused.",
    ),
    "ack_path_full": cause(
        "ACK path full",
        "The path of the ACKs is full: {return_share} of what RTTs vary by (typically {risen_us}) arises after the "
        "receiver has sent them (its TCP timestamps), and no more than {acks_per_s:count} a second arrive.",
        "A faster return path (an uplink), less traffic on it, or fewer ACKs (GRO at the receiver, an ACK filter).",
        "RTTs that are long before the receiver sends its ACKs.",
    ),
    "stale_bandwidth": cause(
        "BBR's bandwidth out of date",
        "At {at_s} the path's rate fell from {before_bps} to {after_bps}, and the bandwidth estimate (a maximum over "
        "past round trips) stayed too high for {stale_s}: RTTs reached {longest_rtt_us}[{lost?}; packets lost: "
        "{lost:count}].",
        "A controller that lowers its estimate sooner (oBBR[{heeds_losses?}|, BBRv3 after losses]), or a short buffer.",
        "A sending rate that fell to the new rate within a round trip.",
    ),
    "rate_change": cause(
        "path's rate changed",
        "The path's rate {verb} from [{least_before?}at least ]{before_bps} to [{least_after?}at least ]{after_bps} at "
        "[{about}]{at_s}[; {more}].",
        "Ask what changed on the path (a radio, a route, other traffic): no controller can exceed the path's rate.",
        "Deliveries at the old rate later on, out of a standing queue.",
        varied=Sentence(
            "The path's rate varied between {rate_p10_bps} and {rate_p90_bps} while packets queued for it (median RTT "
            "{rtt_us}, minimum {least_rtt_us}): a radio link, or the rate that other traffic left.",
            "An AQM (fq_codel, cake) would keep the delay low while the rate varies.",
            "Delays that a constant rate explains.",
        ),
    ),
    "random_loss": cause(
        "random loss",
        "Random losses: [{is_bound?}at most ]{loss_share} of the packets, {whatever}[{answers_losses?}; each cuts the "
        "window of a controller that takes losses for congestion].",
        "Look for a bad link (wireless, cable, duplex)[{answers_losses?}; BBR or another model-based controller loses "
        "less rate to it].",
        "Losses only while the queue is long.",
    ),
    "poor_pacing": cause(
        "bursts overflow the queue",
        "Bursts overflow the queue: lost packets ({loss_share}) typically followed {burst_bytes} of the same burst, "
        "sent at more than twice the bottleneck's rate, which made up {own_share_of_queue:percent} of the queue that "
        "they met; a sender that paces sends {paced_bytes} at a time.",
        "Pace (the fq qdisc, or BBR's own timer) with smaller bursts; an unpaced sender cannot avoid them where ACKs "
        "come in batches.",
        "Losses at the start of bursts, or of isolated packets.",
    ),
    "shallow_buffer": cause(
        "shallow buffer",
        "The buffer is shallow: [{buffer_bytes}|{buffer_us}], {buffer_bdp:two} BDP, less than [{answers_losses?}a "
        "window that losses cut needs to keep the path full (Reno's 1 BDP, CUBIC's 0.43)|the 0.25 BDP that BBR adds "
        "when it probes]; it dropped {lost:packets}[ ({loss_share})]"
        "[{perhaps_policer?}, unless a policer did, which polls cannot exclude].",
        "A larger bottleneck buffer, paced sends, or a controller that heeds losses ([{heeds_losses?}|BBRv3, ]oBBR).",
        "Longer queues without a loss.",
        by_effect=Sentence(
            "The buffer is shallow: {buffer_bytes}, {buffer_bdp:two} BDP. It dropped {lost:packets}; with "
            "twice the buffer this flow would get more or retransmit less.",
            "A larger buffer at the bottleneck, or a controller that keeps its rate after losses.",
            "As much goodput, and as many retransmissions, over a larger buffer.",
        ),
    ),
    "shaper": cause(
        "shaper (token bucket)",
        "A shaper (token bucket) delays what exceeds {rate_bps}: after a pause the first {bucket_bytes} pass at once.",
        "Nothing to repair; measure the path's rate only after the bucket is empty.",
        "Bursts after a pause whose first packets are already delayed.",
    ),
    "ack_compression": cause(
        "compressed ACKs",
        "ACKs are compressed on the return path: {bunched_share} of them came in bunches of typically {acks_per_bunch} "
        "[{at_once?}at once|within {came_within_us}], which the receiver had sent over {sent_over_us} (its TCP "
        "timestamps): a queue, jitter or a radio on the return path held them.",
        "Look for traffic on the return path (an upload, Wi-Fi); give ACKs priority there. Pacing smooths the bursts.",
        "Equal TCP timestamps within a bunch, which would mean that the receiver delayed the ACKs.",
    ),
    "ack_aggregation": cause(
        "aggregated ACKs",
        "ACKs come in batches, every {interval_us} ({of_base_share} of the base RTT) for some {segments_per_batch} "
        "segments: a radio link or the receiver (its NIC, or an application that reads at intervals) aggregates them.",
        "A window with room for one more batch (BBR since 2019 adds it); less aggregation on the last hop.",
        "ACKs at the pace of the bottleneck's deliveries.",
    ),
    "ack_thinning": cause(
        "thinned ACKs",
        "ACKs are thinned: one for {segments_per_ack:tenths} segments on average, where receivers acknowledge every "
        "second segment: something drops or merges ACKs, or the receiver delays them.",
        "Pacing smooths the resulting bursts; check ACK filters of the uplink, GRO and the receiver.",
        "ACKs for every second segment in a capture at the receiver.",
    ),
    "aqm": cause(
        "AQM drops",
        "An AQM dropped {lost:packets}: they met {wait_us_p10:micros} to {wait_us_p90:micros} of queue, never an "
        "empty one, while other packets passed that met {longest_wait_us}.",
        "This keeps the queue short[{has_ecn?}; ECN is on, but the AQM drops: it does not mark, or its queue was too "
        "long|; with ECN on both ends it could mark instead of drop].[{answers_losses?} If it leaves a long path idle: "
        "an interval as long as the RTT (CoDel assumes up to 100 ms), or BBR.]",
        "Losses at one queue length only (a full buffer), or with an empty queue (random loss).",
    ),
    "stalls": cause(
        "timeouts",
        "The flow stalled for {stalled_share} of the time: no ACKs arrived until the retransmission timer fired, "
        "{timeouts} times[; no segment of {segment_bytes} was ever acknowledged, although the handshake was].",
        "[{segment_bytes?}If only large packets vanish, the path has a smaller MTU but sends no ICMP message (a PMTU "
        "black hole). ]Look for outages of the path or lost ACKs (a handover, a firewall, a full queue on the return "
        "path).",
        "ACKs or data during these silences in a capture at the receiver.",
    ),
    "receiver_pauses": cause(
        "receiver pauses",
        "The receiver stopped reading {pauses:times}: its window was zero for {shut_s:lasting} in all.",
        "Check what the receiving application does meanwhile.",
        "ACKs without zero windows.",
    ),
    "self_induced_queue": cause(
        "path full, bufferbloat",
        "[{is_own?}The flow fills a deep buffer itself|A deep buffer is full]: typically [{least?}at least ]"
        "{queue_us} of queue on a base RTT of [{least?}at most ]{base_rtt_us}[ ({queue_bytes} at {rate_bps})].",
        "An AQM at the bottleneck (fq_codel, cake)[{answers_losses?}, or a controller that keeps queues short (BBR)].",
        "RTTs that stay as long with little data in flight.",
    ),
    "window_limited": cause(
        "window held",
        "Something held the window at {window_bytes}: that much {per_rtt}, round after round, without a loss, a queue "
        "or a full receive window.",
        "A larger send buffer, or a higher limit on the window or the pacing rate; the kernel's counters "
        "[{has_counters?}name none of these|would tell which].",
        "A window that grows while nothing is lost.",
    ),
    "window_growing": cause(
        "window still growing",
        "The congestion window was still growing when the flow ended: [{saw_start?}{lost_at_start?}slow start ended at "
        "{began_s} with {first_bytes} in flight ({lost_at_start:packets_were} lost), and then|{saw_start?}slow start "
        "ended at {began_s} with {first_bytes} in flight (nothing was lost, as when HyStart ends it), and then|from "
        "{first_bytes} in flight] it grew by {per_rtt_segments:tenths} segments {per_rtt}, to {last_bytes}. No queue "
        "grew meanwhile: the path could carry more.",
        "A controller that finds the rate sooner, as BBR does[{by_chance?}; and look for what dropped a packet of a "
        "flow that may not have filled its path].",
        "A queue that grew with the data in flight, or a window that stayed as it was.",
    ),
    "path_full": cause(
        "path full",
        "The path was full: [with a median RTT of {long_rtt_us} and a minimum of {least_rtt_us}, more was in flight "
        "than the path holds, and the rate ({goodput_bps}) did not grow with it|the congestion window was full, "
        "{cwnd_segments} segments|the flow sent at its estimate of the rate{at_estimate?}|it had retransmitted "
        "{retransmitted:count} segments].",
        "A higher rate needs a faster path or less competing traffic.",
        "Periods in which more data in flight increased the rate.",
        rate=Sentence(
            "The flow filled its path[{mostly?} most of the time]: {goodput_bps} of goodput[{mostly?} in all]; while "
            "it sent, its packets with their headers took [{mostly?}typically ]{of_rate_share} of the bottleneck's "
            "{rate_bps}, with a median queue of [{least?}at least ]{queue_us} on a base RTT of "
            "[{least?}at most ]{base_rtt_us}.",
            "A higher rate needs a faster path or less competing traffic.",
            "Periods in which more data in flight increased the rate.",
        ),
    ),
    "heavy_retransmission": cause(
        "many retransmissions",
        "The sender retransmitted {retransmitted_share} of its segments ({retransmitted_segments:count} of "
        "{segments:count})[; {vain:count} of these had arrived already].",
        "First repair what drops them[{heeds_losses?}|; a controller that heeds losses (CUBIC, BBRv3) loses fewer].",
        "D-SACKs for most of them, which would show that few were lost.",
    ),
    "congested_before": cause(
        "congested before the start",
        "The path was congested before the flow began: its first packets took {first_rtt_us}, with hardly any of its "
        "own data queued, later ones as little as {least_rtt_us}.",
        _OTHERS,
        "First RTTs as short as any later one.",
    ),
    "congestive_loss": cause(
        "full queue drops",
        "{lost:packets_were} lost {when}: a full queue[{perhaps_policer?} or a policer] dropped them"
        "[{by_others?}, which this flow's own data do not explain|{is_unknown?}; its length is unknown].",
        f"[{{by_others?}}{_OTHERS}|{{is_unknown?}}This flow or other users of the path filled it."
        "|A capture would show more.]",
        "Losses after short RTTs, at any time.",
        overflow=Sentence(
            "A full queue of [{least?}at least ]{buffer_bytes} ({buffer_bdp:two} BDP)[{or_aqm?}, or the AQM at the "
            "length from which it drops all,] dropped {lost:packets}.",
            "This is how a loss-based controller finds the rate; with ECN and an AQM it would do so without losses.",
            "Losses while the queue was short.",
        ),
    ),
    "jitter": cause(
        "jitter",
        "The path's delay varies: a standard deviation of {jitter_sd_us} within an RTT, on a mean of "
        "{uncongested_rtt_us}, whatever this flow has queued.",
        "[{answers_losses?}Look for a radio or a busy host|Jitter lowers BBR's min_rtt: `cctrace fit collapse` "
        "computes how near this is to a minRTT collapse]. `cctrace fit jitter` fits the path's own jitter, of which "
        "packets that stay in order show only a part.",
        "Delays that follow the flow's own queue.",
    ),
    "inflated_min_rtt": cause(
        "BBR's min_rtt inflated",
        "BBR's min_rtt is inflated: for ten seconds at a time no RTT was below {min_rtt_us}, although the path's base "
        "RTT is {base_rtt_us}: other flows keep the queue filled, and the window grows with min_rtt.",
        "Flows that drain the queue together (PROBE_RTT of several BBR flows), or a fair queue.",
        "RTTs near the minimum in every ten seconds.",
    ),
    "app_limited_samples": cause(
        "BBR's samples app-limited",
        "{limited_share} of the bandwidth samples were app-limited; BBR uses such a sample only if it exceeds its "
        "estimate.",
        "Have the application write more at a time, so that samples measure the path.",
        "Bandwidth samples that are not app-limited.",
    ),
    "lost_before_capture": LOST_BEFORE_CAPTURE,
    "vantage_point": VANTAGE_POINT,
    "unknown": cause(
        "unknown",
        "[{why}, and so not what|Nothing in {record} shows what] limited the flow[ to {goodput_bps}][: {despite}].",
        "[{has_polls?}A capture at the sender would tell more.|{has_counters?}The kernel's counters do not tell either."
        "|The kernel's counters (`ss -tin`, with --tcpinfo) would tell more.]",
    ),
}
ORDER = tuple(CAUSES)
