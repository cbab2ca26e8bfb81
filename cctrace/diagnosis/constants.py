"""The numbers that a diagnosis depends on: one line each with value, unit, kind and reason.

Kinds are those of `cctrace.path.constants`: *set* was chosen on simulated flows and recordings (docs/explain.md).
"""

# --- shares of the time, levels that several causes share ------------------------------------------------------------
MOST_OF_TIME = 0.5  # of the time | set | from which on what held a flow back is its cause
MUCH_OF_TIME = 0.25  # of the time | set | from which on it is worth a word
WINDOW_FULL = 0.9  # share | set | of a window in flight; the rest is less than a burst
RATE_FULL = 0.9  # of the bottleneck's rate | set | or of a congestion window at one look: all that the path gives
QUEUED = 1.25  # times the RTT without queue | definition | so much more than a BDP in flight must wait in a queue
UNQUEUED = 1.1  # times the least RTT | set | up to which hardly anything stands in a queue
LEAST_RTT_US = 1.0  # us | definition | RTT that is one: clocks of 10 ms show 0
EPISODE_RTTS = 2  # RTTs | set | losses, or marks, closer than that cut the window once
UNLIKELY = 1e-3  # chance | set | with which what is seen would come about otherwise
SURE_ERRORS = 3.0  # standard errors | set | from which on a mean rank is not that of chance

# --- how sure a verdict is -------------------------------------------------------------------------------------------
SLOPE = 1.75  # of the logarithmic odds | set | by their own measure verdicts are right more often than they say
MOST_SURE = 0.99  # confidence | set | no verdict is surer
DOUBTFUL = 0.5  # confidence | set | below it a verdict goes behind all others, and its confidence stays
EXPLAINS = 0.6  # confidence | set | from which on a cause explains what others would, too
UNSURE = 0.4  # confidence | set | of a cause whose times or counts are the capture's doing, at most
SINGLE_POLL_SURE = 0.5  # confidence | set | of one look, an instant, at most
SINGLE_POLL_SURE_OF_LIMITS = 0.7  # confidence | set | the same of the kernel's accounts, which are of the whole time
EITHER = 0.6  # confidence | set | of an application, at most, where it may be the send buffer

# --- what the capture spoils -----------------------------------------------------------------------------------------
UNSEEN = 0.01  # share | set | of what was sent that the capture may lack before counts of losses are wrong
FEWEST_RTTS = 3  # RTTs | set | a shorter capture tells nothing of the path
HELD_US = 1000.0  # us | set | beyond two ticks of the stamps, from which on packets were held before the capture
HELD_RTTS = 0.1  # of the RTT | set | and so much of it
HERE_US = 300  # us | set | to the sender and back: no further than its own reaction takes
REPEATED = 0.05  # share | set | of what was sent, again for no reason, beside copies: more copies

# --- what matters without a cause ------------------------------------------------------------------------------------
GOODPUT_CHANGES = 0.03  # of log goodput | set | by which a removal must change it to matter
RTT_CHANGES = 0.05  # of log RTT | set | the same
LOSS_CHANGES = 0.003  # share | set | the same, of the retransmissions; what-ifs count as right within that
LIKELY = 0.41  # of a 90 % interval's half | definition | the half that three of four are beyond, of a normal law
RATIO_TIE = 0.02  # of a logarithm | set | effects that are closer go in the catalogue's order
GOODPUT_NEAR = 0.10  # share | definition | within which the goodput of an effect is right
RTT_NEAR = 0.15  # share | definition | the same, of its mean RTT
# How effects miss those of a run without the cause; `python -m benchmarks.effect_confidence` fits these three.
MISSES_TIMES = 0.62  # times | set | the standard deviation that an interval says, by which an effect misses
MISSES_LEAST = 0.024  # of a logarithm | set | by which effects miss, however short the interval
MISLED = 0.03  # share | set | of the effects that are of another path, whatever the interval says
LOSS_TIE = 0.002  # share | set | the same, of the retransmissions

# --- what a sender lets out, and why ---------------------------------------------------------------------------------
POLLED_S = 0.1  # s | set | between polls of the counters, at most, for them to tell what limited the flow when
POLLED = 0.9  # of the flow's time | set | that such polls must cover
TOGETHER_S = 2e-5  # s | set | between packets that leave together
LATE_S = 0.0005  # s | set | within which a busy host has answered an ACK
LEAST_ANSWERED = 50  # ACKs | set | with an answer, for the time that takes to be known
MOSTLY_ANSWERED = 0.8  # share | set | of the ACKs that must be answered for it
ANSWERS_ALIKE = 1.5  # times | set | spread of the answers
ANSWERS_SHORT = 8  # times | set | how short answers are beside the time between ACKs
SLOWEST_S = 0.005  # s | set | of an answer at most
MOST_BINS = 2000  # stretches | accuracy | of the account of time
PROBE_SEGMENTS = 4  # segments | definition | in flight in PROBE_RTT of BBR v1 [Linux61] bbr_cwnd_min_target
PROBE_S = 0.1  # s | definition | half of the 200 ms that it lasts
PROBE_EVERY_S = 5.0  # s | definition | at most: ten of v1, five of v2 [Linux61] bbr_min_rtt_win_sec
DRAINING_RTTS = 2  # RTTs | set | at most, until four are left in flight: all that was is acknowledged after one
PAUSED_TIMES = 4  # times | set | the distance of what a pacing sender lets out: its rate does not change so at once
SPARE_SEGMENTS = 3  # segments | set | that an ACK may let out beyond twice what it acknowledges (rounding, Nagle)
WRITE_S = 0.005  # s | set | between what an application writes, at least
PACED_S = 0.001  # s | definition | of its rate, what a pacing sender lets out at a time [Linux] tcp_tso_autosize
FULL_PIPE = 1.25  # times | definition | growth per round below which a start has ended [Linux61] bbr_full_bw_thresh
FULL_ROUNDS = 3  # rounds | definition | for which it must be below [Linux61] bbr_full_bw_cnt

# --- the ends of the connection --------------------------------------------------------------------------------------
LEAST_WRITES = 10  # writes | set | for what they have in common to show
MOST_WRITES = 0.8  # share | set | of the writes that must have it in common
CLOSER = 4  # times | set | that writes follow ACKs more evenly than each other
TOOK_S = 2e-5  # s | set | by which a host's answers differ in any case
CHANCE_TIMES = 20  # times | set | less than between ACKs, within which an answer to one is no chance
ABOUT_IN_FLIGHT = 0.05  # of what is in flight | set | within which writes find as much of it left
SAME_RATE = 0.1  # share | set | within which rates of sends are one
BURSTS_TOGETHER = 8  # bursts | set | at most whose rate is taken together: timers of a busy host are late by some
PARTS_OF_RTT = 4  # parts | set | at least, looked at one by one: a window that is spent pauses once in each RTT
FEWEST_BURSTS = 100  # bursts | set | for an even rate to show
PACKETS_TOGETHER = 4  # packets | set | that leave together, or are acknowledged together
SPARE_RATE = 0.95  # of a rate | set | that the path carried at other times: no limit of its own
COUNTED = 0.02  # of the time with data | set | of a full send buffer, counted by the kernel, that is no accident
AT_LIMIT = 0.9  # of a pacing limit | set | from which on a rate is at it: BBR paces 1 % below its estimate
HEADERS = 1.1  # times a pacing limit | set | TCP's own timer counts payload, the fq qdisc whole packets
SHORT_ROUNDS = 14  # rounds | definition | a start that doubles from ten segments is at 80 MB by then
FEW_LIMITED = 0.1  # of the bandwidth samples | set | taken while the application limited it, to be worth a word
LEAST_PAUSED = 0.01  # of the time | set | with a window of zero, to be worth a word
EVEN = 0.9  # of the time | set | in which packets leave at one rate: something paced them
PROBE_RTTS = 0.5  # RTTs | set | faster for longer is a probe: in 24 kernel flows 0 to .33 at a limit, .7 to 37 without
PARTLY_FILLED = 0.1  # of the segments | set | from which on the application paced them

# --- losses ----------------------------------------------------------------------------------------------------------
LEAST_LOSSES = 5  # losses | set | for anything to be said of their cause
MANAGED_PACKETS = 10  # packets | set | of queue at least, for an AQM to be told from a short buffer
AT_FULL = 0.8  # of the longest backlog | set | from which on a loss is of a full queue
PASSED = 2  # packets | set | per dropped one, at most, that a full queue let pass although it was longer
IN_A_BURST = 0.5  # of a packet's service time | set | within which the next must leave, for both to be of one burst
FEWEST_IN_BURSTS = 10  # losses | set | for their places in bursts to tell
OVERFLOW_RTTS = 4  # RTTs | set | within which losses are of one overflow
MOSTLY_OVERFLOW = 0.9  # share | set | of the losses that a full queue explains, for the rest not to be asked about
BY_OTHERS = 0.8  # mean rank | set | of the RTTs before losses, where the flow's own queue says nothing: others' queue
AT_RTT = 0.9  # mean rank | set | of the RTTs before losses that a full queue makes
NEAR_LONGEST = 0.9  # of the longest wait | set | that nine of ten lost packets met where a full queue dropped them
SHALLOW = 0.25  # bandwidth-delay products | definition | the gain by which BBR probes, less 1 [Linux61] bbr_pacing_gain
BURSTS_THAT_LOST = 5  # bursts | set | that lost something, for pacing to be the cause
LARGE_BURST = 2  # times | set | what a pacing sender lets out, from which on a burst is none of its
FILLS_QUEUE = 0.8  # share | set | of the queue that lost packets met, that their own burst had put there
LATE_IN_BURST = 0.7  # mean rank | set | of the place in the burst of what was lost
HEAVY = 0.05  # of the segments | set | sent again, from which on that is said by itself
FEWEST_BEFORE = 5  # segments | set | lost before the capture, to be worth a word
SOME_BEFORE = 0.001  # of the segments | set | and so large a share
LEAST_RESENT = 10  # segments | set | sent again, by which a path was filled at times
POLICED_SENDS = 20_000  # transmissions | accuracy | the first, in which a policer is looked for
POLICED_SENDS_MOST = 60_000  # transmissions | accuracy | the same, if these do not hold losses enough
POLICED_LOSSES = 100  # losses | accuracy | that are enough
LEAST_POLICED = 15  # losses | set | for a policer to be looked for
POLICED_RATE_SAME = 0.02  # share | set | by which rates may differ that are one
RATE_SHOWN = 0.1  # share | set | of the delays' deviation that a queue explains, for its rate to be known
QUEUE_EPISODES = 5  # episodes | set | of loss that tell of a queue
QUEUE_RANK = 0.9  # mean rank | set | of the RTTs before these

# --- marks -----------------------------------------------------------------------------------------------------------
LEAST_CUTS = 2  # reductions | set | one may be the end of slow start alone
LONGEST_PAUSE = 0.8  # of the time | set | without a reduction, for marks to be the cause
MANY_CUTS = 5  # reductions | set | from which on it is as sure as it gets

# --- other flows -----------------------------------------------------------------------------------------------------
FAIR = 0.05  # of the fair share | set | within which everyone gets it
SHARES_STEADY = 0.1  # of the fair share | set | within which a share stays, for three quarters of the time
LINK_FILLED = 0.7  # of the link's rate | set | that all flows together had where they competed
MET_FULL_LINK = 0.5  # of a flow's data | set | that must have met a link so full
LEAST_SHARED = 20  # windows | set | in which all had data, for their shares to be compared
RTTS_ALIKE = 0.5  # correlation | set | of the RTTs of two flows that go through one queue
MOST_FLOWS = 17  # flows | accuracy | of a table of counters that are compared
MOST_CONNECTIONS = 100  # connections | accuracy | of one look that are compared

# --- the path's rate and queue ---------------------------------------------------------------------------------------
STEPPED = 0.7  # of the time | set | with one rate or another, for which a link's rate changes in steps
BW_ROUNDS = 10  # rounds | definition | of BBR's bandwidth filter [Linux61] bbr_bw_rtts
TOO_HIGH = 1.1  # times the rate | set | from which on an estimate is too high
LEAST_FIRST = 5  # packets | set | the first, whose RTTs tell of a queue before the flow began
LEAST_ROUNDS = 20  # rounds | set | for the amount in flight to be one that something holds
LITTLE_QUEUE = 1.1  # times the least RTT | set | that is a queue at a steady rate
LITTLE_QUEUE_OF_MODEL = 1.02  # times the least RTT | set | the same of a sender that keeps queues short
BLOATED = 2.0  # base RTTs | definition | of queue, typically: more than any window of two BDPs makes
BEFORE = 1.5  # times the least RTT | set | that the first packets took, where the path was congested before
IN_FLIGHT_STEADY = 0.03  # share | set | by which the largest in flight of rounds may differ that something fixed holds
STALE_RTTS = 3  # RTTs | set | for which an estimate must be too high to be called stale
ESTIMATE_USED = 0.8  # of the estimated rate | set | that is as much as the path gives

# --- delays and ACKs -------------------------------------------------------------------------------------------------
MIN_RTT_S = 10.0  # s | definition | of BBR's min_rtt [Linux61] bbr_min_rtt_win_sec
MIN_RTT_STEP_S = 0.25  # s | accuracy | in which that filter is followed
LEAST_USED = 0.01  # of the bottleneck's rate | set | no controller with data to send gets less
PACED_SHARE = 0.25  # of the time | set | released by a timer, from which on a sender paces as BBR does
OVERTAKEN_US = 20.0  # us | set | by which an arrival must precede that of an earlier packet
LEAST_ARRIVALS = 100  # packets | set | for the order of arrivals to tell
NO_COLLAPSE = 0.95  # of the bottleneck's rate | set | from which on min_rtt has not collapsed, whatever it says
NO_COLLAPSE_OF_ESTIMATE = 0.8  # of BBR's own estimate | set | the same; a maximum is above what the path carries
COLLAPSED = 0.5  # of the mean RTT | definition | a window of two of these is less than the path holds
SHORT_PROBES = 0.6  # of the mean RTT | definition | then probes end before half of what they sent is back
JITTERS_TAIL = 10.0  # standard deviations | set | of jitter that a least RTT of some seconds may lie below the mean
NO_JITTER = 0.02  # of the mean RTT | set | up to which a deviation is no jitter
JITTERED = 0.05  # of the mean RTT | set | delays that vary by so much within one put packets together
REORDERED = 0.002  # of the packets | set | that arrived after later ones, to be worth a word
REORDERED_LEAST = 10  # packets | set | and so many
INFLATED = 1.25  # times the base RTT | set | from which on min_rtt is inflated
BUNCHED = 0.2  # of the ACKs | set | that come in bunches, for them to be compressed
BATCH = 0.15  # of the base RTT | set | for which the bottleneck would take for what ACKs tell of at once
DELAYED_ACK = 2.0  # segments per ACK | definition | at most [RFC5681] 4.2
REGULAR = 0.35  # deviation over mean | set | of the time between batches that a clock makes
SKIPPED = 0.05  # of the time between batches | set | by which whole multiples of it may be missed
LEAST_ODD = 3  # batches | set | that must differ, for their times and sizes to tell
CLOSE_ACKS = 0.1  # of the ACKs | set | closer than packets leave the bottleneck: jitter put these together
BUNCH = 3  # ACKs | set | at least, for a bunch
TIGHT = 0.25  # of the time they were sent over | set | within which a bunch comes
BUNCH_TICKS = 4  # ticks | set | of the receiver's clock, over which a bunch was sent at least
LEAST_PROMPT = 50  # ACKs | set | in good times, for their way to show

# --- polls, and one look ---------------------------------------------------------------------------------------------
LOSSY_POLLS = 1e-3  # of the segments | set | sent again, from which on that is no accident
COARSE = 4.0  # RTTs | set | between polls, from which on they blur what happened
GATHERED = 8.0  # times | set | the dispersion of chance; losses in twos and threes make it two or three
CLEAR_RANK = 0.7  # mean rank | set | of the RTTs before losses that a long queue makes, blurred between polls
RTT_SPREAD = 0.1  # of the least RTT | set | by which RTTs must rise for ranks to tell anything
PLATEAU = 0.1  # median deviation | set | relative, of the rates of a link that has one
LEAST_POLLS = 20  # polls | set | for RTTs to be compared
LEAST_RATES = 5  # windows | set | of a stretch with one rate
LONGER = 1.25  # times | set | the RTTs that a rate which falls makes longer
NEVER_US = 4e9  # us | definition | [Linux] min_rtt is 0xFFFFFFFF us before the first RTT sample
INFINITE = 0x7FFFFFFF  # segments | definition | snd_ssthresh before the first loss [Linux] TCP_INFINITE_SSTHRESH
STARTUP_GAIN = 640  # 256ths | definition | of BBR: a pacing gain above 2.5 is STARTUP's
UNIT = 256  # 256ths | definition | a gain of 1
MOST_WINDOWS = 4  # windows | accuracy | per poll: where a gap is long, what lies in it is interpolated anyway
SINGLE_POLL_LOSSY = 0.005  # of the segments | set | sent again, from which on one look tells of losses
AMPLE = 2.0  # times | set | the window that losses allow: these do not explain the rate
START_LOSES = 4.0  # bandwidth-delay products | set | that a start may lose
DELAYED_US = 40_000  # us | definition | of a delayed ACK [Linux] TCP_DELACK_MIN

# --- events ----------------------------------------------------------------------------------------------------------
MOST_EVENTS = 40  # events | accuracy | of a kind; what is beyond is told of in the last
MARKS_RTTS = 4  # RTTs | set | cuts of the window closer than that are one event
IDLE_S = 0.2  # s | set | with nothing to send, at least (or two RTTs)
STALL_RTTS = 4  # RTTs | set | with data outstanding and nothing heard
BURST_SEGMENTS = 45  # segments | definition | back to back: more than one super-packet of 64 kB
ROUTE = 0.1  # of the least RTT | set | by which it changes for good, for another route
ROUTE_WINDOWS = 8  # windows | set | to each side of such a change
