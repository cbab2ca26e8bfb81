"""Constants of the diagnosis: value, unit, kind and reason on one line each.

Kinds are those of `cctrace.path.constants`; *set* values were chosen on simulated flows and recordings
(docs/explain.md).
"""

# --- levels that many rules share -------------------------------------------------------------------------------------
MOST_OF_TIME = 0.5  # share | set | of the time from which a limit is the flow's cause; of data, for most of it
MUCH_OF_TIME = 0.25  # of the time | set | from which a limit is mentioned
LARGE_SHARE = 0.7  # share | set | of the time at constant rates, or of a link in use, whose ends an estimate blurs
PREDOMINANT_SHARE = 0.8  # share | set | of writes, ACKs, time or a queue that must fit a cause: a fifth may not
NEARLY_ALL_SHARE = 0.9  # share | set | of a window, a rate, the time or the losses that counts as all of it
NEGLIGIBLE_SHARE = 0.01  # share | set | of the data, the time or a rate, below which something is not mentioned
HEAVY_SHARE = 0.05  # of the segments | set | retransmitted, or captured again, from which it is reported
NOTABLE_SHARE = 0.1  # share | set | of samples, segments or ACKs, from which they are not exceptions
ACCIDENTAL_SHARE = 1e-3  # of the segments | set | retransmitted, or lost before the capture; fewer are an accident
EQUAL_WITHIN = 0.05  # relative | set | largest difference of equal shares, amounts in flight or intervals
STEADY_SCATTER = 0.1  # relative | set | largest scatter of a constant rate, and difference of equal rates
MIN_OBSERVATIONS = 5  # observations | set | least to infer anything from losses, bursts, episodes, rounds or windows
MIN_FOR_PATTERN = 10  # observations | set | least to identify a pattern of writes, losses or late packets
MIN_FOR_SHARES = 20  # observations | set | least to compare shares, rounds or polls
MIN_PACKETS = 100  # packets | set | least to judge the order or the times of packets and ACKs
CLEARLY_TIMES = 4  # times | set | by which one time must exceed another, or one scatter be smaller
PROMPT_S = 2e-5  # s | set | scatter of a host's response times; packets closer than this are simultaneous
QUEUED_RTTS = 1.25  # times the RTT without queue | definition | 1 + the share of BBR's probe [Linux61] bbr_pacing_gain
RTT_RISE = 0.1  # of min RTT | set | least change of an RTT that is not noise
EPISODE_RTTS = 2  # RTTs | set | losses, or marks, closer than this reduce the window once
SEPARATE_RTTS = 4  # RTTs | set | between separate overflows or reductions; a silence so long is a stall
CLEAR_RANK = 0.7  # mean rank | set | of RTTs between polls, or of places in a burst, from which they are late ones

# --- how sure a verdict is: grades of evidence, before calibration ---------------------------------------------------
# A rule's confidence is one of these, or between two of them where the evidence has a strength (a share, a count).
# `python -m benchmarks.explain simulated` prints how many first verdicts are right, by confidence.
MAX_CONFIDENCE = 0.99  # confidence | set | largest of a verdict
MEASURED_CONFIDENCE = 0.95  # confidence | set | the kernel counted it, or packets measure it
CLEAR_CONFIDENCE = 0.9  # confidence | set | the evidence has no other usual cause
LIKELY_CONFIDENCE = 0.75  # confidence | set | other causes are less usual; largest of a single poll of time counters
EXPLAINING_CONFIDENCE = 0.6  # confidence | set | from which a cause explains others' evidence
DOUBTFUL_CONFIDENCE = 0.5  # confidence | set | below this a verdict goes last, uncalibrated; largest from a single poll
UNSURE_CONFIDENCE = 0.4  # confidence | set | another cause fits as well; largest, if the capture spoils times or counts
CALIBRATION_SLOPE = 1.75  # of log odds | set | calibration: rules are right more often than their confidences

# --- what the capture spoils -----------------------------------------------------------------------------------------
HELD_US = 1000.0  # us | set | beyond two stamp ticks and RTT_RISE, from which packets were held before the capture

# --- what matters without a cause ------------------------------------------------------------------------------------
GOODPUT_CHANGES = 0.03  # of log goodput | set | least relevant change by a removal
RTT_CHANGES = 0.05  # of log RTT | set | the same for the RTT
LOSS_CHANGES = 0.003  # share | set | the same for retransmissions; what-ifs within this are right
RATIO_TIE = 0.02  # of a logarithm | set | effects closer than this keep the catalogue's order
EFFECT_NEAR = (0.10, 0.15)  # share | definition | tolerance of an effect on goodput, and on the mean RTT
# Errors of effects relative to runs without the cause; `python -m benchmarks.effect_confidence` fits the number.
MISSES_TIMES = 0.63  # times | set | scale of an effect's error in units of its interval's standard deviation
LOSS_TIE = 0.002  # share | set | the same as RATIO_TIE, for retransmissions

# --- what a sender lets out, and why ---------------------------------------------------------------------------------
POLLED_S = 0.1  # s | set | largest poll interval for limits over time
LATE_S = 0.0005  # s | set | within which a busy host answers an ACK
ANSWERS_ALIKE = 1.5  # times | set | largest spread of the response times
MAX_BINS = 2000  # slices | accuracy | most in the limits over time
SPARE_SEGMENTS = 3  # segments | set | that an ACK may release beyond twice what it acknowledges (rounding, Nagle)
CLOCK_RTTS = 1.5  # RTTs | set | least period of writes on a clock while data are in flight
WRITE_S = 0.005  # s | set | least between writes of an application; a host answers ACKs sooner

# --- the ends of the connection --------------------------------------------------------------------------------------
CHANCE_TIMES = 8  # times | set | shorter than the ACK interval, for most responses to be no coincidence
BURSTS_TOGETHER = 8  # bursts | set | per rate sample: timers of a busy host are late by some
PARTS_OF_RTT = 4  # parts | set | of an RTT, examined separately: a used-up window pauses once per RTT
PACKETS_TOGETHER = 4  # packets | set | sent, or acknowledged, together
SPARE_RATE = 0.95  # of the bottleneck's rate | set | from which all of it is used, whatever min_rtt or a limit is
SHORT_ROUNDS = 14  # rounds | definition | by then, slow start from ten segments has delivered 80 MB
PROBE_RTTS = 0.5  # RTTs | set | a faster probe: 24 kernel flows had 0 to .33 at a limit, .7 to 37 without

# --- losses ----------------------------------------------------------------------------------------------------------
MANAGED_PACKETS = 10  # packets | set | shortest queue of an AQM, as opposed to a short buffer
PASSED_PER_DROP = 2  # packets | set | most per dropped one that pass a full queue although it was longer
BURST_GAP_SHARE = 0.5  # of a packet's service time | set | largest gap within a burst
LARGE_BURST_TIMES = 2  # times | set | a pacing sender's burst, from which a burst is not paced
POLICED_SENDS = (20_000, 60_000)  # transmissions | accuracy | first ones searched for a policer; with few losses more
POLICED_RATE_SAME = 0.02  # share | set | largest difference of equal rates

# --- marks -----------------------------------------------------------------------------------------------------------
MIN_CUTS = 2  # reductions | set | one may be the end of slow start alone

# --- other flows -----------------------------------------------------------------------------------------------------
RTTS_ALIKE = 0.5  # correlation | set | of two flows' RTTs, from which they share a queue
MAX_CONNECTIONS = 100  # connections | accuracy | of a single poll that are compared

# --- the path's rate and queue ---------------------------------------------------------------------------------------
ALL_THE_TIME = 0.85  # of the typical rate on the wire | set | least goodput of a flow that had it all the time
BLOATED_RTTS = 2.0  # base RTTs | definition | of typical queue: more than any window of two BDPs causes
CONGESTED_RTTS = 1.5  # times min RTT | set | of the first packets, from which the path was congested before
IN_FLIGHT_STEADY = 0.03  # share | set | largest scatter of the maximum in flight per round under a constant limit

# --- delays and ACKs -------------------------------------------------------------------------------------------------
MIN_RTT_STEP_S = 0.25  # s | accuracy | step of that filter
SHORT_PROBES = 0.6  # of the mean RTT | definition | probes then end before half of their ACKs return
JITTERS_TAIL = 10.0  # standard deviations | set | of jitter, by which a minimum over seconds may lie below the mean
NO_JITTER = 0.02  # of the mean RTT | set | largest deviation that is not jitter
BATCH_RTTS = 0.15  # of the base RTT | set | least service time of the data that one ACK covers
MAX_INTERVAL_VARIATION = 0.35  # deviation over mean | set | largest, of the intervals of clocked batches
BUNCH_ACKS = 3  # ACKs | set | least in a bunch
BUNCH_SPAN_SHARE = 0.25  # of the sending time | set | within which a bunch arrives

# --- polls, and a single poll ----------------------------------------------------------------------------------------
MAX_LOSS_DISPERSION = 8.0  # times | set | largest of random losses; losses in twos and threes make it two or three
MAX_WINDOWS = 4  # windows | accuracy | per poll: values within a long gap are interpolated anyway
SINGLE_POLL_LOSSY = 0.005  # of the segments | set | retransmitted, from which a single poll reveals losses
AMPLE_WINDOW_TIMES = 2.0  # times | set | the window that losses allow, above which they do not explain the rate
START_LOSS_BDP = 4.0  # bandwidth-delay products | set | largest loss of a start

# --- events ----------------------------------------------------------------------------------------------------------
MAX_EVENTS = 40  # events | accuracy | most of a kind; the last one mentions the rest
IDLE_S = 0.2  # s | set | least without data to send (or two RTTs)
