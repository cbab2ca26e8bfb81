"""What a replay records, as runs of equal values: the same as word by word, whatever the order of the rows."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc import controller as resolve
from cctrace.columns import Held, Runs
from cctrace.replaying.engine import recording
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.recording import Recording
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import replay

PLACES = {"mode": (0, np.dtype(np.int64)), "gain": (8, np.dtype(np.float64)), "low": (20, np.dtype(np.uint32))}


def values_of(rng, rows):
    """Columns that stay the same for a few rows, with NaN and both zeros among the floats."""
    lengths = np.cumsum(rng.integers(1, 9, (len(PLACES), rows)), axis=1)
    words = np.zeros((len(PLACES), rows), np.int64)
    choices = [np.arange(4), np.array([0.0, -0.0, np.nan, 1.5]).view(np.int64), np.arange(4) << 32 | 7]
    for k, ends in enumerate(lengths):
        words[k] = choices[k][rng.integers(0, 4, rows)[np.searchsorted(ends, np.arange(rows), side="right")]]
    return words


@pytest.mark.parametrize("seed", range(20))
def test_rows_recorded_again_replace_all_after_them(monkeypatch, seed):
    """Runs of random lengths, of which some go back, over the ends of parts, give the last words of each row."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(recording, "PART", int(rng.integers(1, 40)))
    rows, row = 300, 0
    record, expected = Recording(PLACES, rows), np.zeros((len(PLACES), rows), np.int64)
    while row < rows:
        if row and rng.random() < 0.3:
            row = int(rng.integers(0, row))
        words = values_of(rng, rows)
        stop = min(rows, row + int(rng.integers(1, 60)))
        while row < stop:
            last = min(stop, record.until(row))
            record.words[:, row - record.first : last - record.first] = words[:, row:last]
            expected[:, row:last], expected[:, last:] = words[:, row:last], 0
            row = last
        if rng.random() < 0.2:
            check(record.columns(row, rows), expected)
    check(record.columns(rows, rows), expected)


def check(held, expected):
    dense = recording.recorded_in(expected, PLACES)
    for name, values in dense.items():
        assert held[name].dtype == values.dtype
        assert held[name].tobytes() == np.ascontiguousarray(values).tobytes()
    part = held.part(17, 170)
    assert all(part[name].tobytes() == held[name][17:170].tobytes() for name in dense)


def runs_of(values):
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return Runs(begins, values[begins])


def test_a_part_that_is_beyond_the_end_is_empty():
    held = Held(3, {"time_ns": np.arange(3)}, {"mode": runs_of(np.array([5, 5, 6]))})
    assert [len(held.part(3, 9)[name]) for name in held] == [0, 0]
    assert held.part(2, 9)["mode"].tolist() == [6]


@pytest.mark.parametrize("packs", [False, True])
def test_times_of_a_replay_are_made_from_its_events(packs):
    flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    time_ns = flow.events["time_ns"]
    run = replay(flow, "cubic6", record=model_fields(resolve("cubic6")[0]))
    if packs:
        flow.events.pack()
    assert not {"time_ns", "time_s"} & {*run.held.plain, *run.held.runs}
    for held in (run.held, model_of(run)):
        assert held["time_ns"].tolist() == time_ns.tolist()
        assert held.at("time_ns", np.array([7, 3])).tolist() == time_ns[[7, 3]].tolist()
        assert held.part(40, 90)["time_ns"].tolist() == time_ns[40:90].tolist()
        assert held.part(len(time_ns), len(time_ns) + 5)["time_ns"].tolist() == []
    assert run.held.changes("snd_cwnd", "time_ns").tolist() == [*range(len(time_ns))]
    assert list(run.columns)[:3] == ["time_s", "time_ns", "event"]
    assert run.columns["time_s"].tolist() == flow.seconds(time_ns).tolist()


@pytest.mark.parametrize("controller", ["bbr2022", "bbr2", "cubic6"])
def test_parts_do_not_change_a_replay(monkeypatch, controller):
    flow = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0).first(6000)
    whole = replay(flow, controller, record="all")
    monkeypatch.setattr(recording, "PART", 777)
    parts = replay(flow, controller, record="all")
    assert list(parts.columns) == list(whole.columns)
    assert all(np.array_equal(parts.columns[name], column) for name, column in whole.columns.items())
    events = whole.source.events
    dense = Follower(events, events.sends, whole.controller, whole.params, ["snd_cwnd", "pacing_rate"])
    dense.play(whole.inferred.script)
    assert all(np.array_equal(dense.recorded[name], whole.columns[name]) for name in dense.recorded)
