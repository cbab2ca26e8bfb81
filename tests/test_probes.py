"""Inference of the waits of BBR v2 and v3."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.cc.base import checked_params
from cctrace.cc.bbr2 import BBR2
from cctrace.lang.fields import fields_of
from cctrace.replaying.inference.probes import MANY_ACKS, Probes

DRAWN_AT, PROBE_RTT_AT, ROWS = 10, 60, 200
ZERO, ONE = (1 << 30, 0xFFFFFFFF), (3 << 30, 0xFFFFFFFF)  # raw draws: the rounds begin at 0, or at 1


class Run:
    """A run of rows a millisecond apart."""

    cls, params, fields = BBR2, checked_params(BBR2, {}), fields_of(BBR2)
    rows = np.arange(ROWS)
    now_us, is_ack = rows * 1000, np.ones(ROWS, bool)

    def __init__(self):
        self.row, self.drawn, self.values = DRAWN_AT, None, {}

    def save(self):
        return self.row, self.drawn, dict(self.values)

    def restore(self, saved):
        self.row, self.drawn, self.values = saved[0], saved[1], dict(saved[2])

    def draw(self, numbers):
        self.drawn = numbers

    def run(self, stop):
        self.row = stop

    def get(self, name):
        return self.values[name]

    def set(self, name, value):
        self.values[name] = value


def test_a_wait_that_ends_in_the_call_that_draws_it_is_tried_from_the_next_ack(monkeypatch):
    """On a path of one or two packets a round or two are waited for, which have passed when the wait is drawn."""
    run = Run()
    run.values["min_rtt_us"] = 4_000
    run.hands_over = False
    probes = Probes(run)

    def ends(last, watch):
        at_once, rounds = probes.numbers[0], 1 - probes.clock
        found = [DRAWN_AT + (1 if draw[rounds] == at_once[rounds] else 4) for draw in probes.numbers]
        return np.array([*found, max(found)]), np.ones(len(found) + 1, bool)

    def scan(rows, rtt_us, beside=None):
        return {max(row, run.row): float(row == DRAWN_AT + 3) for row in rows}

    monkeypatch.setattr(probes.waits, "ends", ends)
    monkeypatch.setattr(probes, "scan", scan)
    assert probes.choices()[:3] == ({11: probes.numbers[0], 13: probes.numbers[1]}, 13, 13)
    probes.choose_wait()
    assert run.drawn == probes.numbers[1]


@pytest.mark.parametrize(
    ("acks", "peaks"),
    [(100, [61]), (100, [97]), (2000, [1043, 1044]), (2000, [999, 1000]), (2000, [941, 942]), (9000, [4700, 4709])],
)
def test_what_only_few_acks_explain_is_found_among_them(acks, peaks, monkeypatch):
    """A flow limited by cwnd shows upon which ACK a probe began: those beside it explain nothing (seed 334347)."""
    run = Run()
    run.srtt_us = lambda row: 60_000
    run.passed = list
    probes = Probes(run)
    probes.acks, times_us = np.arange(acks), np.arange(acks) * (2_000_000 // acks)
    probes.now_us = probes.acks_us = times_us
    fits = -abs(times_us - times_us[acks // 2]) / 1000.0
    fits[peaks[0] : peaks[-1] + 1] = 500.0
    monkeypatch.setattr(probes, "scan", lambda rows, rtt_us, lower: {row: float(fits[row]) for row in rows})
    rows = probes.search(0, acks - 1, 60_000)
    assert max(fits[row] for row in rows) == 500.0
    assert len(rows) <= MANY_ACKS


@pytest.mark.parametrize(("by_rounds", "end", "likeliest"), [(100, ROWS, 120), (143, ROWS, 163), (143, 155, 154)])
def test_the_neighbours_of_an_ack_at_which_rounds_end_a_wait_are_tried_too(by_rounds, end, likeliest, monkeypatch):
    """A flow that cwnd limits shows each ACK of difference: a BBRv2's search had gone elsewhere (seed 334010).

    But not those from which on nothing is judged.
    """
    run, peak = Run(), by_rounds + 20
    run.hands_over, run.values["min_rtt_us"] = False, 20_000
    probes = Probes(run)
    monkeypatch.setattr(probes, "choices", lambda: ({by_rounds: ONE}, 50, 190, ONE))
    monkeypatch.setattr(probes, "search", lambda first, last, rtt_us: {150, 152, 153})
    probes.end = end
    monkeypatch.setattr(
        probes, "scan", lambda rows, _, beside=None: {row: 200.0 - abs(row - peak) - 50 * (row > peak) for row in rows}
    )
    probes.choose_wait()
    assert probes.phases[-1].choice == (likeliest - DRAWN_AT) * 1000


@pytest.mark.parametrize(
    ("acks_us", "median"),
    [
        ([0, 9_000, 9_002, 9_004, 13_000, 13_002], 9_000),  # in clumps: mostly, the first of one ends a wait
        ([0, 1_000, 1_002, 1_004, 13_000, 13_002], 13_000),
        ([0, 1_000, 2_000, 3_000, 4_000, 5_000], 3_000),
    ],
)
def test_of_acks_that_the_sends_do_not_distinguish_that_of_the_median_wait_is_taken(acks_us, median):
    """A clock that ends a wait at any time leaves its end to the next ACK (seed 329037: eleven with one likelihood)."""
    acks = 10 * np.arange(len(acks_us))
    probes = SimpleNamespace(acks=acks, acks_us=np.array(acks_us))
    tried = dict.fromkeys(acks[1:].tolist(), 5.0) | {int(acks[0]): 4.0}
    assert acks_us[Probes.likeliest(probes, tried) // 10] == median


@pytest.mark.parametrize(("left_us", "median"), [(0, 6_000), (3_000, 9_000), (9_000, 10_000), (11_000, 10_000)])
def test_acks_that_were_not_tried_and_what_probe_rtt_cut_off_count_for_the_median_wait(left_us, median):
    """A BBRv2 at its pacing limit sends alike whenever it probes; the search tries few ACKs of a second (334030)."""
    probes = SimpleNamespace(acks=np.arange(11), acks_us=1000 * np.arange(11))
    tried = {1: 5.0, 2: 5.0, 5: 5.0, 6: 5.0, 9: 5.0, 10: 5.0}
    assert probes.acks_us[Probes.likeliest(probes, tried, left_us)] == median


@pytest.mark.parametrize(("base_us", "waits"), [(9_000, "not by rounds"), (60_000, "by rounds")])
def test_rounds_end_a_wait_only_where_the_clock_has_not(base_us, waits, monkeypatch):
    """Where the sends distinguish nothing, the longest wait by the clock is no likelier than any other (334030)."""
    run = Run()
    run.hands_over, run.values["min_rtt_us"] = False, 1_000
    probes = Probes(run)
    probes.base_us, probes.random_us = base_us, 20_000
    monkeypatch.setattr(probes, "choices", lambda: ({39: ZERO}, 20, 39, ZERO))
    monkeypatch.setattr(probes, "search", lambda first, last, rtt_us: set(range(20, 40)))
    monkeypatch.setattr(probes, "scan", lambda rows, rtt_us, rounds=0: dict.fromkeys(rows, 0.0))
    probes.choose_wait()
    assert (run.drawn == ZERO) == (waits == "by rounds")


@pytest.mark.parametrize(("limit_Bps", "drawn"), [(1_000_000, ONE), (0, ZERO)])
def test_waits_that_look_alike_are_judged_over_more_time_at_a_pacing_limit(limit_Bps, drawn, monkeypatch):
    """There a BBRv3 paces alike until its filter forgets a sample (333608, 334416, 334428)."""
    run = Run()
    run.params = checked_params(BBR2, {"max_pacing_rate": limit_Bps})
    run.values["min_rtt_us"] = 20_000
    probes = Probes(run)
    probes.end = PROBE_RTT_AT
    monkeypatch.setattr(probes, "choices", lambda: ({20: ZERO, 30: ONE}, 30, 30, ONE))
    monkeypatch.setattr(
        probes, "scan", lambda rows, rtt_us, rounds=0: {20: 1.0, 30: 1.0} if rounds == 0 else {20: -7.0, 30: 2.0}
    )
    probes.choose_wait()
    assert run.drawn == drawn
