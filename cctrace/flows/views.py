"""What a controller reads: the event stream on its stack's own clocks and units, one row per call.

A recorded flow, a simulated flow and a golden vector all become a `View`; `cctrace.engine` knows nothing else.
"""

import numpy as np

from cctrace import schema
from cctrace.errors import StreamError

_SCHEMA = {"linux": schema.names(schema.LINUX_VIEW), "quic": schema.names(schema.QUIC_VIEW)}
CARRIED = {"linux": schema.LINUX_CARRIED, "quic": schema.QUIC_CARRIED}
_TIME = {"linux": ("now_us", 1_000), "quic": ("now_ms", 1_000_000)}


class View:
    """The calls into a controller and everything it can read in them.

    Parameters
    ----------
    kind : "linux" or "quic"
        Which stack's columns these are: `schema.LINUX_VIEW` or `schema.QUIC_VIEW`.
    event : array_like of int, shape (n,)
        Codes of `schema.EVENT_CODES`.
    columns : dict of str to array_like of int, shape (n,)
        Columns of the schema. A column that is left out was not recorded; a controller that reads it is refused.
    carried : dict of str to array_like of int, shape (n,), optional
        Observed values of the fields that `schema.LINUX_CARRIED` or `schema.QUIC_CARRIED` map to, set on the controller
        before each call. Without them the controller's own outputs carry over.
    unknown : iterable of str, optional
        Columns that hold a neutral value because nobody observed them.

    Raises
    ------
    StreamError
        If a column is not in the schema, has another length, or holds NaN or a fraction.

    Examples
    --------
    >>> View("linux", [0, 1], {"now_us": [1_000_000, 1_040_000]}).time_ns
    array([1000000000, 1040000000])
    """

    def __init__(self, kind, event, columns, carried=None, unknown=()):
        if kind not in _SCHEMA:
            raise StreamError(f"a view is 'linux' or 'quic', not {kind!r}")
        self.kind = kind
        self.event = np.ascontiguousarray(event, dtype=np.uint8)
        if self.event.size and self.event.max() >= len(schema.EVENT_CODES):
            row = int(self.event.argmax())
            raise StreamError(f"event code {self.event[row]} in row {row} is not one of schema.EVENT_CODES")
        carried = carried or {}
        self.columns = {name: self._own(k, name, columns[name], _SCHEMA[kind]) for k, name in enumerate(columns)}
        allowed = CARRIED[kind].values()
        self.carried = {
            name: self._own(len(columns) + k, name, carried[name], allowed) for k, name in enumerate(carried)
        }
        self.unknown = frozenset(unknown)

    def __len__(self):
        return len(self.event)

    @property
    def time_ns(self):
        """Time of each call, ns, on the clock of the view; int64, shape (n,)."""
        name, factor = _TIME[self.kind]
        if name not in self.columns:
            raise StreamError(f"this stream lacks column {name!r}, the time of each call")
        return self.columns[name] * factor

    def view(self, kind, **params):
        """Return itself: a view can stand wherever a flow can; raise `StreamError` if it is of the other stack."""
        if kind != self.kind:
            raise StreamError(f"this stream has the columns of a {self.kind} controller, not of a {kind} one")
        return self

    def _own(self, place, name, values, allowed):
        values = np.asarray(values)
        if name not in allowed:
            raise StreamError(f"{name!r} is not a column of the {self.kind} view")
        if values.shape != self.event.shape:
            raise StreamError(f"column {name!r} has shape {values.shape}, the events {self.event.shape}")
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values))))
            if bad.size:
                raise StreamError(f"column {name!r}, row {bad[0]}: {values[bad[0]]} is not an integer")
        elif values.dtype.kind not in "iub":
            raise StreamError(f"column {name!r} holds {values.dtype}, not integers")
        column = staggered(len(values), place)
        column[:] = values
        return column


def staggered(rows, place):
    """Return an uninitialised int64 array that starts in another cache line of a page than those of other places.

    A replay walks through some thirty columns at once. Large arrays all start at the same place of a page, so that the
    current rows of all columns would compete for the same few lines of the cache: half the speed.
    """
    page, line = 4096, 64
    room = np.empty(rows * 8 + 2 * page, dtype=np.uint8)
    start = -room.ctypes.data % page + place * 3 * line % page
    return room[start : start + rows * 8].view(np.int64)
