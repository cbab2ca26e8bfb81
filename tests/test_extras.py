"""What is not installed unless asked for: said in a line where it is needed, done without where it can be."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import extras
from cctrace.errors import MissingError
from cctrace.extras import how_to_install, needed
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
    with pytest.raises(MissingError, match=r"needs matplotlib, which is not installed: \S*pip install "):
        needed("matplotlib.figure", "plot")


_WITHOUT_EXTRAS = """
import importlib, pathlib, sys

import cctrace

class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "matplotlib", "fsspec", "dask", "distributed", "lz4", "anywidget"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nobody())
root = pathlib.Path(cctrace.__file__).parent
for file in sorted(root.rglob("*.py")):
    if file.name not in ("__main__.py", "pytest_plugin.py") and not {"_data", "mcp"} & set(file.parts):
        importlib.import_module(".".join(("cctrace", *file.relative_to(root).with_suffix("").parts)))
"""


def test_every_module_can_be_imported_without_the_extras():
    done = subprocess.run([sys.executable, "-c", _WITHOUT_EXTRAS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_in_a_checkout_the_environments_own_pip_installs_in_place(monkeypatch, tmp_path):
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    pip = checkout / ".venv" / "bin" / "pip"
    for folder in (pip.parent, elsewhere):
        folder.mkdir(parents=True)
    pip.touch()
    (checkout / "setup.cfg").touch()
    monkeypatch.setattr(extras, "_ABOVE", checkout)
    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    monkeypatch.chdir(checkout)
    assert how_to_install("plot") == ".venv/bin/pip install -e '.[plot]'"
    monkeypatch.chdir(elsewhere)
    assert how_to_install("plot") == f"{pip} install -e '{checkout}[plot]'"
    monkeypatch.setenv("PATH", str(pip.parent), prepend=os.pathsep)  # the environment is activated
    assert how_to_install("plot") == f"pip install -e '{checkout}[plot]'"
    monkeypatch.setattr(extras, "_ABOVE", elsewhere)  # as in site-packages
    assert how_to_install("plot") == "pip install 'cctrace[plot]'"
    pip.unlink()  # an environment without pip of its own, as uv makes them
    assert how_to_install("plot") == f"{sys.executable} -m pip install 'cctrace[plot]'"


def test_a_protocol_that_takes_a_package_of_its_own_is_no_internal_error(monkeypatch):
    def refuses(url, mode):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.open", refuses)
    with pytest.raises(MissingError, match=r"s3://bucket/x.pcap: Install s3fs to access S3 \(with \S*pip install\)"):
        cct.read("s3://bucket/x.pcap")


def test_a_golden_vector_cannot_be_read_without_pyarrow(without):
    with pytest.raises(MissingError, match=r"needs pyarrow, .*pip install .*\[parquet\]'"):
        cct.replay("tests/golden/cubic/fuzz_s1.parquet", "cubic")


def test_the_tables_of_a_report_are_csv_without_pyarrow(without, tmp_path):
    table = {"time_ns": np.array([1, 2]), "cwnd": np.array([10, 11])}
    save.save(table, tmp_path, "flow0-replay")
    (file,) = tmp_path.iterdir()
    assert file.name == "flow0-replay.csv.gz"
    assert pd.read_csv(file).equals(pd.DataFrame(table))


def test_analyze_without_pyarrow_waits_for_nothing_that_it_does_not_need(tmp_path):
    folder = cct.datasets.path("loss_cubic_1pct")
    words = [
        "analyze",
        folder / "sender.pcap.zst",
        "--tcpinfo",
        folder / "tcpinfo.csv.zst",
        "-o",
        tmp_path,
        "--no-effects",
    ]
    script = (
        "import sys; from cctrace import extras; extras.is_installed = lambda package: False;"
        f"from cctrace.cli import main; main({[str(word) for word in words]!r});"
        "heavy = {'pandas', 'pyarrow', 'matplotlib', 'xarray', 'rich', 'scipy.stats', 'scipy.optimize'};"
        "loaded = heavy & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "flow0-replay.csv.gz").exists()
