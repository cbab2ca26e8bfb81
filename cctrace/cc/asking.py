"""Python functions that compiled controllers ask: ``ask(address, numbers)``, the same interpreted and compiled.

A policy (a network, a model in a file) is asked rarely, so it may stay Python; everything around it is compiled.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_answers: dict[int, Callable[[Any], float]] = {}
_raised: list[BaseException] = []
_Question = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.POINTER(ctypes.c_double))


def answering(function: Callable[[NDArray[np.float64]], float], count: int) -> int:
    """Register a Python function for `ask`; return its address, which compiled code can call as well.

    Compiled code has no exceptions: if the function raises, the answer is 0, and `raise_kept` raises the exception
    later.

    `function`: takes an ndarray of `count` floats, its own copy, and returns a number.

    >>> ask(answering(sum, 3), [1.0, 2.0, 4.0])
    7.0
    """

    def called(numbers: Any) -> float:
        try:
            return float(function(np.ctypeslib.as_array(numbers, (count,)).copy()))
        except BaseException as error:  # an interrupt, too
            _raised.append(error)
            return 0.0

    code = _Question(called)
    address = int(ctypes.cast(code, ctypes.c_void_p).value or 0)

    def answer(numbers: Any, _code: Any = code) -> float:  # keeps the code as long as its address is known
        return float(function(np.array(numbers, float)))

    _answers[address] = answer
    return address


def ask(address: int, numbers: Any) -> float:
    """Return the answer of the function at `address` (see `answering`) to an array of floats."""
    return _answers[address](numbers)


def raise_kept() -> None:
    """Raise the first exception of the functions that compiled code asked, if any failed."""
    if _raised:
        error = _raised[0]
        _raised.clear()
        raise error
