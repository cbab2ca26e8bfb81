"""The replay of simulated flows, captured and read back, holds what the simulation held; the judge is benchmarks/."""

import pytest

from benchmarks.replay_simulated import CONDITIONS, judge, random_case, summary

LEAST = {"clean": 0.99, "loss": 0.97, "jitter": 0.97}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("variant", ["cubic", "cubic6", "reno"])
def test_replayed_windows_are_the_simulations(variant, condition, tmp_path):
    result = judge(variant, random_case(condition, 4, 0, "4s"), 1, tmp_path)
    assert len(result.mine.time_us) == len(result.theirs.time_us)
    shares = summary([result])
    assert set(shares) == {"cwnd", "ssthresh"}
    assert min(shares.values()) >= LEAST[condition]
