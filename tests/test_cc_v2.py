"""BBRv2, BBRv2+ and BBRv3 decide what the released code decided; their ECN rules and the paper's variant behave."""

from pathlib import Path

import pytest

from cctrace.engine import vectors
from cctrace.engine.replay import Player

GOLDEN = [
    pytest.param(path, id=f"{path.parent.name}-{path.stem}")
    for variant in ("bbr2", "bbr2plus", "bbr3")
    for path in sorted((Path(__file__).parent / "golden" / variant).glob("*.parquet"))
]


@pytest.mark.parametrize("path", GOLDEN)
def test_every_output_and_state_equals_the_released_codes(path):
    result = vectors.verify_file(path)
    assert result["mismatching_rows"] == 0, result["first"]


def transitions_of(run, states):
    """Changes of mode, and of phase within PROBE_BW, from one call to the next."""
    mode, phase = run.recorded["mode"], run.recorded["cycle_idx"]
    probe_bw = states.index("PROBE_BW")
    for i in range(1, len(mode)):
        if mode[i] != mode[i - 1]:
            yield states[mode[i - 1]], states[mode[i]]
        elif mode[i] == probe_bw and phase[i] != phase[i - 1]:
            yield states[4 + phase[i - 1]], states[4 + phase[i]]


@pytest.mark.parametrize("path", GOLDEN)
def test_no_run_leaves_the_declared_transitions(path):
    vector = vectors.load(path)
    player = Player(vector.view, vector.controller, record=["mode", "cycle_idx"])
    player.run()
    assert set(transitions_of(player, vector.controller.states)) <= set(vector.controller.transitions)
