"""Progress counted in chunks: the rate is steady where the intervals alternate between one chunk and two."""

import io
import json

import numpy as np
import pytest

import cctrace
from cctrace.diagnosis.diagnose import diagnose
from cctrace.flows.quantized import smooth

T0, CHUNK, RTT_US = 1_700_000_000, 22_675_456, 43_000
STEP_S = 0.2


def counted(rate, steps=400):
    """Whole chunks written by the end of each interval, at `rate` chunks per interval."""
    return np.concatenate([[0], np.floor(np.cumsum(np.full(steps, rate)) + 1e-9)]) * CHUNK


@pytest.mark.parametrize("rate", [0.7, 1.18, 1.4, 1.6])
def test_a_steady_flow_that_writes_in_chunks_has_a_steady_rate(rate):
    x, told = np.arange(401) * 200_000_000, counted(rate).astype(np.int64)
    assert set(np.diff(told) // CHUNK) > {1}
    true = np.diff(smooth(x, told))[5:-5]
    assert np.quantile(true, [0.05, 0.95]) == pytest.approx(rate * CHUNK, rel=0.02)


def test_a_rate_that_changes_keeps_its_change():
    x = np.arange(801) * 200_000_000
    told = np.concatenate([counted(1.3), counted(1.3)[-1] + counted(0.6)[1:]]).astype(np.int64)
    true = np.diff(smooth(x, told))
    assert true[20:380] == pytest.approx(1.3 * CHUNK, rel=0.02)
    assert true[420:780] == pytest.approx(0.6 * CHUNK, rel=0.02)


def test_progress_stays_within_a_chunk_of_the_counter_and_ends_at_it():
    told = counted(1.37).astype(np.int64)
    true = smooth(np.arange(401) * 200_000_000, told)
    assert (np.diff(true) >= 0).all()
    assert ((told - true >= 0) & (told - true <= CHUNK)).all()
    assert (true[0], true[-1]) == (told[0], told[-1])


@pytest.mark.parametrize(
    "sizes", [[100, 130, 70, 160, 95, 210, 40] * 20, [0, 0, 0, 0, 100] * 20, [100] * 100, [100, 101, 99, 40] * 20]
)
def test_what_is_not_counted_in_chunks_stays_as_it_is(sizes):
    told = np.concatenate([[0], np.cumsum(sizes)]) * 1000
    assert np.array_equal(smooth(np.arange(len(told)), told), told)


def iperf3(rate):
    sizes = np.diff(counted(rate)).astype(int)
    streams = [
        {"streams": [{"socket": 5, "start": STEP_S * i, "end": STEP_S * (i + 1), "seconds": STEP_S, "bytes": int(size),
                      "retransmits": int(i % 4 == 0), "snd_cwnd": 6_000_000, "rtt": RTT_US if i else 20_000,
                      "rttvar": 100, "sender": True}]}
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    start = {"connected": [{"socket": 5}], "timestamp": {"timesecs": T0}, "tcp_mss_default": 1448}
    return cctrace.read(io.BytesIO(json.dumps({"start": start, "intervals": streams, "end": {}}).encode())).flow(0)


def test_iperf3_has_what_its_path_gave_and_tells_what_it_sent_again():
    flow = iperf3(1.18)
    assert diagnose(flow, "bbr").figures["rtt_ratio"] >= 1.9  # the RTT is twice the lowest: there is a queue
    assert diagnose(flow, "bbr").cause == "path_full"
    sent = flow.row["bytes_sent"] / 1448 + 100
    assert flow.row["retransmitted_segments"] / flow.row["segments_sent"] == pytest.approx(100 / sent, rel=0.01)
