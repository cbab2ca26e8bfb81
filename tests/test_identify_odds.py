"""Evidence for and against a candidate, from given sends, flights and RTTs."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.flows.events import Events
from cctrace.flows.packed import EventColumns
from cctrace.flows.state import EVENT
from cctrace.identification.constants import MAX_AGAINST, RARE_LOG_ODDS, SENDS_ECT1
from cctrace.identification.flights import Flights, WrongWindows, after_reductions
from cctrace.identification.halves import HalfRounds
from cctrace.identification.identify import _in_favour
from cctrace.identification.odds import Fit, Judgement, among_paced, log_odds, wrong_factor
from cctrace.identification.phases import Cycles
from cctrace.identification.sends import SenderRecord
from cctrace.schema import CLOCK_START_US


def fit(sends=(), paced=False, scale=0.02, name="reno", paces=False):
    """Return the fit of a sender: its sends' likelihoods by intervals, and right windows."""
    replay = SimpleNamespace(name=name, sends=np.array(sends), paced=paced, paces=paces, depends_on_ticks=False)
    return Fit(replay, Flights(np.zeros(60), scale, 0.0, 8, WrongWindows(5000, 0.0)))


def record(exact=True, flight=80, is_l4s=False, shows_no_timer=False):
    halves = SimpleNamespace(burst=2.0, jitter=0.0, flight=np.full(60, flight), steady=False, held_back=False)
    return SimpleNamespace(exact=exact, rebuilt=False, halves=halves, is_l4s=is_l4s, shows_no_timer=shows_no_timer)


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize(
    ("sends", "own"),
    [
        ([2.4] * 60, True),  # in the lab
        ([0.9] * 60, True),  # on a busy host
        ([0.9] * 30 + [0.5] * 30, True),  # whose timing blurs all of it
        ([2.4] * 50 + [-3.0] * 10, True),  # after a timeout that the capture does not explain
        ([2.4] * 40 + [-0.5] * 20, False),  # H-TCP, which is Reno for a second after each loss
    ],
)
def test_a_window_based_sender_explains_its_sends_all_the_time(sends, own, paced):
    assert (log_odds(record(), fit(sends, paced)) > 1) is own
    assert (log_odds(record(), fit(sends, paced)) < -1) is not own


@pytest.mark.parametrize(("flight", "odds"), [(3, 1.0), (6, 5.0), (12, 7.0)])
def test_windows_of_three_segments_are_anybodys_though_right_to_a_segment(flight, odds):
    """Behind two packets of buffer Vegas and CDG send as Reno does (seeds 334455, 336455)."""
    assert log_odds(record(flight=flight), fit([2.4] * 60)) == pytest.approx(odds, abs=0.2)
    wrong = Fit(fit([2.4] * 60).replay, Flights(np.zeros(60), 0.02, 0.0, 8, WrongWindows(5000, 0.5)))
    assert log_odds(record(flight=flight), wrong) < -4


def test_a_flow_with_nothing_in_flight_as_its_acks_arrive_has_odds():
    assert np.isfinite(log_odds(record(flight=0), fit([2.4] * 60)))


def test_who_paces_sends_some_when_no_ack_has_come():
    own = Fit(fit([2.4] * 60)[0], Flights(np.zeros(60), 0.02))
    odds = log_odds(record(), own)
    assert odds > 3
    assert log_odds(record(shows_no_timer=True), own) == odds - MAX_AGAINST
    sends = np.zeros(100, [(one, int) for one in ("row", "begins", "tx_ns", "retransmitted", "app_limited")])
    sends["row"], sends["begins"] = np.arange(1, 101), 1
    sends["tx_ns"] = CLOCK_START_US * 1000 + 1_000_000 * np.arange(100)
    rows = np.zeros(101, EVENT)
    rows["time_ns"] = 1_000_000 * np.arange(101)
    for late, other, none in ((0, None, True), (1, None, False), (1, "retransmitted", True), (1, "app_limited", True)):
        times = sends.copy()
        times["tx_ns"][10 : 10 + late] += 500_000
        if other:
            times[other][10] = 1
        events = Events(EventColumns.of(rows), {"start_ns": 0, "complete": True}, times)
        assert SenderRecord(events, 250, True, True, False, False, None).shows_no_timer is none


@pytest.mark.parametrize(("name", "more"), [("prague", SENDS_ECT1), ("reno", 0.0)])
def test_what_was_sent_as_ect1_is_likelier_from_an_l4s_sender(name, more):
    sent = fit([2.4] * 60, name=name)
    assert log_odds(record(is_l4s=True), sent) - log_odds(record(), sent) == pytest.approx(more)


@pytest.mark.parametrize("paces", [False, True])
@pytest.mark.parametrize(("flight", "most"), [(80, 4.0), (15, 1.75)])
def test_flights_of_a_few_segments_seen_from_the_receiver_are_hardly_evidence(flight, most, paces):
    """Vegas and NV of five segments fit a BBR's window to one."""
    sent = fit(paces=paces)
    sent = sent._replace(flights=sent.flights._replace(error_after_reductions=np.nan))
    assert log_odds(record(exact=False, flight=flight), sent) == pytest.approx(most)
    off = record(exact=False, flight=flight), fit(scale=0.5)
    assert log_odds(*off) < -5  # but wrong ones are


def test_of_two_that_explain_a_flow_alike_the_one_that_no_kernel_ships_comes_last():
    pair = {"bbr2": 100.0, "bbr2plus": 100.0}
    assert among_paced([*pair], pair, Cycles({}, {}), 1.0, 4.0) == {"bbr2": 0.0, "bbr2plus": RARE_LOG_ODDS["bbr2plus"]}
    better = pair | {"bbr2plus": 1000.0}
    assert among_paced([*better], better, Cycles({}, {}), 1.0, 1.0)["bbr2plus"] == 0.0  # no less than others' best


class Rounds(HalfRounds):
    """Half round trips of ten ACKs, in each of which all RTTs are alike: what jitter leaves that keeps the order."""

    def __init__(self, rtt_us):
        rows = np.zeros(10 * len(rtt_us), EVENT)
        rows["rs_rtt_us"] = np.repeat(rtt_us, 10)
        self.events, self.acks = Events(rows, {}), np.arange(len(rows))
        self.edges = self.acks[5::10]


def test_jitter_that_keeps_the_order_shows_between_half_round_trips():
    rounds = Rounds([45_000, 55_000] * 10)
    assert rounds._unevenness(rounds.events) == pytest.approx(0.2, abs=0.03)
    growing = Rounds(np.arange(40_000, 60_000, 1_000))
    assert growing._unevenness(growing.events) == 0.0  # a queue


def test_reductions_of_which_some_are_by_another_factor_are_evidence_against_a_candidate():
    def odds(wrong, reductions):
        return wrong_factor(Flights(np.zeros(60), 0.02, 0.0, reductions, other_reductions=wrong))

    assert odds(0, 40) == odds(2, 40) == 0.0  # as many may be anything
    assert odds(1, 5) < 1.0  # one says little
    assert odds(7, 17) > 5.0
    assert odds(1, 2) < odds(4, 8) < odds(10, 20) == 10.0


def test_jitter_hides_no_wrong_factor_of_many_reductions():
    """BIC keeps a tenth more of its window than CUBIC: less than jitter makes of a single flight."""
    periods, apart = np.arange(40 * 20).reshape(40, 20), np.full(40 * 20, 4.0)
    blocks = SimpleNamespace(epochs=list(periods), jitter=0.1, flights=np.full(40 * 20, 44.0))
    over = np.full(40 * 20, 0.07)

    def error(apart):
        return after_reductions(blocks, over, apart)[0]

    assert error(apart) == pytest.approx(3 / 40)  # but a segment, which an ACK moves
    assert error(apart / 4) == 0.0
    jitter = np.repeat(np.random.default_rng(1).normal(0, 8, 40), 20)
    assert error(apart + jitter) < error(apart)


@pytest.mark.parametrize(
    ("how", "name", "said"),
    [("flights", "reno", ("LP", "Vegas")), ("sends", "reno", ("LP",)), ("flights", "cubic6", ())],
)
def test_a_reason_names_those_whose_windows_are_renos(how, name, said):
    """Vegas adds a segment a round trip as Reno does, but at once: only a sender's capture shows it (seed 336448)."""
    contributions = dict.fromkeys(("reno", "cubic6"), np.zeros(3))
    evidence = dict.fromkeys(contributions, 0.0) | {name: 9.0}
    reason = _in_favour(
        Judgement(how, evidence, 3.0, contributions, dict.fromkeys(contributions, False), ""), (name,), None
    )
    assert tuple(one for one in ("LP", "Vegas") if one in reason) == said


def test_no_evidence_tells_reno_from_lp_which_sends_the_same():
    for name, most in (("reno", 0.74), ("cubic6", 1.0)):
        for known in (1.0, 4.0, 12.0):
            found = Judgement("sends", {name: 0.0, "bbr3": -30.0}, known, {}, {}, "")
            share = dict(found.candidates)[name]
            assert share < min(most, 1 / (1 + np.exp(-known)) + 1e-9)
            assert found.group == (name,)
    found = Judgement("sends", {"reno": 0.0}, 12.0, {}, {}, "")  # nothing more than beforehand
    assert dict(found.candidates)["reno"] == pytest.approx(1 / (1 + np.exp(-1.0)), abs=1e-3)
