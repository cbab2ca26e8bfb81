"""Captures that were not taken at the sender, and two captures joined."""

import csv
import io

import numpy as np
import pytest
import zstandard

from cctrace import datasets
from cctrace.diagnosis.diagnose import diagnose
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.capture import read
from tests.conversation import ISN, MSS, RST, Conversation


def moved(talk, back_ms):
    """The same conversation captured `back_ms` (there and back) away from the sender."""
    for row in talk.rows:
        row["time_ns"] += int((1 if row["direction"] == 0 else -1) * back_ms * 500_000)
    return talk


def conversation():
    talk = Conversation()
    for i in range(40):
        talk.data(1 + 40.3 * i, 1 + 2 * i * MSS, 2).ack(41 + 40.3 * i, 1 + 2 * (i + 1) * MSS)
    return talk


@pytest.mark.parametrize(("back_ms", "place"), [(0, "sender"), (20, "middle"), (39.9, "receiver")])
def test_the_place_of_a_capture_is_estimated(back_ms, place):
    quality = moved(conversation(), back_ms).flow().quality()
    assert quality["taken_at"] == place
    assert quality["sender_side_us"] == pytest.approx(back_ms * 1000, abs=350)  # the sender answers after 0.3 ms


@pytest.mark.parametrize("back_ms", [20, 39.9])
def test_rtts_are_the_senders_wherever_the_capture_was_taken(back_ms):
    flow = moved(conversation(), back_ms).flow()
    there = conversation().flow()
    assert flow.facts["handshake_rtt_us"] == pytest.approx(there.facts["handshake_rtt_us"], abs=1000)
    assert flow.rtt["rtt_us"].to_numpy() == pytest.approx(there.rtt["rtt_us"].to_numpy(), abs=1000)
    assert any("times are estimates" in warning for warning in flow.row["warnings"])


def test_a_reset_without_a_time_stamp_is_sent_when_it_was_captured():
    """Linux resets a connection without the option: its TSval is none, not the instant at which the clock was 0."""
    talk = conversation()
    end_ms = 1700.0
    talk._row(end_ms, 0, RST, ISN + 1 + 80 * MSS, 0, 0)
    talk.rows[-1] |= {"tsval": 0, "options": 0}
    capture = moved(talk, 39.9).capture()
    time_ns, rows, _ = capture.seen_by_sender(0)
    assert (np.diff(time_ns) >= 0).all()
    assert rows[-1] == len(capture.packets) - 1
    assert time_ns[-1] - time_ns[0] == pytest.approx((end_ms + 40) * 1e6, abs=1e6)


def test_what_a_capture_elsewhere_computes_is_an_estimate():
    words = moved(conversation(), 39.9).flow().events.confidence
    assert {words[name] for name in ("time_ns", "srtt_us8", "lost_out", "ca_state")} == {"estimated"}
    assert words["ack"] == words["snd_una"] == "observed"


def test_the_shipped_recordings_were_taken_at_the_sender():
    for name in datasets.catalogue():
        assert read(datasets.path(name, "sender.pcap.zst")).flow(0).quality()["taken_at"] == "sender"


@pytest.fixture(scope="module")
def both():
    folder = datasets.path("loss_cubic_1pct")
    return read(folder / "sender.pcap.zst").flow(0), read(folder / "receiver.pcap.zst").flow(0)


def test_joined_captures_show_exactly_the_packets_that_the_emulator_dropped(both):
    segments, acks = both[0].join(both[1])
    text = zstandard.ZstdDecompressor().stream_reader(datasets.path("loss_cubic_1pct", "drops.csv.zst").read_bytes())
    dropped = [int(row["tcp_seq"]) for row in csv.DictReader(io.TextIOWrapper(text))]
    assert sorted(segments["seq"][segments["lost"]]) == sorted(dropped)
    assert not acks["lost"].any()


def test_a_loss_before_anything_else_arrived_is_seen():
    """The first segment is lost; that the handshake is in both captures shows that both were running."""
    talk = Conversation().data(1, 1).data(1.2, 1 + MSS).ack(41.2, 1, [(1 + MSS, 1 + 2 * MSS)])
    talk.data(41.5, 1).ack(81.5, 1 + 2 * MSS)
    for i, row in enumerate(talk.rows):
        row["ip_id"] = i
    there = Conversation()
    there.rows = [dict(row) for i, row in enumerate(talk.rows) if i != 3]
    there.sacks = talk.sacks
    segments, acks = talk.flow().join(moved(there, 39).flow())
    assert segments["lost"].tolist() == [True, False, False]
    assert not acks["lost"].any()


def test_one_way_delays_add_up_to_the_path(both):
    segments, acks = both[0].join(both[1])
    assert segments["delay_us"].min() + acks["delay_us"].min() == pytest.approx(40_300, abs=300)  # 40 ms + 1500 B
    assert abs(segments.attrs["clock_offset_us"]) < 300  # one machine, one clock


def test_a_receivers_capture_alone_tells_the_senders_recovery(both):
    here, there = (flow.events.rows for flow in both)
    entries = [np.sum((rows["event"] == 3) & (rows["arg"] == 3)) for rows in (here, there)]
    assert abs(int(entries[0]) - int(entries[1])) <= 2


def test_different_connections_do_not_join(both):
    with pytest.raises(ArgumentError, match="not the same connection"):
        both[0].join(Conversation().data(1, 1).ack(41, 1 + MSS).flow())


def mid_flow(back_ms=0.0, timestamps=True, echo=True, rtt_ms=40.0, count=40):
    """Data and ACKs without a handshake, whose data echo at once or not at all what the receiver stamped."""
    talk = Conversation(rtt_ms, handshake=False, timestamps=timestamps)
    for i in range(count):
        ms = 1 + (rtt_ms + 0.1) * i
        talk.data(ms, 1 + 2 * i * MSS, 2).ack(ms + rtt_ms, 1 + 2 * (i + 1) * MSS)
    for row in talk.rows:
        if row["direction"] == 0 and echo and timestamps:
            row["tsecr"] = talk._tick((row["time_ns"] - talk.rows[0]["time_ns"]) / 1e6 + 1 - rtt_ms - 0.1)
    return moved(talk, back_ms)


def test_a_capture_at_the_receiver_shows_the_senders_rtt_and_what_it_sent_again():
    folder = datasets.path("loss_cubic_1pct")
    sender, receiver = (read(folder / f"{where}.pcap.zst").flow(0) for where in ("sender", "receiver"))
    assert receiver.taken_at == "receiver"
    assert receiver.quality()["taken_at_confidence"] == "measured"
    for name in ("rtt_min_us", "rtt_median_us"):
        assert receiver.row[name] == pytest.approx(sender.row[name], rel=0.02)
    assert receiver.row["retransmitted_segments"] == sender.row["retransmitted_segments"] > 0


def test_without_a_handshake_or_an_echo_nothing_tells_where_a_capture_was_taken():
    flow = mid_flow(rtt_ms=0.4, timestamps=False).flow()
    quality = flow.quality()
    assert (quality["taken_at"], quality["taken_at_confidence"]) == ("unknown", "none")
    assert any("cannot be determined" in warning for warning in quality["warnings"])
    found = diagnose(flow)
    assert found.cause == "unknown"
    assert "Where it was captured cannot be determined" in found.verdict


@pytest.mark.parametrize("first", [1, 3_000_000_000])
def test_stamps_tell_the_place_however_large_they_are(first):
    talk = mid_flow(39.9)
    for row in talk.rows:
        row["tsval"], row["tsecr"] = row["tsval"] + first, row["tsecr"] + first
    quality = talk.flow().quality()
    assert (quality["taken_at"], quality["taken_at_confidence"]) == ("receiver", "measured")


def test_a_receiver_far_away_lets_a_capture_without_an_echo_pass_for_the_senders():
    quality = mid_flow(timestamps=False).flow().quality()
    assert (quality["taken_at"], quality["taken_at_confidence"]) == ("sender", "assumed")


def test_a_time_stamp_that_does_not_come_back_tells_that_the_receiver_is_near():
    flow = mid_flow(39.99, echo=False, count=3).flow()
    quality = flow.quality()
    assert (quality["taken_at"], quality["taken_at_confidence"]) == ("receiver", "likely")
    assert diagnose(flow).cause == "unknown"
    assert "cannot tell what happens in RTTs" in diagnose(flow).verdict


def test_a_capture_that_ends_before_the_acknowledgements_does_not_ask_for_the_other_direction():
    talk = Conversation(handshake=False).ack(0.0, 1).data(1.0, 1, 2).ack(1.5, 1)
    talk.rows = [row for row in talk.rows if row["time_ns"] < talk.rows[-1]["time_ns"]]
    with pytest.raises(StreamError, match="no acknowledgement of its data was captured"):
        _ = talk.flow().events
