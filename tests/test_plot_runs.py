"""Distributions over many runs show what captures, corpora, simulations and replays say, flow by flow."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets, plot
from cctrace.cli import main
from cctrace.errors import ArgumentError
from tests.test_report import lossy_talk

PATH = cct.Path(rate="10Mbit", rtt="20ms", buffer="1bdp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two captures of simulations in folders of their own."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("bbr2022", "cubic6"):
        (root / name).mkdir()
        cct.simulate(PATH, name, "2s", 1, packets=True).to_pcap(root / name / "sender.pcap")
    return root


@pytest.fixture(scope="module")
def simulations():
    return [cct.simulate(PATH, name, "2s", seed, trace=True) for name in ("bbr2022", "cubic6") for seed in (1, 2)]


def test_a_folder_a_pattern_and_a_list_of_captures_are_the_same_flows(folder):
    files = sorted(folder.rglob("*.pcap"))
    wanted = {file.parent.name: cct.read(file).flow(0).rtt["rtt_us"].to_numpy() / 1e3 for file in files}
    for of in (folder, f"{folder}/**/*.pcap", files):
        found = plot.samples(of, "rtt", by="folder")
        assert list(found) == list(wanted)
        assert all(found[name] == pytest.approx(wanted[name]) for name in wanted)
    assert list(plot.samples(folder, "goodput")) == ["bbr2022-sender", "cubic6-sender"]


def test_a_figure_per_flow_is_in_the_unit_of_its_axis(folder):
    flow = cct.read(folder / "bbr2022" / "sender.pcap").flow(0)
    found = plot.samples(flow, "goodput")
    assert found == {"10.0.0.1:50000 → 10.1.0.1:5201": pytest.approx([flow.row["goodput_bps"] / 1e6])}
    axes = plot.boxes(folder, "goodput").axes[0]
    assert axes.get_ylabel().startswith("Goodput (Mbit/s)\n")


def test_the_queue_is_the_rtt_above_the_lowest_of_each_flow(folder):
    rtt, queue = (plot.samples(folder, quantity)["cubic6-sender"] for quantity in ("rtt", "queue"))
    assert np.allclose(queue, rtt - rtt.min())


def test_counters_beside_a_capture_name_its_controller():
    found = plot.samples(datasets.path("single_bbr_1bdp"), "retransmitted", by="controller")
    assert {name: len(values) for name, values in found.items()} == {"bbr": 1}


def test_simulations_are_grouped_by_controller_and_tell_every_sample(simulations):
    goodput = plot.samples(simulations, "goodput")
    assert {name: len(values) for name, values in goodput.items()} == {"bbr2022": 2, "cubic6": 2}
    assert goodput["cubic6"][0] == pytest.approx(simulations[2].flows["goodput_bps"][0] / 1e6)
    rtt = plot.samples(simulations[2], "rtt")["cubic6"]
    assert rtt.mean() == pytest.approx(simulations[2].flows["rtt_mean_us"][0] / 1e3, rel=0.02)
    by_key = plot.samples({"one": simulations[:2], "other": simulations[2]}, "rtt_mean_us")
    assert {name: len(values) for name, values in by_key.items()} == {"one": 2, "other": 1}


def test_the_rtts_of_a_quic_sender_are_samples_too():
    found = plot.samples(cct.simulate(PATH, "quic_bbr", "2s", 1, trace=True), "rtt")["quic_bbr"]
    assert 20 <= found.min() < 25


def test_a_replay_tells_its_decisions_call_by_call(folder):
    run = cct.replay(cct.read(folder / "cubic6" / "sender.pcap").flow(0), "reno", record="all")
    found = plot.samples([run], "cwnd_segments")
    assert np.array_equal(found["Reno"], run.decisions["snd_cwnd"])
    assert plot.samples([run], "rtt")["Reno"].min() >= 20


def test_a_corpus_gives_any_column_by_any_other(folder, tmp_path):
    pytest.importorskip("pyarrow")
    cct.corpus.run(str(folder), str(tmp_path / "results"), workers=1)
    found = plot.samples(tmp_path / "results", "goodput", by="verdict")
    flows = [cct.read(file).flow(0).row["goodput_bps"] / 1e6 for file in folder.rglob("*.pcap")]
    assert sorted(np.concatenate(list(found.values()))) == pytest.approx(sorted(flows))
    assert list(plot.samples(cct.corpus.open(str(tmp_path / "results")), "retransmitted")) == ["other"]
    with pytest.raises(ArgumentError, match="a corpus keeps rtt_min, rtt_median and rtt_p95"):
        plot.samples(tmp_path / "results", "rtt")
    with pytest.raises(ArgumentError, match=r"by='continent': no table of .* has it"):
        plot.samples(tmp_path / "results", "goodput", by="continent")
    with pytest.raises(ArgumentError, match="'text': not a number"):
        plot.samples(tmp_path / "results", "text")


@pytest.mark.parametrize(
    ("quantity", "by", "message"),
    [
        ("gootput", None, "'gootput': a capture's flow has rtt, queue, goodput"),
        ("goodput", "controller", "by='controller': not known of these flows; known are flow"),
        ("src", None, "'src': a capture's flow has"),
    ],
)
def test_what_flows_do_not_tell_is_refused(quantity, by, message):
    with pytest.raises(ArgumentError, match=message):
        plot.samples(lossy_talk().capture(), quantity, by)


def test_without_a_quantity_only_samples_by_name_can_be_drawn():
    with pytest.raises(ArgumentError, match="say which quantity"):
        plot.cdf([1, 2, 3])


def test_a_curve_of_many_samples_is_drawn_with_as_many_steps_as_a_page_resolves():
    (axes,) = plot.cdf({"many": np.arange(100_000)}).axes
    x, y = axes.lines[0].get_xdata()[1:], axes.lines[0].get_ydata()[1:]
    assert len(x) == 5000
    assert (x[0], x[-1], y[-1]) == (0, 99_999, 1.0)
    assert np.abs(y - (x + 1) / 100_000).max() < 1e-9


def test_the_command_draws_and_says_the_numbers(folder, tmp_path, capsys):
    file = tmp_path / "new" / "rtt.svg"
    assert main(["plot", "cdf", "rtt", str(folder), "--by", "folder", "-o", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["axis"] == "RTT (ms)"
    rtt_ms = cct.read(folder / "cubic6" / "sender.pcap").flow(0).rtt["rtt_us"] / 1e3
    assert told["groups"][1]["group"] == "cubic6"
    assert told["groups"][1]["median"] == pytest.approx(rtt_ms.median())
    assert file.read_text().startswith("<?xml")
    assert main(["plot", "boxes", "goodput", str(folder), "-o", str(tmp_path / "x.gif")]) == 2
    assert "x.gif: the extension must be one of .pdf, .svg, .png" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "axis"), [("cdf", "xaxis"), ("boxes", "yaxis")])
def test_the_command_takes_a_title_and_a_logarithmic_axis_of_values(kind, axis, folder, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("cctrace.cli.plot.save", lambda figure, file: drawn.append(figure))
    command = ["plot", kind, "rtt", str(folder), "-o", str(tmp_path / "x.svg")]
    assert main(command) == main([*command, "--title", "By file", "--log"]) == 0
    scales = [getattr(figure.axes[0], axis).get_scale() for figure in drawn]
    assert scales == ["linear", "log"]
    assert [figure.get_suptitle() for figure in drawn] == ["", "By file"]


def test_a_logarithmic_axis_has_its_numbers_written_out():
    drawing = plot.cdf({"RTT": np.linspace(17, 180, 50)}, log=True)
    drawing.draw_without_rendering()
    (axes,) = drawing.axes
    texts = {text.get_text() for text in [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]}
    assert {"20", "40", "100"} <= texts
