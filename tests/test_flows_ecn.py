"""ECN of a flow: what the handshake agrees on, how marks are counted, what tampers."""

import json
import weakref

import numpy as np
import pytest
from conversation import MSS, Conversation
from hypothesis import given
from hypothesis import strategies as st
from naive import ecn as naive

import cctrace as cct
from cctrace.flows.ecn import alpha_of, may_miss_marks, misses_marks
from cctrace.path.evidence import forget
from cctrace.schema import LINUX_EVENTS
from cctrace.tcp import ecn

ECT0, ECT1 = 2, 1

# [RFC9768] table 2; 5 is reserved, and accurate all the same (§3.1.3); 7 is reflected by servers that know no better.
ANSWERS = {
    0: "none",
    1: "classic",
    2: "accurate",
    3: "accurate",
    4: "accurate",
    5: "accurate",
    6: "accurate",
    7: "none",
}


def talked(ecn_codes, aces, tos=ECT0, per_ack=2, handshake=True, **options):
    """A flow of `per_ack` segments for each ACK, of which AE, CWR and ECE are `aces`."""
    talk = Conversation(ecn=ecn_codes, handshake=handshake, **options)
    for i, ace in enumerate(aces):
        first = 1 + i * per_ack * MSS
        talk.data(10.0 + 50 * i, first, segments=per_ack, tos=tos)
        talk.ack(50.0 + 50 * i, first + per_ack * MSS, ace=ace)
    return talk.flow()


@pytest.mark.parametrize("answer", range(8))
def test_a_client_that_asks_for_accurate_feedback_takes_the_answer_as_rfc_9768_says(answer):
    flow = talked((7, answer, 2), [5, 5])
    assert flow.ecn.feedback == flow.facts["ecn"] == ANSWERS[answer]


@pytest.mark.parametrize(
    ("asked", "answered", "told"),
    [
        (3, 1, "classic"),
        (3, 0, "none"),
        (3, 3, "none"),
        (3, 5, "classic"),
        (0, 0, "none"),
        (0, 1, "none"),
        (4, 2, "accurate"),  # a reserved question, which servers take for 7
    ],
)
def test_other_clients_take_what_they_know(asked, answered, told):
    assert talked((asked, answered, 2), [5, 5]).ecn.feedback == told


def test_classic_marks_are_echoed_segments_and_accurate_ones_are_counted():
    classic = talked((3, 1, 0), [0, 1, 1, 0])
    assert (classic.ecn.delivered, classic.ecn.delivered_ce) == (8, 4)  # two segments for each ACK with ECE
    accurate = talked((7, 2, 2), [5, 6, 6, 7, 1])
    assert (accurate.ecn.delivered, accurate.ecn.delivered_ce) == (10, 4)


def test_an_accurate_counter_of_which_ece_is_a_bit_is_no_congestion():
    rows = talked((7, 2, 2), [5] * 6).events.rows
    assert rows["ca_state"].max() == 0
    assert not np.isin(LINUX_EVENTS["ssthresh"], rows["event"])


def test_a_mark_reduces_the_window_once_a_round():
    rows = talked((7, 2, 2), [5, 6, 6, 6, 7]).events.rows
    calls = rows[rows["event"] == LINUX_EVENTS["ssthresh"]]
    assert len(calls) == 2
    assert rows["ca_state"].max() == 2


def reductions(talk):
    """The number of reductions of a flow of segments of 1448 bytes."""
    return int(np.sum(talk.flow().events.rows["event"] == LINUX_EVENTS["ssthresh"]))


def test_the_echo_before_the_receiver_has_cwr_is_one_reduction_wherever_the_capture_puts_its_ack():
    talk = Conversation(ecn=(3, 1, 0)).data(10, 1, 2).ack(50, 1 + 2 * MSS, ece=True)
    talk.data(50.5, 1 + 2 * MSS, 2)  # without CWR: sent before that ACK was processed
    talk.data(51, 1 + 4 * MSS, 2, cwr=True)
    talk.ack(90.5, 1 + 4 * MSS, ece=True).ack(91, 1 + 6 * MSS)
    assert reductions(talk) == 1


def test_cwr_that_seems_to_precede_its_reduction_says_where_that_begins():
    talk = Conversation(ecn=(3, 1, 0)).data(10, 1, 2).ack(50, 1 + 2 * MSS, ece=True)
    talk.data(50.2, 1 + 2 * MSS, 2, cwr=True)
    talk.data(89.8, 1 + 4 * MSS, 2, cwr=True).data(89.9, 1 + 6 * MSS, 2)
    talk.ack(90, 1 + 4 * MSS, ece=True)  # a new mark: the packet with CWR has arrived
    talk.data(90.2, 1 + 8 * MSS, 2).ack(130, 1 + 6 * MSS, ece=True).ack(130.1, 1 + 8 * MSS, ece=True)
    assert reductions(talk) == 3


def test_cwr_that_was_lost_is_not_waited_for():
    talk = Conversation(ecn=(3, 1, 0)).data(10, 1, 2).ack(50, 1 + 2 * MSS, ece=True)
    talk.data(50.2, 1 + 2 * MSS, 2).data(80, 1 + 4 * MSS, 2)  # none carries it
    talk.data(89.9, 1 + 6 * MSS, 2, cwr=True).ack(90, 1 + 4 * MSS, ece=True)  # that of the second reduction
    assert reductions(talk) == 2


@given(st.lists(st.tuples(st.integers(1, 7), st.floats(0, 1)), min_size=1, max_size=60))
def test_marks_are_counted_exactly_however_often_the_field_wraps_if_acks_tell_of_at_most_seven_segments(acks):
    received = counted = 0
    for delivered, share in acks:
        received += int(share * delivered)
        counted += ecn.newly_marked((5 + received) & 7, counted, delivered, -1, 1448)
    assert counted == received


@given(st.integers(0, 7), st.integers(0, 1 << 32), st.integers(0, 70))
def test_an_ack_of_many_segments_counts_as_many_marks_as_may_be(ace, before, delivered):
    assert ecn.newly_marked(ace, before, delivered, -1, 1448) == naive.newly_marked(ace, before, delivered)


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0, 1)), min_size=1, max_size=40))
def test_marks_are_counted_exactly_however_many_segments_acks_tell_of_if_bytes_are_counted_too(acks):
    received = counted = 0
    for delivered, share in acks:
        marked = int(share * delivered)
        received += marked
        counted += ecn.newly_marked((5 + received) & 7, counted, delivered, marked * 1448, 1448)
    assert counted == received


def test_without_that_counter_an_ack_of_many_segments_may_count_too_many_marks():
    assert ecn.newly_marked(5, 0, 20, -1, 1448) == 16
    assert ecn.newly_marked(5, 0, 20, 0, 1448) == 0


def stretched(counters, options=32):
    """A flow of 20 segments for each ACK, with the receiver's counts of bytes: (ACE, ECT(0), CE, ECT(1))."""
    talk = Conversation(ecn=(7, 2, 2))
    for i, (ace, e0, ce, e1) in enumerate(counters):
        first = 1 + 20 * i * MSS
        talk.data(10.0 + 50 * i, first, segments=20, tos=ECT1)
        talk.ack(50.0 + 50 * i, first + 20 * MSS, ace=ace)
        talk.rows[-1]["options"] |= options
        talk.rows[-1] |= {"ecn_e0_bytes": e0, "ecn_ce_bytes": ce, "ecn_e1_bytes": e1}
    return talk.flow()


def test_the_senders_view_heeds_the_count_of_bytes():
    told = [(5, 1, 0, 1 + 20 * MSS), (7, 1, 10 * MSS, 1 + 30 * MSS), (7, 1, 10 * MSS, 1 + 50 * MSS)]
    flow = stretched(told)
    assert flow.ecn.delivered_ce == 10
    assert flow.ecn.received_bytes == {"ect0": 0, "ce": 10 * MSS, "ect1": 50 * MSS}
    assert flow.ecn.tampering == []
    assert "72.4 kB ECT(1)" in flow.ecn.summary()
    assert stretched(told, options=0).ecn.delivered_ce > 10  # as many as fit
    assert stretched(told, options=0).ecn.received_bytes is None


@pytest.mark.parametrize(("kernel", "counted"), [("5.4.0-rc31014c0e45f63-prague-1", 7), ("6.18.2", 8), (None, 8)])
def test_a_kernel_that_misses_the_ace_that_it_expects_counts_that_mark_with_the_next(tmp_path, kernel, counted):
    metadata = {"BATCH_NAME": "", "KERNEL_RELEASE": kernel}
    poll = {"t": 1.0, "tcp_rtt": 40.0, "tcp_cwnd": 10.0}
    path = tmp_path / "x.flent"
    path.write_text(json.dumps({"metadata": metadata, "raw_values": {"one": [poll]}}))
    info = cct.read(path)
    flow = talked((7, 2, 2), [5, 6, 7, 0, 1, 2, 3, 4, 5, 6])._like(tcpinfo=info, is_missing_marks=misses_marks(info))
    assert marks_of(flow) == [0, 1, 2, 3, 4, 5, 6, 7, counted, 9]
    assert may_miss_marks(flow) == (kernel is None)
    assert marks_of(flow.missing_marks()) == [0, 1, 2, 3, 4, 5, 6, 7, 7, 9]


def marks_of(flow):
    rows = flow.events.rows
    return rows["delivered_ce"][rows["event"] == LINUX_EVENTS["on_ack"]].tolist()


def test_marks_that_a_kernel_counts_late_are_no_counter_that_ran_back():
    """One segment an ACK, all marked: the mark after a missed one makes two of one segment."""
    flow = talked((7, 2, 2), [(5 + i) & 7 for i in range(80)], per_ack=1).missing_marks()
    assert np.diff(marks_of(flow)).max() == 2
    assert flow.ecn.tampering == []


def test_a_kernel_that_misses_marks_does_not_assume_that_ace_wrapped():
    flow = stretched([(5, 1, 0, 1), (7, 1, 0, 1), (7, 1, 0, 1)], options=0)
    assert flow.ecn.delivered_ce > 10
    assert flow.missing_marks().ecn.delivered_ce == 2


def test_a_count_of_bytes_wraps_at_24_bits_and_one_that_runs_back_is_not_believed():
    high = (1 << 24) - 5 * MSS
    flow = stretched([(5, 1, high, 1), (5, 1, (high + 10 * MSS) & 0xFFFFFF, 1), (5, 1, high, 1)])
    assert flow.ecn.received_bytes["ce"] == 10 * MSS


@pytest.mark.parametrize(("e0", "said"), [(1, "arrived without it"), (20 * MSS, "arrived as ECT(0)")])
def test_bytes_that_arrive_with_another_codepoint_are_told(e0, said):
    told = stretched([(5, e0, 0, 1), (5, e0, 0, 1)]).ecn.tampering
    assert any(said in line for line in told), told


def test_an_ack_that_was_overtaken_does_not_turn_the_counter_back():
    talk = Conversation(ecn=(7, 2, 2))
    talk.data(10.0, 1, segments=4, tos=ECT0)
    talk.ack(50.0, 1 + 4 * MSS, ace=7)
    talk.ack(50.1, 1 + 2 * MSS, ace=6, echo_ms=10.0)  # sent before the other
    talk.data(60.0, 1 + 4 * MSS, segments=2, tos=ECT0)
    talk.ack(100.0, 1 + 6 * MSS, ace=7)
    assert talk.flow().ecn.delivered_ce == 2


@pytest.mark.parametrize(
    ("aces", "told", "marks"),
    [
        ([3, 4, 4, 5], "accurate", 2),  # AE, which nothing else sets; the first says nothing of what was before
        ([0, 1, 1, 0], "classic", 4),
        ([0, 0, 0, 0], "unknown", 0),
    ],
)
def test_mid_flow_the_packets_tell_or_nothing_does(aces, told, marks):
    flow = talked((0, 0, 0), aces, handshake=False)
    assert not flow.ecn.seen_handshake
    assert (flow.ecn.feedback, flow.ecn.delivered_ce) == (told, marks)
    assert "ecn_ok" in flow.facts["inferred"]


def test_a_mark_on_the_syn_counts():
    assert talked((7, 6, 2), [6, 6]).events.rows["delivered_ce"].tolist()[-1] == 1


def test_the_packets_of_data_are_counted_by_codepoint():
    flow = talked((7, 3, 3), [5, 5, 5], tos=ECT1)
    assert flow.ecn.sent == {"not_ect": 0, "ect1": 6, "ect0": 0, "ce": 0}


def test_the_share_of_marks_over_time_sums_to_all():
    flow = talked((7, 2, 2), [5, 6, 6, 7, 1])
    table = flow.ecn.frame(bins=4)
    assert table["delivered_ce"].sum() == flow.ecn.delivered_ce == 4
    assert table["delivered"].sum() == flow.ecn.delivered
    assert table["ce_share"].iloc[-1] > 0


def test_alpha_is_the_average_of_the_share_of_marks_over_round_trips():
    rounds, per_round = 40, 10
    delivered = np.arange(1, rounds * per_round + 1)
    share = np.where(np.arange(rounds) < 20, 0.3, 0.0).repeat(per_round)
    marked = np.floor(np.cumsum(share)).astype(np.int64)
    alpha = alpha_of(delivered, marked, delivered - per_round)
    expected = naive.alpha(delivered, marked, delivered - per_round)
    assert alpha == pytest.approx(expected, rel=1e-12)
    assert alpha[0] == 1
    assert alpha[20 * per_round] == pytest.approx(0.3 + 0.7 * (15 / 16) ** 20, abs=0.02)
    assert alpha[-1] < 0.3


def test_alpha_is_not_known_where_feedback_does_not_count():
    assert talked((3, 1, 0), [0, 1, 1, 0]).ecn.frame(4)["alpha"].isna().all()
    assert talked((7, 2, 2), [5, 6, 6, 7, 1]).ecn.frame(4)["alpha"].iloc[-1] < 1


def test_a_flow_without_ecn_tells_of_no_tampering():
    assert talked((0, 0, 0), [0, 0], tos=0).ecn.tampering == []
    assert talked((7, 2, 2), [5, 6]).ecn.tampering == []


@pytest.mark.parametrize(
    ("codes", "aces", "tos", "said"),
    [
        ((7, 7, 2), [5, 5], 0, "reflects"),
        ((7, 2, 0), [5, 5], ECT0, "client's AccECN field arrives cleared"),
        ((7, 2, 2), [0, 0], 0, "server's AccECN field arrives cleared"),
        ((7, 3, 2), [5, 5], ECT0, "SYN passed here as Not-ECT and arrived as ECT(1)"),
        ((0, 0, 0), [0] * 4, 3, "carry CE though no ECN was agreed on"),
        ((7, 2, 2), [5, 7, 1, 3], 0, "of packets that passed here as Not-ECT"),
        ((7, 2, 2), [5, 4, 3, 2, 1, 0], ECT0, "ran back"),
    ],
)
def test_what_no_queue_does_is_told_as_tampering(codes, aces, tos, said):
    told = talked(codes, aces, tos=tos).ecn.tampering
    assert any(said in line for line in told), told


def test_marks_after_a_cleared_field_do_not_count():
    flow = talked((7, 2, 2), [0, 0, 0], tos=0)
    assert flow.ecn.feedback == "none"
    assert flow.ecn.delivered_ce == 0


def test_the_text_names_feedback_codepoints_and_marks():
    text = talked((7, 2, 2), [5, 6, 6, 7, 1]).ecn.summary()
    assert "accurate" in text
    assert "10 ECT(0)" in text
    assert "4 segments (40 %)" in text


def test_an_analysis_tells_of_feedback_and_of_tampering(tmp_path):
    path = tmp_path / "x.parquet"
    talked((7, 3, 2), [5, 6, 6, 7, 1] * 4, tos=ECT1).capture.to_parquet(path)
    (found,) = cct.analyze([path])
    assert found.to_dict()["ecn"]["feedback"] == "accurate"
    assert found.ecn["in_words"].startswith("AccECN, ")
    assert any("arrived as ECT(1): the path rewrites ECN" in note for note in found.notes)


@pytest.mark.parametrize(
    ("codes", "aces", "words"),
    [((7, 2, 2), [5, 6], "AccECN, 25 % marked"), ((3, 1, 0), [0, 0], "classic, no marks"), ((0, 0, 0), [0], "")],
)
def test_a_table_has_it_in_few_words(codes, aces, words):
    assert talked(codes, aces).ecn.in_words == words


def test_ecn_of_a_flow_that_was_analysed_keeps_no_events():
    flow = talked((7, 2, 2), [5, 6, 6, 7, 1])
    frame, kept = flow.ecn.frame(), weakref.ref(flow.events.stream)
    forget(flow)
    assert kept() is None
    assert flow.ecn.frame().equals(frame)
