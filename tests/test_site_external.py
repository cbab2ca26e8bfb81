"""The documentation site in a browser: it asks nobody for anything, axe-core finds no barrier, its search finds."""

import subprocess
import sys

import pytest

from tests.browser import IN_A_BROWSER
from tests.places import REPOSITORY

pytestmark = IN_A_BROWSER
PAGES = ("index", "tutorial", "comparison", "equations", "own_controller", "notebooks/02_production_capture")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", REPOSITORY / "docs", folder]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_site_asks_for_nothing_and_has_no_barriers(browser, site, page):
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(site / f"{page}.html")
    assert browser.barriers() == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.complaints == []


@pytest.mark.parametrize(
    ("words", "found"), [("policer", "fitting"), ("decapsulate", "captures"), ("send_buffer_limited", "explain")]
)
def test_the_search_finds_words_of_texts_commands_and_code_without_a_server(browser, site, words, found):
    browser.complaints.clear()
    browser.open(site / f"search.html?q={words}")
    listed = "[...document.querySelectorAll('#search-results li a')].map((link) => link.pathname)"
    for _ in range(200):
        links = browser.evaluate(listed)
        if any(link.endswith(f"/{found}.html") for link in links):
            break
        browser.evaluate("new Promise((done) => setTimeout(done, 50))")  # it lists one after the other
    assert [link for link in links if link.endswith(f"/{found}.html")] != []
    assert browser.complaints == []
