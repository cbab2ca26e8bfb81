"""A simulated flow's rings follow what is under way, which changes nothing but the memory that is in use."""

import pytest

from cctrace import Path, Sender, simulate
from cctrace.sim.core import world
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.runner import Runner

FAST = {"rate": "200Mbit", "rtt": "60ms", "buffer": "2bdp"}


@pytest.mark.parametrize(
    ("path", "profile", "cc"),
    [
        (FAST | {"loss": "0.05%", "jitter": "normal:sd=2ms,reorder"}, "linux", ["bbr2022", "cubic", "quic_cubic"]),
        (FAST | {"ack_loss": "20%"}, "reference", ["bbr2022", "cubic", "quic_bbr"]),
        (FAST | {"aqm": "fq_codel"}, "linux", ["bbr3", "cubic"]),
    ],
)
def test_flows_whose_rings_grow_and_shrink_send_what_they_send_in_the_largest(monkeypatch, path, profile, cc):
    monkeypatch.setattr(world, "_FIRST_RING", 16)
    moved = simulate(Path(**path), cc, "3s", profile=profile)
    monkeypatch.setattr(world, "_FIRST_RING", 1 << 20)
    assert moved.flows.equals(simulate(Path(**path), cc, "3s", profile=profile).flows)


@pytest.mark.parametrize(("cc", "profile"), [("cubic", "linux"), ("cubic", "reference"), ("quic_bbr", "reference")])
def test_rings_are_no_larger_than_what_is_under_way_asks_for(cc, profile):
    path = Path(rate=[(0, "400Mbit"), (2, "10Mbit")], rtt="40ms", buffer="250kB")
    built = World(path, [Sender(cc, profile=profile)], 1, True, True)
    try:
        f = built.flows[0]
        assert f.mask + 1 == world._FIRST_RING
        runner = Runner(built, "compiled", trace=False, packets=False)
        runner.to(FIRST_NS + 2_000_000_000)
        assert 1024 <= f.mask + 1 <= 8192  # path and buffer hold 1500 packets
        sent = f.tx_next
        assert sent > 8192  # so that the ring has turned
        runner.to(FIRST_NS + 20_000_000_000)
        assert f.mask + 1 <= 512  # 200 packets
        assert f.tx_next > sent + 1024
    finally:
        built.close()
