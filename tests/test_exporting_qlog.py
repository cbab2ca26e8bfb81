"""A flow as qlog: valid by the schema, and equal once it is read back."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qlog_schema import check

import cctrace as cct
from cctrace import datasets
from cctrace.errors import ArgumentError
from cctrace.exporting.acked import Acked
from cctrace.exporting.qlog import write_qlog
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.schema import LINUX_EVENTS

LOSSES = datasets.path("loss_cubic_1pct", "sender.pcap.zst")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a flow, the replay of its controller, the file and what it holds when read."""
    file = tmp_path_factory.mktemp("qlog") / "flow.sqlog"
    flow = cct.read(LOSSES).flow(0)
    run = cct.replay(flow, "cubic6", record="all")
    write_qlog(run, file)
    return flow, run, file, cct.read(file)


def at_acks(run, name):
    """Return a column of a replay after the last call of each instant, with the times."""
    time_ns = run.decisions["time_ns"].to_numpy()
    last = np.append(time_ns[1:] != time_ns[:-1], True)
    return time_ns[last], run.decisions[name].to_numpy()[last]


def test_it_is_valid_by_the_schema(written):
    events = check(written[2])
    assert len(events) > 10_000
    assert {event["name"] for event in events} >= {"transport:packet_sent", "recovery:packet_lost"}


def test_metrics_read_back_are_those_of_the_replay(written):
    flow, run, _, back = written
    times, cwnd = at_acks(run, "snd_cwnd")
    at = np.searchsorted(back["time_ns"], times, side="right") - 1
    known = at >= 0
    assert known.mean() > 0.99
    assert np.array_equal(back.extra["congestion_window_bytes"][at[known]], cwnd[known] * flow.facts["mss"])
    events = flow.events.rows
    last = np.append(events["time_ns"][1:] != events["time_ns"][:-1], True)
    rows = events[last][known]
    assert np.array_equal(back["rtt"][at[known]], rows["srtt_us8"] >> 3)
    assert np.array_equal(back["min_rtt"][at[known]], rows["tcp_min_rtt_us"])
    flying = rows["packets_out"].astype(int) - rows["sacked_out"] - rows["lost_out"] + rows["retrans_out"]
    assert np.array_equal(back["unacked"][at[known]], flying)
    assert set(back["time_ns"].tolist()) <= set(times.tolist())
    assert back.warnings == []


def test_packets_read_back_are_those_of_the_capture(written):
    flow, _, _, back = written
    kind, packets = back.events["kind"], flow.capture.packets
    data = (packets["direction"] == 0) & (packets["payload"] > 0)
    assert np.array_equal(back.events["time_ns"][kind == "sent"], packets["time_ns"][data])
    assert np.array_equal(back.events["first"][kind == "sent"], np.arange(data.sum()))
    assert np.array_equal(back.events["bytes"][kind == "sent"], packets["payload"][data])
    assert (kind == "received").sum() == ((packets["direction"] == 1) & (packets["flags"] & 16 > 0)).sum()
    assert (kind == "lost").sum() == (flow.events.rows["event"] == LINUX_EVENTS["skb_marked_lost"]).sum()


def test_every_packet_is_acknowledged_once_or_was_lost(written):
    _, _, _, back = written
    kind, first, last = (back.events[name] for name in ("kind", "first", "last"))
    acked = [n for a, b in zip(first[kind == "acked"], last[kind == "acked"], strict=True) for n in range(a, b + 1)]
    assert len(acked) == len(set(acked))
    sent, lost = set(first[kind == "sent"].tolist()), set(first[kind == "lost"].tolist())
    assert set(acked) <= sent
    assert lost <= sent
    assert len(sent - set(acked) - lost) <= 1  # of a probe, or in flight at the end
    assert len(lost & set(acked)) == 1  # a retransmission was marked lost 0.4 ms before its ACK came


def test_states_of_bbr_and_its_pacing_rate_are_there(tmp_path):
    path = cct.Path(rate="5Mbit", rtt="30ms", buffer="1bdp")
    capture = cct.simulate(path, "bbr2022", "12s", seed=4, packets=True).capture()
    write_qlog(capture.flow(0), tmp_path / "sim.sqlog", "bbr2022")
    events = check(tmp_path / "sim.sqlog")
    states = [event["data"]["new"] for event in events if event["name"] == "recovery:congestion_state_updated"]
    assert states[:2] == ["startup", "drain"]
    assert {"probe_bw_up", "probe_bw_down", "probe_bw", "probe_rtt"} <= set(states)
    back = cct.read(tmp_path / "sim.sqlog")
    paced = back["pacing_rate_Bps"][back["pacing_rate_Bps"] != MISSING]
    payload = 1448 / 1514  # of what is on the wire; BBR paces 1 % below its estimate [Linux61]
    assert np.median(paced) * 8 == pytest.approx(0.99 * payload * 5e6, rel=0.02)
    assert any(event["name"] == "cctrace:model_updated" for event in events)


def test_without_a_controller_there_is_no_cwnd(monkeypatch, tmp_path):
    monkeypatch.setattr("cctrace.exporting.qlog.identify", lambda flow: cct.identify(None))
    write_qlog(cct.read(LOSSES).flow(0), tmp_path / "flow.sqlog")
    text = (tmp_path / "flow.sqlog").read_text()
    check(tmp_path / "flow.sqlog")
    assert "congestion_window" not in text
    assert "bytes_in_flight" in text
    assert "10.99.0" not in text  # no address


@given(st.data())
def test_acknowledged_packets_are_those_that_a_slow_account_names(data):
    """The oracle keeps, of each segment that is not acknowledged, the latest packet that carried it."""
    account, carried, highest, una, size = Acked(), {}, 0, 0, 10
    for number in range(data.draw(st.integers(1, 25))):
        open_ = sorted(carried)
        at = data.draw(st.sampled_from([*open_, highest]))
        highest = max(highest, at + 1)
        account.sent(number, size * at, size * (at + 1))
        carried[at] = number
        if data.draw(st.booleans()):
            una = data.draw(st.integers(una, highest))
            left = data.draw(st.integers(una, highest))
            right = data.draw(st.integers(left, highest))
            blocks = [(size * left, size * right)] if right > left else []
            found = [n for first, last in account.acked(size * una, blocks) for n in range(first, last + 1)]
            covered = [unit for unit in carried if unit < una or left <= unit < right]
            assert found == sorted(carried.pop(unit) for unit in covered)


def test_the_command_writes_one_flow(run, tmp_path):
    status, out, err = run("convert", LOSSES, tmp_path / "flow.sqlog", "--cc", "cubic6", "--json")
    assert (status, err) == (0, "")
    done = json.loads(out)
    assert (done["to"], done["flow"]) == ("qlog", 0)
    assert len(check(tmp_path / "flow.sqlog")) == done["rows"]
    assert cct.read(tmp_path / "flow.sqlog").format == "qlog"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"), "f.sqlog"), "holds no packets"),
        ((LOSSES, "f.sqlog", "--flow", "3"), "--flow 3: .* has no such connection; allowed: 0"),
        ((LOSSES, "f.sqlog", "--cc", "quic_bbr"), "is of the QUIC stack"),
        ((LOSSES, "f.csv", "--flow", "0"), "only a qlog is of one flow"),
    ],
)
def test_what_is_no_flow_is_refused_in_one_line(run, tmp_path, arguments, said):
    source, target, *more = arguments
    status, _, err = run("convert", source, tmp_path / target, *more)
    assert status == 2
    assert re.search(said, err)
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_only_flows_and_replays_over_them_are_written(tmp_path):
    with pytest.raises(ArgumentError, match="cannot write 'Capture' as qlog: use a flow of a capture"):
        write_qlog(cct.read(LOSSES), tmp_path / "flow.sqlog")
