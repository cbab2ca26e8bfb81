"""Paths and jitter that ship with cctrace are taken by name wherever their kind is."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace import presets
from cctrace.cli import main


@pytest.mark.parametrize("name", presets.path_names())
def test_every_path_can_be_simulated(name):
    path = cct.Path.preset(name)
    assert cct.simulate(path, "reno", "1s").flows.goodput_bps[0] > 0
    assert presets.load("paths")["paths"][name]["source"]


def test_a_cellular_path_has_the_figures_of_its_trace_and_follows_its_seed():
    drawn = presets.load("paths")["paths"]["lte_verizon"]["rate"]
    logs = [np.log(cct.Path.preset("lte_verizon", seed).rate_steps()[1]) for seed in range(20)]
    assert np.mean(logs) == pytest.approx(drawn["log_mean"], abs=0.15)
    assert np.std(logs) == pytest.approx(drawn["log_sd"], rel=0.15)
    assert np.array_equal(logs[3], np.log(cct.Path.preset("lte_verizon", 3).rate_steps()[1]))


def test_fields_of_a_named_path_can_be_changed():
    assert cct.Path.preset("wired_40mbit_40ms", rtt="80ms").rtt_ns == 80_000_000


def test_jitter_is_taken_by_the_name_of_its_recording():
    fields = cct.Path(rate="40Mbit", jitter="jitter_bbr_sd4ms_reorder").delay_steps(lambda table: 0)
    assert fields[0][0][2] == 1  # reorders
    assert cct.Path(rate="40Mbit", jitter="jitter_bbr_gamma_rtt40").has_jitter


@pytest.mark.parametrize("arguments", [{"jitter": "nonesuch"}, {"name": "nonesuch"}])
def test_an_unknown_name_lists_the_known_ones(arguments):
    with pytest.raises(cct.errors.ArgumentError, match="one of"):
        cct.Path.preset(**arguments) if "name" in arguments else cct.Path(rate="1Mbit", **arguments)


def test_command_takes_a_path_by_name(capsys):
    arguments = ["simulate", "--path", "wired_40mbit_40ms", "--cc", "reno", "--duration", "2s", "--json"]
    assert main(arguments) == 0
    plain = json.loads(capsys.readouterr().out)["flows"][0]["goodput_bps"]
    assert main([*arguments, "--loss", "20%"]) == 0
    assert json.loads(capsys.readouterr().out)["flows"][0]["goodput_bps"] < plain / 2
    assert main([*arguments, "--rate", "1Mbit"]) == 2
