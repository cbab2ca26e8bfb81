"""A sender's scoreboard by definition: sets of segments, searched from end to end at every ACK.

What is lost is judged as in RFC 8985 (RACK), what has arrived is kept as in RFC 2018 (SACK) and RFC 2883 (D-SACK),
states are those of RFC 6675, undone as in RFC 3522 (Eifel) and RFC 3708. Where Linux does otherwise, a comment says so.
Segments are numbers 0, 1, 2 …; times are microseconds, echoed time stamps milliseconds. Slow and obvious, to hold
`cctrace.flows.sender.scoreboard` and `recovery` against; no timeouts and no probes.
"""

DUPLICATE_THRESHOLD = 3
TICK_US, TIMER_MIN_US = 4000, 2000  # Linux: timers fire at ticks, and not within 2 ms
PERSIST = 16  # RFC 8985: recoveries for which a widened reordering window is kept
OPEN, DISORDER, RECOVERY = 0, 1, 3


class Sender:
    """What the sender knows."""

    def __init__(self, min_rtt_us):
        self.min_rtt_us = min_rtt_us
        self.una, self.nxt = 0, 0
        self.sent_us, self.stamp_ms, self.delivered_then = {}, {}, {}  # of the latest transmission of each segment
        self.sacked, self.lost, self.again, self.ever, self.judged = set(), set(), set(), set(), set()
        self.delivered, self.total_again, self.duplicates = 1, 0, 0
        self.state, self.high = OPEN, 0
        self.rack_us, self.rack_segment, self.rack_rtt_us, self.rack_is_news = 0, -1, 0, False
        self.reordering_seen, self.threshold = False, DUPLICATE_THRESHOLD
        self.window_steps, self.persist, self.widened_at, self.duplicate_pending = 1, 0, 0, False
        self.widest = 1
        self.undo_from, self.undo_left, self.first_again_ms = None, -1, 0
        self.timer_us = None

    def outstanding(self):
        return range(self.una, self.nxt)

    def counters(self):
        """The kernel's counters and state, by their names in TCP_INFO."""
        return {
            "unacked": self.nxt - self.una,
            "sacked": len(self.sacked),
            "lost": len(self.lost),
            "retrans": len(self.again),
            "delivered": self.delivered,
            "reordering": self.threshold,
            "ca_state": self.state,
        }

    # -- sending ------------------------------------------------------------------------------------------------------
    def send(self, now_us, stamp_ms):
        """Transmit the next new segment."""
        self._transmit(self.nxt, now_us, stamp_ms)
        self.nxt += 1

    def to_repair(self):
        """The segments to be sent again, in order."""
        return sorted(self.lost - self.again)

    def repair(self, i, now_us, stamp_ms):
        """Transmit segment `i` again."""
        self._transmit(i, now_us, stamp_ms)
        self.again.add(i)
        self.ever.add(i)
        self.total_again += 1
        self.first_again_ms = self.first_again_ms or stamp_ms
        self.undo_left = max(0, self.undo_left) + 1

    def _transmit(self, i, now_us, stamp_ms):
        self.sent_us[i], self.stamp_ms[i], self.delivered_then[i] = now_us, stamp_ms, self.delivered
        self.judged.discard(i)

    # -- an acknowledgement -------------------------------------------------------------------------------------------
    def ack(self, now_us, una, blocks, echo_ms):
        """Receive an ACK up to `una` with SACK `blocks` (first, last + 1), the latest arrival's first."""
        self.now_us, self.echo_ms = now_us, echo_ms
        prior_una, self.una = self.una, una
        highest = max(self.sacked, default=prior_una - 1)  # before this ACK
        self.fresh = []  # newly delivered
        self.progressed = una > prior_una
        self._note_reordering(self._tag(blocks, prior_una, highest))
        late = self._remove_acknowledged(prior_una, una)
        self._note_reordering([i for i in late if i < highest])
        self._widen_window()
        self._react(prior_una)

    def _tag(self, blocks, prior_una, highest):
        """Mark what the blocks cover [RFC2018]; return originals that arrived after a later one had been reported."""
        late = []
        if blocks and self._is_duplicate_report(blocks):
            left, right = blocks[0]
            self.duplicates += right - left
            if self.duplicates <= self.total_again:  # else the network duplicates, not this sender [Linux]
                late += self._tag_duplicate(left, right, prior_una)
            blocks = blocks[1:]
        covered = {i for left, right in blocks for i in range(left, right)}
        for i in sorted(covered & set(self.outstanding()) - self.sacked):
            if i not in self.ever and i < highest:
                late.append(i)
            self._deliver(i)
            self.sacked.add(i)
            self.lost.discard(i)
            self.again.discard(i)
        return late

    def _is_duplicate_report(self, blocks):
        """Whether the first block reports a duplicate [RFC2883]: below the ACK, or inside the second block."""
        (left, right), others = blocks[0], blocks[1:2]
        return left < self.una or any(a <= left and right <= b for a, b in others)

    def _tag_duplicate(self, left, right, prior_una):
        """A retransmission was needless [RFC3708]; return segments whose originals were late."""
        self.delivered += right - left
        self.duplicate_pending = self.duplicate_pending or self.reordering_seen
        for i in range(left, right):
            if self.undo_from is not None and i >= self.undo_from and self.undo_left > 0:
                self.undo_left -= 1
        known = self.undo_from is not None or left > self.una
        return [i for i in range(max(left, prior_una), right) if known and i in self.ever & self.sacked]

    def _remove_acknowledged(self, prior_una, una):
        """Forget what is cumulatively acknowledged; return the originals that no SACK had reported."""
        originals = []
        for i in range(prior_una, una):
            if i not in self.sacked:
                # Eifel: an echo from before the retransmission means that the original arrived.
                self._deliver(i, spurious=i in self.ever and self.echo_ms < self.stamp_ms[i])
                if i not in self.ever:
                    originals.append(i)
            for those in (self.sacked, self.lost, self.again):
                those.discard(i)
        return originals

    def _deliver(self, i, spurious=False):
        """Segment `i` has arrived: let RACK know [RFC8985 6.2 step 2]."""
        self.delivered += 1
        self.fresh.append(i)
        rtt_us = self.now_us - self.sent_us[i]
        if spurious or (i in self.ever and rtt_us < self.min_rtt_us):
            return  # it was not the retransmission that arrived
        self.rack_rtt_us, self.rack_is_news = rtt_us, True
        if (self.sent_us[i], i) > (self.rack_us, self.rack_segment):
            self.rack_us, self.rack_segment = self.sent_us[i], i

    def _note_reordering(self, late):
        """Originals arrived after later ones [RFC8985 6.2 step 3]; Linux also learns how far after."""
        if not late:
            return
        highest = max(self.sacked, default=self.una - 1)
        distance = highest + 1 - min(late)
        if distance > 0:
            self.threshold = max(self.threshold, distance)
            self.reordering_seen = True

    def _widen_window(self):
        """Widen the reordering window once per round trip with D-SACKs [RFC8985 6.2 step 4]; Linux counts the rounds
        in what was delivered when the newest of the segments that arrived was sent."""
        if not self.fresh:
            return
        newest = max(self.fresh, key=lambda i: (self.sent_us[i], i))
        if self.delivered_then[newest] < self.widened_at:
            self.duplicate_pending = False
        if self.duplicate_pending:
            self.window_steps += 1
            self.widest = max(self.widest, self.window_steps)
            self.duplicate_pending = False
            self.widened_at, self.persist = self.delivered, PERSIST
        elif self.persist == 0:
            self.window_steps = 1

    # -- losses -------------------------------------------------------------------------------------------------------
    def reordering_window_us(self):
        """How much later than a later one a segment may still arrive [RFC8985 6.2 step 4].

        It may not exceed the smoothed RTT; that is not modelled here: `widest` says whether it could matter.
        """
        if not self.reordering_seen and (self.state == RECOVERY or len(self.sacked) >= self.threshold):
            return 0
        return self.min_rtt_us // 4 * self.window_steps

    def detect(self):
        """Mark what is lost [RFC8985 6.2 step 5]; arm the timer for what may be soon."""
        window, waits = self.reordering_window_us(), []
        for i in self.outstanding():
            if i in self.sacked or i in self.judged:
                continue
            if (self.sent_us[i], i) >= (self.rack_us, self.rack_segment):
                continue
            left_us = self.sent_us[i] + self.rack_rtt_us + window - self.now_us
            if left_us <= 0:
                self.lost.add(i)
                self.judged.add(i)  # Linux: once per transmission, even if the loss is taken back
                self.again.discard(i)
            else:
                waits.append(left_us)
        return max(waits, default=0)

    def _detect_and_arm(self):
        wait = self.detect() if self.rack_is_news else 0
        self.rack_is_news = False
        if wait:
            ticks = -(-(wait + TIMER_MIN_US) // TICK_US)
            self.timer_us = self.now_us + ticks * TICK_US + TICK_US // 2  # the next tick: half of one later
        elif self.progressed:
            self.timer_us = None

    def timer(self, now_us):
        """The reordering timer fires."""
        self.now_us, self.timer_us = now_us, None
        before = self._in_flight()
        self.detect()
        if self._in_flight() != before and self.state != RECOVERY:
            self._enter_recovery()

    def _in_flight(self):
        return self.nxt - self.una - len(self.sacked) - len(self.lost) + len(self.again)

    # -- states -------------------------------------------------------------------------------------------------------
    def _react(self, prior_una):
        if self.state == OPEN:
            self.first_again_ms = 0
        if self.state == RECOVERY and self.una >= self.high:
            if self._was_spurious():
                self._undo()
            elif self.persist:
                self.persist -= 1
            self.state = OPEN
        if self.state == RECOVERY and self.progressed and self.undo_from is not None and self._is_eifel():
            self._note_reordering([prior_una])
            if self.again:
                self._settle_timer()
                return  # Linux: as long as retransmissions are out, leave everything as it is
            self.lost.clear()
            self._undo()
            self._calm()
        if self.undo_from is not None and self.undo_left == 0:
            self.persist = min(PERSIST, self.persist + 1)
            self._undo()
            if self.state == RECOVERY:
                self._calm()
        self._detect_and_arm()
        if self.state != RECOVERY and self.lost:
            self._enter_recovery()
        elif self.state != RECOVERY:
            self._calm()

    def _undo(self):
        self.undo_from, self.rack_is_news = None, True

    def _settle_timer(self):
        if self.progressed:
            self.timer_us = None

    def _calm(self):
        """Open, or Disorder while anything is out of order or sent again."""
        if not self.again and self.una not in self.ever:
            self.first_again_ms = 0
        busy = self.sacked or self.lost or self.again or (self.una < self.nxt and self.una in self.ever)
        state = DISORDER if busy else OPEN
        if state != self.state:
            self.state, self.high = state, self.nxt

    def _enter_recovery(self):
        if not self.again and self.una not in self.ever:
            self.first_again_ms = 0
        self.undo_from, self.undo_left = self.una, len(self.again) or -1
        self.state, self.high = RECOVERY, self.nxt

    def _was_spurious(self):
        return self.undo_from is not None and (self.undo_left == 0 or self._is_eifel())

    def _is_eifel(self):
        """Whether the ACK echoes a time before the first retransmission [RFC3522], or there was none."""
        return self.first_again_ms == 0 or self.echo_ms < self.first_again_ms
