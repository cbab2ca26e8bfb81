"""A controller that follows its specification conforms; one that does not is told where, when and what was expected."""

import json
from xml.etree import ElementTree

import pytest

import cctrace as cct
from cctrace import conform
from cctrace.cc.base import LinuxController
from cctrace.cc.bbr_draft import BBRDraft
from cctrace.conform import bbr
from cctrace.conform.judge import look
from cctrace.conform.runner import Cell, Runner
from cctrace.errors import ArgumentError
from cctrace.sim.path import Path
from cctrace.sim.scenario import Scenario
from cctrace.sim.sender import Sender

CELL = Cell("10Mbit", "40ms", 1448, 2)
SPEC = bbr.SPEC._replace(cells=(CELL,))


@pytest.fixture(autouse=True)
def one_path(monkeypatch):
    monkeypatch.setattr(bbr, "SPEC", SPEC)


@pytest.fixture(scope="module")
def release():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bbr, "SPEC", SPEC)
        return conform.run("bbr3", "bbr")


def violated(found):
    return {verdict.id for verdict in found.verdicts if verdict.verdict == "violates"}


def test_the_draft_conforms_to_itself_and_its_cases_come_about():
    found = conform.run("bbr_draft", "bbr")
    assert violated(found) == set()
    exercised = {verdict.id for verdict in found.verdicts if verdict.verdict == "conforms"}
    # A.2 and A.6 need a larger flight than this path's, A.14 a smaller one.
    assert {f"A.{k}" for k in range(1, 23)} - exercised == {"A.2", "A.6", "A.14"}
    assert found.conforms


def test_the_release_fails_only_where_it_differs_by_intent(release):
    assert {"drain.gain", "down.gain", "undo.state"} <= violated(release)
    assert [verdict.id for verdict in release.verdicts if verdict.fails] == []
    told = [(one.value, one.expected) for one in release.verdicts if one.verdict == "violates" and one.value]
    assert [pair for pair in told if pair[0] == pair[1]] == []
    drain = next(verdict for verdict in release.verdicts if verdict.id == "drain.gain")
    assert (drain.value, drain.expected) == ("0.34375", "0.5")
    assert "bbr_drain_gain" in drain.by_intent
    assert drain.row > 0
    assert drain.time_s > 0.1


def test_version_2_fails_only_where_it_differs_by_intent():
    found = conform.run("bbr2", "bbr")
    assert {"startup.gain", "down.gain", "state.cwnd_gain", "A.15"} <= violated(found)
    assert [verdict.id for verdict in found.verdicts if verdict.fails] == []


def test_the_flavour_of_quic_conforms_and_neither_has_the_others_offload_budget():
    assert violated(conform.run("bbr_draft_quic", "bbr")) == set()
    delayed = conform.run("bbr_draft_quic:pacing_offload_us=2000,ack_threshold=10", "bbr")
    assert violated(delayed) == set()
    for other in ("bbr_draft_quic:offload_quanta=3", "bbr_draft:offload_quanta=1"):
        assert "offload.budget" in violated(conform.run(other, "bbr"))


def test_a_new_maximum_of_extra_acked_is_kept_for_ten_rounds_and_lesser_samples_may_be_forgotten():
    """ACKs of 512 kB after a stall of 1 s: samples fall for rounds, of which Nichols' filter keeps three."""
    kept = next(row for row in bbr.SPEC.requirements if row.id == "extra_acked.kept")
    stalled = next(case for case in bbr.SPEC.cases if case.id == "A.19")
    for spec, holds in (("bbr_draft", True), ("bbr_draft:extra_acked_rounds=8", False)):
        found = kept.check(stalled.run(Runner(spec, Cell("10Gbit", "10ms", 32000, 16))).trace)
        assert found.exercised > 1000
        assert (found.row is None) == holds


def test_only_losses_of_many_ranges_end_an_app_limited_startup_and_a_spurious_recovery_returns_to_it():
    runner = Runner("bbr_draft", Cell("1Gbit", "100ms", 32000))
    cases = {case.id: case.run(runner) for case in bbr.SPEC.cases if case.id in ("A.2", "B.2", "B.3")}
    assert all(outcome.found.exercised and outcome.found.row is None for outcome in cases.values())
    spec = conform.spec_of("bbr")
    for case, name in (("A.2", "startup.high_loss"), ("B.2", "startup.high_loss"), ("B.3", "undo.state")):
        found = next(row for row in spec.requirements if row.id == name).check(cases[case].trace)
        assert found.exercised
        assert found.row is None


def test_a_finding_of_stress_is_examined_as_one_run():
    """BBRv3 behind a slow beginning, and CUBIC; losses end UP: Linux counts them in the first round of DOWN, too."""
    path = Path(rate=[(0, "800kbit"), (1.57, "10Mbit")], rtt="40ms", buffer="1bdp")
    scenario = Scenario(path, (Sender("bbr3", ack_every=2), Sender("cubic6")), "4s")
    found = conform.run(scenario, "bbr")
    assert "loss.only" in violated(found)
    assert found.conforms
    assert any("one scenario" in note for note in found.notes)
    assert conform.run(scenario, "prr", sender=1).subject == "cubic6"
    assert violated(conform.run(scenario, "rack")) == set()
    with pytest.raises(ArgumentError, match="belongs to the Linux stack"):
        conform.run(scenario, "quic")
    with pytest.raises(ArgumentError, match=r"^Raises raised ZeroDivisionError"):
        conform.run(Scenario(path, (Sender(Raises),), "1s"), "bbr")


class Unpaced(BBRDraft):
    def set_pacing_rate_with_gain(self, pacing_gain):
        self.pacing_rate = 1 << 40


class LateProbeRTT(BBRDraft):
    def check_probe_rtt(self, ack):
        if self.probe_rtt_expired and self.round_count % 2 == 0:
            super().check_probe_rtt(ack)


class SavesTooLate(BBRDraft):
    def note_loss(self, ack):
        self.is_loss_in_round = True


class WrongUnit(BBRDraft):
    def bdp_multiple(self, ack, bw, gain):
        return super().bdp_multiple(ack, bw * 8, gain)


@pytest.mark.parametrize(
    ("subject", "caught"),
    [
        (Unpaced, "pacing.rate"),
        (LateProbeRTT, "probe_rtt.entry"),
        (WrongUnit, "cwnd.max_inflight"),
        (SavesTooLate, "undo.saved"),
        ("bbr_draft:up_pacing_gain=1.1", "up.gain"),
        ("bbr_draft:loss_beta=0.5", "loss.bw_shortterm"),
        ("bbr_draft:probe_rtt_ms=100", "probe_rtt.stay"),
        ("bbr_draft:extra_acked_rounds=50", "extra_acked.window"),
    ],
)
def test_a_fault_is_found_in_what_it_breaks(subject, caught):
    found = conform.run(subject, "bbr")
    assert caught in violated(found)
    assert not found.conforms


def test_results_are_tables_json_and_junit(release):
    frame = release.frame()
    assert list(frame["id"]) == [verdict.id for verdict in release.verdicts]
    assert json.loads(release.to_json())["conforms"] is True
    suite = ElementTree.fromstring(release.to_junit())
    assert suite.get("failures") == "0"
    assert int(suite.get("skipped")) >= len(violated(release))
    assert "by intent" in release.summary()


class Raises(LinuxController):
    def on_ack(self, ack):
        self.snd_cwnd = self.snd_cwnd // (ack.delivered - ack.delivered)


class NeverSends(LinuxController):
    def init(self, ack):
        self.snd_cwnd = 0

    def on_ack(self, ack):
        self.snd_cwnd = 0


class SendsWithoutBound(LinuxController):
    def init(self, ack):
        self.snd_cwnd = 0xFFFFFFFF

    def on_ack(self, ack):
        self.snd_cwnd = 0xFFFFFFFF


class BBRWithoutBound(BBRDraft):
    def on_ack(self, ack):
        super().on_ack(ack)
        self.snd_cwnd = 0xFFFFFFFF
        self.pacing_rate = 1 << 40


def test_a_controller_that_sends_without_bound_violates_every_limit_of_its_flight_and_rate():
    """The receive window (40 BDP here) ends the sending, so the run ends as others do."""
    assert violated(conform.run(BBRWithoutBound, "bbr")) >= {"cwnd.max_inflight", "pacing.rate", "probe_rtt.cwnd"}


@pytest.mark.parametrize(
    ("subject", "spec", "said"),
    [
        ("bbr_draft", "bbrv3", "spec='bbrv3' is not one of bbr.*did you mean 'bbr'"),
        ("bbr_draf", "bbr", "did you mean 'bbr_draft'"),
        ("quic_bbr2", "bbr", "belongs to the QUIC stack"),
        (Raises, "bbr", "Raises on 10Mbit/40ms raised ZeroDivisionError"),
        (NeverSends, "bbr", "NeverSends on 10Mbit/40ms sent nothing"),
        (SendsWithoutBound, "bbr", "^SendsWithoutBound shows nothing that spec='bbr' asks: it keeps no such state$"),
        ("reno", "bbr", "^reno shows nothing"),
    ],
)
def test_what_cannot_be_examined_is_refused_with_the_reason(subject, spec, said):
    with pytest.raises(ArgumentError, match=said):
        conform.run(subject, spec)


def test_a_capture_of_tcp_is_not_judged_by_what_it_cannot_show():
    flow = cct.read(cct.datasets.path("loss_cubic_1pct") / "sender.pcap.zst").flow(0)
    with pytest.raises(ArgumentError, match=r"spec='quic'.* a capture of TCP shows none of its requirements"):
        conform.run(flow, "quic")


def test_the_reasons_why_mutants_are_equivalent_name_mutants_that_there_are(monkeypatch):
    from benchmarks import conform as benchmark

    for name in ("cubic6", "prr"):
        assert len(benchmark.differing(name)) == len(benchmark.pool_of(name)) - len(benchmark.EQUIVALENT[name])
    monkeypatch.setitem(benchmark.EQUIVALENT, "prr", {"prr_cwnd, line 99: renamed": "gone"})
    with pytest.raises(SystemExit, match=r"no such change: prr_cwnd, line 99: renamed \(1 in all\)"):
        benchmark.differing("prr")


def test_what_reads_a_column_that_the_trace_lacks_is_not_exercised():
    r = Runner("bbr2022", Cell("10Mbit", "20ms")).trace(1.0)
    assert not r.has("state")
    found = {row.id: look(row, r) for row in conform.spec_of("bbr").requirements}
    assert found["drain.rounds"] is None
    assert found["cwnd.floor"].exercised > 0
