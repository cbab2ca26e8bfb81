"""Active queue management at the simulated bottleneck: that it does what Linux's does, and what it is for."""

import math

import numpy as np
import pytest

from cctrace.cli import main
from cctrace.errors import ArgumentError
from cctrace.sim.aqm import KINDS, Aqm, red_burst
from cctrace.sim.core import aqm
from cctrace.sim.core.structs import AQM, LANE
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

PATH = {"rate": "40Mbit", "rtt": "40ms", "buffer": "4bdp"}  # 160 ms of queue, if nothing manages it
MIN_QUEUE_MS, MAX_QUEUE_MS = 1, 20  # targets of 5 to 15 ms, RED's thresholds at 13 and 40 ms with sawteeth below


@pytest.mark.parametrize("kind", KINDS)
def test_the_queue_stays_short_and_the_link_busy(kind):
    sim = simulate(Path(**PATH, aqm=kind), "cubic", "20s", ack_every=2)
    assert MIN_QUEUE_MS < sim.flows.tail_queue_delay_mean_us[0] / 1000 < MAX_QUEUE_MS
    assert sim.link["utilisation"] > 0.9
    assert sim.flows.dropped[0] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_flows_with_ecn_are_marked_instead(kind):
    flows = simulate(Path(**PATH, aqm=kind), "cubic", "20s", ack_every=2, ecn=True).flows
    assert flows.dropped[0] == 0
    assert flows.marked[0] > 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dualpi2"])
def test_noecn_drops_all_the_same(kind):
    flows = simulate(Path(**PATH, aqm=f"{kind}:noecn"), "cubic", "20s", ack_every=2, ecn=True).flows
    assert flows.dropped[0] > 0
    assert flows.marked[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_and_interpreted_runs_agree_and_lose_nothing(kind):
    path = Path(
        rate=[(0, "10Mbit"), (0.3, "0Mbit"), (0.35, "6Mbit")],
        rtt="10ms",
        buffer="30kB",
        loss="1%",
        aqm=kind,
        ecn_threshold="25kB",
        shaper=("8Mbit", "10kB"),
        jitter_before="normal:sd=1ms,reorder",
    )
    flows = [Sender("cubic", ecn=True), Sender("bbr2", ack_every=2), "quic_cubic"]
    runs = [simulate(path, flows, "500ms", 3, mode=mode, sample="100ms") for mode in ("compiled", "debug")]
    assert runs[0].flows.equals(runs[1].flows)
    assert runs[0].timeline.equals(runs[1].timeline)


def test_a_queue_in_packets_holds_so_many():
    sim = simulate(
        Path(rate="5Mbit", rtt="20ms", buffer="10packets", aqm="pie"), "cubic", "1s", mode="debug", sample="10ms"
    )
    assert sim.flows.dropped[0] > 0
    assert sim.timeline.queue_delay_us.max() <= 10 * 1514 * 8 / 5 + 1


def test_fq_codel_gives_every_flow_its_share_and_no_queue_to_one_that_sends_little():
    flows = ["cubic", "bbr2022", Sender("reno", app="requests:size=1kB,think=50ms")]
    fair, fifo = (simulate(Path(**PATH, aqm=kind), flows, "20s").flows for kind in ("fq_codel", "codel"))
    assert fair.tail_goodput_bps[0] == pytest.approx(fair.tail_goodput_bps[1], rel=0.1)
    assert fair.tail_queue_delay_mean_us[2] < 1000  # a packet of each of the others
    assert fifo.tail_queue_delay_mean_us[2] > 2000


def test_a_full_fq_codel_drops_from_the_flow_that_fills_it():
    path = Path(rate="20Mbit", rtt="40ms", buffer="30packets", aqm="fq_codel:target=1s,interval=10s")
    flows = simulate(path, [Sender("cubic"), Sender("reno", app="chunks:size=3kB,every=20ms")], "5s").flows
    assert flows.dropped[0] > 0
    assert flows.dropped[1] == 0


def test_pie_answers_overload_by_drops_even_with_ecn():
    """[RFC8033] §5.1: above a probability of 10 % marks are not enough."""
    many = [Sender("cubic", ecn=True)] * 20
    flows = simulate(Path(rate="4Mbit", rtt="20ms", buffer="1MB", aqm="pie"), many, "10s").flows
    assert flows.dropped.sum() > 0
    assert flows.marked.sum() > 0


@pytest.mark.parametrize("count", [1, 10, 100, 1000])  # at 2, a step of Newton's from 1 ends at 1/2, as in the kernel
def test_codels_square_root_is_right_once_it_has_counted_up(count):
    lane = np.zeros(1, LANE).view(np.recarray)[0]
    lane.inv_sqrt = 0xFFFF
    for lane.count in range(1, count + 1):
        aqm.codel_newton_step(lane)
    assert lane.inv_sqrt / 65536 == pytest.approx(1 / math.sqrt(count), rel=0.06)  # 16 bits, one step each


def test_codel_after_a_batch_of_drops_has_a_square_root_again():
    lane = np.zeros(1, LANE).view(np.recarray)[0]
    lane.inv_sqrt, lane.count = 0xFFFF, 64
    aqm.codel_newton_step(lane)
    assert lane.inv_sqrt == 65535 // 8


def test_pies_probability_follows_its_formula():
    """[RFC8033] §4.2 with Linux's gains: alpha 2/16, beta 20/16 a second, a half or less where it is small."""
    w, q = np.zeros(1, [("queue_bytes", "i8")]).view(np.recarray)[0], np.zeros(1, AQM).view(np.recarray)[0]
    for name, value in Aqm.parse("pie").fields(100_000, 1e5).items():
        setattr(q, name, value)
    w.queue_bytes = 50_000
    q.pie_delay, q.pie_delay_before = 25_000_000 >> 6, 20_000_000 >> 6
    q.pie_prob = aqm.PIE_MAX_PROB // 5
    aqm.pie_calculate_probability(w, q)
    assert q.pie_prob / 2**56 == pytest.approx(0.2 + 0.125 * 0.010 + 1.25 * 0.005, abs=1e-5)
    q.pie_delay, q.pie_delay_before, q.pie_prob = 25_000_000 >> 6, 20_000_000 >> 6, aqm.PIE_MAX_PROB // 20
    aqm.pie_calculate_probability(w, q)
    assert q.pie_prob / 2**56 == pytest.approx(0.05 + (0.125 * 0.010 + 1.25 * 0.005) / 2, abs=1e-5)


def test_reds_parameters_are_those_of_tc():
    """The example of tc-red(8): a burst of 55 above a minimum of 30 packets needs a weight of 1/32."""
    fields = Aqm.parse("red:min=30kB,max=90kB,burst=55").fields(400_000, 1e6)
    assert fields["red_wlog"] == 5
    assert 2**32 / fields["red_step"] == pytest.approx(60_000 / 0.02, rel=1e-3)
    assert Aqm.parse("red").fields(400_000, 1e6)["red_max"] == 100_000


@pytest.mark.parametrize("log", [1, 4, 7, 10])
@pytest.mark.parametrize("least", [2.0, 14.2, 300.0])
def test_the_burst_of_a_weight_gives_that_weight(log, least):
    text = f"red:min={least * 1000:.0f}B,max=900kB,burst={red_burst(log, least)}"
    assert Aqm.parse(text).fields(4_000_000, 1e6)["red_wlog"] == log


@pytest.mark.parametrize(
    "text",
    [
        "cake",
        "pie:target",
        "pie:target=5",
        "pie:limit=3",
        "pie:alpha=x",
        "red:min=9kB,max=3kB",
        "red:burst=1",
        "red:probability=0%",
        "codel:interval=0ms",
        "dualpi2:noecn",
    ],
)
def test_what_is_no_discipline_is_refused(text):
    with pytest.raises(ArgumentError):
        Path(**PATH, aqm=text)


def test_commands_take_it(capsys):
    arguments = ["simulate", "--rate", "10Mbit", "--cc", "cubic", "--duration", "3s", "--json", "--aqm"]
    assert main([*arguments, "pie:target=5ms"]) == 0
    assert main([*arguments, "cake"]) == 2
    assert "codel, fq_codel, red, pie, dualpi2" in capsys.readouterr().err


@pytest.mark.parametrize(("qdisc", "at_once"), [((), 1), (("htb",), 2)])
def test_htb_lends_a_packet_where_tbf_waits_for_its_tokens(qdisc, at_once):
    """Of ten packets of 1514 bytes that come together, the bucket of 1600 holds one; later ones wait for the rate."""
    path = Path(rate="10Gbit", rtt="40ms", buffer="100packets", aqm="codel", shaper=("5Mbit", "1600B", *qdisc))
    packets = simulate(path, "reno", "1s", packets=True).capture(side="receiver").packets
    gaps_ms = np.diff(packets["time_ns"][packets["payload"] > 0][:10]) / 1e6
    assert np.all(gaps_ms[: at_once - 1] < 0.01)
    assert gaps_ms[at_once - 1] == pytest.approx(
        ((at_once + 1) * 1514 - 1600 - 1514 * (at_once - 1)) * 8 / 5e3, rel=1e-3
    )
    assert gaps_ms[at_once:] == pytest.approx(1514 * 8 / 5e3, rel=1e-3)


@pytest.mark.parametrize(
    ("aqm", "shaper"),
    [
        ("droptail", ("5Mbit", "1600B", "htb")),
        ("codel", ([(0, "5Mbit"), (1, "9Mbit")], "1600B", "htb")),
        ("codel", ("5Mbit", "1600B", "cbq")),
        ("codel", "5Mbit"),
    ],
)
def test_a_shaper_that_is_none_is_refused(aqm, shaper):
    with pytest.raises(ArgumentError, match="shaper"):
        Path(rate="1Gbit", rtt="20ms", buffer="100packets", aqm=aqm, shaper=shaper)
