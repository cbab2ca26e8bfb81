"""The compiled scoreboard and recovery agree with their naive definition, ACK by ACK, on random conversations.

The naive sender drives: it sends, repairs what it judges lost and hears a receiver that SACKs and reports duplicates,
over a path that delays, reorders, loses and duplicates. What passes the capture is re-enacted by the compiled pass,
which must have reached the same counters and state at every ACK, and find a reason for every retransmission.
"""

import heapq

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.conversation import EPOCH_NS, MSS, Conversation
from tests.naive.rack import TICK_US, Sender
from tests.naive.receiver import Receiver

RTT_MS = 40.0
APART_MS = 0.1  # more than what would make two packets one super-packet


class Path:
    """What happens to each packet, in order of sending: extra delay in tenths of a millisecond, None if it is lost."""

    def __init__(self, data, acks):
        self.data, self.acks = iter(data), iter(acks)

    def to_receiver(self):
        return next(self.data, 0)

    def is_heard(self):
        return next(self.acks, True)


def clock(ms, shift_ns):
    """Milliseconds after the handshake on the connection's own clock, us."""
    return (round((ms + RTT_MS) * 1e6) + shift_ns) // 1000 + 1_000_000


def seq(segment):
    return 1 + segment * MSS


class Exchange:
    """One conversation: `talk` is what the capture shows, `expected` the naive counters after each ACK.

    `undecided`: an ACK came within a tick of RACK's timer, or before the retransmission that the timer caused. When
    ticks are is not in a capture, so that it does not show which the sender saw first: nothing is expected from then.
    """

    def __init__(self, gaps, path, repairs_per_ack):
        self.talk, self.expected, self.path = Conversation(rtt_ms=RTT_MS), [], path
        self.sender = Sender(clock(0, 3000) - clock(-RTT_MS, -3000))
        self.receiver, self.burst = Receiver(), repairs_per_ack
        self.queue, self.serial, self.slot, self.latest = [], 0, False, 0.0
        self.fired = self.undecided = False
        now = 1.0
        for gap in gaps:
            now += gap * APART_MS + 0.00113  # no two events at one microsecond, ticks included
            self.at(now, self.send)
        while self.queue:
            ms, _, do, what = heapq.heappop(self.queue)
            self.latest = ms
            timer = self.sender.timer_us
            if do == self.arrive:
                soon = timer is not None and abs(clock(ms, 3000) - timer) < TICK_US
                self.undecided = self.undecided or soon or self.fired
            if timer is not None and timer < clock(ms, 3000 if do == self.arrive else 0):
                self.sender.timer(timer)
                self.fired = True
                self.repair_soon((timer - 1_000_000) / 1000 - RTT_MS + 0.0171)
                heapq.heappush(self.queue, (ms, self.serial, do, what))
                self.serial += 1
                continue
            do(ms, *what)
        self.talk.ack(ms + 1000, seq(self.sender.una))  # states are known up to the last packet

    def at(self, ms, do, *what):
        # Packets pass the capture one after the other.
        taken = {entry[0] for entry in self.queue} | {self.latest}
        while any(abs(ms - other) < 0.02 for other in taken):
            ms += 0.0207
        heapq.heappush(self.queue, (ms, self.serial, do, what))
        self.serial += 1

    def send(self, ms):
        self.sender.send(clock(ms, -3000), self.talk._tick(ms))
        self.pass_on(ms, self.sender.nxt - 1)

    def repair(self, ms, left):
        self.slot = self.fired = False
        lost = self.sender.to_repair()
        if not lost:
            return
        self.sender.repair(lost[0], clock(ms, -3000), self.talk._tick(ms))
        self.pass_on(ms, lost[0])
        if left > 1:
            self.repair_soon(ms, left - 1)

    def repair_soon(self, ms, left=None):
        if not self.slot and self.sender.to_repair():
            self.slot = True
            self.at(ms + APART_MS + 0.00037, self.repair, self.burst if left is None else left)

    def pass_on(self, ms, i):
        self.talk.data(ms, seq(i))
        delay = self.path.to_receiver()
        if delay is not None:
            self.at(ms + RTT_MS + 2 + delay * APART_MS, self.arrive, i, ms)

    def arrive(self, ms, i, sent_ms):
        """The segment reaches the receiver, whose ACK (if it is heard) is at the sender at the same moment."""
        edge, blocks = self.receiver.take(i)
        if self.path.is_heard():
            self.hear(ms, edge, blocks, sent_ms)

    def hear(self, ms, edge, blocks, sent_ms):
        if edge < self.sender.una or self.sender.una == self.sender.nxt:
            return
        self.talk.ack(ms, seq(edge), [(seq(a), seq(b)) for a, b in blocks], echo_ms=sent_ms)
        self.sender.ack(clock(ms, 3000), edge, blocks, self.talk._tick(sent_ms))
        if not self.undecided:
            self.expected.append((EPOCH_NS + round((ms + RTT_MS) * 1e6) + 3000, self.sender.counters()))
        self.repair_soon(ms)


DELAYS = st.sampled_from([0, 0, 0, 1, 3, 8, 25, 60, 110, 130, 250, None, None])


@st.composite
def exchanges(draw):
    gaps = draw(st.lists(st.sampled_from([1, 2, 5, 30, 120]), min_size=2, max_size=30))
    delays = draw(st.lists(DELAYS, min_size=5, max_size=45))
    heard = draw(st.lists(st.sampled_from([True, True, True, False]), max_size=45))
    return Exchange(gaps, Path(delays, heard), draw(st.integers(1, 3)))


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(exchanges())
def test_scoreboard_and_state_equal_their_definition(exchange):
    assume(exchange.expected and exchange.sender.widest <= 4)
    flow = exchange.talk.flow()
    answers = flow.answers([(time_ns, time_ns + 1) for time_ns, _ in exchange.expected])
    for poll, (time_ns, counters) in enumerate(exchange.expected):
        last = answers[answers["poll"] == poll][-1]
        assert {name: int(last[name]) for name in counters} == counters, time_ns
    assert exchange.undecided or (flow.retransmissions["why"] == "fast").all()


def last_answer(talk, ms):
    flow = talk.ack(ms + 1000, 1).flow()
    at_ns = EPOCH_NS + round((ms + 5 + RTT_MS) * 1e6)
    return flow.answers([(at_ns, at_ns)])[-1]


def after_needless_repairs():
    """Ten segments; 1 to 3 are thought lost and sent again, though they were only late."""
    talk = Conversation().data(1, seq(0), 10)
    for i, n in enumerate((5, 6, 7)):
        talk.ack(41 + i / 10, seq(1), [(seq(4), seq(n))])
    for i in range(3):
        talk.data(42 + i / 10, seq(1 + i))
    return talk


def test_a_segment_that_one_ack_reports_as_arrived_and_as_duplicate_shows_no_reordering():
    """The ACK of the first arrival was lost; that a repair arrived after higher data says nothing about the path."""
    talk = after_needless_repairs().ack(84, seq(1), [(seq(3), seq(4)), (seq(2), seq(7))])
    answer = last_answer(talk, 84)
    assert (int(answer["reord_seen"]), int(answer["reordering"]), int(answer["dsack_dups"])) == (0, 3, 1)


def test_a_duplicate_that_was_reported_as_arrived_before_shows_reordering():
    talk = after_needless_repairs().ack(83, seq(1), [(seq(2), seq(7))])
    talk.ack(84, seq(1), [(seq(3), seq(4)), (seq(2), seq(7))])
    answer = last_answer(talk, 84)
    assert (int(answer["reord_seen"]), int(answer["reordering"]), int(answer["dsack_dups"])) == (1, 4, 1)
