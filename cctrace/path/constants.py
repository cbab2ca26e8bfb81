"""Constants of path inference: value, unit, kind and reason on one line each.

Kinds: *definition* (given by a standard, a kernel or a unit), *accuracy* (effort of a search: more is slower),
*set* (chosen on simulated flows and recordings; the data were not kept). `python -m benchmarks.constants` shows the
effect of a change of ±20 % on small simulated flows.
"""

# --- transmissions, clocks -------------------------------------------------------------------------------------------
MIN_ACK_RTTS = 0.8  # of min RTT | set | an ACK sooner than this after a retransmission acknowledges an earlier copy
CLOCK_SKEW = 1e-3  # share | definition | ten times the drift of quartz clocks, twice ntpd's slew rate
MIN_STAMPS = 50  # packets | set | with RFC 7323 time stamps, least to fit the line below them
STAMPS_NEAR = 20  # packets | set | least on each side of a gap whose stamps are compared
STAMPS_FAR = 500  # packets | set | most on each side: a stalled host catches up
MAX_GAPS = 20  # gaps | accuracy | the longest ones, which are examined
CLOCK_SET_US = 20_000.0  # us | set | least forward step of a clock, to distinguish it from a stall
CLOCK_BACK_US = 2_000.0  # us | set | least backward step; rings fed by several CPUs are out of order by microseconds

# --- the rate of the bottleneck --------------------------------------------------------------------------------------
WINDOW_US = 100_000.0  # us | set | averaging window for rates and delay levels (or one RTT, if longer)
SMALL_US = 200.0  # us | set | deviations that need no explanation: clocks, the receiving host
LEAST_RTTS = 100  # RTTs | set | least for a distribution, or for a rate to a thousandth
ENOUGH_RTTS = 40  # RTTs | set | least for a rate to half a per cent
COARSE_PACKETS = 40_000  # packets | accuracy | most from which a rate is inferred; of more, neighbours are merged
DIFFERENT_RATE = 0.03  # of log rate | set | between merged and single packets, from which single ones are used
PAIR_EXACT = 1e-6  # share | set | standard error below which packet pairs give the rate to the clock's resolution
PAIR_TOLERANCE = 1e-3  # share | set | largest difference between equal packet-pair rates
MIN_AGREEING_PAIRS = 0.25  # share | set | of the pairs, that must agree on one rate
MAX_SPACING_RATIO = 0.7  # share | set | largest spacing at the sender, relative to the spacing on arrival
PAIR_BYTES = 16_000  # bytes | set | largest pair: between larger ones, other packets may have been lost
MIN_PAIRS = 20  # pairs | set | least for a rate
MAX_PARTS = 60  # parts | accuracy | most parts of a flow whose packet-pair rates are compared
PARTS_REACH = 4  # parts | set | before and after a change, that must have one rate each
PAIRS_TELL = 0.6  # share | set | of the pairs, that must give the rate of their part before a step is tried
MIN_BENT_RTTS = 10  # RTTs | set | mean length of a period in which a wrong rate visibly bends the residual delays
RATE_JUMP = 0.08  # share | set | change of the delivered rate from which a step is sought
MAX_RATE_STEPS = 40  # steps | accuracy | most candidates, the clearest first
STEP_GAIN = 0.02  # share | set | least reduction of the delays' deviation by a rate step
SAME_RATE_SHARE = 0.01  # share | set | adjacent rates closer than this are one
SMALL_STEP = 0.12  # of log rate | set | smaller ones, as of stalled hosts, must reduce the deviation five times as much
EARLIER_US = 3e6  # us | accuracy | how far before its candidate a step may lie if its packets were lost

# --- the queue, as a diagnosis needs it ------------------------------------------------------------------------------
QUEUE_GAIN = 0.02  # share | set | least reduction of the delays' deviation by a queue, to trust its rate
MIN_LOST = 10  # losses | set | least to infer the rate from the backlogs that they met
BEHIND_DEVIATION = 0.98  # times the deviation | set | to which losses behind the queue must reduce it
LOSS_RANK = 0.9  # mean rank | set | of the backlog at losses, or of RTTs before them, that a full queue leaves
MIN_BASE = 0.5  # of min RTT | set | a queue model with a smaller base RTT is rejected

# --- changes of the rate ---------------------------------------------------------------------------------------------
RATE_DIFFERS = 1.25  # times | set | ratio from which rates differ
STEADY_RATE = 0.12  # share | set | largest median deviation of a constant link rate
MOSTLY_QUEUED = 0.4  # share | set | of windows with a queue, from which the path was full
QUEUED_ALIKE = 0.05  # share | set | largest difference between the rates with and without a queue
MIN_WINDOWS = 5  # windows | set | least for a period of one rate
RATE_VARIES = 1.6  # times | set | ratio of 90th to 10th percentile, smoothed, from which a link has no single rate

# --- routes ----------------------------------------------------------------------------------------------------------
ROUTE_WINDOWS = 10  # windows | set | least on each side of a route change
ROUTE_RTTS = 3  # RTTs | set | least per window
ROUTE_STEP_US = 1_000.0  # us | set | least step of the base RTT
ROUTE_STEP_SHARE = 0.02  # of min RTT | set | least step of the base RTT
ROUTE_HOLDS = 0.25  # of the step | set | largest scatter of the level on either side
MAX_ROUTES = 8  # changes | accuracy | most that are sought

# --- other flows -----------------------------------------------------------------------------------------------------
MIN_BYTES = 0.02  # of the flow's bytes | set | least that another flow sends beside it, to matter in a queue
MAX_OTHERS = 64  # flows | accuracy | most that are tried
COMMON_GAIN = 0.1  # share | set | gain in explaining delays: of a joint queue, to be shared; of any, to seek its bucket

# --- RTTs without queue ----------------------------------------------------------------------------------------------
SHORT_QUEUE_PACKETS = 3.0  # packets | set | largest own queue that hardly depends on the rate
WANDER_ERRORS = 6.0  # standard errors | set | largest excess of a period's median over the lowest ones
TIE_SHARE = 0.2  # of a packet's time | set | arrivals closer than this are simultaneous
REORDERED_SHARE = 1e-3  # share | set | of packets overtaken, from which the path reorders
HELD_US = 1_000.0  # us | definition | longest SACK compression of a Linux receiver, tcp_comp_sack_delay_ns
CLOSER_SPACING = 0.8  # of the service time | set | spacing of ACKs that no queue right before the receiver leaves
MIN_CLOSER_SHARE = 0.05  # share | set | of ACKs closer than that, from which delays vary behind the queue
APART_SERVICE_TIMES = (2.0, 20.0)  # service times | set | between packets whose delays vary wherever the variation is
MIN_CLOSER = 10.0  # ACKs | set | least expected to be closer behind the queue, to say that they are not
MAX_CLOSER_SHARE = 0.1  # share | set | of those, up to which delays vary before the queue
ACK_TIMER_US = 30_000.0  # us | set | an ACK for a single segment this late waited for the delayed-ACK timer [RFC1122]

# --- ACKs ------------------------------------------------------------------------------------------------------------
MIN_ACKS = 50  # ACKs | set | least in order, to recognise a pattern
GATHERED_SEGMENTS = 2.5  # segments per ACK | set | from which ACKs may be aggregated in time slots
USUAL_COUNT_SHARE = 0.9  # share | set | of ACKs for the same number of segments, from which that triggers them
ON_GRID_SHARE = 0.8  # share | set | of ACK spacings that must be multiples of a slot
GRID_TOLERANCE = 0.15  # of a slot | set | largest distance from a multiple

# --- losses ----------------------------------------------------------------------------------------------------------
MIN_DROPS = 3  # losses | set | least to identify a full queue
MIN_CODEL = 5  # losses | set | least to identify CoDel
MIN_EARLY = 30  # losses | set | least to identify early drops (RED, PIE)
CODEL_TARGET_US = 5_000.0  # us | definition | [RFC8289] TARGET
NEAR_TARGET = 0.9  # of the target | set | accuracy of queueing delays
CHANCE_PROBABILITY = 1e-3  # probability | set | of taking losses independent of the queue for dependent ones
QUEUE_END_SHARE = 0.75  # of the longest queue | set | from which a queue of a few packets drops
CHANCE_AT_THE_END = 1e-4  # probability | set | that random losses alone are as many there
CHANCE_OF_ALL = 0.05  # probability | set | of random losses avoiding short queues as much, from which none was full
MAX_EARLY_SHARE = 0.5  # of the overflows | set | begun below the longest queue: tail drop has .44 at most
MAX_PASSING_PACKETS = 20  # packets | set | most that pass a full queue per dropped packet
ABOVE_FULL_PACKETS = 1.5  # packets | set | largest excess of backlogs of passed over dropped packets: ties, in service
SURE_BACKLOG = 0.2  # packets | set | largest error of a backlog from which packets can be counted
SAME_OVERFLOW_US = 100_000.0  # us | set | losses closer than this belong to one overflow
BURSTY_TIMES = 3.0  # times | set | increase of the loss probability after a loss, from which losses are bursty

# --- token buckets ---------------------------------------------------------------------------------------------------
MIN_POLICED = 15  # losses | set | least to look for a policer
POLICED_SHARE = 0.5  # share | set | of losses, that an empty bucket must explain; the others are random
POLICED_GAIN = 10.0  # of log likelihood | set | least by which a policer explains losses better than random loss
EMPTY_PACKETS = 3.0  # packets | set | most tokens in a bucket that counts as empty
OVER_PACKETS = 2.0  # packets | set | deficit beyond the bucket's size with which none may pass
RATE_GRID = 0.04  # of log rate | accuracy | between rates that are tried first
MAX_ABOVE_MEAN = 3.4  # of log rate | accuracy | by which a policer's rate may exceed the flow's mean rate
BEST_RATES = 3  # rates | accuracy | of the grid, searched more closely
FIRST_LOSSES = 64  # losses | accuracy | that give the bucket's size
FIRST_LOSSES_US = 2e6  # us | accuracy | after the first loss, before errors of the rate accumulate
MAX_SPARED_SHARE = 0.03  # share | set | most of the passed packets that an empty bucket should have dropped
EXPLAINED_SHARE = 0.8  # share | set | of residual delays at a shaper's rate that must be the path's own
MAX_PLATEAU = 2.302585092994046  # of log rate | accuracy | search range on each side for rates that fit as well
POLICED_PARTS = 8  # parts | accuracy | of a flow, over which the scatter of the rate gives its error
SPENT_QUANTILE = 0.25  # quantile | set | of residual delays at a shaper's rate; its bucket is empty for longer

# --- marks ------------------------------------------------------------------------------------------------------------
MIN_MARKS = 5  # marks | set | least to identify the marker
MARKS_CARRIED = 0.9  # of the marks that ACKs prove | set | that packets must carry, to show them all
MAX_MARKS = 1_500  # marks | accuracy | most that are used, the first ones
LAWS_APART = 3.0  # of log likelihood | set | lead of the best marking law: 20 to 1
PROFILE_DROP = 1.92  # of log likelihood | definition | half the 95 % quantile of chi-squared with one degree of freedom
RAREST_MARK = 1e-6  # share | set | floor of the probability of marking, or of not marking, of a law
WAIT_BINS = 400  # bins | accuracy | of queueing delays, for a step
STEP_THRESHOLDS = 120  # thresholds | accuracy | tried for a step
BLURS_US = (50.0, 150.0, 500.0, 1500.0)  # us | set | widths of a step's edge, by jitter
MAX_BLUR = 0.15  # of the threshold | set | largest width of a step's edge
REST_MARKED = (1e-6, 1e-4, 1e-3)  # share | set | of packets marked below a step
STEP_MARKED = (1 - 1e-6, 0.97, 0.85)  # share | set | of packets marked above a step: bursts blur RTTs
LONGEST_L4S_STEP_US = 5_000.0  # us | set | largest threshold for ECT(1); 1 ms by default [RFC9332] A.1
LOW_LATENCY_US = 1_000.0  # us | set | typical delay of a low-latency queue [RFC9332] 4.1
DELAYED_ACK_US = 10_000.0  # us | set | least lateness of a delayed ACK for one segment
STEP_EXPLAINS = 0.5  # share | set | least gain in log likelihood over marks at a constant rate
COUPLED_STEPS = 30  # thresholds | accuracy | tried for a step beside coupled marks
SPURIOUS_MARKS = 1e-4  # share | set | typical, of packets marked where CoDel marks none
DUE_MARKED = 0.2  # share | set | typical, of packets marked where CoDel is to mark the next one
TARGETS = 14  # targets | accuracy | tried for CoDel with each interval
CODEL_PAUSE = 1.5  # intervals | set | without marks, after which CoDel marks for the first time again
CODEL_MIDDLE = (0.1, 0.9)  # quantiles | set | of the least delays before such marks; one may be wrong
CODEL_WIDER = (0.8, 1.1)  # of these | set | range of targets tried
MIN_TARGET_US = 200.0  # us | set | smallest CoDel target
CODEL_INTERVALS_S = (0.05, 0.1, 0.2)  # s | set | intervals in use; 100 ms by default [RFC8289]
CODEL_EARLY_S = 0.002  # s | set | most by which a mark may precede the delays that make it due
CODEL_RESUMES = 16  # intervals | definition | after which CoDel no longer resumes its previous marking rate
ACK_GROUPS = 5_000  # groups | accuracy | of ACKs with one marking probability each, besides those with marks
RED_SHIFTS = (4, 5, 6, 7, 8, 9, 10)  # log2 of packets | set | weights of RED's average; `tc` gives these
RED_LOWER_THRESHOLDS = 12  # thresholds | accuracy | lower ones of RED, for each average
RED_MAX = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # probability | set | at RED's upper threshold
RED_WIDTHS = (1.0, 2.0, 4.0, 8.0)  # of the lower threshold | set | from it to the upper one; 2 is usual [Floyd93]
RED_FORCED = 0.99  # share | set | of packets marked above the upper threshold
RED_LEFT = 0.05  # probability | set | of a mark later than RED's: RTTs give its queue with errors
PI_TICK_S = 0.016  # s | definition | between updates: 15 ms in PIE, 16 in DualPI2 and in PIE at 250 ticks per second
PI_TARGETS_S = (3e-3, 0.05)  # s | set | range of PI targets
PI_TARGETS = 32  # targets | accuracy | tried for PI controllers: the probability is an integral of the excess
PARTICLES = 40  # particles | accuracy | per target
FIRST_CHANCES = (1e-5, 0.3)  # probability | set | range of the initial probability of a queue older than the flow
PI_DRIFT = 0.04  # of log probability | set | standard deviation of the error of an update
RESAMPLING_UPDATES = 16  # updates | accuracy | between resampling steps; also at every mark
PIE_ALPHA_HZ = 0.125  # 1/s | definition | [Linux618] sch_pie.c: 2/16
PIE_BETA_HZ = 1.25  # 1/s | definition | [Linux618] sch_pie.c: 20/16
PIE_SCALES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # probability | definition | divides steps by four [RFC8033] 5.2
PIE_MAX = 0.02  # probability | definition | largest step from a probability of 0.1 on [RFC8033] 5.5
PIE_LONG_S = 0.25  # s | definition | delay from which such a step is added [RFC8033] 5.5
PIE_SOONER = 0.02  # share | set | of a mark's probability, left before it is due: RTTs give the delay with errors
PIE_SHORT = 0.2  # probability | definition | up to which a queue below half the target is not marked [RFC8033] 4.1
PIE_MAX_MARKED = 0.1  # probability | definition | above which PIE drops ECN-capable packets, too [RFC8033] 5.1
PIE_MIN_SUM = 0.85  # probability | definition | [RFC8033] 5.4
PI2_ALPHA_HZ = 0.16  # 1/s | definition | [RFC9332] A.1
PI2_BETA_HZ = 3.2  # 1/s | definition | [RFC9332] A.1
EVEN_SHAPES = (2, 4, 8)  # shapes | set | of the gamma distribution of the packets between random marks
MIN_SINCE = 1e-3  # marks | accuracy | least expected number since the last one
CHANCE_PACKETS = 500.0  # packets | set | over which the rate of random marks may change
