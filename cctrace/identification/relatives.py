"""An unknown sender's nearest relative, and in what it differs from it.

    parameters   of a relative that has any: each value of a short list is replayed; the one that explains the flow far
                 better is told ("cubic6 with bic_scale 164, not 41")
    windows      of a relative without pacing, else: which share of its window the sender keeps in a reduction, and how
                 fast it grows between them, in segments a round

Only the first MOST_ROWS events are replayed, one parameter at a time: for values with intervals there is
`cctrace.fit.parameters`.
"""

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.identification.flights import limited
from cctrace.identification.sends import examine, first

TRIED = {
    "beta": (0.5, 0.6, 0.8, 0.875, 0.95),
    "bic_scale": (4, 10, 20, 82, 164, 410),
    "up_pacing_gain": (1.1, 1.5, 2.0),
    "down_pacing_gain": (0.5, 0.6, 0.9),
    "cwnd_gain": (1.0, 1.5, 3.0),
    "bw_rtts": (2, 5, 20),
    "probe_bw_cwnd_gain": (1.0, 1.5, 3.0),
}
MOST_ROWS = 30_000  # of the event stream
FAR_BETTER = 0.4  # times the share of wrong windows at most
CLEARLY = 0.5  # log likelihood of a send more, in the mean of the intervals
OTHER_FACTOR, OTHER_GROWTH = 0.06, 0.2  # of the window; logarithm
FEW_REDUCTIONS, ROUNDS = 2, 10  # that tell of either
LATEST = 6  # ACKs before a reduction, of which the largest flight stands for the window


def difference(shown, name, factor):
    """Return in words, after a comma, in what an unknown sender differs from its nearest relative; "" if not known.

    Parameters
    ----------
    shown : identify_evidence.Shown
    name : str
        The relative.
    factor : float
        By which it multiplies its window, NaN for one that paces.
    """
    parameter = other_parameter(shown, name) if shown.exact else ""
    told = parameter or ("" if np.isnan(factor) else other_windows(shown, name, factor))
    return f", and {told}" if told else ""


def other_parameter(shown, name):
    """Return in words which value of a parameter lets the nearest relative explain a flow far better; "" for none.

    Parameters
    ----------
    shown : identify_evidence.Shown
        Of exact times.
    name : str
        The nearest relative.
    """
    cls, _ = resolve(name)
    few = first(shown, MOST_ROWS)
    usual = examine(few, name)
    found = []
    for parameter, values in TRIED.items():
        if parameter in cls.params:
            for value in values:
                one = examine(few, f"{name}:{parameter}={value}")
                found.append((_gain(usual, one), parameter, value))
    gain, parameter, value = max(found, default=(0.0, "", 0))
    if gain <= 0:
        return ""
    return f"with {parameter} {value:g} instead of {cls.params[parameter].default:.3g} {name} would explain it better"


def _gain(usual, one):
    """Return by how much a value explains more than the usual one; 0 or below if not far."""
    if usual.astray is not None:
        return FAR_BETTER - one.astray.share / max(usual.astray.share, 1e-3)
    return float(np.mean(one.sends) - np.mean(usual.sends)) - CLEARLY if len(one.sends) else 0.0


def kept_and_grown(shown):
    """Return what share of its window a sender keeps in a reduction, and its growth, segments a round; NaN unknown.

    Parameters
    ----------
    shown : identify_evidence.Shown
    """
    blocks = shown.halves
    told = np.flatnonzero(limited(blocks))
    places = np.searchsorted(blocks.acks, blocks.reductions)
    kept, grown, rounds = [], 0.0, 0.0
    for begin, end in zip([0, *places], [*places, len(blocks.acks)], strict=True):
        inside = told[(told >= begin) & (told < end)]
        if not len(inside):
            continue
        if begin:
            before = told[(told < begin) & (told >= begin - LATEST)]
            if len(before):
                kept.append(blocks.flight[inside[0]] / blocks.flight[before].max())
            flights = blocks.flight[inside]
            acked = np.diff(blocks.left[inside])
            grown += float(flights[-1] - flights[0])
            rounds += float(np.sum(acked / np.maximum(flights[1:], 1)))
    share = float(np.median(kept)) if len(kept) >= FEW_REDUCTIONS else np.nan
    return share, grown / rounds if rounds >= ROUNDS else np.nan


def other_windows(shown, name, factor):
    """Return in words how the windows of a sender differ from those of a relative that does not pace; "" if not known.

    Parameters
    ----------
    shown : identify_evidence.Shown
    name : str
        The relative.
    factor : float
        By which it multiplies its window.
    """
    kept, grown = kept_and_grown(shown)
    told = []
    if abs(kept - factor) > OTHER_FACTOR:
        told.append(f"this sender keeps {kept:.2f} of its window in a reduction, not {factor:.2f}")
    if name == "reno" and abs(np.log(max(grown, 1e-2))) > OTHER_GROWTH:
        told.append(f"its window grows by {grown:.2f} segments a round, not 1")
    return ", and ".join(told)
