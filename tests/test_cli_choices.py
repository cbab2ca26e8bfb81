"""Commands say what they choose by themselves, distinguish files of one name, and report progress of long runs."""

import json
import shutil
import time

import pytest

from cctrace import datasets
from cctrace.cli import common, main
from cctrace.report.compare import _names

COUNTERS = str(datasets.path("web_server", "ss.txt.gz"))
CAPTURE = str(datasets.path("web_server", "sender.pcap.zst"))


@pytest.mark.parametrize(
    ("controller", "chosen"),
    [
        ("bbr2022", "it sent most of the 4 whose counters name bbr"),
        ("cubic", "it sent most of the 4 whose counters name cubic"),
        ("reno", "it sent most of "),
    ],
)
def test_replay_takes_the_largest_flow_that_the_controller_sent_and_says_so(capsys, controller, chosen):
    assert main(["replay", COUNTERS, "--controller", controller, "--json"]) == 0
    assert chosen in json.loads(capsys.readouterr().out)["words"]["chosen"]


def test_replay_of_a_flow_that_was_asked_for_says_nothing_of_a_choice(capsys):
    assert main(["replay", COUNTERS, "--controller", "cubic", "--flow", "3", "--json"]) == 0
    assert "chosen" not in json.loads(capsys.readouterr().out)["words"]


def test_plot_flow_draws_the_largest_flow_and_says_which(capsys, tmp_path):
    picture = tmp_path / "rtt.svg"
    assert main(["plot", "flow", "rtt", CAPTURE, "-o", str(picture)]) == 0
    assert capsys.readouterr().out == f"drawn: {picture}, of flow 4: 192.0.2.1:443 → 198.51.100.10:36220\n"


def test_plot_flow_speaks_of_the_options_that_were_given(capsys, tmp_path):
    asked = ["plot", "flow", "time-sequence", CAPTURE, "--from", "90s", "--to", "91s", "-o", str(tmp_path / "a.svg")]
    assert main(asked) == 2
    assert "--from=90 s, --to=91 s: no packet there; the flow lasts from 0 to 10.6 s" in capsys.readouterr().err


def test_files_of_one_name_are_told_apart_by_their_folders():
    assert _names("a/sender.pcap", "b/sender.pcap") == ["a-sender", "b-sender"]
    assert _names("a/one.pcap", "b/two.pcap") == ["one.pcap", "two.pcap"]


def test_diff_names_both_files(capsys, tmp_path):
    files = []
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        files.append(str(shutil.copy(datasets.path("web_server", "ss.txt.gz"), tmp_path / name / "ss.txt.gz")))
    assert main(["diff", *files, "-o", str(tmp_path / "page")]) == 0
    out = capsys.readouterr().out
    assert all(file in out for file in files)
    assert "<h1>before-ss.txt against after-ss.txt</h1>" in (tmp_path / "page" / "report.html").read_text("utf-8")


def test_what_takes_long_is_told_on_a_pipe_too_and_what_does_not_is_not(capsys, monkeypatch):
    with common.progress("reading x"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(common, "SILENT_S", 0.01)
    with common.progress("reading x") as say:
        said = until_said(capsys, "cctrace: reading x (")
        say("drawing\ny")
        said = until_said(capsys, "cctrace: drawing y (")
    assert said.endswith(" s)\n")


def until_said(capsys, words):
    """Wait until stderr has some words, for a minute at most; return all of it."""
    said, end = "", time.monotonic() + 60
    while words not in said:
        assert time.monotonic() < end, said
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said
