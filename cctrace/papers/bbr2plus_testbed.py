"""BBRv2+: what Figs. 7, 8, 19 and 23 say that does not hold, with the testbed varied.

The testbeds are Mininet and Mahimahi on one host. What they leave open is varied here: how the receiver acknowledges,
what paces, how long a run is, how long the queue, and whether the emulation adds jitter. Chosen before the runs, and
the same for all four.
"""

from cctrace.papers.bbr2plus import BBR, BBR2, BBR2_20, BBR2_20_0, CUBIC, PLUS_PAPER, Yang22
from cctrace.papers.bbr2plus_fairness import BUFFERS_BDP, NO_WORSE
from cctrace.papers.bbr2plus_fairness import FIGURES as FAIRNESS
from cctrace.papers.bbr2plus_losses import FIGURES as LOSSES
from cctrace.papers.bbr2plus_losses import WITHOUT_BETA
from cctrace.papers.bbr2plus_shallow import FIGURES as SHALLOWS
from cctrace.papers.bbr2plus_shallow import LESS, SHALLOW
from cctrace.papers.bbr2plus_traces import CLOSE_STILL, ORDER_MOVING
from cctrace.papers.bbr2plus_traces import FIGURES as TRACES
from cctrace.papers.varied import VARIATIONS, Varied

_BASES = {figure.name: figure for figure in (*FAIRNESS, *LOSSES, *SHALLOWS, *TRACES)}
_SAME_BUFFER = {name: variation for name, variation in VARIATIONS.items() if variation.buffer == 1}
_QUICK = {"variations": ("an ACK per 8 segments", "half as long")}


class Testbed(Varied, Yang22):
    """A figure of this paper, varied."""


FIGURES = [
    Testbed("7-testbed", "throughput of BBR and BBRv2 above 400 kB of BDP, the testbed varied",
            {"systems": (BBR, BBR2), "buffers": (SHALLOW,), "rates_mbps": (100, 250, 500, 750),
             "rtts_ms": (50, 75, 100, 150), "seeds": (1,)},
            _QUICK | {"rates_mbps": (100,), "rtts_ms": (75,), "duration": "6s"}, base=_BASES["7"], wanted=(LESS,)),
    Testbed("8-testbed", "throughput over random losses, the testbed varied",
            {"systems": (BBR, BBR2, BBR2_20, BBR2_20_0), "losses_pct": (1.0, 5.0, 10.0, 15.0, 20.0), "seeds": (1, 2)},
            _QUICK | {"losses_pct": (1.0, 5.0, 10.0), "seeds": (1,), "duration": "6s"}, base=_BASES["8"],
            wanted=(WITHOUT_BETA,)),
    Testbed("19-testbed", "fairness of BBRv2+ to CUBIC, the testbed varied",
            {"systems": (BBR, BBR2, PLUS_PAPER), "buffers_bdp": BUFFERS_BDP, "seeds": (1, 2)},
            _QUICK | {"buffers_bdp": (0.2, 8.0), "seeds": (1,), "duration": "10s"}, base=_BASES["19"],
            wanted=(NO_WORSE,), value="jain", variations=_SAME_BUFFER),
    Testbed("23-testbed", "throughput over cellular paths, the testbed varied",
            {"systems": (CUBIC, BBR, BBR2, PLUS_PAPER), "seeds": (1, 2)},
            _QUICK
            | {"stationary": ("lte_tmobile",), "moving": ("lte_att_driving",), "seeds": (1,), "duration": "20s"},
            base=_BASES["23"], wanted=(CLOSE_STILL, ORDER_MOVING), value="throughput"),
]  # fmt: skip
