"""The simulated stacks make the golden vectors' inputs, row by row: a seed draws the same numbers as there."""

import numpy as np
import pytest

from cctrace import schema
from cctrace.replaying import vectors
from cctrace.sim.path import Path
from cctrace.sim.simulate import simulate
from tests.places import GOLDEN

MARKED_LOST = schema.EVENT_CODES["skb_marked_lost"]
DRAWS = [f"rand{k}" for k in range(4)]


def differing(vector, trace, rows):
    """Return {column: first differing row} of the inputs of the calls that the vector records."""
    kept = np.flatnonzero(np.isin(trace.event, vector.view.event))[:rows]
    assert np.array_equal(trace.event[kept], vector.view.event[:rows])
    wrong = {}
    for name, expected in (vector.view.columns | vector.view.carried).items():
        got = (trace.columns | trace.carried)[name][kept]
        differs = got != expected[:rows]
        if name in DRAWS or name == "app_limited":  # recorded is what was made of a number, and only if it was used
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
        ("bbr2016/slow_1_s1", SLOW, {}, 600),
        ("bbr2022/slow_1_s1", SLOW, {}, 1500),
        ("cubic/clean_0.2_s1", SHALLOW, {}, 1500),
        ("cubic/cleanda_1_s1", Path(**FORTY, buffer="1bdp"), DELAYED, 2900),  # holes filled from 2747 on
        ("b3r/clean_0.2_s1", SHALLOW, {}, 800),
        ("quic_bbr/cleanda_1_s1", Path(**FORTY, buffer="1bdp"), DELAYED, 800),
        ("bbr2/loss_10_s1", TENTH_LOST, {}, 600),
        ("cubic/loss_10_s1", TENTH_LOST, {}, 1500),  # nine timeouts, one of them needless and undone
        ("bbr2016/loss_1_s1", Path(**FORTY, buffer="16bdp", loss="1%"), {}, 600),
        ("bbr2019/shal_1_s1", LOSSY, {}, 600),
        ("bbr2019/step_20_5_s1", STEP, {}, 1500),
        ("bbr3/shal_1_s1", LOSSY, {}, 1500),
        ("obbr_mu1/loss_10_s1", TENTH_LOST, {}, 600),
        ("quic_bbr2/shal_1_s1", LOSSY, {}, 600),
        ("bbr2plus/jit40_20_s1", JITTERED, {}, 600),
        ("bbr_s/jit40_20_s1", JITTERED, {}, 1500),
        ("bbr2022/kumar_1_s1", KUMAR, DELAYED, 600),
    ],
)
def test_the_reference_stacks_make_the_golden_rows(name, path, flow, rows):
    vector = vectors.load(GOLDEN / f"{name}.parquet")
    duration_ms = int(vector.view.time_ns[rows - 1]) // 1_000_000 - 990
    sim = simulate(
        path, name.split("/")[0].replace("_mu", ":mu="), f"{duration_ms}ms", mode="interpreted", trace=True,
        profile="reference", **flow,
    )  # fmt: skip
    assert differing(vector, sim.flow(0), rows) == {}
