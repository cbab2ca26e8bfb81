"""Figures of papers: names, marks that follow from numbers, results on disk, and every figure in its quick version."""

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from cctrace import papers
from cctrace.cli import main
from cctrace.errors import ArgumentError
from cctrace.papers import runs
from cctrace.papers.claims import HELD, IN_PART, NOT_HELD, NOT_RUN, UNDER, Stated, mark_of, statements, summary
from cctrace.papers.runs import Run, run_all
from tests.places import REPOSITORY

PATH = {"rate": "10Mbit", "rtt": "20ms", "buffer": "1bdp", "jitter": "normal:sd=2ms"}
# What the quick figures come to, claim by claim: runs are the same to the last digit on every machine. Where a change
# of the simulator, of a controller or of a claim moves a mark, find out why before recording it.
QUICK_MARKS = json.loads((Path(__file__).parent / "quick_marks.json").read_text(encoding="utf-8"))
DOCS, SECTIONS = REPOSITORY / "docs", ("summary", "claims")
FIGURES = [(paper, name) for paper in papers.papers() for name in papers.figures(paper)]


def a_run(seed=1, cc="bbr2016", **changes):
    return Run({"path": PATH, "flows": [{"cc": cc}], "duration": "300ms", "seed": seed} | changes)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Quick figures by paper and name; their runs are kept from test to test."""
    place, made = tmp_path_factory.mktemp("results"), {}

    def get(paper, name):
        if (paper, name) not in made:
            (made[paper, name],) = papers.reproduce(paper, name, quick=True)
        return made[paper, name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "store", lambda: place)
        yield get


# --- marks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("directions", "sizes", "mark"),
    [
        ((True, True), (True,), HELD),
        ((True,), (True, False), IN_PART),
        ((True, False), (True, True), NOT_HELD),
        ((), (True, False), NOT_HELD),
        ((), (), NOT_RUN),
    ],
    ids=["all", "a_size_is_off", "a_direction_is_wrong", "no_direction", "nothing"],
)
def test_a_mark_follows_from_directions_and_sizes(directions, sizes, mark):
    assert mark_of(directions, sizes) == mark


@pytest.mark.parametrize(
    ("here", "mark"), [(76, HELD), (124, HELD), (74, IN_PART), (126, IN_PART), (math.nan, IN_PART)]
)
def test_a_size_may_be_off_by_a_quarter_either_way(here, mark):
    made = Stated("2", "lost", "100").judged({"some": True}, "", {"lost": (100, here)})
    assert made.mark == mark


def test_a_claim_tells_direction_size_and_what_failed():
    claim = Stated("2", "95 % lost", "95").judged({"lost": True}, "57", {"lost (%)": (95.0, 57.0)})
    assert (claim.mark, claim.direction, claim.size, claim.failed) == (IN_PART, "lower", 0.6, ("lost (%): 57 for 95",))


def of(claim, held, **fields):
    return Stated("2", claim).judged({"so": held}, **fields)


def test_a_statement_holds_under_a_reading_if_all_its_parts_do():
    half = [of("falls", True, reading="a", part="1"), of("falls", False, reading="a", part="2")]
    both = [of("falls", True, reading="b", part="1"), of("falls", True, reading="b", part="2")]
    assert [one.mark for one in statements(half)] == [NOT_HELD]
    assert [one.mark for one in statements(half + both)] == [UNDER]
    assert [one.mark for one in statements(both)] == [HELD]


def test_the_summary_counts_statements_and_keeps_ours_apart():
    claims = [
        of("a", True),
        of("b", True, reading="x"),
        of("b", False, reading="y"),
        of("c", False),
        of("d", True, ours=True),
    ]
    counts, *rest = summary(claims).splitlines()
    assert counts == (
        "3 statements of the paper: 1 held, 1 held under a reading of what it leaves open, 0 in part, 1 not held. "
        "Of ours: 1, of which 1 held."
    )
    assert rest == ["held under a reading, 2: b (x; 1 of 2 readings)", "not held, 2: c (so)"]


# --- results on disk -------------------------------------------------------------------------------------------------
def test_a_result_is_made_once_and_read_back_to_the_last_digit(shelf, monkeypatch):
    first = run_all([a_run(1), a_run(2), a_run(1)])
    assert first[0] == first[2] != first[1]
    assert len(list(shelf.iterdir())) == 2
    monkeypatch.setattr(Run, "__call__", lambda self: pytest.fail("made again"))
    assert run_all([a_run(1), a_run(2), a_run(1)]) == first


def test_what_is_made_again_has_the_same_digits(shelf):
    assert run_all([a_run(3)]) == run_all([a_run(3)], fresh=True)


def test_an_interrupted_figure_goes_on_where_it_was(shelf):
    seen = []

    def interrupt(done, total):
        seen.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([a_run(seed) for seed in range(4)], on_run=interrupt)
    seen.clear()
    run_all([a_run(seed) for seed in range(4)], on_run=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 4), (3, 4), (4, 4)]


def test_a_damaged_result_is_made_anew(shelf):
    (good,) = run_all([a_run()])
    (file,) = shelf.iterdir()
    file.write_text(file.read_text()[:-5])
    assert run_all([a_run()]) == [good]


def test_the_key_depends_on_arguments_and_controller_and_on_nothing_else():
    assert a_run().key == a_run().key
    others = {a_run(2).key, a_run(cc="bbr2019").key, a_run(cc="bbr2022").key, a_run(duration="400ms").key}
    assert len(others | {a_run().key}) == 5


def test_a_result_of_the_agent_depends_on_the_agents_code_too(monkeypatch):
    ((_, run), *_) = papers.find("bbrx", "table").runs({"bins": [5], "paths": 3, "seeds": [1]})
    seen = []
    monkeypatch.setattr(runs, "_sources", lambda files: seen.extend(file.name for file in files) or "hash")
    runs._package_sources.cache_clear()
    run.key  # noqa: B018
    runs._package_sources.cache_clear()
    assert {"search.py", "environment.py", "pilaw.py", "bottleneck.py"} <= set(seen)


def test_sources_are_compared_without_comments_docstrings_and_annotations(tmp_path):
    same = [
        'def f():\n    """One."""\n    return 1\n',
        'def f():\n    """Two."""\n    # a comment\n    return 1\n',
        'from typing import Any\n\ndef f() -> Any:\n    """One."""\n    return 1\n',
    ]
    files = []
    for k, text in enumerate([*same, "def f():\n    return 2\n", "x: int = 1\ndef f():\n    return 1\n"]):
        (tmp_path / str(k)).mkdir()
        files.append(tmp_path / str(k) / "same.py")
        files[-1].write_text(text)
    hashes = [runs._sources([file]) for file in files]
    assert len(set(hashes[:3])) == 1
    assert len(set(hashes)) == 3


# --- names -----------------------------------------------------------------------------------------------------------
def test_a_wrong_name_lists_what_there_is():
    with pytest.raises(ArgumentError, match=r"paper 'kumra' is not one of kumar, .*; did you mean 'kumar'\?"):
        papers.figures("kumra")
    with pytest.raises(ArgumentError, match="figure of kumar '9' is not one of 1, 2, 3, 4, 8"):
        papers.find("kumar", "9")
    with pytest.raises(ArgumentError, match="has no parameter 'sd'; there are: cc, "):
        papers.find("kumar", "fig2")(sd=1)


def test_the_command_lists_papers_and_figures(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(row["paper"], row["figure"]) for row in listed} == set(FIGURES)
    assert main(["reproduce", "nothing"]) == 2
    assert "is not one of kumar, " in capsys.readouterr().err


@pytest.mark.parametrize("paper", papers.papers())
def test_the_page_of_a_paper_opens_with_its_summary_and_has_a_row_for_each_statement(paper):
    page = (DOCS / f"papers_{paper}.md").read_text(encoding="utf-8")
    opening, table = (page.split(f"<!-- {what} of {paper} -->")[1].split("<!-- end -->")[0] for what in SECTIONS)
    assert page.index("<!-- summary of") < 150
    marks = Counter(re.findall(r"^\| \*\*(.+?)\*\* \| (?!.*\*\(ours\)\*)", table, re.MULTILINE))
    counted = re.match(
        r"\n(\d+) statements.*?: (\d+) held, (\d+) held under .*?, (\d+) in part, (\d+) not held", opening
    )
    assert counted, opening
    said = dict(zip((HELD, UNDER, IN_PART, NOT_HELD), map(int, counted.groups()[1:]), strict=True))
    assert {mark: marks[mark] for mark in said} == said
    assert sum(marks.values()) == int(counted[1])
    for picture in re.findall(r"\]\((_static/.*?)\)", opening):
        assert (DOCS / picture).is_file()


# --- the figures -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("paper", "name"), FIGURES, ids=[f"{paper}-{name}" for paper, name in FIGURES])
def test_a_quick_figure_has_a_table_a_plot_and_the_recorded_marks(quick, paper, name):
    made = quick(paper, name)
    assert len(made.table) > 0
    assert not made.table.select_dtypes("number").isna().all().any()
    assert made.plot().axes
    assert [claim.mark for claim in made.claims] == QUICK_MARKS[paper][name]
    for claim in made.claims:
        assert claim.claim
        assert claim.paper
        assert "nan" not in claim.here.split()


def test_a_mark_is_not_held_in_full_with_failed_conditions(quick):
    for paper, name in (("kumar", "2"), ("bbr2plus", "19"), ("obbr", "12")):
        for claim in quick(paper, name).claims:
            assert (claim.mark == HELD) == (not claim.failed)


def test_the_command_prints_claims_as_json_and_writes_tables_and_plots(quick, tmp_path, capsys):
    quick("kumar", "2")
    assert main(["reproduce", "kumar", "fig2", "--quick", "--workers", "1", "--json", "-o", str(tmp_path)]) == 0
    claims = json.loads(capsys.readouterr().out)
    assert {"figure", "claim", "paper", "here", "mark"} <= set(claims[0])
    assert {file.name for file in tmp_path.iterdir()} == {
        "kumar_2.csv", "kumar_2_runs.csv", "kumar_2.png", "kumar_sizes.png",
    }  # fmt: skip


def test_the_papers_model_without_jitter_to_speak_of_keeps_the_link_and_loses_it_with_much():
    from cctrace.papers.kumar_model import LINK_MBPS, bandwidth

    assert bandwidth(100.0, 0.0, 30.0, seed=1) == pytest.approx(LINK_MBPS)
    assert bandwidth(1500.0, 0.0, 30.0, seed=1) < 0.05 * LINK_MBPS
    assert bandwidth(1500.0, 20_000.0, 30.0, seed=1) == pytest.approx(LINK_MBPS)  # a queue hides the jitter


def test_a_users_own_trace_runs_where_figures_take_traces(shelf, tmp_path, capsys):
    trace = tmp_path / "own.trace"
    trace.write_text("".join(f"{ms}\n" for ms in range(1, 11)))
    (made,) = papers.reproduce("bbr2plus", "23", quick=True, traces=[trace], systems=("BBRv2",), duration="2s")
    assert made.runs[["scenario", "path"]].to_numpy().tolist() == [["own traces", "own.trace"]]
    assert 0 < made.runs.goodput_mbps[0] < 12.0
    trace.write_text("".join(f"{2 * ms}\n" for ms in range(1, 11)))  # the same name, another content
    (other,) = papers.reproduce("bbr2plus", "23", quick=True, traces=[trace], systems=("BBRv2",), duration="2s")
    assert other.runs.goodput_mbps[0] < made.runs.goodput_mbps[0]
    assert main(["reproduce", "kumar", "2", "--trace", str(trace)]) == 2
    assert "figures of kumar that take link traces: none" in capsys.readouterr().err


def test_the_range_of_beta_is_what_stays_near_the_best_utility():
    from cctrace.papers.bbrx import flat_range

    assert flat_range([0.1, 0.2, 0.3, 0.4, 0.5], [1.0, 2.0, 1.97, 1.0, 1.99]) == (0.2, 0.3)
    assert flat_range([0.1, 0.2], [-1.0, -2.0]) == (0.1, 0.1)


def test_an_estimate_is_late_until_it_is_first_right_and_never_later_than_the_next_change():
    from cctrace.papers.obbr_drop import late_s

    line = {"time_s": [9.0, 10.0, 11.0, 12.0, 13.0], "bw_Bps": [2.5e6, 2.5e6, 2.5e6, 0.6e6, 2.5e6]}
    assert late_s(line, 10, 5, 20) == 2.0
    assert late_s(line, 10, 1, 20) == 10.0


def test_a_session_of_obbr_ends_when_its_file_is_delivered(shelf):
    only = {"systems": ("BBR",), "rivals": ("CUBIC",), "ratios": (0.5,), "clients": ("tc on loopback",)}
    (made,) = papers.reproduce("obbr", "12", seeds=(1,), size="20MB", **only)
    (faster,) = made.runs.to_dict("records")
    assert max(faster["goodput_mbps"], faster["rival_mbps"]) * faster["seconds"] == pytest.approx(160, rel=0.02)


def test_the_goodput_of_each_of_several_sessions_ends_with_its_own_file(shelf):
    (made,) = papers.reproduce("obbr", "8", systems=("BBR-S",), flows=(3,), clients=("tc on loopback",), size_mb=20)
    (row,) = made.runs.to_dict("records")
    assert row["least_mbps"] < row["goodput_mbps"] < row["most_mbps"]
    last_s = 20 * 8 / row["least_mbps"]
    assert 3 * 20 * 8 / last_s == pytest.approx(row["used"] * 100 * 1252 / 1294, rel=1e-6)  # the slowest ends the run
    assert row["most_mbps"] * last_s > 1.05 * 20 * 8  # the fastest had its file before


def test_some_systems_alone_make_a_table_and_no_claims_that_compare_all(shelf):
    (made,) = papers.reproduce("obbr", "14", quick=True, systems=("BBR", "CUBIC"), paths=((30, 1.0),), kinds=())
    assert made.table.system.tolist() == ["BBR", "CUBIC"]
    assert made.claims == []
    assert made.plot().axes


def test_obbrs_streaming_session_has_quality_switches_and_rebuffering(quick):
    rows = quick("obbr", "14").table
    assert rows.quality.between(0, 9).all()
    lossy = rows[rows.path == "30 Mbit/s, 1 %"].set_index("system")
    assert lossy.quality["CUBIC"] + 2 < lossy.quality["BBR"]
    assert (rows.rebuffering_pct >= 0).all()
    assert {claim.figure for claim in quick("obbr", "14").claims} == {"14"}
