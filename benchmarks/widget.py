"""How fluid the widget is with many packets: `python -m benchmarks.widget [PACKETS] [--loss SHARE] [--page]`.

Simulates one BBR flow over 1 Gbit/s with jitter and one loss in 1,000 until the capture has that many packets (five
million if not told), makes the widget, or the page (--page), and zooms it in headless Chromium (found as `chromium`)
from all of the flow to single packets. Printed:
processor time of the kernel's side; bytes sent to the browser; processor time of the page's thread until everything is
drawn (of the widget: until the packets are, and for the curves of the panels, which come after) and per zoom (a frame
each); resident memory of the page's process. Processor times, so that other load does not
count.
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

import cctrace as cct
from cctrace.report.page import Report, render
from cctrace.report.widget import section_of
from tests.browser import Browser
from tests.widget_host import hosted

PACKETS_PER_S = 159_000  # of 1 Gbit/s with an ACK for every second segment
FLOW = "(window.cctrace.flows ?? [document.querySelector('.cctrace').flow])[0]"


def simulated(packets, loss):
    """Return a flow of about that many packets."""
    path = cct.Path(rate="1Gbit", rtt="20ms", buffer="1bdp", jitter="normal:sd=1ms", loss=loss)
    done = cct.simulate(path, "bbr2022", f"{packets / PACKETS_PER_S:.1f}s", 1, packets=True)
    return done.capture(0).flow(0)


def busy(browser):
    """Return the processor time that the page's thread has spent, seconds."""
    figures = browser.call("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in figures if one["name"] == "TaskDuration")


def spent(browser, expression):
    """Return the processor time of the page's thread that an expression takes, seconds."""
    before = busy(browser)
    browser.evaluate(expression)
    return busy(browser) - before


_FRAME = "new Promise((done) => requestAnimationFrame(() => done(true)))"


def zooms(browser, count=60):
    """Return the processor time of zooms from everything to 40 ms, at places all over the flow, seconds each."""
    low, high = browser.evaluate(f"{FLOW}.full")
    took, draw = [], np.random.default_rng(1)
    for k in range(count):
        width = (high - low) * (0.04 / (high - low)) ** (k % 12 / 11)
        at = low + draw.random() * (high - low - width)
        took.append(spent(browser, f"{FLOW}.zoom({at}, {at + width}); {_FRAME}"))
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
    parser.add_argument("--loss", default="0.1%")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    flow = simulated(asked.packets, asked.loss)
    assert len(flow.events)  # the re-enactment is the flow's, not the widget's
    before = time.process_time()
    html = page_of(flow) if asked.page else widget_of(flow)
    print(f"made in {time.process_time() - before:.1f} s")
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
        file = Path(folder) / "shown.html"
        file.write_text(html, encoding="utf-8")
        browser.call("Performance.enable", timeDomain="threadTicks")
        before = busy(browser)
        browser.open(file)
        # Of the widget not counted: the page that stands in for the notebook reads what the kernel sent.
        opened = [busy(browser) - before] if asked.page else [spent(browser, x) for x in ("begin()", f"{FLOW}.rest")]
        browser.evaluate(f"{FLOW}.panels[1].figure.scrollIntoView()")
        took = np.array(zooms(browser)) * 1e3
        print(f"opened in {' and '.join(f'{seconds:.2f}' for seconds in opened)} s")
        print(f"zoom median {np.median(took):.1f} ms, p95 {np.quantile(took, 0.95):.1f} ms, worst {took.max():.1f} ms")
        print(f"memory {resident(browser) / 1e6:.0f} MB; complaints: {browser.complaints}")


def page_of(flow):
    """Return the page of a flow as HTML."""
    section = section_of(flow)
    html = render(Report("", "", ["Flow"], [[section.title]], [section]))
    print(f"{sum(map(len, section.packets))} packets, a page of {len(html) / 1e6:.1f} MB")
    return html


def widget_of(flow):
    """Return a page that hosts the widget."""
    widget = cct.widget(flow)
    sides = widget.data["packets"].values()
    sent = sum(len(column["data"]) for side in sides for column in side.values())
    sent += sum(len(column["data"]) for column in widget.data["times"])
    sent += sum(len(one["y"]["data"]) for panel in widget.data["panels"] for one in panel["series"])
    print(f"{widget!r}, {sent / 1e6:.1f} MB sent to the browser")
    return hosted(widget, waits=True)


if __name__ == "__main__":
    main()
