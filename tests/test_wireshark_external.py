"""Annotated captures in tshark, with the plug-in."""

import os
import shutil
import subprocess

import pytest
from test_wireshark import PROBES, annotated, comments

from cctrace.wireshark.companion import NAMES, SUFFIX
from cctrace.wireshark.install import PLUGIN, install, plugin_folder

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return annotated(PROBES, tmp_path_factory.mktemp("annotated"))


def tshark(*arguments, plugin=True, **environment):
    command = ["tshark", *(["-X", f"lua_script:{PLUGIN}"] if plugin else []), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr.lower()
    return [line.split("\t") for line in result.stdout.splitlines()]


def fields(path, display_filter, *names, **environment):
    return tshark(
        "-r", path, "-Y", display_filter, "-T", "fields", *(x for n in names for x in ("-e", n)), **environment
    )


def test_packets_can_be_filtered_by_the_state_of_the_controller(found):
    _, target, _, rows = found
    inside = fields(target, 'cctrace.state == "PROBE_RTT"', "frame.number", "cctrace.cwnd")
    expected = [[str(frame), row["cwnd"]] for frame, row in rows.items() if row["state"] == "PROBE_RTT"]
    assert inside == expected != []


def test_every_field_is_what_the_companion_says(found):
    _, target, _, rows = found
    shown = fields(target, "cctrace and frame.number <= 3000", *("frame.number", *(f"cctrace.{n}" for n in NAMES[1:])))
    assert len(shown) == 3000
    for cells in shown:
        row = rows[int(cells[0])]
        cells = dict(zip(NAMES, cells + [""] * (len(NAMES) - len(cells)), strict=True))
        cells["spurious"] = {"True": "1", "False": "0"}.get(cells["spurious"], cells["spurious"])
        assert cells == row


def test_comments_are_there_without_the_plug_in(found):
    _, target, result, _ = found
    shown = tshark(
        "-r", target, "-Y", "frame.comment", "-T", "fields", "-e", "frame.number", "-e", "frame.comment", plugin=False
    )
    assert {int(frame): [text] for frame, text in shown} == comments(target)
    assert (
        result.flows[0] in subprocess.run(["capinfos", "-k", target], capture_output=True, text=True, check=True).stdout
    )


def test_annotations_are_found_by_name_and_those_of_another_capture_are_not_shown(found, tmp_path):
    _, target, _, rows = found
    moved = shutil.copy(target, tmp_path / "elsewhere.pcapng")
    assert fields(moved, "cctrace", "frame.number") == []
    named = fields(moved, "cctrace", "frame.number", CCTRACE_FILE=f"{target}{SUFFIX}")
    assert len(named) == len(rows)
    companion = f"{target}{SUFFIX}"
    other = subprocess.run(["editcap", "-t", "5", target, tmp_path / "later.pcapng"], capture_output=True, check=False)
    assert other.returncode == 0
    assert fields(tmp_path / "later.pcapng", "cctrace", "frame.number", CCTRACE_FILE=companion) == []


def test_a_file_of_another_kind_is_no_annotation(found, tmp_path):
    (tmp_path / "bad.tsv").write_text("os.exit(1)\n1\t2\n")
    assert fields(found[1], "frame.number == 1", "cctrace.limit", CCTRACE_FILE=str(tmp_path / "bad.tsv")) == [
        ["startup"]
    ]


def test_the_plug_in_is_loaded_from_the_folder_that_it_is_installed_in(found, tmp_path):
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    folders = subprocess.run(
        ["tshark", "-G", "folders"], capture_output=True, text=True, check=True, env=os.environ | home
    )
    assert (
        str(plugin_folder())
        in subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True).stdout
    )
    (line,) = (line for line in folders.stdout.splitlines() if line.startswith("Personal Lua Plugins:"))
    install(line.partition(":")[2].strip())
    shown = tshark(
        "-r", found[1], "-Y", "cctrace.cwnd == 4", "-T", "fields", "-e", "cctrace.state", plugin=False, **home
    )
    assert ["PROBE_RTT"] in shown
