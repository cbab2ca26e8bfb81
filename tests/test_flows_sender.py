"""The re-enacted sender on hand-made conversations: what Linux would have known and done, call by call."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.cc.linux import CA_CWR, CA_DISORDER, CA_LOSS, CA_OPEN, CA_RECOVERY
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.sender import continuing
from tests.conversation import ISN, MSS, Conversation


def at(segments):
    """First byte after that many full segments."""
    return 1 + segments * MSS


def calls(flow, *names):
    return flow.events.rows[flow.events.of(*names)]


def states(flow):
    return calls(flow, "set_state")["arg"].tolist()


def with_loss():
    """Ten segments; the third is lost, four later ones are SACKed in turn, it is sent again."""
    talk = Conversation().data(1, at(0), 10).ack(41, at(2))
    for i, n in enumerate((4, 5, 6, 7)):
        talk.ack(41.2 + i / 10, at(2), [(at(3), at(n))])
    return talk.data(41.6, at(2)).ack(81.6, at(10))


def test_the_handshake_gives_the_first_rtt_sample():
    flow = Conversation().data(1, at(0), 2).ack(41, at(2)).flow()
    assert flow.facts["handshake_rtt_us"] == pytest.approx(40_000, abs=10)
    assert int(calls(flow, "init")["tcp_min_rtt_us"][0]) == pytest.approx(40_000, abs=10)


def test_a_handshake_whose_answer_was_not_captured_leaves_a_flow_in_midflow():
    talk = Conversation().data(1, at(0), 4).ack(41, at(2)).ack(41.1, at(4))
    del talk.rows[1]
    flow = talk.flow()
    assert calls(flow, "on_ack")["delivered"].tolist() == [3, 5]
    assert "handshake_rtt_us" in flow.facts["inferred"]
    assert "isn" not in flow.facts["inferred"]  # the SYN shows it


def test_delivered_counts_segments_and_starts_at_one_for_the_syn():
    flow = Conversation().data(1, at(0), 4).ack(41, at(2)).ack(41.1, at(4)).flow()
    assert calls(flow, "on_ack")["delivered"].tolist() == [3, 5]


def test_a_super_packet_counts_as_its_segments():
    flow = Conversation().data(1, at(0), 1, size=4 * MSS).data(1.1, at(4), 1, size=100).ack(41, at(4) + 100).flow()
    assert calls(flow, "on_ack")["delivered"][0] == 1 + 5
    assert flow.row["segments_sent"] == 5


def test_the_rate_sample_spans_from_the_send_to_the_ack():
    flow = Conversation().data(1, at(0), 4).ack(41, at(2)).ack(42, at(4)).flow()
    sample = calls(flow, "on_ack")[1]
    assert (sample["rs_delivered"], sample["rs_prior_delivered"]) == (4, 1)
    assert sample["rs_interval_us"] == pytest.approx(41_000, abs=10)
    assert sample["rs_is_app_limited"] == 1  # the first write finds an empty pipe


def test_three_sacked_segments_above_a_hole_start_recovery():
    flow = with_loss().flow()
    assert states(flow) == [CA_DISORDER, CA_RECOVERY, CA_OPEN]
    lost = calls(flow, "skb_marked_lost")
    assert lost["sacked_out"].tolist() == [3]
    assert lost["lost_out"].tolist() == [1]
    assert flow.quality()["unexplained_retransmissions"] == 0


def test_calls_within_an_ack_keep_the_order_of_the_schema():
    events = with_loss().flow().events
    third = events["time_ns"] == calls(with_loss().flow(), "skb_marked_lost")["time_ns"][0]
    assert events.frame()["event"][third].tolist() == [
        "pkts_acked",
        "skb_marked_lost",
        "ssthresh",
        "set_state",
        "on_ack",
    ]


def test_all_counters_return_to_zero_after_recovery():
    last = with_loss().flow().events.rows[-1]
    assert [last[name] for name in ("packets_out", "sacked_out", "lost_out", "retrans_out")] == [0, 0, 0, 0]
    assert last["delivered"] == 11


def test_acked_retransmissions_give_rtt_only_from_time_stamps():
    talk = (
        Conversation()
        .data(1, at(0), 4)
        .ack(41, at(0), [(at(1), at(4))])
        .data(41.2, at(0))
        .ack(81.9, at(4), echo_ms=41.2)
    )
    sample = calls(talk.flow(), "on_ack")[-1]
    assert sample["rs_rtt_us"] == 40_000  # whole milliseconds


def test_a_dsack_for_every_retransmission_undoes_the_reduction():
    talk = Conversation().data(1, at(0), 10).ack(41, at(2))
    for i, n in enumerate((4, 5, 6)):
        talk.ack(41.2 + i / 10, at(2), [(at(3), at(n))])
    talk.data(41.6, at(2)).ack(42, at(6), echo_ms=1).ack(42.1, at(10), echo_ms=1)
    flow = talk.flow()
    assert len(calls(flow, "undo_cwnd")) == 1
    assert states(flow)[-1] == CA_OPEN


def test_a_tail_loss_probe_is_no_retransmission_in_flight():
    talk = Conversation().data(1, at(0), 4).ack(41, at(3)).data(282, at(3)).ack(322, at(4), echo_ms=282)
    flow = talk.flow()
    assert flow.quality()["unexplained_retransmissions"] == 0
    assert calls(flow, "on_ack")["retrans_out"].max() == 0
    assert flow.row["retransmitted_segments"] == 1


def test_a_timeout_enters_loss_and_marks_the_head():
    talk = (
        Conversation().data(1, at(0), 4).ack(41, at(1)).data(160, at(3)).data(500, at(1)).ack(540, at(4), echo_ms=500)
    )
    flow = talk.flow()
    assert CA_LOSS in states(flow)
    assert states(flow)[-1] == CA_OPEN


@pytest.mark.parametrize(("ack_ms", "state"), [(200, CA_LOSS), (244.99, CA_RECOVERY)])
def test_what_cwnd_has_held_back_since_the_last_ack_is_sent_by_the_timer_as_it_was_set(ack_ms, state):
    """RACK's timer sets the timeout again, counted from the head's send; the later, longer RTTs do not move it.

    What follows an ACK at once is that ACK's, whenever the timer is due.
    """
    talk = Conversation().data(1, at(0), 10).ack(41, at(2)).data(41.1, at(10)).data(41.3, at(11))
    for i, n in enumerate((4, 5, 6)):
        talk.ack(45 + i / 10, at(2), [(at(3), at(n))])
    talk.ack(100, at(2), [(at(3), at(7))], echo_ms=1).ack(ack_ms, at(2), [(at(3), at(8))], echo_ms=1)
    flow = talk.data(245, at(2)).ack(285, at(12), echo_ms=245).flow()
    assert max(states(flow)) == state


def test_an_ecn_echo_enters_cwr_only_where_ecn_was_negotiated():
    talk = Conversation().data(1, at(0), 10).ack(41, at(2), ece=True).ack(42, at(10))
    assert CA_CWR not in states(talk.flow())
    talk.rows[0]["flags"] |= 64 | 128  # ECN-setup SYN and SYN-ACK [RFC3168]
    talk.rows[1]["flags"] |= 64
    flow = talk.flow()
    assert CA_CWR in states(flow)
    assert calls(flow, "on_ack")["delivered_ce"].tolist() == [2, 2]


def test_idle_longer_than_the_timeout_restarts():
    talk = Conversation().data(1, at(0), 2).ack(41, at(2)).data(2000, at(2), 2).ack(2040, at(4))
    events = calls(talk.flow(), "cwnd_event")
    assert events["arg"].tolist() == [0, 1, 0]  # TX_START at first, then CWND_RESTART and TX_START after the pause


def test_a_capture_that_starts_in_mid_flow_marks_what_it_guesses():
    talk = Conversation(handshake=False).data(1, at(100), 4).ack(41, at(102)).ack(41.1, at(104))
    flow = talk.flow()
    assert not flow.facts["complete"]
    assert {"isn", "wscale", "sack_ok"} <= set(flow.facts["inferred"])
    assert calls(flow, "on_ack")["delivered"].tolist() == [3, 5]


def test_data_the_capture_missed_is_counted_and_gives_no_samples():
    talk = Conversation().data(1, at(0), 2).data(1.1, at(4), 2).ack(41, at(4)).ack(41.1, at(6))
    flow = talk.flow()
    assert flow.quality()["uncaptured_segments"] == 2
    assert calls(flow, "on_ack")["delivered"].tolist() == [5, 7]


def test_a_capture_of_acknowledgements_only_is_refused():
    talk = Conversation(handshake=False).ack(1, at(2)).ack(2, at(4))
    with pytest.raises(StreamError, match="data direction is missing"):
        _ = talk.flow().events


def test_a_capture_without_acknowledgements_is_refused():
    talk = Conversation(handshake=False).data(1, at(0), 4)
    with pytest.raises(StreamError, match="acknowledgements are missing"):
        _ = talk.flow().events


def test_unknown_flows_and_silly_hz_are_refused():
    capture = Conversation().data(1, at(0)).ack(41, at(1)).capture()
    with pytest.raises(ArgumentError, match=r"the capture has 1 connection$"):
        capture.flow(1)
    with pytest.raises(ArgumentError, match="no such connection"):
        capture.flow(("10.9.9.9", 1, "10.0.0.2", 5001))
    with pytest.raises(ArgumentError, match="CONFIG_HZ"):
        Conversation().capture(hz="fast")


def test_time_never_runs_backwards():
    talk = with_loss()
    talk.rows[-1]["time_ns"] -= 200_000_000  # stamped early, handled in file order
    assert np.all(np.diff(talk.flow().events["time_ns"]) >= 0)


def test_every_retransmission_is_logged_with_its_cause():
    fast = with_loss().flow().retransmissions
    assert fast["why"].tolist() == ["fast"]
    assert fast["seq"].tolist() == [at(2)]
    probe = Conversation().data(1, at(0), 4).ack(41, at(3)).data(282, at(3)).ack(322, at(4), echo_ms=282)
    assert probe.flow().retransmissions["why"].tolist() == ["probe"]
    timeout = Conversation().data(1, at(0), 4).ack(41, at(1)).data(160, at(3)).data(500, at(1)).ack(540, at(4))
    assert timeout.flow().retransmissions["why"].tolist() == ["probe", "timeout"]


def test_what_is_sent_again_before_any_timer_can_have_fired_is_unexplained():
    """An RTT of 40 ms: a probe is due after 82 ms, of a single segment at the timeout, after 240; ticks are 4 ms."""
    three_out, one_out = (Conversation().data(1, at(0), 4).ack(41, at(n)) for n in (1, 3))
    assert three_out.data(110, at(3)).flow().retransmissions["why"].tolist() == ["unexplained"]
    assert one_out.data(270, at(3)).flow().retransmissions["why"].tolist() == ["unexplained"]
    timeout = Conversation(sack=False).data(1, at(0), 4).ack(41, at(1))
    assert timeout.data(265, at(1)).flow().retransmissions["why"].tolist() == ["unexplained"]
    timeout = Conversation(sack=False).data(1, at(0), 4).ack(41, at(1))
    assert timeout.data(282, at(1)).flow().retransmissions["why"].tolist() == ["timeout"]


def test_a_dsack_marks_the_transmission_that_was_needless():
    talk = Conversation().data(1, at(0), 10).ack(41, at(2))
    for i, n in enumerate((4, 5, 6)):
        talk.ack(41.2 + i / 10, at(2), [(at(3), at(n))])
    talk.data(41.6, at(2)).ack(42, at(10), echo_ms=1).ack(81.6, at(10), [(at(2), at(3))])
    assert talk.flow().retransmissions["spurious"].tolist() == [True]
    assert not with_loss().flow().retransmissions["spurious"].any()


def test_an_acknowledgement_of_what_was_never_sent_is_ignored():
    talk = Conversation().data(1, at(0), 2).ack(30, 1 + (1 << 29)).ack(41, at(2))
    assert calls(talk.flow(), "on_ack")["delivered"].tolist() == [3]


def test_polls_are_answered_from_the_capture_alone():
    talk = Conversation().data(1, at(0), 4).ack(41, at(2)).ack(42, at(4)).data(80, at(4))
    flow = talk.flow()
    start = flow.facts["start_ns"] + 40_000_000
    polls = [(start + ms * 1_000_000, start + ms * 1_000_000 + 10_000) for ms in (20, 41, 60)]
    answers = flow.answers(polls)
    seen = [set(answers["unacked"][answers["poll"] == i].tolist()) for i in range(3)]
    assert seen == [{4}, {4, 2}, {0}]  # the second poll is under way when the ACK arrives


def test_every_column_says_how_it_is_known():
    whole = Conversation().data(1, at(0), 2).ack(41, at(2)).flow().events
    assert set(whole.confidence) == set(whole.rows.dtype.names)
    assert whole.confidence["delivered"] == "computed"
    assert whole.confidence["is_cwnd_limited"] == "inferred"
    part = Conversation(handshake=False).data(1, at(9), 2).ack(41, at(11)).flow().events
    assert part.confidence["delivered"] == "relative"


@pytest.mark.parametrize(("following", "handed"), [(6, [4]), (4, []), (0, [])])
def test_a_short_super_packet_before_a_longer_one_ends_an_skb_and_did_not_wait(monkeypatch, following, handed):
    """A lower rate, at which TCP would have made it later, would have cut the next one as well."""
    talk = Conversation().data(1, at(0), 2).data(2, at(2), 4)
    packets = (talk.data(3, at(6), following) if following else talk).packets()
    columns = [packets[name] for name in ("time_ns", "direction", "flags", "seq", "ack", "window", "payload", "tsval")]
    columns += [packets[name] for name in ("tsecr", "options")]
    tp = SimpleNamespace(
        established=1,
        next_to_hand_over=5,
        snd_nxt=at(2),
        mss=MSS,
        wmem_alloc=0,
        skb_overhead=0,
        sent=0,
        queue_empty=0,
        next_due=0,
    )
    p = SimpleNamespace(isn=ISN, sender=0, mss=MSS, echoes=0, same_skb_ns=10_000, ack_delay_ns=0)
    sent = []
    monkeypatch.setattr(continuing.handover, "may_hand_over", lambda *_: True)
    monkeypatch.setattr(continuing.handover, "is_too_short", lambda *_: True)
    monkeypatch.setattr(continuing.handover, "note_made", lambda tp, a, size, _: sent.append(size // MSS))
    monkeypatch.setattr(continuing.tcp_sender, "send", lambda *_: setattr(tp, "snd_nxt", tp.snd_nxt + MSS))
    tables = (None,) * 5
    sequence = np.arange(len(packets))
    told = np.zeros(0, np.uint8), np.zeros((0, 2), np.int64)  # neither marks nor writes
    continuing.hand_over(tp, *tables, p, sequence, 4, (*columns, None, None, None), told, -1)
    assert sent == handed
