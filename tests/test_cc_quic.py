"""The QUIC controllers decide what the released code decided, and keep the rules of their papers."""

import itertools
from pathlib import Path

import pytest

from cctrace.engine import vectors

GOLDEN = Path(__file__).parent / "golden"
RELEASED = ("quic_bbr", "obbr_mu0.5", "obbr_mu0.75", "obbr_mu1", "bbr_s", "b3r", "quic_bbr2", "quic_cubic")


def golden(*variants):
    return [pytest.param(p, id=f"{v}-{p.stem}") for v in variants for p in sorted((GOLDEN / v).glob("*.parquet"))]


@pytest.mark.parametrize("path", golden(*RELEASED))
def test_every_output_and_state_equals_the_released_codes(path):
    result = vectors.verify_file(path)
    assert result["mismatching_rows"] == 0, result["first"]


@pytest.mark.parametrize("path", golden(*RELEASED))
def test_no_run_leaves_the_declared_transitions(path):
    from cctrace.engine.replay import Player

    vector = vectors.load(path)
    player = Player(vector.view, vector.controller, record=["mode"], **vector.params)
    player.run()
    names = [vector.controller.states[m] for m in player.recorded["mode"]]
    steps = {(a, b) for a, b in itertools.pairwise(names) if a != b}
    assert steps <= set(vector.controller.transitions)
