"""Data goes down, answers come back: no function calls one of a higher layer, not even through an object it was given.

import-linter reads imports; what runs is followed here, with the layers of the same contract.
"""

import sys
import threading
import tomllib
from collections import Counter

import pytest

import cctrace as cct
from tests.places import REPOSITORY

CONFIGURED = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
ORDER = next(contract["layers"] for contract in CONFIGURED["contracts"] if contract["type"] == "layers")
HEIGHT = {name.strip(): -row for row, names in enumerate(ORDER) for name in names.split("|")}


def height_of(module):
    """Return how high a module's package is; None of what belongs to no layer."""
    return HEIGHT.get(".".join(module.split(".")[:2]))


def is_followed(frame):
    """Return whether a frame is of this package; `lang.threads` runs in a thread whatever it is given, as a library."""
    name = frame.f_globals.get("__name__", "")
    return name.startswith("cctrace.") and name != "cctrace.lang.threads"


def calls(question):
    """Return {(calling module, called module): how often} of a question, calls through other libraries included."""
    found = Counter()

    def note(frame, event, _):
        if event != "call" or not is_followed(frame):
            return
        caller = frame.f_back
        while caller and not is_followed(caller):
            caller = caller.f_back
        if caller:
            found[caller.f_globals["__name__"], frame.f_globals["__name__"]] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        question()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def climbs(found):
    """Return the pairs of which the called module is in a higher layer than the calling one."""
    heights = {pair: tuple(map(height_of, pair)) for pair in found}
    return sorted(pair for pair, (low, high) in heights.items() if low is not None and high is not None and low < high)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = cct.Path(rate="10Mbit", rtt="30ms", buffer="1bdp", loss="0.5%")
    file = tmp_path_factory.mktemp("layers") / "sender.pcap"
    cct.simulate(path, "cubic6", "4s", 1, packets=True).to_pcap(file)
    return file


QUESTIONS = {
    "analyze": lambda file: cct.analyze(file),
    "fit.path": lambda file: cct.fit.path(cct.read(file).flow(0)),
    "identify": lambda file: cct.identify(cct.read(file).flow(0)),
    "whatif": lambda file: cct.whatif(cct.read(file).flow(0), ["reno"]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_function_calls_one_of_a_higher_layer(name, file):
    found = calls(lambda: QUESTIONS[name](file))
    assert len(found) > 50
    assert climbs(found) == []


def test_a_climb_is_noticed():
    flow = cct.simulate(cct.Path(rate="10Mbit", rtt="30ms"), "reno", "1s", packets=True).capture(0).flow(0)
    lower = {"__name__": "cctrace.io.made"}
    exec("def call(given):\n    return given()", lower)
    assert climbs(calls(lambda: lower["call"](flow.quality))) == [("cctrace.io.made", "cctrace.flows.flow")]
