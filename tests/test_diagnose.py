"""A diagnosis names what limited a flow and when, from packets and from polls alike."""

import io
import itertools

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets
from cctrace.diagnosis import limits
from cctrace.diagnosis.catalogue import ORDER
from cctrace.diagnosis.diagnose import diagnose
from cctrace.diagnosis.findings import LIMITS
from cctrace.flows.capture import read
from tests.conversation import MSS, Conversation

RECORDED = [
    ("single_bbr_1bdp", "bbr", "path_full"),  # alone on the link
    ("jitter_bbr_sd2ms", "bbr", "path_full"),  # a full link, with jitter
    ("loss_cubic_1pct", "cubic", "random_loss"),  # 3 Mbit/s of 40 with random loss
]


@pytest.mark.parametrize(("name", "controller", "cause"), RECORDED)
def test_packets_and_polls_lead_to_the_same_verdict(name, controller, cause):
    polls = read(datasets.path(name, "tcpinfo.csv.zst"))
    flow = read(datasets.path(name, "sender.pcap.zst")).flow(0).attach(polls)
    exact, coarse = diagnose(flow), diagnose(polls.flow(0), controller)
    assert exact.cause == coarse.cause == cause
    assert (exact.coarse, coarse.coarse) == (False, True)
    assert "From polls" in coarse.verdict
    for found in (exact, coarse):
        assert found.verdict.startswith(found.verdicts[0].line)
        assert all(verdict.name in ORDER and 0 <= verdict.confidence <= 1 for verdict in found.verdicts)
        assert all(verdict.evidence and verdict.refuted_by for verdict in found.verdicts)


@pytest.mark.parametrize("name", ["single_bbr_1bdp", "loss_cubic_1pct"])
def test_limits_are_an_account_of_the_whole_time(name):
    flow = read(datasets.path(name, "sender.pcap.zst")).flow(0)
    for found in (diagnose(flow).limits, diagnose(read(datasets.path(name, "tcpinfo.csv.zst")).flow(0)).limits):
        assert found[0].start_s == 0
        assert all(a.end_s == b.start_s and a.name != b.name for a, b in itertools.pairwise(found))
        assert {limit.name for limit in found} <= set(LIMITS)
    assert diagnose(flow).limits[-1].end_s == pytest.approx(flow.row["duration_s"])


def test_an_account_gives_each_stretch_to_what_held_for_most_of_it():
    held = {"cwnd": np.array([[0.0, 1.0]]), "application": np.array([[0.4, 0.9]])}
    assert limits.account(held, 2.0, 0.5) == [
        limits.Limit("cwnd", 0.0, 0.5),
        limits.Limit("application", 0.5, 1.0),
        limits.Limit("unknown", 1.0, 2.0),
    ]
    assert limits.covered([[0.25, 0.5], [0.75, 5.0]], np.array([0.0, 0.5, 1.0, 2.0])).tolist() == [0.25, 0.25, 1.0]


def simulated(path, duration="8s", seed=1, **flow):
    sender = cct.Sender(**{"cc": "cubic", "ack_every": 2} | flow)
    return cct.simulate(cct.Path(**path), sender, duration, seed=seed, packets=True).capture().flow(0)


LINK = {"rate": "20Mbit", "rtt": "40ms", "buffer": "1.5bdp"}
EARLY_LOSS = {"rate": "60Mbit", "rtt": "80ms", "loss": [(0, "0%"), (0.2, "5%"), (0.25, "0%")]}
CAUSES = [
    ("path_full", {}, {}),
    ("path_full", {}, {"cc": "bbr2022"}),
    ("random_loss", {"loss": "1%"}, {}),
    ("random_loss", {"loss": "1%"}, {"cc": "bbr2022"}),
    ("shallow_buffer", {"buffer": "0.1bdp"}, {"cc": "bbr2022"}),
    ("rate_change", {"rate": [(0, "20Mbit"), (4, "5Mbit")]}, {}),
    ("collapse", {"buffer": "8bdp", "jitter": "normal:sd=16ms,reorder"}, {"cc": "bbr2022"}),
    ("policer", {"rate": "60Mbit", "policer": ("8Mbit", "100kB")}, {}),
    ("receiver_limited", {}, {"rwnd": "40kB"}),
    ("application_limited", {}, {"app": "chunks:size=50kB,every=300ms"}),
    ("reordering", {"jitter": "normal:sd=2ms,reorder"}, {}),
    ("ack_aggregation", {}, {"ack_slot": "18ms", "cc": "bbr2022"}),
    ("ack_thinning", {"ack_loss": "80%"}, {"cc": "bbr2022"}),
    ("aqm", {"aqm": "codel", "buffer": "8bdp"}, {}),
    ("self_induced_queue", {"buffer": "12bdp"}, {}),
    ("slow_start_only", {}, {"app": "bulk:size=60kB"}),
    ("window_growing", EARLY_LOSS, {"cc": "reno"}),
    ("path_full", EARLY_LOSS, {"cc": "bbr2022"}),  # whose model finds the rate in spite of it
]


@pytest.mark.parametrize(("cause", "path", "flow"), CAUSES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CAUSES)])
def test_the_first_verdict_is_the_cause(cause, path, flow):
    sender = "bbr" if cause == "collapse" else None  # of nobody else it is told
    found = cct.diagnose(simulated(LINK | path, **flow), sender)
    assert found.cause == cause
    assert found.verdicts[0].advice


def test_a_rate_that_fell_is_told_with_time_and_rates_and_for_how_long_the_estimate_was_stale():
    path = LINK | {"rate": [(0, "20Mbit"), (4, "4Mbit")], "buffer": "6bdp"}
    found = diagnose(simulated(path, cc="bbr2022"), "bbr")
    first = found.verdicts[0]
    assert first.name == "stale_bandwidth"
    assert first.start_s == pytest.approx(4.0, abs=0.3)
    assert first.evidence["before_bps"] == pytest.approx(20e6, rel=0.05)
    assert first.evidence["after_bps"] == pytest.approx(4e6, rel=0.05)
    assert first.evidence["stale_s"] > 0.5
    event = next(event for event in found.events if event.name == "rate_change")
    assert event.start_s == pytest.approx(4.0, abs=0.3)
    assert "fell from 2" in event.text
    assert "stale" in event.text


def test_a_window_that_one_early_loss_left_small_is_told_with_what_each_rtt_added():
    (growing,) = diagnose(simulated(LINK | EARLY_LOSS, cc="reno")).verdicts
    assert growing.start_s == pytest.approx(0.3, abs=0.1)
    assert growing.evidence["per_rtt_segments"] == pytest.approx(1.0, abs=0.05)  # [RFC5681] 3.1
    assert growing.evidence["last_bytes"] > 2 * growing.evidence["first_bytes"]
    assert "4 packets were lost" in growing.text


def test_drops_of_a_queue_whose_rate_changed_are_not_put_on_others():
    path = cct.Path(rate=[(0, "20Mbit"), (4, "9Mbit")], rtt="30ms", buffer="150kB")
    sim = cct.simulate(path, cct.Sender("bbr2022", ack_every=2), "10s", seed=1, packets=True)
    (full,) = (one for one in cct.diagnose(sim.capture().flow(0)).verdicts if one.name == "congestive_loss")
    assert full.evidence["buffer_bytes"] == pytest.approx(150e3, rel=0.02)
    assert "do not explain" not in full.text


def test_flows_of_one_capture_are_judged_together():
    sim = cct.simulate(cct.Path(**LINK), ["bbr2022", "cubic"], "8s", seed=3, packets=True, ack_every=2)
    capture = sim.capture()
    found = [diagnose(capture.flow(i)) for i in range(2)]
    assert [one.cause for one in found] == ["competition"] * 2
    assert sum(one.figures["share"] for one in found) == pytest.approx(1.0)
    assert diagnose(sim.capture(flow=0).flow(0)).cause != "competition"  # what the capture does not show is not claimed


def test_losses_at_one_length_of_the_queue_show_the_buffer():
    found = diagnose(simulated(LINK))
    full = next(verdict for verdict in found.verdicts if verdict.name == "congestive_loss")
    assert full.evidence["buffer_bdp"] == pytest.approx(1.5, rel=0.1)


# --- counters --------------------------------------------------------------------------------------------------------
def polled(**columns):
    n = 101
    table = {"time_ns": [10**18 + 10**8 * i for i in range(n)], "tcpi_rtt": [40_000] * n, "tcpi_snd_mss": [1000] * n}
    table |= {
        "tcpi_min_rtt": [40_000] * n,
        "tcpi_delivered": [1 + 100 * i for i in range(n)],
        "tcpi_bytes_acked": [1 + 10**5 * i for i in range(n)],
    }
    table |= {name: list(values) for name, values in columns.items()}
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return read(io.BytesIO("\n".join(lines).encode())).flow()


def test_the_receivers_window_is_told_by_the_kernels_account_of_time():
    busy = np.arange(101) * 100_000
    found = diagnose(polled(tcpi_busy_time=busy, tcpi_rwnd_limited=busy * 9 // 10))
    assert found.cause == "receiver_limited"
    assert "90 %" in found.verdict
    assert [limit.name for limit in found.limits] == ["receive_window"]


def test_the_send_buffer_is_told_by_the_kernels_account_of_time():
    busy = np.arange(101) * 100_000
    found = diagnose(polled(tcpi_busy_time=busy, tcpi_sndbuf_limited=busy * 7 // 10, tcpi_rwnd_limited=busy * 0))
    assert found.cause == "send_buffer_limited"
    assert found.figures["send_buffer_share"] == pytest.approx(0.7)


@pytest.mark.parametrize("per_rtt", [1, 0])
def test_a_growing_window_is_told_by_cwnd_once_slow_start_has_ended(per_rtt):
    cwnd = np.append(np.full(6, 50), 50 + per_rtt * np.arange(95) * 5 // 2)  # an RTT takes 40 ms of 100
    ssthresh = np.append(np.full(6, 2**31 - 1), np.full(95, 50))
    found = diagnose(polled(tcpi_snd_cwnd=cwnd, tcpi_unacked=cwnd, tcpi_snd_ssthresh=ssthresh), "reno")
    assert (found.cause == "window_growing") == bool(per_rtt)
    if per_rtt:
        assert found.figures["per_rtt_segments"] == pytest.approx(1.0, abs=0.1)
        assert "HyStart" in found.verdict


def test_an_application_with_nothing_to_send_is_told_by_the_time_without_data():
    found = diagnose(polled(tcpi_busy_time=np.arange(101) * 20_000, tcpi_rwnd_limited=np.zeros(101, int)))
    assert found.cause == "application_limited"


def test_a_capture_without_counters_knows_the_receivers_window_too():
    talk = Conversation(wscale=0).data(0, 1, 10)
    for i in range(200):
        at = 40 + i // 5 * 40 + i % 5 * 0.5
        talk.ack(at, 1 + 2 * (i + 1) * MSS, window=10 * MSS).data(at + 0.02, 1 + (10 + 2 * i) * MSS, 2)
    found = diagnose(talk.flow())
    assert found.cause == "receiver_limited"
    assert found.figures["receiver_share"] > 0.9


def test_without_a_sign_nothing_is_claimed():
    found = diagnose(polled(tcpi_unacked=[10] * 101))
    assert found.cause == "unknown"
    assert found.verdict.startswith("Nothing in these counters shows")
    assert found.verdicts[0].confidence == 0
