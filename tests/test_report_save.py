"""Tables beside the report: as pandas writes them, where pyarrow is not installed."""

import numpy as np
import pandas as pd
import pytest

from cctrace.report import save as module
from cctrace.report.save import csv_text, save

STRANGE = ["a,b", 'a "b"', "two\nlines", "", None, "plain", "=1+1", "ü"]
FRAMES = {
    "repeats": pd.DataFrame({"a": np.repeat([1, 2**40], 50), "b": np.tile([0.1, np.nan], 50)}),
    "distinct": pd.DataFrame({"a": np.arange(8), "b": np.linspace(0, 1, 8), "c": STRANGE}),
    "strings repeat": pd.DataFrame({"mode": STRANGE * 9, "arg": 1}),
    "nullable": pd.DataFrame({"a": pd.array([1, None] * 9, "Int64"), "b": pd.array([None, False] * 9, "boolean")}),
    "objects": pd.DataFrame({"a": [[1, 2], {"x": 1}, None, 1.5], "arg": 1}),
    "infinite": pd.DataFrame({"a": [np.inf, -np.inf, 1e300, 1e-7], "b": np.array([1.5, 2, 3, 4], "f4")}),
    "unsigned": pd.DataFrame({"a": np.array([2**64 - 1, 0], "u8"), "b": np.array([1, 0], bool)}),
    "no rows": pd.DataFrame({"a": [], "b,c": []}),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_csv_is_what_pandas_writes(name):
    assert csv_text(FRAMES[name]) == FRAMES[name].to_csv(index=False)


@pytest.mark.parametrize("installed", [False, True])
def test_a_table_is_read_back(tmp_path, monkeypatch, installed):
    monkeypatch.setattr(module, "is_installed", lambda package: installed)
    path = save(FRAMES["repeats"], tmp_path, "events")
    back = pd.read_parquet(path) if installed else pd.read_csv(path)
    pd.testing.assert_frame_equal(back, FRAMES["repeats"])
