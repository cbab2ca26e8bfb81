"""The shipped recordings are where the catalogue says, intact, from a checkout and from an installed wheel."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from cctrace import datasets, presets
from cctrace.errors import ArgumentError
from tests.places import REPOSITORY


def test_every_shipped_file_has_the_catalogued_hash():
    assert datasets.verify() == []


def test_no_file_ships_without_an_entry_in_the_catalogue():
    listed = {f"{name}/{file}" for name, entry in datasets.catalogue().items() for file in entry["files"]}
    present = {f"{file.parent.name}/{file.name}" for file in datasets.ROOT.glob("*/*")}
    assert present == listed


def test_a_changed_or_missing_file_is_named(tmp_path, monkeypatch):
    for name, entry in datasets.catalogue().items():
        (tmp_path / name).mkdir()
        for file in entry["files"]:
            (tmp_path / name / file).write_bytes((datasets.ROOT / name / file).read_bytes())
    (tmp_path / "loss_cubic_1pct" / "scenario.json").write_text("{}")
    (tmp_path / "single_bbr_1bdp" / "drops.csv.zst").unlink()
    monkeypatch.setattr(datasets, "ROOT", tmp_path)
    assert sorted(datasets.verify()) == ["loss_cubic_1pct/scenario.json", "single_bbr_1bdp/drops.csv.zst"]


def test_each_recording_has_what_an_analysis_needs():
    for name in datasets.catalogue():
        for file in ("sender.pcap.zst", "ss.txt.gz" if name == "web_server" else "tcpinfo.csv.zst", "scenario.json"):
            assert datasets.path(name, file).is_file()


def test_the_catalogue_says_where_the_data_come_from():
    assert {"recorded_by", "recorded_on", "kernel", "method", "content", "licence"} <= set(datasets.provenance())


def test_changing_the_returned_catalogue_does_not_change_the_next_one():
    datasets.catalogue()["single_bbr_1bdp"]["files"].clear()
    assert datasets.catalogue()["single_bbr_1bdp"]["files"]


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ArgumentError, match=r"no recording 'nosuch'.*jitter_bbr_sd2ms"):
        datasets.path("nosuch")
    with pytest.raises(ArgumentError, match=r"no file 'nosuch'.*sender\.pcap\.zst"):
        datasets.path("jitter_bbr_sd2ms", "nosuch")
    with pytest.raises(ArgumentError, match=r"no parameter set '../datasets/catalogue'"):
        presets.load("../datasets/catalogue")


@pytest.mark.slow
def test_an_installed_wheel_carries_the_recordings(tmp_path):
    """Built and installed as users get it, without dependencies: the modules concerned need none."""
    # From a copy: building leaves a folder behind that would go into the next wheel.
    leave = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__")
    shutil.copytree(REPOSITORY, tmp_path / "source", symlinks=True, ignore=leave)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, tmp_path / "source"]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(file.relative_to(REPOSITORY)) for file in REPOSITORY.glob("cctrace/**/*.py")}
    assert modules | {"cctrace/py.typed", "cctrace/report/main.js", "cctrace/report/report.css"} <= packed
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    script = (
        "import cctrace.datasets as d; import cctrace.presets as p; assert 'site-packages' in d.__file__;"
        "assert d.verify() == [] and len(d.catalogue()) >= 4; print(p.names())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run([python, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(presets.names())
