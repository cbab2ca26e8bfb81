"""`cctrace stress` finds histories on which a controller fails, reduces them, and writes them to be run again."""

import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cctrace as cct
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.cmath import u32
from cctrace.cc.filters import running_max
from cctrace.cc.linux import before
from cctrace.errors import ArgumentError, FormatError
from cctrace.sim.scenario import Scenario
from cctrace.stressing.aims import Aim
from cctrace.stressing.history import KINDS, Bounds, Disturbance, History, crossed, drawn, mutated
from cctrace.stressing.lab import lab_scenario
from cctrace.stressing.search import CLEAR, Problem, minimised, search
from cctrace.stressing.stress import Finding, Stressed, stress
from cctrace.stressing.trial import Course, Setting, run
from tests.places import RECORDINGS

OUTAGES = History(  # of which two gaps of 30 ms let the fourth retransmission pass
    (Disturbance("loss", 0.0, 3.854, 1.0), Disturbance("loss", 3.884, 3.746, 1.0, 3.776, 2),
     Disturbance("loss", 11.436, 0.3, 1.0))
)  # fmt: skip
LOW_RATE = History((Disturbance("loss", 0.5, 0.06, 1.0, 0.3, 28),))
SLOW_FIRST = History((Disturbance("rate", 0.0, 1.575, 0.0618),))


def problem(cc, aim, bounds=None, **setting):
    return Problem(Setting(cc, sample_s=aim.window_s / 5, **setting), aim, bounds or Bounds())


@given(st.integers(0, 10**6), st.floats(0.1, 0.5), st.floats(1, 20))
@example(46502, 0.2265625, 2.079952540916273)  # ends in time before its start is rounded
def test_what_is_drawn_changed_and_combined_stays_within_the_bounds(seed, share, until_s):
    bounds, rng = Bounds(share=share, until_s=until_s), random.Random(seed)
    one, other = drawn(rng, bounds), drawn(rng, bounds)
    for history in (one, mutated(rng, bounds, one), crossed(rng, bounds, one, other)):
        assert len(history.disturbances) <= bounds.most
        assert history.end_s <= until_s + 2e-6  # times are rounded to a microsecond
        for part in history.disturbances:
            low, high = bounds.range_of(part.kind)
            assert low <= part.value <= high
            assert 0 < part.for_s <= bounds.longest_s
            assert part.times == 1 or part.every_s >= part.for_s
        taken = [part.times * part.for_s for part in history.disturbances]
        assert len(taken) <= 1 or sum(taken) <= share * until_s + 1e-9


def test_steps_are_those_of_the_most_severe_disturbance_at_each_time():
    history = History((Disturbance("rate", 1.0, 2.0, 0.5), Disturbance("rate", 2.0, 0.5, 0.1, 2.0, 2)))
    assert history.steps("rate", 1.0) == [(0, 1), (1, 0.5), (2, 0.1), (2.5, 0.5), (3, 1), (4, 0.1), (4.5, 1)]
    assert history.steps("loss", 0.0) == [(0, 0)]
    path = Setting("reno").path(history)
    assert path.rate_steps()[1].tolist() == [10e6, 5e6, 1e6, 5e6, 10e6, 1e6, 10e6]


def course(rates, offered=10.0, rtt_s=0.04, modes=()):
    total = np.concatenate([[0.0], np.cumsum(rates)])
    many = len(rates)
    time_s = np.arange(many + 1) * 0.1
    return Course(time_s, total[None], np.arange(many + 1) * offered, np.full(many, rtt_s), np.array(modes, object))


def test_margins_are_below_one_where_the_failure_is():
    bad = course([9] * 10 + [0.5] * 10 + [9] * 30)
    assert Aim("floor", window_s=1.0).margin(bad, 0) == pytest.approx(0.5)
    assert Aim("floor", window_s=2.0).margin(bad, 0) > 1
    assert Aim("stall", window_s=0.5, stall_s=0.5).margin(bad, 1.0) < 1
    assert Aim("stall", window_s=0.5, stall_s=2.0).margin(bad, 1.0) > 1
    assert Aim("delay", window_s=0.5, delay_s=0.03).margin(bad, 0) == pytest.approx(0.75)
    modes = ["STARTUP"] * 30 + ["PROBE_BW up"] * 10 + ["PROBE_BW down"] * 11
    stuck = course([9] * 50, modes=modes)
    assert Aim("state", window_s=2.0, state="PROBE_BW").margin(stuck, 0) < 1
    assert Aim("state", window_s=2.5, state="PROBE_BW").margin(stuck, 0) > 1


def test_a_pause_of_the_application_is_not_held_against_the_controller():
    history = History((), app=(0.3, 0.3))
    got = run(Setting("cubic6", duration_s=6.0, sample_s=0.6), history)
    assert got.offered[-1] == pytest.approx(10e6 / 8 * 3, rel=0.02)
    assert Aim("floor", window_s=0.6).margin(got, 0) > 5  # half of what is offered, at least


def test_losses_at_the_pace_of_the_retransmission_timer_starve_loss_based_senders():
    """The low-rate attack [Kuzmanovic03]: a fifth of the time lost costs 98 % of the goodput; BBR keeps a third."""
    for cc in ("reno", "cubic6"):
        got = run(Setting(cc, duration_s=10.0, sample_s=1.0), LOW_RATE)
        assert got.offered[9] / (10e6 / 8 * 9) > 0.8
        assert Aim("floor", floor=0.02, window_s=7.0).margin(got, LOW_RATE.end_s) < 1, cc
    for cc in ("bbr2022", "bbr3"):
        got = run(Setting(cc, duration_s=10.0, sample_s=1.0), LOW_RATE)
        assert Aim("floor", floor=1 / 3, window_s=7.0).margin(got, LOW_RATE.end_s) > 1, cc


def test_bbr_v1_stalls_for_minutes_where_v2_v3_and_loss_based_senders_recover_at_once():
    """Policer detection: 2.8 kbit/s for 48 rounds, each as long as a packet takes at that rate."""
    for cc in ("bbr2016", "bbr2019", "bbr2022"):
        aim = Aim("stall", window_s=0.8, stall_s=200.0)
        assert problem(cc, aim, duration_s=240.0).margin(OUTAGES) < 1, cc
    for cc in ("bbr2", "bbr3", "cubic6", "reno"):
        assert problem(cc, Aim("stall", window_s=0.8, stall_s=10.0)).margin(OUTAGES) > 5, cc  # within two seconds


def test_a_real_kernels_bbr_v1_stalls_as_the_simulation_does():
    """The same outages (`drops`) in Linux 6.12; in a recording of 300 s the stall ends at 217 s."""
    recording = RECORDINGS / "lab_v1_stall"
    dropped = json.loads((recording / "scenario.json").read_text(encoding="utf-8"))["parameters"]["drops"]
    spans = sorted(span for part in OUTAGES.disturbances for span in part.spans)
    assert np.array(dropped) == pytest.approx(np.array(spans), abs=0.006)  # the first begins after the handshake
    flow = cct.read(recording / "sender.pcap.zst").flow(0)
    rows = flow.events.rows
    at = np.arange(14.0, 60.0, 4.0)
    kernel = np.interp(at, flow.seconds(rows["time_ns"]), rows["delivered"])
    sim = run(Setting("bbr2022", duration_s=60.0, sample_s=0.1), OUTAGES)
    simulated = np.interp(at, sim.time_s, sim.delivered[0] / 1514)
    assert kernel[-1] - kernel[0] < 14  # packets in 44 s, of which the link carries 36,000
    assert kernel - kernel[0] == pytest.approx(simulated - simulated[0], abs=1.0)


class RoundsOfRejectedSamples(BBR2022):
    """Ends a round also on a sample shorter than the least RTT, as ns-3's TcpBbr; Linux ignores it."""

    latest: int = 0

    def update_bw(self, ack):
        self.round_start = 0
        if ack.rs_delivered < 0:
            return
        if ack.rs_interval_us > 0:
            self.latest = u32(self.delivery_rate(ack))
        if not before(ack.rs_prior_delivered, self.next_rtt_delivered):
            self.next_rtt_delivered = ack.delivered
            self.rtt_cnt = u32(self.rtt_cnt + 1)
            self.round_start = 1
            self.packet_conservation = 0
        if ack.rs_is_app_limited == 0 or self.latest >= self.bw_v[0]:
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.rtt_cnt, self.latest)


def test_spurious_retransmissions_end_no_rounds_in_linux_but_do_where_rejected_samples_count():
    """[CCFuzz22]: a packet and its retransmission lost, a timeout; RACK and F-RTO are off in this kernel (6.12)."""
    recording = RECORDINGS / "lab_v1_spurious"
    flow = cct.read(recording / "sender.pcap.zst").flow(0)
    t = flow.seconds(flow.events.rows["time_ns"])
    span = slice(*np.searchsorted(t, [3.34, 3.395]))  # 36 packets are sent again; the originals' ACKs arrive
    for cc, rounds, least in (("bbr2022", (1, 2), 0.95), (RoundsOfRejectedSamples, (15, 20), 0.0)):
        columns = cct.replay(flow, cc, record="all").columns
        bw = columns["bw_v[0]"][span] / columns["bw_v[0]"][span.start - 1]
        assert rounds[0] <= columns["rtt_cnt"][span][-1] - columns["rtt_cnt"][span.start] <= rounds[1]
        assert bw.min() > least
    assert bw.min() < 0.06


def test_a_real_kernels_bbr_v3_fails_as_it_does_in_the_simulation():
    """After 1.6 s at 618 kbit/s, less than a tenth of 10 Mbit/s for 20 RTTs; the scenario is what `stress` writes."""
    recording = RECORDINGS / "lab_v3_slow_start"
    flow = cct.read(recording / "sender.pcap.zst").flow(0)
    rows = flow.events.rows
    kernel = np.interp([1.6, 2.4], flow.seconds(rows["time_ns"]), rows["snd_una"])
    sim = run(Setting("bbr3", duration_s=6.0, sample_s=0.02), SLOW_FIRST)
    simulated = np.interp([1.6, 2.4], sim.time_s, sim.delivered[0])
    for got in (np.diff(kernel)[0] * 1514 / 1448, np.diff(simulated)[0]):
        assert got < 0.085 * 10e6 / 8 * 0.8
    recorded = json.loads((recording / "scenario.json").read_text(encoding="utf-8"))["parameters"]
    aim = Aim("floor", window_s=0.8)
    written = lab_scenario(Finding(SLOW_FIRST, problem("bbr3", aim, duration_s=6.0), 0.8), "x")
    assert np.array(written["steps"]) == pytest.approx(np.array(recorded["steps"]), abs=2e-4)
    for name in ("fwd_delay", "rev_delay", "qdisc", "seconds", "flows"):
        assert written[name] == recorded[name], name


def test_a_search_is_repeatable_and_its_reduction_needs_every_part():
    aim, bounds = Aim("floor", window_s=4.0), Bounds(("loss",), until_s=8.0)
    hard = problem("reno", aim, bounds, duration_s=10.0)
    margin, history, tried = search(hard, 3, 500)
    assert (margin, history, tried) == search(hard, 3, 500)
    assert margin < CLEAR
    small = minimised(hard, history)
    assert hard.margin(small) < CLEAR
    assert small.size <= history.size
    for k in range(len(small.disturbances)):
        fewer = History(small.disturbances[:k] + small.disturbances[k + 1 :])
        assert hard.margin(fewer) >= CLEAR


def test_nothing_found_is_said_with_how_near_it_came():
    found = stress(Setting("bbr3", duration_s=4.0), Aim("floor", window_s=3.0), Bounds(("rtt",), until_s=2.0), runs=70)
    assert found.findings == ()
    assert found.tried == 70
    assert found.nearest > 1
    assert found.summary().startswith("0 failures in 70 histories")


def test_one_failure_is_counted_as_one():
    ended = Stressed(findings=(SimpleNamespace(summary=str),), tried=1, nearest=math.inf, seconds=0.0)
    assert ended.summary().startswith("1 failure in 1 history, ")


def test_a_scenario_says_the_same_after_it_was_written_and_read(tmp_path):
    finding = Finding(LOW_RATE, problem("cubic6", Aim(), duration_s=12.0), 0.5)
    finding.save(tmp_path / "a.toml")
    one = Scenario.read(tmp_path / "a.toml")
    assert one == finding.scenario
    assert (tmp_path / "a.toml").read_text(encoding="utf-8").startswith("# cubic6 gets less than 10 % of what the path")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path = 3", "a scenario has a table [path]"),
        ("[path]\nrate = '1Mbit'", "at least one [[senders]]"),
        ("[path]\nrat = '1Mbit'\n[[senders]]\ncc = 'reno'", "trace; did you mean 'rate'?"),
        ("[path]\nrate = '1Mbitt'\n[[senders]]\ncc = 'reno'", "rate='1Mbitt' is not a rate"),
        ("[path]\nrate = '1Mbit'\n[[senders]]\nrtt = '1ms'", "[[senders]] needs cc"),
        ("duration = 3\n[path]\nrate = '1Mbit'\n[[senders]]\ncc = 'reno'", "duration=3"),
    ],
)
def test_a_scenario_that_is_wrong_is_refused_in_one_line(tmp_path, text, said):
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"a\.toml: ") as error:
        Scenario.read(tmp_path / "a.toml")
    assert said in str(error.value)
    (tmp_path / "a.toml").write_text("=", encoding="utf-8")
    with pytest.raises(FormatError, match="not TOML"):
        Scenario.read(tmp_path / "a.toml")


def test_the_lab_refuses_what_it_cannot_do():
    for history, said, against in (
        (OUTAGES, "losses at", None),
        (History((Disturbance("rtt", 1.0, 0.5, 2.0),)), "base RTTs that change", None),
        (History((), 0.02), "ACKs held of one flow only", "cubic6"),
    ):
        with pytest.raises(ArgumentError, match=f"the lab of kernels has no .*{said}"):
            lab_scenario(Finding(history, problem("bbr3", Aim(), against=against), 0.5), "x")
    with pytest.raises(ArgumentError, match="only controllers that Linux has"):
        lab_scenario(Finding(History(), problem("quic_bbr", Aim()), 0.5), "x")


def test_the_lab_holds_acks_and_its_application_writes_the_chunks_of_the_simulation():
    one = problem("bbr3", Aim(), rate_bps=20e6)
    written = lab_scenario(Finding(History((), 0.02, (0.3, 0.1)), one, 0.5), "x")
    assert f"delay 0us {written['rev_jitter_us']}us" == "delay 0us 0us slot 20000us 20000us"
    flow = written["flows"][0]
    assert (flow["mode"], flow["chunk_interval"]) == ("chunks", 0.4)
    app = one.setting.senders(History((), app=(0.3, 0.1)))[0].application
    assert (app.size_bytes, app.period_ns) == (flow["chunk_bytes"], 400_000_000)
    assert flow["chunk_bytes"] == pytest.approx(20e6 / 8 * 0.3 * 1448 / 1514, rel=0.002)


def test_the_command_writes_what_simulate_and_check_read(run, tmp_path):
    options = ("--vary", "loss", "--window", "4s", "--duration", "8s", "--until", "6s", "--seed", 1, "-o", tmp_path)
    status, out, _ = run("stress", "reno", *options)
    assert status == 1
    assert "reno gets less than 10 % of what the path offers for 4 s" in out
    file = tmp_path / "finding-1.toml"
    assert out.splitlines()[-1] == f"cctrace simulate --scenario {file}"
    status, out, _ = run("simulate", "--scenario", file, "--json")
    assert (status, json.loads(out)["flows"][0]["cc"], json.loads(out)["duration_s"]) == (0, "reno", 8.0)
    status, out, _ = run("simulate", "--scenario", file, "--cc", "bbr3", "--duration", "2s", "--json")
    assert (status, json.loads(out)["flows"][0]["cc"], json.loads(out)["duration_s"]) == (0, "bbr3", 2.0)
    expectations = tmp_path / "expectations"
    expectations.write_text('goodput = ">= 9Mbit"\ncontroller = "reno"\n', encoding="utf-8")
    status, out, _ = run("check", file, "--expect", expectations, "--json")
    assert (status, [one["holds"] for one in json.loads(out)["checks"]]) == (1, [False, True])


def test_the_command_goes_on_until_it_has_as_many_findings_as_were_asked_for(run, tmp_path):
    options = ("--vary", "loss", "--window", "4s", "--duration", "8s", "--until", "6s", "--seed", 1, "-o", tmp_path)
    assert run("stress", "reno", *options, "--findings", 2)[0] == 1
    texts = {file.read_text(encoding="utf-8") for file in tmp_path.glob("finding-*.toml")}
    assert len(texts) == 2


def test_a_controller_that_raises_is_named_with_its_line(run, tmp_path):
    own = tmp_path / "own.py"
    text = "from cctrace.cc.base import LinuxController\nclass Own(LinuxController):\n    def on_ack(self, ack):\n"
    own.write_text(text + "        self.snd_cwnd = 1 // (ack.arg - ack.arg)\n", encoding="utf-8")
    status, _, err = run("stress", f"{own}:Own", "--trust", "--runs", 1)
    said = f"cctrace: {own}:Own raised ZeroDivisionError: {own}:4: division by zero"
    assert (status, err.splitlines()[-1]) == (2, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stress", "bbrr"], "CONTROLLER bbrr"),
        (["stress", "bbr3", "--vary", "rates"], "--vary rates: 'rates' is not one of rate, rtt"),
        (["stress", "bbr3", "--aim", "delay"], "--aim delay needs --delay"),
        (["stress", "bbr3", "--aim", "state", "--state", "DRAINING"], "no such state; there are STARTUP, DRAIN"),
        (["stress", "bbr3", "--least-rate", "0%"], "--least-rate 0% must be above 0 %"),
        (["stress", "bbr3", "--least-loss", "0%"], "--least-loss 0% must be above 0 %"),
        (["stress", "bbr3", "--duration", "5s"], "--duration 5s must be longer than --window and --until"),
        (["simulate", "--rate", "1Mbit"], "give --cc"),
        (["simulate", "--scenario", "/no/such.toml"], "no such file"),
    ],
)
def test_mistakes_are_one_line(run, arguments, said):
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_every_kind_of_disturbance_is_searched_by_default():
    drawn_kinds = {part.kind for seed in range(50) for part in drawn(random.Random(seed), Bounds()).disturbances}
    assert drawn_kinds == set(KINDS) - {"acks", "app"}
    histories = [drawn(random.Random(seed), Bounds()) for seed in range(50)]
    assert any(one.hold_s for one in histories)
    assert any(one.app for one in histories)


@pytest.mark.slow
def test_the_known_attacks_are_found_from_scratch():
    low_rate = Aim("floor", window_s=10.0)
    for cc in ("reno", "cubic6"):
        assert stress(Setting(cc, sample_s=1.0), low_rate, Bounds(("loss",), until_s=19.0)).findings, cc
    stall = Aim("stall", window_s=1.6, stall_s=30.0)
    setting = Setting("bbr2022", rate_bps=2e6, duration_s=60.0, sample_s=0.16)
    outages = Bounds(("loss",), until_s=12.0, losses=(1.0, 1.0), longest_s=4.0, share=1.0)
    assert stress(setting, stall, outages, runs=500).findings
