"""HyStart++: a slow start written from RFC 9406, section 4.2, conforms; with one figure or step changed it does not."""

import pytest

from cctrace import conform
from cctrace.cc.base import Param
from cctrace.cc.reno import Reno
from cctrace.conform import hystart
from cctrace.conform.runner import Cell, Runner
from tests.test_conform import violated


class HyStartPlusPlus(Reno):
    params = Reno.params | {
        "divisor": Param(8, 1, 100, "MIN_RTT_DIVISOR"),
        "growth": Param(4, 1, 100, "CSS_GROWTH_DIVISOR"),
        "most_rounds": Param(5, 1, 100, "CSS_ROUNDS"),
        "resumes": Param(1, 0, 1, "1: slow start resumes"),
    }

    window_end: int = 0
    last_rtt: int = 0
    least_rtt: int = 0
    samples: int = 0
    css: int = 0
    css_rounds: int = 0
    baseline: int = 0
    credit: int = 0
    over: int = 0

    def pkts_acked(self, ack):
        if self.over != 0 or not self.in_slow_start():
            return
        if ack.snd_una > self.window_end:
            self.begin_round(ack)
        if ack.rs_rtt_us <= 0:
            return
        if self.samples == 0 or ack.rs_rtt_us < self.least_rtt:
            self.least_rtt = ack.rs_rtt_us
        self.samples = self.samples + 1
        if self.samples < 8:
            return
        if self.css != 0:
            if self.least_rtt < self.baseline and self.resumes != 0:
                self.css = 0
        elif self.last_rtt > 0 and self.snd_cwnd >= 16 and self.least_rtt >= self.last_rtt + self.threshold():
            self.css = 1
            self.css_rounds = 0
            self.baseline = self.least_rtt

    def threshold(self):
        return max(4000, min(self.last_rtt // self.divisor, 16000))

    def begin_round(self, ack):
        self.window_end = ack.snd_nxt
        self.last_rtt = self.least_rtt
        self.least_rtt = 0
        self.samples = 0
        if self.css != 0:
            self.css_rounds = self.css_rounds + 1
            if self.css_rounds >= self.most_rounds:
                self.snd_ssthresh = self.snd_cwnd
                self.over = 1

    def slow_start(self, acked):
        if self.css == 0:
            return super().slow_start(acked)
        self.credit = self.credit + acked
        self.snd_cwnd = min(self.snd_cwnd + self.credit // self.growth, self.snd_ssthresh)
        self.credit = self.credit % self.growth
        return 0

    def ssthresh(self, ack):
        self.over = 1
        return super().ssthresh(ack)


def changed(name, value):
    return type("Changed", (HyStartPlusPlus,), {"params": HyStartPlusPlus.params | {name: Param(value, 0, 100, name)}})


@pytest.fixture(autouse=True)
def one_path(monkeypatch):
    monkeypatch.setattr(hystart, "SPEC", hystart.SPEC._replace(cells=(Cell("20Mbit", "40ms"),)))


def test_a_slow_start_by_the_book_conforms_in_every_row():
    found = conform.run(HyStartPlusPlus, "hystart")
    assert {verdict.verdict for verdict in found.verdicts} == {"conforms"}


@pytest.mark.parametrize(
    ("name", "value", "caught"),
    [
        ("divisor", 2, "css.most"),
        ("growth", 1, "css.most"),
        ("growth", 12, "css.least"),
        ("most_rounds", 50, "css.end"),
        ("most_rounds", 1, "css.least"),
        ("resumes", 0, "css.resume"),
    ],
)
def test_a_change_is_found(name, value, caught):
    assert caught in violated(conform.run(changed(name, value), "hystart"))


def test_linuxs_hystart_fails_only_where_it_differs_by_intent():
    found = conform.run("cubic6", "hystart")
    assert {"growth.least", "css.resume"} <= violated(found)
    assert found.conforms


@pytest.mark.parametrize(
    ("sender", "rows"),
    [
        (HyStartPlusPlus, {"wire.growth": "conforms", "wire.css": "conforms"}),
        (changed("growth", 1), {"wire.growth": "conforms", "wire.css": "violates"}),
        ("reno", {"wire.growth": "conforms", "wire.css": "violates"}),
        ("cubic6", {"wire.growth": "conforms", "wire.css": "not exercised"}),  # slow start is over
    ],
)
def test_a_capture_shows_growth_after_the_rtt_grew(sender, rows):
    runner = Runner(sender, Cell("20Mbit", "40ms"))
    r = runner.on_the_wire(1.5, path={"buffer": "2000kB"})
    found = {one.id: one.check(r) for one in hystart.SPEC.wire}
    verdicts = {
        id: "violates" if one.row is not None else "conforms" if one.exercised else "not exercised"
        for id, one in found.items()
    }
    assert verdicts == rows
