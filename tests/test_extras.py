"""What is not installed unless asked for: said in a line where it is needed, done without where it can be."""

import sys

import pandas as pd
import pytest

import cctrace as cct
from cctrace.errors import MissingError
from cctrace.extras import needed
from cctrace.report import save


@pytest.fixture
def without(monkeypatch):
    """Let an import of pyarrow and matplotlib fail as if they were not installed."""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("pyarrow", "matplotlib")]:
        monkeypatch.delitem(sys.modules, name)

    class Nobody:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("pyarrow", "matplotlib"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Nobody(), *sys.meta_path])
    monkeypatch.setattr(save, "is_installed", lambda package: False)


def test_a_missing_package_is_named_with_the_extra_that_brings_it(without):
    with pytest.raises(MissingError, match=r"needs matplotlib, .* pip install 'cctrace\[plot\]'"):
        needed("matplotlib.figure", "plot")


def test_a_golden_vector_cannot_be_read_without_pyarrow(without):
    with pytest.raises(MissingError, match=r"pip install 'cctrace\[parquet\]'"):
        cct.replay("tests/golden/cubic/fuzz_s1.parquet", "cubic")


def test_the_tables_of_a_report_are_csv_without_pyarrow(without, tmp_path):
    frame = pd.DataFrame({"time_ns": [1, 2], "cwnd": [10, 11]})
    save.save(frame, tmp_path, "flow0-replay")
    (file,) = tmp_path.iterdir()
    assert file.name == "flow0-replay.csv.gz"
    assert pd.read_csv(file).equals(frame)
