"""Histograms: counts of a quantity in logarithmic steps, fine enough for percentiles within 1 %."""

from cctrace.cc.cmath import fls64
from cctrace.lang.memory import words
from cctrace.sim.core.structs import TALLY_SIZE


def count(address, value):
    """Count a non-negative value; what is beyond the last step is counted there."""
    exponent = fls64(value | 1) & 63  # as if it could be 64: then it need not be asked
    step = (exponent << 6) + ((value << 7) >> exponent) - 64
    words(address)[min(step, TALLY_SIZE - 1)] += 1
