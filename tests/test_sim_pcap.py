"""A simulated flow as a capture: cctrace and tshark read back what the simulation counted."""

import json
import shutil
import subprocess

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.errors import ArgumentError
from cctrace.schema import EVENT_CODES
from cctrace.sim import capture as pcap

PATH = {"rate": "20Mbit", "rtt": "40ms", "buffer": "1bdp", "reverse": "10ms"}
TAPS_US = 6  # cctrace takes a capture to see segments and ACKs 3 us away from TCP
RUNS = {
    "queue": (PATH, "bbr2022", {}),
    "loss": (PATH | {"loss": "1%"}, "cubic6", {}),
    "delayed ACKs": (PATH | {"loss": "1%"}, "bbr2022", {"ack_every": 2}),
    "reordering": (PATH | {"jitter": "normal:sd=4ms,reorder"}, "cubic6", {}),
    "lost ACKs, marks": (PATH | {"ack_loss": "10%", "ecn_threshold": "60kB"}, "reno", {"ecn": True}),
    "many marks": (PATH | {"rtt": "4ms", "reverse": "1ms", "buffer": "1MB", "ecn_threshold": "9kB"},
                   "bbr2:ecn_enable=1", {"ecn": True, "ack_every": 2}),
    "timeouts": (PATH | {"rate": [(0, "20Mbit"), (1, "0Mbit"), (2, "20Mbit")]}, "cubic6", {}),
}  # fmt: skip


def simulated(name, duration="4s", **options):
    path, cc, flow = RUNS[name]
    return cct.simulate(cct.Path(**path), cc, duration, packets=True, **flow, **options)


@pytest.mark.parametrize("name", RUNS)
def test_the_senders_capture_reads_back_to_the_simulations_numbers(name, tmp_path):
    sim = simulated(name, trace=True)
    file = tmp_path / "sender.pcap"
    packets = sim.to_pcap(file)
    capture = cct.read(file)
    flow, row, said = capture.flow(0), capture.flows.iloc[0], sim.flows.iloc[0]
    assert len(capture.packets) == packets == row.packets
    assert not capture.warnings
    assert row.segments_sent == said.sent
    assert row.retransmitted_segments == said.retransmitted
    events = flow.events
    acks = events.of("on_ack")
    trace = sim.flow(0).columns
    then = np.searchsorted(events["time_ns"][acks], trace["clock_ns"][-1], "right") - 1  # the last ACK it was told of
    last = events.rows[acks[then]]
    assert last["delivered"] == pytest.approx(trace["delivered"][-1], abs=2)
    assert last["lost"] == pytest.approx(trace["lost"][-1], abs=2)
    assert last["delivered_ce"] == pytest.approx(trace["delivered_ce"][-1], abs=2)
    rtts_us = events["rs_rtt_us"][acks]
    assert rtts_us[rtts_us >= 0].mean() == pytest.approx(said.rtt_mean_us, abs=2 * TAPS_US)


def test_the_receivers_capture_holds_what_arrived(tmp_path):
    sim = simulated("lost ACKs, marks")
    sim.to_pcap(tmp_path / "receiver.pcap", "receiver")
    packets, said = cct.read(tmp_path / "receiver.pcap").packets, sim.flows.iloc[0]
    data = packets["payload"] > 0
    arrived = np.count_nonzero(data)
    assert said.sent - said.dropped - said.lost - arrived < 150  # on their way at the end: the path and its queue
    distinct = len(np.unique(packets["seq"][data]))
    assert distinct * 1448 * 8 / 4 == said.goodput_bps
    marked = np.count_nonzero(packets["tos"][data] & 3 == 3)
    assert marked == pytest.approx(said.marked, abs=20)
    assert np.all(packets["ip_len"][data] == 1500)


def test_a_duplicate_is_reported_once_and_disorder_newest_first():
    receiver = pcap._Receiver(list(range(0, 1100, 100)))
    said = []
    for segment in (0, 2, 4, 6, 8, 2, 1):
        receiver.take(0, segment)
        said.append(receiver.acknowledge()[::2])
    block = {n: (1 + 100 * n, 101 + 100 * n) for n in range(9)}
    assert said == [
        (101, []),
        (101, [block[2]]),
        (101, [block[4], block[2]]),
        (101, [block[6], block[4], block[2]]),
        (101, [block[8], block[6], block[4]]),
        (101, [block[2], block[8], block[6]]),
        (301, [block[8], block[6], block[4]]),
    ]


def test_keeping_packets_changes_nothing_and_compiled_runs_keep_the_same(tmp_path):
    runs = [simulated("reordering", "700ms", mode=mode) for mode in ("compiled", "interpreted")]
    plain = cct.simulate(cct.Path(**RUNS["reordering"][0]), "cubic6", "700ms")
    files = [tmp_path / name for name in "ab"]
    for run, file in zip(runs, files, strict=True):
        assert run.flows.equals(plain.flows)
        run.to_pcap(file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_several_flows_are_as_many_connections_and_one_can_be_chosen(tmp_path):
    sim = cct.simulate(cct.Path(**PATH), ["cubic6", "bbr2022", "quic_bbr"], "1s", packets=True)
    with pytest.raises(ArgumentError, match="flow 2 is QUIC"):
        sim.to_pcap(tmp_path / "x.pcap")
    sim.to_pcap(tmp_path / "one.pcap", flow=1)
    one = cct.read(tmp_path / "one.pcap").flows
    assert one.src.tolist() == ["10.0.0.2"]
    assert one.segments_sent[0] == sim.flows.sent[1]
    with pytest.raises(ArgumentError, match="flow=3"):
        sim.to_pcap(tmp_path / "x.pcap", flow=3)
    with pytest.raises(ArgumentError, match="side='both'"):
        sim.to_pcap(tmp_path / "x.pcap", "both")
    with pytest.raises(ArgumentError, match="packets=True"):
        cct.simulate(cct.Path(**PATH), "cubic", "100ms").to_pcap(tmp_path / "x.pcap")


def test_the_command_writes_a_capture(tmp_path, capsys):
    file = tmp_path / "sim.pcap"
    arguments = ["--rate", "10Mbit", "--cc", "cubic,bbr2022", "--duration", "1s", "--json", "--pcap", str(file)]
    assert main(["simulate", *arguments, "--side", "receiver"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["notes"] == []
    assert len(cct.read(file).flows) == 2


@pytest.mark.external
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark: see make check-external")
@pytest.mark.parametrize("name", ["loss", "queue", "delayed ACKs"])
def test_tshark_reads_the_same_packets_retransmissions_and_rtts(name, tmp_path):
    sim = simulated(name, trace=True, rwnd="1448kB")
    file, said = tmp_path / "sender.pcap", sim.flows.iloc[0]
    packets = sim.to_pcap(file)
    names = ["tcp.len", "tcp.analysis.retransmission", "tcp.analysis.out_of_order", "tcp.analysis.ack_rtt",
             "_ws.malformed", "tcp.window_size", "tcp.srcport", "tcp.flags.syn"]  # fmt: skip
    fields = [part for field in names for part in ("-e", field)]
    text = subprocess.run(
        ["tshark", "-r", file, "-T", "fields", *fields], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split("\t") for line in text.splitlines()]
    data = [row for row in rows if int(row[0]) > 0]
    assert len(rows) == packets
    assert len(data) == said.sent
    assert {row[0] for row in data} == {"1448"}
    # A retransmission within an RTT of the ACK that asked for it is "out of order" to tshark.
    assert sum(bool(row[1] or row[2]) for row in data) == said.retransmitted
    assert not any(row[4] for row in rows)
    assert {int(row[5]) for row in rows if row[6] == "5201" and row[7] in ("0", "False")} == {1000 * 1448}
    trace = sim.flow(0)
    mine = trace.columns["rs_rtt_us"][trace.event == EVENT_CODES["on_ack" if "bbr" in said.cc else "pkts_acked"]]
    theirs_us = [float(row[3]) * 1e6 for row in rows if row[3] and row[6] == "5201"]
    assert np.median(theirs_us) == pytest.approx(np.median(mine[mine >= 0]), rel=0.02)


def test_with_tso_a_capture_holds_the_super_packets_that_left(tmp_path):
    sim = cct.simulate(cct.Path(rate="60Mbit", rtt="30ms", buffer="2bdp"), ["bbr2022"], "3s", 1, packets=True)
    flows = []
    for name, tso in (("cut", False), ("whole", True)):
        sim.to_pcap(tmp_path / name, tso=tso)
        flows.append(cct.read(tmp_path / name).flow(0))
    cut, whole = (flow.sends for flow in flows)
    assert len(whole) < len(cut) / 2
    assert whole["payload"].sum() == cut["payload"].sum()
    assert whole["begins"].all()
    first = np.flatnonzero(cut["begins"])
    assert (np.add.reduceat(cut["segments"].to_numpy(), first) == whole["segments"]).all()
    assert (flows[0].events["delivered"][-1], len(flows[0].events)) == (
        flows[1].events["delivered"][-1],
        len(flows[1].events),
    )


def test_only_the_senders_host_sees_super_packets(tmp_path):
    sim = cct.simulate(cct.Path(rate="10Mbit", rtt="30ms", buffer="2bdp"), ["reno"], "1s", 1, packets=True)
    with pytest.raises(ArgumentError, match="tso=True: only the sender's own host"):
        sim.to_pcap(tmp_path / "x", side="receiver", tso=True)


def test_a_receivers_capture_is_a_round_trip_away_from_the_sender(tmp_path):
    sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp"), ["cubic"], "3s", 1, packets=True)
    sim.to_pcap(tmp_path / "receiver.pcap", side="receiver")
    quality = cct.read(tmp_path / "receiver.pcap").flow(0).quality()
    assert quality["taken_at"] == "receiver"
    assert quality["sender_side_us"] == pytest.approx(40_000 + 1500 * 8 / 20, abs=400)  # a segment's own time included


@pytest.mark.parametrize("fq", [False, True])
def test_data_through_fq_echo_the_time_stamp_that_tcp_knew_when_it_handed_them_over(tmp_path, fq):
    """[Linux61] tcp_established_options: not the latest one when fq lets them leave."""
    sender = cct.Sender("bbr3", fq=fq, ack_every=2)
    cct.simulate(cct.Path(**PATH), sender, "3s", packets=True, profile="linux").to_pcap(tmp_path / "sender.pcap")
    packets = cct.read(tmp_path / "sender.pcap").packets
    came, data = packets["direction"] == 1, (packets["direction"] == 0) & (packets["payload"] > 0)
    latest = np.maximum.accumulate(np.where(came, packets["tsval"], 0))[data]
    behind = latest.astype(int) - packets["tsecr"][data]
    assert behind.min() == 0
    assert (behind > 0).mean() > 0.2 if fq else behind.max() == 0


@pytest.mark.parametrize("profile", ["linux", "reference"])
def test_each_ack_has_the_time_stamp_of_the_arrival_that_it_answers(profile):
    path, sender = cct.Path(rate="10Mbit", rtt="40ms"), cct.Sender("cubic6", profile=profile)
    packets = cct.simulate(path, sender, "2s", packets=True).capture().packets.columns
    acks = packets["payload"] == 0
    lead_ms = packets["tsval"][acks].astype(np.int64) - packets["time_ns"][acks] // 1_000_000
    assert np.ptp(lead_ms[2:]) <= 1
