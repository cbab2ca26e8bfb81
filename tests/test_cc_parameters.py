"""The constants of BBR v1, QUIC BBR and CUBIC are parameters: their defaults are the release's, and each decides."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.cc import REGISTRY, controller
from cctrace.cc.base import declared_fields, param_fields
from cctrace.errors import ArgumentError
from tests.places import GOLDEN

QUIC = {
    "high_gain": 2.0,
    "drain_gain": 0.5,
    "cwnd_gain": 1.5,
    "up_pacing_gain": 1.1,
    "down_pacing_gain": 0.9,
    "bw_rtts": 3,
    "min_rtt_win_sec": 1,
    "probe_rtt_mode_ms": 20,
    "full_bw_thresh": 1.6,
    "full_bw_cnt": 6,
}
BBR2016 = QUIC | {"cwnd_min_target": 8}
BBR2022 = BBR2016 | {"extra_acked_win_rtts": 20, "extra_acked_gain": 0.0}
CUBIC = {"beta": 0.8, "bic_scale": 100, "fast_convergence": 0, "tcp_friendliness": 0, "hystart": 0}
CHANGES = {"cubic": CUBIC, "bbr2016": BBR2016, "bbr2019": BBR2022, "bbr2022": BBR2022, "quic_bbr": QUIC}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_parameter_is_held_apart_from_the_fields_of_the_state_and_starts_at_its_default(name):
    cls, _ = controller(name)
    held = param_fields(cls)
    assert not set(held) & set(declared_fields(cls))
    assert all(getattr(cls(), field) == cls.params[param].default for field, param in held.items())


@pytest.mark.parametrize(("variant", "changed"), [(v, name) for v, some in CHANGES.items() for name in some])
def test_each_constant_of_a_release_decides_compiled_as_interpreted(variant, changed):
    differs = False
    for vector in sorted((GOLDEN / variant).glob("*.parquet")):
        released = cct.replay(vector, variant).decisions
        spec = f"{variant}:{changed}={CHANGES[variant][changed]}"
        compiled = cct.replay(vector, spec).decisions
        if compiled.equals(released):
            continue
        differs = True
        assert compiled.equals(cct.replay(vector, spec, mode="interpreted").decisions)
        break
    assert differs


@pytest.mark.parametrize("variant", ["bbr2022", "obbr", "quic_bbr"])
def test_the_state_of_the_gain_is_recorded_and_its_parameter_is_not(variant):
    vector = max((GOLDEN / {"obbr": "obbr_mu0.5"}.get(variant, variant)).glob("*.parquet"))
    run = cct.replay(vector, variant, cwnd_gain=1.5, record="all")
    assert 1.5 in np.round(run.decisions["cwnd_gain"].unique() / (256 if variant == "bbr2022" else 1), 3)
    assert run.params["cwnd_gain"] == 1.5
    assert "bbr_cwnd_gain" not in run.decisions
    assert "cwnd_gain" in run.state


def test_half_a_window_carries_half_the_path_in_closed_loop():
    path = cct.Path(rate="20Mbit", rtt="100ms", buffer="2bdp")
    goodput = [
        cct.simulate(path, f"bbr2022:cwnd_gain={g},extra_acked_gain=0", "10s").flows.tail_goodput_bps[0]
        for g in (0.25, 2.0)
    ]
    assert goodput[0] < 0.6 * goodput[1]  # what a quarter of the BDP and three bursts of the budget let out


@pytest.mark.parametrize(
    "spec", ["bbr2022:cwnd_gain=0", "bbr2022:bw_rtts=2.5", "obbr_paper:cwnd_gain=2", "bbr2016:pace=1"]
)
def test_what_a_constant_cannot_be_is_refused(spec):
    with pytest.raises(ArgumentError, match=r"cwnd_gain|bw_rtts|pace"):
        controller(spec)
