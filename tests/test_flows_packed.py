"""A packed event stream has the same columns, in a tenth of the memory."""

import filecmp

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import blocks
from cctrace.analysis import one_flow
from cctrace.flows.events import AckRows, Events
from cctrace.flows.packed import EventColumns
from cctrace.flows.sender.emitting import are_as_steady, are_same, takes_sample
from cctrace.flows.state import CALL, EVENT, STATE, STEADY, UNSAMPLED
from cctrace.replaying.engine.stream import stream_of
from cctrace.report.overview import write_report


def rows_of(rng, count):
    """Rows whose columns stay, step, alternate, jump or are of the whole range of their type."""
    rows = np.zeros(count, EVENT)
    for name in EVENT.names:
        dtype = EVENT[name]
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        kind = rng.integers(0, 7)
        if kind == 1:
            rows[name] = np.repeat(rng.integers(low, high, count, dtype, endpoint=True), rng.integers(1, 9, count))[
                :count
            ]
        elif kind == 2:
            rows[name] = rng.integers(low, high, count, dtype, endpoint=True)
        elif kind == 3:
            rows[name] = rng.choice(np.array([low, high, low + 1], dtype), count)
        elif kind == 4:
            rows[name] = (np.arange(count) // 3 * int(rng.integers(1, 99)) + int(rng.integers(0, 9))).astype(dtype)
        elif kind == 5:
            rows[name] = rng.choice(np.array([low, high], dtype), count)
        elif kind == 6:
            rows[name] = (low + np.cumsum(rng.integers(0, 300, count))).astype(dtype)
    return rows


@pytest.mark.parametrize("seed", range(25))
def test_packed_columns_are_the_same(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(blocks, "BLOCK", 100)
    count = int(rng.choice([0, 1, 99, 100, 101, 733]))
    rows = rows_of(rng, count)
    stream = EventColumns.of(rows)
    stream.pack()
    assert stream.count == count
    assert stream.rows.tobytes() == rows.tobytes()
    begin, end = sorted(rng.integers(0, count + 1, 2).tolist())
    part = stream.part(begin, end)
    for name in EVENT.names:
        assert stream[name].dtype == EVENT[name]
        assert np.array_equal(stream[name], rows[name])
        assert np.array_equal(part[name], rows[name][begin:end])
    assert [len(values) for values in stream.part(count, count + 5).values()] == [0] * len(EVENT.names)


def kept(table):
    """Return the bytes of packed records."""
    return sum(block.nbytes for column in table._packed.values() for block in column.blocks)


def test_a_recorded_stream_takes_a_tenth():
    events = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0).events
    before, sent = events.rows.nbytes, events.sends.nbytes
    events.pack()
    tables = events.stream._calls, events.stream._states, events.stream._steady
    assert sum(map(kept, tables)) * 10 < before
    assert kept(events.sent) * 5 < sent


def test_replays_of_packed_streams_read_each_its_own_rows():
    """Their records are made anew each time, often at the address of those of another stream."""
    rng, several = np.random.default_rng(1), []
    for _ in range(20):
        events = Events(rows_of(rng, 500), {"start_ns": 0}, None)
        events.stream.pack()
        several.append((events, stream_of(events, None)))
    for events, stream in several:
        assert stream_of(events, None) is stream
        assert np.array_equal(stream.tables[1].time_ns, events["time_ns"])


@pytest.mark.parametrize("packs", [False, True])
def test_single_values_and_parts_are_those_of_whole_columns(packs):
    events = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0).events
    whole, some = events.rows, np.array([0, 5, 5, len(events) - 1])
    if packs:
        events.stream.pack()
    for name in whole.dtype.names:
        assert events.last(name) == whole[name][-1]
        assert np.array_equal(events.at(name, some), whole[name][some])
        assert np.array_equal(events.stream.part(3, 40)[name], whole[name][3:40])


def test_events_do_not_change_when_they_are_packed():
    flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    events = flow.events
    rows, frame, card, ends = events.rows, events.frame(), events._card(), AckRows(events)["rs_rtt_us"]
    nstat, samples, facts, sends = flow.nstat(), flow.rtt, flow.facts, events.sends.tobytes()
    events.pack()
    assert flow.events is events
    assert events.sends.tobytes() == sends
    held = events.sends
    assert events.sends is held
    del held
    assert events.sent._made() is None
    assert flow.at_hz(flow.hz).events.rows.tobytes() == rows.tobytes()
    pd.testing.assert_frame_equal(events.frame(), frame)
    assert events._card() == card
    assert np.array_equal(AckRows(events)["rs_rtt_us"], ends)
    assert flow.nstat() == nstat
    pd.testing.assert_frame_equal(flow.rtt, samples)
    assert Events(events.stream, facts, events.sends).of("on_ack").tolist() == events.of("on_ack").tolist()


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct"])
def test_the_analysis_of_a_packed_stream_and_packed_packets_is_the_same(monkeypatch, tmp_path, name):
    """The same results, page and tables, byte by byte, though each block ends in the midst of them."""
    found, folders = [], [tmp_path / "plain", tmp_path / "packed"]
    for rows, folder in zip((one_flow.PACKED, 0), folders, strict=True):
        monkeypatch.setattr(one_flow, "PACKED", rows)
        monkeypatch.setattr("cctrace.flows.large.LONG", rows)
        monkeypatch.setattr(blocks, "BLOCK", 1000)
        analyses = cct.analyze(cct.datasets.path(name, "sender.pcap.zst"), effects=False)
        write_report(analyses, folder)
        found.append([one.to_dict() for one in analyses])
        is_packed = analyses[0].view.events.is_packed, analyses[0].flow.capture.packets.is_packed
        assert is_packed == (rows == 0, rows == 0)
    assert repr(found[0]) == repr(found[1])
    names = sorted(path.name for path in folders[1].iterdir())
    assert len(names) > 2
    assert filecmp.cmpfiles(*folders, names, shallow=False) == (names, [], [])


def test_the_calls_upon_an_ack_share_its_state():
    flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    calls, states, steady = flow.events.stream.tables
    assert len(states) < 0.4 * len(calls)  # pkts_acked, on_ack, cong_avoid
    assert len(steady) < 0.01 * len(states)
    for table in states, steady:
        assert (table[1:] != table[:-1]).all()
    for numbers in calls["of"], states["steady"]:
        assert numbers.tolist() == sorted(numbers.tolist())


@pytest.mark.parametrize("rows", [0, 1, 700])
def test_the_first_rows_of_a_stream_have_the_states_that_they_need(rows):
    stream = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0).events.stream
    first = stream.first(rows)
    assert first.rows.tobytes() == stream.rows[:rows].tobytes()
    assert len(first.tables[1]) <= rows + 1  # one may be of a row that was taken back


@pytest.mark.parametrize(
    ("dtype", "equal", "name"),
    [
        (dtype, equal, name)
        for dtype, equal in ((STATE, are_same), (STEADY, are_as_steady))
        for name in dtype.names
        if name not in UNSAMPLED
    ],
)
def test_states_that_differ_in_any_column_are_not_shared(dtype, equal, name):
    one, other = (np.zeros(1, dtype).view(np.recarray)[0] for _ in range(2))
    assert equal(one, other)
    other[name] = 1
    assert not equal(one, other)


@pytest.mark.parametrize("name", UNSAMPLED)
def test_calls_share_a_state_unless_their_rate_samples_differ(name):
    one, other, call = (np.zeros(1, dtype).view(np.recarray)[0] for dtype in (STATE, STATE, CALL))
    for column, value in UNSAMPLED.items():
        one[column] = other[column] = value
    other[name] = call.sampled = 3
    assert takes_sample(call, one, other)  # the first one, after a call without
    assert one[name] == 3
    other[name] = 4
    assert not takes_sample(call, one, other)
    call.sampled = 0
    assert takes_sample(call, one, other)
