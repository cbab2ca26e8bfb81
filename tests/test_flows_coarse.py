"""Counters alone become an event stream that is coarse, says so, and keeps what the counters counted."""

import functools
import io
import json

import numpy as np
import pytest

from cctrace import cli, datasets
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.capture import read
from cctrace.flows.counters import CounterTable
from cctrace.flows.events import Events
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.replaying.run import replay
from tests.test_flows_timing import acks

T0 = 1_700_000_000
MS = 1_000_000


@functools.cache
def recorded(name, every=1, index=0):
    """Return a shipped recording's counters as a flow; polled every 10 ms, thinned by `every`."""
    polls = read(datasets.path(name, "tcpinfo.csv.zst")).select(index)
    columns = {field: column[::every] for field, column in polls.columns.items()}
    extra = {field: column[::every] for field, column in polls.extra.items()}
    return CounterTable.of(TcpInfo(columns, extra, polls.connection[::every], polls.connections, "polls")).flow()


def counted(**columns):
    """Return a flow of polls 100 ms apart, RTT 40 ms, with the given columns besides."""
    n = len(next(iter(columns.values())))
    default = {"time_ns": [T0 * 10**9 + 100 * MS * i for i in range(n)], "tcpi_rtt": [40_000] * n}
    table = default | {"tcpi_snd_mss": [1000] * n} | columns
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return read(io.BytesIO("\n".join(lines).encode())).flow()


# --- what it keeps ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("every", [1, 10, 100])
@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct", "tso_bbr_300m_veth"])
def test_every_segment_that_was_counted_is_delivered_once_and_every_loss_told(name, every):
    flow = recorded(name, every)
    events, rows = flow.events, acks(flow)
    begin = int(events["delivered"][0])
    assert begin + rows["rs_acked_sacked"].sum() == rows["delivered"][-1] == np.max(flow.values("delivered"))
    assert rows["rs_losses"].sum() == rows["lost"][-1] == pytest.approx(np.max(flow.values("total_retrans")), abs=20)
    assert len(events.of("skb_marked_lost")) == rows["lost"][-1]
    assert (np.diff(events["time_ns"]) >= 0).all()
    counted = flow.values("delivered").astype(int)
    assert set(rows["delivered"].tolist()) >= set(counted[counted > begin].tolist())  # a state at every poll


def test_between_polls_one_ack_per_round_trip_is_made_up():
    flow = counted(tcpi_delivered=[1, 1, 101, 201, 201, 301])
    rows = acks(flow)
    assert (rows["time_ns"] - T0 * 10**9).tolist() == pytest.approx(
        [133_333_333, 166_666_666, 200 * MS, 233_333_333, 266_666_666, 300 * MS, 433_333_333, 466_666_666, 500 * MS]
    )
    assert rows["delivered"].tolist() == [34, 67, 101, 134, 167, 201, 234, 267, 301]
    assert (rows["rs_rtt_us"] >= 0).tolist() == [False, False, True] * 3
    assert flow.facts["coarse"] == {"polls": 6, "interval_ms": 100.0, "acks": 9, "made_up": 6, "in_flight_known": False}


def test_samples_are_the_kernels_where_it_tells_them_and_means_elsewhere():
    rows = acks(counted(tcpi_delivered=[1, 101, 201, 301], tcpi_delivery_rate=[0, 0, 2_000_000, 2_000_000]))
    rate = rows["rs_delivered"] * 1000e6 / rows["rs_interval_us"]
    assert rate[5] == pytest.approx(2_000_000, rel=1e-3)
    assert rate[[3, 4, 6, 7, 8]] == pytest.approx(1_000_000, rel=0.03)  # a repeated rate is an old one


def test_a_restart_from_idle_is_told_and_ends_the_sample():
    flow = counted(tcpi_delivered=[1, 51, 51, 51, 81, 81], tcpi_unacked=[10, 0, 0, 0, 20, 0])
    events = flow.events
    (start,) = events.of("cwnd_event")
    assert events["arg"][start] == 0
    assert events["time_ns"][start] == T0 * 10**9 + 300 * MS  # the last poll with nothing in flight
    burst = acks(flow)[-3:]
    assert burst["rs_prior_delivered"].tolist() == [51, 51, 61]
    assert burst["rs_interval_us"].tolist() == [40_000, 66_666, 66_666]


def test_a_recovery_that_no_poll_saw_follows_from_the_segments_sent_again():
    flow = counted(tcpi_delivered=[1, 101, 201, 301], tcpi_total_retrans=[0, 0, 7, 7], tcpi_ca_state=[0, 0, 0, 0])
    events = flow.events
    states = events.of("set_state")
    assert events["arg"][states].tolist() == [3, 0]
    assert len(events.of("ssthresh")) == 1
    assert len(events.of("skb_marked_lost")) == 7
    assert acks(flow)["rs_losses"].tolist() == [0, 0, 0, 7, 0, 0, 0, 0, 0]


def test_the_rtt_of_few_acks_is_taken_out_of_the_smoothed_one():
    """In PROBE_RTT a few samples of 40 ms move a smoothed RTT of 60 ms only part of the way."""
    srtt = [60_000.0]
    for _ in range(4):
        srtt.append(40_000 + (srtt[-1] - 40_000) * (7 / 8) ** 3)
    flow = counted(
        tcpi_delivered=[1, 1001, 1004, 1007, 1010],
        tcpi_rtt=[int(value) for value in srtt],
        tcpi_segs_in=[0, 500, 503, 506, 509],
    )
    sampled = acks(flow)["rs_rtt_us"]
    assert sampled[sampled > 0][1:] == pytest.approx(40_000, abs=10)


def test_counters_from_mid_connection_give_no_sample_of_the_first_round_trip():
    flow = counted(tcpi_delivered=[5001, 5101, 5201])
    assert not flow.facts["complete"]
    assert acks(flow)["rs_interval_us"][0] == -1
    assert acks(flow)["rs_interval_us"][2] > 0


# --- what it says of itself ------------------------------------------------------------------------------------------
def test_a_coarse_stream_says_that_it_is(tmp_path):
    flow = recorded("single_bbr_1bdp", 10)
    assert flow.events.coarse
    assert set(flow.events.confidence.values()) == {"coarse", "unknown"}
    assert "ACKs made up between them" in flow.caveats[0]
    assert flow.caveats[0] in replay(flow, "bbr2022").warnings
    flow.events.to_parquet(tmp_path / "coarse.parquet")
    again = Events.load(tmp_path / "coarse.parquet")
    assert again.coarse
    assert (again.rows == flow.events.rows).all()


def test_counters_that_cannot_tell_say_what_is_missing():
    with pytest.raises(StreamError, match="do not show how far"):
        counted(tcpi_snd_cwnd=[10, 10]).events  # noqa: B018
    with pytest.raises(StreamError, match="do not show how far"):
        counted(tcpi_delivered=[7, 7]).events  # noqa: B018
    with pytest.raises(StreamError, match="have no RTT"):
        counted(tcpi_delivered=[1, 9], tcpi_rtt=[0, 0]).events  # noqa: B018


# --- who accepts it --------------------------------------------------------------------------------------------------
NEAR = [("single_bbr_1bdp", 0, 0.95), ("jitter_bbr_sd2ms", 0, 0.95), ("compete_bbr_cubic_2bdp", 0, 0.9)]


@pytest.mark.parametrize(("name", "index", "share"), NEAR)
def test_bandwidth_over_ten_polls_a_second_or_more_is_near_the_kernels(name, index, share):
    """A maximum over few of the samples is low, over means lower: per cents, not the thousandths of a capture."""
    run = replay(recorded(name, 1, index), "bbr2022").compare()
    assert run.share_within("bw", rel=0.05) >= share
    assert run.share_within("min_rtt", rel=0.05) >= share - 0.05
    sparse = replay(recorded(name, 10, index), "bbr2022").compare()
    assert sparse.share_within("bw", rel=0.05) >= share - 0.15


def test_the_modes_follow_the_recorded_ones():
    run = replay(recorded("single_bbr_1bdp"), "bbr2022").compare()
    assert run.share_within("cwnd_gain", absolute=1e-6, slack_polls=1) >= 0.95


@pytest.mark.parametrize("name", ["bbr2", "bbr3", "bbr2plus", "cubic", "reno", "quic_bbr", "obbr"])
def test_every_family_of_controllers_runs_over_it(name):
    run = replay(recorded("loss_cubic_1pct", 20), name)
    final = run.decisions.iloc[-1]
    assert final["cwnd" if "cwnd" in run.decisions else "snd_cwnd"] > 0
    assert any("coarse" in warning for warning in run.warnings)


def test_the_connections_of_a_table_are_flows():
    table = read(datasets.path("compete_bbr_cubic_2bdp", "tcpinfo.csv.zst"))
    assert table.flows["bytes_sent"].tolist() == [table.flow(i).row["bytes_sent"] for i in range(2)]
    assert table.flow(-1).connection == table.connections[1]
    for which, text in ((2, "has 2 connections"), ("0", "row number"), (("a", 1, "b", 2), "no such connection")):
        with pytest.raises(ArgumentError, match=text):
            table.flow(which)


def test_a_qlog_is_a_poll_per_ack():
    def packet(number):
        header = {"packet_type": "1RTT", "packet_number": number}
        return {"time": number, "name": "transport:packet_sent", "data": {"header": header, "raw": {"length": 1252}}}

    def ack(time, last):
        frames = [{"frame_type": "ack", "acked_ranges": [[0, last]]}]
        header = {"packet_type": "1RTT", "packet_number": 0}
        return {"time": time, "name": "transport:packet_received", "data": {"header": header, "frames": frames}}

    def metrics(time):
        data = {"latest_rtt": 20.0, "smoothed_rtt": 21.0, "min_rtt": 20.0, "bytes_in_flight": 12520}
        return {"time": time, "name": "recovery:metrics_updated", "data": data}

    events = [packet(i) for i in range(100)]
    events += [event for i in range(1, 50) for event in (ack(20 + 2 * i, 2 * i - 1), metrics(20 + 2 * i))]
    flow = read(io.BytesIO(json.dumps({"qlog_version": "0.3", "traces": [{"events": events}]}).encode())).flow()
    rows = acks(flow)
    assert flow.facts["mss"] == 1252
    assert set(rows["rs_rtt_us"]) == {20_000}
    assert rows["rs_prior_in_flight"][5] == 10
    rate = (rows["rs_delivered"] * 1252e6 / rows["rs_interval_us"])[20:]
    assert rate == pytest.approx(1_252_000, rel=0.11)  # two packets in 2 ms
    assert replay(flow, "quic_bbr", mode="interpreted").decisions["cwnd"].iloc[-1] > 0


def test_the_command_replays_counters_and_tells_the_agreement(tmp_path, capsys):
    file = str(datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst"))
    assert cli.main(["replay", file, "--controller", "bbr2022", "--json"]) == 0
    output = capsys.readouterr()
    told = json.loads(output.out)
    assert told["agreement"]["bw_5%"] > 0.9
    assert "coarse event stream" in output.err
    assert cli.main(["replay", file, "--controller", "bbr2022", "--tcpinfo", file]) == 2
    assert "holds counters, not packets" in capsys.readouterr().err
