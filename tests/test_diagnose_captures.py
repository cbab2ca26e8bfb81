"""Captures that mislead: a queue before the capture, a clock that is set, copies, packets that were not captured."""

import gc
import weakref

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.packets.losses import backlogs_in, own_queue
from cctrace.diagnosis.record import Record
from cctrace.flows.capture import Capture
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS
from cctrace.path.constants import COARSE_PACKETS
from cctrace.path.stamps import clock_set, held_us, stamps_of
from cctrace.path.transmissions import LOST, transmissions
from tests.conversation import MSS, Conversation

UNSURE = 0.4


def packets(seconds=5, **path):
    path = {"rate": "20Mbit", "rtt": "40ms", "buffer": "1.5bdp"} | path
    sim = cct.simulate(cct.Path(**path), cct.Sender(cc="cubic"), f"{seconds}s", seed=2, packets=True)
    return sim.capture().packets


def changed(found, time_ns):
    found.columns["time_ns"] = time_ns
    return Capture(found)


def shaped(found, rate_bps):
    """Time what was sent when the bottleneck has let it go, as behind a shaper on the captured interface."""
    time, data = found.columns["time_ns"].astype(np.int64), found["payload"] > 0
    service = ((found["payload"][data] + 66) * 8e9 / rate_bps).astype(np.int64)
    total = np.cumsum(service)
    left = time.copy()
    left[data] = total + np.maximum.accumulate(time[data] - (total - service)) - service
    found.columns["time_ns"] = left
    return Capture(found.sorted_by_time())


def test_a_shaper_before_the_capture_is_told_and_nothing_else_is_sure():
    flow = shaped(packets(rtt="0.3ms", buffer="200000B"), 20e6).flow(0)
    found = diagnose(flow)
    assert found.cause == "capture_artefact"
    assert found.verdicts[0].evidence["held_us"] > 5_000
    assert "a queue before that point" in found.verdict
    assert all(verdict.confidence <= UNSURE for verdict in found.verdicts[1:])


def test_a_queue_on_the_path_is_no_queue_before_the_capture():
    flow = Capture(packets()).flow(0)
    assert held_us(stamps_of(flow)) < 2000
    assert "capture_artefact" not in [verdict.name for verdict in diagnose(flow).verdicts]


def test_clocks_that_drift_apart_hold_nothing_back():
    found = packets()
    time = found.columns["time_ns"].astype(np.int64)
    flow = changed(found, time[0] + ((time - time[0]) * 1.0005).astype(np.int64)).flow(0)
    assert held_us(stamps_of(flow)) < 2000
    assert clock_set(flow) is None


@pytest.mark.parametrize("by_ms", [-300, -20, 50, 2000])
def test_a_clock_that_is_set_is_told_with_its_time(by_ms):
    found = packets()
    time = found.columns["time_ns"].astype(np.int64)
    at = int(time[0] + 2_200_000_000)
    flow = changed(found, time + np.where(time > at, by_ms * 1_000_000, 0)).flow(0)
    found = diagnose(flow)
    assert found.cause == "capture_artefact"
    assert found.verdicts[0].evidence["clock_set_us"] == pytest.approx(by_ms * 1000, abs=4000)
    assert found.verdicts[0].evidence["at_s"] == pytest.approx(2.2, abs=0.1)
    assert all(verdict.confidence <= UNSURE for verdict in found.verdicts[1:])


def in_order(found, rows):
    """Put the packets into another order, as in a file whose records are not in the order of their times."""
    found.columns = {name: column[rows] for name, column in found.columns.items()}
    return found


def shuffled_in_eights(found):
    return np.lexsort((np.random.default_rng(1).random(len(found)), np.arange(len(found)) // 8))


def shuffled_whole(found):
    return np.random.default_rng(1).permutation(len(found))


def one_direction_after_the_other(found):
    return np.argsort(found["direction"], kind="stable")


@pytest.mark.parametrize("order", [shuffled_in_eights, shuffled_whole, one_direction_after_the_other])
def test_records_out_of_the_order_of_their_times_are_told_first_and_sorting_them_is_the_remedy(order):
    found = packets()
    found.columns["time_ns"] = found["time_ns"].astype(np.int64) + np.arange(len(found))  # no two at the same time
    straight = diagnose(Capture(found).flow(0))
    found = in_order(found, order(found))
    diagnosis = diagnose(Capture(found).flow(0))
    assert "not in the order of their times" in diagnosis.verdict
    assert "reordercap" in diagnosis.verdict
    assert all(verdict.confidence <= UNSURE for verdict in diagnosis.verdicts[1:])
    assert diagnose(Capture(found.sorted_by_time()).flow(0)).verdict == straight.verdict


def test_records_that_step_back_by_microseconds_in_order_of_sequence_mislead_nobody():
    """Two rings fed one capture: their stamps are out of order by less than a segment takes."""
    found = packets()
    later = np.where(found["direction"] == 0, 20_000, 0)
    assert "capture_artefact" not in diagnose(changed(found, found["time_ns"].astype(np.int64) + later).flow(0)).causes


def test_a_pause_of_the_application_does_not_set_the_clock():
    sim = cct.simulate(
        cct.Path(rate="20Mbit", rtt="40ms"),
        cct.Sender(cc="cubic", app="chunks:size=200kB,every=500ms"),
        "5s",
        seed=2,
        packets=True,
    )
    assert clock_set(sim.capture().flow(0)) is None


def test_time_stamps_of_an_unknown_tick_do_not_set_the_clock():
    """Ticks of 4 ms cannot be told from the usual 1 ms within a second: the stamps lag ever more."""
    found = packets(seconds=1, rate="200Mbit", rtt="100ms")
    for column in ("tsval", "tsecr"):
        found.columns[column] = found.columns[column] // 4
    assert clock_set(Capture(found).flow(0)) is None


def test_packets_that_were_captured_twice_lead_to_the_verdict_of_the_single_ones():
    found = packets()
    once = diagnose(Capture(packets()).flow(0))
    row = np.repeat(np.arange(len(found)), 2)
    copy = np.arange(len(row)) % 2 == 1
    found.columns = {name: column[row] for name, column in found.columns.items()}
    found.columns["options"] = found.columns["options"] | np.where(copy, OPT_COPY, 0).astype(
        found.columns["options"].dtype
    )
    found.columns["time_ns"] = found.columns["time_ns"].astype(np.int64) + np.where(copy, 1000, 0)
    twice = diagnose(Capture(found).flow(0))
    assert [v.name for v in twice.verdicts] == [v.name for v in once.verdicts]
    assert twice.figures == pytest.approx(once.figures, rel=0.02)


@pytest.mark.parametrize("begin_s", [0, 2])
def test_both_ends_captures_in_one_file_are_no_retransmissions(begin_s):
    """Each packet again 20 ms later, as at the other end: from the start, and in mid-connection without its SYN."""
    found, late_ns = packets(), 20_000_000
    time = found["time_ns"].astype(np.int64)
    found.columns["ip_id"] = (np.arange(1, len(found) + 1) & 0xFFFF).astype(found.columns["ip_id"].dtype)
    order = np.argsort(np.concatenate((time, time + late_ns)), kind="stable")
    order = order[order % len(time) >= np.searchsorted(time, time[0] + begin_s * 10**9)]
    found.columns = {name: np.concatenate((column, column))[order] for name, column in found.columns.items()}
    found.columns["time_ns"] = np.concatenate((time, time + late_ns))[order]
    first = diagnose(Capture(found).flow(0)).verdicts[0]
    assert first.name == "capture_artefact"
    assert first.evidence["repeated_share"] == pytest.approx(0.5, abs=0.02)


def test_a_capture_that_lacks_packets_is_sure_of_nothing_else():
    found = packets()
    rng = np.random.default_rng(3)
    keep = np.flatnonzero(rng.random(len(found)) > 0.04)
    found.columns = {name: column[keep] for name, column in found.columns.items()}
    verdicts = diagnose(Capture(found).flow(0)).verdicts
    assert verdicts[0].name == "capture_artefact"
    assert verdicts[0].evidence["uncaptured_share"] == pytest.approx(0.04, abs=0.015)
    assert all(verdict.confidence <= UNSURE for verdict in verdicts[1:])


def test_a_base_rtt_is_never_less_than_nothing():
    """A LAN of microseconds behind a token bucket: a queue of its rate alone would have let packets come too late."""
    found = packets(rtt="0.2ms", buffer="80000B", shaper=("10Mbit", "60000B"), rate="200Mbit")
    record = Record(Capture(found).flow(0))
    assert record.path.require_bottleneck.base_us >= record.path.least_rtt_us / 2
    assert record.path.uncongested[0] >= record.path.least_rtt_us / 2
    assert diagnose(Capture(found).flow(0)).cause != "shallow_buffer"


def test_transmissions_are_computed_once_per_flow_and_go_with_their_capture():
    capture = Capture(packets(2))
    table = transmissions(capture.flow(0))
    assert transmissions(capture.flow(0)) is table
    assert transmissions(Capture(packets(2)).flow(0)) is not table
    gone = weakref.ref(capture)
    del capture
    gc.collect()
    assert gone() is None


def at_the_receiver(found, way_ns=20_000_000):
    """Return a sender's packets as the receiver sees them: a way later (its ACKs sooner), without what was lost."""
    flow, columns = Capture(found).flow(0), found.columns
    table, base = transmissions(flow), int(flow.capture.connections.sides[0, 0]["origin"])
    gone = set(zip(*(column[table.state == LOST].tolist() for column in (table.sent_ns, table.seq)), strict=True))
    forward = columns["direction"] == 0
    seq = columns["seq"].astype(np.int64) - base
    at = zip(columns["time_ns"].tolist(), np.where(columns["payload"] > 0, seq, 0).tolist(), strict=True)
    kept = ~(forward & np.array([one in gone for one in at]))
    time_ns = columns["time_ns"] + np.where(forward, way_ns, -way_ns)
    order = np.flatnonzero(kept)[np.argsort(time_ns[kept], kind="stable")]
    found.columns = {name: column[order] for name, column in (columns | {"time_ns": time_ns}).items()}
    return Capture(found).flow(0)


def test_what_a_router_dropped_is_not_lacking_in_the_receivers_capture():
    flow = at_the_receiver(packets(3, loss="1.5%"))
    assert flow.taken_at == "receiver"
    assert flow.quality()["uncaptured_segments"] == 0
    found = {verdict.name: verdict for verdict in diagnose(flow).verdicts}
    assert not {"capture_artefact", "application_limited"} & set(found)
    assert found["lost_before_capture"].evidence["retransmitted_share"] == pytest.approx(0.015, abs=0.01)


@pytest.mark.parametrize("cc", ["cubic", "bbr2022"])
def test_an_applications_pauses_show_at_the_receiver_too(cc):
    sender = cct.Sender(cc=cc, app="chunks:size=60kB,every=120ms")
    sim = cct.simulate(cct.Path(rate="12Mbit", rtt="40ms", buffer="1.5bdp"), sender, "5s", seed=3, packets=True)
    flow = sim.capture(side="receiver").flow(0)
    assert flow.taken_at == "receiver"
    assert diagnose(flow).cause == "application_limited"


def test_the_receivers_capture_shows_the_queue_of_the_senders():
    sender = cct.Sender(cc="bbr2022")
    sim = cct.simulate(cct.Path(rate="12Mbit", rtt="40ms", buffer="3bdp"), sender, "8s", seed=3, packets=True)
    queues = [
        diagnose(sim.capture(side=side).flow(0)).verdicts[0].evidence["queue_us"] for side in ("sender", "receiver")
    ]
    assert queues[0] > 1000
    assert queues[1] == pytest.approx(queues[0], rel=0.1)


def test_what_was_in_flight_when_a_capture_began_is_not_lacking():
    talk = Conversation(handshake=False)
    talk.data(0.0, 1).data(0.1, 1 + 30 * MSS)  # a retransmission, then new data: 29 segments are in flight between
    for k in range(30):
        talk.ack(40.0 + k, 1 + (k + 1) * MSS).data(40.1 + k, 1 + (31 + k) * MSS)
    for k in range(30, 60):
        talk.ack(40.0 + k, 1 + (k + 1) * MSS)
    flow = talk.flow()
    assert not flow.facts["complete"]
    assert flow.quality()["uncaptured_segments"] == 0
    later = Conversation(handshake=False)
    for k in range(60):
        later.ack(40.0 + k, 1 + (k + 1) * MSS)
        if not 50 <= k < 53:
            later.data(40.1 + k, 1 + (31 + k) * MSS)
    for k in range(60, 91):
        later.ack(40.0 + k, 1 + (k + 1) * MSS)
    assert later.flow().quality()["uncaptured_segments"] == 3


def test_the_drops_of_a_long_flow_met_one_length_of_queue_packet_by_packet():
    path = cct.Path(rate="40Mbit", rtt="40ms", buffer="2bdp")
    flow = cct.simulate(path, ["cubic6"], "15s", seed=1, packets=True).capture().flow(0)
    record = Record(flow, "cubic")
    assert len(record.table) > COARSE_PACKETS  # neighbours are merged where the bottleneck is inferred
    assert np.isin(record.path.sent.sent_us, record.path.sent_us).all()  # to the last bit
    dropped = backlogs_in(record, own_queue(record))
    assert np.ptp(dropped.backlog_bytes[dropped.overflow]) < 1514
    assert not (dropped.lost & ~dropped.overflow).any()


@pytest.mark.parametrize(("by_s", "sign"), [(3600, "no retransmission timer"), (-3600, "an ACK came before")])
def test_a_clock_that_is_set_is_told_without_time_stamps(by_s, sign):
    found = packets()
    found.columns["options"] = found.columns["options"] & ~np.uint8(OPT_TIMESTAMPS)
    time = found.columns["time_ns"].astype(np.int64)
    at = int(time[0] + 2_200_000_000)
    said = diagnose(changed(found, time + np.where(time > at, by_s * 1_000_000_000, 0)).flow(0))
    assert said.cause == "capture_artefact"
    assert sign in said.verdict
    assert said.verdicts[0].evidence["clock_set_us"] == pytest.approx(by_s * 1e6, rel=0.01)


def test_a_path_that_fails_for_minutes_does_not_set_the_clock():
    """What is in flight is sent again, as the first packet after the silence."""
    talk = Conversation()
    for k in range(40):
        talk.data(100 * k, 1 + k * MSS)
        talk.ack(100 * k + 40, 1 + (k + 1) * MSS)
    talk.data(4000, 1 + 40 * MSS)
    talk.data(204_000, 1 + 40 * MSS)
    talk.ack(204_040, 1 + 41 * MSS)
    assert clock_set(talk.capture().flow(0)) is None


def test_a_clock_that_is_set_for_a_moment_is_told():
    found = packets()
    time = found.columns["time_ns"].astype(np.int64)
    since_s = (time - time[0]) / 1e9
    said = diagnose(changed(found, time + np.where((since_s > 2.2) & (since_s < 2.25), 3600 * 10**9, 0)).flow(0))
    assert said.cause == "capture_artefact"
    assert abs(said.verdicts[0].evidence["clock_set_us"]) == pytest.approx(3600e6, rel=0.01)


@pytest.mark.parametrize(("cc", "begin_ms", "end_ms"), [("bbr2022", 500, 600), ("cubic", 1000, 1060)])
def test_a_flow_captured_from_its_middle_is_not_said_to_be_in_slow_start(cc, begin_ms, end_ms):
    path = cct.Path(rate="100Mbit", rtt="40ms", buffer="8bdp")
    found = cct.simulate(path, cct.Sender(cc=cc), "2s", seed=2, packets=True).capture().packets
    since_ms = (found["time_ns"].astype(np.int64) - int(found["time_ns"][0])) / 1e6
    kept = (since_ms > begin_ms) & (since_ms < end_ms)
    found.columns = {name: column[kept] for name, column in found.columns.items()}
    assert "slow_start_only" not in diagnose(Capture(found).flow(0)).causes
