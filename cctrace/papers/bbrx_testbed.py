"""BBRx: what Figs. 2 and 3 say that does not hold, with the testbed varied.

The text leaves open how long the flows are (the agent judges each when it ends), how the receiver acknowledges, and for
Fig. 3 the queue. BBR's start-up overflows a short queue once, so the shorter the flow, the more it costs.
"""

from typing import Any

from cctrace.papers.bbrx import BETAS, Chung18, Fig2, Fig3
from cctrace.papers.bbrx import FIGURES as BBRX
from cctrace.papers.varied import VARIATIONS, Variation, Varied

_SHARED = {
    "an ACK per two segments": Variation(flow={"ack_every": 2}),
    "an ACK per 8 segments": VARIATIONS["an ACK per 8 segments"],
    "the fq qdisc": VARIATIONS["the fq qdisc"],
    "jitter of 0.5 ms behind the queue": VARIATIONS["jitter of 0.5 ms behind the queue"],
}
_OF_2 = _SHARED | {
    "flows of 10 s": Variation(longer=1 / 6),
    "flows of 3 s": Variation(longer=1 / 20),
    "half of the queue": VARIATIONS["half of the buffer"],
}
_OF_3 = _SHARED | {
    "flows of 10 s": Variation(longer=1 / 3),
    "queue of 1 BDP": Variation(path={"buffer": "1bdp"}),
    "queue of half a BDP": Variation(path={"buffer": "0.5bdp"}),
}
_BASES: dict[str, Any] = {figure.name: figure for figure in BBRX}
_QUICK = {"variations": ("an ACK per two segments", "flows of 10 s"), "seeds": (1,)}


class Testbed(Varied, Chung18):
    """A figure of this paper, varied."""


FIGURES = [
    Testbed("2-testbed", "utility over beta and queues, the testbed varied",
            {"betas": (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0), "queues_ms": (40, 200), "seeds": (1,)},
            _QUICK | {"duration_s": 20.0, "betas": (0.02, 0.4, 1.0)}, base=_BASES["2"], wanted=(Fig2.OVERFLOWS,),
            value="utility", line="beta", variations=_OF_2),
    Testbed("3-testbed", "utility over beta, six flows, the testbed varied",
            {"rates_mbps": (15, 100), "rtts_ms": (25, 100, 200), "queues_ms": (100,), "betas": BETAS, "seeds": (1,)},
            _QUICK | {"rates_mbps": (15, 50), "rtts_ms": (25, 200), "betas": (0.1, 0.5, 0.9), "duration_s": 10.0},
            base=_BASES["3"], wanted=(Fig3.LEFT, Fig3.RIGHT), value="utility", line="beta", variations=_OF_3),
]  # fmt: skip
