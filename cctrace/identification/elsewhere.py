"""What tells the candidates apart where departures are estimates: flights, rates and phases, and what they weigh.

Single sends do not tell there, and what a replay is off by hangs together over the whole flow: a queue before the
capture, a minimum RTT that it hides, a gain cycle out of step. So log likelihoods count little, and per block less the
more blocks there are:

    evidence = (300 / n)^(2/3) [ FAMILY   best of the candidates with a gain cycle, against those without (flights)
                               + FLIGHTS  each of them against the best (flights)       x short^(1/2)
                               + (BANDWIDTH by_bandwidth + LEVEL by_level) (phases)     x short^(4/3) ]
               - AFTER wrong_factor        short = min(1, flight / 60 segments): the errors are of segments
               - what flights say against one that paces (`identify_strange`)

A window that something else than cwnd holds, whoever's it is, tells neither those that pace from the others, nor that
they should have probed.

The weights are those of greatest likelihood (of the sender, in a softmax) over 225 simulated flows, 25 random paths of
seeds 41 and 42 as their receivers saw them; with weights fitted to three quarters of the paths, 97 to 99 % of the
flows on the others were right.
"""

import math

import numpy as np

from cctrace.identification.odds import wrong_factor
from cctrace.identification.phases import Phases

FAMILY, FLIGHTS, BANDWIDTH, LEVEL, AFTER = 0.009, 0.012, 0.045, 0.035, 0.5
MANY, DEPENDENCE = 300, 2 / 3  # blocks; exponent with which more of them count for less
HALF_OPEN = 0.5  # share of a block's ACKs in recovery that make it one of recovery
NEUTRAL = 0.57  # log likelihood of a flight or rate that is off by a tenth, at that scale
LONG, SHORT_FLIGHTS, SHORT_PHASES = 60, 0.5, 4 / 3  # segments in flight; exponents with which fewer count for less


def _told(one, open_):
    """Return what each block's flight tells; in recovery an unpaced replay follows the flight, which tells little."""
    return one.halves if one.paces else np.where(open_, one.halves, np.minimum(one.halves, NEUTRAL))


def elsewhere(shown, found, phases=None):
    """Return the log of what speaks for each candidate.

    Parameters
    ----------
    shown : identify_evidence.Shown
    found : {str: identify_evidence.Evidence}
    phases : Phases, optional
        Of both, if there already.
    """
    phases = phases or Phases(shown, found)
    open_ = shown.halves.each(shown.halves.open)[shown.halves.busy] > HALF_OPEN
    flights = {name: float(np.sum(_told(one, open_))) for name, one in found.items()}
    best = max((value for name, value in flights.items() if found[name].paces), default=0.0)
    blocks = max(len(one.halves) for one in found.values())
    count = (MANY / max(blocks, 1)) ** DEPENDENCE
    short = min(float(np.median(shown.halves.flight)) / LONG, 1.0)
    evidence = {}
    for name, one in found.items():
        if one.paces:
            value = FAMILY * best + FLIGHTS * short**SHORT_FLIGHTS * (flights[name] - best)
            cycle = BANDWIDTH * phases.by_bandwidth.get(name, 0.0) + LEVEL * phases.by_level.get(name, 0.0)
            evidence[name] = count * (value + short**SHORT_PHASES * cycle)
        else:
            evidence[name] = count * FAMILY * flights[name] - AFTER * wrong_factor(one)
    return _apart(found, evidence, shown.halves.held_back)


def _apart(found, evidence, held_back):
    """Return the evidence with what flights say against those that pace; if held back, none that does not is ahead."""
    if not held_back:
        return {name: value - found[name].foreign for name, value in evidence.items()}
    most = max((value for name, value in evidence.items() if found[name].paces), default=math.inf)
    return {name: value if found[name].paces else min(value, most) for name, value in evidence.items()}
