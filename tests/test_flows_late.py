"""Data that the capture stamped after their ACK, or out of order: shown late, and sent once."""

import numpy as np
import pytest
from conversation import MSS, Conversation
from test_io_pcap import T0
from wire import ethernet, ipv4, pcap, tcp

import cctrace as cct
from cctrace.flows.capture import Capture
from cctrace.io import read_file

LATE_MS = 0.002


def crossing():
    """Eight super-packets of two segments, of which every second is stamped 2 us after the ACK of its first half."""
    talk, seq = Conversation(), 1
    for i in range(8):
        ms = 41.0 * i
        late = i % 2
        if late:
            talk.ack(ms, seq + MSS)
        talk.data(ms + LATE_MS * late, seq, size=2 * MSS)
        seq += 2 * MSS
        talk.ack(ms + 40.0, seq)
    return talk.flow(), seq - 1


def test_an_ack_before_its_data_makes_no_retransmission():
    flow, sent = crossing()
    assert flow.row["bytes_sent"] == sent
    assert flow.row["segments_sent"] == 16
    assert flow.row["retransmitted_segments"] == 0
    assert not len(flow.retransmissions)
    assert flow.quality()["uncaptured_segments"] == 0
    assert not any("does not show" in text for text in flow.row["warnings"])


def test_an_ack_before_its_data_gives_no_rtt():
    flow, _ = crossing()
    assert flow.rtt["rtt_us"].min() > 39_000
    assert flow.row["rtt_min_us"] > 39_000


def test_what_was_acknowledged_and_never_shown_stays_missing():
    talk = Conversation().data(0.0, 1).ack(40.0, 1 + 4 * MSS).data(40.002, 1 + 2 * MSS, segments=2)
    flow = talk.data(41.0, 1 + 4 * MSS).ack(81.0, 1 + 5 * MSS).flow()
    assert f"{MSS:,} bytes were acknowledged that the capture does not show" in flow.row["warnings"]
    assert flow.row["retransmitted_segments"] == len(flow.retransmissions) == 0
    assert flow.quality()["uncaptured_segments"] == 1


def test_what_is_sent_again_after_it_was_shown_late_is_sent_again():
    talk = Conversation().data(0.0, 1).ack(40.0, 1 + 2 * MSS).data(40.002, 1 + MSS).data(300.0, 1 + MSS)
    flow = talk.data(300.1, 1 + 2 * MSS).ack(340.0, 1 + 3 * MSS).flow()
    assert flow.row["retransmitted_segments"] == 1


def test_two_segments_in_the_wrong_order_are_no_loss():
    talk = Conversation().data(0.0, 1).ack(40.0, 1 + MSS)
    talk.data(41.0, 1 + 2 * MSS).data(41.003, 1 + MSS).ack(81.0, 1 + 3 * MSS)
    flow = talk.data(82.0, 1 + 3 * MSS).ack(122.0, 1 + 4 * MSS).flow()
    assert not len(flow.retransmissions)
    assert flow.row["retransmitted_segments"] == flow.quality()["uncaptured_segments"] == 0
    assert flow.quality()["out_of_order"] == 1


@pytest.mark.parametrize(
    ("acks", "shown", "missing"),
    [([101], [(1, 100)], (0, 0)), ([51, 101], [(1, 100)], (0, 0)), ([101], [(1, 60), (61, 40)], (0, 0)),
     ([101], [(1, 140)], (0, 0)), ([101], [(41, 60)], (1, 40)), ([101], [(1, 60)], (1, 40)), ([101], [], (1, 100))],
)  # fmt: skip
def test_the_capture_lacks_only_what_it_never_shows(acks, shown, missing):
    isn = 0xFFFFFFFF - 30  # the range wraps
    there = {"src": "10.0.0.1", "dst": "10.0.0.2"}
    back = {"src": "10.0.0.2", "dst": "10.0.0.1"}
    frames = [ipv4(tcp(1, 2, isn, 0, flags=2), **there), ipv4(tcp(2, 1, 5, isn + 1, flags=18), **back)]
    frames += [ipv4(tcp(2, 1, 6, (isn + ack) & 0xFFFFFFFF), **back) for ack in acks]
    frames += [ipv4(tcp(1, 2, (isn + seq) & 0xFFFFFFFF, 6, payload=b"x" * size), **there) for seq, size in shown]
    counters = read_file_of(frames).counters
    assert (counters["unseen_acks"], counters["unseen_bytes"]) == missing


def read_file_of(frames):
    import io

    return read_file(io.BytesIO(pcap([(T0 + i, ethernet(frame)) for i, frame in enumerate(frames)])))


def test_what_others_call_sent_again_is_counted_apart():
    talk = Conversation().data(0.0, 1, segments=2, size=1000).ack(40.0, 2001)
    talk.data(5_000.0, 2000, size=1).ack(5_040.0, 2001)  # a keep-alive
    talk.data(6_000.0, 2001, size=500, fin=True).data(6_300.0, 2001, size=500, fin=True).ack(6_340.0, 2502)
    talk.rows.append(talk.rows[0] | {"time_ns": talk.rows[0]["time_ns"] + 1_000_000})
    flow = talk.flow()
    assert flow.row["retransmitted_segments"] == 1
    assert flow.quality()["not_counted"] == {"copies": 0, "syns": 1, "fins": 1, "single_bytes": 1}


def test_data_that_others_overtook_on_the_way_to_the_receiver_were_not_sent_again():
    """Each hundredth packet skips the delay: what was sent before it comes up to 26 ms after it, and an RTT is 30."""
    path = cct.Path(rate="40Mbit", rtt="30ms", buffer="4bdp")
    packets = cct.simulate(path, "bbr2022", "3s", seed=1, packets=True).capture(side="receiver").packets
    time, data = packets.columns["time_ns"].astype(np.int64), np.flatnonzero(packets["payload"] > 0)
    early = data[len(data) // 2 :: 100]
    time[early] -= 26_000_000
    packets.columns["time_ns"] = time
    row = Capture(packets.sorted_by_time()).flow(0).row
    assert row["retransmitted_segments"] == 0


def test_a_repair_within_a_tick_of_the_stamps_is_one():
    """On a LAN, packets an RTT apart bear the same time stamp of 1 ms: what fills a hole is a repair."""
    talk = Conversation(rtt_ms=0.2)
    talk.data(0.1, 1).data(0.1, 1 + 2 * MSS, segments=3).ack(0.3, 1 + MSS).data(0.5, 1 + MSS).ack(0.7, 1 + 5 * MSS)
    assert len({row["tsval"] for row in talk.rows if row["payload"]}) == 1
    assert talk.capture().flow(0).row["retransmitted_segments"] == 1
