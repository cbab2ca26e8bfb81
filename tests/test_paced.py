"""Window-based controllers whose socket paces: the stack's rate, simulated, replayed, and detected in a capture.

`recordings/paced_cubic` is ours: Linux 6.18 (HZ = 250) on 2026-11-22, the first 8 s of CUBIC with an SO_MAX_PACING_RATE
far beyond the path (10 Mbit/s, 83 ms, a buffer of 313 kB), captured at the sender; MIT as cctrace itself.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace import schema
from cctrace.analysis.analyze import analyze
from cctrace.analysis.validate import load
from cctrace.cc.linux import stack_pacing_rate
from cctrace.errors import ArgumentError
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.waiting import answers_acks, is_ack_clocked, shows_no_timer
from cctrace.replaying.inference import paced
from cctrace.replaying.inference.paced import socket_limit
from cctrace.replaying.intervals import blocks, stops_until
from tests.places import RECORDINGS

RECORDING = RECORDINGS / "paced_cubic"
SPECS = ("cubic6", "reno", "cubic")
PATH = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")


@pytest.fixture(
    scope="module", params=[(name, paced) for name in SPECS for paced in (0, 1)], ids=lambda p: f"{p[0]}-{p[1]}"
)
def sent(request, tmp_path_factory):
    """A simulated sender's capture: the controller, whether its socket paced, the simulation, the flow as read back."""
    name, paced = request.param
    file = tmp_path_factory.mktemp("paced") / "sender.pcap"
    sim = cct.simulate(PATH, f"{name}:paced={paced}", "4s", seed=3, packets=True, trace=True)
    sim.to_pcap(file)
    return name, paced, sim, cct.read(file).flow(0)


def test_the_rate_is_the_least_of_what_cwnd_and_the_socket_allow():
    of_cwnd = stack_pacing_rate(1000, 10, 100, 10, 8 * 100_000)  # [Linux61] tcp_update_pacing_rate
    assert stack_pacing_rate(1000, 10, 100, 10, 8 * 100_000, of_cwnd - 1) == of_cwnd - 1
    assert stack_pacing_rate(1000, 10, 100, 10, 8 * 100_000, of_cwnd + 1) == of_cwnd


@pytest.mark.parametrize(("late", "own", "is_paced"), [(0, True, 0), (1, True, 1), (1, False, 0)])
def test_a_socket_of_which_every_send_answers_an_ack_does_not_pace(late, own, is_paced, monkeypatch):
    """Its window was another's, and a timer seemed to excuse that it was not filled (HighSpeed, seed 334466).

    What the application timed shows no timer either.
    """
    monkeypatch.setattr(paced, "stops_until", lambda events, row: np.arange(1, 51))
    monkeypatch.setattr(paced, "own_sends", lambda events, sends: np.full(100, own))
    monkeypatch.setattr(paced, "shows_no_timer", lambda events, sends: late == 0)
    better = iter((np.zeros(50), np.full(50, 4.0)))
    follower = SimpleNamespace(
        events=None,
        sends={"row": np.repeat(np.arange(50), 2)},
        ctx=np.zeros(cx.CONTEXT_SIZE),
        params={"paced": 0},
        save=list,
        set_paced=int,
        score=lambda *how: next(better),
        restore=lambda before: None,
    )
    assert paced.likely_paced(follower) == is_paced


@pytest.mark.parametrize("spec", SPECS)
def test_a_paced_start_fits_into_a_shallow_buffer(spec):
    """Unpaced, the burst of a round overflows thirty packets long before the link is full."""
    shallow = cct.Path(rate="50Mbit", rtt="60ms", buffer="30packets")
    plain, paced = (
        cct.simulate(shallow, one, "2s", 1).flows["goodput_bps"].iloc[0] for one in (spec, f"{spec}:paced=1")
    )
    assert paced > 1.3 * plain


@pytest.mark.parametrize("spec", ["cubic6:paced=1", "reno:paced=1,max_pacing_rate=500000"])
def test_compiled_and_interpreted_send_alike(spec):
    compiled, interpreted = (cct.simulate(PATH, spec, "0.4s", 1, mode=mode) for mode in ("compiled", "interpreted"))
    assert compiled.flows.equals(interpreted.flows)


def test_a_socket_sends_no_faster_than_its_limit():
    sim = cct.simulate(PATH, "cubic6:paced=1,max_pacing_rate=500000", "5s", 1)
    assert sim.flows["tail_goodput_bps"].iloc[0] == pytest.approx(8 * 500_000, rel=0.01)


def test_a_limit_below_nothing_is_refused():
    with pytest.raises(ArgumentError, match=r"max_pacing_rate=-1 is outside \[0, "):
        cct.simulate(PATH, "reno:max_pacing_rate=-1", "1s")


def test_a_replay_finds_out_whether_the_socket_paced(sent):
    name, paced, _, flow = sent
    run = cct.replay(flow, name)
    assert run.inferred.script.paced == run.params["paced"] == paced


def test_what_is_given_is_believed(sent):
    name, paced, _, flow = sent
    run = cct.replay(flow, f"{name}:paced={1 - paced}")
    assert run.params["paced"] == 1 - paced
    assert run.inferred.script.paced is None


def test_a_replay_holds_the_window_of_the_simulation(sent):
    name, _, sim, flow = sent
    simulated, replayed = (cct.replay(source, name).decisions for source in (sim.flow(0), flow))
    acks = [one[one["event"] == "pkts_acked"] for one in (simulated, replayed)]
    some = min(map(len, acks))
    apart = np.abs(acks[0]["snd_cwnd"].to_numpy()[:some].astype(int) - acks[1]["snd_cwnd"].to_numpy()[:some])
    assert np.mean(apart <= 2) > 0.98


@pytest.mark.parametrize("name", ["cubic6", "reno"])
def test_an_interpreted_replay_decides_alike(name, tmp_path):
    cct.simulate(PATH, f"{name}:paced=1", "1s", seed=3, packets=True).to_pcap(tmp_path / "sender.pcap")
    flow = cct.read(tmp_path / "sender.pcap").flow(0)
    compiled, interpreted = (cct.replay(flow, name, mode=mode, paced=1) for mode in ("compiled", "interpreted"))
    assert compiled.decisions.equals(interpreted.decisions)


def test_the_sender_is_known_and_that_it_paced_is_said(sent):
    name, paced, _, flow = sent
    found = cct.identify(flow)
    assert name in found.group
    assert ("paced, as under fq or SO_MAX_PACING_RATE" in found.reason) == bool(paced)


@pytest.mark.parametrize(("address", "paced"), [("198.51.100.10", 1), ("203.0.113.20", 1)])
def test_a_server_whose_default_is_bbr_paces_cubic_too(address, paced):
    """Its listening socket had BBR, which leaves sk_pacing_status behind; HyStart then waits twice as long."""
    capture = cct.read(cct.datasets.path("web_server", "sender.pcap.zst"))
    flow = next(flow for flow in capture.bulk() if flow.key[2] == address)
    assert cct.replay(flow, "cubic6").params["paced"] == paced
    assert cct.identify(flow).name == "cubic6"


@pytest.fixture
def recorded():
    """The recording, its socket's limit forgotten: whether it paced is left to find out."""
    (flow,) = load(RECORDING)
    flow.tcpinfo["max_pacing_rate"][:] = MISSING
    return flow


def test_the_kernels_window_and_rate_come_out_of_a_paced_recording(recorded):
    """HyStart's train must last a whole minimum RTT, not half of it, and the rate is the kernel's to the byte."""
    comparison = cct.replay(recorded, "cubic6").compare()
    assert comparison.run.params["paced"] == 1
    assert comparison.share_within("cwnd") > 0.99
    assert comparison.share_within("ssthresh") > 0.99
    polls = recorded.tcpinfo
    last = np.searchsorted(comparison.model["time_ns"], polls["time_ns"][comparison.polls], side="right") - 1
    kernels = polls["pacing_rate_Bps"][comparison.polls]
    assert np.mean(np.abs(comparison.model["pacing_rate_Bps"][last] - kernels) <= 1e-3 * kernels) > 0.9


def test_taken_for_unpaced_the_same_recording_leaves_slow_start_too_early(recorded):
    assert cct.replay(recorded, "cubic6", paced=0).compare().share_within("cwnd", absolute=2) < 0.5


def test_a_limit_that_the_counters_tell_is_known():
    (flow,) = load(RECORDING)
    run = cct.replay(flow, "cubic6")
    assert run.inferred.script.paced is None
    assert run.params["paced"] == 1
    assert run.params["max_pacing_rate"] == 1 << 40
    assert cct.replay(flow, "cubic6", max_pacing_rate=500_000).params["max_pacing_rate"] == 500_000
    flow.tcpinfo["max_pacing_rate"][:] = 1 << 50  # beyond all that is allowed: no limit
    assert cct.replay(flow, "cubic6").params["paced"] == 1


def test_counters_without_packets_let_a_paced_window_grow():
    polls = cct.read(RECORDING / "tcpinfo.csv.zst").flow(0)
    assert cct.replay(polls, "cubic6", paced=1).decisions["snd_cwnd"].max() > 100


@pytest.mark.parametrize(("name", "limit_Bps"), [("pacing_limit", 500_000), ("fq_v1_max_rate", 296_047)])
def test_a_limit_below_the_paths_rate_is_in_the_sends_and_hides_no_sender(name, limit_Bps):
    """CUBIC, and BBRv1 through fq, on sockets with an SO_MAX_PACING_RATE that no counters give."""
    flow = cct.read(RECORDING.parent / name / "sender.pcap.zst").flow(0)
    assert socket_limit(flow) == pytest.approx(limit_Bps, abs=1)  # two more are 50 us after 12 s
    found = cct.identify(flow)
    assert ("bbr2022" if name == "fq_v1_max_rate" else "cubic6") == found.name
    assert "SO_MAX_PACING_RATE of its socket" in found.reason


def sent_at(rates_Bps, payload=6 * 1448):
    """A flow of super-packets at these rates, for `_evident_limit`."""
    number = len(rates_Bps)
    sends = np.zeros(number, [(column.name, column.dtype) for column in schema.SENDS])
    sends["begins"], sends["segments"], sends["payload"] = 1, 6, payload
    sends["tx_ns"] = np.cumsum(6 * 1448 / np.asarray(rates_Bps) * 1e9)
    events = SimpleNamespace(sends=sends, meta={"mss": 1448})
    return SimpleNamespace(facts={"complete": True, "inferred": ()}, taken_at="sender", events=events)


@pytest.mark.parametrize("cruise", [0.9905, 0.9955])
def test_a_bbr_that_cruises_just_below_its_limit_does_not_hide_it(monkeypatch, cruise):
    """BBRv3 through fq, seed 325233: at the limit in its probes alone, otherwise by its measured bandwidth below it."""
    flow = sent_at(np.tile(np.repeat([cruise * 1_260_000, 1_260_000], [780, 70]), 10))
    monkeypatch.setattr(paced, "answers_acks", lambda events, sends: np.zeros(8500, bool))
    assert paced._evident_limit(flow) == pytest.approx(1_260_000, rel=1e-5)


@pytest.mark.parametrize(("slow_answer", "limit_Bps"), [(False, 1_260_000), (True, None)])
def test_what_was_sent_below_a_limit_shows_whether_acks_clock_it(monkeypatch, slow_answer, limit_Bps):
    """BBRv1 of seed 335501: at its limit without a queue, ACKs happened to return 34 us before each send."""
    flow = sent_at(np.repeat([600_000, 1_260_000], [100, 5000]))
    answers = np.repeat([slow_answer, True], [100, 5000])
    monkeypatch.setattr(paced, "answers_acks", lambda events, sends: answers)
    assert paced._evident_limit(flow) == (limit_Bps and pytest.approx(limit_Bps, rel=1e-5))


@pytest.mark.parametrize(("every", "limit_Bps"), [(200, 1_260_000), (4, None)])
def test_the_rate_of_an_application_that_writes_on_a_clock_is_no_limit(monkeypatch, every, limit_Bps):
    """Its writes end in short segments (seed 334706: a quarter of them); of held back data only a last one does."""
    size = np.where(np.arange(5000) % every == 0, 6 * 1448 - 700, 6 * 1448)
    monkeypatch.setattr(paced, "answers_acks", lambda events, sends: np.zeros(5000, bool))
    found = paced._evident_limit(sent_at(np.full(5000, 1_260_000), size))
    assert found == (limit_Bps and pytest.approx(limit_Bps, rel=1e-2))


@pytest.mark.parametrize("number", [16, 20])
def test_a_limit_is_not_looked_for_in_a_flow_of_hardly_more_than_what_leaves_unpaced(monkeypatch, number):
    flow = sent_at(np.full(number, 1_260_000))
    flow.events.sends["segments"] = 1
    monkeypatch.setattr(paced, "answers_acks", lambda events, sends: np.zeros(number, bool))
    assert paced._evident_limit(flow) is None


@pytest.mark.parametrize("name", ["paced_cubic", "lab_v3_pauses", "fq_bbr1", "fq_cubic", "fq_v2_near", "lab_v1_sndbuf"])
def test_neither_a_pacing_timer_nor_bbrs_cruise_nor_a_send_buffer_is_a_limit_of_the_socket(name):
    assert socket_limit(cct.read(RECORDING.parent / name / "sender.pcap.zst").flow(0)) is None


@pytest.mark.parametrize("name", ["paced_cubic", "fq_bbr1"])
def test_super_packets_that_answer_acks_left_soon_after_one_or_with_one_that_did(name):
    events = cct.read(RECORDING.parent / name / "sender.pcap.zst").flow(0).events
    sends = events.sends
    begins = sends[sends["begins"] != 0]
    acked_ns = events["time_ns"][np.maximum(begins["row"] - 1, 0)] - events.meta["start_ns"] + 10**9
    since_ns = begins["tx_ns"] - np.maximum(acked_ns, np.append(-(10**9), begins["tx_ns"][:-1]))
    answers = answers_acks(events, sends)
    assert answers.tolist() == (since_ns <= 60_000).tolist()
    assert is_ack_clocked(events, sends) == (np.mean(answers) > 1 / 2)
    new = (begins["retransmitted"] == 0) & (begins["app_limited"] == 0)
    assert shows_no_timer(events, sends) == answers[new].all()


@pytest.mark.parametrize("rows", [0, 1, 500, 10**9])
def test_ends_of_intervals_up_to_a_row_are_those_of_the_whole_flow(rows):
    events = cct.read(RECORDING / "sender.pcap.zst").flow(0).events
    stops, _ = blocks(events)
    for row in (rows, *stops[:3].tolist(), *(stops[:3] - 1).tolist()):
        assert stops_until(events, row).tolist() == stops[stops <= row].tolist()


def test_the_recording_is_cubics_and_pacing_held_it_back_for_a_while():
    (analysis,) = analyze([RECORDING / "sender.pcap.zst"])
    assert analysis.identification.spec == "cubic6:paced=1"
    assert analysis.paced
    assert "pacing" in {limit.name for limit in analysis.diagnosis.limits}


@pytest.mark.parametrize(
    ("told", "simulated"), [("cubic", "cubic6:paced=1"), ("reno", "reno:paced=1"), ("bbr", "bbr2022")]
)
def test_whom_the_counters_name_is_simulated_paced_if_it_can_be(told, simulated, monkeypatch):
    """Where the sends look like nobody's, what-if takes whom the kernel names."""
    asked = []
    monkeypatch.setattr("cctrace.analysis.one_flow.identified", lambda *_: None)
    monkeypatch.setattr("cctrace.analysis.one_flow.controller_name", lambda _: told)
    monkeypatch.setattr(
        "cctrace.counterfactual.whatif.what_would_help", lambda flow, diagnosis, own, progress: asked.append(own)
    )
    analyze([RECORDING / "sender.pcap.zst"], [RECORDING / "tcpinfo.csv.zst"], what_if=True)
    assert asked == [simulated]
