"""A fair queue: against one that serves bit by bit, and flows of fq_codel."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.path.lindley import served_in_turn
from cctrace.path.queue import constant, departures


def leaving(sent_us, size, flow, rate):
    count, out = int(np.sum(flow == 0)), np.empty(int(np.sum(flow == 0)))
    served_in_turn(sent_us, size, flow, rate, np.zeros(flow.max() + 1), np.empty(count), out)
    return out


def bit_by_bit(sent_us, size, flow, rate, step_us=0.01):
    """Serve all flows that have packets waiting at equal rates, in small steps."""
    waiting, out, k, now = [[] for _ in range(flow.max() + 1)], [], 0, 0.0
    while len(out) < np.sum(flow == 0):
        while k < len(sent_us) and sent_us[k] <= now:
            waiting[flow[k]].append(size[k])
            k += 1
        busy = [queue for queue in waiting if queue]
        now += step_us
        for queue in busy:
            queue[0] -= rate * step_us / len(busy)
            if queue[0] <= 1e-9:
                queue.pop(0)
                if queue is waiting[0]:
                    out.append(now)
    return np.array(out)


def test_packets_leave_as_if_every_waiting_flow_were_served_a_bit_in_turn():
    rng = np.random.default_rng(4)
    sent_us = np.sort(rng.uniform(0, 300, 60)).round(2)
    size, flow = rng.integers(1, 12, 60).astype(float), rng.integers(0, 4, 60)
    assert leaving(sent_us, size, flow, 1.25) == pytest.approx(bit_by_bit(sent_us, size, flow, 1.25), abs=0.2)


def test_a_flow_alone_leaves_a_plain_queue():
    rng = np.random.default_rng(5)
    sent_us, size = np.sort(rng.uniform(0, 1000, 200)), rng.uniform(1, 10, 200)
    expected = departures(sent_us, size, constant(1.1))
    assert leaving(sent_us, size, np.zeros(200, np.int64), 1.1) == pytest.approx(expected)


def test_a_flow_that_backs_off_behind_fq_codel_leaves_the_rest_to_the_other():
    """Shares are not equal then, and yet no common queue explains the delays."""
    path = cct.Path(rate="20Mbit", rtt="50ms", buffer="6bdp", aqm="fq_codel")
    senders = [cct.Sender("reno", ack_every=2), cct.Sender("bbr2022", ack_every=2, start="2s")]
    capture = cct.simulate(path, senders, "10s", seed=2, packets=True).capture()
    for k in (0, 1):
        first = cct.diagnose(capture.flow(k)).verdicts[0]
        assert first.name == "fair_queueing"
        assert first.evidence["link_bps"] == pytest.approx(20e6, rel=0.002)
