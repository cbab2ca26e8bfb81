"""Inputs of an analysis: files of flows, and kernel counters, which are assigned to flows."""

import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any, Self

from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError
from cctrace.flows.align import is_of_receiver
from cctrace.flows.capture import read
from cctrace.flows.flow import Flow
from cctrace.flows.large import bulk_of_file
from cctrace.io.tcpinfo import TcpInfo


class Input:
    """A file, read: its bulk flows, or the largest. `options` are those of `cctrace.io.read_file`."""

    def __init__(self, file: str, progress: Progress, options: dict[str, Any]) -> None:
        progress(f"reading {file}")
        self.file, self.flows = file, bulk_of_file(file, **options)

    @property
    def is_held(self) -> bool:
        """Whether all packets are in memory; of a file too large for that, those of a few flows at a time."""
        return isinstance(self.flows, list)


class Counters:
    """The counters given with captures; they are read when they are first asked for."""

    def __init__(self, tables: Iterable[TcpInfo]) -> None:
        self._tables = tables

    @functools.cached_property
    def tables(self) -> list[TcpInfo]:
        """The tables of counters."""
        return list(self._tables)

    @functools.cached_property
    def _refused(self) -> dict[int, str]:
        """Why a table, by its identity, belongs to no flow so far."""
        return {id(table): f"{table.source}: no flow of the captures has these addresses" for table in self.tables}

    @classmethod
    def of_files(
        cls, files: Iterable[str | os.PathLike[str]], progress: Progress = silent, options: dict[str, Any] | None = None
    ) -> Self:
        """Return the counters in files."""

        def tables() -> Iterator[TcpInfo]:
            for file in files:
                progress(f"reading {file}")
                table = read(file, **options or {})
                if not isinstance(table, TcpInfo):
                    raise ArgumentError(f"{file}: holds no counters of connections; give a capture without --tcpinfo")
                yield table

        return cls(tables())

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

    @property
    def refused(self) -> list[str]:
        """Why counters belong to no flow so far."""
        return list(self._refused.values())

    def require_used(self) -> None:
        """Raise `ArgumentError` if counters belong to no flow of the captures."""
        if self._refused:
            raise ArgumentError(self.refused[0])
