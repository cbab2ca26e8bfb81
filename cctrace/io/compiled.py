"""How the decoders are compiled.

Without Numba's reference counting (`_nrt`): it would cost three quarters of the time, and no decoder allocates.
"""

from functools import partial
from typing import Any

from numba import njit

compiled: Any = partial(njit, cache=True, nogil=True, _nrt=False)

# Offsets are never negative; saying so with this mask spares Numba's wrap-around of negative indices, and lets LLVM
# fuse the bytes of a field into one load: a factor of two in speed.
OFFSET = (1 << 40) - 1
