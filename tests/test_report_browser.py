"""The page in a browser: it draws every packet, zooms in both axes, answers the keyboard, and asks for nothing."""

import itertools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

import cctrace as cct
from cctrace import datasets
from cctrace.analysis.analyze import analyze
from cctrace.diagnosis.findings import Event, Limit
from cctrace.display import visible
from cctrace.plot.packets import Received, Sent, packets_of
from cctrace.plot.panels import Phases
from cctrace.plot.states import Lane
from cctrace.report.overview import write_report
from cctrace.report.page import render
from tests.browser import IN_A_BROWSER
from tests.test_report import HOSTILE, lossy_talk, report

pytestmark = IN_A_BROWSER
RECORDING = "loss_cubic_1pct"
FLOW = "window.cctrace.flows[0]"
GRAPH = f"{FLOW}.panels.find((panel) => panel.packets)"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The report of a recording."""
    names = ("sender.pcap.zst", "tcpinfo.csv.zst")
    capture, counters = (datasets.path(RECORDING, name) for name in names)
    return write_report(analyze([capture], [counters]), tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(shown):
    """Open a report, or its file."""
    return lambda of: shown(of if isinstance(of, Path) else render(of))


def box(browser, selector):
    """Left, top, width and height of an element, after scrolling to it."""
    browser.evaluate(f"document.querySelector('{selector}').scrollIntoView({{ block: 'center', behavior: 'instant' }})")
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    of = f"document.querySelector('{selector}').getBoundingClientRect()"
    return browser.evaluate(f"(() => {{ const b = {of}; return [b.left, b.top, b.width, b.height]; }})()")


def test_the_verdict_and_the_first_graph_are_on_the_first_screen(written, page):
    browser = page(written)
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert browser.evaluate(bottom.format(".verdict")) < 300
    assert browser.evaluate(bottom.format("figure canvas")) < 800  # of a window of 1280 by 800
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280


def talk_report(**more):
    flow = lossy_talk().capture().flow(0)
    packets = packets_of(flow)
    start = int(packets[0].time_ns[0])
    section = replace(report().flows[0], packets=packets, start_ns=start, duration_s=0.2, **more)
    return replace(report(), flows=[section])


@pytest.mark.parametrize("width", [1280, 500])
def test_every_panel_is_drawn_and_the_page_does_not_scroll_sideways(page, width):
    """A canvas that a script failed to draw would hold one colour."""
    browser = page(
        talk_report(title=HOSTILE, limits=[Limit("cwnd", 0.0, 0.2)], events=[Event("idle", 0.1, 0.1, HOSTILE)])
    )
    size = {"height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", width=width, **size)
    browser.evaluate(f"{FLOW}.draw(true)")
    colours = browser.evaluate("""[...document.querySelectorAll("canvas:not(.overlay)")].map((canvas) => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        return new Set(new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size; })""")
    wide = browser.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    browser.call("Emulation.setDeviceMetricsOverride", width=1280, **size)
    assert [count > 10 for count in colours] == [True] * 7
    assert not wide


def test_every_column_of_the_flows_fits_a_laptop(page, tmp_path):
    names = ("sender.pcap.zst", "ss.txt.gz")
    capture, counters = (datasets.path("web_server", name) for name in names)
    browser = page(write_report(analyze([capture], [counters], effects=False), tmp_path))
    assert browser.evaluate("document.querySelector('#flows th:last-child').textContent") == "Replay = kernel"
    width = "document.querySelector('.scroll').{}"
    assert browser.evaluate(width.format("scrollWidth")) == browser.evaluate(width.format("clientWidth"))


def test_a_hostile_name_is_text_and_nothing_else(page):
    browser = page(talk_report(title=HOSTILE, verdict=HOSTILE, events=[Event("idle", 0.1, 0.1, HOSTILE)]))
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.querySelector('h2').textContent") == visible(HOSTILE)


def test_at_40_ms_every_captured_packet_is_drawn(page, written):
    browser = page(written)
    flow = cct.read(datasets.path(RECORDING, "sender.pcap.zst")).flow(0)
    start = int(flow.row["start_ns"])
    seconds = [(side.time_ns - start) / 1e9 for side in packets_of(flow)]
    for low in (0.0, 3.0, 7.5):
        drawn = browser.evaluate(f"{FLOW}.zoom({low}, {low + 0.04}); {GRAPH}.draw(); ({{ ...{GRAPH}.canvas.dataset }})")
        inside = [int(((t >= low) & (t <= low + 0.04)).sum()) for t in seconds]
        assert [int(drawn["sent"]), int(drawn["received"])] == inside
        assert drawn["single"] == "true"


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark: make check-external installs it")
def test_at_40_ms_every_packet_that_tshark_lists_is_drawn_with_its_number(page, written, tmp_path):
    plain = tmp_path / "sender.pcap"
    with datasets.path(RECORDING, "sender.pcap.zst").open("rb") as source, plain.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    fields = [part for name in ("frame.number", "frame.time_relative", "tcp.len") for part in ("-e", name)]
    low, high = 3.0, 3.04
    within = ["-Y", f"frame.time_relative >= {low} && frame.time_relative <= {high}"]
    command = ["tshark", "-r", plain, "-T", "fields", *fields, *within]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    browser = page(written)
    drawn = browser.evaluate(f"{FLOW}.zoom({low}, {high}); {GRAPH}.draw(); ({{ ...{GRAPH}.canvas.dataset }})")
    assert int(drawn["sent"]) + int(drawn["received"]) == len(listed) // 3 > 20
    frames = browser.evaluate(f"""[0, 1].flatMap((side) => {{
        const [first, last] = {GRAPH}.packets.rows(side, [{low}, {high}]);
        const of = side ? {GRAPH}.packets.received : {GRAPH}.packets.sent;
        return [...of.frame.slice(first, last)]; }}).sort((a, b) => a - b)""")
    assert frames == [int(number) for number in listed[::3]]


def test_dragging_zooms_the_time_of_all_panels_and_a_box_both_axes(page):
    browser = page(talk_report())
    left, top, width, height = box(browser, "#flow0-sequence canvas")
    browser.drag((left + width / 2, top + 100), (left + 0.75 * width, top + 104))
    low, high = browser.evaluate(f"{FLOW}.range")
    assert 0.09 < low < 0.105 < 0.14 < high < 0.155
    assert browser.evaluate(f"{GRAPH}.values") is None
    browser.drag((left + width / 3, top + 60), (left + width / 2, top + height / 2))
    assert browser.evaluate(f"{FLOW}.range[1]") < high
    assert len(browser.evaluate(f"{GRAPH}.values")) == 2
    browser.evaluate("document.querySelector('#flow0-toolbar [data-do=all]').click()")
    assert browser.evaluate(f"[{FLOW}.range[1], {GRAPH}.values]") == [pytest.approx(0.2), None]


def test_the_wheel_zooms_a_plot_in_use_and_scrolls_the_page_over_others(page):
    browser = page(talk_report())
    left, top, width, height = box(browser, "#flow0-sequence canvas")
    middle = (left + width / 2, top + height / 2)
    browser.turn(*middle, -100)
    assert browser.evaluate(f"{FLOW}.zoomed") is False
    left, top, width, height = box(browser, "#flow0-sequence canvas")
    middle = (left + width / 2, top + height / 2)
    browser.drag(middle, middle)  # a click: the plot has the focus
    browser.turn(*middle, -300)
    low, high = browser.evaluate(f"{FLOW}.range")
    assert high - low < 0.1
    browser.turn(left + 20, top + height / 2, -300)  # over the vertical axis
    assert len(browser.evaluate(f"{GRAPH}.values")) == 2


def test_pointing_at_a_packet_tells_its_frame_time_and_contents(page):
    browser = page(talk_report())
    left, top, _, _ = box(browser, "#flow0-sequence canvas")
    browser.evaluate(f"{FLOW}.zoom(0.08, 0.09)")
    place = browser.evaluate(f"""(() => {{ const g = {GRAPH}, i = 7;
        return [g.x(g.packets.times[0][i]), g.y(g.packets.sent.seq[i] + 700)]; }})()""")
    browser.point(left + place[0], top + place[1])
    tip = browser.evaluate("[...document.querySelectorAll('.tip div')].map((line) => line.textContent)")
    assert tip[0] == "frame 12 · 2023-11-14 22:13:20.081130000 UTC"
    assert tip[1] == "0.081130000 s after the first packet"
    assert tip[2].replace("\u202f", "") == "bytes 1449 to 2897, 1448 B"
    assert tip[3] == "retransmission (loss detection)"
    assert browser.evaluate("document.querySelector('#flow0-sequence .readout').textContent").startswith("frame 12")


def test_full_stop_and_comma_go_from_packet_to_packet(page):
    browser = page(talk_report())
    browser.evaluate("document.querySelector('#flow0-sequence canvas').focus()")
    seen = []
    for key in "." * 16 + ",,":
        browser.press(key)
        seen.append(browser.evaluate("document.querySelector('#flow0-sequence .readout').textContent").split(" ")[1])
    assert seen == [str(number) for number in [*range(1, 17), 15, 14]]


def test_an_event_leads_to_its_moment_and_a_legend_entry_hides_its_curve(page):
    browser = page(talk_report(events=[Event("timeout", 0.1, 0.12, "it fired")], limits=[Limit("cwnd", 0.0, 0.2)]))
    browser.evaluate("document.querySelector('.events button').click()")
    low, high = browser.evaluate(f"{FLOW}.range")
    assert low < 0.1 < 0.12 < high < 0.16
    shown = browser.evaluate("""(() => { const entry = document.querySelector('#flow0-rtt .legend button');
        entry.click(); return entry.getAttribute('aria-pressed'); })()""")
    assert shown == "false"


def test_a_word_that_would_cover_the_one_before_is_not_written(page):
    browser = page(talk_report())
    words = browser.evaluate(f"""(() => {{ const graph = {GRAPH}, words = [];
        const windows = graph.packets.received.window.fill(0);
        const c = {{ fillText: (...word) => words.push(word), measureText: (word) => ({{ width: 60 }}) }};
        graph.drawMarks(c, 0, 0, 0, windows.length);
        return words.filter(([word]) => word === "zero window"); }})()""")
    assert words
    for (_, left, low), (_, right, high) in itertools.pairwise(words):
        assert right >= left + 60 or abs(high - low) >= 12


def test_a_state_that_begins_within_the_pixel_of_a_short_one_is_drawn_as_long_as_it_lasts(page):
    spans = [(0.0, 0.1, "Open"), (0.1, 0.1000001, "Disorder"), (0.1000001, 0.2, "Loss")]
    browser = page(talk_report(lanes=[Lane("TCP", Phases(spans))]))
    seen = browser.evaluate("""(() => { const strip = window.cctrace.flows[0].panels[0], canvas = strip.canvas;
        const c = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        c.drawImage(canvas, 0, 0);
        const row = c.getImageData(0, strip.top(strip.first) + 3, canvas.width, 1).data;
        const at = (t) => [...row.slice(4 * Math.round(strip.x(t)), 4 * Math.round(strip.x(t)) + 3)];
        return [at(0.05), at(0.15)]; })()""")
    assert seen[1] == [0x7A, 0x00, 0x19]  # Loss
    assert seen[0] != seen[1]


def test_the_tables_behind_the_plots_say_what_they_show(page):
    browser = page(talk_report())
    browser.evaluate(f"document.querySelectorAll('details').forEach((d) => (d.open = true)); {FLOW}.zoom(0.08, 0.09)")
    shown_rows = "[...document.querySelectorAll('#flow0-sequence .behind tbody tr')].map((row) => row.textContent)"
    browser.until(f"{shown_rows}.length === 4")
    browser.until("document.querySelectorAll('#flow0-rtt .behind tbody tr').length === 12")
    rows = browser.evaluate(shown_rows)
    assert [row[:1] for row in rows] == ["9", "1", "1", "1"]  # frames 9 to 12
    assert "SACK 2\u202f897 to 4\u202f345" in rows[0]


def test_the_table_of_flows_sorts_by_quantity_and_finds(page):
    rows = [[f"host{i}", f"{speed}"] for i, speed in enumerate(["2 Mbit/s", "900 kbit/s", "1.5 Gbit/s", "0 bit/s"] * 3)]
    browser = page(replace(report(), rows=rows, flows=[None] * len(rows)))
    column = (
        "[...document.querySelectorAll('#flows tbody tr')].filter((r) => !r.hidden).map((r) => r.cells[1].textContent)"
    )
    browser.evaluate("document.querySelectorAll('#flows th button')[1].click()")
    found = browser.evaluate(column)
    assert found[::3] == ["0 bit/s", "900 kbit/s", "2 Mbit/s", "1.5 Gbit/s"]
    browser.evaluate("""(() => { const field = document.getElementById('search'); field.value = 'host11';
        field.dispatchEvent(new Event('input')); })()""")
    assert browser.evaluate(column) == ["0 bit/s"]
    assert browser.evaluate("document.getElementById('found').textContent") == "1 of 12 flows"


def test_axe_finds_no_barrier_in_light_and_dark(page, written):
    browser = page(written)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true)); true")
    browser.evaluate(f"{FLOW}.zoom(3, 3.02)")
    for theme in ("light", "dark"):
        browser.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert browser.barriers() == [], theme


def test_what_is_printed_is_light_complete_and_in_shape(page):
    """Plots that were never on the screen are drawn; the layer above them, which would cover them, is left out."""
    browser = page(talk_report(events=[Event("idle", 0.1, 0.1, "")], limits=[Limit("cwnd", 0.0, 0.2)]))
    browser.evaluate("document.documentElement.dataset.theme = 'dark'")
    browser.evaluate("""addEventListener('beforeprint', () => { window.seen = {
        theme: document.documentElement.dataset.theme,
        colours: [...document.querySelectorAll("canvas:not(.overlay)")].map((canvas) => {
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            return new Set(new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size; }),
        }; });
        matchMedia('print').addEventListener('change', (event) => { if (event.matches) Object.assign(seen, {
            shapes: [...document.querySelectorAll("canvas:not(.overlay)")].map(
                (canvas) => canvas.clientHeight * canvas.width / canvas.clientWidth / canvas.height),
            covered: [...document.querySelectorAll("canvas.overlay")].some((canvas) => canvas.clientWidth > 0),
            wide: [...document.querySelectorAll("body *")].filter((one) =>
                one.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 1).length,
        }); }); true""")
    browser.call("Page.printToPDF")
    seen = browser.evaluate("window.seen")
    assert (seen["theme"], seen["covered"], seen["wide"]) == ("light", False, 0)
    assert [count > 10 for count in seen["colours"]] == [True] * 7
    assert seen["shapes"] == pytest.approx([1.0] * 7, abs=0.02)
    assert browser.evaluate("document.documentElement.dataset.theme") == "dark"


def million(times=1_000_001):
    """Packets of a recording end to end, with their sequence numbers, as many as wanted."""
    flow = cct.read(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    sent, received = packets_of(flow)
    laps = -(-times // (len(sent) + len(received)))
    lasts, size = int(received.time_ns[-1] - sent.time_ns[0]) + 1000, int(sent.seq[-1])
    steps = {
        "time_ns": lasts,
        "seq": size,
        "ack": size,
        "left": size,
        "right": size,
        "frame": len(sent) + len(received),
    }

    def laid(side):
        columns = {name: getattr(side, name) for name in side.__dataclass_fields__}
        return {n: np.concatenate([c + i * steps.get(n, 0) for i in range(laps)]) for n, c in columns.items()}

    return flow, Sent(**laid(sent)), Received(**laid(received)), laps * lasts / 1e9


def test_a_page_of_a_million_packets_is_small_opens_at_once_and_zooms_fluently(page, tmp_path):
    """Opening reads every packet; a zoom must not: it takes a small part of that, whatever the machine is busy with."""
    flow, sent, received, lasts = million()
    start = int(sent.time_ns[0])
    section = replace(report().flows[0], packets=(sent, received), start_ns=start, duration_s=lasts)
    file = tmp_path / "million.html"
    file.write_text(render(replace(report(), flows=[section])), encoding="utf-8")
    assert len(sent) + len(received) >= 1_000_000
    assert file.stat().st_size <= 8_000_000
    browser = page(file)

    def busy():
        figures = browser.call("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in figures if one["name"] == "TaskDuration")

    browser.call("Performance.enable", timeDomain="threadTicks")
    before = busy()
    browser.open(file)
    opening = busy() - before
    box(browser, "#flow0-sequence canvas")
    took, (low, high) = [], browser.evaluate(f"{FLOW}.full")
    for _ in range(24):
        low, high = low + 0.2 * (high - low), high - 0.3 * (high - low)
        before = busy()
        browser.evaluate(f"{FLOW}.zoom({low}, {high}); new Promise((done) => requestAnimationFrame(() => done(true)))")
        took.append(busy() - before)
    assert np.median(took) < opening / 5
    assert flow.row["packets"] > 10_000


def test_the_address_of_a_view_leads_back_to_it(page):
    browser = page(talk_report())
    link = "document.querySelector('#flow0-toolbar a.view')"
    assert browser.evaluate(f"{link}.hidden")
    browser.evaluate(f"{FLOW}.zoom(0.02, 0.06)")
    assert browser.evaluate(f"[{link}.hidden, {link}.hash]") == [False, "#flow0&from=0.020000&to=0.060000"]
    browser.evaluate(f"{FLOW}.reset()")
    heard = "new Promise((done) => addEventListener('hashchange', () => setTimeout(done), { once: true }))"
    browser.evaluate(
        f"(() => {{ const heard = {heard}; location.hash = '#flow0&from=0.04&to=0.05'; return heard; }})()"
    )
    assert browser.evaluate(f"{FLOW}.range") == [0.04, 0.05]
    browser.evaluate(f"(() => {{ const heard = {heard}; location.hash = '#flow0&from=2&to=1'; return heard; }})()")
    assert browser.evaluate(f"{FLOW}.range") == [0.04, 0.05]  # no span: nothing happens
    assert browser.complaints == []


def test_an_opened_address_shows_its_view(shown, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render(talk_report()), encoding="utf-8")
    browser = shown(render(report()))
    browser.open(f"{file}#flow0&from=0.04&to=0.05")
    assert browser.evaluate(f"{FLOW}.range") == [0.04, 0.05]
    assert browser.evaluate("document.getElementById('flow0-toolbar').getBoundingClientRect().top") < 5


def saved(browser, folder, selector, kind):
    """Press a button that saves, and return the file."""
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.evaluate(f"document.querySelector('{selector} [data-save={kind}]').click()")
    for _ in range(1200):  # a minute
        files = [file for file in folder.glob(f"*.{kind}") if file.stat().st_size]
        if files:
            return files[0]
        browser.evaluate("new Promise((done) => setTimeout(done, 50))")
    raise AssertionError("nothing was saved")


def test_packets_in_view_are_saved_as_csv(page, tmp_path):
    browser = page(talk_report())
    browser.evaluate(f"{FLOW}.zoom(0.0805, 0.0815)")  # the three SACKs, and what they have sent again
    head, *rows = saved(browser, tmp_path, "#flow0-sequence", "csv").read_text().splitlines()
    assert head == "time_s,frame,direction,kind,seq,payload_bytes,ack,window_bytes,sack,flags"
    assert [row.split(",")[1:3] for row in rows] == [
        ["9", "received"],
        ["10", "received"],
        ["11", "received"],
        ["12", "sent"],
    ]
    assert rows[0].split(",")[6:9] == ["1449", "65536", "2897-4345"]
    assert rows[3].split(",")[3:6] == ["retransmission (loss detection)", "1449", "1448"]


def test_a_plot_is_saved_as_numbers_and_as_a_picture_with_its_title(page, tmp_path):
    browser = page(report())
    panel = report().flows[0].panels[0]
    head, *rows = saved(browser, tmp_path, f"#flow0-{panel.name}", "csv").read_text().splitlines()
    assert head == f"time_s,curve,{panel.axis}"
    assert len(rows) == sum(np.isfinite(series.value).sum() for series in panel.series)
    picture = saved(browser, tmp_path, f"#flow0-{panel.name}", "png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert width == browser.evaluate(f"{FLOW}.panels.at(-1).canvas.clientWidth")
    assert height > browser.evaluate(f"{FLOW}.panels.at(-1).height")  # title and legend stand above the plot
    assert browser.complaints == []
