"""Parameters of a replay, an int64 array `ctx` that the compiled functions of the row loop (`loop`) read, by index."""

import math

(
    FIRST,  # first row of a run or of trials
    LAST,  # and the row after the last
    HYPOTHESES,  # number of trials
    UNKNOWN_DRAW,  # what a call gets for an unknown random number
    ADDRESS,  # of the controller's code
    ACK,  # address of the record that it reads
    ENTRIES,  # bit mask of the events with an entry point
    RETURNS,  # bit mask of the events that return a value
    REDUCES,  # the stack reduces cwnd (tcp_cwnd_reduction): the controller has no cong_control, here on_ack
    START_NS,  # capture time at which the connection's clock reads 1 s
    ECN_OK,
    PACED,  # the controller sets a pacing rate, so that its cwnd need not be the limit where the recorded one was
    OWN_MIN_RTT,  # slot of the controller's min_rtt_us, by which tcp_tso_autosize sizes super-packets; -1: TCP's own
    OVERHEAD,  # header bytes of a segment that pacing counts
    SLOW_BURST,  # segments of the controller's shortest super-packet (min_tso_segs)
    SCORE,  # which sends are scored, and how: NOTHING, PACED_SENDS, …
    WATCH_SLOT,  # a trial ends when this slot (-1: none)
    WATCH_VALUE,  # has this value
    USUAL_GAP_US,  # median time between super-packets
    GUESSED,  # calls of an uninterrupted run that got UNKNOWN_DRAW
    TIME_ERROR,  # of the sends, in multiples of the error of a capture at the sender
    GAIN_SLOT,  # slot of the pacing gain, -1: there is none
    STAMP_SLOT,  # slot of the time at which the minimum RTT was refreshed, if PROBE_RTT starts where it was seen; or -1
    PROBE_RTTS,  # number of rows at which PROBE_RTT was seen to start; they follow in the array
    CYCLE_SLOT,  # slot of the start of the cycle's phase, -1 if a phase may last
    MIN_RTT_SLOT,  # slot of min_rtt_us, -1: there is none
    PACED_SLOT,  # slot of `paced`: the socket paces although its controller sets no rate; -1: there is none
    MAX_RATE_SLOT,  # slot of SO_MAX_PACING_RATE, if it does
    PARTS_AS_V2,  # its kernel splits super-packets as that of BBRv2 does
    BY_ACKS,  # its kernel checks with every ACK whether the application has no data
    HANDS_OVER,  # fq paces, so that TCP itself does not wait
    ACK_CLOCKED,  # the recorded sender was ACK-clocked, not paced
    DRAINS_END,  # the data in flight are too uncertain to determine the end of DRAIN
    DONE_SLOT,  # slot of the time at which PROBE_RTT may end, 0 until its flight is reached; -1: there is none
    MARGIN,  # a trial stops that cannot beat the first one by this (1000ths); NO_MARGIN: none does
    BASE_KNOWN,  # the first one has been run before, see `trying.trials`
    LOWER,  # a branch of a scan stops that cannot reach this part (1000ths) of the best log likelihood ratio
    REACHED,  # the best ratio known so far (1000ths, -NO_MARGIN: none is)
    STORES_BOUNDS,  # the most that each send can add to any log likelihood is stored, see `trying.trials`
    UNTIL_NS,  # paced sends that leave from then on are not scored; 0: all are
    RECORDED_FROM,  # row of the first column of what is recorded
    BLOCK,  # the next of `loop.score`'s blocks
    MARKED,  # which packets were application-limited is known (`writes`)
    OBSERVED,  # the state of the stream that `ack` holds; -1: none
    READ_NOW,  # bit mask of the events whose calls read jiffies
    READ_LSNDTIME,  # and of those whose calls read lsndtime, in jiffies, too
    CONTEXT_SIZE,
) = range(47)
NO_MARGIN = 1 << 40
# `marks` of a packet: bit 0, whether it was sent application-limited; from bit WAITS on, if the application's writes
# are known (`inference.writes`), how many segments waited behind it, at most MANY.
APP_LIMITED, WAITS, MANY = 1, 1, 127
# SCORE: the functions of `likelihood` are paced_send, full_flight, any_send and, for the last two, timed_send.
NOTHING, PACED_SENDS, FULL_FLIGHTS, ALL_SENDS, TIMED_SENDS, OWN_SENDS = range(6)


def thousandths(likelihood: float) -> int:
    """Return a log likelihood as `ctx` has it: 1000ths, rounded down; infinite ones as NO_MARGIN."""
    return int(math.copysign(NO_MARGIN, likelihood)) if math.isinf(likelihood) else math.floor(likelihood * 1000) - 1
