"""Retransmissions are classed as the kernel classed them: recordings against their network namespace's counters."""

import json
from pathlib import Path

import pytest

from cctrace import datasets
from cctrace.flows.capture import read
from tests.conversation import MSS, Conversation

GOLDEN = Path(__file__).parent / "golden" / "classes"
PROBES_AND_TIMEOUTS = json.loads((GOLDEN / "nstat.json").read_text())


def counted(capture):
    """The sum over all connections of a capture."""
    each = [capture.flow(i).nstat() for i in range(len(capture))]
    return {name: sum(counts[name] for counts in each) for name in each[0]}


def by_the_kernel(nstat, names):
    return {name: int(nstat.get(name if name.startswith("Tcp") else f"TcpExt{name}", 0)) for name in names}


@pytest.mark.parametrize("name", PROBES_AND_TIMEOUTS)
def test_probes_timeouts_and_what_they_cause_are_counted_as_by_the_kernel(name):
    ours = counted(read(GOLDEN / f"{name}.pcap.zst"))
    assert ours == by_the_kernel(PROBES_AND_TIMEOUTS[name]["nstat"], ours)
    assert ours["TCPLossProbes"] + ours["TCPTimeouts"] > 0


# compete_bbr_cubic_2bdp is the first part of a longer recording.
@pytest.mark.parametrize("name", sorted(set(datasets.catalogue()) - {"compete_bbr_cubic_2bdp"}))
def test_fast_retransmissions_of_the_shipped_recordings_are_counted_as_by_the_kernel(name):
    nstat = json.loads(datasets.path(name, "scenario.json").read_text())["run"]["nstat_sender"]
    ours = counted(read(datasets.path(name, "sender.pcap.zst")))
    # The one probe of tso_bbr_300m_veth left in the same burst as what a stalled pacing timer released: no capture
    # tells them apart.
    names = [key for key in ours if key != "TCPLossProbes" or name != "tso_bbr_300m_veth"]
    assert {key: ours[key] for key in names} == by_the_kernel(nstat, names)


def at(segments):
    return 1 + segments * MSS


def test_a_probe_of_new_data_is_no_retransmission():
    talk = Conversation().data(1, at(0), 4).ack(41, at(2)).data(140, at(4)).ack(180, at(5), echo_ms=140)
    counts = talk.flow().nstat()
    assert (counts["TCPLossProbes"], counts["TcpRetransSegs"]) == (1, 0)


def test_what_an_ack_or_a_write_releases_is_no_probe():
    by_ack = Conversation().data(1, at(0), 4).ack(140, at(2)).data(140.01, at(4)).ack(180, at(5))
    early = Conversation().data(1, at(0), 4).ack(41, at(2)).data(100, at(4)).ack(140, at(5))
    larger = Conversation().data(1, at(0), 4).ack(41, at(2)).data(140, at(4), 1, size=2 * MSS).ack(180, at(6))
    assert [talk.flow().nstat()["TCPLossProbes"] for talk in (by_ack, early, larger)] == [0, 0, 0]


def test_the_timeout_after_an_unanswered_probe_counts_from_the_heads_send():
    """The probe (new data, at 140 ms) is unanswered; the next probe timer finds the head older than the timeout."""
    talk = Conversation().data(1, at(0), 4).ack(41, at(2)).data(140, at(4)).ack(150, at(3))
    talk.data(260, at(3)).ack(300, at(5), echo_ms=260)
    assert talk.flow().retransmissions["why"].tolist() == ["timeout"]


def test_the_timeout_doubles():
    talk = Conversation().data(1, at(0), 4).ack(41, at(1))
    talk.data(160, at(3)).data(440, at(1)).data(960, at(1)).ack(1000, at(4), echo_ms=960)
    flow = talk.flow()
    assert flow.retransmissions["why"].tolist() == ["probe", "timeout", "timeout"]
    start = flow.facts["start_ns"] + 40_000_000
    answers = flow.answers([(start + ms * 1_000_000, start + ms * 1_000_000) for ms in (430, 500, 970)])
    first, second, third = (int(answers["rto"][answers["poll"] == i][-1]) for i in range(3))
    assert (second, third) == (2 * first, 4 * first)
