"""Samples of several sockets without addresses, as flent takes them: each flow gets its own."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace.errors import ArgumentError
from cctrace.flows.rtt_match import alike
from tests.conversation import MSS, Conversation

EVERY_NS = 100_000_000


@pytest.fixture(scope="module")
def capture():
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")
    return cct.simulate(path, ["cubic", "reno"], "8s", seed=5, packets=True).capture()


def samples(flow, factor=1.0):
    """What flent notes of a flow's socket: cwnd and RTT in ms, every 100 ms, late by what `ss` takes."""
    begin = int(flow.row["start_ns"])
    times = np.arange(begin + EVERY_NS, begin + int(flow.row["duration_s"] * 1e9) - EVERY_NS, EVERY_NS)
    states = flow.answers(np.column_stack([times, times]))
    return [
        {
            "t": (int(state["time_ns"]) + 5_000_000) / 1e9,
            "tcp_rtt": float(state["rtt"]) * factor / 1000,
            "tcp_cwnd": 9.0,
        }
        for state in states
        if state["rtt"] > 0
    ]


def run_of(tmp_path, **series):
    """A flent file with these series."""
    meta = {"BATCH_NAME": "", "SERIES_META": {name: {"CONG_CONTROL": name} for name in series}}
    path = tmp_path / "x.flent"
    path.write_text(json.dumps({"metadata": meta | {"BATCH_TIME": None}, "raw_values": series}))
    return cct.read(path)


def test_each_flow_takes_the_series_with_its_own_rtts(capture, tmp_path):
    first, second = capture.flow(0), capture.flow(1)
    table = run_of(tmp_path, a=samples(second), b=samples(first))
    for flow, name in ((first, "b"), (second, "a")):
        attached = flow.attach(table)
        assert attached.tcpinfo.connections[0]["cc"] == name
        assert alike(flow, attached.tcpinfo) > 0.9


def test_a_flow_of_which_there_is_no_series_gets_none(capture, tmp_path):
    table = run_of(tmp_path, a=samples(capture.flow(1), 2.0), b=samples(capture.flow(1), 3.0))
    with pytest.raises(ArgumentError, match="none of 2 connections without addresses has the RTTs"):
        capture.flow(0).attach(table)


def test_polls_of_another_shape_are_refused_by_name():
    flow = Conversation().data(0.0, 1).ack(40.0, 1 + MSS).flow()
    with pytest.raises(ArgumentError, match=r"polls of shape \(3,\): give the start and the end of each"):
        flow.answers([1, 2, 3])
