"""The collapse model in its loop: its parts against simulated recursions, the whole against closed-loop runs."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks import predict
from cctrace.analytic import closedloop
from cctrace.analytic.closedloop import collapse_probability
from cctrace.analytic.distributions import Empirical, TruncatedNormal
from cctrace.analytic.jittered import DRAWS, SENDERS, Link, burst_segments, pacing_share
from cctrace.errors import ArgumentError

SLOW = Link(40e6, TruncatedNormal(40_000, 10_000))
FAST = Link(1e9, TruncatedNormal(5000, 1250), ack_every=2)
BBR2016 = SENDERS["bbr2016"]


def with_sd(path, sd):
    return replace(path, delay=TruncatedNormal(path.delay.mean_us, sd))


@pytest.mark.parametrize("draws", ["packet", "slot"])
def test_the_loop_time_is_that_of_a_paced_window_over_a_jittering_path(draws):
    path = replace(SLOW, draws=draws)
    state = closedloop.loop(path, BBR2016)
    pacing = state.throughput * state.overestimate * pacing_share(path, BBR2016)
    window = round(state.throughput * state.loop_us)
    rng, count = np.random.default_rng(6), 60_000
    sent, acked, slots = np.zeros(count), np.zeros(count), {}
    for n in range(count):
        sent[n] = max(sent[n - 1] + 1 / pacing if n else 0, acked[n - window] if n >= window else 0)
        key = n if draws == "packet" else int(sent[n] / path.slot_us)
        jitter = slots.setdefault(key, max(rng.normal(40_000, 10_000), 0))
        acked[n] = max(sent[n] + jitter, acked[n - 1])
    throughput = (count - count // 4) / (sent[-1] - sent[count // 4])
    # The formula takes packets as evenly spaced, which the ACKs' clumps are not: 4 % in trials over seeds.
    assert throughput == pytest.approx(state.throughput, rel=0.06)


def test_a_reordering_path_has_almost_no_loop_excess():
    state = closedloop.loop(replace(SLOW, ordered=False), BBR2016)
    assert 1 < state.loop_us / state.delay_us < 1.05
    assert closedloop.loop(SLOW, BBR2016).loop_us > 1.3 * SLOW.delay.mean()


def test_order_at_packet_spacing_hides_the_collapse_that_slow_or_reordering_jitter_shows():
    per_packet, slow, reordering = FAST, replace(FAST, draws="slot"), replace(FAST, ordered=False, ack_every=1)
    p = [collapse_probability(path, BBR2016) for path in (per_packet, slow, reordering)]
    assert p[0] < 0.05 < 0.5 < p[1] < p[2]


def test_jitter_that_wanders_collapses_a_flow_that_independent_draws_do_not():
    # Packets behind each other see the same low delay: order no longer hides it. 8 and 50 % of simulated runs.
    independent, wandering = with_sd(SLOW, 9000), replace(with_sd(SLOW, 9000), rho=0.99)
    assert collapse_probability(independent, BBR2016) < 0.4 < collapse_probability(wandering, BBR2016)


@pytest.mark.parametrize("path", [SLOW, replace(FAST, draws="slot"), replace(SLOW, ordered=False)])
def test_more_jitter_means_more_collapse_up_to_certainty(path):
    sds = np.array([0.02, 0.1, 0.2, 0.3, 0.45]) * path.delay.mean_us
    p = [collapse_probability(with_sd(path, sd), BBR2016) for sd in sds]
    assert p[0] < 1e-6
    assert p[-1] > 0.9
    assert np.all(np.diff(p) >= -1e-9)


def test_what_later_versions_add_to_the_window_delays_the_collapse():
    path = with_sd(SLOW, 15_000)
    p2016, p2019 = (collapse_probability(path, SENDERS[name]) for name in ("bbr2016", "bbr2019"))
    assert p2019 < p2016 / 3


def test_the_papers_oracles_help_as_it_says():
    path = with_sd(replace(FAST, draws="slot"), 1500)
    plain, cbe, cmrt = (
        collapse_probability(path, SENDERS[name]) for name in ("bbr2016", "bbr2016_cbe", "bbr2016_cmrt")
    )
    assert cmrt == 0  # the right RTT: the window never falls short
    assert cmrt < cbe < plain  # the right bandwidth: no spiral, but the window still shrinks with min_rtt


def test_the_queue_is_what_the_window_holds_beyond_the_loop():
    state = closedloop.loop(SLOW, BBR2016, 1.0)
    empty = (state.loop_us - state.quanta / SLOW.capacity) / (2 * state.overestimate)
    delta = closedloop.queue_delay_us(SLOW, BBR2016, [empty - 1000, empty, empty + 1000])
    assert delta == pytest.approx([0, 0, 2 * state.overestimate * 1000], abs=1e-6)


def test_the_expected_minimum_lies_between_the_lowest_draw_and_the_mean():
    path = replace(SLOW, draws="slot")
    assert 10_000 < closedloop.expected_min_rtt(path, BBR2016) < 40_000
    assert closedloop.expected_min_rtt(path, BBR2016) > closedloop.expected_min_rtt(
        replace(path, ordered=False), BBR2016
    )


def test_bursts_follow_the_kernels_autosizing():
    packets_per_us = 40e6 / 8e6 / 1448
    assert burst_segments(SLOW, packets_per_us) == 3  # 5 MB/s >> 10 is 4882 bytes
    assert burst_segments(SLOW, packets_per_us / 20) == 2
    assert burst_segments(SLOW, packets_per_us / 100) == 1  # below 1.2 Mbit/s
    assert burst_segments(FAST, 25 * packets_per_us) == 45  # 64 KB


# --- against closed-loop runs of the released code --------------------------------------------------------------------
@pytest.fixture(scope="module")
def rows():
    tables = [pd.read_csv(predict.HERE / name) for name in ("jitter.csv", "reorder.csv")]
    return predict.predictions(pd.concat(tables).query("algorithm in ['bbr2016', 'bbr2019']"))


def test_collapsed_runs_are_told_from_the_others_far_better_than_by_the_papers_form(rows):
    chosen = rows[rows.algorithm == "bbr2016"]
    seen, runs = chosen.collapsed.to_numpy(), chosen.runs.to_numpy()
    assert predict.auc(chosen.model.to_numpy(), seen, runs) >= 0.95
    model, paper = (predict.brier(chosen[name].to_numpy(), seen, runs) for name in ("model", "paper"))
    assert model < paper / 4
    inside = rows[rows.domain == "inside"]
    assert predict.auc(inside.model.to_numpy(), inside.collapsed.to_numpy(), inside.runs.to_numpy()) >= 0.95


def test_where_most_runs_agree_the_model_says_the_same(rows):
    clear = rows[(rows.algorithm == "bbr2016") & rows.collapsed.isin([0, 1])]
    assert ((clear.model >= 0.5) == (clear.collapsed == 1)).all()


def grid_of(name):
    runs = pd.read_csv(predict.HERE / name)
    runs[["kind", "sd_ms"]] = runs.scenario.str.split("_", expand=True)
    return runs.assign(sd_ms=runs.sd_ms.astype(float), collapsed=runs.collapse == "yes")


@pytest.fixture(scope="module")
def grid():
    return grid_of("grid.csv")


def test_thresholds_are_within_15_percent_on_the_models_links_and_within_30_on_others(grid):
    assert grid.kind.nunique() == 17
    for kind, group in grid.groupby("kind"):
        shares = group.groupby("sd_ms").collapsed.agg(collapsed="mean", runs="size").reset_index()
        _, observed, _ = predict.observed_threshold(shares)
        off = 1.3 if "x" in kind else 1.15  # docs/models.md: links looked at after the model was made
        below, above = (collapse_probability(predict.link_of(kind, f * observed), BBR2016) for f in (1 / off, off))
        assert below < 0.5 <= above, kind


def test_thresholds_of_bbr2_and_bbr3_under_reordering_are_within_15_percent_on_all_links():
    later = grid_of("grid_later.csv")
    assert later.groupby("algorithm").kind.nunique().to_dict() == {"bbr2": 5, "bbr3": 5}
    for (name, kind), group in later.groupby(["algorithm", "kind"]):
        shares = group.groupby("sd_ms").collapsed.agg(collapsed="mean", runs="size").reset_index()
        _, observed, _ = predict.observed_threshold(shares)
        links = [predict.link_of(kind, f * observed) for f in (0.85, 1.15)]
        below, above = (collapse_probability(link, SENDERS[name]) for link in links)
        assert below < 0.5 <= above, (name, kind)
        assert closedloop.domain(links[0], SENDERS[name]).inside


def thresholds_of(*names):
    """Yield (algorithm, kind, observed threshold in ms or None) of grids."""
    for (name, kind), group in pd.concat([grid_of(name) for name in names]).groupby(["algorithm", "kind"]):
        shares = group.groupby("sd_ms").collapsed.agg(collapsed="mean", runs="size").reset_index()
        seen = predict.observed_threshold(shares)
        yield name, kind, None if seen is None else seen[1]


def test_thresholds_of_jitter_before_the_queue_are_within_20_percent_where_the_domain_says_so():
    inside, outside = set(), set()
    for name, kind, observed in thresholds_of("grid_before.csv", "grid_before_later.csv"):
        if observed is None:  # not crossed: nothing to hold the model against
            continue
        sender = SENDERS[name]
        if not closedloop.domain(predict.link_of(kind, observed), sender).inside:
            outside.add((name, kind))
            continue
        inside.add((name, kind))
        links = [predict.link_of(kind, f * observed) for f in (0.8, 1.2)]  # docs/models.md: -17 to +16 %
        assert [collapse_probability(link, sender) >= 0.5 for link in links] == [False, True], (name, kind)
    assert len(inside) == 35
    assert outside == {("bbr2016", "prejit10x30"), ("bbr2016", "prejit10x50")}  # 57 and 32 % too high


def test_the_largest_fixed_point_is_found_where_it_lies_close_to_the_smaller_one():
    # Roots at 1.055 and 1.096 here: a search that misses both takes the least estimate there is, and the probability
    # of a collapse then falls by half between 17 and 18 ms.
    sds = np.linspace(14, 24, 11)
    links = [predict.link_of("prejit40x80", sd) for sd in sds]
    assert all(1.07 < closedloop.loop(link, BBR2016).overestimate < 1.13 for link in links)
    assert np.all(np.diff([collapse_probability(link, BBR2016) for link in links]) > 0)


def test_jitter_before_the_queue_makes_bbr2022_collapse_earlier():
    held = [predict.link_of("prejit50x20", sd) for sd in (8.2, 10)]  # behind the queue this path has none up to 17 ms
    assert all(collapse_probability(replace(link, before=False), SENDERS["bbr2022"]) < 0.5 for link in held)


def test_the_domain_says_where_runs_of_bbr2_and_bbr3_in_order_lose_half_of_the_link():
    said = {"bbr2": (0.41, 0.68), "bbr3": (0.7, 1.1)}
    thresholds = list(thresholds_of("grid_later_order.csv"))
    assert {name for name, *_ in thresholds} == set(said)
    for name, kind, observed in thresholds:
        link = predict.link_of(kind, observed)
        low, high = said[name]
        assert low <= round(1000 * observed / link.delay.mean_us, 2) <= high, (name, kind)
        reason = closedloop.domain(link, SENDERS[name]).reason
        assert all(f"{share:g}" in reason for share in (low, high))
        assert collapse_probability(link, SENDERS[name]) < 0.01  # the model does not see it


def test_slow_jitter_before_the_queue_is_outside_the_models_domain_and_the_reader_told_to_simulate():
    slow = replace(SLOW, draws="slot", before=True)
    assert "cctrace sweep" in closedloop.domain(slow, BBR2016).text
    assert closedloop.domain(replace(slow, before=False), BBR2016).inside


def test_near_the_threshold_the_model_ranks_runs_nearly_as_well_as_anything_could(grid):
    grid = grid[~grid.kind.str.contains("x")]  # the links that the model was made on
    kept = grid.scenario.drop_duplicates()[::4]  # every fourth jitter, for speed
    fine = predict.predictions(grid[grid.scenario.isin(kept)])
    seen, runs = fine.collapsed.to_numpy(), fine.runs.to_numpy()
    reached, best = (predict.auc(fine[name].to_numpy(), seen, runs) for name in ("model", "collapsed"))
    assert reached >= 0.95  # of the project's issue
    assert best - reached < 0.02  # the rest is the seeds'
    model, paper = (predict.brier(fine[name].to_numpy(), seen, runs) for name in ("model", "paper"))
    assert model < paper / 4


def test_most_recordings_are_called_right(capsys):
    predict.report_recordings(pd.read_csv(predict.HERE / "recordings.csv"))
    assert "model 9 of 10, paper 5 of 10" in capsys.readouterr().out


def test_buffer_shares_are_within_008_inside_every_stated_domain(capsys):
    predict.report_share(predict.HERE / "competition.csv")
    out = capsys.readouterr().out
    errors = {line.split()[0]: float(line.split()[-1]) for line in out.splitlines() if "largest error" in line}
    assert set(errors) == {"Q_r", "Ware", "Mishra"}
    assert max(errors.values()) <= 0.08


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("ordered", [True, False])
def test_measured_delays_even_a_handful_give_a_probability(draws, ordered):
    samples = np.random.default_rng(1).normal(40_000, 12_000, 300)
    for delay in (Empirical(samples), Empirical(samples[:5]), Empirical([40_000.0])):
        path = replace(SLOW, delay=delay, draws=draws, ordered=ordered)
        assert 0 <= collapse_probability(path, BBR2016) <= 1


# --- bad input --------------------------------------------------------------------------------------------------------
def test_wrong_paths_and_missing_thresholds_are_named():
    with pytest.raises(ArgumentError, match="draws='word' is not one of"):
        Link(1e9, SLOW.delay, draws="word")
    with pytest.raises(ArgumentError, match="rate_bps"):
        Link(0, SLOW.delay)
    with pytest.raises(ArgumentError, match=r"rho is 1; it must lie in \[0, 1\)"):
        replace(SLOW, rho=1)
    with pytest.raises(ArgumentError, match="share"):
        closedloop.loop(SLOW, BBR2016, 1.5)
    with pytest.raises(ArgumentError, match="jitter has no threshold"):
        closedloop.threshold(lambda sd: with_sd(SLOW, sd), BBR2016, 100, 200)


def test_the_domain_names_what_the_model_was_not_made_for():
    assert closedloop.domain(SLOW, BBR2016).inside
    assert "BBRv2" in closedloop.domain(SLOW, SENDERS["bbr2"]).reason
    assert "packets in flight" in closedloop.domain(Link(1e6, TruncatedNormal(20_000, 1000)), BBR2016).reason
    assert "slow jitter" in closedloop.domain(replace(SLOW, draws="slot"), SENDERS["bbr2019"]).reason
    assert "autocorrelated" in closedloop.domain(replace(SLOW, rho=0.5), BBR2016).reason
