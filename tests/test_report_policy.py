"""Every page allows its own style sheet and script by their hashes, and nothing else that came to stand in it."""

import base64
import hashlib
import html
import re

import pytest

from cctrace import corpus, datasets
from cctrace.analysis.analyze import analyze
from cctrace.report.compare import write_comparison
from cctrace.report.corpus import write_pages
from cctrace.report.index import write_index
from cctrace.report.overview import write_report
from tests.browser import IN_A_BROWSER

CAPTURE, COUNTERS = (datasets.path("tso_bbr_300m_veth", name) for name in ("sender.pcap.zst", "tcpinfo.csv.zst"))
KINDS = ("report", "counters", "index", "diff", "corpus")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """One page of every kind."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)  # takes seconds, tested elsewhere
        one = analyze([CAPTURE], [COUNTERS])
        corpus.run([str(CAPTURE)], str(folder / "corpus"), "flows,explain", workers=1)
        return {
            "report": write_report(one, folder / "report"),
            "counters": write_report(analyze([COUNTERS]), folder / "counters"),
            "index": write_index([CAPTURE], folder / "index")[0],
            "diff": write_comparison(one, one, folder / "diff"),
            "corpus": write_pages(corpus.open(str(folder / "corpus")), pages=1),
        }


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_names_what_the_page_contains_and_forbids_the_rest(pages, kind):
    page = pages[kind].read_text("utf-8")
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', page)[1])
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (own,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    marks = re.sub(r"<(style|script)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"<[^>]*\s(style|on\w+)=", marks)


class TestInABrowser:
    pytestmark = IN_A_BROWSER

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_browser_finds_nothing_in_a_page_that_its_policy_forbids(self, shown, pages, kind):
        browser = shown(pages[kind])  # complains of what its console says
        assert browser.evaluate("document.querySelectorAll('table tbody tr').length") > 0

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_comes_to_stand_in_a_page_does_not_run(self, browser, pages, kind, tmp_path):
        hostile = (
            "<img src=x onerror='window.pwned=1'><script>window.pwned=2</script><a id=lure href='javascript:pwned=3'>"
            "</a><p id=styled style='color:red'></p><script src='beside.js'></script>"
        )
        (tmp_path / "beside.js").write_text("window.pwned = 4;")
        file = tmp_path / "page.html"
        file.write_text(pages[kind].read_text("utf-8").replace("<main", f"{hostile}<main", 1), "utf-8")
        browser.complaints.clear()
        browser.open(file)
        browser.evaluate("document.getElementById('lure').click(); true")
        browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        assert browser.evaluate("typeof window.pwned") == "undefined"
        assert browser.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"
        assert any("Content Security Policy" in one for one in browser.complaints)
