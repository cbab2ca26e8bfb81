"""DCTCP makes the decisions of Linux, call by call and on recordings; and what the golden vectors do not reach."""

import csv
import io
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard
from build_stack import Stack

import cctrace as cct
from cctrace.cc import linux
from cctrace.cc.dctcp import DCTCP
from cctrace.replaying import vectors

FOLDER = Path(__file__).parent
GOLDEN = sorted((FOLDER / "golden" / "dctcp").glob("*.parquet"))
RECORDED = FOLDER / "recordings" / "lab_dctcp"


def test_the_vectors_reach_what_they_are_for():
    alpha = {path.stem: vectors.load(path).expected["s_dctcp_alpha"] for path in GOLDEN}
    assert alpha["cease_s4"][-1] == 0
    assert np.any((np.diff(alpha["cease_s4"]) < 0) & (alpha["cease_s4"][1:] == 0) & (alpha["cease_s4"][:-1] < 16))
    assert alpha["step_s1"].min() < 128
    assert not alpha["noecn_s3"].any()


def started(ecn_ok=1, **params):
    stack = Stack(DCTCP, **params)
    stack.set(ecn_ok=ecn_ok, snd_nxt=1000)
    stack.call("init")
    return stack


def test_a_gain_of_one_takes_the_last_rounds_share_for_alpha():
    stack = started(shift_g=0)
    stack.call("pkts_acked", snd_una=1000, delivered=101, delivered_ce=25, arg=1)
    assert stack.cc.dctcp_alpha == 25 * 1024 // 100
    stack.cc.snd_cwnd = 100
    assert stack.call("ssthresh") == 100 - (100 * 256 >> 11)


def test_alpha_changes_once_a_round():
    stack = started()
    stack.call("pkts_acked", snd_una=999, delivered=101, delivered_ce=0, arg=1)
    assert stack.cc.dctcp_alpha == 1024
    stack.call("pkts_acked", snd_una=1000, snd_nxt=2000, arg=1)
    assert stack.cc.dctcp_alpha == 960
    stack.call("pkts_acked", snd_una=1999, arg=1)
    assert stack.cc.dctcp_alpha == 960


def test_it_starts_with_the_given_alpha_and_is_reno_without_ecn():
    assert started(alpha_on_init=0).cc.dctcp_alpha == 0
    stack = started(ecn_ok=0)
    stack.cc.snd_cwnd = 100
    assert stack.call("ssthresh") == 50
    stack.call("cwnd_event", arg=linux.EVENT_LOSS)
    assert stack.call("undo_cwnd", prior_cwnd_tp=120) == 120


@pytest.fixture(scope="module")
def recorded():
    flow = cct.read(RECORDED / "sender.pcap.zst").flow(0)
    return flow.attach(cct.read(RECORDED / "tcpinfo.csv.zst"))


def test_its_window_is_the_kernels_at_every_poll_and_alpha_too(recorded):
    run = cct.replay(recorded, "dctcp", record=["dctcp_alpha"])
    agreement = run.compare()
    assert agreement.share_within("cwnd") == agreement.share_within("ssthresh") == 1.0
    packed = (RECORDED / "tcpinfo.csv.zst").read_bytes()
    rows = csv.DictReader(io.StringIO(zstandard.decompress(packed).decode()))
    time_ns, alpha = (run.decisions[name].to_numpy() for name in ("time_ns", "dctcp_alpha"))
    same = []
    for row in rows:
        begin, end = int(row["time_ns"]), int(row["time_after_ns"])
        if time_ns[0] < begin and end < time_ns[-1]:
            known = struct.unpack("<HHIII", bytes.fromhex(row["cc_info_hex"])[:16])[2]  # struct tcp_dctcp_info
            low, high = np.searchsorted(time_ns, begin) - 1, np.searchsorted(time_ns, end, side="right")
            same.append(known in alpha[low:high])
    assert np.mean(same) >= 0.99
    assert len(same) > 400


def test_it_is_named_where_marks_tell_it_from_reno(recorded):
    found = cct.identify(recorded)
    assert found.name == "dctcp"
    assert found.candidates[0].probability > 0.9


def test_marks_are_its_cause(recorded):
    assert cct.diagnose(recorded, controller="dctcp").cause == "ecn_marking"


def test_without_marks_it_is_no_candidate():
    flow = cct.read(FOLDER / "recordings" / "lab_cubic" / "sender.pcap.zst").flow(0)
    assert "dctcp" not in {one.name for one in cct.identify(flow).candidates}
