"""What every model of this package shares: checked arguments, and a stated domain.

A closed form returns a number for any arguments, including those for which it was never derived. Each model
therefore has a `domain` function that returns a `Domain`: inside or outside, and the reason. The numbers are
computed either way and printed together with the reason.
"""

from __future__ import annotations  # so that help() shows names of types

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cctrace.arguments import short_repr
from cctrace.columns import Floats
from cctrace.errors import ArgumentError

Real = float | Floats  # one number or many
MSS_BYTES, PACKET_BYTES = 1448, 1514  # of a full segment, as in `tcp.wire`, which is above this package


class Domain(NamedTuple):
    """Whether a model was made for these arguments, and if not, why.

    Parameters
    ----------
    inside : bool
    reason : str, optional
        Why not.

    Examples
    --------
    >>> Domain(False, "buffer below 4 BDP").text
    'outside: buffer below 4 BDP'
    """

    inside: bool
    reason: str = ""

    @property
    def text(self) -> str:
        """The domain in words: "inside", or "outside: <reason>"."""
        return "inside" if self.inside else f"outside: {self.reason}"


def domain_of(*conditions: tuple[Any, str]) -> Domain:
    """Return the `Domain` in which every (holds, reason otherwise) of `conditions` holds.

    >>> domain_of((True, "never"), (False, "too shallow"), (False, "too many flows")).text
    'outside: too shallow; too many flows'
    """
    reasons = [reason for holds, reason in conditions if not holds]
    return Domain(not reasons, "; ".join(reasons))


def checked(
    name: str,
    value: ArrayLike,
    low: float = -np.inf,
    high: float = np.inf,
    open_low: bool = False,
    open_high: bool = False,
    infinite: bool = False,
) -> Floats:
    """Return `value` as a float array after checking that all of it lies between `low` and `high`.

    Nothing may be infinite, unless `infinite`.

    Raises `ArgumentError`, naming the argument, the first offending value and the allowed interval.

    >>> checked("samples", [1, 10], 0)
    array([ 1., 10.])
    """
    try:
        array = np.asarray(value, dtype=float)
    except (OverflowError, TypeError, ValueError):
        text = short_repr(value)
        raise ArgumentError(f"{name} is {text}; it must be a number or an array of numbers") from None
    wrong = np.isnan(array) if infinite else ~np.isfinite(array)
    wrong |= (array <= low) if open_low else (array < low)
    wrong |= (array >= high) if open_high else (array > high)
    if wrong.any():
        left, right = "(" if open_low or low == -np.inf else "[", ")" if open_high or high == np.inf else "]"
        raise ArgumentError(f"{name} is {array[wrong][0]:g}; it must lie in {left}{low:g}, {high:g}{right}")
    return array


def positive(name: str, value: ArrayLike) -> Floats:
    """Return `value` as a float array of numbers above 0, or raise `ArgumentError`."""
    return checked(name, value, 0, open_low=True)


def not_negative(name: str, value: ArrayLike) -> Floats:
    """Return `value` as a float array of numbers of at least 0, or raise `ArgumentError`."""
    return checked(name, value, 0)
