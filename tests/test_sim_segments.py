"""Segments of another size than Ethernet's: what they carry, and what refuses them."""

import pytest

import cctrace as cct
from cctrace.errors import ArgumentError
from cctrace.sim.sender import Sender

PATH = cct.Path(rate="400Mbit", rtt="40ms", buffer="1bdp")


@pytest.mark.parametrize("window", [None, "64MB"], ids=["growing", "fixed"])
def test_jumbo_frames_carry_more_data_in_fewer_segments(window):
    plain, jumbo = (cct.simulate(PATH, "reno", "10s", mss=mss, rwnd=window).flows for mss in (None, 8948))
    assert plain.goodput_bps[0] / 400e6 == pytest.approx(1448 / 1514, rel=0.08)  # after its slow start
    assert jumbo.goodput_bps[0] / 400e6 == pytest.approx(8948 / 9014, rel=0.08)
    assert jumbo.sent[0] < plain.sent[0] / 5


@pytest.mark.parametrize(
    ("sender", "says"),
    [
        ({"cc": "quic_bbr", "mss": 1400}, "is the stack's own with QUIC"),
        ({"cc": "reno", "mss": 100}, "from 536 to 32000"),
        ({"cc": "reno", "mss": 8948.5}, "from 536 to 32000"),
        ({"cc": "reno", "mss": 8948, "rwnd": "10kB"}, "less than two segments"),
    ],
    ids=["quic", "small", "fraction", "window"],
)
def test_a_size_that_cannot_be_is_refused(sender, says):
    with pytest.raises(ArgumentError, match=says):
        Sender(**sender)


def test_a_segment_that_the_buffer_cannot_hold_is_refused():
    with pytest.raises(ArgumentError, match=r"mss=8948: a packet of 9014 bytes does not fit buffer='4000B'"):
        cct.simulate(cct.Path(rate="10Mbit", rtt="40ms", buffer="4000B"), "reno", "1s", mss=8948)
