"""Ctrl-C ends what runs within a second, whatever runs."""

import os
import signal
import subprocess
import sys
import time

import pytest

from cctrace import datasets
from cctrace.cli.common import interruptible

SLOW = {
    "simulate": ["simulate", "--rate", "1Gbit", "--cc", "bbr,cubic", "--duration", "3600s"],
    "sweep": ["sweep", "--rate", "1Gbit", "--cc", "bbr", "--duration", "3600s", "--workers", "2"],
    "fit": ["fit", "path", str(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst"))],
    "replay": [
        *("replay", str(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst"))),
        *("--controller", "bbr3", "--interpreted"),
    ],
}


@pytest.mark.parametrize("name", sorted(SLOW))
def test_an_interrupt_ends_a_command_at_once_and_in_one_line(name):
    """Of all of its processes, as the terminal's Ctrl-C; three seconds are what a busy machine may need for one."""
    command = [sys.executable, "-m", "cctrace", *SLOW[name]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        time.sleep(2.5)
        assert running.poll() is None
        os.killpg(running.pid, signal.SIGINT)
        told = time.monotonic()
        _, errors = running.communicate(timeout=30)
        assert time.monotonic() - told < 3
    assert running.returncode == 130
    assert errors.splitlines()[-1] == "cctrace: interrupted"
    assert "Traceback" not in errors


def test_an_interrupt_that_a_library_swallows_comes_again():
    swallowed, seen = [], []

    def swallows():
        with interruptible() as interrupts:
            seen.append(interrupts)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            except KeyboardInterrupt:
                swallowed.append(True)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        swallows()
    assert (swallowed, len(seen[0])) == ([True], 2)
