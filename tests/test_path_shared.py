"""The rate of a queue that flows of a capture share."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import cctrace as cct
from cctrace.flows.capture import Capture
from cctrace.path.bottleneck import constant_rate
from cctrace.path.evidence import evidence_of
from cctrace.path.neighbours import merged, on_clock
from cctrace.path.queue import constant
from cctrace.path.route import _joint_rate

RATE = 30e6 / 8e6  # bytes/us


@pytest.fixture(scope="module")
def shared():
    """Evidence of two flows between the same hosts, of which the second begins late and gets little."""
    path = cct.Path(rate="30Mbit", rtt="25ms", buffer="3bdp")
    senders = [cct.Sender("bbr3", ack_every=2), cct.Sender("cubic", ack_every=2, start="2s")]
    packets = cct.simulate(path, senders, "5s", seed=1, packets=True).capture().packets
    packets.connections["src"][1] = packets.connections["src"][0]
    capture = Capture(packets)
    return [evidence_of(capture.flow(k)) for k in range(2)]


def test_flows_between_the_same_hosts_show_one_rate_of_their_queue(shared):
    first, second = (one.traffic.steps.rate.item() for one in shared)
    assert first == pytest.approx(RATE, rel=1e-4)
    assert first == pytest.approx(second, rel=1e-9)


def test_delays_of_others_that_this_queue_did_not_cause_do_not_change_its_rate(shared):
    """The others' are of a queue of their own, slower by a half, as those of a fair queue."""
    _, path = shared
    other = on_clock(path.companions[0], path.transmissions.start_ns)
    far = replace(other, acked_us=other.departures(constant(RATE / 1.5)) + 25e3)
    capture = SimpleNamespace(columns=path.capture.columns)
    one = SimpleNamespace(capture=capture, index=1, shared=SimpleNamespace(flows=(0,)))
    parts = [path.sent, far]
    rate = _joint_rate(one, parts, merged(parts))
    assert rate == constant_rate(merged(parts))[0]
    assert rate == pytest.approx(RATE, rel=1e-4)
    assert constant_rate(merged(parts, 2))[0] != pytest.approx(rate, rel=1e-2)
