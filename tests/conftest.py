"""What the tests in a browser share: one Chromium per module, and a page in it that must not complain."""

import gc

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import cctrace as cct
from cctrace import cli
from tests.browser import Browser

# A busy machine is no reason to fail: no example has a deadline, and making one may take its time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_finish():
    """Spare the collector what stays until the end, modules and 5,000 tests: each full collection took 0.4 s."""
    gc.freeze()


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Let commands be silent for as long as they take: what they print must not depend on the machine's speed."""
    monkeypatch.setattr("cctrace.cli.common.SILENT_S", 3600.0)


@pytest.fixture
def run(capsys):
    """Run a command in this process, and return its status, what it printed, and what it printed to stderr."""

    def command(*arguments):
        status = cli.main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return status, output.out, output.err

    return command


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def shown(browser, tmp_path):
    """Open a file, or HTML, and return the browser, which must neither complain nor ask for anything afterwards."""

    def opened(page):
        file = page
        if isinstance(page, str):
            file = tmp_path / "page.html"
            file.write_text(page, encoding="utf-8")
        browser.complaints.clear()
        browser.requests.clear()
        browser.open(file)
        return browser

    yield opened
    assert browser.complaints == []
    assert browser.requests == []


@pytest.fixture(scope="module")
def flow():
    """A flow of CUBIC with losses, captured at its sender."""
    return cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """An empty place for the results of papers' figures."""
    place = tmp_path / "shelf"
    place.mkdir()
    monkeypatch.setattr("cctrace.papers.runs.store", lambda: place)
    return place
