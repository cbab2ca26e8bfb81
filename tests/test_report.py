"""The report is one file that refers to nothing outside, escapes what it shows, and draws itself in a browser."""

import base64
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from cctrace.plot import flow_panels, flow_phases
from cctrace.plot.panels import Phases
from cctrace.report import FlowSection, Report
from cctrace.report.page import render
from tests.build_view import flow_view

CHROMIUM = shutil.which("chromium")
HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028"


def report(title="capture.pcap", view=None):
    view = view or flow_view()
    panels = flow_panels(view)
    section = FlowSection(title, [("Goodput", "10 Mbit/s")], panels, flow_phases(view), 2.0, notes=[title])
    return Report(title, title, ["Flow", "Goodput"], [[title, "10 Mbit/s"], ["small flow", "0 bit/s"]], [section])


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_the_page_refers_to_nothing_outside_itself():
    page = render(report())
    assert all(target.startswith("#") for target in re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", page))
    assert "://" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_what_comes_from_the_users_files_is_escaped():
    page = render(report(title=HOSTILE))
    assert "<img" not in page
    assert page.count("</script>") == 2
    data_of(page)


def test_the_embedded_series_are_those_of_the_panels():
    view = flow_view()
    rtt = next(p for p in data_of(render(report(view=view)))["flows"][0]["panels"] if p["id"] == "flow0-rtt")
    expected = next(p for p in flow_panels(view) if p.name == "rtt").series[0]
    assert rtt["series"][0]["label"] == "RTT samples"
    assert floats(rtt["series"][0]["y"]) == pytest.approx(expected.value, rel=1e-6)
    assert floats(rtt["series"][0]["x"]) == pytest.approx(expected.time_s, abs=1e-6)


def test_a_flow_of_a_million_events_stays_a_page_that_a_phone_can_open():
    page = render(report(view=flow_view(rows=1_000_000)))
    assert len(page) < 4_000_000
    series = data_of(page)["flows"][0]["panels"][1]["series"][0]
    assert floats(series["y"]).max() == pytest.approx(40.6)


def test_the_overview_links_to_the_flows_that_have_a_section():
    page = render(report())
    assert '<a href="#flow0">capture.pcap</a>' in page
    assert '<h2 id="flow0">' in page
    assert '<td data-label="Flow">small flow</td>' in page
    assert '<td data-label="Goodput">0 bit/s</td>' in page  # its name, where the screen is too narrow for a table


def test_the_verdict_comes_first_and_agreement_is_explained_where_it_stands():
    section = replace(report().flows[0], verdict=HOSTILE, figures=[("Sent", "1 MB")])
    page = render(replace(report(), flows=[section]))
    assert page.index('<p class="verdict">&lt;/script&gt;') < page.index('<dl class="figures">')
    assert "the share of the kernel" not in page
    compared = replace(section, figures=[("Sent", "1 MB"), ("bw = kernel", "99 %")])
    assert "the share of the kernel" in render(replace(report(), flows=[compared]))
    assert 'class="verdict"' not in render(report())


def test_stripes_too_thin_to_see_are_left_out_until_they_are_not():
    cycle = [(0.04 * i, 0.04 * (i + 1), ("PROBE_BW up", "PROBE_BW down")[i % 2]) for i in range(500)]
    assert Phases(cycle).thin
    assert not Phases(cycle[:20]).thin
    assert not Phases([(0.0, 0.01, "STARTUP"), (0.01, 20.0, "PROBE_BW")]).thin
    section = replace(report().flows[0], phases=Phases(cycle))
    assert "appear when zoomed in" in render(replace(report(), flows=[section]))


def titled_by(probe, page, tmp_path, width=1280):
    """Open the page in a browser, run a script in it, and return the title that the script has set."""
    probed = tmp_path / "probed.html"
    probed.write_text(page.replace("</body>", f"<script>{probe}</script></body>"), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1000", f"file://{probed}"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return html.unescape(re.search(r"<title>(.*?)</title>", dom)[1])


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: make check-external installs it")


@pytest.mark.external
@needs_browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_every_panel_and_the_page_does_not_scroll_sideways(tmp_path, width):
    """A canvas that a script failed to draw would hold one colour."""
    probe = """document.title = JSON.stringify({
        colours: [...document.querySelectorAll("canvas")].map((canvas) => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(new Uint32Array(pixels.buffer)).size; }),
        wide: document.documentElement.scrollWidth > window.innerWidth })"""
    seen = json.loads(titled_by(probe, render(report(title=HOSTILE)), tmp_path, width))
    assert [colours > 10 for colours in seen["colours"]] == [True] * 5
    assert not seen["wide"]


@pytest.mark.external
@needs_browser
def test_dragging_zooms_all_panels_and_a_legend_entry_hides_its_curve(tmp_path):
    probe = """
        const [first, second] = document.querySelectorAll("canvas");
        const reset = second.parentElement.querySelector(".reset");
        const readout = second.parentElement.querySelector(".readout");
        const point = (type, share) => {
            const box = first.getBoundingClientRect();
            const clientX = box.left + share * box.width;
            first.dispatchEvent(new PointerEvent(type, { clientX, pointerType: "mouse" }));
        };
        first.setPointerCapture = () => {};  // a made-up pointer cannot be captured
        const seen = { before: reset.hidden };
        point("pointerdown", 0.5); point("pointermove", 0.7); point("pointerup", 0.7);
        seen.zoomed = !reset.hidden;
        point("pointermove", 0.999);
        seen.readout = readout.textContent;
        const entry = second.parentElement.querySelector(".legend button");
        entry.click();
        seen.pressed = entry.getAttribute("aria-pressed");
        seen.hidden = readout.textContent;
        reset.click();
        seen.after = reset.hidden;
        document.title = JSON.stringify(seen);"""
    seen = json.loads(titled_by(probe, render(report()), tmp_path))
    assert (seen["before"], seen["zoomed"], seen["after"]) == (True, True, True)
    assert 1.2 < float(seen["readout"].split(" s")[0]) < 1.5  # the right edge of the span: 70 % of 2 s
    assert "RTT samples 40" in seen["readout"]
    assert seen["pressed"] == "false"
    assert "RTT samples" not in seen["hidden"]
