"""The book of a replay: what holds for all of it, and what is asked for. Places of an int64 array, see `loop`."""

(
    FIRST,  # row of a run or of trials
    LAST,  # row after the last
    HYPOTHESES,  # number of trials
    UNKNOWN_DRAW,  # what a call draws of which nobody knows what it drew
    ADDRESS,  # of the controller's code
    ACK,  # of what it reads
    ENTRIES,  # bit mask of the events that the controller has an entry point for
    RETURNS,  # bit mask of those that return a value
    REDUCES,  # the stack reduces cwnd: the controller has no on_ack
    START_NS,  # capture time at which the connection's clock reads 1 s
    ECN_OK,
    PACED,  # the controller sets a pacing rate, so that its own cwnd need not limit it where the recorded one's did
    OWN_MIN_RTT,  # slot of the min_rtt_us by which its super-packets are longer on short paths; -1: TCP's own
    OVERHEAD,  # bytes of headers per segment that pacing counts
    SLOW_BURST,  # segments of its shortest super-packet
    SCORE,  # what a trial is scored by
    WATCH_SLOT,  # a trial ends when this slot ...
    WATCH_VALUE,  # ... holds this
    USUAL_GAP_US,  # between super-packets of this flow
    GUESSED,  # calls of a run that drew a number which nobody knows, and went on with UNKNOWN_DRAW
    BLUR,  # how many times less exactly than at the sender's host the times of sends are known, 1 there
    GAIN_SLOT,  # slot of the pacing gain, -1: there is none
    STAMP_SLOT,  # slot of when the minimum RTT was renewed, where that is estimated; -1 where the replay knows
    DIPS,  # number of rows at which it was seen to be too old; they follow in the book
    CYCLE_SLOT,  # slot of when the phase of the cycle began, -1 where it may last; with it:
    MIN_RTT_SLOT,
    PACED_SLOT,  # slot of `paced`: the socket paces, though its controller sets no rate; -1: there is none
    MAX_RATE_SLOT,  # slot of SO_MAX_PACING_RATE then
    PARTS_AS_V2,  # its kernel parts super-packets as that of BBRv2 does
    BY_ACKS,  # its kernel asks with every ACK whether the application has nothing to send
    HANDS_OVER,  # what is sent goes to fq, so that TCP itself does not wait for pacing
    ACK_CLOCKED,  # the recorded sender sent what ACKs released: nothing paced it
    DRAINS_END,  # what was in flight is not known exactly enough to tell when DRAIN ends
    BOOK_SIZE,
) = range(34)
NOTHING, PACED_SENDS, FULL_FLIGHTS, ALL_SENDS, TIMED_SENDS = range(5)
