"""Constants of identification: value, unit, kind and reason on one line each.

Kinds are those of `cctrace.path.constants`. The data behind values that are *set*:

    W   maximum likelihood of the sender in a softmax over 225 simulated flows captured at their receivers:
        `python -m benchmarks.identify --flows 25 --seed 41 --seen-from receiver`, and seed 42
    S   separates candidates' simulated flows (seeds 21, 22, 51 to 55) and recordings from strangers' (`--seed 71`)
    R   recordings of Linux 6.1 to 6.18: `python -m benchmarks.identify --recordings FOLDER... --seen-from sender`
    C   counters of candidates and of other known senders: `--seed 71 --seen-from ss`
"""

# --- levels that several measures share -------------------------------------------------------------------------------
MIN_OBSERVATIONS = 3  # observations | set | of reductions or of stretches between them; fewer count for less (S, C)
MIN_FOR_CYCLE = 10  # polls, blocks or rounds | set | fewer contain no gain cycle, and growth over fewer is chance
MIN_FOR_PATTERN = 6  # blocks, ACKs or reductions | set | to judge a rise, a window or a factor; more add nothing (S, C)
FULL_WEIGHT = 40  # blocks, intervals or ACKs | set | fewer count for less; twenty round trips let any window grow (S)
STRAY_SHARE = 0.05  # share | set | of blocks, rates or reductions that may be anything (S, C)
FINEST_SCALE = 0.02  # relative | set | error of one's own windows, flights and factors (S, C, R)
WRONG_WINDOW = 0.15  # relative | set | by which polled windows, windows in slow start and growth may be off (S, C)
WINDOW_HOLDS = 0.07  # of cwnd or of a buffer | set | nearer to it, it holds a flight; super-packets differ (S, R)
PREDOMINANT_SHARE = 0.8  # share | set | of a window, blocks or ACKs, from which something else held the sender (W, R)
MAX_WRONG_SHARE = 0.4  # share | set | of one's own blocks, ACKs or reductions that may look another's (S, C)
WEIGHT = 2.0  # log odds a unit of a logarithm | set | of what is off, and of each reduction that is (S, C)
STRONG_WEIGHT = 6.0  # log odds a unit of a logarithm | set | of errors whose usual size is known (W, C)
DECISIVE_WEIGHT = 20.0  # log odds a unit | set | of what no candidate does at all (S, C)
MAX_FOR = 3.0  # log odds | set | that one measure alone adds (S, W)
MAX_AGAINST = 10.0  # log odds | set | that one measure alone takes off (S, C)

# --- what is looked at -----------------------------------------------------------------------------------------------
MAX_ROWS = 150_000  # rows | accuracy | of the event stream; more change no answer, and time stays bounded
CHECKED_ROWS = 20_000  # rows | accuracy | enough to contradict what counters name (R)
CONFIRMED_PROBABILITY = 0.9  # probability | set | of the name that counters give, after a quarter of these (R)
MIN_SENT = 16  # segments | set | of a block: an ACK before or after a send changes it by no more than 6 %
SMOOTHED_RTTS = 9  # RTTs | set | among which the median is what jitter left unchanged
START_SHARE = 8  # blocks | set | one in so many belongs to the start

# --- a fixed amount in flight, or a receive window, holds the sender -------------------------------------------------
HELD_GROWTH = 0.25  # segments a round | definition | Reno grows by one, CUBIC by half a segment at least
STEADY_BLOCKS = 100  # blocks | set | a receive window of fixed size, or a pacing limit, holds for so long (R)
PROBE_SEEN = 0.125  # share | definition | half of the excess of a BBR's probe: rates of round trips differ by less

# --- sends -----------------------------------------------------------------------------------------------------------
SENDS_TEMPER = 0.5  # weight | set | of intervals that follow each other: they are not independent; calibration (S)

# --- flights ---------------------------------------------------------------------------------------------------------
COARSEST_SCALE = 0.6  # share | set | a replay that is farther off explains nothing (S)
ONE_SEGMENT = 1.0  # segments | definition | which ACK came before which send is not known for sure
MIN_AFTER = 2  # blocks | set | after a reduction: the first is not the last as well
WAITS_LATE_TIMES = 1.1  # times | set | the longest wait of a BBR, until its probe is visible
STILL_SHARE = 0.025  # of a flight | set | by which it may vary on either side and is the same (S)
V1_MIN_FLIGHT = 24  # segments | set | below, a probe of v1 is a segment or two (S)
QUEUED_RTTS = 1.3  # minimum RTTs | set | from which on v1's window, of two BDP, may hold a flight (S)
PAUSE_BLOCKS = 3.0  # blocks | set | times the usual length: the application sent nothing
RISE_SEGMENTS = 1.5  # segments | set | less is not a rise (S)
GROWING_SHARE = 0.4  # share | set | of its rise that a window has by the middle of a period, or at one level (S, R)
SAME_LEVEL = 0.1  # of the rise | set | within a period, a smaller part of it is none (R)
UNSTEADY_SHARE = 0.08  # of the rise | set | mean deviation from a steady rise (S)

# --- phases ----------------------------------------------------------------------------------------------------------
STAMP_ERROR_US = 500.0  # us | definition | half of a time stamp's tick, a tenth of the shortest block
MIN_RATE_ERROR = 0.01  # share | set | what remains of the error of a rate (S)
HELD_SHARE = 0.08  # of the blocks | set | cwnd held back (W)
STEPS_PER_RTT = 4  # steps | accuracy | of a minimum RTT in which durations are counted
LEAST_RTT_US = 10_000  # us | set | for these: shorter stretches hold too few blocks
OTHER_USUAL = 8.0  # log likelihood ratio | set | of another cycle, that one's own flows reach (S)

# --- odds of packets -------------------------------------------------------------------------------------------------
GROUP_RATIO = 50.0  # ratio | definition | times less probable than the best, and not of its group
MIN_PROBABILITY = 0.001  # probability | definition | less probable candidates are not printed
FAMILY_WEIGHT = 0.009  # weight | set | of the flights that tell those that pace from the others (W)
FLIGHTS_WEIGHT = 0.012  # weight | set | of the flights of those that pace, against the best (W)
BANDWIDTH_WEIGHT = 0.045  # weight | set | of gain cycles against a replay's bandwidth (W)
LEVEL_WEIGHT = 0.035  # weight | set | of gain cycles against the usual rate (W)
MANY_BLOCKS = 300  # blocks | set | of which each counts fully (W)
DEPENDENCE = 2 / 3  # exponent | set | with which more of them count for less, phases of short flights twice (W)
LONG_FLIGHT = 60  # segments | set | shorter flights say less, as their root: errors are of segments (W)
PRIOR_LOG_ODDS = 1.0  # log odds | set | that a candidate sent a flow of which nothing else is known (S)
RARE_LOG_ODDS = {"bbr2plus": -2.0}  # log odds | set | beforehand: no kernel ships it; like a late BBRv2
MEDIAN_LOG_LIKELIHOOD = -0.8  # log likelihood | set | of the median send that says nothing (S)
WORSE_QUANTILE = 0.25  # quantile | set | of the intervals: others send as Reno for a part of a flow (R)
WORSE_FITS = 2.0  # log likelihood | set | of it, beyond the middle; own ones have 1.7 or more in the lab (R)
BETTER_QUANTILE = 0.95  # quantile | set | of the intervals: what the host's timing leaves of the best (R)
UNEVEN_LOG_LIKELIHOOD = 1.0  # log likelihood | set | by which own intervals may be worse than those: 0.4 to 1.3 (R)
SENDS_ECT1 = 2.0  # log odds | set | that an L4S sender sent ECT(1), which others must not use [RFC9331]
PER_LENGTH = 0.3  # log likelihood | set | less, a unit of the logarithm of a super-packet's length (S)
REBUILT_LOG_ODDS = 3.5  # log odds | set | with SACKs put back, a few segments too many are a bandwidth for ten rounds
WRONG_WINDOWS = 0.022  # of the ACKs | set | at which one's own window is wrong (R)
TICKS_WRONG_WINDOWS = 0.04  # of the ACKs | set | the same of CUBIC, whose ticks are inferred (R)
MIN_WRONG_WINDOWS = 0.004  # of the ACKs | set | fewer are no better (R)
WRONG_WINDOWS_WEIGHT = 3.0  # log odds a unit of a logarithm | set | of wrong windows (S)
EXACT_SCALE = 0.045  # share | set | by which flights and rates are off where times are exact (S)
PACED_SCALE = 0.13  # share | set | by which they are off elsewhere, of one that paces (W)
WINDOW_SCALE = 0.04  # share | set | by which flights are off elsewhere, of one that does not pace (R: .02 to .04)
AFTER_USUAL = 0.03  # share | set | by which windows after reductions are off (W)
JITTER_MAX = 3.0  # times | definition | its median: 5 % of normal errors are larger (STRAY_SHARE)
AFTER_WEIGHT = 80.0  # log odds | set | of what is beyond (W)

# --- polls -----------------------------------------------------------------------------------------------------------
GAIN_ERROR = 0.004  # share | set | error of a rate over the bandwidth that the counters give (C)
GUESSED_GAIN = 0.08  # share | set | the same over the largest delivery rate (C)
BACKGROUND_DENSITY = 0.3  # a unit of a logarithm | set | density of what nothing predicts (C)
POLLS_TEMPER = 0.1  # weight | set | of polls that follow each other: they are not independent; calibration (C)
MAX_POLL_GAP_NS = 200_000_000  # ns | set | beyond which windows may have been reduced more than twice between polls (C)
REDUCED_CWND = 0.9  # of cwnd | definition | no controller reduces by less than a tenth
PROBE_RTT_OWN = 0.5  # probability | set | of such a window where the candidate has it (C)
USUAL_GAIN_ERROR = 0.0065  # share | set | by which one's own rates miss a gain, with the counters' bandwidth (C)
CUTS_BLUR = 4.0  # times | set | more, where every poll has a reduction (C)
POLLS_PRIOR_LOG_ODDS = 2.0  # log odds | set | that a candidate made the counters (C)
OTHER_FACTOR = 0.05  # logarithm | set | beyond both, a factor is another's (C)
MIN_INCREMENTS = 20.0  # increments | set | of Reno's; fewer say nothing of growth (C)
GAIN_WEIGHT = 0.3  # log odds of log likelihood | set | of arbitrary gains that explain polled rates better (C)
SAME_RATE_SHARE = 0.002  # share | set | by which rates differ that are the same (C)
V1_LONGEST_NS = 2_500_000_000  # ns | set | without a change: one or two probes that no poll has met (C)
LONGEST_NS = 4_500_000_000  # ns | set | the same of v2 and v3 (C)
