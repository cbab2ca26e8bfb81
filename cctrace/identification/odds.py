"""Does the best candidate explain a flow as its own sender would? How probable it is that a stranger sent it.

A sender's own replay is near perfect, whatever the path; a stranger's nearest relative is so for a while, or roughly.
Measures of the fit, each a share of what perfection would be, add to the log odds:

    sends      the median log likelihood of a send, in captures whose times are exact: about +2.4 of one's own in
               simulation, +1 on real hosts, less where super-packets are long, for a mistaken size costs more there
    astray     where times are exact: at which share of the ACKs an unpaced candidate's window is not the flow's
               (`identify_windows`)
    scale      by how much flights and rates are off (`identify_trajectory.likelihoods`), else
    after      by how much the window after a reduction is off: it tells the factor of the reduction

The constants are those that separate simulated flows and recordings from strangers; docs/identify.md has how well.
"""

import math

import numpy as np

from cctrace.identification.sends import super_packet

BEFOREHAND = 1.0  # log odds
SLOPE, MIDDLE, PER_LENGTH = 2.0, -0.8, 0.3  # of the median log likelihood of a send
REBUILT_SLOPE, REBUILT = 1.0, 3.5  # where SACKs were put back: a few segments too many are a bandwidth for ten rounds
UNPACED_SLOPE, MOST_SENDS = 1.0, 3.0  # the same where ACKs let most sends go, and what it adds at most
ASTRAY, TICKS_ASTRAY, LEAST_ASTRAY, ASTRAY_WEIGHT = 0.022, 0.04, 0.004, 3.0  # shares; CUBIC's ticks have to be inferred
EXACT_SCALE, EXACT_WEIGHT = 0.045, 2.0
PACED_SCALE, PACED_WEIGHT, MOST_PACED = 0.13, 6.0, 3.0  # where the times are estimates; what it adds at most
WINDOW_SCALE, WINDOW_WEIGHT, MOST_WINDOW = 0.06, 6.0, 4.0
HELD_BACK = 1.0  # log odds at most where something else than cwnd held an unpaced sender, whoever it was
AFTER, AFTER_WEIGHT, MOST_AFTER = 0.03, 80.0, 8.0
FEW_BLOCKS, FEW_HALVES, FEW_ACKS, FEW_REDUCTIONS = 30, 40, 60, 4  # that count for less


def known_log_odds(shown, best):
    """Return the log odds that the best candidate sent a flow, against that a stranger did.

    Parameters
    ----------
    shown : identify_evidence.Shown
    best : identify_evidence.Evidence
        Of the candidate that explains it best.
    """
    total = BEFOREHAND
    halves = min(len(best.halves) / FEW_HALVES, 1.0)
    if shown.exact:
        middle = MIDDLE - PER_LENGTH * math.log(super_packet(shown.events.sends))
        sends = min(len(best.sends) / FEW_BLOCKS, 1.0) * (float(np.median(best.sends)) - middle)
        if best.astray is None:
            full = min(len(best.sends) / FEW_BLOCKS, 1.0)
            total += REBUILT_SLOPE * (sends + REBUILT * full) if shown.rebuilt else SLOPE * sends
            total += halves * EXACT_WEIGHT * math.log(EXACT_SCALE / best.scale)
        else:
            total += max(min(UNPACED_SLOPE * sends, MOST_SENDS), -MOST_SENDS) + _right_windows(best)
    else:
        usual, weight, most = (
            (PACED_SCALE, PACED_WEIGHT, MOST_PACED) if best.paces else (WINDOW_SCALE, WINDOW_WEIGHT, MOST_WINDOW)
        )
        total += halves * min(weight * math.log(usual / best.scale), most) - best.foreign
        if shown.halves.held_back and not best.paces:
            total = min(total, HELD_BACK)
    return total - wrong_factor(best)


def _right_windows(best):
    usual = TICKS_ASTRAY if best.ticks else ASTRAY
    weight = ASTRAY_WEIGHT * min(best.astray.acks / FEW_ACKS, 1.0)
    return weight * math.log(usual / max(best.astray.share, LEAST_ASTRAY))


def wrong_factor(one):
    """Return what it takes off a candidate's log odds that its windows are off after reductions, at most MOST_AFTER."""
    if math.isnan(one.after):
        return 0.0
    wrong = min(AFTER_WEIGHT * max(abs(one.after) - AFTER, 0.0), MOST_AFTER)
    return wrong * min(one.reductions / FEW_REDUCTIONS, 1.0)
