"""Random numbers, the same interpreted and compiled: SplitMix64 per stream [Steele2014].

Generator and seeding are those of the simulation behind the golden vectors, inferred from their losses: runs of
profile `reference` and of QUIC can be compared with those tables one by one, not only on average.
"""

import math

import numpy as np

from cctrace.lang.memory import naturals

PATH_STREAM, CC_STREAM, LATE_STREAM = 0, 1, 2  # losses and jitter, controllers, inexact hosts


def seeded(seed):
    """Return the states of the streams."""
    late = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    return np.array([(7919 * seed + 12345) % 2**64, seed % 2**64, late], np.uint64)


def random64(w, stream):
    """The next 64 random bits of a stream."""
    states = naturals(w.rng)
    x = states[stream] + np.uint64(0x9E3779B97F4A7C15)
    states[stream] = x
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_bits(w, stream, bits):
    """A random integer of `bits` bits (at most 62), the generator's high ones."""
    return np.int64(random64(w, stream) >> np.uint64(64 - bits))


def uniform(w, stream):
    """A number in [0, 1)."""
    return np.float64(random_bits(w, stream, 53)) * (1.0 / 9007199254740992.0)


def normal(w, stream):
    """A standard normal number (polar method [Marsaglia1964]; the second of a pair waits for the next call)."""
    if w.has_normal == 1:
        w.has_normal = 0
        return w.next_normal
    while True:
        x = 2.0 * uniform(w, stream) - 1.0
        y = 2.0 * uniform(w, stream) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            scale = math.sqrt(-2.0 * math.log(square) / square)
            w.has_normal = 1
            w.next_normal = y * scale
            return x * scale


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
