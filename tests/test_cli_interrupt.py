"""Ctrl-C ends what runs, whatever runs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cctrace import datasets
from cctrace.cli.common import interruptible
from cctrace.io.source import open_source

LONGEST_S = 120  # of anything, on however busy a machine
WORKING_S = 2.0  # of CPU time, after which a command has begun with its work
RECORDING = str(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst"))
SLOW = {
    "simulate": ["simulate", "--rate", "1Gbit", "--cc", "bbr,cubic", "--duration", "3600s"],
    "sweep": ["sweep", "--rate", "1Gbit", "--cc", "bbr", "--duration", "3600s", "--workers", "2"],
    "fit": ["fit", "path", *[RECORDING] * 100],
    "replay": ["replay", RECORDING, "--controller", "bbr3", "--interpreted"],
}


@pytest.mark.parametrize("name", sorted(SLOW))
def test_an_interrupt_ends_a_command_and_all_of_its_processes_in_one_line(name):
    """As the terminal's Ctrl-C, once the work is under way; alone it would take far longer than anybody waits here."""
    command = [sys.executable, "-m", "cctrace", *SLOW[name]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        try:
            while cpu_seconds(running.pid) < WORKING_S:
                assert running.poll() is None
                time.sleep(0.02)
            os.killpg(running.pid, signal.SIGINT)
            _, errors = running.communicate(timeout=LONGEST_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130
    assert errors.splitlines()[-1] == "cctrace: interrupted"
    assert "Traceback" not in errors


def test_an_interrupt_ends_a_command_that_waits_for_standard_input():
    """A thread that reads ahead is then in the middle of a read, which no lock may bind to Python's end."""
    command = [sys.executable, "-m", "cctrace", "flows", "-"]
    with open_source(RECORDING) as source:
        begin = source.read(100_000)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        try:
            running.stdin.write(begin)
            running.stdin.flush()
            errors = running.stderr.readline()  # after two seconds of waiting
            running.send_signal(signal.SIGINT)
            errors += running.stderr.read()
            running.wait(LONGEST_S)
        finally:
            running.kill()
    assert running.returncode == 130
    assert errors.splitlines()[0].startswith(b"cctrace: reading -")
    assert errors.splitlines()[-1] == b"cctrace: interrupted"


def cpu_seconds(group):
    """Return the CPU time that a group of processes has had."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:13])) if int(fields[2]) == group else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def test_an_interrupt_that_a_library_swallows_comes_again():
    swallowed, seen = [], []

    def swallows():
        with interruptible() as interrupts:
            seen.append(interrupts)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(LONGEST_S)
            except KeyboardInterrupt:
                swallowed.append(True)
            time.sleep(LONGEST_S)

    with pytest.raises(KeyboardInterrupt):
        swallows()
    assert (swallowed, len(seen[0])) == ([True], 2)
