"""Who sent a flow: simulated flows and recordings whose senders are known, strangers, and what is refused."""

import json

import numpy as np
import pytest

import cctrace as cct
from benchmarks.identify import simulated
from cctrace.cli import main
from cctrace.errors import ArgumentError, StreamError
from cctrace.explain.identify import ALIKE, CANDIDATES, TEMPER, UNKNOWN, UNKNOWN_LOG, identify_files, probabilities


@pytest.mark.parametrize(("name", "number"), [(name, k % 3) for k, name in enumerate(CANDIDATES)])
def test_a_simulated_flow_is_of_its_sender_or_of_what_decides_alike(name, number, tmp_path):
    found = cct.identify(simulated(name, number, 7, "6s", tmp_path))
    assert name in found.group
    assert sum(p for _, p in found.candidates) == pytest.approx(1)
    assert {one for one, _ in found.candidates} == {*CANDIDATES, UNKNOWN}
    best = found.candidates[0].probability
    assert all((p * ALIKE >= best) == (one in found.group) for one, p in found.candidates if one != UNKNOWN)


@pytest.mark.parametrize("name", ["Delay", "bbrx"])
def test_nobody_is_named_for_a_stranger(name, tmp_path):
    assert cct.identify(simulated(name, 0, 7, "6s", tmp_path)).group == (UNKNOWN,)


@pytest.mark.parametrize("recording", sorted(cct.datasets.catalogue()))
def test_the_senders_of_the_shipped_recordings_are_named(recording):
    folder = cct.datasets.path(recording)
    flows = json.loads((folder / "scenario.json").read_text())["parameters"]["flows"]
    senders = {flow["sport"]: {"bbr": "bbr2022", "cubic": "cubic6"}[flow["cc"]] for flow in flows}
    for _, flow, found in identify_files([cct.datasets.path(recording, "sender.pcap.zst")]):
        assert senders.get(flow.key[1], next(iter(senders.values()))) in found.group
        assert found.candidates[0].name != UNKNOWN


def test_the_more_is_explained_alike_the_surer_and_equals_share():
    few, many = (
        dict(probabilities({"a": np.full(n, 1.0), "b": np.full(n, 1.0), "c": np.full(n, 0.5)})) for n in (2, 20)
    )
    assert few["a"] == few["b"]
    assert few["c"] / few["a"] == pytest.approx(np.exp(-0.5 * 2 * TEMPER))
    assert many["c"] < few["c"]
    assert dict(probabilities({"a": np.full(20, UNKNOWN_LOG - 1)}))[UNKNOWN] > 0.99


def test_only_captures_taken_at_the_sender_are_identified(tmp_path):
    sim = cct.simulate(cct.Path(rate="10Mbit", rtt="20ms", buffer="1bdp"), ["reno"], "2s", 1, packets=True)
    sim.to_pcap(tmp_path / "receiver.pcap", side="receiver")
    with pytest.raises(StreamError, match="taken at the receiver; identify needs a capture taken at the sender"):
        cct.identify(cct.read(tmp_path / "receiver.pcap").flow(0))
    counters = cct.read(cct.datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst"))
    with pytest.raises(ArgumentError, match="only a capture taken at the sender shows"):
        cct.identify(counters.flow(0))


def test_the_command_lists_flows_as_json_and_refuses_in_one_line(tmp_path, capsys):
    simulated("reno", 0, 7, "5s", tmp_path)
    file = str(tmp_path / "sender.pcap")
    assert main(["identify", file, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["candidates"][0]["name"] in one["group"] == ["reno"]
    assert one["flow"]["bytes_sent"] > 0
    assert one["seconds"] > 0
    assert "upon ACKs" in one["reason"]
    assert main(["identify", file]) == 0
    assert "reno" in capsys.readouterr().out
    assert main(["identify", str(cct.datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst"))]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "needs a capture taken at the sender" in error
