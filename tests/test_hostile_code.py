"""Nothing that lies in the working directory, beside a stranger's captures, is run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cctrace as cct
from cctrace.lang.processes import processes

ROOT = Path(cct.__file__).parents[1]
NAMES = ("numpy", "pandas", "socket", "multiprocessing", "cctrace")


@pytest.fixture
def folder(tmp_path):
    """A folder with a capture, and modules that leave a file where they are imported."""
    for name in NAMES:
        tmp_path.joinpath(f"{name}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w').write({name!r})\n")
    tmp_path.joinpath("a.pcap.zst").write_bytes(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst").read_bytes())
    return tmp_path


def run(folder, *command):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_corpus_run_imports_nothing_from_the_working_directory(folder):
    start = "import sys; from cctrace.cli import main; sys.exit(main())"  # what the command `cctrace` does
    run(folder, sys.executable, "-P", "-c", start, "corpus", "run", "a.pcap.zst", "-o", "out", "--tasks", "flows")
    assert not (folder / "was_run").exists()


def test_as_a_module_it_imports_nothing_from_the_working_directory(folder):
    for name in ("cctrace", "socket", "multiprocessing"):  # Python itself looks for these before cctrace begins
        folder.joinpath(f"{name}.py").unlink()
    assert json.loads(run(folder, sys.executable, "-m", "cctrace", "flows", "--json", "a.pcap.zst"))
    assert not (folder / "was_run").exists()


def test_processes_that_share_the_work_import_nothing_from_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with processes(1) as pool:
        assert pool.submit(len, "four").result() == 4
    assert not (folder / "was_run").exists()
