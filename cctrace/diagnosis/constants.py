"""Constants of the diagnosis: value, unit, kind and reason on one line each.

Kinds are those of `cctrace.path.constants`; *set* values were chosen on simulated flows and recordings
(docs/explain.md).
"""

# --- shares of the time, levels that several causes share ------------------------------------------------------------
MOST_OF_TIME = 0.5  # of the time | set | from which a limit is the flow's cause
MUCH_OF_TIME = 0.25  # of the time | set | from which a limit is mentioned
WINDOW_FULL = 0.9  # share | set | of a window in flight, from which it is full; the rest is less than a burst
RATE_FULL = 0.9  # of the bottleneck's rate (or cwnd, single poll) | set | from which the path is full
QUEUED = 1.25  # times the RTT without queue | definition | data in flight beyond a BDP must be queued
UNQUEUED = 1.1  # times min RTT | set | up to which there is hardly any queue
LEAST_RTT_US = 1.0  # us | definition | smallest valid RTT: clocks of 10 ms show 0
EPISODE_RTTS = 2  # RTTs | set | losses, or marks, closer than this reduce the window once
UNLIKELY = 1e-3  # probability | set | of the observation by chance, below which it is significant
SURE_ERRORS = 3.0  # standard errors | set | of a mean rank from that of chance, to be significant

# --- how sure a verdict is -------------------------------------------------------------------------------------------
SLOPE = 1.75  # of log odds | set | calibration: rules are right more often than their confidences
MOST_SURE = 0.99  # confidence | set | largest of a verdict
DOUBTFUL = 0.5  # confidence | set | below this a verdict goes last and is not calibrated
EXPLAINS = 0.6  # confidence | set | from which a cause explains others' evidence
UNSURE = 0.4  # confidence | set | largest, if times or counts are artefacts of the capture
SINGLE_POLL_SURE = 0.5  # confidence | set | largest from a single poll
SINGLE_POLL_SURE_OF_LIMITS = 0.7  # confidence | set | the same for the kernel's cumulative time counters
EITHER = 0.6  # confidence | set | largest of an application, if it may be the send buffer

# --- what the capture spoils -----------------------------------------------------------------------------------------
UNSEEN = 0.01  # share | set | of the data missing from a capture, from which loss counts are wrong
FEWEST_RTTS = 3  # RTTs | set | shortest informative capture
HELD_US = 1000.0  # us | set | beyond two stamp ticks, from which packets were held before the capture
HELD_RTTS = 0.1  # of the RTT | set | and at least this share of it
HERE_US = 300  # us | set | round trip to the sender, no longer than its own reaction
REPEATED = 0.05  # share | set | of data repeated for no reason, beside copies, from which they are copies, too

# --- what matters without a cause ------------------------------------------------------------------------------------
GOODPUT_CHANGES = 0.03  # of log goodput | set | least relevant change by a removal
RTT_CHANGES = 0.05  # of log RTT | set | the same for the RTT
LOSS_CHANGES = 0.003  # share | set | the same for retransmissions; what-ifs within this are right
LIKELY = 0.41  # of half a 90 % interval | definition | exceeded with probability 3/4 under a normal law
RATIO_TIE = 0.02  # of a logarithm | set | effects closer than this keep the catalogue's order
GOODPUT_NEAR = 0.10  # share | definition | tolerance of an effect on goodput
RTT_NEAR = 0.15  # share | definition | tolerance of an effect on the mean RTT
# Errors of effects relative to runs without the cause; `python -m benchmarks.effect_confidence` fits these three.
MISSES_TIMES = 1.3  # times | set | error of an effect in units of its interval's standard deviation
MISSES_LEAST = 0.038  # of a logarithm | set | least error of an effect
MISLED = 0.001  # share | set | of effects computed over a wrong path
LOSS_TIE = 0.002  # share | set | the same as RATIO_TIE, for retransmissions

# --- what a sender lets out, and why ---------------------------------------------------------------------------------
POLLED_S = 0.1  # s | set | largest poll interval for limits over time
POLLED = 0.9  # of the flow's time | set | that such polls must cover
TOGETHER_S = 2e-5  # s | set | largest gap of packets sent together
LATE_S = 0.0005  # s | set | within which a busy host answers an ACK
LEAST_ANSWERED = 50  # ACKs | set | answered, to measure the response time
MOSTLY_ANSWERED = 0.8  # share | set | of ACKs that must be answered
ANSWERS_ALIKE = 1.5  # times | set | largest spread of the response times
ANSWERS_SHORT = 8  # times | set | by which responses must be shorter than ACK intervals
SLOWEST_S = 0.005  # s | set | longest response
MOST_BINS = 2000  # slices | accuracy | most in the limits over time
PROBE_SEGMENTS = 4  # segments | definition | in flight in PROBE_RTT of BBR v1 [Linux61] bbr_cwnd_min_target
PROBE_S = 0.1  # s | definition | half of the 200 ms that it lasts
PROBE_EVERY_S = 5.0  # s | definition | at most: ten of v1, five of v2 [Linux61] bbr_min_rtt_win_sec
DRAINING_RTTS = 2  # RTTs | set | most until four segments are left in flight: one RTT acknowledges the rest
PAUSED_TIMES = 4  # times | set | the sending interval, for a pause: a pacing rate does not change that fast
SPARE_SEGMENTS = 3  # segments | set | that an ACK may release beyond twice what it acknowledges (rounding, Nagle)
WRITE_S = 0.005  # s | set | least between writes of an application
PACED_S = 0.001  # s | definition | of its rate, per burst of a pacing sender [Linux] tcp_tso_autosize
FULL_PIPE = 1.25  # times | definition | growth per round below which a start has ended [Linux61] bbr_full_bw_thresh
FULL_ROUNDS = 3  # rounds | definition | for which it must be below [Linux61] bbr_full_bw_cnt

# --- the ends of the connection --------------------------------------------------------------------------------------
LEAST_WRITES = 10  # writes | set | least to identify a pattern
MOST_WRITES = 0.8  # share | set | of the writes that must follow the pattern
CLOSER = 4  # times | set | by which delays after ACKs must be more even than write intervals
TOOK_S = 2e-5  # s | set | scatter of a host's response times
CHANCE_TIMES = 20  # times | set | shorter than the ACK interval, for a response to be no coincidence
ABOUT_IN_FLIGHT = 0.05  # of the data in flight | set | scatter at writes into a full buffer
SAME_RATE = 0.1  # share | set | largest difference of equal sending rates
BURSTS_TOGETHER = 8  # bursts | set | per rate sample: timers of a busy host are late by some
PARTS_OF_RTT = 4  # parts | set | of an RTT, examined separately: a used-up window pauses once per RTT
FEWEST_BURSTS = 100  # bursts | set | least to identify an even rate
PACKETS_TOGETHER = 4  # packets | set | sent, or acknowledged, together
SPARE_RATE = 0.95  # of a rate | set | carried by the path at other times, above which it is no limit of its own
COUNTED = 0.02  # of the time with data | set | with a full send buffer by the kernel's count, to be no accident
AT_LIMIT = 0.9  # of a pacing limit | set | from which a rate is at it: BBR paces 1 % below its estimate
HEADERS = 1.1  # times a pacing limit | set | TCP's own timer counts payload, the fq qdisc entire packets
SHORT_ROUNDS = 14  # rounds | definition | by then, slow start from ten segments has delivered 80 MB
FEW_LIMITED = 0.1  # of the bandwidth samples | set | application-limited, from which it is mentioned
LEAST_PAUSED = 0.01  # of the time | set | with a zero window, from which it is mentioned
EVEN = 0.9  # of the time | set | at one rate, from which packets were paced
PROBE_RTTS = 0.5  # RTTs | set | a faster probe: 24 kernel flows had 0 to .33 at a limit, .7 to 37 without
PARTLY_FILLED = 0.1  # of the segments | set | partial, from which the application paced them

# --- losses ----------------------------------------------------------------------------------------------------------
LEAST_LOSSES = 5  # losses | set | least to infer their cause
MANAGED_PACKETS = 10  # packets | set | shortest queue of an AQM, as opposed to a short buffer
AT_FULL = 0.8  # of the longest backlog | set | from which a loss is a full queue's
PASSED = 2  # packets | set | most per dropped one that pass a full queue although it was longer
IN_A_BURST = 0.5  # of a packet's service time | set | largest gap within a burst
FEWEST_IN_BURSTS = 10  # losses | set | least to use their position in bursts
OVERFLOW_RTTS = 4  # RTTs | set | within which losses belong to one overflow
MOSTLY_OVERFLOW = 0.9  # share | set | of losses explained by a full queue, from which the rest is ignored
BY_OTHERS = 0.8  # mean rank | set | of the RTTs before losses, from which others' queue dropped them
AT_RTT = 0.9  # mean rank | set | of the RTTs before losses, from which a full queue dropped them
NEAR_LONGEST = 0.9  # of the longest delay | set | met by nine of ten packets that a full queue dropped
SHALLOW = 0.25  # bandwidth-delay products | definition | the gain by which BBR probes, less 1 [Linux61] bbr_pacing_gain
BURSTS_THAT_LOST = 5  # bursts | set | with losses, for pacing to be the cause
LARGE_BURST = 2  # times | set | a pacing sender's burst, from which a burst is not paced
FILLS_QUEUE = 0.8  # share | set | of the queue at losses that their own burst had filled
LATE_IN_BURST = 0.7  # mean rank | set | of the lost packets' position in the burst
HEAVY = 0.05  # of the segments | set | retransmitted, from which it is reported separately
FEWEST_BEFORE = 5  # segments | set | lost before the capture, from which it is mentioned
SOME_BEFORE = 0.001  # of the segments | set | and at least this share
LEAST_RESENT = 10  # segments | set | retransmitted, from which a path was full at times
POLICED_SENDS = 20_000  # transmissions | accuracy | first ones searched for a policer
POLICED_SENDS_MOST = 60_000  # transmissions | accuracy | the same, if these have too few losses
POLICED_LOSSES = 100  # losses | accuracy | that suffice
LEAST_POLICED = 15  # losses | set | least to look for a policer
POLICED_RATE_SAME = 0.02  # share | set | largest difference of equal rates
RATE_SHOWN = 0.1  # share | set | of the delays' deviation explained by a queue, from which its rate is known
QUEUE_EPISODES = 5  # episodes | set | of loss, least to infer a queue
QUEUE_RANK = 0.9  # mean rank | set | of the RTTs before them

# --- marks -----------------------------------------------------------------------------------------------------------
LEAST_CUTS = 2  # reductions | set | one may be the end of slow start alone
LONGEST_PAUSE = 0.8  # of the time | set | longest without a reduction, for marks to be the cause
LATEST_CUT = 0.5  # of the time | set | latest first reduction after which the rest of the flow is its effect
RAMPS = 1.1  # ratio | set | least growth of the flight after a reduction
RAMP_ROUNDS = 5  # rounds | set | last ones, of which the largest flight is taken
RAMP_SURE = 0.65  # confidence | set | of marks as the cause if the window grew back for most of the time
MANY_CUTS = 5  # reductions | set | from which the confidence is greatest

# --- other flows -----------------------------------------------------------------------------------------------------
FAIR = 0.05  # of the fair share | set | tolerance of equal shares
SHARES_STEADY = 0.1  # of the fair share | set | scatter of a share for three quarters of the time
LINK_FILLED = 0.7  # of the link's rate | set | used by all flows together while they competed
MET_FULL_LINK = 0.5  # of a flow's data | set | that must have met a link that full
LEAST_SHARED = 20  # windows | set | least with data of all, to compare shares
RTTS_ALIKE = 0.5  # correlation | set | of two flows' RTTs, from which they share a queue
MOST_FLOWS = 17  # flows | accuracy | of a table of counters that are compared
MOST_CONNECTIONS = 100  # connections | accuracy | of a single poll that are compared

# --- the path's rate and queue ---------------------------------------------------------------------------------------
STEPPED = 0.7  # of the time | set | at constant rates, from which a link's rate changes in steps
BW_ROUNDS = 10  # rounds | definition | of BBR's bandwidth filter [Linux61] bbr_bw_rtts
TOO_HIGH = 1.1  # times the rate | set | from which an estimate is too high
LEAST_FIRST = 5  # packets | set | first ones, whose RTTs reveal a queue before the flow started
LEAST_ROUNDS = 20  # rounds | set | least to identify a constant amount in flight
ALL_THE_TIME = 0.85  # of the typical rate on the wire | set | least goodput of a flow that had it all the time
LITTLE_QUEUE = 1.1  # times min RTT | set | largest RTT without a queue at a steady rate
LITTLE_QUEUE_OF_MODEL = 1.02  # times min RTT | set | the same for a sender that keeps queues short
BLOATED = 2.0  # base RTTs | definition | of typical queue: more than any window of two BDPs causes
BEFORE = 1.5  # times min RTT | set | of the first packets, from which the path was congested before
IN_FLIGHT_STEADY = 0.03  # share | set | largest scatter of the maximum in flight per round under a constant limit
STALE_RTTS = 3  # RTTs | set | for which an estimate must be too high to be stale
ESTIMATE_USED = 0.8  # of the estimated rate | set | from which the path gives no more

# --- delays and ACKs -------------------------------------------------------------------------------------------------
MIN_RTT_S = 10.0  # s | definition | of BBR's min_rtt [Linux61] bbr_min_rtt_win_sec
MIN_RTT_STEP_S = 0.25  # s | accuracy | step of that filter
LEAST_USED = 0.01  # of the bottleneck's rate | set | least of any controller with data to send
PACED_SHARE = 0.25  # of the time | set | released by a timer, from which a sender paces as BBR does
OVERTAKEN_US = 20.0  # us | set | by which an arrival must precede an earlier packet's
LEAST_ARRIVALS = 100  # packets | set | least to judge the order of arrivals
NO_COLLAPSE = 0.95  # of the bottleneck's rate | set | from which min_rtt has not collapsed, whatever its value
NO_COLLAPSE_OF_ESTIMATE = 0.8  # of BBR's own estimate | set | the same; a maximum exceeds the path's rate
COLLAPSED = 0.5  # of the mean RTT | definition | a window of two such min_rtt does not fill the path
SHORT_PROBES = 0.6  # of the mean RTT | definition | probes then end before half of their ACKs return
JITTERS_TAIL = 10.0  # standard deviations | set | of jitter, by which a minimum over seconds may lie below the mean
NO_JITTER = 0.02  # of the mean RTT | set | largest deviation that is no jitter
JITTERED = 0.05  # of the mean RTT | set | deviation within an RTT, from which packets are merged
REORDERED = 0.002  # of the packets | set | reordered, from which it is mentioned
REORDERED_LEAST = 10  # packets | set | and at least this many
INFLATED = 1.25  # times the base RTT | set | from which min_rtt is inflated
BUNCHED = 0.2  # of the ACKs | set | in bunches, from which they are compressed
BATCH = 0.15  # of the base RTT | set | least service time of the data that one ACK covers
DELAYED_ACK = 2.0  # segments per ACK | definition | at most [RFC5681] 4.2
REGULAR = 0.35  # deviation over mean | set | largest, of the intervals of clocked batches
SKIPPED = 0.05  # of the batch interval | set | largest distance from its multiples
LEAST_ODD = 3  # batches | set | exceptional ones, least to use their times and sizes
CLOSE_ACKS = 0.1  # of the ACKs | set | closer than the bottleneck's packet spacing: jitter merged these
BUNCH = 3  # ACKs | set | least in a bunch
TIGHT = 0.25  # of the sending time | set | within which a bunch arrives
BUNCH_TICKS = 4  # ticks | set | of the receiver's clock, least over which a bunch was sent
LEAST_PROMPT = 50  # ACKs | set | timely ones, least to judge their path

# --- polls, and one look ---------------------------------------------------------------------------------------------
LOSSY_POLLS = 1e-3  # of the segments | set | retransmitted, from which it is no accident
COARSE = 4.0  # RTTs | set | poll interval from which events are blurred
GATHERED = 8.0  # times | set | largest dispersion of random losses; losses in twos and threes make it two or three
CLEAR_RANK = 0.7  # mean rank | set | of the RTTs before losses at a long queue, blurred between polls
RTT_SPREAD = 0.1  # of min RTT | set | least rise of the RTT for ranks to be meaningful
PLATEAU = 0.1  # median deviation | set | relative, largest of a constant rate
LEAST_POLLS = 20  # polls | set | least to compare RTTs
LEAST_RATES = 5  # windows | set | least of a period with one rate
LONGER = 1.25  # times | set | increase of the RTT by a rate drop
NEVER_US = 4e9  # us | definition | [Linux] min_rtt is 0xFFFFFFFF us before the first RTT sample
INFINITE = 0x7FFFFFFF  # segments | definition | snd_ssthresh before the first loss [Linux] TCP_INFINITE_SSTHRESH
STARTUP_GAIN = 640  # 256ths | definition | of BBR: a pacing gain above 2.5 is STARTUP's
UNIT = 256  # 256ths | definition | a gain of 1
MOST_WINDOWS = 4  # windows | accuracy | per poll: values within a long gap are interpolated anyway
SINGLE_POLL_LOSSY = 0.005  # of the segments | set | retransmitted, from which a single poll reveals losses
AMPLE = 2.0  # times | set | the window that losses allow, above which they do not explain the rate
START_LOSES = 4.0  # bandwidth-delay products | set | largest loss of a start
DELAYED_US = 40_000  # us | definition | of a delayed ACK [Linux] TCP_DELACK_MIN

# --- events ----------------------------------------------------------------------------------------------------------
MOST_EVENTS = 40  # events | accuracy | most of a kind; the last one mentions the rest
MARKS_RTTS = 4  # RTTs | set | reductions closer than this are one event
IDLE_S = 0.2  # s | set | least without data to send (or two RTTs)
STALL_RTTS = 4  # RTTs | set | without ACKs while data are outstanding
BURST_SEGMENTS = 45  # segments | definition | back to back: more than one super-packet of 64 kB
ROUTE = 0.1  # of min RTT | set | least lasting change of a route
ROUTE_WINDOWS = 8  # windows | set | on each side of such a change
