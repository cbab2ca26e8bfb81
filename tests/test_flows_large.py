"""Captures larger than memory: the same flows and the same analyses as from one read in one piece."""

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

import cctrace as cct
from cctrace import datasets
from cctrace.analysis import analyze as analysis
from cctrace.corpus import capture
from cctrace.flows import large as large_files
from cctrace.flows.large import bulk_flows
from cctrace.io.captures.packets import joined

FILE = datasets.path("compete_bbr_cubic_2bdp", "sender.pcap.zst")  # two flows, with SACKs


@pytest.fixture(scope="module")
def whole():
    return cct.read(FILE)


def test_chunks_joined_again_are_the_capture(whole):
    parts = list(cct.read(FILE, chunk=50_000))
    assert len(parts) > 1
    again = joined(parts)
    for name, column in whole.packets.columns.items():
        assert np.array_equal(again.columns[name], column), name
    for name, column in whole.packets.sacks.items():
        assert np.array_equal(again.sacks[name], column), name


def test_the_packets_of_one_connection_keep_their_sack_blocks(whole):
    packets = whole.packets
    part = packets.select(np.arange(len(whole)) == 1)
    rows = np.flatnonzero(packets["conn"] == 1)
    assert np.array_equal(part["seq"], packets["seq"][rows])
    assert part["sack_count"].sum() == packets["sack_count"][rows].sum() == len(part.sacks["left"]) > 0
    row = np.flatnonzero(part["sack_count"])[-1]
    mine, theirs = part["sack_row"][row], packets["sack_row"][rows[row]]
    assert part.sacks["left"][mine] == packets.sacks["left"][theirs]


@pytest.mark.parametrize("batch", [1, 10_000_000])
def test_flow_by_flow_gives_the_flows_of_the_whole(whole, batch):
    found = list(bulk_flows(FILE, batch=batch))
    wanted = whole.bulk()
    assert [flow.row for flow in found] == [flow.row for flow in wanted]
    assert len(found[0].capture.packets) < len(whole.packets) or batch > 1
    assert_frame_equal(found[-1].events.frame(), wanted[-1].events.frame())


def test_a_large_file_is_analysed_like_a_small_one(monkeypatch):
    """What comes after the diagnosis takes most of the time, and knows a flow only, no file."""
    monkeypatch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)
    monkeypatch.setattr("cctrace.analysis.analyze._forecast", lambda *_: None)
    small = analysis.analyze([FILE], effects=False)
    monkeypatch.setattr(large_files, "LARGE_FILE", 1)
    large = analysis.analyze([FILE], effects=False)
    assert [found.row for found in large] == [found.row for found in small]
    assert [found.diagnosis for found in large] == [found.diagnosis for found in small]


def test_a_large_file_of_a_corpus_is_analysed_like_a_small_one(monkeypatch):
    small = capture.analyse("a", str(FILE), [], 1, ["flows", "explain"])
    monkeypatch.setattr(large_files, "LARGE_FILE", 1)
    assert capture.analyse("a", str(FILE), [], 1, ["flows", "explain"]) == small
