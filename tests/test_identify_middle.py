"""Senders of captures that began in mid-connection."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.flows.capture import Capture
from cctrace.identification.identify import identify
from cctrace.identification.sends import RecordedFlow


def late_flow(cc, share=0.3):
    """Return a flow of 15 s, of whose capture this share is missing at the beginning."""
    path = cct.Path(rate="20Mbit", rtt="40ms", buffer="0.8bdp")
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
