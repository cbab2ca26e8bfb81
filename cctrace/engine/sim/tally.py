"""Tallies: how often a quantity had which value, in logarithmic steps fine enough for percentiles within 1 %."""

import math

from cctrace.engine.sim.memory import words


def count(address, value):
    """Count a non-negative value."""
    mantissa, exponent = math.frexp(float(value))
    words(address)[exponent * 64 + int(mantissa * 128.0) - 64 if value > 0 else 0] += 1
