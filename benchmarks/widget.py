"""How fluid the widget is with many packets: `python -m benchmarks.widget [PACKETS]`, five million if not told.

Simulates one BBR flow over 1 Gbit/s with jitter and one loss in 1,000 until the capture has that many packets, makes
the widget, and zooms it in headless Chromium (found as `chromium`) from all of the flow to single packets. Printed:
processor time of the kernel's side; bytes sent to the browser; processor time of the page's thread until everything is
drawn and per zoom (a frame each); resident memory of the page's process. Processor times, so that other load does not
count.
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

import cctrace as cct
from tests.browser import Browser
from tests.widget_host import hosted

PACKETS_PER_S = 159_000  # of 1 Gbit/s with an ACK for every second segment
FLOW = "document.querySelector('.cctrace').flow"


def simulated(packets):
    """Return a flow of about that many packets."""
    path = cct.Path(rate="1Gbit", rtt="20ms", buffer="1bdp", jitter="normal:sd=1ms", loss="0.1%")
    done = cct.simulate(path, "bbr2022", f"{packets / PACKETS_PER_S:.1f}s", 1, packets=True)
    return done.capture(0).flow(0)


def busy(browser):
    """Return the processor time that the page's thread has spent, seconds."""
    figures = browser.call("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in figures if one["name"] == "TaskDuration")


def zooms(browser, count=60):
    """Return the processor time of zooms from everything to 40 ms, at places all over the flow, seconds each."""
    low, high = browser.evaluate(f"{FLOW}.full")
    took, draw = [], np.random.default_rng(1)
    for k in range(count):
        width = (high - low) * (0.04 / (high - low)) ** (k % 12 / 11)
        at = low + draw.random() * (high - low - width)
        before = busy(browser)
        browser.evaluate(
            f"{FLOW}.zoom({at}, {at + width}); new Promise((done) => requestAnimationFrame(() => done(true)))"
        )
        took.append(busy(browser) - before)
    return took


def resident(browser):
    """Return the resident memory of the largest process that draws pages, bytes."""
    browser.call("HeapProfiler.collectGarbage")
    found = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if b"--type=renderer" in (status.parent / "cmdline").read_bytes():
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
                found.append(int(lines.get("VmRSS", "0 kB").split()[0]) * 1024)
    return max(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packets", type=int, nargs="?", default=5_000_000)
    flow = simulated(parser.parse_args().packets)
    assert len(flow.events)  # the re-enactment is the flow's, not the widget's
    before = time.process_time()
    widget = cct.widget(flow)
    made = time.process_time() - before
    sides = widget.data["packets"].values()
    sent = sum(len(column["data"]) for side in sides for column in side.values())
    sent += sum(len(column["data"]) for column in widget.data["times"])
    sent += sum(len(one["y"]["data"]) for panel in widget.data["panels"] for one in panel["series"])
    print(f"{widget!r}: made in {made:.1f} s, {sent / 1e6:.1f} MB sent to the browser")
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        file = Path(folder) / "widget.html"
        file.write_text(hosted(widget), encoding="utf-8")
        browser.call("Performance.enable", timeDomain="threadTicks")
        before = busy(browser)
        browser.open(file)
        opened = busy(browser) - before
        took = np.array(zooms(browser)) * 1e3
        print(f"opened in {opened:.2f} s; zoom median {np.median(took):.1f} ms, p95 {np.quantile(took, 0.95):.1f} ms,")
        print(f"worst {took.max():.1f} ms; memory {resident(browser) / 1e6:.0f} MB; complaints: {browser.complaints}")


if __name__ == "__main__":
    main()
