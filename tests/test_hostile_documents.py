"""JSON and TOML that users keep or pass on: whatever their shape, they are read or refused in one line."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cctrace as cct
from cctrace.analysis.validate import validate
from cctrace.cc.bbrx import table_values
from cctrace.checking.expectations import read as read_expectations
from cctrace.errors import CctraceError, FormatError
from cctrace.learn.agent import Agent
from cctrace.presets import load
from cctrace.sim.scenario import Scenario
from cctrace.streaming.rates import Rates, read_periods
from cctrace.streaming.video import Video
from tests.places import RECORDINGS

RECORDING = RECORDINGS / "lab_cubic"
ODD = (None, True, -1, 10**40, 1e308, float("nan"), float("inf"), "", "x", "\x00", [], {}, [[]], {"a": 1}, [1, 1, 1])
DEEP = ("[" * 100_000, '{"a":' * 50_000)
MANIFEST = {"segment_duration_ms": 4000, "bitrates_kbps": [100, 200], "segment_sizes_bits": [[1, 2], [1, 2]]}
PERIODS = [{"duration_ms": 1000, "bandwidth_kbps": 5000, "latency_ms": 75}] * 2


def _places(document, at=()):
    yield at
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from _places(value, (*at, key))


@st.composite
def mutants(draw, document):
    """Return the document with a part that is missing or another value."""
    at = draw(st.sampled_from(list(_places(document))))
    if not at:
        return draw(st.sampled_from(ODD))
    document = copy.deepcopy(document)
    holder = document
    for key in at[:-1]:
        holder = holder[key]
    if draw(st.booleans()):
        holder[at[-1]] = draw(st.sampled_from(ODD))
    else:
        del holder[at[-1]]
    return document


def _refusal(read, *given):
    """Return what refuses the document; None if it is read. Any other error is a failure."""
    try:
        read(*given)
    except CctraceError as error:
        return str(error)
    return None


def _agent():
    state = {"form": "cctrace learning agent 1", "flows": 0, "slope": 0.01, "gamma": 1.0}
    bins = len(load("bbrx_table1")["bins"])
    state |= {"method": "parabola", "continues": False, "first": [[4, 0.45]] * bins}
    return state | {"waiting": [[0.1]] * bins, "tried": [[[10, 0.5, 1.0]]] * bins}


READERS = {
    "manifest": (lambda file: Video.read(file).cut(10), MANIFEST),
    "periods": (lambda file: Rates(read_periods(file)), PERIODS),
    "table": (lambda file: table_values(str(file)), {"bins": load("bbrx_table1")["bins"]}),
    "agent": (Agent.load, _agent()),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=60)
def test_json_of_another_shape_is_read_or_refused(name, data, tmp_path_factory):
    reader, document = READERS[name]
    file = tmp_path_factory.mktemp("json") / "a.json"
    file.write_text(json.dumps(data.draw(mutants(document))))
    assert "\n" not in (_refusal(reader, file) or "")


@pytest.mark.parametrize("text", DEEP)
@pytest.mark.parametrize("name", READERS)
def test_deep_json_is_refused(name, text, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CctraceError):
        READERS[name][0](tmp_path / "a.json")


@pytest.mark.parametrize("reader", [Scenario.read, read_expectations])
def test_deep_toml_is_refused(reader, tmp_path):
    (tmp_path / "a.toml").write_text("a = " + DEEP[0])
    with pytest.raises(FormatError, match=r"a\.toml: TOML that is nested too deeply"):
        reader(tmp_path / "a.toml")


@pytest.fixture(scope="module")
def fits():
    path = cct.Path(rate="10Mbit", rtt="20ms", buffer="1bdp")
    fitted = cct.fit.path(cct.simulate(path, ["cubic6"], "8s", seed=1, packets=True))
    jitter = cct.fit.Jitter().fit(np.random.default_rng(1).normal(20_000, 500, 2_000))
    return {"path": (cct.fit.FittedPath, fitted.to_json()), "jitter": (cct.fit.Jitter, jitter.to_json())}


@pytest.mark.parametrize("name", ["path", "jitter"])
@given(data=st.data())
@settings(max_examples=150)
def test_a_fit_of_another_shape_is_read_whole_or_refused(name, data, fits):
    kind, text = fits[name]
    mutant = json.dumps(data.draw(mutants(json.loads(text))))
    refusal = _refusal(kind.from_json, mutant)
    assert "\n" not in (refusal or "")
    if refusal is None:
        fit = kind.from_json(mutant)
        assert fit.summary()
        assert fit.to_dict()


def test_a_path_with_an_infinite_bound_is_refused(fits):
    document = json.loads(fits["path"][1])
    document["buffer_bytes"]["low"] = float("inf")
    with pytest.raises(FormatError, match="not of the shape of a fitted path"):
        cct.fit.FittedPath.from_json(json.dumps(document))


@pytest.mark.parametrize("name", ["path", "jitter"])
@pytest.mark.parametrize("text", DEEP)
def test_a_deep_fit_is_refused(name, text, fits):
    with pytest.raises(FormatError, match="nested too deeply"):
        fits[name][0].from_json(text)


FLOWS = (
    "{}",
    "[]",
    "nope",
    '{"parameters": {"flows": [{"id": 1}]}}',
    '{"parameters": {"flows": [{"id": [], "sport": 1}]}}',
)


@pytest.mark.parametrize("text", FLOWS)
def test_a_scenario_of_another_shape_is_refused(text, tmp_path):
    for name in ("sender.pcap.zst", "tcpinfo.csv.zst"):
        (tmp_path / name).symlink_to(RECORDING / name)
    (tmp_path / "scenario.json").write_text(text)
    with pytest.raises(FormatError, match=r"scenario\.json: not of the shape of a recording's scenario"):
        validate(tmp_path)


def test_a_queue_of_another_shape_is_refused(tmp_path):
    for name in ("sender.pcap.zst", "tcpinfo.csv.zst", "scenario.json"):
        (tmp_path / name).symlink_to(RECORDING / name)
    (tmp_path / "queue.csv.gz").write_text("time_ns,late_max_us\n1,x\n")
    with pytest.raises(FormatError, match=r"queue\.csv\.gz: not of the shape of a recording's queue"):
        validate(tmp_path)


def test_a_refusal_quotes_no_more_of_a_document_than_fits_a_line(tmp_path):
    trace = {"common_fields": {"reference_time": 1e300}, "events": [{"time": 1, "name": "recovery:metrics_updated"}]}
    qlog = {"qlog_version": "0.3", "traces": [trace]}
    (tmp_path / "a.qlog").write_text(json.dumps(qlog))
    with pytest.raises(FormatError, match=r"not of the shape of qlog \(OverflowError: 1000") as refusal:
        cct.read(tmp_path / "a.qlog")
    assert len(str(refusal.value)) < len(str(tmp_path)) + 250
