"""Inputs of an analysis: files of flows, and kernel counters, which are assigned to flows."""

import os
from collections.abc import Iterable
from typing import Any, Self

from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError
from cctrace.flows.align import is_of_receiver
from cctrace.flows.capture import read
from cctrace.flows.flow import Flow
from cctrace.flows.large import batches_of_file
from cctrace.io.counters.tcpinfo import TcpInfo


class Input:
    """A file, read: its bulk flows, or the largest. `options` are those of `cctrace.io.read_file`.

    `batches`: lists of flows, the packets of one list at a time in memory if the file is too large for all of them.
    """

    def __init__(self, file: str, progress: Progress, options: dict[str, Any]) -> None:
        progress(f"reading {file}")
        self.file, self.batches = file, batches_of_file(file, **options)

    @property
    def is_held(self) -> bool:
        """Whether all packets are in memory."""
        return isinstance(self.batches, list)

    @property
    def is_single(self) -> bool:
        """Whether all packets are in memory, and only one flow is analysed."""
        return isinstance(self.batches, list) and sum(map(len, self.batches)) == 1


class Counters:
    """The counters given with captures."""

    def __init__(self, tables: Iterable[TcpInfo]) -> None:
        self.tables = list(tables)
        self._refused = {
            id(table): f"{table.source}: no flow of the captures has these addresses" for table in self.tables
        }

    @classmethod
    def of_files(
        cls, files: Iterable[str | os.PathLike[str]], progress: Progress = silent, options: dict[str, Any] | None = None
    ) -> Self:
        """Return the counters read from files."""
        tables = []
        for file in files:
            progress(f"reading {file}")
            tables.append(read(file, **options or {}))
            if not isinstance(tables[-1], TcpInfo):
                raise ArgumentError(f"{file}: holds no counters of connections; give a capture without --tcpinfo")
        return cls(tables)

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

    def require_used_by(self, flows: Iterable[Flow]) -> None:
        """Raise `ArgumentError` if counters belong to none of these flows."""
        for flow in flows:
            if not self._refused:
                break
            self.attach(flow)
        self.require_used()

    @property
    def refused(self) -> list[str]:
        """Why counters belong to no flow so far."""
        return list(self._refused.values())

    def require_used(self) -> None:
        """Raise `ArgumentError` if counters belong to no flow of the captures."""
        if self._refused:
            raise ArgumentError(self.refused[0])
