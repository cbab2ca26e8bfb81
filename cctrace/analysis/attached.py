"""Kernel counters given with captures, and their assignment to flows."""

from collections.abc import Iterable

from cctrace.errors import ArgumentError
from cctrace.flows.align import is_of_receiver
from cctrace.flows.flow import Flow
from cctrace.io.tcpinfo import TcpInfo


class Counters:
    """The counters given with captures."""

    def __init__(self, tables: Iterable[TcpInfo]) -> None:
        self.tables = list(tables)
        self._refused = {
            id(table): f"{table.source}: no flow of the captures has these addresses" for table in self.tables
        }

    def attach(self, flow: Flow) -> tuple[Flow, list[str]]:
        """Return a flow with its counters attached, and notes on those of its receiver."""
        notes = []
        for table in self.tables:
            try:
                flow = flow.attach(table)
            except ArgumentError as error:
                if is_of_receiver(flow, table):
                    notes.append(f"{error}: they do not tell what limited its sender, so it was analysed without them")
                    self._refused.pop(id(table), None)
                elif id(table) in self._refused:
                    self._refused[id(table)] = str(error)
            else:
                self._refused.pop(id(table), None)
        return flow, notes

    def require_used(self) -> None:
        """Raise `ArgumentError` if counters belong to no flow of the captures."""
        if self._refused:
            raise ArgumentError(next(iter(self._refused.values())))
