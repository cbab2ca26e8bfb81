"""Which runs stand for a recording: draws of the path where chance decides between two courses; and how long ones."""

import operator
from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.counterfactual import constants as const
from cctrace.counterfactual import runs as module
from cctrace.counterfactual.runs import SHORTENED, Runs
from cctrace.tcp.wire import PACKET_BYTES

RECORDED = {"goodput_bps": 8e6, "rtt_mean_us": 30e3, "retransmitted_share": 0.0}


def _of(figures, paths):
    return {name: values[list(paths)] for name, values in figures.items()}


def kept_of(monkeypatch, rtts_us):
    """Whether draws of these RTTs are kept for a recording of 30 ms, and which."""
    monkeypatch.setattr(module, "plausible_paths", lambda path, draws, seed: list(range(draws)))
    monkeypatch.setattr(Runs, "_simulable", lambda self, path: path)
    monkeypatch.setattr(module, "alike", operator.eq)
    figures = {"goodput_bps": np.full(32, 8e6), "rtt_mean_us": rtts_us, "retransmitted_share": np.zeros(32)}
    runs = object.__new__(Runs)
    runs.model = SimpleNamespace(recorded=RECORDED, path=None, marking={})
    runs.paths, runs._seeds, runs._draw_factor, runs._original_runs = (
        list(range(8)),
        list(range(1, 9)),
        4,
        _of(figures, range(8)),
    )
    runs._simulate = lambda paths, questions, seeds: [_of(figures, paths)]
    return runs._keep_nearest("cubic6", True), runs.paths, runs._original_runs


def test_a_course_that_one_run_in_four_takes_is_kept(monkeypatch):
    rtts_us = np.where(np.arange(32) % 4 == 1, 31e3, 50e3)
    is_kept, paths, own = kept_of(monkeypatch, rtts_us)
    assert is_kept
    assert paths == list(range(1, 32, 4))
    assert own["rtt_mean_us"] == pytest.approx(31e3)


def test_a_course_of_two_runs_in_32_does_not_reproduce_a_recording(monkeypatch):
    is_kept, paths, own = kept_of(monkeypatch, np.where(np.arange(32) < 2, 31e3, 50e3))
    assert not is_kept
    assert paths == list(range(8))
    assert len(own["rtt_mean_us"]) == 8


def test_a_flow_that_was_mostly_idle_does_not_fill_its_path_as_long_as_it_lasted(monkeypatch):
    """A million segments tell what a flow with data at all times would get; hours of them take minutes to simulate."""
    lasted_s, rate_bps, made = 120.0, 400e6, []
    path = cct.Path(rate="400Mbit", rtt="20ms", buffer="1bdp")
    sender = cct.Sender("bbr2022", app="chunks:size=500kB,every=500ms")
    sim = cct.simulate(path, [sender], f"{lasted_s:.0f}s", seed=1, packets=True)
    batch = module.batch
    monkeypatch.setattr(module, "batch", lambda runs: made.extend(runs) or batch(runs))
    answer = cct.whatif(sim, own="bbr2022", app="bulk", draws=3)
    lengths_s = {run.senders[0].app: float(run.duration.removesuffix("s")) for run in made}
    assert lengths_s.pop("bulk") == pytest.approx(const.MAX_SEGMENTS * PACKET_BYTES * 8 / rate_bps, rel=0.02)
    assert list(lengths_s.values()) == pytest.approx([lasted_s], rel=0.01)
    assert SHORTENED in answer.not_excluded
    assert answer.candidates["bbr2022"]["goodput_bps"].value == pytest.approx(rate_bps, rel=0.1)
