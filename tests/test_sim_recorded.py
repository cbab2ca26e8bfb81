"""Simulations of profile linux against what recordings of a quiet lab's Linux 6.18 hosts showed."""

import json

import pytest

from benchmarks import recorded

RECORDINGS = json.loads(recorded.QUIET_LAB.read_text())["recordings"]
# Chance decides little of these: no jitter, and queues in which one drop more does not change shares.
STEADY = (
    "single_bbr_2bdp", "single_bbr_8bdp", "single_cubic_1bdp", "jitter_bbr_sd0ms", "kumar_bbr_100m_sd0us",
    "loss_bbr_1pct", "loss_bbr_5pct", "compete_bbr_cubic_0p5bdp",
)  # fmt: skip
SEEDS = 10  # of competing flows, the mean of five still moves by 2 %


@pytest.mark.parametrize("name", STEADY)
def test_a_path_without_jitter_gives_what_the_kernel_was_recorded_to_do(name):
    rows = [row for row in RECORDINGS if row["name"] == name]
    compared = recorded.compare_recordings(rows, SEEDS)
    assert [flow["misses"] for flow in compared] == [[]] * len(rows[0]["flows"])


def test_every_recording_of_the_table_was_quiet_and_says_what_it_was():
    for row in RECORDINGS:
        assert row["stalls_over_4ms"] <= 5
        assert 0 < row["parameters"]["late_us"] < 100
        assert row["kernel"].startswith("6.18")
        path, flows, _ = recorded.recorded_scenario(row["parameters"])
        assert len(flows) == len(row["flows"])
        for flow in row["flows"]:
            assert 0 < flow["goodput_mbps"] * 1e6 < path.max_rate_bps()
            assert flow["rtt_ms"] * 1e6 > path.rtt_ns - path.reverse_ns > 0
            assert 0 <= flow["retransmitted"] < flow["segments_sent"]
