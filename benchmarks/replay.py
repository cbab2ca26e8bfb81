"""How fast a stream is replayed: ``python benchmarks/replay.py FOLDER_OF_GOLDEN_VECTORS…``.

The vectors of a folder are laid end to end (each starts with `init`) and repeated to a million calls; the outputs
and up to six columns of model state are recorded. Best of five, CPU time of one core (another process on the same
core still costs cache and memory bandwidth). The released C code does 15 to 40 million calls a second in this setting
(BBR-S 1.2); the compiled classes must do 15 (BBR-S 2).
"""

import sys
import time
from pathlib import Path

import numpy as np

from cctrace.engine.compile import compiled
from cctrace.engine.player import Player
from cctrace.engine.replay import recorded_names
from cctrace.engine.vectors import load
from cctrace.flows.views import View

CALLS = 1_000_000


def tiled(views, names, calls):
    """Lay views end to end and repeat them to `calls` rows."""

    def join(parts):
        return np.resize(np.concatenate(list(parts)), calls)

    columns = {name: join(view.columns[name] for view in views) for name in names}
    carried = {name: join(view.carried[name] for view in views) for name in views[0].carried}
    return View(views[0].kind, join(view.event for view in views), columns, carried)


def rate(vectors, mode, calls):
    """Return (seconds until the first call is done, calls per second) of a variant."""
    first = vectors[0]
    record = recorded_names(first.controller, None)
    view = tiled([v.view for v in vectors], compiled(first.controller).columns, calls)
    start = time.process_time()
    Player(view, first.controller, mode=mode, record=record, **first.params).run(1)
    ready = time.process_time() - start
    times = []
    for _ in range(5 if mode == "compiled" else 1):
        player = Player(view, first.controller, mode=mode, record=record, **first.params)
        start = time.process_time()
        player.run()
        times.append(time.process_time() - start)
    return ready, calls / min(times), record


def main(folders):
    """Print a line per folder."""
    print(f"{'variant':14} {'load or compile s':>17} {'compiled M/s':>13} {'interpreted M/s':>16}  recorded")
    for folder in folders:
        vectors = [load(path) for path in sorted(Path(folder).glob("*.parquet"))]
        ready, fast, record = rate(vectors, "compiled", CALLS)
        slow = rate(vectors, "interpreted", CALLS // 50)[1]
        print(f"{Path(folder).name:14} {ready:17.2f} {fast / 1e6:13.1f} {slow / 1e6:16.2f}  {' '.join(record)}")


if __name__ == "__main__":
    main(sys.argv[1:])
