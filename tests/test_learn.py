"""BBRx's learning agent: it climbs to the one maximum, counts what it may count, and can be interrupted."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cctrace as cct
from cctrace.cc.bbrx import table_values
from cctrace.cli import main
from cctrace.errors import ArgumentError, FormatError
from cctrace.learn import Agent, Ascent, Environment, Search, simulated, statistics


def climbed(utility, search=None):
    search = search or Search()
    while (wanted := search.wanted()) is not None:
        search.note(utility(*wanted))
    return search


@settings(max_examples=60)
@given(top=st.floats(0.05, 1.5), curvature=st.floats(0.5, 5.0))
def test_the_search_finds_the_maximum_of_a_concave_utility(top, curvature):
    search = climbed(lambda k, beta: 10 - curvature * (beta - top) ** 2 - (k - 4))
    k, beta = search.elected()
    assert k == 4
    assert curvature * (beta - top) ** 2 <= 0.02 * 10  # within 2 % of the best utility
    assert len(search.tried) <= 15


@settings(max_examples=30)
@given(top=st.floats(0.15, 1.2), curvature=st.floats(0.5, 3.0))
def test_gradient_ascent_climbs_a_concave_utility_without_noise(top, curvature):
    def utility(k, beta):
        return 5 - curvature * (beta - top) ** 2 - (k - 4)

    search = climbed(utility, Ascent())
    assert search.elected()[0] == 4
    assert utility(*search.elected()) >= max(utility(4, 0.45), 0.97 * 5)
    assert len(search.tried) <= 15


def test_an_agent_that_continues_follows_an_optimum_that_moves_after_it_elected():
    agent, top = Agent(flows=1, continues=True), 0.3
    elected = []
    for trial in range(60):
        k, beta = agent.now(0)
        flow = {"min_rtt_us": 20e3, "bw_bps": 2e6, "lost_share": 0.0, "beta": beta, "k": k}
        agent.observe(pd.DataFrame([flow | {"goodput_bps": 2e6 - 1e6 * (beta - top) ** 2 - 1e5 * (k - 4)}]))
        if agent.searches[0].wanted() is None:
            elected.append(agent.searches[0].elected()[1])
            top = 0.9 if trial > 20 else 0.3
    assert elected[0] == pytest.approx(0.3, abs=0.05)
    assert elected[-1] == pytest.approx(0.9, abs=0.05)
    stops = Agent(flows=1)
    stops.searches[0].tried = climbed(lambda k, beta: -((beta - 0.3) ** 2)).tried
    assert stops.observe(pd.DataFrame([flow | {"goodput_bps": 1e6}])) == 0


def test_k_is_raised_until_the_optimum_stops_growing():
    search = climbed(lambda k, beta: min(k, 6) - (beta - 0.45) ** 2)
    k, beta = search.elected()
    assert k == 6
    assert beta == pytest.approx(0.45, abs=0.03)
    assert max(k for k, _, _ in search.tried) == 7  # and the one before is elected


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_noise_of_three_per_cent_costs_less_than_that_and_no_search_has_more_than_fifteen_trials(seed):
    rng = np.random.default_rng(seed)

    def utility(k, beta):  # steep below, flat, slowly falling: what the bins look like
        return (1 - np.exp(-beta / 0.15)) * (1 - 0.12 * max(beta - 0.6, 0) ** 1.5) - 0.15 * (k - 4)

    searches = [climbed(lambda k, beta: utility(k, beta) + 0.03 * rng.normal()) for _ in range(20)]
    assert max(len(search.tried) for search in searches) <= 15
    best = max(utility(4, beta) for beta in np.linspace(0.05, 1.5, 100))
    assert np.mean([utility(*search.elected()) for search in searches]) > 0.99 * best


def test_a_k_of_one_lucky_trial_is_not_elected():
    tried = [(4, beta, 1 - (beta - 0.45) ** 2) for beta in (0.3, 0.45, 0.675)]
    assert Search([*tried, (5, 0.9, 100.0)]).elected()[0] == 4


@pytest.mark.parametrize("at", range(3, 9))
def test_one_trial_that_lost_much_does_not_move_what_is_elected_to_an_end(at):
    """A flat utility and a dumbbell past 5 % of losses: least squares made a valley of it, and elected beta 0.1."""
    count = 0

    def utility(k, beta):
        nonlocal count
        count += 1
        return (1 - np.exp(-beta / 0.04)) * (1 - 0.01 * beta) - 0.1 * (k - 4) - 0.04 * (count == at)

    search = climbed(utility)
    assert search.elected()[0] == 4
    assert search.elected()[1] > 0.15


def test_a_resumed_search_asks_for_the_same():
    whole = climbed(lambda k, beta: np.sin(7 * beta) + 0.1 * k)
    for done in range(len(whole.tried)):
        assert Search(whole.tried[:done]).wanted() == whole.tried[done][:2]


def test_a_search_that_is_over_takes_nothing():
    search = climbed(lambda k, beta: -k - beta)
    with pytest.raises(ArgumentError, match="over"):
        search.note(1.0)
    with pytest.raises(ArgumentError, match="not finite"):
        Search().note(float("nan"))


def flows_of(agent, number, count, beta=None, goodput_bps=5e6):
    low = [side[0] for side in agent.bins[number]]
    k, wanted = agent.now(number)
    row = {
        "min_rtt_us": 1e3 * low[0] + 1.0,
        "bw_bps": 1e6 * low[1] + 1.0,
        "goodput_bps": goodput_bps,
        "lost_share": 0.0,
    }
    return pd.DataFrame([row | {"beta": wanted if beta is None else beta, "k": k}] * count)


def test_only_flows_of_the_current_values_count_and_only_in_their_bin():
    agent = Agent(flows=4)
    assert agent.observe(flows_of(agent, 5, 3)) == 3
    assert agent.observe(flows_of(agent, 5, 9, beta=0.3)) == 0
    assert not agent.searches[5].tried
    assert agent.observe(flows_of(agent, 5, 2)) == 1  # the fourth completes the trial; the next asks for another beta
    assert [len(search.tried) for search in agent.searches] == [0] * 5 + [1] + [0] * 6
    assert agent.searches[5].tried[0][2] == pytest.approx(5.0, rel=0.01)


def test_an_agent_goes_on_where_it_was_kept(tmp_path):
    agent = Agent(flows=3, slope=50.0, gamma=0.98)
    agent.observe(flows_of(agent, 2, 4))
    agent.save(tmp_path / "agent.json")
    again = Agent.load(tmp_path / "agent.json")
    assert again == agent
    assert again.table() == agent.table()


@pytest.mark.parametrize("text", ["", "[]", '{"form": "other"}', '{"form": "cctrace learning agent 1", "tried": 3}'],
                         ids=["empty", "list", "other", "torn"])  # fmt: skip
def test_what_is_no_state_is_refused(tmp_path, text):
    (tmp_path / "state").write_text(text)
    with pytest.raises(FormatError, match="state of a learning agent"):
        Agent.load(tmp_path / "state")


def test_missing_columns_are_named():
    with pytest.raises(ArgumentError, match="lost_share"):
        Agent().observe(
            pd.DataFrame({"min_rtt_us": [1.0], "bw_bps": [1.0], "goodput_bps": [1.0], "beta": [0.4], "k": [4]})
        )


def test_learning_on_simulated_flows_is_repeatable_and_resumes(tmp_path):
    whole = simulated(Agent(flows=7), seed=2, bins=[1])
    part = Agent(flows=7)
    place = Environment(*part.bins[1], paths=3, seed=2)
    k, beta = part.searches[1].wanted()
    part.observe(place.flows(k, beta))
    part.save(tmp_path / "state")
    resumed = simulated(Agent.load(tmp_path / "state"), seed=2, bins=[1])
    assert resumed.searches[1] == whole.searches[1]
    assert whole.searches[1].wanted() is None
    k, beta = whole.searches[1].elected()
    near = [u for tried_k, b, u in whole.searches[1].tried if tried_k == k and abs(b / beta - 1) < 0.25]
    assert np.mean(near) >= 0.97 * max(utility for _, _, utility in whole.searches[1].tried)


def test_simulated_flows_have_the_gamma_of_the_agent():
    def seen_of(agent):
        seen = []

        def flows(k, beta, **params):
            seen.append(params)
            return flows_of(agent, 5, 1)

        simulated(agent, bins=[5], place_of=lambda *bounds, paths, seed: SimpleNamespace(flows=flows))
        return seen

    assert all(params == {"gamma": 0.98} for params in seen_of(Agent(flows=1, gamma=0.98)))
    assert all(params == {} for params in seen_of(Agent(flows=1)))
    assert Agent(gamma=0.98).table()["gamma"] == [0.98]
    with pytest.raises(ArgumentError, match=r"gamma=1\.5"):
        Agent(gamma=1.5)


def test_dumbbells_are_those_of_the_bin_and_the_seed():
    one, same, other = (Environment((50, 100), (3, 10), 3, seed).flows(4, 0.45) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, same)
    assert not one.equals(other)
    assert one.min_rtt_us.between(50e3, 100e3).all()
    assert one.bw_bps.between(3e6, 10e6).all()


def test_dumbbells_with_as_many_flows_are_spread_evenly_over_their_bin():
    flows = Environment((50, 100), (3, 10), paths=9, seed=3)
    rates = [[path.max_rate_bps() / len(cc) / 1e6 for path, cc in drawn] for drawn in _drawn(flows)]
    edges = np.exp(np.linspace(np.log(3), np.log(10), 4))
    for own in rates:
        assert np.histogram(own, edges)[0].tolist() == [1, 1, 1]


def _drawn(place):
    """Return the (path, controllers) that a place simulates, by number of flows."""
    seen = []

    def note(path, cc, duration, seed, mss=1448, rwnd=None):
        seen.append((path, cc))
        seconds, rate = float(duration[:-1]), path.max_rate_bps() / len(cc)
        assert seconds * rate / 8 >= 0.999 * 20e6  # a flow has time for 20 MB
        assert seconds >= 0.999 * 200 * path.rtt_ns / 1e9  # and for 200 RTTs
        bdp = rate / 8 * path.rtt_ns / 1e9
        assert mss == 1448 or bdp / 32_100 <= bdp / (mss + 66) <= 251 or mss == 32_000
        assert (rwnd is None) == (mss == 1448)
        return SimpleNamespace(flows=pd.DataFrame({"goodput_bps": [1.0], "retransmit_ratio": [0.0]}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cctrace.learn.environment.simulate", note)
        place.flows(4, 0.45)
    return [[one for one in seen if len(one[1]) == count] for count in (1, 2, 4)]


@pytest.mark.parametrize("rate_mbps", [(10, 1000), (1000, None)], ids=["fast", "gigabit"])
def test_long_pipes_have_larger_segments_and_stay_in_their_bin(rate_mbps):
    place = Environment((100, None), rate_mbps, paths=6, seed=2)
    drawn = [path for kind in _drawn(place) for path, _ in kind]
    assert all(path.rtt_ns >= 100e6 for path in drawn)


def test_larger_segments_leave_the_utility_as_it_is():
    whole, scaled = (
        Environment((100, None), (10, 1000), paths=2, seed=4, bdp_segments=most).flows(4, 0.45)
        for most in (float("inf"), 250)
    )
    assert scaled.goodput_bps.mean() == pytest.approx(whole.goodput_bps.mean(), rel=0.06)  # of it 4 % are headers
    assert scaled.lost_share.mean() == pytest.approx(whole.lost_share.mean(), abs=0.005)


def test_counters_of_recorded_flows_are_statistics():
    recording = cct.datasets.path("single_bbr_1bdp")
    (row,) = statistics(cct.read(recording / "tcpinfo.csv.zst"), 0.45, 4).to_dict("records")
    flow = cct.read(recording / "sender.pcap.zst").flow(0).row
    assert row["min_rtt_us"] == pytest.approx(flow["rtt_min_us"], rel=0.02)
    assert row["goodput_bps"] == pytest.approx(flow["goodput_bps"], rel=0.1)
    assert row["goodput_bps"] <= row["bw_bps"] * 1.05
    assert row["lost_share"] == pytest.approx(flow["retransmitted_segments"] / flow["segments_sent"], abs=1e-3)


def test_a_learned_table_is_what_bbrx_takes(tmp_path, capsys):
    file = tmp_path / "table.json"
    assert main(["learn", "--bins", "1", "--flows", "7", "-o", str(file), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    table = json.loads(file.read_text())
    assert printed == table
    assert not table["done"]
    assert table["command"] == "cctrace learn --flows 7 --slope 100 --gamma 1 --seed 1 --bins 1"
    assert table["version"] == cct.__version__
    assert len(table["date"]) == len("2026-11-22")
    beta, k = table_values(str(file))
    assert (beta[1], k[1]) == (table["bins"][1]["beta"], table["bins"][1]["k"])
    path = cct.Path(rate="5Mbit", rtt="20ms", buffer="1bdp")  # bin 1
    run = cct.simulate(path, f"bbrx:table={file}", "5s", sample="1s", watch=("bin_beta", "bin_k")).timeline
    assert (run["bin_beta"].iloc[-1], run["bin_k"].iloc[-1]) == (beta[1], k[1])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "no list `bins`"),
        ('{"bins": [{"beta": 1}]}', "not those of Table I"),
        (None, "neither a JSON file nor one of bbrx_learned, bbrx_table1"),
    ],
    ids=["empty", "bins", "missing"],
)
def test_a_wrong_table_is_refused(tmp_path, content, says):
    file = tmp_path / "table.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ArgumentError, match=says):
        cct.simulate(cct.Path(rate="5Mbit"), f"bbrx:table={file}", "1s")


def test_a_value_that_no_table_may_have_is_refused(tmp_path):
    table = cct.presets.load("bbrx_table1")
    table["bins"][3] |= {"beta": 7.5, "k": 4}
    (tmp_path / "table.json").write_text(json.dumps(table))
    with pytest.raises(ArgumentError, match="beta must be"):
        cct.controller(f"bbrx:table={tmp_path / 'table.json'}")


def test_what_would_be_lost_is_asked_for(capsys):
    assert main(["learn"]) == 2
    assert "-o FILE" in capsys.readouterr().err


@pytest.mark.parametrize("flows", [1, 4, 11, 24])
def test_a_trial_has_dumbbells_for_all_its_flows(flows):
    from cctrace.learn.environment import FLOWS, _paths_for

    paths = _paths_for(flows)
    there = [FLOWS[k % len(FLOWS)] for k in range(paths)]
    assert sum(there) >= flows > sum(there[:-1])


def test_the_learned_table_that_ships_says_what_made_it_and_is_what_flows_use():
    table = cct.presets.load("bbrx_learned")
    assert {"provenance", "command", "version", "date", "bins"} <= set(table)
    assert table["done"]
    assert all(1 <= cell["trials"] <= 15 for cell in table["bins"])
    beta, k = table_values("bbrx_learned")
    path = cct.Path(rate="5Mbit", rtt="70ms", buffer="1bdp")  # bin 5
    run = cct.simulate(path, "bbrx:table=bbrx_learned", "5s", sample="1s", watch=("bin_beta", "bin_k")).timeline
    assert (run.bin_beta.iloc[-1], run.bin_k.iloc[-1]) == (beta[5], k[5])
