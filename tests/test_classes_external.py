"""Retransmissions packet by packet against tshark and tcptrace: where they are right, and by which rules not."""

import shutil
from pathlib import Path

import pytest

from benchmarks import classes
from cctrace import datasets
from cctrace.flows.capture import read
from cctrace.io.write import convert

GOLDEN = Path(__file__).parent / "golden" / "classes"
CAPTURES = [datasets.path(name, "sender.pcap.zst") for name in ("loss_cubic_1pct", "single_bbr_1bdp")]
CAPTURES += sorted(GOLDEN.glob("*.pcap.zst"))

pytestmark = [pytest.mark.external]


def named(path):
    return path.parent.name if path.name.startswith("sender") else path.name.partition(".")[0]


@pytest.fixture(scope="module", params=CAPTURES, ids=named)
def capture(request, tmp_path_factory):
    """The capture as cctrace sees it, and as plain pcap."""
    plain = tmp_path_factory.mktemp("plain") / "plain.pcap"
    convert(request.param, plain)
    return read(request.param), str(plain)


@pytest.fixture(scope="module")
def labelled(capture):
    """Our class of each retransmission, tshark's label of each packet of data, and what its rules would say."""
    if not shutil.which("tshark"):
        pytest.skip("no tshark: make check-external installs it where apt-get can")
    labels, duplicates = classes.tshark(capture[1])
    data = {int(row) for i in range(len(capture[0])) for row in classes._data(capture[0], i)}
    ours = classes.ours(capture[0])
    return ours, {row: label for row, label in labels.items() if row in data}, classes.by_rule(capture[0], duplicates)


def test_tshark_finds_the_same_packets_to_be_sent_again(labelled):
    ours, labels, _ = labelled
    assert set(ours) == set(labels)


def test_what_tshark_calls_fast_is_fast_and_what_it_calls_spurious_is_not_ours(labelled):
    ours, labels, _ = labelled
    assert {ours[row][0] for row, label in labels.items() if label == "fast"} <= {"fast"}
    assert "spurious" not in labels.values()  # it means data acknowledged before; a sender's D-SACKs come afterwards


def test_probes_and_timeouts_are_plain_retransmissions_to_tshark(labelled):
    ours, labels, _ = labelled
    assert {labels[row] for row, (why, _) in ours.items() if why in ("probe", "timeout")} <= {"retransmission"}


def test_every_other_label_of_tsharks_follows_from_its_rules_about_time(labelled):
    """No packet here was reordered: the path keeps the order, and the capture was taken before it."""
    _, labels, expected = labelled
    assert labels == expected


@pytest.mark.skipif(not shutil.which("tcptrace"), reason="no tcptrace: make check-external installs it")
def test_tcptrace_counts_the_same_packets_sent_again(capture):
    ours = classes.ours(capture[0])
    again, out_of_order = classes.tcptrace(capture[1])
    # tcptrace counts a FIN that is sent again as data.
    packets = capture[0].packets
    fins = (packets["flags"] & 1 != 0) & (packets["payload"] == 0)
    keys = list(zip(packets["conn"][fins], packets["direction"][fins], strict=True))
    assert again == len(ours) + len(keys) - len(set(keys))
    assert out_of_order == 0
