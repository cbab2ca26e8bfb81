"""Random numbers, the same interpreted and compiled: xorshift64 per stream [Marsaglia2003]."""

import math

import numpy as np

from cctrace.engine.sim.memory import naturals

LOSS_STREAM, JITTER_STREAM, CC_STREAM, LATE_STREAM = 0, 1, 2, 3


def random64(w, stream):
    """The next 64 random bits of a stream."""
    states = naturals(w.rng)
    x = states[stream]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    states[stream] = x
    return x


def random_bits(w, stream, bits):
    """A random integer of `bits` bits (at most 62), the generator's high ones."""
    return np.int64(random64(w, stream) >> np.uint64(64 - bits))


def uniform(w, stream):
    """A number in [0, 1)."""
    return np.float64(random_bits(w, stream, 53)) * (1.0 / 9007199254740992.0)


def normal(w, stream):
    """A standard normal number (Box-Muller, one of the pair)."""
    u = 1.0 - uniform(w, stream)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(6.283185307179586 * uniform(w, stream))


def gamma(w, stream, shape):
    """A gamma number of unit scale [Marsaglia2000]; shapes below one by the power of a uniform."""
    boost = 1.0
    if shape < 1.0:
        boost = (1.0 - uniform(w, stream)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        z = normal(w, stream)
        v = (1.0 + c * z) ** 3
        if v > 0.0 and math.log(1.0 - uniform(w, stream)) < 0.5 * z * z + d - d * v + d * math.log(v):
            return boost * d * v
