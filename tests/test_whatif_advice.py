"""What would help, with numbers: the advice names a command that runs; answers reach terminal, JSON and page."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest

import cctrace as cct
from cctrace.analysis.analyze import NO_PACKETS, analyze
from cctrace.cc import controller
from cctrace.cli import main
from cctrace.counterfactual.path_changes import changed, check_changes
from cctrace.counterfactual.runs import plausible_paths
from cctrace.diagnosis.catalogue import ORDER
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.remedies import REMEDIES, commands, questions, remedies
from cctrace.fit import Estimate
from cctrace.refusals import Refusal
from cctrace.report.effects import whatif_card
from cctrace.report.overview import write_report
from cctrace.tcp.wire import PACKET_BYTES

LOSSY = "loss_cubic_1pct"


@pytest.fixture(scope="module")
def file():
    return str(cct.datasets.path(LOSSY, "sender.pcap.zst"))


@pytest.fixture(scope="module")
def analysis(file):
    return analyze([file], what_if=True)[0]


@pytest.mark.parametrize("verdict", sorted(REMEDIES))
def test_remedies_are_of_verdicts_that_exist_and_can_be_asked(verdict):
    assert verdict in ORDER
    for name, changes in remedies(verdict).values():
        check_changes(changes)
        if name:
            controller(name)


def test_a_controller_is_no_remedy_for_itself():
    assert "bbr2022" in remedies("random_loss", "cubic")
    assert "bbr2022" not in remedies("random_loss", "bbr")
    assert "bbr3" not in remedies("random_loss", "bbr3")


def test_the_advice_names_a_command_that_answers_it(file, capsys):
    found = diagnose(cct.read(file).flow(0))
    assert found.cause == "random_loss"
    command, other = re.findall(r"`([^`]+)`", found.verdicts[0].advice)
    assert shlex.split(command) == ["cctrace", "whatif", file, "--cc", "bbr2022,bbr3"]
    assert other == "--loss 0%"
    assert main([*shlex.split(command)[1:-2], *other.split(), "--draws", "3", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    # without the losses CUBIC would fill the 40 Mbit/s
    assert told["candidates"]["cubic6"]["goodput_bps"]["low"] > 5 * told["recorded"]["goodput_bps"]["value"]


def test_the_command_names_the_flow_where_the_capture_has_several():
    file = cct.datasets.path("compete_bbr_cubic_2bdp", "sender.pcap.zst")
    assert commands("random_loss", cct.read(file).flow(1), "bbr") == [
        f"cctrace whatif {file} --flow 1 --cc bbr3",
        "--loss 0%",
    ]


def test_what_would_help_has_the_numbers_of_the_advice(analysis):
    found = analysis.whatif
    assert found.reproduces
    assert list(found.candidates) == ["bbr2022", "bbr3", "its own, loss 0%"]
    gain = found.differences["bbr2022"]["goodput_bps"]
    assert gain.low < gain.value < gain.high
    # the difference is that of the two runs over the same paths
    both = found.candidates["bbr2022"]["goodput_bps"].value / found.original["goodput_bps"].value - 1
    assert gain.value == pytest.approx(both, rel=0.1)
    assert re.search(r"bbr2022: \d+ times the goodput", "\n".join(found.lines()))


def test_json_and_page_show_what_would_help(analysis, tmp_path):
    told = json.loads(json.dumps(analysis.to_dict()["whatif"]))
    assert told["differences"]["bbr2022"]["goodput_bps"]["value"] > 1
    page = write_report([analysis], tmp_path).read_text(encoding="utf-8")
    assert "cubic6 simulated" in page
    assert "The inferred path reproduces the recording." in page
    assert (tmp_path / "flow0-whatif.parquet").exists() or (tmp_path / "flow0-whatif.csv.gz").exists()


def test_the_page_escapes_what_it_is_told():
    assert "<script>" not in whatif_card(Refusal("what-if", "<script>alert(1)</script>"))
    assert whatif_card(None) == ""


def test_without_the_option_nothing_is_simulated(file, monkeypatch):
    monkeypatch.setattr("cctrace.counterfactual.runs.batch", None)
    found = analyze([file], effects=False)[0]
    assert (found.whatif, found.effects) == (None, None)


def test_counters_alone_say_what_is_missing():
    counters = cct.datasets.path(LOSSY, "tcpinfo.csv.zst")
    assert [one.whatif for one in analyze([counters], what_if=True)] == [NO_PACKETS]


def test_where_no_verdict_names_a_remedy_other_controllers_are_asked():
    flow = cct.simulate(cct.Path(rate="10Mbit", rtt="20ms"), "bbr3", "3s", packets=True).capture().flow(0)
    asked = questions(diagnose(flow), "bbr3")
    assert ("cubic6", {}) in asked.values()
    assert not any(name == "bbr3" and not changes for name, changes in asked.values())


def test_an_answer_that_does_not_reproduce_gives_no_numbers(file):
    found = cct.whatif(cct.read(file).flow(0), ["reno"], own="bbr3", draws=3)
    assert found.lines() == [f"what if: {found.trust()}"]
    assert "goodput" not in found.summary()


def test_a_difference_that_may_be_none_is_called_so():
    from cctrace.counterfactual.figures import in_words

    none = Estimate(0.0, -0.001, 0.001)
    told = in_words(dict.fromkeys(("goodput_bps", "rtt_mean_us", "retransmitted_share"), none))
    assert told.count("about the same") == 3


def test_a_flow_that_never_made_a_queue_leaves_open_buffers_of_ten_bdp(analysis):
    path = analysis.whatif.path
    assert "buffer" in path.estimates["undetermined"]
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    sizes = [one.buffer_bytes / bdp for one in plausible_paths(path, 60, 1)]
    least = path.estimates["buffer_bytes"].low / bdp
    assert least < 0.8  # CUBIC under random loss hardly made one
    assert least <= min(sizes) < 2 * least
    assert 5 < max(sizes) <= 10


def test_half_of_a_queue_that_never_overflowed_may_overflow():
    # its backlog is all that BBR shows of the queue, and fills half of it only if that is nearly all of it
    path = cct.Path(rate="8Mbit", rtt="40ms", buffer="3bdp")
    sim = cct.simulate(path, "bbr2022", "8s", 1, packets=True, ack_every=2)
    assert sim.flows.retransmit_ratio[0] == 0
    share = cct.whatif(sim, own="bbr2022", buffer="x0.5").candidates["bbr2022"]["retransmitted_share"]
    tight = f"{cct.fit.path(sim).estimates['buffer_bytes'].low / 2:.0f}B"
    truth = cct.simulate(replace(path, buffer=tight), "bbr2022", "8s", 1, ack_every=2).flows.retransmit_ratio[0]
    assert truth > 0.01
    assert share.value == pytest.approx(0, abs=0.003)
    assert share.high > 0.8 * truth


def test_half_of_three_packets_is_one_or_two():
    def half(packets):
        queue = cct.Path(rate="8Mbit", rtt="40ms", buffer=f"{packets * PACKET_BYTES:.0f}B")
        return changed(queue, {"buffer": "x0.5"}).buffer_bytes // PACKET_BYTES

    assert [half(3.2), half(3.8), half(4.2), half(4.8)] == [1, 2, 2, 2]


def test_ties_do_not_decide_what_a_short_queue_does():
    # without jitter CUBIC's losses repeat at the same places, which leaves it half as much again as any jitter does
    exact = cct.Path(rate="4.6Mbit", rtt="25158us", buffer="5000B")
    flow = cct.simulate(exact, "bbr2022", "10s", 1, packets=True, ack_every=2)
    answer = cct.whatif(flow, ["cubic6"], own="bbr2022").candidates["cubic6"]["goodput_bps"]
    varied = replace(exact, jitter="normal:sd=20us")
    of = {"exact": [exact], "varied": [varied] * 6}
    goodput = {
        name: np.median(
            [cct.simulate(one, "cubic6", "10s", k, ack_every=2).flows.goodput_bps[0] for k, one in enumerate(paths)]
        )
        for name, paths in of.items()
    }
    assert goodput["exact"] > 1.3 * goodput["varied"]
    assert answer.value == pytest.approx(goodput["varied"], rel=0.2)
    assert answer.high < goodput["exact"]
