"""Replaying a stream: what is recorded, grids, bad input, and stopping at random draws."""

import numpy as np
import pytest

from benchmarks import replay as benchmark
from cctrace.cc import REGISTRY, controller
from cctrace.cc.base import Controller, LinuxController, Param, QuicController, f32, floats, ints
from cctrace.cc.reno import Reno
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.views import View
from cctrace.lang.fields import MODES
from cctrace.replaying.player import Player
from cctrace.replaying.run import replay
from cctrace.replaying.vectors import load
from cctrace.sim.path import Path
from cctrace.sim.simulate import simulate


class Walker(LinuxController):
    """Draws a random number at every third ACK and remembers it."""

    params = LinuxController.params | {"stride": Param(3, 1, 10, "ACKs between draws")}

    acks: int = 0
    drawn: int = -1
    low: f32 = f32(0.5)
    even: bool = False
    history = ints(2)
    halves = floats(2)

    def on_ack(self, ack):
        self.acks = self.acks + 1
        self.even = self.acks % 2 == 0
        self.snd_cwnd = self.snd_cwnd + ack.rs_acked_sacked
        self.halves[1] = self.acks / 2
        if self.acks % self.stride == 0:
            self.history[1] = self.history[0]
            self.history[0] = self.drawn
            self.drawn = self.random_below(ack, 100)

    def undo_cwnd(self, ack):
        return 50


def stream(rows=10, **changes):
    columns = {name: np.zeros(rows) for name in ("rand0", "rand1", "rand2", "rand3")}
    columns |= {"now_us": np.arange(rows) * 1000, "rs_acked_sacked": np.ones(rows)}
    return View("linux", np.ones(rows), columns | changes)


@pytest.mark.parametrize("mode", MODES)
def test_decisions_hold_outputs_time_and_event_names(mode):
    run = replay(stream(), Walker, mode=mode)
    assert run.decisions["snd_cwnd"].tolist() == list(range(11, 21))
    assert run.decisions["time_ns"].tolist() == [k * 1_000_000 for k in range(10)]
    assert set(run.decisions["event"]) == {"on_ack"}
    assert run.params == {"hz": 1000, "stride": 3}
    assert run.state["acks"] == 10


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_field_is_recorded_in_its_own_dtype(mode):
    decisions = replay(
        stream(), Walker, mode=mode, record=["even", "low", "history[0]", "halves[1]", "o_ret"]
    ).decisions
    assert decisions["even"].tolist() == [False, True] * 5
    assert decisions["low"].dtype == np.float32
    assert set(decisions["low"]) == {0.5}
    assert decisions["history[0]"].tolist() == [0, 0, -1, -1, -1] + [0] * 5
    assert decisions["halves[1]"].tolist() == [k / 2 for k in range(1, 11)]


def test_record_all_names_every_field_and_element_but_no_parameter():
    columns = set(replay(stream(), Walker, record="all").decisions)
    assert {"acks", "history[1]", "halves[0]", "draws", "snd_ssthresh"} <= columns
    assert "stride" not in columns


def test_a_list_of_values_makes_a_grid():
    runs = replay(stream(), Walker, stride=[1, 2], hz=np.array([100, 250]))
    assert [(run.params["stride"], run.params["hz"]) for run in runs] == [(1, 100), (1, 250), (2, 100), (2, 250)]


@pytest.mark.parametrize("mode", MODES)
def test_observed_values_are_set_before_each_call_and_otherwise_carried(mode):
    view = stream(4)
    carried = View("linux", view.event, view.columns, {"snd_cwnd": [5, 50, 500, 5000]})
    assert replay(carried, Walker, mode=mode).decisions["snd_cwnd"].tolist() == [6, 51, 501, 5001]
    assert replay(view, Walker, mode=mode).decisions["snd_cwnd"].tolist() == [11, 12, 13, 14]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_can_be_cut_into_pieces(mode):
    whole = Player(stream(100), Walker, mode=mode, record=["snd_cwnd", "drawn"])
    pieces = Player(stream(100), Walker, mode=mode, record=["snd_cwnd", "drawn"])
    assert whole.run() == 100
    for stop in (1, 17, 17, 60, 1000):
        pieces.run(stop)
    assert all((pieces.recorded[name] == whole.recorded[name]).all() for name in whole.recorded)
    assert pieces.state == whole.state


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_column_is_named(mode):
    view = View("linux", [1], {"now_us": [0]})
    with pytest.raises(StreamError, match="Walker reads column 'rs_acked_sacked', which this stream lacks"):
        replay(view, Walker, mode=mode)


def test_reading_what_nobody_observed_is_a_warning():
    view = stream()
    view = View("linux", view.event, view.columns, unknown=["rand0", "srtt_us8"])
    assert replay(view, Walker).warnings == ["Walker reads 'rand0', which nobody observed"]


def test_nan_fractions_and_strange_columns_are_refused():
    with pytest.raises(StreamError, match="column 'rs_acked_sacked', row 3: nan is not an integer"):
        stream(rs_acked_sacked=[1, 1, 1, np.nan] + [1] * 6)
    with pytest.raises(StreamError, match=r"row 0: 0\.5 is not an integer"):
        stream(rs_acked_sacked=[0.5] * 10)
    with pytest.raises(StreamError, match="'rtt' is not a column of the linux view"):
        stream(rtt=[1] * 10)
    with pytest.raises(StreamError, match=r"has shape \(3,\), the events \(10,\)"):
        stream(mss=[1, 2, 3])
    with pytest.raises(StreamError, match="event code 77 in row 1"):
        View("linux", [1, 77], {})


def test_wrong_arguments_are_named():
    with pytest.raises(ArgumentError, match="Walker has no parameter 'strid'; did you mean 'stride'"):
        replay(stream(), Walker, strid=1)
    with pytest.raises(ArgumentError, match=r"stride=11 is outside \[1, 10\]"):
        replay(stream(), Walker, stride=[1, 11])
    for not_finite in (np.nan, np.inf, [2, np.nan]):
        with pytest.raises(ArgumentError, match=r"stride=(nan|inf) is outside \[1, 10\]"):
            replay(stream(), Walker, stride=not_finite)
    with pytest.raises(ArgumentError, match="stride is an empty list"):
        replay(stream(), Walker, stride=[])
    with pytest.raises(ArgumentError, match="Walker has no field 'cwnd' to record"):
        replay(stream(), Walker, record=["cwnd"])
    with pytest.raises(ArgumentError, match=r"Walker has no field 'history\[2\]' to record"):
        replay(stream(), Walker, record=["history[2]"])
    with pytest.raises(ArgumentError, match="mode='fast' is not one of"):
        replay(stream(), Walker, mode="fast")
    with pytest.raises(ArgumentError, match="cannot replay 'int'"):
        replay(3, Walker)


def test_a_controller_without_the_methods_that_decide_is_refused():
    class Empty(LinuxController):
        pass

    class Half(LinuxController):
        def cong_avoid(self, ack):
            self.snd_cwnd = self.snd_cwnd + 1

    class Both(Reno):
        def on_ack(self, ack):
            self.snd_cwnd = 20

    class Silent(QuicController):
        pass

    path = Path(rate="10Mbit")
    with pytest.raises(ArgumentError, match="Empty never sets its window: it needs the method on_ack, or cong_avoid"):
        replay(stream(), Empty)
    with pytest.raises(ArgumentError, match="Half has cong_avoid without ssthresh and undo_cwnd"):
        simulate(path, Half, "1s")
    with pytest.raises(ArgumentError, match="Both has both on_ack and cong_avoid"):
        simulate(path, Both, "1s")
    with pytest.raises(ArgumentError, match="Silent never sets its window: it needs the method on_ack"):
        simulate(path, [Silent], "1s")
    with pytest.raises(ArgumentError, match="Controller belongs to no stack: subclass LinuxController"):
        replay(stream(), Controller)


def test_a_controller_of_the_other_stack_is_refused():
    class Other(QuicController):
        def on_ack(self, ack):
            self.cwnd = 20_000

    with pytest.raises(StreamError, match="columns of a linux controller, not of a quic one"):
        replay(stream(), Other)


@pytest.mark.parametrize("name", REGISTRY)
def test_the_benchmark_has_calls_for_each_controller(name):
    view = load(benchmark.vectors_of(name)[0]).view
    player = Player(view, controller(name)[0], mode="interpreted")
    player.run(2)
    assert player.row == 2
