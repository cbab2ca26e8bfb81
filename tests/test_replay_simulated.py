"""The replay of simulated flows, captured and read back, holds what the simulation held; the judge is benchmarks/."""

import numpy as np
import pytest

from benchmarks.replay_simulated import CONDITIONS, VARIANTS, judge, random_case, summary
from cctrace.cc import controller

LEAST = {"clean": 0.99, "loss": 0.97, "jitter": 0.97}
WINDOWS = {"cwnd", "ssthresh"}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_replay_holds_at_every_ack_what_the_simulation_held(variant, condition, tmp_path):
    result = judge(variant, random_case(condition, 4, 0, "5s"), 1, tmp_path)
    assert len(result.mine.time_us) == len(result.theirs.time_us)
    shares = summary([result])
    assert set(shares) >= WINDOWS if hasattr(controller(variant)[0], "on_ack") else set(shares) == WINDOWS
    assert min(shares.values()) >= LEAST[condition]


@pytest.mark.parametrize("variant", ["bbr2022", "bbr3", "cubic6"])
def test_delayed_acks_take_nothing_away(variant, tmp_path):
    case = random_case("loss", 4, 1, "5s")
    shares = summary([judge(variant, case._replace(flow=case.flow | {"ack_every": 2}), 1, tmp_path)])
    assert min(shares.values()) >= LEAST["loss"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_the_senders_tcp_saw_is_read_from_the_capture_to_the_unit(condition, tmp_path):
    result = judge("bbr2", random_case(condition, 4, 0, "5s"), 1, tmp_path)
    mine, theirs = result.flow.events.of("on_ack"), np.flatnonzero(result.trace.event == 1)
    names = ("delivered", "lost", "snd_una", "srtt_us8", "rs_rtt_us", "rs_delivered", "rs_interval_us", "rs_lost")
    for name in (*names, "rs_tx_in_flight", "rs_prior_in_flight", "ca_state", "data_segs_out"):
        column = "rs_tx_in_flight_v2" if name == "rs_tx_in_flight" else name  # as the kernel of bbr2 counts
        differs = result.flow.events[column][mine].astype(np.int64) != result.trace.columns[name][theirs]
        assert differs.mean() < 0.005, name  # RACK's timer fires at a tick, which a capture shows too late
