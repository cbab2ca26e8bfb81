"""The simulated stacks make the golden vectors' inputs, row by row, where nothing but the controller draws numbers."""

from pathlib import Path as FilePath

import numpy as np
import pandas as pd
import pytest

from cctrace import schema
from cctrace.engine import vectors
from cctrace.engine.path import Path
from cctrace.engine.sim import view
from cctrace.engine.simulate import simulate

GOLDEN = FilePath(__file__).parent / "golden"
MARKED_LOST = schema.EVENT_CODES["skb_marked_lost"]
DRAWS = [f"rand{k}" for k in range(4)]


def feed_recorded_draws(monkeypatch, vector):
    """The simulation takes four numbers per call that used the last ones; the vector has those it used."""
    drew = np.flatnonzero(pd.read_parquet(vector.path, columns=["nrand"]).nrand.to_numpy())
    numbers = iter([int(vector.view.columns[name][row]) for row in drew for name in DRAWS])
    monkeypatch.setattr(view, "random_bits", lambda w, stream, bits: next(numbers, 0))


def differing(vector, trace, rows):
    """Return {column: first differing row} of the inputs of the calls that the vector records."""
    kept = np.flatnonzero(np.isin(trace.event, vector.view.event))[:rows]
    assert np.array_equal(trace.event[kept], vector.view.event[:rows])
    wrong = {}
    for name, expected in (vector.view.columns | vector.view.carried).items():
        got = (trace.columns | trace.carried)[name][kept]
        differs = got != expected[:rows]
        if name in DRAWS or name == "app_limited":  # what was not used is not recorded
            continue
        if name.startswith("skb_"):  # stale in other calls
            differs &= trace.event[kept] == MARKED_LOST
        if differs.any():
            row = int(differs.argmax())
            wrong[name] = (row, int(got[row]), int(expected[row]))
    return wrong


SLOW = Path(rate="5Mbit", rtt="40ms", buffer="1bdp")
SHALLOW = Path(rate="40Mbit", rtt="40ms", buffer="0.2bdp")


@pytest.mark.parametrize(
    ("name", "path", "flow", "rows"),
    [
        ("bbr2016/slow_1_s1", SLOW, {}, 1500),
        ("bbr2022/slow_1_s1", SLOW, {}, 1500),
        ("cubic/clean_0.2_s1", SHALLOW, {}, 1500),
        ("cubic/cleanda_1_s1", Path(rate="40Mbit", rtt="40ms", buffer="1bdp"), {"ack_every": 2}, 800),
        ("b3r/clean_0.2_s1", SHALLOW, {}, 800),
        ("quic_bbr/cleanda_1_s1", Path(rate="40Mbit", rtt="40ms", buffer="1bdp"), {"ack_every": 2}, 800),
    ],
)
def test_the_reference_stacks_make_the_golden_rows(monkeypatch, name, path, flow, rows):
    vector = vectors.load(GOLDEN / f"{name}.parquet")
    feed_recorded_draws(monkeypatch, vector)
    duration_ms = int(vector.view.time_ns[rows - 1]) // 1_000_000 - 990
    sim = simulate(
        path, name.split("/")[0], f"{duration_ms}ms", mode="interpreted", trace=True, profile="reference", **flow
    )
    assert differing(vector, sim.flow(0), rows) == {}
