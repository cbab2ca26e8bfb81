"""Histograms: counts of a quantity in logarithmic steps, fine enough for percentiles within 1 %."""

import math

from cctrace.lang.memory import words
from cctrace.sim.core.structs import TALLY_SIZE


def count(address, value):
    """Count a non-negative value; what is beyond the last step is counted there."""
    mantissa, exponent = math.frexp(float(value))
    step = exponent * 64 + int(mantissa * 128.0) - 64 if value > 0 else 0
    words(address)[min(step, TALLY_SIZE - 1)] += 1
