"""Constants of identification: value, unit, kind and reason on one line each.

Kinds are those of `cctrace.path.constants`. The data behind values that are *set*:

    W   maximum likelihood of the sender in a softmax over 225 simulated flows captured at their receivers:
        `python -m benchmarks.identify --flows 25 --seed 41 --seen-from receiver`, and seed 42
    S   separates candidates' simulated flows (seeds 21, 22, 51 to 55) and recordings from strangers' (`--seed 71`)
    R   recordings of Linux 6.1 to 6.18: `python -m benchmarks.identify --recordings FOLDER... --seen-from sender`
    C   counters of candidates and of other known senders: `--seed 71 --seen-from ss`
"""

# --- what is looked at -----------------------------------------------------------------------------------------------
MOST_ROWS = 150_000  # rows | accuracy | of the event stream; more change no answer, and time stays bounded
CHECKED_ROWS = 20_000  # rows | accuracy | enough to contradict what counters name (R)
CONFIRMED = 0.9  # probability | set | of the name that counters give, after a quarter of these (R)
RELATIVE_ROWS = 30_000  # rows | accuracy | of each replay with another parameter; there are dozens
LEAST_SENT = 16  # segments | set | of a block: an ACK before or after a send changes it by no more than 6 %
SMOOTHED_RTTS = 9  # RTTs | set | among which the median is what jitter left unchanged
LEAST_BLOCK_US = 5_000  # us | set | of a block: ten times what a time stamp of 1 ms leaves open
START_SHARE = 8  # blocks | set | one in so many belongs to the start
FEW_POLLS = 10  # polls | set | fewer contain no gain cycle
UNEXPLAINED = 0.2  # of the retransmissions | set | more, and the SACKs that explain them are missing (R)
LEAST_UNEXPLAINED = 5  # retransmissions | set | fewer are chance
EXPLAINED = 0.95  # of the intervals | set | where fewer are explained, another HZ may explain the rest (S)

# --- a fixed amount in flight, or a receive window, holds the sender -------------------------------------------------
HELD_BLOCKS = 40  # blocks | set | twenty round trips, within which any congestion window grows
HELD_WITHIN = 0.07  # of the amount | set | send buffers count the memory of super-packets, which differ (R)
HELD_SHARE = 0.75  # of the blocks | set | 0.8 to 1.00 with full send buffers; at most 0.41 of flights that fall so (S)
HELD_SWING = 0.82  # of the amount | set | a twentieth of the flights is below: at 0.27 to 0.78; else at 0.87 (R, S)
HELD_GROWTH = 0.25  # segments a round | definition | Reno grows by one, CUBIC by half a segment at least
HELD_BACK = 0.8  # of the ACKs | set | before which cwnd was not the limit (W)
STEADY_BLOCKS = 100  # blocks | set | a receive window of fixed size holds for so long (R)
MOSTLY_FULL = 0.8  # of the largest flight | set | nine tenths of the blocks exceed it (R)
USUALLY_FULL = 0.9  # of the largest flight | set | half of the blocks exceed it (R)

# --- sends -----------------------------------------------------------------------------------------------------------
GROWING = 1.15  # ratio | definition | of flights of blocks in slow start: half as much again, less at its end
WRONG_START = 0.15  # of cwnd | set | by which a window in slow start is wrong (S)
TEMPER = 0.5  # weight | set | of intervals that follow each other: they are not independent; calibration (S)

# --- flights ---------------------------------------------------------------------------------------------------------
FINEST_SCALE = 0.02  # share | set | one's own flights are not nearer (S)
COARSEST_SCALE = 0.6  # share | set | a replay that is farther off explains nothing (S)
STRAY = 0.05  # of the blocks | set | may be off by anything (S)
ONE_SEGMENT = 1.0  # segments | definition | which ACK came before which send is not known for sure
WINDOW_SHARE = 0.02  # of cwnd | set | that the number of ACKs until an increment may be off (R)
PACING_RATIO = 1.2  # ratio | definition | sysctl tcp_pacing_ca_ratio, by which super-packets are sized
WIN_DIVISOR = 3  # part | definition | sysctl tcp_tso_win_divisor
LEAST_AFTER = 2  # blocks | set | after a reduction: the first is not the last as well
STILL = 0.025  # of a flight | set | by which it may vary on either side and is the same (S)
V1_WAIT_RTTS = 56.0  # RTTs | definition | bbr_lt_bw_max_rtts (48) and a cycle of eight
WAIT_RTTS = 72.0  # RTTs | definition | bw_probe_max_rounds (63), and the probe
WAIT_US = 3_300_000.0  # us | definition | bw_probe_base_us and bw_probe_rand_us, and a tenth
V1_LEAST_FLIGHT = 24  # segments | set | below, a probe of v1 is a segment or two (S)
WINDOW_HOLDS = 0.07  # of cwnd | set | nearer to it, v1's window holds a flight (S)
WINDOW_HOLDS_SEGMENTS = 2.0  # segments | set | and so much more
QUEUED = 1.3  # minimum RTTs | set | from which on v1's window, of two BDP, may hold a flight (S)
PAUSE = 3.0  # blocks | set | times the usual length: the application sent nothing
STILL_WEIGHT = 12.0  # log odds a unit of a logarithm | set | beyond the longest wait (S)
EPOCH_BLOCKS = 6  # blocks | set | fewer between losses are straight by chance (S)
FEW_EPOCHS = 3  # stretches | set | fewer count for less (S)
RISE = 1.5  # segments | set | less is no rise (S)
STRAIGHT = 0.08  # of the rise | set | mean deviation from a line (S)
STRAIGHT_SHARE = 0.4  # of the blocks | set | candidates' flows stay below (S)
STRAIGHT_WEIGHT = 10.0  # log odds | set | of the share beyond (S)

# --- phases ----------------------------------------------------------------------------------------------------------
PROBE_ROUNDS = 63  # rounds | definition | bw_probe_max_rounds
PROBE_WAIT_US = 2_500_000  # us | definition | bw_probe_base_us and half of bw_probe_rand_us
STAMP_ERROR_US = 500.0  # us | definition | half of a time stamp's tick, by which the length of a block may err
LEAST_RATE_ERROR = 0.01  # share | set | what remains of the error of a rate (S)
STRAY_RATE = 0.03  # of the rates | set | are anything (S, C)
HELD = 0.08  # of the blocks | set | cwnd held back (W)
HELD_IN_RECOVERY = 0.4  # of the blocks | set | the same in recovery (W)
HELD_FULL = 0.8  # of the blocks | set | the same where the flight fills the candidate's window (W, R)
STEPS_PER_RTT = 4  # steps | accuracy | of a minimum RTT in which durations are counted
LEVEL_RTTS = 12  # RTTs | set | a cycle of v1, and half of one, on either side
LEAST_RTT_US = 10_000  # us | set | for these: shorter stretches hold too few blocks
FEW_RATES = 10  # blocks | set | fewer contain no cycle
OTHER_USUAL = 8.0  # log likelihood ratio | set | of another cycle, that one's own flows reach (S)
OTHER_WEIGHT = 0.1  # log odds of log likelihood | set | beyond that (S)

# --- odds of packets -------------------------------------------------------------------------------------------------
ALIKE = 50.0  # ratio | definition | times less probable than the best, and not of its group
LIKELY = 0.001  # probability | definition | less probable candidates are not printed
MOST_ODDS = 500.0  # logarithm | definition | a float still holds its exponential
FAMILY = 0.009  # weight | set | of the flights that tell those that pace from the others (W)
FLIGHTS = 0.012  # weight | set | of the flights of those that pace, against the best (W)
BANDWIDTH = 0.045  # weight | set | of gain cycles against a replay's bandwidth (W)
LEVEL = 0.035  # weight | set | of gain cycles against the usual rate (W)
AFTER = 0.5  # weight | set | of a wrong factor of reductions (W)
MANY_BLOCKS = 300  # blocks | set | of which each counts fully (W)
DEPENDENCE = 2 / 3  # exponent | set | with which more of them count for less (W)
NEUTRAL = 0.57  # log likelihood | definition | of a flight that is off by a tenth, at that scale
LONG_FLIGHT = 60  # segments | set | shorter flights say less, for errors are of segments (W)
SHORT_FLIGHTS = 0.5  # exponent | set | with which flights do (W)
SHORT_PHASES = 4 / 3  # exponent | set | with which phases do (W)
BEFOREHAND = 1.0  # log odds | set | that a candidate sent a flow of which nothing else is known (S)
PACED_SLOPE = 2.0  # log odds of log likelihood | set | of the median send (S)
MIDDLE = -0.8  # log likelihood | set | of the median send that says nothing (S)
PER_LENGTH = 0.3  # log likelihood | set | less, a unit of the logarithm of a super-packet's length (S)
REBUILT = 3.5  # log odds | set | with SACKs put back, a few segments too many are a bandwidth for ten rounds (S)
MOST_SENDS = 3.0  # log odds | set | most that sends add where ACKs let most of them go (S)
ASTRAY = 0.022  # of the ACKs | set | at which one's own window is wrong (R)
TICKS_ASTRAY = 0.04  # of the ACKs | set | the same of CUBIC, whose ticks are inferred (R)
LEAST_ASTRAY = 0.004  # of the ACKs | set | fewer are no better (R)
ASTRAY_WEIGHT = 3.0  # log odds a unit of a logarithm | set | of wrong windows (S)
EXACT_SCALE = 0.045  # share | set | by which flights and rates are off where times are exact (S)
EXACT_WEIGHT = 2.0  # log odds a unit of a logarithm | set | of that (S)
PACED_SCALE = 0.13  # share | set | by which they are off elsewhere, of one that paces (W)
MOST_PACED = 3.0  # log odds | set | most that this adds (W)
WINDOW_SCALE = 0.06  # share | set | by which flights are off elsewhere, of one that does not pace (W)
MOST_WINDOW = 4.0  # log odds | set | most that this adds (W)
SCALE_WEIGHT = 6.0  # log odds a unit of a logarithm | set | of both (W)
AFTER_USUAL = 0.03  # share | set | by which windows after reductions are off (W)
AFTER_WEIGHT = 80.0  # log odds | set | of what is beyond (W)
MOST_AGAINST = 8.0  # log odds | set | that one measure alone takes off (S)
FEW_INTERVALS = 30  # intervals | set | fewer count for less (S)
FEW_HALVES = 40  # blocks | set | fewer count for less (S)
FEW_ACKS = 60  # ACKs | set | fewer count for less (S)
FEW_REDUCTIONS = 4  # reductions | set | fewer count for less (S)

# --- relatives -------------------------------------------------------------------------------------------------------
FAR_BETTER = 0.4  # of the wrong windows | set | that may remain with another parameter (S)
CLEARLY = 0.5  # log likelihood | set | of a send, more with another parameter (S)
OTHER_KEPT = 0.06  # of the window | set | kept in a reduction: one's own differ by less (S)
OTHER_GROWTH = 0.2  # logarithm | set | of the growth a round: one's own differ by less (S)
FEW_ROUNDS = 10  # rounds | set | growth over fewer is chance
LATEST_ACKS = 6  # ACKs | set | before a reduction, of which the largest flight is the window

# --- polls -----------------------------------------------------------------------------------------------------------
MARGIN = 0.99  # ratio | definition | bbr_pacing_margin_percent, since Linux 4.20
HEADERS = 52  # bytes | definition | of a segment, that the rates of 4.12 count beside the MSS
GAIN_ERROR = 0.004  # share | set | error of a rate over the bandwidth that the counters give (C)
GUESSED_GAIN = 0.08  # share | set | the same over the largest delivery rate (C)
ANY = 0.2  # a unit of a logarithm | set | density of what nothing predicts (C)
POLLS_TEMPER = 0.1  # weight | set | of polls that follow each other: they are not independent; calibration (C)
BW_POLLS = 10  # polls | set | the largest delivery rate among them stands for the bandwidth (C)
CUT_ERROR = 0.05  # share | set | of ssthresh: cwnd grows between the poll and the loss (C)
CUT_STRAY = 0.1  # of the reductions | set | are anything (C)
OFTEN_NS = 200_000_000  # ns | set | between polls; if more, windows may have been reduced more than twice meanwhile (C)
REDUCED = 0.9  # of cwnd | definition | no controller reduces by less than a tenth
FAR_WINDOW = 0.2  # logarithm | set | a replayed window so far off is set anew (C)
PROBE_SEGMENTS = 4  # segments | definition | bbr_cwnd_min_target
NEAR_HALF = 0.15  # of a BDP | set | around half of one: cwnd in the PROBE_RTT of v2 and v3 (C)
PROBE_RTT_OWN = 0.5  # probability | set | of such a window where the candidate has it (C)
PROBE_RTT_OTHER = 0.05  # probability | set | and where it has not (C)
USUAL_GAIN = 0.0065  # share | set | by which one's own rates miss a gain, with the counters' bandwidth (C)
USUAL_GUESS = 0.1  # share | set | the same without (C)
USUAL_WINDOW = 0.15  # share | set | by which one's own windows are off (C)
CUTS_BLUR = 4.0  # times | set | more, where every poll has a reduction (C)
POLLS_BEFOREHAND = 2.0  # log odds | set | that a candidate made the counters (C)
KNOWN_BEFOREHAND = 1.2  # log odds | set | the same where they give the bandwidth (C)
POLLS_WEIGHT = 2.0  # log odds a unit of a logarithm | set | of what is off (C)
KNOWN_WEIGHT = 6.0  # log odds a unit of a logarithm | set | the same where they give the bandwidth (C)
USUAL_CUT = 0.15  # logarithm | set | by which one's own ssthresh is off (C)
CUT_WEIGHT = 20.0  # log odds a unit of a logarithm | set | of what is beyond (C)
MOST_CUT = 4.0  # log odds | set | most of it (C)
FEW_CUTS = 3  # reductions | set | fewer say nothing of it (C)
GREW = 0.12  # logarithm | set | of cwnd between a poll and a loss (C)
FACTOR_ERROR = 0.02  # logarithm | set | of a factor (C)
OTHER_FACTOR = 0.05  # logarithm | set | beyond both, a factor is another's (C)
SOME_WRONG = 0.4  # of the reductions | set | of one's own, that look wrong (C)
REDUCTION_WEIGHT = 2.0  # log odds | set | of each that looks wrong beyond (C)
MANY_REDUCTIONS = 6  # reductions | set | of which each counts (C)
RARE = 4.0  # polls | set | a reduction, or fewer: growth is not visible (C)
LIMITED = 0.8  # of cwnd | definition | a round trip delivers at least, where cwnd limits the sender
JUMP = 0.15  # of cwnd | set | between two polls: a reduction, or one undone
INCREMENTS = 20.0  # increments | set | of Reno's; fewer say nothing of growth (C)
SLOWEST = 0.02  # of Reno's growth | set | less is none (C)
GROWTH_WEIGHT = 6.0  # log odds a unit of a logarithm | set | of growth that no candidate has (C)
ANY_GAIN = 0.3  # a unit of a logarithm | set | density of any gain (C)
GAIN_WEIGHT = 0.3  # log odds of log likelihood | set | polls that follow each other are not independent (C)
SAME_RATE = 0.002  # share | set | by which rates differ that are the same (C)
V1_LONGEST_NS = 2_500_000_000  # ns | set | without a change: one or two probes that no poll has met (C)
LONGEST_NS = 4_500_000_000  # ns | set | the same of v2 and v3 (C)
UNCHANGED_WEIGHT = 25.0  # log odds a unit of a logarithm | set | beyond that (C)
MOST_BY_RATES = 10.0  # log odds | set | most that rates take off (C)
