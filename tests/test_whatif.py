"""What if another controller had sent a flow: known paths come out again, and what is not known is not claimed."""

import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.cli import main
from cctrace.counterfactual.figures import FIGURES, interval
from cctrace.counterfactual.flow_model import model_of
from cctrace.counterfactual.host_limits import host_limits_of
from cctrace.counterfactual.path_changes import changed, check_changes
from cctrace.diagnosis.packets.writes import clocked_writes
from cctrace.diagnosis.record import Record
from cctrace.errors import ArgumentError, FitError
from cctrace.flows.counters import CounterFlow


@pytest.fixture(scope="module")
def path():
    return cct.Path(rate="12Mbit", rtt="40ms", buffer="1.5bdp")


@pytest.fixture(scope="module")
def simulated(path):
    return cct.simulate(path, "cubic6", "12s", 3, packets=True, ack_every=2)


@pytest.fixture(scope="module")
def answer(simulated):
    return cct.whatif(simulated, ["bbr2022", "reno"], draws=3)


def test_another_controller_is_told_what_the_true_path_would_tell(answer, path):
    assert answer.own == "cubic6"
    assert answer.reproduces
    for name in ("bbr2022", "reno"):
        truth = cct.simulate(path, name, "12s", 1, ack_every=2).flows.iloc[0]
        got = answer.candidates[name]
        assert got["goodput_bps"].value == pytest.approx(truth.goodput_bps, rel=0.05)
        assert got["rtt_mean_us"].value == pytest.approx(truth.rtt_mean_us, rel=0.10)
        assert got["retransmitted_share"].value == pytest.approx(truth.retransmit_ratio, abs=0.003)
        assert all(got[figure].low <= got[figure].value <= got[figure].high for figure in FIGURES)


def test_a_longer_queue_makes_reno_wait_longer(simulated, answer):
    longer = cct.whatif(simulated, ["reno"], own="cubic6", draws=6, buffer="x3")
    assert longer.candidates["reno"]["rtt_mean_us"].low > answer.candidates["reno"]["rtt_mean_us"].high
    assert longer.changed == {"buffer": "x3"}


def test_a_candidate_that_is_the_flows_own_is_told_once(answer):
    again = replace(answer, candidates={"cubic6": answer.original}, differences={"cubic6": answer.differences["reno"]})
    told = again.summary().splitlines()
    assert next(line.split()[:2] for line in told if "cubic6" in line) == ["cubic6", "simulated"]
    assert sum("cubic6" in line for line in told) == sum("cubic6" in line for line in answer.summary().splitlines())
    assert sum("cubic6" in line for line in replace(again, changed={"buffer": "x3"}).summary().splitlines()) > 1


def test_the_same_seed_gives_the_same_answer(simulated, answer):
    assert cct.whatif(simulated, ["bbr2022", "reno"], draws=3).to_dict() == answer.to_dict()


def test_a_path_that_does_not_come_out_again_is_no_advice(simulated):
    wrong = cct.whatif(simulated, ["bbr2022"], own="bbr3", draws=3)
    assert not wrong.reproduces
    assert "no advice" in wrong.summary()
    # and the candidates' intervals are as much wider as that was missed
    right = cct.whatif(simulated, ["bbr2022"], own="cubic6", draws=3)
    widths = [np.diff(one.candidates["bbr2022"]["rtt_mean_us"][1:])[0] for one in (wrong, right)]
    assert widths[0] > 2 * widths[1]


def test_a_queue_that_never_overflowed_bounds_a_filling_controller_from_below():
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="12bdp")
    sim = cct.simulate(path, "bbr2022", "11s", 1, packets=True, ack_every=2)
    found = cct.whatif(sim, ["cubic6"], own="bbr2022", draws=3)
    assert any("longer queue" in text for text in found.not_excluded)
    rtt = found.candidates["cubic6"]["rtt_mean_us"]
    truth = cct.simulate(path, "cubic6", "11s", 1, ack_every=2).flows.rtt_mean_us[0]
    assert rtt.high is None
    assert rtt.low < truth


PATH = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp")
HELD = {
    "app": ({"app": "chunks:size=700kB,every=500ms"}, {"app": "bulk"}),
    "requests": ({"app": "requests:size=700kB,think=300ms"}, {"app": "bulk"}),
    "pacing": ({"max_pacing_rate": "8Mbit"}, {"pacing": "none"}),
    "send_buffer": ({"send_buffer": "40kB"}, {"send_buffer": "none"}),
}


@pytest.mark.parametrize("kind", HELD)
def test_what_held_a_flow_back_holds_the_candidate_back_too_unless_it_is_removed(kind):
    held, removed = HELD[kind]
    sim = cct.simulate(PATH, cct.Sender("cubic6", ack_every=2, **held), "8s", 1, packets=True)
    kept = cct.whatif(sim, ["bbr2022"], own="cubic6", draws=3)
    free = cct.whatif(sim, own="cubic6", draws=3, **removed)
    assert kept.reproduces
    assert any("is kept" in text or "kept to" in text for text in kept.not_excluded)
    for answer, sender in (
        (kept.candidates["bbr2022"], cct.Sender("bbr2022", ack_every=2, **held)),
        (free.candidates["cubic6"], cct.Sender("cubic6", ack_every=2)),
    ):
        truth = cct.simulate(PATH, sender, "8s", 2).flows.iloc[0]
        assert answer["goodput_bps"].value == pytest.approx(truth.goodput_bps, rel=0.1)
    assert free.candidates["cubic6"]["goodput_bps"].value > 1.1 * kept.recorded["goodput_bps"]


def test_a_flow_through_fq_has_candidates_through_fq():
    sim = cct.simulate(PATH, cct.Sender("bbr2022", ack_every=2, fq=True), "6s", 1, packets=True)
    flow = sim.capture().flow(0)
    found = host_limits_of(Record(flow), cct.diagnose(flow))
    assert found.sender_options({})["fq"] is True
    assert "fq" not in found.sender_options({"fq": False})


def test_writes_that_were_not_done_when_the_next_one_came_keep_their_times_and_sizes():
    """Behind a policer half of the writes take longer than until the next one, so that only every third one pauses."""
    path = cct.Path(rate="9Mbit", rtt="20ms", buffer="2bdp", policer=("3.7Mbit", "80kB"))
    sender = cct.Sender("bbr2022", app="chunks:size=225kB,every=500ms", ack_every=2)
    flow = cct.simulate(path, sender, "12s", 3, packets=True).capture().flow(0)
    held = cct.Sender("reno", app=host_limits_of(Record(flow), cct.diagnose(flow)).app).application
    assert held[1] == pytest.approx(225e3, rel=0.02)
    assert held[2] == pytest.approx(500e6, rel=0.02)


def test_writes_on_a_clock_are_found_beside_a_competitor_whose_queue_leaves_no_pause():
    sender = cct.Sender("bbr2022", app="chunks:size=588kB,every=400ms", ack_every=2)
    path = cct.Path(rate="23.6Mbit", rtt="78ms", buffer="1bdp")
    sim = cct.simulate(path, [sender, cct.Sender("reno", ack_every=2)], "12s", 1, packets=True)
    record = Record(flow := sim.capture().flow(0))
    assert len(record.empty_s) < 4
    diagnosis = cct.diagnose(flow)
    (app,) = (one for one in diagnosis.verdicts if one.name == "application_limited")
    assert "writing 588 kB every 400 ms" in app.text
    assert app.evidence["application_share"] < 0.25
    held = cct.Sender("reno", app=host_limits_of(record, diagnosis).app).application
    assert held[1] == pytest.approx(588e3, rel=0.02)
    assert held[2] == pytest.approx(400e6, rel=0.01)


def test_writes_into_a_small_send_buffer_are_not_on_a_clock():
    sim = cct.simulate(PATH, cct.Sender("bbr2022", send_buffer="40kB", ack_every=2), "8s", 1, packets=True)
    record = Record(flow := sim.capture().flow(0))
    assert clocked_writes(record, cct.diagnose(flow).limits) is None


def test_an_application_whose_writes_show_no_pattern_is_refused():
    sender = cct.Sender("bbr2022", app="onoff:on=200ms,off=3s", ack_every=2)
    sim = cct.simulate(PATH, sender, "10s", packets=True)
    with pytest.raises(FitError, match=r"application .* bulk transfer is needed"):
        cct.whatif(sim, ["reno"], own="bbr2022")


def test_a_receive_window_that_held_back_is_kept():
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp")
    sim = cct.simulate(path, cct.Sender("cubic6", rwnd="40kB", ack_every=2), "8s", packets=True)
    found = cct.whatif(sim, ["bbr2022"], own="cubic6", draws=3)
    assert any("receive window" in text for text in found.not_excluded)
    # 40 kB every 40 ms, whoever sends
    assert found.candidates["bbr2022"]["goodput_bps"].value == pytest.approx(8e6, rel=0.1)


def test_changes_are_those_of_a_path_or_factors():
    path = cct.Path(rate="10Mbit", rtt="40ms", buffer="2bdp", jitter="gamma:sd=1ms,mean=2ms", loss="1%")
    both = changed(path, {"rate": "x2", "rtt": "x0.5", "jitter": "x2", "loss": "x3"})
    assert (both.max_rate_bps(), both.rtt_ns) == (20e6, 20_000_000)
    assert both.buffer_bytes == path.buffer_bytes  # not a BDP of the new path
    assert both.jitter.text() == "gamma:sd=2000.000us,mean=4000.000us,per=packet"
    assert float(both.loss.rstrip("%")) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("rtt", "reverse_ms"), [("5ms", 2.5), ("x0.1", 2.0), ("x2", 40.0), ([(0, "8ms"), (3, "4ms")], 2.0)]
)
def test_the_way_of_the_acks_remains_as_large_a_part_of_another_rtt(rtt, reverse_ms):
    path = cct.Path(rate="10Mbit", rtt="40ms", reverse="20ms", buffer="100kB", jitter="normal:sd=2ms")
    check_changes({"rtt": rtt})
    after = changed(path, {"rtt": rtt})
    assert after.reverse_ns / 1e6 == pytest.approx(reverse_ms)
    assert after.buffer_bytes == path.buffer_bytes


@pytest.mark.parametrize(
    ("jitter", "base_ms", "mean_ms"),
    [
        *((text, 78, 0) for text in (None, "none", "x0", "normal:sd=1ms")),
        ("x0.5", 59, 19),
        ("x2", 40, 76),
        ("gamma:sd=1ms,mean=2ms", 40, 2),
    ],
)
def test_a_path_that_keeps_order_has_the_delay_that_most_packets_had(jitter, base_ms, mean_ms):
    # as netem reorders: 1 in 20 has no delay of 40 ms
    late = cct.Jitter("empirical", samples_ns=[0, *[40_000_000] * 19], reorder=True)
    path = cct.Path(rate="10Mbit", rtt=[(0, "40ms"), (5, "50ms")], buffer="2bdp", jitter=late)
    after = changed(path, {"jitter": jitter})
    assert [base / 1e6 for base in after.rtt_steps()[1]] == pytest.approx([base_ms, base_ms + 10])
    assert after.buffer_bytes == path.buffer_bytes
    kept = after.jitter_steps()[1][0]
    samples = None if kept is None or kept.samples_ns is None else np.mean(kept.samples_ns) / 1e6
    assert samples is None or samples == pytest.approx(mean_ms)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mtu": "1500"}, "mtu='1500'"),
        ({"buffer": "huge"}, "buffer='huge'"),
        ({"loss": "120%"}, "loss"),
        ({"pacing": "fast"}, "pacing='fast'"),
        ({"app": "chunks:size=1MB"}, "app='chunks:size=1MB'"),
        ({"fq": "yes"}, "fq='yes'"),
        ({"draws": 1}, "draws=1"),
        ({"own": "cubc"}, "cubc"),
    ],
    ids=["name", "size", "share", "rate", "app", "fq", "draws", "controller"],
)
def test_wrong_arguments_are_named(simulated, given, named):
    with pytest.raises(ArgumentError, match=named):
        cct.whatif(simulated, ["reno"], **given)


def test_nothing_asked_is_a_mistake(simulated):
    with pytest.raises(ArgumentError, match=r"candidates=\[\]: name a controller, or a change of the path"):
        cct.whatif(simulated, own="cubic6")


class Held(cct.LinuxController):
    """A window of 40 segments, whatever happens."""

    sets_pacing_rate = False

    def on_ack(self, ack):
        self.snd_cwnd = 40


def test_a_class_of_ones_own_is_a_candidate_and_may_have_sent_the_flow(simulated):
    told = cct.whatif(simulated, [Held, "reno"], own=Held, draws=3)
    assert told.own == "Held"
    assert list(told.candidates) == ["Held", "reno"]
    assert "Held simulated" in told.summary()
    assert "Held" in repr(told) + told._repr_html_() + json.dumps(told.to_dict())
    assert list(cct.whatif(simulated, Held, own="cubic6", draws=3).frame().index)[-1] == "Held"
    with pytest.raises(ArgumentError, match="'Held' is given twice"):
        cct.whatif(simulated, [Held, Held])


def test_a_factor_written_the_other_way_round_is_told_how(simulated, capsys):
    with pytest.raises(ArgumentError, match="buffer='2x': write a factor as 'x2'"):
        cct.whatif(simulated, buffer="2x")
    capture = str(cct.datasets.path("single_bbr_1bdp") / "sender.pcap.zst")
    assert main(["whatif", capture, "--rate", "0.5x"]) == 2
    assert capsys.readouterr().err == "cctrace: --rate='0.5x': write a factor as 'x0.5'\n"


def test_the_command_prints_json_of_a_recording(capsys):
    file = cct.datasets.path("single_bbr_1bdp") / "sender.pcap.zst"
    assert main(["whatif", str(file), "--cc", "cubic6", "--draws", "3", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["reproduces"] is True
    assert found["own"] in ("bbr2019", "bbr2022")
    for part in (found["recorded"], found["original"], found["candidates"]["cubic6"]):
        for figure in FIGURES:
            assert part[figure]["low"] <= part[figure]["value"] <= part[figure]["high"]
    # CUBIC fills the queue of one BDP that BBR leaves half empty
    assert found["candidates"]["cubic6"]["rtt_mean_us"]["value"] > 1.1 * found["recorded"]["rtt_mean_us"]["value"]


def test_the_command_needs_a_question(capsys):
    file = cct.datasets.path("single_bbr_1bdp") / "sender.pcap.zst"
    assert main(["whatif", str(file)]) == 2
    assert "--cc" in capsys.readouterr().err


# --- inputs that tell less -------------------------------------------------------------------------------------------
def test_a_path_that_never_filled_bounds_goodput_from_below():
    # 2 % of random loss keeps Reno at a tenth of the rate, and jitter hides how packets were spaced
    path = cct.Path(rate="80Mbit", rtt="40ms", buffer="1bdp", loss="2%", jitter="normal:sd=2ms")
    sim = cct.simulate(path, "reno", "10s", 1, packets=True, ack_every=2)
    found = cct.whatif(sim, ["bbr2022"], own="reno")
    assert any("faster path" in text for text in found.not_excluded)
    goodput = found.candidates["bbr2022"]["goodput_bps"]
    assert goodput.high is None
    assert found.differences["bbr2022"]["goodput_bps"].high is None
    truth = cct.simulate(path, "bbr2022", "10s", 1, ack_every=2).flows.goodput_bps[0]
    assert goodput.low < truth


def test_a_capture_at_the_receiver_says_what_it_lacks(simulated):
    flow = simulated.capture(side="receiver").flow(0)
    found = cct.whatif(flow, ["bbr2022"], own="cubic6", draws=3)
    assert any("taken at the receiver" in text for text in found.not_excluded)
    assert found.candidates["bbr2022"]["retransmitted_share"].high is None
    assert not found.reproduces  # losses that filled CUBIC's queue are not in it


def test_a_lossless_capture_at_the_receiver_is_answered(path):
    sim = cct.simulate(path, "bbr2022", "10s", 1, packets=True, ack_every=2)
    found = cct.whatif(sim.capture(side="receiver").flow(0), ["bbr3"], own="bbr2022", draws=3)
    truth = cct.simulate(path, "bbr3", "10s", 1, ack_every=2).flows.iloc[0]
    assert found.candidates["bbr3"]["goodput_bps"].value == pytest.approx(truth.goodput_bps, rel=0.05)
    assert found.candidates["bbr3"]["rtt_mean_us"].value == pytest.approx(truth.rtt_mean_us, rel=0.1)


def test_without_a_known_sender_there_are_figures_and_no_advice(simulated, monkeypatch):
    def nobody(flow):
        return SimpleNamespace(name="unknown", group=("unknown",))

    monkeypatch.setattr("cctrace.counterfactual.flow_model.identified", nobody)
    found = cct.whatif(simulated, ["reno"], draws=3)
    assert (found.own, found.original, found.reproduces, found.differences) == (None, None, False, {})
    assert found.candidates["reno"]["goodput_bps"].value > 0
    assert "own=NAME" in found.summary()
    assert "no advice" in found.summary()


def test_counters_alone_are_refused_with_what_is_missing(capsys):
    file = str(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"))
    assert main(["whatif", file, "--cc", "reno"]) == 2
    assert "a capture, taken at the sender" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="single packets"):
        cct.whatif(CounterFlow(cct.read(file), 0), ["reno"])


def test_chance_is_no_reason_to_distrust_a_path():
    # CUBIC under random loss differs by tens of per cent from run to run: what it did is one of these runs
    path = cct.Path(rate="40Mbit", rtt="80ms", buffer="2bdp", loss="0.3%")
    flows = [cct.simulate(path, "cubic6", "10s", seed, packets=True, ack_every=2) for seed in range(1, 5)]
    goodputs = [sim.flows.goodput_bps[0] for sim in flows]
    extreme = flows[int(np.argmax(goodputs))]
    assert max(goodputs) > 1.1 * np.median(goodputs)
    assert cct.whatif(extreme, ["reno"], own="cubic6", draws=5).reproduces


def test_an_interval_of_few_runs_holds_as_many_further_runs_as_it_says():
    rng = np.random.default_rng(1)
    held = {n: [] for n in (3, 12)}
    for n, hits in held.items():
        for _ in range(4000):
            _, low, high = interval(rng.standard_normal(n))
            hits.append(low <= rng.standard_normal() <= high)
    assert 0.86 <= np.mean(held[12]) <= 0.93  # quantiles of twelve: 0.76
    assert 0.80 <= np.mean(held[3]) <= 0.95  # quantiles of three: 0.45


def test_progress_is_shown_and_an_interrupt_ends_it(tmp_path):
    sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms"), "cubic6", "20s", packets=True)
    sim.to_pcap(tmp_path / "long.pcap")
    command = ["whatif", str(tmp_path / "long.pcap"), "--own", "cubic6", "--cc", "bbr2", "--draws", "2000"]
    terminal, end = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "cctrace", *command], stderr=end)
    os.close(end)
    shown = b""
    while b"over the inferred" not in shown:  # what is being done is on the terminal
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130  # the 2,000 draws would take many times that
    os.close(terminal)


def test_a_flow_that_joins_others_meets_them_as_it_did(tmp_path):
    """They are simulated from before it began: their queue stands when it joins, and it has to win its share."""
    path, reno = cct.Path(rate="40Mbit", rtt="30ms", buffer="1bdp"), cct.Sender("reno")

    def joined_by(cc, **options):
        return cct.simulate(path, [reno, cct.Sender(cc, start="8s")], "25s", profile="linux", **options)

    joined_by("cubic6", seed=5, packets=True).to_pcap(tmp_path / "both.pcap")
    late = max(cct.read(tmp_path / "both.pcap").bulk(), key=lambda flow: flow.row["start_ns"])
    model = model_of(late, "cubic6", None, lambda line: None)
    assert model.head_start_s == pytest.approx(8.0, abs=0.11)
    assert [other.start_ns for other in model.other_senders] == [pytest.approx(0, abs=0.11e9)]
    answer = cct.whatif(late, ["bbr3"], own="cubic6", draws=6)
    assert answer.reproduces
    for name, figures in (("cubic6", answer.original), ("bbr3", answer.candidates["bbr3"])):
        goodput_bps = np.median([joined_by(name, seed=seed).flows.goodput_bps[1] for seed in range(6, 11)]) * 25 / 17
        assert figures["goodput_bps"].low < goodput_bps < figures["goodput_bps"].high
    assert answer.original["goodput_bps"].value == pytest.approx(late.row["goodput_bps"], rel=0.15)  # at once: 1.4 x
