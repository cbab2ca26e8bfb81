"""Results of estimators: values with intervals, as text and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from cctrace.display import Summarized, plain
from cctrace.documents import of_shape
from cctrace.errors import FormatError
from cctrace.units import format_number, format_percent

Z95 = 1.959963984540054
Z90 = 1.6448536269514722


class Estimate(NamedTuple):
    """A value and its 95 % interval; a side that the data do not bound is None.

    Parameters
    ----------
    value : float
    low, high : float, optional
        Ends of the interval.

    Examples
    --------
    >>> print(Estimate(10.0, 9.0, 12.5))
    10 (9 to 12.5, 95 % interval)
    >>> Estimate(10.0, 9.0, None).text("{:.0f} ms")
    '10 ms (at least 9 ms)'
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def level(self) -> float:
        """The share of such intervals that hold the truth."""
        return 0.95

    @classmethod
    def around(cls, value: float, error: float, least: float = -np.inf) -> Self:
        """Return the estimate whose 95 % interval is that of a normal error, cut at `least`."""
        return cls(float(value), float(max(value - Z95 * error, least)), float(value + Z95 * error))

    @classmethod
    def by_factor(cls, value: float, error: float) -> Self:
        """Return the estimate of a positive value whose logarithm has a normal error."""
        factor = float(np.exp(Z95 * min(error, 3.0)))
        return cls(float(value), float(value) / factor, float(value) * factor)

    @classmethod
    def of_draws(cls, value: float, draws: ArrayLike) -> Self:
        """Return the estimate whose interval holds 95 % of resampled values."""
        low, high = np.quantile(np.asarray(draws, float), [0.025, 0.975])
        return cls(float(value), float(min(low, value)), float(max(high, value)))

    @property
    def number(self) -> float:
        """The value for arithmetic: NaN if unknown."""
        return np.nan if self.value is None else float(self.value)

    def sides(self) -> tuple[float, float, float]:
        """Return value, low and high; NaN for what the data do not bound."""
        value, low, high = (np.nan if side is None else float(side) for side in self)
        return value, low, high

    @property
    def error(self) -> float:
        """Standard error whose 95 % interval is as long; NaN where the data do not bound a side."""
        _, low, high = self.sides()
        return (high - low) / (2 * Z95)

    def shifted(self, by: float) -> Self:
        """Return the estimate of a value that is larger by a known amount."""
        return type(self)(*(None if side is None else side + by for side in self))

    def scaled(self, factor: float) -> Self:
        """Return the estimate in another unit."""
        return type(self)(*(None if side is None else side * factor for side in self))

    def columns(self, name: str) -> dict[str, float | None]:
        """Return value and interval as a table has them: {name: ..., name_low: ..., name_high: ...}."""
        return {f"{name}{end}": side for end, side in zip(("", "_low", "_high"), self, strict=True)}

    def to_dict(self) -> dict[str, float | None]:
        """Return {"value", "low", "high"}, and "level" where that is not 0.95."""
        return self._asdict() | ({} if self.level == 0.95 else {"level": self.level})

    def __str__(self) -> str:
        text = self.text()
        interval = f"{format_percent(self.level)} interval"
        return f"{text[:-1]}, {interval})" if text.endswith(")") else f"{text}, {interval}" if any(self[1:]) else text

    def text(self, form: str | None = None) -> str:
        """Return the estimate in words, without its level; numbers have four digits, or are as `form` ("{:.0f}")."""
        value, low, high = (
            None if side is None else form.format(side) if form else format_number(side, 4) for side in self
        )
        if low is not None and high is not None:
            return f"{value} ({low} to {high})"
        if value is None:
            bounds = [f"at least {low}" if low else "", f"at most {high}" if high else ""]
            return ", ".join(filter(None, bounds)) or "unknown"
        return f"{value} (at least {low})" if low is not None else f"{value} (at most {high})" if high else value


class Estimate90(Estimate):
    """A value and its 90 % interval.

    >>> print(Estimate90(10.0, 9.0, 12.5))
    10 (9 to 12.5, 90 % interval)
    """

    @property
    def level(self) -> float:
        """The share of such intervals that hold the truth."""
        return 0.90


def estimate_in(found: Mapping[str, Any]) -> Estimate | None:
    """Return the estimate that a dict holds, as `Estimate.to_dict` gives it; None if it holds something else."""
    if set(found) - {"level"} != set(Estimate._fields):
        return None
    if any(isinstance(found[side], str | list | dict) for side in Estimate._fields):
        raise TypeError(f"{dict(found)} are not numbers")
    kind = Estimate90 if found.get("level") == 0.90 else Estimate
    return kind(found["value"], found["low"], found["high"])


def outermost(pick: Callable[[list[float]], float], ends: Sequence[float | None]) -> float | None:
    """Return the smallest or largest end of intervals (`pick`: min or max), None if one of them is open."""
    known = [end for end in ends if end is not None]
    return pick(known) if len(known) == len(ends) else None


def ranged(value: str, low: str | None, high: str | None) -> str:
    """Return a value with its interval, of which a side may be open.

    >>> ranged("3.2", "2.9", None), ranged("40 ms", "39 ms", "42 ms")
    ('3.2 (2.9 or more)', '40 ms (39 ms to 42 ms)')
    """
    if low is not None and high is not None:
        return f"{value} ({low} to {high})"
    return f"{value} ({low} or more)" if low is not None else value if high is None else f"{value} ({high} or less)"


class Serialised(Summarized):
    """A fitted estimator that JSON text can hold; the data to which it was fitted (``_data…``) are left out."""

    def to_json(self) -> str:
        """Return the fitted estimator as JSON text, which `from_json` reads."""
        state = {name: value for name, value in vars(self).items() if not name.startswith("_data")}
        return json.dumps({"cctrace.fit": type(self).__name__} | _with_names(state), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the estimator that `to_json` wrote. Raises `FormatError` if the text is not of such an estimator."""
        with of_shape("text", f"what {cls.__name__}.to_json wrote"):
            state = json.loads(text, object_hook=lambda found: estimate_in(found) or found)
            if (kind := state.pop("cctrace.fit", None)) != cls.__name__:
                raise FormatError(f"text is of {kind or 'something else'}, not what {cls.__name__}.to_json wrote")
            fit = cls.__new__(cls)
            vars(fit).update(state)
            fit._restore()
            fit.to_dict()
            fit.summary()  # whatever they miss is refused here, not where it is used
        return fit

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        raise NotImplementedError

    def _restore(self) -> None:
        """Turn what JSON holds (objects, lists) back into what the attributes were."""
        raise NotImplementedError


def _with_names(value: Any) -> Any:
    """Return a value as JSON takes it; named tuples become objects."""
    if isinstance(value, Estimate):
        return plain(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _with_names({key: getattr(item, "name", item) for key, item in value._asdict().items()})
    if isinstance(value, dict):
        return {str(key): _with_names(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_names(item) for item in value]
    return plain(value)
