"""Whether a corpus says rightly for which flows another controller would have done better: that was recorded, too.

    cctrace corpus run 'DIR/whatif_*_r1/sender.pcap.zst' -o OUT --what-if bbr2022,cubic6,reno --counters none
    python -m benchmarks.whatif_corpus OUT

DIR holds the recordings that benchmarks/whatif.py uses, OUT becomes a corpus of the first repeats. What the others did
on the same path is in benchmarks/whatif_lab.json, the mean of two repeats each. Printed are, per candidate and figure,
the share of flows in which it would have done better and worse as the corpus says it, the same as recorded, of the
flows about which the corpus is sure how many are so, and how often the 90 % intervals of the changes hold.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

import cctrace as cct
from cctrace.corpus.whatif import FIGURES, MARGIN, compared, kinds

TRUTH = Path(__file__).with_name("whatif_lab.json")
CONTROLLERS = {"bbr2022": "bbr", "cubic6": "cubic", "reno": "reno"}
COLUMNS = {"goodput": "goodput_bps", "rtt": "rtt_mean_us", "share": "retransmitted_share"}
LEAST = {"goodput": MARGIN, "rtt": MARGIN, "share": 0.003}
NAME = re.compile(r"(whatif_\d+)_(bbr|cubic|reno)_r1")


def recorded():
    """Return {(path, controller): {figure: mean of the repeats}}."""
    rows = pd.DataFrame(json.loads(TRUTH.read_text())["recordings"])
    return rows.groupby(["path", "cc"])[list(COLUMNS.values())].mean().to_dict("index")


def with_truth(frame, figure):
    """Return the rows of candidates that did not send the flow, with the change that was recorded."""
    truth, column = recorded(), COLUMNS[figure]
    names = frame["capture"].str.extract(NAME)
    frame = frame.assign(path=names[0], source=names[1], target=frame["controller"].map(CONTROLLERS))
    frame = frame[(frame["source"] != frame["target"]) & frame["path"].notna()]
    own, other = (
        np.array([truth[key][column] for key in zip(frame["path"], frame[side], strict=True)])
        for side in ("source", "target")
    )
    return frame.assign(truth=other - own if figure == "share" else other / own - 1)


def report(frame, figure):
    """Print how the corpus's account of a figure agrees with the recordings."""
    change, least = FIGURES[figure][0], LEAST[figure]
    frame = with_truth(frame, figure)
    said = compared(frame, None, figure, least).set_index("controller").to_dict("index")
    known = frame[frame["reproduces"].fillna(False).astype(bool)]
    known = known.assign(said=kinds(known, figure, least))
    ends = known.assign(**{f"{change}_low": known["truth"], f"{change}_high": known["truth"]})
    known = known.assign(was=kinds(ends, figure, least))
    for name, rows in known.groupby("controller"):
        row, sure = said[name], rows[rows["said"] != "untold"]
        low, high = (
            rows[f"{change}_{end}"].astype(float).fillna(none) for end, none in (("low", -np.inf), ("high", np.inf))
        )
        opposite = (sure["said"] != sure["was"]) & sure[["said", "was"]].isin(["better", "worse"]).all(axis=1)
        shares = ", ".join(
            f"{kind} in {100 * row[f'{kind}_share']:.0f} % ({100 * row[f'{kind}_share_low']:.0f} to "
            f"{100 * row[f'{kind}_share_high']:.0f}; recorded {100 * (rows['was'] == kind).mean():.0f})"
            for kind in ("better", "worse")
        )
        print(
            f"{figure}, {name}: {row['answered']} of {row['asked']} flows; {shares}; untold {row['untold']}; of "
            f"{len(sure)} sure {(sure['said'] == sure['was']).sum()} right, {opposite.sum()} the other way round; "
            f"90 % intervals hold {100 * ((low <= rows['truth']) & (rows['truth'] <= high)).mean():.0f} %"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    options = parser.parse_args()
    frame = cct.corpus.open(options.corpus).whatifs.frame()
    for figure in COLUMNS:
        report(frame, figure)


if __name__ == "__main__":
    main()
