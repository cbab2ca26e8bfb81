"""The documentation site in a browser: it asks nobody for anything, and axe-core finds no barrier."""

import subprocess
import sys
from pathlib import Path

from tests.browser import IN_A_BROWSER

pytestmark = IN_A_BROWSER
REPOSITORY = Path(__file__).parent.parent
PAGES = ("index", "tutorial", "comparison", "equations", "own_controller", "notebooks/02_production_capture")


def test_pages_of_the_site_ask_for_nothing_and_have_no_barriers(browser, tmp_path):
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", REPOSITORY / "docs", tmp_path / "site"]
    subprocess.run(build, check=True, capture_output=True)
    for page in PAGES:
        browser.requests.clear()
        browser.open(tmp_path / "site" / f"{page}.html")
        assert browser.barriers() == [], page
        assert [url for url in browser.requests if not url.startswith("file:")] == [], page
    assert browser.complaints == []
