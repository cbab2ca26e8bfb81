"""Delay and jitter before the bottleneck."""

import numpy as np
import pytest

from cctrace.cli import main
from cctrace.errors import ArgumentError
from cctrace.sim.core import entry
from cctrace.sim.core.world import World
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

WIDE = {"rate": "100Mbit", "rtt": "10ms", "buffer": "4bdp"}


def test_without_jitter_it_does_not_matter_where_the_delay_is():
    behind, before = (simulate(Path(**WIDE, delay_before=part), "bbr2022", "3s").flows for part in (None, "10ms"))
    assert before.goodput_bps[0] == pytest.approx(behind.goodput_bps[0], rel=0.01)
    assert before.rtt_mean_us[0] == pytest.approx(behind.rtt_mean_us[0], rel=0.02)


@pytest.mark.parametrize("part", ["0ms", "4ms", "10ms"])
def test_an_idle_path_takes_its_rtt_wherever_the_queue_is(part):
    sim = simulate(Path(**WIDE, delay_before=part), "reno", "1s", app="requests:size=1448B,think=100ms", ack_every=1)
    assert sim.flows.rtt_mean_us[0] == pytest.approx(10_000 + 121, abs=2)  # 1514 bytes at 100 Mbit/s


def test_a_packet_that_jitter_holds_back_before_the_queue_leaves_the_link_idle():
    """[Kumar19] Fig. 1 and 6: what waits for its turn before the queue does not stand in it."""
    queue = {
        place: simulate(
            Path(rate="300Mbit", rtt="5ms", buffer="10bdp", **{place: "normal:sd=0.5ms,reorder"}), "bbr2019", "4s"
        ).flows.tail_queue_delay_mean_us[0]
        for place in ("jitter", "jitter_before")
    }
    assert queue["jitter_before"] < 0.5 * queue["jitter"]


def test_order_is_kept_before_the_queue_unless_the_jitter_reorders():
    kept, mixed = (
        simulate(Path(**WIDE, jitter_before="normal:sd=2ms" + more), "cubic", "2s").flows for more in ("", ",reorder")
    )
    assert kept.retransmitted[0] == kept.dropped[0]
    assert kept.undos[0] == 0
    assert mixed.undos[0] > 0  # recoveries that reordering began


def test_steps_of_the_rtt_are_where_the_delay_is():
    path = Path(rate="10Mbit", rtt=[(0, "20ms"), (1, "60ms")], jitter_before="normal:sd=1us")
    world = World(path, [Sender("reno"), Sender("reno", rtt="40ms")], 1, False, True)
    words, _ = path.delay_steps(world.place, before=True)
    assert words[:, 1].tolist() == [0, 40_000_000]
    assert not path.delay_steps(world.place)[0][:, 1].any()
    world.close()
    sim = simulate(path, [Sender("reno", app="requests:size=1kB,think=50ms")], "4s", sample="100ms")
    srtt = sim.timeline.srtt_us.to_numpy()
    assert srtt[9] == pytest.approx(21_000, abs=300)
    assert srtt[-1] == pytest.approx(61_000, rel=0.05)


def test_jitter_may_be_on_both_sides():
    path = Path(rate="10Mbit", rtt="40ms", delay_before="20ms", jitter_before="normal:sd=2ms", jitter="normal:sd=2ms")
    rtt = [
        simulate(one, "reno", "4s", app="requests:size=1kB,think=20ms", seed=3, sample="100ms").timeline.srtt_us
        for one in (path, Path(rate="10Mbit", rtt="40ms", jitter="normal:sd=2ms"))
    ]
    assert np.std(rtt[0][10:]) > np.std(rtt[1][10:])


SHARED = {"rtt": "20ms", "reverse": "10ms", "delay_before": "10ms", "shared": True}


@pytest.mark.parametrize("cc", ["cubic", "quic_bbr"])
def test_where_data_and_acks_share_a_queue_an_rtt_contains_it_twice(cc):
    """200 KB at 5 Mbit/s are 330 ms, and [Bi23] Fig. 4 has 700 ms."""
    one, two = (
        simulate(
            Path(rate="10Mbit", buffer="8bdp", **path), [Sender(cc, start=s) for s in ("0s", "1s")], "6s", sample="20ms"
        )
        for path in ({"rtt": "20ms"}, SHARED)
    )
    for sim, times in ((one, 1), (two, 2)):
        rows = sim.timeline[(sim.timeline.flow == 0) & (sim.timeline.time_s > 4)]
        expected_us = 20_000 + times * rows.queue_delay_us.mean()
        assert rows.srtt_us.mean() == pytest.approx(expected_us, rel=0.1)


@pytest.mark.parametrize(("cc", "buffer"), [("cubic", 4 * 1514), ("quic_bbr", 4 * 1294)])  # four packets fill it
def test_a_full_queue_drops_acks_too_and_no_packet_is_unaccounted_for(cc, buffer, monkeypatch):
    steps = [(0, "2Mbit"), (0.3, "500kbit"), (0.5, "8Mbit")]
    path = Path(rate="100Mbit", buffer=f"{buffer}B", shaper=(steps, "2kB"), **SHARED)
    senders, dropped = [Sender(cc), Sender(cc, ack="every:1")], []
    with monkeypatch.context() as patch:
        patch.setattr(entry, "drop_ack", lambda f, drop=entry.drop_ack: dropped.append(f.index) or drop(f))
        slow = simulate(path, senders, "700ms", mode="debug").flows
    assert dropped
    assert slow.equals(simulate(path, senders, "700ms").flows)


@pytest.mark.parametrize(
    "given",
    [
        {"shared": True, "aqm": "codel"},
        {"shared": True, "policer": ("10Mbit", "100kB")},
        {"delay_before": "50ms"},
        {"delay_before": "-1ms"},
        {"delay_before": 5},
        {"jitter_before": "nonesuch"},
        {"delay_before": "20ms", "jitter": "normal:sd=1ms,per=burst"},
        {"delay_before": "30ms", "reverse": "15ms"},
    ],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(ArgumentError):
        Path(rate="10Mbit", rtt="40ms", **given)


def test_the_command_takes_it(capsys):
    arguments = ["simulate", "--rate", "10Mbit", "--cc", "reno", "--duration", "1s", "--json"]
    printed = []
    for more in (
        [],
        ["--jitter-before", "normal:sd=5ms"],
        ["--jitter-before", "normal:sd=5ms", "--delay-before", "5ms"],
    ):
        main([*arguments, *more])
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 3
