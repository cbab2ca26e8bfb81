"""What a replay asks of its source: a flow, of packets or of counters, or anything that has a stream or a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from cctrace.flows.events import Events
    from cctrace.flows.views import View
    from cctrace.io.tcpinfo import TcpInfo


@runtime_checkable
class Viewed(Protocol):
    """Anything that has a `View` of its calls: a flow, of QUIC's controllers, and a view itself."""

    def view(self, kind: str, **params: Any) -> View:
        """Return what controllers of a kind ("linux" or "quic") read."""


@runtime_checkable
class Streamed(Protocol):
    """Anything that has the event stream of one sender."""

    @property
    def events(self) -> Events:
        """The event stream."""

    @property
    def hz(self) -> int:
        """Ticks per second of the sender's kernel."""


class FlowSource(Streamed, Viewed, Protocol):
    """One connection, of which packets (`Flow`) or only counters (`CounterFlow`) are known."""

    @property
    def facts(self) -> dict[str, Any]:
        """What holds for the whole connection; the `meta` of `events`."""

    @property
    def tcpinfo(self) -> TcpInfo | None:
        """The kernel's own account; None where none is attached."""

    @property
    def caveats(self) -> Sequence[str]:
        """What a reader of anything computed from `events` should know."""

    @property
    def key(self) -> tuple[Any, ...]:
        """(src, sport, dst, dport), None where the source does not tell."""

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `flows`, the table of connections."""

    def seconds(self, time_ns: ArrayLike) -> NDArray[np.float64]:
        """Return times of the capture's clock in seconds since the flow's beginning."""


def flow_of(source: object) -> FlowSource | None:
    """Return a source that is one connection; None where it is but a stream, a view or the path of a golden vector."""
    return source if isinstance(source, Flow | CounterFlow) else None
