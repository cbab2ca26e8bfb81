"""Which draws of an inferred path stand for the recording, where chance decides between two courses."""

import operator
from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.counterfactual import runs as module
from cctrace.counterfactual.runs import Runs

RECORDED = {"goodput_bps": 8e6, "rtt_mean_us": 30e3, "retransmitted_share": 0.0}


def _of(figures, paths):
    return {name: values[list(paths)] for name, values in figures.items()}


def kept_of(monkeypatch, rtts_us):
    """Whether draws of these RTTs are kept for a recording of 30 ms, and which."""
    monkeypatch.setattr(module, "plausible", lambda path, draws, seed: list(range(draws)))
    monkeypatch.setattr(Runs, "_prepared", lambda self, path: path)
    monkeypatch.setattr(module, "alike", operator.eq)
    figures = {"goodput_bps": np.full(32, 8e6), "rtt_mean_us": rtts_us, "retransmitted_share": np.zeros(32)}
    runs = object.__new__(Runs)
    runs.scene = SimpleNamespace(recorded=RECORDED, path=None, marking={})
    runs.paths, runs._seeds, runs._tries, runs._own = list(range(8)), list(range(1, 9)), 4, _of(figures, range(8))
    runs._over = lambda paths, questions, seeds: [_of(figures, paths)]
    return runs._keep_nearest("cubic6", True), runs.paths, runs._own


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
