"""Several captures: an index of their reports, two of them beside each other; simulations and replays as pages, too."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.analysis.analyze import analyze
from cctrace.corpus.inputs import listed
from cctrace.flows.packed import EventColumns
from cctrace.plot.panels_of_many import comparison_panels
from cctrace.report.compare import differences, write_comparison
from cctrace.report.index import captures_in
from cctrace.report.overview import write_report
from tests.build_view import flow_view
from tests.test_report import data_of

LOSSY, JITTER = (datasets.path(name, "sender.pcap.zst") for name in ("loss_cubic_1pct", "tso_bbr_300m_veth"))


@pytest.fixture(autouse=True)
def nobody_asks_who_sent_it(monkeypatch):
    """To identify a sender takes seconds, and is tested elsewhere."""
    monkeypatch.setattr("cctrace.analysis.one_flow._identified", lambda *_: None)


@pytest.fixture
def folder(tmp_path):
    """Two captures, one in a folder of its own, and files that are none."""
    here = tmp_path / "captures"
    (here / "deep").mkdir(parents=True)
    shutil.copy(LOSSY, here / "a.pcap.zst")
    shutil.copy(JITTER, here / "deep" / "b.pcap.zst")
    shutil.copy(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst"), here)
    (here / "notes.txt").write_text("no capture")
    return here


def test_only_captures_of_a_folder_are_taken(folder):
    assert [path.name for path in captures_in(folder)] == ["a.pcap.zst", "b.pcap.zst"]


def test_linked_folders_are_searched_too_and_each_once(folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "one").symlink_to(folder)
    (folder / "deep" / "round").symlink_to(folder)
    assert [path.name for path in captures_in(linked)] == ["a.pcap.zst", "b.pcap.zst"]
    assert [Path(entry.capture).name for entry in listed(str(linked))] == ["a.pcap.zst", "b.pcap.zst"]


def test_a_folder_gives_a_report_for_each_capture_and_a_page_that_leads_to_them(run, folder, tmp_path):
    status, out, err = run("analyze", folder, "--no-effects", "-o", tmp_path / "out", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert [one["report"] for one in found] == ["a/report.html", "deep-b/report.html"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.findall(r'href="([^"#]+)#flow0"', page) == ["./a/report.html", "./deep-b/report.html"]
    assert "<title>2 captures, 2 flows</title>" in page
    assert (tmp_path / "out" / "a" / "report.html").exists()


def test_a_capture_that_cannot_be_read_does_not_keep_the_others_from_the_index(run, folder, tmp_path):
    whole = (folder / "a.pcap.zst").read_bytes()
    (folder / "a.pcap.zst").unlink()
    damaged = folder / "a.pcap"
    damaged.write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000065000000"))
    assert whole
    status, _, err = run("analyze", folder, "-o", tmp_path / "out")
    assert status == 2
    assert f"no report of {damaged}" in err
    page = (tmp_path / "out" / "report.html").read_text()
    assert "no report of" in page
    assert "deep-b/report.html#flow0" in page


def test_an_error_of_ours_in_one_capture_does_not_keep_the_others_from_the_index(run, folder, tmp_path, monkeypatch):
    def fails_at_a(files, **options):
        if files[0].name == "a.pcap.zst":
            raise KeyError("rtt")
        return analyze(files, **options)

    monkeypatch.setattr("cctrace.report.index.analyze", fails_at_a)
    status, _, err = run("analyze", folder, "--no-effects", "-o", tmp_path / "out", "--debug")
    assert status == 2
    assert f"no report of {folder / 'a.pcap.zst'}: internal error, KeyError: 'rtt'" in err
    assert "in fails_at_a" in err  # the traceback
    assert "deep-b/report.html#flow0" in (tmp_path / "out" / "report.html").read_text()


def test_a_file_that_breaks_the_guessing_of_formats_is_named_and_does_not_end_the_folder(folder, monkeypatch):
    def fails_at_notes(path):
        if path.name == "notes.txt":
            raise TypeError
        return path.suffix == ".zst"

    monkeypatch.setattr("cctrace.report.index.is_capture", fails_at_notes)
    assert "notes.txt" in [path.name for path in captures_in(folder)]


def test_a_folder_without_captures_says_so(run, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = run("analyze", tmp_path / "empty", "-o", tmp_path / "out")
    assert status == 2
    assert "no captures in this folder" in err


def test_diff_tells_how_two_captures_differ_and_draws_both(run, tmp_path):
    status, out, _ = run("diff", LOSSY, JITTER, "-o", tmp_path, "--json")
    assert status == 0
    ((pair),) = json.loads(out)
    figures = {row["figure"]: row for row in pair["differences"]}
    assert figures["goodput_bps"]["ratio"] == pytest.approx(figures["goodput_bps"]["b"] / figures["goodput_bps"]["a"])
    assert figures["retransmitted_share"]["b"] == 0
    for side in "ab":  # the limits' shares of the time add up
        shares = [row[side] for name, row in figures.items() if name.startswith("limit_")]
        assert sum(shares) == pytest.approx(1, abs=1e-6)
    page = (tmp_path / "report.html").read_text()
    ids = [flow["id"] for flow in data_of(page)["flows"]]
    assert ids == ["flow0", "flow1", "comparison"]
    assert "did not happen at the same time" in page


def test_what_is_unknown_has_no_ratio():
    (one,) = analyze([LOSSY], effects=False)
    other = replace(one, row=one.row | {"rtt_min_us": None})
    ratios = {row["figure"]: row["ratio"] for row in differences(one, other)}
    assert ratios["goodput_bps"] == 1
    assert ratios["rtt_min_us"] is None


def test_flows_are_compared_over_the_time_of_all_or_from_their_own_starts():
    early, rows = flow_view(), flow_view().events.rows
    rows["time_ns"] += 1_000_000_000
    late = replace(early, events=EventColumns.of(rows))
    together = {panel.name: panel for panel in comparison_panels({"early": early, "late": late})[0]}
    rates = {series.label: series for series in together["goodput"].series}
    assert together["goodput"].series[0].time_s[-1] == pytest.approx(2.9)
    assert rates["late"].value[:9] == pytest.approx(0)
    assert rates["early"].value[:19] == pytest.approx(10, rel=0.01)
    shares = sum(series.value for series in together["shares"].series)
    assert shares[:28] == pytest.approx(100)
    panels, _, lasts = comparison_panels({"early": early, "late": late}, aligned=True)
    assert lasts == pytest.approx(2)
    assert panels[0].series[0].value == pytest.approx(panels[0].series[1].value)


def test_flows_of_different_days_are_not_laid_over_one_time_axis(tmp_path):
    """The recordings were taken minutes apart."""
    page = write_report(analyze([LOSSY, JITTER], effects=False), tmp_path).read_text()
    assert [flow["id"] for flow in data_of(page)["flows"]] == ["flow0", "flow1"]
    run = cct.simulate(cct.Path(rate="5Mbit"), ["bbr2022", "cubic6"], "3s", packets=True)
    run.to_pcap(tmp_path / "both.pcap")
    together = write_report(analyze([tmp_path / "both.pcap"], effects=False), tmp_path / "both").read_text()
    assert [flow["id"] for flow in data_of(together)["flows"]] == ["flow0", "flow1", "comparison"]


def test_simulate_explains_its_flows_on_the_same_page(run, tmp_path):
    arguments = ["--rate", "20Mbit", "--cc", "bbr,cubic", "--duration", "3s", "-o", tmp_path]
    status, out, err = run("simulate", *arguments)
    assert status == 0, err
    assert "utilisation" in out
    assert f"report: {tmp_path / 'report.html'}" in err
    flows = data_of((tmp_path / "report.html").read_text())["flows"]
    assert [flow["packets"] is not None for flow in flows] == [True, True, False]  # the last one compares
    assert (tmp_path / "sender.pcap").exists()


def test_replay_draws_what_the_controller_decided(run, tmp_path):
    page, picture = tmp_path / "run.html", tmp_path / "run.svg"
    assert run("replay", LOSSY, "--controller", "bbr3", "--plot", page)[0] == 0
    (flow,) = data_of(page.read_text())["flows"]
    labels = {series["label"] for panel in flow["panels"] for series in panel["series"]}
    assert {"cwnd (replay)", "bandwidth estimate (replay)", "inflight_hi (replay)", "receive window"} <= labels
    assert run("replay", LOSSY, "--controller", "cubic", "--plot", picture)[0] == 0
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([LOSSY, "--controller", "cubic", "--plot", "x.gif"], "--plot x.gif: the extension must be one of"),
        ([LOSSY, "--controller", "obbr", "--plot", "x.svg"], "--plot draws flows of captures under Linux"),
    ],
    ids=["format", "quic"],
)
def test_a_picture_that_cannot_be_drawn_is_refused(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run("replay", *(Path(one).absolute() if one == LOSSY else one for one in arguments))
    assert (status, err.count("\n")) == (2, 1)
    assert said in err


def test_a_flow_that_ended_earlier_than_the_one_it_is_compared_with_has_no_goodput_of_zero_after_that():
    long, short = flow_view(), flow_view()
    short = replace(short, events=short.events.first(1000))
    panel = next(one for one in comparison_panels({"A": long, "B": short}, aligned=True)[0] if one.name == "goodput")
    known = {series.label: series.time_s[np.isfinite(series.value)] for series in panel.series}
    assert known["A"][-1] == pytest.approx(1.9)
    assert known["B"][-1] == pytest.approx(0.95, abs=0.06)


def test_diff_says_of_every_pair_by_its_own_marks_what_limited_it(tmp_path):
    both = analyze([LOSSY]) * 2
    text = write_comparison(both, both, tmp_path).read_text()
    assert [f"What limited {mark}:" in text for mark in ("A1", "B1", "A2", "B2", "A")] == [True] * 4 + [False]
