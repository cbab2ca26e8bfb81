"""Window-based controls, and what a capture shows of a sender."""

from dataclasses import replace

import numpy as np
import pytest

import cctrace as cct
from cctrace import conform, datasets
from cctrace.cc.cubic6 import Cubic6
from cctrace.cc.quic_reno import QuicReno
from cctrace.conform import windows
from cctrace.conform.captures import of_flow
from cctrace.conform.runner import Cell, Runner
from cctrace.conform.wire import reduced, trace_of_flow
from cctrace.errors import ArgumentError
from cctrace.identification.identify import UNKNOWN, Identification
from cctrace.path.transmissions import transmissions
from tests.places import RECORDINGS
from tests.test_conform import violated


@pytest.fixture(autouse=True)
def one_path(monkeypatch):
    for name in ("cubic", "reno", "prr", "quic", "rack"):
        spec = conform.spec_of(name)._replace(cells=(Cell("20Mbit", "40ms"),))
        monkeypatch.setattr(f"cctrace.conform.{name}.SPEC", spec)


@pytest.mark.parametrize(
    ("subject", "spec"), [("cubic6", "cubic"), ("reno", "reno"), ("cubic6", "prr"), ("quic_reno", "quic")]
)
def test_released_code_conforms_and_every_requirement_is_exercised(subject, spec):
    found = conform.run(subject, spec)
    assert {verdict.id for verdict in found.verdicts if verdict.verdict == "not exercised"} <= {"W.10"}  # a slow path's
    assert [verdict.text() for verdict in found.verdicts if verdict.fails] == []


@pytest.mark.parametrize("seed", [4, 8, 15, 167])
def test_losses_that_a_timer_finds_and_hystart_in_a_recovery_are_no_violations_of_prr(seed):
    """RACK's timer marks losses between ACKs (4, 8), HyStart lowers ssthresh (15), the application pauses (167)."""
    case = next(case for case in windows.CASES if case.id == "W.7")
    trace = case.run(Runner("cubic6", Cell("20Mbit", "40ms"), seed)).trace
    found = {row.id: row.check(trace) for row in conform.spec_of("prr").requirements}
    assert [id for id, one in found.items() if one.row is not None] == []
    assert found["prr.proportional"].exercised > 50
    assert found["prr.cwnd"].exercised > 20


class Greedy(Cubic6):
    def ssthresh(self, ack):
        super().ssthresh(ack)
        return max(self.snd_cwnd * 9 // 10, 2)


class Forgetful(Cubic6):
    def start_epoch(self, ack, acked, cwnd):
        super().start_epoch(ack, acked, cwnd)
        self.bic_K = self.bic_K * 11 // 10


class RunsOn(Cubic6):
    def cwnd_event(self, ack):
        pass


class SlowFair(Cubic6):
    def keep_up_with_reno(self, cwnd):
        super().keep_up_with_reno(cwnd + cwnd // 8)


@pytest.mark.parametrize(
    ("subject", "caught"),
    [
        (Greedy, "loss.beta"),
        ("cubic6:bic_scale=410", "curve.at_most"),
        ("cubic6:fast_convergence=0", "w_max.loss"),
        (Forgetful, "epoch.k"),
        (RunsOn, "epoch.idle"),
        (SlowFair, "w_est.growth"),
        ("reno", "loss.beta"),
    ],
)
def test_another_window_is_not_cubics(subject, caught):
    assert caught in violated(conform.run(subject, "cubic"))


class Repeats(QuicReno):
    def in_recovery(self, sent_ms):
        return False


@pytest.mark.parametrize(
    ("subject", "caught"),
    [
        (Repeats, {"recovery.once", "recovery.growth"}),
        ("quic_cubic", {"window.initial", "persistent.window", "window.limited"}),
        ("quic_bbr2", {"window.initial", "persistent.window", "recovery.entry", "pacing.rate"}),
        ("obbr", {"window.initial", "persistent.window", "recovery.entry", "pacing.rate"}),
    ],
)
def test_quic_controllers_are_examined_on_their_own_stack(subject, caught):
    found = conform.run(subject, "quic")
    assert caught <= violated(found)
    assert found.conforms == isinstance(subject, str)  # whose differences are listed with nginx-quic's functions


@pytest.mark.parametrize(
    ("file", "spec"),
    [
        (datasets.path("loss_cubic_1pct", "sender.pcap.zst"), "cubic"),
        (RECORDINGS / "lab_cubic" / "sender.pcap.zst", "prr"),
        (RECORDINGS / "lab_v3_loss" / "sender.pcap.zst", "bbr"),
        (RECORDINGS / "lab_v3_loss" / "sender.pcap.zst", "rack"),
        (RECORDINGS / "lab_v1_stall" / "sender.pcap.zst", "rack"),  # timeouts and their doubling
    ],
)
def test_a_recording_of_a_kernel_contradicts_nothing(file, spec):
    found = conform.run(cct.read(file).flow(0), spec)
    assert violated(found) == set()
    assert any(verdict.exercised for verdict in found.verdicts)


def test_rack_is_asked_of_a_sender_that_no_candidate_explains():
    flow = cct.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    found = of_flow(flow, conform.spec_of("rack"), sender=Identification([], (UNKNOWN,), "no candidate", 0.0))
    assert found.conforms
    assert any(verdict.exercised for verdict in found.verdicts)


def test_a_sender_that_does_not_fill_its_window_may_leave_a_recovery_with_as_much_in_flight():
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp", loss="1%", jitter="normal:sd=5ms,reorder")
    sender = cct.Sender("cubic6", app="chunks:size=34752B,every=80ms")
    flow = cct.simulate(path, [sender], "6s", seed=1, packets=True).capture(0).flow(0)
    found = reduced(trace_of_flow(flow), 0.7)
    assert found.row is None
    assert found.exercised >= 3  # later recoveries, whose window the pieces fill
    assert reduced(trace_of_flow(flow), 0.3).row is not None


def at_once(table):
    """One retransmission leaves a microsecond after what it repeats."""
    again = int(np.flatnonzero(table.retransmitted)[20])
    earlier = int(np.flatnonzero(table.seq[:again] == table.seq[again])[-1])
    sent_ns = table.sent_ns.copy()
    sent_ns[again] = sent_ns[earlier] + 1_000
    return replace(table, sent_ns=sent_ns)


def without_a_sign(table):
    """Nothing is known to have arrived."""
    return replace(table, acked_ns=np.full(len(table), -1))


@pytest.mark.parametrize(("change", "caught"), [(at_once, "tlp.time"), (without_a_sign, "rack.overtaken")])
def test_what_is_sent_again_without_need_is_found(monkeypatch, change, caught):
    monkeypatch.setattr("cctrace.conform.rack.transmissions", lambda flow: change(transmissions(flow)))
    flow = cct.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    assert caught in violated(conform.run(flow, "rack"))


def test_a_kernel_without_rack_is_found():
    """`net.ipv4.tcp_recovery` is 0: a timeout retransmits what was sent within the last round trip as well."""
    flow = cct.read(RECORDINGS / "lab_v1_spurious" / "sender.pcap.zst").flow(0)
    assert violated(conform.run(flow, "rack")) == {"rack.overtaken"}


def test_a_capture_of_another_controller_is_refused():
    flow = cct.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    with pytest.raises(ArgumentError, match="identify says cubic6, which spec='bbr' does not describe: draft"):
        conform.run(flow, "bbr")
