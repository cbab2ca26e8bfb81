"""Every system of the four papers is a controller that runs, and `cctrace variants` names its paper."""

import json

import pytest

import cctrace as cct
from cctrace import papers
from cctrace.cc import BBR_GENERATIONS, KERNEL_NAMES, REGISTRY, is_model_based, kernel_name
from cctrace.cc.of_papers import SYSTEMS
from cctrace.cc.orca import with_policy
from cctrace.cli import main
from cctrace.papers import bbr2plus, obbr


def test_systems_are_registered_controllers_of_papers_that_are_here():
    assert set(SYSTEMS) <= set(REGISTRY)
    assert {paper for systems in SYSTEMS.values() for paper in systems} == set(papers.papers()) - {"beyond"}


def test_every_bbr_is_model_based_and_no_loss_based_controller_is():
    loss_based = {name for name in REGISTRY if not is_model_based(name)}
    assert loss_based == {
        "reno",
        "cubic",
        "cubic6",
        "cubic_paced",
        "dctcp",
        "prague",
        "prague2020",
        "quic_reno",
        "quic_cubic",
        "orca",
    }
    assert all(map(is_model_based, BBR_GENERATIONS.values()))


def test_a_kernels_name_and_its_newest_variant_name_each_other():
    assert {name: kernel_name(variant) for name, variant in KERNEL_NAMES.items()} == {n: n for n in KERNEL_NAMES}


@pytest.mark.parametrize(("paper", "systems"), [("bbr2plus", bbr2plus.SYSTEMS), ("obbr", obbr.SYSTEMS)],
                         ids=["bbr2plus", "obbr"])  # fmt: skip
def test_what_the_figures_run_is_listed_with_its_paper(paper, systems):
    assert [cc for cc in systems.values() if paper not in SYSTEMS.get(cc.partition(":")[0], {})] == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_of_a_paper_runs(name):
    cc = with_policy(lambda seen: 0.0) if name == "orca" else name
    sim = cct.simulate(cct.Path(rate="5Mbit", rtt="20ms", buffer="1bdp"), cc, "1s")
    assert sim.flows.goodput_bps[0] > 1e6


def test_the_list_of_controllers_names_the_papers(capsys):
    assert main(["variants", "--json"]) == 0
    listed = {entry["name"]: entry["papers"] for entry in json.loads(capsys.readouterr().out)}
    assert listed["bbr2016"] == {"kumar": "BBR 2016", "bbrx": "BBR of Linux 4.15"}
    assert listed["bbr3"] == {}
    assert main(["variants", "orca"]) == 0
    assert "paper bbr2plus: Orca" in capsys.readouterr().out
    assert main(["variants", "obbr:mu=0.5"]) == 0
    assert "paper obbr: oBBR" in capsys.readouterr().out
