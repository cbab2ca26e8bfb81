"""The widget draws with the page's scripts what the kernel sends as bytes; without a kernel a page stands in."""

import html
import re

import numpy as np
import pytest

import cctrace as cct
from cctrace import extras
from cctrace.errors import MissingError
from cctrace.plot.packets import packets_of
from cctrace.report import page
from cctrace.report.widget import section_of
from tests.browser import IN_A_BROWSER
from tests.page_columns import decoded
from tests.test_report import lossy_talk
from tests.widget_host import hosted

RECORDING = "loss_cubic_1pct"
HOST = "document.querySelector('.cctrace')"
GRAPH = f"{HOST}.flow.panels.find((panel) => panel.packets)"


@pytest.fixture
def talk():
    return lossy_talk().capture().flow(0)


def test_the_columns_are_bytes_and_hold_every_packet_exactly(flow):
    data = cct.widget(flow).data["packets"]
    sent, received = packets_of(flow)
    assert all(isinstance(column["data"], bytes) for side in data.values() for column in side.values())
    order = np.argsort(sent.time_ns, kind="stable")
    assert np.array_equal(decoded(data["sent"]["seq"]), sent.seq[order])
    order = np.argsort(received.time_ns, kind="stable")
    assert np.array_equal(decoded(data["received"]["ack"]), received.ack[order])


def test_it_runs_the_scripts_of_the_page_and_no_copy(talk):
    esm = type(cct.widget(talk))._esm.default_value
    assert all((page._HERE / f"{name}.js").read_text() in esm for name in page._DRAWING)


def test_it_is_told_in_one_line_and_never_prints_its_columns(talk):
    assert repr(cct.widget(talk)) == "<Widget 10.0.0.1:40000 → 10.0.0.2:5001: 16 packets>"


def test_where_there_is_no_kernel_a_page_of_the_flow_stands_in(talk):
    shown, _ = cct.widget(talk)._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    inside = html.unescape(re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', shown["text/html"])[1])
    assert inside.startswith("<!DOCTYPE html>")
    assert 'id="flow0-sequence"' in inside


def test_of_many_packets_the_page_that_stands_in_has_the_curves_only(flow, monkeypatch):
    monkeypatch.setattr("cctrace.report.widget._FALLBACK_PACKETS", 1000)
    text = cct.widget(flow)._repr_mimebundle_()[0]["text/html"]
    assert "flow0-sequence&quot;" not in text
    assert "where the notebook&#x27;s kernel runs" in html.unescape(text)
    assert len(text) < 1_000_000


def test_the_span_in_view_is_two_times_in_order(talk):
    shown = cct.widget(talk)
    shown.span = (0.1, 0.2)
    with pytest.raises(Exception, match="start before end"):
        shown.span = (0.2, 0.1)
    assert shown.span == [0.1, 0.2]


def test_a_replay_adds_what_the_controller_decided(flow):
    labels = [s.label for p in section_of(flow, cct.replay(flow, "cubic")).panels for s in p.series]
    assert "cwnd (replay)" in labels


def test_without_anywidget_it_says_what_to_install(talk, monkeypatch):
    def absent(module):
        raise ModuleNotFoundError(module)

    from cctrace.report import widget as module

    module._widget_class.cache_clear()
    monkeypatch.setattr(extras.importlib, "import_module", absent)
    with pytest.raises(MissingError, match=r"anywidget, which is not installed: .*pip install .*\[notebooks\]'"):
        cct.widget(talk)


@pytest.fixture
def host(shown):
    """Open a widget in a page that hosts it."""
    return lambda widget: shown(hosted(widget))


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    def test_at_40_ms_every_captured_packet_is_drawn(self, host, flow):
        browser = host(cct.widget(flow))
        start = int(flow.row["start_ns"])
        inside = [int(((t >= 3.0) & (t <= 3.04)).sum()) for t in ((s.time_ns - start) / 1e9 for s in packets_of(flow))]
        drawn = browser.evaluate(f"{HOST}.flow.zoom(3.0, 3.04); ({{ ...{GRAPH}.canvas.dataset }})")
        assert [int(drawn["sent"]), int(drawn["received"])] == inside
        assert drawn["single"] == "true"

    def test_kernel_and_browser_agree_on_the_span_in_view(self, host, talk):
        browser = host(cct.widget(talk))
        browser.evaluate("tell('span', [0.08, 0.09])")
        assert browser.evaluate(f"{HOST}.flow.range") == pytest.approx([0.08, 0.09])
        browser.evaluate(f"window.saved = null; {HOST}.flow.zoom(0.1, 0.12); true")
        browser.until("window.saved")
        assert browser.evaluate("window.saved") == pytest.approx([0.1, 0.12])

    def test_it_is_dark_where_the_notebook_is_and_takes_nothing_from_the_notebooks_style(self, host, talk):
        browser = host(cct.widget(talk))
        light = browser.evaluate(f"getComputedStyle({HOST}).backgroundColor")
        browser.evaluate("document.body.dataset.jpThemeLight = 'false'; true")
        browser.until(f"{HOST}.dataset.theme === 'dark'")
        assert browser.evaluate(f"getComputedStyle({HOST}).backgroundColor") != light
        browser.evaluate(
            "document.head.append(document.createElement('style')); "
            "document.head.lastChild.textContent = 'button { display: none }'"
        )
        assert browser.evaluate(f"{HOST}.shadowRoot.querySelector('button').offsetWidth") > 0

    def test_the_keys_and_the_wheel_work_inside_of_a_notebook(self, host, talk):
        browser = host(cct.widget(talk))
        whole = browser.evaluate(f"{HOST}.flow.range")
        browser.evaluate(f"{GRAPH}.canvas.focus({{ preventScroll: true }})")
        browser.press("+")
        zoomed = browser.evaluate(f"{HOST}.flow.range")
        assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
        left, top = browser.evaluate(
            f"(() => {{ const b = {GRAPH}.canvas.getBoundingClientRect(); return [b.left, b.top]; }})()"
        )
        browser.turn(left + 300, top + 100, -300)
        low, high = browser.evaluate(f"{HOST}.flow.range")
        assert high - low < zoomed[1] - zoomed[0]
