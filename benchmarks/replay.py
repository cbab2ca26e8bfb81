"""How fast a stream is replayed, and how soon: ``python -m benchmarks.replay [--only NAME…]``.

One line for each registered controller: calls per second compiled and interpreted, their ratio, and the time until the
first call is done in a new process, imports not counted, without a cache (`first s`) and with it (`again s`).

The golden vectors of a controller (for those without: of its parent, or of a relative) are laid end to end, each starts
with `init`, and repeated to a million calls; the outputs and up to six columns of model state are recorded. Best of
five, CPU time of one core (another process on the same core still costs cache and memory bandwidth). The released C
code does 15 to 40 million calls a second in this setting (BBR-S 1.2); the compiled classes must do 15 (BBR-S 2), and be
ready in 1.5 s without a cache, in 0.1 s with it.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llvmlite.binding
import numpy as np

from cctrace.cc import REGISTRY, controller
from cctrace.cc.compare import describe
from cctrace.errors import ArgumentError
from cctrace.flows.views import View
from cctrace.lang.compile import compiled
from cctrace.replaying.player import Player
from cctrace.replaying.run import recorded_names
from cctrace.replaying.vectors import load

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
CALLS = 1_000_000
FOLDERS = {
    "bbr_draft": "bbr3",
    "bbr_draft_quic": "bbr3",
    "obbr": "obbr_mu0.5",
    "prague2020": "prague2020_internal_pacing0",
    "quic_reno": "quic_cubic",
    "reno": "cubic",
}


def vectors_of(name):
    """Return the golden vectors of a controller, or of the nearest ancestor that has some."""
    while not (folder := GOLDEN / FOLDERS.get(name, name)).is_dir():
        name = describe(name)["parent"]
    return sorted(folder.glob("*.parquet"))


def tiled(views, names, calls):
    """Lay views end to end and repeat them to `calls` rows."""

    def join(parts):
        return np.resize(np.concatenate(list(parts)), calls)

    columns = {name: join(view.columns[name] for view in views) for name in names}
    carried = {name: join(view.carried[name] for view in views) for name in views[0].carried}
    return View(views[0].kind, join(view.event for view in views), columns, carried)


def recorded(cls):
    """Return what is recorded by default: the outputs and up to six columns of the model."""
    return recorded_names(cls, None)


def rate(cls, views, mode, calls):
    """Return calls per second."""
    view = tiled(views, compiled(cls).columns, calls)
    Player(view, cls, mode=mode, record=recorded(cls)).run(1)  # compiled, loaded
    times = []
    for _ in range(5 if mode == "compiled" else 1):
        player = Player(view, cls, mode=mode, record=recorded(cls))
        start = time.process_time()
        player.run()
        times.append(time.process_time() - start)
    return calls / min(times)


def start(name):
    """Print the CPU seconds from a class to its first call."""
    cls, _ = controller(name)
    view = load(vectors_of(name)[0]).view
    begin = time.process_time()
    Player(view, cls, record=recorded(cls)).run(1)
    print(time.process_time() - begin)


def starts(name):
    """Return the times of a first and of a second process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--start", name]
        environment = os.environ | {"CCTRACE_CACHE": cache, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
        runs = [subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)]
    return [float(run.stdout) for run in runs]


def machine():
    """Return what the numbers depend on."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = f"Python {platform.python_version()}, llvmlite {llvmlite.__version__}, NumPy {np.__version__}"
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores, load {load}; {versions}"


def main():
    """Print the machine and a line for each controller."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=REGISTRY, help="these controllers")
    parser.add_argument("--start", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start)
        return
    print(machine())
    numbers = f"{'compiled M/s':>13}{'interpreted M/s':>17}{'ratio':>7}{'first s':>9}{'again s':>9}"
    print(f"{'controller':15}{numbers}  recorded")
    for name in arguments.only or REGISTRY:
        cls, _ = controller(name)
        if cls.interpreted_only:
            print(f"{name:15} cannot be compiled: {cls.interpreted_only}")
            continue
        views = [load(path).view for path in vectors_of(name)]
        try:
            Player(views[0], cls).run()
        except ArgumentError as error:  # one of whose parameters has no default
            print(f"{name:15} not timed: {error}")
            continue
        fast, slow = rate(cls, views, "compiled", CALLS), rate(cls, views, "interpreted", CALLS // 50)
        first, again = starts(name)
        numbers = f"{fast / 1e6:13.1f}{slow / 1e6:17.2f}{fast / slow:7.0f}{first:9.2f}{again:9.2f}"
        print(f"{name:15}{numbers}  {' '.join(recorded(cls))}", flush=True)


if __name__ == "__main__":
    main()
