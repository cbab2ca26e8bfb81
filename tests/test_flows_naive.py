"""The compiled pass and the naive definition agree on random conversations: reordering, losses, lost ACKs, pauses."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversation import EPOCH_NS, Conversation
from tests.naive import sender as naive
from tests.naive.receiver import Receiver
from tests.test_flows_rack import APART_MS, RTT_MS, clock, seq


@st.composite
def conversations(draw):
    """A sender that never retransmits; a receiver that SACKs; packets are delayed, reordered and lost on the way."""
    count = draw(st.integers(1, 25))
    gaps = draw(st.lists(st.sampled_from([1, 2, 5, 300, 900]), min_size=count, max_size=count))
    delays = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    arrives = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count))
    heard = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count))
    sends, now = [], 1.0
    for i in range(count):
        now += gaps[i] * APART_MS
        sends.append((now, i))
    arrivals = sorted((at + RTT_MS + delays[i] * APART_MS + 0.037, i) for at, i in sends if arrives[i])
    acks, receiver = [], Receiver()
    for n, (at, i) in enumerate(arrivals):
        edge, blocks = receiver.take(i)
        if heard[n]:
            acks.append((at + n * 1e-4, edge, blocks))
    return sends, acks


def talk_of(conversation):
    sends, acks = conversation
    talk = Conversation(rtt_ms=RTT_MS)
    for at, i in sends:
        talk.data(at, seq(i))
    for at, edge, blocks in acks:
        talk.ack(at, seq(edge), [(seq(a), seq(b)) for a, b in blocks])
    return talk


@settings(max_examples=300)
@given(conversations())
def test_counters_and_samples_equal_their_definition(conversation):
    sends, acks = conversation
    if not acks:
        return
    rows = talk_of(conversation).flow().events
    got = rows.rows[rows.of("on_ack")]

    want = naive.view(
        [(clock(at, -3000), seq(i), seq(i + 1)) for at, i in sends],
        [(clock(at, 3000), seq(edge), [(seq(a), seq(b)) for a, b in blocks]) for at, edge, blocks in acks],
        clock(0, 3000),
    )
    by_time = {int(row["time_ns"]): row for row in got}
    una = seq(0)
    for (at, edge, _), row in zip(acks, want, strict=True):
        outstanding = any(clock(sent, -3000) < clock(at, 3000) and seq(i + 1) > una for sent, i in sends)
        una = max(una, seq(edge))
        found = by_time.get(EPOCH_NS + round((at + RTT_MS) * 1e6) + 3000)
        assert (found is not None) == outstanding  # else the kernel calls no controller
        if found is not None:
            assert {name: int(found[name]) for name in row} == row


@settings(max_examples=100)
@given(conversations())
def test_the_scoreboard_is_always_possible(conversation):
    """No counter goes below zero and no segment is counted as both arrived and lost."""
    sends, acks = conversation
    if not acks:
        return
    rows = talk_of(conversation).flow().events.rows
    assert (rows["sacked_out"].astype(int) + rows["lost_out"] <= rows["packets_out"]).all()
    assert (rows["retrans_out"] == 0).all()
    assert (rows["delivered"] <= len(sends) + 1).all()
