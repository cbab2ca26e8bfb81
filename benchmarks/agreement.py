"""How many recordings agree with the kernel, as docs/agreement.md counts them: python -m benchmarks.agreement FOLDER...

Each FOLDER is a recording (docs/lab.md), or has recordings in it. Printed are those that miss something: figures of the
replay of its own controller below 99 % of the polls after STARTUP, and of the sender's view below 97 %; then how many
miss nothing, without fq and through fq (`fq` in scenario.json). BBR's cwnd is not among
the figures of `cctrace validate`: `cctrace replay --tcpinfo` prints it.
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cctrace.analysis.validate import validate
from cctrace.errors import StreamError

REPLAY_NEED, VIEW_NEED = 0.99, 0.97
VIEW = ("unacked", "delivery_rate", "app_limited", "rttvar")
STRICT = "replay_bw_0.1%"  # of which a sample more or less decides


def judged(folder):
    """Return what a recording's flows miss, {figure: least share}: of their replays, and of the sender's view.

    Or why it cannot be judged.
    """
    try:
        flows = validate(folder)
    except StreamError as error:
        return str(error)
    replay, view = {}, {}
    for figure in (figure for flow in flows for figure in flow.figures):
        name, share = figure.name, figure.share
        if name in VIEW and share < VIEW_NEED:
            view[name] = min(share, view.get(name, share))
        if name.startswith("replay_") and name != STRICT and "_startup" not in name and share < REPLAY_NEED:
            replay[name] = min(share, replay.get(name, share))
    return replay, view


def recordings(folders):
    """Return the folders that have a scenario.json and the kernel's counters: these, or those in them."""
    found = [file.parent for folder in folders for file in sorted(Path(folder).rglob("scenario.json"))]
    return [folder for folder in found if any(folder.glob("tcpinfo.csv*"))]


def main():
    """Judge recordings, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    found, counts = recordings(parser.parse_args().folders), Counter()
    with ProcessPoolExecutor(2) as pool:
        for folder, missed in zip(found, pool.map(judged, found), strict=True):
            if isinstance(missed, str):
                print(f"not judged: {missed}", flush=True)
                continue
            replay, view = missed
            through = "fq" if json.loads((folder / "scenario.json").read_text())["parameters"].get("fq") else "no fq"
            counts.update({(through, "of"): 1, (through, "replay"): not replay, (through, "view"): not view})
            words = ", ".join(f"{name} {100 * share:.1f} %" for name, share in (replay | view).items())
            if words:
                print(f"{folder.name:40}{words}", flush=True)
    for through in ("no fq", "fq"):
        of = counts[through, "of"]
        print(f"{through}: replay {counts[through, 'replay']}, sender's view {counts[through, 'view']} of {of}")


if __name__ == "__main__":
    main()
