"""Every page can be used without a mouse and read by machines, and what a file calls itself is text only."""

from dataclasses import replace

import pytest

import cctrace as cct
from cctrace.analysis.analyze import analyze
from cctrace.diagnosis.findings import Event
from cctrace.display import visible
from cctrace.plot.panels import Phases
from cctrace.refusals import Refusal
from cctrace.report.compare import write_comparison
from cctrace.report.index import write_index
from cctrace.report.overview import write_report
from cctrace.report.page import FlowSection
from tests.browser import IN_A_BROWSER
from tests.test_report import HOSTILE, report
from tests.widget_host import hosted

pytestmark = IN_A_BROWSER
NAME = "<img src=x onerror=alert(1)>&\"'\u2028"  # of a file: no slash
FLOW = "window.cctrace.flows[0]"


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """Two captures of hostile names: two flows over one bottleneck, and one alone."""
    folder = tmp_path_factory.mktemp("captures")
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="1bdp", loss="0.5%")
    for name, controllers in ((f"{NAME}a.pcap", ["bbr2022", "cubic6"]), ("b.pcap", "cubic6")):
        cct.simulate(path, controllers, "2s", 1, packets=True).to_pcap(folder / name)
    return folder / f"{NAME}a.pcap", folder / "b.pcap"


@pytest.fixture(scope="module")
def pages(captures, tmp_path_factory):
    """The report with a comparing panel, the index of several, and two beside each other."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cctrace.analysis.analyze._forecast", lambda *given: Refusal("forecast", f"not asked {HOSTILE}"))
        several, one = (analyze([file]) for file in captures)
        index, _, _ = write_index(captures, folder / "index")
    both = {"report": write_report(several, folder / "report"), "index": index}
    return both | {"diff": write_comparison(several, one, folder / "diff")}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("which", ["report", "index", "diff"])
def test_axe_finds_no_barrier_and_a_hostile_name_is_text(shown, pages, which, theme):
    browser = shown(pages[which])
    browser.evaluate("window.cctrace.flows.forEach((flow) => flow.zoom(1, 1.005)); true")  # tables of some rows
    browser.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    browser.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true)); true")
    assert browser.barriers() == []
    assert browser.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert browser.evaluate("document.body.textContent.includes('onerror=alert')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_barrier_in_a_widget(shown, captures, theme):
    browser = shown(hosted(cct.widget(cct.read(captures[0]).flow(0))))
    browser.evaluate("document.querySelector('.cctrace').flow.zoom(1, 1.005)")
    browser.evaluate(f"document.body.dataset.jpThemeLight = '{str(theme == 'light').lower()}'")
    browser.until(f"document.querySelector('.cctrace').dataset.theme === '{theme}'")
    browser.evaluate(
        "document.getElementById('el').setAttribute('role', 'main'); true"
    )  # of the notebook, not of its cells
    assert [found for found in browser.barriers() if not found.startswith("page-has-heading-one")] == []


def test_hostile_texts_in_the_comparing_panel_are_texts(shown):
    section = report().flows[0]
    panels = [
        replace(panel, title=HOSTILE, series=[replace(s, label=HOSTILE) for s in panel.series])
        for panel in section.panels
    ]
    compared = FlowSection(
        HOSTILE, [], panels, Phases(), 2.0, notes=[HOSTILE], events=[Event("idle", 0.1, 0.1, HOSTILE)]
    )
    browser = shown_page(shown, replace(report(HOSTILE), comparison=compared))
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.getElementById('comparison').textContent") == visible(HOSTILE)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true)); true")
    assert browser.evaluate("document.querySelectorAll('img').length") == 0  # nor do the tables that a script fills


def shown_page(shown, of):
    from cctrace.report.page import render

    return shown(render(of))


def test_all_plots_are_reached_by_tab_and_answer_the_keys(shown, pages):
    """Zoom, move, the vertical axis, everything again: on every plot of the page, comparing panels included."""
    browser = shown(pages["report"])
    flows = browser.evaluate("window.cctrace.flows.length")
    assert flows == 3  # two, and both beside each other
    for k in range(flows):
        flow = f"window.cctrace.flows[{k}]"
        for i in range(browser.evaluate(f"{flow}.panels.length")):
            panel = f"{flow}.panels[{i}]"
            whole = browser.evaluate(f"{panel}.figure.scrollIntoView(); {flow}.range")
            browser.evaluate(f"{panel}.canvas.focus()")
            assert browser.evaluate(f"[{panel}.canvas.tabIndex, document.activeElement === {panel}.canvas]") == [
                0,
                True,
            ]
            assert browser.evaluate(f"{panel}.canvas.getAttribute('aria-label')")
            browser.press("+")
            zoomed = browser.evaluate(f"{flow}.range")
            assert whole[0] < zoomed[0] < zoomed[1] < whole[1]
            browser.press("ArrowRight")
            moved = browser.evaluate(f"{flow}.range")
            assert moved[0] > zoomed[0]
            assert moved[1] - moved[0] == pytest.approx(zoomed[1] - zoomed[0])
            browser.press("-")
            browser.press("ArrowUp")
            lifted = browser.evaluate(f"{panel}.values")
            browser.press("0")
            assert browser.evaluate(f"[{flow}.range, {panel}.values]") == [whole, None]
            assert len(lifted) == 2


def test_tab_goes_through_the_page_in_the_order_of_reading(shown, pages):
    browser = shown(pages["report"])
    order = browser.evaluate("""[...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
        .filter((one) => one.offsetParent !== null).map((one) => one.tabIndex)""")
    assert set(order) == {0}
    browser.evaluate("document.querySelector('#flows th button').focus(); document.activeElement.click(); true")
    assert browser.evaluate("document.querySelector('#flows th').getAttribute('aria-sort')") == "ascending"
