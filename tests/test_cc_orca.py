"""Orca asks the user's policy once per interval, shows it what the release shows, and obeys it."""

import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc import orca
from cctrace.cc.asking import ask
from cctrace.cc.base import LinuxController
from cctrace.errors import ArgumentError, CompileError
from cctrace.lang.compile import compiled
from tests.build_stack import Stack


def flow(policy, cwnd=100, ssthresh=50, **params):
    """Return (step, controller): `step` delivers one ACK per ms."""
    stack = Stack(orca.with_policy(policy), **params)
    stack.set(mss=1000, rs_rtt_us=40_000, srtt_us8=8 * 50_000, tcp_min_rtt_us=40_000, packets_out=100, delivered=0)
    stack.call("init")
    stack.cc.snd_cwnd, stack.cc.snd_ssthresh = cwnd, ssthresh

    def step(count=1, losses=0, **columns):
        for _ in range(count):
            stack.advance(1000)
            stack.call("pkts_acked", delivered=stack.ack.delivered + 2, lost=stack.ack.lost + losses, **columns)

    return step, stack.cc


@pytest.mark.parametrize(("action", "cwnd"), [(0, 100), (1, 400), (-1, 25), (0.5, 200), (7, 400), (-7, 25)])
def test_the_policy_rescales_the_window_by_a_power_of_four_each_interval(action, cwnd):
    step, cc = flow(lambda seen: action)
    step(20)
    assert cc.snd_cwnd == 100  # 20 ACKs, 19 ms
    step()
    assert cc.snd_cwnd == cwnd


def test_the_window_never_falls_below_four():
    step, cc = flow(lambda seen: -1)
    step(200)
    assert cc.snd_cwnd == 4


def test_slow_start_grows_by_a_tenth_per_interval_before_the_policy_decides():
    asked = []
    step, cc = flow(asked.append, cwnd=100, ssthresh=105)
    step(21)
    assert (cc.snd_cwnd, asked) == (110, [])
    with pytest.raises(TypeError):  # the policy of this test returns nothing
        step(20)
    assert len(asked) == 1


def test_the_policy_sees_ten_observations_of_seven_newest_last():
    seen = []

    def policy(observations):
        seen.append(observations.copy())
        return 0.0

    step, _ = flow(policy)
    step(21)
    step(20, losses=1)
    assert seen[0].shape == (10, 7)
    assert not seen[0][:9].any()
    throughput = 2 * 1000 / 0.001
    pacing = 1.2 * 100 * 1000 / 0.05  # CUBIC beyond half of ssthresh
    expected = [1.0, pacing / throughput, 0.0, 21 / 100, 0.02, 0.8, 1.0]
    assert seen[0][9] == pytest.approx(expected)
    assert seen[1][8] == pytest.approx(expected)
    lossy = 5 * (1000 / 0.001) / throughput
    assert seen[1][9] == pytest.approx([1.0, pacing / throughput, lossy, 20 / 100, 0.02, 0.8, 1.0])


def test_acks_without_an_rtt_neither_count_nor_end_an_interval():
    asked = []
    step, _ = flow(lambda seen: asked.append(seen) or 0.0)
    step(50, rs_rtt_us=-1)
    assert asked == []


def test_without_a_policy_orca_says_that_the_weights_are_the_users():
    step, _ = flow(orca.no_policy)
    with pytest.raises(ArgumentError, match="weights are not part of cctrace"):
        step(21)


def test_bad_policies_are_refused():
    with pytest.raises(ArgumentError, match="is not a function"):
        orca.with_policy("model.onnx")
    step, _ = flow(lambda seen: float("nan"))
    with pytest.raises(ArgumentError, match="returned NaN"):
        step(21)


def net(seen):
    """A policy like the release's: two layers over the seventy numbers."""
    inner = np.tanh(seen.ravel() @ np.sin(np.arange(70 * 16)).reshape(70, 16))
    return np.tanh(inner @ np.cos(np.arange(16)))


@pytest.mark.parametrize("policy", [net, lambda seen: -0.5 if seen[-1, 6] < 1 else 0.1], ids=["net", "delay"])
def test_compiled_orca_decides_as_interpreted_and_far_sooner(policy):
    path = cct.Path(rate="2Mbit", rtt="40ms", buffer="2bdp", loss="0.5%")
    cls = orca.with_policy(policy)
    cct.simulate(path, cls, "100ms")  # compiled once
    begin = time.process_time()
    compiled = cct.simulate(path, cls, "3s", sample="100ms")
    middle = time.process_time()
    interpreted = cct.simulate(path, cls, "3s", sample="100ms", mode="interpreted")
    assert middle - begin < (time.process_time() - middle) / 4  # it could not be compiled once, and took as long
    assert compiled.flows.equals(interpreted.flows)
    assert compiled.timeline.equals(interpreted.timeline)


def test_replays_of_orca_ask_the_policy_too():
    asked = []
    cls = orca.with_policy(lambda seen: asked.append(seen) or 0.1)
    flow = cct.simulate(cct.Path(rate="5Mbit", rtt="20ms", buffer="1bdp"), cls, "2s", trace=True).flow(0)
    simulated = [seen.copy() for seen in asked]
    asked.clear()
    compiled = cct.replay(flow, cls).decisions
    assert len(asked) == len(simulated) > 20
    assert np.array_equal(asked, simulated)
    assert compiled.equals(cct.replay(flow, cls, mode="interpreted").decisions)


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_what_a_policy_raises_is_raised(mode):
    def policy(seen):
        raise ZeroDivisionError("of the policy")

    path = cct.Path(rate="2Mbit", rtt="40ms", buffer="1bdp")
    with pytest.raises(ZeroDivisionError, match="of the policy"):
        cct.simulate(path, orca.with_policy(policy), "2s", mode=mode)
    with pytest.raises(ArgumentError, match="returned NaN"):
        cct.simulate(path, orca.with_policy(lambda seen: float("nan")), "2s", mode=mode)
    assert cct.simulate(path, orca.with_policy(net), "2s", mode=mode).flows.goodput_bps[0] > 0  # nothing is left of it


def test_only_floats_can_be_asked_about():
    class Asks(LinuxController):
        def on_ack(self, ack):
            self.snd_cwnd = int(ask(0, ack.now_us))

    with pytest.raises(CompileError, match="only an array of floats"):
        compiled(Asks)


@pytest.fixture
def model(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")


def test_an_onnx_policy_without_onnxruntime_says_what_to_install(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArgumentError, match="pip install onnxruntime"):
        orca.onnx_policy("model.onnx")


def test_weights_that_are_not_there_or_are_none_are_named(monkeypatch, model):
    def refuse(path):
        raise RuntimeError("INVALID_PROTOBUF\nfailed to load")

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=refuse))
    with pytest.raises(ArgumentError, match=r"policy='none[.]onnx': no such file; give an ONNX"):
        cct.controller("orca:policy=none.onnx")
    with pytest.raises(ArgumentError, match=r"policy='model[.]onnx' is not an ONNX model [(]INVALID_PROTOBUF failed"):
        cct.controller("orca:policy=model.onnx")


def test_an_onnx_policy_feeds_the_model_seventy_numbers(monkeypatch, model):
    class Session:
        def __init__(self, path):
            assert path == "model.onnx"

        def get_inputs(self):
            return [SimpleNamespace(name="state")]

        def run(self, outputs, inputs):
            assert inputs["state"].shape == (1, 70)
            assert inputs["state"].dtype == np.float32
            return [np.array([[inputs["state"][0, -1]]])]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    observations = np.zeros((10, 7))
    observations[9, 6] = 0.25
    assert orca.onnx_policy("model.onnx")(observations) == 0.25
    cls, params = cct.controller("orca:policy=model.onnx")
    assert params == {}
    assert cct.controller("orca:policy=model.onnx")[0] is cls
    assert ask(cls().policy_at, observations.ravel()) == 0.25
