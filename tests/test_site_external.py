"""The documentation site in a browser: it asks nobody for anything, and axe-core finds no barrier."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: make check-external installs it"),
]
REPOSITORY = Path(__file__).parent.parent
PAGES = ("index", "tutorial", "comparison", "equations", "own_controller", "notebooks/02_production_capture")
AUDIT = "axe.run(document).then((found) => found.violations.map((one) => [one.id, one.nodes[0].html]))"


def test_pages_of_the_site_ask_for_nothing_and_have_no_barriers(tmp_path):
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", REPOSITORY / "docs", tmp_path / "site"]
    subprocess.run(build, check=True, capture_output=True)
    axe = (Path(find_spec("axe_core_python").origin).parent / "axe.min.js").read_text("utf-8")
    with Browser(tmp_path) as browser:
        for page in PAGES:
            browser.requests.clear()
            browser.call("Page.navigate", url=f"file://{tmp_path}/site/{page}.html")
            loaded = "document.readyState === 'complete' ? done() : addEventListener('load', done)"
            browser.evaluate(f"new Promise((done) => {loaded})")
            browser.evaluate(f"{axe}; 1")
            assert browser.evaluate(AUDIT) == [], page
            assert [url for url in browser.requests if not url.startswith("file:")] == [], page
        assert browser.complaints == []
