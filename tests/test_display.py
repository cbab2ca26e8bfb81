"""Objects show themselves in notebooks, in a few lines of escaped HTML; they can be pickled and written as Parquet."""

import gc
import html
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.display import card, grid
from cctrace.errors import ArgumentError, FormatError
from cctrace.fit.families import EMPIRICAL, FAMILIES
from cctrace.io.captures.packets import Packets
from tests.conversation import MSS, Conversation
from tests.test_report import HOSTILE


@pytest.fixture(scope="module")
def flow():
    capture = cct.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst"))
    return capture.flow(0).attach(cct.read(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")))


@pytest.fixture(scope="module")
def objects(flow):
    counters = cct.read(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    bbr = cct.read(datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")
    return {
        "capture": flow.capture,
        "flow": flow,
        "events": flow.events,
        "counters": counters,
        "connection": counters.flow(0),
        "run": cct.replay(flow, "bbr"),
        "simulation": cct.simulate(path, ["bbr2022", "cubic"], "2s", 1, sample="100ms"),
        "collapse": cct.analytic.Collapse(mean_us=5000, sd_us=750, floor_us=75),
        "jitter": cct.fit.Jitter(),
        "parameters": cct.fit.Parameters("bbr2022", "cwnd_gain"),
        "share": cct.fit.Share(),
        "pooled": cct.fit.Hierarchical(cct.fit.Jitter()),
        "forecast": cct.fit.Collapse(quick=True).fit(bbr),
        "delays": cct.fit.uncongested_rtt(flow),
        "identified": cct.identify(flow),
        "diagnosis": cct.diagnose(flow),
        "compared": cct.replay(flow, "cubic").compare(),
    }


SHOWN = {
    "capture": "Capture .*loss_cubic_1pct.* packets, 1 connection\\b.*10.99.0.1:40001",
    "flow": "Flow 10.99.0.1:40001 → 10.99.0.2:5001.*goodput.*Mbit/s.*captured at.*sender.*counters.*polls",
    "events": "Event stream: .*on_ack.*segment size.*1448 B",
    "counters": "Counters .*polls.*controllers.*unknown.*snd_cwnd",
    "connection": "by counters of .*goodput.*Mbit/s",
    "run": "Replay of BBR2022, after its last call.*congestion window.*segments.*mode.*PROBE_BW",
    "simulation": "Simulation: last 67 % of 2 s.*bbr2022.*Mbit/s.*cubic",
    "collapse": "minRTT collapse.*probability of collapse.*0.9863.*threshold of sd, us.*656.1",
    "jitter": "Jitter, not fitted yet",
    "parameters": "Parameters of a controller, not fitted yet",
    "share": "Shares of a bottleneck, not fitted yet",
    "pooled": "Pooled over flows, not fitted yet",
    "forecast": "minRTT collapse, fitted.*jitter.*process.*bbr2022.*collapses: ",
    "delays": "RTTs without queue.*packets.*mean",
    "identified": "Who sent it.*cubic6.*probability",
    "diagnosis": "Diagnosis.*random_loss .confidence 0.*Random losses.*events",
    "compared": "Replay of .* against the kernel.*cwnd",
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_object_shows_what_it_is_in_a_few_lines(objects, name):
    shown = objects[name]._repr_html_()
    text = html.unescape(re.sub(r"<[^>]+>", " ", shown))
    assert re.search(SHOWN[name], text, re.S)
    assert len(shown) < 6000
    assert "<script" not in shown


def test_the_reprs_are_one_short_line(objects):
    for name, shown in objects.items():
        assert "\n" not in repr(shown), name
        assert len(repr(shown)) < 400, name
        assert " object at 0x" not in repr(shown), name


def test_a_path_and_a_sender_are_told_as_what_differs_from_the_default():
    assert repr(cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")) == "Path(rate='20Mbit', rtt='40ms', buffer='1bdp')"
    assert repr(cct.Sender("bbr", start="2s")) == "Sender(cc='bbr', start='2s')"
    assert repr(cct.Jitter("normal", sd="2ms")) == "Jitter(kind='normal', sd='2ms')"


@pytest.mark.parametrize("name", SHOWN)
def test_dir_lists_public_names_only(objects, name):
    assert not [one for one in dir(objects[name]) if one.startswith("_")]


def test_dir_lists_public_names_only_of_parts_of_results_and_of_what_is_simulated(objects):
    diagnosis = objects["diagnosis"]
    parts = [diagnosis.verdicts[0], diagnosis.limits[0], cct.Path(rate="20Mbit", rtt="40ms"), cct.Sender("bbr")]
    parts += [cct.Jitter("normal", sd="2ms"), *cct.analyze(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst"))]
    for shown in (*parts, parts[-1].view, parts[-1].effects, parts[-1].diagnosis.verdicts[0].effect):
        assert not [one for one in dir(shown) if one.startswith("_")], type(shown)


@pytest.mark.parametrize(
    "name", ["capture", "flow", "events", "counters", "connection", "run", "simulation", "compared"]
)
def test_a_summary_is_text_whose_lines_are_those_of_the_card(objects, name):
    title, *lines = objects[name].summary().splitlines()
    text = html.unescape(re.sub(r"<[^>]+>", " ", objects[name]._repr_html_()))
    assert title in text
    assert lines
    assert all(line.split()[-1] in text for line in lines)


def test_what_comes_from_a_file_is_escaped():
    assert "<img" not in card(HOSTILE, [(HOSTILE, HOSTILE)], [HOSTILE])
    assert "<img" not in grid(HOSTILE, [HOSTILE], [[HOSTILE]], [HOSTILE])


def test_a_flow_without_an_rtt_sample_says_so():
    talk = Conversation(handshake=False, timestamps=False)
    for i in range(3):
        talk.data(i, 1 + i * MSS)
    assert "unknown" in talk.capture().flow(0)._repr_html_()


@pytest.mark.parametrize("name", [name for name in SHOWN if name != "connection"])
def test_an_object_survives_a_pickle(objects, name):
    copy = pickle.loads(pickle.dumps(objects[name]))
    assert copy._repr_html_() == objects[name]._repr_html_()


@pytest.mark.parametrize("family", [EMPIRICAL, *FAMILIES.values()], ids=lambda family: family.name)
def test_a_fit_of_any_distribution_survives_a_pickle(family):
    assert pickle.loads(pickle.dumps(family)) is family


def test_a_capture_and_counters_come_back_from_parquet_as_they_were(objects, tmp_path):
    capture, counters = objects["capture"], objects["counters"]
    rows = capture.to_parquet(tmp_path / "packets.parquet")
    copy = cct.read(tmp_path / "packets.parquet")
    assert isinstance(copy.packets, Packets)
    assert rows == len(copy.packets)
    for name, column in capture.packets.columns.items():
        assert np.array_equal(copy.packets[name], column), name
    counters.to_parquet(tmp_path / "polls.parquet")
    pd.testing.assert_frame_equal(cct.read(tmp_path / "polls.parquet").frame(), counters.frame())


def test_decisions_events_and_timelines_are_written_as_parquet(objects, tmp_path):
    for name, table in (("run", objects["run"].decisions), ("simulation", objects["simulation"].timeline)):
        assert objects[name].to_parquet(tmp_path / f"{name}.parquet") == len(table) > 0
        assert len(pd.read_parquet(tmp_path / f"{name}.parquet")) == len(table)
    events = objects["events"]
    assert events.to_parquet(tmp_path / "events.parquet") == len(events)
    assert np.array_equal(type(events).load(tmp_path / "events.parquet").rows, events.rows)


def test_a_run_has_its_decisions_with_names_and_units(flow):
    table = cct.replay(flow, "bbr").frame()
    assert {"cwnd_segments", "pacing_rate_Bps", "bw_Bps", "min_rtt_us", "phase"} <= set(table.columns)
    assert set(table["phase"]) <= {"STARTUP", "DRAIN", "PROBE_BW", "PROBE_BW up", "PROBE_BW down", "PROBE_RTT"}


def test_the_base_classes_of_controllers_are_public():
    assert issubclass(cct.controller("bbr3")[0], cct.LinuxController)
    assert issubclass(cct.controller("obbr")[0], cct.QuicController)
    assert not [name for name in dir(cct) if name.startswith("_") and name != "__version__"]


def test_one_is_no_plural_and_a_simulation_has_no_file():
    sim = cct.simulate(cct.Path(rate="5Mbit", rtt="20ms", buffer="2bdp"), "cubic6", "500ms", packets=True, trace=True)
    assert re.fullmatch(r"<Capture: \d+ packets, 1 connection>", repr(sim.capture(0)))
    assert re.fullmatch(r"<View: \d+ calls of a linux controller, \d+ columns>", repr(sim.flow(0)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("held", "said"), [(b"", "the file is empty"), (b"hello\n", "not a format that cctrace reads")]
)
def test_a_file_that_is_refused_is_closed(tmp_path, held, said):
    with warnings.catch_warnings(action="ignore"):
        gc.collect()  # what other tests have left open
    (tmp_path / "some.pcap").write_bytes(held)
    with pytest.raises(FormatError, match=said):
        cct.read(tmp_path / "some.pcap")
    gc.collect()


def test_a_text_counts_one_packet_and_a_fitted_path_has_four_digits(flow):
    packets = flow.capture.packets
    one = Packets({name: column[:1] for name, column in packets.columns.items()}, {}, packets.connections)
    assert repr(one) == "<Packets : 1 packet, 1 connection>"
    assert re.fullmatch(
        r"<FittedPath: rate from 0.00 s: [\d.]+ \([\d.]+ to [\d.]+\) Mbit/s; .*…>", repr(cct.fit.path(flow))
    )


def test_an_empty_path_is_named():
    with pytest.raises(ArgumentError, match="source='' must be a path"):
        cct.read("")
