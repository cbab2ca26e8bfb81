"""Other kinds of path for oBBR's Figs. 13 and 14: on which of them are retransmissions like those of the paper's live
path?

Section 5.2.5 gives CUBIC 6.30 Mbit/s and 0.16 % retransmitted, BBRv2 17.66 and 6.71 %, oBBR-0.75 27.17 and 6.58 %,
BBR-S 26.94 and 10.41 %. The chosen paths of Fig. 13, a queue of R 0.25 and random losses of up to 2 %, give 0.2 to
3 %. Here are other kinds of path of 270 ms and some 30 Mbit/s: policers with a small and a large bucket behind the
80 Mbit/s of the server, a very short queue, losses of 6 % at random, losses in bursts, a rate that changes (as
other traffic would; drawn from 10 to 80 Mbit/s, evenly in the logarithm, every second or every five), and the
preset of Table 1's static1 with the RTT of this path. Nothing was fitted: none of them is the paper's path, which
the text does not describe.

CUBIC's 0.16 % imply few random losses there, so each kind but two has 0.02 %, which is what 6 Mbit/s of CUBIC
tolerates over 270 ms. Two minutes of bulk; video is run only over the kinds with a changing rate.
"""

import numpy as np

from cctrace.papers.figure import Fields
from cctrace.papers.obbr import bdp_bytes
from cctrace.papers.traces import of_preset

RTT_MS, RATIO = 270, 0.25
MBPS, EGRESS_MBPS = 30, 80
LOW_MBPS, HIGH_MBPS, CHANGES_S = 10.0, 80.0, 900
PRESET = "5g_static1"
POLICED, POLICED_WIDE = "policer, 100 kB", "policer, 1 MB"
SHORT, RANDOM, BURSTS = "queue of R 0.02", "6 % at random", "losses in bursts"
EACH_S, EACH_5S, LIKE_STATIC1 = "another rate each 1 s", "another rate each 5 s", "preset static1"
VARYING = (EACH_S, EACH_5S, LIKE_STATIC1)
KINDS = (POLICED, POLICED_WIDE, SHORT, RANDOM, BURSTS, *VARYING)
LITTLE = "0.02%"


def of_kind(kind: str, seed: int) -> Fields:
    """Return the fields of `Path` of a kind of path.

    >>> of_kind("policer, 100 kB", 1)["policer"], of_kind("another rate each 5 s", 1)["rate"][1][0]
    (['30Mbit', '100kB'], 5)
    """
    if kind == LIKE_STATIC1:
        return of_preset(PRESET, seed, CHANGES_S) | {"rtt": f"{RTT_MS}ms"}
    changes: dict[str, Fields] = {
        POLICED: {"rate": f"{EGRESS_MBPS}Mbit", "policer": [f"{MBPS}Mbit", "100kB"]},
        POLICED_WIDE: {"rate": f"{EGRESS_MBPS}Mbit", "policer": [f"{MBPS}Mbit", "1MB"]},
        RANDOM: {"loss": "6%"},
        BURSTS: {"loss": "30%", "burst_loss": [0.0005, 0.02]},
        EACH_S: {"rate": _changing(1, seed)},
        EACH_5S: {"rate": _changing(5, seed)},
    }
    ratio = 0.02 if kind == SHORT else RATIO
    base = {"rate": f"{MBPS}Mbit", "rtt": f"{RTT_MS}ms", "buffer": f"{round(ratio * bdp_bytes(MBPS, RTT_MS))}B"}
    return base | {"loss": LITTLE} | changes.get(kind, {})


def _changing(every_s: int, seed: int) -> list[list]:
    rng = np.random.default_rng([seed, every_s])
    starts = range(0, CHANGES_S, every_s)
    rates = np.exp(rng.uniform(np.log(LOW_MBPS), np.log(HIGH_MBPS), len(starts)))
    return [[at, f"{mbps:.2f}Mbit"] for at, mbps in zip(starts, rates, strict=True)]
