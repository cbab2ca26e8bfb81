"""Benchmarks over recordings say which folders they expect."""

from types import SimpleNamespace

import pytest

from benchmarks import identify, whatif


def test_a_folder_of_recordings_stands_for_the_recordings_in_it(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scenario.json").touch()
    assert identify.recordings_in(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert identify.recordings_in(tmp_path / "a") == [tmp_path / "a"]


def test_a_folder_of_another_layout_is_told(tmp_path):
    with pytest.raises(SystemExit, match="no recording"):
        identify.recordings_in(tmp_path)
    with pytest.raises(SystemExit, match=r"no recordings NAME-HELD\.own"):
        whatif.held(SimpleNamespace(captures=tmp_path, only=".", own=None, draws=3))
