"""Figures of papers with the testbed varied, and what the testbeds of the papers are checked by."""

import pytest

from cctrace import papers
from cctrace.papers import kumar, kumar_unpaced, measure
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Figure
from cctrace.papers.runs import Run
from cctrace.papers.sizes import sizes
from cctrace.papers.varied import AS_CHOSEN, VARIATIONS, Variation, Varied

DRAIN = 1
pytestmark = pytest.mark.usefixtures("shelf")


def a_run(**changes):
    return Run(
        {"path": {"rate": "10Mbit", "rtt": "20ms", "buffer": "2bdp"}, "flows": [{"cc": "reno", "ack_every": 2}]}
        | {"duration": "2s", "seed": 1}
        | changes
    )


class Goodput(Figure):
    """A figure with one run, one statement and a statement that is not asked for."""

    varied = {"cc": "cc"}

    def run(self, at, p):
        return a_run(flows=[{"cc": at["cc"]}], duration=p["duration"])

    def row(self, labels, result, p):
        return {"goodput_mbps": result["flows"][0]["goodput_bps"] / 1e6}

    def claims(self, made):
        (mbps,) = made.means("goodput_mbps", "cc").values()
        yield Stated("1", "fills the link").judged({"most of it": mbps > 9}, f"{mbps:.3f}", reading=AS_CHOSEN)
        yield Stated("1", "another").judged({"it": True}, f"{mbps:.3f}")


def varied(variations, **fields):
    base = Goodput("1", "goodput", {"cc": ("cubic6",), "duration": "4s", "seeds": (1,)})
    return Varied(
        "1-testbed", "varied", base=base, wanted=("fills the link",), line="cc", variations=variations, **fields
    )


def test_a_variation_changes_path_flows_length_and_buffer_of_a_run_and_nothing_else():
    run = a_run()
    made = Variation({"loss": "1%"}, {"ack_every": 1}, longer=0.5, buffer=2).of(run).arguments
    assert made == run.arguments | {
        "path": run.arguments["path"] | {"loss": "1%", "buffer": "4bdp"},
        "flows": [{"cc": "reno", "ack_every": 1}],
        "duration": "1s",
    }
    assert run == a_run()  # the run of the figure itself stays


def test_no_two_variations_of_a_testbed_make_the_same_runs():
    run = a_run(path={"rate": "10Mbit", "rtt": "20ms", "buffer": "2bdp"})
    assert len({variation.of(run).key for variation in VARIATIONS.values()} | {run.key}) == len(VARIATIONS) + 1


def test_every_variation_is_a_reading_that_the_figure_itself_judges():
    made = varied({"lossy": Variation({"loss": "5%"}), "twice as long": Variation(longer=2)})()
    assert [(claim.claim, claim.reading, claim.mark) for claim in made.claims] == [
        ("fills the link", "lossy", "not held"),
        ("fills the link", "twice as long", "held"),
    ]
    assert made.plot().axes
    assert len(made.table) == 2


def test_a_call_may_choose_variations_and_what_the_figure_varies():
    made = varied({"lossy": Variation({"loss": "5%"}), "as it is": Variation()})(
        variations=("as it is",), duration="2s"
    )
    assert made.table.variation.tolist() == ["as it is"]
    assert isinstance(made.claims[0], Claim)


@pytest.mark.parametrize("paper", ["bbr2plus", "bbrx"])
def test_what_a_testbed_figure_varies_are_statements_of_the_figure_that_it_names(paper):
    figures = papers.figures(paper)
    testbeds = [figure for figure in figures.values() if isinstance(figure, Varied)]
    assert testbeds
    for figure in testbeds:
        base = figures[figure.name.removesuffix("-testbed")]
        assert figure.base is base
        said = {claim.claim for claim in base(quick=True).claims}
        assert set(figure.wanted) <= said


# --- the papers' numbers drawn ----------------------------------------------------------------------------------------
def test_the_numbers_of_a_paper_are_drawn_beside_ours_with_the_nearest_reading_in_front():
    more, falls, own = (Stated(*one, "+200") for one in (("2", "more"), ("2", "falls"), ("7", "ours")))
    claims = [more.judged({}, sizes={"MSS": (200, ours)}, reading=f"{ours}") for ours in (20, 220, 40_000)]
    claims += [falls.judged({"it": True}), own.judged({}, sizes={"": (1, 1)}, ours=True)]
    axes = sizes(claims).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2: more (+200)"]
    *_, readings, nearest = axes.lines
    assert readings.get_xdata() == pytest.approx([0.1, 1.1, 10])  # the last lies beyond the edge
    assert nearest.get_xdata() == pytest.approx([1.1])
    assert sizes(claims[3:4]) is None


# --- Kumar's host without fq ------------------------------------------------------------------------------------------
def test_without_fq_the_window_alone_holds_packets_back_and_drain_never_ends():
    arguments = kumar.run_of("bbr2016", 0.25, 1, "1s").arguments
    paced, unpaced = measure.simulation(**arguments), kumar_unpaced.simulation(**arguments)
    assert unpaced["means"][0]["mode"] == DRAIN != paced["means"][0]["mode"]
    assert unpaced["means"][0]["cwnd_segments"] > 1.2 * paced["means"][0]["cwnd_segments"]
    assert unpaced["means"][0]["queue_delay_us"] > 4 * paced["means"][0]["queue_delay_us"]


def test_a_link_that_replays_a_trace_has_the_opportunities_of_the_rates_it_is_made_of():
    from cctrace.papers.bbr2plus_setup import over_opportunities

    path = {"rate": [[0, 12e6], [2, 6e6]], "rtt": "20ms", "buffer": "100kB"}
    made = over_opportunities(path, 4, flows=[{"cc": "cubic6"}], seed=1)
    assert made["opportunities"] == pytest.approx([1000, 1000, 500, 500], abs=2)  # of 1500 bytes
    assert made["flows"][0]["goodput_bps"] < 9e6  # the mean of both rates
