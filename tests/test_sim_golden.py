"""The simulated stacks make the golden vectors' inputs, row by row, when they are given the numbers that were drawn."""

import math
from pathlib import Path as FilePath

import numpy as np
import pandas as pd
import pytest

from cctrace import schema
from cctrace.engine import vectors
from cctrace.engine.path import Path
from cctrace.engine.sim import link, view
from cctrace.engine.simulate import simulate

GOLDEN = FilePath(__file__).parent / "golden"
MARKED_LOST = schema.EVENT_CODES["skb_marked_lost"]
DRAWS = [f"rand{k}" for k in range(4)]


def feed_recorded_draws(monkeypatch, vector):
    """The simulation takes four numbers per call that used the last ones; the vector has those it used."""
    drew = np.flatnonzero(pd.read_parquet(vector.path, columns=["nrand"]).nrand.to_numpy())
    numbers = iter([int(vector.view.columns[name][row]) for row in drew for name in DRAWS])
    monkeypatch.setattr(view, "random_bits", lambda w, stream, bits: next(numbers, 0))


def feed_path_draws(monkeypatch, seed):
    """The draws of the vectors' path: SplitMix64 from 7919 * seed + 12345, normal numbers by the polar method.

    They are not recorded; the pattern of losses gives the generator and its start away, and the rows confirm it.
    """
    state = 7919 * seed + 12345
    spare = []

    def uniform():
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        x = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return ((x ^ x >> 31) >> 11) * 2.0**-53

    def normal(w, stream):
        if spare:
            return spare.pop()
        while True:
            x, y = 2 * uniform() - 1, 2 * uniform() - 1
            if 0 < x * x + y * y < 1:
                scale = math.sqrt(-2 * math.log(x * x + y * y) / (x * x + y * y))
                spare.append(y * scale)
                return x * scale

    monkeypatch.setattr(link, "uniform", lambda w, stream: 1 - uniform())  # a low number is a loss there
    monkeypatch.setattr(link, "normal", normal)


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


FORTY = {"rate": "40Mbit", "rtt": "40ms"}
SLOW = Path(rate="5Mbit", rtt="40ms", buffer="1bdp")
SHALLOW = Path(**FORTY, buffer="0.2bdp")
LOSSY = Path(rate="100Mbit", rtt="40ms", buffer="0.25bdp", loss="1%")
TENTH_LOST = Path(**FORTY, buffer="16bdp", loss="10%")
JITTERED = Path(**FORTY, buffer="8bdp", jitter="normal:sd=20ms,per=packet")
KUMAR = Path(rate="1Gbit", rtt="5ms", buffer="10bdp", jitter="normal:sd=1ms,per=packet")
STEP = Path(rate=[(0, "20Mbit"), (10, "5Mbit")], rtt="100ms", buffer="200kB")
DELAYED = {"ack_every": 2}


@pytest.mark.parametrize(
    ("name", "path", "flow", "rows"),
    [
        ("bbr2016/slow_1_s1", SLOW, {}, 1500),
        ("bbr2022/slow_1_s1", SLOW, {}, 1500),
        ("cubic/clean_0.2_s1", SHALLOW, {}, 1500),
        ("cubic/cleanda_1_s1", Path(**FORTY, buffer="1bdp"), DELAYED, 2900),  # holes filled from 2747 on
        ("b3r/clean_0.2_s1", SHALLOW, {}, 800),
        ("quic_bbr/cleanda_1_s1", Path(**FORTY, buffer="1bdp"), DELAYED, 800),
        ("bbr2/loss_10_s1", TENTH_LOST, {}, 1500),
        ("cubic/loss_10_s1", TENTH_LOST, {}, 1500),  # nine timeouts, one of them needless and undone
        ("bbr2016/loss_1_s1", Path(**FORTY, buffer="16bdp", loss="1%"), {}, 600),
        ("bbr2019/shal_1_s1", LOSSY, {}, 1500),
        ("bbr2019/step_20_5_s1", STEP, {}, 1500),
        ("bbr3/shal_1_s1", LOSSY, {}, 1500),
        ("obbr_mu1/loss_10_s1", TENTH_LOST, {}, 600),
        ("quic_bbr2/shal_1_s1", LOSSY, {}, 600),
        ("bbr2plus/jit40_20_s1", JITTERED, {}, 1500),
        ("bbr_s/jit40_20_s1", JITTERED, {}, 1500),
        ("bbr2022/kumar_1_s1", KUMAR, DELAYED, 1500),
    ],
)
def test_the_reference_stacks_make_the_golden_rows(monkeypatch, name, path, flow, rows):
    vector = vectors.load(GOLDEN / f"{name}.parquet")
    feed_recorded_draws(monkeypatch, vector)
    feed_path_draws(monkeypatch, seed=1)
    duration_ms = int(vector.view.time_ns[rows - 1]) // 1_000_000 - 990
    sim = simulate(
        path, name.split("/")[0].replace("_mu", ":mu="), f"{duration_ms}ms", mode="interpreted", trace=True,
        profile="reference", **flow,
    )  # fmt: skip
    assert differing(vector, sim.flow(0), rows) == {}
