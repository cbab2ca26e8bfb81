"""The scale of a receive window whose SYN was not captured."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.diagnosis.diagnose import diagnose
from cctrace.flows.capture import Capture
from cctrace.flows.window_scale import MAX_WSCALE, shown_scale

PATH = cct.Path(rate="40Mbit", rtt="60ms", buffer="1bdp")


def simulated(seconds=6, **sender):
    return cct.simulate(PATH, cct.Sender(ack_every=2, **sender), f"{seconds}s", packets=True).capture()


def from_the_middle(capture, after_s=2):
    """A capture that begins when the connection has lasted for some seconds, read anew."""
    found = capture.packets
    keep = found["time_ns"] >= found["time_ns"][0] + after_s * 10**9
    found.columns = {name: column[keep] for name, column in found.columns.items()}
    found.connections = {
        name: np.full_like(column, -1) if name.startswith(("wscale", "sack_ok")) else column
        for name, column in found.connections.items()
    }
    return Capture(found)


@pytest.mark.parametrize("cc", ["cubic", "bbr2022"])
def test_data_that_fill_the_window_show_its_scale_in_mid_connection(cc):
    whole = simulated(cc=cc, rwnd="100kB")
    scale = int(whole.packets.connections["wscale_b"][0])
    assert shown_scale(whole, 0) == scale
    flow = from_the_middle(whole).flow(0)
    assert flow.facts["wscale"] == scale
    assert "wscale" not in flow.facts["inferred"]
    assert diagnose(flow).cause == "receiver_limited"


def test_the_window_shows_its_scale_between_losses():
    path = cct.Path(rate="40Mbit", rtt="60ms", buffer="1bdp", loss=0.005)
    whole = cct.simulate(path, cct.Sender("bbr3", ack_every=2, rwnd="100kB"), "8s", packets=True).capture()
    flow = from_the_middle(whole).flow(0)
    assert "wscale" not in flow.facts["inferred"]
    assert "receiver_limited" in [verdict.name for verdict in diagnose(flow).verdicts]


def test_a_sender_that_waits_for_room_for_a_super_packet_fills_the_window_when_it_sends():
    path = cct.Path(rate="400Mbit", rtt="5ms", buffer="4bdp")
    whole = cct.simulate(path, cct.Sender("reno", ack_every=2, rwnd="64kB"), "3s", packets=True).capture()
    assert diagnose(from_the_middle(whole, 1).flow(0)).cause == "receiver_limited"


@pytest.mark.parametrize(
    "sender",
    [
        {"cc": "cubic"},
        {"cc": "bbr2022"},
        {"cc": "cubic", "app": "chunks:size=60kB,every=120ms"},
        {"cc": "reno", "fq": True},
    ],
    ids=["cubic", "bbr", "application", "reno"],
)
def test_data_that_something_else_limits_show_none(sender):
    flow = from_the_middle(simulated(**sender)).flow(0)
    assert flow.facts["wscale"] == MAX_WSCALE
    assert "wscale" in flow.facts["inferred"]
    assert "receiver_limited" not in [verdict.name for verdict in diagnose(flow).verdicts]


def test_a_recorded_window_without_scale_is_found():
    capture = cct.read(cct.datasets.path("web_server", "sender.pcap.zst"))
    offered = capture.packets.connections["wscale_b"], capture.packets.connections["wscale_a"]
    shown = {k: shown_scale(capture, k) for k in range(len(capture))}
    shown = {k: scale for k, scale in shown.items() if scale is not None}
    assert shown
    assert shown == {k: int(offered[capture.connections.sender[k]][k]) for k in shown}
