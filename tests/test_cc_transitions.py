"""No run leaves the declared state diagram: golden vectors, other controllers' streams, recordings, random calls."""

import itertools

import numpy as np
import pytest

from cctrace import datasets
from cctrace.cc import REGISTRY, controller
from cctrace.cc.base import declared_fields
from cctrace.cc.orca import with_policy
from cctrace.errors import StreamError
from cctrace.flows.capture import read
from cctrace.flows.views import View
from cctrace.replaying import vectors
from cctrace.replaying.player import Player
from cctrace.replaying.run import replay
from tests.places import GOLDEN

FUZZ = {
    "linux": ("bbr2016/fuzz_s1", "bbr2plus/fuzz_s11", "cubic/fuzz_s1"),
    "quic": ("quic_bbr2/fuzz_s1", "obbr_mu1/fuzz_s11"),
}
ROWS = 2500  # of each fuzz stream; they reach nearly every transition in fewer


def controller_of(name):
    return with_policy(lambda seen: -0.1) if name == "orca" else controller(name)[0]


def wanted(cls):
    """Return the fields that tell the state of a controller."""
    fields = declared_fields(cls)
    if "mode" not in fields:
        return ["snd_cwnd", "snd_ssthresh"]
    return ["mode", "cycle_idx"] if len(cls.states) > 4 else ["mode"]


def transitions_of(cls, view, **params):
    """Return the set of changes of state from call to call of a view."""
    player = Player(view, cls, record=wanted(cls), **params)
    player.run()
    return changes(cls, player.recorded)


def changes(cls, recorded):
    """Return the set of changes of state from call to call: of the mode, and of the phase within PROBE_BW."""
    fields = declared_fields(cls)
    phases = len(cls.states) > 4  # modes by `mode`, then the phases of PROBE_BW by `cycle_idx`
    # Loss-based controllers of Linux keep no mode: the stack reads it off the window.
    mode = recorded["mode"] if "mode" in fields else (recorded["snd_cwnd"] >= recorded["snd_ssthresh"]).astype(int)
    found = {(cls.states[a], cls.states[b]) for a, b in set(itertools.pairwise(mode.tolist())) if a != b}
    if phases:
        probing = mode == cls.states.index("PROBE_BW")
        both = np.flatnonzero(probing[1:] & probing[:-1])
        pairs = zip(recorded["cycle_idx"][both].tolist(), recorded["cycle_idx"][both + 1].tolist(), strict=True)
        found |= {(cls.states[4 + a], cls.states[4 + b]) for a, b in set(pairs) if a != b}
    return found


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.parquet")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_no_golden_vector_leaves_the_declared_transitions(path):
    vector = vectors.load(path)
    assert transitions_of(vector.controller, vector.view, **vector.params) <= set(vector.controller.transitions)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_run_over_another_controllers_calls_leaves_the_declared_transitions(name):
    cls = controller_of(name)
    tried = []
    for stream in FUZZ[cls.view]:
        view = vectors.load(GOLDEN / f"{stream}.parquet").view
        for carried in ({}, {field: values[:ROWS] for field, values in view.carried.items()}):
            columns = {column: values[:ROWS] for column, values in view.columns.items()}
            part = View(cls.view, view.event[:ROWS], columns, carried)
            try:
                found = transitions_of(cls, part)
            except StreamError:
                continue  # the stream lacks what this family reads
            assert found <= set(cls.transitions), stream
            tried.append(stream)
    assert tried


@pytest.fixture(scope="module")
def recorded():
    return read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)


@pytest.mark.parametrize("name", REGISTRY)
def test_no_run_over_a_recording_leaves_the_declared_transitions(recorded, name):
    cls = controller_of(name)
    run = replay(recorded, cls, record=wanted(cls))
    assert changes(cls, {field: run.decisions[field].to_numpy() for field in wanted(cls)}) <= set(cls.transitions)


def test_every_transition_joins_declared_states_and_says_why():
    for name in REGISTRY:
        cls = controller_of(name)
        assert cls.transitions, name
        for (start, end), why in cls.transitions.items():
            assert {start, end} <= set(cls.states)
            assert start != end
            assert why
