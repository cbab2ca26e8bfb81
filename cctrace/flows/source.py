"""Interface of a replay's source: a flow, of packets or counters, or anything with a stream or a view."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from cctrace.columns import Floats
from cctrace.flows.counters import CounterFlow
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.views import View
from cctrace.io.tcpinfo import TcpInfo


@runtime_checkable
class Viewed(Protocol):
    """Anything with a `View` of its calls: a flow, for QUIC's controllers, and a view itself."""

    def view(self, kind: str, **params: Any) -> View:
        """Return what controllers of a kind ("linux" or "quic") read."""


@runtime_checkable
class Streamed(Protocol):
    """Anything with the event stream of one sender."""

    @property
    def events(self) -> Events:
        """The event stream."""

    @property
    def hz(self) -> int:
        """Ticks per second of the sender's kernel."""


class FlowSource(Streamed, Viewed, Protocol):
    """One connection, known from packets (`Flow`) or counters only (`CounterFlow`)."""

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of the entire connection; the `meta` of `events`."""

    @property
    def tcpinfo(self) -> TcpInfo | None:
        """Kernel counters; None if not attached."""

    @property
    def caveats(self) -> Sequence[str]:
        """Caveats of results computed from `events`."""

    @property
    def key(self) -> tuple[Any, ...]:
        """(src, sport, dst, dport), None if unknown."""

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `flows`, the table of connections."""

    def seconds(self, time_ns: ArrayLike) -> Floats:
        """Return times of the capture's clock in seconds since the flow's start."""


def flow_of(source: object) -> FlowSource | None:
    """Return a source that is one connection; None for a stream, a view or the path of a golden vector."""
    return source if isinstance(source, Flow | CounterFlow) else None
