"""A policer's buckets are judged in one compiled pass, as by their definition."""

from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.path import constants as const
from cctrace.path.buckets import _Arrivals, _best_near, _delayed, _dropped_as_one, _Hypothesis, _queued
from cctrace.path.evidence import evidence_of
from cctrace.path.lindley import losses_by_deficit
from cctrace.path.transmissions import DELIVERED, LOST
from cctrace.tcp.wire import PACKET_BYTES
from tests.places import RECORDINGS


class Table(SimpleNamespace):
    """The columns of `Transmissions` that a test needs."""

    def __len__(self):
        return len(self.state)


ZONES = int(const.EMPTY_PACKETS + const.OVER_PACKETS) + 2


def policed(seed, chance, missing=0.0, pause_us=0.0):
    """Packets at 1.2 times the rate of a bucket of 20 packets, of which some are lost by chance, too.

    `missing`: bytes that others took from the bucket before. `pause_us`: of the sender, halfway.
    """
    rng = np.random.default_rng(seed)
    time = np.cumsum(rng.exponential(1000, 3000))
    time[1500:] += pause_us
    rate, most, level, lost = PACKET_BYTES / 1200, 20 * PACKET_BYTES, missing, np.zeros(len(time), bool)
    for k, gap in enumerate(np.diff(time, prepend=0.0)):
        level = max(level - gap * rate, 0.0)
        lost[k] = level + PACKET_BYTES > most or rng.random() < chance
        level += 0 if lost[k] else PACKET_BYTES
    return _Arrivals(time, np.full(len(time), float(PACKET_BYTES)), lost, 1e4), rate, most


@pytest.mark.parametrize("chance", [0.0, 0.02])
@pytest.mark.parametrize("factor", [0.7, 0.98, 1.0, 1.05, 1.5])
def test_counts_by_deficit_are_those_of_the_definition(chance, factor):
    tried, rate, most = policed(4, chance)
    judged = tried.judge(factor * rate, most, most / 2)
    over = (tried.corrected_deficits(judged) - most) / PACKET_BYTES
    passed = (over[~tried.lost] > const.OVER_PACKETS).mean()
    explained = (over[tried.lost] > -const.EMPTY_PACKETS).mean()
    assert np.isfinite(judged.gain) == (explained >= const.POLICED_SHARE and passed <= const.MAX_SPARED_SHARE)
    counts = np.zeros(2 + 2 * ZONES, np.int64)
    counts[:2] = tried.lost.sum(), (~tried.lost).sum()
    packets = float(PACKET_BYTES), const.EMPTY_PACKETS, 0.0, const.OVER_PACKETS, 1.0  # refuses nothing
    assert losses_by_deficit(*tried._columns, factor * rate, float(most), most / 2, *packets, counts) == 1
    zone = np.digitize(over, np.arange(-const.EMPTY_PACKETS, const.OVER_PACKETS + 1))
    assert counts[2 : 2 + ZONES].tolist() == np.bincount(zone[tried.lost], minlength=ZONES).tolist()
    assert counts[2 + ZONES :].tolist() == np.bincount(zone, minlength=ZONES).tolist()


def test_a_bucket_of_the_right_rate_is_likely_and_one_of_another_is_refused():
    tried, rate, most = policed(5, 0.0)
    assert tried.judge(rate, most, most / 2).gain > const.POLICED_GAIN
    assert not np.isfinite(tried.judge(3 * rate, most, most / 2).gain)


def test_a_bucket_that_was_half_empty_at_first_is_found_whole_once_it_was_full():
    tried, rate, most = policed(7, 0.0, missing=10 * PACKET_BYTES, pause_us=60e3)
    found = _best_near(tried, rate)
    assert np.median(tried.first_deficits(rate)) < 0.6 * most
    assert found.rate == pytest.approx(rate, rel=2e-3)
    assert found.bucket == pytest.approx(most, abs=PACKET_BYTES)


@pytest.mark.parametrize("all_at_first", [0, 100])
def test_the_beginning_of_a_flow_says_what_its_first_losses_met(all_at_first):
    tried, rate, _ = policed(6, 0.01)
    tried.lost[:all_at_first] = True  # none passes before or among the first losses
    assert tried.first_losses[-1] < len(tried.lost) - 1
    assert tried.first_deficits(rate).tolist() == tried.deficits(rate)[tried.first_losses].tolist()


def test_losses_that_go_on_for_many_rtts_are_an_event_per_rtt():
    time = np.arange(1000) * 1e3
    lost = np.arange(1000) % 4 == 3  # one in 4 ms, for 100 RTTs of 10 ms
    lost[:500] = False
    assert _Arrivals(time, np.full(1000, 1500.0), lost, 1e4).apart * lost.sum() == pytest.approx(50, abs=9)
    once = np.zeros(1000, bool)
    once[[300, 304, 308, 600]] = True  # within an RTT, and another one
    assert _Arrivals(time, np.full(1000, 1500.0), once, 1e4).apart == 2 / 4


@pytest.mark.parametrize(("queue_us", "queued"), [(0.0, False), (15e3, True)])
def test_a_packet_that_waits_for_a_delayed_ack_before_a_loss_met_no_queue(queue_us, queued):
    sent = np.arange(1000) * 6e6  # every 6 ms, over a base RTT of 30 ms
    lost = np.arange(1000) % 40 == 39
    rtt = np.where(lost, np.nan, 30e3 + 6e3 * (np.arange(1000) % 2 == 0))  # every second packet releases the ACK
    rtt[np.flatnonzero(lost) - 1] += 6e3  # the lost one would have
    rtt[np.flatnonzero(lost)[:, None] - np.arange(1, 6)] += queue_us
    state = np.where(lost, LOST, DELIVERED)
    table = SimpleNamespace(sent_ns=sent, rtt_us=rtt, state=state, retransmitted=np.zeros(1000, bool))
    assert _queued(table, 30e3) == queued


def test_a_policer_of_whole_super_packets_is_recognised_by_these():
    """2.5 s of CUBIC with TSO through 30 Mbit/s, 100 kB; bursts that empty the bucket wait at 100 Mbit/s behind it."""
    found = cct.diagnose(cct.read(RECORDINGS / "lab_policed_tso/sender.pcap.zst").flow(0))
    assert found.cause == "policer"
    numbers = found.verdicts[0].evidence
    assert numbers["rate_bps"] == pytest.approx(30e6, rel=0.04)  # it counts one header per super-packet
    assert numbers["bucket_bytes"] == pytest.approx(100_000, rel=0.06)


@pytest.mark.parametrize(("lost", "units"), [([2, 3], [0, 0, 1, 1, 2]), ([1, 2, 3], [0, 1, 2, 3, 4])])
def test_super_packets_are_dropped_as_one_if_none_loses_a_part(lost, units):
    state = np.full(5, DELIVERED)
    state[lost] = LOST
    packet, sent = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 5, 5, 9])
    table = Table(packet=packet, state=state, sent_ns=sent, wire_bytes=np.full(5, 1514.0))
    number, sent_ns, size, gone = _dropped_as_one(table)
    assert number.tolist() == units
    assert size.sum() == 5 * 1514
    assert len(sent_ns) == len(gone) == units[-1] + 1


@pytest.mark.parametrize("served", [0.0, 1.0])  # packets do not wait for tokens, or as long as the deficit lasts
def test_jitter_hides_neither_a_queue_nor_its_absence(served):
    rng = np.random.default_rng(6)
    met = rng.uniform(0, 20 * PACKET_BYTES, 4000)
    rtt_us = 60e3 + served * met / 2.5 + rng.normal(0, 10e3, len(met))
    once = Table(state=met, rtt_us=rtt_us, retransmitted=np.zeros(len(met), bool), sent_ns=np.arange(len(met)))
    assert _delayed(once, met, _Hypothesis(2.5, 20 * PACKET_BYTES, 0.0, 0.0)) == (served > 0.5)


def test_a_bucket_behind_a_link_hardly_faster_than_its_rate_is_found_whole():
    """Drops come one at a time there, an RTT's worth an episode, so that a rate slightly off fits another bucket."""
    path = cct.Path(rate="60Mbit", rtt="20ms", buffer="2bdp", policer=("50Mbit", "300kB"))
    sim = cct.simulate(path, cct.Sender("cubic6", ack_every=2, profile="linux"), "15s", seed=5, packets=True)
    evidence = evidence_of(sim)
    assert evidence.policer.rate.value * 8 == pytest.approx(50, rel=2e-3)
    assert evidence.policer.size_bytes.value == pytest.approx(300e3, rel=0.01)
    assert evidence.policer.explained.sum() == evidence.lost.sum()
