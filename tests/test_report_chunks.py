"""Packets that are too many for a page are in files beside it, and loaded from there when few enough are in view."""

import json
import re

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.analysis.analyze import analyze
from cctrace.plot.packets import packets_of
from cctrace.report import chunks
from cctrace.report.document import policy
from cctrace.report.overview import keeper, write_report
from tests.browser import IN_A_BROWSER
from tests.page_columns import decoded
from tests.test_report import data_of

CAPTURE = datasets.path("loss_cubic_1pct", "sender.pcap.zst")
FLOW = "window.cctrace.flows[0]"
GRAPH = f"{FLOW}.panels.find((panel) => panel.packets)"


@pytest.fixture(scope="module", params=["many packets", "a file larger than memory"])
def folder(request, tmp_path_factory):
    """A report of a capture that is taken for a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)  # takes seconds, tested elsewhere
        patch.setattr("cctrace.analysis.analyze._forecast", lambda *given: None)
        patch.setattr(chunks, "PACKETS", 3000)
        patch.setattr(chunks, "CHUNK", 1000)
        patch.setattr("cctrace.report.overview.CHUNK", 1000)
        if request.param != "many packets":
            patch.setattr("cctrace.flows.large.LARGE_FILE", 1)
        return write_report(analyze([CAPTURE], keep=keeper()), tmp_path_factory.mktemp("report")).parent


@pytest.fixture(scope="module")
def sides():
    return packets_of(cct.read(CAPTURE).flow(0))


def columns_of(file):
    name, text = re.fullmatch(r'cctraceChunk\("([^"]+)", (.*)\);\n', file.read_text()).groups()
    assert name == file.name
    return json.loads(text)


def test_the_files_hold_every_packet_once_and_the_page_knows_where(folder, sides):
    held = data_of((folder / "report.html").read_text())["flows"][0]
    found = [columns_of(folder / span["src"]) for span in held["packet_files"]]
    for side, packets in zip(("sent", "received"), sides, strict=True):
        frames = np.concatenate([decoded(part[side]["frame"]) for part in found])
        assert frames.tolist() == packets.frame[np.argsort(packets.time_ns, kind="stable")].tolist()
        assert [part[side]["frame"]["n"] for part in found] == [span[side] for span in held["packet_files"]]
    left = np.concatenate([decoded(part["received"]["left"]) for part in found])
    assert sorted(left.tolist()) == sorted(sides[1].left.tolist())
    assert (
        max(span["sent"] + span["received"] for span in held["packet_files"]) <= 1001
    )  # packets of one time stay together


def test_a_selection_has_the_extremes_of_every_span_of_time(sides):
    packed = chunks.pack(sides, 0, 50)
    sent, received = packed.drawn
    low, high = min(s.time_ns.min() for s in sides), max(s.time_ns.max() for s in sides) + 1
    new = sides[0].kind == 0
    first = [sides[0].time_ns[new], sent.time_ns[sent.kind == 0]]
    whole, few = (((times - low) * 50 // (high - low)).astype(int) for times in first)
    end = (sides[0].seq + sides[0].size)[new]
    kept = (sent.seq + sent.size)[sent.kind == 0]
    for span in np.unique(whole):
        assert kept[few == span].max() == end[whole == span].max()
        assert sent.seq[sent.kind == 0][few == span].min() == sides[0].seq[new][whole == span].min()
    assert (sent.kind != 0).sum() == (~new).sum()  # retransmissions are few: all of them
    assert received.right.max() == sides[1].right.max()
    assert len(sent) + len(received) < 0.1 * len(new)


def test_files_of_an_earlier_report_are_removed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)
    monkeypatch.setattr("cctrace.analysis.analyze._forecast", lambda *given: None)
    (tmp_path / "flow0-packets7.js").write_text("old")
    write_report(analyze([CAPTURE]), tmp_path)
    assert not list(tmp_path.glob("*.js"))


def zoomed(browser, low, high, until):
    """Zoom, wait until the page says `until` of what is in view, and return what was drawn."""
    said = f"document.querySelector('.packet-files').textContent.includes({json.dumps(until)})"
    waited = f"new Promise((done) => (function look() {{ {said} ? done(true) : setTimeout(look, 20); }})())"
    browser.evaluate(f"{FLOW}.zoom({low}, {high}); {GRAPH}.draw(); {waited}")
    drawn = browser.evaluate(f"({{ ...{GRAPH}.canvas.dataset }})")
    return [int(drawn[side]) for side in ("sent", "received")]


def with_script_changed(page, old, new):
    """Return a page with something else in its script, and the policy that allows it."""
    changed = page.replace(old, new)
    sheet, script = (re.search(f"<{tag}>(.*?)</{tag}>", changed, re.DOTALL)[1] for tag in ("style", "script"))
    return re.sub('(Policy" content=")[^"]*', lambda found: found[1] + policy(sheet, script, loads=True), changed)


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    def test_opened_from_a_disk_the_page_reads_the_files_of_what_is_in_view_and_no_other(self, browser, folder, sides):
        text = (folder / "report.html").read_text()
        page = folder / "few.html"
        page.write_text(with_script_changed(text, "AT_A_TIME = 400000", "AT_A_TIME = 2500"))
        browser.requests.clear()
        browser.complaints.clear()
        browser.open(page)
        assert browser.requests == []  # all of the flow is in view: the selection stands for it
        start = int(data_of(text)["flows"][0]["start_ns"])
        for low, high in ((3.0, 3.04), (7.5, 7.54), (3.0, 3.04)):
            times = [(side.time_ns - start) / 1e9 for side in sides]
            counts = zoomed(browser, low, high, "In view: every packet.")
            assert counts == [int(((t >= low) & (t <= high)).sum()) for t in times]
        assert all(url.startswith(f"file://{folder}/flow0-packets") for url in browser.requests)
        assert len(browser.requests) == len(set(browser.requests)) <= 4
        zoomed(browser, 0, 30, "In view: extremes.")
        assert browser.complaints == []

    def test_extremes_are_not_saved_as_if_they_were_the_packets(self, browser, folder):
        text = (folder / "report.html").read_text()
        page = folder / "saved.html"
        page.write_text(with_script_changed(text, "AT_A_TIME = 400000", "AT_A_TIME = 2500"))
        browser.open(page)
        told = f"{GRAPH}.cannotSave('csv')"
        zoomed(browser, 0, 30, "In view: extremes.")
        browser.evaluate("document.querySelector('.sequence [data-save=csv]').click()")
        readout = browser.evaluate("document.querySelector('.sequence .readout').textContent")
        assert readout == browser.evaluate(told)
        assert readout.startswith("Zoom in until every packet in view has been read")
        assert browser.evaluate(f"{GRAPH}.cannotSave('png')") == ""
        counts = zoomed(browser, 3.0, 3.04, "In view: every packet.")
        assert browser.evaluate(told) == ""
        assert browser.evaluate(f"{GRAPH}.numbers()[1].length") == sum(counts)

    def test_a_page_without_its_files_says_so_and_draws_the_selection(self, browser, folder, tmp_path):
        page = tmp_path / "alone.html"
        page.write_text((folder / "report.html").read_text())
        browser.open(page)
        told = "is not beside this page: keep the files of the report together."
        assert zoomed(browser, 3.0, 3.04, told)[0] > 0
