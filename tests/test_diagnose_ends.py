"""What the ends of a connection do: pacing limits, send buffers, late answers; and what is said of idle flows.

`recordings/pacing_limit` is ours: Linux 6.12 (User Mode Linux), 10 s of CUBIC with an SO_MAX_PACING_RATE of 500,000
bytes/s over 14 Mbit/s and 24 ms; every poll of its counters names the limit.
"""

import io
from dataclasses import replace

import build_corpus
import numpy as np
import pytest

import cctrace as cct
from cctrace.analysis.analyze import analyze
from cctrace.diagnosis.constants import HEAVY_SHARE, LATE_S, UNSURE_CONFIDENCE
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import shares
from cctrace.diagnosis.groups import (
    AckBatches,
    AckCounts,
    GrowingWindow,
    LossBacklogs,
    Losses,
    Queue,
    ReceiverWindow,
)
from cctrace.diagnosis.limits import limits_of
from cctrace.diagnosis.order import verdict_of
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.remedies import with_commands
from cctrace.diagnosis.rules import judge
from cctrace.flows.capture import Capture
from cctrace.io.captures.packets import OPT_SACK
from cctrace.sim.capture import packets
from tests.conversation import ISN, MSS, SYN, Conversation
from tests.places import RECORDINGS
from tests.test_diagnose import polled as polls_of

RECORDING = RECORDINGS / "pacing_limit"
LINK = {"rate": "16Mbit", "rtt": "30ms", "buffer": "2bdp"}


@pytest.fixture(scope="module")
def recorded():
    """The flow without its counters, and these."""
    return cct.read(RECORDING / "sender.pcap.zst").flow(0), cct.read(RECORDING / "tcpinfo.csv.zst")


def simulated(path=None, duration="5s", **flow):
    sender = cct.Sender(**{"cc": "cubic"} | flow)
    return cct.simulate(cct.Path(**LINK | (path or {})), sender, duration, seed=2, packets=True).capture().flow(0)


def polled(**columns):
    """Return a flow of 101 polls every 100 ms, 100 kB acknowledged in each."""
    return polls_of(tcpi_busy_time=np.arange(101) * 10**5, **{name: [value] * 101 for name, value in columns.items()})


# --- a limit of the pacing rate --------------------------------------------------------------------------------------
def test_a_pacing_limit_that_the_kernel_names_is_the_verdict_with_its_rate(recorded):
    flow, counters = recorded
    first = diagnose(flow.attach(counters), "cubic").verdicts[0]
    assert first.name == "pacing_limited"
    assert first.evidence["limit_bps"] == 4e6
    assert "4 Mbit/s" in first.text
    assert "SO_MAX_PACING_RATE" in first.text
    assert first.confidence > 0.9


def test_a_pacing_limit_shows_in_the_sends_alone_with_less_confidence(recorded):
    flow, counters = recorded
    first, told = diagnose(flow).verdicts[0], diagnose(flow.attach(counters)).verdicts[0]
    assert first.name == "pacing_limited"
    assert first.evidence["limit_bps"] == pytest.approx(4e6, rel=0.06)  # on the wire: with 66 of 1514 bytes of headers
    assert first.confidence < told.confidence


def test_counters_alone_tell_the_pacing_limit(recorded):
    _, counters = recorded
    found = diagnose(counters.flow())
    assert found.cause == "pacing_limited"
    assert found.figures["limit_bps"] == 4e6


def test_a_limit_that_is_not_reached_limits_nothing():
    reached = polled(tcpi_pacing_rate=10**6, tcpi_max_pacing_rate=10**6)
    assert diagnose(reached).cause == "pacing_limited"
    assert diagnose(polled(tcpi_pacing_rate=10**6, tcpi_max_pacing_rate=2**40)).cause != "pacing_limited"
    idle = polled(tcpi_pacing_rate=10**7, tcpi_max_pacing_rate=10**7)  # at its limit, but hardly sending
    assert diagnose(idle).cause != "pacing_limited"


def test_one_look_of_ss_tells_the_pacing_limit():
    words = "rtt:40/2 mss:1448 cwnd:60 bytes_acked:10000000 unacked:16 data_segs_out:7000 delivery_rate 3.98Mbps "
    text = f"ESTAB 0 90000 10.0.0.1:4000 10.0.0.2:80\n\t cubic {words} pacing_rate 4Mbps/4Mbps busy:20000ms minrtt:39\n"
    found = diagnose(cct.read(io.BytesIO(text.encode())).flow())
    assert found.cause == "pacing_limited"
    assert "4 Mbit/s" in found.verdict


@pytest.mark.parametrize("cc", ["bbr2022", "reno"])
def test_a_pacing_limit_shows_beside_random_losses(cc):
    path, sender = {"loss": "0.5%"}, {"cc": cc, "ack_every": 2}
    found = {one.name: one for one in diagnose(simulated(path, "8s", **sender, max_pacing_rate="3Mbit")).verdicts}
    assert found["pacing_limited"].evidence["limit_bps"] == pytest.approx(3e6, rel=0.02)
    assert "were lost" in found["pacing_limited"].text
    free = diagnose(simulated(path, "8s", **sender)).verdicts
    assert "pacing_limited" not in [one.name for one in free]


@pytest.mark.parametrize("cc", ["bbr2022", "bbr3"])
def test_a_pacing_limit_shows_beside_a_competitor(cc):
    def found(**limit):
        senders = [cct.Sender(cc, ack_every=2, **limit), cct.Sender("cubic6", start="1s")]
        path = cct.Path(rate="8Mbit", rtt="40ms", buffer="2bdp")
        flow = cct.simulate(path, senders, "10s", seed=3, packets=True).capture().flow(0)
        return {one.name: one.evidence for one in diagnose(flow).verdicts}

    assert found(max_pacing_rate="4Mbit")["pacing_limited"]["limit_bps"] == pytest.approx(4e6, rel=0.02)
    assert set(found()) == {"competition"}


def test_a_piece_of_a_bbr_flow_that_may_lack_its_probes_has_no_pacing_limit(tmp_path):
    build_corpus.write(tmp_path, 32, packets=500)
    pieces = [diagnose(cct.read(file).flow(0)) for file in sorted(tmp_path.glob("*-jitter_bbr_sd2ms.pcap"))]
    assert len(pieces) == 8
    assert not any(one.name == "pacing_limited" for piece in pieces for one in piece.verdicts)


def test_bbr3_that_cruises_evenly_below_its_path_and_probes_has_no_pacing_limit():
    path = cct.Path(rate="25Mbit", rtt="30ms", buffer="1bdp", loss="0.5%")
    flow = cct.simulate(path, ["bbr3"], "10s", seed=3, packets=True).capture().flow(0)
    assert diagnose(flow).cause == "random_loss"


def test_small_writes_that_come_evenly_are_the_applications_and_no_limit_of_pacing():
    talk = Conversation()
    for k in range(400):
        talk.data(5.0 * k, 1 + 1000 * k, size=1000).ack(5.0 * k + 40.0, 1 + 1000 * (k + 1))
    found = diagnose(talk.flow())
    assert found.cause == "application_limited"


def test_a_sender_that_fills_its_path_or_its_window_is_not_paced():
    for flow in (simulated(cc="bbr2022"), simulated(), simulated(rwnd="32kB"), simulated(cc="bbr2022", rwnd="32kB")):
        assert "pacing_limited" not in [verdict.name for verdict in diagnose(flow).verdicts]


def test_a_model_that_paces_at_what_fills_its_receive_window_is_limited_by_the_window():
    path = cct.Path(rate="36.44Mbit", rtt="33.24ms", buffer="1.2bdp", loss="0.5%")
    sender = cct.Sender("bbr3", ack_every=2, rwnd="55kB", fq=True)
    flow = cct.simulate(path, [sender], "20s", seed=3, profile="linux", packets=True).capture().flow(0)
    found = {one.name: one for one in diagnose(flow).verdicts}
    assert "receiver_limited" in found
    assert "the average rate took" in found["receiver_limited"].text
    assert "pacing_limited" not in found


@pytest.mark.parametrize("cc", ["bbr2", "cubic"])
def test_a_link_that_dropped_packets_before_the_capture_spaced_them_and_no_limit_of_the_sender(cc):
    path = cct.Path(rate="25Mbit", rtt="60ms", buffer="1.5bdp")
    sim = cct.simulate(path, cct.Sender(cc, ack_every=2), "8s", packets=True)
    arrived = sim.capture(0, side="receiver").packets
    arrived["tsval"][:], arrived["tsecr"][:] = 0, 0  # without time stamps, a receiver's record shows no RTT under load
    arrived["options"][:] &= 0xFE
    flow = Capture(arrived).flow(0)
    assert flow.taken_at == "receiver"
    assert "pacing_limited" not in {verdict.name for verdict in diagnose(flow).verdicts}


def test_counters_of_a_flow_too_short_to_show_a_bottleneck_hide_nothing_that_its_packets_tell():
    flow = Conversation().data(0, 1, 2).ack(40, 1 + 2 * MSS).flow()
    lines = ["flow_id,time_ns,tcpi_bytes_acked,tcpi_pacing_rate,tcpi_max_pacing_rate"]
    start_ns = int(flow.events["time_ns"][0])
    lines += [f"0,{start_ns + k * 10**7},{2 * MSS * (k > 7)},{10**6},{2**64 - 1}" for k in range(9)]
    told = diagnose(flow.attach(cct.read(io.BytesIO("\n".join(lines).encode()))))
    assert (told.cause, told.lacks) == (diagnose(flow).cause, [])
    assert told.cause == "slow_start_only"


def test_short_segments_are_no_window_that_something_holds():
    """200 bytes written every 10 ms: less than a segment waits until all before it is acknowledged, as Linux does."""
    talk, at = Conversation(rtt_ms=50.0), 1
    for begin in range(0, 204 * 60, 204):
        talk.data(begin, at, size=1000).ack(begin + 50.1, at + 1000).data(begin + 50.1, at + 1000, size=1000)
        talk.data(begin + 127, at + 2000).ack(begin + 154, at + 2000).data(
            begin + 154, at + 2000 + MSS, size=2000 - MSS
        )
        at += 4000
        talk.ack(begin + 203.9, at)
    assert diagnose(talk.flow()).cause == "application_limited"


# --- the send buffer, and answers ------------------------------------------------------------------------------------
def test_the_kernels_account_of_the_send_buffer_outranks_an_inferred_application():
    flow = simulated(app="chunks:size=60kB,every=80ms", duration="6s")
    assert diagnose(flow).cause == "application_limited"
    time_ns, una = flow.events["time_ns"], flow.events["snd_una"]
    lines = ["flow_id,time_ns,tcpi_bytes_acked,tcpi_busy_time,tcpi_sndbuf_limited"]
    for k in range(60):
        at = int(time_ns[0]) + k * 10**8
        acked = int(una[max(int(np.searchsorted(time_ns, at, side="right")) - 1, 0)])
        lines.append(f"0,{at},{acked},{k * 10**5},{k * 9 * 10**4}")
    told = flow.attach(cct.read(io.BytesIO("\n".join(lines).encode())))
    assert diagnose(told).cause == "send_buffer_limited"
    assert "application_limited" not in [verdict.name for verdict in diagnose(told).verdicts]


def answered(late_ms, rounds=40, window=20):
    """A window of segments that each ACK moves on: two at a time, so many ms after it."""
    talk, sent = Conversation(rtt_ms=400.0).data(0.0, 1, segments=window), window
    for k in range(rounds * window // 2):
        at = 400.0 + k // 10 * 400.0 + k % 10 * 36.0
        talk.ack(at, 1 + 2 * MSS * (k + 1))
        talk.data(at + late_ms, 1 + MSS * sent).data(at + late_ms + 1.2, 1 + MSS * (sent + 1))
        sent += 2
    return talk.flow()


@pytest.mark.parametrize("late_ms", [0.05, 3.0])
def test_what_every_ack_lets_out_is_clocked_by_acks_however_late_the_sender_answers(late_ms):
    record = Record(answered(late_ms))
    share = shares(limits_of(record))
    assert share.get("application", 0.0) < 0.05
    assert share["cwnd"] > 0.5
    assert (record.late_s > LATE_S) == (late_ms > 1)
    assert "application_limited" not in [verdict.name for verdict in diagnose(answered(late_ms)).verdicts]


# --- what is sent again ----------------------------------------------------------------------------------------------
def test_heavy_retransmission_gets_a_word_where_something_else_comes_first():
    path = {"rate": "40Mbit", "policer": ("5Mbit", "30kB")}
    found = diagnose(simulated(path, cc="bbr2016"), "bbr")
    assert found.cause == "policer"
    (heavy,) = [verdict for verdict in found.verdicts if verdict.name == "heavy_retransmission"]
    assert heavy.evidence["retransmitted_share"] > HEAVY_SHARE
    assert f"{100 * heavy.evidence['retransmitted_share']:.3g} %" in heavy.text
    seldom = diagnose(simulated({"loss": "0.5%"}))
    assert "heavy_retransmission" not in [verdict.name for verdict in seldom.verdicts]


# --- idle flows ------------------------------------------------------------------------------------------------------
def test_flows_that_hardly_use_a_link_do_not_compete_for_it():
    small = cct.Sender(cc="cubic", app="chunks:size=6kB,every=200ms")
    path = cct.Path(rate="100Mbit", rtt="10ms", buffer="1bdp", jitter="normal:sd=1ms")
    sim = cct.simulate(path, [small, small], "8s", seed=3, packets=True)
    for k in (0, 1):
        names = [verdict.name for verdict in diagnose(sim.capture().flow(k)).verdicts]
        assert not {"competition", "collapse", "path_full"} & set(names)


def test_shares_are_of_what_the_flows_got_while_both_were_up():
    late = cct.Sender(cc="cubic", start="4s")
    sim = cct.simulate(cct.Path(**LINK), [cct.Sender(cc="cubic"), late], "10s", seed=2, packets=True)
    capture = sim.capture()
    found = [diagnose(capture.flow(k)).verdicts[0] for k in range(2)]
    assert [one.name for one in found] == ["competition"] * 2
    assert sum(one.evidence["share"] for one in found) == pytest.approx(1.0, abs=0.02)
    assert all("got together" in one.text for one in found)


def test_no_collapse_is_told_or_forecast_of_a_sender_that_is_not_bbr(tmp_path):
    flow = simulated({"jitter": "normal:sd=10ms,per=slot:5ms", "buffer": "8bdp"}, cc="cubic")
    assert "collapse" not in [verdict.name for verdict in diagnose(flow, "cubic").verdicts]
    cct.simulate(cct.Path(**LINK), "cubic", "3s", seed=2, packets=True).to_pcap(tmp_path / "cubic.pcap")
    assert analyze([tmp_path / "cubic.pcap"])[0].collapse is None


def test_what_losses_delay_and_what_follows_the_fin_is_not_the_applications():
    talk = Conversation().data(0.0, 1, segments=10)
    for k in range(2, 11):
        talk.ack(40.0 + k / 10, 1, [(1 + MSS, 1 + k * MSS)])
    talk.data(40.6, 1).ack(81.0, 1 + 10 * MSS).data(82.0, 1 + 10 * MSS, size=0, fin=True).ack(122.0, 2 + 10 * MSS)
    talk.ack(500.0, 2 + 10 * MSS)  # the other end is slow to close
    flow = talk.flow()
    share = shares(limits_of(Record(flow)))
    assert share["recovery"] > 0.05
    assert share.get("application", 0.0) < 0.02
    assert "application_limited" not in diagnose(flow).causes


# --- numbers ---------------------------------------------------------------------------------------------------------
def test_a_clock_too_coarse_for_the_rtt_gives_no_rtt_of_nothing():
    talk = Conversation(rtt_ms=0.0, wscale=0, timestamps=False).data(0, 1, 10)
    for k in range(200):
        talk.ack(10.0 * (k + 1), 1 + 2 * (k + 1) * MSS, window=10 * MSS).data(10.0 * (k + 1), 1 + (10 + 2 * k) * MSS, 2)
    found = diagnose(talk.flow())
    assert not any(" 0 ns" in verdict.text or "RTT of 0" in verdict.text for verdict in found.verdicts)


def test_a_base_rtt_is_no_fraction_of_the_least_rtt():
    """A token bucket that lets bursts through sooner than its rate leaves its model less than the path takes."""
    record = Record(simulated({"rate": "1Gbit", "rtt": "60us", "shaper": ("50Mbit", "60kB"), "buffer": "1MB"}))
    assert record.path.require_bottleneck.base_us >= 0.5 * record.path.least_rtt_us


def test_flows_served_in_turn_are_told_so_though_the_delays_of_one_show_no_queue():
    ends = []
    for k, jitter in enumerate(({"jitter": "normal:sd=8ms,per=slot:5ms"}, {})):  # of the first no queue explains them
        path = cct.Path(rate="6Mbit", rtt="30ms", buffer="4bdp", **jitter)
        ends += cct.simulate(path, ["bbr2016", "cubic"][k], "8s", seed=5 + 1000 * k, packets=True).ends
    capture = Capture(packets(ends, "sender", None))
    assert [diagnose(capture.flow(k)).cause for k in (0, 1)] == ["fair_queueing"] * 2


def test_a_lost_syn_is_a_stall_that_its_timer_ended():
    talk = Conversation()
    talk._row(-1040.0, 0, SYN, ISN, 0, 0, options=4 | 8 | 16)
    talk.rows.insert(0, talk.rows.pop())
    for k in range(4):
        talk.data(40.0 * k, 1 + 10 * k * MSS, segments=10).ack(40.0 * (k + 1), 1 + 10 * (k + 1) * MSS)
    found = cct.diagnose(talk.flow())
    assert found.limits[0].name == "rto_stall"
    assert found.limits[0].end_s == pytest.approx(1.0, abs=0.01)
    assert "stalls" in found.causes
    assert [one.text for one in found.events if one.name == "timeout"] == [
        "At 1.0 s the SYN was sent again: the connection was not open."
    ]


def late_read(sacked=False):
    """Return a flow of 5 s whose receiver announces a third of its window from 2 s on, perhaps with SACK blocks."""
    sender = cct.Sender("cubic", rwnd="120kB")
    found = cct.simulate(cct.Path(**LINK), sender, "5s", seed=2, packets=True).capture().packets
    time_ns, theirs = found["time_ns"], found["direction"] == 1 - found["direction"][0]
    late = theirs & (time_ns > time_ns[0] + 2_000_000_000)
    found.columns = dict(found.columns) | {"window": np.where(late, found["window"] // 3, found["window"])}
    if sacked:
        found.columns["options"] = np.where(late, found["options"] | OPT_SACK, found["options"])
    return Capture(found).flow(0)


@pytest.mark.parametrize(("sacked", "share"), [(False, 0.6), (True, 0.0)])
def test_data_wait_for_a_reader_where_its_window_is_smaller_than_before(sacked, share):
    assert Record(late_read(sacked)).unread_share == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(("unread_share", "form"), [(0.9, "slow"), (0.2, "")])
def test_a_receiver_that_reads_slowly_is_the_limit_and_its_late_acks_are_no_other_cause(unread_share, form):
    window = ReceiverWindow(receiver_share=0.3 if form else 0.9, window_bytes=5e4, unread_share=unread_share)
    acks = {"ack_counts": AckCounts(18.0, 20.0, 1.0, False), "batches": AckBatches(1e4, 15.0, 4e4)}
    found = judge(Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, window=window, **acks))
    assert [one.name for one in found] == ["receiver_limited"] + ["ack_aggregation"] * (not form)
    assert found[0].form == form
    assert ("it held unread data for 90 % of the time" in verdict_of(found[0]).text) == bool(form)
    (said,) = with_commands([verdict_of(found[0])], late_read())
    assert ("--rwnd x4" in said.advice) == (not form)


def test_an_unread_window_that_held_nothing_back_is_no_limit():
    window = ReceiverWindow(receiver_share=0.02, unread_share=0.9)
    assert [one.name for one in judge(Facts(PACKETS, 10.0, 1e6, rtt_us=40e3, window=window))] == ["unknown"]


MET = {
    "overflow_losses": 0, "overflow_episodes": 0, "other_losses": 3, "other_episodes": 3, "other_share": 3e-4,
    "share_low": 1e-4, "share_high": 9e-4, "rtt_rank": 0.6, "rtt_episodes": 3, "buffer_bytes": 5e4, "buffer_bdp": 0.1,
    "is_managed_length": False, "early_share": 0.0, "avoids_short": False, "is_gathered": lambda: False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("waits_us", "chance", "cause"),
    [
        ((20.0, 100.0, 100.0, 200.0), 1.0, "random_loss"),
        ((20.0, 40.0, 80.0, 2000.0), 1e-3, "random_loss"),  # never an empty queue, but one with room
        ((1990.0, 1990.0, 1990.0, 2000.0), 1e-4, "shallow_buffer"),
    ],
)
def test_three_losses_of_a_flow_that_nothing_else_limits_are_told_with_little_confidence(waits_us, chance, cause):
    met = LossBacklogs(**MET, waits_us=waits_us, chance=chance)
    lost = Losses(3, 9e3, 3e-4, (1.0, 6.0), 0.6, 3, 1e3, 6e4, is_gathered=lambda: False, backlogs=met)
    facts = Facts(PACKETS, 10.0, 1e7, rtt_us=6e4, losses=lost)
    assert [(one.name, one.confidence) for one in judge(facts)] == [(cause, UNSURE_CONFIDENCE)]
    assert verdict_of(judge(facts)[0]).text.endswith(".")
    assert [one.name for one in judge(replace(facts, is_model_based=True))] == ["unknown"]  # BBR withstands them
    full = Queue(120e3, 60e3, 60e3, queue_us=20e3)
    assert [one.name for one in judge(replace(facts, queue=full))] == ["path_full"]
    policed = lost._replace(backlogs=met._replace(waits_us=(1400.0, 1500.0, 1700.0, 2000.0), chance=1e-4))
    assert [one.name for one in judge(replace(facts, losses=policed))] == ["unknown"]  # or managed


@pytest.mark.parametrize(("saw_start", "said"), [(True, "slow start ended at 0.3 s"), (False, "in flight it grew by")])
def test_where_slow_start_ended_is_not_told_of_a_capture_from_mid_connection(saw_start, said):
    growing = GrowingWindow(0.3, 0, 1e5, 3e5, 1.0, 0.9, saw_start=saw_start)
    (found,) = judge(Facts(PACKETS, 10.0, 1e7, rtt_us=6e4, growing_window=growing))
    assert said in verdict_of(found).text
    assert ("slow start" in verdict_of(found).text) == saw_start
