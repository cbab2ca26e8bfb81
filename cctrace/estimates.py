"""What every estimator returns: values with intervals, plain dictionaries, and refusals."""

import json
from typing import NamedTuple

import numpy as np

from cctrace.errors import ArgumentError
from cctrace.units import format_number

Z95 = 1.959963984540054


class Estimate(NamedTuple):
    """A value and its 95 % interval; a side that the data do not bound is None.

    >>> Estimate(10.0, 9.0, None).text("{:.0f} ms")
    '10 ms (at least 9 ms)'
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    @classmethod
    def around(cls, value, error, least=-np.inf):
        """Return the estimate whose interval is that of a normal error, cut at `least`."""
        return cls(float(value), float(max(value - Z95 * error, least)), float(value + Z95 * error))

    @classmethod
    def by_factor(cls, value, error):
        """Return the estimate of a positive value whose logarithm has a normal error."""
        factor = float(np.exp(Z95 * min(error, 3.0)))
        return cls(float(value), float(value) / factor, float(value) * factor)

    @classmethod
    def of_draws(cls, value, draws):
        """Return the estimate whose interval holds 95 % of resampled values."""
        low, high = np.quantile(draws, [0.025, 0.975])
        return cls(float(value), float(min(low, value)), float(max(high, value)))

    def scaled(self, factor):
        """Return the estimate in another unit."""
        return Estimate(*(None if side is None else side * factor for side in self))

    def to_dict(self):
        """Return {"value", "low", "high"}."""
        return dict(self._asdict())

    def text(self, form=None):
        """Return the estimate in words; numbers have four digits, or are as `form` ("{:.0f}") says."""
        value, low, high = (
            None if side is None else form.format(side) if form else format_number(side, 4) for side in self
        )
        if low is not None and high is not None:
            return f"{value} ({low} to {high})"
        if value is None:
            bounds = [f"at least {low}" if low else "", f"at most {high}" if high else ""]
            return ", ".join(filter(None, bounds)) or "unknown"
        return f"{value} (at least {low})" if low is not None else f"{value} (at most {high})" if high else value


def plain(value):
    """Return a value as JSON takes it: estimates as objects, NaN as None."""
    if isinstance(value, Estimate):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


class Kept:
    """A fitted estimator that survives as JSON text; the data it was fitted to (``_data…``) do not."""

    def to_json(self):
        """Return the fitted estimator as JSON text, which `from_json` reads."""
        state = {name: value for name, value in vars(self).items() if not name.startswith("_data")}
        return json.dumps({"cctrace.fit": type(self).__name__} | _named(state), allow_nan=False)

    @classmethod
    def from_json(cls, text):
        """Return the estimator that `to_json` wrote.

        Raises
        ------
        ArgumentError
            If the text is not of such an estimator.
        """
        try:
            state = json.loads(text, object_hook=_estimate)
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"text is not JSON: {error}") from None
        kind = state.pop("cctrace.fit", None) if isinstance(state, dict) else None
        if kind != cls.__name__:
            raise ArgumentError(f"text is of {kind or 'something else'}; it must be what {cls.__name__}.to_json wrote")
        fit = cls.__new__(cls)
        vars(fit).update(state)
        fit._restore()
        return fit

    def _restore(self):
        """Make of what JSON holds (objects, lists) what the attributes were."""
        raise NotImplementedError


def _named(value):
    """Return a value as JSON takes it; named tuples become objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _named({key: getattr(item, "name", item) for key, item in value._asdict().items()})
    if isinstance(value, dict):
        return {str(key): _named(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    return plain(value)


def _estimate(found):
    return Estimate(**found) if set(found) == set(Estimate._fields) else found
