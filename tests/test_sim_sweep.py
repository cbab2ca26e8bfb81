"""A sweep is the grid of its simulations, and continues where it was interrupted."""

import json
import signal
import subprocess
import sys

import pytest

from cctrace.errors import ArgumentError, FormatError
from cctrace.sim import sweep as module
from cctrace.sim.path import Path
from cctrace.sim.simulate import simulate
from cctrace.sim.sweep import sweep

PATH = Path(rate="10Mbit", rtt="20ms", buffer="1bdp")


def test_every_cell_is_the_simulation_it_says():
    grid = sweep(PATH, ["bbr2022", ("cubic", "bbr2022")], [1, 2], duration="2s", workers=2, loss=["0%", "1%"])
    assert grid.goodput_bps.dims == ("cc", "loss", "seed", "flow")
    cell = grid.sel(cc="cubic+bbr2022", loss="1%", seed=2)
    alone = simulate(Path(rate="10Mbit", rtt="20ms", buffer="1bdp", loss="1%"), ["cubic", "bbr2022"], "2s", 2)
    assert cell.goodput_bps.to_numpy().tolist() == alone.flows.goodput_bps.tolist()
    assert float(cell.jain) == alone.link["jain"]
    assert grid.goodput_bps.sel(cc="bbr2022", flow=1).isnull().all()


def test_the_base_rtt_can_be_swept():
    grid = sweep(PATH, "cubic", 1, duration="1s", workers=1, rtt=["10ms", "80ms"])
    assert grid.rtt_mean_us.sel(rtt="10ms").item() < 80_000 < grid.rtt_mean_us.sel(rtt="80ms").item()


def test_an_interrupted_sweep_continues(tmp_path, monkeypatch):
    file = tmp_path / "sweep.jsonl"
    arguments = {"duration": "500ms", "workers": 1, "file": file}
    whole = sweep(PATH, "cubic", [1, 2, 3], **arguments)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]) + lines[2][:20])  # the third was being written
    ran = []
    run = module._run
    monkeypatch.setattr(module, "_run", lambda fixed, task: ran.append(task["seed"]) or run(fixed, task))
    again = sweep(PATH, "cubic", [1, 2, 3], **arguments)
    assert ran == [3]
    assert again.identical(whole)
    sweep(PATH, "cubic", [1, 2, 3], **arguments)
    assert ran == [3]
    sweep(PATH, "cubic", [1], **arguments | {"duration": "600ms"})
    assert len(ran) == 2


def test_bad_sweeps_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ArgumentError, match="sweep over 'bufer'"):
        sweep(PATH, "cubic", bufer=["1bdp"])
    with pytest.raises(ArgumentError, match="no controller is called"):
        sweep(PATH, ["cubic", "cubicc"], 1)
    with pytest.raises(ArgumentError, match="no values"):
        sweep(PATH, [], 1)
    other = tmp_path / "notes.txt"
    other.write_text(json.dumps([1, 2]) + "\n")
    with pytest.raises(FormatError, match="not a result of a sweep"):
        sweep(PATH, "cubic", 1, file=other)


KILLED = """
import os, signal, time
from cctrace.lang.processes import processes

with processes(2) as pool:
    pool.submit(time.sleep, 600)
    pool.submit(print, "at work", flush=True).result()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_the_process_that_made_them_is_killed():
    """They hold the other end of the pipe, which therefore ends with the last of them."""
    killed = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout == b"at work\n"
