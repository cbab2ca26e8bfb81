"""Parameters of a replay: indices into an int64 array, read by the plain functions of the row loop (`loop`)."""

import math

(
    FIRST,  # row of a run or of trials
    LAST,  # row after the last
    HYPOTHESES,  # number of trials
    UNKNOWN_DRAW,  # returned by a call that draws an unknown random number
    ADDRESS,  # of the controller's code
    ACK,  # of the record that it reads
    ENTRIES,  # bit mask of the events with an entry point
    RETURNS,  # bit mask of the events that return a value
    REDUCES,  # the stack reduces cwnd: the controller has no on_ack
    START_NS,  # capture time at which the connection's clock reads 1 s
    ECN_OK,
    PACED,  # the controller sets a pacing rate, so that its cwnd need not be the limit where the recorded one was
    OWN_MIN_RTT,  # slot of the min_rtt_us by which super-packets are longer on short paths; -1: TCP's own
    OVERHEAD,  # header bytes per segment that pacing counts
    SLOW_BURST,  # segments of its shortest super-packet
    SCORE,  # how a trial is scored
    WATCH_SLOT,  # a trial ends when this slot ...
    WATCH_VALUE,  # ... holds this
    USUAL_GAP_US,  # between super-packets of this flow
    GUESSED,  # calls of a run with an unknown random number, which went on with UNKNOWN_DRAW
    BLUR,  # error of the sends' times relative to the sender's host, where it is 1
    GAIN_SLOT,  # slot of the pacing gain, -1: there is none
    STAMP_SLOT,  # slot of the time at which the minimum RTT was refreshed, if estimated; -1 if known to the replay
    DIPS,  # number of rows at which PROBE_RTT was seen to start; they follow in the array
    CYCLE_SLOT,  # slot of the start of the cycle's phase, -1 if phases may last; with it:
    MIN_RTT_SLOT,
    PACED_SLOT,  # slot of `paced`: the socket paces although its controller sets no rate; -1: there is none
    MAX_RATE_SLOT,  # slot of SO_MAX_PACING_RATE then
    PARTS_AS_V2,  # its kernel splits super-packets as that of BBRv2 does
    BY_ACKS,  # its kernel checks with every ACK whether the application has no data
    HANDS_OVER,  # fq paces, so that TCP itself does not wait
    ACK_CLOCKED,  # the recorded sender was ACK-clocked, not paced
    DRAINS_END,  # the data in flight are too uncertain to determine the end of DRAIN
    DONE_SLOT,  # slot of the time at which PROBE_RTT may end, 0 until its flight is reached; -1: there is none
    MARGIN,  # a trial that cannot beat the first one by this (1000ths) ends; NO_MARGIN: none does
    KNOWN,  # the first one has been run before, see `trying.trials`
    LOWER,  # a branch of a scan ends that cannot reach this part (1000ths) of the best one's likelihood ratio
    REACHED,  # the best ratio known so far (1000ths, NO_MARGIN below 0: none is)
    KEEPS,  # what the sends could add to another trial's likelihood at most is kept, see `trying.trials`
    UNTIL_NS,  # paced sends that leave from then on are not scored; 0: all are
    RECORDED_FROM,  # row of the first column of what is recorded
    BLOCK,  # the next block whose likelihood is summed
    MARKED,  # which packets were application-limited is known (`writes`)
    OBSERVED,  # the state that the controller's view holds, of an earlier call or another hypothesis; -1: none
    READ_NOW,  # bit mask of the events in which the kernel's ticks matter: now, and
    READ_LSNDTIME,  # of the last send
    CONTEXT_SIZE,
) = range(47)
NO_MARGIN = 1 << 40
# Of a packet, where writes are known: whether it was application-limited, and from bit WAITS on how many segments
# waited behind it, at most MANY.
APP_LIMITED, WAITS, MANY = 1, 1, 127
NOTHING, PACED_SENDS, FULL_FLIGHTS, ALL_SENDS, TIMED_SENDS, OWN_SENDS = range(6)


def thousandths(likelihood: float) -> int:
    """Return a log likelihood as the ctx has it, rounded down."""
    return int(math.copysign(NO_MARGIN, likelihood)) if math.isinf(likelihood) else math.floor(likelihood * 1000) - 1
