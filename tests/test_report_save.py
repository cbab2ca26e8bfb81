"""Tables beside the report: as pandas writes them, with and without pyarrow."""

import resource

import numpy as np
import pandas as pd
import pytest

from cctrace.columns import Held, frame_of
from cctrace.report import arrow
from cctrace.report import save as module
from cctrace.report.arrow import arrow_tables
from cctrace.report.save import csv_parts, save
from cctrace.schema import MISSING

STRANGE = ["a,b", 'a "b"', "two\nlines", "", None, "plain", "=1+1", "ü"]
TABLES = {
    "repeats": {"a": np.repeat([1, 2**40], 50), "b": np.tile([0.1, np.nan], 50)},
    "distinct": {"a": np.arange(8), "b": np.linspace(0, 1, 8), "c": STRANGE},
    "texts repeat": {"mode": np.repeat(np.array(STRANGE, object), 9), "arg": np.ones(72, "u1")},
    "nullable": {"a": np.array([1, MISSING, -(2**63) + 1, 2**63 - 1, 0, -10]), "b": [None, False] * 3},
    "objects": {"a": [[1, 2], {"x": 1}, None, 1.5], "arg": np.ones(4, "i4")},
    "infinite": {"a": np.array([np.inf, -np.inf, 1e300, 1e-7]), "b": np.array([1.5, 2, 3, 4], "f4")},
    "unsigned": {"a": np.array([2**64 - 1, 0], "u8"), "b": np.array([1, 0], bool)},
    "many": {"a": np.arange(20_000) - 10_000, "b": np.arange(20_000) // 7 / 3},
    "of records": {name: np.ones(5, [("x", "u2"), ("y", "f8")])[name] for name in "xy"},
    "no rows": {"a": np.zeros(0, np.int64), "b,c": np.zeros(0)},
}  # fmt: skip


def as_pandas(table, nullable=()):
    return frame_of(table, nullable)


@pytest.mark.parametrize("rows", [arrow.ROWS, 3])  # of a part
@pytest.mark.parametrize("name", TABLES)
def test_csv_is_what_pandas_writes(monkeypatch, name, rows):
    monkeypatch.setattr(arrow, "ROWS", rows)
    nullable = ["a"] if name == "nullable" else []
    assert b"".join(csv_parts(TABLES[name])).decode() == as_pandas(TABLES[name], nullable).to_csv(index=False)


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("name", ["repeats", "many", "no rows"])
def test_a_table_is_read_back(tmp_path, monkeypatch, installed, name):
    monkeypatch.setattr(module, "is_installed", lambda package: installed)
    path = save(TABLES[name], tmp_path, "events")
    back = pd.read_parquet(path) if installed else pd.read_csv(path)
    pd.testing.assert_frame_equal(back, as_pandas(TABLES[name]), check_dtype=name != "no rows")


def test_counters_that_may_be_missing_are_read_back_as_whole_numbers(tmp_path):
    table = {"connection": np.zeros(3, np.int64), "rtt": np.array([1, MISSING, 3]), "sacked": np.arange(3)}
    table["bbr_mode"] = np.array(["DRAIN", None, "DRAIN"], object)
    back = pd.read_parquet(save(table, tmp_path, "tcpinfo", ["rtt", "sacked"]))
    pd.testing.assert_frame_equal(back, as_pandas(table, ["rtt", "sacked"]))


def test_a_table_is_written_in_parts_of_one_type(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "ROWS", 2)
    table = {"connection": np.zeros(5, np.int64), "rtt": np.array([1, 2, MISSING, 3, 4])}
    table["bbr_mode"] = np.array([None, None, "DRAIN", "DRAIN", None], object)
    table["phase"] = np.array(["DRAIN", "DRAIN", "DRAIN", "PROBE_BW", "DRAIN"], object)
    path = save(table, tmp_path, "tcpinfo", ["rtt"])
    pd.testing.assert_frame_equal(pd.read_parquet(path), as_pandas(table, ["rtt"]))
    assert pytest.importorskip("pyarrow.parquet").ParquetFile(path).num_row_groups == 3


PLAIN = {
    "texts": ["ü", None, "", "BBR", "BBR"],
    "records": [{"a": 1, "b": {"c": [0.5, 2]}}, None, {"a": None}, {"b": None}, {"a": 2, "d": "x"}],
    "lists": [[], None, [{"name": "a"}], [{"name": None}, {"other": True}], []],
    "mixed": [1, 2.5, None, 2**53, 0],
    "counts": [1, 2**62, None, -(2**63), 0],
    "bits": [True, None, False, True, False],
    "nothing": [None] * 5,
    "nested nothing": [[], [], [None], [], []],
    "numbers of numpy": [np.int64(1), np.float64(2.5), None, 3, 4],
    "narrow": np.array([1, 2, 3, 4, 5], "u2"),
    "single": np.array([1.5, np.nan, np.inf, 0, -0.0], "f4"),
    "true": np.array([1, 0, 0, 1, 1], bool),
    "names": np.array(["a", "b", "a", "", "c"]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_column_becomes_what_arrow_itself_makes_of_it(name):
    pa = pytest.importorskip("pyarrow")
    values = PLAIN[name]
    objects = values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind == "U" else values
    if name == "numbers of numpy":
        objects = [1.0, 2.5, None, 3.0, 4.0]  # pyarrow itself refuses to mix them
    want = pa.array(objects, from_pandas=True)
    (table,) = arrow_tables({name: values})
    got = table[name].combine_chunks()
    got.validate(full=True)
    assert got.type.equals(want.type)
    assert got.equals(want)


def test_a_column_without_a_type_is_refused():
    with pytest.raises(TypeError, match="a column of dict, int has no type"):
        list(arrow_tables({"a": [1, {"x": 1}]}))


def test_numbers_among_texts_become_texts():
    (table,) = arrow_tables({"a": [1, "x", None, 2.5]})
    assert table["a"].to_pylist() == ["1", "x", None, "2.5"]


def test_whole_numbers_beyond_64_bits_become_fractional_ones():
    (table,) = arrow_tables({"a": [10**40, None, 3], "b": [{"x": 2**63}, {"x": -1}, None]})
    assert table["a"].to_pylist() == [1e40, None, 3.0]
    assert table["b"].to_pylist() == [{"x": 2.0**63}, {"x": -1.0}, None]


def test_csv_is_made_of_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(arrow, "ROWS", 100)
    asked = []

    class Recorded(Held):
        def part(self, begin, end):
            asked.append((begin, end))
            return super().part(begin, end)

        def __getitem__(self, name):
            raise AssertionError(f"all of column {name}")

    columns = {"snd_una": np.arange(250), "snd_cwnd": np.repeat(10, 250)}
    text = b"".join(csv_parts(Recorded(250, columns, {}))).decode()
    assert text == as_pandas(columns).to_csv(index=False)
    assert asked == [(0, 100), (100, 200), (200, 300)]


@pytest.mark.parametrize("installed", [True, False])
def test_a_disk_that_is_full_leaves_the_earlier_table_and_is_told_with_the_file(tmp_path, monkeypatch, installed):
    monkeypatch.setattr(module, "is_installed", lambda package: installed)
    path = save({"snd_una": np.arange(9), "now_us": np.arange(9)}, tmp_path, "flows")
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    noise = np.random.default_rng(1).integers(1 << 60, size=(2, 9000))
    try:
        with pytest.raises(OSError, match="large") as told:
            save({"snd_una": noise[0], "now_us": noise[1]}, tmp_path, "flows")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert told.value.filename == str(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
