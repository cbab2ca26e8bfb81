"""Tables in files are checked at the door: no number of a file becomes an index of compiled code unasked."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.cc.base import checked_params
from cctrace.errors import FormatError
from cctrace.flows.events import Events
from cctrace.io import validation
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.io.tablefile import save
from cctrace.replaying.engine.follow import Follower

CAPTURE = ("loss_cubic_1pct", "sender.pcap.zst")


@pytest.fixture(scope="module")
def packets():
    return cct.read(cct.datasets.path(*CAPTURE)).packets


@pytest.fixture(scope="module")
def sound(packets, tmp_path_factory):
    """A Parquet table of packets that is as it should be, as (columns, what its metadata tell)."""
    path = tmp_path_factory.mktemp("sound") / "packets.parquet"
    cct.Capture(packets).to_parquet(path)
    table = pq.read_table(path)
    return table, json.loads(pq.read_metadata(path).metadata[b"cctrace"])


def written(folder, table, told):
    path = folder / "hostile.parquet"
    pq.write_table(
        table.replace_schema_metadata({"cctrace": told if isinstance(told, str) else json.dumps(told)}), path
    )
    return path


def changed(table, name, value, kind=None):
    """The table with one value of a column changed, wherever its own type has room for it."""
    column = table[name].to_pylist()
    column[len(column) // 2] = value
    return table.set_column(table.column_names.index(name), name, pa.array(column, kind or pa.int64()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("conn", 1),
        ("conn", -1),
        ("conn", 2_000_000_000),
        ("direction", 2),
        ("direction", -1),
        ("payload", 1 << 30),
        ("time_ns", -1),
        ("time_ns", None),
        ("time_ns", (1 << 63) - 1),
        ("seq", 1 << 32),
        ("options", 256),
        ("flags", -1),
    ],
)
def test_a_packet_out_of_bounds_is_refused_by_column_and_value(sound, tmp_path, name, value):
    path = written(tmp_path, changed(sound[0], name, value), sound[1])
    with pytest.raises(FormatError, match=f"hostile.parquet: (column '{name}', row|packets of connection {value})"):
        cct.read(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("mss_a", 1 << 20), ("mss_b", -2), ("wscale_a", 256), ("sack_ok", 2), ("src", 7), ("sport", "x"), ("dport", -1)],
)
def test_a_connection_out_of_bounds_is_refused(sound, tmp_path, name, value):
    told = json.loads(json.dumps(sound[1]))
    told["meta"]["connections"][name] = [value]
    with pytest.raises(FormatError, match=f"column '{name}'"):
        cct.read(written(tmp_path, sound[0], told))


def test_blocks_beyond_the_sack_table_are_refused(packets):
    columns = dict(packets.columns)
    columns["sack_row"] = columns["sack_row"].copy()
    columns["sack_row"][columns["sack_count"] > 0] += 5
    with pytest.raises(FormatError, match="SACK blocks"):
        validation.packets(columns, packets.sacks, packets.connections, "x")


@pytest.mark.parametrize(
    "told",
    [
        "",
        "\x80",
        "[]",
        '{"kind": "packets"}',
        '{"kind": "packets", "meta": {}}',
        '{"kind": "packets", "meta": {"connections": {}, "counters": {}, "warnings": []}}',
        '{"kind": "tcp_info", "meta": {"connections": 7, "format": "", "warnings": []}}',
        '{"kind": ["link"], "meta": {}}',
        '{"kind": "link", "meta": {"end_ns": 0, "format": "", "warnings": []}}',
    ],
)
def test_metadata_of_another_shape_are_one_line(sound, tmp_path, told):
    with pytest.raises(FormatError, match=r"hostile\.parquet"):
        cct.read(written(tmp_path, sound[0], told))


@pytest.mark.parametrize("name", ["sack_right", "ack", "conn"])
def test_a_missing_column_is_one_line(sound, tmp_path, name):
    with pytest.raises(FormatError, match=name):
        cct.read(written(tmp_path, sound[0].drop_columns([name]), sound[1]))


def test_a_table_that_claims_more_than_its_file_can_hold_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.parquet"
    rows = np.zeros(40_000_000, np.int64)
    save(path, "packets", [{"time_ns": rows}], {})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FormatError, match="decompression bomb"):
        cct.read(path)


def test_counters_that_no_kernel_can_have_said_are_missing_and_told(tmp_path):
    path = tmp_path / "polls.csv"
    path.write_text("time_ns,rtt,snd_cwnd,ca_state\n1000,40000,10,0\n2000,-7,99999999999,9\n3000,40000,12,1\n")
    table = cct.read(path)
    for name in ("rtt", "snd_cwnd", "ca_state"):
        assert table[name][1] == MISSING
        assert any(f"1 values of {name} are not within" in line for line in table.warnings)
    assert table["snd_cwnd"][[0, 2]].tolist() == [10, 12]
    assert table.to_parquet(tmp_path / "polls.parquet") == 3
    assert cct.read(tmp_path / "polls.parquet")["snd_cwnd"].tolist() == table["snd_cwnd"].tolist()


def test_polls_of_a_connection_that_is_not_there_are_refused(tmp_path):
    columns = {"connection": np.array([0, 3]), "time_ns": np.array([1, 2])}
    meta = {"connections": [{}], "format": "ss", "warnings": []}
    save(tmp_path / "polls.parquet", "tcp_info", [columns], meta)
    with pytest.raises(FormatError, match="column 'connection', row 1: 3 is not within 0 to 0"):
        cct.read(tmp_path / "polls.parquet")


@pytest.fixture(scope="module")
def events():
    return cct.read(cct.datasets.path(*CAPTURE)).flow(0).events


@pytest.mark.parametrize(
    ("name", "value"), [("event", 9), ("event", 200), ("ca_state", 5), ("mss", 0), ("time_ns", -1)]
)
def test_an_event_out_of_bounds_is_refused(events, tmp_path, name, value):
    columns = {column: events[column] for column in events.rows.dtype.names}
    columns[name] = columns[name].astype(np.int64)
    columns[name][7] = value
    save(tmp_path / "events.parquet", "events", [columns], events.meta)
    with pytest.raises(FormatError, match=f"column '{name}', row 7: {value}"):
        Events.load(tmp_path / "events.parquet")


@pytest.mark.parametrize(("name", "value"), [("hz", 0), ("mss", 0), ("mss", "1448"), ("start_ns", 1.5), ("hz", None)])
def test_facts_that_replays_reckon_with_are_checked(events, tmp_path, name, value):
    rows = {column: events[column] for column in events.rows.dtype.names}
    save(tmp_path / "events.parquet", "events", [rows], events.meta | {name: value})
    with pytest.raises(FormatError, match=f"{name} is"):
        Events.load(tmp_path / "events.parquet")


def test_a_stream_that_names_sends_it_does_not_have_is_replayed_without_them(events, tmp_path):
    cls, params = cct.controller("cubic")
    windows = []
    for named in (-1, (1 << 31) - 1):
        rows = {column: events[column].copy() for column in events.rows.dtype.names}
        rows["rs_send"][:] = named
        save(tmp_path / "events.parquet", "events", [rows], events.meta)
        loaded = Events.load(tmp_path / "events.parquet")
        follower = Follower(loaded, loaded.sends, cls, checked_params(cls, params | {"hz": 250}), ["snd_cwnd"])
        follower.run()
        windows.append(follower.out.tolist())
    assert windows[0] == windows[1]
    assert len(set(windows[0][0])) > 10


def test_every_column_that_is_an_index_or_a_count_has_bounds_in_the_schema():
    names = {column.name for column in schema.PACKETS if column.within}
    assert {"conn", "direction", "payload", "sack_row", "sack_count", "time_ns"} <= names
    assert all(column.within for column in schema.TCP_INFO)
