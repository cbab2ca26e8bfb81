"""A diagnosis names what limited a flow, from packets and from polls alike."""

import io

import numpy as np
import pytest

from cctrace import datasets
from cctrace.explain.diagnose import diagnose
from cctrace.flows.capture import read
from tests.conversation import MSS, Conversation

RECORDED = [
    ("single_bbr_1bdp", "bbr", "path"),  # alone on the link
    ("jitter_bbr_sd2ms", "bbr", "window"),  # RTTs of 46 ms, BBR's min_rtt 20 ms
    ("loss_cubic_1pct", "cubic", "loss"),  # 3 Mbit/s of 40 with random loss
]


@pytest.mark.parametrize(("name", "controller", "cause"), RECORDED)
def test_packets_and_polls_lead_to_the_same_verdict(name, controller, cause):
    polls = read(datasets.path(name, "tcpinfo.csv.zst"))
    flow = read(datasets.path(name, "sender.pcap.zst")).flow(0).attach(polls)
    exact, coarse = diagnose(flow, controller), diagnose(polls.flow(0), controller)
    assert exact.cause == coarse.cause == cause
    assert (exact.coarse, coarse.coarse) == (False, True)
    assert "From polls" in coarse.verdict
    for figure in ("rtt_median_us", "rtt_min_us", "in_flight_bdp"):
        assert coarse.figures[figure] == pytest.approx(exact.figures[figure], rel=0.3)


def polled(**columns):
    n = 101
    table = {"time_ns": [10**18 + 10**8 * i for i in range(n)], "tcpi_rtt": [40_000] * n, "tcpi_snd_mss": [1000] * n}
    table |= {"tcpi_delivered": [1 + 100 * i for i in range(n)], "tcpi_bytes_acked": [1 + 10**5 * i for i in range(n)]}
    table |= {name: list(values) for name, values in columns.items()}
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return read(io.BytesIO("\n".join(lines).encode())).flow()


def test_the_receivers_window_is_told_by_the_kernels_account_of_time():
    busy = np.arange(101) * 100_000
    found = diagnose(polled(tcpi_busy_time=busy, tcpi_rwnd_limited=busy * 9 // 10))
    assert found.cause == "receiver"
    assert "90 %" in found.verdict


def test_an_application_with_nothing_to_send_is_told_by_the_time_without_data():
    found = diagnose(polled(tcpi_busy_time=np.arange(101) * 20_000, tcpi_rwnd_limited=np.zeros(101, int)))
    assert found.cause == "application"
    assert found.figures["application_share"] == pytest.approx(0.8)


def test_a_capture_without_counters_knows_the_receivers_window_too():
    talk = Conversation(wscale=0).data(0, 1, 10)
    for i in range(200):
        at = 40 + i // 5 * 40 + i % 5 * 0.5
        talk.ack(at, 1 + 2 * (i + 1) * MSS, window=10 * MSS).data(at + 0.02, 1 + (10 + 2 * i) * MSS, 2)
    found = diagnose(talk.flow())
    assert found.cause == "receiver"
    assert found.figures["receiver_share"] > 0.9


def test_without_a_sign_nothing_is_claimed():
    found = diagnose(polled(tcpi_unacked=[10] * 101, tcpi_total_retrans=np.arange(101)), "bbr")
    assert found.cause == "unknown"
    assert found.verdict.startswith("Nothing in the record tells")
