"""Recordings of kernels in virtual time (docs/lab.md): super-packets under loss, a small send buffer, pauses, windows.

User Mode Linux in time-travel mode, HZ = 250: BBRv3 (a patched 6.12.117), BBRv2 (6.1.192), BBRv1 and CUBIC (6.12.117);
path and seed are in scenario.json. Those of the send buffer, of DCTCP, `lab_v2_window`, `lab_v3_pauses`,
`lab_v3_max_rate`, `lab_v3_filled` and `lab_cubic_app` showed what was wrong; each other was made after the rules that
it tests.
"""

import functools

import numpy as np
import pytest

import cctrace as cct
from cctrace.analysis.validate import validate
from tests.places import RECORDINGS

SENDERS = {
    "lab_v3_loss": "BBR3",  # 1.5 % random loss
    "lab_v3_tso": "BBR3",  # the capture has the super-packets themselves
    "lab_v3_app": "BBR3",  # 200 kB every 0.4 s
    "lab_v2_jitter": "BBR2",  # 1 % random loss and jitter of 2 ms
    "lab_v2_window": "BBR2",  # the edge of the receive window cuts a super-packet
    "lab_v3_pauses": "BBR3",  # waits for a probe that end before a pause
    "lab_v3_filled": "BBR3",  # writes that fill an empty queue at once, and a round of STARTUP that does not count
    "lab_v3_max_rate": "BBR3",  # an SO_MAX_PACING_RATE that lets two segments fly
    "lab_v1_sndbuf": "BBR2022",  # a send buffer of 24 kB
    "lab_cubic_app": "Cubic6",  # chunks, between which nothing fills the window
    "lab_cubic": "Cubic6",
    "lab_codel_ecn": "Cubic6",  # CoDel marks
    "lab_dctcp": "DCTCP",  # RED marks from a threshold on
}
BOUNDED = [name for name, sender in SENDERS.items() if sender in ("BBR2", "BBR3")]
# Counters follow from sequence numbers and the kernel's counting rules alone: nothing here blurs them.
EXACT = ("total_retrans", "delivered", "bytes_acked")


@functools.cache
def validated(name):
    (found,) = validate(RECORDINGS / name)
    return found


@pytest.fixture(scope="module", params=SENDERS)
def agreement(request):
    return validated(request.param)  # kept: pytest orders tests by their place among a test's own parameters


@pytest.fixture(scope="module")
def shares(agreement):
    return {figure.name: figure.share for figure in agreement.figures}


def test_the_kernels_counters_tell_which_controller_to_replay(agreement):
    name = agreement.flow.capture.packets.source.split("/")[-2]
    assert agreement.to_dict()["replayed"] == SENDERS[name]


def test_counters_are_the_kernels_at_every_poll(shares):
    assert min(shares[name] for name in EXACT) == 1.0


def test_the_replay_is_the_kernels_after_its_first_sample(shares):
    replayed = {name: share for name, share in shares.items() if name.startswith("replay_")}
    assert len(replayed) >= 2
    assert min(replayed.values()) >= 0.99  # a poll may come while the kernel is at work


@pytest.mark.parametrize("agreement", ["lab_v1_sndbuf", "lab_v3_app", "lab_v3_max_rate"], indirect=True)
@pytest.mark.usefixtures("agreement")
def test_rate_samples_that_the_application_limits_are_the_kernels(shares):
    """Behind a small send buffer; where ACKs come while the short end of a chunk waits, or pacing empties the pipe."""
    assert min(shares["delivery_rate"], shares["app_limited"]) >= 0.99


@pytest.mark.parametrize("agreement", BOUNDED, indirect=True)
@pytest.mark.usefixtures("agreement")
def test_bounds_that_losses_set_are_the_kernels(shares):
    """They hang on which segments were one super-packet, and on what was in flight with each part of it."""
    for name in ("inflight_hi", "inflight_lo", "bw_lo_1%", "mode"):
        assert shares[f"replay_{name}"] >= 0.99, name


@pytest.mark.parametrize("agreement", ["lab_v1_sndbuf"], indirect=True)
def test_behind_a_small_send_buffer_bbr_stays_in_startup(agreement):
    assert agreement.replay.startup.all()
    assert agreement.replay.agrees("pacing_gain").all()
    assert agreement.replay.to_dict()["polls"] == len(agreement.replay.polls)


def test_a_window_that_nothing_was_left_to_fill_says_nothing_of_who_sent_it():
    found = cct.identify(cct.read(RECORDINGS / "lab_cubic_app" / "sender.pcap.zst").flow(0))
    assert found.group == ("cubic6", "cubic")
    assert dict(found.candidates)["unknown"] < 0.01


def test_parts_of_a_super_packet_add_up_to_what_was_lost():
    flow = cct.read(RECORDINGS / "lab_v3_loss" / "sender.pcap.zst").flow(0)
    lost = flow.events.of("skb_marked_lost")
    grew = np.diff(flow.events["lost"][lost].astype(int), prepend=0)
    assert grew.tolist() == flow.events["skb_segments"][lost].tolist()
    assert grew.max() > 1


def test_an_early_drop_is_no_full_queue():
    """RED drops at queues that others pass: CUBIC behind one of up to 120 kB, which never held more than half of it."""
    found = cct.diagnose(cct.read(RECORDINGS / "lab_red" / "sender.pcap.zst").flow(0))
    names = [verdict.name for verdict in found.verdicts]
    assert "aqm" in names
    assert not {"congestive_loss", "shallow_buffer", "self_induced_queue"} & set(names)


def test_a_rate_that_changes_twice_in_twelve_seconds_has_steps_and_does_not_vary():
    """BBRv2 takes seconds to use a rate that rose: that it delivers more and more meanwhile is no varying path."""
    found = cct.diagnose(cct.read(RECORDINGS / "lab_v2_steps" / "sender.pcap.zst").flow(0))
    change = next(verdict for verdict in found.verdicts if verdict.name == "rate_change")
    assert change.evidence["changes"] == 2
    assert change.evidence["at_s"] == pytest.approx(5.0, abs=0.1)
    assert change.evidence["before_bps"] == pytest.approx(27e6 * 1514 / 1500, rel=0.02)
