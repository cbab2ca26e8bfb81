"""Interface of a replay's source: a flow, of packets or counters, or anything with a stream or a view."""

from typing import Protocol, TypeAlias, runtime_checkable

from cctrace.flows.counters import CounterFlow
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.views import View


@runtime_checkable
class Viewed(Protocol):
    """Anything with a `View` of its calls: a flow, for QUIC's controllers, and a view itself."""

    def view(self, kind: str) -> View:
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


# One connection, known from packets, or from counters only.
FlowSource: TypeAlias = Flow | CounterFlow


def flow_of(source: object) -> FlowSource | None:
    """Return a source that is one connection; None for a stream, a view or the path of a golden vector."""
    return source if isinstance(source, FlowSource) else None
