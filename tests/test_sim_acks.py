"""Receivers acknowledge by the policies that RFC 9000 and Chromium's released code have."""

from types import SimpleNamespace

import numpy as np
import pytest

import cctrace as cct
from cctrace.errors import ArgumentError
from cctrace.sim.acks import ACK_POLICIES, ack_policy
from cctrace.sim.core.quic_receiver import quic_at_once

PATH = cct.Path(rate="20Mbit", rtt="40ms", buffer="4bdp")


def answers(name, orders):
    """Return the packets that a receiver of this policy acknowledges at once, and the receiver."""
    policy = ACK_POLICIES[name]
    receiver = SimpleNamespace(
        after_gap=policy.after_gap,
        decimated_from=policy.decimated_from,
        decimated_every=policy.decimated_every,
        decimated_ns=policy.decimated_ns(40_000_000),
        ack_every=policy.every,
        delack_ns=policy.delay_ns,
        rcv_largest=-1,
        rcv_since_gap=0,
    )
    return [order for order in orders if quic_at_once(receiver, order)], receiver


def test_a_gap_is_reported_once_by_the_rfc_and_four_times_by_chromium():
    orders = [0, 1, 2, 5, 6, 7, 8, 9, 10]
    assert answers("rfc9000", orders)[0] == [5]
    assert answers("chromium", orders)[0] == [5, 6, 7, 8]


def test_a_late_packet_is_acknowledged_at_once_and_what_follows_it_is_no_gap():
    assert answers("rfc9000", [0, 1, 3, 2, 4, 5])[0] == [3, 2]


@pytest.mark.parametrize(("last", "every", "wait_ms"), [(99, 2, 25), (100, 10, 10)])
def test_chromium_decimates_after_a_hundred_packets_for_a_quarter_of_the_rtt(last, every, wait_ms):
    _, receiver = answers("chromium", range(last + 1))
    assert (receiver.ack_every, receiver.delack_ns) == (every, wait_ms * 1_000_000)


def test_decimation_waits_neither_longer_than_max_ack_delay_nor_less_than_an_alarm():
    chromium = ACK_POLICIES["chromium"]
    assert [chromium.decimated_ns(rtt) for rtt in (1_000_000, 1_000_000_000)] == [1_000_000, 25_000_000]


@pytest.mark.parametrize(("ack", "packets_per_ack"), [("every:1", 1), ("rfc9000", 2), ("chromium", 10)])
def test_a_quic_flow_gets_as_many_acks_as_its_receivers_policy_has(ack, packets_per_ack):
    sim = cct.simulate(PATH, [cct.Sender("quic_bbr", ack=ack)], "5s", seed=1, trace=True)
    event = np.asarray(sim.flow(0).event)
    acked = sim.flow(0).columns["smp_total_acked"].max() / 1252
    assert acked / np.count_nonzero(event == 1) == pytest.approx(packets_per_ack, rel=0.15)  # STARTUP, gaps, timers


def test_linux_is_the_receiver_of_every_second_segment():
    named, counted = (
        cct.simulate(PATH, [cct.Sender("cubic6", **how)], "2s", seed=1).flows
        for how in ({"ack": "linux"}, {"ack_every": 2})
    )
    assert named.equals(counted)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cc": "bbr2022", "ack": "chromium"}, "ack='chromium' is a policy of QUIC receivers; use linux or every:N"),
        (
            {"cc": "quic_bbr", "ack": "linux"},
            "ack='linux' is a policy of TCP receivers; use rfc9000, chromium",
        ),
        ({"cc": "quic_bbr", "ack": "every:0"}, "ack='every:0': use linux, rfc9000, chromium or every:N"),
        ({"cc": "reno", "ack": "sometimes"}, "ack='sometimes': use linux"),
        ({"cc": "reno", "ack": "every:3", "ack_every": 2}, "say the same thing: give one"),
    ],
)
def test_a_policy_that_there_is_not_is_refused(fields, message):
    with pytest.raises(ArgumentError, match=message):
        cct.Sender(**fields)


def test_a_policy_is_parsed_without_a_simulation():
    assert ack_policy("every:8", quic=False).every == 8
