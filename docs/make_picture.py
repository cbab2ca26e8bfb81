"""Take the picture on top of the README, docs/report.png: the first screen of the report that `make demo` writes.

Needs Chromium: `.venv/bin/python docs/make_picture.py`.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from cctrace.analysis.analyze import analyze
from cctrace.report.overview import write_report

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = Path(__file__).with_name("report.png")
RECORDING = "jitter_bbr_sd2ms"  # that of `make demo`
WIDTH, HEIGHT = 1280, 760  # of a laptop's window


def main():
    """Write the picture."""
    os.chdir(REPOSITORY)  # the page names the capture as it was given
    capture, counters = (f"datasets/{RECORDING}/{name}" for name in ("sender.pcap.zst", "tcpinfo.csv.zst"))
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(analyze([capture], [counters]), folder)
        photograph(page, PICTURE)


def photograph(page, picture):
    """Write what a browser shows of a page when it has drawn."""
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--run-all-compositor-stages-before-draw",
    ]
    window = [f"--window-size={WIDTH},{HEIGHT}", "--force-device-scale-factor=1", "--virtual-time-budget=10000"]
    subprocess.run([*command, *window, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
