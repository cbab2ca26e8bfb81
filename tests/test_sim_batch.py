"""Batches of runs: the figures of one simulation after the other, on all cores."""

import threading
import time
from concurrent.futures import CancelledError

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from cctrace.errors import ArgumentError
from cctrace.sim.batch import Run, batch, cores, outcome_of
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

SLOW = Path(rate="5Mbit", rtt="20ms", buffer="2bdp")
JITTERY = Path(rate="8Mbit", rtt="30ms", buffer="1bdp", jitter="normal:sd=2ms", loss="0.5%")


@pytest.fixture(scope="module")
def runs():
    senders = (Sender("bbr2022", ack_every=2), Sender("cubic6", start="1s"), Sender("quic_bbr"))
    return [Run(path, senders[:n], "4s", seed) for path in (SLOW, JITTERY) for n in (1, 2, 3) for seed in (1, 2)]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_batch_gives_the_figures_of_one_simulation_after_the_other(runs, workers):
    outcomes = list(batch(runs, workers))
    assert len(outcomes) == len(runs)
    for run, outcome in zip(runs, outcomes, strict=True):
        alone = simulate(run.path, run.senders, run.duration, run.seed)
        assert_frame_equal(alone.flows, pd.DataFrame(outcome.flows, index=alone.flows.index), check_exact=True)
        assert alone.link == outcome.link


def test_a_run_that_cannot_be_made_fails_in_its_turn(runs):
    too_large = Run(Path(rate="100Gbit", rtt="400ms", buffer="10bdp"), (Sender("reno"),), "1s", 1)
    found = batch([runs[0], too_large, runs[1]], 2)
    assert next(found).flows
    with pytest.raises(ArgumentError, match="more than the"):
        next(found)
    with pytest.raises(ArgumentError, match="duration='0s' must be positive"):
        outcome_of(runs[0]._replace(duration="0s"))


def test_a_batch_that_nobody_reads_on_ends_its_runs(runs):
    hours = Run(SLOW, (Sender("reno"),), "1000000s", 1)
    threads = threading.active_count()
    found = batch([runs[0], hours, hours], 2)
    next(found)
    begun = time.monotonic()
    found.close()
    assert threading.active_count() == threads
    assert time.monotonic() - begun < 60  # the run alone would take hours


def test_a_run_is_stopped_between_slices_of_its_time():
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        outcome_of(Run(SLOW, (Sender("reno"),), "1000s", 1), stop)


def test_there_is_a_core():
    assert cores() >= 1
