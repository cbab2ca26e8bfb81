"""Senders of captures that began in mid-connection."""

import dataclasses

import numpy as np
import pytest

import cctrace as cct
from cctrace.flows.capture import Capture
from cctrace.identification.identify import _of_packets, identify
from cctrace.identification.sends import RecordedFlow


def late_flow(cc, share=0.3, **more):
    """Return a flow of 15 s, of whose capture this share is missing at the beginning."""
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="0.8bdp", **more)
    packets = cct.simulate(path, cct.Sender(cc, ack_every=2), "15s", seed=4, packets=True).capture().packets
    time = packets.columns["time_ns"].astype(np.int64)
    packets.columns = {
        name: column[time >= time[0] + share * (time[-1] - time[0])] for name, column in packets.columns.items()
    }
    return Capture(packets).flow(0)


@pytest.mark.parametrize("cc", ["cubic6", "reno"])
def test_a_window_is_known_from_the_first_reduction_on(cc):
    assert cc in identify(late_flow(cc)).group


@pytest.mark.parametrize(("cc", "has_timer"), [("cubic6", False), ("bbr2022", True)])
def test_what_the_first_packets_answered_is_not_in_the_capture(cc, has_timer):
    assert RecordedFlow(late_flow(cc)).record.shows_no_timer != has_timer


@pytest.mark.parametrize("exact", [True, False])
def test_what_earlier_losses_left_of_inflight_hi_does_not_tell_the_generations_of_bbr_apart(exact):
    """Through fq, perhaps: then what was in flight is evidence, instead of each send."""
    record = RecordedFlow(late_flow("bbr3", loss="1%")).record.part()
    record = dataclasses.replace(record, exact=exact)
    found = dict(_of_packets(record).candidates)
    assert found["bbr3"] == pytest.approx(found["bbr2"])
    assert found["bbr3"] > 0.3
