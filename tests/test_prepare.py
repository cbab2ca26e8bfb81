"""What an installation compiles is what the stock commands call: nobody waits for a compiler at the first capture."""

import subprocess
import sys

from cctrace import datasets

FIND_UNPREPARED = """
import sys
from cctrace import prepare
from cctrace.cli import main
from cctrace.lang import cache

asked, obtain = [], cache.obtain

def noting(title, key, build):
    asked.append((title, key))
    return obtain(title, key, build)

cache.obtain = noting
for task in prepare.tasks(parts=1):
    task()
prepared = set(asked)
capture, counters, folder = sys.argv[1:]
for command in (
    ["analyze", capture, "--tcpinfo", counters, "-o", folder],
    ["flows", capture],
    ["identify", capture],
    ["replay", capture, "--controller", "bbr3"],
    ["fit", "collapse", capture],
    ["whatif", capture, "--controller", "cubic6"],
    ["simulate", "--rate", "10Mbit", "--rtt", "20ms", "--buffer", "1bdp", "--cc", "bbr3,cubic6", "--duration", "1s"],
):
    assert main(command) == 0, command
assert "run_world" in {title for title, _ in prepared}
print("unprepared:", *sorted({title for title, key in asked if (title, key) not in prepared}))
"""


def test_stock_commands_find_all_their_compiled_code_prepared(tmp_path):
    recording = datasets.path("single_bbr_1bdp")
    files = [recording / "sender.pcap.zst", recording / "tcpinfo.csv.zst", tmp_path]
    done = subprocess.run([sys.executable, "-c", FIND_UNPREPARED, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "unprepared:"
