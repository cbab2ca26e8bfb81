"""The fields that a replay records, as runs of equal values: most change once a round trip, not with every call."""

import numpy as np

from cctrace.columns import Held, Ints, Runs, Values
from cctrace.replaying.engine.calls import Places, recorded_in

# Rows that are recorded before they are turned into runs; not a power of 2, with which all fields of a row would
# compete for one set of the processor's cache.
PART = (1 << 16) + 24


class Recording:
    """Runs of the fields that a follower records; it may go back and record rows again."""

    def __init__(self, places: Places, rows: int) -> None:
        self.words = np.empty((len(places), min(rows, PART)), np.int64)  # from row `first` on
        self.first = 0
        self._places = places
        self._begins: list[list[Ints]] = [[] for _ in places]
        self._values: list[list[Values]] = [[] for _ in places]

    def until(self, row: int, end: int = 0) -> int:
        """Return the row up to which there is memory if `row` is the next: at least `end`, if that is possible."""
        if row < self.first:
            self._forget(row)
        elif max(row + 1, end) > self.first + self.words.shape[1]:
            self._keep(row)
        return self.first + self.words.shape[1]

    def columns(self, called: int, rows: int) -> Held:
        """Return the columns of `rows` rows, of which those before `called` were recorded; the others are 0."""
        self._keep(called)
        runs = {}
        for name, begins, values in zip(self._places, self._begins, self._values, strict=True):
            end = np.arange(called, min(called + 1, rows))
            zero = np.zeros(len(end), self._places[name][1])
            runs[name] = Runs(np.concatenate([*begins, end]), np.concatenate([*values, zero]))
        return Held(rows, {}, runs)

    def _keep(self, row: int) -> None:
        """Turn the rows before `row`, which is recorded next, into runs."""
        words = self.words[:, : max(row - self.first, 0)]
        for k, values in enumerate(recorded_in(words, self._places).values()):
            if not len(values):
                continue
            bits = _bits(values)
            at = np.flatnonzero(bits[1:] != bits[:-1]) + 1
            if not self._values[k] or _bits(self._values[k][-1][-1:])[0] != bits[0]:
                at = np.append(0, at)
            if len(at):
                self._begins[k].append(at + self.first)
                self._values[k].append(values[at])
        self.first = row

    def _forget(self, row: int) -> None:
        """Forget the rows from `row` on, which are recorded again."""
        for begins, values in zip(self._begins, self._values, strict=True):
            while begins and begins[-1][0] >= row:
                del begins[-1], values[-1]
            if begins:
                last = int(np.searchsorted(begins[-1], row))
                begins[-1], values[-1] = begins[-1][:last], values[-1][:last]
        self.first = row


def _bits(values: Values) -> Values:
    """Return floats as integers, so that NaN equals NaN, and 0.0 differs from -0.0."""
    return values.view(f"i{values.itemsize}") if values.dtype.kind == "f" else values
