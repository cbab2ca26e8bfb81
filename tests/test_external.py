"""`cctrace flows` counts what tcptrace and tshark count, on the shipped recordings."""

import re
import shutil
import subprocess

import pytest
import zstandard

import cctrace
from cctrace import datasets

# On tso_bbr_300m_veth one captured packet holds many segments: tcptrace and tshark count packets, cctrace segments.
RECORDINGS = ["jitter_bbr_sd2ms", "loss_cubic_1pct", "single_bbr_1bdp"]

pytestmark = [pytest.mark.external, pytest.mark.parametrize("recording", RECORDINGS)]


def needs(program):
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"no {program}: make check-external installs it where apt-get can"
    )


@pytest.fixture
def capture(recording, tmp_path):
    """The recording's capture, unpacked, and its one row of flows."""
    packed = datasets.path(recording, "sender.pcap.zst")
    plain = tmp_path / "sender.pcap"
    with packed.open("rb") as source, plain.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    return plain, cctrace.read(packed).flows.iloc[0]


@needs("tcptrace")
def test_tcptrace_counts_the_same_packets_bytes_and_retransmissions(capture):
    plain, flow = capture
    text = subprocess.run(["tcptrace", "-lnr", plain], capture_output=True, text=True, check=True).stdout

    def first(name):
        return float(re.search(rf"{name}:\s+([\d.]+)", text)[1])

    assert int(re.search(r"\n\s+total packets:\s+(\d+)\s*\n", text)[1]) == flow["packets"]
    assert first("unique bytes sent") == flow["bytes_sent"]
    assert first("actual data pkts") == flow["segments_sent"]
    assert first("rexmt data pkts") == flow["retransmitted_segments"]
    # tcptrace times data only, with the RTT rounded to 0.1 ms; the handshake may have been faster.
    assert flow["rtt_min_us"] / 1000 <= first("RTT min") + 0.05


@needs("tshark")
def test_tshark_sees_the_same_retransmissions_and_data(capture):
    plain, flow = capture
    fields = ["ip.src", "tcp.len", "tcp.analysis.retransmission", "tcp.analysis.out_of_order", "tcp.analysis.ack_rtt"]
    command = ["tshark", "-r", plain, "-T", "fields", *(part for name in fields for part in ("-e", name))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    sent = [row for row in rows if row[0] == flow["src"] and int(row[1] or 0) > 0]
    assert len(rows) == flow["packets"]
    assert len(sent) == flow["segments_sent"]
    # tshark calls a retransmission "out of order" if it follows within the initial RTT.
    assert sum(bool(row[2] or row[3]) for row in sent) == flow["retransmitted_segments"]
    rtt = [float(row[4]) * 1e6 for row in rows if row[0] == flow["dst"] and row[4]]
    assert flow["rtt_min_us"] == pytest.approx(min(rtt), abs=1)
