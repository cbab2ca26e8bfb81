"""Controllers in files of one's own: run only if named, and only if allowed."""

import json
import os
import pty
import re
import select
import subprocess
import sys

import pytest

import cctrace as cct
from cctrace.errors import ArgumentError

CAPTURE = str(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
HELD = """
from pathlib import Path

import cctrace as cct
from cctrace.cc.base import Param

Path(__file__).with_name("ran").touch()


class Held(cct.LinuxController):
    sets_pacing_rate = False
    params = cct.LinuxController.params | {"window": Param(40, 2, 1000, "segments, whatever happens")}

    def on_ack(self, ack):
        self.snd_cwnd = doubled(self.window)


def doubled(window):
    return 2 * window


class Lazy(cct.LinuxController):
    pass
"""


@pytest.fixture
def held(tmp_path):
    file = tmp_path / "held.py"
    file.write_text(HELD)
    return f"{file}:Held"


RAISES = """from cctrace.cc.base import LinuxController


class Own(LinuxController):
    def on_ack(self, ack):
        self.snd_cwnd = 1 // (ack.arg - ack.arg)
"""
SIMULATE = ("simulate", "--rate", "10Mbit", "--duration", "2s", "--json")


def test_a_class_in_a_file_is_simulated_replayed_and_asked_about(held, run):
    status, out, _ = run(*SIMULATE, "--cc", f"{held}:window=20,cubic6", "--trust")
    assert status == 0
    assert [flow["cc"] for flow in json.loads(out)["flows"]] == [f"{held}:window=20", "cubic6"]
    status, out, _ = run("replay", CAPTURE, "--cc", held, "-y", "--json")
    assert (status, json.loads(out)["last"]["snd_cwnd"]) == (0, 80)
    status, out, _ = run("whatif", CAPTURE, "--cc", held, "--own", "cubic6", "--draws", 3, "-y", "--json")
    assert (status, list(json.loads(out)[0]["candidates"])) == (0, [held])


def test_workers_of_a_sweep_have_the_class_and_results_are_those_of_its_text(held, run, tmp_path):
    kept = tmp_path / "results.jsonl"
    sweep = (
        "sweep",
        "--rate",
        "10Mbit",
        "--duration",
        "1s",
        "--seeds",
        2,
        "--cc",
        held,
        "--file",
        kept,
        "-y",
        "--json",
    )
    status, out, _ = run(*sweep)
    assert (status, len(json.loads(out)), len(kept.read_text().splitlines())) == (0, 1, 2)
    whole = kept.read_text()
    assert run(*sweep)[0] == 0
    assert kept.read_text() == whole  # nothing is simulated again
    changed = tmp_path / "changed.py"
    changed.write_text(HELD.replace("2 * window", "3 * window"))
    os.replace(changed, tmp_path / "held.py")
    again = subprocess.run(
        [sys.executable, "-m", "cctrace", *map(str, sweep)], capture_output=True, text=True, check=True
    )
    assert re.sub(r"cctrace: \d of 2 simulations \(\d+ s\)\n", "", again.stderr) == ""  # what a slow machine says
    assert len(kept.read_text().splitlines()) == 4


def test_without_a_terminal_and_without_leave_no_file_is_run(held, run, tmp_path):
    status, _, err = run(*SIMULATE, "--cc", held)
    assert status == 2
    assert "as a program, with all your rights; add --trust" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 2)])
def test_a_terminal_is_asked_once(held, tmp_path, answer, status):
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "cctrace", *SIMULATE, "--cc", f"{held},{held}"]
    process = subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=end)
    os.close(end)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, f"{answer}\n".encode())
    out, _ = process.communicate(timeout=120)
    while select.select([terminal], [], [], 0)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the other end is closed, and all was read
            break
    assert process.returncode == status
    assert shown.count(b"Run it?") == 1
    assert (tmp_path / "ran").exists() == (answer == "y")
    assert (b"it was not run" in shown) == (answer == "n")
    assert bool(out.strip()) == (answer == "y")  # click 8.2.0 prints a space of its prompt


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("held.py", "name the class in it, too: held.py:CLASS"),
        ("hold.py:Held", "hold.py: no such file; did you mean 'held.py'?"),
        ("held.py:Helt", "--cc held.py:Helt: held.py has no controller class 'Helt' (it has: Held, Lazy)"),
        ("held.py:Lazy", "Lazy never sets its window"),
        ("held.py:Held:window=1", "Held: window=1 is outside [2, 1000]"),
        ("broken.py:Held", "broken.py, line 2: ZeroDivisionError: division by zero"),
        ("wrong.py:Held", "wrong.py, line 1: SyntaxError"),
        ("ends.py:Held", "ends.py, line 3: SystemExit: 0"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(held, run, tmp_path, monkeypatch, name, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("one = 1\none / 0\n")
    (tmp_path / "wrong.py").write_text("one = = 1\n")
    (tmp_path / "ends.py").write_text("import sys\n\nsys.exit(0)\n")
    status, _, err = run(*SIMULATE, "--cc", name, "--trust")
    assert (status, err.count("\n")) == (2, 1)
    assert told in err


def test_only_the_named_text_runs(held, run, tmp_path):
    # neither a compiled copy beside the file, nor modules in its folder or in the working directory
    (tmp_path / "numpy.py").write_text("raise SystemExit('numpy.py was run')")
    assert run(*SIMULATE, "--cc", held, "--trust")[0] == 0
    assert not (tmp_path / "__pycache__").exists()


def test_a_name_in_a_specification_alone_runs_nothing(held, run, tmp_path):
    with pytest.raises(ArgumentError, match="was not loaded: only commands with --trust run a file"):
        cct.simulate(cct.Path(rate="10Mbit"), f"{tmp_path}/other.py:Held", "1s")
    status, _, err = run("corpus", "run", CAPTURE, "-o", tmp_path / "out", "--what-if", held)
    assert status == 2
    assert "was not loaded" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", [("replay", CAPTURE), ("replay", CAPTURE, "--interpreted"), SIMULATE], ids=str)
def test_what_a_class_raises_is_said_with_its_line(command, tmp_path, run):
    own = tmp_path / "own.py"
    own.write_text(RAISES, encoding="utf-8")
    status, out, err = run(*command, "--cc", f"{own}:Own", "--trust")
    said = err.splitlines()[-1]
    assert (status, out) == (2, "")
    assert said.startswith(f"cctrace: {own}:Own raised ZeroDivisionError: {own}:6: ")
