"""Files are written whole or not at all, and an error names the one that could not be written."""

import os
import resource
import signal
import stat
import subprocess
import sys

import pytest

from cctrace import datasets
from cctrace.files import _without_name, write_text

CAPTURE = str(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
PATH = ["--rate", "10Mbit", "--rtt", "20ms"]


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["simulate", *PATH, "--cc", "cubic6", "--duration", "2s", "--pcap", "FILE"], "s.pcap"),
        (["stream", *PATH, "--cc", "cubic6", "--length", "300s", "--csv", "FILE"], "s.csv"),
        (["replay", CAPTURE, "--cc", "cubic6", "-o", "FILE"], "r.parquet"),
        (["convert", CAPTURE, "FILE"], "c.parquet"),
        (["plot", "flow", "rtt", CAPTURE, "-o", "FILE"], "p.png"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_file_that_does_not_fit_on_the_disk_is_named_and_not_left_in_part(arguments, file, tmp_path):
    """Here a limit on the size of files stands for the disk's."""
    target = tmp_path / file
    done = subprocess.run(
        [sys.executable, "-m", "cctrace", *[str(target) if one == "FILE" else one for one in arguments]],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"cctrace: {target}: ")
    assert list(tmp_path.iterdir()) == []


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path):
    link, file = tmp_path / "link.csv", tmp_path / "elsewhere" / "file.csv"
    file.parent.mkdir()
    link.symlink_to(file)
    for text in ("first", "second"):
        write_text(link, text)
        assert (link.is_symlink(), file.read_text()) == (True, text)
    with pytest.raises(OSError, match=r"No such file.*missing.csv") as error:
        write_text(tmp_path / "folder" / "missing.csv", "text")
    assert error.value.filename == str(tmp_path / "folder" / "missing.csv")


def test_the_name_of_an_unfinished_file_is_not_to_be_guessed_and_its_mode_is_the_users(tmp_path):
    """In a folder that others can write to, a link that waits under a known name would be written through."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    target = tmp_path / ("long" * 62 + ".csv")  # with anything added the name would be too long
    (tmp_path / "file.csv.part").symlink_to(victim)
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file.csv", "text")
        write_text(target, "text")
    finally:
        os.umask(before)
    assert (victim.read_text(), target.read_text()) == ("kept", "text")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.csv", "file.csv.part", target.name, "victim"]


KILLED = """
import os, signal, sys
from cctrace.files import replacing
with replacing(sys.argv[1]) as part:
    with open(part, "w") as file:
        file.write("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_nothing(tmp_path):
    if _without_name(str(tmp_path)) is None:
        pytest.skip("this file system knows no files without a name")
    target = tmp_path / "file.csv"
    target.write_text("before")
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False).returncode == -signal.SIGKILL
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file.csv", "before")]


def test_a_file_system_that_knows_no_files_without_a_name_is_written_to_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("cctrace.files._without_name", lambda folder: None)
    write_text(tmp_path / "file.csv", "text")
    with pytest.raises(OSError, match="No such file"):
        write_text(tmp_path / "folder" / "file.csv", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"]
