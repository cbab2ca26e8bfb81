"""Paths of kinds that are easy to get wrong: always full, shared by many, without SACK, behind a bucket of a packet."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conversation import MSS, Conversation

import cctrace as cct
from cctrace.diagnosis.packets.losses import losses
from cctrace.diagnosis.packets.policing import _waited_behind
from cctrace.diagnosis.record import Record
from cctrace.flows.capture import Capture
from cctrace.path.bottleneck import constant_rate
from cctrace.path.delays import _place, delays_of
from cctrace.path.evidence import evidence_of
from cctrace.path.own_queue import acked_evenly, base_rtt_us
from cctrace.path.queue import constant, departures
from cctrace.path.sent import SentPackets
from cctrace.path.shapers import shaper_of
from cctrace.path.steps import jumps
from cctrace.path.transmissions import DELIVERED, LOST, transmissions


@pytest.fixture(scope="module")
def kept_full():
    """A receive window above the bandwidth-delay product: its excess stands in the queue from the second RTT on."""
    path = cct.Path(rate="9.77Mbit", rtt="32ms", buffer="4bdp", jitter="normal:sd=3us,per=packet")
    return cct.simulate(path, [cct.Sender("cubic6", rwnd="66kB", ack_every=2)], "12s", seed=3, packets=True)


def test_the_rate_behind_a_queue_that_never_changes_is_found(kept_full):
    """Above it no queue stands, and only the first RTTs are not explained: packet pairs lead to it."""
    fitted = cct.fit.path(kept_full).estimates
    assert fitted["rate_bps"][0]["value"] == pytest.approx(9.77e6, rel=1e-3)
    assert fitted["base_rtt_us"].value == pytest.approx(32_000, rel=5e-3)


def test_a_path_that_a_window_keeps_full_is_said_to_be_full(kept_full):
    names = [one.name for one in cct.diagnose(kept_full.capture(0).flow(0)).verdicts]
    assert "receiver_limited" in names
    assert "path_full" in names


def test_a_window_below_the_path_leaves_it_free():
    path = cct.Path(rate="20Mbit", rtt="32ms", buffer="4bdp")
    sim = cct.simulate(path, [cct.Sender("cubic6", rwnd="66kB", ack_every=2)], "6s", seed=3, packets=True)
    names = [one.name for one in cct.diagnose(sim.capture(0).flow(0)).verdicts]
    assert "receiver_limited" in names
    assert "path_full" not in names


def test_pairs_that_pass_sooner_are_not_taken_for_the_rate():
    """A token bucket of a packet passes the second of each pair sooner; the queue's delays refute the pairs' rate."""
    path = cct.Path(rate="1Gbit", rtt="78ms", buffer="300kB", shaper=("24Mbit", "1598B"))
    sim = cct.simulate(path, [cct.Sender("bbr2", ack_every=2)], "8s", seed=3, packets=True)
    rate = constant_rate(evidence_of(sim.capture(0).flow(0)).sent)[0]
    assert 8e6 * rate == pytest.approx(24e6, rel=1e-3)


@pytest.mark.parametrize("fell", [1, 40])
def test_a_single_delay_that_fell_does_not_place_the_jitter_before_the_queue(fell):
    """Of 400 loosely spaced packets: a rate that one event gives is known too little to expect others by it."""
    apart = np.where(np.arange(16_000) % 40 == 0, 300.0, 100.0)  # every fortieth is three service times behind
    departed = np.cumsum(apart)
    delay = np.full(len(departed), 1_000.0)
    loose = np.flatnonzero(apart > 200)[2:]
    for k in loose[: 2 * fell : 2]:  # the later ones keep it: a step down, recovered by the next loose one
        delay[k : k + 40] = 900.0
    arrived = departed + delay
    gap = np.diff(arrived, prepend=arrived[0] - 100.0)
    found = SimpleNamespace(last=np.arange(len(departed)), departed_us=departed, delay_us=delay, gap_us=gap)
    place = _place(found, np.full(len(departed), 100.0), np.ones(len(departed), bool))
    assert place == ("before" if fell == 40 else None)


def test_packets_of_others_in_the_queue_hide_where_the_delay_varies():
    """Far apart ACKs do not mean then that a packet found the queue empty: the RTT without it would include it."""
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="2bdp", jitter_before="normal:sd=2ms,per=packet")
    evidence = evidence_of(cct.simulate(path, [cct.Sender("bbr3", ack_every=2)], "8s", seed=31, packets=True))
    of = evidence.transmissions, evidence.sent, evidence.steps
    assert delays_of(*of).place == "before"
    assert delays_of(*of, is_shared=True).place is None


def go_back_n(sack):
    """Segments 1 to 10, of which 1 and 4 are lost; after a timeout all from 1 to 5 leave again, in order."""
    talk = Conversation(sack=sack)
    at = lambda k: 1 + k * MSS  # noqa: E731
    talk.data(-1.0, 1)
    talk.ack(39.0, at(1))
    talk.data(0.0, at(1), segments=10)
    for k in range(8):  # one duplicate ACK for each that arrived beyond the hole
        talk.ack(40.1 + k / 10, at(1))
    talk.data(300.0, at(1))
    talk.ack(340.0, at(4))
    for k in range(2, 6):
        talk.data(340.1 + k, at(k))
    talk.ack(382.1, at(4))  # copies of 2 and 3 arrive
    talk.ack(383.1, at(4))
    talk.ack(384.1, at(11))  # 4 fills the hole
    talk.ack(385.1, at(11))  # the copy of 5 arrives
    return talk.capture().flow(0)


def test_copies_of_what_had_arrived_are_no_losses_without_sack():
    table = transmissions(go_back_n(sack=False))
    assert np.flatnonzero(table.state == LOST).tolist() == [1, 4]
    assert table.state[[11, 14]].tolist() == [DELIVERED, DELIVERED]


def test_a_flow_of_which_nothing_arrives_stalls_whatever_its_window():
    """A path with a smaller MTU passes the handshake only; one more segment would not have fitted the window."""
    talk = Conversation()
    talk.data(0.0, 1, segments=44)  # of a window of 512 * 128 bytes
    for k in range(5):
        talk.data(250.0 * 2**k, 1)
    first = cct.diagnose(talk.flow()).verdicts[0]
    assert first.name == "stalls"
    assert "smaller MTU" in first.advice


@pytest.fixture(scope="module")
def in_turn():
    """BBR beside an earlier CUBIC, each in its queue of fq_codel; by its delays alone, their queue is a common one."""
    path = cct.Path(rate="12Mbit", rtt="30ms", buffer="8bdp", aqm="fq_codel")
    flows = ["cubic6", cct.Sender("bbr2022", start="1s")]
    return cct.simulate(path, flows, "7s", seed=2, packets=True, ack_every=2).capture().flow(1)


def test_a_bucket_that_explains_no_delay_is_no_shaper(in_turn):
    """Of both flows, half the link's rate leaves a deficit of megabytes, and whatever they waited for unexplained."""
    traffic = evidence_of(in_turn).traffic
    assert traffic.others == (0,)
    assert shaper_of(traffic.sent, constant(traffic.steps.rate[0] / 2)) is None


def test_flows_whose_packets_leave_more_slowly_than_all_do_have_no_common_queue(in_turn, monkeypatch):
    """Cake and fq_codel serve one packet of each flow in turn: pairs of a flow's own are twice as far apart."""
    path = replace(evidence_of(in_turn), cache={})
    monkeypatch.setattr("cctrace.path.route.constant_rate", lambda _: (path.shared.rate / 2, 0.0))
    assert path.traffic.others == ()


def test_losses_met_no_queue_longer_than_any_rtt():
    """What Reno leaves of its share BBR takes and gives back: a queue at half the rate would be of 279 ms."""
    path = cct.Path(rate="15Mbit", rtt="30ms", buffer="8bdp", aqm="fq_codel")
    flow = cct.simulate(path, ["reno", cct.Sender("bbr3", start="2s")], "8s", seed=3, packets=True, ack_every=2)
    record = Record(flow.capture().flow(0))
    backlogs = losses(record).backlogs
    assert backlogs is None or max(backlogs.waits_us) <= np.nanmax(record.path.rtt_us)


def test_a_queue_that_stood_all_the_time_bounds_base_rtt_and_buffer():
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="3bdp")
    packets = cct.simulate(path, cct.Sender("cubic6", ack_every=2), "8s", packets=True).capture().packets
    late = packets.columns["time_ns"] >= packets.columns["time_ns"][0] + 2e9
    packets.columns = {name: column[late] for name, column in packets.columns.items()}
    names = [name for name in packets.connections if name.startswith(("wscale", "sack_ok"))]
    packets.connections |= {name: np.full_like(packets.connections[name], -1) for name in names}
    fitted = cct.fit.path(Capture(packets).flow(0))
    base, buffer = (fitted.estimates[name] for name in ("base_rtt_us", "buffer_bytes"))
    assert (base.value, base.low, buffer.value, buffer.high) == (None,) * 4
    assert base.high > 40_000
    assert buffer.low < path.buffer_bytes
    assert {"base_rtt", "buffer"} <= set(fitted.estimates["undetermined"])


def test_rtts_of_a_capture_that_begins_during_a_recovery_are_those_of_the_whole():
    """SACKs say at once what arrived, although the ACK numbers precede the first byte of the capture."""
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="0.5bdp")
    packets = cct.simulate(path, cct.Sender("reno", ack_every=2), "6s", seed=4, packets=True).capture().packets
    whole = transmissions(Capture(packets).flow(0))
    lost = np.flatnonzero(whole.state == LOST)[-2]
    begin_ns = whole.sent_ns[lost] + 1e7  # what is sent then is selectively acknowledged
    late = packets.columns["time_ns"] >= begin_ns
    packets.columns = {name: column[late] for name, column in packets.columns.items()}
    cut, rest = transmissions(Capture(packets).flow(0)).rtt_us, whole.rtt_us[whole.sent_ns >= begin_ns]
    first = whole.sent_ns[whole.sent_ns >= begin_ns] < begin_ns + 5e7
    np.testing.assert_array_equal(cut[: first.sum()], rest[first])


@pytest.mark.parametrize("every", [20, 100])
def test_packets_that_pass_the_others_delay_do_not_show_the_base_rtt(every):
    """A route that skips 15 of 30 ms for some packets, as netem's reordering does."""
    number = np.arange(2000)
    sent_us, yes = 1e3 * number, np.ones(2000, bool)
    acked_us = sent_us + np.where(number % every == every - 1, 15e3, 30e3)
    sent = SentPackets(sent_us, np.full(2000, 1514.0), acked_us, number, yes, yes)
    assert base_rtt_us(sent, constant(1514.0)) == pytest.approx(30e3, rel=0.01)


def through_queue(sent_us, rate, later_us=0.0, base_us=40_000.0):
    """Packets of 1500 bytes that a queue serves at a rate (bytes/us), and what delays them after it."""
    size, every = np.full(len(sent_us), 1500.0), np.ones(len(sent_us), bool)
    acked_us = departures(sent_us, size, constant(rate)) + base_us + later_us
    return SentPackets(sent_us, size, acked_us, np.arange(len(sent_us)), every, every)


def test_what_arrived_at_an_unknown_time_is_delivered_with_the_next_packet():
    """While holes are repaired, ACKs report much that arrived long before."""
    sent = through_queue(np.arange(4000) * 500.0, rate=3.0)
    gaps = replace(sent, acked_us=np.where(np.arange(4000) % 5 < 3, np.nan, sent.acked_us))
    edges = np.arange(1e5, 1.9e6, 1e5)
    assert acked_evenly(gaps, edges) == pytest.approx(acked_evenly(sent, edges), rel=0.01)


def test_a_rate_that_fell_shows_although_the_sender_repaired_losses_in_between():
    rate = np.r_[np.full(20, 50.0), 38.0, 11.0, 1.0, 1.0, 14.0, np.full(20, 25.0)]
    found = jumps(np.arange(len(rate)) * 0.1, np.log(rate), over_dips=True)
    assert len(found) == 1
    assert found[0] == pytest.approx(2.2, abs=0.4)
    recovered = np.r_[np.full(20, 50.0), 38.0, 11.0, 1.0, 1.0, 14.0, np.full(20, 50.0)]
    assert not len(jumps(np.arange(len(recovered)) * 0.1, np.log(recovered), over_dips=True))


def test_packets_that_wait_behind_a_policer_at_a_link_of_twice_its_rate_do_not_wait_for_tokens():
    bursts = np.repeat(np.arange(300) * 5000.0, 12)
    sent = through_queue(bursts, rate=7.5)
    link = SimpleNamespace(rate=7.5, explained=0.9)
    path = SimpleNamespace(rate_changes=[], companions={}, sent=sent, require_bottleneck=link)
    assert _waited_behind(SimpleNamespace(path=path), 3.75)
    assert not _waited_behind(SimpleNamespace(path=path), 7.4)
    path.rate_changes = ["the link was that slow later"]
    assert not _waited_behind(SimpleNamespace(path=path), 3.75)


def test_a_radio_that_sends_at_intervals_is_no_shaper_whatever_rate_it_seems_to_have():
    """At a rate one per cent too low, packets seem to arrive ever earlier than a queue would release them."""
    at_rate = np.arange(25_000) * 1500 / 3.785
    sent_us = (at_rate + 2e5 * (at_rate > 5e6)) // 10_000 * 10_000.0  # in bursts, with a pause
    gone_us = departures(sent_us, np.full(25_000, 1500.0), constant(3.785))
    slots = np.cumsum(np.random.default_rng(5).uniform(10e3, 20e3, 2000))
    later_us = slots[np.searchsorted(slots, gone_us)] - gone_us
    assert shaper_of(through_queue(sent_us, 3.785, later_us), constant(0.99 * 3.785)) is None
