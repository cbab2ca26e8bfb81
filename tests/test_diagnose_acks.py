"""A queue of ACKs on the return path, told from one of data by the receiver's time stamps."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.diagnose import diagnose
from cctrace.flows.capture import Capture


def captured(held_ns, every_ns=0):
    """Return a BBR's flow whose ACKs a queue holds up after two and four seconds, then lets out one by one."""
    sim = cct.simulate(
        cct.Path(rate="20Mbit", rtt="40ms", buffer="8bdp"),
        cct.Sender("bbr2022", ack_every=2),
        "6s",
        seed=3,
        packets=True,
    )
    found = sim.capture().packets
    time = found.columns["time_ns"].astype(np.int64)
    acks = np.flatnonzero((found["payload"] == 0) & (found["direction"] == 1) & (time > time[0] + 500_000_000))
    free_ns, ahead = 0, [time[0] + 2_000_000_000, time[0] + 4_000_000_000]
    for k in acks.tolist():
        if ahead and time[k] > ahead[0]:
            free_ns = ahead.pop(0) + held_ns
        time[k] = free_ns = max(int(time[k]), free_ns + every_ns)
    found.columns["time_ns"] = time
    return Capture(found.sorted_by_time()).flow(0)


def test_a_queue_of_acks_is_told_with_its_rate():
    every_ns = 1_150_000  # a tenth less than the bottleneck takes for the two segments that an ACK is for
    found = diagnose(captured(100_000_000, every_ns))
    assert found.cause == "ack_path_full"
    assert found.verdicts[0].evidence["return_share"] > 0.8
    assert found.verdicts[0].evidence["acks_per_s"] == pytest.approx(1e9 / every_ns, rel=0.1)


def test_a_queue_of_data_is_none_of_acks():
    assert "ack_path_full" not in diagnose(captured(0)).causes


def test_flows_whose_rates_have_a_steady_sum_compete_although_acks_on_a_clock_hide_the_queue():
    senders = [cct.Sender("cubic6", ack_slot="8ms"), cct.Sender("cubic6", ack_slot="8ms", start="2s")]
    sim = cct.simulate(cct.Path(rate="40Mbit", rtt="30ms", buffer="2bdp"), senders, "8s", seed=3, packets=True)
    for flow in (sim.capture().flow(0), sim.capture().flow(1)):
        found = next(one for one in diagnose(flow).verdicts if one.name == "competition")
        assert found.evidence["link_bps"] == pytest.approx(40e6, rel=0.05)
