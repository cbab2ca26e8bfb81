"""The numbers that the evidence about a path depends on: one line each with value, unit, kind and reason.

Kinds: *definition* (given by a standard, a kernel or a unit), *accuracy* (how closely or how long is searched: a larger
number takes longer), *set* (chosen on simulated flows and recordings, without a record of the data). What a fifth more
or less of each changes on small simulated flows: ``python -m benchmarks.constants``.
"""

# --- transmissions, clocks -------------------------------------------------------------------------------------------
NO_SOONER = 0.8  # of the least RTT | set | an ACK that comes sooner after a retransmission is for an earlier copy
CLOCK_SKEW = 1e-3  # share | definition | ten times what quartz clocks drift apart, twice what ntpd steers by
LEAST_STAMPS = 50  # packets | set | with RFC 7323 time stamps, for the line below them to mean something
STAMPS_NEAR = 20  # packets | set | on each side of a gap, by whose stamps it is judged, at least
STAMPS_FAR = 500  # packets | set | the same, at most: a host that stalled catches up
MOST_GAPS = 20  # silences | accuracy | the longest, which are judged
CLOCK_SET_US = 20_000.0  # us | set | by which a clock is set forward at least, to be told from a stall
CLOCK_BACK_US = 2_000.0  # us | set | and back; a ring that several CPUs feed is out of order by microseconds

# --- the rate of the bottleneck --------------------------------------------------------------------------------------
WINDOW_US = 100_000.0  # us | set | in which rates and levels of delay are averaged, or an RTT where that is longer
SMALL_US = 200.0  # us | set | deviations that need no explanation: clocks, the receiver's host
LEAST_RTTS = 100  # RTTs | set | fewer say nothing of a distribution, or of the rate to a thousandth
ENOUGH_RTTS = 40  # RTTs | set | for a rate to be sought to half a per cent
COARSE_PACKETS = 40_000  # packets | accuracy | of which the queue is computed for a diagnosis
PAIR_EXACT = 1e-6  # share | set | standard error of a rate that packet pairs show to the clock's last digit
PAIR_AGREE = 1e-3  # share | set | distance of rates of packet pairs that are the same
PAIRS_AGREEING = 0.25  # share | set | of the pairs that must give one rate
PAIR_BEHIND = 0.7  # share | set | of the distance in which two packets came, that in which they left at most
PAIR_BYTES = 16_000  # bytes | set | of a pair at most: others may have been lost between them
LEAST_PAIRS = 20  # pairs | set | for their rate to count
MOST_PARTS = 60  # parts | accuracy | of a flow, whose pairs are asked for a rate of each
PARTS_REACH = 4  # parts | set | before and after a change that have one rate each
PAIRS_TELL = 0.6  # share | set | of the pairs that must show the rate of their stretch, for a step to be tried
LEAST_BENT = 10  # RTTs | set | of a stretch in which a wrong rate shows as a bend, on average
RATE_JUMP = 0.08  # share | set | by which the delivered rate must change for a step to be looked for
MOST_RATE_STEPS = 40  # steps | accuracy | candidates, the clearest
STEP_LOWERS = 0.02  # share | set | by which a step of the rate must lower the deviation of the delays
SAME_RATE = 0.01  # share | set | distance of rates of neighbouring steps that are one
SMALL_STEP = 0.12  # of log rate | set | as a host that stalls may feign: such a step must lower five times as much
EARLIER_US = 3e6  # us | accuracy | how far before its candidate a step may lie whose packets were lost

# --- the queue, as a diagnosis needs it ------------------------------------------------------------------------------
QUEUE_SHOWS = 0.02  # share | set | by which a queue must lower the deviation of the delays, for its rate to have shown
SHAPER_SHOWS = 0.1  # share | set | the same, for a token bucket before the rate to be looked for
LEAST_LOST = 10  # losses | set | for the rate to be sought by what they met
LOSSES_SHOW = 0.9  # mean rank | set | of the backlog at losses from which on losses show the rate
LEAST_BASE = 0.5  # of the least RTT | set | a model of the queue that leaves less to the path does not hold

# --- changes of the rate ---------------------------------------------------------------------------------------------
RATE_DIFFERS = 1.25  # times | set | from which on a rate is another
STEADY_RATE = 0.12  # share | set | median deviation of the rate of a link that has one
MOSTLY_QUEUED = 0.4  # share | set | of the windows with a queue, for the path to have been full
QUEUED_ALIKE = 0.05  # share | set | by which the rate with a queue may differ from that without
LEAST_WINDOWS = 5  # windows | set | of a stretch with one rate
RATE_VARIES = 1.6  # times | set | 90th over 10th percentile, smoothed, from which on a link has no one rate

# --- routes ----------------------------------------------------------------------------------------------------------
ROUTE_WINDOWS = 10  # windows | set | to each side of a change of the route
ROUTE_RTTS = 3  # RTTs | set | in a window
ROUTE_STEP_US = 1_000.0  # us | set | of a change at least
ROUTE_STEP_SHARE = 0.02  # of the least RTT | set | of a change at least
ROUTE_HOLDS = 0.25  # of the change | set | by how much the level may wander on either side
MOST_ROUTES = 8  # changes | accuracy | that are looked for

# --- other flows -----------------------------------------------------------------------------------------------------
LEAST_BYTES = 0.02  # of the flow's bytes | set | for another to matter in a queue
LEAST_OVERLAP = 0.2  # of the flow's time | set | that another must be up, to matter
MOST_OTHERS = 16  # flows | accuracy | that are tried
COMMON = 0.1  # share | set | by which the queue of all explains the delays better than the own, where it is shared

# --- RTTs without queue ----------------------------------------------------------------------------------------------
SHORT_QUEUE = 3.0  # packets | set | an own queue that hardly depends on the rate
WANDER = 6.0  # standard errors | set | by which the median of a stretch may exceed the least ones
TIE = 0.2  # of a packet's time | set | arrivals closer than that came together
REORDERED = 1e-3  # share | set | of the packets overtaken from which on the path does not keep order
HELD_US = 1_000.0  # us | definition | by which a Linux receiver holds back SACKs at most, tcp_comp_sack_delay_ns
ACK_TIMER_US = 30_000.0  # us | set | an ACK for one segment that much later waited for the receiver's timer [RFC1122]

# --- ACKs ------------------------------------------------------------------------------------------------------------
LEAST_ACKS = 50  # ACKs | set | in order, for their pattern to show
GATHERED = 2.5  # segments per ACK | set | from which on ACKs may have been gathered in slots of time
ALWAYS = 0.9  # share | set | of the ACKs for one number of segments, where that number calls for the ACK
ON_GRID = 0.8  # share | set | of the distances of ACKs that must be multiples of a slot
NEAR_GRID = 0.15  # of a slot | set | that is a multiple

# --- losses ----------------------------------------------------------------------------------------------------------
LEAST_DROPS = 3  # losses | set | of a full queue
LEAST_CODEL = 5  # losses | set | for CoDel to be told
LEAST_EARLY = 30  # losses | set | for early drops (RED, PIE) to be told
CODEL_TARGET_US = 5_000.0  # us | definition | [RFC8289] TARGET
NEAR_TARGET = 0.9  # of the target | set | waits are known no better
CHANCE = 1e-3  # probability | set | with which losses that ignore the queue may look as if they did not
PASSING = 20  # packets | set | per dropped one that pass a queue as long as it was, at most, where that is full
ABOVE_FULL = 1.5  # packets | set | by which what passes a full queue may exceed what it drops: in service, ties
SURE_BACKLOG = 0.2  # packets | set | error of a backlog up to which it tells how many packets there were
SAME_OVERFLOW_US = 100_000.0  # us | set | losses closer than that are of one overflow
BURSTY = 3.0  # times | set | likelier to lose a packet after a lost one, from which on losses come in bursts

# --- token buckets ---------------------------------------------------------------------------------------------------
LEAST_POLICED = 15  # losses | set | for a policer to be looked for
EXPLAINED = 0.8  # share | set | of the losses that an empty bucket must explain
SPARED = 0.03  # share | set | of what passed that an empty bucket should have dropped, at most
UNDELAYED = 0.15  # of V / r | set | by which a policer's packets may be late at most
FULL_DEFICIT = 0.8  # of V at losses | set | from which on a queue would show
MOST_PLATEAU = 2.302585092994046  # of log rate | accuracy | looked at to each side for rates that fit as well
POLICED_PARTS = 8  # parts | accuracy | of a flow, whose rates' scatter is the error of the rate
SPENT = 0.25  # quantile | set | of delays less the queue at a shaper's rate, busy for more of the time than that

# --- marks ------------------------------------------------------------------------------------------------------------
LEAST_MARKS = 5  # marks | set | for who marked to be judged
LAWS_APART = 3.0  # of log likelihood | set | by which the best law must lead: 20 to 1
PROFILE_DROP = 1.92  # of log likelihood | definition | half the 95 % quantile of chi-squared with one degree of freedom
RAREST_MARK = 1e-6  # share | set | of packets marked where a law allows none, and passed where it marks all
WAITS = 400  # waits | accuracy | into which packets are sorted, of a step
STEPS = 120  # thresholds | accuracy | of a step
BLURS_US = (50.0, 150.0, 500.0, 1500.0)  # us | set | of a step's edge, by jitter
LARGEST_BLUR = 0.15  # of the threshold | set | of a step's edge: a wider one is no step
REST_MARKED = (1e-6, 1e-4, 1e-3)  # share | set | of packets marked below a step
STEP_MARKED = (1 - 1e-6, 0.97, 0.85)  # share | set | of packets marked above it: bursts take RTTs apart
LONGEST_L4S_STEP_US = 5_000.0  # us | set | of a step for ECT(1); 1 ms by default [RFC9332] A.1
LOW_LATENCY_US = 1_000.0  # us | set | typical wait of a queue of low latency [RFC9332] 4.1
DELAYED_ACK_US = 10_000.0  # us | set | by which an ACK of one segment that the receiver held back is late, at least
STEP_EXPLAINS = 0.5  # share | set | of the log likelihood of marks at one rate, at least
COUPLED_STEPS = 30  # thresholds | accuracy | of a step beside coupled marks
SPURIOUS_MARKS = 0.002  # share | set | of packets marked where CoDel marks none, at most
LEAST_DUE = 0.01  # share | set | of the packets that CoDel may mark as the next one, at least
TARGETS = 28  # targets | accuracy | of CoDel
LEAST_TARGET_US = 200.0  # us | set | of CoDel
CODEL_INTERVALS_S = (0.05, 0.1, 0.2)  # s | set | those in use; 100 ms by default [RFC8289]
CODEL_EARLY_S = 0.002  # s | set | by which a mark may come before the wait of its neighbours shows it to be due
CODEL_RESUMES = 16  # intervals | definition | within which CoDel goes on at the rate of marks that it had
GROUPS = 2_000  # groups | accuracy | of ACKs, each with one chance of a mark
RED_SHIFTS = (5, 7, 9)  # log2 of packets | set | of RED's average; `tc` gives 5 to 10 for usual queues
LEASTS = 20  # thresholds | accuracy | of RED, for each average
SLOPES = 16  # slopes | accuracy | of RED
RED_SLOPES = (1e-8, 1e-4)  # 1/us | set | probability per us of queue above the least
RED_MOST = (0.02, 0.1, 1.0)  # probability | set | at RED's upper threshold; `tc` has 0.02, 1: it is not reached
LEAST_LEFT = 0.02  # share | accuracy | of RED's evenly spread marks that is left at least
PI_TICK_S = 0.016  # s | definition | between updates: 15 ms of PIE, 16 of DualPI2 and of PIE at 250 ticks a second
PI_TARGETS_S = (2e-3, 0.06)  # s | set | of PI controllers
PI_TARGETS = 16  # targets | accuracy | of PI controllers
PARTICLES = 30  # probabilities | accuracy | at once, for each target
FIRST_CHANCES = (1e-5, 0.5)  # probability | set | of a mark at the start
PI_DRIFT = 0.02  # of log probability | set | standard deviation of the error in an update
RESAMPLED = 16  # updates | accuracy | after which particles are chosen anew, or at a mark
LONGEST_S = 30.0  # s | accuracy | of a flow whose marks PI controllers are held against
PIE_ALPHA_HZ = 0.125  # 1/s | definition | [Linux618] sch_pie.c: 2/16
PIE_BETA_HZ = 1.25  # 1/s | definition | [Linux618] sch_pie.c: 20/16
PIE_SCALES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # probability | definition | below each, a quarter [RFC8033] 5.2
PIE_MOST = 0.02  # probability | definition | largest step from a tenth on [RFC8033] 5.5
PIE_LONG_S = 0.25  # s | definition | of delay, which adds such a step [RFC8033] 5.5
PIE_SOONER = 0.02  # share | set | of a mark's probability that is left before, as updates are coarser than packets
PIE_SHORT = 0.2  # probability | definition | up to which half the target of queue is not marked [RFC8033] 4.1
PIE_LEAST_SUM = 0.85  # probability | definition | [RFC8033] 5.4
PI2_ALPHA_HZ = 0.16  # 1/s | definition | [RFC9332] A.1
PI2_BETA_HZ = 3.2  # 1/s | definition | [RFC9332] A.1
CHANCE_PACKETS = 500.0  # packets | set | over which the rate of marks by mere chance may change
