"""Plain simulations: their own code, arrivals processed ahead, and the figures of all others."""

import numpy as np
import pytest

from cctrace.errors import CompileError
from cctrace.lang import machine
from cctrace.lang.machine import INTERPRETED, Machine
from cctrace.sim import runner
from cctrace.sim.core.loop import run_world
from cctrace.sim.core.structs import FLOW, LINUX, NATURALS, PLAIN, WORLD, known_values
from cctrace.sim.core.world import World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

PATH = Path(rate="50Mbit", rtt="20ms", buffer="0.7bdp", loss="0.05%")
FAST = Path(rate="200Mbit", rtt="12ms", buffer="0.5bdp", loss="0.1%")
SLOW = Path(rate="8Mbit", rtt="30ms", buffer="3bdp", jitter="normal:sd=1ms")


@pytest.mark.parametrize(("path", "flows", "common"), [
    (PATH, "bbr2022", {"profile": "reference"}),
    (PATH, "cubic6", {"ack_every": 2}),
    (SLOW, "bbr3", {"ack_every": 2}),
    (SLOW, [Sender("reno"), Sender("quic_bbr", start="0.3s", ack="chromium")], {}),
    (PATH, "quic_bbr", {}),
    (PATH, [Sender("bbr2", rtt="45ms"), Sender("quic_cubic", start="0.3s"), "cubic6"], {"profile": "reference"}),
    (SLOW, "cubic6", {"app": "chunks:size=30kB,every=70ms", "ack_every": 2}),
    (PATH, [Sender("quic_bbr", ack="rfc9000"), Sender("bbr2016", ack="every:3", app="onoff:on=1s,off=500ms")], {}),
    (FAST, ["bbr2022", Sender("cubic", rtt="15ms", start="0.2s"), Sender("quic_bbr", start="0.1s"), "bbr3"], {}),
    (FAST, [Sender("reno", start="0.3s"), "cubic6", Sender("bbr2", stop="2s"), "bbr2022"], {"ack_every": 2}),
])  # fmt: skip
def test_a_plain_run_has_the_figures_of_one_whose_calls_and_packets_are_kept(path, flows, common):
    plain, kept, taken = (
        simulate(path, flows, "4s", seed=5, sample="37ms", **options, **common)
        for options in ({}, {"trace": True}, {"packets": True})
    )
    for other in (kept, taken):
        assert plain.flows.equals(other.flows)
        assert plain.link == other.link
        assert plain.timeline.equals(other.timeline)  # nobody sees arrivals before their time


@pytest.mark.parametrize(("path", "flows", "duration"), [
    (SLOW, [Sender("cubic6", ack_every=2), Sender("bbr2022", ack_every=2)], "600ms"),
    (FAST, [Sender("cubic6", ack_every=2), "bbr2022", Sender("quic_reno", start="25ms")], "80ms"),
])  # fmt: skip
def test_a_plain_run_is_the_same_interpreted(path, flows, duration):
    compiled, interpreted = (
        simulate(path, flows, duration, mode=mode, sample="20ms") for mode in ("compiled", "interpreted")
    )
    assert compiled.flows.equals(interpreted.flows)
    assert compiled.timeline.equals(interpreted.timeline)


def unset(worlds):
    worlds[0].aqm = 3
    return worlds[0].aqm


def said(worlds):
    return worlds[0].aqm + worlds[0].n if worlds[0].aqm > 0 else worlds[0].n


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_fields_whose_values_are_known_are_not_read_and_cannot_be_written():
    worlds = np.zeros(1, WORLD)
    worlds["n"], worlds["aqm"] = 7, 1
    assert Machine(said)(worlds) == 8
    assert Machine(said, known_values(None, False))(worlds) == 7
    assert Machine(said, {WORLD: {"aqm": 1, "n": 5}})(worlds) == 6
    assert Machine(unset)(worlds) == 3
    with pytest.raises(CompileError, match="said to be known"):
        Machine(unset, known_values(None, False))(worlds)


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_what_compiled_code_takes_for_natural_is(monkeypatch):
    cases = (
        (PATH, [Sender("bbr2022"), Sender("cubic", kernel="6.1", hz=250), Sender("quic_bbr", start="0.3s")], {}),
        (SLOW, [Sender("bbr3", app="chunks:size=30kB,every=70ms"), "dctcp"], {"fq": True, "ecn": True}),
        (PATH, ["reno", Sender("bbr2", ack_every=2)], {"profile": "reference"}),
    )
    usual = [simulate(path, flows, "3s", **common).flows for path, flows, common in cases]
    monkeypatch.setattr(machine, "_MODE", "checked")
    monkeypatch.setattr(runner, "_run_known", {profile: {} for profile in runner._run_known})
    monkeypatch.setattr(runner, "_run_world", Machine(run_world, naturals=NATURALS))
    for flows, (path, senders, common) in zip(usual, cases, strict=True):
        assert simulate(path, senders, "3s", **common).flows.equals(flows)


def test_simulations_of_many_controllers_are_plain():
    flows = [Sender(cc) for cc in ("bbr2022", "bbr2", "bbr3", "cubic", "reno", "quic_bbr")]
    built = World(PATH, flows, 1, True, False)
    try:
        assert built.has(None, True)
    finally:
        built.close()


def test_plain_code_is_for_fields_of_eight_bytes():
    assert all(dtype[name].itemsize == 8 for dtype, names in PLAIN.items() for name in names)
    assert list(PLAIN) == [WORLD, FLOW]


def test_simulations_with_the_defaults_have_their_own_code():
    for profile, cc in enumerate(("bbr2022", "bbr2022", "quic_bbr")):
        for hz in (1000, 250):
            sender = Sender(cc, profile="linux" if profile == LINUX else "reference", hz=hz)
            built = World(PATH, [sender], 1, True, True)
            try:
                assert [built.has(profile, usual) for usual in (True, False)] == [hz == 1000, True]
            finally:
                built.close()
