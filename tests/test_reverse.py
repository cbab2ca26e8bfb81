"""The other direction of a flow: what the receiver of the bulk data sent, and how soon that was answered."""

from dataclasses import replace

import numpy as np
import pytest

import cctrace as cct
from cctrace.report.page import render
from cctrace.report.reverse import reverse_card
from tests.conversation import ACK, ISN, MSS, PEER_ISN, Conversation
from tests.test_report import report


@pytest.fixture(scope="module")
def found():
    """Two requests of 500 bytes, the second one sent twice, each answered with five segments."""
    talk = Conversation()

    def asks(ms, first, acked):
        talk._row(ms, 1, ACK, PEER_ISN + first, ISN + acked, 500, tsecr=talk._tick(ms - 40))

    def answers(ms, first, acked, echoed_ms):
        for i in range(5):
            at = ISN + first + i * MSS
            talk._row(ms + i / 1000, 0, ACK, at, PEER_ISN + acked, MSS, tsecr=talk._tick(echoed_ms))

    asks(10, 1, 1)
    answers(12, 1, 501, 10)  # 2 ms later
    talk._row(60, 1, ACK, PEER_ISN + 501, ISN + 1 + 5 * MSS, 0, tsecr=talk._tick(20))
    asks(100, 501, 1 + 5 * MSS)
    asks(150, 501, 1 + 5 * MSS)
    answers(153, 1 + 5 * MSS, 1001, 150)
    talk._row(200, 1, ACK, PEER_ISN + 1001, ISN + 1 + 10 * MSS, 0, tsecr=talk._tick(160), window=0)
    return talk.flow().reverse()


def test_data_count_once_and_a_message_is_what_follows_data_of_the_other_side(found):
    assert (found["data_packets"], found["payload_bytes"], found["retransmitted_packets"]) == (3, 1000, 1)
    assert found["messages"] == 2
    assert (found["packets"], found["pure_acks"], found["zero_windows"]) == (6, 2, 1)  # with the SYN-ACK
    assert found["bytes_per_ack"] == 5 * MSS


def test_data_sent_twice_say_nothing_of_how_soon_they_were_acknowledged(found):
    assert found["answered_us"] == {"min": 2000.0, "median": 2000.0, "p95": 2000.0}
    # the SYN-ACK's time stamp was echoed by no packet, those of both requests after 2 and 3 ms
    assert (found["echoed_us"]["min"], found["echoed_us"]["median"]) == (2000.0, 2500.0)


def test_seen_from_the_receiver_rtts_are_the_paths_and_at_the_sender_they_are_not():
    path = cct.Path(rate="10Mbit", rtt="40ms", buffer="0.5bdp")
    sim = cct.simulate(path, "cubic6", "5s", seed=1, packets=True)
    there, here = (sim.capture(side=side).flow(0).reverse() for side in ("receiver", "sender"))
    assert there["echoed_us"]["min"] == pytest.approx(40_000, rel=0.05)
    assert here["echoed_us"]["median"] < 2_000  # the host echoes a time stamp with what it sends next
    assert there["answered_us"] is here["answered_us"] is None  # only acknowledgements came back
    assert there["packets"] == here["packets"]


def test_the_counts_are_those_of_the_captured_packets():
    full = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    acks = full.reverse()
    packets = full.capture.packets
    back = packets["direction"] != full.capture.connections.sender[0]
    assert acks["packets"] == int(back.sum())
    assert acks["sack_packets"] == int((packets["sack_count"][back] > 0).sum())
    assert acks["pure_acks"] == int((packets["flags"][back] == ACK).sum())
    assert np.isfinite(list(acks["echoed_us"].values())).all()


def test_the_report_says_what_the_other_direction_carried(found):
    section = replace(report().flows[0], reverse=found, taken_at="sender")
    page = render(replace(report(), flows=[section]))
    assert "The other direction: 6 packets, 1 kB of data in 2 messages" in page
    assert "the times that this host took to answer, without the path" in page
    assert "RTTs of the path, as that end sees them" in reverse_card(replace(section, taken_at="receiver"))
    acks = found | {"data_packets": 0, "answered_us": None, "echoed_us": None}
    card = reverse_card(replace(section, reverse=acks))
    assert "6 packets, acknowledgements only" in card
    assert "host took" not in card
    assert reverse_card(replace(section, reverse=None)) == ""
