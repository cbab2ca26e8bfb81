"""The shell completes commands, options, files, and names of controllers, each of several."""

import click
import pytest
from click.shell_completion import BashComplete

from cctrace.cli import commands


def parameters(command):
    """The parameters of a command and of those below it."""
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


def completed(line):
    """What bash is offered for a line that ends where the cursor is: [(value, kind)]."""
    *words, begun = line.split(" ")
    shell = BashComplete(commands, {}, "cctrace", "_CCTRACE_COMPLETE")
    return [(one.value, one.type) for one in shell.get_completions(words, begun)]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ana", ("analyze", "plain")),
        ("fit pa", ("path", "plain")),
        ("analyze --tcp", ("--tcpinfo", "plain")),
        ("analyze --goal d", ("delay", "plain")),
        ("analyze mine", ("mine", "file")),
        ("analyze mine.pcap --tcpinfo s", ("s", "file")),
        ("analyze mine.pcap -o re", ("re", "dir")),
        ("convert mine.pcap head", ("head", "file")),
        ("replay mine.pcap --controller bbr202", ("bbr2022", "plain")),
        ("simulate --cc cubic6,bbr2p", ("cubic6,bbr2plus", "plain")),
        ("variants dct", ("dctcp", "plain")),
    ],
)
def test_what_was_begun_is_completed(line, offered):
    assert offered in completed(line)


def test_every_text_that_is_a_file_is_completed_as_one():
    """click completes nothing for a text, not even the names of files."""
    texts = [one for one in parameters(commands) if one.type is click.STRING]
    assert [one.name for one in texts if one.metavar in ("FILE", "DIR")] == []
    arguments = {one.name for one in texts if isinstance(one, click.Argument)}
    assert arguments <= {"quantity", "paper", "figure", "names"}, "an argument that is a file is completed as one"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_source_names_the_program(shell, run, monkeypatch, capsys):
    monkeypatch.setenv("_CCTRACE_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    assert "_CCTRACE_COMPLETE" in capsys.readouterr().out
