"""Questions over a whole corpus, and the page over it."""

import re
import shutil

import build_corpus
import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import cli, datasets
from cctrace.analysis.analyze import analyze
from cctrace.corpus.groups import pooled
from cctrace.corpus.runs import Tally
from cctrace.errors import ArgumentError
from cctrace.report.corpus import write_pages

COUNT = 16


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = build_corpus.write(tmp_path_factory.mktemp("captures") / "in", COUNT, 400)
    (folder / "<b>bad.pcap").write_bytes(b"\xd4\xc3\xb2\xa1" + b"\xff" * 500)
    for name in ("sender.pcap.zst", "tcpinfo.csv.zst"):
        shutil.copy(datasets.path("tso_bbr_300m_veth", name), folder)
    out = folder.parent / "out"
    summary = cct.corpus.run(folder, out, "flows,explain,replay=bbr2", workers=1, source=r"-(\w+)\.pcap")
    assert summary.errors == {"unreadable": 1}
    return cct.corpus.open(out)


def test_tables_are_read_when_asked_and_filtered(corpus):
    frame = corpus.flows.frame(["capture", "rtt_min_us", "source"], source="loss_cubic_1pct")
    assert list(frame.columns) == ["capture", "rtt_min_us", "source"]
    assert frame["capture"].str.contains("loss_cubic_1pct").all()
    assert len(frame) == COUNT // 4
    assert len(corpus.flows) == len(corpus.flows.frame()) > COUNT
    assert corpus.flows.frame()["start_ns"].dtype == "Int64"  # floats would be off by up to 128 ns
    with pytest.raises(ArgumentError, match=r"no column \['nosuch'\]; it has capture"):
        corpus.flows.frame(["nosuch"])
    with pytest.raises(ArgumentError, match="no table paths; its tasks are flows,explain"):
        corpus.paths  # noqa: B018
    with pytest.raises(AttributeError):
        corpus.nosuch  # noqa: B018


def test_verdicts_and_controllers_are_counted_per_group(corpus):
    counted = corpus.verdicts_by("source")
    verdicts = corpus.verdicts.frame()
    assert counted["flows"].sum() == len(verdicts)
    assert counted.groupby("source")["share"].sum().to_numpy() == pytest.approx(1.0)
    one = counted.iloc[0]
    its = verdicts[(verdicts["source"] == one["source"]) & (verdicts["verdict"] == one["verdict"])]
    assert one["flows"] == len(its)
    assert one["goodput_median_bps"] == pytest.approx(its["goodput_bps"].median())
    controllers = corpus.controllers_by().set_index("controller")["flows"]
    assert controllers["bbr"] == 1  # of the recording with counters
    assert controllers.sum() == len(verdicts)
    assert controllers["not identified"] == len(verdicts) - 1  # as the task identify did not run


def test_controllers_that_nobody_identified_are_not_a_result(tmp_path, capsys):
    cct.corpus.run(datasets.path("loss_cubic_1pct", "sender.pcap.zst"), tmp_path, counters="none", workers=1)
    assert "controllers" not in cct.corpus.open(tmp_path).overview()
    assert cli.main(["corpus", "info", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "unknown" not in said
    assert "a run with --tasks flows,explain,identify identifies them" in said
    page = write_pages(cct.corpus.open(tmp_path), tmp_path / "pages", pages=0).read_text()
    assert '<td class="text">not identified</td>' in page


def test_no_time_is_said_to_be_left_before_anything_is_done():
    tally = Tally(4, already=0)
    assert tally.text() == "0 of 4 inputs"
    tally.tick()
    assert re.fullmatch(r"1 of 4 inputs, .*/s, 0:0\d left", tally.text())


def test_replays_are_a_row_per_bulk_flow_with_agreement_where_counters_tell(corpus):
    rows = corpus.replays.frame()
    assert set(rows["controller"]) == {"bbr2"}
    assert len(rows) == len(corpus.verdicts)
    assert rows["bw_within_1_percent"].notna().sum() <= 1
    assert (rows.loc[rows["refused"].isna(), "calls"] > 0).all()


def test_drift_is_quantiles_over_time(corpus):
    frame = corpus.drift("goodput_bps", every="min")
    assert frame["flows"].sum() == len(corpus.flows)
    assert (frame["low"] <= frame["median"]).all()
    assert (frame["median"] <= frame["high"]).all()
    assert frame["time"].is_monotonic_increasing
    with pytest.raises(ArgumentError, match="no table of this corpus"):
        corpus.drift("nosuch")


def test_plots_are_axes_of_matplotlib(corpus):
    pytest.importorskip("matplotlib").use("Agg")
    bars = corpus.plot_verdicts("source")
    assert bars.get_xlim() == (0, 1)
    assert bars.patches
    assert len(corpus.plot_drift("goodput_bps", "h", by="source").lines) == len(set(corpus.flows.frame()["source"]))


# ---------------------------------------------------------------------------------------------------------------------
def flows_of(rng, groups, flows, spread, among, error=0.05):
    """Flows of groups whose true values are drawn; returns the frame and {group: true value}."""
    truth = np.exp(rng.normal(np.log(40_000), among, groups))
    rows = []
    for group in range(groups):
        for _ in range(flows[group % len(flows)]):
            value = np.exp(rng.normal(np.log(truth[group]), np.hypot(spread, error)))
            low, high = value * np.exp(-1.96 * error), value * np.exp(1.96 * error)
            rows.append({"source": f"g{group:02d}", "x": value, "x_low": low, "x_high": high})
    return pd.DataFrame(rows), {f"g{group:02d}": truth[group] for group in range(groups)}


def test_intervals_of_groups_hold_about_as_often_as_they_say():
    rng = np.random.default_rng(5)
    inside, among, of = 0, 0, 0
    for _ in range(6):
        frame, truth = flows_of(rng, 12, (4, 8, 20), spread=0.2, among=0.3)
        found = pooled(frame, "x", "source").set_index("source")
        true = pd.Series(truth)
        inside += int(((found["low"] <= true) & (true <= found["high"])).sum())
        among += int(((found["among_low"] <= true) & (true <= found["among_high"])).sum())
        of += len(true)
    assert 0.88 < inside / of <= 1.0  # 95 % of 72, and chance
    assert 0.86 < among / of <= 1.0


def test_the_company_of_other_groups_brings_small_ones_nearer_to_the_truth():
    rng = np.random.default_rng(6)
    alone, together = [], []
    for _ in range(5):
        frame, truth = flows_of(rng, 15, (3, 30), spread=0.4, among=0.15)
        found = pooled(frame, "x", "source").set_index("source")
        true = np.log(pd.Series(truth))
        alone.append(((np.log(found["value"]) - true) ** 2).mean())
        together.append(((np.log(found["among"]) - true) ** 2).mean())
    assert np.mean(together) < 0.8 * np.mean(alone)


def test_flows_that_differ_by_no_more_than_their_errors_have_no_spread():
    frame, _ = flows_of(np.random.default_rng(7), 1, (400,), spread=0.0, among=0.0, error=0.1)
    (row,) = pooled(frame, "x", "source").to_dict("records")
    assert row["spread"] < 1.04
    assert row["flows"] == 400
    assert row["low"] < row["value"] < row["high"]
    assert pooled(frame.assign(x_low=np.nan), "x", "source").empty


def test_two_flows_say_nothing_by_themselves():
    frame, _ = flows_of(np.random.default_rng(8), 2, (2, 5), spread=0.1, among=0.1)
    found = pooled(frame, "x", "source").set_index("source")
    assert np.isnan(found.loc["g00", "value"])
    assert found.loc["g01", "value"] > 0
    assert found["among"].isna().all()
    assert found["flows"].tolist() == [2, 5]


def test_fitted_quantities_are_pooled_per_group_of_the_corpus(tmp_path):
    """Three simulated flows over nearly the same path, as captures: its RTT and rate are found together."""
    pytest.importorskip("matplotlib").use("Agg")
    for rtt_ms in (29, 30, 31):
        path = cct.Path(rate="4Mbit", rtt=f"{rtt_ms}ms", buffer="2bdp")
        run = cct.simulate(path, ["bbr2022"], duration="3s", seed=1, packets=True)
        (tmp_path / "in").mkdir(exist_ok=True)
        run.to_pcap(tmp_path / "in" / f"{rtt_ms}-dsl.pcap")
    cct.corpus.run(tmp_path / "in", tmp_path / "out", "fit,flows", workers=1, source=r"-(\w+)\.pcap")
    corpus = cct.corpus.open(tmp_path / "out")
    (row,) = corpus.pooled("base_rtt_us", by="source").to_dict("records")
    assert (row["source"], row["flows"]) == ("dsl", 3)
    assert row["value"] == pytest.approx(30_000, rel=0.01)
    assert row["low"] < 29_500
    assert row["high"] > 30_500
    assert row["spread"] == pytest.approx(1 + 1 / 30, abs=0.005)
    assert len(corpus.plot_pooled("base_rtt_us").get_yticklabels()) == 1
    (rate,) = corpus.pooled("rate_bps", by="network").to_dict("records")
    assert rate["value"] == pytest.approx(4e6, rel=0.01)
    assert set(corpus.collapse_by("source").columns) >= {
        "source",
        "controller",
        "flows",
        "threshold_sd_us",
        "share_yes",
        "sd_us_spread",
    }
    with pytest.raises(ArgumentError, match="allowed are rate_bps"):
        corpus.pooled("nosuch")


# ---------------------------------------------------------------------------------------------------------------------
def test_the_page_leads_from_the_corpus_to_a_flow(corpus, tmp_path, capfd):
    assert cli.main(["corpus", "report", corpus.where, "-o", str(tmp_path / "pages"), "--flows", "2"]) == 0
    page = (tmp_path / "pages" / "index.html").read_text()
    links = re.findall(r'<a href="([^"]+)">', page)
    assert len(links) == 2
    for link in links:
        assert (
            "<canvas" in (tmp_path / "pages" / link).read_text() or (tmp_path / "pages" / link).stat().st_size > 10_000
        )
    assert page.count("<tr data-verdict=") == len(corpus.verdicts)
    assert f"<dt>Errors</dt><dd>{len(corpus.errors)}</dd>" in page
    assert "<b>bad" not in page
    assert "&lt;b&gt;bad.pcap" in page
    assert "http" not in re.sub(r"<title>.*?</title>", "", page).replace("http-equiv", "")


def test_the_page_counts_what_the_tables_hold(corpus, tmp_path):
    page = write_pages(corpus, tmp_path / "pages", pages=0).read_text()
    assert "<a href" not in page
    told = re.search(r"Goodput</h3><p class=\"soft\">([\d,]+) flows", page).group(1)
    assert int(told) == len(corpus.verdicts)
    with pytest.raises(ArgumentError, match="no column"):
        write_pages(corpus, tmp_path / "pages", by="nosuch")


def test_every_plain_row_can_be_sorted_and_read_without_the_script(corpus, tmp_path):
    page = write_pages(corpus, tmp_path / "pages", pages=0).read_text()
    rows = re.findall(r"<tr data-verdict=.*?</tr>", page)
    assert rows
    for row in rows:
        numbers = re.findall(r'<td data-v="([^"]+)">', row)
        assert len(numbers) == 5
        assert all(number == "NaN" or float(number) >= 0 for number in numbers)


def test_a_report_reads_a_capture_once_and_asks_nothing_that_the_run_has_found(tmp_path, monkeypatch):
    run = cct.simulate(cct.Path(rate="10Mbit", rtt="20ms", buffer="2bdp"), ["cubic6", "bbr2022"], "4s", packets=True)
    (tmp_path / "in").mkdir()
    run.to_pcap(tmp_path / "in" / "two.pcap")
    cct.corpus.run(tmp_path / "in", tmp_path / "out", "flows,explain,identify", workers=1)
    corpus = cct.corpus.open(tmp_path / "out")
    read = []

    def analyzed(files, *arguments, **options):
        read.append(files)
        return analyze(files, *arguments, **options)

    monkeypatch.setattr("cctrace.analysis.analyze.analyze", analyzed)
    monkeypatch.setattr("cctrace.analysis.one_flow.identified", _never)
    monkeypatch.setattr("cctrace.fit.collapse.Collapse.fit", _never)
    index = write_pages(corpus, tmp_path / "pages").read_text("utf-8")
    assert len(read) == 1
    links = re.findall(r'<a href="([^"]+)">', index)
    assert len(links) == 2
    pages = [(tmp_path / "pages" / link).read_text("utf-8") for link in links]
    told = [re.search(r"Which congestion control sent it: ([^<]*)", page)[1] for page in pages]
    assert any(name.startswith("cubic") for name in told)
    assert any(name.startswith("bbr2022") for name in told)


def _never(*given, **options):
    raise AssertionError("the run of the corpus has found this")
