"""Draw the figures of paper.md beside it: `.venv/bin/python paper/make_figures.py` (extra "plot"; a minute)."""

from pathlib import Path

import cctrace as cct

HERE = Path(__file__).parent
DPI = 70  # legible in a column; both pictures together stay below 300 kB


def flow():
    """Draw the shipped recording with jitter, with the replay and the kernel's counters."""
    recording = cct.datasets.path("jitter_bbr_sd2ms")
    one = cct.read(recording / "sender.pcap.zst").flow(0).attach(cct.read(recording / "tcpinfo.csv.zst"))
    return cct.plot_flow(one, cct.replay(one, "bbr2022"))


def collapse():
    """Draw Figure 2 of Kumar et al., made again with the released code."""
    (made,) = cct.papers.reproduce("kumar", "2", quick=True, sd_ms=(0.0, 0.25, 0.5, 0.75, 1.0, 1.5))
    return made.plot()


def main():
    """Write the pictures."""
    for draw in (flow, collapse):
        draw().savefig(HERE / f"{draw.__name__}.png", dpi=DPI)


if __name__ == "__main__":
    main()
